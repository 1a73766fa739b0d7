/* model_conf_quant: quantization_config of config.json, and what older tools wrote beside it. */
#include <stdio.h>
#include <string.h>
#include "common/engine/model_conf_read.h"
#include "proto/json.h"

enum { CONFIG_BYTES_MAX = 1024 * 1024, PATH_BYTES = 4096, GROUPS_MAX = 64, BLOCK_MAX = 1 << 20 };

const char *quant_method_name(enum quant_method m) {
    switch (m) {
    case QUANT_AWQ: return "awq";
    case QUANT_GPTQ: return "gptq";
    case QUANT_COMPRESSED: return "compressed-tensors";
    case QUANT_FP8: return "fp8";
    case QUANT_MXFP4: return "mxfp4";
    case QUANT_NONE: break;
    }
    return "none";
}

/* Absent, null, or one of the texts, which end with NULL. *which: its place, -1: absent. */
static enum err one_of(struct conf_reader *r, const char *member, const char *const *texts,
                       int *which) {
    const char *s = NULL;
    size_t n = 0;
    char allowed[200] = "absent";
    enum json_got g = json_get_str(r->obj, member, &s, &n);
    *which = -1;
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    for (int i = 0; texts[i] != NULL; i++) {
        const size_t at = strlen(allowed);
        if (g == JSON_OK && strcasecmp(s, texts[i]) == 0) *which = i;
        snprintf(allowed + at, sizeof(allowed) - at, " or \"%s\"", texts[i]);
    }
    return *which >= 0 ? ERR_OK : conf_refuse(r, member, allowed);
}

/* Inputs that share a scale: -1 stands for all. */
static enum err read_group(struct conf_reader *r, const char *member, int *out) {
    int64_t v = 0;
    const int64_t all = -1;
    enum err e = conf_int(r, member, -1, BLOCK_MAX, &all, &v);
    if (e == ERR_OK && v == 0) e = conf_refuse(r, member, "-1 or an integer from 1 on");
    *out = v > 0 ? (int)v : 0;
    return e;
}

static enum err read_awq(struct conf_reader *r, bool old, struct quant_conf *q) {
    static const char *const versions[] = {"gemm", NULL};
    int64_t bits = 0;
    const int64_t four = 4;
    int version;
    enum err e = conf_int(r, old ? "w_bit" : "bits", 4, 4, &four, &bits);
    if (e != ERR_OK || (e = one_of(r, "version", versions, &version)) != ERR_OK) return e;
    q->bits = (int)bits;
    if ((e = read_group(r, old ? "q_group_size" : "group_size", &q->group)) != ERR_OK) return e;
    return conf_bool(r, "zero_point", true, &q->zero_point);
}

/* Rules of GPTQModel for single layers: only those that leave a layer alone are known. */
static enum err check_dynamic(struct conf_reader *r) {
    struct json_value *rules = NULL;
    enum json_got g = json_get_obj(r->obj, "dynamic", &rules);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    if (g != JSON_OK) return conf_refuse(r, "dynamic", "absent or an object");
    struct json_iter it = json_iter_begin(rules), last = json_iter_end(rules);
    for (; !json_iter_equal(&it, &last); json_iter_next(&it))
        if (strncmp(json_iter_name(&it), "-:", 2) != 0)
            return conf_refuse(r, "dynamic", "absent, or rules that begin with \"-:\"");
    return ERR_OK;
}

static enum err read_gptq(struct conf_reader *r, struct quant_conf *q) {
    static const char *const formats[] = {"gptq", "gptq_v2", NULL};
    int64_t bits = 0;
    int format;
    bool marlin = false;
    enum err e = conf_int(r, "bits", 2, 8, NULL, &bits);
    if (e == ERR_OK && bits != 2 && bits != 4 && bits != 8) e = conf_refuse(r, "bits", "2, 4 or 8");
    if (e != ERR_OK || (e = one_of(r, "checkpoint_format", formats, &format)) != ERR_OK) return e;
    if ((e = conf_bool(r, "is_marlin_format", false, &marlin)) != ERR_OK) return e;
    if (marlin) return conf_refuse(r, "is_marlin_format", "absent or false");
    if ((e = check_dynamic(r)) != ERR_OK) return e;
    q->bits = (int)bits;
    q->zero_less = format != 1;
    return read_group(r, "group_size", &q->group);
}

/* A list of two positive sizes, or nothing. */
static enum err read_block(struct conf_reader *r, const char *member, int block[2]) {
    struct json_value *list = NULL;
    enum json_got g = json_get_arr(r->obj, member, &list);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    for (size_t i = 0; g == JSON_OK && i < 2; i++) {
        int64_t v = 0;
        if (json_arr_len(list) != 2 || json_as_i64(json_arr_at(list, i), &v) != JSON_OK || v < 1 ||
            v > BLOCK_MAX)
            g = JSON_WRONG_TYPE;
        block[i] = (int)v;
    }
    return g == JSON_OK ? ERR_OK : conf_refuse(r, member, "absent or two integers from 1 on");
}

/* One of config_groups: how its weights are kept. */
static enum err read_scheme(struct conf_reader *r, struct quant_conf *q) {
    static const char *const types[] = {"int", "float", NULL};
    static const char *const strategies[] = {"tensor", "channel", "group", "block", NULL};
    int64_t bits = 0;
    int type, strategy;
    enum err e = conf_int(r, "num_bits", 4, 8, NULL, &bits);
    if (e != ERR_OK || (e = one_of(r, "type", types, &type)) != ERR_OK) return e;
    if (bits != 8 && (bits != 4 || type == 1))
        return conf_refuse(r, "num_bits", type == 1 ? "8" : "4 or 8");
    if ((e = one_of(r, "strategy", strategies, &strategy)) != ERR_OK) return e;
    return read_block(r, "block_structure", q->block);
}

static enum err read_compressed(struct conf_reader *r, struct quant_conf *q) {
    static const char *const formats[] = {"pack-quantized",  "int-quantized",   "naive-quantized",
                                          "float-quantized", "mixed-precision", NULL};
    static const char *const sparse[] = {"dense", NULL};
    struct json_value *groups = NULL, *obj = NULL;
    struct conf_reader inner = *r;
    int which;
    enum err e = one_of(r, "format", formats, &which);
    if (e != ERR_OK) return e;
    if (json_get_obj(r->obj, "sparsity_config", &obj) == JSON_OK && json_obj_len(obj) > 0) {
        inner.obj = obj;
        inner.prefix = "quantization_config.sparsity_config.";
        if ((e = one_of(&inner, "format", sparse, &which)) != ERR_OK) return e;
    }
    if (json_get_obj(r->obj, "config_groups", &groups) != JSON_OK ||
        json_obj_len(groups) > GROUPS_MAX)
        return conf_refuse(r, "config_groups", "an object of at most 64 schemes");
    struct json_iter it = json_iter_begin(groups), last = json_iter_end(groups);
    for (; e == ERR_OK && !json_iter_equal(&it, &last); json_iter_next(&it)) {
        char prefix[120];
        struct json_value *scheme = NULL;
        snprintf(prefix, sizeof(prefix), "quantization_config.config_groups.%.40s.",
                 json_iter_name(&it));
        inner.prefix = prefix;
        if (json_as_obj(json_iter_value(&it), &scheme) != JSON_OK) continue;
        inner.obj = scheme;
        if ((e = one_of(&inner, "format", formats, &which)) != ERR_OK) break;
        if (json_get_obj(scheme, "weights", &inner.obj) != JSON_OK) continue;
        snprintf(prefix, sizeof(prefix), "quantization_config.config_groups.%.40s.weights.",
                 json_iter_name(&it));
        e = read_scheme(&inner, q);
    }
    return e;
}

static enum err read_method(struct conf_reader *r, const char *absent, struct quant_conf *q) {
    static const char *const known =
        "\"awq\", \"gptq\", \"compressed-tensors\", \"fp8\" or \"mxfp4\"";
    static const char *const fp8_formats[] = {"e4m3", NULL};
    const char *s = absent;
    size_t n = 0;
    int which;
    enum json_got g = json_get_str(r->obj, "quant_method", &s, &n);
    if (g == JSON_WRONG_TYPE || s == NULL) return conf_refuse(r, "quant_method", known);
    if (strcmp(s, "bitsandbytes") == 0)
        return err_set(r->eb, ERR_BAD_FILE,
                       "%s: quantization_config.quant_method is bitsandbytes, whose layout is that "
                       "library's own affair: take the original checkpoint (weightDtype quantises "
                       "it while loading), a GGUF file, or one of AWQ or GPTQ",
                       r->file);
    if (strcmp(s, "awq") == 0) {
        q->method = QUANT_AWQ;
        return read_awq(r, json_get(r->obj, "w_bit", &(struct json_value *){NULL}) == JSON_OK, q);
    }
    if (strcmp(s, "gptq") == 0) {
        q->method = QUANT_GPTQ;
        return read_gptq(r, q);
    }
    if (strcmp(s, "compressed-tensors") == 0 || strcmp(s, "compressed_tensors") == 0) {
        q->method = QUANT_COMPRESSED;
        return read_compressed(r, q);
    }
    if (strcmp(s, "fp8") == 0 || strcmp(s, "fbgemm_fp8") == 0) {
        q->method = QUANT_FP8;
        enum err e = one_of(r, "fmt", fp8_formats, &which);
        return e != ERR_OK ? e : read_block(r, "weight_block_size", q->block);
    }
    if (strcmp(s, "mxfp4") == 0) {
        q->method = QUANT_MXFP4;
        return ERR_OK;
    }
    return conf_refuse(r, "quant_method", known);
}

enum err conf_read_quant(struct conf_reader *r, struct quant_conf *q) {
    struct json_value *obj = NULL;
    struct conf_reader inner = *r;
    enum json_got g = json_get_obj(r->obj, "quantization_config", &obj);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    if (g != JSON_OK) return conf_refuse(r, "quantization_config", "absent or an object");
    inner.obj = obj;
    inner.prefix = "quantization_config.";
    inner.aliases = NULL;
    return read_method(&inner, NULL, q);
}

enum err conf_read_quant_beside(struct quant_conf *q, const char *dir, struct errbuf *eb) {
    static const char *const files[][2] = {{"quantize_config.json", "gptq"},
                                           {"quant_config.json", "awq"}};
    for (int i = 0; i < 2 && q->method == QUANT_NONE; i++) {
        char path[PATH_BYTES];
        struct errbuf why = {0};
        struct json_value *root = NULL;
        struct conf_reader r = {.file = files[i][0], .prefix = "", .eb = eb};
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, files[i][0]) >= sizeof(path)) break;
        enum err e = json_read_file(&root, path, CONFIG_BYTES_MAX, NULL, &why);
        if (e == ERR_NOT_FOUND) continue;
        if (e != ERR_OK) return err_set(eb, ERR_BAD_FILE, "%s", why.text);
        if (json_as_obj(root, &r.obj) != JSON_OK)
            e = err_set(eb, ERR_BAD_FILE, "%s: must be a JSON object", files[i][0]);
        else
            e = read_method(&r, files[i][1], q);
        json_put(root);
        if (e != ERR_OK) return e;
    }
    return ERR_OK;
}
