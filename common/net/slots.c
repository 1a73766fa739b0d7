/* slots: the list. */
#include "common/net/slots.h"

#include <string.h>
#include "common/base/buf.h"

enum { SLOTS_SHOWN_MAX = 1024 }; /* printed on the loop thread, in under a millisecond */

static void refuse(struct http_x *x) {
    static const char none[] = "{\"error\":{\"code\":503,\"message\":\"no slot available\","
                               "\"type\":\"unavailable_error\"}}";
    http_x_set_header(x, "Retry-After", "1");
    http_x_reply(x, 503, "application/json", none, sizeof(none) - 1);
}

void slots_put(struct buf *out, uint64_t total, uint64_t free, uint64_t n_ctx) {
    const uint64_t busy = total > free ? total - free : 0;
    buf_putc(out, '[');
    for (uint64_t i = 0; i < total && i < SLOTS_SHOWN_MAX; i++)
        buf_printf(out, "%s{\"id\":%llu,\"n_ctx\":%llu,\"speculative\":false,\"is_processing\":%s}",
                   i > 0 ? "," : "", (unsigned long long)i, (unsigned long long)n_ctx,
                   i < busy ? "true" : "false");
    buf_putc(out, ']');
}

void slots_reply(struct http_x *x, uint64_t total, uint64_t free, uint64_t n_ctx) {
    struct buf b = BUF_INIT;
    if (free == 0 && strstr(http_x_query(x), "fail_on_no_slot=1") != NULL) {
        refuse(x);
        return;
    }
    slots_put(&b, total, free, n_ctx);
    http_x_reply(x, b.failed ? 503 : 200, "application/json", b.data, b.failed ? 0 : b.len);
    buf_free(&b);
}
