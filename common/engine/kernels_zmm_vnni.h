/* kernels_zmm_vnni: products of unsigned weights with signed activations by vpdpbusd, which adds
 * four of them to a 32-bit sum without saturation. For the sets with AVX-512 VNNI. */
#define Q8_STEPS 1

typedef __m512i ints;
typedef __m512i quant_x;

LN ints q_load(const uint8_t *p, int step, enum dtype w) {
    __m512i v = _mm512_loadu_si512(p);
    if (w == DTYPE_INT8) return v;
    return _mm512_and_si512(step == 0 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
LN quant_x q_x(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof(four));
    return _mm512_set1_epi32(four);
}
LN ints q_begin(int32_t sum, enum dtype w) {
    (void)w;
    return _mm512_set1_epi32(sum);
}
LN ints q_dot(ints acc, ints q, quant_x x, enum dtype w) {
    (void)w;
    return _mm512_dpbusd_epi32(acc, q, x);
}
LN lanes q_end(ints acc, int32_t sum, enum dtype w) {
    (void)sum;
    (void)w;
    return _mm512_cvtepi32_ps(acc);
}
