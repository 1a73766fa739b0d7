/* model_conf_experts: what config.json says of experts. Source: the published configs of the
 * families. */
#include <stdio.h>
#include <string.h>
#include "common/engine/model_conf_read.h"

/* decoder_sparse_step: every so many-th layer has experts; mlp_only_layers: these have none. */
static enum err read_layers(struct conf_reader *r, struct model_conf *c) {
    const int64_t one = 1;
    int64_t step = 1;
    struct json_value *list = NULL;
    char allowed[80];
    enum err e = conf_int(r, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, &one, &step);
    if (e != ERR_OK) return e;
    for (int i = 0; i < c->n_layers; i++) c->mixed[i] = (i + 1) % step == 0;
    enum json_got g = json_get_arr(r->obj, "mlp_only_layers", &list);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    snprintf(allowed, sizeof(allowed), "a list of layers, each from 0 to %d", c->n_layers - 1);
    if (g != JSON_OK) return conf_refuse(r, "mlp_only_layers", allowed);
    for (size_t i = 0; i < json_arr_len(list); i++) {
        int64_t layer = 0;
        if (json_as_i64(json_arr_at(list, i), &layer) != JSON_OK || layer < 0 ||
            layer >= c->n_layers)
            return conf_refuse(r, "mlp_only_layers", allowed);
        c->mixed[layer] = false;
    }
    return ERR_OK;
}

/* moe_layers: these have experts; or, without it, every interleave_moe_layer_step-th. */
static enum err read_interleaved(struct conf_reader *r, struct model_conf *c) {
    const int64_t one = 1;
    int64_t step = 1;
    struct json_value *list = NULL;
    char allowed[80];
    enum err e = conf_int(r, "interleave_moe_layer_step", 1, MODEL_LAYERS_MAX, &one, &step);
    if (e != ERR_OK) return e;
    enum json_got g = json_get_arr(r->obj, "moe_layers", &list);
    const bool listed = g != JSON_ABSENT && g != JSON_NULL;
    for (int i = 0; i < c->n_layers; i++) c->mixed[i] = !listed && (i + 1) % step == 0;
    if (!listed) return ERR_OK;
    snprintf(allowed, sizeof(allowed), "a list of layers, each from 0 to %d", c->n_layers - 1);
    if (g != JSON_OK) return conf_refuse(r, "moe_layers", allowed);
    for (size_t i = 0; i < json_arr_len(list); i++) {
        int64_t layer = 0;
        if (json_as_i64(json_arr_at(list, i), &layer) != JSON_OK || layer < 0 ||
            layer >= c->n_layers)
            return conf_refuse(r, "moe_layers", allowed);
        c->mixed[layer] = true;
    }
    return ERR_OK;
}

/* scoring_func and topk_method, as DeepSeek's configs have them; absent: as the family's row. */
static enum err read_methods(struct conf_reader *r, struct experts_conf *x, bool *grouped) {
    const char *score = x->sigmoid ? "sigmoid" : "softmax",
               *method = x->choice_bias ? "noaux_tc" : "greedy";
    size_t n = 0;
    if (json_get_str(r->obj, "scoring_func", &score, &n) == JSON_WRONG_TYPE ||
        (strcmp(score, "sigmoid") != 0 && strcmp(score, "softmax") != 0))
        return conf_refuse(r, "scoring_func", "\"softmax\" or \"sigmoid\"");
    x->sigmoid = strcmp(score, "sigmoid") == 0;
    if (json_get_str(r->obj, "topk_method", &method, &n) == JSON_WRONG_TYPE ||
        (strcmp(method, "greedy") != 0 && strcmp(method, "group_limited_greedy") != 0 &&
         strcmp(method, "noaux_tc") != 0))
        return conf_refuse(r, "topk_method",
                           "\"greedy\", \"group_limited_greedy\" or \"noaux_tc\"");
    x->choice_bias = strcmp(method, "noaux_tc") == 0;
    *grouped = strcmp(method, "greedy") != 0;
    return ERR_OK;
}

/* How the chosen are chosen. */
static enum err read_router(struct conf_reader *r, const struct member_experts *m,
                            struct experts_conf *x) {
    const int64_t one = 1;
    const double plain = 1;
    int64_t groups = 1, used = 1;
    double scale = 1;
    enum err e = ERR_OK;
    x->sigmoid = m->sigmoid;
    x->choice_bias = m->choice_bias;
    bool grouped = m->grouped;
    if (m->methods && (e = read_methods(r, x, &grouped)) != ERR_OK) return e;
    if (grouped && (e = conf_int(r, "n_group", 1, x->n, &one, &groups)) != ERR_OK) return e;
    if (grouped && (e = conf_int(r, "topk_group", 1, groups, &one, &used)) != ERR_OK) return e;
    if (x->n % groups != 0 || x->n / groups * used < x->used)
        return conf_refuse(r, "n_group",
                           "a divisor of the experts, and topk_group of these groups "
                           "enough to choose num_experts_per_tok from");
    if (used < groups) {
        x->groups = (int)groups;
        x->groups_used = (int)used;
        x->group_best = m->methods && !x->choice_bias;
    }
    if (m->scaled) e = conf_f64(r, "routed_scaling_factor", 1e-3, 1e3, &plain, &scale);
    x->scale = (float)scale;
    return e;
}

enum err conf_read_experts(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    const struct member_experts *m = &f->experts;
    struct experts_conf *x = &c->experts;
    const int64_t none = 0, least = m->optional ? 0 : 1;
    struct conf_reader plain = *r; /* what is the width of a dense layer elsewhere */
    int64_t n = 0, used = 0, width = 0, shared = 0, in_all = 0;
    enum err e;
    plain.aliases = NULL;
    if (m->count == NULL) return ERR_OK;
    if ((e = conf_int(r, m->count, least, MODEL_EXPERTS_MAX, m->optional ? &none : NULL, &n)) !=
        ERR_OK)
        return e;
    if (n == 0) return ERR_OK;
    if ((e = conf_int(r, "num_experts_per_tok", 1, n, NULL, &used)) != ERR_OK) return e;
    if ((e = conf_int(&plain, m->width, 1, MODEL_INTERMEDIATE_MAX, NULL, &width)) != ERR_OK)
        return e;
    if (m->shared != NULL &&
        (e = conf_int(r, m->shared, 0, MODEL_INTERMEDIATE_MAX, &none, &shared)) != ERR_OK)
        return e;
    if (m->shared_count != NULL) {
        if ((e = conf_int(r, m->shared_count, 0, MODEL_INTERMEDIATE_MAX / width, &none, &shared)) !=
            ERR_OK)
            return e;
        shared *= width;
    }
    if (m->shared_alike) shared = width;
    *x = (struct experts_conf){.n = (int)n,
                               .used = (int)used,
                               .intermediate = (int)width,
                               .shared = (int)shared,
                               .shared_gate = m->shared_gate,
                               .normalise = m->normalise,
                               .bias = m->bias,
                               .on_input = m->on_input};
    if (m->may_normalise &&
        (e = conf_bool(r, "norm_topk_prob", m->normalise, &x->normalise)) != ERR_OK)
        return e;
    if ((e = read_router(r, m, x)) != ERR_OK) return e;
    int64_t dense = 0;
    if (m->first_dense &&
        (e = conf_int(r, "first_k_dense_replace", 0, c->n_layers, &none, &dense)) != ERR_OK)
        return e;
    for (int i = 0; i < c->n_layers; i++) c->mixed[i] = i >= dense;
    if (m->some_layers && (e = read_layers(r, c)) != ERR_OK) return e;
    if (m->interleaved && (e = read_interleaved(r, c)) != ERR_OK) return e;
    for (int i = 0; i < c->n_layers; i++) in_all += c->mixed[i] ? n : 0;
    if (in_all <= MODEL_EXPERTS_IN_ALL_MAX) return ERR_OK;
    return err_set(r->eb, ERR_BAD_FILE,
                   "%s: the experts of all layers must be at most %d, got %lld", r->file,
                   MODEL_EXPERTS_IN_ALL_MAX, (long long)in_all);
}
