/* store: rows in memory, the ids of instances, and the implementation that keeps nothing longer. */
#include "coordinator/store.h"

#include <stdlib.h>
#include <string.h>
#include "coordinator/store_priv.h"
#include "proto/hash.h"
#include "proto/limits.h"

static int by_identity(const void *a, const void *b) {
    const struct store_row *x = a, *y = b;
    return strcmp(x->identity, y->identity);
}

void store_state_free(struct store_state *s) {
    free(s->rows);
    memset(s, 0, sizeof(*s));
}

void store_close(struct store **s) {
    if (*s == NULL) return;
    store_state_free(&(*s)->state);
    (*s)->ops->close(*s);
    *s = NULL;
}

uint64_t store_term(const struct store *s) {
    return s->state.term;
}

uint64_t store_written_term(const struct store *s) {
    return s->written_term;
}

const struct store_row *store_find(const struct store *s, const char *identity) {
    struct store_row key = {0};
    const size_t n = strlen(identity);
    if (n >= sizeof(key.identity) || s->state.n_rows == 0) return NULL;
    memcpy(key.identity, identity, n);
    return bsearch(&key, s->state.rows, s->state.n_rows, sizeof(key), by_identity);
}

static bool same_row(const struct store_row *a, const struct store_row *b) {
    return strcmp(a->identity, b->identity) == 0 && a->id == b->id && a->role == b->role &&
           a->group == b->group && a->drained == b->drained && a->override == b->override &&
           a->back == b->back && a->override_unix_s == b->override_unix_s;
}

static bool same(const struct store_state *a, const struct store_state *b) {
    if (a->term != b->term || a->n_rows != b->n_rows) return false;
    for (size_t i = 0; i < a->n_rows; i++)
        if (!same_row(&a->rows[i], &b->rows[i])) return false;
    return true;
}

static bool has_id(const struct store_state *s, uint32_t id) {
    for (size_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].id == id) return true;
    return false;
}

/* Adds the rows of old that next has not, as far as they fit. */
static void add_others(struct store_state *next, const struct store_state *old) {
    const size_t n = next->n_rows;
    for (size_t i = 0; i < old->n_rows && next->n_rows < INSTANCES_MAX; i++) {
        const struct store_row *r = &old->rows[i];
        if (bsearch(r, next->rows, n, sizeof(*r), by_identity) == NULL && !has_id(next, r->id))
            next->rows[next->n_rows++] = *r;
    }
    qsort(next->rows, next->n_rows, sizeof(*next->rows), by_identity);
}

enum err store_keep(struct store *s, const struct store_state *state, bool others,
                    struct errbuf *eb) {
    struct store_state next = {.term = state->term, .n_rows = state->n_rows};
    next.rows = malloc((next.n_rows + s->state.n_rows + 1) * sizeof(*next.rows));
    if (next.rows == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the state");
    if (next.n_rows > 0) memcpy(next.rows, state->rows, next.n_rows * sizeof(*next.rows));
    qsort(next.rows, next.n_rows, sizeof(*next.rows), by_identity);
    if (others) add_others(&next, &s->state);
    if (!s->unwritten && same(&s->state, &next)) {
        free(next.rows);
        return ERR_OK;
    }
    store_state_free(&s->state);
    s->state = next;
    const enum err e = s->ops->write(s, eb);
    s->unwritten = e != ERR_OK;
    if (e == ERR_OK && !s->takes_a_while) s->written_term = s->state.term;
    return e;
}

/* ---- ids */
uint32_t store_first_id(const char *identity) {
    uint32_t h = hash32_text(HASH32_BEGIN, identity);
    h ^= h >> 16; /* addresses differ in their last characters only */
    return STORE_ID_MIN + h % (STORE_ID_MAX - STORE_ID_MIN + 1);
}

uint32_t store_next_id(uint32_t id) {
    return id < STORE_ID_MAX ? id + 1 : STORE_ID_MIN;
}

/* ---- store_memory */
static enum err memory_write(struct store *s, struct errbuf *eb) {
    (void)s, (void)eb;
    return ERR_OK;
}

static void memory_close(struct store *s) {
    free(s);
}

enum err store_memory_open(struct store **out) {
    static const struct store_ops ops = {memory_write, memory_close};
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL) return ERR_NO_MEMORY;
    s->ops = &ops;
    *out = s;
    return ERR_OK;
}
