/* wire: every multi-byte value is put together from bytes, so the host's order and alignment do not
 * matter; the compiler turns these loops into single loads and stores. */
#include "proto/wire.h"

#include <stdlib.h>
#include <string.h>

enum { WR_CAP_MIN = 256 };

struct rd rd_of(const void *p, size_t n) {
    return (struct rd){.p = p, .n = n};
}

size_t rd_left(const struct rd *r) {
    return r->failed ? 0 : r->n - r->at;
}

bool rd_done(const struct rd *r) {
    return !r->failed && r->at == r->n;
}

bool rd_bytes(struct rd *r, const uint8_t **p, size_t n) {
    if (r->failed || n > r->n - r->at) {
        r->failed = true;
        return false;
    }
    *p = r->p + r->at;
    r->at += n;
    return true;
}

bool rd_skip(struct rd *r, size_t n) {
    const uint8_t *p;
    return rd_bytes(r, &p, n);
}

bool rd_copy(struct rd *r, void *dst, size_t n) {
    const uint8_t *p;
    if (!rd_bytes(r, &p, n)) return false;
    if (n > 0) memcpy(dst, p, n);
    return true;
}

static bool rd_int(struct rd *r, uint64_t *v, size_t n) {
    const uint8_t *p;
    if (!rd_bytes(r, &p, n)) return false;
    *v = 0;
    for (size_t i = 0; i < n; i++) *v |= (uint64_t)p[i] << (8 * i);
    return true;
}

bool rd_u8(struct rd *r, uint8_t *v) {
    uint64_t u;
    if (!rd_int(r, &u, 1)) return false;
    *v = (uint8_t)u;
    return true;
}

bool rd_u16(struct rd *r, uint16_t *v) {
    uint64_t u;
    if (!rd_int(r, &u, 2)) return false;
    *v = (uint16_t)u;
    return true;
}

bool rd_u32(struct rd *r, uint32_t *v) {
    uint64_t u;
    if (!rd_int(r, &u, 4)) return false;
    *v = (uint32_t)u;
    return true;
}

bool rd_u64(struct rd *r, uint64_t *v) {
    uint64_t u;
    if (!rd_int(r, &u, 8)) return false;
    *v = u;
    return true;
}

bool rd_i32(struct rd *r, int32_t *v) {
    uint32_t u;
    if (!rd_u32(r, &u)) return false;
    memcpy(v, &u, sizeof(u));
    return true;
}

bool rd_i64(struct rd *r, int64_t *v) {
    uint64_t u;
    if (!rd_u64(r, &u)) return false;
    memcpy(v, &u, sizeof(u));
    return true;
}

bool rd_f32(struct rd *r, float *v) {
    uint32_t u;
    if (!rd_u32(r, &u)) return false;
    memcpy(v, &u, sizeof(u));
    return true;
}

bool rd_f64(struct rd *r, double *v) {
    uint64_t u;
    if (!rd_u64(r, &u)) return false;
    memcpy(v, &u, sizeof(u));
    return true;
}

bool rd_str(struct rd *r, const char **s, size_t *n, size_t n_max) {
    uint32_t len;
    const uint8_t *p;
    if (!rd_u32(r, &len)) return false;
    if (len > n_max) {
        r->failed = true;
        return false;
    }
    if (!rd_bytes(r, &p, len)) return false;
    *s = (const char *)p;
    *n = len;
    return true;
}

bool rd_cstr(struct rd *r, char *dst, size_t dst_bytes) {
    const char *s;
    size_t n;
    if (dst_bytes == 0) {
        r->failed = true;
        return false;
    }
    if (!rd_str(r, &s, &n, dst_bytes - 1)) return false;
    if (n > 0 && memchr(s, 0, n) != NULL) {
        r->failed = true;
        return false;
    }
    if (n > 0) memcpy(dst, s, n);
    dst[n] = '\0';
    return true;
}

void wr_free(struct wr *w) {
    free(w->data);
    *w = WR_INIT;
}

void wr_clear(struct wr *w) {
    w->len = 0;
    w->failed = false;
}

void wr_bytes(struct wr *w, const void *p, size_t n) {
    if (w->failed || n == 0) return;
    if (n > w->cap - w->len) {
        if (n > SIZE_MAX / 2 - w->len) {
            w->failed = true;
            return;
        }
        size_t cap = w->cap < WR_CAP_MIN ? WR_CAP_MIN : w->cap;
        while (cap < w->len + n) cap *= 2;
        uint8_t *data = realloc(w->data, cap);
        if (data == NULL) {
            w->failed = true;
            return;
        }
        w->data = data;
        w->cap = cap;
    }
    memcpy(w->data + w->len, p, n);
    w->len += n;
}

static void wr_int(struct wr *w, uint64_t v, size_t n) {
    uint8_t b[8];
    for (size_t i = 0; i < n; i++) b[i] = (uint8_t)(v >> (8 * i));
    wr_bytes(w, b, n);
}

void wr_u8(struct wr *w, uint8_t v) {
    wr_int(w, v, 1);
}

void wr_u16(struct wr *w, uint16_t v) {
    wr_int(w, v, 2);
}

void wr_u32(struct wr *w, uint32_t v) {
    wr_int(w, v, 4);
}

void wr_u64(struct wr *w, uint64_t v) {
    wr_int(w, v, 8);
}

void wr_i32(struct wr *w, int32_t v) {
    wr_int(w, (uint32_t)v, 4);
}

void wr_i64(struct wr *w, int64_t v) {
    wr_int(w, (uint64_t)v, 8);
}

void wr_f32(struct wr *w, float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof(u));
    wr_int(w, u, 4);
}

void wr_f64(struct wr *w, double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof(u));
    wr_int(w, u, 8);
}

void wr_str(struct wr *w, const char *s, size_t n) {
    if (n > UINT32_MAX) {
        w->failed = true;
        return;
    }
    wr_u32(w, (uint32_t)n);
    wr_bytes(w, s, n);
}

void wr_cstr(struct wr *w, const char *s) {
    wr_str(w, s, strlen(s));
}

void wr_patch_u32(struct wr *w, size_t at, uint32_t v) {
    if (w->failed) return;
    if (at > w->len || w->len - at < 4) {
        w->failed = true;
        return;
    }
    for (size_t i = 0; i < 4; i++) w->data[at + i] = (uint8_t)(v >> (8 * i));
}
