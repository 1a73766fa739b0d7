/* gguf: files, parts, look-ups. */
#include "common/base/gguf.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, PART_TAIL_BYTES = sizeof("-00001-of-00001.gguf") - 1 };

struct part {
    struct file_map map;  /* of the header */
    struct file_map data; /* all of the file, once tensors are needed */
    char *path;
    bool lent; /* its bytes are not ours */
};

struct gguf {
    struct part *parts;
    int n_parts;
    struct gguf_header head; /* pairs of the first part, tensors of all */
};

/* ---- which file */
static bool ends_in(const char *s, const char *tail) {
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* "-00002-of-00003.gguf": its number and the whole; false: the name has no such tail. */
static bool part_of(const char *name, unsigned *no, unsigned *count) {
    const size_t n = strlen(name);
    int used = 0;
    if (n < PART_TAIL_BYTES) return false;
    const char *tail = name + n - PART_TAIL_BYTES;
    return sscanf(tail, "-%5u-of-%5u.gguf%n", no, count, &used) == 2 && used == PART_TAIL_BYTES;
}

static enum err find_in_folder(char *file, size_t n, const char *dir, struct errbuf *eb) {
    char found[256] = "";
    unsigned no, count;
    DIR *d = opendir(dir);
    if (d == NULL) return err_set(eb, ERR_NOT_FOUND, "%s: %s", dir, strerror(errno));
    enum err e = ERR_OK;
    for (struct dirent *f; e == ERR_OK && (f = readdir(d)) != NULL;) {
        if (f->d_name[0] == '.' || !ends_in(f->d_name, ".gguf")) continue;
        if (part_of(f->d_name, &no, &count) && no != 1) continue;
        if (found[0] != 0)
            e = err_set(eb, ERR_BAD_FILE, "%s has several .gguf files, %s and %s: name one of them",
                        dir, found, f->d_name);
        snprintf(found, sizeof(found), "%s", f->d_name);
    }
    closedir(d);
    if (e != ERR_OK) return e;
    if (found[0] == 0) return err_set(eb, ERR_NOT_FOUND, "%s has no .gguf file", dir);
    if ((size_t)snprintf(file, n, "%s/%s", dir, found) >= n)
        return err_set(eb, ERR_BAD_FILE, "%s: the path is too long", dir);
    return ERR_OK;
}

enum err gguf_locate(char *file, size_t n, const char *path, struct errbuf *eb) {
    char conf[PATH_BYTES];
    struct stat st;
    if (stat(path, &st) != 0) return err_set(eb, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        if (!ends_in(path, ".gguf"))
            return err_set(eb, ERR_NOT_FOUND, "%s: neither a folder nor a .gguf file", path);
        if ((size_t)snprintf(file, n, "%s", path) >= n)
            return err_set(eb, ERR_BAD_FILE, "%s: the path is too long", path);
        return ERR_OK;
    }
    if ((size_t)snprintf(conf, sizeof(conf), "%s/config.json", path) >= sizeof(conf))
        return err_set(eb, ERR_BAD_FILE, "%s: the path is too long", path);
    if (access(conf, F_OK) == 0)
        return err_set(eb, ERR_NOT_FOUND, "%s: a folder with a config.json", path);
    return find_in_folder(file, n, path, eb);
}

/* ---- parts */
static enum err parse_part(struct gguf_header *h, const struct part *p, struct errbuf *eb) {
    struct errbuf why = {0};
    enum err e = gguf_header_parse(h, p->map.p, (size_t)p->map.mapped, p->map.bytes, &why);
    return e == ERR_OK ? e : err_set(eb, e, "%s: %s", p->map.name, why.text);
}

static enum err open_part(struct gguf_header *h, struct part *p, const char *path,
                          struct errbuf *eb) {
    if ((p->path = strdup(path)) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for file names");
    enum err e = file_map_open(&p->map, path, 1, eb);
    if (e == ERR_OK) e = parse_part(h, p, eb);
    if (e == ERR_OK) file_map_keep(&p->map, h->bytes);
    return e;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

/* The tensors of part idx join those that are there. */
static enum err join_part(struct gguf *g, int idx, struct gguf_header *h, struct errbuf *eb) {
    const struct gguf one = {.head = *h};
    uint64_t no = 0;
    if (!gguf_u64(&one, "split.no", &no) || no != (uint64_t)idx)
        return err_set(eb, ERR_BAD_FILE, "%s: split.no must be %d, got %llu",
                       g->parts[idx].map.name, idx, (unsigned long long)no);
    const size_t n = g->head.n_tensors + h->n_tensors;
    struct gguf_tensor *grown =
        n <= GGUF_TENSORS_MAX ? realloc(g->head.tensors, (n + 1) * sizeof(*grown)) : NULL;
    if (grown == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory for %zu tensors (at most %d)", n,
                       GGUF_TENSORS_MAX);
    for (size_t i = 0; i < h->n_tensors; i++) h->tensors[i].part = idx;
    memcpy(grown + g->head.n_tensors, h->tensors, h->n_tensors * sizeof(*grown));
    g->head.tensors = grown;
    g->head.n_tensors = n;
    return ERR_OK;
}

/* file: of the first part. */
static enum err open_parts(struct gguf *g, const char *file, uint64_t count, struct errbuf *eb) {
    const struct file_map *first = &g->parts[0].map;
    unsigned no = 0, of = 0;
    uint64_t first_no = 0, total = 0;
    char path[PATH_BYTES];
    if (count > GGUF_PARTS_MAX)
        return err_set(eb, ERR_BAD_FILE, "%s: split.count must be at most %d, got %llu",
                       first->name, GGUF_PARTS_MAX, (unsigned long long)count);
    if (!gguf_u64(g, "split.no", &first_no) || first_no != 0)
        return err_set(eb, ERR_BAD_FILE, "%s: is part %llu of %llu: name the first one",
                       first->name, (unsigned long long)first_no + 1, (unsigned long long)count);
    if (!part_of(first->name, &no, &of) || no != 1 || of != count)
        return err_set(eb, ERR_BAD_FILE, "%s: must be called ...-00001-of-%05llu.gguf", first->name,
                       (unsigned long long)count);
    for (int i = 1; i < (int)count; i++) {
        const size_t stem = strlen(file) - PART_TAIL_BYTES;
        struct gguf_header h;
        if ((size_t)snprintf(path, sizeof(path), "%.*s-%05d-of-%05u.gguf", (int)stem, file, i + 1,
                             of) >= sizeof(path))
            return err_set(eb, ERR_BAD_FILE, "%s: the path is too long", first->name);
        g->n_parts = i + 1;
        enum err e = open_part(&h, &g->parts[i], path, eb);
        if (e != ERR_OK) return e;
        e = join_part(g, i, &h, eb);
        gguf_header_free(&h);
        if (e != ERR_OK) return e;
    }
    if (gguf_u64(g, "split.tensors.count", &total) && total != g->head.n_tensors)
        return err_set(eb, ERR_BAD_FILE, "%s: split.tensors.count is %llu, the parts have %zu",
                       first->name, (unsigned long long)total, g->head.n_tensors);
    qsort(g->head.tensors, g->head.n_tensors, sizeof(*g->head.tensors), by_name);
    for (size_t i = 1; i < g->head.n_tensors; i++)
        if (by_name(&g->head.tensors[i - 1], &g->head.tensors[i]) == 0)
            return err_set(eb, ERR_BAD_FILE, "%s: tensor %s is in two parts", first->name,
                           g->head.tensors[i].name);
    return ERR_OK;
}

static struct gguf *gguf_new(struct errbuf *eb) {
    struct gguf *g = calloc(1, sizeof(*g));
    if (g != NULL && (g->parts = calloc(GGUF_PARTS_MAX, sizeof(*g->parts))) != NULL) {
        g->n_parts = 1;
        return g;
    }
    free(g);
    err_set(eb, ERR_NO_MEMORY, "no memory for the list of files");
    return NULL;
}

enum err gguf_open_head(struct gguf **out, const uint8_t *p, size_t n, uint64_t file_bytes,
                        const char *name, struct errbuf *eb) {
    struct gguf *g = *out = gguf_new(eb);
    if (g == NULL) return ERR_NO_MEMORY;
    g->parts[0] = (struct part){
        .map = {.name = strdup(name), .p = (uint8_t *)p, .bytes = file_bytes, .mapped = n},
        .lent = true};
    if (g->parts[0].map.name == NULL) {
        gguf_close(out);
        return err_set(eb, ERR_NO_MEMORY, "no memory for file names");
    }
    enum err e = parse_part(&g->head, &g->parts[0], eb);
    if (e != ERR_OK) gguf_close(out);
    return e;
}

enum err gguf_open_bytes(struct gguf **out, const uint8_t *p, size_t n, const char *name,
                         struct errbuf *eb) {
    return gguf_open_head(out, p, n, n, name, eb);
}

enum err gguf_open(struct gguf **out, const char *file, struct errbuf *eb) {
    struct gguf *g = gguf_new(eb);
    uint64_t count = 0;
    *out = NULL;
    if (g == NULL) return ERR_NO_MEMORY;
    enum err e = open_part(&g->head, &g->parts[0], file, eb);
    if (e == ERR_OK && gguf_u64(g, "split.count", &count) && count > 1)
        e = open_parts(g, file, count, eb);
    if (e != ERR_OK) gguf_close(&g);
    *out = g;
    return e;
}

void gguf_close(struct gguf **gp) {
    struct gguf *g = *gp;
    if (g == NULL) return;
    *gp = NULL;
    for (int i = 0; i < g->n_parts; i++) {
        if (g->parts[i].lent) g->parts[i].map.p = NULL;
        file_map_close(&g->parts[i].map);
        file_map_close(&g->parts[i].data);
        free(g->parts[i].path);
    }
    gguf_header_free(&g->head);
    free(g->parts);
    free(g);
}

const char *gguf_name(const struct gguf *g) {
    return g->parts[0].map.name;
}

/* ---- look-ups */
const struct gguf_pair *gguf_find(const struct gguf *g, const char *key) {
    const size_t len = strlen(key);
    size_t low = 0, high = g->head.n_pairs;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const struct gguf_pair *p = &g->head.pairs[mid];
        const size_t n = p->key_bytes < len ? p->key_bytes : len;
        int c = memcmp(key, p->key, n);
        if (c == 0) c = len < p->key_bytes ? -1 : len > p->key_bytes;
        if (c == 0) return p;
        if (c < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}

static const struct gguf_pair *scalar(const struct gguf *g, const char *key) {
    const struct gguf_pair *p = gguf_find(g, key);
    return p != NULL && !p->is_array ? p : NULL;
}

bool gguf_u64(const struct gguf *g, const char *key, uint64_t *out) {
    const struct gguf_pair *p = scalar(g, key);
    int64_t v;
    if (p == NULL || !gguf_pair_i64(p, 0, &v) || v < 0) return false;
    *out = (uint64_t)v;
    return true;
}

bool gguf_f64(const struct gguf *g, const char *key, double *out) {
    const struct gguf_pair *p = scalar(g, key);
    return p != NULL && gguf_pair_f64(p, 0, out);
}

bool gguf_bool(const struct gguf *g, const char *key, bool *out) {
    const struct gguf_pair *p = scalar(g, key);
    if (p == NULL || p->kind != GGUF_BOOL) return false;
    *out = p->value[0] != 0;
    return true;
}

bool gguf_str(const struct gguf *g, const char *key, const char **s, size_t *n) {
    const struct gguf_pair *p = scalar(g, key);
    struct gguf_cursor at = {0};
    return p != NULL && gguf_next_str(p, &at, s, n);
}

size_t gguf_n_tensors(const struct gguf *g) {
    return g->head.n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t idx) {
    return &g->head.tensors[idx];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name) {
    struct gguf_tensor want = {0};
    if (strlen(name) > GGUF_NAME_BYTES_MAX) return NULL;
    snprintf(want.name, sizeof(want.name), "%s", name);
    return g->head.n_tensors == 0
               ? NULL
               : bsearch(&want, g->head.tensors, g->head.n_tensors, sizeof(want), by_name);
}

enum err gguf_map_tensors(struct gguf *g, struct errbuf *eb) {
    for (int i = 0; i < g->n_parts; i++) {
        struct part *p = &g->parts[i];
        if (p->lent || p->data.p != NULL) continue;
        enum err e = file_map_open(&p->data, p->path, p->map.bytes, eb);
        if (e != ERR_OK) return e;
        if (p->data.inode == p->map.inode && p->data.mtime_ns == p->map.mtime_ns &&
            p->data.bytes == p->map.bytes)
            continue;
        file_map_close(&p->data);
        return err_set(eb, ERR_BAD_FILE, "%s: has been replaced or changed since it was opened",
                       p->map.name);
    }
    return ERR_OK;
}

const uint8_t *gguf_tensor_data(const struct gguf *g, const struct gguf_tensor *t) {
    const struct part *p = &g->parts[t->part];
    return (p->lent ? p->map.p : p->data.p) + t->begin;
}

void gguf_tensor_drop(const struct gguf *g, const struct gguf_tensor *t, uint64_t from,
                      uint64_t n) {
    const struct part *p = &g->parts[t->part];
    if (!p->lent) file_map_drop(&p->data, t->begin + from, n);
}

void gguf_drop(const struct gguf *g, int idx) {
    const struct part *p = &g->parts[idx];
    if (!p->lent) file_map_drop(&p->data, 0, p->data.mapped);
}

const struct file_map *gguf_part(const struct gguf *g, int idx) {
    return idx >= 0 && idx < g->n_parts ? &g->parts[idx].map : NULL;
}
