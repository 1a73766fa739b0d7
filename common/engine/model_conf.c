/* model_conf: reading config.json and generation_config.json. What only decoders have is in
 * model_conf_decoder.c, what only encoders in model_conf_encoder.c, the rope part in
 * model_conf_rope.c, what makes a vector of a text in model_conf_pooling.c. */
#include "common/engine/model_conf.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/model_conf_gguf.h"
#include "common/engine/model_conf_read.h"
#include "common/engine/model_families.h"
#include "proto/json.h"

enum { CONFIG_BYTES_MAX = 4 * 1024 * 1024, PATH_BYTES = 4096 };

/* Members that would change the numbers in a way the forward pass does not know, and the one value
 * that changes nothing. */
static const struct member_neutral neutrals[] = {
    {"partial_rotary_factor", 1},
    {"attn_logit_softcapping", NAN},
    {"final_logit_softcapping", NAN},
    {"logit_scale", 1},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"attention_multiplier", NAN},
    {"logits_scaling", 1},
    {"num_local_experts", 0},
    {"num_experts", 0},
    {"n_routed_experts", 0},
    {"use_qk_norm", NAN},
    {"is_encoder_decoder", 0},
    {"query_pre_attn_scalar", NAN},
    {NULL, 0},
};

/* ---- typed members with an error that names file, member, value and range (model_conf_read.h) */

const char *conf_spelling(const struct conf_reader *r, const char *member) {
    struct json_value *v = NULL;
    for (const struct member_alias *a = r->aliases; a != NULL && a->member != NULL; a++)
        if (strcmp(a->member, member) == 0 && json_get(r->obj, a->theirs, &v) == JSON_OK)
            return a->theirs;
    return member;
}

static enum err refuse(struct conf_reader *r, const char *member, const char *allowed) {
    char got[120] = "nothing";
    member = conf_spelling(r, member);
    struct json_value *v = NULL;
    enum json_got g = json_get(r->obj, member, &v);
    if (g == JSON_NULL) snprintf(got, sizeof(got), "null");
    if (g == JSON_OK) json_literal(got, sizeof(got), v);
    if (r->key_of != NULL) member = r->key_of(member);
    return err_set(r->eb, ERR_BAD_FILE, "%s: %s%s must be %s, got %s", r->file, r->prefix, member,
                   allowed, got);
}

enum err conf_refuse(struct conf_reader *r, const char *member, const char *allowed) {
    return refuse(r, member, allowed);
}

enum err conf_int(struct conf_reader *r, const char *member, int64_t min, int64_t max,
                  const int64_t *absent, int64_t *out) {
    int64_t v = 0;
    enum json_got g = json_get_i64(r->obj, conf_spelling(r, member), &v);
    if ((g == JSON_ABSENT || g == JSON_NULL) && absent != NULL) {
        *out = *absent;
        return ERR_OK;
    }
    if (g == JSON_OK && v >= min && v <= max) {
        *out = v;
        return ERR_OK;
    }
    char allowed[96];
    snprintf(allowed, sizeof(allowed), "an integer from %lld to %lld", (long long)min,
             (long long)max);
    return refuse(r, member, allowed);
}

enum err conf_f64(struct conf_reader *r, const char *member, double min, double max,
                  const double *absent, double *out) {
    double v = 0;
    enum json_got g = json_get_f64(r->obj, conf_spelling(r, member), &v);
    if ((g == JSON_ABSENT || g == JSON_NULL) && absent != NULL) {
        *out = *absent;
        return ERR_OK;
    }
    if (g == JSON_OK && v >= min && v <= max) {
        *out = v;
        return ERR_OK;
    }
    char allowed[96];
    snprintf(allowed, sizeof(allowed), "a number from %g to %g", min, max);
    return refuse(r, member, allowed);
}

enum err conf_bool(struct conf_reader *r, const char *member, bool absent, bool *out) {
    bool v = false;
    enum json_got g = json_get_bool(r->obj, conf_spelling(r, member), &v);
    if (g == JSON_WRONG_TYPE) return refuse(r, member, "true or false");
    *out = g == JSON_OK ? v : absent;
    return ERR_OK;
}

/* ---- members of config.json */

static enum err read_architecture(struct conf_reader *r, const struct family *f,
                                  enum model_head *head) {
    struct json_value *arch = NULL;
    char allowed[256] = "";
    const char *s = NULL;
    size_t n = 0, at = 0;
    *head = f->architectures[0].head;
    for (int i = 0; i < FAMILY_ARCHITECTURES_MAX && f->architectures[i].name != NULL; i++)
        at += (size_t)snprintf(allowed + at, sizeof(allowed) - at, "%s[\"%s\"]",
                               i > 0 ? " or " : "", f->architectures[i].name);
    snprintf(allowed + at, sizeof(allowed) - at, " with this model_type");
    enum json_got g = json_get_arr(r->obj, "architectures", &arch);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    if (g != JSON_OK || json_arr_len(arch) != 1 ||
        json_as_str(json_arr_at(arch, 0), &s, &n) != JSON_OK)
        return refuse(r, "architectures", allowed);
    for (int i = 0; i < FAMILY_ARCHITECTURES_MAX && f->architectures[i].name != NULL; i++) {
        if (strcmp(s, f->architectures[i].name) != 0) continue;
        *head = f->architectures[i].head;
        return ERR_OK;
    }
    return refuse(r, "architectures", allowed);
}

static enum err refuse_family(struct conf_reader *r, const char *got) {
    char allowed[160];
    const char *lacks = got != NULL ? family_lacks(got, strlen(got)) : NULL;
    if (lacks != NULL)
        return err_set(r->eb, ERR_BAD_FILE,
                       "%s: %smodel_type \"%.60s\" is not supported: it has %s", r->file, r->prefix,
                       got, lacks);
    snprintf(allowed, sizeof(allowed), "one of those in docs/models.md%s%s%s",
             got != NULL ? ", the nearest is \"" : "", got != NULL ? family_nearest(got) : "",
             got != NULL ? "\"" : "");
    return refuse(r, "model_type", allowed);
}

/* The text part of a model that sees: of its config what describes a model of a family. */
static enum err unwrap(struct conf_reader *r, const struct family_wrapper *w) {
    const char *s = w->text;
    size_t n = 0;
    struct json_value *text = NULL;
    enum json_got g = json_get_obj(r->obj, "text_config", &text);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    if (g != JSON_OK) return refuse(r, "text_config", "an object or null");
    r->outer = r->obj;
    r->obj = text;
    r->prefix = "text_config.";
    g = json_get_str(text, "model_type", &s, &n);
    if (g != JSON_WRONG_TYPE && strcmp(s, w->text) == 0) return ERR_OK;
    char allowed[64];
    snprintf(allowed, sizeof(allowed), "\"%s\"", w->text);
    return refuse(r, "model_type", allowed);
}

static enum err read_family(struct conf_reader *r, const struct family **out, enum model_head *head,
                            struct model_conf *c) {
    const char *s = NULL;
    size_t n = 0;
    if (json_get_str(r->obj, "model_type", &s, &n) != JSON_OK) return refuse_family(r, NULL);
    const struct family_wrapper *w = family_wrapper_find(s);
    const struct family *f = family_find(w != NULL ? w->family : s);
    if (f == NULL) return refuse_family(r, s);
    *out = f;
    if (w == NULL) {
        r->aliases = f->aliases;
        return read_architecture(r, f, head);
    }
    const struct family whole = {.architectures = {{w->architecture, MODEL_HEAD_LM}}};
    enum err e = read_architecture(r, &whole, head);
    c->text_part = true;
    if (e == ERR_OK) e = unwrap(r, w);
    r->aliases = f->aliases;
    return e;
}

/* A member that the family makes something of is none that must be neutral. */
static bool family_reads(const struct family *f, const char *member) {
    for (const struct member_number *x = f->numbers; x != NULL && x->name != NULL; x++)
        if (strcmp(x->name, member) == 0) return true;
    if (f->experts.count != NULL && strcmp(f->experts.count, member) == 0) return true;
    return (f->partial_absent > 0 && strcmp(member, "partial_rotary_factor") == 0) ||
           (f->use_qk_norm && strcmp(member, "use_qk_norm") == 0);
}

static enum err check_neutrals(struct conf_reader *r, const struct family *f,
                               const struct member_neutral *x) {
    for (; x != NULL && x->name != NULL; x++) {
        struct json_value *v = NULL;
        double d = 0;
        bool b = false;
        if (json_get(r->obj, x->name, &v) != JSON_OK || family_reads(f, x->name)) continue;
        if (json_as_f64(v, &d) == JSON_OK && d == x->value) continue;
        if (json_as_bool(v, &b) == JSON_OK && (double)b == x->value) continue;
        char allowed[64] = "absent or null";
        if (!isnan(x->value)) snprintf(allowed, sizeof(allowed), "absent, null or %g", x->value);
        return refuse(r, x->name, allowed);
    }
    return ERR_OK;
}

static enum err read_activation(struct conf_reader *r, const struct family *f,
                                struct model_conf *c) {
    const char *act = f->acts[0].name;
    char allowed[64] = "";
    size_t n = 0, at = 0;
    enum json_got g = json_get_str(r->obj, conf_spelling(r, "hidden_act"), &act, &n);
    for (int i = 0; i < FAMILY_ACTS_MAX && f->acts[i].name != NULL; i++) {
        c->act = f->acts[i].act;
        if (g != JSON_WRONG_TYPE && strcmp(act, f->acts[i].name) == 0) return ERR_OK;
        at += (size_t)snprintf(allowed + at, sizeof(allowed) - at, "%s\"%s\"", i > 0 ? " or " : "",
                               f->acts[i].name);
    }
    return refuse(r, "hidden_act", allowed);
}

static enum err read_norm_eps(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    double eps = f->eps_absent > 0 ? f->eps_absent : 1e-6;
    const char *name = f->encoder ? "layer_norm_eps" : "rms_norm_eps";
    enum err e = conf_f64(r, name, 1e-20, 1, &eps, &eps);
    c->norm_eps = (float)eps;
    return e;
}

static enum err read_shape(struct conf_reader *r, const struct family *f, struct model_conf *c) {
    int64_t v = 0;
    enum err e;
    c->embed_scale = c->residual_scale = c->logit_scale = 1;
#define SHAPE(member, max, absent, field)                                                          \
    do {                                                                                           \
        if ((e = conf_int(r, member, 1, max, absent, &v)) != ERR_OK) return e;                     \
        (field) = (int)v;                                                                          \
    } while (0)
    SHAPE("hidden_size", MODEL_HIDDEN_MAX, NULL, c->hidden);
    SHAPE("intermediate_size", MODEL_INTERMEDIATE_MAX, NULL, c->intermediate);
    SHAPE("num_hidden_layers", MODEL_LAYERS_MAX, NULL, c->n_layers);
    const int64_t heads = f->heads_absent, vocab = f->vocab_absent, context = f->context_absent;
    SHAPE("num_attention_heads", MODEL_HEADS_MAX, heads > 0 ? &heads : NULL, c->n_heads);
    SHAPE("vocab_size", MODEL_VOCAB_MAX, vocab > 0 ? &vocab : NULL, c->vocab_size);
    SHAPE("max_position_embeddings", INT32_MAX, context > 0 ? &context : NULL, c->context_max);
    if (f->latent) {
        if ((e = conf_read_latent(r, c)) != ERR_OK) return e;
        return read_norm_eps(r, f, c);
    }
    int64_t kv_heads = f->kv_heads_absent != 0 ? f->kv_heads_absent : c->n_heads;
    SHAPE("num_key_value_heads", c->n_heads, &kv_heads, c->n_kv_heads);
    int64_t head_dim = f->head_dim_absent != 0 ? f->head_dim_absent : c->hidden / c->n_heads;
    SHAPE("head_dim", MODEL_HEAD_DIM_MAX, &head_dim, c->head_dim);
#undef SHAPE
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0) {
        return err_set(r->eb, ERR_BAD_FILE,
                       "%s: num_key_value_heads must divide num_attention_heads = %d, got %d",
                       r->file, c->n_heads, c->n_kv_heads);
    }
    /* Without a head_dim of its own a model must split hidden_size evenly. */
    if (json_get(r->obj, "head_dim", &(struct json_value *){NULL}) != JSON_OK &&
        f->head_dim_absent == 0 && c->hidden % c->n_heads != 0) {
        return err_set(r->eb, ERR_BAD_FILE,
                       "%s: hidden_size must be a multiple of num_attention_heads = %d when "
                       "head_dim is absent, got %d",
                       r->file, c->n_heads, c->hidden);
    }
    if (c->head_dim < 2 || c->head_dim > MODEL_HEAD_DIM_MAX || c->head_dim % 2 != 0) {
        return err_set(r->eb, ERR_BAD_FILE,
                       "%s: head_dim must be an even integer from 2 to %d, got %d", r->file,
                       MODEL_HEAD_DIM_MAX, c->head_dim);
    }
    c->rope_dim = c->head_dim;
    c->score_scale = (float)(1.0 / sqrt(c->head_dim));
    return read_norm_eps(r, f, c);
}

/* An id, a list of ids, null or nothing. *n stays 0 when the member names none. */
static enum err read_ids(struct conf_reader *r, const char *member, int vocab_size, int32_t *ids,
                         int *n) {
    struct json_value *v = NULL, *list = NULL;
    char allowed[128];
    snprintf(allowed, sizeof(allowed), "a token id from 0 to %d or a list of 1 to %d such",
             vocab_size - 1, EOS_IDS_MAX);
    *n = 0;
    if (json_get(r->obj, member, &v) != JSON_OK &&
        (r->outer == NULL || json_get(r->outer, member, &v) != JSON_OK))
        return ERR_OK;
    size_t n_items = 1;
    if (json_as_arr(v, &list) == JSON_OK) n_items = json_arr_len(list);
    if (n_items == 0 || n_items > EOS_IDS_MAX) return refuse(r, member, allowed);
    for (size_t i = 0; i < n_items; i++) {
        int64_t id = 0;
        if (json_as_i64(list != NULL ? json_arr_at(list, i) : v, &id) != JSON_OK || id < 0 ||
            id >= vocab_size)
            return refuse(r, member, allowed);
        ids[(*n)++] = (int32_t)id;
    }
    return ERR_OK;
}

static enum err read_special(struct conf_reader *r, struct model_conf *c) {
    int32_t ids[EOS_IDS_MAX];
    int n = 0;
    enum err e = read_ids(r, "eos_token_id", c->vocab_size, ids, &n);
    if (e != ERR_OK) return e;
    if (n > 0) {
        memcpy(c->eos_ids, ids, sizeof(ids[0]) * (size_t)n);
        c->n_eos = n;
    }
    if ((e = read_ids(r, "bos_token_id", c->vocab_size, ids, &n)) != ERR_OK) return e;
    if (n > 1) return refuse(r, "bos_token_id", "one token id");
    if (n == 1) c->bos_id = ids[0];
    return ERR_OK;
}

static enum err read_config(struct conf_reader *r, struct model_conf *c) {
    const struct family *f = NULL;
    enum err e;
    enum model_head head = MODEL_HEAD_LM;
    if ((e = read_family(r, &f, &head, c)) != ERR_OK) return e;
    snprintf(c->family, sizeof(c->family), "%s", f->name);
    c->map = f->map;
    c->gated = f->gated;
    c->no_head = head != MODEL_HEAD_LM;
    c->pooling = f->encoder ? POOL_MEAN : POOL_LAST;
    struct conf_reader outer = *r;
    outer.obj = r->outer;
    outer.prefix = "";
    if (r->outer != NULL && (e = check_neutrals(&outer, f, neutrals)) != ERR_OK) return e;
    if ((e = check_neutrals(r, f, neutrals)) != ERR_OK) return e;
    if ((e = check_neutrals(r, f, f->neutrals)) != ERR_OK) return e;
    if ((e = read_activation(r, f, c)) != ERR_OK) return e;
    if ((e = read_shape(r, f, c)) != ERR_OK) return e;
    if (f->encoder) {
        if ((e = conf_read_encoder(r, f, head, c)) != ERR_OK) return e;
    } else {
        if ((e = conf_read_decoder(r, f, c)) != ERR_OK) return e;
    }
    if ((e = conf_read_matryoshka(r, c)) != ERR_OK) return e;
    const bool whole = /* of a model that sees, all of it is quantised by one rule */
        r->outer != NULL &&
        json_get(r->outer, "quantization_config", &(struct json_value *){NULL}) == JSON_OK;
    if ((e = conf_read_quant(whole ? &outer : r, &c->quant)) != ERR_OK) return e;
    if (c->context_max > MODEL_CONTEXT_MAX) c->context_max = MODEL_CONTEXT_MAX;
    return read_special(r, c);
}

/* ---- generation_config.json */

static enum err read_generation(struct conf_reader *r, struct model_conf *c) {
    struct model_gen *g = &c->gen;
    enum err e;
    double d = 0;
    const double none = NAN;
    const int64_t no_k = -1;
    int64_t k = 0;
    if ((e = read_special(r, c)) != ERR_OK) return e;
    g->do_sample_set = json_get_bool(r->obj, "do_sample", &g->do_sample) == JSON_OK;
    if ((e = conf_bool(r, "do_sample", false, &g->do_sample)) != ERR_OK) return e;
    if ((e = conf_f64(r, "temperature", 0, 100, &none, &d)) != ERR_OK) return e;
    g->temperature_set = !isnan(d);
    if (g->temperature_set) g->temperature = (float)d;
    if ((e = conf_f64(r, "top_p", 0, 1, &none, &d)) != ERR_OK) return e;
    g->top_p_set = !isnan(d);
    if (g->top_p_set) g->top_p = (float)d;
    if ((e = conf_f64(r, "min_p", 0, 1, &none, &d)) != ERR_OK) return e;
    g->min_p_set = !isnan(d);
    if (g->min_p_set) g->min_p = (float)d;
    if ((e = conf_f64(r, "repetition_penalty", 0, 100, &none, &d)) != ERR_OK) return e;
    g->repetition_penalty_set = !isnan(d);
    if (g->repetition_penalty_set) g->repetition_penalty = (float)d;
    if ((e = conf_int(r, "top_k", 0, INT32_MAX, &no_k, &k)) != ERR_OK) return e;
    g->top_k_set = k != no_k;
    if (g->top_k_set) g->top_k = (int32_t)k;
    return ERR_OK;
}

/* The metadata of a GGUF file, in the spelling of the two JSON files. */
static enum err read_gguf(struct model_conf *out, const char *file, struct errbuf *eb) {
    struct buf text[2] = {BUF_INIT, BUF_INIT};
    struct gguf *g = NULL;
    struct errbuf inner = {0};
    enum err e = gguf_open(&g, file, eb);
    if (e != ERR_OK) return e == ERR_NOT_FOUND ? ERR_BAD_FILE : e;
    struct conf_reader r = {.file = gguf_name(g), .prefix = "", .key_of = gguf_key_of, .eb = eb};
    if (gguf_tensor_find(g, "rope_freqs.weight") != NULL ||
        gguf_tensor_find(g, "rope_factors_short.weight") != NULL)
        e = gguf_map_tensors(g, eb);
    if (e == ERR_OK) e = gguf_config(&text[0], &text[1], g, eb);
    for (int i = 0; i < 2 && e == ERR_OK; i++) {
        struct json_value *root = NULL;
        e = json_read(&root, text[i].data, text[i].len, NULL, &inner);
        if (e != ERR_OK)
            e = err_set(eb, ERR_BAD_FILE, "%s: %s", r.file, inner.text);
        else if ((e = json_as_obj(root, &r.obj) == JSON_OK ? ERR_OK : ERR_INTERNAL) == ERR_OK)
            e = i == 0 ? read_config(&r, out) : read_generation(&r, out);
        json_put(root);
    }
    if (e == ERR_OK) e = gguf_config_rest(out, g, eb);
    gguf_close(&g);
    buf_free(&text[0]);
    buf_free(&text[1]);
    return e;
}

static enum err read_folder(struct model_conf *out, const char *dir, struct errbuf *eb) {
    char path[PATH_BYTES];
    struct json_value *root = NULL;
    struct conf_reader r;
    struct errbuf inner = {0};
    for (int step = 0; step < 2; step++) {
        r = (struct conf_reader){.prefix = "", .eb = eb};
        r.file = step == 0 ? "config.json" : "generation_config.json";
        int n = snprintf(path, sizeof(path), "%s/%s", dir, r.file);
        if (n < 0 || (size_t)n >= sizeof(path))
            return err_set(eb, ERR_BAD_FILE, "the model folder's name is too long");
        enum err e = json_read_file(&root, path, CONFIG_BYTES_MAX, NULL, &inner);
        if (e == ERR_NOT_FOUND && step == 1) break;
        if (e != ERR_OK)
            return err_set(eb, e == ERR_NOT_FOUND ? e : ERR_BAD_FILE, "%s", inner.text);
        if (json_as_obj(root, &r.obj) != JSON_OK) {
            e = err_set(eb, ERR_BAD_FILE, "%s: must be a JSON object", r.file);
        } else {
            e = step == 0 ? read_config(&r, out) : read_generation(&r, out);
        }
        json_put(root);
        root = NULL;
        if (e != ERR_OK) return e;
    }
    enum err e = conf_read_quant_beside(&out->quant, dir, eb);
    return e != ERR_OK ? e : conf_read_pooling(out, dir, eb);
}

enum err model_conf_read(struct model_conf *out, const char *path, struct errbuf *eb) {
    char file[PATH_BYTES];
    struct errbuf why = {0};
    memset(out, 0, sizeof(*out));
    out->bos_id = -1;
    enum err e = gguf_locate(file, sizeof(file), path, &why);
    if (e == ERR_OK) return read_gguf(out, file, eb);
    if (e == ERR_NOT_FOUND) return read_folder(out, path, eb);
    return err_set(eb, e, "%s", why.text);
}

static int rope_line(char *line, int room, const char *name, const struct rope_conf *p, int pairs) {
    int at =
        snprintf(line, (size_t)room, " %s=%d,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%d",
                 name, (int)p->type, p->theta, p->factor, p->low_freq_factor, p->high_freq_factor,
                 p->original_context, p->beta_fast, p->beta_slow, p->attention_factor, p->truncate);
    for (int i = 0; p->has_divisors && i < pairs; i++)
        at += snprintf(line + at, (size_t)(room - at), ",%.9g,%.9g", (double)p->divisors[i],
                       (double)p->long_divisors[i]);
    return at;
}

static int line_of(const struct model_conf *c, int map, char line[MODEL_CONF_LINE_BYTES]) {
    int at = snprintf(
        line, MODEL_CONF_LINE_BYTES,
        "baton-model-2 layers=%d heads=%d kv_heads=%d head_dim=%d hidden=%d "
        "intermediate=%d vocab=%d "
        "eps=%.9g map=%d norm=%d,%d,%d,%d act=%d,%d encoder=%d rows=%d,%d,%d "
        "score=%d,%d,%d,%d,%d,%d,%d qkv_bias=%d o_bias=%d mlp_bias=%d qk_norm=%d tied=%d "
        "no_head=%d scale=%.9g,%.9g,%.9g,%.9g cap=%.9g,%.9g alibi=%d unit_head=%d turns=%d,%d,%d",
        c->n_layers, c->n_heads, c->n_kv_heads, c->head_dim, c->hidden, c->intermediate,
        c->vocab_size, (double)c->norm_eps, map, (int)c->norm, c->norm_bias, (int)c->norms,
        c->embed_norm, (int)c->act, c->gated, c->encoder, c->n_positions, c->first_position,
        c->n_token_types, c->score.n_labels, c->score.dense, c->score.norm, c->score.dense_bias,
        c->score.out_bias, (int)c->score.act, (int)c->score.pooling, c->qkv_bias, c->o_bias,
        c->mlp_bias, (int)c->qk_norm, c->tied, c->no_head, (double)c->embed_scale,
        (double)c->residual_scale, (double)c->score_scale, (double)c->logit_scale,
        (double)c->score_cap, (double)c->logit_cap, c->alibi, c->unit_head, c->rope_dim, c->no_rope,
        c->rope_pairs);
    at += rope_line(line + at, MODEL_CONF_LINE_BYTES - at, "rope", &c->rope, c->rope_dim / 2);
    if (c->has_window_rope)
        at += rope_line(line + at, MODEL_CONF_LINE_BYTES - at, "window_rope", &c->window_rope,
                        c->rope_dim / 2);
    if (c->experts.n > 0)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at),
                       " experts=%d,%d,%d,%d,%d,%d,%d", c->experts.n, c->experts.used,
                       c->experts.intermediate, c->experts.shared, c->experts.normalise,
                       c->experts.shared_gate, c->experts.bias);
    if (c->latent.rank > 0)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " latent=%d,%d,%d,%d",
                       c->latent.rank, c->latent.q_rank, c->latent.still, c->latent.value);
    if (c->experts.group_best)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " groups_by_best=%d,%d",
                       c->experts.groups, c->experts.groups_used);
    if (c->experts.n > 0 && (c->experts.sigmoid || c->experts.scale != 1))
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " router=%d,%d,%d,%d,%.9g",
                       c->experts.sigmoid, c->experts.choice_bias, c->experts.groups,
                       c->experts.groups_used, (double)c->experts.scale);
    if (c->experts.on_input)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " shares_on_input");
    if (c->still_scale != 0)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " temperature=%.9g,%d",
                       (double)c->still_scale, c->still_floor);
    if (c->act == ACT_SILU_CLAMPED)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " clamp=%.9g,%.9g",
                       (double)c->act_limit, (double)c->act_alpha);
    if (c->sinks) at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " sinks");
    at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), " window=");
    for (int i = 0; i < c->n_layers; i++)
        at += snprintf(line + at, (size_t)(MODEL_CONF_LINE_BYTES - at), "%d%s%s,",
                       (int)c->window[i], c->still[i] ? "s" : "", c->mixed[i] ? "e" : "");
    return at;
}

int model_conf_line(const struct model_conf *c, char line[MODEL_CONF_LINE_BYTES]) {
    return line_of(c, (int)c->map, line);
}

enum err model_conf_hash(const struct model_conf *c, uint8_t hash[32]) {
    char *line = malloc(MODEL_CONF_LINE_BYTES);
    if (line == NULL) return ERR_NO_MEMORY;
    SHA256((const uint8_t *)line, (size_t)line_of(c, 0, line), hash);
    free(line);
    return ERR_OK;
}
