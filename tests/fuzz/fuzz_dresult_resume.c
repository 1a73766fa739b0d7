/* Positions from which a result stream is to go on: whatever the text, each that is found lies in
 * it, and says the same when it is put and found again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dresult.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dresult_position p, q;
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    const char *at = text, *before = text;
    while (dresult_position_next(&at, &p)) {
        char id[REQ_ID_BYTES_MAX + 1], again[REQ_ID_BYTES_MAX + 64] = "";
        require(at > before && at <= text + strlen(text));
        require(p.req_id >= before && p.id_len > 0 && p.req_id + p.id_len < at);
        before = at;
        memcpy(id, p.req_id, p.id_len);
        id[p.id_len] = 0;
        if (!dresult_position_put(again, sizeof(again), id, p.epoch, p.seq)) continue;
        const char *from = again;
        require(dresult_position_next(&from, &q) && *from == 0);
        require(q.id_len == p.id_len && memcmp(q.req_id, id, p.id_len) == 0);
        require(q.epoch == p.epoch && q.seq == p.seq);
    }
    free(text);
    return 0;
}
