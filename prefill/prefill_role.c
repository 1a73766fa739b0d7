/* prefill_role: the life of a request at P.
 *
 *   headers checked -> body read (text pool) -> offered to D and queued for prefill, both at once
 * -> first token
 *     -> it ended the request: whole answer, D is told to forget
 *     -> it did not: commit; D has verified every block: answer, the KV is released
 *
 * A request holds its exchange until it is answered; what it holds in the engine and on the link
 * belongs to its prefill_hold, which winds down by itself once dropped. */
#include "prefill/prefill_role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/instance.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_meter.h"
#include "common/instance/req_read.h"
#include "prefill/pd_head.h"
#include "prefill/prefill_answer.h"
#include "prefill/prefill_hold.h"

enum { SCAN_MS = 250 };

static const char send_failed[] = "[P Node] Send D request failed!...";
static const char out_of_memory[] = "out of memory";

struct prefill;

struct preq {
    struct preq *next, **at;
    struct prefill *role;
    struct http_x *x;
    const struct api_path *path;
    struct pd_head head;
    uint64_t arrival_ms;
    struct req_meter meter;
    struct req_read *reading; /* until the body is read */
    struct infer_req *req;
    struct answer *answer;
    struct kv_peer *peer; /* D, once the body is read */
    struct prefill_hold *hold;
    bool admitted;
    struct token_event token; /* the first; meaningful once has_token */
    bool has_token;
    struct buf out;         /* what the client gets of the first token */
    float *prompt_logprobs; /* [n_prompt - 1], of tokens 1.. ; NULL unless asked for */
    uint32_t n_prompt_logprobs;
};

struct prefill {
    struct instance *in;
    struct preq *reqs;
    struct prefill_holds holds;
    struct loop_timer *scan;
};

static void preq_free(struct preq *p) {
    *p->at = p->next;
    if (p->next != NULL) p->next->at = p->at;
    req_meter_end(&p->meter, REQ_CANCELLED); /* unless it ended otherwise */
    req_read_cancel(&p->reading);
    prefill_hold_drop(&p->hold);
    answer_destroy(&p->answer);
    infer_req_destroy(&p->req);
    buf_free(&p->out);
    free(p->prompt_logprobs);
    free(p);
}

static void on_client_gone(void *arg) {
    struct preq *p = arg;
    log_info("prefill", "req=%s epoch=%u event=client_gone", p->head.req_id, p->head.epoch);
    preq_free(p);
}

/* Ends the request with an error in the shape of its family. */
static void fail(struct preq *p, int status, const char *text) {
    req_meter_end(&p->meter, REQ_FAILED);
    log_info("prefill", "req=%s epoch=%u event=failed status=%d text=\"%s\"", p->head.req_id,
             p->head.epoch, status, text);
    http_x_on_close(p->x, NULL, NULL);
    instance_reply_error(p->role->in, p->x, p->path, status, text);
    preq_free(p);
}

static void fail_send(struct preq *p, const char *why) {
    char text[ERR_TEXT_BYTES_MAX + sizeof(send_failed)];
    snprintf(text, sizeof(text), "%s %s", send_failed, why);
    fail(p, 500, text);
}

static void reply(struct preq *p, bool last, const struct kv_tx_stats *st) {
    struct buf body = BUF_INIT;
    const struct prefill_answer a = {
        .req = p->req,
        .last = last,
        .output = p->out.data,
        .output_len = p->out.len,
        .token = &p->token,
        .stats = st,
        .queue_wait_us = p->token.queue_wait_us,
        .prefill_us = p->req->prefill_us,
    };
    prefill_answer_format(&body, &a);
    if (body.failed || p->out.failed) {
        buf_free(&body);
        fail(p, 503, out_of_memory);
        return;
    }
    if (st != NULL) {
        log_info("prefill",
                 "req=%s epoch=%u event=handed_over blocks=%u held=%u bytes=%llu transfer_us=%llu "
                 "exposed_us=%llu",
                 p->head.req_id, p->head.epoch, st->n_blocks, st->n_held,
                 (unsigned long long)st->bytes, (unsigned long long)st->transfer_us,
                 (unsigned long long)st->exposed_us);
    }
    req_meter_end(&p->meter, last ? REQ_ANSWERED : REQ_HANDED_OVER);
    http_x_on_close(p->x, NULL, NULL);
    http_x_reply(p->x, 200, "application/json", body.data, body.len);
    buf_free(&body);
    preq_free(p);
}

/* ---- the engine */

static void on_admitted(void *arg, int n_cached_tokens) {
    struct preq *p = arg;
    p->admitted = true;
    p->req->cached_tokens = n_cached_tokens > 0 ? (uint32_t)n_cached_tokens : 0;
}

static void on_prompt_logprob(void *arg, int position, const struct token_event *ev) {
    struct preq *p = arg;
    answer_prompt_logprob(p->answer, 0, position, ev);
    if (position < 1 || (size_t)position >= p->req->n_prompt) return;
    if (p->prompt_logprobs == NULL &&
        (p->prompt_logprobs = calloc(p->req->n_prompt, sizeof(float))) == NULL)
        return;
    p->prompt_logprobs[position - 1] = ev->logprob;
    if ((uint32_t)position > p->n_prompt_logprobs) p->n_prompt_logprobs = (uint32_t)position;
}

static void on_token(void *arg, const struct token_event *ev) {
    struct preq *p = arg;
    if (ev->finish == FINISH_ERROR) {
        fail(p, 500, "Failed to get engine response.");
        return;
    }
    p->token = *ev;
    p->has_token = true;
    p->req->prefill_us = clock_us() - p->req->arrival_us;
    p->req->queue_wait_us = ev->queue_wait_us;
    p->req->prefill_batch = ev->batch_size;
    req_meter_token(&p->meter, p->req, ev);
    answer_token(p->answer, 0, ev, &p->out);
    if (answer_done(p->answer)) {
        reply(p, true, NULL); /* dropping the hold tells D to forget */
        return;
    }
    struct kv_commit c = {
        .prefill_us = p->req->prefill_us,
        .queue_wait_us = p->req->queue_wait_us,
        .prefill_batch = p->req->prefill_batch,
        .cached_tokens = p->req->cached_tokens,
        .n_tokens = 1,
        .tokens = {*ev},
        .prompt_logprobs = p->prompt_logprobs,
        .n_prompt_logprobs = p->n_prompt_logprobs,
    };
    p->prompt_logprobs = NULL;
    prefill_hold_commit(p->hold, &c);
}

/* The texts of an engine that does not take the request (cluster-api 5.2, inference-api 3.3 rows 13
 * and 14). */
static void on_engine(void *arg, enum err e, const char *text, bool refused) {
    struct preq *p = arg;
    char full[ERR_TEXT_BYTES_MAX + 64];
    if (!refused) {
        log_error("prefill", "req=%s event=engine_failed err=%s", p->head.req_id, err_name(e));
        fail(p, 500, "Failed to get engine response.");
        return;
    }
    snprintf(full, sizeof(full), "Failed to enqueue inferRequest. %s", text);
    fail(p, e == ERR_BUSY || e == ERR_TOO_LARGE ? 424 : 500, full);
}

static void on_transfer(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct preq *p = arg;
    struct req_meters *meters = instance_meters(p->role->in);
    if (e == ERR_OK) {
        req_meters_transfer(meters, kv_peer_id(p->peer), st->bytes, st->transfer_us,
                            st->exposed_us);
        reply(p, false, st);
        return;
    }
    req_meters_transfer_failed(meters, e);
    if (e == ERR_CANCELLED) {
        req_meter_end(&p->meter, REQ_CANCELLED);
        fail(p, 424, "stopped"); /* by a stopInfer at D */
    } else {
        fail_send(p, text);
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

static void on_read(void *arg, struct infer_req *req, struct api_answer *err) {
    struct preq *p = arg;
    struct instance *in = p->role->in;
    p->reading = NULL;
    if (req == NULL) {
        log_info("prefill", "req=%s epoch=%u event=refused status=%d", p->head.req_id,
                 p->head.epoch, err->status);
        req_meter_end(&p->meter, REQ_FAILED);
        http_x_on_close(p->x, NULL, NULL);
        instance_reply(p->x, err);
        preq_free(p);
        return;
    }
    p->req = req;
    req->epoch = p->head.epoch;
    struct kv_peer *peer = kv_plane_find(instance_kv_plane(in), p->head.d_target);
    p->peer = peer;
    if (peer == NULL || !kv_peer_up(peer)) {
        char why[ERR_TEXT_BYTES_MAX];
        snprintf(why, sizeof(why), "%s is not linked (%s)", p->head.d_target,
                 peer != NULL ? kv_peer_text(peer) : "not a peer");
        fail_send(p, why);
        return;
    }
    if (answer_create(&p->answer, instance_endpoint(in), req) != ERR_OK) {
        fail(p, 503, out_of_memory);
        return;
    }
    unsigned block_tokens = (unsigned)engine_block_tokens(worker_engine(instance_worker(in)));
    enum err e = prefill_hold_open(&p->hold, &p->role->holds, instance_worker(in), peer, req,
                                   block_tokens, &hold_events, p);
    if (e == ERR_PEER_LOST || e == ERR_TOO_LARGE) {
        fail_send(p, err_text(e));
    } else if (e == ERR_MISMATCH) {
        fail(p, 422, "The LoRA adapter has been unloaded.");
    } else if (e != ERR_OK) {
        on_engine(p, e, err_text(e), true);
    }
}

static const char *header_of(const void *x, const char *name) {
    return http_x_header(x, name);
}

static struct preq *find_id(struct prefill *role, const char *req_id) {
    struct preq *p = role->reqs;
    while (p != NULL && strcmp(p->head.req_id, req_id) != 0) p = p->next;
    return p;
}

static void prefill_request(void *self, struct http_x *x, const struct api_path *path,
                            const char *path_model) {
    struct prefill *role = self;
    struct pd_head head;
    struct errbuf eb = {0};
    if (pd_head_read(&head, header_of, x, &eb) != ERR_OK) {
        instance_reply_error(role->in, x, path, 400, eb.text);
        return;
    }
    struct preq *old = find_id(role, head.req_id);
    if (old != NULL && old->head.epoch >= head.epoch) {
        instance_reply_error(
            role->in, x, path, 500,
            "Failed to enqueue inferRequest. Runtime request has been used before.");
        return;
    }
    if (old != NULL) fail(old, 424, "stopped"); /* a newer attempt takes its place */
    struct preq *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        instance_reply_error(role->in, x, path, 503, out_of_memory);
        return;
    }
    p->role = role;
    p->x = x;
    p->path = path;
    p->head = head;
    p->arrival_ms = clock_ms();
    req_meter_begin(&p->meter, instance_meters(role->in), clock_us());
    p->next = role->reqs;
    p->at = &role->reqs;
    if (p->next != NULL) p->next->at = &p->next;
    role->reqs = p;
    http_x_on_close(x, on_client_gone, p);
    enum err e = req_read_start(&p->reading, role->in, x, path, path_model, head.req_id,
                                head.is_recompute, on_read, p);
    if (e != ERR_OK) on_engine(p, e, err_text(e), true);
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
        int64_t limit_s = p->req != NULL && p->req->timeout_s > 0 && p->req->timeout_s < server_s
                              ? p->req->timeout_s
                              : server_s;
        if (now - p->arrival_ms >= (uint64_t)limit_s * 1000)
            fail(p, 424, "Engine callback timeout.");
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

static bool prefill_stop_request(void *self, const char *id) {
    struct prefill *role = self;
    struct preq *p = find_id(role, id);
    for (struct preq *q = role->reqs; p == NULL && q != NULL; q = q->next) {
        if (q->req != NULL && q->req->client_id != NULL && strcmp(q->req->client_id, id) == 0)
            p = q;
    }
    if (p == NULL) return false;
    req_meter_end(&p->meter, REQ_CANCELLED);
    fail(p, 424, "stopped");
    return true;
}

static void prefill_load(void *self, struct role_load *out) {
    const struct prefill *role = self;
    unsigned n_open = 0;
    *out = (struct role_load){0};
    for (const struct preq *p = role->reqs; p != NULL; p = p->next) {
        if (p->hold != NULL) n_open++;
        if (p->has_token) {
            out->leases++;
        } else if (p->admitted) {
            out->running++;
        } else {
            out->waiting++;
        }
    }
    out->leases += role->holds.n - n_open; /* dropped, not yet given back */
}

static void prefill_abort_all(void *self, enum err why) {
    struct prefill *role = self;
    while (role->reqs != NULL)
        fail(role->reqs, err_http_status(why) == 503 ? 503 : 500, err_text(why));
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
