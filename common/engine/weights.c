/* weights: the list of tensors a config asks for, and their way from the file into panels. */
#include "common/engine/weights.h"

#include <openssl/sha.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/half.h"
#include "common/engine/tensor_map.h"
#include "common/engine/tensor_source.h"
#include "common/engine/weights_cache.h"

enum {
    NAME_BYTES = TENSOR_NAME_BYTES,
    STEP_BYTES = 8 * 1024 * 1024,
    ALIGN_BYTES = 64,
    SAMPLE_BYTES = 64, /* of each tensor */
    HASH_STEP_BYTES = 4 * 1024 * 1024,
};
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* One tensor to load: into a matrix or a vector. */
struct slot {
    char name[NAME_BYTES]; /* HuggingFace's: what the hash is over */
    char file_name[NAME_BYTES];
    struct matrix *matrix; /* NULL: a vector */
    float **vector;
    int n, k;         /* vector: n values, k is 1 */
    int from;         /* rows of the tensor before them are another's, and there may be more */
    enum dtype dtype; /* of the matrix */
    uint64_t at;      /* offset in the packed data */
    bool pairs;       /* rows of a head lie in the file as pairs: see model_conf.rope_pairs */
    struct tensor t;
    uint8_t digest[16]; /* XXH3-128 of its bytes in the file */
};

struct loader {
    const struct model_conf *c;
    const struct kernels *kn;
    struct pool *pool;
    struct tensor_source *files;
    const char *root; /* of the tensors' names */
    struct weights *w;
    struct slot *slots;
    int n_slots;
    float *rows; /* [threads][PANEL_ROWS][k_max]: scratch */
    size_t rows_stride;
    void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
    const atomic_bool *cancel;
    uint64_t done_bytes, total_bytes;
    struct wc_file cache;
    struct wc_header want; /* what a cache file must say */
    bool hashed;           /* w->hash is known */
    struct weights_place place;
    uint64_t *sums; /* of the chunks of the data */

    /* the pool region that runs: panels of one step of one slot */
    const struct slot *slot;
    int row_first, n_rows;
};

static bool cancelled(const struct loader *l) {
    return l->cancel != NULL && atomic_load_explicit(l->cancel, memory_order_relaxed);
}

/* ---- what a config asks for */

static struct slot *add_slot(struct loader *l, struct matrix *matrix, float **vector, int n, int k,
                             enum dtype dtype) {
    struct slot *s = &l->slots[l->n_slots++];
    *s = (struct slot){.matrix = matrix, .vector = vector, .n = n, .k = k, .dtype = dtype};
    return s;
}

/* The family's names begin with one of its roots: that under which there is an embedding. */
static const char *find_root(const struct loader *l, const struct tensor_names *names) {
    char name[NAME_BYTES];
    struct tensor t;
    for (int i = 0; i < TENSOR_ROOTS_MAX; i++) {
        snprintf(name, sizeof(name), "%s%s", names->roots[i], names->rows[0].name);
        if (tensor_source_find(l->files, name, &t)) return names->roots[i];
    }
    return names->roots[0];
}

static void name_slot(const struct loader *l, struct slot *s, const struct tensor_row *r,
                      int layer) {
    char prefix[NAME_BYTES] = "", gguf[NAME_BYTES] = "";
    const struct tensor_names *names = tensor_names_of(l->c);
    if (tensor_row_in_layer(r)) {
        snprintf(prefix, sizeof(prefix), names->layer, layer);
        snprintf(gguf, sizeof(gguf), "blk.%d.", layer);
    }
    if (r->name[0] == '/')
        snprintf(s->name, sizeof(s->name), "%s", r->name + 1);
    else
        snprintf(s->name, sizeof(s->name), "%.16s%.32s%.40s", l->root, prefix, r->name);
    if (tensor_source_is_gguf(l->files))
        snprintf(s->file_name, sizeof(s->file_name), "%.32s%.60s", gguf,
                 r->gguf != NULL ? r->gguf : "none");
    else
        snprintf(s->file_name, sizeof(s->file_name), "%s", s->name);
}

static char *field_of(const struct loader *l, const struct tensor_row *r, int layer) {
    struct weights *w = l->w;
    void *at = w;
    switch (r->place) {
    case IN_LAYER: at = &w->layers[layer]; break;
    case IN_NORMS: at = &w->norms[2 * layer]; break;
    case IN_FIRST_NORM: at = &w->norms[0]; break;
    case IN_LAST_NORM: at = &w->norms[2 * l->c->n_layers]; break;
    case IN_MODEL: break;
    }
    return (char *)at + r->offset;
}

/* The matrices over the vocabulary keep eight bits:
 * docs/decisions/2026-11-21-quantised-weights.md */
static enum dtype dtype_of_row(const struct loader *l, const struct tensor_row *r) {
    if (r->as_f32) return DTYPE_F32;
    return r->place == IN_MODEL && l->w->dtype == DTYPE_INT4 ? DTYPE_INT8 : l->w->dtype;
}

static void plan_row(struct loader *l, const struct tensor_row *r, int layer) {
    const struct model_conf *c = l->c;
    char *field = field_of(l, r, layer);
    struct tensor t;
    if (!tensor_row_present(c, r, layer)) return;
    struct slot *s = add_slot(l, r->is_matrix ? (struct matrix *)(void *)field : NULL,
                              r->is_matrix ? NULL : (float **)(void *)field, tensor_extent(c, r->n),
                              tensor_extent(c, r->k), dtype_of_row(l, r));
    s->from = tensor_extent(c, r->from);
    s->pairs = c->rope_pairs &&
               (r->offset == offsetof(struct layer_weights, q) ||
                r->offset == offsetof(struct layer_weights, k) ||
                r->offset == offsetof(struct layer_weights, q_bias) ||
                r->offset == offsetof(struct layer_weights, k_bias)) &&
               r->place == IN_LAYER;
    name_slot(l, s, r, layer);
    if (s->from > 0) {
        const size_t at = strlen(s->name);
        snprintf(s->name + at, sizeof(s->name) - at, "#%d", s->from);
    }
    if (r->when == UNTIED && c->is_embedder && !tensor_source_find(l->files, s->file_name, &t))
        l->n_slots--;
}

static void plan(struct loader *l) {
    const struct tensor_names *names = tensor_names_of(l->c);
    l->root = find_root(l, names);
    int first = 0;
    while (!tensor_row_in_layer(&names->rows[first])) plan_row(l, &names->rows[first++], 0);
    for (int layer = 0; layer < l->c->n_layers; layer++)
        for (int i = first; i < names->n_rows; i++)
            if (tensor_row_in_layer(&names->rows[i])) plan_row(l, &names->rows[i], layer);
    for (int i = first; i < names->n_rows; i++)
        if (!tensor_row_in_layer(&names->rows[i])) plan_row(l, &names->rows[i], 0);
}

/* ---- checks and memory */

static size_t slot_bytes(const struct slot *s) {
    size_t n = s->matrix != NULL
                   ? ((size_t)s->n + PANEL_ROWS - 1) / PANEL_ROWS * panel_bytes(s->k, s->dtype)
                   : (size_t)s->n * sizeof(float);
    return (n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Checkpoints of TensorFlow times call a norm's weight gamma and its bias beta. */
static bool find_tensor(const struct loader *l, struct slot *s) {
    static const char *const tails[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
    const size_t n = strlen(s->file_name);
    if (tensor_source_find(l->files, s->file_name, &s->t)) return true;
    for (int i = 0; i < 2; i++) {
        const size_t tail = strlen(tails[i][0]);
        char name[NAME_BYTES];
        if (n < tail || strcmp(s->file_name + n - tail, tails[i][0]) != 0) continue;
        snprintf(name, sizeof(name), "%.*s%s", (int)(n - tail), s->file_name, tails[i][1]);
        if (!tensor_source_find(l->files, name, &s->t)) continue;
        snprintf(s->file_name, sizeof(s->file_name), "%s", name);
        return true;
    }
    return false;
}

/* Rows of a tensor of which each of some slots takes a part; those stand side by side. */
static int rows_in_file(const struct loader *l, const struct slot *s) {
    int rows = s->from + s->n;
    for (const struct slot *o = s - l->slots > 2 ? s - 2 : l->slots;
         o < l->slots + l->n_slots && o <= s + 2; o++)
        if (strcmp(o->file_name, s->file_name) == 0 && o->from + o->n > rows) rows = o->from + o->n;
    return rows;
}

static enum err check_slot(struct loader *l, struct slot *s, struct errbuf *eb) {
    const char *by = tensor_source_is_gguf(l->files) ? "the metadata" : "config.json";
    const int rows = rows_in_file(l, s);
    struct tensor *t = &s->t;
    if (!find_tensor(l, s)) {
        return err_set(eb, ERR_BAD_FILE, "%s: tensor %s, which %s asks for, is missing",
                       tensor_source_file(l->files, 0)->name, s->file_name, by);
    }
    int dims = s->matrix != NULL ? 2 : 1;
    if (t->n_dims != dims || t->dims[0] != (uint64_t)rows ||
        (dims == 2 && t->dims[1] != (uint64_t)s->k)) {
        char got[TENSOR_DIMS_MAX * 21 + 1] = "", want[32];
        for (int i = 0; i < t->n_dims; i++)
            snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%llu", i > 0 ? ", " : "",
                     (unsigned long long)t->dims[i]);
        snprintf(want, sizeof(want), dims == 2 ? "%d, %d" : "%d", rows, s->k);
        return err_set(eb, ERR_BAD_FILE, "%s: tensor %s must have shape [%s] by %s, got [%s]",
                       t->file, s->file_name, want, by, got);
    }
    if (t->type == NULL)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s has type %s, allowed are F32, F16, BF16, and of GGUF Q8_0, "
                       "Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4",
                       t->file, s->file_name, t->type_name);
    if (s->matrix == NULL && t->type->elements > 1)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s has type %s, a vector may be F32, F16 or BF16", t->file,
                       s->file_name, t->type_name);
    const size_t row_bytes = tensor_row_bytes(t->type, s->k);
    t->data += (size_t)s->from * row_bytes;
    t->bytes = (size_t)s->n * row_bytes;
    l->total_bytes += t->bytes;
    l->w->n_params += (uint64_t)s->n * (uint64_t)s->k;
    s->at = l->w->bytes;
    l->w->bytes += slot_bytes(s);
    size_t row = (size_t)s->k;
    if (s->matrix != NULL && row > l->rows_stride) l->rows_stride = row;
    return ERR_OK;
}

static int by_file_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What checkpoints carry beside what is computed with, and which changes nothing. */
static bool harmless(const struct loader *l, const char *name) {
    static const char *const tails[] = {".rotary_emb.inv_freq", ".attn.masked_bias",
                                        ".self_attn.rotary_emb.cos_cached"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        if (n > strlen(tails[i]) && strcmp(name + n - strlen(tails[i]), tails[i]) == 0) return true;
    for (const char *const *u = tensor_names_of(l->c)->unused; *u != NULL; u++) {
        const size_t root = strncmp(name, l->root, strlen(l->root)) == 0 ? strlen(l->root) : 0;
        if (strncmp(name, *u, strlen(*u)) == 0 || strncmp(name + root, *u, strlen(*u)) == 0)
            return true;
    }
    if (strcmp(name, "lm_head.weight") == 0) return l->c->tied || l->c->no_head;
    return strcmp(name, "rope_freqs.weight") == 0; /* model_conf has read it */
}

/* A tensor that nothing reads means that the model is not the one that would be computed. */
static enum err check_unused(const struct loader *l, struct errbuf *eb) {
    const char **names = malloc((size_t)l->n_slots * sizeof(*names));
    enum err e = ERR_OK;
    if (names == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the list of tensors");
    for (int i = 0; i < l->n_slots; i++) names[i] = l->slots[i].file_name;
    qsort(names, (size_t)l->n_slots, sizeof(*names), by_file_name);
    for (size_t i = 0; e == ERR_OK && i < tensor_source_count(l->files); i++) {
        struct tensor t;
        tensor_source_at(l->files, i, &t);
        if (bsearch(&t.name, names, (size_t)l->n_slots, sizeof(*names), by_file_name) == NULL &&
            !harmless(l, t.name))
            e = err_set(eb, ERR_BAD_FILE,
                        "%s: tensor %s is not used by the family %s: this is another model", t.file,
                        t.name, l->c->family);
    }
    free(names);
    return e;
}

static void lay_out(struct loader *l, uint8_t *base) {
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        if (s->matrix != NULL)
            *s->matrix =
                (struct matrix){.panels = base + s->at, .n = s->n, .k = s->k, .dtype = s->dtype};
        else
            *s->vector = (float *)(void *)(base + s->at);
    }
    if (l->c->tied) l->w->head = l->w->embed;
}

/* ---- packing */

/* Where row r of a matrix of q or k lies in a file whose heads have their rows as RoPE's pairs:
 * (0, half), (1, half + 1), ... */
static int row_in_file(const struct loader *l, const struct slot *s, int r) {
    const int dim = l->c->head_dim, at = r % dim;
    return s->pairs ? r - at + (at < dim / 2 ? 2 * at : 2 * (at - dim / 2) + 1) : r;
}

/* Rows [first, first + n) of the matrix, or values of the vector, as f32. */
static void read_rows(const struct loader *l, const struct slot *s, float *dst, int first, int n) {
    const struct tensor_type *type = s->t.type;
    const size_t k = (size_t)s->k, row_bytes = tensor_row_bytes(type, s->k),
                 blocks = k / (size_t)type->elements;
    if (!s->pairs) {
        type->to_f32(dst, s->t.data + (size_t)first * row_bytes, (size_t)n * blocks);
        return;
    }
    for (int i = 0; i < n; i++)
        type->to_f32(dst + (size_t)i * k,
                     s->t.data + (size_t)row_in_file(l, s, first + i) * row_bytes, blocks);
}

static void pack_panel(void *arg, int item, int thread) {
    struct loader *l = arg;
    const struct slot *s = l->slot;
    int first = item * PANEL_ROWS,
        n = l->n_rows - first < PANEL_ROWS ? l->n_rows - first : PANEL_ROWS;
    float *rows = l->rows + (size_t)thread * PANEL_ROWS * l->rows_stride;
    read_rows(l, s, rows, l->row_first + first, n);
    l->kn->panel_pack(s->matrix->panels +
                          (size_t)(l->row_first / PANEL_ROWS + item) * panel_bytes(s->k, s->dtype),
                      rows, n, s->k, s->dtype);
}

/* Rows of one step: whole panels, and whole heads where rows change places. */
static int step_rows(const struct loader *l, const struct slot *s, size_t row_bytes) {
    const int unit = s->pairs ? PANEL_ROWS * l->c->head_dim : PANEL_ROWS;
    const int n = (int)(STEP_BYTES / row_bytes) / unit * unit;
    return n > unit ? n : unit;
}

/* Some megabytes at a time: hashed, packed, let go. So the file is read once, and little of it is
 * resident. */
static void load_slot(struct loader *l, struct slot *s) {
    const size_t row_bytes = tensor_row_bytes(s->t.type, s->k);
    const int step = step_rows(l, s, row_bytes);
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    l->slot = s;
    for (int first = 0; first < s->n && !cancelled(l); first += step) {
        const int n = s->n - first < step ? s->n - first : step;
        const size_t bytes = (size_t)n * row_bytes;
        l->row_first = first;
        l->n_rows = n;
        XXH3_128bits_update(&hash, s->t.data + (size_t)first * row_bytes, bytes);
        if (s->matrix != NULL)
            pool_run(l->pool, pack_panel, l, (n + PANEL_ROWS - 1) / PANEL_ROWS);
        else
            read_rows(l, s, *s->vector + first, first, n);
        tensor_source_drop(l->files, &s->t, (uint64_t)(s->from + first) * row_bytes + bytes);
        l->done_bytes += bytes;
        if (l->progress != NULL)
            l->progress(l->progress_arg, "weights", l->done_bytes, l->total_bytes);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(s->digest, digest.digest, sizeof(s->digest));
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct slot *)a)->name, ((const struct slot *)b)->name);
}

/* SHA-256 over the config's line and, by name, each tensor's name, type, shape and digest: sharding
 * does not change it. */
static enum err hash_model(struct loader *l, struct errbuf *eb) {
    char *line = malloc(MODEL_CONF_LINE_BYTES);
    size_t cap = (size_t)l->n_slots * (NAME_BYTES + 64), at = 0;
    char *text = malloc(cap);
    if (line == NULL || text == NULL) {
        free(line);
        free(text);
        return err_set(eb, ERR_NO_MEMORY, "no memory to hash the model");
    }
    SHA256((const uint8_t *)line, (size_t)model_conf_line(l->c, line), l->w->hash);
    qsort(l->slots, (size_t)l->n_slots, sizeof(*l->slots), by_name);
    for (int i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        at += (size_t)snprintf(text + at, cap - at, "%s %s %d %d ", s->name, s->t.type_name, s->n,
                               s->k);
        memcpy(text + at, s->digest, sizeof(s->digest));
        at += sizeof(s->digest);
    }
    uint8_t both[2 * SHA256_DIGEST_LENGTH];
    memcpy(both, l->w->hash, SHA256_DIGEST_LENGTH);
    SHA256((const uint8_t *)text, at, both + SHA256_DIGEST_LENGTH);
    SHA256(both, sizeof(both), l->w->hash);
    free(line);
    free(text);
    return ERR_OK;
}

/* ---- the cache file */

/* What tells this model's packed data from others: SHA-256 over lines of text. */
static enum err describe_plan(struct loader *l, struct errbuf *eb) {
    size_t cap = (size_t)l->n_slots * (NAME_BYTES + 96), at = 0;
    char *text = malloc(cap > MODEL_CONF_LINE_BYTES ? cap : MODEL_CONF_LINE_BYTES);
    if (text == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory to describe the weights");
    SHA256((const uint8_t *)text, (size_t)model_conf_line(l->c, text), l->want.config);
    for (int i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        at +=
            (size_t)snprintf(text + at, cap - at, "%s %s %s %d %d %llu\n", s->name, s->t.type_name,
                             dtype_name(s->dtype), s->n, s->k, (unsigned long long)s->at);
    }
    SHA256((const uint8_t *)text, at, l->want.plan);
    free(text);
    return ERR_OK;
}

static void describe_files(struct loader *l) {
    const struct file_map *f;
    char line[512];
    uint8_t chain[2 * WC_SHA_BYTES] = {0}; /* the digest so far, the digest of a line */
    for (int i = 0; (f = tensor_source_file(l->files, i)) != NULL; i++) {
        int n = snprintf(line, sizeof(line), "%s %llu %llu %llu\n", f->name,
                         (unsigned long long)f->bytes, (unsigned long long)f->mtime_ns,
                         (unsigned long long)f->inode);
        SHA256((const uint8_t *)line, (size_t)n, chain + WC_SHA_BYTES);
        SHA256(chain, sizeof(chain), chain);
    }
    memcpy(l->want.stamp, chain, sizeof(l->want.stamp));
}

/* The layout, by what becomes of a full and of a ragged panel of sample numbers, for each kind of
 * matrix: the vocabulary's, and those of a layer. */
static enum err describe_layout(struct loader *l, struct errbuf *eb) {
    const int ks[] = {l->c->hidden, l->c->hidden, l->c->n_heads * l->c->head_dim,
                      l->c->intermediate};
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    for (size_t i = 0; i < sizeof(ks) / sizeof(ks[0]); i++) {
        const enum dtype dtype = i == 0 ? l->slots[0].dtype : l->w->dtype;
        size_t bytes = (panel_bytes(ks[i], dtype) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        size_t n = (size_t)PANEL_ROWS * (size_t)ks[i];
        float *rows = malloc(n * sizeof(float));
        uint8_t *panel = aligned_alloc(ALIGN_BYTES, bytes);
        if (rows == NULL || panel == NULL) {
            free(rows);
            free(panel);
            return err_set(eb, ERR_NO_MEMORY, "no memory to pack a sample");
        }
        uint32_t lcg = 1;
        for (size_t j = 0; j < n; j++) {
            lcg = lcg * 1664525u + 1013904223u;
            rows[j] = (float)(int32_t)lcg * 0x1p-31f;
        }
        for (int n_rows = PANEL_ROWS; n_rows > 0; n_rows -= PANEL_ROWS - 5) {
            memset(panel, 0, bytes);
            l->kn->panel_pack(panel, rows, n_rows, ks[i], dtype);
            XXH3_128bits_update(&hash, panel, bytes);
        }
        free(rows);
        free(panel);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(l->want.layout, digest.digest, sizeof(l->want.layout));
    return ERR_OK;
}

/* The first bytes of each tensor: models of one shape differ in them. */
static void sample_content(const struct loader *l, uint8_t out[WC_XXH_BYTES]) {
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    for (int i = 0; i < l->n_slots; i++) {
        const struct tensor *t = &l->slots[i].t;
        XXH3_128bits_update(&hash, t->data, t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(out, digest.digest, WC_XXH_BYTES);
}

static uint8_t *chunk_at(const struct loader *l, int item, size_t *n) {
    uint64_t at = (uint64_t)item * WEIGHTS_CHUNK_BYTES;
    *n = l->w->bytes - at < WEIGHTS_CHUNK_BYTES ? (size_t)(l->w->bytes - at) : WEIGHTS_CHUNK_BYTES;
    return l->cache.map + WC_HEADER_BYTES + at;
}

static int n_chunks(const struct loader *l) {
    return (int)((l->w->bytes + WEIGHTS_CHUNK_BYTES - 1) / WEIGHTS_CHUNK_BYTES);
}

static void sum_chunk(void *arg, int item, int thread) {
    struct loader *l = arg;
    size_t n;
    const uint8_t *p = chunk_at(l, item, &n);
    (void)thread;
    if (cancelled(l)) return;
    l->sums[item] = wc_sum_chunk(p, n);
}

static bool sum_data(struct loader *l, uint8_t out[WC_XXH_BYTES]) {
    size_t n = (size_t)n_chunks(l);
    if ((l->sums = malloc(n * sizeof(*l->sums))) == NULL) return false;
    pool_run(l->pool, sum_chunk, l, (int)n);
    wc_sum(out, l->sums, n);
    free(l->sums);
    l->sums = NULL;
    return true;
}

/* Maps the pages now, not in the first request. */
static void populate_chunk(void *arg, int item, int thread) {
    size_t n;
    uint8_t *p = chunk_at(arg, item, &n);
    uint8_t *from = (uint8_t *)((uintptr_t)p / WC_HEADER_BYTES * WC_HEADER_BYTES);
    (void)thread;
    if (cancelled(arg)) return;
    if (madvise(from, n + (size_t)(p - from), MADV_POPULATE_READ) == 0) return;
    for (size_t i = 0; i < n; i += WC_HEADER_BYTES) (void)((volatile uint8_t *)p)[i];
}

static void hash_slot(void *arg, int item, int thread) {
    struct loader *l = arg;
    struct slot *s = &l->slots[item];
    const uint8_t *src = s->t.data;
    const uint64_t bytes = s->t.bytes;
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    (void)thread;
    XXH3_128bits_reset(&hash);
    for (uint64_t at = 0; at < bytes && !cancelled(l); at += HASH_STEP_BYTES) {
        uint64_t n = bytes - at < HASH_STEP_BYTES ? bytes - at : HASH_STEP_BYTES;
        XXH3_128bits_update(&hash, src + at, (size_t)n);
        tensor_source_drop(l->files, &s->t, at + n);
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&hash));
    memcpy(s->digest, digest.digest, sizeof(s->digest));
}

/* The file fits but for its stamp: somebody copied or touched the model, or changed its content. */
static bool content_is(struct loader *l, const struct wc_header *got) {
    if (!l->hashed) {
        pool_run(l->pool, hash_slot, l, l->n_slots);
        if (cancelled(l) || hash_model(l, NULL) != ERR_OK) return false;
        l->hashed = true;
    }
    if (memcmp(got->model, l->w->hash, sizeof(l->w->hash)) == 0) return true;
    log_info("load", "weight cache %s: the model has changed since", l->cache.path);
    return false;
}

static bool data_are_sound(struct loader *l, const struct wc_header *got) {
    uint8_t sum[WC_XXH_BYTES];
    if (!l->place.verify) return true;
    if (!sum_data(l, sum) || cancelled(l)) return false;
    if (memcmp(sum, got->sum, sizeof(sum)) == 0) return true;
    log_warn("load", "weight cache %s is not used: the checksum of its data is wrong",
             l->cache.path);
    return false;
}

static bool from_cache(struct loader *l) {
    struct wc_header got;
    enum wc_found found = wc_map(&l->cache, &l->want, &got);
    if (found == WC_MISS) return false;
    if ((found == WC_TOUCHED && !content_is(l, &got)) || !data_are_sound(l, &got)) {
        wc_unmap(&l->cache);
        return false;
    }
    if (found == WC_TOUCHED) {
        memcpy(got.stamp, l->want.stamp, sizeof(got.stamp));
        wc_restamp(&l->cache, &got);
    }
    memcpy(l->w->hash, got.model, sizeof(l->w->hash));
    pool_run(l->pool, populate_chunk, l, n_chunks(l));
    l->w->from = WEIGHTS_FROM_CACHE;
    struct weights_file *f = &l->w->file;
    f->path = strdup(l->cache.path);
    f->dev = l->cache.dev;
    f->ino = l->cache.ino;
    memcpy(f->sum, got.sum, sizeof(f->sum));
    f->unchecked = f->path != NULL && !l->place.verify;
    return true;
}

static void to_cache(struct loader *l) {
    struct wc_header h = l->want;
    memcpy(h.model, l->w->hash, sizeof(h.model));
    if (!sum_data(l, h.sum)) {
        wc_end(&l->cache);
        log_warn("load", "weight cache %s: no memory for its checksum", l->cache.path);
    } else if (wc_commit(&l->cache, &h)) {
        l->w->from = WEIGHTS_PACKED_TO_CACHE;
    }
}

/* ---- loading */

static enum err describe(struct loader *l, struct errbuf *eb) {
    enum err e = describe_plan(l, eb);
    if (e != ERR_OK || (e = describe_layout(l, eb)) != ERR_OK) return e;
    describe_files(l);
    l->want.dtype = (uint32_t)l->w->dtype;
    l->want.data_bytes = l->w->bytes;
    return ERR_OK;
}

static enum err pack_all(struct loader *l, struct errbuf *eb) {
    uint8_t *base = l->cache.map != NULL ? l->cache.map + WC_HEADER_BYTES : NULL;
    if (base == NULL) {
        if (!mem_open(&l->w->memory, l->w->bytes, MEM_TRANSPARENT, false))
            return err_set(eb, ERR_NO_MEMORY, "no memory for %llu bytes of weights",
                           (unsigned long long)l->w->bytes);
        base = l->w->memory.p;
    }
    size_t n_floats = (size_t)pool_threads(l->pool) * PANEL_ROWS * l->rows_stride;
    if ((l->rows = malloc(n_floats * sizeof(float))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory to pack the weights");
    lay_out(l, base);
    for (int i = 0; i < l->n_slots; i++) load_slot(l, &l->slots[i]);
    return cancelled(l) ? ERR_STOPPING : hash_model(l, eb);
}

static enum err load(struct loader *l, const char *path, struct errbuf *eb) {
    uint64_t start = clock_ms();
    uint8_t sample[WC_XXH_BYTES];
    enum err e = tensor_source_open(&l->files, path, eb);
    if (e != ERR_OK) return e;
    plan(l);
    for (int i = 0; i < l->n_slots; i++) {
        if ((e = check_slot(l, &l->slots[i], eb)) != ERR_OK) return e;
    }
    if ((e = check_unused(l, eb)) != ERR_OK) return e;
    snprintf(l->w->file_type, sizeof(l->w->file_type), "%s", l->slots[0].t.type_name);
    if ((e = describe(l, eb)) != ERR_OK) return e;
    sample_content(l, sample);
    if (wc_place(&l->cache, l->place.setting, path, &l->want, sample) && !from_cache(l) &&
        (l->cache.may_make || l->place.always) && !cancelled(l) && wc_lock(&l->cache, l->cancel) &&
        !from_cache(l))
        (void)wc_begin(&l->cache, l->w->bytes);
    if (l->w->from == WEIGHTS_FROM_CACHE) {
        lay_out(l, l->cache.map + WC_HEADER_BYTES);
    } else {
        if ((e = pack_all(l, eb)) == ERR_OK && l->cache.map != NULL) to_cache(l);
    }
    wc_end(&l->cache);
    if (e == ERR_OK && cancelled(l)) e = ERR_STOPPING;
    if (e == ERR_STOPPING) err_set(eb, e, "%s", err_text(e));
    l->w->file.map = l->cache.map;
    l->w->file.map_bytes = l->cache.map_bytes;
    if (e == ERR_OK)
        log_info("load", "event=weights from=\"%s\" dtype=%s bytes=%llu ms=%llu",
                 weights_from_name(l->w->from), dtype_name(l->w->dtype),
                 (unsigned long long)l->w->bytes, (unsigned long long)(clock_ms() - start));
    return e;
}

enum err weights_open(struct weights **out, const struct model_conf *c, const char *path,
                      const struct kernels *kn, enum dtype dtype, const struct weights_place *place,
                      struct pool *pool,
                      void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total),
                      void *progress_arg, const atomic_bool *cancel, struct errbuf *eb) {
    struct loader l = {.c = c,
                       .kn = kn,
                       .pool = pool,
                       .progress = progress,
                       .progress_arg = progress_arg,
                       .cancel = cancel};
    enum err e = ERR_NO_MEMORY;
    *out = NULL;
    l.cache.lock_fd = l.cache.tmp_fd = -1;
    if (place != NULL) l.place = *place;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && !dtype_is_quant(dtype))
        return err_set(eb, ERR_BAD_CONFIG, "weight_dtype must be f32, bf16, int8 or int4, got %s",
                       dtype_name(dtype));
    if (kn->f32_only && dtype != DTYPE_F32)
        return err_set(eb, ERR_BAD_CONFIG, "weight_dtype must be f32 with %s kernels, got %s",
                       kn->name, dtype_name(dtype));
    if ((l.w = calloc(1, sizeof(*l.w))) != NULL) {
        l.w->dtype = dtype;
        l.w->layers = calloc((size_t)c->n_layers, sizeof(*l.w->layers));
        l.w->norms = calloc(2 * (size_t)c->n_layers + 1, sizeof(*l.w->norms));
        l.slots = calloc((size_t)(c->n_layers + 1) * (size_t)tensor_names_of(c)->n_rows,
                         sizeof(*l.slots));
    }
    if (l.w == NULL || l.w->layers == NULL || l.w->norms == NULL || l.slots == NULL)
        err_set(eb, e, "no memory for the list of tensors");
    else
        e = load(&l, path, eb);
    tensor_source_close(&l.files);
    free(l.slots);
    free(l.rows);
    if (e != ERR_OK) weights_close(&l.w);
    *out = l.w;
    return e;
}

void weights_close(struct weights **w) {
    if (*w == NULL) return;
    if ((*w)->file.map != NULL) munmap((*w)->file.map, (*w)->file.map_bytes);
    free((*w)->file.path);
    mem_close(&(*w)->memory);
    free((*w)->layers);
    free((*w)->norms);
    free(*w);
    *w = NULL;
}

const char *weights_from_name(enum weights_from f) {
    switch (f) {
    case WEIGHTS_PACKED: return "memory";
    case WEIGHTS_PACKED_TO_CACHE: return "packed to cache";
    case WEIGHTS_FROM_CACHE: break;
    }
    return "cache";
}
