/* tensor_packed: see tensor_packed.h. Finding and checking first, values at the end. */
#include "common/engine/tensor_packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/half.h"

enum {
    NAME_BYTES = 520, /* as safetensors.h */
    SIZE_MAX_ROWS = 1 << 24,
    PIECES_MAX = 5,
    ROWS_AT_ONCE = 16,
};

enum packed_kind { PK_AWQ, PK_GPTQ, PK_WORDS, PK_INT8, PK_FP8, PK_MXFP4 };

struct packed_linear {
    enum packed_kind kind;
    int bits;
    uint64_t out, in;
    uint64_t experts;         /* of which out are the rows; 0: it is one matrix */
    uint64_t group, n_groups; /* inputs of a group; groups of a row */
    int zero;                 /* where none are stored; else what is added to a stored one */
    const struct tensor *parts[PIECES_MAX]; /* values first */
    int n_parts;
    const struct tensor *scales, *zeros, *g_idx; /* NULL: none */
    uint64_t block_rows;                         /* rows that share a scale */
    int grid_bits;                               /* packed_grid_bits() */
    char type_name[32];
};

struct packed_set {
    struct tensor *tensors; /* all but the parts, sorted by name */
    bool *hidden;           /* [n_tensors]: not in the list */
    size_t *listed, n_listed;
    size_t n_tensors;
    struct packed_linear *linears;
    char **names; /* [n_linears] */
    size_t n_linears;
};

struct finder {
    const struct quant_conf *q;
    const struct tensor *all;
    size_t n;
    bool *part; /* [n]: belongs to a quantised module */
    struct packed_set *s;
    struct errbuf *eb;
};

/* ---- looking for tensors */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static const struct tensor *find(const struct tensor *all, size_t n, const char *name) {
    const struct tensor key = {.name = name};
    return n == 0 ? NULL : bsearch(&key, all, n, sizeof(key), by_name);
}

/* module: its name's first n bytes, up to the dot. Marks it as a part of the module. */
static const struct tensor *find_part(struct finder *f, struct packed_linear *p, const char *module,
                                      size_t n, const char *tail) {
    char name[NAME_BYTES];
    if ((size_t)snprintf(name, sizeof(name), "%.*s%s", (int)n, module, tail) >= sizeof(name))
        return NULL;
    const struct tensor *t = find(f->all, f->n, name);
    if (t == NULL) return NULL;
    f->part[t - f->all] = true;
    p->parts[p->n_parts++] = t;
    return t;
}

static bool ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s), m = strlen(tail);
    return n > m && strcmp(s + n - m, tail) == 0;
}

static bool is_type(const struct tensor *t, const char *type) {
    return strcmp(t->type_name, type) == 0;
}

static uint64_t dim(const struct tensor *t, int idx) {
    return idx < t->n_dims ? t->dims[idx] : 1;
}

static uint64_t ceil_div(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

/* ---- errors, each of which names the file and the tensor */

static enum err bad(const struct finder *f, const struct tensor *t, const char *what) {
    return err_set(f->eb, ERR_BAD_FILE, "%s: tensor %s %s", t->file, t->name, what);
}

static enum err missing(const struct finder *f, const struct packed_linear *p, const char *tail) {
    return err_set(f->eb, ERR_BAD_FILE, "%s: tensor %s has no %s beside it", p->parts[0]->file,
                   p->parts[0]->name, tail);
}

static enum err want_type(const struct finder *f, const struct tensor *t, const char *type) {
    if (is_type(t, type)) return ERR_OK;
    return err_set(f->eb, ERR_BAD_FILE, "%s: tensor %s must have type %s, got %s", t->file, t->name,
                   type, t->type_name);
}

static enum err want_shape(const struct finder *f, const struct tensor *t, uint64_t rows,
                           uint64_t columns) {
    if (t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == columns) return ERR_OK;
    return err_set(f->eb, ERR_BAD_FILE,
                   "%s: tensor %s must have shape [%llu, %llu], got [%llu, %llu]", t->file, t->name,
                   (unsigned long long)rows, (unsigned long long)columns,
                   (unsigned long long)dim(t, 0), (unsigned long long)dim(t, 1));
}

static enum err want_matrix(const struct finder *f, const struct tensor *t) {
    if (t->n_dims == 2 && t->dims[0] >= 1 && t->dims[1] >= 1 && t->dims[0] <= SIZE_MAX_ROWS &&
        t->dims[1] <= SIZE_MAX_ROWS)
        return ERR_OK;
    return bad(f, t, "must have two sizes from 1 to 16777216");
}

static enum err want_scales(const struct finder *f, const struct tensor *t) {
    if (is_type(t, "F32") || is_type(t, "F16") || is_type(t, "BF16") || is_type(t, "F8_E8M0"))
        return ERR_OK;
    return bad(f, t, "must have type F32, F16, BF16 or F8_E8M0: it holds scales");
}

/* ---- groups */

static int32_t i32_at(const struct tensor *t, uint64_t idx) {
    int32_t v;
    memcpy(&v, t->data + 4 * idx, sizeof(v));
    return v;
}

static enum err check_g_idx(const struct finder *f, struct packed_linear *p) {
    const struct tensor *t = p->g_idx;
    enum err e = want_type(f, t, "I32");
    if (e != ERR_OK) return e;
    if (t->n_dims != 1 || t->dims[0] != p->in)
        return bad(f, t, "must have an index for each input");
    bool in_order = true;
    for (uint64_t i = 0; i < p->in; i++) {
        const int32_t g = i32_at(t, i);
        if (g < 0 || (uint64_t)g >= p->n_groups)
            return err_set(f->eb, ERR_BAD_FILE,
                           "%s: tensor %s: index %llu must be from 0 to %llu, got %d", t->file,
                           t->name, (unsigned long long)i, (unsigned long long)p->n_groups - 1, g);
        in_order = in_order && (uint64_t)g == i / p->group;
    }
    if (in_order) p->g_idx = NULL;
    return ERR_OK;
}

/* Groups of p->group inputs, or those of g_idx. group 0: one for all. */
static enum err set_groups(const struct finder *f, struct packed_linear *p, uint64_t group) {
    p->group = group > 0 ? group : p->in;
    if (p->g_idx != NULL) return check_g_idx(f, p);
    if (ceil_div(p->in, p->group) == p->n_groups) return ERR_OK;
    return err_set(f->eb, ERR_BAD_FILE,
                   "%s: tensor %s has %llu groups of scales, but %llu inputs in groups of %llu "
                   "(group_size) need %llu",
                   p->scales->file, p->scales->name, (unsigned long long)p->n_groups,
                   (unsigned long long)p->in, (unsigned long long)p->group,
                   (unsigned long long)ceil_div(p->in, p->group));
}

/* ---- the formats */

static enum err read_columns(struct finder *f, struct packed_linear *p, const char *module,
                             size_t n) {
    const struct tensor *q = p->parts[0];
    const bool awq = p->kind == PK_AWQ;
    const uint64_t per_word = 32 / (uint64_t)f->q->bits;
    enum err e = want_type(f, q, "I32");
    if (e != ERR_OK || (e = want_matrix(f, q)) != ERR_OK) return e;
    p->bits = f->q->bits;
    p->in = awq ? q->dims[0] : q->dims[0] * per_word;
    p->out = awq ? q->dims[1] * per_word : q->dims[1];
    if (p->in > SIZE_MAX_ROWS || p->out > SIZE_MAX_ROWS)
        return bad(f, q, "has more than 16777216 inputs or outputs");
    if ((p->scales = find_part(f, p, module, n, "scales")) == NULL) return missing(f, p, "scales");
    if ((e = want_scales(f, p->scales)) != ERR_OK) return e;
    p->n_groups = dim(p->scales, 0);
    if (p->n_groups < 1 || p->n_groups > p->in)
        return bad(f, p->scales, "must have 1 to as many rows as there are inputs");
    if ((e = want_shape(f, p->scales, p->n_groups, p->out)) != ERR_OK) return e;
    p->zeros = find_part(f, p, module, n, "qzeros");
    p->zero = 1 << (p->bits - 1);
    if (p->zeros == NULL && (!awq || f->q->zero_point)) return missing(f, p, "qzeros");
    if (p->zeros != NULL) {
        p->zero = !awq && f->q->zero_less ? 1 : 0;
        if ((e = want_type(f, p->zeros, "I32")) != ERR_OK) return e;
        if ((e = want_shape(f, p->zeros, p->n_groups, ceil_div(p->out, per_word))) != ERR_OK)
            return e;
    }
    p->g_idx = awq ? NULL : find_part(f, p, module, n, "g_idx");
    p->block_rows = 1;
    if ((e = set_groups(f, p, (uint64_t)f->q->group)) != ERR_OK) return e;
    snprintf(p->type_name, sizeof(p->type_name), "%s%d%s g%llu", awq ? "AWQ" : "GPTQ", p->bits,
             awq       ? (p->zeros == NULL ? " sym" : "")
             : p->zero ? ""
                       : " v2",
             (unsigned long long)p->group);
    return ERR_OK;
}

/* weight_shape, where it is there: [out, in]. */
static enum err read_shape(struct finder *f, struct packed_linear *p, const struct tensor *shape) {
    int64_t v[2];
    const struct tensor *q = p->parts[0];
    enum err e = want_type(f, shape, "I64");
    if (e != ERR_OK) return e;
    if (shape->n_dims != 1 || shape->dims[0] != 2) return bad(f, shape, "must hold two sizes");
    memcpy(v, shape->data, sizeof(v));
    if (v[0] < 0 || (uint64_t)v[0] != q->dims[0] || v[1] < 1 || v[1] > SIZE_MAX_ROWS)
        return bad(f, shape, "must hold the rows of weight_packed and 1 to 16777216 columns");
    p->in = (uint64_t)v[1];
    for (p->bits = 4; p->bits <= 8; p->bits += 4)
        if (ceil_div(p->in * (uint64_t)p->bits, 32) == q->dims[1]) return ERR_OK;
    return bad(f, q, "has a width that its weight_shape does not give with 4 or 8 bits");
}

static enum err read_words(struct finder *f, struct packed_linear *p, const char *module,
                           size_t n) {
    const struct tensor *q = p->parts[0], *shape;
    enum err e = want_type(f, q, "I32");
    if (e != ERR_OK || (e = want_matrix(f, q)) != ERR_OK) return e;
    p->out = q->dims[0];
    if ((shape = find_part(f, p, module, n, "weight_shape")) == NULL)
        return missing(f, p, "weight_shape");
    if ((e = read_shape(f, p, shape)) != ERR_OK) return e;
    if ((p->scales = find_part(f, p, module, n, "weight_scale")) == NULL)
        return missing(f, p, "weight_scale");
    if ((e = want_scales(f, p->scales)) != ERR_OK) return e;
    p->n_groups = dim(p->scales, 1);
    if (p->n_groups < 1 || p->in % p->n_groups != 0)
        return bad(f, p->scales, "must have a number of columns that divides the inputs");
    if ((e = want_shape(f, p->scales, p->out, p->n_groups)) != ERR_OK) return e;
    p->zero = 1 << (p->bits - 1);
    if ((p->zeros = find_part(f, p, module, n, "weight_zero_point")) != NULL) {
        p->zero = 0;
        if ((e = want_type(f, p->zeros, "I32")) != ERR_OK) return e;
        e = want_shape(f, p->zeros, ceil_div(p->out * (uint64_t)p->bits, 32), p->n_groups);
        if (e != ERR_OK) return e;
    }
    p->g_idx = find_part(f, p, module, n, "weight_g_idx");
    p->block_rows = 1;
    if ((e = set_groups(f, p, p->in / p->n_groups)) != ERR_OK) return e;
    snprintf(p->type_name, sizeof(p->type_name), "INT%d%s g%llu", p->bits,
             p->zeros == NULL ? " sym" : "", (unsigned long long)p->group);
    return ERR_OK;
}

/* One scale, one for each row, for groups of each row, or for blocks: what the shape says. */
static enum err read_scales_2d(struct finder *f, struct packed_linear *p) {
    const struct tensor *t = p->scales;
    const uint64_t rows = dim(t, 0), columns = dim(t, 1);
    const int *block = f->q->block;
    if (t->n_dims > 2) return bad(f, t, "must have at most two sizes");
    p->n_groups = columns;
    const bool blocks_only = f->q->method == QUANT_FP8 && block[0] > 0;
    if (!blocks_only && columns == 1 && (rows == 1 || rows == p->out)) {
        p->block_rows = rows == 1 ? p->out : 1;
        p->group = p->in;
        return ERR_OK;
    }
    if (block[0] > 0 && rows == ceil_div(p->out, (uint64_t)block[0]) &&
        columns == ceil_div(p->in, (uint64_t)block[1])) {
        p->block_rows = (uint64_t)block[0];
        p->group = (uint64_t)block[1];
        return ERR_OK;
    }
    if (!blocks_only && rows == p->out && columns > 0 && p->in % columns == 0) {
        p->block_rows = 1;
        p->group = p->in / columns;
        return ERR_OK;
    }
    return err_set(
        f->eb, ERR_BAD_FILE,
        "%s: tensor %s has shape [%llu, %llu], which fits neither one scale, nor one for "
        "each of %llu rows, nor blocks of %d x %d",
        t->file, t->name, (unsigned long long)rows, (unsigned long long)columns,
        (unsigned long long)p->out, block[0], block[1]);
}

static enum err read_bytes(struct finder *f, struct packed_linear *p, const char *module,
                           size_t n) {
    const struct tensor *q = p->parts[0];
    enum err e = want_matrix(f, q);
    if (e != ERR_OK) return e;
    p->out = q->dims[0];
    p->in = q->dims[1];
    p->bits = p->kind == PK_INT8 ? 8 : 0;
    if ((p->scales = find_part(f, p, module, n, "weight_scale_inv")) == NULL &&
        (p->scales = find_part(f, p, module, n, "weight_scale")) == NULL)
        return missing(f, p, "weight_scale");
    if ((e = want_scales(f, p->scales)) != ERR_OK || (e = read_scales_2d(f, p)) != ERR_OK) return e;
    if (p->kind == PK_INT8 &&
        (p->zeros = find_part(f, p, module, n, "weight_zero_point")) != NULL) {
        if ((e = want_type(f, p->zeros, "I8")) != ERR_OK) return e;
        if (p->zeros->n_dims != p->scales->n_dims || dim(p->zeros, 0) != dim(p->scales, 0) ||
            dim(p->zeros, 1) != dim(p->scales, 1))
            return bad(f, p->zeros, "must have the shape of its weight_scale");
    }
    snprintf(p->type_name, sizeof(p->type_name), "%s %llux%llu",
             p->kind == PK_INT8 ? "INT8" : "FP8", (unsigned long long)p->block_rows,
             (unsigned long long)p->group);
    return ERR_OK;
}

enum { MX_GROUP = 32, MX_BYTES = MX_GROUP / 2 };

static enum err read_mxfp4(struct finder *f, struct packed_linear *p, const char *module,
                           size_t n) {
    const struct tensor *q = p->parts[0], *s;
    enum err e = want_type(f, q, "U8");
    if (e != ERR_OK) return e;
    if (q->n_dims != 4 || q->dims[3] != MX_BYTES)
        return bad(f, q, "must have the sizes of experts, outputs, groups of 32 inputs, and 16");
    for (int i = 0; i < 3; i++)
        if (q->dims[i] < 1 || q->dims[i] > SIZE_MAX_ROWS / MX_GROUP)
            return bad(f, q, "must have sizes from 1 to 524288");
    p->experts = q->dims[0];
    p->in = q->dims[2] * MX_GROUP;
    p->out = q->dims[0] * q->dims[1];
    if ((s = p->scales = find_part(f, p, module, n, "_scales")) == NULL)
        return missing(f, p, "_scales");
    if ((e = want_type(f, s, "U8")) != ERR_OK) return e;
    if (s->n_dims != 3 || s->dims[0] != q->dims[0] || s->dims[1] != q->dims[1] ||
        s->dims[2] != q->dims[2])
        return bad(f, s, "must have the first three sizes of its _blocks");
    p->bits = 4;
    p->group = MX_GROUP;
    p->n_groups = q->dims[2];
    p->block_rows = 1;
    snprintf(p->type_name, sizeof(p->type_name), "MXFP4");
    return ERR_OK;
}

/* ---- integers with one scale for every 32 of a row */
enum { GRID = 32 };

/* All zeros are the middle of the range. */
static bool zeros_are_middle(const struct packed_linear *p) {
    const uint32_t one = (1u << (p->bits - 1)) - (uint32_t)(p->kind == PK_GPTQ ? p->zero : 0);
    uint32_t want = 0;
    if (p->zeros == NULL) return true;
    if (p->kind == PK_INT8) return false;
    for (int i = 0; i < 32; i += p->bits) want |= one << i;
    for (uint64_t i = 0; i < p->zeros->bytes / 4; i++) {
        uint32_t word;
        memcpy(&word, p->zeros->data + 4 * i, sizeof(word));
        if (word != want) return false;
    }
    return true;
}

static int find_grid_bits(const struct packed_linear *p) {
    if (p->kind == PK_MXFP4) return 8; /* twice the values, from -12 to 12 */
    if (p->kind == PK_FP8 || p->g_idx != NULL || p->in % GRID != 0 || p->group % GRID != 0)
        return 0;
    if (zeros_are_middle(p)) return p->bits <= 4 ? 4 : 8;
    return p->bits == 2 ? 4 : p->bits == 4 ? 8 : 0;
}

/* ---- the set */

/* What a tensor's name ends with when it holds the values of a quantised module. */
static bool holds_values(const struct quant_conf *q, const struct tensor *t, enum packed_kind *kind,
                         const char **tail) {
    switch (q->method) {
    case QUANT_AWQ: *kind = PK_AWQ; return ends_with(t->name, *tail = ".qweight");
    case QUANT_GPTQ: *kind = PK_GPTQ; return ends_with(t->name, *tail = ".qweight");
    case QUANT_COMPRESSED:
        *kind = PK_WORDS;
        if (ends_with(t->name, *tail = ".weight_packed")) return true;
        *kind = PK_INT8;
        if (is_type(t, "I8") && ends_with(t->name, *tail = ".weight")) return true;
        break;
    case QUANT_MXFP4: *kind = PK_MXFP4; return ends_with(t->name, *tail = "_blocks");
    case QUANT_FP8: break;
    case QUANT_NONE: return false;
    }
    *kind = PK_FP8;
    return is_type(t, "F8_E4M3") && ends_with(t->name, *tail = ".weight");
}

static enum err add_linear(struct finder *f, size_t idx, enum packed_kind kind, const char *tail) {
    const struct tensor *t = &f->all[idx];
    const bool named = kind == PK_MXFP4; /* what it stands for has the module's own name */
    const size_t n = strlen(t->name) - strlen(tail) + (named ? 0 : 1); /* with the dot */
    struct packed_set *s = f->s;
    struct packed_linear *p = &s->linears[s->n_linears];
    *p = (struct packed_linear){.kind = kind, .parts = {t}, .n_parts = 1};
    f->part[idx] = true;
    enum err e = kind == PK_AWQ || kind == PK_GPTQ ? read_columns(f, p, t->name, n)
                 : kind == PK_WORDS                ? read_words(f, p, t->name, n)
                 : kind == PK_MXFP4                ? read_mxfp4(f, p, t->name, n)
                                                   : read_bytes(f, p, t->name, n);
    if (e != ERR_OK) return e;
    p->grid_bits = find_grid_bits(p);
    char *name = malloc(n + sizeof("weight"));
    if (name == NULL) return err_set(f->eb, ERR_NO_MEMORY, "no memory for tensor names");
    memcpy(name, t->name, n);
    snprintf(name + n, sizeof("weight"), "%s", named ? "" : "weight");
    s->names[s->n_linears++] = name;
    struct tensor *to = &s->tensors[s->n_tensors++];
    *to = (struct tensor){.name = name,
                          .type_name = p->type_name,
                          .n_dims = 2,
                          .dims = {p->out, p->in},
                          .file = t->file,
                          .data = t->data,
                          .packed = p};
    if (p->experts > 0) {
        to->n_dims = 3;
        to->dims[0] = p->experts;
        to->dims[1] = p->out / p->experts;
        to->dims[2] = p->in;
    }
    for (int i = 0; i < p->n_parts; i++) to->bytes += p->parts[i]->bytes;
    return ERR_OK;
}

/* A bias that some tools write whether there is one or not. */
static bool is_zero_bias(const struct packed_set *s, const struct tensor *t) {
    char name[NAME_BYTES];
    const size_t n = strlen(t->name);
    if (!ends_with(t->name, ".bias") || n + 3 > sizeof(name)) return false;
    snprintf(name, sizeof(name), "%.*sweight", (int)(n - strlen("bias")), t->name);
    const struct tensor *w = packed_find(s, name);
    if (w == NULL || w->packed == NULL) return false;
    for (uint64_t i = 0; i < t->bytes; i++)
        if (t->data[i] != 0) return false;
    return true;
}

static bool is_hidden(const struct packed_set *s, const struct tensor *t) {
    static const char *const tails[] = {".input_scale", ".output_scale", ".k_scale", ".v_scale",
                                        ".q_scale"};
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        if (ends_with(t->name, tails[i])) return true;
    return is_zero_bias(s, t);
}

static enum err gather(struct finder *f) {
    struct packed_set *s = f->s;
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < f->n; i++) {
        enum packed_kind kind;
        const char *tail = "";
        if (holds_values(f->q, &f->all[i], &kind, &tail)) e = add_linear(f, i, kind, tail);
    }
    if (e != ERR_OK) return e;
    if (s->n_linears == 0)
        return err_set(f->eb, ERR_BAD_FILE,
                       "config.json: quantization_config.quant_method is %s, but no tensor is "
                       "quantised that way",
                       quant_method_name(f->q->method));
    for (size_t i = 0; i < f->n; i++)
        if (!f->part[i]) s->tensors[s->n_tensors++] = f->all[i];
    qsort(s->tensors, s->n_tensors, sizeof(*s->tensors), by_name);
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (i > 0 && strcmp(s->tensors[i].name, s->tensors[i - 1].name) == 0)
            return bad(f, &s->tensors[i], "is there both quantised and not");
        if (!is_hidden(s, &s->tensors[i])) s->listed[s->n_listed++] = i;
    }
    return ERR_OK;
}

enum err packed_open(struct packed_set **out, const struct quant_conf *q,
                     const struct tensor *tensors, size_t n, struct errbuf *eb) {
    struct finder f = {.q = q, .all = tensors, .n = n, .eb = eb};
    enum err e = ERR_NO_MEMORY;
    *out = NULL;
    if ((f.s = calloc(1, sizeof(*f.s))) != NULL) {
        f.part = calloc(n + 1, sizeof(*f.part));
        f.s->tensors = calloc(n + 1, sizeof(*f.s->tensors));
        f.s->listed = calloc(n + 1, sizeof(*f.s->listed));
        f.s->linears = calloc(n + 1, sizeof(*f.s->linears));
        f.s->names = calloc(n + 1, sizeof(*f.s->names));
    }
    if (f.s == NULL || f.part == NULL || f.s->tensors == NULL || f.s->listed == NULL ||
        f.s->linears == NULL || f.s->names == NULL)
        err_set(eb, e, "no memory for the list of tensors");
    else
        e = gather(&f);
    free(f.part);
    if (e != ERR_OK) packed_close(&f.s);
    *out = f.s;
    return e;
}

void packed_close(struct packed_set **sp) {
    struct packed_set *s = *sp;
    if (s == NULL) return;
    *sp = NULL;
    for (size_t i = 0; i < s->n_linears; i++) free(s->names[i]);
    free(s->names);
    free(s->linears);
    free(s->listed);
    free(s->tensors);
    free(s);
}

size_t packed_count(const struct packed_set *s) {
    return s->n_listed;
}

const struct tensor *packed_at(const struct packed_set *s, size_t idx) {
    return &s->tensors[s->listed[idx]];
}

const struct tensor *packed_find(const struct packed_set *s, const char *name) {
    return find(s->tensors, s->n_tensors, name);
}

const struct tensor *packed_part(const struct packed_linear *p, int idx) {
    return idx >= 0 && idx < p->n_parts ? p->parts[idx] : NULL;
}

void packed_span(const struct packed_linear *p, int idx, uint64_t first, uint64_t n, uint64_t *at,
                 uint64_t *end) {
    const uint64_t bytes = p->parts[idx]->bytes, row = bytes / p->out;
    *at = p->kind == PK_MXFP4 ? first * row : 0;
    *end = p->kind == PK_MXFP4 ? *at + n * row : bytes;
}

int packed_bits(const struct packed_linear *p) {
    return p->bits;
}

/* ---- values */

static uint32_t word_at(const struct tensor *t, uint64_t idx) {
    uint32_t v;
    memcpy(&v, t->data + 4 * idx, sizeof(v));
    return v;
}

static int field(uint32_t word, uint64_t idx, int bits) {
    return (int)(word >> (idx * (uint64_t)bits) & ((1u << bits) - 1));
}

/* Where column c % 8 of AWQ lies in its word. */
static const uint8_t awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static float e4m3(uint8_t v) {
    const uint32_t sign = (uint32_t)(v & 0x80) << 24, e = v >> 3 & 15, m = v & 7;
    if ((v & 0x7f) == 0x7f) return f32_of_bits(0x7fc00000);
    if (e == 0) return (sign != 0 ? -1.0f : 1.0f) * (float)m * 0x1p-9f;
    return f32_of_bits(sign | (e + 120) << 23 | m << 20);
}

static float scale_at(const struct tensor *t, uint64_t idx) {
    uint16_t h;
    float f;
    if (t->type_name[0] == 'B' || is_type(t, "F16")) {
        memcpy(&h, t->data + 2 * idx, sizeof(h));
        return t->type_name[0] == 'B' ? f32_of_bf16(h) : f32_of_f16(h);
    }
    if (is_type(t, "F8_E8M0")) { /* 2^(v - 127); 255 is a NaN */
        const uint8_t v = t->data[idx];
        return f32_of_bits(v == 0 ? 0x00400000 : v == 255 ? 0x7fc00000 : (uint32_t)v << 23);
    }
    memcpy(&f, t->data + 4 * idx, sizeof(f));
    return f;
}

/* Scale and zero of row o in group g. */
static float scale_of(const struct packed_linear *p, uint64_t o, uint64_t g) {
    if (p->kind == PK_MXFP4) return e8m0_half(p->scales->data[o * p->n_groups + g]);
    const bool by_column = p->kind == PK_AWQ || p->kind == PK_GPTQ;
    return scale_at(p->scales, by_column ? g * p->out + o : o / p->block_rows * p->n_groups + g);
}

static int zero_of(const struct packed_linear *p, uint64_t o, uint64_t g) {
    const uint64_t per_word = p->bits > 0 ? 32 / (uint64_t)p->bits : 1;
    if (p->zeros == NULL) return p->zero;
    switch (p->kind) {
    case PK_AWQ: return field(word_at(p->zeros, g * (p->out / 8) + o / 8), awq_nibble[o % 8], 4);
    case PK_GPTQ:
        return p->zero + field(word_at(p->zeros, g * ceil_div(p->out, per_word) + o / per_word),
                               o % per_word, p->bits);
    case PK_WORDS:
        return field(word_at(p->zeros, o / per_word * p->n_groups + g), o % per_word, p->bits);
    case PK_INT8: return (int8_t)p->zeros->data[o / p->block_rows * p->n_groups + g];
    case PK_FP8:
    case PK_MXFP4: break;
    }
    return 0;
}

static inline float value_at(const struct packed_linear *p, enum packed_kind kind, uint64_t o,
                             uint64_t i, int zero) {
    const struct tensor *q = p->parts[0];
    const uint64_t per_word = kind == PK_GPTQ || kind == PK_WORDS ? 32 / (uint64_t)p->bits : 8;
    switch (kind) {
    case PK_AWQ:
        return (float)(field(word_at(q, i * (p->out / 8) + o / 8), awq_nibble[o % 8], 4) - zero);
    case PK_GPTQ:
        return (float)(field(word_at(q, i / per_word * p->out + o), i % per_word, p->bits) - zero);
    case PK_WORDS:
        return (float)(field(word_at(q, o * q->dims[1] + i / per_word), i % per_word, p->bits) -
                       zero);
    case PK_INT8: return (float)((int8_t)q->data[o * p->in + i] - zero);
    case PK_MXFP4: return (float)tensor_codes_fp4[q->data[(o * p->in + i) / 2] >> (i % 2 * 4) & 15];
    case PK_FP8: break;
    }
    return e4m3(q->data[o * p->in + i]);
}

/* A few rows side by side: formats packed along the rows have them in one cache line. */
static inline __attribute__((always_inline)) void rows_of(const struct packed_linear *p,
                                                          enum packed_kind kind, float *dst,
                                                          uint64_t first, size_t n) {
    float scale[ROWS_AT_ONCE];
    int zero[ROWS_AT_ONCE];
    uint64_t last = UINT64_MAX;
    for (uint64_t i = 0; i < p->in; i++) {
        const uint64_t g = p->g_idx != NULL ? (uint64_t)i32_at(p->g_idx, i) : i / p->group;
        for (size_t r = 0; g != last && r < n; r++) {
            scale[r] = scale_of(p, first + r, g);
            zero[r] = zero_of(p, first + r, g);
        }
        last = g;
        for (size_t r = 0; r < n; r++)
            dst[r * p->in + i] = value_at(p, kind, first + r, i, zero[r]) * scale[r];
    }
}

void packed_rows(const struct packed_linear *p, float *dst, uint64_t first, size_t n) {
    for (size_t at = 0; at < n; at += ROWS_AT_ONCE) {
        const size_t some = n - at < ROWS_AT_ONCE ? n - at : ROWS_AT_ONCE;
        float *to = dst + at * p->in;
        switch (p->kind) {
        case PK_AWQ: rows_of(p, PK_AWQ, to, first + at, some); break;
        case PK_GPTQ: rows_of(p, PK_GPTQ, to, first + at, some); break;
        case PK_WORDS: rows_of(p, PK_WORDS, to, first + at, some); break;
        case PK_INT8: rows_of(p, PK_INT8, to, first + at, some); break;
        case PK_FP8: rows_of(p, PK_FP8, to, first + at, some); break;
        case PK_MXFP4: rows_of(p, PK_MXFP4, to, first + at, some); break;
        }
    }
}

int packed_grid_bits(const struct packed_linear *p) {
    return p->grid_bits;
}

float packed_grid(const struct packed_linear *p, int8_t q[32], uint64_t row, uint64_t idx) {
    const uint64_t at = idx * GRID, g = at / p->group;
    const int zero = zero_of(p, row, g);
    for (uint64_t i = 0; i < GRID; i++) q[i] = (int8_t)value_at(p, p->kind, row, at + i, zero);
    return scale_of(p, row, g);
}
