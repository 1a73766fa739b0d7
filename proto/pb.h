/* pb: the wire of protocol buffers, field by field (protobuf.dev/programming-guides/encoding): a
 * reader over bytes in which every length is checked, and what a writer needs. Which field means
 * what is the caller's. Pure. */
#ifndef BATON_PROTO_PB_H
#define BATON_PROTO_PB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

struct pb_reader {
    const unsigned char *p, *end;
    bool bad; /* what came last is no field: a length or a number that does not fit, a group */
};

struct pb_field {
    uint32_t number;
    enum pb_wire wire;
    uint64_t u;                 /* of a number, as its bits */
    const unsigned char *bytes; /* [n] of PB_BYTES */
    size_t n;
};

struct pb_reader pb_reader(const void *p, size_t n);
/* The next field; false: the end, or r->bad. */
bool pb_next(struct pb_reader *r, struct pb_field *f);
/* A number of a packed list; false: the end, or r->bad. */
bool pb_packed(struct pb_reader *r, enum pb_wire wire, uint64_t *u);

/* Bits to values. */
int64_t pb_zigzag(uint64_t u);
float pb_f32(uint64_t u);
double pb_f64(uint64_t u);
/* And back. */
uint64_t pb_zagzig(int64_t v);
uint64_t pb_of_f32(float v);
uint64_t pb_of_f64(double v);

/* dst[PB_VARINT_BYTES]; returns how many bytes. */
enum { PB_VARINT_BYTES = 10 };
size_t pb_put_varint(unsigned char *dst, uint64_t v);

#endif
