/* decode_answer: tokens to pieces of an answer, pieces to frames of the result stream. The answer
 * is a pure function of request and tokens: P's tokens are fed again, their text thrown away, and
 * the answer stands where P's stood. */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "decode/decode_req.h"

static const char out_of_memory[] = "out of memory";

static bool keep_id(struct dreq *d, int32_t id) {
    if (d->n_ids == d->ids_cap) {
        size_t cap = d->ids_cap * 2 + 16;
        int32_t *grown = realloc(d->ids, cap * sizeof(*grown));
        if (grown == NULL) return false;
        d->ids = grown;
        d->ids_cap = cap;
    }
    d->ids[d->n_ids++] = id;
    return true;
}

static enum err send_out(struct dreq *d, enum dresult_kind kind, int status) {
    enum err e =
        dresult_out_send(instance_dresult(d->role->in), d->req->req_id, d->req->epoch, kind, d->ids,
                         d->n_ids, status, d->out.len > 0 ? d->out.data : "", d->out.len);
    if (d->out.len > 0) d->begun = true;
    d->n_ids = 0;
    buf_clear(&d->out);
    return e;
}

/* The last frame is out, or cannot be sent: the request is over here. */
static void finish(struct dreq *d, const char *how, enum err e) {
    log_info("decode", "req=%s epoch=%u event=%s tokens=%d%s%s", d->req->req_id, d->req->epoch, how,
             d->answer != NULL ? answer_n_tokens(d->answer) : 0, e != ERR_OK ? " err=" : "",
             e != ERR_OK ? err_name(e) : "");
    if (e != ERR_OK)
        dresult_out_forget(instance_dresult(d->role->in), d->req->req_id, d->req->epoch);
    dreq_drop(d, ERR_CANCELLED, how);
}

void dreq_fail(struct dreq *d, int status, const char *text) {
    if (d->answer == NULL) { /* not ours yet */
        dreq_drop(d, ERR_REFUSED, text);
        return;
    }
    req_meter_end(&d->meter, REQ_FAILED);
    buf_clear(&d->out);
    if (d->req->stream && d->begun) {
        answer_error(d->answer, status, text, &d->out);
    } else {
        struct api_answer a = {0};
        const struct api_path *path = api_paths;
        while (path->path != NULL && path->api != d->req->api) path++;
        if (path->path != NULL) {
            endpoint_error(instance_endpoint(d->role->in), path, status, text, &a);
            if (a.status != 0) status = a.status;
            buf_append(&d->out, a.body.data, a.body.len);
            buf_free(&a.body);
        }
    }
    finish(d, "failed", send_out(d, DR_ERROR, status));
}

void dreq_stop(struct dreq *d) {
    if (d->answer == NULL) {
        dreq_drop(d, ERR_CANCELLED, "stopped");
        return;
    }
    answer_abort(d->answer, &d->out);
    finish(d, "stopped", send_out(d, DR_LAST, 0));
}

void dreq_on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct dreq *d = arg;
    (void)seq_id;
    if (ev->finish != FINISH_NONE) d->seq = DSEQ_NONE; /* the engine has let go of it */
    d->last_token_ms = clock_ms();
    if (ev->finish == FINISH_ERROR) {
        dreq_fail(d, 500, "Failed to get engine response.");
        return;
    }
    bool kept = keep_id(d, ev->id);
    req_meter_token(&d->meter, d->req, ev);
    answer_token(d->answer, 0, ev, &d->out);
    if (d->out.failed || !kept) {
        buf_free(&d->out);
        dreq_fail(d, 503, out_of_memory);
        return;
    }
    if (answer_done(d->answer)) {
        req_meter_end(&d->meter, REQ_ANSWERED);
        finish(d, "finished", send_out(d, DR_LAST, 0));
        return;
    }
    if (!d->req->stream || d->out.len == 0)
        return; /* ids wait for the frame that carries their text */
    enum err e = send_out(d, DR_DATA, 0);
    if (e != ERR_OK) finish(d, "not_deliverable", e);
}

/* What was measured at P, and a clock of our own that agrees with it. */
static void take_measures(struct dreq *d, const struct kv_commit *c) {
    d->req->prefill_us = c->prefill_us;
    d->req->queue_wait_us = c->queue_wait_us;
    d->req->prefill_batch = c->prefill_batch;
    d->req->cached_tokens = c->cached_tokens;
    uint64_t now_us = clock_us();
    d->req->arrival_us = now_us > c->prefill_us ? now_us - c->prefill_us : 0;
    d->arrival_ms = d->req->arrival_us / 1000;
    d->last_token_ms = now_us / 1000;
}

void dreq_start(struct dreq *d, const struct kv_commit *c) {
    int32_t first[KV_FIRST_TOKENS_MAX];
    enum finish fin = FINISH_NONE;
    take_measures(d, c);
    req_meter_begin(&d->meter, instance_meters(d->role->in), d->req->arrival_us);
    if (answer_create(&d->answer, instance_endpoint(d->role->in), d->req) != ERR_OK) {
        log_error("decode", "req=%s event=failed text=\"%s\"", d->req->req_id, out_of_memory);
        dreq_drop(d, ERR_NO_MEMORY, out_of_memory);
        return;
    }
    for (uint32_t i = 0; i < c->n_prompt_logprobs; i++)
        answer_prompt_logprob(d->answer, 0, (int)i + 1,
                              &(struct token_event){.logprob = c->prompt_logprobs[i]});
    for (uint32_t i = 0; i < c->n_tokens && fin == FINISH_NONE; i++) {
        first[i] = c->tokens[i].id;
        req_meter_import(&d->meter, d->req, &c->tokens[i]);
        fin = answer_token(d->answer, 0, &c->tokens[i], &d->out);
        if (!keep_id(d, first[i])) fin = FINISH_ERROR;
    }
    d->begun = d->out.len > 0; /* P has sent these bytes */
    buf_clear(&d->out);
    d->n_ids = 0; /* and these ids: firstTokenId of its answer */
    if (fin != FINISH_NONE) {
        dreq_fail(d, 500, "the first token ended the request, yet it was handed over");
        return;
    }
    enum err e = worker_start(d->worker, d->seq_id, first, c->n_tokens);
    if (e != ERR_OK) dreq_fail(d, 503, err_text(e));
}
