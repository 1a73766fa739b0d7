/* prefill_role: the life of a request at P.
 *
 *   headers checked -> body read (text pool) -> each prompt queued for prefill; offered to D as
 * soon as it has its blocks -> first token of every choice
 *     -> they ended the request: whole answer, D is told to forget
 *     -> they did not: commit; D has verified every block: the KV is released
 * -> D has every prompt: answer
 *
 * A request holds its exchange until it is answered; what a prompt holds in the engine and on the
 * link belongs to its prefill_hold, which winds down by itself once dropped. */
#include "prefill/prefill_role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/answer_job.h"
#include "common/instance/instance.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_meter.h"
#include "common/instance/req_read.h"
#include "common/instance/req_trace.h"
#include "prefill/pd_head.h"
#include "prefill/prefill_answer.h"
#include "prefill/prefill_hold.h"
#include "proto/cause.h"
#include "proto/transcript.h"

enum {
    SCAN_MS = 250,
    PROMPTS_OPEN_MAX = 16, /* of one request: in the engine, and not yet handed over */
    POOL_PART = 4,         /* and their blocks are no more than this part of the pool */
};

static const char send_failed[] = "[P Node] Send D request failed!...";
static const char link_lost[] = "the KV link is down: ";

struct prefill;

/* One prompt of the request. */
struct pprompt {
    struct preq *p;
    struct infer_req *req;
    struct prefill_hold *hold;       /* until D has it, or does not need it */
    struct token_event *tokens;      /* the first of each choice, or what a beam search begins with;
                                      * until the commit */
    uint32_t n_tokens, tokens_max;   /* that have come; and can */
    float *prompt_logprobs;          /* [n_prompt - 1], of tokens 1.. ; NULL unless asked for */
    struct top_logprob *prompt_tops; /* [n_prompt - 1][prompt_top_logprobs] */
    uint32_t n_prompt_logprobs;
    uint32_t n_blocks;
    bool complete; /* all tokens have come */
    bool admitted, committed;
};

struct preq {
    struct preq *next, **at;
    struct prefill *role;
    struct http_x *x;
    const struct api_path *path;
    struct pd_head head;
    uint64_t arrival_ms;
    struct req_meter meter;
    struct req_read *reading;     /* until the body is read */
    struct answer_job *replaying; /* until the answer stands where it goes on */
    struct infer_req *req;
    struct answer *answer;
    struct kv_peer *peer;    /* D, once the body is read */
    struct pprompt *prompts; /* [n_prompts] */
    uint32_t n_prompts, n_started, n_admitted, n_handed_over;
    struct kv_tx_stats stats; /* of what was handed over: sums, and the longest times */
    struct token_event token; /* the first of all; meaningful once has_token */
    bool has_token;
    bool goes_on;   /* a choice has not ended with its first token: D is needed */
    bool ends_here; /* none can go on: D is never asked */
    struct buf out; /* what the client gets of the first tokens */
};

struct prefill {
    struct instance *in;
    struct preq *reqs;
    struct prefill_holds holds;
    struct loop_timer *scan;
};

static void prompts_free(struct preq *p) {
    for (uint32_t i = 0; i < p->n_prompts; i++) {
        struct pprompt *q = &p->prompts[i];
        prefill_hold_drop(&q->hold);
        free(q->tokens);
        free(q->prompt_logprobs);
        free(q->prompt_tops);
    }
    free(p->prompts);
}

/* Off the role's list at once; its memory goes when nobody reads it any more. */
static void preq_free(struct preq *p) {
    *p->at = p->next;
    if (p->next != NULL) p->next->at = p->at;
    req_meter_end(&p->meter, REQ_CANCELLED); /* unless it ended otherwise */
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
    log_info("prefill", "req=%s epoch=%u event=client_gone", p->head.req_id, p->head.epoch);
    preq_free(p);
}

/* Ends the request with an error in the shape of its family, and its cause for the coordinator. */
static void fail(struct preq *p, enum cause cause, int status, const char *text) {
    req_meter_end(&p->meter, req_end_of(status));
    log_info("prefill", "req=%s epoch=%u event=failed status=%d cause=%s text=\"%s\" %s",
             p->head.req_id, p->head.epoch, status, cause_name(cause), text,
             req_trace_fields(p->req));
    http_x_on_close(p->x, NULL, NULL);
    http_x_set_header(p->x, CAUSE_HEADER, cause_name(cause));
    instance_reply_error(p->role->in, p->x, p->path, status, text);
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

static void reply(struct preq *p, bool last) {
    struct buf body = BUF_INIT, tokens = BUF_INIT;
    const struct kv_tx_stats *st = last ? NULL : &p->stats;
    answer_sent(p->answer, on_sent, &tokens);
    const struct prefill_answer a = {
        .req = p->req,
        .last = last,
        .output = p->out.data,
        .output_len = p->out.len,
        .tokens = tokens.len > 0 ? tokens.data : "",
        .stats = st,
        .queue_wait_us = p->token.queue_wait_us,
        .prefill_us = p->req->measured.prefill_us,
    };
    prefill_answer_format(&body, &a);
    if (tokens.failed) body.failed = true;
    buf_free(&tokens);
    if (body.failed || p->out.failed) {
        buf_free(&body);
        fail_no_memory(p);
        return;
    }
    if (st != NULL) {
        log_info("prefill",
                 "req=%s epoch=%u event=handed_over prompts=%u blocks=%u held=%u bytes=%llu "
                 "transfer_us=%llu exposed_us=%llu %s",
                 p->head.req_id, p->head.epoch, p->n_prompts, st->n_blocks, st->n_held,
                 (unsigned long long)st->bytes, (unsigned long long)st->transfer_us,
                 (unsigned long long)st->exposed_us, req_trace_fields(p->req));
    }
    req_meter_end(&p->meter, last ? REQ_ANSWERED : REQ_HANDED_OVER);
    http_x_on_close(p->x, NULL, NULL);
    http_x_reply(p->x, 200, "application/json", body.data, body.len);
    buf_free(&body);
    preq_free(p);
}

/* ---- the engine */

/* A later attempt says of its cache what the first one said. */
static void on_admitted(void *arg, int n_cached_tokens) {
    struct pprompt *q = arg;
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
    if (position < 1 || (size_t)position >= n) return;
    if (q->prompt_logprobs == NULL) {
        q->prompt_logprobs = calloc(n, sizeof(*q->prompt_logprobs));
        q->prompt_tops = n_tops > 0 ? calloc(n * n_tops, sizeof(*q->prompt_tops)) : NULL;
    }
    if (q->prompt_logprobs == NULL || (n_tops > 0 && q->prompt_tops == NULL)) {
        q->p->out.failed = true; /* the reply says so */
        return;
    }
    q->prompt_logprobs[position - 1] = ev->logprob;
    for (size_t i = 0; i < n_tops; i++)
        q->prompt_tops[(size_t)(position - 1) * n_tops + i] =
            i < (size_t)ev->n_top ? ev->top[i] : (struct top_logprob){.id = -1};
    if ((uint32_t)position > q->n_prompt_logprobs) q->n_prompt_logprobs = (uint32_t)position;
}

static void commit(struct pprompt *q) {
    struct kv_commit c = {
        .prefill_us = q->req->measured.prefill_us,
        .queue_wait_us = q->req->measured.queue_wait_us,
        .prefill_batch = q->req->measured.prefill_batch,
        .cached_tokens = q->req->measured.cached_tokens,
        .n_tokens = q->n_tokens,
        .tokens = q->tokens,
        .prompt_logprobs = q->prompt_logprobs,
        .n_prompt_logprobs = q->n_prompt_logprobs,
        .prompt_tops = q->prompt_tops,
        .n_prompt_tops =
            q->prompt_tops != NULL ? (uint32_t)q->req->sampling.prompt_top_logprobs : 0,
    };
    q->committed = true;
    q->tokens = NULL;
    q->prompt_logprobs = NULL;
    q->prompt_tops = NULL;
    prefill_hold_commit(q->hold, &c);
}

/* A prompt whose every choice has ended is D's only if another prompt goes on, and that may show
 * with the last one. It waits for that, unless a prompt waits for the blocks it holds. */
static void commit_due(struct preq *p) {
    bool wait = !p->goes_on && p->n_admitted == p->n_prompts;
    for (uint32_t i = 0; i < p->n_started && !wait && !p->ends_here; i++)
        if (!p->prompts[i].committed && p->prompts[i].complete) commit(&p->prompts[i]);
}

static bool start_some(struct preq *p);

/* The client has had tokens of the choice: D goes on behind them, and what is drawn here is not
 * news. */
static bool was_sent(struct pprompt *q, const struct token_event *ev) {
    const struct transcript *t = q->req->replay;
    const struct transcript_choice *sent = t != NULL ? &t->choices[ev->choice] : NULL;
    if (sent == NULL || sent->n_ids == 0) return false;
    if (sent->finish == FINISH_NONE) q->p->goes_on = true;
    return true;
}

static void tell(struct pprompt *q, const struct token_event *ev) {
    struct preq *p = q->p;
    if (was_sent(q, ev)) return;
    req_meter_token(&p->meter, q->req, ev);
    enum finish fin = answer_token(p->answer, q->req->head.part, ev, &p->out);
    if (fin == FINISH_NONE && ev->finish == FINISH_NONE) p->goes_on = true;
}

/* A beam search says nothing before its end: what goes on is D's to tell, the token that P counts
 * included. */
static void tell_beams(struct pprompt *q) {
    bool over = true;
    for (uint32_t i = 0; i < q->n_tokens; i++) over = over && q->tokens[i].finish != FINISH_NONE;
    for (uint32_t i = 0; i < q->n_tokens && over; i++) tell(q, &q->tokens[i]);
    if (over) return;
    req_meter_token(&q->p->meter, q->req, &q->tokens[0]);
    q->p->goes_on = true;
}

static void on_token(void *arg, const struct token_event *ev) {
    struct pprompt *q = arg;
    struct preq *p = q->p;
    const struct sampling *s = &q->req->sampling;
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
        tell(q, ev);
    else if (q->complete)
        tell_beams(q);
    if (p->out.failed) {
        fail_no_memory(p);
    } else if (answer_done(p->answer)) {
        reply(p, true); /* dropping the holds tells D to forget */
    } else if (p->ends_here && q->complete) {
        prefill_hold_drop(&q->hold);
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

static void on_engine(void *arg, enum err e, const char *text, bool was_refused) {
    struct preq *p = ((struct pprompt *)arg)->p;
    if (was_refused) {
        refused(p, e, text);
        return;
    }
    char why[ERR_TEXT_BYTES_MAX];
    log_error("prefill", "req=%s event=engine_failed err=%s", p->head.req_id, err_name(e));
    int status = endpoint_engine_failure(instance_endpoint(p->role->in), e, why, sizeof(why));
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
 * that takes. */
static void one_handed_over(struct preq *p) {
    if (++p->n_handed_over == p->n_prompts) {
        reply(p, false);
        return;
    }
    if (!start_some(p)) return;
    for (uint32_t i = 0; i < p->n_started; i++)
        if (p->prompts[i].hold != NULL) prefill_hold_patient(p->prompts[i].hold);
}

static void on_transfer(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct pprompt *q = arg;
    struct preq *p = q->p;
    struct req_meters *meters = instance_meters(p->role->in);
    if (e == ERR_OK) {
        req_meters_transfer(meters, kv_peer_id(p->peer), st->bytes, st->transfer_us,
                            st->exposed_us);
        add_stats(&p->stats, st);
        prefill_hold_drop(&q->hold);
        one_handed_over(p);
        return;
    }
    req_meters_transfer_failed(meters, e);
    if (e == ERR_CANCELLED) {
        req_meter_end(&p->meter, REQ_CANCELLED);
        fail(p, CAUSE_STOPPED, 424, "stopped"); /* by a stopInfer at D */
    } else if (e == ERR_MISMATCH) {
        fail(p, CAUSE_ADAPTER_MISSING, 422, text); /* D has not the adapter */
    } else if (e == ERR_TOO_LARGE) {
        refused_for(p, CAUSE_D_TOO_SMALL, e, text);
    } else {
        fail_send(p, e, text);
    }
}

static const struct prefill_hold_events hold_events = {
    .on_admitted = on_admitted,
    .on_prompt_logprob = on_prompt_logprob,
    .on_token = on_token,
    .on_engine = on_engine,
    .on_transfer = on_transfer,
};

/* ---- requests */

static bool prompts_create(struct preq *p) {
    const struct engine *e = worker_engine(instance_worker(p->role->in));
    size_t block_tokens = (size_t)engine_block_tokens(e);
    uint32_t n = 0;
    for (const struct infer_req *req = p->req; req != NULL; req = req->next_part) n++;
    if ((p->prompts = calloc(n, sizeof(*p->prompts))) == NULL) return false;
    p->n_prompts = n;
    p->ends_here = n > 1 && p->req->sampling.new_tokens_max == 1;
    struct infer_req *req = p->req;
    for (uint32_t i = 0; i < n; i++, req = req->next_part) {
        struct pprompt *q = &p->prompts[i];
        req->head.epoch = p->head.epoch;
        q->p = p;
        q->req = req;
        q->n_blocks = (uint32_t)((req->n_ids + block_tokens - 1) / block_tokens);
        q->tokens_max = (uint32_t)req->sampling.n_choices * (req->sampling.beam ? 2 : 1);
        q->tokens = calloc(q->tokens_max, sizeof(*q->tokens));
        if (q->tokens == NULL) return false;
    }
    return true;
}

/* False: that ended the request. */
static bool prompt_start(struct pprompt *q) {
    struct preq *p = q->p;
    struct worker *w = instance_worker(p->role->in);
    unsigned block_tokens = (unsigned)engine_block_tokens(worker_engine(w));
    enum err e =
        prefill_hold_open(&q->hold, &p->role->holds, w, instance_endpoint(p->role->in),
                          p->ends_here ? NULL : p->peer, q->req, block_tokens, &hold_events, q);
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
        fail(p, CAUSE_ADAPTER_MISSING, 422, "The LoRA adapter has been unloaded.");
    } else if (e != ERR_OK) {
        refused(p, e, err_text(e));
    }
    return e == ERR_OK;
}

/* Starts prompts as long as those under way leave room for other requests. False: that ended the
 * request. */
static bool start_some(struct preq *p) {
    struct engine_stats st;
    engine_stats(worker_engine(instance_worker(p->role->in)), &st);
    uint32_t n_open = 0, n_blocks = 0;
    for (uint32_t i = 0; i < p->n_started; i++) {
        if (p->prompts[i].hold == NULL) continue;
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
    enum err e = answer_job_start(&p->replaying, p->role->in, p->head.tenant, parts, p->n_prompts,
                                  on_replayed, p);
    if (e != ERR_OK) refused(p, e, err_text(e));
}

static bool was_any_sent(const struct preq *p) {
    for (uint32_t i = 0; i < p->n_prompts; i++)
        if (answer_job_needed(p->prompts[i].req)) return true;
    return false;
}

static void on_read(void *arg, struct infer_req *req, struct api_answer *err) {
    struct preq *p = arg;
    struct instance *in = p->role->in;
    p->reading = NULL;
    if (req == NULL) {
        log_info("prefill", "req=%s epoch=%u event=refused status=%d", p->head.req_id,
                 p->head.epoch, err->status);
        req_meter_end(&p->meter, req_end_of(err->status));
        http_x_on_close(p->x, NULL, NULL);
        http_x_set_header(
            p->x, CAUSE_HEADER,
            cause_name(err->no_json ? CAUSE_NO_JSON : cause_of_p_status(err->status)));
        instance_reply(p->x, err);
        preq_free(p);
        return;
    }
    p->req = req;
    if (!prompts_create(p)) {
        fail_no_memory(p);
        return;
    }
    struct kv_peer *peer = kv_plane_find(instance_kv_plane(in), p->head.d_target);
    p->peer = peer;
    if (peer == NULL || !kv_peer_up(peer)) {
        char why[ERR_TEXT_BYTES_MAX];
        snprintf(why, sizeof(why), "%s is not linked (%s)", p->head.d_target,
                 peer != NULL ? kv_peer_text(peer) : "not a peer");
        fail_send(p, ERR_PEER_LOST, why);
        return;
    }
    if (was_any_sent(p))
        replay_start(p);
    else if (answer_create(&p->answer, instance_endpoint(in), req) != ERR_OK)
        fail_no_memory(p);
    else
        (void)start_some(p);
}

static const char *header_of(const void *x, const char *name) {
    return http_x_header(x, name);
}

static struct preq *find_id(struct prefill *role, const char *req_id) {
    struct preq *p = role->reqs;
    while (p != NULL && strcmp(p->head.req_id, req_id) != 0) p = p->next;
    return p;
}

static void refuse(struct prefill *role, struct http_x *x, const struct api_path *path,
                   enum cause cause, int status, const char *text) {
    http_x_set_header(x, CAUSE_HEADER, cause_name(cause));
    instance_reply_error(role->in, x, path, status, text);
}

static void prefill_request(void *self, struct http_x *x, const struct api_path *path,
                            const char *path_model) {
    struct prefill *role = self;
    struct pd_head head;
    struct errbuf eb = {0};
    if (pd_head_read(&head, header_of, x, &eb) != ERR_OK) {
        refuse(role, x, path, CAUSE_REQUEST, 400, eb.text);
        return;
    }
    struct preq *old = find_id(role, head.req_id);
    if (old != NULL && old->head.epoch >= head.epoch) {
        refuse(role, x, path, CAUSE_STALE_ATTEMPT, 500,
               "Failed to enqueue inferRequest. Runtime request has been used before.");
        return;
    }
    if (old != NULL)
        fail(old, CAUSE_STALE_ATTEMPT, 424, "stopped"); /* a newer one takes its place */
    struct preq *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        refuse(role, x, path, CAUSE_P_NO_MEMORY, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    p->role = role;
    p->x = x;
    p->path = path;
    p->head = head;
    p->arrival_ms = clock_ms();
    req_meter_begin(&p->meter, instance_meters(role->in), clock_us());
    http_x_set_header(x, "RequestUUID", p->head.req_id);
    p->next = role->reqs;
    p->at = &role->reqs;
    if (p->next != NULL) p->next->at = &p->next;
    role->reqs = p;
    http_x_on_close(x, on_client_gone, p);
    const struct req_read_opts o = {.path = path,
                                    .path_model = path_model,
                                    .req_id = head.req_id,
                                    .tenant = head.tenant,
                                    .is_recompute = head.is_recompute,
                                    .replay_bytes = head.replay_bytes};
    enum err e = req_read_start(&p->reading, role->in, x, &o, on_read, p);
    if (e != ERR_OK) refused(p, e, err_text(e));
}

/* tokenTimeout, e2eTimeout and the request's own time-out all bound the wait for the one token P
 * makes. */
static void on_scan(void *arg) {
    struct prefill *role = arg;
    const struct inst_conf *c = instance_conf(role->in);
    int64_t server_s =
        c->token_timeout_s < c->e2e_timeout_s ? c->token_timeout_s : c->e2e_timeout_s;
    uint64_t now = clock_ms();
    for (struct preq *p = role->reqs, *next; p != NULL; p = next) {
        next = p->next;
        int64_t limit_s =
            p->req != NULL && p->req->head.timeout_s > 0 && p->req->head.timeout_s < server_s
                ? p->req->head.timeout_s
                : server_s;
        if (now - p->arrival_ms < (uint64_t)limit_s * 1000) continue;
        req_meter_end(&p->meter, REQ_FAILED); /* ours, whatever the status says */
        fail(p, CAUSE_REQUEST_TIMEOUT, 424, "Engine callback timeout.");
    }
}

/* ---- the contract */

static enum err prefill_start(void **self, struct instance *in) {
    *self = NULL;
    struct prefill *role = calloc(1, sizeof(*role));
    if (role == NULL) return ERR_NO_MEMORY;
    role->in = in;
    enum err e = loop_timer_start(&role->scan, instance_loop(in), SCAN_MS, SCAN_MS, on_scan, role);
    if (e != ERR_OK) {
        free(role);
        return e;
    }
    *self = role;
    return ERR_OK;
}

static bool prefill_stop_request(void *self, const char *id, const char *tenant, uint32_t epoch) {
    struct prefill *role = self;
    struct preq *p = role->reqs;
    for (; p != NULL; p = p->next) {
        const char *client_id = p->req != NULL ? p->req->head.client_id : NULL;
        bool named =
            strcmp(p->head.req_id, id) == 0 || (client_id != NULL && strcmp(client_id, id) == 0);
        if (named && p->head.epoch <= epoch &&
            (tenant == NULL || tenant_same_owner(p->head.tenant, tenant)))
            break;
    }
    if (p == NULL) return false;
    req_meter_end(&p->meter, REQ_CANCELLED);
    fail(p, CAUSE_STOPPED, 424, "stopped");
    return true;
}

static void prefill_load(void *self, struct role_load *out) {
    const struct prefill *role = self;
    unsigned n_open = 0;
    *out = (struct role_load){0};
    for (const struct preq *p = role->reqs; p != NULL; p = p->next) {
        for (uint32_t i = 0; i < p->n_prompts; i++) n_open += p->prompts[i].hold != NULL;
        if (p->has_token) {
            out->leases++;
        } else if (p->n_admitted > 0) {
            out->running++;
        } else {
            out->waiting++;
        }
    }
    out->leases += role->holds.n - n_open; /* dropped, not yet given back */
}

static void prefill_abort_all(void *self, enum err why) {
    struct prefill *role = self;
    const bool stopping = err_http_status(why) == 503;
    while (role->reqs != NULL)
        fail(role->reqs, stopping ? CAUSE_P_NOT_SERVING : CAUSE_P_FAILED, stopping ? 503 : 500,
             err_text(why));
}

static void prefill_stop(void **self) {
    struct prefill *role = *self;
    if (role == NULL) return;
    *self = NULL;
    prefill_abort_all(role, ERR_STOPPING);
    prefill_holds_detach(&role->holds);
    loop_timer_stop(&role->scan);
    free(role);
}

const struct role_ops prefill_role = {
    .role = ROLE_PREFILL,
    .start = prefill_start,
    .on_request = prefill_request,
    .stop_request = prefill_stop_request,
    .load = prefill_load,
    .abort_all = prefill_abort_all,
    .stop = prefill_stop,
};
