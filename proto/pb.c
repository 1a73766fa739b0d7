/* pb: a cursor. */
#include "proto/pb.h"

#include <string.h>

struct pb_reader pb_reader(const void *p, size_t n) {
    static const unsigned char none[1];
    const unsigned char *at = p != NULL ? p : none;
    return (struct pb_reader){.p = at, .end = at + n};
}

static bool fail(struct pb_reader *r) {
    r->bad = true;
    r->p = r->end;
    return false;
}

static bool take_varint(struct pb_reader *r, uint64_t *out) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (r->p == r->end) return fail(r);
        const unsigned char c = *r->p++;
        if (shift == 63 && c > 1) return fail(r);
        v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80) {
            *out = v;
            return true;
        }
    }
    return fail(r);
}

static bool take_fixed(struct pb_reader *r, size_t n, uint64_t *out) {
    if ((size_t)(r->end - r->p) < n) return fail(r);
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)r->p[i] << (8 * i);
    r->p += n;
    return true;
}

static bool take_number(struct pb_reader *r, enum pb_wire wire, uint64_t *u) {
    switch (wire) {
    case PB_VARINT: return take_varint(r, u);
    case PB_FIXED64: return take_fixed(r, 8, u);
    case PB_FIXED32: return take_fixed(r, 4, u);
    case PB_BYTES: break;
    }
    return fail(r);
}

bool pb_next(struct pb_reader *r, struct pb_field *f) {
    uint64_t tag;
    *f = (struct pb_field){0};
    if (r->p == r->end || !take_varint(r, &tag)) return false;
    if (tag >> 3 == 0 || tag > UINT32_MAX) return fail(r);
    f->number = (uint32_t)(tag >> 3);
    f->wire = (enum pb_wire)(tag & 7);
    if (f->wire != PB_BYTES) return take_number(r, f->wire, &f->u); /* groups are none of ours */
    if (!take_varint(r, &f->u)) return false;
    if (f->u > (uint64_t)(r->end - r->p)) return fail(r);
    f->bytes = r->p;
    f->n = (size_t)f->u;
    r->p += f->n;
    return true;
}

bool pb_packed(struct pb_reader *r, enum pb_wire wire, uint64_t *u) {
    return r->p != r->end && take_number(r, wire, u);
}

int64_t pb_zigzag(uint64_t u) {
    return (int64_t)(u >> 1 ^ (0 - (u & 1)));
}

uint64_t pb_zagzig(int64_t v) {
    return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

float pb_f32(uint64_t u) {
    const uint32_t bits = (uint32_t)u;
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

double pb_f64(uint64_t u) {
    double v;
    memcpy(&v, &u, sizeof(v));
    return v;
}

uint64_t pb_of_f32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

uint64_t pb_of_f64(double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof(u));
    return u;
}

size_t pb_put_varint(unsigned char *dst, uint64_t v) {
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) dst[n++] = (unsigned char)(v | 0x80);
    dst[n++] = (unsigned char)v;
    return n;
}
