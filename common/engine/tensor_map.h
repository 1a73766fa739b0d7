/* tensor_map: which tensors a config asks for, what they are called in the files of a family, which
 * rows of them are meant, and where their values go. Pure tables; weights.c walks them.
 *
 * Norms. The rows of a sequence are normed before each half of a layer and once at the end, so a
 * model has 2 * n_layers + 1 of them, in that order (struct weights.norms). Families that norm
 * behind a half (BERT) have the same ones: the norm behind a half is the one before the next. */
#ifndef BATON_ENGINE_TENSOR_MAP_H
#define BATON_ENGINE_TENSOR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include "common/engine/model_conf.h"

enum { TENSOR_ROOTS_MAX = 4, TENSOR_NAME_BYTES = 112 };

/* Where the values go: the offset counts from there. */
enum tensor_place {
    IN_LAYER,      /* struct layer_weights */
    IN_EXPERTS,    /* each struct expert_weights of the layer; "%d" in the name is its number. A
                      name without it, as any name of GGUF, is of one tensor for all of them */
    IN_NORMS,      /* norms[2 * layer] */
    IN_BRANCHES,   /* branch_norms[2 * layer] */
    IN_MODEL,      /* struct weights; once a model, not in each layer */
    IN_FIRST_NORM, /* norms[0] */
    IN_LAST_NORM   /* norms[2 * n_layers] */
};

enum extent {
    NO_ROWS,
    ONE,
    HIDDEN,
    INTER,
    Q_DIM,
    KV_DIM,
    N_HEADS,
    QK_DIM, /* of q and k together */
    Q_NORM, /* what a norm of q has weights for */
    K_NORM,
    VOCAB,
    POSITIONS,
    TYPES,
    LABELS,
    N_EXPERTS,
    EXPERT_INTER,
    SHARED_INTER,
    /* of latent attention */
    LATENT_RANK,
    LATENT_Q_RANK,
    LATENT_Q, /* heads' queries before they are brought to the rank */
    LATENT_STILL,
    LATENT_KEYS,   /* heads' queries behind that */
    LATENT_VALUES, /* heads' values */
};

enum presence {
    ALWAYS,
    QKV_BIAS,
    O_BIAS,
    MLP_BIAS,
    QK_NORM,
    NORM_BIAS,
    AFTER_FIRST, /* not in layer 0 */
    TWO_NORMS,   /* not where attention and MLP share one */
    UNTIED,      /* a head of its own; missing in a model that was made to embed, it has none */
    HAS_TYPES,
    HAS_POSITIONS,
    SCORE,
    SCORE_DENSE,
    SCORE_DENSE_BIAS,
    SCORE_NORM,
    SCORE_OUT_BIAS,
    DENSE_LAYER, /* without experts */
    MIXED_LAYER, /* with them */
    SHARED_EXPERT,
    SHARED_GATE,
    EXPERT_BIAS, /* in layers with experts */
    CHOICE_BIAS,
    SINKS,
    Q_AT_ONCE, /* of latent attention: queries by one product */
    Q_IN_TWO,
};

/* In which order a tensor has the rows of a matrix: one after another, or of each KV head those of
 * its queries' heads, then its key's, then its value's (InternLM 2); or the rows of two matrices
 * by turns (gpt-oss). Of latent attention a tensor has of each head rows that make its key, then
 * those that make its value; the first as columns are the rows of KEY_COLUMNS. HEADS: of each head
 * a matrix, in a tensor of three sizes. */
enum row_order {
    IN_ORDER,
    GROUPED_Q,
    GROUPED_K,
    GROUPED_V,
    FIRST_OF_TWO,
    SECOND_OF_TWO,
    KEY_COLUMNS,
    VALUE_ROWS,
    HEADS
};

/* What becomes of the values on their way, in f32. */
enum change {
    AS_IT_IS,
    PLUS_ONE, /* HuggingFace's files have one less than is meant; GGUF's do not */
    UNIT_ROWS /* each row divided by its length, where model_conf.unit_head says so */
};

struct tensor_row {
    const char *name; /* HuggingFace's, behind root and layer prefix; "/": without a root */
    const char *gguf; /* behind "blk.N." in a layer; NULL: no GGUF has it */
    enum tensor_place place;
    size_t offset;
    bool is_matrix;
    bool as_f32; /* a matrix that is looked up, or of a head for scores: not of the weights' type */
    enum extent n, k;
    enum extent from; /* the rows before are another's */
    enum presence when;
    enum row_order order;
    enum change change;
    /* Where HuggingFace's tensor holds more than this: GGUF's is cut, in order. So it is always of
     * experts. */
    bool cut;
    /* A plain tensor of HuggingFace's has rows where columns are meant; a quantised one does not.
     */
    bool turned;
};

struct tensor_names {
    const char *roots[TENSOR_ROOTS_MAX]; /* before every name; the first that has the embedding;
                                            NULL: no more */
    const char *layer;                   /* "layers.%d." */
    const struct tensor_row *rows;       /* the embedding first */
    int n_rows;
    /* Of tensors that may be there and are not computed with: beginnings behind the root or without
     * it, ended by NULL. */
    const char *const *unused;
};

const struct tensor_names *tensor_names_of(const struct model_conf *c);
/* Beginnings likewise: the parts of a model that sees which are not its text part. */
const char *const *tensor_unused_of_others(const struct model_conf *c);
bool tensor_row_in_layer(const struct tensor_row *r);
bool tensor_row_present(const struct model_conf *c, const struct tensor_row *r, int layer);
int tensor_extent(const struct model_conf *c, enum extent x);

#endif
