/* weights: a model's tensors, checked against its config and packed into the layout of a kernel
 * set, in memory or in a file that all processes of a host share (weights_cache.h).
 *
 * Every tensor the forward pass needs must be there with its shape, and none that it does not know:
 * a checkpoint with more is another model. Files may hold any mixture of the types of
 * tensor_type.h; their values become `dtype`, or stay in the type of their own when nobody asks for
 * one. Matrices are kept as panels (kernels.h), vectors as f32. A tied lm_head is the embedding
 * matrix itself. While loading, the mapped file leaves the resident set as it is packed, and
 * nothing of it stays after. Ownership: all pointers live until weights_close(). Thread:
 * weights_open() on the thread that owns the pool; then read-only. */
#ifndef BATON_ENGINE_WEIGHTS_H
#define BATON_ENGINE_WEIGHTS_H

#include <stdint.h>
#include "common/engine/engine.h"
#include "common/engine/kernels.h"
#include "common/engine/mem.h"
#include "common/engine/model_conf.h"
#include "common/engine/pool.h"

struct matrix {
    uint8_t *panels;  /* [n / PANEL_ROWS, rounded up] panels; 64-byte aligned */
    int n, k;         /* W [n][k] */
    enum dtype dtype; /* of the panels */
};

struct norm {
    float *weight; /* [hidden] */
    float *bias;   /* [hidden], or NULL */
};

struct expert_weights {
    struct matrix gate, up, down;
    float *gate_bias, *up_bias, *down_bias; /* NULL: none */
};

struct layer_weights {
    float *q_norm, *k_norm; /* NULL, or [head_dim]; of each head, where the family has it so. Of
                               latent attention [q_rank] or NULL, [rank] */
    float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL: none */
    float *gate_bias, *up_bias, *down_bias;   /* NULL: none */
    struct matrix q, k, v, o;
    /* Latent attention: k makes what is kept of a position, [rank + rope_dim][hidden], and v is
     * empty. q_down, where there is one, makes of the input what q makes queries of. Of each head
     * k_up has [rank][still], v_up [value][rank]. */
    struct matrix q_down, k_up, v_up;
    struct matrix gate, up, down;   /* gate: what is activated; up: what it is multiplied with, in
                                       families whose MLP is gated. Of a layer with experts: the
                                       shared one's */
    struct expert_weights *experts; /* [n_experts]; NULL: a dense layer */
    struct matrix router;           /* f32 [n_experts][hidden] */
    float *router_bias;             /* [n_experts], or NULL */
    float *choice_bias;             /* [n_experts], or NULL: experts_conf.choice_bias */
    struct matrix shared_gate;      /* f32 [1][hidden]; no panels: none */
    float *sinks;                   /* [n_heads], or NULL: model_conf.sinks */
};

enum { WEIGHTS_CHUNK_BYTES = 32 * 1024 * 1024 }; /* of the cache file: one work item */

enum weights_from { WEIGHTS_PACKED, WEIGHTS_PACKED_TO_CACHE, WEIGHTS_FROM_CACHE };

/* Where packed weights are kept; see wc_place(). */
struct weights_place {
    const char *setting;
    bool verify; /* a file's data are held against their checksum before they are used */
    bool always; /* "auto" makes a file of small ones too */
};

struct weights {
    /* Of the layers' matrices; those over the vocabulary may have another (weights.c,
     * choose_types()). Of a GGUF file whose types stay: the one of most bytes of its layers. */
    enum dtype dtype;
    bool some_bf16;            /* matrices of bf16 among them */
    char file_type[16];        /* of the embedding matrix in the file */
    struct matrix embed, head; /* head == embed when tied; no panels: there is none */
    struct matrix positions;   /* f32 [n_positions][hidden]; no panels: RoPE or none */
    struct matrix types;       /* f32 [n_token_types][hidden]; likewise */
    struct norm *norms; /* [2 * n_layers + 1]: before each half of a layer, at the end; no weight:
                           there is none */
    struct norm *branch_norms; /* [2 * n_layers]: of what a half adds; no weight: there is none */
    struct layer_weights *layers;   /* [n_layers] */
    struct expert_weights *experts; /* of all layers that have some */
    /* the head for scores, f32: [hidden][hidden], [n_labels][hidden]; what it lacks is empty */
    struct matrix score_dense, score_out;
    float *score_dense_bias, *score_norm, *score_out_bias;
    uint64_t n_params, bytes; /* tensors in use; bytes they take packed */
    uint64_t n_expert_params; /* of them */
    enum weights_from from;
    uint8_t hash[32];  /* over config and tensors as in the files: the same for every dtype and
                          kernel set */
    struct mem memory; /* empty: they are in the file */
    struct weights_file {
        void *map; /* NULL: none */
        size_t map_bytes;
        char *path;
        uint64_t dev, ino;
        uint8_t sum[16]; /* XXH3-128 over the XXH3-64 of each WEIGHTS_CHUNK_BYTES of the data */
        bool unchecked;  /* of an earlier start, and nobody held it against sum: weights_check.h */
    } file;
};

/* path: a model folder or a GGUF file. dtype: DTYPE_NONE: what the file has decides: of GGUF for
 * each matrix, of others for all of the layers; then matrices over the vocabulary that are not
 * quantised stay bf16. place: may be NULL: memory. cancel: as in
 * struct engine_opts; nothing half-done stays on disk. */
enum err weights_open(struct weights **out, const struct model_conf *c, const char *path,
                      const struct kernels *kn, enum dtype dtype, const struct weights_place *place,
                      struct pool *pool,
                      void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total),
                      void *progress_arg, const atomic_bool *cancel, struct errbuf *eb);
void weights_close(struct weights **w);

/* What weights_open() would make of the same arguments, from the files' headers alone: every tensor
 * is checked, none is read. */
struct weights_size {
    enum dtype dtype;
    bool is_gguf;
    uint64_t n_params, bytes, file_bytes; /* packed; in the files, of tensors in use */
    uint64_t n_expert_params;             /* of n_params */
    char types[200];                      /* "Q4_K 87%, Q6_K 12%, F32 1%", of file_bytes */
};
enum err weights_measure(struct weights_size *out, const struct model_conf *c, const char *path,
                         const struct kernels *kn, enum dtype dtype, struct errbuf *eb);
/* Parameters that one token is computed with: of the experts those that it goes to. */
uint64_t weights_active(const struct model_conf *c, uint64_t n_params, uint64_t n_expert_params);
const char *weights_from_name(enum weights_from f); /* "memory", "packed to cache", "cache" */

#endif
