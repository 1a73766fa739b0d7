/* model_stats: a short list of names with their sums. */
#include "common/base/model_stats.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"

struct entry {
    char *name; /* "": the model itself, which is the first */
    struct model_counts counts;
    uint64_t used; /* the turn in which it was counted last */
};

struct model_stats {
    struct entry *entries; /* [n], room for cap */
    unsigned n, cap;
    uint64_t turn;
};

struct model_stats *model_stats_create(void) {
    return calloc(1, sizeof(struct model_stats));
}

void model_stats_destroy(struct model_stats **sp) {
    struct model_stats *s = *sp;
    if (s == NULL) return;
    for (unsigned i = 0; i < s->n; i++) free(s->entries[i].name);
    free(s->entries);
    free(s);
    *sp = NULL;
}

static struct entry *find(const struct model_stats *s, const char *name) {
    for (unsigned i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].name, name) == 0) return &s->entries[i];
    return NULL;
}

static bool grow(struct model_stats *s) {
    const unsigned cap = s->cap > 0 ? 2 * s->cap : 4;
    struct entry *grown = realloc(s->entries, cap * sizeof(*grown));
    if (grown == NULL) return false;
    s->entries = grown;
    s->cap = cap;
    return true;
}

/* The adapter that was asked for the longest ago. */
static struct entry *oldest(const struct model_stats *s) {
    struct entry *old = NULL;
    for (unsigned i = 0; i < s->n; i++) {
        struct entry *e = &s->entries[i];
        if (e->name[0] != '\0' && (old == NULL || e->used < old->used)) old = e;
    }
    return old;
}

static struct entry *add(struct model_stats *s, const char *name) {
    char *copy = strdup(name);
    if (copy == NULL) return NULL;
    if (s->n < MODEL_STATS_MAX && (s->n < s->cap || grow(s))) {
        struct entry *e = &s->entries[s->n++];
        *e = (struct entry){.name = copy};
        return e;
    }
    struct entry *e = s->n == MODEL_STATS_MAX ? oldest(s) : NULL;
    if (e == NULL) {
        free(copy);
        return NULL;
    }
    free(e->name);
    *e = (struct entry){.name = copy};
    return e;
}

static uint64_t since(uint64_t from_us, uint64_t to_us) {
    return to_us > from_us ? to_us - from_us : 0;
}

/* Takes at most us of *left. */
static uint64_t take(uint64_t *left, uint64_t us) {
    const uint64_t got = us < *left ? us : *left;
    *left -= got;
    return got;
}

/* Its parts are cut so that they make up the whole. */
static void count_answered(struct model_counts *c, const struct model_request *r, uint64_t whole) {
    uint64_t left = whole;
    const uint64_t queue = take(&left, r->queue_us),
                   input = take(&left, r->first_us != 0
                                           ? since(r->arrival_us + r->queue_us, r->first_us)
                                           : left),
                   later = take(&left, r->queue_later_us),
                   infer = take(&left, since(r->first_us + r->queue_later_us, r->last_us));
    c->n_ok++;
    c->n_prompts += r->n_prompts > 0 ? r->n_prompts : 1;
    c->ok_us += whole;
    c->queue_us += queue + later;
    c->input_us += input;
    c->infer_us += infer;
    c->output_us += left;
    c->last_unix_ms = clock_unix_us() / 1000;
}

void model_stats_add(struct model_stats *s, const char *adapter, const struct model_request *r) {
    const char *name = adapter != NULL ? adapter : "";
    struct entry *e = s != NULL ? find(s, name) : NULL;
    const uint64_t whole = since(r->arrival_us, r->end_us);
    if (e == NULL && (s == NULL || (e = add(s, name)) == NULL)) return;
    e->used = ++s->turn;
    if (r->ok) {
        count_answered(&e->counts, r, whole);
    } else {
        e->counts.n_failed++;
        e->counts.failed_us += whole;
    }
}

void model_stats_get(const struct model_stats *s, const char *adapter, struct model_counts *out) {
    const struct entry *e = s != NULL ? find(s, adapter != NULL ? adapter : "") : NULL;
    *out = e != NULL ? e->counts : (struct model_counts){0};
}
