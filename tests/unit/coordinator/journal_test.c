/* Goal: what the journal of a leader has, its copy has, whatever happened and in whatever order;
 * ids and offsets of events fit; memory stays within its budget, with those of the same owner
 * giving way first; nobody finds what belongs to another owner. Method: the journal alone; a copy
 * that is fed by the packed messages; random requests with random ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "coordinator/journal.h"
#include "proto/wire.h"

#define ALICE "key-00000000000000000000000000000001"
#define BOB   "key-00000000000000000000000000000002"

static struct budget budget, copy_budget;
static struct journal *j, *copy;
static size_t n_messages;

/* Packs, unpacks and applies, as the stream between two coordinators does. */
static void on_change(void *arg, const struct journal_entry *e, const struct journal_msg *m) {
    struct wr w = WR_INIT;
    struct journal_msg got;
    struct errbuf eb = {0};
    (void)e;
    journal_msg_pack(&w, m);
    assert_false(w.failed);
    assert_int_equal(journal_frame_bytes(w.data, w.len), w.len);
    assert_int_equal(journal_msg_unpack(&got, w.data + 4, w.len - 4, &eb), ERR_OK);
    for (size_t n = 0; n < w.len - 4; n++) { /* no beginning of a frame is one */
        struct journal_msg part;
        if (w.len > 400 && n % 37 != 0) continue;
        assert_int_equal(journal_msg_unpack(&part, w.data + 4, n, &eb), ERR_BAD_FRAME);
    }
    journal_apply(*(struct journal **)arg, &got, clock_ms());
    journal_msg_free(&got);
    wr_free(&w);
    n_messages++;
}

static int set_up(void **state) {
    (void)state;
    budget_init(&budget);
    budget_init(&copy_budget);
    const struct journal_opts o = {.budget = &budget,
                                   .answered_ms = 60000,
                                   .keyed_ms = 600000,
                                   .on_change = on_change,
                                   .arg = &copy},
                              c = {
                                  .budget = &copy_budget, .answered_ms = 60000, .keyed_ms = 600000};
    n_messages = 0;
    assert_int_equal(journal_create(&copy, &c), ERR_OK);
    assert_int_equal(journal_create(&j, &o), ERR_OK);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    journal_destroy(&j);
    journal_destroy(&copy);
    assert_int_equal(budget_used(&budget, BUDGET_JOURNAL_BYTES), 0);
    assert_int_equal(budget_used(&copy_budget, BUDGET_JOURNAL_BYTES), 0);
    return 0;
}

static int worker;

static struct journal_entry *open_one(uint64_t id, const char *tenant, const char *key,
                                      const char *body, size_t n, bool stream) {
    struct journal_msg m = {.kind = JOURNAL_ENTRY,
                            .id = id,
                            .stream = stream,
                            .body = {body, n},
                            .headers = {"Content-Type: application/json\n", 31}};
    snprintf(m.tenant, sizeof(m.tenant), "%s", tenant);
    snprintf(m.path, sizeof(m.path), "/v1/completions");
    snprintf(m.key, sizeof(m.key), "%s", key);
    journal_digest(m.digest, body, n);
    struct journal_entry *e = journal_open(j, &m);
    if (e != NULL) e->relay = (struct relay *)&worker;
    return e;
}

static bool put(struct journal_entry *e, const char *text, int32_t token, const char *eol) {
    const struct emitted t = {.id = token};
    struct buf tagged = BUF_INIT;
    const bool good = journal_piece(j, e, text, strlen(text), &t, token >= 0 ? 1 : 0, eol, &tagged);
    buf_free(&tagged);
    return good;
}

static void check_span(struct journal_span s, const char *text) {
    assert_int_equal(s.n, strlen(text));
    assert_memory_equal(s.p, text, s.n);
}

static void events_and_their_ids(void **state) {
    (void)state;
    struct journal_span s;
    struct journal_entry *e = open_one(17, ALICE, "", "{}", 2, true);
    assert_true(put(e, "data: a\n\ndata: b\n\n", -1, "\n"));
    assert_true(put(e, "id: resp_17:2\nevent: c\ndata: c\n\n", -1, "\n")); /* has one of its own */
    assert_true(put(e, "event: d\r\ndata: d\r\n\r\n", -1, "\r\n"));
    assert_int_equal(e->n_events, 4);
    assert_true(journal_answer_from(e, 0, &s));
    check_span(s, "id: 17:0\ndata: a\n\nid: 17:1\ndata: b\n\nid: resp_17:2\nevent: c\ndata: c\n\n"
                  "id: 17:3\r\nevent: d\r\ndata: d\r\n\r\n");
    assert_true(journal_answer_from(e, 3, &s));
    check_span(s, "id: 17:3\r\nevent: d\r\ndata: d\r\n\r\n");
    assert_true(journal_answer_from(e, 4, &s));
    check_span(s, "");
    assert_false(journal_answer_from(e, 5, &s));
}

/* A long stream loses its beginning, event by event. */
static void long_streams(void **state) {
    (void)state;
    char text[2048];
    struct journal_span s;
    struct journal_entry *e = open_one(18, ALICE, "", "{}", 2, true);
    for (int i = 0; i < 3000; i++) {
        snprintf(text, sizeof(text), "data: %d %01000d\n\n", i, 0);
        assert_true(put(e, text, -1, "\n"));
        assert_true(e->answer.len <= JOURNAL_ANSWER_BYTES_MAX + sizeof(text));
    }
    assert_true(e->first_event > 1000 && e->n_events == 3000);
    assert_false(journal_answer_from(e, e->first_event - 1, &s));
    assert_true(journal_answer_from(e, e->first_event, &s));
    snprintf(text, sizeof(text), "id: 18:%d\ndata: %d ", (int)e->first_event, (int)e->first_event);
    assert_memory_equal(s.p, text, strlen(text));
    assert_true(journal_answer_from(e, 2999, &s));
    assert_memory_equal(s.p, "id: 18:2999\ndata: 2999 ", 23);
    struct journal_entry *theirs = journal_find(copy, ALICE, 18);
    assert_int_equal(theirs->first_event, e->first_event);
    assert_int_equal(theirs->answer.len, e->answer.len);
}

static void owners(void **state) {
    (void)state;
    struct journal_entry *e = open_one(19, ALICE, "k", "{}", 2, true);
    assert_ptr_equal(journal_find(j, ALICE, 19), e);
    assert_null(journal_find(j, BOB, 19));
    assert_null(journal_find(j, "addr-10.0.0.1", 19));
    assert_null(journal_find(j, ALICE, 20));
    assert_ptr_equal(journal_find_key(j, ALICE, "/v1/completions", "k"), e);
    assert_null(journal_find_key(j, BOB, "/v1/completions", "k"));
    assert_null(journal_find_key(j, ALICE, "/v1/chat/completions", "k"));
    assert_null(journal_find_key(j, ALICE, "/v1/completions", "k2"));
    e = open_one(21, "addr-10.0.0.1", "", "{}", 2, true); /* without keys all are one */
    assert_ptr_equal(journal_find(j, "addr-10.0.0.2", 21), e);
    assert_null(journal_find(j, ALICE, 21));
}

/* Those of the owner who needs the room go first, then the oldest; what runs stays. */
static void who_gives_way(void **state) {
    (void)state;
    static char body[100000];
    memset(body, ' ', sizeof(body));
    struct journal_entry *runs = open_one(1, BOB, "", body, sizeof(body), true);
    const uint64_t one = budget_used(&budget, BUDGET_JOURNAL_BYTES);
    budget_limit_set(&budget, BUDGET_JOURNAL_BYTES, 4 * one + one / 2);
    struct journal_entry *of_bob = open_one(2, BOB, "", body, sizeof(body), true);
    journal_release(j, of_bob, &(struct transcript){0}, clock_ms());
    for (uint64_t id = 3; id < 5; id++)
        journal_release(j, open_one(id, ALICE, "", body, sizeof(body), true),
                        &(struct transcript){0}, clock_ms());
    for (uint64_t id = 5; id < 50; id++) { /* a flood takes its own room */
        struct journal_entry *e = open_one(id, ALICE, "", body, sizeof(body), true);
        assert_non_null(e);
        journal_release(j, e, &(struct transcript){0}, clock_ms());
        assert_non_null(journal_find(j, BOB, 2));
        assert_true(budget_used(&budget, BUDGET_JOURNAL_BYTES) <= 4 * one + one / 2);
    }
    assert_int_equal(journal_count(j), 4);
    assert_non_null(open_one(60, BOB, "", body, sizeof(body), true)); /* his own, then hers */
    assert_null(journal_find(j, BOB, 2));
    assert_non_null(open_one(61, BOB, "", body, sizeof(body), true));
    assert_non_null(open_one(62, BOB, "", body, sizeof(body), true));
    assert_null(open_one(63, BOB, "", body, sizeof(body), true)); /* all of them run */
    assert_ptr_equal(journal_find(j, BOB, 1), runs);
    assert_true(budget_refusals(&budget, BUDGET_JOURNAL_BYTES) > 0);
    assert_int_equal(journal_count(copy), journal_count(j));
}

/* One that grows over all there is is shut: it goes on, nobody finds it, and it keeps its body. */
static void no_room_to_grow(void **state) {
    (void)state;
    char text[20000];
    memset(text, 'x', sizeof(text));
    memcpy(text, "data: ", 6);
    memcpy(text + sizeof(text) - 3, "\n\n", 3);
    struct journal_entry *e = open_one(5, ALICE, "k", "{\"a\":1}", 7, true);
    budget_limit_set(&budget, BUDGET_JOURNAL_BYTES, 100000);
    int n = 0;
    while (put(e, text, -1, "\n")) assert_true(++n < 10);
    assert_true(n > 0 && e->shut);
    assert_null(journal_find(j, ALICE, 5));
    assert_null(journal_find_key(j, ALICE, "/v1/completions", "k"));
    assert_null(journal_find(copy, ALICE, 5));
    assert_memory_equal(e->body.data, "{\"a\":1}", 7);
    journal_done(j, e, clock_ms());
}

static void kept_long_enough(void **state) {
    (void)state;
    const uint64_t now = clock_ms();
    struct journal_entry *a = open_one(1, ALICE, "", "{}", 2, true),
                         *b = open_one(2, ALICE, "k", "{}", 2, false),
                         *c = open_one(3, ALICE, "", "{}", 2, true);
    put(b, "{\"whole\":1}", -1, "\n");
    journal_done(j, a, now);
    journal_done(j, b, now);
    assert_int_equal(b->body.len, 0); /* the digest is enough */
    journal_expire(j, now + 60000);
    assert_non_null(journal_find(j, ALICE, 1));
    journal_expire(j, now + 60001);
    assert_null(journal_find(j, ALICE, 1));
    assert_null(journal_find(copy, ALICE, 1));
    assert_non_null(journal_find_key(j, ALICE, "/v1/completions", "k"));
    journal_expire(j, now + 600001);
    assert_null(journal_find_key(j, ALICE, "/v1/completions", "k"));
    assert_ptr_equal(journal_find(j, ALICE, 3), c); /* it runs */
}

static bool same_buf(const struct buf *a, const struct buf *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void check_same(const struct journal_entry *a, const struct transcript *t) {
    const struct journal_entry *b = journal_find(copy, a->tenant, a->id);
    assert_non_null(b);
    assert_true(same_buf(&a->headers, &b->headers) && same_buf(&a->body, &b->body));
    assert_true(same_buf(&a->answer, &b->answer));
    assert_true(a->n_events == b->n_events && a->first_event == b->first_event);
    assert_true(a->done == b->done && a->stream == b->stream && a->broken == b->broken);
    assert_string_equal(a->key, b->key);
    assert_memory_equal(a->digest, b->digest, sizeof(a->digest));
    if (a->done) return;
    assert_int_equal(b->transcript.n_ids, t->n_ids);
    assert_int_equal(b->transcript.n_parts, t->n_parts);
    for (uint32_t i = 0; i < t->n_ids; i++)
        assert_int_equal(b->transcript.choices[0].ids[i], t->choices[0].ids[i]);
}

/* What the copy has is what the leader has, at every moment; also one that came later. */
static void a_copy(void **state) {
    (void)state;
    enum { N = 40 };
    struct journal_entry *e[N] = {NULL};
    struct transcript t[N] = {{0}};
    uint64_t next_id = 1;
    srand(7);
    for (int step = 0; step < 6000; step++) {
        const int i = rand() % N;
        char text[64];
        if (e[i] == NULL) {
            e[i] = open_one(next_id++, i % 2 ? ALICE : BOB, i % 3 == 0 ? "" : "key", "{\"b\":2}", 7,
                            true);
            assert_int_equal(transcript_open(&t[i], 1, 1), ERR_OK);
            e[i]->live = &t[i];
            journal_start(j, e[i], &t[i]);
        }
        const struct emitted tok = {.id = rand() % 1000};
        snprintf(text, sizeof(text), "data: %d\n\n", tok.id);
        assert_true(put(e[i], text, tok.id, "\n"));
        assert_int_equal(transcript_add(&t[i], &tok), ERR_OK);
        check_same(e[i], &t[i]);
        if (step == 3000) { /* another copy, of all that is there */
            journal_destroy(&copy);
            const struct journal_opts c = {
                .budget = &copy_budget, .answered_ms = 60000, .keyed_ms = 600000};
            assert_int_equal(journal_create(&copy, &c), ERR_OK);
            for (const struct journal_entry *at = journal_above(j, 0); at != NULL; at = at->next) {
                struct journal_msg m;
                journal_tell(&m, at);
                on_change(&copy, at, &m);
            }
            for (int k = 0; k < N; k++)
                if (e[k] != NULL) check_same(e[k], &t[k]);
        }
        const int fate = rand() % 200;
        if (fate == 0) {
            journal_done(j, e[i], clock_ms());
            check_same(e[i], &t[i]);
        } else if (fate == 1) {
            journal_drop(j, e[i]);
        } else {
            continue;
        }
        transcript_free(&t[i]);
        e[i] = NULL;
    }
    assert_int_equal(journal_count(j), journal_count(copy));
    for (int i = 0; i < N; i++) {
        if (e[i] != NULL) journal_drop(j, e[i]);
        transcript_free(&t[i]);
    }
    assert_true(n_messages > 6000);
}

/* Of what a leader before had and this one does not name nothing is left; what we work on stays. */
static void another_leader(void **state) {
    (void)state;
    open_one(1, ALICE, "", "{}", 2, true);
    struct journal_entry *e = open_one(2, ALICE, "", "{}", 2, true);
    struct journal_msg m;
    assert_int_equal(journal_count(copy), 2);
    journal_sweep(copy);
    journal_tell(&m, e);
    on_change(&copy, e, &m);
    journal_swept(copy);
    assert_int_equal(journal_count(copy), 1);
    struct journal_entry *theirs = journal_find(copy, ALICE, 2);
    journal_orphan(copy, 1000);
    assert_int_not_equal(theirs->until_ms, 0);
    struct transcript t;
    journal_take(copy, theirs, (struct relay *)&worker, &t);
    assert_int_equal(theirs->until_ms, 0);
    journal_sweep(copy);
    on_change(&copy, e, &(struct journal_msg){.kind = JOURNAL_DROP, .id = 2});
    journal_swept(copy);
    assert_ptr_equal(journal_find(copy, ALICE, 2), theirs);
    journal_drop(copy, theirs);
    transcript_free(&t);
    while (journal_count(j) > 0) journal_drop(j, journal_find(j, ALICE, journal_above(j, 0)->id));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(events_and_their_ids), CASE(long_streams),     CASE(owners), CASE(who_gives_way),
        CASE(no_room_to_grow),      CASE(kept_long_enough), CASE(a_copy), CASE(another_leader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
