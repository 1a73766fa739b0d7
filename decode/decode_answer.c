/* decode_answer: tokens to pieces of an answer, pieces to frames of the result stream. The answer
 * is a pure function of request and tokens: what earlier attempts sent and P's tokens are fed
 * again, their text thrown away, and the answer goes on where those ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/req_trace.h"
#include "decode/decode_req.h"
#include "proto/transcript.h"

enum {
    /* An answer in one piece: so many tokens, or so long, are made again at most when D dies. Where
     * it is known that it may go on elsewhere, each is told at once. */
    UNTOLD_MAX = 32,
    UNTOLD_MS_MAX = 500,
};

static const char out_of_memory[] = "out of memory";

/* A token whose event is in d->out. */
static void on_sent(void *arg, uint32_t choice, int32_t id, enum finish finish) {
    struct dreq *d = arg;
    if (d->n_tokens == d->tokens_cap) {
        size_t cap = d->tokens_cap * 2 + 16;
        struct emitted *grown = realloc(d->tokens, cap * sizeof(*grown));
        if (grown == NULL) {
            d->out.failed = true;
            return;
        }
        d->tokens = grown;
        d->tokens_cap = cap;
    }
    d->tokens[d->n_tokens++] =
        (struct emitted){.id = id, .choice = (uint16_t)choice, .finish = (uint8_t)finish};
}

static enum err send_out(struct dreq *d, enum dresult_kind kind,
                         const struct dresult_error *error) {
    d->n_tokens = 0;
    if (kind != DR_ERROR) answer_sent(d->answer, on_sent, d);
    if (d->out.failed) return ERR_NO_MEMORY;
    if (kind == DR_DATA && d->n_tokens == 0 && d->out.len == 0) return ERR_OK;
    enum err e = dresult_out_send(instance_dresult(d->role->in), d->req->head.req_id,
                                  d->req->head.epoch, kind, d->tokens, d->n_tokens, error,
                                  d->out.len > 0 ? d->out.data : "", d->out.len);
    if (d->out.len > 0) d->begun = true;
    buf_clear(&d->out);
    return e;
}

/* The last frame is out: the request is over here. */
static void finish(struct dreq *d, enum req_end end, const char *how) {
    req_end(&d->of, end, how, "tokens=%d", d->answer != NULL ? answer_n_tokens(d->answer) : 0);
    dreq_drop(d, ERR_CANCELLED, how);
}

/* The error in the family's shape to d->out. */
static void format_error(struct dreq *d, int *status, const char *text) {
    const struct endpoint *ep = instance_endpoint(d->role->in);
    struct api_answer a = {0};
    buf_forgive(&d->out);
    bool event = d->req->answer.stream && d->begun;
    if (event && d->answer != NULL) {
        answer_error(d->answer, *status, text, &d->out);
    } else if (event) {
        answer_error_alone(ep, d->req, *status, text, &d->out);
    } else {
        endpoint_req_error(ep, d->req, *status, text, &a);
        if (a.status != 0) *status = a.status;
        if (!a.body.failed) buf_append(&d->out, a.body.data, a.body.len);
        buf_free(&a.body);
    }
    if (!d->out.failed && d->out.len > 0 && d->out.len <= DRESULT_SPARE_BYTES) return;
    buf_forgive(&d->out);
    buf_puts(&d->out, "{\"error\":\"out of memory\"}");
}

/* An earlier attempt has told the client something. */
static bool any_sent(const struct dreq *d) {
    for (uint32_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].req != NULL && answer_job_needed(d->parts[i].req)) return true;
    return false;
}

/* A request of which parts are not here is P's to fail, and P is told why. But its last part may
 * have been acknowledged on the link already, and P have answered: so the frame goes out as well.
 */
void dreq_fail(struct dreq *d, enum cause cause, int status, const char *text) {
    const bool ours = d->n_committed == d->n_parts;
    const enum req_end end = req_end_of(status);
    d->begun = d->begun || any_sent(d);
    format_error(d, &status, text);
    const struct dresult_error error = {status, cause};
    if (send_out(d, DR_ERROR, &error) != ERR_OK)
        log_error("decode", "req=%s epoch=%u event=end_not_sent", d->req->head.req_id,
                  d->req->head.epoch);
    if (ours)
        finish(d, end, "failed");
    else
        dreq_drop(d, ERR_REFUSED, text);
}

/* What the result stream does not take ends the request. */
static void fail_to_send(struct dreq *d, enum err e) {
    char text[160];
    snprintf(text, sizeof(text),
             e == ERR_TOO_LARGE ? "The answer is larger than %d MiB."
             : e == ERR_BUSY    ? "The instance keeps too many bytes of unread answers."
                                : "out of memory",
             DRESULT_PIECE_BYTES_MAX >> 20);
    const enum cause cause = e == ERR_TOO_LARGE ? CAUSE_ANSWER_TOO_LARGE
                             : e == ERR_BUSY    ? CAUSE_D_UNREAD
                                                : CAUSE_D_NO_MEMORY;
    dreq_fail(d, cause, e == ERR_TOO_LARGE ? 500 : 503, text);
}

/* Sends what is there as the last frame. */
static void send_last(struct dreq *d, enum req_end end, const char *how) {
    enum err e = send_out(d, DR_LAST, NULL);
    if (e != ERR_OK) {
        fail_to_send(d, e);
        return;
    }
    finish(d, end, how);
}

void dreq_stop(struct dreq *d) {
    if (d->working) {
        d->stop_asked = true;
        return;
    }
    if (d->answer == NULL) {
        dreq_drop(d, ERR_CANCELLED, "stopped");
        return;
    }
    answer_abort(d->answer, &d->out);
    req_meter_end(&d->of.meter, REQ_CANCELLED); /* also when it cannot be sent */
    send_last(d, REQ_CANCELLED, "stopped");
}

/* ---- the pace of the listener */

static void set_paused(struct dreq *d, bool on) {
    if (d->paused == on) return;
    d->paused = on;
    for (uint32_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].seq != NULL) req_seq_pause(d->parts[i].seq, on);
    log_debug("decode", "req=%s epoch=%u event=%s", d->req->head.req_id, d->req->head.epoch,
              on ? "paused" : "resumed");
}

void dreq_on_room(void *arg) {
    set_paused(arg, false);
}

/* Sends what is there as a piece; nothing when there is nothing. False: that ended the request. */
static bool send_piece(struct dreq *d) {
    enum err e = send_out(d, DR_DATA, NULL);
    if (e != ERR_OK) {
        fail_to_send(d, e);
        return false;
    }
    if (dresult_out_is_full(instance_dresult(d->role->in), d->req->head.req_id, d->req->head.epoch))
        set_paused(d, true);
    return true;
}

/* A token of an answer in one piece was made: its client gets nothing yet, but the coordinator
 * keeps what there is for another attempt. False: that ended the request. */
static bool tell_tokens(struct dreq *d) {
    const uint64_t now = clock_ms();
    if (++d->n_untold < UNTOLD_MAX && now - d->told_ms < UNTOLD_MS_MAX &&
        !instance_leaving(d->role->in))
        return true;
    if (!dresult_out_takes_tokens(instance_dresult(d->role->in))) return true;
    d->n_untold = 0;
    d->told_ms = now;
    return send_piece(d);
}

/* ---- tokens */

static bool has_ended(const struct dpart *part, int32_t choice) {
    return (part->ended[choice / 64] >> (choice % 64) & 1) != 0;
}

static void set_ended(struct dpart *part, uint32_t choice) {
    part->ended[choice / 64] |= 1ull << (choice % 64);
}

/* True with the token that ended the choice. */
static bool note_end(struct dpart *part, const struct token_event *ev, enum finish fin) {
    if (fin == FINISH_NONE && ev->finish == FINISH_NONE) return false;
    set_ended(part, (uint32_t)ev->choice);
    return true;
}

/* One of our own tokens to the answer. False: that ended the request, d is gone. */
static bool feed(struct dpart *part, const struct token_event *ev) {
    struct dreq *d = part->d;
    if (!part->searching || ev->index > 0 || ev->choice > 0) /* that one P has counted */
        req_meter_token(&d->of.meter, part->req, ev);
    bool ended = note_end(part, ev, answer_token(d->answer, part->req->head.part, ev, &d->out));
    if (d->out.failed) {
        dreq_fail(d, CAUSE_D_NO_MEMORY, 503, out_of_memory);
        return false;
    }
    if (answer_done(d->answer)) {
        send_last(d, REQ_ANSWERED, "finished");
        return false;
    }
    if (ended && ev->finish == FINISH_NONE) /* a stop string: the others go on */
        req_seq_choice_stop(part->seq, ev->choice);
    if (!d->req->answer.stream) return tell_tokens(d);
    return d->out.len == 0 || send_piece(d);
}

static bool keep_early(struct dpart *part, const struct token_event *ev) {
    if (part->n_early == part->early_cap) {
        size_t cap = part->early_cap * 2 + 16;
        struct token_event *grown = realloc(part->early, cap * sizeof(*grown));
        if (grown == NULL) return false;
        part->early = grown;
        part->early_cap = cap;
    }
    part->early[part->n_early++] = *ev;
    return true;
}

void dpart_on_failed(void *arg, enum err e) {
    struct dreq *d = ((struct dpart *)arg)->d;
    char text[ERR_TEXT_BYTES_MAX];
    log_error("decode", "req=%s epoch=%u event=engine_failed err=%s", d->req->head.req_id,
              d->req->head.epoch, err_name(e));
    int status = endpoint_engine_failure(instance_endpoint(d->role->in), e, text, sizeof(text));
    dreq_fail(d, status >= 500 ? CAUSE_D_FAILED : CAUSE_REQUEST, status, text);
}

void dpart_on_token(void *arg, const struct token_event *ev) {
    struct dpart *part = arg;
    struct dreq *d = part->d;
    d->of.last_token_ms = clock_ms();
    if (ev->finish == FINISH_ERROR) {
        dreq_fail(d, CAUSE_D_FAILED, 500, "Failed to get engine response.");
    } else if (d->answer != NULL) {
        (void)feed(part, ev);
    } else if (!keep_early(part, ev)) {
        dreq_fail(d, CAUSE_D_NO_MEMORY, 503, out_of_memory);
    }
}

/* ---- the commit */

/* What was measured at P, and a clock of our own that agrees with it. */
static void take_measures(struct dpart *part) {
    struct dreq *d = part->d;
    const struct kv_commit *c = &part->commit;
    part->req->measured.prefill_us = c->prefill_us;
    part->req->measured.queue_wait_us = c->queue_wait_us;
    part->req->measured.prefill_batch = c->prefill_batch;
    part->req->measured.cached_tokens = c->cached_tokens;
    uint64_t now_us = clock_us();
    part->req->head.arrival_us = now_us > c->prefill_us ? now_us - c->prefill_us : 0;
    if (d->n_committed == 1 || part->req->head.arrival_us / 1000 < d->of.arrival_ms)
        d->of.arrival_ms = part->req->head.arrival_us / 1000;
    d->of.last_token_ms = now_us / 1000;
}

static bool keep_commit(struct kv_commit *to, const struct kv_commit *c) {
    size_t n = c->n_prompt_logprobs, n_tops = n * c->n_prompt_tops;
    *to = *c;
    to->tokens = malloc(c->n_tokens * sizeof(*to->tokens));
    to->prompt_logprobs = n > 0 ? malloc(n * sizeof(*to->prompt_logprobs)) : NULL;
    to->prompt_ranks =
        n > 0 && c->prompt_ranks != NULL ? malloc(n * sizeof(*to->prompt_ranks)) : NULL;
    to->prompt_tops = n_tops > 0 ? malloc(n_tops * sizeof(*to->prompt_tops)) : NULL;
    if (to->tokens == NULL || (n > 0 && to->prompt_logprobs == NULL) ||
        (n > 0 && c->prompt_ranks != NULL && to->prompt_ranks == NULL) ||
        (n_tops > 0 && to->prompt_tops == NULL)) {
        kv_commit_free(to);
        return false;
    }
    memcpy(to->tokens, c->tokens, c->n_tokens * sizeof(*to->tokens));
    if (n > 0) memcpy(to->prompt_logprobs, c->prompt_logprobs, n * sizeof(*to->prompt_logprobs));
    if (to->prompt_ranks != NULL)
        memcpy(to->prompt_ranks, c->prompt_ranks, n * sizeof(*to->prompt_ranks));
    if (n_tops > 0) memcpy(to->prompt_tops, c->prompt_tops, n_tops * sizeof(*to->prompt_tops));
    return true;
}

static void feed_prompt(struct dpart *part) {
    const struct kv_commit *c = &part->commit;
    for (uint32_t i = 0; i < c->n_prompt_logprobs && i + 1 < part->req->n_prompt; i++) {
        struct token_event ev = {.id = part->req->ids[i + 1],
                                 .logprob = c->prompt_logprobs[i],
                                 .rank = c->prompt_ranks != NULL ? c->prompt_ranks[i] : 0};
        const struct top_logprob *top =
            c->n_prompt_tops > 0 ? c->prompt_tops + (size_t)i * c->n_prompt_tops : NULL;
        while (ev.n_top < (int32_t)c->n_prompt_tops && top[ev.n_top].id >= 0) {
            ev.top[ev.n_top] = top[ev.n_top];
            ev.n_top++;
        }
        answer_prompt_logprob(part->d->answer, part->req->head.part, (int)i + 1, &ev);
    }
}

/* What earlier attempts have sent of a choice, in the place of P's token; NULL: nothing, or P has
 * gone on behind it. */
static const struct transcript_choice *sent_of(const struct dpart *part, uint32_t choice) {
    const struct transcript *t = part->req->replay;
    if (t == NULL || infer_req_is_resumed(part->req)) return NULL;
    return t->choices[choice].n_ids > 0 ? &t->choices[choice] : NULL;
}

/* P's token of one choice, and those that were sent of it before: in its place, or before it. */
static void count_choice(struct dpart *part, uint32_t k) {
    const struct transcript_choice *c = sent_of(part, k);
    const bool resumed = infer_req_is_resumed(part->req);
    const size_t n_before = resumed ? part->req->n_ids - part->req->n_prompt : 0;
    for (size_t i = 0; i < (c != NULL ? c->n_ids : n_before + 1); i++)
        req_meter_import(&part->d->of.meter, part->req, &part->commit.tokens[k]);
}

/* P's tokens to the answer, but for choices that stand behind them already. What it says of them P
 * has sent. */
static enum err feed_first(struct dpart *part) {
    struct dreq *d = part->d;
    if (part->searching) req_meter_import(&d->of.meter, part->req, &part->commit.tokens[0]);
    for (uint32_t k = 0; k < part->commit.n_tokens && !part->searching; k++) {
        const struct token_event *ev = &part->commit.tokens[k];
        count_choice(part, k);
        if (sent_of(part, k) == NULL)
            note_end(part, ev, answer_token(d->answer, part->req->head.part, ev, &d->out));
    }
    return d->out.failed ? ERR_NO_MEMORY : ERR_OK;
}

/* Every part is here, and d->answer behind what earlier attempts sent: it comes to stand where P's
 * stands. */
static enum err answer_replay_prefill(struct dreq *d) {
    enum err e = ERR_OK;
    for (uint32_t i = 0; i < d->n_parts; i++) feed_prompt(&d->parts[i]);
    for (uint32_t i = 0; i < d->n_parts && e == ERR_OK; i++) e = feed_first(&d->parts[i]);
    d->begun = d->begun || d->out.len > 0;
    buf_clear(&d->out);
    answer_sent(d->answer, NULL, NULL);
    return e;
}

/* Lets the engine go on with the choices that have not ended yet. */
static enum err decode_on(struct dpart *part) {
    struct first_ids first[CHOICES_MAX];
    bool any = false;
    if (part->searching)
        return req_seq_beam_start(part->seq, part->commit.tokens, part->commit.n_tokens);
    for (uint32_t i = 0; i < part->commit.n_tokens; i++) {
        bool goes_on = !has_ended(part, (int32_t)i);
        const struct transcript_choice *c = sent_of(part, i);
        first[i] = c != NULL ? (struct first_ids){c->ids, c->n_ids}
                             : (struct first_ids){&part->commit.tokens[i].id, 1};
        if (!goes_on) first[i].n = 0;
        any = any || goes_on;
    }
    if (any) return req_seq_start(part->seq, first, part->commit.n_tokens);
    req_seq_drop(&part->seq, ERR_CANCELLED, ""); /* its blocks are of use to others */
    return ERR_OK;
}

/* Without a look at the text: by what was sent of it, or by P's engine. */
static bool ended_before(const struct dpart *part, uint32_t choice) {
    const struct transcript_choice *c = sent_of(part, choice);
    return (c != NULL ? c->finish : part->commit.tokens[choice].finish) != FINISH_NONE;
}

/* Stop strings that only the answer sees, in parts that went on before it was there. */
static void stop_ended(struct dreq *d, const struct dpart *but) {
    for (uint32_t i = 0; i < d->n_parts; i++) {
        struct dpart *part = &d->parts[i];
        for (uint32_t k = 0; k < part->commit.n_tokens && part != but && !part->searching; k++)
            if (has_ended(part, (int32_t)k) && !ended_before(part, k))
                req_seq_choice_stop(part->seq, (int)k);
    }
}

/* What the parts said while others were still on their way. */
static void feed_early(struct dreq *d) {
    for (uint32_t i = 0; i < d->n_parts; i++) {
        struct dpart *part = &d->parts[i];
        for (size_t k = 0; k < part->n_early; k++)
            if (!has_ended(part, part->early[k].choice) && !feed(part, &part->early[k])) return;
        free(part->early);
        part->early = NULL;
        part->n_early = part->early_cap = 0;
    }
}

/* The first token of each choice; or the beams of a search that is not over, which D's engine looks
 * at. */
static bool first_tokens_fit(const struct dpart *part, const struct kv_commit *c) {
    uint32_t n = (uint32_t)part->req->sampling.n_choices;
    return part->searching ? c->n_tokens <= 2 * n : c->n_tokens == n;
}

static void fail_start(struct dreq *d, enum err e, const char *text) {
    log_error("decode", "req=%s epoch=%u event=failed err=%s text=\"%s\"", d->req->head.req_id,
              d->req->head.epoch, err_name(e), text);
    dreq_fail(d, e == ERR_INVALID ? CAUSE_D_FAILED : CAUSE_D_NO_MEMORY,
              e == ERR_INVALID ? 500 : 503, text);
}

/* The answer stands where P's stood: what the parts have said meanwhile follows. but: a part that
 * has begun only now. */
static void go_on(struct dreq *d, const struct dpart *but) {
    d->told_ms = clock_ms();
    if (d->stop_asked) {
        dreq_stop(d);
        return;
    }
    stop_ended(d, but);
    feed_early(d);
}

static void on_replayed(void *arg, enum err e, struct answer *a, const char *text) {
    struct dreq *d = arg;
    d->job = NULL;
    d->working = false;
    if (d->role == NULL) {
        dreq_free(d);
        return;
    }
    d->answer = a;
    if (e == ERR_OK) e = answer_replay_prefill(d);
    if (e != ERR_OK)
        fail_start(d, e, e == ERR_INVALID ? text : err_text(e));
    else
        go_on(d, NULL);
}

/* A later attempt: the answer is made elsewhere, and what the engine says meanwhile waits. */
static enum err replay_start(struct dreq *d) {
    struct answer_job_part *parts = calloc(d->n_parts, sizeof(*parts));
    if (parts == NULL) return ERR_NO_MEMORY;
    for (uint32_t i = 0; i < d->n_parts; i++)
        parts[i] = (struct answer_job_part){d->parts[i].req, infer_req_is_resumed(d->parts[i].req)
                                                                 ? NULL
                                                                 : d->parts[i].commit.tokens};
    enum err e = answer_job_start(&d->job, d->role->in, d->req->head.tenant, parts, d->n_parts,
                                  on_replayed, d);
    d->working = e == ERR_OK;
    d->begun = true; /* the client has what was sent */
    free(parts);
    return e;
}

static enum err answer_make(struct dreq *d) {
    enum err e = answer_create(&d->answer, instance_endpoint(d->role->in), d->parts[0].req);
    for (uint32_t i = 1; i < d->n_parts && e == ERR_OK; i++)
        e = answer_add_part(d->answer, d->parts[i].req);
    if (e == ERR_OK) e = answer_replay_prefill(d);
    if (e != ERR_OK) answer_destroy(&d->answer);
    return e;
}

/* Everything P had to say of the part is here. ERR_INVALID: not as many tokens as there must be. */
static enum err take_commit(struct dpart *part, const struct kv_commit *c) {
    struct dreq *d = part->d;
    for (uint32_t i = 0; i < c->n_tokens && part->req->sampling.beam; i++)
        part->searching = part->searching || c->tokens[i].finish == FINISH_NONE;
    enum err e = ERR_INVALID;
    if (first_tokens_fit(part, c)) e = keep_commit(&part->commit, c) ? ERR_OK : ERR_NO_MEMORY;
    part->committed = true;
    d->n_committed++;
    take_measures(part);
    if (d->n_committed == 1)
        req_meter_begin(&d->of.meter, instance_meters(d->role->in), part->req->head.arrival_us);
    for (uint32_t i = 0; i < part->commit.n_tokens && !part->searching; i++)
        if (ended_before(part, i)) set_ended(part, i);
    return e;
}

void dpart_start(struct dpart *part, const struct kv_commit *c) {
    struct dreq *d = part->d;
    enum err e = take_commit(part, c);
    if (e == ERR_INVALID) {
        fail_start(d, e, "not as many first tokens as choices");
        return;
    }
    bool all = d->n_committed == d->n_parts, later = all && any_sent(d);
    if (e == ERR_OK && later)
        e = replay_start(d);
    else if (e == ERR_OK && all)
        e = answer_make(d);
    if (e == ERR_OK && d->answer != NULL && answer_done(d->answer)) {
        fail_start(d, ERR_INVALID, "the first token ended the request, yet it was handed over");
        return;
    }
    if (e == ERR_OK) e = decode_on(part);
    if (e != ERR_OK)
        fail_start(d, e, err_text(e));
    else if (all && !later)
        go_on(d, part);
}
