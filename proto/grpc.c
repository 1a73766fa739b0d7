/* grpc: tables and small parsers. */
#include "proto/grpc.h"

#include <string.h>
#include <strings.h>

enum grpc_status grpc_status_of(int http_status) {
    static const struct {
        int http;
        enum grpc_status grpc;
    } rows[] = {
        {200, GRPC_OK},
        {400, GRPC_INVALID_ARGUMENT},
        {401, GRPC_UNAUTHENTICATED},
        {403, GRPC_PERMISSION_DENIED},
        {404, GRPC_NOT_FOUND},
        {405, GRPC_UNIMPLEMENTED},
        {GRPC_UNREADABLE, GRPC_INTERNAL},
        {408, GRPC_DEADLINE_EXCEEDED},
        {409, GRPC_ABORTED},
        {413, GRPC_RESOURCE_EXHAUSTED},
        {422, GRPC_INVALID_ARGUMENT},
        {424, GRPC_FAILED_PRECONDITION},
        {429, GRPC_RESOURCE_EXHAUSTED},
        {431, GRPC_RESOURCE_EXHAUSTED},
        {499, GRPC_CANCELLED},
        {501, GRPC_UNIMPLEMENTED},
        {503, GRPC_UNAVAILABLE},
        {504, GRPC_DEADLINE_EXCEEDED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].http == http_status) return rows[i].grpc;
    return http_status < 500 ? GRPC_UNKNOWN : GRPC_INTERNAL;
}

bool grpc_is_type(const char *type) {
    const size_t n = sizeof(GRPC_TYPE) - 1;
    return type != NULL && strncasecmp(type, GRPC_TYPE, n) == 0 &&
           (type[n] == '\0' || type[n] == '+' || type[n] == ';' || type[n] == ' ');
}

bool grpc_timeout_read(const char *s, uint64_t *ms) {
    static const char units[] = "HMSmun";
    static const uint64_t unit_ns[] = {3600000000000, 60000000000, 1000000000, 1000000, 1000, 1};
    uint64_t v = 0;
    size_t n = strspn(s, "0123456789");
    const char *unit = n >= 1 && n <= 8 && s[n] != '\0' ? strchr(units, s[n]) : NULL;
    if (unit == NULL || s[n + 1] != '\0') return false;
    for (size_t i = 0; i < n; i++) v = v * 10 + (uint64_t)(s[i] - '0');
    /* 10^8 hours are 3.6 * 10^20 ns: counted in ms, which is what is wanted */
    const uint64_t ns = unit_ns[unit - units];
    *ms = ns >= 1000000 ? v * (ns / 1000000) : (v * ns + 999999) / 1000000;
    return true;
}

void grpc_head_put(unsigned char head[GRPC_HEAD_BYTES], uint32_t n) {
    head[0] = 0;
    for (int i = 0; i < 4; i++) head[1 + i] = (unsigned char)(n >> (24 - 8 * i));
}

enum grpc_took grpc_frame_take(struct grpc_frame *f, const char *p, size_t n) {
    size_t len = 0;
    if (n > 0 && (unsigned char)p[0] > 1) return GRPC_BAD;
    if (n < GRPC_HEAD_BYTES) return GRPC_MORE;
    for (int i = 1; i < GRPC_HEAD_BYTES; i++) len = len << 8 | (unsigned char)p[i];
    *f = (struct grpc_frame){.compressed = p[0] == 1, .p = p + GRPC_HEAD_BYTES, .n = len};
    return n - GRPC_HEAD_BYTES < len ? GRPC_MORE : GRPC_TOOK;
}

const char *grpc_one_message(const char *p, size_t n) {
    struct grpc_frame f;
    if (n == 0) return "the call has no message";
    switch (grpc_frame_take(&f, p, n)) {
    case GRPC_TOOK: break;
    case GRPC_MORE: return "the message ends before the length that it gives";
    case GRPC_BAD: return "the flag of the message must be 0 or 1";
    }
    return n == f.n + GRPC_HEAD_BYTES ? NULL : "this method takes one message";
}

void grpc_text_put(char *dst, size_t dst_bytes, const char *text, size_t n) {
    static const char hex[] = "0123456789ABCDEF";
    size_t len = 0;
    for (size_t i = 0; i < n && len + 4 <= dst_bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c <= '~' && c != '%') {
            dst[len++] = (char)c;
        } else {
            dst[len++] = '%';
            dst[len++] = hex[c >> 4];
            dst[len++] = hex[c & 15];
        }
    }
    dst[len] = '\0';
}

bool grpc_is_path(const char *path) {
    if (path[0] != '/') return false;
    const size_t n = strcspn(path + 1, "/");
    const char *method = path + 1 + n;
    return memchr(path + 1, '.', n) != NULL && method[0] == '/' && method[1] != '\0' &&
           strchr(method + 1, '/') == NULL;
}
