/* journal: the entries, their memory, and the two who write them. */
#include "coordinator/journal.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/entropy.h"
#include "common/base/log.h"

enum {
    BUCKETS = 4096,
    GIVE_WAY_LOOK = 64, /* so many of the oldest are looked at for one of the same owner */
};

struct journal {
    struct journal_opts o;
    struct journal_entry *first, *last;
    struct journal_entry *quiet_first, *quiet_last;
    struct journal_entry *ids[BUCKETS], *keys[BUCKETS];
    uint8_t secret[16]; /* so that nobody can choose keys of one bucket */
    uint64_t serial;
    size_t n;
};

enum err journal_create(struct journal **out, const struct journal_opts *o) {
    struct journal *j = calloc(1, sizeof(*j));
    *out = NULL;
    if (j == NULL) return ERR_NO_MEMORY;
    j->o = *o;
    if (!entropy_get(j->secret, sizeof(j->secret))) {
        free(j);
        return ERR_IO;
    }
    *out = j;
    return ERR_OK;
}

/* ---- lists */

static struct journal_entry **id_bucket(struct journal *j, uint64_t id) {
    return &j->ids[id % BUCKETS];
}

static size_t key_hash(const struct journal *j, const char *path, const char *key) {
    uint8_t text[sizeof(j->secret) + API_PATH_BYTES + JOURNAL_KEY_BYTES_MAX + 2], hash[32];
    uint64_t v;
    const size_t n_path = strnlen(path, API_PATH_BYTES - 1) + 1,
                 n_key = strnlen(key, JOURNAL_KEY_BYTES_MAX);
    memcpy(text, j->secret, sizeof(j->secret));
    memcpy(text + sizeof(j->secret), path, n_path);
    memcpy(text + sizeof(j->secret) + n_path, key, n_key);
    SHA256(text, sizeof(j->secret) + n_path + n_key, hash);
    memcpy(&v, hash, sizeof(v));
    return v % BUCKETS;
}

static bool is_quiet(const struct journal_entry *e) {
    return e->until_ms != 0;
}

static void quiet_out(struct journal *j, struct journal_entry *e) {
    if (!is_quiet(e)) return;
    *(e->quiet_prev != NULL ? &e->quiet_prev->quiet_next : &j->quiet_first) = e->quiet_next;
    *(e->quiet_next != NULL ? &e->quiet_next->quiet_prev : &j->quiet_last) = e->quiet_prev;
    e->quiet_next = e->quiet_prev = NULL;
    e->until_ms = 0;
}

static void quiet_in(struct journal *j, struct journal_entry *e, uint64_t now_ms) {
    quiet_out(j, e);
    e->until_ms = now_ms + (e->done && e->key[0] != '\0' ? j->o.keyed_ms : j->o.answered_ms) + 1;
    e->quiet_prev = j->quiet_last;
    *(j->quiet_last != NULL ? &j->quiet_last->quiet_next : &j->quiet_first) = e;
    j->quiet_last = e;
}

static void link_in(struct journal *j, struct journal_entry *e) {
    struct journal_entry **b = id_bucket(j, e->id);
    e->serial = ++j->serial;
    e->prev = j->last;
    *(j->last != NULL ? &j->last->next : &j->first) = e;
    j->last = e;
    e->id_next = *b;
    *b = e;
    if (e->key[0] != '\0') {
        b = &j->keys[key_hash(j, e->path, e->key)];
        e->key_next = *b;
        *b = e;
    }
    j->n++;
}

static void entry_free(struct journal *j, struct journal_entry *e) {
    budget_give(j->o.budget, BUDGET_JOURNAL_BYTES, e->counted);
    buf_free(&e->headers);
    buf_free(&e->body);
    buf_free(&e->context);
    buf_free(&e->answer);
    transcript_free(&e->transcript);
    free(e);
}

static void link_out(struct journal *j, struct journal_entry *e) {
    struct journal_entry **at = id_bucket(j, e->id);
    while (*at != e) at = &(*at)->id_next;
    *at = e->id_next;
    if (e->key[0] != '\0') {
        at = &j->keys[key_hash(j, e->path, e->key)];
        while (*at != e) at = &(*at)->key_next;
        *at = e->key_next;
    }
    quiet_out(j, e);
    *(e->prev != NULL ? &e->prev->next : &j->first) = e->next;
    *(e->next != NULL ? &e->next->prev : &j->last) = e->prev;
    j->n--;
}

static void take_out(struct journal *j, struct journal_entry *e) {
    link_out(j, e);
    entry_free(j, e);
}

void journal_destroy(struct journal **jp) {
    struct journal *j = *jp;
    *jp = NULL;
    if (j == NULL) return;
    while (j->first != NULL) take_out(j, j->first);
    free(j);
}

/* ---- looking */

static struct journal_entry *by_id(const struct journal *j, uint64_t id) {
    struct journal_entry *e = j->ids[id % BUCKETS];
    while (e != NULL && e->id != id) e = e->id_next;
    return e;
}

struct journal_entry *journal_find(const struct journal *j, const char *tenant, uint64_t id) {
    struct journal_entry *e = by_id(j, id);
    return e != NULL && tenant_same_owner(e->tenant, tenant) ? e : NULL;
}

struct journal_entry *journal_find_key(const struct journal *j, const char *tenant,
                                       const char *path, const char *key) {
    struct journal_entry *e = j->keys[key_hash(j, path, key)];
    while (e != NULL && (strcmp(e->key, key) != 0 || strcmp(e->path, path) != 0 ||
                         !tenant_same_owner(e->tenant, tenant)))
        e = e->key_next;
    return e;
}

void journal_digest(uint8_t out[JOURNAL_DIGEST_BYTES], const void *body, size_t n) {
    SHA256(body, n, out);
}

const struct journal_entry *journal_above(const struct journal *j, uint64_t serial) {
    const struct journal_entry *e = j->last;
    if (e == NULL || e->serial <= serial) return NULL;
    if (j->first->serial > serial) return j->first;
    while (e->prev != NULL && e->prev->serial > serial) e = e->prev;
    return e;
}

uint64_t journal_last_serial(const struct journal *j) {
    return j->serial;
}

size_t journal_count(const struct journal *j) {
    return j->n;
}

static struct journal_span span_of(const struct buf *b) {
    return (struct journal_span){b->data != NULL ? b->data : "", b->len};
}

void journal_tell(struct journal_msg *m, const struct journal_entry *e) {
    const uint64_t age = clock_ms() - e->opened_ms;
    *m = (struct journal_msg){.kind = JOURNAL_ENTRY,
                              .id = e->id,
                              .stream = e->stream,
                              .broken = e->broken,
                              .done = e->done,
                              .epoch_base = e->epoch_base,
                              .age_ms =
                                  age < JOURNAL_AGE_MS_MAX ? (uint32_t)age : JOURNAL_AGE_MS_MAX,
                              .first_event = e->first_event,
                              .n_events = e->n_events,
                              .headers = span_of(&e->headers),
                              .body = span_of(&e->body),
                              .context = span_of(&e->context),
                              .answer = span_of(&e->answer),
                              .transcript = e->live != NULL ? *e->live : e->transcript};
    memcpy(m->tenant, e->tenant, sizeof(m->tenant));
    memcpy(m->path, e->path, sizeof(m->path));
    memcpy(m->key, e->key, sizeof(m->key));
    memcpy(m->digest, e->digest, sizeof(m->digest));
}

/* ---- events */

/* Bytes of the event at p[0..n), its empty line included; n where none ends it. */
static size_t event_bytes(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        const char *nl = memchr(p + i, '\n', n - i);
        if (nl == NULL) return n;
        i = (size_t)(nl - p) + 1;
        if (i < n && p[i] == '\n') return i + 1;
        if (i + 1 < n && p[i] == '\r' && p[i + 1] == '\n') return i + 2;
    }
    return n;
}

struct journal_span journal_skip_events(struct journal_span s, uint64_t n) {
    for (; n > 0 && s.n > 0; n--) {
        const size_t len = event_bytes(s.p, s.n);
        s = (struct journal_span){s.p + len, s.n - len};
    }
    return s;
}

bool journal_answer_from(const struct journal_entry *e, uint64_t n, struct journal_span *out) {
    if (n < e->first_event || n > e->n_events) return false;
    *out = journal_skip_events(span_of(&e->answer), n - e->first_event);
    return true;
}

/* Each event of p[0..n) with an id, unless it has one of its own; returns how many there are. */
static uint64_t tag(const struct journal_entry *e, struct buf *out, const char *p, size_t n,
                    const char *eol) {
    uint64_t n_events = 0;
    while (n > 0) {
        const size_t len = event_bytes(p, n);
        if (len < 4 || memcmp(p, "id: ", 4) != 0)
            buf_printf(out, "id: %s:%llu%s", e->id_text,
                       (unsigned long long)(e->n_events + n_events), eol);
        buf_append(out, p, len);
        n_events++;
        p += len;
        n -= len;
    }
    return n_events;
}

/* ---- memory */

static uint64_t cost(const struct journal_entry *e) {
    const size_t known = e->transcript.n_parts > 0 ? transcript_memory(&e->transcript) : 0;
    return sizeof(*e) + e->headers.cap + e->body.cap + e->context.cap + e->answer.cap + known;
}

static void tell(struct journal *j, const struct journal_entry *e, const struct journal_msg *m) {
    if (j->o.on_change != NULL) j->o.on_change(j->o.arg, e, m);
}

static void tell_kind(struct journal *j, const struct journal_entry *e, enum journal_kind kind) {
    const struct journal_msg m = {.kind = kind, .id = e->id};
    tell(j, e, &m);
}

static void shut(struct journal *j, struct journal_entry *e) {
    if (e->shut) return;
    tell_kind(j, e, JOURNAL_DROP);
    link_out(j, e);
    e->shut = true;
}

void journal_drop(struct journal *j, struct journal_entry *e) {
    shut(j, e);
    entry_free(j, e);
}

/* One that nobody works on goes; not `but`. False: there is none. */
static bool give_way(struct journal *j, const struct journal_entry *but) {
    struct journal_entry *e = j->quiet_first, *oldest = NULL;
    for (unsigned i = 0; e != NULL && i < GIVE_WAY_LOOK; i++, e = e->quiet_next) {
        if (e == but) continue;
        if (oldest == NULL) oldest = e;
        if (tenant_same_owner(e->tenant, but->tenant)) break;
    }
    if (e == NULL || e == but || !tenant_same_owner(e->tenant, but->tenant)) e = oldest;
    if (e == NULL) return false;
    journal_drop(j, e);
    return true;
}

/* What e has is counted; others give way for it. False: there is no room. */
static bool count(struct journal *j, struct journal_entry *e) {
    const uint64_t now = cost(e);
    if (now <= e->counted) {
        budget_give(j->o.budget, BUDGET_JOURNAL_BYTES, e->counted - now);
        e->counted = now;
        return true;
    }
    const uint64_t limit = budget_limit(j->o.budget, BUDGET_JOURNAL_BYTES);
    if (now > limit) {
        budget_refused(j->o.budget, BUDGET_JOURNAL_BYTES);
        return false;
    }
    while (budget_used(j->o.budget, BUDGET_JOURNAL_BYTES) - e->counted + now > limit)
        if (!give_way(j, e)) break;
    if (!budget_take(j->o.budget, BUDGET_JOURNAL_BYTES, now - e->counted)) return false;
    e->counted = now;
    return true;
}

/* The oldest half of a stream's answer goes when there is too much of it. */
static void shorten(struct journal_entry *e) {
    size_t at = 0;
    if (e->answer.len <= JOURNAL_ANSWER_BYTES_MAX) return;
    while (e->answer.len - at > JOURNAL_ANSWER_BYTES_MAX / 2) {
        at += event_bytes(e->answer.data + at, e->answer.len - at);
        e->first_event++;
    }
    buf_consume(&e->answer, at);
}

/* ---- an entry */

static struct journal_entry *make(struct journal *j, const struct journal_msg *m, uint64_t now_ms) {
    struct journal_entry *e = calloc(1, sizeof(*e));
    if (e == NULL) return NULL;
    e->id = m->id;
    snprintf(e->id_text, sizeof(e->id_text), "%llu", (unsigned long long)m->id);
    memcpy(e->tenant, m->tenant, sizeof(e->tenant));
    memcpy(e->path, m->path, sizeof(e->path));
    memcpy(e->key, m->key, sizeof(e->key));
    memcpy(e->digest, m->digest, sizeof(e->digest));
    e->stream = m->stream;
    e->broken = m->broken;
    e->done = m->done;
    e->epoch_base = m->epoch_base;
    e->opened_ms = now_ms - (m->age_ms < now_ms ? m->age_ms : now_ms);
    e->first_event = m->first_event;
    e->n_events = m->n_events;
    const struct {
        struct buf *to;
        struct journal_span from;
    } all[] = {{&e->headers, m->headers},
               {&e->body, m->body},
               {&e->context, m->context},
               {&e->answer, m->answer}};
    bool failed = false;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].from.n == 0) continue;
        failed = failed || !buf_reserve_most(all[i].to, all[i].from.n, all[i].from.n);
        buf_append(all[i].to, all[i].from.p, all[i].from.n);
        failed = failed || all[i].to->failed;
    }
    if (!failed && count(j, e)) {
        link_in(j, e);
        return e;
    }
    entry_free(j, e);
    return NULL;
}

struct journal_entry *journal_open(struct journal *j, const struct journal_msg *m) {
    struct journal_entry *e = make(j, m, clock_ms());
    if (e != NULL) tell(j, e, m);
    return e;
}

void journal_start(struct journal *j, struct journal_entry *e, const struct transcript *t) {
    if (e->shut) return;
    const struct journal_msg m = {.kind = JOURNAL_START, .id = e->id, .transcript = *t};
    tell(j, e, &m);
}

bool journal_piece(struct journal *j, struct journal_entry *e, const char *p, size_t n,
                   const struct emitted *tokens, size_t n_tokens, const char *eol,
                   struct buf *tagged) {
    struct journal_msg m = {
        .kind = JOURNAL_PIECE, .id = e->id, .tokens = tokens, .n_tokens = n_tokens};
    if (e->stream)
        e->n_events += tag(e, tagged, p, n, eol);
    else
        buf_append(tagged, p, n);
    m.n_events = e->n_events;
    m.answer = span_of(tagged);
    buf_append(&e->answer, tagged->data, tagged->len);
    if (e->stream) shorten(e);
    if (tagged->failed || e->answer.failed || !count(j, e)) {
        shut(j, e);
        return false;
    }
    tell(j, e, &m);
    return true;
}

void journal_break(struct journal *j, struct journal_entry *e) {
    if (e->shut) return;
    e->broken = true;
    tell_kind(j, e, JOURNAL_BROKEN);
}

/* What only going on would need goes. */
static void finish(struct journal *j, struct journal_entry *e, uint64_t now_ms) {
    e->done = true;
    e->relay = NULL;
    e->live = NULL;
    buf_free(&e->body);
    buf_free(&e->context);
    buf_free(&e->headers);
    transcript_free(&e->transcript);
    (void)count(j, e);
    quiet_in(j, e, now_ms);
}

void journal_done(struct journal *j, struct journal_entry *e, uint64_t now_ms) {
    if (e->shut) {
        entry_free(j, e);
        return;
    }
    finish(j, e, now_ms);
    tell_kind(j, e, JOURNAL_DONE);
}

void journal_release(struct journal *j, struct journal_entry *e, struct transcript *t,
                     uint64_t now_ms) {
    e->relay = NULL;
    e->live = NULL;
    transcript_free(&e->transcript);
    e->transcript = *t;
    *t = TRANSCRIPT_INIT;
    if (e->shut || !count(j, e)) {
        journal_drop(j, e);
        return;
    }
    quiet_in(j, e, now_ms);
}

void journal_take(struct journal *j, struct journal_entry *e, struct relay *r,
                  struct transcript *t) {
    *t = e->transcript;
    e->transcript = TRANSCRIPT_INIT;
    e->relay = r;
    e->live = t;
    e->stale = false;
    quiet_out(j, e);
    (void)count(j, e);
    struct journal_msg m; /* for those that have it with fewer attempts */
    journal_tell(&m, e);
    tell(j, e, &m);
}

/* ---- a copy */

static void apply_entry(struct journal *j, const struct journal_msg *m, uint64_t now_ms) {
    struct journal_entry *e = by_id(j, m->id);
    if (e != NULL && e->relay != NULL) return; /* we do not stand by */
    if (e != NULL) take_out(j, e);
    e = make(j, m, now_ms);
    if (e == NULL) {
        log_debug("journal", "req=%llu event=no_room", (unsigned long long)m->id);
        return;
    }
    if (e->done) quiet_in(j, e, now_ms);
}

/* Takes the message's transcript. */
static bool apply_start(struct journal_entry *e, struct transcript *t) {
    transcript_free(&e->transcript);
    e->transcript = *t;
    *t = TRANSCRIPT_INIT;
    return true;
}

static bool apply_piece(struct journal_entry *e, const struct journal_msg *m) {
    if (m->n_events < e->n_events) return false;
    e->n_events = m->n_events;
    buf_append(&e->answer, m->answer.p, m->answer.n);
    if (e->stream) shorten(e);
    for (size_t i = 0; i < m->n_tokens && !e->broken; i++)
        e->broken =
            e->transcript.n_parts == 0 || transcript_add(&e->transcript, &m->tokens[i]) != ERR_OK;
    return !e->answer.failed;
}

void journal_apply(struct journal *j, struct journal_msg *m, uint64_t now_ms) {
    bool good = true;
    if (m->kind == JOURNAL_ENTRY) {
        struct transcript t = m->transcript;
        apply_entry(j, m, now_ms);
        struct journal_entry *made = by_id(j, m->id);
        if (made == NULL || made->relay != NULL || made->done) return;
        m->transcript = TRANSCRIPT_INIT;
        if (!apply_start(made, &t) || !count(j, made)) take_out(j, made);
        return;
    }
    struct journal_entry *e = by_id(j, m->id);
    if (e == NULL || e->relay != NULL) return;
    switch (m->kind) {
    case JOURNAL_START: good = apply_start(e, &m->transcript); break;
    case JOURNAL_PIECE: good = apply_piece(e, m); break;
    case JOURNAL_BROKEN: e->broken = true; break;
    case JOURNAL_DONE: finish(j, e, now_ms); return;
    case JOURNAL_DROP: take_out(j, e); return;
    default: return;
    }
    if (!good || !count(j, e)) take_out(j, e);
}

void journal_orphan(struct journal *j, uint64_t now_ms) {
    for (struct journal_entry *e = j->first; e != NULL; e = e->next) {
        e->stale = false;
        if (e->relay == NULL && !is_quiet(e)) quiet_in(j, e, now_ms);
    }
}

void journal_sweep(struct journal *j) {
    for (struct journal_entry *e = j->first; e != NULL; e = e->next) e->stale = e->relay == NULL;
}

void journal_swept(struct journal *j) {
    for (struct journal_entry *e = j->first, *next; e != NULL; e = next) {
        next = e->next;
        if (e->stale) take_out(j, e);
    }
}

void journal_expire(struct journal *j, uint64_t now_ms) {
    for (struct journal_entry *e = j->quiet_first, *next; e != NULL; e = next) {
        next = e->quiet_next;
        if (now_ms >= e->until_ms) journal_drop(j, e);
    }
}
