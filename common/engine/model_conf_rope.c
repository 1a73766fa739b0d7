/* model_conf_rope: the rope members of config.json. Two spellings are in use: `rope_theta` beside
 * `rope_scaling` (null, or an object with `rope_type` or, older, `type`), and the newer
 * `rope_parameters`, one object that holds rope_theta too. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/engine/model_conf_read.h"

static const double THETA_MAX = 1e12, FACTOR_MAX = 1e6, CONTEXT_MAX = 1e9;

/* YaRN's temperature (Peng et al. 2023, section 3.4): 0.1 m ln(s) + 1. */
static double yarn_mscale(double scale, double m) {
    return scale <= 1 ? 1.0 : 0.1 * m * log(scale) + 1.0;
}

static enum err read_yarn(struct conf_reader *r, struct model_conf *c) {
    struct rope_conf *p = &c->rope;
    const double original = c->context_max, fast = 32, slow = 1, zero = 0;
    double mscale = 0, mscale_all = 0, attention = 0;
    enum err e;
    if ((e = conf_f64(r, "factor", 1, FACTOR_MAX, NULL, &p->factor)) != ERR_OK) return e;
    if ((e = conf_f64(r, "original_max_position_embeddings", 1, CONTEXT_MAX, &original,
                      &p->original_context)) != ERR_OK)
        return e;
    if ((e = conf_f64(r, "beta_fast", 1e-3, FACTOR_MAX, &fast, &p->beta_fast)) != ERR_OK) return e;
    if ((e = conf_f64(r, "beta_slow", 1e-3, FACTOR_MAX, &slow, &p->beta_slow)) != ERR_OK) return e;
    if ((e = conf_bool(r, "truncate", true, &p->truncate)) != ERR_OK) return e;
    if ((e = conf_f64(r, "mscale", 0, 1e3, &zero, &mscale)) != ERR_OK) return e;
    if ((e = conf_f64(r, "mscale_all_dim", 0, 1e3, &zero, &mscale_all)) != ERR_OK) return e;
    if ((e = conf_f64(r, "attention_factor", 0, 1e3, &zero, &attention)) != ERR_OK) return e;
    p->score_factor = mscale_all > 0 ? yarn_mscale(p->factor, mscale_all) : 1;
    /* Both mscale members count, or neither: a ratio of two temperatures. */
    if (attention > 0)
        p->attention_factor = attention;
    else if (mscale > 0 && mscale_all > 0)
        p->attention_factor = yarn_mscale(p->factor, mscale) / yarn_mscale(p->factor, mscale_all);
    else
        p->attention_factor = yarn_mscale(p->factor, 1);
    double reach = p->factor * p->original_context;
    if (reach > c->context_max)
        c->context_max = reach < MODEL_CONTEXT_MAX ? (int)reach : MODEL_CONTEXT_MAX;
    return ERR_OK;
}

static enum err read_llama3(struct conf_reader *r, struct model_conf *c) {
    struct rope_conf *p = &c->rope;
    enum err e;
    if ((e = conf_f64(r, "factor", 1, FACTOR_MAX, NULL, &p->factor)) != ERR_OK) return e;
    if ((e = conf_f64(r, "low_freq_factor", 1e-3, FACTOR_MAX, NULL, &p->low_freq_factor)) != ERR_OK)
        return e;
    if ((e = conf_f64(r, "high_freq_factor", 1e-3, FACTOR_MAX, NULL, &p->high_freq_factor)) !=
        ERR_OK)
        return e;
    if (p->high_freq_factor < p->low_freq_factor)
        return conf_refuse(r, "high_freq_factor", "low_freq_factor or larger");
    return conf_f64(r, "original_max_position_embeddings", 1, CONTEXT_MAX, NULL,
                    &p->original_context);
}

static enum err read_linear(struct conf_reader *r, struct model_conf *c) {
    enum err e = conf_f64(r, "factor", 1, FACTOR_MAX, NULL, &c->rope.factor);
    if (e != ERR_OK) return e;
    double reach = c->rope.factor * c->context_max;
    c->context_max = reach < MODEL_CONTEXT_MAX ? (int)reach : MODEL_CONTEXT_MAX;
    return ERR_OK;
}

/* theta by the length of a sequence; factor 1 is RoPE as it is. */
static enum err read_dynamic(struct conf_reader *r, struct model_conf *c) {
    const double original = c->context_max;
    enum err e = conf_f64(r, "original_max_position_embeddings", 1, CONTEXT_MAX, &original,
                          &c->rope.original_context);
    return e == ERR_OK ? read_linear(r, c) : e;
}

static enum err read_divisors(struct conf_reader *r, const char *member, int n, float *out) {
    struct json_value *list = NULL;
    char allowed[96];
    snprintf(allowed, sizeof(allowed), "%d numbers above 0, one for each pair that turns", n);
    if (json_get_arr(r->obj, member, &list) != JSON_OK || json_arr_len(list) != (size_t)n)
        return conf_refuse(r, member, allowed);
    for (int i = 0; i < n; i++) {
        double v;
        if (json_as_f64(json_arr_at(list, (size_t)i), &v) != JSON_OK || !(v >= 1e-3) ||
            !(v <= FACTOR_MAX))
            return conf_refuse(r, member, allowed);
        out[i] = (float)v;
    }
    return ERR_OK;
}

/* The attention factor follows from how much longer the context is than that of the training. */
static enum err read_longrope(struct conf_reader *r, struct model_conf *c) {
    struct rope_conf *p = &c->rope;
    struct conf_reader beside = *r;
    const double context = c->context_max, zero = 0;
    double attention = 0, original = 0, factor = 0;
    enum err e;
    if (r->outer != NULL)
        beside = (struct conf_reader){
            .obj = r->outer, .file = r->file, .prefix = "", .key_of = r->key_of, .eb = r->eb};
    if ((e = conf_f64(&beside, "original_max_position_embeddings", 1, CONTEXT_MAX, &zero,
                      &original)) != ERR_OK)
        return e;
    if ((e = conf_f64(r, "original_max_position_embeddings", 1, CONTEXT_MAX,
                      original > 0 ? &original : &context, &p->original_context)) != ERR_OK)
        return e;
    const double ratio = context / p->original_context;
    if ((e = conf_f64(r, "factor", 1, FACTOR_MAX, &ratio, &factor)) != ERR_OK) return e;
    if ((e = conf_f64(r, "attention_factor", 0, 1e3, &zero, &attention)) != ERR_OK) return e;
    if (original > 0) factor = ratio;
    p->attention_factor = attention > 0 ? attention
                          : factor <= 1 || p->original_context <= 1
                              ? 1
                              : sqrt(1 + log(factor) / log(p->original_context));
    p->has_divisors = true;
    if ((e = read_divisors(r, "short_factor", c->rope_dim / 2, p->divisors)) != ERR_OK) return e;
    return read_divisors(r, "long_factor", c->rope_dim / 2, p->long_divisors);
}

static enum err read_type(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    static const struct {
        const char *name;
        enum rope_type type;
        enum err (*read)(struct conf_reader *r, struct model_conf *c);
    } types[] = {
        {"default", ROPE_DEFAULT, NULL},         {"linear", ROPE_LINEAR, read_linear},
        {"llama3", ROPE_LLAMA3, read_llama3},    {"yarn", ROPE_YARN, read_yarn},
        {"dynamic", ROPE_DYNAMIC, read_dynamic}, {"longrope", ROPE_LONGROPE, read_longrope},
    };
    const char *s = "default", *member = "rope_type";
    size_t n = 0;
    enum json_got g = json_get_str(r->obj, member, &s, &n);
    if (g == JSON_ABSENT || g == JSON_NULL) {
        member = "type";
        g = json_get_str(r->obj, member, &s, &n);
    }
    if (g == JSON_OK && f->longrope && (strcmp(s, "su") == 0 || strcmp(s, "yarn") == 0))
        s = "longrope";
    /* Of text all three axes of a position are one. */
    if (g == JSON_OK && c->text_part && strcmp(s, "mrope") == 0) s = "default";
    for (size_t i = 0; g != JSON_WRONG_TYPE && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(s, types[i].name) != 0) continue;
        c->rope.type = types[i].type;
        return types[i].read != NULL ? types[i].read(r, c) : ERR_OK;
    }
    return conf_refuse(
        r, member, "one of \"default\" \"linear\" \"llama3\" \"yarn\" \"dynamic\" \"longrope\"");
}

/* How many values of a head turn; the whole config, then the object, may say so. */
static enum err read_partial(struct conf_reader *r, const struct family *f, struct json_value *obj,
                             struct model_conf *c) {
    struct conf_reader sub = *r;
    double absent = f->partial_absent > 0 ? f->partial_absent : 1, partial = 1;
    const double min = f->partial_absent > 0 ? 1e-3 : 1;
    enum err e = conf_f64(r, "partial_rotary_factor", min, 1, &absent, &absent);
    if (e != ERR_OK) return e;
    partial = absent;
    if (obj != NULL) {
        sub.obj = obj;
        sub.prefix = "rope_parameters.";
        e = conf_f64(&sub, "partial_rotary_factor", min, 1, &absent, &partial);
        if (e != ERR_OK) return e;
    }
    c->rope_dim = (int)(c->rope_dim * partial);
    if (c->rope_dim >= 2 && c->rope_dim % 2 == 0) return ERR_OK;
    return conf_refuse(r, "partial_rotary_factor",
                       "a share of head_dim that is an even number of values");
}

/* One object: theta and the kind of scaling. */
static enum err read_object(struct conf_reader *r, const struct family *f, struct json_value *obj,
                            const char *prefix, struct model_conf *c) {
    struct conf_reader sub = *r;
    const double outer = c->rope.theta;
    sub.outer = r->obj;
    sub.obj = obj;
    sub.prefix = prefix;
    enum err e = conf_f64(&sub, "rope_theta", 1, THETA_MAX, &outer, &c->rope.theta);
    return e == ERR_OK ? read_type(&sub, f, c) : e;
}

/* RoPE of layers with a window, where a family has one of its own; c->rope is read. obj: what
 * rope_parameters says of it, or NULL. */
static enum err read_window_rope(struct conf_reader *r, const struct family *f,
                                 struct json_value *obj, const struct rope_conf *plain,
                                 struct model_conf *c) {
    const struct rope_conf rope = c->rope;
    const int context = c->context_max;
    const double local = 10000;
    enum err e = ERR_OK;
    if (obj == NULL && f->window_rope == WINDOW_ROPE_SAME) return ERR_OK;
    c->has_window_rope = true;
    c->rope = *plain;
    c->rope.theta = rope.theta;
    if (f->window_rope == WINDOW_ROPE_LOCAL)
        e = conf_f64(r, "rope_local_base_freq", 1, THETA_MAX, &local, &c->rope.theta);
    if (e == ERR_OK && obj != NULL)
        e = read_object(r, f, obj, "rope_parameters.sliding_attention.", c);
    c->window_rope = c->rope;
    c->rope = rope;
    c->context_max = context;
    return e;
}

enum err conf_read_rope(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    static const char *const members[] = {"rope_parameters", "rope_scaling"};
    const double theta = f->theta_absent > 0 ? f->theta_absent : 10000;
    const struct rope_conf plain = {.type = ROPE_DEFAULT,
                                    .factor = 1,
                                    .attention_factor = 1,
                                    .score_factor = 1,
                                    .truncate = true};
    struct json_value *obj = NULL, *full = NULL, *window = NULL;
    const char *prefix = "rope_scaling.";
    const int context = c->context_max;
    enum err e;
    c->rope = plain;
    if ((e = conf_f64(r, "rope_theta", 1, THETA_MAX, &theta, &c->rope.theta)) != ERR_OK) return e;
    for (int i = 0; i < 2 && obj == NULL; i++) {
        enum json_got g = json_get_obj(r->obj, members[i], &obj);
        if (g == JSON_WRONG_TYPE) return conf_refuse(r, members[i], "an object or null");
        if (g != JSON_OK) obj = NULL;
        if (obj != NULL && i == 0) prefix = "rope_parameters.";
    }
    if (obj != NULL && json_get_obj(obj, "full_attention", &full) == JSON_OK) {
        if (json_get_obj(obj, "sliding_attention", &window) != JSON_OK) window = NULL;
        obj = full;
        prefix = "rope_parameters.full_attention.";
    }
    if ((e = read_partial(r, f, obj, c)) != ERR_OK) return e;
    if (obj != NULL && (e = read_object(r, f, obj, prefix, c)) != ERR_OK) return e;
    if ((e = read_window_rope(r, f, window, &plain, c)) != ERR_OK) return e;
    if (c->has_window_rope && c->rope.type == ROPE_LINEAR) c->context_max = context;
    return ERR_OK;
}
