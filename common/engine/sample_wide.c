/* sample_wide: the widest set there is, and the one of four floats that every processor has. */
#include "common/engine/sample_wide.h"
#include "common/engine/kernels_cpu.h"

enum { WIDE = 4 };
#define WIDE_NAME "plain"
typedef float wide __attribute__((vector_size(16)));
typedef int32_t wide_mask __attribute__((vector_size(16)));

static inline wide_mask le(wide a, wide b) {
    return a <= b;
}
static inline wide_mask lt(wide a, wide b) {
    return a < b;
}
static inline wide with(wide_mask m, wide a) {
    return (wide)((wide_mask)a & m);
}
static inline unsigned bits(wide_mask m) {
    return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
}
static inline wide larger(wide a, wide b) {
    const wide_mask m = a > b;
    return (wide)(((wide_mask)a & m) | ((wide_mask)b & ~m));
}
static inline float largest_of(wide a) {
    const float low = a[0] > a[1] ? a[0] : a[1], high = a[2] > a[3] ? a[2] : a[3];
    return low > high ? low : high;
}

struct wide_sum {
    double v[WIDE];
};
static inline void sum_add(struct wide_sum *s, wide a) {
    for (int i = 0; i < WIDE; i++) s->v[i] += (double)a[i];
}
static inline void sum_add_product(struct wide_sum *s, wide a, wide b) {
    for (int i = 0; i < WIDE; i++) s->v[i] += (double)a[i] * (double)b[i];
}
static inline void sum_add_both(struct wide_sum *s, struct wide_sum *there, wide_mask m, wide a) {
    sum_add(s, a);
    sum_add(there, with(m, a));
}
static inline double sum_all(const struct wide_sum *s) {
    return (s->v[0] + s->v[1]) + (s->v[2] + s->v[3]);
}

#include "common/engine/sample_wide_lanes.h"

const struct sample_wide *sample_wide_plain(void) {
    return &wide_set;
}

const struct sample_wide *sample_wide(void) {
    if (cpu_has_avx512() && sample_wide_avx512() != NULL) return sample_wide_avx512();
    if (cpu_has_avx2() && sample_wide_avx2() != NULL) return sample_wide_avx2();
    return sample_wide_plain();
}
