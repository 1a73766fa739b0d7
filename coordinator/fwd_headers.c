/* fwd_headers: an allow-list. */
#include "coordinator/fwd_headers.h"

#include <stdio.h>

static const char *const trace_headers[] = {"traceparent",  "tracestate",  "b3",
                                            "X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId",
                                            "X-B3-Sampled", "X-B3-Flags"};

void fwd_headers_init(struct fwd_headers *h) {
    h->n = 0;
    h->list[0] = NULL;
}

void fwd_headers_add(struct fwd_headers *h, const char *name, const char *value) {
    if (h->n >= FWD_HEADERS_MAX ||
        snprintf(h->lines[h->n], FWD_HEADER_BYTES, "%s: %s", name, value) >= FWD_HEADER_BYTES)
        return;
    h->list[h->n] = h->lines[h->n];
    h->list[++h->n] = NULL;
}

void fwd_headers_add_trace(struct fwd_headers *h, struct http_x *x) {
    for (size_t i = 0; i < sizeof(trace_headers) / sizeof(trace_headers[0]); i++) {
        const char *v = http_x_header(x, trace_headers[i]);
        if (v != NULL) fwd_headers_add(h, trace_headers[i], v);
    }
    fwd_headers_add(h, "X-Request-Id", http_x_request_id(x));
}
