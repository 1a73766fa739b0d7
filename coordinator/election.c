/* election: the beat of a candidate and of a leader. One call is under way at a time; what it was
 * for is its step. */
#include "coordinator/election.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/loop.h"

enum {
    CALL_MS_MAX = 5000, /* cluster-api 9 */
    AGAIN_MS = 500,     /* after a call that failed */
    REFUSED_MS = 2000,  /* after one that was refused: it will be again */
    REST_MS = 5000,     /* after giving the lead away */
    RESIGN_MS = 1000,
    RENEWALS = 3,      /* in the time of a lease */
    MARGIN_PARTS = 20, /* of the lease, by which we stop before its end */
};

enum step { STEP_NONE, STEP_LOOK, STEP_GRANT, STEP_CAMPAIGN, STEP_RENEW, STEP_REVOKE };

struct election {
    struct election_opts o;
    struct loop_timer *beat;
    struct etcd_call call;
    enum step step;
    bool leads, unsure, over;
    int64_t lease, revision;
    int64_t given_up;  /* a lease that etcd may still have; 0: it has none of ours */
    uint64_t sent_ms;  /* the call under way, on the boot clock */
    uint64_t until_ms; /* the lease holds until then, on the boot clock */
    uint64_t renew_ms; /* the next renewal is due */
    uint64_t look_ms;  /* the next look at the lock */
    char leader[ELECTION_VALUE_BYTES], more[ELECTION_VALUE_BYTES], trouble[2 * ETCD_WHY_BYTES];
    struct loop_alarm resigned;
    void (*on_resigned)(void *arg);
    void *resigned_arg;
};

static uint64_t ttl_ms(const struct election *e) {
    return (uint64_t)e->o.ttl_s * 1000;
}

static unsigned call_ms(const struct election *e) {
    const uint64_t third = ttl_ms(e) / RENEWALS;
    return third < CALL_MS_MAX ? (unsigned)third : CALL_MS_MAX;
}

/* ---- what is known */
bool election_leads(const struct election *e) {
    return e->leads && (e->unsure || clock_boot_ms() < e->until_ms);
}

bool election_is_unsure(const struct election *e) {
    return e->leads && e->unsure;
}

uint64_t election_left_ms(const struct election *e) {
    const uint64_t now = clock_boot_ms();
    return e->leads && now < e->until_ms ? e->until_ms - now : 0;
}

int64_t election_revision(const struct election *e) {
    return e->leads ? e->revision : 0;
}

const char *election_leader(const struct election *e) {
    return e->leader;
}

const char *election_leader_more(const struct election *e) {
    return e->more;
}

const char *election_trouble(const struct election *e) {
    return e->trouble;
}

static void split_leader(struct election *e) {
    char *at = strchr(e->leader, ELECTION_MORE);
    snprintf(e->more, sizeof(e->more), "%s", at != NULL ? at + 1 : "");
    if (at != NULL) *at = '\0';
}

static void set_leader(struct election *e, const struct etcd_answer *a) {
    char was[sizeof(e->leader)];
    memcpy(was, e->leader, sizeof(was));
    size_t n = a->has_key ? a->value.len : 0;
    if (n >= sizeof(e->leader)) n = sizeof(e->leader) - 1;
    for (size_t i = 0; i < n; i++) /* it goes into lines of a log, and into answers */
        e->leader[i] = a->value.data[i] > ' ' && a->value.data[i] < 0x7F ? a->value.data[i] : '?';
    e->leader[n] = '\0';
    split_leader(e);
    if (strcmp(was, e->leader) != 0 && e->leader[0] != '\0')
        log_info("election", "event=follows leader=%s key=%s", e->leader, e->o.lock);
    if (a->has_key && a->key_lease == 0 && strcmp(was, e->leader) != 0)
        log_error("election",
                  "event=lock_without_lease key=%s value=\"%s\": it never ends by itself",
                  e->o.lock, e->leader);
}

/* Once for each text. */
static void set_trouble(struct election *e, enum err err, const char *why) {
    if (strcmp(e->trouble, why) == 0) return;
    snprintf(e->trouble, sizeof(e->trouble), "%s", why);
    if (err != ERR_OK)
        log_error("election", "event=%s member=%s key=%s detail=\"%s\"",
                  err == ERR_REFUSED ? "etcd_refuses" : "etcd_away", etcd_member(e->o.etcd),
                  e->o.lock, e->trouble);
    else
        log_info("election", "event=etcd_back member=%s", etcd_member(e->o.etcd));
}

/* ---- calls */
static void start(struct election *e, enum step step, enum etcd_op op, struct buf *body,
                  unsigned timeout_ms) {
    e->step = step;
    e->sent_ms = clock_boot_ms();
    if (etcd_start(e->o.etcd, &e->call, op, body, timeout_ms) == ERR_OK) return;
    e->step = STEP_NONE;
    buf_free(body);
    e->look_ms = e->renew_ms = e->sent_ms + AGAIN_MS;
}

static void look(struct election *e) {
    struct buf b = BUF_INIT;
    etcd_put_range(&b, e->o.lock);
    start(e, STEP_LOOK, ETCD_RANGE, &b, call_ms(e));
}

static void grant(struct election *e) {
    struct buf b = BUF_INIT;
    etcd_put_grant(&b, e->o.ttl_s);
    start(e, STEP_GRANT, ETCD_GRANT, &b, call_ms(e));
}

static void campaign(struct election *e) {
    struct buf b = BUF_INIT;
    etcd_put_campaign(&b, e->o.lock, e->o.value, e->lease, e->o.state);
    const uint64_t granted_ms = e->sent_ms;
    start(e, STEP_CAMPAIGN, ETCD_TXN, &b, call_ms(e));
    e->sent_ms = granted_ms; /* from then on the lease runs */
}

static void renew(struct election *e) {
    struct buf b = BUF_INIT;
    etcd_put_lease(&b, e->lease);
    e->renew_ms = clock_boot_ms() + ttl_ms(e) / RENEWALS;
    start(e, STEP_RENEW, ETCD_KEEP_ALIVE, &b, call_ms(e));
}

static void revoke(struct election *e) {
    struct buf b = BUF_INIT;
    if (e->lease == 0) return;
    etcd_cancel(&e->call);
    etcd_put_lease(&b, e->lease);
    e->given_up = e->lease;
    e->lease = 0;
    start(e, STEP_REVOKE, ETCD_REVOKE, &b, RESIGN_MS);
}

/* The lease held since the call under way was sent. */
static void note_lease(struct election *e, int64_t granted_s) {
    const uint64_t granted = (uint64_t)granted_s * 1000,
                   ms = granted < ttl_ms(e) ? granted : ttl_ms(e);
    e->until_ms = e->sent_ms + ms - ms / MARGIN_PARTS;
}

/* ---- losing it */
void election_depose(struct election *e, const char *why) {
    if (!e->leads) return;
    e->leads = e->unsure = false;
    e->revision = 0;
    e->leader[0] = '\0';
    log_warn("election", "event=deposed key=%s why=\"%s\"", e->o.lock, why);
    revoke(e); /* where it is still there, the next one need not wait for its end */
    e->look_ms = clock_boot_ms() + ELECTION_BEAT_MS;
    e->o.on_lost(e->o.arg, why);
}

static void lease_may_have_ended(struct election *e) {
    char why[sizeof(e->trouble) + 64];
    if (e->o.keep_on_loss && e->trouble[0] != '\0') {
        if (!e->unsure)
            log_warn("election", "event=goes_on_without_lease key=%s detail=\"%s\"", e->o.lock,
                     e->trouble);
        e->unsure = true;
        return;
    }
    snprintf(why, sizeof(why), "the lease of %u s was not renewed in time%s%s", e->o.ttl_s,
             e->trouble[0] != '\0' ? ": " : "", e->trouble);
    election_depose(e, why);
}

/* ---- answers */
static void won(struct election *e, const struct etcd_answer *a) {
    e->leads = true;
    e->revision = a->revision;
    snprintf(e->leader, sizeof(e->leader), "%s", e->o.value);
    split_leader(e);
    log_info("election", "event=elected key=%s revision=%lld lease_s=%u", e->o.lock,
             (long long)a->revision, e->o.ttl_s);
    e->o.on_won(e->o.arg, a->revision, a->has_key ? &a->value : NULL);
}

static void failed(struct election *e, enum step step, const struct etcd_result *r) {
    set_trouble(e, r->err, r->why);
    const uint64_t wait = r->err == ERR_REFUSED ? REFUSED_MS : AGAIN_MS;
    e->look_ms = clock_boot_ms() + wait;
    if (step == STEP_RENEW) e->renew_ms = clock_boot_ms() + AGAIN_MS;
    if (step == STEP_CAMPAIGN) revoke(e); /* it may be ours */
}

static void looked(struct election *e, const struct etcd_answer *a) {
    set_leader(e, a);
    e->look_ms = clock_boot_ms() + ELECTION_BEAT_MS;
    if (e->over) return;
    if (!a->has_key) {
        grant(e);
    } else if (e->given_up != 0 && a->key_lease == e->given_up) {
        e->lease = e->given_up; /* etcd was away when we gave it up */
        revoke(e);
    }
}

static void granted(struct election *e, const struct etcd_answer *a) {
    e->lease = a->lease;
    note_lease(e, a->ttl_s);
    if (e->lease != 0) campaign(e);
}

static void campaigned(struct election *e, const struct etcd_answer *a) {
    if (a->succeeded && clock_boot_ms() < e->until_ms) {
        e->renew_ms = e->sent_ms + ttl_ms(e) / RENEWALS;
        won(e, a);
        return;
    }
    if (!a->succeeded) set_leader(e, a);
    revoke(e); /* another one was first, or it came too late */
}

static void renewed(struct election *e, const struct etcd_answer *a) {
    char why[96];
    if (a->ttl_s > 0) {
        note_lease(e, a->ttl_s);
        if (e->unsure) log_info("election", "event=lease_again key=%s", e->o.lock);
        e->unsure = false;
        return;
    }
    snprintf(why, sizeof(why), "etcd has no lease %lld any more", (long long)e->lease);
    e->lease = 0;
    election_depose(e, why);
}

static void resigned(void *arg) {
    struct election *e = arg;
    void (*fn)(void *) = e->on_resigned;
    loop_alarm_stop(&e->resigned);
    e->on_resigned = NULL;
    if (fn != NULL) fn(e->resigned_arg);
}

static void on_done(void *arg, const struct etcd_result *r) {
    struct election *e = arg;
    const enum step step = e->step;
    e->step = STEP_NONE;
    if (step == STEP_REVOKE) {
        if (r->err == ERR_OK || r->err == ERR_NOT_FOUND) e->given_up = 0;
        if (e->on_resigned != NULL) resigned(e);
        return;
    }
    if (r->err != ERR_OK) {
        failed(e, step, r);
        return;
    }
    set_trouble(e, ERR_OK, "");
    switch (step) {
    case STEP_LOOK: looked(e, r->answer); break;
    case STEP_GRANT: granted(e, r->answer); break;
    case STEP_CAMPAIGN: campaigned(e, r->answer); break;
    case STEP_RENEW: renewed(e, r->answer); break;
    case STEP_NONE:
    case STEP_REVOKE: break;
    }
}

/* ---- the beat */
static void on_beat(void *arg) {
    struct election *e = arg;
    const uint64_t now = clock_boot_ms();
    if (e->leads && now >= e->until_ms) lease_may_have_ended(e);
    if (etcd_busy(&e->call)) return;
    if (e->leads && now >= e->renew_ms) renew(e);
    if (!e->leads && now >= e->look_ms) look(e);
}

void election_resign(struct election *e, bool for_good, void (*fn)(void *arg), void *arg) {
    e->over = e->over || for_good;
    e->leads = e->unsure = false;
    e->revision = 0;
    e->leader[0] = '\0';
    e->look_ms = clock_boot_ms() + (e->over ? ELECTION_BEAT_MS : REST_MS);
    e->on_resigned = fn;
    e->resigned_arg = arg;
    if (e->lease == 0 && e->step != STEP_REVOKE) { /* also one that nobody has told us of yet */
        etcd_cancel(&e->call);
        e->step = STEP_NONE;
        loop_alarm_set(e->o.loop, &e->resigned, 0, resigned, e);
        return;
    }
    log_info("election", "event=resigns key=%s", e->o.lock);
    revoke(e);
    loop_alarm_set(e->o.loop, &e->resigned, RESIGN_MS, resigned, e);
}

enum err election_create(struct election **out, const struct election_opts *o) {
    struct election *e = calloc(1, sizeof(*e));
    *out = e;
    if (e == NULL) return ERR_NO_MEMORY;
    e->o = *o;
    e->call.on_done = on_done;
    e->call.arg = e;
    const enum err err = loop_timer_start(&e->beat, o->loop, 1, ELECTION_BEAT_MS, on_beat, e);
    if (err != ERR_OK) election_destroy(out);
    return err;
}

void election_destroy(struct election **ep) {
    struct election *e = *ep;
    *ep = NULL;
    if (e == NULL) return;
    loop_timer_stop(&e->beat);
    loop_alarm_stop(&e->resigned);
    etcd_cancel(&e->call);
    free(e);
}
