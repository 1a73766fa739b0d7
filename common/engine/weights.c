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
#include "common/engine/half.h"
#include "common/engine/safetensors.h"

enum { NAME_BYTES = 96, STEP_BYTES = 8 * 1024 * 1024, ALIGN_BYTES = 64 };

/* One tensor to load: into a matrix or a vector. */
struct slot {
    char name[NAME_BYTES];
    struct matrix *matrix; /* NULL: a vector */
    float **vector;
    int n, k;    /* vector: n values, k is 1 */
    enum dtype dtype; /* of the matrix */
    const struct st_tensor *t;
    uint8_t digest[16]; /* XXH3-128 of its bytes in the file */
};

struct loader {
    const struct model_conf *c;
    const struct kernels *kn;
    struct pool *pool;
    struct st_model *files;
    struct weights *w;
    struct slot *slots;
    int n_slots;
    float *rows; /* [threads][PANEL_ROWS][k_max]: scratch */
    size_t rows_stride;
    void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
    uint64_t done_bytes, total_bytes;

    /* the pool region that runs: panels of one step of one slot */
    const struct slot *slot;
    const uint8_t *src; /* the step's first row */
    int panel_first, n_rows;
};

/* ---- what a config asks for */

enum presence { ALWAYS, QKV_BIAS, O_BIAS, MLP_BIAS, QK_NORM };
enum extent { ONE, HIDDEN, INTER, Q_DIM, KV_DIM, HEAD_DIM };

static const struct layer_tensor {
    const char *name;
    size_t offset; /* in struct layer_weights */
    bool is_matrix;
    enum extent n, k;
    enum presence when;
} layer_tensors[] = {
#define MATRIX(name, field, n, k)                                                                  \
    { name ".weight", offsetof(struct layer_weights, field), true, n, k, ALWAYS }
#define VECTOR(name, field, n, when)                                                               \
    { name, offsetof(struct layer_weights, field), false, n, ONE, when }
    VECTOR("input_layernorm.weight", attn_norm, HIDDEN, ALWAYS),
    MATRIX("self_attn.q_proj", q, Q_DIM, HIDDEN),
    MATRIX("self_attn.k_proj", k, KV_DIM, HIDDEN),
    MATRIX("self_attn.v_proj", v, KV_DIM, HIDDEN),
    MATRIX("self_attn.o_proj", o, HIDDEN, Q_DIM),
    VECTOR("self_attn.q_proj.bias", q_bias, Q_DIM, QKV_BIAS),
    VECTOR("self_attn.k_proj.bias", k_bias, KV_DIM, QKV_BIAS),
    VECTOR("self_attn.v_proj.bias", v_bias, KV_DIM, QKV_BIAS),
    VECTOR("self_attn.o_proj.bias", o_bias, HIDDEN, O_BIAS),
    VECTOR("self_attn.q_norm.weight", q_norm, HEAD_DIM, QK_NORM),
    VECTOR("self_attn.k_norm.weight", k_norm, HEAD_DIM, QK_NORM),
    VECTOR("post_attention_layernorm.weight", mlp_norm, HIDDEN, ALWAYS),
    MATRIX("mlp.gate_proj", gate, INTER, HIDDEN),
    MATRIX("mlp.up_proj", up, INTER, HIDDEN),
    MATRIX("mlp.down_proj", down, HIDDEN, INTER),
    VECTOR("mlp.gate_proj.bias", gate_bias, INTER, MLP_BIAS),
    VECTOR("mlp.up_proj.bias", up_bias, INTER, MLP_BIAS),
    VECTOR("mlp.down_proj.bias", down_bias, HIDDEN, MLP_BIAS),
#undef MATRIX
#undef VECTOR
};
enum { N_LAYER_TENSORS = sizeof(layer_tensors) / sizeof(layer_tensors[0]), N_MODEL_TENSORS = 3 };

static int extent_of(const struct model_conf *c, enum extent x) {
    switch (x) {
    case HIDDEN: return c->hidden;
    case INTER: return c->intermediate;
    case Q_DIM: return c->n_heads * c->head_dim;
    case KV_DIM: return c->n_kv_heads * c->head_dim;
    case HEAD_DIM: return c->head_dim;
    case ONE: break;
    }
    return 1;
}

static bool present(const struct model_conf *c, enum presence p) {
    switch (p) {
    case QKV_BIAS: return c->qkv_bias;
    case O_BIAS: return c->o_bias;
    case MLP_BIAS: return c->mlp_bias;
    case QK_NORM: return c->qk_norm;
    case ALWAYS: break;
    }
    return true;
}

static void add_slot(struct loader *l, const char *name, struct matrix *matrix, float **vector,
                     int n, int k, enum dtype dtype) {
    struct slot *s = &l->slots[l->n_slots++];
    *s = (struct slot){.matrix = matrix, .vector = vector, .n = n, .k = k, .dtype = dtype};
    snprintf(s->name, sizeof(s->name), "%s", name);
}

static void plan(struct loader *l) {
    const struct model_conf *c = l->c;
    struct weights *w = l->w;
    char name[NAME_BYTES];
    /* The matrices over the vocabulary keep eight bits: docs/decisions/2026-11-21-quantised-weights.md */
    const enum dtype wide = w->dtype == DTYPE_INT4 ? DTYPE_INT8 : w->dtype;
    add_slot(l, "model.embed_tokens.weight", &w->embed, NULL, c->vocab_size, c->hidden, wide);
    for (int i = 0; i < c->n_layers; i++) {
        for (int j = 0; j < N_LAYER_TENSORS; j++) {
            const struct layer_tensor *t = &layer_tensors[j];
            char *field = (char *)&w->layers[i] + t->offset;
            if (!present(c, t->when)) continue;
            snprintf(name, sizeof(name), "model.layers.%d.%s", i, t->name);
            add_slot(l, name, t->is_matrix ? (struct matrix *)(void *)field : NULL,
                     t->is_matrix ? NULL : (float **)(void *)field, extent_of(c, t->n),
                     extent_of(c, t->k), w->dtype);
        }
    }
    add_slot(l, "model.norm.weight", NULL, &w->final_norm, c->hidden, 1, DTYPE_F32);
    if (!c->tied)
        add_slot(l, "lm_head.weight", &w->head, NULL, c->vocab_size, c->hidden, wide);
}

/* ---- checks and memory */

static size_t slot_bytes(const struct slot *s) {
    size_t n = s->matrix != NULL
                   ? ((size_t)s->n + PANEL_ROWS - 1) / PANEL_ROWS * panel_bytes(s->k, s->dtype)
                   : (size_t)s->n * sizeof(float);
    return (n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static enum err check_slot(struct loader *l, struct slot *s, struct errbuf *eb) {
    const struct st_tensor *t = st_model_find(l->files, s->name);
    if (t == NULL)
        return err_set(eb, ERR_BAD_FILE,
                       "tensor %s, which config.json asks for, is missing in the "
                       ".safetensors files",
                       s->name);
    const char *file = st_model_file(l->files, t);
    int dims = s->matrix != NULL ? 2 : 1;
    if (t->n_dims != dims || t->dims[0] != (uint64_t)s->n ||
        (dims == 2 && t->dims[1] != (uint64_t)s->k)) {
        char got[ST_DIMS_MAX * 21 + 1] = "", want[32];
        for (int i = 0; i < t->n_dims; i++)
            snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%llu", i > 0 ? ", " : "",
                     (unsigned long long)t->dims[i]);
        snprintf(want, sizeof(want), dims == 2 ? "%d, %d" : "%d", s->n, s->k);
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s must have shape [%s] by config.json, got [%s]", file, s->name,
                       want, got);
    }
    if (t->dtype == DTYPE_NONE)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s has dtype %s, allowed are F32, F16 and BF16", file, s->name,
                       t->dtype_text);
    s->t = t;
    l->total_bytes += t->end - t->begin;
    l->w->n_params += (uint64_t)s->n * (uint64_t)s->k;
    l->w->bytes += slot_bytes(s);
    size_t row = (size_t)s->k;
    if (s->matrix != NULL && row > l->rows_stride) l->rows_stride = row;
    return ERR_OK;
}

static enum err reserve(struct loader *l, struct errbuf *eb) {
    struct weights *w = l->w;
    void *p = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(eb, ERR_NO_MEMORY, "no memory for %llu bytes of weights",
                       (unsigned long long)w->bytes);
    (void)madvise(p, w->bytes, MADV_HUGEPAGE);
    w->memory = p;
    uint8_t *at = p;
    for (int i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        if (s->matrix != NULL)
            *s->matrix = (struct matrix){.panels = at, .n = s->n, .k = s->k, .dtype = s->dtype};
        else
            *s->vector = (float *)(void *)at;
        at += slot_bytes(s);
    }
    if (l->c->tied) w->head = w->embed;
    size_t n_floats = (size_t)pool_threads(l->pool) * PANEL_ROWS * l->rows_stride;
    if ((l->rows = malloc(n_floats * sizeof(float))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory to pack the weights");
    return ERR_OK;
}

/* ---- packing */

static size_t dtype_bytes(enum dtype t) {
    return t == DTYPE_F32 ? 4 : 2;
}

/* src may be unaligned: the format promises no alignment. */
static void widen(float *dst, const uint8_t *src, size_t n, enum dtype t) {
    uint16_t h;
    if (t == DTYPE_F32) {
        memcpy(dst, src, n * sizeof(float));
    } else if (t == DTYPE_BF16) {
        for (size_t i = 0; i < n; i++, src += 2) memcpy(&h, src, 2), dst[i] = f32_of_bf16(h);
    } else {
        for (size_t i = 0; i < n; i++, src += 2) memcpy(&h, src, 2), dst[i] = f32_of_f16(h);
    }
}

static void pack_panel(void *arg, int item, int thread) {
    struct loader *l = arg;
    const struct slot *s = l->slot;
    int first = item * PANEL_ROWS,
        n = l->n_rows - first < PANEL_ROWS ? l->n_rows - first : PANEL_ROWS;
    size_t row_bytes = (size_t)s->k * dtype_bytes(s->t->dtype);
    float *rows = l->rows + (size_t)thread * PANEL_ROWS * l->rows_stride;
    widen(rows, l->src + (size_t)first * row_bytes, (size_t)n * (size_t)s->k, s->t->dtype);
    l->kn->panel_pack(s->matrix->panels +
                          (size_t)(l->panel_first + item) * panel_bytes(s->k, s->dtype),
                      rows, n, s->k, s->dtype);
}

/* Some megabytes at a time: hashed, packed, let go. So the file is read once, and little of it is
 * resident. */
static void load_slot(struct loader *l, struct slot *s) {
    const uint8_t *src = st_model_data(l->files, s->t);
    size_t row_bytes = (size_t)s->k * dtype_bytes(s->t->dtype);
    int step = (int)(STEP_BYTES / row_bytes) / PANEL_ROWS * PANEL_ROWS;
    if (step < PANEL_ROWS) step = PANEL_ROWS;
    XXH3_state_t hash;
    XXH128_canonical_t digest;
    XXH3_128bits_reset(&hash);
    l->slot = s;
    for (int first = 0; first < s->n; first += step) {
        int n = s->n - first < step ? s->n - first : step;
        l->src = src + (size_t)first * row_bytes;
        l->panel_first = first / PANEL_ROWS;
        l->n_rows = n;
        XXH3_128bits_update(&hash, l->src, (size_t)n * row_bytes);
        if (s->matrix != NULL)
            pool_run(l->pool, pack_panel, l, (n + PANEL_ROWS - 1) / PANEL_ROWS);
        else
            widen(*s->vector + first, l->src, (size_t)n, s->t->dtype);
        st_model_drop(l->files, s->t, (uint64_t)(first + n) * row_bytes);
        l->done_bytes += (uint64_t)n * row_bytes;
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
        at += (size_t)snprintf(text + at, cap - at, "%s %s %d %d ", s->name, s->t->dtype_text, s->n,
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

static enum err load(struct loader *l, const char *dir, struct errbuf *eb) {
    enum err e = st_model_open(&l->files, dir, eb);
    if (e != ERR_OK) return e;
    plan(l);
    for (int i = 0; i < l->n_slots; i++) {
        if ((e = check_slot(l, &l->slots[i], eb)) != ERR_OK) return e;
    }
    l->w->file_dtype = l->slots[0].t->dtype;
    if ((e = reserve(l, eb)) != ERR_OK) return e;
    for (int i = 0; i < l->n_slots; i++) load_slot(l, &l->slots[i]);
    return hash_model(l, eb);
}

enum err weights_open(struct weights **out, const struct model_conf *c, const char *dir,
                      const struct kernels *kn, enum dtype dtype, struct pool *pool,
                      void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total),
                      void *progress_arg, struct errbuf *eb) {
    struct loader l = {
        .c = c, .kn = kn, .pool = pool, .progress = progress, .progress_arg = progress_arg};
    enum err e = ERR_NO_MEMORY;
    *out = NULL;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
        return err_set(eb, ERR_BAD_CONFIG, "weight_dtype must be f32 or bf16, got %s",
                       dtype_name(dtype));
    if (kn->f32_only && dtype != DTYPE_F32)
        return err_set(eb, ERR_BAD_CONFIG, "weight_dtype must be f32 with %s kernels, got %s",
                       kn->name, dtype_name(dtype));
    if ((l.w = calloc(1, sizeof(*l.w))) != NULL) {
        l.w->dtype = dtype;
        l.w->layers = calloc((size_t)c->n_layers, sizeof(*l.w->layers));
        l.slots = calloc((size_t)c->n_layers * N_LAYER_TENSORS + N_MODEL_TENSORS, sizeof(*l.slots));
    }
    if (l.w == NULL || l.w->layers == NULL || l.slots == NULL)
        err_set(eb, e, "no memory for the list of tensors");
    else
        e = load(&l, dir, eb);
    st_model_close(&l.files);
    free(l.slots);
    free(l.rows);
    if (e != ERR_OK) weights_close(&l.w);
    *out = l.w;
    return e;
}

void weights_close(struct weights **w) {
    if (*w == NULL) return;
    if ((*w)->memory != NULL) munmap((*w)->memory, (*w)->bytes);
    free((*w)->layers);
    free(*w);
    *w = NULL;
}
