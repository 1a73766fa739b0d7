/* kernels_zmm_pairs: what kernels_pairs.h asks of a set, for those of AVX-512 without vdpbf16ps. */
LN pairs pairs_load(const uint8_t *p, int step) {
    __m512i v = _mm512_loadu_si512(p);
    return _mm512_castsi512_ps(step == 0 ? _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000u))
                                         : _mm512_slli_epi32(v, 16));
}
