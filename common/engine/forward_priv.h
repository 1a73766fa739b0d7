/* forward_priv: what forward.c (open, close) and forward_run.c (the pass) share; for nobody else.
 */
#ifndef BATON_ENGINE_FORWARD_PRIV_H
#define BATON_ENGINE_FORWARD_PRIV_H

#include <stdatomic.h>
#include "common/engine/attention_plan.h"
#include "common/engine/forward.h"
#include "common/engine/kernels.h"
#include "common/engine/lora.h"
#include "common/engine/model_conf.h"
#include "common/engine/pool.h"
#include "common/engine/weights_check.h"
#include "common/engine/weights.h"

/* Up to TILE_ROWS rows of a pass that share an adapter: rows[first .. first + n). */
struct lora_chunk {
    const struct lora *lora;
    int first, n;
};

enum { LORA_PRODUCTS = 3 }; /* of one input at most: q, k, v */

/* f32, bf16, int8, int8 for narrow activations, int4, and one for all block formats */
enum { PACKINGS_MAX = 6 };

/* Matrices that share an input, of one k, or some of them that stand for the packings of all; NULL
 * behind the last. */
struct inputs {
    const struct matrix *w[PACKINGS_MAX];
};
static inline struct inputs inputs_qkv(const struct layer_weights *l) {
    return (struct inputs){{&l->q, &l->k, &l->v}};
}
/* With latent attention: of the layer's input, and of the rows between the products of queries. */
static inline struct inputs inputs_latent(const struct layer_weights *l) {
    return (struct inputs){{l->q_down.panels != NULL ? &l->q_down : &l->q, &l->k}};
}
/* Of a layer with experts: of the router, of the shared expert and of all experts; once for each
 * packing. */
struct inputs inputs_mlp(const struct model_conf *c, const struct layer_weights *l);
/* What their activations are packed for: distinct x_dtype(); returns how many. */
int inputs_packings(struct inputs in, enum dtype x[PACKINGS_MAX]);

/* What a pass with adapters needs; without adapters (rank_max 0) all of it is NULL. */
struct lora_rows {
    int rank_max;              /* of the engine's options */
    size_t stride;             /* floats of a row of `down` */
    int *rows;                 /* [R]: the adapted rows, by adapter */
    struct lora_chunk *chunks; /* [R] */
    int n_chunks;              /* 0: no row of this pass has an adapter */
    float *down;    /* [LORA_PRODUCTS][R][stride]: A x of the products of a region, packed chunk by
                       chunk */
    float *scratch; /* [threads][scratch_stride] */
    size_t scratch_stride, gathered, packed; /* floats: of all, of its two first parts */
};

/* What a pass with experts needs; without experts all of it is NULL. A pair is a row and one of the
 * `used` experts it goes to; pairs lie by expert, those of an expert by row. */
struct expert_rows {
    float *scores; /* [R][n]: of the router */
    float *shares; /* [R][used]: what the outputs are multiplied with, the largest first */
    float *inputs; /* [R * used]: of a pair, what its input is; NULL: 1 */
    int *chosen;   /* [R][used]: whose they are */
    int *place;    /* [R][used]: of the pair */
    int *row;      /* [R * used]: of a pair */
    int *first;    /* [n + 1]: an expert's pairs */
    int *active;   /* [n]: the experts that have some */
    size_t *at;    /* [n]: where the packed rows of an active one lie, in bytes */
    int n_active;
    /* [n_layers][n]: rows that went to an expert since the start; the engine thread writes */
    atomic_uint_least64_t *counts;
    uint8_t *packed; /* the rows of all experts, from the packings of the pass's; where gate and up
                        want different ones, those of up are behind */
    size_t packed_bytes; /* of either */
    float *rows;         /* [R * used][hidden]: what comes out */
    float *gate;         /* [R * used][intermediate] */
    float *shared;       /* [R][hidden]: what the shared expert adds */
    float *open;         /* [R]: how much of it, before the sigmoid */
    float *scratch;      /* [threads][2][lanes_up(n)] */
};

/* What a pass with latent attention needs; without it all of it is NULL. */
struct latent_rows {
    float *q_down, *q_normed; /* [R][q_rank] */
    float *heads;    /* [R][n_heads][still + rope_dim]: queries; later [R][n_heads][value] */
    uint8_t *packed; /* [threads][packed_bytes]: some rows of one head */
    size_t packed_bytes;
};

struct forward {
    struct model_conf conf;
    struct model_info info;
    struct kernels kn;
    struct pool *pool;
    struct weights *w;
    struct weights_check *check; /* NULL: none under way or over */
    struct attention_shape shape;
    int rows_max;
    int n_ropes;   /* 1, or 2: layers with a window have angles of their own */
    double *freqs; /* [n_ropes + 1][rope_dim / 2]; the last: longrope's of long sequences */
    float *slopes; /* [n_heads]: ALiBi; NULL: none */
    float *ones;   /* [head_dim]: weights of QK_NORM_TURNED; NULL: another */

    /* scratch of one pass, all in `memory`; R is rows_max */
    float *x;            /* [R][hidden]: the residual stream */
    float *normed;       /* [R][hidden]; changes places with x where the stream goes on from it */
    float *branch;       /* [R][hidden]: what a half adds, until its norm; NULL: it has none */
    float *q, *att;      /* [R][n_heads * head_dim] */
    float *k, *v;        /* [R][n_kv_heads * head_dim] */
    float *gate;         /* [R][intermediate] */
    float *cos, *sin;    /* [n_ropes][R][rope_dim / 2] */
    uint8_t *packed;     /* activations of the next products, R rows of the widest input, once for
                            each type that they are packed for */
    size_t packed_bytes; /* of one of these */
    int n_packings;      /* the most that an input of the model has */
    struct inputs *mlp;  /* [n_layers]: inputs_mlp() */
    float *att_scratch;  /* [threads][att_stride] */
    size_t att_stride;
    /* [threads][item_stride]: columns of a product that meet others, or the residual stream, in
     * the same work item: as f32 [R][columns of an item] they stay in the cache */
    float *item_scratch;
    size_t item_stride;
    struct attention_plan plan; /* its arrays; of `R` tiles */
    int *row_seq;               /* [R]: the sequence of a row */
    struct lora_rows lora;
    struct expert_rows experts;
    struct latent_rows latent;
    float *maxima;        /* of logits, the caller's; NULL: nobody wants them */
    float *score_scratch; /* [threads][score_stride] */
    size_t score_stride;
    struct mem memory;
};

/* Panels of one work item of a product of n columns. */
int forward_item_panels(const struct forward *f, int n);

/* The model's norm of a row of the residual stream. */
void forward_norm(const struct forward *f, float *y, const float *x, const struct norm *norm);

/* Widths of what is between the two products of feed-forward halves: dense ones', the shared
 * expert's. */
static inline int forward_mlp_width(const struct model_conf *m) {
    return m->intermediate > m->experts.shared ? m->intermediate : m->experts.shared;
}

/* ---- forward_embed.c: rows at the beginning and at the end of a pass */

/* x, f32 [hidden]: what the tables have for an id at a position of s. spare: another such row. */
void forward_embed_row(const struct forward *f, const struct fwd_seq *s, int32_t id, int position,
                       float *x, float *spare);
/* cos and sin of row r. */
void forward_rope_row(const struct forward *f, const struct fwd_seq *s, int r, int position);
/* The rows of s, which are final, into s->pooled, and that into s->scores. */
void forward_pool(const struct forward *f, const struct fwd_seq *s, int thread);
/* Floats of a thread's scratch for that. */
size_t forward_score_floats(const struct forward *f);

/* ---- forward_latent.c */

/* Bytes of a thread's packed rows; groups of heads whose attention is a work item. */
size_t forward_latent_packed_bytes(const struct model_conf *c);
int forward_latent_slices(const struct model_conf *c, int threads);

/* ---- forward_lora.c: y += scale * B (A x) for the rows that have an adapter */

/* Which rows those are. */
void forward_lora_map(struct forward *f, const struct fwd_seq *seqs, int n_seqs);
/* Work item `item` of n_modules * n_chunks: A x of one chunk for modules[item / n_chunks] of a
 * layer. x: f32 [R][k], the input of those products. */
void forward_lora_down(const struct forward *f, int layer, const enum lora_module *modules,
                       int item, const float *x, int k, int thread);
/* Adds B (A x), columns [first, first + n) of it, to y, f32 [R][stride] from that column on; slot:
 * index of the product's module in `modules` above. first is a multiple of PANEL_ROWS. */
void forward_lora_up(const struct forward *f, int layer, enum lora_module m, int slot, float *y,
                     size_t stride, int first, int n, int thread);

#endif
