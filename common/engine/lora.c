/* lora: from files to panels. */
#include "common/engine/lora.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/gguf.h"
#include "common/engine/kernels.h"
#include "common/engine/lora_file.h"
#include "common/engine/model_conf.h"

#define CONFIG_NAME  "adapter_config.json"
#define WEIGHTS_NAME "adapter_model.safetensors"

enum { ALIGN_BYTES = 64, PATH_BYTES_MAX = 4096, NAME_BYTES = 128 };

struct reading {
    const struct lora_source *file;
    const struct model_info *base;
    struct lora_conf conf; /* of a GGUF file it says nothing but which modules */
    struct lora_file names;
    struct kernels kn;
    const struct lora_tensor **halves; /* [n_layers][LORA_MODULES][2]: A and B; NULL: not there */
    int rank_max;
    struct lora *lora;
    EVP_MD_CTX *hash;
    uint8_t *raw; /* one tensor as in the file */
    float *rows;  /* and as f32 */
};

/* ---- shapes */

static void extents(const struct model_info *b, enum lora_module m, int *n, int *k) {
    const int q = b->n_heads * b->head_dim, kv = b->n_kv_heads * b->head_dim;
    const int shapes[LORA_MODULES][2] = {
        [LORA_Q] = {q, b->hidden},
        [LORA_K] = {kv, b->hidden},
        [LORA_V] = {kv, b->hidden},
        [LORA_O] = {b->hidden, q},
        [LORA_GATE] = {b->intermediate, b->hidden},
        [LORA_UP] = {b->intermediate, b->hidden},
        [LORA_DOWN] = {b->hidden, b->intermediate},
    };
    *n = shapes[m][0];
    *k = shapes[m][1];
}

static size_t panels_bytes(int n, int k) {
    size_t bytes = ((size_t)n + PANEL_ROWS - 1) / PANEL_ROWS * panel_bytes(k, DTYPE_F32);
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static const struct lora_tensor **half_at(const struct reading *r, int layer, int m, int b) {
    return &r->halves[((size_t)layer * LORA_MODULES + (size_t)m) * 2 + (size_t)b];
}

static enum err sort_tensors(struct reading *r, struct errbuf *eb) {
    for (size_t i = 0; i < r->names.n; i++) {
        const struct lora_tensor *t = &r->names.tensors[i];
        if ((r->conf.modules & 1u << t->module) == 0)
            return err_set(eb, ERR_BAD_FILE,
                           "%s: tensor %s is not among the target_modules of " CONFIG_NAME,
                           r->names.name, t->name);
        *half_at(r, t->layer, (int)t->module, t->half) = t;
    }
    return ERR_OK;
}

/* What the tensors must agree with. */
static enum err find_rank(const struct reading *r, const struct lora_tensor *a, int layer, int m,
                          int *rank, struct errbuf *eb) {
    uint64_t n = r->names.is_gguf ? a->dims[0]
                                  : (uint64_t)lora_conf_rank(&r->conf, layer, (enum lora_module)m);
    if (n < 1 || n > (uint64_t)r->rank_max)
        return err_set(eb, ERR_TOO_LARGE, "rank must be from 1 to %d, got %llu", r->rank_max,
                       (unsigned long long)n);
    *rank = (int)n;
    return ERR_OK;
}

static float scale_of(const struct reading *r, int layer, int m, int rank) {
    if (!r->names.is_gguf) return lora_conf_scale(&r->conf, layer, (enum lora_module)m);
    return r->names.alpha != 0 ? (float)(r->names.alpha / rank) : 1;
}

static enum err check_tensor(const struct reading *r, const struct lora_tensor *t, int n, int k,
                             struct errbuf *eb) {
    if (t->type == NULL)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: tensor %s has dtype %s, allowed are F32, F16 and BF16", r->names.name,
                       t->name, t->type_name);
    if (t->n_dims == 2 && t->dims[0] == (uint64_t)n && t->dims[1] == (uint64_t)k) return ERR_OK;
    char got[ST_DIMS_MAX * 22 + 1] = "";
    for (int i = 0; i < t->n_dims; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%llu", i > 0 ? ", " : "",
                 (unsigned long long)t->dims[i]);
    return err_set(
        eb, ERR_BAD_FILE, "%s: tensor %s must have shape [%d, %d] by %s, got [%s]", r->names.name,
        t->name, n, k,
        r->names.is_gguf ? "its rank and the base model" : CONFIG_NAME " and the base model", got);
}

/* Every pair whole, of the right shapes, and none missing. Adds the memory up. */
static enum err check_pairs(struct reading *r, size_t *values_max, struct errbuf *eb) {
    const struct lora_conf *c = &r->conf;
    size_t n_pairs = 0;
    *values_max = 0;
    for (int layer = 0; layer < r->base->n_layers; layer++) {
        for (int m = 0; m < LORA_MODULES; m++) {
            const struct lora_tensor *a = *half_at(r, layer, m, 0), *b = *half_at(r, layer, m, 1);
            bool wanted = (c->modules & 1u << m) != 0 && !c->some_layers && !c->some_modules;
            if (a == NULL && b == NULL && !wanted) continue;
            if (a == NULL || b == NULL) {
                char name[NAME_BYTES];
                lora_file_name_of(&r->names, layer, (enum lora_module)m, a != NULL, name,
                                  sizeof(name));
                return err_set(eb, ERR_BAD_FILE, "%s: tensor %s is missing", r->names.name, name);
            }
            int rank = 0, n, k;
            enum err e = find_rank(r, a, layer, m, &rank, eb);
            extents(r->base, (enum lora_module)m, &n, &k);
            if (e == ERR_OK) e = check_tensor(r, a, rank, k, eb);
            if (e == ERR_OK) e = check_tensor(r, b, n, rank, eb);
            if (e != ERR_OK) return e;
            size_t values = (size_t)(n > k ? n : k) * (size_t)rank;
            if (values > *values_max) *values_max = values;
            if (rank > r->lora->rank) r->lora->rank = rank;
            r->lora->bytes += panels_bytes(rank, k) + panels_bytes(n, rank);
            n_pairs++;
        }
    }
    return n_pairs > 0 ? ERR_OK : err_set(eb, ERR_BAD_FILE, "%s: holds no tensor", r->names.name);
}

/* ---- values */

static void hash_add(struct reading *r, const void *p, size_t n) {
    (void)EVP_DigestUpdate(r->hash, p, n);
}

/* The rows of each head that turn, from RoPE's pairs to what the model's kernels take: half of
 * rope_dim apart. */
static void rows_to_halves(struct reading *r, int n, int k) {
    const int dim = r->base->head_dim, half = r->base->rope_dim / 2;
    const size_t row = (size_t)k;
    float *spare = (float *)(void *)r->raw; /* hashed, widened: done with */
    for (int head = 0; head < n; head += dim) {
        float *rows = r->rows + (size_t)head * row;
        memcpy(spare, rows, 2 * (size_t)half * row * sizeof(float));
        for (int i = 0; i < 2 * half; i++)
            memcpy(rows + (size_t)i * row,
                   spare + (size_t)(i < half ? 2 * i : 2 * (i - half) + 1) * row,
                   row * sizeof(float));
    }
}

/* Tensor t, W [n][k], to panels. pairs: rows of heads, which lie as RoPE's pairs. */
static enum err load_tensor(struct reading *r, const struct lora_tensor *t, int n, int k,
                            bool pairs, uint8_t *panels, struct errbuf *eb) {
    const size_t bytes = (size_t)n * tensor_row_bytes(t->type, k), values = (size_t)n * (size_t)k;
    if (!r->file->read(r->file->arg, t->begin, r->raw, bytes))
        return err_set(eb, ERR_BAD_FILE, "%s: tensor %s cannot be read", r->names.name, t->name);
    hash_add(r, t->type_name, strlen(t->type_name) + 1);
    hash_add(r, r->raw, bytes);
    t->type->to_f32(r->rows, r->raw, values / (size_t)t->type->elements);
    for (size_t i = 0; i < values; i++)
        if (!isfinite(r->rows[i]))
            return err_set(eb, ERR_BAD_FILE, "%s: tensor %s holds a value that is not finite",
                           r->names.name, t->name);
    if (pairs) rows_to_halves(r, n, k);
    for (int first = 0; first < n; first += PANEL_ROWS)
        r->kn.panel_pack(panels + (size_t)(first / PANEL_ROWS) * panel_bytes(k, DTYPE_F32),
                         r->rows + (size_t)first * (size_t)k,
                         n - first < PANEL_ROWS ? n - first : PANEL_ROWS, k, DTYPE_F32);
    return ERR_OK;
}

static enum err load_pairs(struct reading *r, struct errbuf *eb) {
    uint8_t *at = r->lora->memory;
    for (int layer = 0; layer < r->base->n_layers; layer++) {
        for (int m = 0; m < LORA_MODULES; m++) {
            const struct lora_tensor *a = *half_at(r, layer, m, 0), *b = *half_at(r, layer, m, 1);
            struct lora_pair *p = &r->lora->pairs[(size_t)layer * LORA_MODULES + (size_t)m];
            int n, k;
            if (a == NULL) continue;
            extents(r->base, (enum lora_module)m, &n, &k);
            p->rank = (int)a->dims[0];
            p->scale = scale_of(r, layer, m, p->rank);
            p->a = at;
            p->b = at + panels_bytes(p->rank, k);
            at = p->b + panels_bytes(n, p->rank);
            const int32_t line[] = {layer, m, p->rank, n, k};
            hash_add(r, line, sizeof(line));
            hash_add(r, &p->scale, sizeof(p->scale));
            const bool pairs = r->names.pairs && (m == LORA_Q || m == LORA_K);
            enum err e = load_tensor(r, a, p->rank, k, false, p->a, eb);
            if (e == ERR_OK) e = load_tensor(r, b, n, p->rank, pairs, p->b, eb);
            if (e != ERR_OK) return e;
        }
    }
    return ERR_OK;
}

/* ---- the file */

static enum err reserve(struct reading *r, size_t values_max, struct errbuf *eb) {
    r->lora->memory = aligned_alloc(ALIGN_BYTES, r->lora->bytes);
    r->raw = malloc(values_max * sizeof(float));
    r->rows = malloc(values_max * sizeof(float));
    if (r->lora->memory != NULL && r->raw != NULL && r->rows != NULL) return ERR_OK;
    return err_set(eb, ERR_NO_MEMORY, "no memory for an adapter of %zu bytes", r->lora->bytes);
}

static enum err read_all(struct reading *r, const char *config, size_t n_config,
                         struct errbuf *eb) {
    size_t n_pairs = (size_t)r->base->n_layers * LORA_MODULES, values_max;
    enum err e = ERR_OK;
    if (config != NULL)
        e = lora_conf_parse(&r->conf, config, n_config, eb);
    else
        r->conf = (struct lora_conf){.modules = (1u << LORA_MODULES) - 1, .some_modules = true};
    if (e != ERR_OK) return e;
    if ((e = kernels_find(&r->kn, r->base->kernels, eb)) != ERR_OK) return e;
    r->lora->pairs = calloc(n_pairs, sizeof(*r->lora->pairs));
    r->halves = calloc(n_pairs * 2, sizeof(const struct lora_tensor *));
    r->hash = EVP_MD_CTX_new();
    if (r->lora->pairs == NULL || r->halves == NULL || r->hash == NULL ||
        EVP_DigestInit_ex(r->hash, EVP_sha256(), NULL) != 1)
        return err_set(eb, ERR_NO_MEMORY, "no memory for an adapter");
    if ((e = lora_file_open(&r->names, r->file, config == NULL, r->base, eb)) != ERR_OK) return e;
    if ((e = sort_tensors(r, eb)) != ERR_OK) return e;
    if ((e = check_pairs(r, &values_max, eb)) != ERR_OK) return e;
    if ((e = reserve(r, values_max, eb)) != ERR_OK) return e;
    hash_add(r, r->base->conf_hash, sizeof(r->base->conf_hash));
    if ((e = load_pairs(r, eb)) != ERR_OK) return e;
    return EVP_DigestFinal_ex(r->hash, r->lora->hash, NULL) == 1
               ? ERR_OK
               : err_set(eb, ERR_INTERNAL, "the adapter cannot be hashed");
}

enum err lora_read(struct lora **out, const char *config, size_t n_config,
                   const struct lora_source *file, const struct model_info *base, int rank_max,
                   struct errbuf *eb) {
    struct reading r = {.file = file, .base = base, .rank_max = rank_max};
    *out = NULL;
    if (base->values_in_keys > 0)
        return err_set(eb, ERR_BAD_FILE, "models with latent attention take no adapters, got one");
    if ((r.lora = calloc(1, sizeof(*r.lora))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for an adapter");
    atomic_init(&r.lora->refs, 1);
    enum err e = read_all(&r, config, n_config, eb);
    lora_conf_free(&r.conf);
    lora_file_close(&r.names);
    EVP_MD_CTX_free(r.hash);
    free(r.halves);
    free(r.raw);
    free(r.rows);
    if (e != ERR_OK) lora_unref(&r.lora);
    *out = r.lora;
    return e;
}

/* Opens a plain file: a pipe or a device would never end. */
static enum err open_file(int *fd, const char *path, uint64_t *bytes, struct errbuf *eb) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return err_set(eb, ERR_NOT_FOUND, "%s: %s", name, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return err_set(eb, ERR_NOT_FOUND, "%s: not a plain file", name);
    }
    *bytes = (uint64_t)st.st_size;
    return ERR_OK;
}

static enum err open_in(int *fd, const char *dir, const char *name, uint64_t *bytes,
                        struct errbuf *eb) {
    char path[PATH_BYTES_MAX];
    const int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(eb, ERR_NOT_FOUND, "%s: the path is too long", name);
    return open_file(fd, path, bytes, eb);
}

static bool read_at(void *arg, uint64_t offset, void *dst, size_t n) {
    const int *fd = arg;
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(*fd, (uint8_t *)dst + at, n - at, (off_t)(offset + at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

static enum err open_gguf(struct lora **out, const char *path, const struct model_info *base,
                          int rank_max, struct errbuf *eb) {
    const char *slash = strrchr(path, '/');
    int fd = -1;
    struct lora_source file = {
        .name = slash != NULL ? slash + 1 : path, .read = read_at, .arg = &fd};
    enum err e = open_file(&fd, path, &file.bytes, eb);
    if (e == ERR_OK) e = lora_read(out, NULL, 0, &file, base, rank_max, eb);
    if (fd >= 0) close(fd);
    return e;
}

static enum err open_peft(struct lora **out, const char *dir, const struct model_info *base,
                          int rank_max, struct errbuf *eb) {
    int config_fd = -1, fd = -1;
    uint64_t config_bytes = 0;
    struct lora_source file = {.name = WEIGHTS_NAME, .read = read_at, .arg = &fd};
    char *config = NULL;
    enum err e = open_in(&config_fd, dir, CONFIG_NAME, &config_bytes, eb);
    if (e == ERR_OK) e = open_in(&fd, dir, WEIGHTS_NAME, &file.bytes, eb);
    if (e == ERR_OK && config_bytes > LORA_CONF_BYTES_MAX)
        e = err_set(eb, ERR_BAD_FILE, CONFIG_NAME ": larger than %d bytes", LORA_CONF_BYTES_MAX);
    if (e == ERR_OK && (config = malloc((size_t)config_bytes + 1)) == NULL)
        e = err_set(eb, ERR_NO_MEMORY, "no memory for " CONFIG_NAME);
    if (e == ERR_OK && !read_at(&config_fd, 0, config, (size_t)config_bytes))
        e = err_set(eb, ERR_BAD_FILE, CONFIG_NAME ": cannot be read");
    if (e == ERR_OK) e = lora_read(out, config, (size_t)config_bytes, &file, base, rank_max, eb);
    free(config);
    if (config_fd >= 0) close(config_fd);
    if (fd >= 0) close(fd);
    return e;
}

enum err lora_open(struct lora **out, const char *path, const struct model_info *base, int rank_max,
                   struct errbuf *eb) {
    char file[PATH_BYTES_MAX], conf[PATH_BYTES_MAX];
    struct stat st;
    struct errbuf why = {0};
    const size_t n = strlen(path);
    *out = NULL;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0 &&
        (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
        return open_gguf(out, path, base, rank_max, eb);
    snprintf(conf, sizeof(conf), "%s/" CONFIG_NAME, path);
    if (access(conf, F_OK) != 0) {
        enum err e = gguf_locate(file, sizeof(file), path, &why);
        if (e == ERR_OK) return open_gguf(out, file, base, rank_max, eb);
        if (e == ERR_BAD_FILE)
            return err_set(eb, e, "the folder has several .gguf files: name one of them");
    }
    return open_peft(out, path, base, rank_max, eb);
}
