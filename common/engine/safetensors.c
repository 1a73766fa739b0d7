/* safetensors: header parser and the mapping of files. No tensor arithmetic here. */
#include "common/engine/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/lfs_pointer.h"
#include "proto/json.h"

enum { INDEX_BYTES_MAX = 64 * 1024 * 1024, HEADER_PREFIX_BYTES = 8, HEADER_JSON_DEPTH_MAX = 4 };

/* ---- header */

static const struct st_dtype {
    const char *text;
    int bits;
    enum dtype dtype;
} st_dtypes[] = {
    {"F32", 32, DTYPE_F32},     {"F16", 16, DTYPE_F16},     {"BF16", 16, DTYPE_BF16},
    {"F64", 64, DTYPE_NONE},    {"I64", 64, DTYPE_NONE},    {"U64", 64, DTYPE_NONE},
    {"I32", 32, DTYPE_NONE},    {"U32", 32, DTYPE_NONE},    {"I16", 16, DTYPE_NONE},
    {"U16", 16, DTYPE_NONE},    {"I8", 8, DTYPE_NONE},      {"U8", 8, DTYPE_NONE},
    {"BOOL", 8, DTYPE_NONE},    {"F8_E4M3", 8, DTYPE_NONE}, {"F8_E5M2", 8, DTYPE_NONE},
    {"F8_E8M0", 8, DTYPE_NONE},
};

static const struct st_dtype *dtype_find(const char *text) {
    for (size_t i = 0; i < sizeof(st_dtypes) / sizeof(st_dtypes[0]); i++) {
        if (strcmp(st_dtypes[i].text, text) == 0) return &st_dtypes[i];
    }
    return NULL;
}

static enum err read_shape(struct st_tensor *t, const struct json_value *obj,
                           const struct st_dtype *d, uint64_t *bytes, struct errbuf *eb) {
    struct json_value *shape = NULL;
    if (json_get_arr(obj, "shape", &shape) != JSON_OK || json_arr_len(shape) > ST_DIMS_MAX)
        return err_set(eb, ERR_BAD_FILE, "tensor %s: shape must be a list of at most %d sizes",
                       t->name, ST_DIMS_MAX);
    uint64_t count = 1;
    t->n_dims = (int)json_arr_len(shape);
    for (int i = 0; i < t->n_dims; i++) {
        if (json_as_u64(json_arr_at(shape, (size_t)i), &t->dims[i]) != JSON_OK)
            return err_set(eb, ERR_BAD_FILE, "tensor %s: shape must hold integers from 0 on",
                           t->name);
        if (__builtin_mul_overflow(count, t->dims[i], &count))
            return err_set(eb, ERR_BAD_FILE, "tensor %s: the product of its shape exceeds 64 bits",
                           t->name);
    }
    if (__builtin_mul_overflow(count, (uint64_t)d->bits / 8, bytes))
        return err_set(eb, ERR_BAD_FILE, "tensor %s: its size exceeds 64 bits", t->name);
    return ERR_OK;
}

static enum err read_tensor(struct st_tensor *t, const char *name, const struct json_value *obj,
                            uint64_t data_begin, uint64_t file_bytes, struct errbuf *eb) {
    struct json_value *offsets = NULL, *v = (struct json_value *)obj;
    const char *text = NULL;
    size_t n = 0, name_len = strlen(name);
    uint64_t bytes = 0, begin = 0, end = 0, data_bytes = file_bytes - data_begin;
    if (name_len == 0 || name_len > ST_NAME_BYTES_MAX)
        return err_set(eb, ERR_BAD_FILE, "a tensor's name must have 1 to %d bytes, got %zu",
                       ST_NAME_BYTES_MAX, name_len);
    if ((t->name = strdup(name)) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for tensor names");
    if (json_as_obj(obj, &v) != JSON_OK)
        return err_set(eb, ERR_BAD_FILE, "tensor %s: must be an object", name);
    if (json_get_str(obj, "dtype", &text, &n) != JSON_OK)
        return err_set(eb, ERR_BAD_FILE, "tensor %s: dtype must be a string", name);
    const struct st_dtype *d = dtype_find(text);
    if (d == NULL) return err_set(eb, ERR_BAD_FILE, "tensor %s: unknown dtype %.20s", name, text);
    snprintf(t->dtype_text, sizeof(t->dtype_text), "%s", d->text);
    t->dtype = d->dtype;
    enum err e = read_shape(t, obj, d, &bytes, eb);
    if (e != ERR_OK) return e;
    if (json_get_arr(obj, "data_offsets", &offsets) != JSON_OK || json_arr_len(offsets) != 2 ||
        json_as_u64(json_arr_at(offsets, 0), &begin) != JSON_OK ||
        json_as_u64(json_arr_at(offsets, 1), &end) != JSON_OK)
        return err_set(eb, ERR_BAD_FILE, "tensor %s: data_offsets must be two integers from 0 on",
                       name);
    if (begin > end || end > data_bytes)
        return err_set(eb, ERR_BAD_FILE,
                       "tensor %s: data_offsets [%llu, %llu] must lie in the data of %llu bytes",
                       name, (unsigned long long)begin, (unsigned long long)end,
                       (unsigned long long)data_bytes);
    if (end - begin != bytes)
        return err_set(eb, ERR_BAD_FILE,
                       "tensor %s: %llu bytes of data, but dtype and shape need %llu", name,
                       (unsigned long long)(end - begin), (unsigned long long)bytes);
    t->begin = data_begin + begin;
    t->end = data_begin + end;
    return ERR_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

static int by_begin(const void *a, const void *b) {
    const struct st_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static enum err check_overlap(struct st_header *h, struct errbuf *eb) {
    qsort(h->tensors, h->n_tensors, sizeof(*h->tensors), by_begin);
    for (size_t i = 1; i < h->n_tensors; i++) {
        const struct st_tensor *a = &h->tensors[i - 1], *b = &h->tensors[i];
        if (b->begin < a->end)
            return err_set(eb, ERR_BAD_FILE, "tensors %s and %s overlap", a->name, b->name);
    }
    return ERR_OK;
}

static enum err read_tensors(struct st_header *h, struct json_value *root, uint64_t data_begin,
                             uint64_t file_bytes, struct errbuf *eb) {
    size_t n = json_obj_len(root);
    if (n > ST_TENSORS_MAX)
        return err_set(eb, ERR_BAD_FILE, "more than %d tensors", ST_TENSORS_MAX);
    if ((h->tensors = calloc(n > 0 ? n : 1, sizeof(*h->tensors))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for %zu tensors", n);
    struct json_iter it = json_iter_begin(root), last = json_iter_end(root);
    for (; !json_iter_equal(&it, &last); json_iter_next(&it)) {
        const char *name = json_iter_name(&it);
        if (strcmp(name, "__metadata__") == 0) continue;
        enum err e = read_tensor(&h->tensors[h->n_tensors++], name, json_iter_value(&it),
                                 data_begin, file_bytes, eb);
        if (e != ERR_OK) return e;
    }
    enum err e = check_overlap(h, eb);
    qsort(h->tensors, h->n_tensors, sizeof(*h->tensors), by_name);
    return e;
}

enum err st_header_parse(struct st_header *out, const uint8_t *p, size_t n, uint64_t file_bytes,
                         struct errbuf *eb) {
    *out = (struct st_header){0};
    if (n < HEADER_PREFIX_BYTES || file_bytes < n)
        return err_set(eb, ERR_BAD_FILE, "shorter than the 8 bytes of the header's length");
    if (is_lfs_pointer(p, n)) return err_set(eb, ERR_BAD_FILE, LFS_POINTER_TEXT);
    uint64_t len = 0;
    for (int i = 0; i < HEADER_PREFIX_BYTES; i++) len |= (uint64_t)p[i] << (8 * i);
    if (len > ST_HEADER_BYTES_MAX || len < 2)
        return err_set(eb, ERR_BAD_FILE, "the header's length must be from 2 to %d bytes, got %llu",
                       ST_HEADER_BYTES_MAX, (unsigned long long)len);
    if (len > n - HEADER_PREFIX_BYTES)
        return err_set(eb, ERR_BAD_FILE,
                       "the header should have %llu bytes, but the file ends before",
                       (unsigned long long)len);
    struct json_value *root = NULL, *obj = NULL;
    struct errbuf inner = {0};
    const struct json_limits lim = {.depth_max = HEADER_JSON_DEPTH_MAX, .unique_keys = true};
    enum err e = json_read(&root, (const char *)p + HEADER_PREFIX_BYTES, (size_t)len, &lim, &inner);
    if (e != ERR_OK)
        return err_set(eb, e == ERR_NO_MEMORY ? e : ERR_BAD_FILE, "header: %s", inner.text);
    if (json_as_obj(root, &obj) != JSON_OK)
        e = err_set(eb, ERR_BAD_FILE, "the header must be a JSON object");
    else
        e = read_tensors(out, obj, HEADER_PREFIX_BYTES + len, file_bytes, eb);
    json_put(root);
    if (e != ERR_OK) st_header_free(out);
    return e;
}

void st_header_free(struct st_header *h) {
    for (size_t i = 0; i < h->n_tensors; i++) free(h->tensors[i].name);
    free(h->tensors);
    *h = (struct st_header){0};
}

/* ---- a mapped model */

struct shard {
    char *name; /* in the model's folder */
    struct file_map map;
};

struct st_model {
    struct shard *shards;
    int n_shards;
    struct st_header all; /* of every shard, sorted by name */
};

static enum err join_path(char path[4096], const char *dir, const char *name, struct errbuf *eb) {
    int n = snprintf(path, 4096, "%s/%s", dir, name);
    return n > 0 && n < 4096 ? ERR_OK : err_set(eb, ERR_BAD_FILE, "%s: the path is too long", name);
}

/* Maps shard `idx` and appends its tensors to the model's. */
static enum err shard_add(struct st_model *m, int idx, const char *dir, struct errbuf *eb) {
    struct shard *s = &m->shards[idx];
    struct st_header h;
    struct errbuf inner = {0};
    char path[4096];
    enum err e = join_path(path, dir, s->name, eb);
    if (e == ERR_OK) e = file_map_open(&s->map, path, HEADER_PREFIX_BYTES, eb);
    if (e == ERR_NOT_FOUND) /* only of an index: a folder without one was looked at before */
        return err_set(eb, ERR_BAD_FILE, "%s, which model.safetensors.index.json names, is missing",
                       s->name);
    if (e != ERR_OK) return e;
    e = st_header_parse(&h, s->map.p, (size_t)s->map.bytes, s->map.bytes, &inner);
    if (e != ERR_OK) return err_set(eb, e, "%s: %s", s->name, inner.text);
    struct st_tensor *grown =
        realloc(m->all.tensors, (m->all.n_tensors + h.n_tensors + 1) * sizeof(*grown));
    if (grown == NULL) {
        st_header_free(&h);
        return err_set(eb, ERR_NO_MEMORY, "no memory for tensor names");
    }
    for (size_t i = 0; i < h.n_tensors; i++) h.tensors[i].file = idx;
    memcpy(grown + m->all.n_tensors, h.tensors, h.n_tensors * sizeof(*grown));
    m->all.tensors = grown;
    m->all.n_tensors += h.n_tensors;
    free(h.tensors);
    return ERR_OK;
}

static bool plain_name(const char *s) {
    size_t n = strlen(s);
    return n > 0 && n <= 255 && s[0] != '.' && strchr(s, '/') == NULL;
}

/* The distinct file names of weight_map, each once. */
static enum err index_shards(struct st_model *m, struct json_value *map, struct errbuf *eb) {
    struct json_iter it = json_iter_begin(map), last = json_iter_end(map);
    for (; !json_iter_equal(&it, &last); json_iter_next(&it)) {
        struct json_value *v = json_iter_value(&it);
        const char *s = NULL;
        size_t n = 0;
        bool known = false;
        if (json_as_str(v, &s, &n) != JSON_OK || strlen(s) != n || !plain_name(s))
            return err_set(
                eb, ERR_BAD_FILE,
                "model.safetensors.index.json: weight_map.%.200s must be a plain file name",
                json_iter_name(&it));
        for (int i = 0; i < m->n_shards && !known; i++) known = strcmp(m->shards[i].name, s) == 0;
        if (known) continue;
        if (m->n_shards == ST_SHARDS_MAX)
            return err_set(eb, ERR_BAD_FILE, "model.safetensors.index.json: more than %d files",
                           ST_SHARDS_MAX);
        if ((m->shards[m->n_shards].name = strdup(s)) == NULL)
            return err_set(eb, ERR_NO_MEMORY, "no memory for file names");
        m->n_shards++;
    }
    return m->n_shards > 0
               ? ERR_OK
               : err_set(eb, ERR_BAD_FILE, "model.safetensors.index.json: weight_map is empty");
}

static enum err open_index(struct st_model *m, const char *path, struct errbuf *eb) {
    struct json_value *root = NULL, *map = NULL;
    enum err e = json_read_file(&root, path, INDEX_BYTES_MAX, NULL, eb);
    if (e != ERR_OK) return e == ERR_BAD_JSON || e == ERR_TOO_LARGE ? ERR_BAD_FILE : e;
    if (json_get_obj(root, "weight_map", &map) != JSON_OK)
        e = err_set(eb, ERR_BAD_FILE, "model.safetensors.index.json: weight_map must be an object");
    else
        e = index_shards(m, map, eb);
    json_put(root);
    return e;
}

/* What people have in its place, and what to do then. */
static enum err no_files(const char *dir, struct errbuf *eb) {
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    char path[4096];
    for (int i = 0; i < 2; i++) {
        if (join_path(path, dir, pickles[i], eb) == ERR_OK && access(path, F_OK) == 0)
            return err_set(eb, ERR_BAD_FILE,
                           "%s: %s is a Python pickle, which runs code when it is read, and there "
                           "is no model.safetensors: take the model's safetensors files, or make "
                           "them: from transformers import AutoModelForCausalLM as M; "
                           "M.from_pretrained(\"%s\").save_pretrained(\"OUT\")",
                           dir, pickles[i], dir);
    }
    return err_set(eb, ERR_NOT_FOUND,
                   "%s: neither model.safetensors nor model.safetensors.index.json is there", dir);
}

static enum err list_files(struct st_model *m, const char *dir, struct errbuf *eb) {
    char path[4096];
    enum err e = join_path(path, dir, "model.safetensors", eb);
    if (e != ERR_OK) return e;
    if (access(path, F_OK) == 0) {
        m->shards[0].name = strdup("model.safetensors");
        m->n_shards = 1;
        return m->shards[0].name != NULL ? ERR_OK
                                         : err_set(eb, ERR_NO_MEMORY, "no memory for file names");
    }
    if ((e = join_path(path, dir, "model.safetensors.index.json", eb)) != ERR_OK) return e;
    if (access(path, F_OK) == 0) return open_index(m, path, eb);
    return no_files(dir, eb);
}

enum err st_model_open(struct st_model **out, const char *dir, struct errbuf *eb) {
    struct st_model *m = calloc(1, sizeof(*m));
    *out = NULL;
    if (m == NULL || (m->shards = calloc(ST_SHARDS_MAX, sizeof(*m->shards))) == NULL) {
        free(m);
        return err_set(eb, ERR_NO_MEMORY, "no memory for the model's file table");
    }
    enum err e = list_files(m, dir, eb);
    for (int i = 0; e == ERR_OK && i < m->n_shards; i++) e = shard_add(m, i, dir, eb);
    if (e == ERR_OK) {
        qsort(m->all.tensors, m->all.n_tensors, sizeof(*m->all.tensors), by_name);
        for (size_t i = 1; e == ERR_OK && i < m->all.n_tensors; i++) {
            const struct st_tensor *a = &m->all.tensors[i - 1], *b = &m->all.tensors[i];
            if (strcmp(a->name, b->name) == 0)
                e = err_set(eb, ERR_BAD_FILE, "tensor %s is in both %s and %s", a->name,
                            m->shards[a->file].name, m->shards[b->file].name);
        }
    }
    if (e != ERR_OK) st_model_close(&m);
    *out = m;
    return e;
}

void st_model_close(struct st_model **m) {
    struct st_model *x = *m;
    if (x == NULL) return;
    for (int i = 0; i < x->n_shards; i++) {
        file_map_close(&x->shards[i].map);
        free(x->shards[i].name);
    }
    free(x->shards);
    st_header_free(&x->all);
    free(x);
    *m = NULL;
}

const struct file_map *st_model_shard(const struct st_model *m, int idx) {
    return idx >= 0 && idx < m->n_shards ? &m->shards[idx].map : NULL;
}

size_t st_model_count(const struct st_model *m) {
    return m->all.n_tensors;
}

const struct st_tensor *st_model_at(const struct st_model *m, size_t idx) {
    return &m->all.tensors[idx];
}

const struct st_tensor *st_model_find(const struct st_model *m, const char *name) {
    const struct st_tensor key = {.name = (char *)name};
    if (m->all.n_tensors == 0) return NULL;
    return bsearch(&key, m->all.tensors, m->all.n_tensors, sizeof(key), by_name);
}

const char *st_model_file(const struct st_model *m, const struct st_tensor *t) {
    return m->shards[t->file].name;
}

const uint8_t *st_model_data(const struct st_model *m, const struct st_tensor *t) {
    return m->shards[t->file].map.p + t->begin;
}

void st_model_drop(const struct st_model *m, const struct st_tensor *t, uint64_t from, uint64_t n) {
    file_map_drop(&m->shards[t->file].map, t->begin + from, n);
}
