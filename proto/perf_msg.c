/* perf_msg: cells, straight lines between them, JSON. */
#include "proto/perf_msg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "proto/json.h"

static const double TOKENS_MAX = 1e9, SECONDS_MAX = 1e6;

/* ---- cells */

static int length_of(double tokens) {
    int i = 0;
    for (double top = 16; i < PERF_LENGTHS - 1 && tokens > top; top *= 2) i++;
    return i;
}
static int batch_of(double batch) {
    int i = 0;
    for (double top = 1; i < PERF_BATCHES - 1 && batch > top; top *= 2) i++;
    return i;
}
static int context_of(double context) {
    int i = 0;
    for (double top = 128; i < PERF_CONTEXTS - 1 && context > top; top *= 4) i++;
    return i;
}

static double drawn(double mean, double x, double share) {
    return mean + (x - mean) * share;
}

/* n samples more: the share that they have in the mean. */
static double weigh(uint32_t *n, uint32_t more, uint32_t max) {
    *n = *n + more < max ? *n + more : max;
    return more < *n ? (double)more / *n : 1;
}

static bool counts(double x, double max) {
    return x > 0 && x <= max; /* not a NaN either */
}

static void add_prompt(struct perf_msg *m, const struct perf_prompt *p, uint32_t max) {
    if (p->n == 0 || !counts(p->tokens, TOKENS_MAX) || !counts(p->seconds, SECONDS_MAX)) return;
    struct perf_prompt *c = &m->prompts[length_of(p->tokens)];
    const double share = weigh(&c->n, p->n, max);
    c->tokens = drawn(c->tokens, p->tokens, share);
    c->seconds = drawn(c->seconds, p->seconds, share);
}

static void add_step(struct perf_msg *m, const struct perf_step *s, uint32_t max) {
    if (s->n == 0 || !counts(s->batch, TOKENS_MAX) || !(s->context >= 0) ||
        s->context > TOKENS_MAX || !counts(s->seconds, SECONDS_MAX))
        return;
    struct perf_step *c = &m->steps[batch_of(s->batch)][context_of(s->context)];
    const double share = weigh(&c->n, s->n, max);
    c->batch = drawn(c->batch, s->batch, share);
    c->context = drawn(c->context, s->context, share);
    c->seconds = drawn(c->seconds, s->seconds, share);
}

void perf_add_prompt(struct perf_msg *m, double tokens, double seconds) {
    add_prompt(m, &(struct perf_prompt){1, tokens, seconds}, PERF_SAMPLES);
}

void perf_add_step(struct perf_msg *m, double batch, double context, double seconds) {
    add_step(m, &(struct perf_step){1, batch, context, seconds}, PERF_SAMPLES);
}

void perf_merge(struct perf_msg *m, const struct perf_msg *other) {
    for (int i = 0; i < PERF_LENGTHS; i++) add_prompt(m, &other->prompts[i], UINT32_MAX);
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) add_step(m, &other->steps[i][k], UINT32_MAX);
}

/* The mean of n samples without m of them. */
static double undrawn(double mean, uint32_t n, double x, uint32_t m) {
    return (mean * n - x * m) / (n - m);
}

void perf_without(struct perf_msg *out, const struct perf_msg *all, const struct perf_msg *one) {
    *out = *all;
    for (int i = 0; i < PERF_LENGTHS; i++) {
        const struct perf_prompt *a = &all->prompts[i], *o = &one->prompts[i];
        out->prompts[i] = (struct perf_prompt){0, 0, 0};
        if (o->n >= a->n) continue;
        out->prompts[i] =
            (struct perf_prompt){a->n - o->n, undrawn(a->tokens, a->n, o->tokens, o->n),
                                 undrawn(a->seconds, a->n, o->seconds, o->n)};
    }
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) {
            const struct perf_step *a = &all->steps[i][k], *o = &one->steps[i][k];
            out->steps[i][k] = (struct perf_step){0, 0, 0, 0};
            if (o->n >= a->n) continue;
            out->steps[i][k] =
                (struct perf_step){a->n - o->n, undrawn(a->batch, a->n, o->batch, o->n),
                                   undrawn(a->context, a->n, o->context, o->n),
                                   undrawn(a->seconds, a->n, o->seconds, o->n)};
        }
}

/* ---- two instances */

/* A mean of ratios is one of their logarithms. */
struct ratio {
    double sum, weight;
};

static void compare(struct ratio *r, double a, uint32_t n_a, double b, uint32_t n_b) {
    const double weight = n_a < n_b ? n_a : n_b;
    if (!(a > 0 && b > 0)) return;
    r->sum += log(a / b) * weight;
    r->weight += weight;
}

static double mean_of(const struct ratio *r) {
    return r->weight > 0 ? exp(r->sum / r->weight) : 0;
}

/* Cells hold a range of lengths: seconds are compared by the token. */
double perf_prompt_ratio(const struct perf_msg *a, const struct perf_msg *b) {
    struct ratio r = {0, 0};
    for (int i = 0; i < PERF_LENGTHS; i++) {
        const struct perf_prompt *p = &a->prompts[i], *q = &b->prompts[i];
        if (p->n > 0 && q->n > 0)
            compare(&r, p->seconds / p->tokens, p->n, q->seconds / q->tokens, q->n);
    }
    return mean_of(&r);
}

double perf_step_ratio(const struct perf_msg *a, const struct perf_msg *b) {
    struct ratio r = {0, 0};
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) {
            const struct perf_step *p = &a->steps[i][k], *q = &b->steps[i][k];
            if (p->n > 0 && q->n > 0) compare(&r, p->seconds, p->n, q->seconds, q->n);
        }
    return mean_of(&r);
}

/* ---- between and beyond cells */
struct point {
    double x, y, weight;
};

/* Of neighbours of which the one with more takes less both get their mean: the rising line that is
 * nearest to what was measured (pool adjacent violators). */
static void make_rising(struct point *p, int n) {
    for (int i = 1; i < n; i++) {
        int from = i;
        double y = p[i].y, weight = p[i].weight;
        while (from > 0 && p[from - 1].y > y) {
            /* those before, which are equal already, come along */
            const double other = p[from - 1].y;
            double w = 0;
            int k = from;
            while (k > 0 && p[k - 1].y == other) w += p[--k].weight;
            y = (y * weight + other * w) / (weight + w);
            weight += w;
            from = k;
        }
        for (int k = from; k <= i; k++) p[k].y = y;
    }
}

/* On the line through the two points around x; beyond the last one through the last two, but never
 * less than at it. floor_x: a smaller x costs what it costs there. */
static double at(const struct point *p, int n, double x, double floor_x) {
    if (n == 0) return 0;
    if (x < floor_x) x = floor_x;
    int i = 1;
    while (i < n - 1 && x > p[i].x) i++;
    if (n == 1) return p[0].y;
    const double run = p[i].x - p[i - 1].x;
    const double slope = run > 0 ? (p[i].y - p[i - 1].y) / run : 0;
    if (x > p[i].x && slope < 0) return p[i].y;
    return p[i - 1].y + (x - p[i - 1].x) * slope;
}

double perf_prompt_s(const struct perf_msg *m, double tokens) {
    struct point p[PERF_LENGTHS];
    int n = 0;
    for (int i = 0; i < PERF_LENGTHS; i++)
        if (m->prompts[i].n > 0)
            p[n++] = (struct point){m->prompts[i].tokens, m->prompts[i].seconds, m->prompts[i].n};
    if (n == 0 || !(tokens > 0)) return 0;
    make_rising(p, n);
    if (tokens <= p[0].x || n == 1) return p[0].y * tokens / p[0].x;
    const double s = at(p, n, tokens, p[0].x);
    return s > 0 ? s : p[0].y;
}

/* Of the cells of a batch, the one whose context is nearest. NULL: none has samples. */
static const struct perf_step *nearest(const struct perf_step *steps, double context) {
    const int want = context_of(context);
    const struct perf_step *best = NULL;
    int least = PERF_CONTEXTS;
    for (int k = 0; k < PERF_CONTEXTS; k++) {
        const int away = k < want ? want - k : k - want;
        if (steps[k].n == 0 || away >= least) continue;
        best = &steps[k];
        least = away;
    }
    return best;
}

static int steps_of(struct point p[PERF_BATCHES], const struct perf_msg *m, double context) {
    int n = 0;
    for (int i = 0; i < PERF_BATCHES; i++) {
        const struct perf_step *s = nearest(m->steps[i], context);
        if (s != NULL) p[n++] = (struct point){s->batch, s->seconds, s->n};
    }
    make_rising(p, n);
    return n;
}

double perf_step_s(const struct perf_msg *m, double batch, double context) {
    struct point p[PERF_BATCHES];
    const int n = steps_of(p, m, context);
    if (n == 0) return 0;
    const double s = at(p, n, batch, p[0].x);
    return s > 0 ? s : p[0].y;
}

static double slope_of(const struct point *a, const struct point *b) {
    return b->x > a->x ? (b->y - a->y) / (b->x - a->x) : 0;
}

double perf_step_more_s(const struct perf_msg *m, double batch, double context) {
    struct point p[PERF_BATCHES];
    const int n_all = steps_of(p, m, context);
    int n = 0;
    for (int i = 0; i < n_all; i++) { /* p[0..n): its corners so far */
        while (n >= 2 && slope_of(&p[n - 2], &p[n - 1]) >= slope_of(&p[n - 1], &p[i])) n--;
        p[n++] = p[i];
    }
    if (n < 2) return 0;
    int i = 1;
    while (i < n - 1 && batch >= p[i].x) i++;
    return slope_of(&p[i - 1], &p[i]);
}

/* ---- JSON */
static void put(struct json_value *o, const char *key, double v) {
    char text[32];
    snprintf(text, sizeof(text), "%.6g", v);
    json_obj_set(o, key, json_new_f64_as(v, text));
}

struct json_value *perf_format(const struct perf_msg *m) {
    struct json_value *o = json_new_obj(), *prompts = json_new_arr(), *steps = json_new_arr();
    for (int i = 0; i < PERF_LENGTHS; i++) {
        const struct perf_prompt *p = &m->prompts[i];
        if (p->n == 0) continue;
        struct json_value *e = json_new_obj();
        put(e, "tokens", p->tokens);
        put(e, "seconds", p->seconds);
        json_obj_set(e, "samples", json_new_i64(p->n));
        json_arr_add(prompts, e);
    }
    for (int i = 0; i < PERF_BATCHES * PERF_CONTEXTS; i++) {
        const struct perf_step *s = &m->steps[i / PERF_CONTEXTS][i % PERF_CONTEXTS];
        if (s->n == 0) continue;
        struct json_value *e = json_new_obj();
        put(e, "batch", s->batch);
        put(e, "context", s->context);
        put(e, "seconds", s->seconds);
        json_obj_set(e, "samples", json_new_i64(s->n));
        json_arr_add(steps, e);
    }
    if (m->kind[0] != 0) json_obj_set(o, "kind", json_new_str(m->kind));
    json_obj_set(o, "prompts", prompts);
    json_obj_set(o, "steps", steps);
    return o;
}

static enum err number(const struct json_value *o, const char *list, size_t i, const char *key,
                       double min, double max, double *out, struct errbuf *eb) {
    if (json_get_f64(o, key, out) == JSON_OK && *out >= min && *out <= max) return ERR_OK;
    return err_set(eb, ERR_INVALID, "perf.%s[%zu].%s must be a number from %g to %g", list, i, key,
                   min, max);
}

static enum err samples(const struct json_value *o, const char *list, size_t i, uint32_t *n,
                        struct errbuf *eb) {
    uint64_t v;
    if (json_get_u64(o, "samples", &v) != JSON_OK || v < 1)
        return err_set(eb, ERR_INVALID, "perf.%s[%zu].samples must be a positive integer", list, i);
    *n = v < PERF_SAMPLES ? (uint32_t)v : PERF_SAMPLES;
    return ERR_OK;
}

/* The array, of at most max entries; NULL: there is none. */
static enum err list_of(const struct json_value *o, const char *key, size_t max,
                        struct json_value **arr, struct errbuf *eb) {
    *arr = NULL;
    if (json_get_arr(o, key, arr) != JSON_OK) *arr = NULL;
    if (*arr == NULL || json_arr_len(*arr) <= max) return ERR_OK;
    return err_set(eb, ERR_INVALID, "perf.%s has %zu entries, at most %zu are allowed", key,
                   json_arr_len(*arr), max);
}

static enum err kind_of(struct perf_msg *m, const struct json_value *o, struct errbuf *eb) {
    static const char CHARS[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";
    const char *s;
    size_t n;
    const enum json_got got = json_get_str(o, "kind", &s, &n);
    if (got == JSON_ABSENT) return ERR_OK;
    if (got != JSON_OK || n >= sizeof(m->kind) || strspn(s, CHARS) != n)
        return err_set(eb, ERR_INVALID,
                       "perf.kind must be a string of at most %zu letters, digits and ._/-",
                       sizeof(m->kind) - 1);
    memcpy(m->kind, s, n + 1);
    return ERR_OK;
}

enum err perf_parse(struct perf_msg *m, const struct json_value *o, struct errbuf *eb) {
    struct json_value *prompts, *steps;
    memset(m, 0, sizeof(*m));
    if (o == NULL) return ERR_OK;
    enum err e = kind_of(m, o, eb);
    if (e == ERR_OK) e = list_of(o, "prompts", PERF_LENGTHS, &prompts, eb);
    if (e == ERR_OK) e = list_of(o, "steps", PERF_BATCHES * PERF_CONTEXTS, &steps, eb);
    for (size_t i = 0; e == ERR_OK && prompts != NULL && i < json_arr_len(prompts); i++) {
        const struct json_value *v = json_arr_at(prompts, i);
        struct perf_prompt p = {0};
        e = number(v, "prompts", i, "tokens", 0, TOKENS_MAX, &p.tokens, eb);
        if (e == ERR_OK) e = number(v, "prompts", i, "seconds", 0, SECONDS_MAX, &p.seconds, eb);
        if (e == ERR_OK) e = samples(v, "prompts", i, &p.n, eb);
        if (e == ERR_OK) add_prompt(m, &p, PERF_SAMPLES);
    }
    for (size_t i = 0; e == ERR_OK && steps != NULL && i < json_arr_len(steps); i++) {
        const struct json_value *v = json_arr_at(steps, i);
        struct perf_step s = {0};
        e = number(v, "steps", i, "batch", 0, TOKENS_MAX, &s.batch, eb);
        if (e == ERR_OK) e = number(v, "steps", i, "context", 0, TOKENS_MAX, &s.context, eb);
        if (e == ERR_OK) e = number(v, "steps", i, "seconds", 0, SECONDS_MAX, &s.seconds, eb);
        if (e == ERR_OK) e = samples(v, "steps", i, &s.n, eb);
        if (e == ERR_OK) add_step(m, &s, PERF_SAMPLES);
    }
    if (e != ERR_OK) memset(m, 0, sizeof(*m));
    return e;
}
