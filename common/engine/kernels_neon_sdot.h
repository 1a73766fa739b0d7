/* kernels_neon_sdot: what kernels_neon_dot.h asks for, where there are dot products of bytes. */
LN int32x4_t dot_signed(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vdotq_s32(acc, w, x);
}
LN int32x4_t dot_unsigned(int32x4_t acc, uint8x16_t w, uint8x16_t x) {
    return vreinterpretq_s32_u32(vdotq_u32(vreinterpretq_u32_s32(acc), w, x));
}
LN int32x4_t dot_small(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vdotq_s32(acc, w, x);
}
