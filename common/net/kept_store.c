/* kept_store: a table by id, and for each tenant its answers by their last use. */
#include "common/net/kept_store.h"

#include <stdlib.h>
#include <string.h>
#include "proto/hash.h"

enum { BUCKETS_MIN = 64 };

struct kept_tenant {
    char name[TENANT_BYTES_MAX + 1];
    uint64_t bytes;
    size_t n; /* also those that run */
    struct kept *oldest, *newest;
    struct kept *oldest_events, *newest_events;
    struct kept_tenant *next;
};

struct kept_store {
    struct kept_limits limits;
    struct budget *budget;
    struct kept **buckets; /* [n_buckets], a power of two */
    size_t n_buckets, n;
    uint64_t bytes;
    struct kept_tenant *tenants;
    kept_gone_fn *gone;
    void *gone_arg;
};

/* ---- lists of a tenant */

static void link_use(struct kept *k) {
    struct kept_tenant *t = k->tenant;
    k->newer = NULL;
    k->older = t->newest;
    if (t->newest != NULL) t->newest->newer = k;
    t->newest = k;
    if (t->oldest == NULL) t->oldest = k;
}

static void unlink_use(struct kept *k) {
    struct kept_tenant *t = k->tenant;
    if (k->older == NULL && t->oldest != k) return; /* in no list */
    *(k->newer != NULL ? &k->newer->older : &t->newest) = k->older;
    *(k->older != NULL ? &k->older->newer : &t->oldest) = k->newer;
    k->older = k->newer = NULL;
}

static void link_events(struct kept *k) {
    struct kept_tenant *t = k->tenant;
    k->newer_events = NULL;
    k->older_events = t->newest_events;
    if (t->newest_events != NULL) t->newest_events->newer_events = k;
    t->newest_events = k;
    if (t->oldest_events == NULL) t->oldest_events = k;
}

static void unlink_events(struct kept *k) {
    struct kept_tenant *t = k->tenant;
    if (k->older_events == NULL && t->oldest_events != k) return;
    *(k->newer_events != NULL ? &k->newer_events->older_events : &t->newest_events) =
        k->older_events;
    *(k->older_events != NULL ? &k->older_events->newer_events : &t->oldest_events) =
        k->newer_events;
    k->older_events = k->newer_events = NULL;
}

static struct kept_tenant *tenant_of(struct kept_store *s, const char *name) {
    struct kept_tenant *t = s->tenants;
    while (t != NULL && strcmp(t->name, name) != 0) t = t->next;
    if (t != NULL) return t;
    t = calloc(1, sizeof(*t));
    if (t == NULL) return NULL;
    strncpy(t->name, name, TENANT_BYTES_MAX);
    t->next = s->tenants;
    s->tenants = t;
    return t;
}

static void tenant_leave(struct kept_store *s, struct kept_tenant *t) {
    struct kept_tenant **at = &s->tenants;
    if (t->n > 0) return;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    free(t);
}

/* ---- the table */

/* Ids are random numbers of the server's own. */
static size_t hash_of(const char *id) {
    return (size_t)hash64_text(HASH64_BEGIN, id);
}

static struct kept **slot_of(const struct kept_store *s, const char *id) {
    struct kept **at = &s->buckets[hash_of(id) & (s->n_buckets - 1)];
    while (*at != NULL && strcmp((*at)->id, id) != 0) at = &(*at)->hash_next;
    return at;
}

enum err kept_store_create(struct kept_store **out, const struct kept_limits *limits,
                           struct budget *budget) {
    struct kept_store *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (s == NULL) return ERR_NO_MEMORY;
    s->limits = *limits;
    s->budget = budget;
    s->n_buckets = BUCKETS_MIN;
    while (s->n_buckets < limits->count_max) s->n_buckets *= 2;
    s->buckets = calloc(s->n_buckets, sizeof(struct kept *));
    if (s->buckets == NULL) {
        free(s);
        return ERR_NO_MEMORY;
    }
    *out = s;
    return ERR_OK;
}

void kept_store_watch(struct kept_store *s, kept_gone_fn *gone, void *arg) {
    s->gone = gone;
    s->gone_arg = arg;
}

void kept_store_destroy(struct kept_store **sp) {
    struct kept_store *s = *sp;
    if (s == NULL) return;
    s->gone = NULL; /* who keeps a copy keeps it */
    for (size_t i = 0; i < s->n_buckets; i++)
        while (s->buckets[i] != NULL) kept_remove(s, s->buckets[i]);
    free(s->buckets);
    free(s);
    *sp = NULL;
}

/* ---- bytes */

static void account(struct kept_store *s, struct kept *k) {
    const uint64_t now = sizeof(*k) + k->input.cap + k->text.cap, was = k->bytes;
    k->bytes = now;
    s->bytes += now - was;
    k->tenant->bytes += now - was;
    if (now > was)
        budget_hold(s->budget, BUDGET_KEPT_BYTES, now - was);
    else
        budget_give(s->budget, BUDGET_KEPT_BYTES, was - now);
}

/* b holds p[0..n) and no more than that. */
static bool buf_exactly(struct buf *b, const char *p, size_t n) {
    struct buf fresh = BUF_INIT;
    if (n > 0 && !buf_reserve_most(&fresh, n, n)) return false;
    if (n > 0) buf_append(&fresh, p, n);
    buf_free(b);
    *b = fresh;
    return true;
}

/* The response alone is left. */
static void drop_events(struct kept_store *s, struct kept *k) {
    unlink_events(k);
    k->has_events = false;
    if (k->n > 0 && buf_exactly(&k->text, k->text.data + k->at, k->n)) k->at = 0;
    account(s, k);
    if (s->gone != NULL) s->gone(s->gone_arg, k);
}

void kept_remove(struct kept_store *s, struct kept *k) {
    struct kept **at = slot_of(s, k->id);
    struct kept_tenant *t = k->tenant;
    *at = k->hash_next;
    unlink_use(k);
    unlink_events(k);
    if (s->gone != NULL) {
        k->n = 0;
        s->gone(s->gone_arg, k);
    }
    s->n--;
    s->bytes -= k->bytes;
    t->n--;
    t->bytes -= k->bytes;
    budget_give(s->budget, BUDGET_KEPT_BYTES, k->bytes);
    budget_give(s->budget, BUDGET_KEPT, 1);
    tenant_leave(s, t);
    buf_free(&k->input);
    buf_free(&k->text);
    free(k);
}

/* The tenant that holds most, of those who hold something that can go. */
static struct kept_tenant *largest(const struct kept_store *s, bool by_number) {
    struct kept_tenant *most = NULL;
    for (struct kept_tenant *t = s->tenants; t != NULL; t = t->next)
        if (t->oldest != NULL &&
            (most == NULL || (by_number ? t->n > most->n : t->bytes > most->bytes)))
            most = t;
    return most;
}

static bool room_for_bytes(struct kept_store *s, uint64_t more) {
    while (s->bytes + more > s->limits.bytes_max) {
        struct kept_tenant *t = largest(s, false);
        if (t == NULL) {
            budget_refused(s->budget, BUDGET_KEPT_BYTES);
            return false;
        }
        if (t->oldest_events != NULL)
            drop_events(s, t->oldest_events);
        else
            kept_remove(s, t->oldest);
    }
    return true;
}

static bool room_for_one(struct kept_store *s) {
    while (s->n >= s->limits.count_max) {
        struct kept_tenant *t = largest(s, true);
        if (t == NULL) {
            budget_refused(s->budget, BUDGET_KEPT);
            return false;
        }
        kept_remove(s, t->oldest);
    }
    return true;
}

uint64_t kept_one_max(const struct kept_store *s) {
    return s->limits.bytes_max / KEPT_PARTS;
}

/* ---- one */

static bool fill(struct kept *k, const char *id, const char *tenant, const char *previous,
                 const char *input, size_t n_input, uint64_t now_ms) {
    strcpy(k->id, id);
    strcpy(k->previous, previous);
    strcpy(k->tenant_name, tenant);
    k->runs = true;
    k->used_ms = now_ms;
    return buf_exactly(&k->input, input, n_input);
}

struct kept *kept_add(struct kept_store *s, const char *id, const char *tenant,
                      const char *previous, const char *input, size_t n_input, uint64_t now_ms) {
    const uint64_t bytes = sizeof(struct kept) + n_input;
    if (strlen(id) >= KEPT_ID_BYTES || strlen(previous) >= KEPT_ID_BYTES ||
        strlen(tenant) > TENANT_BYTES_MAX || *slot_of(s, id) != NULL || s->limits.count_max == 0)
        return NULL;
    if (bytes > kept_one_max(s)) {
        budget_refused(s->budget, BUDGET_KEPT_BYTES);
        return NULL;
    }
    if (!room_for_one(s) || !room_for_bytes(s, bytes)) return NULL;
    struct kept *k = calloc(1, sizeof(*k));
    struct kept_tenant *t = tenant_of(s, tenant);
    if (k == NULL || t == NULL || !fill(k, id, tenant, previous, input, n_input, now_ms)) {
        if (t != NULL) tenant_leave(s, t);
        free(k);
        return NULL;
    }
    struct kept **at = slot_of(s, id);
    k->tenant = t;
    k->hash_next = NULL;
    *at = k;
    s->n++;
    t->n++;
    budget_hold(s->budget, BUDGET_KEPT, 1);
    account(s, k);
    return k;
}

/* Of a stream that becomes too large only the event under way is kept, for the last one has all. */
static void forget_events(struct kept *k) {
    size_t from = k->text.len;
    while (from >= 2 && (k->text.data[from - 1] != '\n' || k->text.data[from - 2] != '\n')) from--;
    if (from < 2) return;
    k->has_events = false;
    buf_consume(&k->text, from);
}

bool kept_append(struct kept_store *s, struct kept *k, const void *p, size_t n) {
    if (sizeof(*k) + k->input.len + k->text.len + n > kept_one_max(s)) forget_events(k);
    if (sizeof(*k) + k->input.len + k->text.len + n > kept_one_max(s)) {
        budget_refused(s->budget, BUDGET_KEPT_BYTES);
        return false;
    }
    if (!room_for_bytes(s, n)) return false;
    buf_append(&k->text, p, n);
    account(s, k);
    return !k->text.failed;
}

bool kept_finish(struct kept_store *s, struct kept *k, size_t at, size_t n, size_t events,
                 uint64_t now_ms) {
    struct buf whole = k->text;
    k->text = BUF_INIT;
    const bool good = k->has_events ? buf_exactly(&k->text, whole.data, whole.len)
                                    : buf_exactly(&k->text, whole.data + at, n);
    buf_free(&whole);
    k->at = k->has_events ? at : 0;
    k->n = n;
    k->events = k->has_events ? events : 0;
    k->runs = false;
    k->used_ms = now_ms;
    link_use(k);
    if (k->has_events) link_events(k);
    account(s, k);
    return good;
}

struct kept *kept_find(const struct kept_store *s, const char *tenant, const char *id) {
    struct kept *k = *slot_of(s, id);
    return k != NULL && tenant_same_owner(k->tenant_name, tenant) ? k : NULL;
}

void kept_use(struct kept *k, uint64_t now_ms) {
    k->used_ms = now_ms;
    if (k->runs) return;
    unlink_use(k);
    link_use(k);
}

void kept_expire(struct kept_store *s, uint64_t now_ms) {
    for (struct kept_tenant *t = s->tenants, *next; t != NULL; t = next) {
        next = t->next;
        while (t->oldest != NULL && now_ms - t->oldest->used_ms >= s->limits.idle_ms) {
            const bool last = t->n == 1;
            kept_remove(s, t->oldest);
            if (last) break; /* so is the tenant */
        }
    }
}

size_t kept_count(const struct kept_store *s) {
    return s->n;
}
