/* kernels_pairs: bf16 products where the processor has none: a bf16 is the upper half of an f32, so
 * each k of a pair is widened and added on its own. For kernels_avx2.c and kernels_avx512.c, which
 * define pairs_load(). See kernels_tile.h. */
typedef lanes pairs;

#define X_PACK       pack_columns
#define X_PAIR_BYTES 8
#define PAIR_STEPS   2 /* step 0: odd k, step 1: even k */

LN pairs x_pair_load(const uint8_t *x, int rows, int row, int step) {
    return ln_set1(((const float *)x)[step == 0 ? rows + row : row]);
}
LN lanes pairs_fma(pairs w, pairs x, lanes acc) {
    return ln_fma(w, x, acc);
}
