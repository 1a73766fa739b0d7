/* Bytes from a peer to a replay record, and text to a list of tokens; the first byte chooses.
 * Whatever is taken must pack to the very bytes, or the very tokens, it came from. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/transcript.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok) abort();
}

static void record(const uint8_t *p, size_t n) {
    struct rd r = rd_of(p, n);
    struct wr w = WR_INIT;
    struct transcript t, part;
    struct errbuf eb = {0};
    if (transcript_unpack(&r, &t, &eb) != ERR_OK) {
        require(eb.text[0] != 0);
        return;
    }
    transcript_pack(&w, &t);
    require(w.len == n - rd_left(&r) && memcmp(w.data, p, w.len) == 0);
    require(w.len <= TRANSCRIPT_BYTES_MAX);
    uint32_t n_ids = 0;
    for (uint32_t i = 0; i < t.n_parts; i++) {
        require(transcript_part(&part, &t, i) == ERR_OK);
        n_ids += part.n_ids;
        transcript_free(&part);
    }
    require(n_ids == t.n_ids);
    transcript_free(&t);
    wr_free(&w);
}

static void list(const char *s, size_t n) {
    struct emitted e, again;
    char text[EMITTED_BYTES_MAX];
    for (size_t at = 0, back = 0; at < n && emitted_parse(s, n, &at, &e) == ERR_OK; back = 0) {
        size_t len = emitted_format(text, &e);
        require(len < sizeof(text) && emitted_parse(text, len, &back, &again) == ERR_OK);
        require(again.id == e.id && again.choice == e.choice && again.finish == e.finish);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] % 2 == 0)
        record(data + 1, size - 1);
    else
        list((const char *)data + 1, size - 1);
    return 0;
}
