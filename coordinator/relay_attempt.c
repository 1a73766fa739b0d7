/* relay_attempt: an attempt begins with a booking and a call to P, and gives all of it back when it
 * ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/fwd_headers.h"
#include "coordinator/journal.h"
#include "coordinator/relay_priv.h"

enum { ANSWER_BYTES_MAX = 64 << 20 };

/* ---- the booking */

static void book(struct relay *r, struct inst *p, struct inst *d) {
    struct attempt *a = &r->attempt;
    a->at_p = ledger_entry_p(&r->demand, p == d);
    a->at_d = ledger_entry_d(&r->demand, r->expected_tokens);
    ledger_book(&p->ledger, &a->at_p);
    ledger_book(&d->ledger, &a->at_d);
    a->p_booked = true;
    r->tenant->slots += r->demand.slots;
}

void attempt_p_done(struct relay *r) {
    struct attempt *a = &r->attempt;
    struct inst *p = a->p_booked ? registry_find(&r->set->co->reg, a->p_id) : NULL;
    struct inst *d = a->p_booked ? registry_find(&r->set->co->reg, a->d_id) : NULL;
    a->p_booked = false;
    if (p != NULL) ledger_release(&p->ledger, &a->at_p);
    if (d != NULL) ledger_begin(&d->ledger, &a->at_d);
}

static void d_done(struct relay *r) {
    struct inst *d = registry_find(&r->set->co->reg, r->attempt.d_id);
    r->tenant->slots -= r->attempt.at_d.room.slots;
    if (d != NULL) ledger_release(&d->ledger, &r->attempt.at_d);
    r->attempt.at_d.coming = false;
}

bool attempt_keep(struct relay *r, size_t n) {
    if (!budget_take(&r->set->co->budget, BUDGET_ANSWER_BYTES, n)) return false;
    r->attempt.kept_bytes += n;
    return true;
}

void attempt_release(struct relay *r, size_t n) {
    r->attempt.kept_bytes -= n;
    budget_give(&r->set->co->budget, BUDGET_ANSWER_BYTES, n);
}

/* ---- the call to P */

/* Whether P gets what D rebuilt of the body (5.7). Where the client has a part of the answer its
 * own body goes, with our record, which says better how to go on. */
static bool is_rebuilt(const struct relay *r) {
    return r->recompute.len > 0 && r->transcript.n_ids == 0;
}

static const char *body_of(const struct relay *r, size_t *n) {
    if (!is_rebuilt(r)) {
        *n = r->n_body;
        return r->body;
    }
    *n = r->recompute.len;
    return r->recompute.data;
}

/* What the journal has of the client's; it may be gone. trace: in place of its own; NULL: none. */
static void put_kept_headers(const struct journal_entry *e, struct fwd_headers *h,
                             const char *trace) {
    const char *p = e->headers.data, *end = p + e->headers.len;
    char name[64], value[FWD_HEADER_BYTES];
    while (p < end) {
        const char *eol = memchr(p, '\n', (size_t)(end - p)),
                   *colon = memchr(p, ':', (size_t)(eol - p));
        if (colon != NULL && colon + 2 <= eol && (size_t)(colon - p) < sizeof(name) &&
            (size_t)(eol - colon) < sizeof(value)) {
            snprintf(name, sizeof(name), "%.*s", (int)(colon - p), p);
            snprintf(value, sizeof(value), "%.*s", (int)(eol - colon - 2), colon + 2);
            if (trace == NULL || strcasecmp(name, "traceparent") != 0)
                fwd_headers_add(h, name, value);
        }
        p = eol + 1;
    }
    if (trace != NULL) fwd_headers_add(h, "traceparent", trace);
}

/* Only what is listed here goes to P: nothing internal that a client sends can pass. */
static void put_headers(const struct relay *r, struct fwd_headers *h, const struct inst *d,
                        size_t record_bytes) {
    char value[96];
    fwd_headers_init(h);
    if (r->entry == NULL) fwd_headers_add_framing(h, r->out.x, r->path);
    fwd_headers_add(h, "req-type", "prefill");
    fwd_headers_add(h, "req-id", r->id_text);
    snprintf(value, sizeof(value), "%s;%u", d->node.ip, d->node.inter_comm_port);
    fwd_headers_add(h, "d-target", value);
    snprintf(value, sizeof(value), "%u", d->node.port);
    fwd_headers_add(h, "d-port", value);
    const struct inst *left = r->kv_at != 0 ? registry_find(&r->set->co->reg, r->kv_at) : NULL;
    if (left != NULL) {
        snprintf(value, sizeof(value), "%s;%u", left->node.ip, left->node.inter_comm_port);
        fwd_headers_add(h, "baton-kv-at", value);
    }
    snprintf(value, sizeof(value), "%u", r->attempt.epoch);
    fwd_headers_add(h, "req-epoch", value);
    snprintf(value, sizeof(value), "%llu", (unsigned long long)r->set->co->term);
    fwd_headers_add(h, COORD_TERM_HEADER, value);
    fwd_headers_add(h, TENANT_HEADER, r->tenant->name);
    snprintf(value, sizeof(value), "%llu", (unsigned long long)(clock_ms() - r->arrival_ms));
    if (r->attempt.epoch > 0) fwd_headers_add(h, "baton-spent-ms", value);
    snprintf(value, sizeof(value), "%zu", record_bytes);
    if (record_bytes > 0) fwd_headers_add(h, "baton-replay", value);
    snprintf(value, sizeof(value), "%zu", r->ask.context.len);
    if (r->ask.context.len > 0) fwd_headers_add(h, CONTEXT_HEADER, value);
    if (is_rebuilt(r)) fwd_headers_add(h, "is-recompute", "true");
    char trace[TRACEPARENT_BYTES];
    if (r->traced) traceparent_write(trace, &r->trace.own);
    if (r->entry != NULL)
        put_kept_headers(r->entry, h, r->traced ? trace : NULL);
    else
        fwd_headers_add_trace(h, r->out.x, r->traced ? trace : NULL);
}

static enum err send(struct relay *r, const struct inst *p, const struct inst *d) {
    struct coordinator *co = r->set->co;
    struct fwd_headers headers;
    struct wr tail = WR_INIT; /* context, then record */
    char url[API_PATH_BYTES + 64];
    size_t n;
    const void *body = body_of(r, &n);
    const size_t n_context = r->ask.context.len;
    wr_bytes(&tail, r->ask.context.data, n_context);
    if (r->transcript.n_parts > 0 && !is_rebuilt(r))
        transcript_pack(&tail, &r->transcript); /* what the client has: docs/wire-replay.md */
    put_headers(r, &headers, d, tail.len - n_context);
    struct tls *tls =
        coord_tls_url(&co->tls, url, sizeof(url), &p->node, NODE_BUSINESS, r->url_path);
    struct http_call_opts o = {.method = "POST",
                               .url = url,
                               .tls = tls,
                               .headers = headers.list,
                               .body = body,
                               .body_len = n,
                               /* A client's body is there as long as the attempt; a rebuilt one may
                                * be replaced by D at any time. */
                               .body_lent = !is_rebuilt(r),
                               .tail = tail.data,
                               .tail_len = tail.len,
                               .connect_ms = (unsigned)co->conf.instance_timeout_s * 1000,
                               .body_bytes_max = ANSWER_BYTES_MAX,
                               .on_done = relay_on_p_answer,
                               .arg = r};
    enum err e = tail.failed ? ERR_NO_MEMORY : http_client_call(co->client, &o, &r->attempt.call);
    wr_free(&tail);
    return e;
}

/* ---- its life */

bool attempt_begin(struct relay *r, struct inst *p, struct inst *d) {
    struct attempt *a = &r->attempt;
    *a = (struct attempt){.p_id = p->id,
                          .d_id = d->id,
                          .epoch = r->epoch_base + r->n_lost,
                          .sent_us = clock_us(),
                          .part = BUF_INIT};
    a->part_tokens = BUF_INIT;
    a->early_last = &a->early;
    book(r, p, d);
    relay_verdicts_begin(r, p, d);
    log_debug("relay", "req=%s event=sent p=%u d=%u epoch=%u tokens_kept=%u", r->id_text, p->id,
              d->id, a->epoch, r->transcript.n_ids);
    return send(r, p, d) == ERR_OK;
}

void attempt_end(struct relay *r, enum left left) {
    struct attempt *a = &r->attempt;
    if (a->p_id == 0) return;
    const bool at_p = a->call != NULL;
    http_call_cancel(&a->call); /* P sees the connection close, and lets go */
    if (left == LEFT_BOTH && at_p) relay_stop_at(r, a->p_id, a->epoch, false);
    const bool keep = r->state == RELAY_RECOVERING && r->kv_at == a->d_id;
    if (left != LEFT_NOBODY) relay_stop_at(r, a->d_id, a->epoch, keep);
    relay_verdicts_end(r);
    attempt_p_done(r);
    d_done(r);
    relay_drop_kept(r);
    *a = (struct attempt){0};
}
