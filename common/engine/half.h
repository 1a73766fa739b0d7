/* half: 16-bit floats to f32 and back, one value at a time. bf16 rounds to nearest even and keeps
 * denormals; every kernel set gives these bits. */
#ifndef BATON_ENGINE_HALF_H
#define BATON_ENGINE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint32_t bits_of_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float f32_of_bf16(uint16_t h) {
    return f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_of_f32(float f) {
    uint32_t u = bits_of_f32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40); /* a NaN stays one */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

/* The bf16 of at least that magnitude: values divided by it stay in range. */
static inline float bf16_up(float f) {
    uint32_t u = bits_of_f32(f);
    return f32_of_bits(((u + 0xffffu) >> 16) << 16);
}

static inline float f32_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31) return f32_of_bits(sign | 0x7f800000u | man << 13);
    if (exp != 0) return f32_of_bits(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f; /* zero and denormals, exact */
    return sign != 0 ? -f : f;
}

/* Half of what an E8M0 means: 2^(e - 128). The two smallest are denormals, 255 is a NaN. */
static inline float e8m0_half(uint8_t e) {
    return f32_of_bits(e == 255 ? 0x7fc00000 : e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

#endif
