/* forward_priv: what forward.c (open, close) and forward_run.c (the pass) share; for nobody else.
 */
#ifndef BATON_ENGINE_FORWARD_PRIV_H
#define BATON_ENGINE_FORWARD_PRIV_H

#include "common/engine/attention.h"
#include "common/engine/forward.h"
#include "common/engine/kernels.h"
#include "common/engine/model_conf.h"
#include "common/engine/pool.h"
#include "common/engine/weights.h"

struct forward {
    struct model_conf conf;
    struct model_info info;
    struct kernels kn;
    struct pool *pool;
    struct weights *w;
    struct attention_shape shape;
    int rows_max;
    double *freqs; /* [head_dim / 2] */

    /* scratch of one pass, all in `memory`; R is rows_max */
    float *x;           /* [R][hidden]: the residual stream */
    float *sum;         /* [R][hidden]: what a layer's half adds to it */
    float *normed;      /* [R][hidden] */
    float *q, *att;     /* [R][n_heads * head_dim] */
    float *k, *v;       /* [R][n_kv_heads * head_dim] */
    float *gate, *up;   /* [R][intermediate] */
    float *cos, *sin;   /* [R][head_dim / 2] */
    void *packed;       /* activations of the next product, R rows of the widest input */
    float *att_scratch; /* [threads][att_stride] */
    size_t att_stride;
    struct attention_tile *tiles; /* [R] */
    int *row_seq;                 /* [R]: the sequence of a row */
    void *memory;
};

#endif
