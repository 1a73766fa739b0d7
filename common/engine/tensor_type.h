/* tensor_type: the types that a tensor of a model file may have, and their values as f32.
 *
 * A row is a whole number of blocks. Formats: IEEE binary16, bfloat16, and the block formats of
 * ggml (ggml-common.h, ggml-quants.c): a scale for a group of elements, with the K formats of 256
 * elements scales of scales. Every product here is exact in f32; types with a minimum round once,
 * when it is subtracted. Thread: pure. */
#ifndef BATON_ENGINE_TENSOR_TYPE_H
#define BATON_ENGINE_TENSOR_TYPE_H

#include <stddef.h>
#include <stdint.h>
#include "common/engine/engine.h"

/* A block as the numbers it is made of, none of which has met another. */
struct block_parts {
    uint16_t d, least;           /* f16; of MXFP4 d is the exponent */
    uint8_t scales[16], mins[8]; /* of each unit that has some; scales of Q6_K and IQ4_XS are i8 */
    uint8_t q[256];              /* the bits of each value */
};
/* What the bits of IQ4_NL and IQ4_XS mean; those of MXFP4, doubled. */
extern const int8_t tensor_codes_iq4[16], tensor_codes_fp4[16];

struct tensor_type {
    const char *name;
    int elements, bytes; /* of a block */
    enum dtype dtype;    /* of plain types; DTYPE_NONE: quantised */
    /* dst: f32 [n_blocks * elements]; src may be unaligned. */
    void (*to_f32)(float *dst, const uint8_t *src, size_t n_blocks);
    /* A block of 32 values as integers of grid_bits bits and what all of them are multiplied with;
     * NULL: it is not that simple. */
    int grid_bits;
    float (*grid)(int8_t q[32], const uint8_t *block);
    /* The type of panels that hold just these numbers; DTYPE_NONE: there is none. */
    enum dtype own;
    void (*parts)(struct block_parts *p, const uint8_t *block);
};

/* NULL: a type whose values cannot be read here. */
const struct tensor_type *tensor_type_find(const char *name);
static inline size_t tensor_row_bytes(const struct tensor_type *t, int k) {
    return (size_t)(k / t->elements) * (size_t)t->bytes;
}

#endif
