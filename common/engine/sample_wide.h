/* sample_wide: what the sampler does with every logit, in vectors as wide as the processor's. A
 * value is made in the same operations whatever the width, so its bits are the same; sums of many
 * are not, and serve as bounds (sample_mass.c).
 *
 * x: f32 [n], no NaN and no plus infinity. Of a logit, z = (x - max) * scale, p = exp(z), and its
 * distance is |z - centre|. p: f32 [n] filled up with zeros to a whole SAMPLE_GROUP. Any thread. */
#ifndef BATON_ENGINE_SAMPLE_WIDE_H
#define BATON_ENGINE_SAMPLE_WIDE_H

#include <stdint.h>
#include "common/engine/sample.h"

enum { SAMPLE_EDGES = 6 };

struct sample_z {
    float max, scale, centre;
};

struct sample_wide {
    const char *name;
    /* The largest of each group; NaN where the group holds a NaN or plus infinity. x: any. */
    void (*maxima)(float *to, const float *x, int n);
    void (*exp)(float *p, const float *x, int n, float max, float scale);
    /* exp, and about the sums of p and of p z. */
    void (*weigh)(float *p, const float *x, int n, float max, float scale, double *mass,
                  double *moment);
    /* mass[i]: about the sum of p up to the distance edge[i], of groups[0..n_groups) alone; NULL:
     * of the first n_groups. */
    void (*spread)(double mass[SAMPLE_EDGES], const float *p, const float *x, int n,
                   const int32_t *groups, int n_groups, const struct sample_z *z,
                   const float edge[SAMPLE_EDGES]);
    /* sums[group]: of p whose distance is below inner. Ids of those from inner to outer, lowest
     * first; returns how many, or -1: they are more than n_max. In doubles: the sums of p and,
     * where moment is not NULL, of p z. */
    int (*head)(double *sums, int32_t *ids, int n_max, const float *p, const float *x, int n,
                const struct sample_z *z, float inner, float outer, double *mass, double *moment);
};

/* The widest of this processor. */
const struct sample_wide *sample_wide(void);

/* Each of them; NULL: not of this processor, or not of this build. */
const struct sample_wide *sample_wide_plain(void);
const struct sample_wide *sample_wide_avx2(void);
const struct sample_wide *sample_wide_avx512(void);

#endif
