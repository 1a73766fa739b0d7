/* tensor_packed: linear layers that a safetensors checkpoint keeps quantised, as matrices.
 *
 * A module X that a tool has quantised has no X.weight of a plain type, but integers or FP8 with
 * scales beside them. packed_open() finds such modules among the tensors of a checkpoint, checks
 * the shapes, sizes and indices of all that belongs to one, and lists the checkpoint's tensors as
 * they would be without: X.weight [out][in], whose values packed_rows() computes.
 *
 * value[o][i] = (q - zero) * scale, in f32, rounded once where the product is not exact. Formats
 * (the projects' own readers):
 *   AWQ    q: i32 qweight [in][out / 8], eight columns a word in the order 0 2 4 6 1 3 5 7 from the
 *          low bits up; qzeros [in / g][out / 8] likewise; scales [in / g][out]
 *   GPTQ   q: i32 qweight [in * bits / 32][out], along in; qzeros [groups][out * bits / 32], along
 *          out, one less than meant but in gptq_v2; scales [groups][out]; g_idx i32 [in]: the group
 *          of each input (act-order), else i / g
 *   compressed-tensors, packed: i32 weight_packed [out][in * bits / 32]; weight_scale
 * [out][groups]; weight_zero_point i32 [out * bits / 32][groups], along out, else the middle;
 *          weight_g_idx as above; weight_shape i64 [2]
 *   compressed-tensors, int8: i8 weight [out][in]; weight_scale; weight_zero_point i8
 *   FP8    E4M3 weight [out][in]; weight_scale or weight_scale_inv, both to multiply with: of one
 *          value, of each row, of groups of a row, or of blocks
 *
 *   MXFP4  the experts of a layer in one: X_blocks u8 [experts][out][in / 32][16], two E2M1 values
 * a byte, the lower half first; X_scales u8 [experts][out][in / 32], powers of two (E8M0). It
 *          stands for X, without ".weight", of shape [experts][out][in], whose rows are counted
 *          through all experts
 *
 * Scales of activations and of KV are left out: activations and KV keep types of their own. A bias
 * of a quantised module that is zero throughout is there for who asks for it, but not in the list.
 * Thread: read-only once open. Ownership: bytes and names of what was given must outlive the set.
 */
#ifndef BATON_ENGINE_TENSOR_PACKED_H
#define BATON_ENGINE_TENSOR_PACKED_H

#include "common/engine/quant_conf.h"
#include "common/engine/tensor_source.h"

struct packed_set;

/* tensors: sorted by name, as the files have them, with data of `bytes` each. q->method is not
 * QUANT_NONE. ERR_BAD_FILE: eb names file and tensor. */
enum err packed_open(struct packed_set **out, const struct quant_conf *q,
                     const struct tensor *tensors, size_t n, struct errbuf *eb);
void packed_close(struct packed_set **s); /* NULL is fine */

/* What is to be seen of the checkpoint, sorted by name; idx < count. packed is set in those that
 * stand for a quantised module. */
size_t packed_count(const struct packed_set *s);
const struct tensor *packed_at(const struct packed_set *s, size_t idx);
/* NULL: no such tensor. */
const struct tensor *packed_find(const struct packed_set *s, const char *name);

/* Rows [first, first + n) as f32 [n][in]. first + n <= out. Any thread. */
void packed_rows(const struct packed_linear *p, float *dst, uint64_t first, size_t n);
/* Where every 32 values of a row are integers times one scale, these: idx * 32 is the first of
 * them. packed_grid_bits(): 4: from -8 to 7; 8: from -128 to 127; 0: they are not, so do not ask.
 */
int packed_grid_bits(const struct packed_linear *p);
float packed_grid(const struct packed_linear *p, int8_t q[32], uint64_t row, uint64_t idx);
/* The tensors in the files that it is made of: idx from 0 on; NULL past the last. */
const struct tensor *packed_part(const struct packed_linear *p, int idx);
/* The bytes [*at, *end) of that part which rows [first, first + n) are made of: all of it in
 * formats in which rows do not lie one behind the other. */
void packed_span(const struct packed_linear *p, int idx, uint64_t first, uint64_t n, uint64_t *at,
                 uint64_t *end);
/* Bits of its integers, 0: it has FP8 values. */
int packed_bits(const struct packed_linear *p);

#endif
