/* gguf_header: from bytes to checked pairs and tensor infos. */
#include <stdlib.h>
#include <string.h>
#include "common/base/gguf.h"
#include "common/base/lfs_pointer.h"

enum { ALIGN_DEFAULT = 32, PAIR_BYTES_MIN = 8 + 4 + 1, INFO_BYTES_MIN = 8 + 4 + 8 + 4 + 8 };

/* ---- a cursor that never leaves the bytes */
struct rd {
    const uint8_t *p;
    uint64_t n, at;
    bool over; /* it would have */
};

static uint64_t take(struct rd *r, int bytes) {
    uint64_t v = 0;
    if (r->over || r->n - r->at < (uint64_t)bytes) {
        r->over = true;
        return 0;
    }
    for (int i = 0; i < bytes; i++) v |= (uint64_t)r->p[r->at + (uint64_t)i] << (8 * i);
    r->at += (uint64_t)bytes;
    return v;
}

static const uint8_t *skip(struct rd *r, uint64_t bytes) {
    const uint8_t *p = r->p + r->at;
    if (r->over || r->n - r->at < bytes) {
        r->over = true;
        return NULL;
    }
    r->at += bytes;
    return p;
}

static const char *take_str(struct rd *r, uint64_t *n) {
    *n = take(r, 8);
    return (const char *)skip(r, *n);
}

static const uint8_t kind_bytes[GGUF_KINDS] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* ---- tensor types */
static const struct type {
    const char *name;
    int elements, bytes;
} types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},   [14] = {"Q6_K", 256, 210},
    [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},        [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},    [41] = {"Q1_0", 128, 18},    [42] = {"Q2_0", 64, 18},
};

const char *gguf_type_name(uint32_t type, int *elements, int *bytes) {
    if (type >= sizeof(types) / sizeof(types[0]) || types[type].name == NULL) return NULL;
    if (elements != NULL) *elements = types[type].elements;
    if (bytes != NULL) *bytes = types[type].bytes;
    return types[type].name;
}

/* ---- pairs */
static enum err read_value(struct rd *r, struct gguf_pair *p, struct errbuf *eb) {
    const int key_len = p->key_bytes < 80 ? (int)p->key_bytes : 80;
    uint64_t kind = take(r, 4);
    p->n = 1;
    if (kind == GGUF_ARRAY) {
        p->is_array = true;
        kind = take(r, 4);
        p->n = take(r, 8);
    }
    if (!r->over && (kind >= GGUF_KINDS || kind == GGUF_ARRAY))
        return err_set(eb, ERR_BAD_FILE, "key %.*s: its type must be from 0 to 12%s, got %llu",
                       key_len, p->key, p->is_array ? " and no array of arrays" : "",
                       (unsigned long long)kind);
    p->kind = (enum gguf_kind)kind;
    p->value = r->p + r->at;
    if (r->over) return ERR_OK; /* the caller says so */
    if (kind == GGUF_STRING) {
        uint64_t n;
        for (uint64_t i = 0; i < p->n && !r->over; i++) take_str(r, &n);
    } else {
        uint64_t bytes;
        if (__builtin_mul_overflow(p->n, (uint64_t)kind_bytes[kind], &bytes))
            r->over = true;
        else
            skip(r, bytes);
    }
    for (uint64_t i = 0; kind == GGUF_BOOL && i < p->n && !r->over; i++)
        if (p->value[i] > 1)
            return err_set(eb, ERR_BAD_FILE, "key %.*s: a bool must be 0 or 1, got %u", key_len,
                           p->key, p->value[i]);
    return ERR_OK;
}

static int by_key(const void *a, const void *b) {
    const struct gguf_pair *x = a, *y = b;
    const size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    const int c = memcmp(x->key, y->key, n);
    return c != 0 ? c : x->key_bytes < y->key_bytes ? -1 : x->key_bytes > y->key_bytes;
}

static enum err read_pairs(struct rd *r, struct gguf_header *h, uint64_t n, struct errbuf *eb) {
    if (n > GGUF_PAIRS_MAX || n > (r->n - r->at) / PAIR_BYTES_MIN)
        return err_set(eb, ERR_BAD_FILE, "%llu pairs of metadata: at most %d, and no more than fit",
                       (unsigned long long)n, GGUF_PAIRS_MAX);
    if ((h->pairs = calloc(n + 1, sizeof(*h->pairs))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for the metadata");
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_pair *p = &h->pairs[h->n_pairs++];
        uint64_t key_bytes;
        p->key = take_str(r, &key_bytes);
        p->key_bytes = (size_t)key_bytes;
        if (!r->over && (key_bytes == 0 || key_bytes > GGUF_KEY_BYTES_MAX))
            return err_set(eb, ERR_BAD_FILE, "a key must have 1 to %d bytes, got %llu",
                           GGUF_KEY_BYTES_MAX, (unsigned long long)key_bytes);
        enum err e = r->over ? ERR_OK : read_value(r, p, eb);
        if (e != ERR_OK) return e;
        if (r->over)
            return err_set(eb, ERR_BAD_FILE, "the file ends inside pair %llu of its metadata",
                           (unsigned long long)i);
    }
    qsort(h->pairs, h->n_pairs, sizeof(*h->pairs), by_key);
    for (size_t i = 1; i < h->n_pairs; i++)
        if (by_key(&h->pairs[i - 1], &h->pairs[i]) == 0)
            return err_set(eb, ERR_BAD_FILE, "key %.*s is there twice",
                           h->pairs[i].key_bytes < 80 ? (int)h->pairs[i].key_bytes : 80,
                           h->pairs[i].key);
    return ERR_OK;
}

/* ---- tensors */
static enum err read_name(struct rd *r, struct gguf_tensor *t, struct errbuf *eb) {
    uint64_t n;
    const char *s = take_str(r, &n);
    if (r->over) return ERR_OK;
    if (n == 0 || n > GGUF_NAME_BYTES_MAX || memchr(s, 0, n) != NULL)
        return err_set(eb, ERR_BAD_FILE,
                       "a tensor's name must have 1 to %d bytes without zeros, got %llu",
                       GGUF_NAME_BYTES_MAX, (unsigned long long)n);
    memcpy(t->name, s, n);
    return ERR_OK;
}

/* Sets t->bytes; offsets are checked once the data's place is known. */
static enum err read_info(struct rd *r, struct gguf_tensor *t, struct errbuf *eb) {
    enum err e = read_name(r, t, eb);
    if (e != ERR_OK) return e;
    const uint64_t n_dims = take(r, 4);
    if (!r->over && (n_dims == 0 || n_dims > GGUF_DIMS_MAX))
        return err_set(eb, ERR_BAD_FILE, "tensor %s: must have 1 to %d dimensions, got %llu",
                       t->name, GGUF_DIMS_MAX, (unsigned long long)n_dims);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < GGUF_DIMS_MAX; i++) t->dims[i] = i < t->n_dims ? take(r, 8) : 1;
    t->type = (uint32_t)take(r, 4);
    t->begin = take(r, 8);
    if (r->over) return ERR_OK;
    int elements, bytes;
    const char *name = gguf_type_name(t->type, &elements, &bytes);
    if (name == NULL)
        return err_set(eb, ERR_BAD_FILE, "tensor %s: type %u is none that GGUF defines", t->name,
                       t->type);
    if (t->dims[0] % (uint64_t)elements != 0)
        return err_set(eb, ERR_BAD_FILE,
                       "tensor %s: its rows must be a multiple of %d long for type %s, got %llu",
                       t->name, elements, name, (unsigned long long)t->dims[0]);
    t->bytes = t->dims[0] / (uint64_t)elements;
    bool over = __builtin_mul_overflow(t->bytes, (uint64_t)bytes, &t->bytes);
    for (int i = 1; i < GGUF_DIMS_MAX; i++)
        over = __builtin_mul_overflow(t->bytes, t->dims[i], &t->bytes) || over;
    uint64_t count = 1; /* of elements: a size of 0 must not hide a product that wraps */
    for (int i = 0; i < GGUF_DIMS_MAX; i++)
        over = __builtin_mul_overflow(count, t->dims[i] > 0 ? t->dims[i] : 1, &count) || over;
    if (over)
        return err_set(eb, ERR_BAD_FILE, "tensor %s: the product of its sizes exceeds 64 bits",
                       t->name);
    return ERR_OK;
}

static int by_begin(const void *a, const void *b) {
    const struct gguf_tensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                                : (x->bytes < y->bytes ? -1 : x->bytes > y->bytes);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static enum err place_tensors(struct gguf_header *h, uint64_t data, uint64_t align,
                              uint64_t file_bytes, struct errbuf *eb) {
    for (size_t i = 0; i < h->n_tensors; i++) {
        struct gguf_tensor *t = &h->tensors[i];
        uint64_t end;
        if (t->begin % align != 0)
            return err_set(eb, ERR_BAD_FILE, "tensor %s: offset %llu is no multiple of %llu",
                           t->name, (unsigned long long)t->begin, (unsigned long long)align);
        if (__builtin_add_overflow(t->begin, data, &t->begin) ||
            __builtin_add_overflow(t->begin, t->bytes, &end) || end > file_bytes)
            return err_set(eb, ERR_BAD_FILE,
                           "tensor %s: its %llu bytes lie beyond the file's end at %llu", t->name,
                           (unsigned long long)t->bytes, (unsigned long long)file_bytes);
    }
    qsort(h->tensors, h->n_tensors, sizeof(*h->tensors), by_begin);
    for (size_t i = 1; i < h->n_tensors; i++) {
        const struct gguf_tensor *a = &h->tensors[i - 1], *b = &h->tensors[i];
        if (b->begin < a->begin + a->bytes)
            return err_set(eb, ERR_BAD_FILE, "tensors %s and %s overlap", a->name, b->name);
    }
    qsort(h->tensors, h->n_tensors, sizeof(*h->tensors), by_name);
    for (size_t i = 1; i < h->n_tensors; i++)
        if (by_name(&h->tensors[i - 1], &h->tensors[i]) == 0)
            return err_set(eb, ERR_BAD_FILE, "tensor %s is there twice", h->tensors[i].name);
    return ERR_OK;
}

static enum err read_alignment(const struct gguf_header *h, uint64_t *align, struct errbuf *eb) {
    static const char key[] = "general.alignment";
    const struct gguf_pair want = {.key = key, .key_bytes = sizeof(key) - 1};
    const struct gguf_pair *p = bsearch(&want, h->pairs, h->n_pairs, sizeof(*h->pairs), by_key);
    int64_t v = ALIGN_DEFAULT;
    if (p != NULL && (p->is_array || p->kind != GGUF_U32 || !gguf_pair_i64(p, 0, &v) || v == 0 ||
                      (v & (v - 1)) != 0))
        return err_set(eb, ERR_BAD_FILE, "%s must be a power of two, got %lld", key, (long long)v);
    *align = (uint64_t)v;
    return ERR_OK;
}

static enum err read_tensors(struct rd *r, struct gguf_header *h, uint64_t n, uint64_t file_bytes,
                             struct errbuf *eb) {
    uint64_t align = ALIGN_DEFAULT;
    if (n > GGUF_TENSORS_MAX || n > (r->n - r->at) / INFO_BYTES_MIN)
        return err_set(eb, ERR_BAD_FILE, "%llu tensors: at most %d, and no more than fit",
                       (unsigned long long)n, GGUF_TENSORS_MAX);
    if ((h->tensors = calloc(n + 1, sizeof(*h->tensors))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for the list of tensors");
    for (uint64_t i = 0; i < n; i++) {
        enum err e = read_info(r, &h->tensors[h->n_tensors++], eb);
        if (e != ERR_OK) return e;
        if (r->over)
            return err_set(eb, ERR_BAD_FILE, "the file ends inside the info of tensor %llu",
                           (unsigned long long)i);
    }
    enum err e = read_alignment(h, &align, eb);
    if (e != ERR_OK) return e;
    h->bytes = r->at;
    const uint64_t gap = (align - r->at % align) % align;
    if (n > 0 && gap > file_bytes - r->at)
        return err_set(eb, ERR_BAD_FILE, "the file ends in front of its tensors");
    return place_tensors(h, r->at + gap, align, file_bytes, eb);
}

static enum err read_all(struct rd *r, struct gguf_header *h, uint64_t file_bytes,
                         struct errbuf *eb) {
    const uint64_t magic = take(r, 4), version = take(r, 4);
    if (is_lfs_pointer(r->p, r->n)) return err_set(eb, ERR_BAD_FILE, LFS_POINTER_TEXT);
    if (r->over || magic != 0x46554747)
        return err_set(eb, ERR_BAD_FILE, "does not begin with \"GGUF\"");
    if (version != 0 && (version & 0xffff) == 0)
        return err_set(eb, ERR_BAD_FILE, "is a big-endian file; little-endian ones are read");
    if (version != 2 && version != 3)
        return err_set(eb, ERR_BAD_FILE, "GGUF version must be 2 or 3, got %llu",
                       (unsigned long long)version);
    const uint64_t n_tensors = take(r, 8), n_pairs = take(r, 8);
    if (r->over) return err_set(eb, ERR_BAD_FILE, "the file ends inside its header");
    enum err e = read_pairs(r, h, n_pairs, eb);
    return e == ERR_OK ? read_tensors(r, h, n_tensors, file_bytes, eb) : e;
}

enum err gguf_header_parse(struct gguf_header *out, const uint8_t *p, size_t n, uint64_t file_bytes,
                           struct errbuf *eb) {
    struct rd r = {.p = p, .n = n};
    *out = (struct gguf_header){0};
    if (file_bytes < n) return err_set(eb, ERR_BAD_FILE, "the file is shorter than its header");
    enum err e = read_all(&r, out, file_bytes, eb);
    if (e != ERR_OK) gguf_header_free(out);
    return e;
}

void gguf_header_free(struct gguf_header *h) {
    free(h->pairs);
    free(h->tensors);
    *h = (struct gguf_header){0};
}

/* ---- values */
bool gguf_pair_i64(const struct gguf_pair *p, uint64_t idx, int64_t *out) {
    if (p->kind == GGUF_STRING || p->kind == GGUF_F32 || p->kind == GGUF_F64 ||
        p->kind == GGUF_BOOL || idx >= p->n)
        return false;
    struct rd r = {.p = p->value, .n = UINT64_MAX, .at = idx * kind_bytes[p->kind]};
    const uint64_t v = take(&r, kind_bytes[p->kind]);
    switch (p->kind) {
    case GGUF_I8: *out = (int8_t)v; break;
    case GGUF_I16: *out = (int16_t)v; break;
    case GGUF_I32: *out = (int32_t)v; break;
    case GGUF_U64:
        if (v > INT64_MAX) return false;
        *out = (int64_t)v;
        break;
    default: *out = (int64_t)v; break;
    }
    return true;
}

bool gguf_pair_f64(const struct gguf_pair *p, uint64_t idx, double *out) {
    int64_t i;
    if (idx >= p->n) return false;
    if (p->kind == GGUF_F32) {
        float f;
        memcpy(&f, p->value + idx * sizeof(f), sizeof(f));
        *out = (double)f;
        return true;
    }
    if (p->kind == GGUF_F64) {
        memcpy(out, p->value + idx * sizeof(*out), sizeof(*out));
        return true;
    }
    if (!gguf_pair_i64(p, idx, &i)) return false;
    *out = (double)i;
    return true;
}

bool gguf_next_str(const struct gguf_pair *p, struct gguf_cursor *at, const char **s, size_t *n) {
    if (p->kind != GGUF_STRING || at->idx >= p->n) return false;
    struct rd r = {.p = p->value, .n = UINT64_MAX, .at = at->offset}; /* checked when it was read */
    uint64_t len;
    *s = take_str(&r, &len);
    *n = (size_t)len;
    at->idx++;
    at->offset = r.at;
    return true;
}
