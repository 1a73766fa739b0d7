/* fwd_headers: an allow-list. */
#include "coordinator/fwd_headers.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "proto/api.h"
#include "proto/grpc.h"
#include "proto/tensors.h"

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

void fwd_headers_add_trace(struct fwd_headers *h, struct http_x *x, const char *traceparent) {
    for (const char *const *name = api_trace_headers; *name != NULL; name++) {
        const bool ours = traceparent != NULL && strcasecmp(*name, "traceparent") == 0;
        const char *v = ours ? traceparent : http_x_header(x, *name);
        if (v != NULL) fwd_headers_add(h, *name, v);
    }
    fwd_headers_add(h, "X-Request-Id", http_x_request_id(x));
}

void fwd_headers_add_framing(struct fwd_headers *h, struct http_x *x, const struct api_path *path) {
    static const char *const grpc[] = {GRPC_ENCODING_HEADER, GRPC_MODEL_HEADER};
    if (path == NULL || path->frames != API_FRAMES_GRPC) {
        fwd_headers_add(h, "Content-Type", "application/json");
        const char *bytes = path != NULL && path->frames == API_FRAMES_TENSORS
                                ? http_x_header(x, TENSORS_HEADER)
                                : NULL;
        if (bytes != NULL) fwd_headers_add(h, TENSORS_HEADER, bytes);
        return;
    }
    fwd_headers_add(h, "Content-Type", GRPC_INSIDE_TYPE);
    for (size_t i = 0; i < sizeof(grpc) / sizeof(grpc[0]); i++) {
        const char *v = http_x_header(x, grpc[i]);
        if (v != NULL) fwd_headers_add(h, grpc[i], v);
    }
}

bool fwd_path_put(char *dst, size_t cap, const char *path) {
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (const char *p = path; *p != 0; p++) {
        unsigned char c = (unsigned char)*p;
        if (n + 4 > cap) return false;
        if (c < 0x80 && (isalnum(c) || strchr("/-._~", c) != NULL)) {
            dst[n++] = (char)c;
        } else {
            dst[n++] = '%';
            dst[n++] = hex[c >> 4];
            dst[n++] = hex[c & 15];
        }
    }
    dst[n] = 0;
    return true;
}
