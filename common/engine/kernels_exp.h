/* kernels_exp: the constants of exp() and erf() in every kernel set. exp(x) = 2^n e^r, n = x
 * log2(e) rounded to even, r = x - n ln 2 in two steps; e^r = 1 + r + r^2 P(r) with the degree 5
 * polynomial of Cephes' expf. Error under 1.5 units in the last place for x in [EXP_MIN, EXP_MAX],
 * to which arguments are cut: the smallest result is the smallest normal number. */
#ifndef BATON_ENGINE_KERNELS_EXP_H
#define BATON_ENGINE_KERNELS_EXP_H

#define EXP_MIN    (-87.33654f)
#define EXP_MAX    88.3762626f
#define EXP_LOG2E  1.44269504f
#define EXP_LN2_HI 0.693147182f
#define EXP_LN2_LO (-1.90465421e-9f)
#define EXP_C5     1.9875691500e-4f
#define EXP_C4     1.3981999507e-3f
#define EXP_C3     8.3334519073e-3f
#define EXP_C2     4.1665795894e-2f
#define EXP_C1     1.6666665459e-1f
#define EXP_C0     5.0000001201e-1f

/* erf(z) = 1 - (C1 t + C2 t^2 + .. + C5 t^5) exp(-z^2), t = 1 / (1 + p z), z >= 0, within 1.5e-7
 * (Abramowitz and Stegun 7.1.26); here z = x / sqrt 2, and P is p / sqrt 2. */
#define ERF_P  0.2316418882f
#define ERF_C1 0.254829592f
#define ERF_C2 (-0.284496736f)
#define ERF_C3 1.421413741f
#define ERF_C4 (-1.453152027f)
#define ERF_C5 1.061405429f

/* The tanh form of GELU is x / (1 + exp(x (C1 + C3 x^2))), C1 = -2 sqrt(2 / pi), C3 = 0.044715 C1.
 */
#define GELU_C1 (-1.5957691216f)
#define GELU_C3 (-0.0713548163f)

#endif
