/* answer_stop: the automata. */
#include "common/endpoint/answer_stop.h"

#include <stdlib.h>
#include <string.h>

struct stop_string {
    const char *s;
    uint32_t len;
    uint32_t state; /* bytes of s matched by the end of the text */
    uint32_t *fail; /* [len]: longest border of s[0..i] */
};

struct stop_set {
    size_t n;
    uint32_t *fails; /* backs all fail tables */
    struct stop_string v[];
};

static void build(struct stop_string *t) {
    t->fail[0] = 0;
    for (uint32_t i = 1, k = 0; i < t->len; i++) {
        while (k > 0 && t->s[i] != t->s[k]) k = t->fail[k - 1];
        if (t->s[i] == t->s[k]) k++;
        t->fail[i] = k;
    }
}

struct stop_set *stop_set_create(char *const *strings, size_t n) {
    struct stop_set *set = calloc(1, sizeof(*set) + n * sizeof(set->v[0]));
    size_t total = 0;
    if (set == NULL) return NULL;
    for (size_t i = 0; i < n; i++) total += strlen(strings[i]);
    set->fails = calloc(total > 0 ? total : 1, sizeof(*set->fails));
    if (set->fails == NULL) {
        free(set);
        return NULL;
    }
    set->n = n;
    total = 0;
    for (size_t i = 0; i < n; i++) {
        struct stop_string *t = &set->v[i];
        t->s = strings[i];
        t->len = (uint32_t)strlen(strings[i]);
        t->fail = set->fails + total;
        total += t->len;
        if (t->len > 0) build(t);
    }
    return set;
}

void stop_set_destroy(struct stop_set **s) {
    if (*s == NULL) return;
    free((*s)->fails);
    free(*s);
    *s = NULL;
}

static bool better(const struct stop_match *m, size_t start, size_t end) {
    if (m->idx < 0 || start < m->start) return true;
    return start == m->start && end > m->end;
}

void stop_set_feed(struct stop_set *s, const char *p, size_t n, size_t at, struct stop_match *m) {
    for (size_t i = 0; i < s->n; i++) {
        struct stop_string *t = &s->v[i];
        uint32_t k = t->state;
        for (size_t j = 0; t->len > 0 && j < n; j++) {
            while (k > 0 && p[j] != t->s[k]) k = t->fail[k - 1];
            if (p[j] == t->s[k]) k++;
            if (k < t->len) continue;
            size_t end = at + j + 1;
            if (better(m, end - t->len, end))
                *m = (struct stop_match){(int32_t)i, end - t->len, end};
            k = t->fail[k - 1];
        }
        t->state = k;
    }
}

void stop_set_reset(struct stop_set *s) {
    for (size_t i = 0; i < s->n; i++) s->v[i].state = 0;
}

size_t stop_set_held(const struct stop_set *s) {
    size_t held = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].state > held) held = s->v[i].state;
    return held;
}
