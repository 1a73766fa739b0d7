/* relay_pieces: D's frames become pieces: put together from their parts, in order, kept while P has
 * not answered, and each an event of its request. And how far D's frames have come. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/console.h"
#include "coordinator/recorder.h"
#include "coordinator/relay_priv.h"

static void fail_for_limit(struct relay *r) {
    const struct budget *b = &r->set->co->budget;
    char text[128];
    snprintf(text, sizeof(text), "The answers under way are over the limit of %llu bytes (%s)",
             (unsigned long long)budget_limit(b, BUDGET_ANSWER_BYTES),
             budget_key(BUDGET_ANSWER_BYTES));
    relay_fail(r, CAUSE_OVER_LIMIT, text);
}

static void fail_for_memory(struct relay *r) {
    relay_fail(r, CAUSE_NO_MEMORY, "out of memory");
}

/* ---- before P's answer */

static size_t early_cost(const struct piece *p) {
    return sizeof(struct early_piece) + p->n_tokens * sizeof(*p->tokens) + p->len + 1;
}

void relay_keep_early(struct relay *r, const struct piece *p) {
    struct attempt *a = &r->attempt;
    if (!attempt_keep(r, early_cost(p))) {
        fail_for_limit(r);
        return;
    }
    struct early_piece *e = malloc(early_cost(p));
    if (e == NULL) {
        fail_for_memory(r);
        return;
    }
    char *body = (char *)(e->data + p->n_tokens);
    e->next = NULL;
    e->piece = *p;
    if (p->n_tokens > 0) memcpy(e->data, p->tokens, p->n_tokens * sizeof(*p->tokens));
    if (p->len > 0) memcpy(body, p->body, p->len);
    body[p->len] = 0;
    e->piece.tokens = e->data;
    e->piece.body = body;
    *a->early_last = e;
    a->early_last = &e->next;
}

void relay_flush_early(struct relay *r) {
    struct attempt *a = &r->attempt;
    while (a->early != NULL) {
        struct early_piece *e = a->early;
        const bool more = e->piece.kind == DR_DATA;
        a->early = e->next;
        if (a->early == NULL) a->early_last = &a->early;
        attempt_release(r, early_cost(&e->piece));
        relay_take_piece(r, &e->piece);
        free(e);
        if (!more) return; /* r may be gone */
    }
}

void relay_drop_kept(struct relay *r) {
    struct attempt *a = &r->attempt;
    for (struct early_piece *e = a->early, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    a->early = NULL;
    a->early_last = &a->early;
    buf_free(&a->part);
    buf_free(&a->part_tokens);
    attempt_release(r, a->kept_bytes);
}

/* ---- what a piece means */

/* D asks for the request to be computed again elsewhere, with the body it rebuilt (5.7). Where the
 * client has a part of the answer, our own record says better how to go on. */
static void take_retry(struct relay *r, const struct piece *p) {
    buf_clear(&r->recompute);
    buf_append(&r->recompute, p->body, p->len);
    if (r->recompute.failed) {
        fail_for_memory(r);
        return;
    }
    relay_lose(r, &(struct relay_input){.cause = CAUSE_RECOMPUTE,
                                        .left = LEFT_NOBODY,
                                        .text = "Request retry failed"});
}

static void take_error(struct relay *r, const struct piece *p) {
    struct piece own = *p;
    if (own.status == 0) own.status = 500;
    const enum cause cause = p->cause != CAUSE_NONE ? p->cause : cause_of_d_status(p->status);
    char detail[BREAKER_CAUSE_BYTES];
    snprintf(detail, sizeof(detail), "status %d: %.60s", own.status, p->body);
    relay_report_fault(r, cause, detail);
    relay_lose(r, &(struct relay_input){
                      .piece = &own, .framed = true, .cause = cause, .left = LEFT_NOBODY});
}

/* Of one sequence it is known how long each token took. */
static void note_tokens(struct relay *r, size_t n) {
    if (n == 0) return;
    const uint64_t now = clock_us();
    console_tokens(r->set->co->console, r->attempt.d_id, n,
                   r->n_sequences == 1 ? now - r->last_token_us : 0);
    r->last_token_us = now;
}

void relay_take_piece(struct relay *r, const struct piece *p) {
    const struct relay_input in = {.piece = p};
    r->n_tokens += p->n_tokens;
    note_tokens(r, p->n_tokens);
    recorder_tokens(r->set->co->recorder, r->id_text, r->attempt.epoch, p->tokens, p->n_tokens);
    switch (p->kind) {
    case DR_DATA:
        relay_report_d(r, VERDICT_GOOD, "");
        relay_step(r, EV_PIECE, &in);
        break;
    case DR_LAST:
        relay_report_d(r, VERDICT_GOOD, "");
        relay_step(r, EV_ANSWERED, &in);
        break;
    case DR_ERROR: take_error(r, p); break;
    case DR_RETRY: take_retry(r, p); break;
    case DR_NONE:
    case DR_CLOSE:
    case DR_HEARTBEAT:
    case DR_PART: break;
    }
}

static void take_whole(struct relay *r, const struct piece *p) {
    if (r->attempt.answered)
        relay_take_piece(r, p);
    else
        relay_step(r, EV_EARLY, &(struct relay_input){.piece = p});
}

/* ---- frames */

/* One more part. False: that ended r. */
static bool add_part(struct relay *r, const struct dresult_frame *f) {
    struct attempt *a = &r->attempt;
    const size_t tokens_bytes = f->n_tokens * sizeof(*f->tokens);
    if (f->body_len > DRESULT_PIECE_BYTES_MAX - a->part.len) {
        relay_fail(r, CAUSE_ANSWER_TOO_LARGE, "The answer of the decode instance is too large");
        return false;
    }
    if (!attempt_keep(r, f->body_len + tokens_bytes)) {
        fail_for_limit(r);
        return false;
    }
    buf_append(&a->part, f->body, f->body_len);
    if (tokens_bytes > 0) buf_append(&a->part_tokens, f->tokens, tokens_bytes);
    if (!a->part.failed && !a->part_tokens.failed) return true;
    fail_for_memory(r);
    return false;
}

void relay_take_frame(struct relay *r, const struct dresult_frame *f) {
    struct attempt *a = &r->attempt;
    struct piece p = {.kind = f->kind,
                      .status = f->status,
                      .cause = f->cause,
                      .body = f->body,
                      .len = f->body_len,
                      .tokens = f->tokens,
                      .n_tokens = f->n_tokens};
    if (f->kind != DR_PART && a->part.len == 0) {
        take_whole(r, &p);
        return;
    }
    if (!add_part(r, f) || f->kind == DR_PART) return;
    struct buf body = a->part, tokens = a->part_tokens;
    a->part = BUF_INIT;
    a->part_tokens = BUF_INIT;
    attempt_release(r, body.len + tokens.len);
    p.body = body.data;
    p.len = body.len;
    p.tokens = (const struct emitted *)tokens.data;
    p.n_tokens = tokens.len / sizeof(*p.tokens);
    take_whole(r, &p);
    buf_free(&body);
    buf_free(&tokens);
}

/* ---- how far they have come */

void relay_positions(const struct relay_set *s, uint32_t inst_id, char *text, size_t cap) {
    bool fits = true;
    text[0] = 0;
    for (int under_way = 1; under_way >= 0; under_way--)
        for (const struct relay *r = s->first; r != NULL && fits; r = r->next) {
            const struct attempt *a = &r->attempt;
            if (a->d_id != inst_id || a->next_seq == 0 || (a->part.len > 0) != (under_way == 1))
                continue;
            fits = dresult_position_put(text, cap, r->id_text, a->epoch, a->next_seq);
        }
}
