/* rope: rotary position embedding (Su et al. 2021) with the scalings of rope_conf: frequencies once
 * per model, cosines and sines once per pass. Angles are computed in double precision, so that
 * position 100,000 is as good as position 1. */
#ifndef BATON_ENGINE_ROPE_H
#define BATON_ENGINE_ROPE_H

#include "common/engine/model_conf.h"

/* freq: [dim / 2], radians per position; dim: how many values of a head turn. With ROPE_DYNAMIC and
 * ROPE_LONGROPE those of a sequence of up to original_context tokens. */
void rope_freqs(double *freq, const struct rope_conf *r, int dim);
/* Those of a sequence of n tokens (source: NTK-aware scaling and longrope as in HuggingFace's
 * library). */
void rope_freqs_for(double *freq, const struct rope_conf *r, int dim, int n);
/* Whether sequences of n tokens turn otherwise than short ones. */
bool rope_turns_by_length(const struct rope_conf *r, int n);

/* cos, sin: f32 [n]: factor * cos(position * freq[i]), the same for sin. */
void rope_row(float *cos, float *sin, const double *freq, int n, double factor, int position);

#endif
