/* req_set: one list of requests, one timer that looks through it. */
#include "common/instance/req_set.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/instance.h"
#include "common/instance/req_trace.h"

enum { SCAN_MS = 250, DETAIL_BYTES = 512 };

struct req_set {
    struct instance *in;
    struct inst_req *first;
    struct req_seqs seqs;
    struct loop_timer *scan;
    req_set_fn *on_scan;
    void *on_scan_arg;
    struct inst_req *next; /* of the look under way: it may end meanwhile */
};

struct req_seqs *req_set_seqs(struct req_set *s) {
    return &s->seqs;
}

void req_set_on_scan(struct req_set *s, req_set_fn *fn, void *arg) {
    s->on_scan = fn;
    s->on_scan_arg = arg;
}

/* ---- begin and end */

void req_begin(struct req_set *s, struct inst_req *r) {
    r->set = s;
    r->arrival_ms = r->last_token_ms = clock_ms();
    r->next = s->first;
    r->at = &s->first;
    if (r->next != NULL) r->next->at = &r->next;
    s->first = r;
}

void req_end(struct inst_req *r, enum req_end how, const char *event, const char *fmt, ...) {
    char detail[DETAIL_BYTES];
    if (r->set == NULL) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    req_meter_end(&r->meter, how);
    log_info(r->kind->area, "req=%s epoch=%u event=%s %s %s", r->id, r->epoch, event, detail,
             req_trace_fields(r->req));
    if (r->set->next == r) r->set->next = r->next;
    *r->at = r->next;
    if (r->next != NULL) r->next->at = r->at;
    r->set = NULL;
}

/* ---- who */

struct inst_req *req_set_next(const struct req_set *s, const struct req_kind *kind,
                              const struct inst_req *r) {
    struct inst_req *n = r == NULL ? s->first : r->next;
    while (n != NULL && kind != NULL && n->kind != kind) n = n->next;
    return n;
}

bool req_set_has(const struct req_set *s, enum inst_role role, const char *id, uint32_t epoch) {
    const struct inst_req *r = s->first;
    while (r != NULL && (r->kind->role != role || r->epoch != epoch || strcmp(r->id, id) != 0))
        r = r->next;
    return r != NULL;
}

bool req_set_has_older(const struct req_set *s, enum inst_role role, const char *id,
                       uint32_t epoch) {
    const struct inst_req *r = s->first;
    while (r != NULL && (r->kind->role != role || r->epoch >= epoch || strcmp(r->id, id) != 0))
        r = r->next;
    return r != NULL;
}

struct inst_req *req_set_find(const struct req_set *s, const struct req_kind *kind,
                              const char *id) {
    struct inst_req *r = req_set_next(s, kind, NULL);
    while (r != NULL && strcmp(r->id, id) != 0) r = req_set_next(s, kind, r);
    return r;
}

static bool is_named(const struct inst_req *r, const char *id, const char *tenant, uint32_t epoch) {
    const char *client_id = r->req != NULL ? r->req->head.client_id : NULL;
    return (strcmp(r->id, id) == 0 || (client_id != NULL && strcmp(client_id, id) == 0)) &&
           (tenant == NULL || tenant_same_owner(r->tenant, tenant)) && r->epoch <= epoch;
}

struct inst_req *req_set_find_named(const struct req_set *s, const struct req_kind *kind,
                                    const struct inst_req *but, const char *id, const char *tenant,
                                    uint32_t epoch) {
    struct inst_req *r = req_set_next(s, kind, NULL);
    while (r != NULL && (r == but || !is_named(r, id, tenant, epoch))) r = req_set_next(s, kind, r);
    return r;
}

bool req_set_stop(struct req_set *s, const char *id, const char *tenant, uint32_t epoch) {
    bool any = false, again;
    bool stopped[ROLE_MIXED + 1] = {false}; /* of each kind one */
    do {
        again = false;
        for (struct inst_req *r = s->first; r != NULL; r = r->next) {
            if (stopped[r->kind->role] || !is_named(r, id, tenant, epoch)) continue;
            stopped[r->kind->role] = true;
            r->kind->stop(r); /* the list has changed */
            any = again = true;
            break;
        }
    } while (again);
    return any;
}

void req_set_abort(struct req_set *s, enum inst_role role, enum err why) {
    const bool stopping = err_http_status(why) == 503;
    for (struct inst_req *r = s->first; r != NULL;) {
        if (role != ROLE_NONE && r->kind->role != role) {
            r = r->next;
            continue;
        }
        r->kind->fail(r, stopping ? r->kind->stopping : r->kind->ended, stopping ? 503 : 500,
                      err_text(why));
        r = s->first; /* others may have gone with it */
    }
}

void req_set_load(const struct req_set *s, enum inst_role role, struct role_load *out) {
    *out = (struct role_load){0};
    for (const struct inst_req *r = s->first; r != NULL; r = r->next) {
        if (role != ROLE_NONE && r->kind->role != role) continue;
        switch (r->kind->phase(r)) {
        case REQ_WAITING: out->waiting++; break;
        case REQ_RUNNING: out->running++; break;
        case REQ_LEASED: out->leases++; break;
        }
    }
    if (role != ROLE_NONE) return;
    out->running += s->seqs.n_winding;
    out->leases += s->seqs.n_winding_held + s->seqs.n_kept;
}

/* ---- time */

enum req_limit req_limit_over(const struct inst_req *r, int64_t token_timeout_s,
                              int64_t e2e_timeout_s, uint64_t now_ms) {
    const bool stream = r->req != NULL && r->req->answer.stream;
    const uint64_t since = stream ? r->last_token_ms : r->arrival_ms;
    const uint64_t wait = now_ms > since ? now_ms - since : 0;
    const uint64_t whole = now_ms > r->arrival_ms ? now_ms - r->arrival_ms : 0;
    if (r->req != NULL && r->req->head.timeout_s > 0 &&
        wait >= (uint64_t)r->req->head.timeout_s * 1000)
        return LIMIT_CLIENT;
    if (wait >= (uint64_t)token_timeout_s * 1000) return LIMIT_TOKEN;
    return whole >= (uint64_t)e2e_timeout_s * 1000 ? LIMIT_E2E : LIMIT_NONE;
}

static void is_late(struct inst_req *r, enum req_limit limit) {
    static const char *const texts[] = {
        [LIMIT_CLIENT] = "Engine callback timeout: client timeout",
        [LIMIT_TOKEN] = "Engine callback timeout: server tokenTimeout",
        [LIMIT_E2E] = "Engine callback timeout: server e2eTimeout",
    };
    req_meter_end(&r->meter, REQ_FAILED); /* ours, whatever the status says */
    r->kind->fail(r, CAUSE_REQUEST_TIMEOUT, r->kind->late_status,
                  r->kind->late_text != NULL ? r->kind->late_text : texts[limit]);
}

/* The client wants what there is by now. An answer that is only to be handed over goes on. */
static bool is_enough(const struct inst_req *r, uint64_t now_ms) {
    return r->req != NULL && r->req->head.time_limit_ms > 0 && r->kind->role != ROLE_PREFILL &&
           now_ms >= r->arrival_ms + r->req->head.time_limit_ms;
}

static void on_scan(void *arg) {
    struct req_set *s = arg;
    const struct inst_conf *c = instance_conf(s->in);
    const uint64_t now = clock_ms();
    for (struct inst_req *r = s->first; r != NULL; r = s->next) {
        s->next = r->next;
        const bool timed = r->kind->is_timed == NULL || r->kind->is_timed(r);
        const enum req_limit limit =
            timed ? req_limit_over(r, c->token_timeout_s, c->e2e_timeout_s, now) : LIMIT_NONE;
        if (limit != LIMIT_NONE)
            is_late(r, limit);
        else if (timed && is_enough(r, now))
            r->kind->stop(r);
        else if (r->kind->look != NULL)
            r->kind->look(r, now);
    }
    s->next = NULL;
    if (s->on_scan != NULL) s->on_scan(s->on_scan_arg, now);
}

/* ---- life */

enum err req_set_create(struct req_set **out, struct instance *in) {
    struct req_set *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (s == NULL) return ERR_NO_MEMORY;
    s->in = in;
    enum err e = loop_timer_start(&s->scan, instance_loop(in), SCAN_MS, SCAN_MS, on_scan, s);
    if (e != ERR_OK) {
        free(s);
        return e;
    }
    *out = s;
    return ERR_OK;
}

void req_set_destroy(struct req_set **sp) {
    struct req_set *s = *sp;
    if (s == NULL) return;
    *sp = NULL;
    loop_timer_stop(&s->scan);
    free(s);
}
