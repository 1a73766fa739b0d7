/* model_conf: config.json and generation_config.json of a HuggingFace directory, or the metadata of
 * a GGUF file, read, checked and reduced to what the forward pass needs. Families are rows of one
 * table (model_families.c); nothing outside model_conf*.c and that file asks for a family's name.
 *
 * What would change the numbers and is not known here is refused: another architecture or
 * activation, an unknown rope type, an unknown way of quantising. Members that change nothing in
 * inference (dropout, initializer_range, ...) are not looked at.
 *
 * EOS: the ids of generation_config.json replace those of config.json; where it names none,
 * config.json's hold. Context: max_position_embeddings, times `factor` with rope type linear or
 * dynamic; with yarn it is at least `factor` times original_max_position_embeddings. The text part
 * of a model that sees is read from `text_config`, ids that are missing there from beside it.
 * Source: the published configs of the families and their reference code. */
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
    MODEL_EXPERTS_MAX = 1024,         /* of a layer */
    MODEL_EXPERTS_IN_ALL_MAX = 65536, /* of all layers */
};

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC,  /* NTK: theta by the length a sequence may come to, beyond original_context */
    ROPE_LONGROPE, /* a divisor for each pair, of one list or, beyond original_context, another */
};

enum norm_kind { NORM_RMS, NORM_LAYER };
/* Where a layer has norms; a branch is what attention or the MLP adds to the residual stream. */
enum norm_place {
    NORMS_BEFORE,  /* x += A(N x); x += F(N x) */
    NORMS_AROUND,  /* x += N(A(N x)); x += N(F(N x)) */
    NORMS_BEHIND,  /* x += N(A(x)); x += N(F(x)) */
    NORMS_ONE,     /* h = N x; x += A(h) + F(h) */
    NORMS_OF_SUMS, /* x = N(x + A(x)); x = N(x + F(x)) */
};
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,   /* RMSNorm of each head of q and k before RoPE, one weight for all heads */
    QK_NORM_ROW,    /* of all heads together */
    QK_NORM_HEADS,  /* LayerNorm of each head, each with weights of its own */
    QK_NORM_TURNED, /* RMSNorm of each head after RoPE, without weights, in layers that have RoPE */
};
/* GELU: by erf, or the form by tanh; TANH: of score heads only. SILU_CLAMPED: of gpt-oss, g
 * sigmoid(alpha g) (u + 1) with g up to a limit and u within it on both sides. */
enum activation { ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_TANH, ACT_SILU_CLAMPED };

/* What makes a score of the pooled row: out(norm(act(dense(row)))). */
struct score_conf {
    int n_labels; /* 0: the model has none */
    bool dense, norm, dense_bias, out_bias;
    enum activation act;
    enum pooling pooling;
};

/* Layers whose feed-forward half is a mixture: y = sum over the `used` experts e whose share
 * s = softmax(R x) is largest of s_e F_e(x), the first of equals; then, where there is one, what
 * the shared expert adds. */
struct experts_conf {
    int n, used;      /* n 0: the model has none */
    int intermediate; /* of one expert */
    int shared;       /* of the shared one; 0: none */
    bool shared_gate; /* it is multiplied with sigmoid(g x) */
    bool normalise;   /* the shares of the chosen sum to 1 */
    bool bias;        /* R x and the products of the experts have one */
    bool sigmoid;     /* s = sigmoid(R x) */
    bool choice_bias; /* those are chosen whose s + b is largest */
    /* Of so many groups of experts side by side those so many are chosen from whose two best s + b
     * are the largest together; 0: from all. */
    int groups, groups_used;
    bool group_best; /* groups are chosen by the best of each alone */
    float scale;     /* of the shares */
    /* The chosen have the largest R x, and a share is what the expert's input is multiplied with,
     * not its output: y = sum of F_e(s_e x). */
    bool on_input;
};

/* Latent attention (DeepSeek): what is kept of a position is one row for all heads, `rank` values
 * of which a head's key and value are made, then rope_dim values of a key that all share. As the
 * scores are computed, the part of a query that does not turn is brought to `rank` values, so that
 * keys are these rows and values their beginning: head_dim is rank + rope_dim, n_kv_heads 1. */
struct latent_conf {
    int rank;   /* 0: the model has none of this */
    int q_rank; /* values between the two products that queries are made by; 0: it is one */
    int still;  /* values of a head's query that do not turn; rope_dim values follow */
    int value;  /* of a head */
};

struct rope_conf {
    enum rope_type type;
    double theta;
    double factor;                            /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_context;                  /* llama3, yarn, dynamic, longrope */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor; /* yarn, longrope: cos and sin are multiplied by it; else 1 */
    double score_factor;     /* yarn: scores of latent attention are multiplied by its square */
    bool truncate;           /* yarn: the ramp's ends are whole dimensions */
    bool has_divisors;       /* the angle of pair i is divided by divisors[i], i < rope_dim / 2 */
    float divisors[MODEL_HEAD_DIM_MAX / 2];
    float long_divisors[MODEL_HEAD_DIM_MAX / 2]; /* longrope: those of long sequences */
};

/* What the tensors are called and how they lie in them: tensor_map.c. */
enum tensor_map {
    TENSORS_LLAMA,
    TENSORS_PHI3,
    TENSORS_GEMMA,
    TENSORS_BEHIND, /* OLMo 2, EXAONE 4 */
    TENSORS_GLM4,
    TENSORS_GRANITE4, /* and Granite's mixtures */
    TENSORS_INTERNLM2,
    TENSORS_EXAONE,
    TENSORS_BAICHUAN,
    TENSORS_BERT,
    TENSORS_ROBERTA,
    TENSORS_NOMIC,
    TENSORS_MODERN,
    TENSORS_MIXTRAL,
    TENSORS_EXPERTS, /* Qwen2-MoE, Qwen3-MoE, OLMoE */
    TENSORS_GPT_OSS,
    TENSORS_GLM4_MOE,
    TENSORS_LATENT,       /* DeepSeek V2, V3 */
    TENSORS_LATENT_SPLIT, /* in newer GGUF files: what makes keys and values apart */
    TENSORS_LLAMA4,
};

struct model_conf {
    char family[32];
    int n_guess_layers; /* behind the others in the files: they guess tokens, and are left out */
    int n_layers, n_heads, n_kv_heads, head_dim, hidden, intermediate, vocab_size, context_max;
    enum tensor_map map; /* what the tensors are called (tensor_map.h) */
    bool encoder;        /* every row sees both sides: all of a sequence is one pass */
    enum norm_kind norm;
    bool norm_bias;
    float norm_eps;
    enum norm_place norms;
    bool embed_norm; /* the residual stream goes on from the first norm's output */
    enum activation act;
    float act_limit, act_alpha; /* of ACT_SILU_CLAMPED */
    bool gated;                 /* the activated half of the MLP is multiplied with another */
    float embed_scale;          /* what the rows of the embedding are multiplied with */
    float residual_scale;       /* and each branch before it is added */
    float score_scale;          /* and q k */
    float score_cap;            /* c: scores are c tanh(score / c); 0: as they are */
    float logit_scale, logit_cap;
    bool sinks;     /* each head has a score without a value beside those of its keys */
    bool alibi;     /* scores fall with the distance, in each head by another slope */
    bool unit_head; /* the rows of lm_head are divided by their lengths */
    bool no_rope;   /* in no layer */
    /* In layers without RoPE the queries of position i are multiplied with
     * 1 + still_scale ln(1 + floor((i + 1) / still_floor)); 0: they stay. */
    float still_scale;
    int still_floor;
    int rope_dim; /* the first values of a head, which turn; those behind do not. With latent
                     attention the last */
    struct latent_conf latent;
    struct rope_conf rope;
    bool has_window_rope; /* layers with a window turn by another: */
    struct rope_conf window_rope;
    int n_positions;                 /* rows of the table of learned positions; 0: none */
    int first_position;              /* row of a sequence's first token there */
    int n_token_types;               /* rows of the table of token types; 0: none */
    bool qkv_bias, o_bias, mlp_bias; /* these linear layers have a bias tensor */
    enum qk_norm qk_norm;
    bool no_head; /* nothing over the vocabulary: no tokens come out */
    bool tied;    /* lm_head is the embedding matrix */
    struct score_conf score;
    bool score_raw;       /* its author takes scores as they are, not through a sigmoid */
    enum pooling pooling; /* what makes one row of a sequence's rows, where nobody says else */
    bool is_embedder;     /* modules.json says so */
    struct matryoshka matryoshka;
    bool rope_pairs;    /* the file has the rows of each head of q and k as RoPE's pairs, as GGUF's
                           "llama" does; in memory they lie half of rope_dim apart always */
    bool adapter_pairs; /* adapters have them so, as the family's HuggingFace checkpoints */
    bool text_part;     /* of a model that sees: the tensors of its other parts are left out */
    int32_t bos_id;     /* -1: none */
    int32_t eos_ids[EOS_IDS_MAX];
    int n_eos;
    /* Position i sees j with i - j < window; an encoder's with |i - j| < window; 0: all; below 0:
     * a chunk, j with j / -window == i / -window. */
    int32_t window[MODEL_LAYERS_MAX];
    bool still[MODEL_LAYERS_MAX]; /* no RoPE in this layer */
    struct experts_conf experts;
    bool mixed[MODEL_LAYERS_MAX]; /* this layer has experts */
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
enum { MODEL_CONF_LINE_BYTES = 32768 };
int model_conf_line(const struct model_conf *c, char line[MODEL_CONF_LINE_BYTES]);
/* SHA-256 of that line, but for how the tensors are called, which files of other formats have
 * otherwise: what the model is, without a weight of it. ERR_NO_MEMORY. */
enum err model_conf_hash(const struct model_conf *c, uint8_t hash[32]);

#endif
