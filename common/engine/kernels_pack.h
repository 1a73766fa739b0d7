/* kernels_pack: activations into tiles, up to four rows at a time, for the sets of kernels_lanes.h:
 * the bytes of x_pack_columns() and x_pack_quant(), in AVX2, which all of them have. What is turned
 * from rows to columns are always dwords: a value, a pair of bf16, two or four integers. */
#include <math.h>
#include <string.h>
#include "common/engine/half.h"

/* v: eight dwords of each of `count` rows, to dst [8][n] dwords. */
INLINE void turn_out(uint8_t *dst, size_t n, const __m256i v[4], int count) {
    if (count == 1) {
        uint32_t d[8];
        if (n == 1) {
            _mm256_storeu_si256((__m256i *)(void *)dst, v[0]);
            return;
        }
        _mm256_storeu_si256((__m256i *)(void *)d, v[0]);
        for (size_t i = 0; i < 8; i++) memcpy(dst + 4 * i * n, &d[i], 4);
        return;
    }
    /* dwords 0 and 1, 2 and 3, and in the upper halves those four further on */
    const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    if (count == 2) {
        const __m256i both[2] = {a, b};
        for (size_t i = 0; i < 2; i++) {
            const __m128i low = _mm256_castsi256_si128(both[i]),
                          high = _mm256_extracti128_si256(both[i], 1);
            uint8_t *to = dst + 8 * i * n;
            _mm_storel_epi64((__m128i *)(void *)to, low);
            _mm_storel_epi64((__m128i *)(void *)(to + 4 * n), _mm_unpackhi_epi64(low, low));
            _mm_storel_epi64((__m128i *)(void *)(to + 16 * n), high);
            _mm_storel_epi64((__m128i *)(void *)(to + 20 * n), _mm_unpackhi_epi64(high, high));
        }
        return;
    }
    const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    const __m256i turned[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c),
                               _mm256_unpacklo_epi64(b, d), _mm256_unpackhi_epi64(b, d)};
    for (size_t i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)(void *)(dst + 4 * i * n), _mm256_castsi256_si128(turned[i]));
        _mm_storeu_si128((__m128i *)(void *)(dst + 4 * (i + 4) * n),
                         _mm256_extracti128_si256(turned[i], 1));
    }
}

/* CALL(row, count) over the n rows of a tile: four, two and one at a time. */
#define PACK_ROWS(CALL, n)                                                                         \
    for (size_t r_at = 0, r_n = 0; r_at < (n); r_at += r_n) {                                      \
        r_n = (n)-r_at >= 4 ? 4 : (n)-r_at >= 2 ? 2 : 1;                                           \
        if (r_n == 4)                                                                              \
            CALL(r_at, 4);                                                                         \
        else if (r_n == 2)                                                                         \
            CALL(r_at, 2);                                                                         \
        else                                                                                       \
            CALL(r_at, 1);                                                                         \
    }

/* ---- f32 [k][n], as it is or rounded to bf16 */

INLINE __m256i column_values(const float *p, bool rounded) {
    const __m256 v = _mm256_loadu_ps(p);
    const __m256i u = _mm256_castps_si256(v);
    if (!rounded) return u;
    const __m256i top = _mm256_set1_epi32((int)0xffff0000u),
                  odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1)),
                  up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd),
                  nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    return _mm256_and_si256(
        _mm256_blendv_epi8(up, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q))), top);
}

INLINE void columns_of(float *dst, size_t n, const float *x, size_t x_stride, size_t k,
                       size_t count, bool rounded) {
    size_t i = 0;
    for (; i + 8 <= k; i += 8) {
        __m256i v[4];
#pragma GCC unroll 4
        for (size_t r = 0; r < count; r++) v[r] = column_values(x + r * x_stride + i, rounded);
        turn_out((uint8_t *)(dst + i * n), n, v, (int)count);
    }
    for (; i < k; i++) {
        for (size_t r = 0; r < count; r++) {
            const float v = x[r * x_stride + i];
            dst[i * n + r] = rounded ? f32_of_bf16(bf16_of_f32(v)) : v;
        }
    }
}

static __attribute__((unused)) void pack_columns(void *xp, const float *x, size_t x_stride,
                                                 int first, int end, int k, enum dtype w) {
    const size_t cols = (size_t)k, up = cols + (cols & 1);
    for (int t = first; t < end; t += TILE_ROWS) {
        const size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        const float *rows = x + (size_t)t * x_stride;
        float *dst = (float *)xp + (size_t)t * up;
#define ROUNDED(R, N) columns_of(dst + (R), n, rows + (R)*x_stride, x_stride, cols, N, true)
#define AS_IS(R, N)   columns_of(dst + (R), n, rows + (R)*x_stride, x_stride, cols, N, false)
        if (w == DTYPE_BF16) {
            PACK_ROWS(ROUNDED, n)
        } else {
            PACK_ROWS(AS_IS, n)
        }
#undef ROUNDED
#undef AS_IS
        if (k & 1) memset(dst + cols * n, 0, n * sizeof(float));
    }
}

/* ---- integers */

struct quant_rows { /* of a group */
    __m256i q[2][4];
    __m128 scale;
    __m128i sum;
};

/* The `len` first values of a group's rows, as quantise_row() has them for `top`, bit for bit.
 * wide: as 16-bit numbers, even and odd ones of four apart; else 8-bit ones. */
INLINE void quant_rows_of(struct quant_rows *out, const float *x, size_t x_stride, int len,
                          size_t count, bool wide, int top) {
    const float max = (float)top;
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 v[4][4];
    __m128 most[4];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++) {
        const size_t from = r < count ? r : 0;
        const float *src = x + from * x_stride;
        float part[GROUP];
        if (len < GROUP) {
            memset(part, 0, sizeof(part));
            memcpy(part, src, (size_t)len * sizeof(*part));
            src = part;
        }
        __m256 m = _mm256_setzero_ps(); /* the second operand is what max gives for a NaN */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            v[r][i] = _mm256_loadu_ps(src + 8 * i);
            m = _mm256_max_ps(_mm256_and_ps(v[r][i], magnitude), m);
        }
        most[r] = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    }
    _MM_TRANSPOSE4_PS(most[0], most[1], most[2], most[3]);
    const __m128 m = _mm_max_ps(_mm_max_ps(most[0], most[1]), _mm_max_ps(most[2], most[3]));
    const __m128 inv =
        _mm_and_ps(_mm_cmpgt_ps(m, _mm_set1_ps(0x1p-100f)), _mm_div_ps(_mm_set1_ps(max), m));
    float inv_of[4];
    int lost[4];
    __m256i sums[4];
    _mm_storeu_ps(inv_of, inv);
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++) {
        const __m256 f = _mm256_set1_ps(inv_of[r < count ? r : 0]);
        __m256i i32[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) i32[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[r][i], f));
        __m256i a = _mm256_packs_epi32(i32[0], i32[1]), b = _mm256_packs_epi32(i32[2], i32[3]);
        const __m256i one = _mm256_set1_epi16(1);
        if (wide) {
            const __m256i lowest = _mm256_set1_epi16((int16_t)(-top - 1)),
                          least = _mm256_set1_epi16((int16_t)-top);
            a = _mm256_max_epi16(a, lowest); /* what is no number is the least there is */
            b = _mm256_max_epi16(b, lowest);
            const __m256i low = _mm256_permute4x64_epi64(a, 0xd8),
                          high = _mm256_permute4x64_epi64(b, 0xd8);
            out->q[0][r] = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(low, 0xd8), 0xd8);
            out->q[1][r] = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(high, 0xd8), 0xd8);
            sums[r] = _mm256_add_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));
            lost[r] = _mm256_movemask_epi8(_mm256_cmpgt_epi16(least, _mm256_min_epi16(a, b)));
        } else {
            const __m256i all = _mm256_permutevar8x32_epi32(
                _mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            out->q[0][r] = all;
            sums[r] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), all), one);
            lost[r] = _mm256_movemask_epi8(_mm256_cmpgt_epi8(_mm256_set1_epi8(-127), all));
        }
    }
    const __m256i two =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    out->sum = _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    float scale[4];
    _mm_storeu_ps(scale,
                  _mm_and_ps(_mm_cmpgt_ps(inv, _mm_setzero_ps()), _mm_div_ps(m, _mm_set1_ps(max))));
#pragma GCC unroll 4
    for (size_t r = 0; r < count; r++)
        if (lost[r] != 0) scale[r] = NAN; /* not finite, or no number */
    out->scale = _mm_loadu_ps(scale);
}

/* Rows [r, r + count) of a tile's group of n at dst. */
INLINE void quant_rows_put(uint8_t *dst, size_t n, size_t r, const struct quant_rows *from,
                           size_t count, bool wide, int offset) {
    float scale[4];
    int32_t sum[4];
    _mm_storeu_ps(scale, from->scale);
    _mm_storeu_si128((__m128i *)(void *)sum, _mm_mullo_epi32(from->sum, _mm_set1_epi32(-offset)));
    memcpy(dst + 4 * r, scale, 4 * count);
    memcpy(dst + 4 * (n + r), sum, 4 * count);
    uint8_t *values = dst + 8 * n + 4 * r;
    turn_out(values, n, from->q[0], (int)count);
    if (wide) turn_out(values + 32 * n, n, from->q[1], (int)count);
}

INLINE void quant_rows_pack(uint8_t *dst, size_t n, size_t r, const float *x, size_t x_stride,
                            int k, size_t count, enum dtype w) {
    const bool wide = q_kind(w) == DTYPE_INT8;
    const int offset = w == DTYPE_INT4 ? QUANT_OFFSET4 : QUANT_OFFSET8;
    for (int at = 0; at < k; at += GROUP, dst += n * quant_x_bytes(q_kind(w))) {
        struct quant_rows rows;
        quant_rows_of(&rows, x + at, x_stride, k - at < GROUP ? k - at : GROUP, count, wide,
                      quant_x_max(w));
        quant_rows_put(dst, n, r, &rows, count, wide, offset);
    }
}

static void pack_quant(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                       enum dtype w) {
    const size_t row_bytes = k_groups(k) * quant_x_bytes(q_kind(w));
    for (int t = first; t < end; t += TILE_ROWS) {
        const size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        const float *rows = x + (size_t)t * x_stride;
        uint8_t *dst = (uint8_t *)xp + (size_t)t * row_bytes;
#define OF_INT8(R, N) quant_rows_pack(dst, n, R, rows + (R)*x_stride, x_stride, k, N, DTYPE_INT8)
#define OF_INT4(R, N) quant_rows_pack(dst, n, R, rows + (R)*x_stride, x_stride, k, N, DTYPE_INT4)
#define OF_NARROW(R, N)                                                                            \
    quant_rows_pack(dst, n, R, rows + (R)*x_stride, x_stride, k, N, DTYPE_INT8_NARROW)
        if (w == DTYPE_INT8) {
            PACK_ROWS(OF_INT8, n)
        } else if (w == DTYPE_INT4) {
            PACK_ROWS(OF_INT4, n)
        } else {
            PACK_ROWS(OF_NARROW, n)
        }
#undef OF_INT8
#undef OF_INT4
#undef OF_NARROW
    }
}
