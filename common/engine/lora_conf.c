/* lora_conf: reading adapter_config.json. */
#include "common/engine/lora_conf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/json.h"

#define FILE_NAME "adapter_config.json"

enum { PATH_BYTES = 96, KEY_BYTES_MAX = 256, LITERAL_BYTES = 96 };
static const double ALPHA_MAX = 1e6;

/* ---- modules */

static const char *const module_names[LORA_MODULES] = {
    [LORA_Q] = "self_attn.q_proj", [LORA_K] = "self_attn.k_proj", [LORA_V] = "self_attn.v_proj",
    [LORA_O] = "self_attn.o_proj", [LORA_GATE] = "mlp.gate_proj", [LORA_UP] = "mlp.up_proj",
    [LORA_DOWN] = "mlp.down_proj",
};

const char *lora_module_name(enum lora_module m) {
    return m < LORA_MODULES ? module_names[m] : "";
}

enum lora_module lora_module_find(const char *name, size_t n) {
    int m = 0;
    while (m < LORA_MODULES &&
           (strlen(module_names[m]) != n || memcmp(module_names[m], name, n) != 0))
        m++;
    return (enum lora_module)m;
}

/* Does `key` stand for the last parts of path? */
static bool path_ends_with(const char *path, const char *key) {
    size_t n = strlen(path), k = strlen(key);
    return k <= n && strcmp(path + n - k, key) == 0 && (k == n || path[n - k - 1] == '.');
}

static bool plain_path(const char *s, size_t n) {
    if (n < 1 || n > KEY_BYTES_MAX || s[0] == '.' || s[n - 1] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '.'))
            return false;
    return true;
}

/* ---- members */

static enum err bad_member(const struct json_value *v, const char *key, const char *allowed,
                           struct errbuf *eb) {
    char got[LITERAL_BYTES];
    json_literal(got, sizeof(got), v);
    return err_set(eb, ERR_BAD_FILE, FILE_NAME ": %s must be %s, got %s", key, allowed, got);
}

/* Absent, null, false, 0, "" and empty containers: the feature is not used. */
static bool in_use(const struct json_value *v) {
    switch (json_type_of(v)) {
    case json_type_null: return false;
    case json_type_boolean: return json_bool(v);
    case json_type_int: return json_i64(v) != 0;
    case json_type_double: return true;
    case json_type_string: return json_str_len(v) > 0;
    case json_type_array: return json_arr_len(v) > 0;
    case json_type_object: return json_obj_len(v) > 0;
    }
    return true;
}

static enum err refuse_unsupported(const struct json_value *root, struct errbuf *eb) {
    static const char *const members[] = {
        "use_dora",          "fan_in_fan_out",          "lora_bias",
        "modules_to_save",   "layer_replication",       "trainable_token_indices",
        "target_parameters", "alora_invocation_tokens", "use_qalora",
        "layers_pattern",    "megatron_config",         "arrow_config",
        "use_bdlora",
    };
    struct json_value *v;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        if (json_get(root, members[i], &v) == JSON_OK && in_use(v))
            return bad_member(v, members[i], "absent, null, false or empty: it is not supported",
                              eb);
    return ERR_OK;
}

/* These store the adapter as a difference to a base whose weights they have changed themselves. */
static enum err check_init(const struct json_value *root, struct errbuf *eb) {
    static const char *const changes_base[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    struct json_value *v;
    const char *s;
    size_t n;
    if (json_get(root, "init_lora_weights", &v) != JSON_OK || json_as_str(v, &s, &n) != JSON_OK)
        return ERR_OK;
    for (size_t i = 0; i < sizeof(changes_base) / sizeof(changes_base[0]); i++)
        if (strncmp(s, changes_base[i], strlen(changes_base[i])) == 0)
            return bad_member(v, "init_lora_weights",
                              "a way that leaves the base model as it is (convert the adapter to a "
                              "plain LoRA)",
                              eb);
    return ERR_OK;
}

static enum err read_kind(const struct json_value *root, struct errbuf *eb) {
    struct json_value *v = NULL;
    const char *s;
    size_t n;
    if (json_get_str(root, "peft_type", &s, &n) != JSON_OK || strcmp(s, "LORA") != 0) {
        (void)json_get(root, "peft_type", &v);
        return bad_member(v, "peft_type", "\"LORA\"", eb);
    }
    if (json_get(root, "bias", &v) == JSON_OK &&
        (json_as_str(v, &s, &n) != JSON_OK || strcmp(s, "none") != 0))
        return bad_member(v, "bias", "\"none\"", eb);
    return ERR_OK;
}

static enum err read_numbers(struct lora_conf *c, const struct json_value *root,
                             struct errbuf *eb) {
    struct json_value *v = NULL;
    int64_t rank = 0;
    if (json_get_i64(root, "r", &rank) != JSON_OK || rank < 1 || rank > LORA_CONF_RANK_MAX) {
        (void)json_get(root, "r", &v);
        return bad_member(v, "r", "an integer from 1 to 65536", eb);
    }
    c->rank = (int)rank;
    if (json_get_f64(root, "lora_alpha", &c->alpha) != JSON_OK || !(fabs(c->alpha) <= ALPHA_MAX)) {
        (void)json_get(root, "lora_alpha", &v);
        return bad_member(v, "lora_alpha", "a number from -1000000 to 1000000", eb);
    }
    enum json_got got = json_get_bool(root, "use_rslora", &c->rslora);
    if (got == JSON_WRONG_TYPE) {
        (void)json_get(root, "use_rslora", &v);
        return bad_member(v, "use_rslora", "a boolean", eb);
    }
    return ERR_OK;
}

/* A target is the last parts of a module's path, "q_proj" or "self_attn.q_proj", or the whole path
 * of one layer's. */
static bool add_target(struct lora_conf *c, const char *s, size_t n) {
    bool found = false;
    if (!plain_path(s, n)) return false;
    const char *last = strrchr(s, '.');
    for (int m = 0; m < LORA_MODULES; m++) {
        bool whole = !path_ends_with(module_names[m], s);
        if (whole && (last == NULL || !path_ends_with(s, module_names[m]))) continue;
        if (whole && strstr(s, "layers.") == NULL) continue;
        if (whole) c->some_modules = true;
        c->modules |= 1u << m;
        found = true;
    }
    return found;
}

static enum err read_targets(struct lora_conf *c, const struct json_value *root,
                             struct errbuf *eb) {
    static const char allowed[] =
        "a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, or "
        "\"all-linear\"";
    struct json_value *v = NULL, *list;
    const char *s;
    size_t n;
    if (json_get(root, "target_modules", &v) != JSON_OK)
        return bad_member(v, "target_modules", allowed, eb);
    if (json_as_str(v, &s, &n) == JSON_OK) {
        if (strcmp(s, "all-linear") == 0) {
            c->modules = (1u << LORA_MODULES) - 1;
            return ERR_OK;
        }
        return add_target(c, s, n) ? ERR_OK : bad_member(v, "target_modules", allowed, eb);
    }
    if (json_as_arr(v, &list) != JSON_OK || json_arr_len(list) < 1 ||
        json_arr_len(list) > LORA_TARGETS_MAX)
        return bad_member(v, "target_modules", allowed, eb);
    for (size_t i = 0; i < json_arr_len(list); i++) {
        const struct json_value *item = json_arr_at(list, i);
        if (json_as_str(item, &s, &n) != JSON_OK || !add_target(c, s, n))
            return bad_member(item, "target_modules", allowed, eb);
    }
    return ERR_OK;
}

/* ---- patterns */

static enum err read_patterns(struct lora_patterns *p, const struct json_value *root,
                              const char *key, bool whole, struct errbuf *eb) {
    static const char allowed[] =
        "an object of plain module names (\"q_proj\", \"layers.3.mlp.up_proj\") and their values";
    struct json_value *obj = NULL;
    enum json_got got = json_get_obj(root, key, &obj);
    if (got == JSON_ABSENT || got == JSON_NULL) return ERR_OK;
    int n = got == JSON_OK ? (int)json_obj_len(obj) : -1;
    if (n < 0 || n > LORA_PATTERNS_MAX) {
        (void)json_get(root, key, &obj);
        return bad_member(obj, key, allowed, eb);
    }
    if (n == 0) return ERR_OK;
    p->items = calloc((size_t)n, sizeof(*p->items));
    if (p->items == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for " FILE_NAME);
    struct json_iter it = json_iter_begin(obj), end = json_iter_end(obj);
    for (; !json_iter_equal(&it, &end); json_iter_next(&it)) {
        const char *name = json_iter_name(&it);
        const struct json_value *v = json_iter_value(&it);
        struct lora_pattern *item = &p->items[p->n];
        int64_t i;
        bool good =
            json_as_f64(v, &item->value) == JSON_OK && fabs(item->value) <= ALPHA_MAX &&
            (!whole || (json_as_i64(v, &i) == JSON_OK && i >= 1 && i <= LORA_CONF_RANK_MAX));
        if (!good || !plain_path(name, strlen(name))) return bad_member(obj, key, allowed, eb);
        if ((item->key = strdup(name)) == NULL)
            return err_set(eb, ERR_NO_MEMORY, "no memory for " FILE_NAME);
        p->n++;
    }
    return ERR_OK;
}

static double pattern_value(const struct lora_patterns *p, int layer, enum lora_module m,
                            double otherwise) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "model.layers.%d.%s", layer, lora_module_name(m));
    for (size_t i = 0; i < p->n; i++)
        if (path_ends_with(path, p->items[i].key)) return p->items[i].value;
    return otherwise;
}

int lora_conf_rank(const struct lora_conf *c, int layer, enum lora_module m) {
    return (int)pattern_value(&c->rank_pattern, layer, m, c->rank);
}

float lora_conf_scale(const struct lora_conf *c, int layer, enum lora_module m) {
    double rank = lora_conf_rank(c, layer, m);
    double alpha = pattern_value(&c->alpha_pattern, layer, m, c->alpha);
    return (float)(alpha / (c->rslora ? sqrt(rank) : rank));
}

/* ---- all of it */

static void patterns_free(struct lora_patterns *p) {
    for (size_t i = 0; i < p->n; i++) free(p->items[i].key);
    free(p->items);
    *p = (struct lora_patterns){0};
}

void lora_conf_free(struct lora_conf *c) {
    patterns_free(&c->rank_pattern);
    patterns_free(&c->alpha_pattern);
}

enum err lora_conf_parse(struct lora_conf *c, const char *json, size_t n, struct errbuf *eb) {
    struct json_value *root = NULL;
    struct errbuf why = {0};
    *c = (struct lora_conf){0};
    if (json_read(&root, json, n, NULL, &why) != ERR_OK)
        return err_set(eb, ERR_BAD_FILE, FILE_NAME ": %s", why.text);
    if (!json_is(root, json_type_object)) {
        json_put(root);
        return err_set(eb, ERR_BAD_FILE, FILE_NAME ": must be an object");
    }
    enum err e = read_kind(root, eb);
    if (e == ERR_OK) e = refuse_unsupported(root, eb);
    if (e == ERR_OK) e = check_init(root, eb);
    if (e == ERR_OK) e = read_numbers(c, root, eb);
    if (e == ERR_OK) e = read_targets(c, root, eb);
    struct json_value *layers;
    c->some_layers = json_get(root, "layers_to_transform", &layers) == JSON_OK;
    if (e == ERR_OK) e = read_patterns(&c->rank_pattern, root, "rank_pattern", true, eb);
    if (e == ERR_OK) e = read_patterns(&c->alpha_pattern, root, "alpha_pattern", false, eb);
    json_put(root);
    if (e != ERR_OK) lora_conf_free(c);
    return e;
}
