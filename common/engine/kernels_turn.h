/* kernels_turn: rows to columns for the sets of kernels_lanes.h, which all have AVX2. */
#include <immintrin.h>

/* dst[d][p] = src[p][d] for eight rows and eight columns. */
static inline __attribute__((always_inline)) void turn_8x8(float *dst, size_t dst_stride,
                                                           const float *src, size_t src_stride) {
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* rows p and p + 4 side by side */
        const float *low = src + (size_t)i * src_stride, *high = low + 4 * src_stride;
        a[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
        a[4 + i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
                                        _mm_loadu_ps(high + 4), 1);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* then each half as four by four */
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
        b[i + 2] = _mm256_unpacklo_ps(a[i + 2], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);
        _mm256_storeu_ps(dst + (size_t)i * dst_stride, _mm256_shuffle_ps(b[i], b[i + 2], 0x44));
        _mm256_storeu_ps(dst + (size_t)(i + 1) * dst_stride,
                         _mm256_shuffle_ps(b[i], b[i + 2], 0xee));
        _mm256_storeu_ps(dst + (size_t)(i + 2) * dst_stride,
                         _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44));
        _mm256_storeu_ps(dst + (size_t)(i + 3) * dst_stride,
                         _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee));
    }
}
