/* sample_wide_lanes: the passes of sample_wide.h over vectors of WIDE floats; included by the file
 * of one instruction set, which defines
 *
 *   WIDE, WIDE_NAME
 *   wide_mask, le(a, b), lt(a, b)   lanes where a <= b, a < b
 *   with(mask, a)                   a there, else zero
 *   bits(mask)                      bit i: lane i
 *   larger(a, b)                    a > b ? a : b
 *   largest_of(a)                   of its lanes
 *   struct wide_sum                 sums in doubles: sum_add(s, a), sum_add_product(s, a, b),
 * sum_all(s), sum_add_both(s, s_there, mask, a): to s_there where mask is
 *
 * No product and sum become one rounding here (-ffp-contract=off). */
#include <float.h>
#include <math.h>
#include <string.h>
#include "common/engine/kernels_exp.h"

#define WI static inline __attribute__((always_inline))

typedef int32_t wide_int __attribute__((vector_size(WIDE * 4)));

WI wide load(const float *x, int left) {
    wide v;
    if (left >= WIDE) {
        memcpy(&v, x, sizeof(v));
        return v;
    }
    float few[WIDE];
    for (int i = 0; i < WIDE; i++) few[i] = i < left ? x[i] : -INFINITY;
    memcpy(&v, few, sizeof(v));
    return v;
}
WI wide all(float f) {
    return f - (wide){0};
}

/* Constants as in the kernels; what is below the smallest normal number is zero. *z is zero there
 * too. */
WI wide exp_wide(wide *z) {
    const wide shift = all(0x1.8p23f);
    const wide_mask there = le(all(EXP_MIN), *z);
    const wide x = *z = with(there, *z);
    const wide t = x * EXP_LOG2E + shift, n = t - shift;
    const wide r = (x - n * EXP_LN2_HI) - n * EXP_LN2_LO;
    wide p = r * EXP_C5 + EXP_C4;
    p = p * r + EXP_C3;
    p = p * r + EXP_C2;
    p = p * r + EXP_C1;
    p = p * r + EXP_C0;
    const wide y = p * (r * r) + r + 1.0f;
    /* t's lower bits are a whole number, which the exponent of 2^n is 127 more than */
    const wide_int power = ((wide_int)t << 23) + ((wide_int)all(1.0f));
    return with(there, y * (wide)power);
}

WI wide distance(wide x, const struct sample_z *z) {
    const wide d = (x - all(z->max)) * all(z->scale) - all(z->centre);
    return (wide)((wide_int)d & 0x7fffffff);
}

static void wide_maxima(float *to, const float *x, int n) {
    for (int at = 0; at < n; at += SAMPLE_GROUP) {
        wide most = all(-INFINITY);
        unsigned clean = ~0u;
        for (int i = at; i < at + SAMPLE_GROUP && i < n; i += WIDE) {
            const wide v = load(x + i, n - i);
            clean &= bits(le(v, all(FLT_MAX)));
            most = larger(v, most);
        }
        to[at / SAMPLE_GROUP] = clean == (1u << WIDE) - 1 ? largest_of(most) : NAN;
    }
}

static void wide_exp(float *p, const float *x, int n, float max, float scale) {
    for (int i = 0; i < n; i += WIDE) {
        wide z = (load(x + i, n - i) - all(max)) * all(scale);
        const wide v = exp_wide(&z);
        memcpy(p + i, &v, sizeof(v));
    }
}

static void wide_weigh(float *p, const float *x, int n, float max, float scale, double *mass,
                       double *moment) {
    struct wide_sum of_p = {0}, of_pz = {0};
    for (int at = 0; at < n; at += SAMPLE_GROUP) { /* a group's sums in floats */
        wide sum = all(0), sum_z = all(0);
        for (int i = at; i < at + SAMPLE_GROUP && i < n; i += WIDE) {
            wide z = (load(x + i, n - i) - all(max)) * all(scale);
            const wide v = exp_wide(&z);
            memcpy(p + i, &v, sizeof(v));
            sum += v;
            sum_z += v * z;
        }
        sum_add(&of_p, sum);
        sum_add(&of_pz, sum_z);
    }
    *mass = sum_all(&of_p);
    *moment = sum_all(&of_pz);
}

/* Sums of so many groups are floats. */
enum { SPREAD_GROUPS = 32 };

static void wide_spread(double mass[SAMPLE_EDGES], const float *p, const float *x, int n,
                        const int32_t *groups, int n_groups, const struct sample_z *z,
                        const float edge[SAMPLE_EDGES]) {
    struct wide_sum sum[SAMPLE_EDGES];
    memset(sum, 0, sizeof(sum));
    for (int first = 0; first < n_groups; first += SPREAD_GROUPS) {
        wide some[SAMPLE_EDGES];
#pragma GCC unroll 6
        for (int e = 0; e < SAMPLE_EDGES; e++) some[e] = all(0);
        for (int g = first; g < first + SPREAD_GROUPS && g < n_groups; g++) {
            const int at = (groups != NULL ? groups[g] : g) * SAMPLE_GROUP;
            for (int i = at; i < at + SAMPLE_GROUP && i < n; i += WIDE) {
                const wide d = distance(load(x + i, n - i), z), v = load(p + i, WIDE);
#pragma GCC unroll 6
                for (int e = 0; e < SAMPLE_EDGES; e++) some[e] += with(le(d, all(edge[e])), v);
            }
        }
#pragma GCC unroll 6
        for (int e = 0; e < SAMPLE_EDGES; e++) sum_add(&sum[e], some[e]);
    }
    for (int e = 0; e < SAMPLE_EDGES; e++) mass[e] = sum_all(&sum[e]);
}

WI int head_of(double *sums, int32_t *ids, int n_max, const float *p, const float *x, int n,
               const struct sample_z *z, float inner, float outer, double *mass, double *moment) {
    struct wide_sum of_p = {0}, of_pz = {0};
    int found = 0;
    for (int at = 0; at < n; at += SAMPLE_GROUP) {
        struct wide_sum sum = {0};
        uint64_t edge = 0;
        for (int i = at; i < at + SAMPLE_GROUP && i < n; i += WIDE) {
            const wide v = load(p + i, WIDE);
            const wide far = (load(x + i, n - i) - all(z->max)) * all(z->scale);
            const wide d = (wide)((wide_int)(far - all(z->centre)) & 0x7fffffff);
            const wide_mask in = lt(d, all(inner));
            sum_add_both(&of_p, &sum, in, v);
            if (moment != NULL) sum_add_product(&of_pz, v, larger(far, all(EXP_MIN)));
            edge |= (uint64_t)(bits(le(d, all(outer))) & ~bits(in)) << (i - at);
        }
        for (; edge != 0; edge &= edge - 1) {
            const int id = at + __builtin_ctzll(edge);
            if (!(p[id] > 0)) continue;
            if (found == n_max) return -1;
            ids[found++] = id;
        }
        sums[at / SAMPLE_GROUP] = sum_all(&sum);
    }
    *mass = sum_all(&of_p);
    if (moment != NULL) *moment = sum_all(&of_pz);
    return found;
}

static int wide_head(double *sums, int32_t *ids, int n_max, const float *p, const float *x, int n,
                     const struct sample_z *z, float inner, float outer, double *mass,
                     double *moment) {
    if (moment == NULL) return head_of(sums, ids, n_max, p, x, n, z, inner, outer, mass, NULL);
    return head_of(sums, ids, n_max, p, x, n, z, inner, outer, mass, moment);
}

static const struct sample_wide wide_set = {.name = WIDE_NAME,
                                            .maxima = wide_maxima,
                                            .exp = wide_exp,
                                            .weigh = wide_weigh,
                                            .spread = wide_spread,
                                            .head = wide_head};
