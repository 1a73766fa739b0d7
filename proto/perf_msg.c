/* perf_msg: cells, straight lines between them, JSON. */
#include "proto/perf_msg.h"

#include <stddef.h>
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
static double weigh(uint32_t *n, uint32_t more) {
    *n = *n + more < PERF_SAMPLES ? *n + more : PERF_SAMPLES;
    return more < *n ? (double)more / *n : 1;
}

static bool counts(double x, double max) {
    return x > 0 && x <= max; /* not a NaN either */
}

static void add_prompt(struct perf_msg *m, const struct perf_prompt *p) {
    if (p->n == 0 || !counts(p->tokens, TOKENS_MAX) || !counts(p->seconds, SECONDS_MAX)) return;
    struct perf_prompt *c = &m->prompts[length_of(p->tokens)];
    const double share = weigh(&c->n, p->n);
    c->tokens = drawn(c->tokens, p->tokens, share);
    c->seconds = drawn(c->seconds, p->seconds, share);
}

static void add_step(struct perf_msg *m, const struct perf_step *s) {
    if (s->n == 0 || !counts(s->batch, TOKENS_MAX) || !(s->context >= 0) ||
        s->context > TOKENS_MAX || !counts(s->seconds, SECONDS_MAX))
        return;
    struct perf_step *c = &m->steps[batch_of(s->batch)][context_of(s->context)];
    const double share = weigh(&c->n, s->n);
    c->batch = drawn(c->batch, s->batch, share);
    c->context = drawn(c->context, s->context, share);
    c->seconds = drawn(c->seconds, s->seconds, share);
}

void perf_add_prompt(struct perf_msg *m, double tokens, double seconds) {
    add_prompt(m, &(struct perf_prompt){1, tokens, seconds});
}

void perf_add_step(struct perf_msg *m, double batch, double context, double seconds) {
    add_step(m, &(struct perf_step){1, batch, context, seconds});
}

void perf_merge(struct perf_msg *m, const struct perf_msg *other) {
    for (int i = 0; i < PERF_LENGTHS; i++) add_prompt(m, &other->prompts[i]);
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) add_step(m, &other->steps[i][k]);
}

/* ---- between and beyond cells */
struct point {
    double x, y;
};

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
            p[n++] = (struct point){m->prompts[i].tokens, m->prompts[i].seconds};
    if (n == 0 || !(tokens > 0)) return 0;
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

double perf_step_s(const struct perf_msg *m, double batch, double context) {
    struct point p[PERF_BATCHES];
    int n = 0;
    for (int i = 0; i < PERF_BATCHES; i++) {
        const struct perf_step *s = nearest(m->steps[i], context);
        if (s != NULL) p[n++] = (struct point){s->batch, s->seconds};
    }
    if (n == 0) return 0;
    const double s = at(p, n, batch, p[0].x);
    return s > 0 ? s : p[0].y;
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

enum err perf_parse(struct perf_msg *m, const struct json_value *o, struct errbuf *eb) {
    struct json_value *prompts, *steps;
    memset(m, 0, sizeof(*m));
    if (o == NULL) return ERR_OK;
    enum err e = list_of(o, "prompts", PERF_LENGTHS, &prompts, eb);
    if (e == ERR_OK) e = list_of(o, "steps", PERF_BATCHES * PERF_CONTEXTS, &steps, eb);
    for (size_t i = 0; e == ERR_OK && prompts != NULL && i < json_arr_len(prompts); i++) {
        const struct json_value *v = json_arr_at(prompts, i);
        struct perf_prompt p = {0};
        e = number(v, "prompts", i, "tokens", 0, TOKENS_MAX, &p.tokens, eb);
        if (e == ERR_OK) e = number(v, "prompts", i, "seconds", 0, SECONDS_MAX, &p.seconds, eb);
        if (e == ERR_OK) e = samples(v, "prompts", i, &p.n, eb);
        if (e == ERR_OK) add_prompt(m, &p);
    }
    for (size_t i = 0; e == ERR_OK && steps != NULL && i < json_arr_len(steps); i++) {
        const struct json_value *v = json_arr_at(steps, i);
        struct perf_step s = {0};
        e = number(v, "steps", i, "batch", 0, TOKENS_MAX, &s.batch, eb);
        if (e == ERR_OK) e = number(v, "steps", i, "context", 0, TOKENS_MAX, &s.context, eb);
        if (e == ERR_OK) e = number(v, "steps", i, "seconds", 0, SECONDS_MAX, &s.seconds, eb);
        if (e == ERR_OK) e = samples(v, "steps", i, &s.n, eb);
        if (e == ERR_OK) add_step(m, &s);
    }
    if (e != ERR_OK) memset(m, 0, sizeof(*m));
    return e;
}
