/* forward_pass: the state of one pass and the steps of which its halves are made; for
 * forward_run.c, where they are, and forward_experts.c. */
#ifndef BATON_ENGINE_FORWARD_PASS_H
#define BATON_ENGINE_FORWARD_PASS_H

#include "common/engine/forward_priv.h"
#include "common/engine/forward_split.h"

struct pass {
    struct forward *f;
    struct kv_cache *kv;
    const int32_t *ids;
    const struct fwd_seq *seqs;
    int n_rows;
    int layer, kv_layer;
    size_t rope; /* of the layer's angles in cos and sin */
    bool turns;  /* the layer has RoPE */
    struct attention attention;
    const struct layer_weights *lw;

    /* rows to pack, and how */
    const float *src;        /* [..][pack_k] */
    const struct norm *norm; /* on the way, or NULL */
    const float *input;      /* the rows as they are packed */
    const int *pick;         /* rows of src to take, or NULL: all */
    int pack_rows, pack_k;
    bool whole;         /* rows of this half are packed, and multiplied, in one part */
    struct split split; /* each part of the rows has a packing of its own */
    enum dtype
        pack_for[PACKINGS_MAX]; /* x_dtype() of the weights they meet; each has its packing */
    int n_packings;

    /* products of one region, columns cut in items */
    struct product {
        const struct matrix *w;
        float *y; /* NULL: the thread's scratch, until its work item is done */
        const float *bias;
        float *add_to; /* residual stream that takes the columns, or NULL */
        float scale;   /* of the columns */
        float cap;     /* they become cap tanh(column / cap); 0: they stay */
        float *maxima; /* sample_maxima() of the rows, or NULL: an item has whole groups then */
        int items, item_panels; /* items: of each part of the rows */
    } products[LORA_PRODUCTS];
    enum lora_module
        modules[LORA_PRODUCTS]; /* what each is; LORA_MODULES: nothing an adapter has */
    int n_products;
};

static inline int pass_row_tiles(int n_rows) {
    return (n_rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* Rows of src, or those that pick names, normed where norm is not NULL, for products with the
 * matrices of `meets`. p->input: the rows as they are packed. */
void pass_pack(struct pass *p, const float *src, int n_rows, struct inputs meets,
               const struct norm *norm, const int *pick);
/* The packing of these rows for products with w, which is among those of `meets` or of the type of
 * one; of their first part. */
const uint8_t *pass_packed_for(const struct pass *p, const struct matrix *w);
/* The rows before a half of a layer: normed on the way, where it has a norm. Where both halves
 * share one, the second has the rows of the first again. In families that norm sums, and at the
 * embeddings of some others, the residual stream goes on from the normed rows. */
void pass_pack_half(struct pass *p, struct inputs meets, int half);
/* One more product of the packed rows; y, bias, add_to: see struct pass. */
void pass_product(struct pass *p, enum lora_module module, const struct matrix *w, float *y,
                  const float *bias, float *add_to);
void pass_products_go(struct pass *p); /* all of them */
/* Two of one shape, the second without a y: y = act(first) * second. Or only the first. */
void pass_gate_up(struct pass *p);
/* gate = act(gate) * up, n values; up may be NULL, and is scratch then on. */
void forward_activate(const struct forward *f, float *gate, float *up, int n);

/* Attention of the rows, their K and V in the pool: q to att. */
void pass_attention(struct pass *p);
/* The last product of a half, to the residual stream: at once, or, where a norm needs whole rows of
 * it, in a region of its own. */
void pass_add_branch(struct pass *p, enum lora_module module, const struct matrix *w,
                     const float *bias, int half);

/* Attention's half of a layer with latent attention (forward_latent.c). */
void forward_latent(struct pass *p, void (*on_layer)(void *arg, int layer), void *arg);

/* The feed-forward half of a layer with experts (forward_experts.c). */
void forward_experts(struct pass *p);

#endif
