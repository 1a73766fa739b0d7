/* kernels_zmm_blocks: of what kernels_tile_blocks.h asks for, what all sets of AVX-512 have alike;
 * for kernels_zmm_vnni.h and kernels_zmm_madd.h, which define BLOCK_CODES_OFFSET: codes are looked
 * up as bytes that are so much more. */
#include "common/engine/kernels_blocks.h"

/* Sums and accumulators of six rows by two panels are 24 of 32 registers. */
#define BLOCK_PANELS(rows) ((rows) == 1 ? ROW_PANELS : 2)

typedef __m512i b_table;

LN lanes ln_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
LN lanes ln_load_u8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
LN lanes ln_load_e8m0(const uint8_t *p) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23),
                  small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), small));
}
LN b_table b_codes(enum dtype w) {
    const __m128i codes = _mm_loadu_si128((const __m128i *)block_codes(w));
    return _mm512_broadcast_i32x4(_mm_add_epi8(codes, _mm_set1_epi8((char)BLOCK_CODES_OFFSET)));
}
LN ints b_load(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
LN ints b_values(ints v, int step, ints high, enum dtype kind, b_table table) {
    const __m512i q =
        _mm512_and_si512(step == 0 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
    if (kind == DTYPE_Q5_K)
        return _mm512_ternarylogic_epi32(
            q, step == 0 ? _mm512_slli_epi16(high, 4) : _mm512_slli_epi16(high, 3),
            _mm512_set1_epi8(0x10), 0xf8); /* q | (high & mask) */
    if (kind == DTYPE_Q6_K)
        return _mm512_ternarylogic_epi32(
            q, step == 0 ? _mm512_slli_epi16(high, 4) : _mm512_slli_epi16(high, 2),
            _mm512_set1_epi8(0x30), 0xf8);
    return kind == DTYPE_IQ4_NL ? _mm512_shuffle_epi8(table, q) : q;
}
LN ints b_next(ints high, int n) {
    return n == 2 ? _mm512_srli_epi16(high, 2) : _mm512_srli_epi16(high, 4);
}
