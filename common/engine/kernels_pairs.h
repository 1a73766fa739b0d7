/* kernels_pairs: bf16 products where the processor has none: for kernels_avx2.c and kernels_avx512.c, which define
 * pairs_load(). See kernels_tile.h. */
/* Without bf16 arithmetic a pair is widened: a bf16 is the upper half of an f32. */
typedef struct {
    lanes even, odd;
} pairs;
typedef pairs x_pair;

#define X_PACK       x_pack_columns
#define X_PAIR_BYTES 8

LN x_pair x_pair_load(const uint8_t *x, int rows, int row) {
    const float *f = (const float *)x;
    return (x_pair){ln_set1(f[row]), ln_set1(f[rows + row])};
}
LN lanes pairs_fma(pairs w, x_pair x, lanes acc) {
    return ln_fma(w.even, x.even, ln_fma(w.odd, x.odd, acc));
}
