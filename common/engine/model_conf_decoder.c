/* model_conf_decoder: what config.json says of decoders beside their shape: biases, windows, layers
 * that do not turn, the numbers by which families scale and cap. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/engine/model_conf_read.h"

static bool is_null(const struct conf_reader *r, const char *member) {
    return json_get(r->obj, member, &(struct json_value *){NULL}) == JSON_NULL;
}

/* ---- biases, norms, lm_head */

static enum err read_flags(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    enum err e;
    bool attention_bias = false, mlp_bias = false, use = true, tied = f->tied_absent;
    c->qkv_bias = f->qkv_bias;
    c->o_bias = f->o_bias;
    c->norms = f->norms;
    c->norm = f->norm;
    c->qk_norm = f->qk_norm;
    c->sinks = f->sinks;
    if (f->guess_layers) {
        const int64_t none = 0;
        int64_t n = 0;
        if ((e = conf_int(r, "num_nextn_predict_layers", 0, 16, &none, &n)) != ERR_OK) return e;
        c->n_guess_layers = (int)n;
    }
    c->rope_pairs = c->adapter_pairs = f->rope_pairs;
    if (f->use_qk_norm && (e = conf_bool(r, "use_qk_norm", f->qk_norm_absent, &use)) != ERR_OK)
        return e;
    if (!use) c->qk_norm = QK_NORM_NONE;
    if ((e = conf_bool(r, "attention_bias", false, &attention_bias)) != ERR_OK) return e;
    if (attention_bias && f->attention_bias == BIAS_REFUSED)
        return conf_refuse(r, "attention_bias", "absent or false for this model_type");
    if (attention_bias) c->qkv_bias = true;
    if (attention_bias && f->attention_bias == BIAS_QKVO) c->o_bias = true;
    if ((e = conf_bool(r, "mlp_bias", false, &mlp_bias)) != ERR_OK) return e;
    if (mlp_bias && !f->mlp_bias)
        return conf_refuse(r, "mlp_bias", "absent or false for this model_type");
    c->mlp_bias = mlp_bias;
    if (r->outer != NULL) {
        struct conf_reader outer = *r;
        outer.obj = r->outer;
        if ((e = conf_bool(&outer, "tie_word_embeddings", tied, &tied)) != ERR_OK) return e;
    }
    c->unit_head = f->unit_head_vocab > 0 && c->vocab_size == f->unit_head_vocab;
    return conf_bool(r, "tie_word_embeddings", tied, &c->tied);
}

/* ---- windows */

/* layer_types, where a config has it, is the last word on which layer has the window. */
static enum err read_layer_types(struct conf_reader *r, struct model_conf *c, int window) {
    struct json_value *types = NULL;
    enum json_got g = json_get_arr(r->obj, "layer_types", &types);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    char allowed[128];
    snprintf(allowed, sizeof(allowed), "%d items, each \"full_attention\" or \"sliding_attention\"",
             c->n_layers);
    if (g != JSON_OK || json_arr_len(types) != (size_t)c->n_layers)
        return conf_refuse(r, "layer_types", allowed);
    for (int i = 0; i < c->n_layers; i++) {
        const char *s = NULL;
        size_t n = 0;
        if (json_as_str(json_arr_at(types, (size_t)i), &s, &n) != JSON_OK)
            return conf_refuse(r, "layer_types", allowed);
        if (strcmp(s, "full_attention") == 0 || strcmp(s, "attention") == 0) {
            c->window[i] = 0;
        } else if (strcmp(s, "sliding_attention") == 0 && window > 0) {
            c->window[i] = window;
        } else if (strcmp(s, "sliding_attention") == 0) {
            return conf_refuse(r, "sliding_window",
                               "a number of tokens when layer_types names \"sliding_attention\"");
        } else {
            return conf_refuse(r, "layer_types", allowed);
        }
    }
    return ERR_OK;
}

/* sliding_window_pattern: every so many-th layer has no window. Or letters, repeated: L has one. */
static enum err read_period(struct conf_reader *r, const struct family *f, struct model_conf *c,
                            int window) {
    const int64_t absent = f->window_period;
    const char *member = "sliding_window_pattern", *letters = NULL;
    size_t n = 0;
    int64_t period = 0;
    if (json_get(r->obj, member, &(struct json_value *){NULL}) == JSON_ABSENT)
        member = "_sliding_window_pattern";
    if (json_get_str(r->obj, member, &letters, &n) == JSON_OK) {
        if (n == 0 || strspn(letters, "LG") != n)
            return conf_refuse(r, member, "an integer from 1 to 1024, or letters L and G");
        for (int i = 0; i < c->n_layers; i++)
            c->window[i] = letters[(size_t)i % n] == 'L' ? window : 0;
        return ERR_OK;
    }
    enum err e = conf_int(r, member, 1, MODEL_LAYERS_MAX, &absent, &period);
    for (int i = 0; e == ERR_OK && i < c->n_layers; i++)
        c->window[i] = (i + 1) % period == 0 ? 0 : window;
    return e;
}

/* *window: the model's, whatever layers have it; 0: none. */
static enum err read_window(struct conf_reader *r, const struct family *f, struct model_conf *c,
                            int *window) {
    int64_t n = 0, first = 0, layers = c->n_layers;
    const int64_t absent = f->window_absent;
    bool on = !is_null(r, "sliding_window");
    enum err e;
    *window = 0;
    if (!f->window_always && !f->window_switch && f->window_period == 0) {
        if (json_get(r->obj, "sliding_window", &(struct json_value *){NULL}) == JSON_OK)
            return conf_refuse(r, "sliding_window", "absent or null for this model_type");
        return read_layer_types(r, c, 0);
    }
    if (on && (e = conf_int(r, "sliding_window", 1, INT32_MAX, &absent, &n)) != ERR_OK) return e;
    if (!on && f->window_must)
        return conf_refuse(r, "sliding_window", "an integer from 1 to 2147483647");
    if (f->window_switch) {
        bool use = false;
        if ((e = conf_bool(r, "use_sliding_window", false, &use)) != ERR_OK) return e;
        if ((e = conf_int(r, "max_window_layers", 0, INT32_MAX, &layers, &first)) != ERR_OK)
            return e;
        on = on && use;
    }
    *window = on ? (int)n : 0;
    for (int i = 0; i < c->n_layers; i++) c->window[i] = i >= first ? (int32_t)*window : 0;
    if (f->window_period > 0 && (e = read_period(r, f, c, *window)) != ERR_OK) return e;
    return read_layer_types(r, c, *window);
}

/* ---- layers without RoPE */

static enum err read_listed(struct conf_reader *r, struct model_conf *c) {
    const int64_t four = 4;
    int64_t interval = 0;
    struct json_value *list = NULL;
    enum err e = conf_int(r, "no_rope_layer_interval", 1, MODEL_LAYERS_MAX, &four, &interval);
    if (e != ERR_OK) return e;
    enum json_got g = json_get_arr(r->obj, "no_rope_layers", &list);
    if (g == JSON_ABSENT || g == JSON_NULL || (g == JSON_OK && json_arr_len(list) == 0)) {
        for (int i = 0; i < c->n_layers; i++) c->still[i] = (i + 1) % interval == 0;
        return ERR_OK;
    }
    char allowed[80];
    snprintf(allowed, sizeof(allowed), "%d items, each 1 (with RoPE) or 0 (without)", c->n_layers);
    if (g != JSON_OK || json_arr_len(list) != (size_t)c->n_layers)
        return conf_refuse(r, "no_rope_layers", allowed);
    for (int i = 0; i < c->n_layers; i++) {
        int64_t turns = 0;
        if (json_as_i64(json_arr_at(list, (size_t)i), &turns) != JSON_OK || turns < 0 || turns > 1)
            return conf_refuse(r, "no_rope_layers", allowed);
        c->still[i] = turns == 0;
    }
    return ERR_OK;
}

static enum err read_still(struct conf_reader *r, const struct family *f, struct model_conf *c,
                           int window) {
    const char *kind = NULL;
    size_t n = 0;
    if (f->alibi_layers > 0 && c->n_layers == f->alibi_layers) c->no_rope = c->alibi = true;
    if (f->position_type) {
        if (json_get_str(r->obj, "position_embedding_type", &kind, &n) != JSON_OK ||
            (strcmp(kind, "rope") != 0 && strcmp(kind, "nope") != 0))
            return conf_refuse(r, "position_embedding_type", "\"rope\" or \"nope\"");
        c->no_rope = strcmp(kind, "nope") == 0;
    }
    if (f->still == STILL_LISTED) return read_listed(r, c);
    for (int i = 0; f->still == STILL_WITHOUT_WINDOW && window > 0 && i < c->n_layers; i++)
        c->still[i] = c->window[i] == 0;
    return ERR_OK;
}

/* ---- chunks, and what goes with them (Llama 4) */

/* Layers with RoPE see their chunk alone, unless layer_types says other. */
static enum err read_chunks(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    const int64_t absent = f->chunk_absent;
    const bool none = is_null(r, "attention_chunk_size");
    int64_t chunk = 0;
    struct json_value *types = NULL;
    enum err e = ERR_OK;
    if (!none) e = conf_int(r, "attention_chunk_size", 1, INT32_MAX, &absent, &chunk);
    if (e != ERR_OK) return e;
    for (int i = 0; i < c->n_layers; i++) c->window[i] = c->still[i] ? 0 : (int32_t)-chunk;
    enum json_got g = json_get_arr(r->obj, "layer_types", &types);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    char allowed[128];
    snprintf(allowed, sizeof(allowed), "%d items, each \"full_attention\" or \"chunked_attention\"",
             c->n_layers);
    if (g != JSON_OK || json_arr_len(types) != (size_t)c->n_layers)
        return conf_refuse(r, "layer_types", allowed);
    for (int i = 0; i < c->n_layers; i++) {
        const char *s = NULL;
        size_t n = 0;
        const bool text = json_as_str(json_arr_at(types, (size_t)i), &s, &n) == JSON_OK,
                   full = text && strcmp(s, "full_attention") == 0;
        if (!full && (!text || strcmp(s, "chunked_attention") != 0))
            return conf_refuse(r, "layer_types", allowed);
        if (!full && none)
            return conf_refuse(r, "attention_chunk_size",
                               "a number of tokens when layer_types names \"chunked_attention\"");
        c->window[i] = full ? 0 : (int32_t)-chunk;
    }
    return ERR_OK;
}

/* attn_temperature_tuning was a number in the first configs: other than 0 is on. */
static enum err read_temperature(struct conf_reader *r, struct model_conf *c) {
    const int64_t floor_absent = 8192;
    const double scale_absent = 0.1;
    int64_t number = 0, n = 0;
    double scale = 0;
    bool on = true;
    enum err e = ERR_OK;
    if (json_get_i64(r->obj, "attn_temperature_tuning", &number) == JSON_OK)
        on = number != 0;
    else
        e = conf_bool(r, "attn_temperature_tuning", true, &on);
    if (e != ERR_OK) return e;
    if ((e = conf_int(r, "floor_scale", 1, INT32_MAX, &floor_absent, &n)) != ERR_OK) return e;
    if ((e = conf_f64(r, "attn_scale", 0, 1e3, &scale_absent, &scale)) != ERR_OK) return e;
    c->still_floor = (int)n;
    c->still_scale = on ? (float)scale : 0;
    return ERR_OK;
}

/* ---- scales and caps */

static enum err read_number(struct conf_reader *r, const struct member_number *x,
                            struct model_conf *c) {
    const bool cap = x->number == NUMBER_SCORE_CAP || x->number == NUMBER_LOGIT_CAP;
    const bool none =
        cap && (is_null(r, x->name) ||
                (x->absent == 0 &&
                 json_get(r->obj, x->name, &(struct json_value *){NULL}) == JSON_ABSENT));
    double v = 0;
    enum err e = none ? ERR_OK : conf_f64(r, x->name, 1e-6, 1e6, &x->absent, &v);
    if (e != ERR_OK) return e;
    switch (x->number) {
    case NUMBER_SCORE_CAP: c->score_cap = (float)v; break;
    case NUMBER_LOGIT_CAP: c->logit_cap = (float)v; break;
    case NUMBER_QUERY_SCALAR: c->score_scale = (float)(1 / sqrt(v)); break;
    case NUMBER_SCORE_SCALE: c->score_scale = (float)v; break;
    case NUMBER_EMBED_SCALE: c->embed_scale = (float)v; break;
    case NUMBER_RESIDUAL_SCALE: c->residual_scale = (float)v; break;
    case NUMBER_LOGIT_SCALE: c->logit_scale = (float)v; break;
    case NUMBER_LOGIT_DIVISOR: c->logit_scale = (float)(1 / v); break;
    case NUMBER_ACT_LIMIT: c->act_limit = (float)v; break;
    case NUMBER_ACT_ALPHA: c->act_alpha = (float)v; break;
    }
    return ERR_OK;
}

enum err conf_read_decoder(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    enum err e;
    int window = 0;
    if ((e = read_flags(r, f, c)) != ERR_OK) return e;
    if ((e = conf_read_rope(r, f, c)) != ERR_OK) return e;
    if (f->latent) conf_scale_latent(c);
    if (f->chunk_absent == 0 && (e = read_window(r, f, c, &window)) != ERR_OK) return e;
    if ((e = read_still(r, f, c, window)) != ERR_OK) return e;
    if (f->chunk_absent > 0 && (e = read_chunks(r, f, c)) != ERR_OK) return e;
    if (f->temperature && (e = read_temperature(r, c)) != ERR_OK) return e;
    if ((e = conf_read_experts(r, f, c)) != ERR_OK) return e;
    if (f->embed_root) c->embed_scale = (float)sqrt(c->hidden);
    for (const struct member_number *x = f->numbers; x != NULL && x->name != NULL; x++)
        if ((e = read_number(r, x, c)) != ERR_OK) return e;
    return ERR_OK;
}
