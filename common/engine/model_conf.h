/* model_conf: config.json and generation_config.json of a HuggingFace directory, or the metadata of
 * a GGUF file, read, checked and reduced to what the forward pass needs. Families are rows of one
 * table (model_families.c); nothing outside model_conf*.c and that file asks for a family's name.
 *
 * What would change the numbers and is not known here is refused: another architecture or
 * activation, an unknown rope type, an unknown way of quantising. Members that change nothing in
 * inference (dropout, initializer_range, ...) are not looked at.
 *
 * EOS: the ids of generation_config.json replace those of config.json; where it names none,
 * config.json's hold. Context: max_position_embeddings, times `factor` with rope type linear; with
 * yarn it is at least `factor` times original_max_position_embeddings. Source: the published
 * configs of the families and their reference code. */
#ifndef BATON_ENGINE_MODEL_CONF_H
#define BATON_ENGINE_MODEL_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include "common/engine/engine.h"
#include "common/engine/quant_conf.h"
#include "proto/err.h"
#include "proto/limits.h"

enum {
    MODEL_LAYERS_MAX = KV_LAYERS_MAX,
    MODEL_HIDDEN_MAX = 65536,
    MODEL_INTERMEDIATE_MAX = 262144,
    MODEL_HEADS_MAX = 1024,
    MODEL_HEAD_DIM_MAX = 256,
    MODEL_VOCAB_MAX = 1048576,
    MODEL_CONTEXT_MAX = PROMPT_TOKENS_MAX,
    MODEL_LABELS_MAX = 1024,
};

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC, /* NTK by the length of a sequence, which is known where all of it is one pass */
};

enum norm_kind { NORM_RMS, NORM_LAYER };
enum activation { ACT_SILU, ACT_GELU, ACT_TANH }; /* GELU: by erf; tanh: of score heads only */

/* What makes a score of the pooled row: out(norm(act(dense(row)))). */
struct score_conf {
    int n_labels; /* 0: the model has none */
    bool dense, norm, dense_bias, out_bias;
    enum activation act;
    enum pooling pooling;
};

struct rope_conf {
    enum rope_type type;
    double theta;
    double factor;                            /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_context;                  /* llama3, yarn, dynamic */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn: cos and sin are multiplied by it; else 1 */
    bool truncate;                            /* yarn: the ramp's ends are whole dimensions */
    bool has_divisors; /* the angle of pair i is divided by divisors[i], i < head_dim / 2 */
    float divisors[MODEL_HEAD_DIM_MAX / 2];
};

/* What the tensors are called and how they lie in them: tensor_map.c. */
enum tensor_map { TENSORS_LLAMA, TENSORS_BERT, TENSORS_ROBERTA, TENSORS_NOMIC, TENSORS_MODERN };

struct model_conf {
    char family[32];
    int n_layers, n_heads, n_kv_heads, head_dim, hidden, intermediate, vocab_size, context_max;
    enum tensor_map map; /* what the tensors are called (tensor_map.h) */
    bool encoder;        /* every row sees both sides: all of a sequence is one pass */
    enum norm_kind norm;
    bool norm_bias;
    float norm_eps;
    bool post_norm;  /* the residual stream goes on from each norm's output */
    bool embed_norm; /* at the first norm at least */
    enum activation act;
    bool gated; /* the activated half of the MLP is multiplied with another */
    bool no_rope;
    struct rope_conf rope;
    double window_theta;             /* RoPE's theta in layers with a window; 0: no other */
    int n_positions;                 /* rows of the table of learned positions; 0: none */
    int first_position;              /* row of a sequence's first token there */
    int n_token_types;               /* rows of the table of token types; 0: none */
    bool qkv_bias, o_bias, mlp_bias; /* these linear layers have a bias tensor */
    bool qk_norm;                    /* RMSNorm over head_dim on q and k before RoPE */
    bool no_head;                    /* nothing over the vocabulary: no tokens come out */
    bool tied;                       /* lm_head is the embedding matrix */
    struct score_conf score;
    bool score_raw;       /* its author takes scores as they are, not through a sigmoid */
    enum pooling pooling; /* what makes one row of a sequence's rows, where nobody says else */
    bool is_embedder;     /* modules.json says so */
    struct matryoshka matryoshka;
    bool rope_pairs; /* the file has the rows of each head of q and k as RoPE's pairs, as GGUF's
                        "llama" does; in memory they lie half a head apart always */
    int32_t bos_id;  /* -1: none */
    int32_t eos_ids[EOS_IDS_MAX];
    int n_eos;
    /* Position i sees j with i - j < window; an encoder's with |i - j| < window; 0: all. */
    int32_t window[MODEL_LAYERS_MAX];
    struct quant_conf quant; /* of the linear layers; not part of the line: the tensors say it */
    struct model_gen {
        bool do_sample_set, do_sample, temperature_set, top_k_set, top_p_set, min_p_set,
            repetition_penalty_set;
        float temperature, top_p, min_p, repetition_penalty;
        int32_t top_k;
    } gen;
};

/* path: a folder, of which config.json and, when it exists, generation_config.json are read, or a
 * GGUF file (gguf_locate()). eb names file, member, value and what is allowed. ERR_NOT_FOUND: no
 * config.json. ERR_BAD_FILE: everything else. */
enum err model_conf_read(struct model_conf *out, const char *path, struct errbuf *eb);

/* A canonical line of everything in *c that changes logits: the config's part of the model hash.
 * Returns its length, terminated; always fits MODEL_CONF_LINE_BYTES. */
enum { MODEL_CONF_LINE_BYTES = 16384 };
int model_conf_line(const struct model_conf *c, char line[MODEL_CONF_LINE_BYTES]);

#endif
