/* prefill_role: the life of a request at P.
 *
 *   headers checked -> body read (text pool) -> each prompt queued for prefill; offered to D as
 * soon as it has its blocks -> first token of every choice
 *     -> they ended the request: whole answer, D is told to forget
 *     -> they did not: commit; D has verified every block: the KV is released
 * -> D has every prompt: answer
 *
 * Where the coordinator names this instance itself as D (flex), nothing is offered or sent: the
 * prompt has room for its whole answer from the beginning (SEQ_STAGED), and at the commit the
 * sequence goes over to the decode role as it is.
 *
 * A request holds its exchange until it is answered; what a prompt holds in the engine and on the
 * link belongs to its req_seq, which winds down by itself once dropped. */
#include "prefill/prefill_role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/answer_job.h"
#include "common/instance/instance.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_read.h"
#include "common/instance/req_set.h"
#include "common/instance/req_trace.h"
#include "prefill/pd_head.h"
#include "prefill/prefill_answer.h"
#include "prefill/prefill_fetch.h"
#include "proto/transcript.h"

enum {
    PROMPTS_OPEN_MAX = 16, /* of one request: in the engine, and not yet handed over */
    POOL_PART = 4,         /* and their blocks are no more than this part of the pool */
};

static const char send_failed[] = "[P Node] Send D request failed!...";
static const char link_lost[] = "the KV link is down: ";

/* One prompt of the request. */
struct pprompt {
    struct preq *p;
    struct infer_req *req;
    struct prefill_fetch *fetch;     /* its blocks are being fetched; then it is added */
    struct req_seq *seq;             /* until D has it, or does not need it */
    struct token_event *tokens;      /* the first of each choice, or what a beam search begins with;
                                      * until the commit */
    uint32_t n_tokens, tokens_max;   /* that have come; and can */
    float *prompt_logprobs;          /* [n_prompt - 1], of tokens 1.. ; NULL unless asked for */
    int32_t *prompt_ranks;           /* of the same */
    struct top_logprob *prompt_tops; /* [n_prompt - 1][prompt_top_logprobs] */
    uint32_t n_prompt_logprobs;
    uint32_t n_blocks;
    bool complete; /* all tokens have come */
    bool admitted, committed;
};

struct preq {
    struct inst_req of; /* first */
    struct instance *in;
    struct http_x *x;
    const struct api_path *path;
    struct pd_head head;
    struct req_read *reading;     /* until the body is read */
    struct answer_job *replaying; /* until the answer stands where it goes on */
    struct infer_req *req;
    struct answer *answer;
    struct kv_peer *peer;    /* D, once the body is read; NULL: this instance */
    struct pprompt *prompts; /* [n_prompts] */
    uint32_t n_prompts, n_started, n_admitted, n_handed_over;
    uint32_t n_fetched;       /* blocks that came from the D which the request has left */
    struct kv_tx_stats stats; /* of what was handed over: sums, and the longest times */
    struct token_event token; /* the first of all; meaningful once has_token */
    bool has_token;
    bool goes_on;   /* a choice has not ended with its first token: D is needed */
    bool ends_here; /* none can go on, or it says nothing before its end: D is never asked */
    struct buf out; /* what the client gets of the first tokens */
};

static const struct req_kind kind;

static void prompts_free(struct preq *p) {
    for (uint32_t i = 0; i < p->n_prompts; i++) {
        struct pprompt *q = &p->prompts[i];
        prefill_fetch_cancel(&q->fetch);
        req_seq_drop(&q->seq, ERR_CANCELLED, "");
        free(q->tokens);
        free(q->prompt_logprobs);
        free(q->prompt_ranks);
        free(q->prompt_tops);
    }
    free(p->prompts);
}

/* Its exchange has its answer, or is gone; its memory goes when nobody reads it any more. */
static void preq_free(struct preq *p) {
    req_read_cancel(&p->reading);
    prompts_free(p);
    answer_destroy(&p->answer);
    buf_free(&p->out);
    if (!answer_job_cancel(&p->replaying)) return; /* on_replayed() goes on */
    infer_req_destroy(&p->req);
    free(p);
}

static void on_client_gone(void *arg) {
    struct preq *p = arg;
    req_end(&p->of, REQ_CANCELLED, "client_gone", "prompts=%u", p->n_prompts);
    preq_free(p);
}

/* Ends the request with an error in the shape of its family, and its cause for the coordinator. */
static void fail(struct preq *p, enum cause cause, int status, const char *text) {
    req_end(&p->of, req_end_of(status), "failed", "status=%d cause=%s text=\"%s\"", status,
            cause_name(cause), text);
    http_x_on_close(p->x, NULL, NULL);
    http_x_set_header(p->x, CAUSE_HEADER, cause_name(cause));
    instance_reply_error(p->in, p->x, p->path, status, text);
    preq_free(p);
}

static void fail_send(struct preq *p, enum err e, const char *why) {
    char text[ERR_TEXT_BYTES_MAX + sizeof(send_failed) + sizeof(link_lost)];
    const enum cause cause = e == ERR_PEER_LOST  ? CAUSE_KV_LINK_DOWN
                             : e == ERR_TIMEOUT  ? CAUSE_KV_TIMEOUT
                             : e == ERR_BUSY     ? CAUSE_D_FULL
                             : e == ERR_STOPPING ? CAUSE_D_STOPPING
                                                 : CAUSE_D_REFUSED;
    snprintf(text, sizeof(text), "%s %s%s", send_failed, e == ERR_PEER_LOST ? link_lost : "", why);
    fail(p, cause, 500, text);
}

static void fail_unloaded(struct preq *p) {
    fail(p, CAUSE_ADAPTER_MISSING, 422, "The LoRA adapter has been unloaded.");
}

static void fail_no_memory(struct preq *p) {
    fail(p, CAUSE_P_NO_MEMORY, 503, "out of memory");
}

static void on_sent(void *arg, uint32_t choice, int32_t id, enum finish finish) {
    const struct emitted e = {.id = id, .choice = (uint16_t)choice, .finish = (uint8_t)finish};
    struct buf *list = arg;
    char item[EMITTED_BYTES_MAX];
    if (list->len > 0) buf_putc(list, ',');
    buf_append(list, item, emitted_format(item, &e));
}

/* Where the prompt's KV lies, for the coordinator; several prompts have no one place. */
static size_t digests_of(const struct preq *p, uint64_t out[PREFIX_PROMPT_DIGESTS_MAX]) {
    const struct worker *w = instance_worker(p->in);
    if (p->n_prompts != 1 || !instance_conf(p->in)->prefix_cache) return 0;
    return prefix_digests_of(out, worker_digest_seed(w, p->req), p->req->ids, p->req->n_prompt,
                             engine_block_tokens(worker_engine(w)));
}

static void reply(struct preq *p, bool last) {
    struct buf body = BUF_INIT, tokens = BUF_INIT;
    const struct kv_tx_stats *st = last ? NULL : &p->stats;
    uint64_t digests[PREFIX_PROMPT_DIGESTS_MAX];
    const size_t n_digests = digests_of(p, digests);
    answer_sent(p->answer, on_sent, &tokens);
    const struct prefill_answer a = {
        .req = p->req,
        .last = last,
        .output = p->out.data,
        .output_len = p->out.len,
        .binary = api_framings[p->path->frames].binary,
        .tokens = tokens.len > 0 ? tokens.data : "",
        .stats = st,
        .queue_wait_us = p->token.queue_wait_us,
        .prefill_us = p->req->measured.prefill_us,
        .digests = digests,
        .n_digests = n_digests,
        .block_tokens = engine_block_tokens(worker_engine(instance_worker(p->in))),
        .fetched_tokens = (uint64_t)p->n_fetched *
                          (uint64_t)engine_block_tokens(worker_engine(instance_worker(p->in))),
    };
    prefill_answer_format(&body, &a);
    if (tokens.failed) body.failed = true;
    buf_free(&tokens);
    if (body.failed || p->out.failed) {
        buf_free(&body);
        fail_no_memory(p);
        return;
    }
    if (st == NULL)
        req_end(&p->of, REQ_ANSWERED, "finished", "prompts=%u", p->n_prompts);
    else
        req_end(&p->of, REQ_HANDED_OVER, "handed_over",
                "prompts=%u blocks=%u held=%u bytes=%llu transfer_us=%llu exposed_us=%llu",
                p->n_prompts, st->n_blocks, st->n_held, (unsigned long long)st->bytes,
                (unsigned long long)st->transfer_us, (unsigned long long)st->exposed_us);
    http_x_on_close(p->x, NULL, NULL);
    http_x_reply(p->x, 200, "application/json", body.data, body.len);
    buf_free(&body);
    preq_free(p);
}

/* ---- the engine */

/* A later attempt says of its cache what the first one said. */
static void on_admitted(void *arg, const int32_t *table, int n_blocks, int n_held,
                        int n_cached_tokens) {
    struct pprompt *q = arg;
    (void)table, (void)n_blocks, (void)n_held;
    if (!q->admitted) q->p->n_admitted++;
    q->admitted = true;
    if (q->req->replay != NULL)
        q->req->measured.cached_tokens = q->req->replay->cached_tokens[0];
    else
        q->req->measured.cached_tokens = n_cached_tokens > 0 ? (uint32_t)n_cached_tokens : 0;
}

static void on_prompt_logprob(void *arg, int position, const struct token_event *ev) {
    struct pprompt *q = arg;
    size_t n = q->req->n_prompt, n_tops = (size_t)q->req->sampling.prompt_top_logprobs;
    answer_prompt_logprob(q->p->answer, q->req->head.part, position, ev);
    if (position < 1 || (size_t)position >= n || q->p->out.failed) return;
    if (q->prompt_logprobs == NULL) {
        q->prompt_logprobs = calloc(n, sizeof(*q->prompt_logprobs));
        q->prompt_ranks = calloc(n, sizeof(*q->prompt_ranks));
        q->prompt_tops = n_tops > 0 ? calloc(n * n_tops, sizeof(*q->prompt_tops)) : NULL;
    }
    if (q->prompt_logprobs == NULL || q->prompt_ranks == NULL ||
        (n_tops > 0 && q->prompt_tops == NULL)) {
        q->p->out.failed = true; /* the reply says so */
        return;
    }
    q->prompt_logprobs[position - 1] = ev->logprob;
    q->prompt_ranks[position - 1] = ev->rank;
    for (size_t i = 0; i < n_tops; i++)
        q->prompt_tops[(size_t)(position - 1) * n_tops + i] =
            i < (size_t)ev->n_top ? ev->top[i] : (struct top_logprob){.id = -1};
    if ((uint32_t)position > q->n_prompt_logprobs) q->n_prompt_logprobs = (uint32_t)position;
}

static bool one_handed_over(struct preq *p);

/* The decode role of this instance has it from now on. False: that ended the request. */
static bool go_on_here(struct pprompt *q, struct kv_commit *c) {
    struct preq *p = q->p;
    struct errbuf eb = {0};
    struct infer_req *copy = infer_req_clone(q->req);
    enum err e = ERR_NO_MEMORY;
    if (copy != NULL)
        e = instance_go_on(p->in, &copy, &q->seq, c, &eb);
    else
        kv_commit_free(c);
    if (e == ERR_OK) return one_handed_over(p);
    fail_send(p, e, eb.text[0] != '\0' ? eb.text : err_text(e));
    return false;
}

/* An answer tells of its prompts when its last choice ends. Behind an earlier attempt that can be
 * before they are computed: tokens of it wait for all prompts. */
static bool waits_for_prompts(const struct preq *p) {
    return p->n_prompts > 1 && p->req->replay != NULL && p->req->sampling.prompt_logprobs;
}

/* False: that ended the request. */
static bool commit(struct pprompt *q) {
    struct token_event *untold = NULL;
    if (waits_for_prompts(q->p)) {
        untold = malloc(q->n_tokens * sizeof(*untold));
        if (untold == NULL) {
            fail_no_memory(q->p);
            return false;
        }
        memcpy(untold, q->tokens, q->n_tokens * sizeof(*untold));
    }
    struct kv_commit c = {
        .prefill_us = q->req->measured.prefill_us,
        .queue_wait_us = q->req->measured.queue_wait_us,
        .prefill_batch = q->req->measured.prefill_batch,
        .cached_tokens = q->req->measured.cached_tokens,
        .n_tokens = q->n_tokens,
        .tokens = q->tokens,
        .prompt_logprobs = q->prompt_logprobs,
        .prompt_ranks = q->prompt_ranks,
        .n_prompt_logprobs = q->n_prompt_logprobs,
        .prompt_tops = q->prompt_tops,
        .n_prompt_tops =
            q->prompt_tops != NULL ? (uint32_t)q->req->sampling.prompt_top_logprobs : 0,
    };
    q->committed = true;
    q->tokens = untold;
    q->prompt_logprobs = NULL;
    q->prompt_ranks = NULL;
    q->prompt_tops = NULL;
    if (q->p->peer == NULL) return go_on_here(q, &c);
    req_seq_commit(q->seq, &c);
    return true;
}

/* A prompt whose every choice has ended is D's only if another prompt goes on, and that may show
 * with the last one. It waits for that, unless a prompt waits for the blocks it holds. */
static void commit_due(struct preq *p) {
    bool wait = !p->goes_on && p->n_admitted == p->n_prompts;
    for (uint32_t i = 0; i < p->n_started && !wait && !p->ends_here; i++)
        if (!p->prompts[i].committed && p->prompts[i].complete && !commit(&p->prompts[i])) return;
}

static bool start_some(struct preq *p);

/* The client has had tokens of the choice: D goes on behind them, and what is drawn here is not
 * news. What is drawn behind all of them is. */
static bool was_sent(struct pprompt *q, const struct token_event *ev) {
    const struct transcript *t = q->req->replay;
    const struct transcript_choice *sent = t != NULL ? &t->choices[ev->choice] : NULL;
    if (sent == NULL || sent->n_ids == 0 || infer_req_is_resumed(q->req)) return false;
    if (sent->finish == FINISH_NONE) q->p->goes_on = true;
    return true;
}

static void tell(struct pprompt *q, const struct token_event *ev) {
    struct preq *p = q->p;
    if (was_sent(q, ev)) return;
    if (infer_req_is_resumed(q->req))
        req_meter_resumed(&p->of.meter);
    else
        req_meter_token(&p->of.meter, q->req, ev);
    enum finish fin = answer_token(p->answer, q->req->head.part, ev, &p->out);
    if (fin == FINISH_NONE && ev->finish == FINISH_NONE) p->goes_on = true;
}

static void tell_or_wait(struct pprompt *q, const struct token_event *ev) {
    struct preq *p = q->p;
    if (!waits_for_prompts(p)) {
        tell(q, ev);
        return;
    }
    for (uint32_t i = 0; i < p->n_prompts; i++)
        if (!p->prompts[i].complete) return;
    for (uint32_t i = 0; i < p->n_prompts; i++)
        for (uint32_t k = 0; k < p->prompts[i].n_tokens; k++)
            tell(&p->prompts[i], &p->prompts[i].tokens[k]);
}

/* A beam search says nothing before its end: what goes on is D's to tell, the token that P counts
 * included. */
static void tell_beams(struct pprompt *q) {
    bool over = true;
    for (uint32_t i = 0; i < q->n_tokens; i++) over = over && q->tokens[i].finish != FINISH_NONE;
    for (uint32_t i = 0; i < q->n_tokens && over; i++) tell(q, &q->tokens[i]);
    if (over) return;
    req_meter_token(&q->p->of.meter, q->req, &q->tokens[0]);
    q->p->goes_on = true;
}

/* Of a search that runs to its end here: it tells everything then. */
static void whole_token(struct pprompt *q, const struct token_event *ev) {
    struct preq *p = q->p;
    if (!p->has_token) {
        p->token = *ev;
        q->req->measured.prefill_us = ev->step_us;
    }
    p->has_token = true;
    req_meter_token(&p->of.meter, q->req, ev);
    (void)answer_token(p->answer, q->req->head.part, ev, &p->out);
    if (p->out.failed)
        fail_no_memory(p);
    else if (answer_done(p->answer))
        reply(p, true);
}

static void on_token(void *arg, const struct token_event *ev) {
    struct pprompt *q = arg;
    struct preq *p = q->p;
    const struct sampling *s = &q->req->sampling;
    if (p->peer == NULL && s->beam && ev->finish != FINISH_ERROR) {
        whole_token(q, ev);
        return;
    }
    if (ev->finish == FINISH_ERROR || q->complete || q->n_tokens == q->tokens_max) {
        fail(p, CAUSE_P_FAILED, 500, "Failed to get engine response.");
        return;
    }
    q->tokens[q->n_tokens++] = *ev;
    if (!p->has_token) p->token = *ev;
    p->has_token = true;
    if (q->n_tokens == 1) {
        q->req->measured.prefill_us = clock_us() - q->req->head.arrival_us;
        q->req->measured.queue_wait_us = ev->queue_wait_us;
        q->req->measured.prefill_batch = ev->batch_size;
    }
    q->complete = s->beam ? !ev->more : q->n_tokens == q->tokens_max;
    if (!s->beam)
        tell_or_wait(q, ev);
    else if (q->complete)
        tell_beams(q);
    if (p->out.failed) {
        fail_no_memory(p);
    } else if (answer_done(p->answer)) {
        reply(p, true); /* dropping its sequences tells D to forget */
    } else if (p->ends_here && q->complete) {
        req_seq_drop(&q->seq, ERR_CANCELLED, "");
        (void)start_some(p);
    } else {
        commit_due(p);
    }
}

/* The texts of an engine that does not take the request (cluster-api 5.2, inference-api 3.3 rows 13
 * and 14): P's or D's, as the cause says. */
static void refused_for(struct preq *p, enum cause cause, enum err e, const char *text) {
    char full[ERR_TEXT_BYTES_MAX + 64];
    snprintf(full, sizeof(full), "Failed to enqueue inferRequest. %s", text);
    fail(p, cause, e == ERR_BUSY || e == ERR_TOO_LARGE ? 424 : 500, full);
}

static void refused(struct preq *p, enum err e, const char *text) {
    const enum cause cause = e == ERR_BUSY        ? CAUSE_P_FULL
                             : e == ERR_TOO_LARGE ? CAUSE_P_TOO_SMALL
                             : e == ERR_NO_MEMORY ? CAUSE_P_NO_MEMORY
                                                  : CAUSE_P_FAILED;
    refused_for(p, cause, e, text);
}

static void on_refused(void *arg, enum err e, const char *text) {
    struct preq *p = ((struct pprompt *)arg)->p;
    if (e == ERR_MISMATCH)
        fail_unloaded(p);
    else
        refused(p, e, text);
}

static void on_failed(void *arg, enum err e) {
    struct preq *p = ((struct pprompt *)arg)->p;
    char why[ERR_TEXT_BYTES_MAX];
    log_error("prefill", "req=%s event=engine_failed err=%s", p->head.req_id, err_name(e));
    int status = endpoint_engine_failure(instance_endpoint(p->in), e, why, sizeof(why));
    fail(p, status >= 500 ? CAUSE_P_FAILED : CAUSE_REQUEST, status, why);
}

static void add_stats(struct kv_tx_stats *to, const struct kv_tx_stats *st) {
    to->bytes += st->bytes;
    to->n_blocks += st->n_blocks;
    to->n_held += st->n_held;
    to->n_repaired += st->n_repaired;
    if (st->transfer_us > to->transfer_us) to->transfer_us = st->transfer_us;
    if (st->exposed_us > to->exposed_us) to->exposed_us = st->exposed_us;
}

/* One prompt more is with D. The others may have to wait until it has been decoded, however long
 * that takes. False: that ended the request. */
static bool one_handed_over(struct preq *p) {
    if (++p->n_handed_over == p->n_prompts) {
        reply(p, false);
        return false;
    }
    if (!start_some(p)) return false;
    for (uint32_t i = 0; i < p->n_started && p->peer != NULL; i++)
        if (p->prompts[i].seq != NULL) req_seq_patient(p->prompts[i].seq);
    return true;
}

static void on_sent_to_d(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct pprompt *q = arg;
    struct preq *p = q->p;
    struct req_meters *meters = instance_meters(p->in);
    if (e == ERR_OK) {
        req_meters_transfer(meters, kv_peer_id(p->peer), st->bytes, st->transfer_us,
                            st->exposed_us);
        add_stats(&p->stats, st);
        kv_peer_note_rate(p->peer, st->bytes, st->transfer_us);
        req_seq_drop(&q->seq, ERR_OK, "");
        (void)one_handed_over(p);
        return;
    }
    req_meters_transfer_failed(meters, e);
    if (e == ERR_CANCELLED) {
        req_meter_end(&p->of.meter, REQ_CANCELLED);
        fail(p, CAUSE_STOPPED, 424, "stopped"); /* by a stopInfer at D */
    } else if (e == ERR_MISMATCH) {
        fail(p, CAUSE_ADAPTER_MISSING, 422, text); /* D has not the adapter */
    } else if (e == ERR_TOO_LARGE) {
        refused_for(p, CAUSE_D_TOO_SMALL, e, text);
    } else {
        fail_send(p, e, text);
    }
}

static const struct req_seq_owner owner = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_failed = on_failed,
    .on_sent = on_sent_to_d,
};

/* ---- requests */

/* Ids that this instance can prefill. What it has no room for of an answer, D computes. */
static uint32_t n_ids_max(const struct engine *e) {
    struct engine_stats st;
    engine_stats(e, &st);
    const int64_t blocks = (int64_t)st.blocks_total * engine_block_tokens(e),
                  length = engine_seq_tokens_max(e) - 1;
    return (uint32_t)(blocks < length ? blocks : length);
}

static bool prompts_create(struct preq *p) {
    const struct engine *e = worker_engine(instance_worker(p->in));
    const size_t block_tokens = (size_t)engine_block_tokens(e);
    const uint32_t ids_max = n_ids_max(e);
    uint32_t n = 0;
    for (const struct infer_req *req = p->req; req != NULL; req = req->next_part) n++;
    if ((p->prompts = calloc(n, sizeof(*p->prompts))) == NULL) return false;
    p->n_prompts = n;
    p->ends_here = (n > 1 && p->req->sampling.new_tokens_max == 1) ||
                   (p->peer == NULL && p->req->sampling.beam);
    struct infer_req *req = p->req;
    for (uint32_t i = 0; i < n; i++, req = req->next_part) {
        struct pprompt *q = &p->prompts[i];
        if (infer_req_resume(req, ids_max) != ERR_OK) return false;
        req->head.epoch = p->head.epoch;
        /* Of the first attempt, for P's times and D's: limits are the request's, not an attempt's.
         */
        const uint64_t spent_us = (uint64_t)p->head.spent_ms * 1000;
        req->head.arrival_us -= spent_us < req->head.arrival_us ? spent_us : req->head.arrival_us;
        q->p = p;
        q->req = req;
        q->n_blocks = (uint32_t)((req->n_ids + block_tokens - 1) / block_tokens);
        q->tokens_max = (uint32_t)req->sampling.n_choices * (req->sampling.beam ? 2 : 1);
        q->tokens = calloc(q->tokens_max, sizeof(*q->tokens));
        if (q->tokens == NULL) return false;
    }
    return true;
}

static enum seq_kind kind_of(const struct preq *p) {
    if (p->peer != NULL) return SEQ_PREFILL;
    return p->req->sampling.beam ? SEQ_WHOLE : SEQ_STAGED;
}

/* False: that ended the request. */
static bool prompt_add(struct pprompt *q) {
    struct preq *p = q->p;
    enum err e = ERR_NO_MEMORY;
    q->seq = req_seq_open(req_set_seqs(instance_reqs(p->in)), instance_worker(p->in),
                          instance_endpoint(p->in), &owner, q);
    const bool sends = p->peer != NULL && !p->ends_here;
    if (q->seq != NULL) e = sends ? req_seq_send_to(q->seq, p->peer, q->req) : ERR_OK;
    if (e == ERR_OK) e = req_seq_add(q->seq, kind_of(p), q->req, NULL);
    if (e == ERR_PEER_LOST) {
        fail_send(p, e, err_text(e));
    } else if (e == ERR_TOO_LARGE) {
        char text[192];
        snprintf(text, sizeof(text),
                 "%zu prompt tokens, %u tokens of an earlier attempt and the request's parameters "
                 "are larger than an offer to a decode instance may be, %d bytes",
                 q->req->n_prompt, q->req->replay != NULL ? q->req->replay->n_ids : 0,
                 KV_FRAME_BYTES_MAX);
        refused_for(p, CAUSE_REQUEST, e, text);
    } else if (e == ERR_MISMATCH) {
        fail_unloaded(p);
    } else if (e != ERR_OK) {
        refused(p, e, err_text(e));
    }
    return e == ERR_OK;
}

static void on_fetched(void *arg, uint32_t n_blocks) {
    struct pprompt *q = arg;
    q->fetch = NULL;
    q->p->n_fetched += n_blocks;
    (void)prompt_add(q);
}

/* False: that ended the request. */
static bool prompt_start(struct pprompt *q) {
    q->fetch = prefill_fetch_start(q->p->in, q->p->head.kv_at, q->req, on_fetched, q);
    return q->fetch != NULL || prompt_add(q);
}

/* Starts prompts as long as those under way leave room for other requests. False: that ended the
 * request. */
static bool start_some(struct preq *p) {
    struct engine_stats st;
    engine_stats(worker_engine(instance_worker(p->in)), &st);
    uint32_t n_open = 0, n_blocks = 0;
    for (uint32_t i = 0; i < p->n_started; i++) {
        if (p->prompts[i].seq == NULL && p->prompts[i].fetch == NULL) continue;
        n_open++;
        n_blocks += p->prompts[i].n_blocks;
    }
    while (p->n_started < p->n_prompts) {
        struct pprompt *q = &p->prompts[p->n_started];
        if (n_open > 0 && (n_open >= PROMPTS_OPEN_MAX ||
                           n_blocks + q->n_blocks > (uint32_t)st.blocks_total / POOL_PART))
            break;
        p->n_started++;
        n_open++;
        n_blocks += q->n_blocks;
        if (!prompt_start(q)) return false;
    }
    return true;
}

static void on_replayed(void *arg, enum err e, struct answer *a, const char *text) {
    struct preq *p = arg;
    p->replaying = NULL;
    if (e == ERR_CANCELLED) {
        infer_req_destroy(&p->req);
        free(p);
        return;
    }
    p->answer = a;
    if (e == ERR_INVALID) {
        char full[ERR_TEXT_BYTES_MAX + sizeof("replay record: ")];
        snprintf(full, sizeof(full), "replay record: %s", text);
        fail(p, CAUSE_REQUEST, 400, full);
    } else if (e != ERR_OK) {
        fail_no_memory(p);
    } else {
        (void)start_some(p);
    }
}

/* What earlier attempts have sent of the request, to the answer. */
static void replay_start(struct preq *p) {
    struct answer_job_part parts[PARTS_MAX];
    for (uint32_t i = 0; i < p->n_prompts; i++)
        parts[i] = (struct answer_job_part){.req = p->prompts[i].req};
    enum err e =
        answer_job_start(&p->replaying, p->in, p->head.tenant, parts, p->n_prompts, on_replayed, p);
    if (e != ERR_OK) refused(p, e, err_text(e));
}

static bool was_any_sent(const struct preq *p) {
    for (uint32_t i = 0; i < p->n_prompts; i++)
        if (answer_job_needed(p->prompts[i].req)) return true;
    return false;
}

static void on_read(void *arg, struct infer_req *req, struct api_answer *err) {
    struct preq *p = arg;
    p->reading = NULL;
    if (req == NULL) {
        req_end(&p->of, req_end_of(err->status), "refused", "status=%d", err->status);
        http_x_on_close(p->x, NULL, NULL);
        http_x_set_header(
            p->x, CAUSE_HEADER,
            cause_name(err->no_json ? CAUSE_NO_JSON : cause_of_p_status(err->status)));
        instance_reply(p->x, err);
        preq_free(p);
        return;
    }
    p->req = req;
    p->of.req = req;
    const bool here = (instance_can(p->in) & CAN_DECODE) != 0 &&
                      kv_plane_is_self(instance_kv_plane(p->in), p->head.d_target);
    struct kv_peer *peer = here ? NULL : kv_plane_find(instance_kv_plane(p->in), p->head.d_target);
    p->peer = peer;
    if (!prompts_create(p)) {
        fail_no_memory(p);
        return;
    }
    if (!here && (peer == NULL || !kv_peer_up(peer))) {
        char why[ERR_TEXT_BYTES_MAX];
        snprintf(why, sizeof(why), "%s is not linked (%s)", p->head.d_target,
                 peer != NULL ? kv_peer_text(peer) : "not a peer");
        fail_send(p, ERR_PEER_LOST, why);
        return;
    }
    if (was_any_sent(p))
        replay_start(p);
    else if (answer_create(&p->answer, instance_endpoint(p->in), req) != ERR_OK)
        fail_no_memory(p);
    else
        (void)start_some(p);
}

static const char *header_of(const void *x, const char *name) {
    return http_x_header(x, name);
}

static void refuse(struct instance *in, struct http_x *x, const struct api_path *path,
                   enum cause cause, int status, const char *text) {
    http_x_set_header(x, CAUSE_HEADER, cause_name(cause));
    instance_reply_error(in, x, path, status, text);
}

static void prefill_request(void *self, struct http_x *x, const struct api_path *path,
                            const char *path_model) {
    struct instance *in = self;
    struct pd_head head;
    struct errbuf eb = {0};
    if (pd_head_read(&head, header_of, x, &eb) != ERR_OK) {
        refuse(in, x, path, CAUSE_REQUEST, 400, eb.text);
        return;
    }
    struct inst_req *old = req_set_find(instance_reqs(in), &kind, head.req_id);
    if (old != NULL && old->epoch >= head.epoch) {
        refuse(in, x, path, CAUSE_STALE_ATTEMPT, 500,
               "Failed to enqueue inferRequest. Runtime request has been used before.");
        return;
    }
    if (old != NULL) /* a newer one takes its place */
        fail((struct preq *)old, CAUSE_STALE_ATTEMPT, 424, "stopped");
    struct preq *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        refuse(in, x, path, CAUSE_P_NO_MEMORY, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    p->in = in;
    p->x = x;
    p->path = path;
    p->head = head;
    p->of = (struct inst_req){
        .kind = &kind, .id = p->head.req_id, .tenant = p->head.tenant, .epoch = head.epoch};
    req_begin(instance_reqs(in), &p->of);
    p->of.arrival_ms -= head.spent_ms < p->of.arrival_ms ? head.spent_ms : p->of.arrival_ms;
    req_meter_begin(&p->of.meter, instance_meters(in), clock_us());
    http_x_set_header(x, "RequestUUID", p->head.req_id);
    http_x_on_close(x, on_client_gone, p);
    const struct req_read_opts o = {.path = path,
                                    .path_model = path_model,
                                    .req_id = head.req_id,
                                    .tenant = head.tenant,
                                    .is_recompute = head.is_recompute,
                                    .context_bytes = head.context_bytes,
                                    .replay_bytes = head.replay_bytes};
    enum err e = req_read_start(&p->reading, in, x, &o, on_read, p);
    if (e != ERR_OK) refused(p, e, err_text(e));
}

/* ---- as a request of the instance's */

static void on_fail(struct inst_req *r, enum cause cause, int status, const char *text) {
    fail((struct preq *)r, cause, status, text);
}

static void on_stop(struct inst_req *r) {
    req_meter_end(&r->meter, REQ_CANCELLED);
    fail((struct preq *)r, CAUSE_STOPPED, 424, "stopped");
}

static enum req_phase phase(const struct inst_req *r) {
    const struct preq *p = (const struct preq *)r;
    return p->has_token ? REQ_LEASED : p->n_admitted > 0 ? REQ_RUNNING : REQ_WAITING;
}

static const struct req_kind kind = {
    .area = "prefill",
    .role = ROLE_PREFILL,
    .stopping = CAUSE_P_NOT_SERVING,
    .ended = CAUSE_P_FAILED,
    .late_status = 424,
    .late_text = "Engine callback timeout.",
    .fail = on_fail,
    .stop = on_stop,
    .phase = phase,
};

/* ---- the contract */

static enum err prefill_start(void **self, struct instance *in) {
    *self = in;
    return ERR_OK;
}

static void prefill_stop(void **self) {
    if (*self != NULL) req_set_abort(instance_reqs(*self), ROLE_PREFILL, ERR_STOPPING);
    *self = NULL;
}

const struct role_ops prefill_role = {
    .role = ROLE_PREFILL,
    .needs = CAN_PREFILL,
    .own = CAN_DECODE,
    .start = prefill_start,
    .on_request = prefill_request,
    .stop = prefill_stop,
};
