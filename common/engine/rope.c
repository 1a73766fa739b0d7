/* rope: see rope.h. */
#include "common/engine/rope.h"

#include <math.h>

static const double TWO_PI = 6.283185307179586476925;

/* Llama 3.1: long wavelengths are stretched by factor, short ones stay, between them a linear
 * blend. */
static double llama3_freq(double f, const struct rope_conf *r) {
    double wavelength = TWO_PI / f;
    if (wavelength < r->original_context / r->high_freq_factor) return f;
    if (wavelength > r->original_context / r->low_freq_factor) return f / r->factor;
    if (r->high_freq_factor == r->low_freq_factor) return f; /* there is nothing between them */
    double smooth = (r->original_context / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * f / r->factor + smooth * f;
}

/* The dimension whose wavelength makes `turns` turns within the original context. */
static double yarn_dim(double turns, const struct rope_conf *r, int dim) {
    return dim * log(r->original_context / (turns * TWO_PI)) / (2 * log(r->theta));
}

/* YaRN (Peng et al. 2023): below `low` dimensions extrapolate, above `high` they interpolate,
 * between them a ramp. */
static double yarn_freq(double f, int i, const struct rope_conf *r, int dim) {
    double low = yarn_dim(r->beta_fast, r, dim), high = yarn_dim(r->beta_slow, r, dim);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > dim - 1) high = dim - 1;
    if (high == low) high += 0.001;
    double ramp = (i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return f / r->factor * ramp + f * (1 - ramp);
}

static void freqs_of(double *freq, const struct rope_conf *r, int dim, const float *divisors) {
    for (int i = 0; i < dim / 2; i++) {
        double f = pow(r->theta, -2.0 * i / dim);
        switch (r->type) {
        case ROPE_DEFAULT:
        case ROPE_DYNAMIC:
        case ROPE_LONGROPE: freq[i] = f; break;
        case ROPE_LINEAR: freq[i] = f / r->factor; break;
        case ROPE_LLAMA3: freq[i] = llama3_freq(f, r); break;
        case ROPE_YARN: freq[i] = yarn_freq(f, i, r, dim); break;
        }
        if (r->has_divisors) freq[i] /= (double)divisors[i];
    }
}

void rope_freqs(double *freq, const struct rope_conf *r, int dim) {
    freqs_of(freq, r, dim, r->divisors);
}

bool rope_turns_by_length(const struct rope_conf *r, int n) {
    return (r->type == ROPE_DYNAMIC || r->type == ROPE_LONGROPE) && n > r->original_context;
}

void rope_freqs_for(double *freq, const struct rope_conf *r, int dim, int n) {
    struct rope_conf longer = *r;
    if (rope_turns_by_length(r, n) && r->type == ROPE_DYNAMIC) {
        const double over = n / r->original_context, stretch = r->factor * over - (r->factor - 1);
        longer.theta *= dim > 2 ? pow(stretch, (double)dim / (dim - 2)) : 1;
    }
    freqs_of(freq, &longer, dim, rope_turns_by_length(r, n) ? r->long_divisors : r->divisors);
}

void rope_row(float *c, float *s, const double *freq, int n, double factor, int position) {
    for (int i = 0; i < n; i++) {
        double angle = position * freq[i];
        c[i] = (float)(factor * cos(angle));
        s[i] = (float)(factor * sin(angle));
    }
}
