/* rope: rotary position embedding (Su et al. 2021) with the scalings of rope_conf: frequencies once
 * per model, cosines and sines once per pass. Angles are computed in double precision, so that
 * position 100,000 is as good as position 1. */
#ifndef BATON_ENGINE_ROPE_H
#define BATON_ENGINE_ROPE_H

#include "common/engine/model_conf.h"

/* freq: [head_dim / 2], radians per position. */
void rope_freqs(double *freq, const struct rope_conf *r, int head_dim);
/* With ROPE_DYNAMIC, those of a sequence of n tokens: longer than original_context they turn more
 * slowly (source: NTK-aware scaling as in HuggingFace's library). */
void rope_freqs_dynamic(double *freq, const struct rope_conf *r, int head_dim, int n);

/* cos, sin: f32 [n]: factor * cos(position * freq[i]), the same for sin. */
void rope_row(float *cos, float *sin, const double *freq, int n, double factor, int position);

#endif
