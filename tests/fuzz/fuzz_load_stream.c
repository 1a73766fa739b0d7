/* A server's stream for baton-bench, in pieces of as many bytes as its first byte says: the same
 * events as in one piece, and each of them is read or refused. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/load/load_answer.h"
#include "tools/load/load_sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static bool on_event(void *arg, const char *data, size_t n) {
    struct load_event e;
    if (load_event_read(&e, data, n)) require(strlen(e.error) < sizeof(e.error));
    buf_append(arg, data, n + 1);
    return true;
}

static struct buf events(const char *p, size_t n, size_t step) {
    struct buf out = BUF_INIT;
    struct load_sse s = {.on_event = on_event, .arg = &out};
    for (size_t i = 0; i < n; i += step)
        require(load_sse_feed(&s, p + i, n - i < step ? n - i : step));
    load_sse_free(&s);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const char *p = (const char *)data + 1;
    struct buf whole = events(p, size - 1, size), pieces = events(p, size - 1, data[0] % 16 + 1u);
    require(whole.len == pieces.len &&
            (whole.len == 0 || memcmp(whole.data, pieces.data, whole.len) == 0));
    char text[64];
    load_error_text(text, sizeof(text), p, size - 1);
    require(strlen(text) < sizeof(text));
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
