/* model_conf_pooling: what a folder of sentence-transformers says of how a text becomes a vector:
 * modules.json lists the steps, the folder of the Pooling step has a config.json. A step that would
 * change the numbers and is not known here is refused. Vectors are always brought to length one,
 * unless who asks says otherwise, so Normalize is no more than agreed with. */
#include <stdio.h>
#include <string.h>
#include "common/engine/model_conf_read.h"

enum { FILE_BYTES_MAX = 1024 * 1024, PATH_BYTES = 4096 };

static bool ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Reads DIR/name; ERR_NOT_FOUND: there is none, and eb is as it was. */
static enum err read_json(struct json_value **root, const char *dir, const char *name,
                          struct errbuf *eb) {
    char path[PATH_BYTES];
    struct errbuf why = {0};
    const int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(eb, ERR_BAD_FILE, "the model folder's name is too long");
    enum err e = json_read_file(root, path, FILE_BYTES_MAX, NULL, &why);
    if (e == ERR_OK || e == ERR_NOT_FOUND) return e;
    return err_set(eb, ERR_BAD_FILE, "%s", why.text);
}

static enum err read_modes(struct conf_reader *r, struct model_conf *c) {
    static const struct {
        const char *flag, *name;
        enum pooling pooling; /* POOL_NONE: refused when set */
    } modes[] = {
        {"pooling_mode_cls_token", "cls", POOL_CLS},
        {"pooling_mode_mean_tokens", "mean", POOL_MEAN},
        {"pooling_mode_lasttoken", "lasttoken", POOL_LAST},
        {"pooling_mode_max_tokens", "max", POOL_NONE},
        {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOL_NONE},
        {"pooling_mode_weightedmean_tokens", "weightedmean", POOL_NONE},
    };
    const char *name = NULL;
    size_t n = 0;
    int set = 0;
    if (json_get_str(r->obj, "pooling_mode", &name, &n) != JSON_OK) name = NULL;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        bool on = false;
        enum err e = conf_bool(r, modes[i].flag, false, &on);
        if (e != ERR_OK) return e;
        if (name != NULL) on = strcmp(name, modes[i].name) == 0;
        if (!on) continue;
        if (modes[i].pooling == POOL_NONE)
            return conf_refuse(r, name != NULL ? "pooling_mode" : modes[i].flag,
                               "absent or false: cls, mean and lasttoken are supported");
        c->pooling = modes[i].pooling;
        set++;
    }
    if (set == 1) return ERR_OK;
    return conf_refuse(r, "pooling_mode", "one of cls, mean and lasttoken, by name or as flag");
}

static enum err read_pooling_step(struct model_conf *c, const char *dir, const char *folder,
                                  struct errbuf *eb) {
    char name[512];
    struct json_value *root = NULL;
    const int n = snprintf(name, sizeof(name), "%s/config.json", folder);
    if (n < 0 || (size_t)n >= sizeof(name) || strstr(folder, "..") != NULL)
        return err_set(eb, ERR_BAD_FILE, "modules.json: the path of Pooling is not inside");
    struct conf_reader r = {.file = name, .prefix = "", .eb = eb};
    enum err e = read_json(&root, dir, name, eb);
    if (e == ERR_NOT_FOUND) return err_set(eb, ERR_BAD_FILE, "%s: is missing", name);
    if (e != ERR_OK) return e;
    if (json_as_obj(root, &r.obj) != JSON_OK)
        e = err_set(eb, ERR_BAD_FILE, "%s: must be a JSON object", name);
    else
        e = read_modes(&r, c);
    json_put(root);
    return e;
}

static enum err read_step(struct model_conf *c, const char *dir, const struct json_value *step,
                          struct errbuf *eb) {
    const char *type = "", *path = "";
    size_t n = 0;
    struct json_value *o = NULL;
    if (json_as_obj((struct json_value *)step, &o) != JSON_OK ||
        json_get_str(o, "type", &type, &n) != JSON_OK)
        return err_set(eb, ERR_BAD_FILE, "modules.json: must be a list of objects with type");
    (void)json_get_str(o, "path", &path, &n);
    if (ends_with(type, ".Transformer") || ends_with(type, ".Normalize")) return ERR_OK;
    if (ends_with(type, ".Pooling")) return read_pooling_step(c, dir, path, eb);
    return err_set(eb, ERR_BAD_FILE,
                   "modules.json: type must be Transformer, Pooling or Normalize, got %.100s",
                   type);
}

/* sentence_bert_config.json: the longest text of its training. */
static enum err read_length(struct model_conf *c, const char *dir, struct errbuf *eb) {
    struct json_value *root = NULL;
    struct conf_reader r = {.file = "sentence_bert_config.json", .prefix = "", .eb = eb};
    const int64_t all = c->context_max;
    int64_t n = all;
    enum err e = read_json(&root, dir, r.file, eb);
    if (e != ERR_OK) return e == ERR_NOT_FOUND ? ERR_OK : e;
    if (json_as_obj(root, &r.obj) == JSON_OK)
        e = conf_int(&r, "max_seq_length", 1, INT32_MAX, &all, &n);
    if (n < all) c->context_max = (int)n;
    json_put(root);
    return e;
}

enum err conf_read_pooling(struct model_conf *c, const char *dir, struct errbuf *eb) {
    struct json_value *root = NULL, *steps = NULL;
    enum err e = read_json(&root, dir, "modules.json", eb);
    if (e != ERR_OK) return e == ERR_NOT_FOUND ? ERR_OK : e;
    if (json_as_arr(root, &steps) != JSON_OK)
        e = err_set(eb, ERR_BAD_FILE, "modules.json: must be a list");
    for (size_t i = 0; e == ERR_OK && i < json_arr_len(steps); i++)
        e = read_step(c, dir, json_arr_at(steps, i), eb);
    json_put(root);
    c->is_embedder = true;
    return e == ERR_OK ? read_length(c, dir, eb) : e;
}

enum err conf_read_matryoshka(struct conf_reader *r, struct model_conf *c) {
    struct matryoshka *m = &c->matryoshka;
    struct json_value *list = NULL;
    enum err e = conf_bool(r, "is_matryoshka", false, &m->any);
    if (e != ERR_OK) return e;
    enum json_got g = json_get_arr(r->obj, "matryoshka_dimensions", &list);
    if (g == JSON_ABSENT || g == JSON_NULL) return ERR_OK;
    char allowed[96];
    snprintf(allowed, sizeof(allowed), "a list of 1 to %d sizes from 1 to %d", MATRYOSHKA_SIZES_MAX,
             c->hidden);
    if (g != JSON_OK || json_arr_len(list) < 1 || json_arr_len(list) > MATRYOSHKA_SIZES_MAX)
        return conf_refuse(r, "matryoshka_dimensions", allowed);
    for (size_t i = 0; i < json_arr_len(list); i++) {
        int64_t size = 0;
        if (json_as_i64(json_arr_at(list, i), &size) != JSON_OK || size < 1 || size > c->hidden)
            return conf_refuse(r, "matryoshka_dimensions", allowed);
        m->sizes[m->n++] = (int)size;
    }
    m->any = false;
    return ERR_OK;
}
