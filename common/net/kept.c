/* kept: the service, and answers as they go out. */
#include "common/net/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/kept_dir.h"
#include "common/net/kept_priv.h"

enum { TICK_MS = 5000, DEFAULT_MIB = 64 };

/* ---- the service */

static void on_tick(void *arg) {
    struct kept_service *s = arg;
    kept_expire(s->store, clock_ms());
}

static uint64_t default_bytes(void) {
    const uint64_t most = (uint64_t)DEFAULT_MIB << 20, part = budget_bodies_default() / 4;
    return part < most ? part : most;
}

enum err kept_service_create(struct kept_service **out, struct loop *loop,
                             const struct limits_conf *limits, const char *dir,
                             struct budget *budget, struct errbuf *eb) {
    const struct kept_limits l = {
        .bytes_max = limits->kept_mib > 0 ? (uint64_t)limits->kept_mib << 20 : default_bytes(),
        .count_max = (size_t)limits->kept_count,
        .idle_ms = (uint64_t)limits->kept_s * 1000};
    struct kept_service *s = calloc(1, sizeof(*s));
    *out = s;
    if (s == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for kept responses");
    s->budget = budget;
    budget_limit_set(budget, BUDGET_KEPT_BYTES, l.bytes_max);
    budget_limit_set(budget, BUDGET_KEPT, l.count_max);
    enum err e = kept_store_create(&s->store, &l, budget);
    if (e == ERR_OK) e = loop_timer_start(&s->tick, loop, TICK_MS, TICK_MS, on_tick, s);
    if (e != ERR_OK) err_set(eb, e, "no memory for kept responses");
    if (e == ERR_OK && dir[0] != '\0') e = kept_dir_open(&s->dir, s->store, dir, eb);
    if (e != ERR_OK) kept_service_destroy(out);
    return e;
}

void kept_service_destroy(struct kept_service **sp) {
    struct kept_service *s = *sp;
    if (s == NULL) return;
    loop_timer_stop(&s->tick);
    kept_dir_close(&s->dir);
    kept_store_destroy(&s->store);
    free(s);
    *sp = NULL;
}

const char *kept_number(const struct kept *k) {
    return k->id + sizeof(KEPT_ID_PREFIX) - 1;
}

struct kept_span kept_stream(const struct kept *k) {
    if (!k->has_events) return (struct kept_span){0};
    return (struct kept_span){k->text.data, k->runs ? k->text.len : k->events};
}

/* Of a stream: what its first event says. */
static struct kept_span first_state(const struct kept *k) {
    const struct kept_span stream = kept_stream(k);
    if (stream.n == 0) return stream;
    const struct kept_span rest = kept_events_from(stream, 1);
    return kept_response_of((struct kept_span){stream.p, stream.n - rest.n});
}

struct kept_span kept_response(const struct kept *k) {
    if (k->runs) return first_state(k);
    return (struct kept_span){k->text.data + k->at, k->n};
}

/* ---- an answer on its way */

static void end_watchers(struct kept_record *r, bool whole) {
    for (struct kept_watcher *w = r->watchers, *next; w != NULL; w = next) {
        next = w->next;
        http_x_on_close(w->x, NULL, NULL);
        if (whole)
            http_x_stream_end(w->x);
        else
            http_x_abort(w->x);
        free(w);
    }
    r->watchers = NULL;
}

/* The record is over, and with it the answer, unless it is kept. */
static void drop(struct kept_record *r, bool whole, bool keep) {
    end_watchers(r, whole);
    r->k->user = NULL;
    if (!keep) kept_remove(r->s->store, r->k);
    free(r);
}

static void give_up(struct kept_record *r) {
    if (r->x != NULL) http_x_tap(r->x, NULL, NULL);
    drop(r, false, false);
}

static void on_begin(void *arg, int status, bool stream) {
    struct kept_record *r = arg;
    if (status != 200)
        give_up(r); /* an error is no answer */
    else
        r->k->has_events = stream;
}

static void on_data(void *arg, const char *p, size_t n) {
    struct kept_record *r = arg;
    if (n == 3 && memcmp(p, ":\n\n", 3) == 0) return; /* of the connection, not of the answer */
    for (struct kept_watcher *w = r->watchers; w != NULL; w = w->next)
        http_x_stream_write(w->x, p, n);
    if (!kept_append(r->s->store, r->k, p, n)) give_up(r);
}

/* A response that did not come to its end, made of what its first event said. False: that is not
 * known, or no memory. */
static bool make_response(struct kept_record *r, const char *status, const char *error) {
    static const char was[] = "\"status\":\"in_progress\",\"error\":null";
    const struct kept_span first = first_state(r->k);
    const char *at = first.n > 0 ? memmem(first.p, first.n, was, sizeof(was) - 1) : NULL;
    struct buf made = BUF_INIT;
    if (at == NULL) return false;
    buf_append(&made, first.p, (size_t)(at - first.p));
    buf_printf(&made, "\"status\":\"%s\",\"error\":%s", status, error);
    at += sizeof(was) - 1;
    buf_append(&made, at, first.n - (size_t)(at - first.p));
    const bool good = !made.failed && kept_append(r->s->store, r->k, made.data, made.len);
    buf_free(&made);
    return good;
}

/* Where its response is. False: there is none. */
static bool find_response(struct kept_record *r, enum http_tap_end how, size_t *at, size_t *n,
                          size_t *events) {
    struct kept *k = r->k;
    struct kept_span all = {k->text.data, k->text.len}, found = all;
    *events = all.n;
    if (all.n == 0) return false;
    const bool stream = k->has_events || all.p[0] != '{';
    if (stream) found = kept_response_of(kept_last_event(all));
    if (how == HTTP_TAP_WHOLE && found.n > 0) {
        *at = (size_t)(found.p - all.p);
        *n = found.n;
        return true;
    }
    if (!stream) return false;
    const bool good =
        how == HTTP_TAP_GONE
            ? make_response(r, "cancelled", "null")
            : make_response(r, "failed",
                            "{\"code\":\"server_error\",\"message\":\"The response did not come "
                            "to its end.\",\"type\":\"server_error\"}");
    *at = *events;
    *n = k->text.len - *events;
    return good;
}

static void on_end(void *arg, enum http_tap_end how) {
    struct kept_record *r = arg;
    struct kept_service *s = r->s;
    struct kept *k = r->k;
    size_t at = 0, n = 0, events = 0;
    const bool good = find_response(r, how, &at, &n, &events) &&
                      kept_finish(s->store, k, at, n, events, clock_ms());
    drop(r, how == HTTP_TAP_WHOLE, good);
    if (good) kept_dir_put(s->dir, k);
}

static const struct http_tap tap = {.begin = on_begin, .data = on_data, .end = on_end};

void kept_record(struct kept_service *s, struct http_x *x, const struct kept_ask *a,
                 const char *req_id) {
    char id[KEPT_ID_BYTES];
    if (!a->store || strlen(req_id) + sizeof(KEPT_ID_PREFIX) > sizeof(id)) return;
    strcpy(id, KEPT_ID_PREFIX);
    strcat(id, req_id);
    struct kept_record *r = calloc(1, sizeof(*r));
    struct kept *k = r != NULL ? kept_add(s->store, id, http_x_tenant(x), a->previous, a->input.p,
                                          a->input.n, clock_ms())
                               : NULL;
    if (k == NULL) {
        free(r);
        return;
    }
    *r = (struct kept_record){.s = s, .k = k, .x = x};
    k->user = r;
    http_x_tap(x, &tap, r);
}

/* Of that request; NULL: none is on its way. */
static struct kept_record *record_of(const struct kept_service *s, const char *tenant,
                                     const char *req_id) {
    char id[KEPT_ID_BYTES];
    if (snprintf(id, sizeof(id), KEPT_ID_PREFIX "%s", req_id) >= (int)sizeof(id)) return NULL;
    const struct kept *k = kept_find(s->store, tenant, id);
    return k != NULL && k->runs ? k->user : NULL;
}

bool kept_go_on(struct kept_service *s, const char *tenant, const char *req_id, bool stream) {
    struct kept_record *r = record_of(s, tenant, req_id);
    if (r == NULL || r->x == NULL) return true;
    if (r->cancelled) return false;
    http_x_tap(r->x, NULL, NULL);
    r->x = NULL;
    r->k->has_events = stream;
    return true;
}

void kept_more(struct kept_service *s, const char *tenant, const char *req_id, const char *p,
               size_t n) {
    struct kept_record *r = record_of(s, tenant, req_id);
    if (r != NULL && r->x == NULL && n > 0) on_data(r, p, n);
}

void kept_end(struct kept_service *s, const char *tenant, const char *req_id, bool whole) {
    struct kept_record *r = record_of(s, tenant, req_id);
    if (r != NULL && r->x == NULL) on_end(r, whole ? HTTP_TAP_WHOLE : HTTP_TAP_BROKEN);
}

void kept_cancel(struct kept *k) {
    struct kept_record *r = k->user;
    log_info("kept", "event=cancelled id=%s", k->id);
    r->cancelled = true;
    if (r->x != NULL)
        http_x_cancel(r->x);
    else
        on_end(r, HTTP_TAP_GONE);
}
