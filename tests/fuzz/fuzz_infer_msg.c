/* Bytes from a peer to a request or a token event. Whatever is taken must pack to the very bytes it
 * came from; the first byte chooses which of the two is tried. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/infer_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const uint8_t *body = data + 1;
    size_t n = size - 1;
    struct rd r = rd_of(body, n);
    struct wr w = WR_INIT;
    if (data[0] % 2 == 0) {
        struct infer_req *req;
        if (infer_req_unpack(&r, &req) != ERR_OK) return 0;
        infer_req_pack(&w, req);
        infer_req_destroy(&req);
    } else {
        struct token_event ev;
        if (token_event_unpack(&r, &ev) != ERR_OK) return 0;
        token_event_pack(&w, &ev);
    }
    if (w.len != n - rd_left(&r) || memcmp(w.data, body, w.len) != 0) abort();
    wr_free(&w);
    return 0;
}
