/* model_conf_encoder: what config.json says of encoders beside their shape: positions, token types,
 * windows, the head for scores. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/engine/model_conf_read.h"

static const double THETA_MAX = 1e12;

enum { INTER_STEP = 256 }; /* what nomic's MLP is rounded up to */

/* The table of learned positions; those of RoBERTa begin behind the padding's. */
static enum err read_positions(struct conf_reader *r, const struct family *f,
                               struct model_conf *c) {
    const int64_t one = 1;
    int64_t pad = 1;
    const char *kind = "absolute";
    size_t n = 0;
    enum json_got g = json_get_str(r->obj, "position_embedding_type", &kind, &n);
    if (g == JSON_WRONG_TYPE || (g == JSON_OK && strcmp(kind, "absolute") != 0))
        return conf_refuse(r, "position_embedding_type", "\"absolute\"");
    c->no_rope = true;
    c->n_positions = c->context_max;
    if (!f->positions_from_pad) return ERR_OK;
    enum err e = conf_int(r, "pad_token_id", 0, c->vocab_size - 1, &one, &pad);
    if (e != ERR_OK) return e;
    if (pad + 1 >= c->n_positions)
        return conf_refuse(r, "max_position_embeddings", "more than pad_token_id + 1");
    c->first_position = (int)pad + 1;
    c->context_max -= c->first_position;
    return ERR_OK;
}

/* nomic-bert: RoPE on every layer, stretched for texts longer than those of its training. */
static enum err read_dynamic_rope(struct conf_reader *r, struct model_conf *c) {
    const double none = 0, trained = 2048;
    enum err e = conf_f64(r, "rotary_scaling_factor", 1, 1e6, &none, &c->rope.factor);
    if (e != ERR_OK) return e;
    e = conf_f64(r, "max_trained_positions", 1, 1e9, &trained, &c->rope.original_context);
    if (c->rope.factor > 0)
        c->rope.type = ROPE_DYNAMIC;
    else
        c->rope.factor = 1;
    return e;
}

/* ModernBERT: every n-th layer sees all, the others half a window to each side. */
static enum err read_alternating(struct conf_reader *r, struct model_conf *c) {
    const int64_t window_absent = 128, every_absent = 3;
    const double wide = 160000, near = 10000;
    int64_t window = 0, every = 0;
    double near_theta = 0;
    struct json_value *v = NULL;
    enum err e = conf_int(r, "local_attention", 2, INT32_MAX / 2, &window_absent, &window);
    if (e != ERR_OK) return e;
    e = conf_int(r, "global_attn_every_n_layers", 1, MODEL_LAYERS_MAX, &every_absent, &every);
    if (e != ERR_OK) return e;
    if ((e = conf_f64(r, "rope_theta", 1, THETA_MAX, &wide, &c->rope.theta)) != ERR_OK) return e;
    if ((e = conf_f64(r, "local_rope_theta", 1, THETA_MAX, &near, &near_theta)) != ERR_OK) return e;
    c->has_window_rope = json_get(r->obj, "local_rope_theta", &v) != JSON_NULL;
    c->window_rope = c->rope;
    c->window_rope.theta = near_theta;
    for (int i = 0; i < c->n_layers; i++)
        c->window[i] = i % every == 0 ? 0 : (int32_t)(window / 2 + 1);
    return ERR_OK;
}

/* Labels by their names; HuggingFace's default, where a config names none, is two. */
static enum err read_labels(struct conf_reader *r, struct model_conf *c) {
    struct json_value *names = NULL;
    const int64_t two = 2;
    int64_t n = 0;
    enum json_got g = json_get_obj(r->obj, "id2label", &names);
    if (g == JSON_WRONG_TYPE) return conf_refuse(r, "id2label", "an object or null");
    const int64_t named = g == JSON_OK ? (int64_t)json_obj_len(names) : two;
    enum err e = conf_int(r, "num_labels", 1, MODEL_LABELS_MAX, &named, &n);
    if (e != ERR_OK) return e;
    if (n < 1 || n > MODEL_LABELS_MAX) return conf_refuse(r, "id2label", "an object of 1 to 1024");
    c->score.n_labels = (int)n;
    return ERR_OK;
}

/* What sentence-transformers is told to put the score through, in either spelling. */
static void read_score_activation(struct conf_reader *r, struct model_conf *c) {
    struct json_value *o = NULL;
    const char *s = NULL;
    size_t n = 0;
    if (json_get_obj(r->obj, "sentence_transformers", &o) != JSON_OK ||
        json_get_str(o, "activation_fn", &s, &n) != JSON_OK)
        (void)json_get_str(r->obj, "sbert_ce_default_activation_function", &s, &n);
    c->score_raw = s != NULL && strstr(s, "Identity") != NULL;
}

static enum err read_score(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    const char *pooling = NULL;
    size_t n = 0;
    c->score = f->score;
    enum err e = read_labels(r, c);
    if (e != ERR_OK) return e;
    read_score_activation(r, c);
    if (f->map != TENSORS_MODERN) return ERR_OK;
    enum json_got g = json_get_str(r->obj, "classifier_pooling", &pooling, &n);
    if (g == JSON_OK && strcmp(pooling, "mean") == 0)
        c->score.pooling = POOL_MEAN;
    else if (g == JSON_WRONG_TYPE || (g == JSON_OK && strcmp(pooling, "cls") != 0))
        return conf_refuse(r, "classifier_pooling", "\"cls\" or \"mean\"");
    const char *act = "gelu";
    g = json_get_str(r->obj, "classifier_activation", &act, &n);
    if (g == JSON_WRONG_TYPE || strcmp(act, "gelu") != 0)
        return conf_refuse(r, "classifier_activation", "\"gelu\"");
    return conf_bool(r, "classifier_bias", false, &c->score.dense_bias);
}

enum err conf_read_encoder(struct conf_reader *r, const struct family *f, enum model_head head,
                           struct model_conf *c) {
    const double theta = 10000;
    int64_t types = f->token_types_absent;
    enum err e;
    c->encoder = true;
    c->norm = NORM_LAYER;
    c->norm_bias = f->norm_bias;
    c->norms = f->norms;
    c->embed_norm = f->embed_norm;
    c->qkv_bias = c->o_bias = c->mlp_bias = f->all_biases;
    c->rope = (struct rope_conf){.factor = 1, .attention_factor = 1, .truncate = true};
    if ((e = conf_f64(r, "rope_theta", 1, THETA_MAX, &theta, &c->rope.theta)) != ERR_OK) return e;
    if (f->token_types_absent > 0) {
        e = conf_int(r, "type_vocab_size", 0, 1024, &types, &types);
        if (e != ERR_OK) return e;
        c->n_token_types = (int)types;
    }
    if (f->learned_positions && (e = read_positions(r, f, c)) != ERR_OK) return e;
    if (f->dynamic_rope) {
        c->intermediate = (c->intermediate + INTER_STEP - 1) / INTER_STEP * INTER_STEP;
        if ((e = read_dynamic_rope(r, c)) != ERR_OK) return e;
    }
    if (f->alternating_window && (e = read_alternating(r, c)) != ERR_OK) return e;
    return head == MODEL_HEAD_SCORE ? read_score(r, f, c) : ERR_OK;
}
