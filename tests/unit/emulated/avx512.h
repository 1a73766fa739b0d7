/* emulated/avx512: the AVX-512 intrinsics of common/engine/kernels_zmm*.h and kernels_amx.c in AVX2
 * and plain C, so that the source of those sets runs, and is tested, on processors without AVX-512.
 * Included in front of such a file by the compiler's command line (tests/build.mk), after which
 * the real names mean these. What is not here does not compile: the real intrinsics refuse. */
#ifndef BATON_TESTS_EMULATED_AVX512_H
#define BATON_TESTS_EMULATED_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __AVX512F__    1
#define __AVX512BW__   1
#define __AVX512DQ__   1
#define __AVX512VL__   1
#define __AVX512VNNI__ 1
#define __AVX512BF16__ 1

typedef union {
    __m256 f[2];
    __m256i i[2];
    float f32[16];
    int32_t i32[16];
    uint16_t u16[32];
    int16_t i16[32];
    int8_t i8[64];
    uint8_t u8[64];
} emu512;

#define EMU static inline __attribute__((unused))

/* One operation on both halves. */
#define EMU_F2(name, op)                                                                           \
    EMU emu512 name(emu512 a, emu512 b) {                                                          \
        return (emu512){.f = {op(a.f[0], b.f[0]), op(a.f[1], b.f[1])}};                            \
    }
#define EMU_F3(name, op)                                                                           \
    EMU emu512 name(emu512 a, emu512 b, emu512 c) {                                                \
        return (emu512){.f = {op(a.f[0], b.f[0], c.f[0]), op(a.f[1], b.f[1], c.f[1])}};            \
    }
#define EMU_I2(name, op)                                                                           \
    EMU emu512 name(emu512 a, emu512 b) {                                                          \
        return (emu512){.i = {op(a.i[0], b.i[0]), op(a.i[1], b.i[1])}};                            \
    }
#define EMU_SHIFT(name, op)                                                                        \
    EMU emu512 name(emu512 a, int n) {                                                             \
        return (emu512){.i = {op(a.i[0], n), op(a.i[1], n)}};                                      \
    }

EMU_F2(emu_add_ps, _mm256_add_ps)
EMU_F2(emu_sub_ps, _mm256_sub_ps)
EMU_F2(emu_mul_ps, _mm256_mul_ps)
EMU_F2(emu_div_ps, _mm256_div_ps)
EMU_F2(emu_max_ps, _mm256_max_ps)
EMU_F2(emu_min_ps, _mm256_min_ps)
EMU_F3(emu_fmadd_ps, _mm256_fmadd_ps)
EMU_F3(emu_fnmadd_ps, _mm256_fnmadd_ps)
EMU_F3(emu_fmsub_ps, _mm256_fmsub_ps)
EMU_I2(emu_add_epi32, _mm256_add_epi32)
EMU_I2(emu_add_epi16, _mm256_add_epi16)
EMU_I2(emu_and_si512, _mm256_and_si256)
EMU_I2(emu_xor_si512, _mm256_xor_si256)
EMU_I2(emu_sub_epi8, _mm256_sub_epi8)
EMU_I2(emu_or_si512, _mm256_or_si256)
EMU_I2(emu_madd_epi16, _mm256_madd_epi16)
EMU_I2(emu_maddubs_epi16, _mm256_maddubs_epi16)
EMU_I2(emu_shuffle_epi8, _mm256_shuffle_epi8)
EMU_I2(emu_sllv_epi32, _mm256_sllv_epi32)
EMU_I2(emu_sub_epi32, _mm256_sub_epi32)
EMU_SHIFT(emu_slli_epi32, _mm256_slli_epi32)
EMU_SHIFT(emu_slli_epi16, _mm256_slli_epi16)
EMU_SHIFT(emu_srli_epi32, _mm256_srli_epi32)
EMU_SHIFT(emu_srli_epi16, _mm256_srli_epi16)

EMU emu512 emu_same(emu512 a) {
    return a;
}
EMU emu512 emu_set1_ps(float v) {
    return (emu512){.f = {_mm256_set1_ps(v), _mm256_set1_ps(v)}};
}
EMU emu512 emu_set1_epi32(int v) {
    return (emu512){.i = {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}};
}
EMU emu512 emu_set1_epi16(short v) {
    return (emu512){.i = {_mm256_set1_epi16(v), _mm256_set1_epi16(v)}};
}
EMU emu512 emu_set1_epi8(char v) {
    return (emu512){.i = {_mm256_set1_epi8(v), _mm256_set1_epi8(v)}};
}
EMU emu512 emu_load(const void *p) {
    const uint8_t *at = p;
    return (emu512){.i = {_mm256_loadu_si256((const __m256i *)(const void *)at),
                          _mm256_loadu_si256((const __m256i *)(const void *)(at + 32))}};
}
EMU void emu_store(void *p, emu512 v) {
    uint8_t *at = p;
    _mm256_storeu_si256((__m256i *)(void *)at, v.i[0]);
    _mm256_storeu_si256((__m256i *)(void *)(at + 32), v.i[1]);
}

/* Masked: what is masked out is not touched in memory. */
EMU emu512 emu_maskz_loadu_ps(uint16_t mask, const float *p) {
    emu512 v = emu_set1_epi32(0);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) v.f32[i] = p[i];
    return v;
}
EMU void emu_mask_storeu_ps(float *p, uint16_t mask, emu512 v) {
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) p[i] = v.f32[i];
}
EMU __m256i emu_maskz_loadu_epi16(uint16_t mask, const void *p) {
    uint16_t v[16] = {0};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy(&v[i], (const uint8_t *)p + 2 * i, 2);
    return _mm256_loadu_si256((const __m256i *)(const void *)v);
}
EMU void emu_mask_storeu_epi16(void *p, uint16_t mask, __m256i v) {
    uint16_t h[16];
    _mm256_storeu_si256((__m256i *)(void *)h, v);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((uint8_t *)p + 2 * i, &h[i], 2);
}
EMU __m128i emu_maskz_loadu_epi8(uint16_t mask, const void *p) {
    uint8_t v[16] = {0};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) v[i] = ((const uint8_t *)p)[i];
    return _mm_loadu_si128((const __m128i *)(const void *)v);
}
EMU void emu_mask_storeu_epi8(void *p, uint16_t mask, __m128i v) {
    uint8_t b[16];
    _mm_storeu_si128((__m128i *)(void *)b, v);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) ((uint8_t *)p)[i] = b[i];
}
EMU emu512 emu_mask_mov_epi32(emu512 src, uint16_t mask, emu512 a) {
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) src.i32[i] = a.i32[i];
    return src;
}
EMU uint16_t emu_unordered(emu512 a, emu512 b) {
    uint16_t mask = 0;
    for (int i = 0; i < 16; i++)
        if (isnan(a.f32[i]) || isnan(b.f32[i])) mask = (uint16_t)(mask | 1u << i);
    return mask;
}

/* Conversions. */
EMU emu512 emu_round_even(emu512 a) {
    enum { TO_EVEN = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    return (emu512){.f = {_mm256_round_ps(a.f[0], TO_EVEN), _mm256_round_ps(a.f[1], TO_EVEN)}};
}
EMU emu512 emu_cvtps_epi32(emu512 a) {
    return (emu512){.i = {_mm256_cvtps_epi32(a.f[0]), _mm256_cvtps_epi32(a.f[1])}};
}
EMU emu512 emu_cvtepi32_ps(emu512 a) {
    return (emu512){.f = {_mm256_cvtepi32_ps(a.i[0]), _mm256_cvtepi32_ps(a.i[1])}};
}
EMU emu512 emu_cvtepu16_epi32(__m256i a) {
    return (emu512){.i = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                          _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1))}};
}
EMU emu512 emu_cvtepi8_epi32(__m128i a) {
    return (emu512){.i = {_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))}};
}
EMU emu512 emu_cvtepu8_epi32(__m128i a) {
    return (emu512){.i = {_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8))}};
}
EMU emu512 emu_cvtph_ps(__m256i a) {
    return (emu512){.f = {_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                          _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))}};
}
EMU emu512 emu_broadcast_i32x4(__m128i a) {
    return (emu512){.i = {_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a)}};
}
EMU emu512 emu_abs_epi8(emu512 a) {
    return (emu512){.i = {_mm256_abs_epi8(a.i[0]), _mm256_abs_epi8(a.i[1])}};
}
EMU uint64_t emu_movepi8_mask(emu512 a) {
    return (uint32_t)_mm256_movemask_epi8(a.i[0]) | (uint64_t)(uint32_t)_mm256_movemask_epi8(a.i[1])
                                                        << 32;
}
EMU emu512 emu_mask_sub_epi8(emu512 src, uint64_t mask, emu512 a, emu512 b) {
    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) src.u8[i] = (uint8_t)(a.u8[i] - b.u8[i]);
    return src;
}
EMU uint16_t emu_cmplt_epi32(emu512 a, emu512 b) {
    uint16_t mask = 0;
    for (int i = 0; i < 16; i++)
        if (a.i32[i] < b.i32[i]) mask = (uint16_t)(mask | 1u << i);
    return mask;
}
EMU emu512 emu_or_and(emu512 a, emu512 b, emu512 c) {
    return emu_or_si512(a, emu_and_si512(b, c));
}
EMU int32_t emu_saturated(int32_t v, int32_t most) {
    return v > most ? most : v < -most - 1 ? -most - 1 : v;
}
EMU __m256i emu_cvtepi32_epi16(emu512 a) { /* cut off */
    uint16_t h[16];
    for (int i = 0; i < 16; i++) h[i] = a.u16[2 * i];
    return _mm256_loadu_si256((const __m256i *)(const void *)h);
}
EMU __m256i emu_cvtsepi32_epi16(emu512 a) {
    int16_t h[16];
    for (int i = 0; i < 16; i++) h[i] = (int16_t)emu_saturated(a.i32[i], INT16_MAX);
    return _mm256_loadu_si256((const __m256i *)(const void *)h);
}
EMU __m128i emu_cvtsepi32_epi8(emu512 a) {
    int8_t b[16];
    for (int i = 0; i < 16; i++) b[i] = (int8_t)emu_saturated(a.i32[i], INT8_MAX);
    return _mm_loadu_si128((const __m128i *)(const void *)b);
}
EMU __m256i emu_cvtepi16_epi8(emu512 a) { /* cut off */
    uint8_t b[32];
    for (int i = 0; i < 32; i++) b[i] = a.u8[2 * i];
    return _mm256_loadu_si256((const __m256i *)(const void *)b);
}

/* Dot products: VPDPWSSD, VPDPBUSD. Sums wrap. */
EMU emu512 emu_dpwssd(emu512 acc, emu512 a, emu512 b) {
    return emu_add_epi32(acc, emu_madd_epi16(a, b));
}
EMU emu512 emu_dpbusd(emu512 acc, emu512 a, emu512 b) {
    for (int i = 0; i < 64; i++)
        acc.i32[i / 4] = (int32_t)((uint32_t)acc.i32[i / 4] + (uint32_t)(a.u8[i] * b.i8[i]));
    return acc;
}
#define VPDPWSSD(acc, a, b) ((acc) = emu_dpwssd(acc, a, b))
#define VPDPBUSD(acc, a, b) ((acc) = emu_dpbusd(acc, a, b))
#define IN_TURN(v)          (void)(v)
/* VDPBF16PS: odd k, then even k; denormals count as zero. */
EMU float emu_flushed(float v) {
    return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v;
}
EMU float emu_widened(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof(f));
    return emu_flushed(f);
}
EMU emu512 emu_dpbf16(emu512 acc, emu512 a, emu512 b) {
    for (int i = 0; i < 16; i++) {
        float sum = emu_flushed(acc.f32[i]);
        for (int odd = 1; odd >= 0; odd--)
            sum = emu_flushed(
                fmaf(emu_widened(a.u16[2 * i + odd]), emu_widened(b.u16[2 * i + odd]), sum));
        acc.f32[i] = sum;
    }
    return acc;
}

/* VCVTNE2PS2BF16: rounded to nearest even, denormals to zero; a is the upper half. */
EMU uint16_t emu_bf16(float v) {
    uint32_t u;
    v = emu_flushed(v);
    memcpy(&u, &v, sizeof(u));
    if (v != v) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
EMU emu512 emu_cvtne2ps(emu512 a, emu512 b) {
    emu512 y;
    for (int i = 0; i < 16; i++) {
        y.u16[i] = emu_bf16(b.f32[i]);
        y.u16[16 + i] = emu_bf16(a.f32[i]);
    }
    return y;
}

/* The real names. */
#define __m512   emu512
#define __m512i  emu512
#define __m512bh emu512

#undef _mm512_cmp_ps_mask
#undef _mm512_extractf32x8_ps
#undef _mm512_roundscale_ps
#undef _mm512_slli_epi32
#undef _mm512_slli_epi16
#undef _mm512_ternarylogic_epi32
#undef _mm512_cmplt_epi32_mask
#undef _mm512_srli_epi16
#undef _mm512_srli_epi32
#define _mm512_add_epi16(a, b)           emu_add_epi16(a, b)
#define _mm512_abs_epi8(a)               emu_abs_epi8(a)
#define _mm512_broadcast_i32x4(a)        emu_broadcast_i32x4(a)
#define _mm512_cmplt_epi32_mask(a, b)    emu_cmplt_epi32(a, b)
#define _mm512_cvtepu8_epi32(a)          emu_cvtepu8_epi32(a)
#define _mm512_cvtph_ps(a)               emu_cvtph_ps(a)
#define _mm512_mask_sub_epi8(s, m, a, b) emu_mask_sub_epi8(s, m, a, b)
#define _mm512_movepi8_mask(a)           emu_movepi8_mask(a)
#define _mm512_shuffle_epi8(a, b)        emu_shuffle_epi8(a, b)
#define _mm512_slli_epi16(a, n)          emu_slli_epi16(a, n)
#define _mm512_sllv_epi32(a, b)          emu_sllv_epi32(a, b)
#define _mm512_sub_epi32(a, b)           emu_sub_epi32(a, b)
#define _mm512_ternarylogic_epi32(a, b, c, kind)                                                   \
    emu_or_and(a, b, c) /* the one kind that is used                                               \
                         */
#define _mm512_add_epi32(a, b)         emu_add_epi32(a, b)
#define _mm512_add_ps(a, b)            emu_add_ps(a, b)
#define _mm512_and_si512(a, b)         emu_and_si512(a, b)
#define _mm512_castps512_ps256(a)      ((a).f[0])
#define _mm512_castps_si512(a)         emu_same(a)
#define _mm512_castsi512_ps(a)         emu_same(a)
#define _mm512_cmp_ps_mask(a, b, kind) emu_unordered(a, b) /* the one kind that is used */
#define _mm512_cvtne2ps_pbh(a, b)      emu_cvtne2ps(a, b)
#define _mm512_cvtepi16_epi8(a)        emu_cvtepi16_epi8(a)
#define _mm512_cvtepi32_epi16(a)       emu_cvtepi32_epi16(a)
#define _mm512_cvtepi32_ps(a)          emu_cvtepi32_ps(a)
#define _mm512_cvtepi8_epi32(a)        emu_cvtepi8_epi32(a)
#define _mm512_cvtepu16_epi32(a)       emu_cvtepu16_epi32(a)
#define _mm512_cvtps_epi32(a)          emu_cvtps_epi32(a)
#define _mm512_cvtsepi32_epi16(a)      emu_cvtsepi32_epi16(a)
#define _mm512_cvtsepi32_epi8(a)       emu_cvtsepi32_epi8(a)
#define _mm512_div_ps(a, b)            emu_div_ps(a, b)
#define _mm512_dpbf16_ps(acc, a, b)    emu_dpbf16(acc, a, b)
#define _mm512_dpbusd_epi32(acc, a, b) emu_dpbusd(acc, a, b)
#define _mm512_dpwssd_epi32(acc, a, b) emu_dpwssd(acc, a, b)
#define _mm512_extractf32x8_ps(a, i)   ((a).f[i])
#define _mm512_fmadd_ps(a, b, c)       emu_fmadd_ps(a, b, c)
#define _mm512_fmsub_ps(a, b, c)       emu_fmsub_ps(a, b, c)
#define _mm512_fnmadd_ps(a, b, c)      emu_fnmadd_ps(a, b, c)
#define _mm512_loadu_ps(p)             emu_load(p)
#define _mm512_loadu_si512(p)          emu_load(p)
#define _mm512_madd_epi16(a, b)        emu_madd_epi16(a, b)
#define _mm512_maddubs_epi16(a, b)     emu_maddubs_epi16(a, b)
#define _mm512_mask_mov_epi32(a, m, b) emu_mask_mov_epi32(a, m, b)
#define _mm512_mask_storeu_ps(p, m, v) emu_mask_storeu_ps(p, m, v)
#define _mm512_maskz_loadu_ps(m, p)    emu_maskz_loadu_ps(m, p)
#define _mm512_max_ps(a, b)            emu_max_ps(a, b)
#define _mm512_min_ps(a, b)            emu_min_ps(a, b)
#define _mm512_mul_ps(a, b)            emu_mul_ps(a, b)
#define _mm512_load_si512(p)           emu_load(p)
#define _mm512_store_si512(p, v)       emu_store(p, v)
#define _mm512_sub_epi8(a, b)          emu_sub_epi8(a, b)
#define _mm512_xor_si512(a, b)         emu_xor_si512(a, b)
#define _mm512_or_si512(a, b)          emu_or_si512(a, b)
#define _mm512_roundscale_ps(a, kind)  emu_round_even(a) /* the one kind that is used */
#define _mm512_set1_epi16(v)           emu_set1_epi16(v)
#define _mm512_set1_epi32(v)           emu_set1_epi32(v)
#define _mm512_set1_epi8(v)            emu_set1_epi8(v)
#define _mm512_set1_ps(v)              emu_set1_ps(v)
#define _mm512_setzero_ps()            emu_set1_ps(0)
#define _mm512_setzero_si512()         emu_set1_epi32(0)
#define _mm512_slli_epi32(a, n)        emu_slli_epi32(a, n)
#define _mm512_srli_epi16(a, n)        emu_srli_epi16(a, n)
#define _mm512_srli_epi32(a, n)        emu_srli_epi32(a, n)
#define _mm512_storeu_ps(p, v)         emu_store(p, v)
#define _mm512_storeu_si512(p, v)      emu_store(p, v)
#define _mm512_sub_ps(a, b)            emu_sub_ps(a, b)
#define _mm256_mask_storeu_epi16       emu_mask_storeu_epi16
#define _mm256_maskz_loadu_epi16       emu_maskz_loadu_epi16
#define _mm_mask_storeu_epi8           emu_mask_storeu_epi8
#define _mm_maskz_loadu_epi8           emu_maskz_loadu_epi8

#endif
