/* metrics: values are atomics that any thread may touch; the lists around them have one lock. */
#include "common/base/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct metric {
    struct metric *next;
    const struct metric_def *def;
    char *labels;              /* `a="b",c="d"`, "" when there are none */
    _Atomic uint64_t value;    /* the bits of a double: value, or sum of a histogram */
    _Atomic uint64_t counts[]; /* [n_buckets + 1], each its own: +Inf is the last */
};

struct metric_family {
    struct metric_family *next;
    struct metrics *owner;
    struct metric_def def;    /* an alias: name and help its own */
    struct metric_family *of; /* NULL: not an alias */
    struct metric *first, **last;
    struct metric *other; /* the series of label values beyond the bound */
    size_t n_labels, n_series;
};

struct metrics {
    pthread_mutex_t mutex;
    struct metric_family *first, **last;
    struct buf common; /* labels of every series */
};

/* ---- values */

static uint64_t bits_of(double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof(u));
    return u;
}

static double double_of(uint64_t u) {
    double v;
    memcpy(&v, &u, sizeof(v));
    return v;
}

static void add(_Atomic uint64_t *to, double by) {
    uint64_t old = atomic_load_explicit(to, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(to, &old, bits_of(double_of(old) + by),
                                                  memory_order_relaxed, memory_order_relaxed)) {}
}

void metric_add(struct metric *m, double by) {
    if (m == NULL || (m->def->kind == METRIC_COUNTER && !(by >= 0))) return;
    add(&m->value, by);
}

void metric_set(struct metric *m, double to) {
    if (m != NULL) atomic_store_explicit(&m->value, bits_of(to), memory_order_relaxed);
}

void metric_observe(struct metric *m, double value) {
    if (m == NULL || isnan(value)) return;
    size_t i = 0;
    while (i < m->def->n_buckets && value > m->def->buckets[i]) i++;
    atomic_fetch_add_explicit(&m->counts[i], 1, memory_order_relaxed);
    add(&m->value, value);
}

double metric_value(const struct metric *m) {
    return m != NULL ? double_of(atomic_load_explicit(&m->value, memory_order_relaxed)) : 0;
}

uint64_t metric_count(const struct metric *m) {
    uint64_t n = 0;
    if (m == NULL || m->def->kind != METRIC_HISTOGRAM) return 0;
    for (size_t i = 0; i <= m->def->n_buckets; i++)
        n += atomic_load_explicit(&m->counts[i], memory_order_relaxed);
    return n;
}

/* ---- text */

void metrics_put_number(struct buf *out, double v) {
    char text[40];
    if (isnan(v)) {
        buf_puts(out, "NaN");
    } else if (isinf(v)) {
        buf_puts(out, v > 0 ? "+Inf" : "-Inf");
    } else {
        int digits = 15; /* enough for most; 17 read back every double */
        do {
            snprintf(text, sizeof(text), "%.*g", digits, v);
        } while (strtod(text, NULL) != v && ++digits <= 17);
        buf_puts(out, text);
    }
}

void metrics_put_escaped(struct buf *out, const char *s, bool quotes) {
    for (; *s != '\0'; s++) {
        if (*s == '\\') {
            buf_puts(out, "\\\\");
        } else if (*s == '\n') {
            buf_puts(out, "\\n");
        } else if (*s == '"' && quotes) {
            buf_puts(out, "\\\"");
        } else {
            buf_putc(out, *s);
        }
    }
}

static void put_label(struct buf *out, const char *name, const char *value) {
    if (out->len > 0) buf_putc(out, ',');
    buf_printf(out, "%s=\"", name);
    metrics_put_escaped(out, value, true);
    buf_putc(out, '"');
}

static void put_sample(struct buf *out, const char *name, const char *suffix, const char *labels,
                       const char *le, double v) {
    buf_printf(out, "%s%s", name, suffix);
    if (labels[0] != '\0' || le != NULL) {
        buf_printf(out, "{%s", labels);
        if (le != NULL) buf_printf(out, "%sle=\"%s\"", labels[0] != '\0' ? "," : "", le);
        buf_putc(out, '}');
    }
    buf_putc(out, ' ');
    metrics_put_number(out, v);
    buf_putc(out, '\n');
}

static void put_histogram(struct buf *out, const char *name, const struct metric *m) {
    uint64_t n = 0;
    for (size_t i = 0; i <= m->def->n_buckets; i++) {
        struct buf le = BUF_INIT;
        n += atomic_load_explicit(&m->counts[i], memory_order_relaxed);
        metrics_put_number(&le, i < m->def->n_buckets ? m->def->buckets[i] : INFINITY);
        put_sample(out, name, "_bucket", m->labels, le.data != NULL ? le.data : "", (double)n);
        buf_free(&le);
    }
    put_sample(out, name, "_sum", m->labels, NULL, metric_value(m));
    put_sample(out, name, "_count", m->labels, NULL, (double)n); /* agrees with the buckets above */
}

static void write_family(struct buf *out, const struct metric_family *f) {
    static const char *const words[] = {"counter", "gauge", "histogram"};
    const struct metric_family *data = f->of != NULL ? f->of : f;
    if (data->first == NULL) return;
    buf_printf(out, "# HELP %s ", f->def.name);
    metrics_put_escaped(out, f->def.help, false);
    buf_printf(out, "\n# TYPE %s %s\n", f->def.name, words[f->def.kind]);
    for (const struct metric *m = data->first; m != NULL; m = m->next) {
        if (f->def.kind == METRIC_HISTOGRAM) {
            put_histogram(out, f->def.name, m);
        } else {
            put_sample(out, f->def.name, "", m->labels, NULL, metric_value(m));
        }
    }
}

void metrics_write(struct metrics *m, struct buf *out) {
    pthread_mutex_lock(&m->mutex);
    for (const struct metric_family *f = m->first; f != NULL; f = f->next) write_family(out, f);
    pthread_mutex_unlock(&m->mutex);
}

/* ---- families and series */

enum err metrics_create(struct metrics **out) {
    struct metrics *m = calloc(1, sizeof(*m));
    *out = m;
    if (m == NULL) return ERR_NO_MEMORY;
    m->last = &m->first;
    pthread_mutex_init(&m->mutex, NULL);
    return ERR_OK;
}

enum err metrics_common_label(struct metrics *m, const char *name, const char *value) {
    put_label(&m->common, name, value);
    return m->common.failed ? ERR_NO_MEMORY : ERR_OK;
}

static void free_series(struct metric_family *f) {
    while (f->first != NULL) {
        struct metric *m = f->first;
        f->first = m->next;
        free(m->labels);
        free(m);
    }
    f->last = &f->first;
    f->other = NULL;
    f->n_series = 0;
}

void metrics_destroy(struct metrics **mp) {
    struct metrics *m = *mp;
    if (m == NULL) return;
    *mp = NULL;
    while (m->first != NULL) {
        struct metric_family *f = m->first;
        m->first = f->next;
        free_series(f);
        free(f);
    }
    buf_free(&m->common);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

static struct metric_family *family_new(struct metrics *m, const struct metric_def *def) {
    struct metric_family *f = calloc(1, sizeof(*f));
    if (f == NULL) return NULL;
    f->owner = m;
    f->def = *def;
    if (f->def.kind != METRIC_HISTOGRAM) f->def.n_buckets = 0;
    if (f->def.n_buckets > METRIC_BUCKETS_MAX) f->def.n_buckets = METRIC_BUCKETS_MAX;
    while (f->n_labels < METRIC_LABELS_MAX && def->labels[f->n_labels] != NULL) f->n_labels++;
    f->last = &f->first;
    pthread_mutex_lock(&m->mutex);
    *m->last = f;
    m->last = &f->next;
    pthread_mutex_unlock(&m->mutex);
    return f;
}

struct metric_family *metrics_family(struct metrics *m, const struct metric_def *def) {
    return family_new(m, def);
}

enum err metrics_alias(struct metrics *m, struct metric_family *of, const char *name,
                       const char *help) {
    if (of == NULL) return ERR_NO_MEMORY;
    struct metric_def def = of->def;
    def.name = name;
    def.help = help;
    struct metric_family *f = family_new(m, &def);
    if (f == NULL) return ERR_NO_MEMORY;
    f->of = of;
    return ERR_OK;
}

/* Under the lock. Takes labels on success. */
static struct metric *series_new(struct metric_family *f, char *labels) {
    struct metric *m = calloc(1, sizeof(*m) + (f->def.n_buckets + 1) * sizeof(m->counts[0]));
    if (m == NULL) return NULL;
    m->def = &f->def;
    m->labels = labels;
    *f->last = m;
    f->last = &m->next;
    f->n_series++;
    return m;
}

static char *labels_of(const struct metric_family *f, const char *const *values, bool other) {
    struct buf b = BUF_INIT;
    buf_puts(&b, f->owner->common.data != NULL ? f->owner->common.data : "");
    for (size_t i = 0; i < f->n_labels; i++)
        put_label(&b, f->def.labels[i], other ? "other" : values[i]);
    return buf_steal(&b);
}

static struct metric *find(const struct metric_family *f, const char *labels) {
    struct metric *m = f->first;
    while (m != NULL && strcmp(m->labels, labels) != 0) m = m->next;
    return m;
}

struct metric *metric_of(struct metric_family *f, const char *const *values) {
    if (f == NULL) return NULL;
    char *labels = labels_of(f, values, false);
    if (labels == NULL) return NULL;
    pthread_mutex_lock(&f->owner->mutex);
    struct metric *m = find(f, labels);
    if (m == NULL && f->n_series < METRIC_SERIES_MAX) {
        if ((m = series_new(f, labels)) != NULL) labels = NULL;
    } else if (m == NULL) {
        if (f->other == NULL) {
            char *all = labels_of(f, values, true);
            if (all != NULL && (f->other = series_new(f, all)) == NULL) free(all);
        }
        m = f->other;
    }
    pthread_mutex_unlock(&f->owner->mutex);
    free(labels);
    return m;
}

void metric_clear(struct metric_family *f) {
    if (f == NULL) return;
    pthread_mutex_lock(&f->owner->mutex);
    free_series(f);
    pthread_mutex_unlock(&f->owner->mutex);
}
