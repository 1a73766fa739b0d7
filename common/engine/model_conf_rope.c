/* model_conf_rope: the rope members of config.json. Two spellings are in use: `rope_theta` beside
 * `rope_scaling` (null, or an object with `rope_type` or, older, `type`), and the newer
 * `rope_parameters`, one object that holds rope_theta too. */
#include <math.h>
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
    if (p->high_freq_factor <= p->low_freq_factor)
        return conf_refuse(r, "high_freq_factor", "larger than low_freq_factor");
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

static enum err read_type(struct conf_reader *r, struct model_conf *c) {
    static const struct {
        const char *name;
        enum rope_type type;
        enum err (*read)(struct conf_reader *r, struct model_conf *c);
    } types[] = {
        {"default", ROPE_DEFAULT, NULL},
        {"linear", ROPE_LINEAR, read_linear},
        {"llama3", ROPE_LLAMA3, read_llama3},
        {"yarn", ROPE_YARN, read_yarn},
    };
    const char *s = "default", *member = "rope_type";
    size_t n = 0;
    enum json_got g = json_get_str(r->obj, member, &s, &n);
    if (g == JSON_ABSENT || g == JSON_NULL) {
        member = "type";
        g = json_get_str(r->obj, member, &s, &n);
    }
    for (size_t i = 0; g != JSON_WRONG_TYPE && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(s, types[i].name) != 0) continue;
        c->rope.type = types[i].type;
        return types[i].read != NULL ? types[i].read(r, c) : ERR_OK;
    }
    return conf_refuse(r, member, "one of \"default\" \"linear\" \"llama3\" \"yarn\"");
}

enum err conf_read_rope(struct conf_reader *r, struct model_conf *c) {
    struct conf_reader sub = *r;
    const double theta = 10000;
    enum err e;
    c->rope = (struct rope_conf){
        .type = ROPE_DEFAULT, .factor = 1, .attention_factor = 1, .truncate = true};
    if ((e = conf_f64(r, "rope_theta", 1, THETA_MAX, &theta, &c->rope.theta)) != ERR_OK) return e;
    static const char *const members[] = {"rope_parameters", "rope_scaling"};
    for (int i = 0; i < 2; i++) {
        struct json_value *obj = NULL;
        enum json_got g = json_get_obj(r->obj, members[i], &obj);
        if (g == JSON_WRONG_TYPE) return conf_refuse(r, members[i], "an object or null");
        if (g != JSON_OK) continue;
        sub.obj = obj;
        sub.prefix = i == 0 ? "rope_parameters." : "rope_scaling.";
        const double outer = c->rope.theta;
        const double whole = 1;
        double partial = 1;
        if ((e = conf_f64(&sub, "rope_theta", 1, THETA_MAX, &outer, &c->rope.theta)) != ERR_OK)
            return e;
        if ((e = conf_f64(&sub, "partial_rotary_factor", 1, 1, &whole, &partial)) != ERR_OK)
            return e;
        return read_type(&sub, c);
    }
    return ERR_OK;
}
