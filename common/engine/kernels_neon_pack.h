/* kernels_neon_pack: activations into tiles for the sets of kernels_neon.h, and rows to columns;
 * what kernels_pack.h and kernels_turn.h are to those of x86-64. Activations of 16 bits meet
 * products of bytes as two of them (kernels_neon_dot.h): a group's are first the upper bytes, i8
 * [GROUP / 4][n][4], then the lower ones, u8, likewise; before them f32 scale [n], and i32 [n], the
 * weights' offset taken off: minus that times the sum of the values, or, where upper bytes meet
 * weights without it (Q_SIGNED), of the lower bytes. All of that are words [words][n]. */

static __attribute__((unused)) void pack_columns(void *xp, const float *x, size_t x_stride,
                                                 int first, int end, int k, enum dtype w) {
    x_pack_columns(xp, x, x_stride, first, end, k, w);
}

/* Row r of a tile's group at dst, whose activations have 16 bits. */
INLINE void put_bytes(uint8_t *dst, size_t n, size_t r, const int16_t q[GROUP], float scale) {
    int32_t sum = 0;
    for (int i = 0; i < GROUP; i++) sum += Q_SIGNED ? q[i] & 0xff : q[i];
    sum *= -QUANT_OFFSET8;
    memcpy(dst + 4 * r, &scale, 4);
    memcpy(dst + 4 * (n + r), &sum, 4);
    dst += 8 * n + 4 * r;
    const uint8x16_t low = vreinterpretq_u8_s16(vld1q_s16(q)),
                     low2 = vreinterpretq_u8_s16(vld1q_s16(q + 8)),
                     high = vreinterpretq_u8_s16(vld1q_s16(q + 16)),
                     high2 = vreinterpretq_u8_s16(vld1q_s16(q + 24));
    uint8_t bytes[2 * GROUP];
    vst1q_u8(bytes, vuzp2q_u8(low, low2));
    vst1q_u8(bytes + 16, vuzp2q_u8(high, high2));
    vst1q_u8(bytes + GROUP, vuzp1q_u8(low, low2));
    vst1q_u8(bytes + GROUP + 16, vuzp1q_u8(high, high2));
    for (size_t j = 0; j < 2 * GROUP; j += 4) memcpy(dst + j * n, bytes + j, 4);
}

static void pack_quant(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                       enum dtype w) {
    const size_t groups = k_groups(k), bytes = quant_x_bytes(w);
    for (int t = first; t < end; t += TILE_ROWS) {
        const size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        for (size_t g = 0; g < groups; g++) {
            uint8_t *dst = (uint8_t *)xp + ((size_t)t * groups + g * n) * bytes;
            for (size_t r = 0; r < n; r++) {
                int16_t q[GROUP];
                float scale;
                int32_t sum;
                const float *from = x + ((size_t)t + r) * x_stride + g * GROUP;
                const int left = k - (int)g * GROUP;
                q_row(q, &scale, &sum, from, left, quant_x_max(w));
                if (isnan(scale)) /* not all finite: rare, and to be clamped */
                    quantise_row(q, &scale, &sum, from, left < GROUP ? left : GROUP,
                                 quant_x_max(w));
                if (w == DTYPE_INT8) {
                    put_bytes(dst, n, r, q, scale);
                    continue;
                }
                /* bytes of int8 lie as those of int4 do, before another offset */
                x_put_quant(dst, n, r, q, scale,
                            w == DTYPE_INT4 ? sum : sum * (QUANT_OFFSET8 / QUANT_OFFSET4),
                            DTYPE_INT4);
            }
        }
    }
}

/* dst[d][p] = src[p][d] for eight rows and eight columns. */
INLINE void turn_8x8(float *dst, size_t dst_stride, const float *src, size_t src_stride) {
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) { /* four by four */
        const float *from = src + i % 2 * 4 * src_stride + i / 2 * 4;
        float *to = dst + i / 2 * 4 * dst_stride + i % 2 * 4;
        const float32x4_t r0 = vld1q_f32(from), r1 = vld1q_f32(from + src_stride),
                          r2 = vld1q_f32(from + 2 * src_stride),
                          r3 = vld1q_f32(from + 3 * src_stride);
        const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1)),
                          b = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1)),
                          c = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3)),
                          d = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
        vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(a, c)));
        vst1q_f32(to + dst_stride, vreinterpretq_f32_f64(vtrn1q_f64(b, d)));
        vst1q_f32(to + 2 * dst_stride, vreinterpretq_f32_f64(vtrn2q_f64(a, c)));
        vst1q_f32(to + 3 * dst_stride, vreinterpretq_f32_f64(vtrn2q_f64(b, d)));
    }
}
