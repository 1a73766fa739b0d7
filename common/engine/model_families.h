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

struct family {
    const char *name; /* model_type */
    struct {
        const char *name; /* NULL: no more */
        enum model_head head;
    } architectures[FAMILY_ARCHITECTURES_MAX];
    enum tensor_map map;
    const struct member_alias *aliases;    /* up to one without a member; NULL: none */
    const struct member_neutral *neutrals; /* beside those of all; likewise */
    struct {
        const char *name; /* of config.json */
        enum activation act;
    } acts[FAMILY_ACTS_MAX];
    bool gated;

    /* decoders */
    bool qkv_bias, o_bias;    /* without being asked */
    bool attention_bias_qkvo; /* member attention_bias gives q, k, v and o a bias */
    bool mlp_bias;            /* knows member mlp_bias */
    bool qk_norm;
    bool window_always;  /* sliding_window holds on every layer, unless null */
    bool window_switch;  /* use_sliding_window, max_window_layers, layer_types */
    int kv_heads_absent; /* 0: as many as heads */
    int head_dim_absent; /* 0: hidden_size / num_attention_heads */
    int window_absent;

    /* encoders */
    bool encoder, post_norm;
    bool embed_norm; /* with norms before the halves: the rows of layer 0 come normed */
    bool norm_bias, all_biases;
    bool learned_positions;  /* else RoPE */
    bool positions_from_pad; /* the first one is that after pad_token_id */
    int token_types_absent;  /* 0: knows none */
    bool dynamic_rope;       /* rotary_scaling_factor */
    bool alternating_window; /* local_attention, global_attn_every_n_layers, two thetas */
    double eps_absent;
    struct score_conf score; /* of a head for scores */
};

const struct family *family_find(const char *name); /* NULL: none of that name */
/* The idx-th; NULL past the last. */
const struct family *family_at(int idx);

#endif
