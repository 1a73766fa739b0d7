/* lora_set: an array under a lock; there are few adapters, and a look-up is one request. */
#include "common/engine/lora_set.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct lora_info info;
    struct lora *lora; /* NULL while reserved */
};

struct lora_set {
    pthread_mutex_t lock;
    int n, max;
    struct entry *entries; /* [max] */
};

struct lora_set *lora_set_create(int adapters_max) {
    if (adapters_max < 0 || adapters_max > LORA_SET_MAX) return NULL;
    struct lora_set *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    s->max = adapters_max;
    s->entries = calloc(adapters_max > 0 ? (size_t)adapters_max : 1, sizeof(*s->entries));
    if (s->entries == NULL || pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s->entries);
        free(s);
        return NULL;
    }
    return s;
}

void lora_set_destroy(struct lora_set **s_ptr) {
    struct lora_set *s = *s_ptr;
    if (s == NULL) return;
    for (int i = 0; i < s->n; i++) lora_unref(&s->entries[i].lora);
    pthread_mutex_destroy(&s->lock);
    free(s->entries);
    free(s);
    *s_ptr = NULL;
}

/* ---- under the lock */

static struct entry *find(struct lora_set *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].info.name, name) == 0) return &s->entries[i];
    return NULL;
}

static void take_out(struct lora_set *s, struct entry *e) {
    size_t after = (size_t)(s->entries + s->n - (e + 1));
    lora_unref(&e->lora);
    memmove(e, e + 1, after * sizeof(*e));
    s->n--;
}

/* ---- the life of an adapter */

enum err lora_set_reserve(struct lora_set *s, const char *name) {
    enum err e = ERR_OK;
    if (strlen(name) < 1 || strlen(name) > ADAPTER_NAME_BYTES_MAX) return ERR_INVALID;
    pthread_mutex_lock(&s->lock);
    if (find(s, name) != NULL) {
        e = ERR_CONFLICT;
    } else if (s->n == s->max) {
        e = ERR_BUSY;
    } else {
        struct entry *x = &s->entries[s->n++];
        *x = (struct entry){.info = {.state = LORA_RESERVED}};
        snprintf(x->info.name, sizeof(x->info.name), "%s", name);
    }
    pthread_mutex_unlock(&s->lock);
    return e;
}

void lora_set_serve(struct lora_set *s, const char *name, struct lora **l, const char *path,
                    int64_t now_unix_s) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    size_t first = n;
    while (first > 0 && path[first - 1] != '/') first--;
    pthread_mutex_lock(&s->lock);
    struct entry *x = find(s, name);
    if (x != NULL && x->info.state == LORA_RESERVED) {
        x->lora = *l;
        *l = NULL;
        x->info.state = LORA_SERVED;
        x->info.rank = x->lora->rank;
        x->info.loaded_unix_s = now_unix_s;
        snprintf(x->info.root, sizeof(x->info.root), "%.*s", (int)(n - first), path + first);
        snprintf(x->info.path, sizeof(x->info.path), "%s", path);
    }
    pthread_mutex_unlock(&s->lock);
    lora_unref(l);
}

void lora_set_drop(struct lora_set *s, const char *name) {
    pthread_mutex_lock(&s->lock);
    struct entry *x = find(s, name);
    if (x != NULL && x->info.state == LORA_RESERVED) take_out(s, x);
    pthread_mutex_unlock(&s->lock);
}

enum err lora_set_retire(struct lora_set *s, const char *name) {
    pthread_mutex_lock(&s->lock);
    struct entry *x = find(s, name);
    bool good = x != NULL && x->info.state == LORA_SERVED;
    if (good) x->info.state = LORA_RETIRED;
    pthread_mutex_unlock(&s->lock);
    return good ? ERR_OK : ERR_NOT_FOUND;
}

int lora_set_reap(struct lora_set *s) {
    int in_use = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = s->n - 1; i >= 0; i--) {
        struct entry *x = &s->entries[i];
        if (x->info.state != LORA_RETIRED) continue;
        /* References come from here only, under the lock: one that is left is ours. */
        if (lora_refs(x->lora) > 1) {
            in_use++;
        } else {
            take_out(s, x);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return in_use;
}

/* ---- questions */

enum lora_state lora_set_state(struct lora_set *s, const char *name) {
    pthread_mutex_lock(&s->lock);
    const struct entry *x = find(s, name);
    enum lora_state st = x != NULL ? x->info.state : LORA_ABSENT;
    pthread_mutex_unlock(&s->lock);
    return st;
}

bool lora_set_find(struct lora_set *s, const char *name, uint8_t hash[LORA_HASH_BYTES]) {
    pthread_mutex_lock(&s->lock);
    const struct entry *x = find(s, name);
    bool good = x != NULL && x->info.state == LORA_SERVED;
    if (good) memcpy(hash, x->lora->hash, LORA_HASH_BYTES);
    pthread_mutex_unlock(&s->lock);
    return good;
}

struct lora *lora_set_take(struct lora_set *s, const char *name,
                           const uint8_t hash[LORA_HASH_BYTES]) {
    pthread_mutex_lock(&s->lock);
    const struct entry *x = find(s, name);
    struct lora *l =
        x != NULL && x->lora != NULL && memcmp(x->lora->hash, hash, LORA_HASH_BYTES) == 0
            ? lora_ref(x->lora)
            : NULL;
    pthread_mutex_unlock(&s->lock);
    return l;
}

bool lora_set_at(struct lora_set *s, int idx, struct lora_info *out) {
    pthread_mutex_lock(&s->lock);
    bool good = idx >= 0 && idx < s->n;
    if (good) {
        const struct entry *x = &s->entries[idx];
        *out = x->info;
        out->in_use = x->lora != NULL && lora_refs(x->lora) > 1;
    }
    pthread_mutex_unlock(&s->lock);
    return good;
}
