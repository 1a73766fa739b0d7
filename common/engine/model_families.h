/* model_families: what tells the families of models apart, as one table. A row says what a layer is
 * made of, what config.json may leave out, and what it calls things; whoever reads a config goes by
 * the row and never by the name. Source: the published configs and reference code. */
#ifndef BATON_ENGINE_MODEL_FAMILIES_H
#define BATON_ENGINE_MODEL_FAMILIES_H

#include "common/engine/model_conf.h"

enum { FAMILY_ARCHITECTURES_MAX = 3, FAMILY_ACTS_MAX = 2 };

enum model_head { MODEL_HEAD_LM, MODEL_HEAD_NONE, MODEL_HEAD_SCORE };

/* Another spelling of a member of config.json; it goes first where both are there. */
struct member_alias {
    const char *member, *theirs;
};

/* A member that would change the numbers, and the one value that changes nothing. */
struct member_neutral {
    const char *name;
    double value; /* as number; a boolean counts as 0 or 1; NAN: only absent or null */
};

/* A member that is one of the layers' numbers: what it becomes. */
enum number {
    NUMBER_SCORE_CAP,    /* null: none */
    NUMBER_LOGIT_CAP,    /* likewise */
    NUMBER_QUERY_SCALAR, /* scores are divided by its root */
    NUMBER_SCORE_SCALE,  /* and multiplied with this */
    NUMBER_EMBED_SCALE,
    NUMBER_RESIDUAL_SCALE,
    NUMBER_LOGIT_SCALE,
    NUMBER_LOGIT_DIVISOR,
    NUMBER_ACT_LIMIT,
    NUMBER_ACT_ALPHA,
};
struct member_number {
    const char *name;
    enum number number;
    double absent;
};

/* What a config calls its experts. */
struct member_experts {
    const char *count;  /* NULL: the family has none */
    bool optional;      /* where it is absent or 0 the model is dense */
    const char *width;  /* of one; no alias holds for it */
    const char *shared; /* of the shared one; NULL: there is none */
    bool shared_gate;
    bool bias;
    const char *shared_count; /* how many of `width` the shared one is; NULL: `shared` says it */
    bool sigmoid, choice_bias;
    bool grouped;       /* n_group, topk_group */
    bool methods;       /* scoring_func, topk_method say what of the three above holds */
    bool scaled;        /* routed_scaling_factor */
    bool first_dense;   /* first_k_dense_replace */
    bool may_normalise; /* norm_topk_prob; else `normalise` holds */
    bool normalise;
    bool some_layers;  /* decoder_sparse_step, mlp_only_layers */
    bool interleaved;  /* moe_layers, interleave_moe_layer_step */
    bool shared_alike; /* one shared expert, as wide as the others */
    bool on_input;     /* experts_conf.on_input */
};

enum attention_bias { BIAS_REFUSED, BIAS_QKVO, BIAS_QKV };
/* Which layers turn q and k. */
enum still_layers {
    STILL_NONE,
    STILL_LISTED,         /* those with 0 in no_rope_layers, or every no_rope_layer_interval-th */
    STILL_WITHOUT_WINDOW, /* where the model has windows */
};
enum window_rope {
    WINDOW_ROPE_SAME,
    WINDOW_ROPE_LOCAL, /* theta rope_local_base_freq */
    WINDOW_ROPE_PLAIN, /* the same theta, not scaled */
};

struct family {
    const char *name; /* model_type */
    struct {
        const char *name; /* NULL: no more */
        enum model_head head;
    } architectures[FAMILY_ARCHITECTURES_MAX];
    enum tensor_map map;
    const struct member_alias *aliases;    /* up to one without a member; NULL: none */
    const struct member_neutral *neutrals; /* beside those of all; likewise */
    const struct member_number *numbers;   /* likewise */
    struct {
        const char *name; /* of config.json */
        enum activation act;
    } acts[FAMILY_ACTS_MAX];
    bool gated;

    /* decoders */
    bool qkv_bias, o_bias;              /* without being asked */
    enum attention_bias attention_bias; /* which layers member attention_bias gives one */
    bool mlp_bias;                      /* knows member mlp_bias */
    enum norm_place norms;
    enum norm_kind norm;
    enum qk_norm qk_norm;
    bool use_qk_norm;    /* a member that switches qk_norm on */
    bool qk_norm_absent; /* its value where it is not there */
    bool embed_root;     /* rows of the embedding are multiplied with the root of hidden_size */
    bool rope_pairs;     /* rows of q and k lie as RoPE's pairs */
    bool tied_absent;    /* tie_word_embeddings, where it is not there */
    bool window_always;  /* sliding_window holds on every layer, unless null */
    bool window_switch;  /* use_sliding_window, max_window_layers */
    int window_period;   /* sliding_window_pattern: every so many-th layer has none; 0: no such */
    bool window_must;    /* may not be null */
    enum window_rope window_rope;
    enum still_layers still;
    int chunk_absent; /* attention_chunk_size, of layers with RoPE; 0: knows none */
    bool temperature; /* attn_temperature_tuning, floor_scale, attn_scale */
    bool longrope;    /* "yarn" is a name of it, too, and its context stands beside rope_scaling */
    bool position_type;  /* position_embedding_type must be "rope" or "nope" */
    int unit_head_vocab; /* of models whose lm_head has rows of length 1; 0: none */
    bool sinks;
    bool guess_layers;   /* num_nextn_predict_layers */
    bool latent;         /* kv_lora_rank and others instead of heads' sizes */
    int alibi_layers;    /* of models with ALiBi instead of RoPE; 0: none */
    int kv_heads_absent; /* 0: as many as heads */
    int head_dim_absent; /* 0: hidden_size / num_attention_heads */
    int window_absent;   /* 0: none */
    int heads_absent, vocab_absent, context_absent; /* 0: must be there */
    double partial_absent;                          /* partial_rotary_factor; 0: must be 1 */
    double theta_absent;                            /* 0: 10000 */
    struct member_experts experts;

    /* encoders */
    bool encoder;
    bool embed_norm; /* with norms before the halves: the rows of layer 0 come normed */
    bool norm_bias, all_biases;
    bool learned_positions;  /* else RoPE */
    bool positions_from_pad; /* the first one is that after pad_token_id */
    int token_types_absent;  /* 0: knows none */
    bool dynamic_rope;       /* rotary_scaling_factor */
    bool alternating_window; /* local_attention, global_attn_every_n_layers, two thetas */
    double eps_absent;       /* 0: 1e-6; of decoders too */
    struct score_conf score; /* of a head for scores */
};

/* A model that sees, of whose config `text_config`, or where that is not there the whole, describes
 * a model of a family. */
struct family_wrapper {
    const char *name, *architecture;
    const char *text; /* model_type there, absent also */
    const char *family;
};
const struct family_wrapper *family_wrapper_find(const char *name); /* NULL: none of that name */

const struct family *family_find(const char *name); /* NULL: none of that name */
/* What models of that name, HuggingFace's or GGUF's, have that nobody computes here; NULL: nothing
 * is known of it. */
const char *family_lacks(const char *name, size_t n);
/* Of all names, wrappers' too, the one most like it. */
const char *family_nearest(const char *name);

#endif
