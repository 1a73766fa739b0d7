/* kernels_pack_row: the activations of one row's group as integers, for the sets of
 * kernels_lanes.h. Beside what that asks for: ln_store_i16(int16_t *, lanes): rounded to even,
 * saturated, NaN to -32768. */
INLINE lanes q_get(const float *p, int n) {
    return n >= LANES ? ln_load(p) : n > 0 ? ln_load_n(p, n) : ln_set1(0);
}

/* As quantise_row(), bit for bit. */
INLINE void q_row(int16_t q[GROUP], float *scale, int32_t *sum, const float *x, int n, int max) {
    lanes a = q_get(x, n), b = n > LANES ? q_get(x + LANES, n - LANES) : ln_set1(0);
    const lanes zero = ln_set1(0);
    /* The second operand is what max gives where the first is no number. */
    lanes most = ln_max(ln_max(a, ln_sub(zero, a)), zero);
    most = ln_max(ln_max(b, ln_sub(zero, b)), most);
    float m = ln_max_of(most), inv = m > 0x1p-100f ? (float)max / m : 0;
    ln_store_i16(q, ln_mul(a, ln_set1(inv)));
    ln_store_i16(q + LANES, ln_mul(b, ln_set1(inv)));
    int32_t total = 0, least = 0;
    for (int i = 0; i < GROUP; i++) {
        total += q[i];
        least = q[i] < least ? q[i] : least;
    }
    *sum = total;
    *scale = least < -max ? NAN : inv > 0 ? m / (float)max : 0;
}
