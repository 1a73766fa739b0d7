/* Frames of the journal between coordinators, one behind the other: what is taken keeps its bounds,
 * is packed and read again as it is, and a copy that is fed with it holds no more than its budget
 * and gives all of it back. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/journal.h"
#include "proto/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 20 };

static void require(int ok) {
    if (!ok) abort();
}

static void again(const struct journal_msg *m) {
    struct wr w = WR_INIT, w2 = WR_INIT;
    struct journal_msg got;
    struct errbuf eb = {0};
    journal_msg_pack(&w, m);
    require(!w.failed && journal_frame_bytes(w.data, w.len) == w.len);
    require(journal_msg_unpack(&got, w.data + 4, w.len - 4, &eb) == ERR_OK);
    journal_msg_pack(&w2, &got);
    require(w.len == w2.len && memcmp(w.data, w2.data, w.len) == 0);
    journal_msg_free(&got);
    wr_free(&w);
    wr_free(&w2);
}

static void take(struct journal *j, const uint8_t *data, size_t size, uint64_t now_ms) {
    struct journal_msg m;
    struct errbuf eb = {0};
    if (journal_msg_unpack(&m, data, size, &eb) != ERR_OK) {
        require(eb.text[0] != 0);
        return;
    }
    require(m.kind >= JOURNAL_HELLO && m.kind < JOURNAL_KINDS);
    require(m.n_tokens <= size && m.answer.n <= size && m.body.n <= size);
    if (m.kind == JOURNAL_ENTRY) require(tenant_ok(m.tenant) && m.path[0] == '/');
    again(&m);
    if (m.kind == JOURNAL_SYNCED) journal_swept(j);
    if (m.kind == JOURNAL_HELLO) journal_sweep(j);
    journal_apply(j, &m, now_ms);
    journal_msg_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct budget budget;
    struct journal *j;
    size_t at = 0;
    uint64_t now_ms = 1;
    budget_init(&budget);
    budget_limit_set(&budget, BUDGET_JOURNAL_BYTES, LIMIT);
    require(journal_create(&j, &(struct journal_opts){
                                   .budget = &budget, .answered_ms = 5, .keyed_ms = 50}) == ERR_OK);
    while (at < size) {
        const size_t n = journal_frame_bytes(data + at, size - at);
        if (n == 0 || n > size - at) break;
        take(j, data + at + 4, n - 4, now_ms++);
        require(budget_used(&budget, BUDGET_JOURNAL_BYTES) <= LIMIT);
        at += n;
    }
    for (const struct journal_entry *e = journal_above(j, 0); e != NULL; e = e->next) {
        struct journal_span s;
        struct journal_msg m;
        (void)journal_answer_from(e, e->n_events, &s);
        journal_tell(&m, e);
        again(&m);
    }
    journal_expire(j, now_ms + 3);
    journal_orphan(j, now_ms);
    journal_expire(j, UINT64_MAX);
    require(journal_count(j) == 0 && budget_used(&budget, BUDGET_JOURNAL_BYTES) == 0);
    journal_destroy(&j);
    return 0;
}
