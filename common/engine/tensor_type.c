/* tensor_type: one function for each format. Offsets are bytes of the block. */
#include "common/engine/tensor_type.h"

#include <string.h>
#include "common/engine/half.h"

static uint16_t u16_at(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static float f16_at(const uint8_t *p) {
    return f32_of_f16(u16_at(p));
}

/* Element k of 32 that lie in 16 bytes: the lower halves are the first 16. */
static int nibble(const uint8_t *p, int k) {
    return k < 16 ? p[k] & 15 : p[k - 16] >> 4;
}

/* ---- plain */
static void from_f32(float *dst, const uint8_t *src, size_t n) {
    memcpy(dst, src, n * sizeof(float));
}

static void from_f16(float *dst, const uint8_t *src, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = f16_at(src + 2 * i);
}

static void from_bf16(float *dst, const uint8_t *src, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = f32_of_bf16(u16_at(src + 2 * i));
}

/* ---- 32 elements: a scale d = f16(0), and with the _1 types a minimum m = f16(2) */
static void from_q8_0(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 34, dst += 32) {
        const float d = f16_at(b);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)(int8_t)b[2 + k];
    }
}

static void from_q4_0(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 18, dst += 32) {
        const float d = f16_at(b);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)(nibble(b + 2, k) - 8);
    }
}

static float grid_q8_0(int8_t q[32], const uint8_t *b) {
    memcpy(q, b + 2, 32);
    return f16_at(b);
}

static float grid_q4_0(int8_t q[32], const uint8_t *b) {
    for (int k = 0; k < 32; k++) q[k] = (int8_t)(nibble(b + 2, k) - 8);
    return f16_at(b);
}

/* The fifth bit of element k is bit k of a u32. */
static int nibble5(const uint8_t *high, const uint8_t *p, int k) {
    return nibble(p, k) + (high[k / 8] >> (k % 8) & 1) * 16;
}

static float grid_q5_0(int8_t q[32], const uint8_t *b) {
    for (int k = 0; k < 32; k++) q[k] = (int8_t)(nibble5(b + 2, b + 6, k) - 16);
    return f16_at(b);
}

static void from_q4_1(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 20, dst += 32) {
        const float d = f16_at(b), m = f16_at(b + 2);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)nibble(b + 4, k) + m;
    }
}

static void from_q5_0(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 22, dst += 32) {
        const float d = f16_at(b);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)(nibble5(b + 2, b + 6, k) - 16);
    }
}

static void from_q5_1(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 24, dst += 32) {
        const float d = f16_at(b), m = f16_at(b + 2);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)nibble5(b + 4, b + 8, k) + m;
    }
}

const int8_t tensor_codes_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
const int8_t tensor_codes_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void from_iq4_nl(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 18, dst += 32) {
        const float d = f16_at(b);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)tensor_codes_iq4[nibble(b + 2, k)];
    }
}

static void from_mxfp4(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 17, dst += 32) {
        const float d = e8m0_half(b[0]);
        for (int k = 0; k < 32; k++) dst[k] = d * (float)tensor_codes_fp4[nibble(b + 1, k)];
    }
}

/* ---- 256 elements. k: element; runs of 16 or 32 have scales of their own. */
static void from_q2_k(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 84, dst += 256) {
        const uint8_t *qs = b + 16;
        const float d = f16_at(b + 80), least = f16_at(b + 82);
        for (int k = 0; k < 256; k++) {
            const int q = qs[k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3, s = b[k / 16];
            dst[k] = d * (float)(s & 15) * (float)q - least * (float)(s >> 4);
        }
    }
}

/* Sixteen scales of six bits in twelve bytes: the lower four bits, then the upper two. */
static int q3_scale(const uint8_t *s, int i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    return (low | (s[8 + i % 4] >> (i / 4 * 2) & 3) << 4) - 32;
}

static int q3_value(const uint8_t *b, int k) {
    const int low = b[32 + k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3,
              high = b[k % 32] >> (k / 32) & 1;
    return low + 4 * high - 4;
}

static void from_q3_k(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 110, dst += 256) {
        const float d = f16_at(b + 108);
        for (int k = 0; k < 256; k++)
            dst[k] = d * (float)q3_scale(b + 96, k / 16) * (float)q3_value(b, k);
    }
}

/* Scale and minimum of run j, six bits each, eight runs in twelve bytes. */
static void q4_scale(const uint8_t *s, int j, int *scale, int *least) {
    if (j < 4) {
        *scale = s[j] & 63;
        *least = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *least = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

static void from_q4_k(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 144, dst += 256) {
        const float d = f16_at(b), d_least = f16_at(b + 2);
        for (int j = 0; j < 8; j++) {
            int scale, least;
            q4_scale(b + 4, j, &scale, &least);
            const float s = d * (float)scale, m = d_least * (float)least;
            const uint8_t *qs = b + 16 + j / 2 * 32;
            for (int l = 0; l < 32; l++)
                dst[32 * j + l] = s * (float)(j % 2 ? qs[l] >> 4 : qs[l] & 15) - m;
        }
    }
}

static void from_q5_k(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 176, dst += 256) {
        const float d = f16_at(b), d_least = f16_at(b + 2);
        for (int j = 0; j < 8; j++) {
            int scale, least;
            q4_scale(b + 4, j, &scale, &least);
            const float s = d * (float)scale, m = d_least * (float)least;
            const uint8_t *qs = b + 48 + j / 2 * 32, *high = b + 16;
            for (int l = 0; l < 32; l++) {
                const int q = (j % 2 ? qs[l] >> 4 : qs[l] & 15) + (high[l] >> j & 1) * 16;
                dst[32 * j + l] = s * (float)q - m;
            }
        }
    }
}

static int q6_bits(const uint8_t *b, int k) {
    const int half = k / 128, j = k / 32 % 4, l = k % 32;
    const uint8_t low = b[64 * half + 32 * (j & 1) + l], high = b[128 + 32 * half + l];
    return (j & 2 ? low >> 4 : low & 15) | (high >> (2 * j) & 3) << 4;
}

static void from_q6_k(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 210, dst += 256) {
        const float d = f16_at(b + 208);
        for (int k = 0; k < 256; k++)
            dst[k] = d * (float)(int8_t)b[192 + k / 16] * (float)(q6_bits(b, k) - 32);
    }
}

static int iq4_xs_scale(const uint8_t *b, uint16_t high, int j) {
    const int low = b[4 + j / 2] >> (j % 2 * 4) & 15;
    return (low | (high >> (2 * j) & 3) << 4) - 32;
}

static void from_iq4_xs(float *dst, const uint8_t *b, size_t n) {
    for (; n > 0; n--, b += 136, dst += 256) {
        const float d = f16_at(b);
        const uint16_t high = u16_at(b + 2);
        for (int j = 0; j < 8; j++) {
            const float s = d * (float)iq4_xs_scale(b, high, j);
            for (int l = 0; l < 32; l++)
                dst[32 * j + l] = s * (float)tensor_codes_iq4[nibble(b + 8 + 16 * j, l)];
        }
    }
}

/* ---- blocks taken apart */
static void parts_iq4_nl(struct block_parts *p, const uint8_t *b) {
    p->d = u16_at(b);
    for (int k = 0; k < 32; k++) p->q[k] = (uint8_t)nibble(b + 2, k);
}

static void parts_mxfp4(struct block_parts *p, const uint8_t *b) {
    p->d = b[0];
    for (int k = 0; k < 32; k++) p->q[k] = (uint8_t)nibble(b + 1, k);
}

/* Q4_K, and the part of Q5_K that is like it. */
static void parts_k45(struct block_parts *p, const uint8_t *b, const uint8_t *qs) {
    p->d = u16_at(b);
    p->least = u16_at(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, least;
        q4_scale(b + 4, j, &scale, &least);
        p->scales[j] = (uint8_t)scale;
        p->mins[j] = (uint8_t)least;
        for (int l = 0; l < 32; l++)
            p->q[32 * j + l] = (uint8_t)(j % 2 ? qs[j / 2 * 32 + l] >> 4 : qs[j / 2 * 32 + l] & 15);
    }
}

/* As Q6_K, whose numbers are made alike: three bits with a sign as six. */
static void parts_q3_k(struct block_parts *p, const uint8_t *b) {
    p->d = u16_at(b + 108);
    for (int i = 0; i < 16; i++) p->scales[i] = (uint8_t)q3_scale(b + 96, i);
    for (int k = 0; k < 256; k++) p->q[k] = (uint8_t)(q3_value(b, k) + 32);
}

static void parts_q4_k(struct block_parts *p, const uint8_t *b) {
    parts_k45(p, b, b + 16);
}

static void parts_q5_k(struct block_parts *p, const uint8_t *b) {
    parts_k45(p, b, b + 48);
    for (int k = 0; k < 256; k++)
        p->q[k] = (uint8_t)(p->q[k] | (b[16 + k % 32] >> (k / 32) & 1) << 4);
}

static void parts_q6_k(struct block_parts *p, const uint8_t *b) {
    p->d = u16_at(b + 208);
    memcpy(p->scales, b + 192, 16);
    for (int k = 0; k < 256; k++) p->q[k] = (uint8_t)q6_bits(b, k);
}

static void parts_iq4_xs(struct block_parts *p, const uint8_t *b) {
    const uint16_t high = u16_at(b + 2);
    p->d = u16_at(b);
    for (int j = 0; j < 8; j++) {
        p->scales[j] = (uint8_t)iq4_xs_scale(b, high, j);
        for (int l = 0; l < 32; l++) p->q[32 * j + l] = (uint8_t)nibble(b + 8 + 16 * j, l);
    }
}

static const struct tensor_type types[] = {
    {"F32", 1, 4, DTYPE_F32, .to_f32 = from_f32},
    {"F16", 1, 2, DTYPE_F16, .to_f32 = from_f16},
    {"BF16", 1, 2, DTYPE_BF16, .to_f32 = from_bf16},
    {"Q8_0", 32, 34, DTYPE_NONE, .to_f32 = from_q8_0, .grid_bits = 8, .grid = grid_q8_0},
    {"Q4_0", 32, 18, DTYPE_NONE, .to_f32 = from_q4_0, .grid_bits = 4, .grid = grid_q4_0},
    {"Q4_1", 32, 20, DTYPE_NONE, .to_f32 = from_q4_1},
    {"Q5_0", 32, 22, DTYPE_NONE, .to_f32 = from_q5_0, .grid_bits = 8, .grid = grid_q5_0},
    {"Q5_1", 32, 24, DTYPE_NONE, .to_f32 = from_q5_1},
    {"IQ4_NL", 32, 18, DTYPE_NONE, .to_f32 = from_iq4_nl, .own = DTYPE_IQ4_NL,
     .parts = parts_iq4_nl},
    {"MXFP4", 32, 17, DTYPE_NONE, .to_f32 = from_mxfp4, .own = DTYPE_MXFP4, .parts = parts_mxfp4},
    {"Q2_K", 256, 84, DTYPE_NONE, .to_f32 = from_q2_k},
    {"Q3_K", 256, 110, DTYPE_NONE, .to_f32 = from_q3_k, .own = DTYPE_Q6_K, .parts = parts_q3_k},
    {"Q4_K", 256, 144, DTYPE_NONE, .to_f32 = from_q4_k, .own = DTYPE_Q4_K, .parts = parts_q4_k},
    {"Q5_K", 256, 176, DTYPE_NONE, .to_f32 = from_q5_k, .own = DTYPE_Q5_K, .parts = parts_q5_k},
    {"Q6_K", 256, 210, DTYPE_NONE, .to_f32 = from_q6_k, .own = DTYPE_Q6_K, .parts = parts_q6_k},
    {"IQ4_XS", 256, 136, DTYPE_NONE, .to_f32 = from_iq4_xs, .own = DTYPE_IQ4_XS,
     .parts = parts_iq4_xs},
};

const struct tensor_type *tensor_type_find(const char *name) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}
