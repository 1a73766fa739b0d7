/* prom_merge: a table of sums, a table of what each instance said last, and a strict reader. */
#include "coordinator/prom_merge.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/metrics.h"
#include "proto/hash.h"

enum { BUCKETS = 8192 };

enum kind { KIND_OTHER, KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

struct family;

struct sample {
    struct sample *next;      /* of the family */
    struct sample *hash_next; /* bucket */
    struct family *family;
    double value, weight; /* weight: of a mean */
    uint64_t round;       /* the gauge's */
    char key[];           /* `name{labels}` */
};

struct family {
    struct family *next;
    enum kind kind;
    char *help; /* "" when it said none */
    struct sample *first, **last;
    char name[];
};

/* What an instance said last of a counter. */
struct last {
    struct last *next;
    uint32_t id;
    double value;
    char key[];
};

struct prom_merge {
    struct family *first, **last;
    size_t n_families, n_samples, n_lasts;
    struct sample *samples[BUCKETS];
    struct last *lasts[BUCKETS];
    uint64_t round;
};

static uint64_t hash_of(const char *s, uint32_t id) {
    return hash64_text(HASH64_BEGIN ^ id, s) % BUCKETS;
}

/* ---- tables */

static struct family *family_find(const struct prom_merge *pm, const char *name) {
    struct family *f = pm->first;
    while (f != NULL && strcmp(f->name, name) != 0) f = f->next;
    return f;
}

static struct family *family_put(struct prom_merge *pm, const char *name) {
    struct family *f = family_find(pm, name);
    if (f != NULL || pm->n_families >= PROM_FAMILIES_MAX) return f;
    size_t n = strlen(name) + 1;
    f = calloc(1, sizeof(*f) + n);
    if (f == NULL) return NULL;
    memcpy(f->name, name, n);
    f->last = &f->first;
    *pm->last = f;
    pm->last = &f->next;
    pm->n_families++;
    return f;
}

static struct sample *sample_find(const struct prom_merge *pm, const char *key) {
    struct sample *s = pm->samples[hash_of(key, 0)];
    while (s != NULL && strcmp(s->key, key) != 0) s = s->hash_next;
    return s;
}

static struct sample *sample_put(struct prom_merge *pm, struct family *f, const char *key) {
    struct sample *s = sample_find(pm, key);
    if (s != NULL || pm->n_samples >= PROM_SAMPLES_MAX) return s;
    size_t n = strlen(key) + 1;
    s = calloc(1, sizeof(*s) + n);
    if (s == NULL) return NULL;
    memcpy(s->key, key, n);
    s->family = f;
    *f->last = s;
    f->last = &s->next;
    struct sample **b = &pm->samples[hash_of(key, 0)];
    s->hash_next = *b;
    *b = s;
    pm->n_samples++;
    return s;
}

/* Where the instance's last value of a counter is kept; NULL: no room. */
static double *last_put(struct prom_merge *pm, uint32_t id, const char *key) {
    struct last **b = &pm->lasts[hash_of(key, id)], *l = *b;
    while (l != NULL && (l->id != id || strcmp(l->key, key) != 0)) l = l->next;
    if (l != NULL) return &l->value;
    size_t n = strlen(key) + 1;
    if (pm->n_lasts >= PROM_SAMPLES_MAX || (l = calloc(1, sizeof(*l) + n)) == NULL) return NULL;
    memcpy(l->key, key, n);
    l->id = id;
    l->next = *b;
    *b = l;
    pm->n_lasts++;
    return &l->value;
}

void prom_merge_forget(struct prom_merge *pm, uint32_t id) {
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct last **at = &pm->lasts[i]; *at != NULL;) {
            struct last *l = *at;
            if (l->id != id) {
                at = &l->next;
                continue;
            }
            *at = l->next;
            free(l);
            pm->n_lasts--;
        }
    }
}

/* ---- one line */

static size_t name_len(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789");
    return n > 0 && s[0] >= '0' && s[0] <= '9' ? 0 : n;
}

/* From behind `{`: the bytes up to and with the closing brace; 0: malformed. */
static size_t labels_len(const char *s) {
    size_t i = 0;
    while (s[i] != '}') {
        size_t n = name_len(s + i);
        if (n == 0 || s[i + n] != '=' || s[i + n + 1] != '"') return 0;
        for (i += n + 2; s[i] != '"'; i++) {
            if (s[i] == '\0' || (s[i] == '\\' && s[++i] == '\0')) return 0;
        }
        i++;
        if (s[i] == ',') {
            i++;
        } else if (s[i] != '}') {
            return 0;
        }
    }
    return i + 1;
}

struct line {
    char name[256];
    const char *labels; /* between the braces */
    size_t labels_len;
    double value;
};

/* A sample, terminated by zero. A time stamp behind the value is allowed and not used. */
static bool read_sample(struct line *l, const char *s) {
    size_t n = name_len(s);
    char *end;
    if (n == 0 || n >= sizeof(l->name)) return false;
    memcpy(l->name, s, n);
    l->name[n] = '\0';
    s += n;
    l->labels = s;
    l->labels_len = 0;
    if (*s == '{') {
        if ((n = labels_len(s + 1)) == 0) return false;
        l->labels = s + 1;
        l->labels_len = n - 1;
        while (l->labels_len > 0 && l->labels[l->labels_len - 1] == ',') l->labels_len--;
        s += n + 1;
    }
    if (*s != ' ' && *s != '\t') return false;
    s += strspn(s, " \t");
    if (*s == '\0') return false;
    l->value = strtod(s, &end);
    if (end == s) return false;
    end += strspn(end, " \t");
    if (*end == '-') end++;
    end += strspn(end, "0123456789");
    return *end == '\0';
}

static bool has_label(const struct line *l, const char *name) {
    size_t n = strlen(name);
    for (const char *s = l->labels, *end = s + l->labels_len; s < end;) {
        size_t m = name_len(s);
        if (m == n && memcmp(s, name, n) == 0) return true;
        for (s += m + 2; s < end && *s != '"'; s++)
            if (*s == '\\') s++;
        s += 2; /* the quote and a comma */
    }
    return false;
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* The family of a sample: its name, or a histogram's without what stands for the part. */
static struct family *family_of(const struct prom_merge *pm, const char *name) {
    static const char *const tails[] = {"_bucket", "_sum", "_count"};
    struct family *f = family_find(pm, name);
    if (f != NULL) return f->kind == KIND_HISTOGRAM ? NULL : f;
    for (int i = 0; i < 3; i++) {
        char stem[256];
        if (!ends_with(name, tails[i])) continue;
        snprintf(stem, sizeof(stem), "%.*s", (int)(strlen(name) - strlen(tails[i])), name);
        f = family_find(pm, stem);
        if (f != NULL && f->kind == KIND_HISTOGRAM) return f;
    }
    return NULL;
}

static bool left_out(const char *family) {
    static const char *const names[] = {
        "request_received_total",  "request_success_total",   "request_failed_total",
        "request_cancelled_total", "failed_request_perc",     "npu_prefix_cache_hit_rate",
        "baton_build_info",        "baton_log_dropped_total", "moe_expert_rows_total",
        "pd_link_rtt_seconds",     "pd_link_bytes_per_second"};
    if (strncmp(family, "process_", 8) == 0) return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(family, names[i]) == 0) return true;
    return false;
}

/* ---- one text */

static bool is_of_each(const char *family) {
    return strcmp(family, "pd_link_up") == 0 || ends_with(family, "_not_after_seconds") ||
           strcmp(family, "moe_expert_imbalance") == 0 || strcmp(family, "moe_experts_unused") == 0;
}

static enum err take_sample(struct prom_merge *pm, const struct prom_source *src,
                            const struct line *l) {
    struct family *f = family_of(pm, l->name);
    char key[PROM_LINE_BYTES_MAX + 256];
    if (f == NULL || f->kind == KIND_OTHER || left_out(f->name) || !isfinite(l->value))
        return ERR_OK;
    int n = snprintf(key, sizeof(key), "%s{%.*s", l->name, (int)l->labels_len, l->labels);
    if (is_of_each(f->name))
        n += snprintf(key + n, sizeof(key) - (size_t)n, "%sinstance_name=\"%s\",address=\"%s\"",
                      l->labels_len > 0 ? "," : "", src->name, src->address);
    if (!has_label(l, "role"))
        n += snprintf(key + n, sizeof(key) - (size_t)n, "%srole=\"%s\"",
                      key[n - 1] != '{' ? "," : "", src->role);
    snprintf(key + n, sizeof(key) - (size_t)n, "}");
    struct sample *s = sample_put(pm, f, key);
    if (s == NULL) return ERR_NO_MEMORY;
    if (f->kind != KIND_GAUGE) {
        snprintf(key, sizeof(key), "%s{%.*s}", l->name, (int)l->labels_len, l->labels);
        double *last = last_put(pm, src->id, key);
        if (last == NULL) return ERR_NO_MEMORY;
        if (l->value < 0) return ERR_OK;
        s->value += l->value >= *last ? l->value - *last : l->value; /* less: it began anew */
        *last = l->value;
        return ERR_OK;
    }
    bool mean = ends_with(f->name, "_cache_usage_perc");
    double weight = !mean ? 1 : src->blocks > 0 ? src->blocks : 0;
    if (s->round != pm->round) s->value = s->weight = 0;
    s->round = pm->round;
    if (ends_with(f->name, "_info")) { /* a fact, or the time of one: the latest */
        if (l->value > s->value) s->value = l->value;
    } else {
        s->value += mean ? l->value * weight : l->value;
    }
    s->weight += weight;
    return ERR_OK;
}

/* `# TYPE name word` and `# HELP name text`; other comments are nothing. */
static enum err take_comment(struct prom_merge *pm, const char *s) {
    char name[256];
    bool type = strncmp(s, "# TYPE ", 7) == 0;
    if (!type && strncmp(s, "# HELP ", 7) != 0) return ERR_OK;
    size_t n = name_len(s + 7);
    if (n == 0 || n >= sizeof(name) || (s[7 + n] != ' ' && s[7 + n] != '\0')) return ERR_BAD_FRAME;
    if (pm == NULL) return ERR_OK;
    memcpy(name, s + 7, n);
    name[n] = '\0';
    const char *rest = s + 7 + n + (s[7 + n] == ' ');
    struct family *f = family_put(pm, name);
    if (f == NULL) return ERR_NO_MEMORY;
    if (!type) {
        if (f->help == NULL && (f->help = strdup(rest)) == NULL) return ERR_NO_MEMORY;
    } else if (f->kind == KIND_OTHER) {
        f->kind = strcmp(rest, "counter") == 0     ? KIND_COUNTER
                  : strcmp(rest, "gauge") == 0     ? KIND_GAUGE
                  : strcmp(rest, "histogram") == 0 ? KIND_HISTOGRAM
                                                   : KIND_OTHER;
    }
    return ERR_OK;
}

/* pm NULL: only looks whether every line is well-formed. */
static enum err walk(struct prom_merge *pm, const struct prom_source *src, const char *text,
                     size_t n) {
    enum err e = ERR_OK;
    while (n > 0) {
        char line[PROM_LINE_BYTES_MAX];
        struct line l;
        const char *end = memchr(text, '\n', n);
        size_t len = end != NULL ? (size_t)(end - text) : n;
        if (len >= sizeof(line) || memchr(text, '\0', len) != NULL) return ERR_BAD_FRAME;
        memcpy(line, text, len);
        line[len] = '\0';
        if (len > 0 && line[len - 1] == '\r') line[len - 1] = '\0';
        text += len + (end != NULL);
        n -= len + (end != NULL);
        enum err one = ERR_OK;
        if (line[0] == '#') {
            if ((one = take_comment(pm, line)) == ERR_BAD_FRAME) return one;
        } else if (line[0] != '\0') {
            if (!read_sample(&l, line)) return ERR_BAD_FRAME;
            if (pm != NULL) one = take_sample(pm, src, &l);
        }
        if (one != ERR_OK) e = one;
    }
    return e;
}

enum err prom_merge_add(struct prom_merge *pm, const struct prom_source *src, const char *text,
                        size_t n) {
    if (n > PROM_TEXT_BYTES_MAX) return ERR_BAD_FRAME;
    enum err e = walk(NULL, src, text, n);
    return e == ERR_OK ? walk(pm, src, text, n) : e;
}

static void sample_drop(struct prom_merge *pm, struct sample *gone) {
    struct sample **at = &pm->samples[hash_of(gone->key, 0)];
    while (*at != gone) at = &(*at)->hash_next;
    *at = gone->hash_next;
    pm->n_samples--;
    free(gone);
}

/* So that instances which come and go leave nothing behind. */
void prom_merge_begin(struct prom_merge *pm) {
    for (struct family *f = pm->first; f != NULL; f = f->next) {
        struct sample **at = &f->first;
        while (*at != NULL) {
            struct sample *s = *at;
            if (f->kind == KIND_GAUGE && s->round != pm->round) {
                *at = s->next;
                sample_drop(pm, s);
            } else {
                at = &s->next;
            }
        }
        f->last = at;
    }
    pm->round++;
}

/* ---- writing */

static void put_line(struct buf *out, const char *key, double value) {
    size_t n = strlen(key);
    if (n > 2 && strcmp(key + n - 2, "{}") == 0) n -= 2;
    buf_append(out, key, n);
    buf_putc(out, ' ');
    metrics_put_number(out, value);
    buf_putc(out, '\n');
}

static void put_head(struct buf *out, const struct family *f, const char *help) {
    static const char *const words[] = {"untyped", "counter", "gauge", "histogram"};
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, help, f->name, words[f->kind]);
}

static bool is_prefill(const struct sample *s) {
    return strstr(s->key, "role=\"prefill\"") != NULL;
}

/* The hit rate of all, in the place of the instances' own. */
static void put_hit_rate(const struct prom_merge *pm, struct buf *out, const struct family *f) {
    const struct family *all = family_find(pm, "all_radix_match_num");
    bool any_prefill = false, headed = false;
    if (all == NULL) return;
    for (const struct sample *s = all->first; s != NULL; s = s->next)
        any_prefill |= s->round == pm->round && is_prefill(s);
    for (const struct sample *s = all->first; s != NULL; s = s->next) {
        char key[PROM_LINE_BYTES_MAX + 128];
        const char *labels = strchr(s->key, '{');
        if (s->round != pm->round || (any_prefill && !is_prefill(s)) || labels == NULL) continue;
        snprintf(key, sizeof(key), "npu_radix_match_hit_num%s", labels);
        const struct sample *hit = sample_find(pm, key);
        if (hit == NULL || hit->round != pm->round) continue;
        if (!headed) put_head(out, f, f->help != NULL ? f->help : "");
        headed = true;
        snprintf(key, sizeof(key), "%s%s", f->name, labels);
        put_line(out, key, s->value > 0 ? hit->value / s->value : 0);
    }
}

static void put_family(const struct prom_merge *pm, struct buf *out, const struct family *f) {
    bool mean = ends_with(f->name, "_cache_usage_perc"), headed = false;
    for (const struct sample *s = f->first; s != NULL; s = s->next) {
        if (f->kind == KIND_GAUGE && s->round != pm->round) continue;
        if (!headed) put_head(out, f, f->help != NULL ? f->help : "");
        headed = true;
        put_line(out, s->key, !mean ? s->value : s->weight > 0 ? s->value / s->weight : 0);
    }
}

void prom_merge_write(const struct prom_merge *pm, struct buf *out) {
    for (const struct family *f = pm->first; f != NULL; f = f->next) {
        if (strcmp(f->name, "npu_prefix_cache_hit_rate") == 0) {
            put_hit_rate(pm, out, f);
        } else {
            put_family(pm, out, f);
        }
    }
}

/* ---- life */

enum err prom_merge_create(struct prom_merge **out) {
    struct prom_merge *pm = calloc(1, sizeof(*pm));
    *out = pm;
    if (pm == NULL) return ERR_NO_MEMORY;
    pm->last = &pm->first;
    return ERR_OK;
}

void prom_merge_destroy(struct prom_merge **pmp) {
    struct prom_merge *pm = *pmp;
    if (pm == NULL) return;
    *pmp = NULL;
    while (pm->first != NULL) {
        struct family *f = pm->first;
        pm->first = f->next;
        while (f->first != NULL) {
            struct sample *s = f->first;
            f->first = s->next;
            free(s);
        }
        free(f->help);
        free(f);
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        while (pm->lasts[i] != NULL) {
            struct last *l = pm->lasts[i];
            pm->lasts[i] = l->next;
            free(l);
        }
    }
    free(pm);
}
