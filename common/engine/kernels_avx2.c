/* kernels_avx2: sixteen lanes as two registers of eight. Compiled with -mavx2 -mfma; kernels.c asks
 * the processor first. */
#include "common/engine/kernels.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#include <string.h>

enum { HEAD_DIM_LANES_MAX = KEY_DIM_MAX, SLICE_BYTES = 256 * 1024 };
#define ONCE_AHEAD_BYTES 2048
#define QUANT_TILES      "common/engine/kernels_tile_quant.h"
/* Sixteen registers, of which a step needs up to four beside the accumulators: eight of these cover
 * the latency of an FMA; three rows by two panels, twelve, spill. */
#define TILE_PANELS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)

typedef struct {
    __m256 a, b; /* lanes 0..7, 8..15 */
} lanes;

#define LN static inline __attribute__((always_inline))

LN lanes ln_set1(float f) {
    __m256 v = _mm256_set1_ps(f);
    return (lanes){v, v};
}
LN lanes ln_load(const float *p) {
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LN void ln_store(float *p, lanes v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
/* Lanes of a half, starting at lane `first`, that lie below n: all bits set. */
LN __m256i below(int n, int first) {
    const __m256i idx = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first), idx);
}
LN lanes ln_load_n(const float *p, int n) {
    return (lanes){_mm256_maskload_ps(p, below(n, 0)), _mm256_maskload_ps(p + 8, below(n, 8))};
}
LN void ln_store_n(float *p, lanes v, int n) {
    _mm256_maskstore_ps(p, below(n, 0), v.a);
    _mm256_maskstore_ps(p + 8, below(n, 8), v.b);
}
LN __m256 widen(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
LN lanes ln_load_bf16(const uint16_t *p) {
    return (lanes){widen(_mm_loadu_si128((const __m128i *)p)),
                   widen(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
LN lanes ln_load_bf16_n(const uint16_t *p, int n) {
    uint16_t h[16] = {0};
    memcpy(h, p, (size_t)n * sizeof(*h));
    return ln_load_bf16(h);
}
/* Rounded to nearest even in integers, as half.h does. */
LN __m256i round_bf16(__m256 v) {
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
LN void ln_store_bf16(uint16_t *p, lanes v) {
    __m256i packed = _mm256_packus_epi32(round_bf16(v.a), round_bf16(v.b));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
LN void ln_store_bf16_n(uint16_t *p, lanes v, int n) {
    uint16_t h[16];
    ln_store_bf16(h, v);
    memcpy(p, h, (size_t)n * sizeof(*h));
}
LN lanes ln_add(lanes x, lanes y) {
    return (lanes){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
LN lanes ln_sub(lanes x, lanes y) {
    return (lanes){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
LN lanes ln_mul(lanes x, lanes y) {
    return (lanes){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
LN lanes ln_div(lanes x, lanes y) {
    return (lanes){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
LN lanes ln_max(lanes x, lanes y) {
    return (lanes){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
LN lanes ln_min(lanes x, lanes y) {
    return (lanes){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
LN lanes ln_fma(lanes x, lanes y, lanes z) {
    return (lanes){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
LN lanes ln_fnma(lanes x, lanes y, lanes z) {
    return (lanes){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
LN lanes ln_fms(lanes x, lanes y, lanes z) {
    return (lanes){_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b)};
}
LN lanes ln_round(lanes x) {
    return (lanes){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                   _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
LN __m256 pow2_half(__m256 n) {
    __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(i, 23));
}
LN lanes ln_pow2(lanes n) {
    return (lanes){pow2_half(n.a), pow2_half(n.b)};
}
LN void ln_sum4(float out[4], lanes w, lanes x, lanes y, lanes z) {
    __m256 wx = _mm256_hadd_ps(_mm256_add_ps(w.a, w.b), _mm256_add_ps(x.a, x.b));
    __m256 yz = _mm256_hadd_ps(_mm256_add_ps(y.a, y.b), _mm256_add_ps(z.a, z.b));
    __m256 all = _mm256_hadd_ps(wx, yz);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
LN float ln_sum(lanes x) {
    float out[4];
    ln_sum4(out, x, x, x, x);
    return out[0];
}
LN float ln_max_of(lanes x) {
    __m256 m = _mm256_max_ps(x.a, x.b);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

#include "common/engine/kernels_pairs.h"

LN __m256 pair_half(const uint8_t *p, int step) {
    __m256i v = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(step == 0 ? _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u))
                                         : _mm256_slli_epi32(v, 16));
}
LN pairs pairs_load(const uint8_t *p, int step) {
    return (pairs){pair_half(p, step), pair_half(p + 32, step)};
}

/* Products of unsigned weights with signed activations. vpmaddubsw would saturate at eight bits, so
 * these are split in even and odd k and widened: with 16 bits pairs are exact. At four bits it
 * holds the sums of a whole group: the sixteen activations of one 16-bit sum and, in the lower sum
 * of two, the group's `sum` beside them come to 32,512 at most. */
typedef struct {
    __m256i a, b;
} ints;
typedef __m256i quant_x;

/* Bytes of both would saturate: narrow activations are laid out, and multiplied, as wide ones. */
LN enum dtype q_kind(enum dtype w) {
    return x_layout_plain(w);
}

LN __m256i q_half(const uint8_t *p, int step, enum dtype w) {
    __m256i v = _mm256_loadu_si256((const __m256i *)p);
    if (w == DTYPE_INT8)
        return step == 0 ? _mm256_and_si256(v, _mm256_set1_epi16(0xff)) : _mm256_srli_epi16(v, 8);
    return _mm256_and_si256(step == 0 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}
LN ints q_load(const uint8_t *p, int step, enum dtype w) {
    return (ints){q_half(p, step, w), q_half(p + 32, step, w)};
}
LN quant_x q_x(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof(four));
    return _mm256_set1_epi32(four);
}
LN ints q_begin(int32_t sum, enum dtype w) {
    const __m256i v = _mm256_set1_epi32(w == DTYPE_INT8 ? sum : sum & 0xffff);
    return (ints){v, v};
}
/* Steps are added one by one: a compiler that sums two of them first runs out of registers. */
#define ADDED(v) __asm__("" : "+x"(v))
LN ints q_dot(ints acc, ints q, quant_x x, enum dtype w) {
    if (w == DTYPE_INT8)
        acc = (ints){_mm256_add_epi32(acc.a, _mm256_madd_epi16(q.a, x)),
                     _mm256_add_epi32(acc.b, _mm256_madd_epi16(q.b, x))};
    else
        acc = (ints){_mm256_add_epi16(acc.a, _mm256_maddubs_epi16(q.a, x)),
                     _mm256_add_epi16(acc.b, _mm256_maddubs_epi16(q.b, x))};
    ADDED(acc.a);
    ADDED(acc.b);
    return acc;
}
LN lanes q_end(ints acc, enum dtype w) {
    if (w == DTYPE_INT4) {
        const __m256i one = _mm256_set1_epi16(1);
        acc.a = _mm256_madd_epi16(acc.a, one);
        acc.b = _mm256_madd_epi16(acc.b, one);
    }
    return (lanes){_mm256_cvtepi32_ps(acc.a), _mm256_cvtepi32_ps(acc.b)};
}
/* Saturated; what is no number becomes -32768. */
LN void ln_store_i16(int16_t *p, lanes v) {
    __m256i h = _mm256_packs_epi32(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(h, 0xd8));
}
/* Rows of int8 KV. */
LN __m256 widen_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
LN lanes ln_load_i8(const int8_t *p) {
    return (lanes){widen_i8(p), widen_i8(p + 8)};
}
LN lanes ln_load_i8_n(const int8_t *p, int n) {
    int8_t b[16] = {0};
    memcpy(b, p, (size_t)n);
    return ln_load_i8(b);
}
LN void ln_store_i8(int8_t *p, lanes v) {
    int16_t h[16];
    ln_store_i16(h, v);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm_loadu_si128((const __m128i *)h),
                                                   _mm_loadu_si128((const __m128i *)(h + 8))));
}
LN void ln_store_i8_n(int8_t *p, lanes v, int n) {
    int8_t b[16];
    ln_store_i8(b, v);
    memcpy(p, b, (size_t)n);
}

/* Of block formats. Sixteen products of four bits, or eight of six bits less their offset, and what
 * takes that off, come to 32,512 at most: Q4_K and Q6_K keep the sums of a unit in 16 bits, those
 * of k 0 and 1 modulo four in the lower ones. The others widen each step. Codes are signed: their
 * signs go to the activations. */
#include "common/engine/kernels_blocks.h"
#define BLOCK_PANELS(rows) TILE_PANELS(rows)
typedef __m256i b_table;

LN lanes ln_load_f16(const uint16_t *p) {
    return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
LN __m256i bytes8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
LN lanes ln_load_u8(const uint8_t *p) {
    return (lanes){_mm256_cvtepi32_ps(bytes8(p)), _mm256_cvtepi32_ps(bytes8(p + 8))};
}
LN __m256 e8m0_8(__m256i e) {
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23),
                  small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}
LN lanes ln_load_e8m0(const uint8_t *p) {
    return (lanes){e8m0_8(bytes8(p)), e8m0_8(bytes8(p + 8))};
}
LN b_table b_codes(enum dtype w) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)block_codes(w)));
}
LN ints b_load(const uint8_t *p) {
    return (ints){_mm256_loadu_si256((const __m256i *)p),
                  _mm256_loadu_si256((const __m256i *)(p + 32))};
}
LN __m256i b_half(__m256i v, int step, __m256i high, enum dtype kind, b_table table) {
    const __m256i q =
        _mm256_and_si256(step == 0 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    if (kind == DTYPE_Q5_K) {
        high = step == 0 ? _mm256_slli_epi16(high, 4) : _mm256_slli_epi16(high, 3);
        return _mm256_or_si256(q, _mm256_and_si256(high, _mm256_set1_epi8(0x10)));
    }
    if (kind == DTYPE_Q6_K) {
        high = step == 0 ? _mm256_slli_epi16(high, 4) : _mm256_slli_epi16(high, 2);
        return _mm256_or_si256(q, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
    }
    return kind == DTYPE_IQ4_NL ? _mm256_shuffle_epi8(table, q) : q;
}
LN ints b_values(ints v, int step, ints high, enum dtype kind, b_table table) {
    return (ints){b_half(v.a, step, high.a, kind, table), b_half(v.b, step, high.b, kind, table)};
}
LN ints b_next(ints high, int n) {
    return n == 2 ? (ints){_mm256_srli_epi16(high.a, 2), _mm256_srli_epi16(high.b, 2)}
                  : (ints){_mm256_srli_epi16(high.a, 4), _mm256_srli_epi16(high.b, 4)};
}
LN int32_t b_word(int32_t low, int32_t high) {
    return (int32_t)((uint32_t)(-32 * low) & 0xffffu) | (int32_t)((uint32_t)(-32 * high) << 16);
}
LN ints b_begin(const int32_t *words, int n, int half, enum dtype kind) {
    const __m256i v =
        kind == DTYPE_Q6_K ? _mm256_set1_epi32(words[half * n]) : _mm256_setzero_si256();
    return (ints){v, v};
}
LN __m256i b_dot_half(__m256i acc, __m256i q, __m256i x, enum dtype kind) {
    if (kind == DTYPE_Q4_K || kind == DTYPE_Q6_K) {
        acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(q, x));
    } else {
        if (kind == DTYPE_IQ4_NL) {
            x = _mm256_sign_epi8(x, q);
            q = _mm256_abs_epi8(q);
        }
        acc = _mm256_add_epi32(acc,
                               _mm256_madd_epi16(_mm256_maddubs_epi16(q, x), _mm256_set1_epi16(1)));
    }
    ADDED(acc);
    return acc;
}
LN ints b_dot(ints acc, ints q, quant_x x, enum dtype kind) {
    return (ints){b_dot_half(acc.a, q.a, x, kind), b_dot_half(acc.b, q.b, x, kind)};
}
LN lanes b_end(ints acc, enum dtype kind) {
    if (kind == DTYPE_Q4_K || kind == DTYPE_Q6_K) {
        const __m256i one = _mm256_set1_epi16(1);
        acc.a = _mm256_madd_epi16(acc.a, one);
        acc.b = _mm256_madd_epi16(acc.b, one);
    }
    return (lanes){_mm256_cvtepi32_ps(acc.a), _mm256_cvtepi32_ps(acc.b)};
}

#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("avx2");

const struct kernels *kernels_avx2(void) {
    return &set;
}
#else
const struct kernels *kernels_avx2(void) {
    return NULL;
}
#endif
