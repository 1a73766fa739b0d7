/* answer: from tokens to text and events. Everything here is a function of the request and the
 * tokens fed, so a decode instance that feeds the prefill instance's tokens again stands where that
 * one stood (endpoint.h). */
#include "common/endpoint/answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"

const struct endpoint_conf *answer_conf(const struct answer *a) {
    return &a->ep->conf;
}

const struct tokenizer *answer_tokenizer(const struct answer *a) {
    return a->ep->tok;
}

bool answer_is_special(const struct answer *a, int32_t id) {
    return tokenizer_is_special(a->ep->tok, id);
}

/* ---- text */

/* Appends model text without the control characters that clients never see (inference-api 2.4).
 * Stop strings are looked for in what clients see. */
static void take_text(struct answer *a, const char *s, size_t n, struct stop_match *m) {
    size_t at = a->text.len;
    buf_reserve(&a->text, n);
    for (size_t i = 0, start = 0; i <= n; i++) {
        unsigned char c = i < n ? (unsigned char)s[i] : 0;
        if (c >= 0x20 ? c != 0x7F : c == '\n' || c == '\r' || c == '\t') continue;
        buf_append(&a->text, s + start, i - start);
        start = i + 1;
    }
    size_t added = a->text.len - at;
    if (added == 0) return;
    a->chars += utf8_chars(a->text.data + at, added);
    if (a->stops != NULL) stop_set_feed(a->stops, a->text.data + at, added, at, m);
}

static void take_fresh(struct answer *a, enum err e, struct stop_match *m) {
    if (e != ERR_OK || a->fresh.failed) a->no_memory = true;
    take_text(a, a->fresh.data != NULL ? a->fresh.data : "", a->fresh.len, m);
    buf_clear(&a->fresh);
}

/* A token that ended the request shows its text only when asked: EOS with skip_special_tokens
 * false, a stop token with include_stop_str_in_output. */
static bool text_shown(const struct answer *a, enum finish f) {
    if (f == FINISH_EOS) return !a->req->skip_special;
    if (f == FINISH_STOP_TOKEN) return a->req->include_stop;
    return true;
}

static void cut_at(struct answer *a, const struct stop_match *m) {
    size_t len = a->req->include_stop ? m->end : m->start;
    a->text.len = len;
    a->text.data[len] = '\0';
    a->chars = utf8_chars(a->text.data, len);
    a->finish = FINISH_STOP_STRING;
    a->stop_idx = m->idx;
}

static void take_token_text(struct answer *a, int32_t id, enum finish f) {
    struct stop_match m = {.idx = -1};
    if (a->detok == NULL) return;
    if (text_shown(a, f)) take_fresh(a, detok_feed(a->detok, id, &a->fresh), &m);
    if (f != FINISH_NONE) take_fresh(a, detok_flush(a->detok, &a->fresh), &m);
    if (m.idx >= 0 && a->n_recs >= (size_t)a->req->sampling.new_tokens_min) cut_at(a, &m);
    size_t held = a->stops != NULL && a->finish == FINISH_NONE ? stop_set_held(a->stops) : 0;
    a->ready = a->text.len - held;
}

/* ---- tokens */

/* Room for n more items in a growing array. */
static bool grow(struct answer *a, void **items, size_t *cap, size_t n, size_t more,
                 size_t item_bytes) {
    if (n + more <= *cap) return true;
    size_t want = *cap < 32 ? 32 : *cap * 2;
    if (want < n + more) want = n + more;
    void *p = realloc(*items, want * item_bytes);
    if (p == NULL) {
        a->no_memory = true;
        return false;
    }
    *items = p;
    *cap = want;
    return true;
}

static void take_record(struct answer *a, const struct token_event *ev) {
    size_t n_top = ev->n_top > 0 && ev->n_top <= TOP_LOGPROBS_MAX && a->req->sampling.logprobs
                       ? (size_t)ev->n_top
                       : 0;
    if (n_top > (size_t)a->req->sampling.top_logprobs)
        n_top = (size_t)a->req->sampling.top_logprobs;
    if (!grow(a, (void **)&a->recs, &a->recs_cap, a->n_recs, 1, sizeof(*a->recs)) ||
        !grow(a, (void **)&a->tops, &a->tops_cap, a->n_tops, n_top, sizeof(*a->tops)))
        return;
    a->recs[a->n_recs++] = (struct token_rec){
        .id = ev->id,
        .logprob = a->req->sampling.logprobs ? ev->logprob : NAN,
        .batch_size = ev->batch_size,
        .queue_us = ev->queue_wait_us,
        .step_us = ev->step_us,
        .n_top = (uint32_t)n_top,
        .top_at = a->n_tops,
        .chars_at = a->chars,
    };
    if (n_top > 0) memcpy(a->tops + a->n_tops, ev->top, n_top * sizeof(*a->tops));
    a->n_tops += n_top;
}

uint64_t rec_step_us(const struct answer *a, size_t i) {
    return i == 0 && a->recs[i].step_us == 0 ? a->req->prefill_us : a->recs[i].step_us;
}

uint64_t rec_queue_us(const struct answer *a, size_t i) {
    return i == 0 && a->recs[i].queue_us == 0 ? a->req->queue_wait_us : a->recs[i].queue_us;
}

uint32_t rec_batch(const struct answer *a, size_t i) {
    return i == 0 && a->recs[i].batch_size == 0 ? a->req->prefill_batch : a->recs[i].batch_size;
}

int answer_n_tokens(const struct answer *a) {
    return (int)a->n_recs;
}

void answer_prompt_logprob(struct answer *a, int position, float logprob) {
    if (position < 0 || (size_t)position >= a->req->n_prompt) return;
    if (a->prompt_logprobs == NULL) {
        a->prompt_logprobs = malloc(a->req->n_prompt * sizeof(float));
        if (a->prompt_logprobs == NULL) {
            a->no_memory = true;
            return;
        }
        for (size_t i = 0; i < a->req->n_prompt; i++) a->prompt_logprobs[i] = NAN;
    }
    a->prompt_logprobs[position] = logprob;
}

/* ---- what goes out */

static void emit(struct answer *a, struct buf *out) {
    bool last = a->finish != FINISH_NONE;
    if (a->req->stream) {
        if (!a->begun && a->ops->begin != NULL) a->ops->begin(a, out);
        a->begun = true;
        bool echo = a->req->echo && a->n_events == 0;
        if (a->ops->every_token || last || a->ready > a->sent || echo) {
            a->ops->event(a, out);
            a->n_events++;
            a->sent = a->ready;
            a->recs_sent = a->n_recs;
        }
        if (last && a->ops->end != NULL) a->ops->end(a, out);
    } else if (last) {
        a->ops->body(a, out);
    }
    if (a->no_memory || a->text.failed || a->head.failed || a->mid.failed || a->tail.failed ||
        a->scratch.failed)
        out->failed = true;
}

enum finish answer_token(struct answer *a, const struct token_event *ev, struct buf *out) {
    if (a->finish != FINISH_NONE) return a->finish;
    enum finish f = ev->finish;
    if (f == FINISH_NONE && a->n_recs + 1 >= (size_t)a->req->sampling.new_tokens_max)
        f = FINISH_LENGTH;
    take_record(a, ev);
    take_token_text(a, ev->id, f);
    if (a->finish == FINISH_NONE) a->finish = f;
    if (a->finish != FINISH_NONE) a->ready = a->text.len;
    emit(a, out);
    return a->finish;
}

void answer_abort(struct answer *a, struct buf *out) {
    struct stop_match m = {.idx = -1};
    if (a->finish != FINISH_NONE) return;
    a->finish = FINISH_ABORT;
    if (a->detok != NULL) take_fresh(a, detok_flush(a->detok, &a->fresh), &m);
    if (m.idx >= 0 && a->n_recs >= (size_t)a->req->sampling.new_tokens_min) cut_at(a, &m);
    a->ready = a->text.len;
    emit(a, out);
}

void answer_error(struct answer *a, int status, const char *text, struct buf *out) {
    if (a->finish != FINISH_NONE) return;
    a->finish = FINISH_ERROR;
    struct api_answer err;
    ep_answer_error(a->ep, a->ops->openai_errors, status, text, &err);
    const char *json = err.body.data != NULL ? err.body.data : "{}";
    if (a->req->stream)
        a->ops->error(a, json, out);
    else
        buf_puts(out, json);
    buf_free(&err.body);
}

const char *answer_content_type(const struct answer *a) {
    return a->req->stream ? "text/event-stream" : "application/json";
}

/* ---- life */

/* Tokens a recompute brought along: their pieces went out before, from another instance.
 * Log-probabilities and times of them are lost. */
static void replay(struct answer *a) {
    struct buf discard = BUF_INIT;
    for (size_t i = a->req->n_prompt; i < a->req->n_ids; i++) {
        struct token_event ev = {
            .id = a->req->ids[i], .index = (int32_t)(i - a->req->n_prompt), .logprob = NAN};
        answer_token(a, &ev, &discard);
        if (discard.failed) a->no_memory = true;
        buf_clear(&discard);
    }
    buf_free(&discard);
}

enum err answer_create(struct answer **out, const struct endpoint *ep,
                       const struct infer_req *req) {
    *out = NULL;
    const struct family *fam = ep_family_of(ep, req->api);
    if (fam == NULL) return ERR_INVALID;
    struct answer *a = calloc(1, sizeof(*a));
    if (a == NULL) return ERR_NO_MEMORY;
    a->ep = ep;
    a->req = req;
    a->ops = fam->answer;
    enum err e = ERR_OK;
    if (!a->ops->tokens_only) {
        e = detok_create(&a->detok, ep->tok, req->skip_special);
        if (e == ERR_OK && req->n_stop > 0 &&
            (a->stops = stop_set_create(req->stop, req->n_stop)) == NULL)
            e = ERR_NO_MEMORY;
    }
    if (e == ERR_OK && a->ops->open != NULL) a->ops->open(a);
    if (e == ERR_OK) replay(a);
    if (e == ERR_OK && a->no_memory) e = ERR_NO_MEMORY;
    if (e != ERR_OK) {
        answer_destroy(&a);
        return e;
    }
    *out = a;
    return ERR_OK;
}

void answer_destroy(struct answer **a_ptr) {
    struct answer *a = *a_ptr;
    if (a == NULL) return;
    detok_destroy(&a->detok);
    stop_set_destroy(&a->stops);
    buf_free(&a->text);
    buf_free(&a->fresh);
    buf_free(&a->head);
    buf_free(&a->mid);
    buf_free(&a->tail);
    buf_free(&a->scratch);
    free(a->recs);
    free(a->tops);
    free(a->prompt_logprobs);
    free(a);
    *a_ptr = NULL;
}
