/* store_etcd: the state as the value of one key, written only while the lock is ours. */
#include "coordinator/store_etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/loop.h"
#include "coordinator/store_priv.h"

enum { WRITE_MS = 2000, WRITE_AGAIN_MS = 500 };

struct store_etcd {
    struct store store;
    struct store_etcd_opts o;
    char lock[ELECTION_KEY_BYTES], key[ELECTION_KEY_BYTES];
    struct election *election;
    struct etcd_call call;
    uint64_t call_term;               /* of the state under way */
    bool is_behind;                   /* the state has changed since that was sent */
    bool leads;                       /* on_lead has run */
    char failure[2 * ETCD_WHY_BYTES]; /* of the last write; "": none */
    struct loop_alarm again;
};

/* ---- writing */
static void write_now(struct store_etcd *s);

static void write_again(void *arg) {
    write_now(arg);
}

static void failed(struct store_etcd *s, const char *why) {
    snprintf(s->failure, sizeof(s->failure), "%s: %s", s->key, why);
    s->is_behind = true;
    loop_alarm_set(s->o.loop, &s->again, WRITE_AGAIN_MS, write_again, s);
}

static void write_now(struct store_etcd *s) {
    struct buf state = BUF_INIT, body = BUF_INIT;
    const int64_t revision = election_revision(s->election);
    if (revision == 0) return;
    if (etcd_busy(&s->call)) {
        s->is_behind = true;
        return;
    }
    s->is_behind = false;
    s->call_term = s->store.state.term;
    loop_alarm_stop(&s->again);
    enum err e = store_state_format(&state, &s->store.state);
    if (e == ERR_OK && state.len > ETCD_VALUE_BYTES_MAX) e = ERR_TOO_LARGE;
    if (e == ERR_OK) {
        etcd_put_if(&body, s->lock, revision, s->o.value, s->key, state.data, state.len);
        e = etcd_start(s->o.etcd, &s->call, ETCD_TXN, &body, WRITE_MS);
    }
    buf_free(&state);
    buf_free(&body);
    if (e != ERR_OK) failed(s, err_text(e));
}

static void on_written(void *arg, const struct etcd_result *r) {
    struct store_etcd *s = arg;
    if (r->err != ERR_OK) {
        failed(s, r->why);
        return;
    }
    if (!r->answer->succeeded) {
        election_depose(s->election, "etcd refused a write: the lock is not ours");
        return;
    }
    s->failure[0] = '\0';
    s->store.written_term = s->call_term;
    if (s->is_behind) write_now(s);
    if (!s->leads && election_leads(s->election)) {
        s->leads = true;
        s->o.on_lead(s->o.arg);
    }
}

static enum err etcd_write(struct store *store, struct errbuf *eb) {
    struct store_etcd *s = (struct store_etcd *)store;
    if (s->failure[0] != '\0' && loop_alarm_is_set(&s->again)) {
        s->is_behind = true; /* what is written then is the newest */
        return err_set(eb, ERR_IO, "%s", s->failure);
    }
    write_now(s);
    return s->failure[0] != '\0' ? err_set(eb, ERR_IO, "%s", s->failure) : ERR_OK;
}

/* ---- the election */

/* What the leader before us kept; where etcd has nothing of it, what we know ourselves. */
static void take_over(struct store_etcd *s, const struct buf *value) {
    struct store_state theirs;
    struct errbuf eb = {0};
    if (value == NULL) {
        log_info("store", "event=empty key=%s", s->key);
        return;
    }
    if (store_state_parse(&theirs, value->data != NULL ? value->data : "", value->len, &eb) !=
        ERR_OK) {
        log_error("store", "event=ignored key=%s detail=\"%s\"", s->key, eb.text);
        return;
    }
    if (theirs.term < s->store.state.term) {
        log_warn("store", "event=stale_term key=%s theirs=%llu ours=%llu", s->key,
                 (unsigned long long)theirs.term, (unsigned long long)s->store.state.term);
        store_state_free(&theirs);
        return;
    }
    store_state_free(&s->store.state);
    s->store.state = theirs;
}

static void on_won(void *arg, int64_t revision, const struct buf *value) {
    struct store_etcd *s = arg;
    take_over(s, value);
    uint64_t term = clock_unix_us() / 1000; /* an etcd that was wiped knows no better */
    if (term < (uint64_t)revision) term = (uint64_t)revision;
    if (term <= s->store.state.term) term = s->store.state.term + 1;
    s->store.state.term = term;
    write_now(s);
}

static void stop_writing(struct store_etcd *s) {
    s->leads = false;
    s->is_behind = false;
    s->failure[0] = '\0';
    etcd_cancel(&s->call);
    loop_alarm_stop(&s->again);
}

static void on_lost(void *arg, const char *why) {
    struct store_etcd *s = arg;
    const bool led = s->leads;
    stop_writing(s);
    if (led) s->o.on_yield(s->o.arg, why);
}

void store_etcd_depose(struct store *store, const char *why) {
    election_depose(((struct store_etcd *)store)->election, why);
}

void store_etcd_resign(struct store *store, bool for_good, void (*on_done)(void *arg), void *arg) {
    struct store_etcd *s = (struct store_etcd *)store;
    stop_writing(s);
    election_resign(s->election, for_good, on_done, arg);
}

/* ---- life */
static void etcd_close(struct store *store) {
    struct store_etcd *s = (struct store_etcd *)store;
    election_destroy(&s->election);
    etcd_cancel(&s->call);
    loop_alarm_stop(&s->again);
    free(s);
}

static const struct store_ops ops = {etcd_write, etcd_close};

const struct election *store_etcd_election(const struct store *s) {
    return ((const struct store_etcd *)s)->election;
}

bool store_etcd_leads(const struct store *s) {
    const struct store_etcd *e = (const struct store_etcd *)s;
    return e->leads && election_leads(e->election);
}

enum err store_etcd_open(struct store **out, const struct store_etcd_opts *o) {
    struct store_etcd *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (s == NULL) return ERR_NO_MEMORY;
    s->store.ops = &ops;
    s->store.takes_a_while = true;
    s->o = *o;
    s->call.on_done = on_written;
    s->call.arg = s;
    const int n = snprintf(s->lock, sizeof(s->lock), "%s" STORE_LOCK_NAME, o->prefix);
    snprintf(s->key, sizeof(s->key), "%s" STORE_STATE_NAME, o->prefix);
    const struct election_opts eo = {.loop = o->loop,
                                     .etcd = o->etcd,
                                     .lock = s->lock,
                                     .state = s->key,
                                     .value = o->value,
                                     .ttl_s = o->ttl_s,
                                     .keep_on_loss = o->keep_on_loss,
                                     .on_won = on_won,
                                     .on_lost = on_lost,
                                     .arg = s};
    enum err e = n < (int)sizeof(s->lock) ? ERR_OK : ERR_INVALID;
    if (e == ERR_OK) e = election_create(&s->election, &eo);
    if (e != ERR_OK) {
        free(s);
        return e;
    }
    *out = &s->store;
    return ERR_OK;
}
