/* kernels_blocks: weights that stay in the block formats of GGUF: packed without changing a value
 * (block_format() in kernels.h has the layout), multiplied as they are.
 *
 * A value of unit u is scale * q - least:
 *   Q4_K, Q5_K   (d * scale[u]) * q - dmin * min[u], q from 0
 *   Q6_K         (d * scale[u]) * (q - 32)
 *   IQ4_NL       d * block_codes()[q]; IQ4_XS (d * scale[u]) * block_codes()[q]
 *   MXFP4        2^(d - 128) * block_codes()[q]
 * scale and least are exact in f32. docs/decisions/2026-11-23-blocks-stay.md. Thread: pure. */
#ifndef BATON_ENGINE_KERNELS_BLOCKS_H
#define BATON_ENGINE_KERNELS_BLOCKS_H

#include "common/engine/kernels.h"
#include "common/engine/tensor_type.h"

/* What q means where the bits are no number themselves: sixteen values, from -127 to 127. */
const int8_t *block_codes(enum dtype w);

/* Block idx of row `row` of a panel, which was zeros before: rows and blocks that nobody puts are
 * zeros. */
void panel_put_block(void *panel, const struct block_parts *parts, int row, int idx, enum dtype w);
/* One row as f32 [k], k a multiple of the block's. */
void panel_row_blocks(float *row, const void *panel, int idx, int k, enum dtype w);

/* Of a panel's block: scale and least of unit u of a row; value i of a row as the integer that is
 * multiplied with that scale. */
float block_scale(const uint8_t *block, int row, int u, enum dtype w);
float block_least(const uint8_t *block, int row, int u, enum dtype w);
int block_value(const uint8_t *block, int row, int i, enum dtype w);

/* Activations for such weights: for each tile of n rows, for each GROUP: f32 scale [n]; f32 [n],
 * the scale times the sum of the values; i32 [2][n], a word that the set makes of the sums of
 * either half; the values, i8 [GROUP / 4][n][4], from -127 to 127 (-128 beside a scale that is a
 * NaN). */
void x_put_blocks(uint8_t *dst, size_t n, size_t r, const int16_t q[GROUP], float scale,
                  int32_t sum, const int32_t words[2]);
/* The plain set's, whose words are 0. */
void x_pack_blocks(void *xp, const float *x, size_t x_stride, int first, int end, int k);

#endif
