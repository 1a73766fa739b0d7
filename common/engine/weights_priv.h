/* weights_priv: what the files of weights share; for nobody else. weights.c says what is to be
 * loaded and where it goes, weights_pack.c brings it there, weights_file.c knows the cache file. */
#ifndef BATON_ENGINE_WEIGHTS_PRIV_H
#define BATON_ENGINE_WEIGHTS_PRIV_H

#include <stdatomic.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "common/engine/tensor_map.h"
#include "common/engine/tensor_packed.h"
#include "common/engine/tensor_source.h"
#include "common/engine/weights.h"
#include "common/engine/weights_cache.h"

enum { WEIGHTS_ALIGN_BYTES = 64, WEIGHTS_HASH_STEP_BYTES = 4 * 1024 * 1024 };

/* What decides the type of a slot: SLOT_VECTOR and SLOT_F32 are f32 always; matrices of the layers,
 * and those over the vocabulary, become what was asked for, or what the file has (weights.c). */
enum slot_kind { SLOT_VECTOR, SLOT_F32, SLOT_LAYER, SLOT_VOCAB };

/* One tensor to load: into a matrix or a vector. */
struct slot {
    char name[TENSOR_NAME_BYTES]; /* HuggingFace's, and of a part of a tensor "#" and its first row:
                                     unique; what the hash is over */
    char file_name[TENSOR_NAME_BYTES];
    struct matrix *matrix; /* NULL: a vector */
    float **vector;
    int n, k; /* vector: n values, k is 1 */
    enum slot_kind kind;
    bool expert;
    /* The tensor is [stack][stack_rows][k], and [part, part + n) of the stack_rows of one expert
     * are these; 0: it is no stack. */
    int stack, stack_rows, part;
    int from;         /* rows of the tensor before them are another's, and there may be more */
    bool turned;      /* in the file [stack][k][stack_rows] */
    enum dtype dtype; /* what its values become */
    bool narrow;      /* as int8 it meets activations of 8 bits */
    uint64_t at;      /* offset in the packed data */
    bool grid;        /* its integers stay: kernels_grid.h */
    bool blocks;      /* its blocks stay: kernels_blocks.h */
    bool pairs;       /* rows of a head lie in the file as pairs: see model_conf.rope_pairs */
    int head_rows, still_rows; /* of a head; those before the ones that turn */
    enum row_order order;
    enum change change;
    struct tensor t;
    uint8_t digest[16]; /* XXH3-128 of its bytes in the file */
};

struct loader {
    const struct model_conf *c;
    const struct kernels *kn;
    struct pool *pool;
    struct tensor_source *files;
    const char *root; /* of the tensors' names */
    bool stacks;      /* HuggingFace's files have the experts of a layer in one tensor */
    bool singles;     /* GGUF's have one for each, as older converters write them */
    bool fused;       /* GGUF's have gate and up of all in one, gate's rows first */
    struct weights *w;
    struct slot *slots;
    int n_slots;
    float *rows; /* [threads][PANEL_ROWS][k_max]: scratch */
    size_t rows_stride;
    void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
    const atomic_bool *cancel;
    uint64_t done_bytes, total_bytes;
    struct wc_file cache;
    struct wc_header want; /* what a cache file must say */
    bool hashed;           /* w->hash is known */
    struct weights_place place;
    uint64_t *sums; /* of the chunks of the data */

    /* the pool region that runs: panels of one step of one slot */
    const struct slot *slot;
    int row_first, n_rows;
    atomic_bool not_finite; /* a value of theirs */
    bool by_file;           /* nobody asked for a type: what the file has decides */
};

/* A tensor of which two slots have other rows or columns of each head: it is hashed whole, with the
 * first of them; the bytes of the other count as none. */
static inline bool slot_by_heads(const struct slot *s) {
    return s->order == KEY_COLUMNS || s->order == VALUE_ROWS;
}
static inline int columns_in_file(const struct loader *l, const struct slot *s) {
    return slot_by_heads(s) ? l->c->latent.rank : s->k;
}
/* Rows of the tensor in the file that are hashed with the slot. */
static inline int slot_hashed_rows(const struct slot *s) {
    return slot_by_heads(s) ? (int)s->t.dims[0] : s->n;
}

static inline bool cancelled(const struct loader *l) {
    return l->cancel != NULL && atomic_load_explicit(l->cancel, memory_order_relaxed);
}
/* Reads a tensor and packs it, a step at a time; s->digest is set. ERR_BAD_FILE: a value is not
 * finite. */
enum err weights_load_slot(struct loader *l, struct slot *s, struct errbuf *eb);

/* SHA-256 over the config's line and, by name, each tensor's name, type, shape and digest: sharding
 * does not change it. Sorts the slots. */
enum err weights_hash(struct loader *l, struct errbuf *eb);
/* Adds the bytes of all that the rows of a quantised layer are made of. */
void weights_hash_parts(const struct loader *l, XXH3_state_t *hash, const struct slot *s);

/* Parts of l->want: what tells this model's packed data from others; the files; the layout. */
enum err weights_describe_plan(struct loader *l, struct errbuf *eb);
enum err weights_describe_layout(struct loader *l, struct errbuf *eb);
void weights_describe_files(struct loader *l);
/* Some bytes of each tensor: models of one shape differ in them. */
void weights_sample(const struct loader *l, uint8_t out[WC_XXH_BYTES]);
/* Maps the cache file, when there is one that fits. */
bool weights_from_file(struct loader *l);
/* What was packed into l->cache is complete. */
void weights_to_file(struct loader *l);

#endif
