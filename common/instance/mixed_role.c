/* mixed_role: one instance serves a request alone: body, engine, answer, in one process. In
 * standard mode all requests, in a cluster those that a client sends to a flex instance itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_tensors.h"
#include "common/instance/instance.h"
#include "common/instance/req_read.h"
#include "common/instance/req_set.h"

/* One prompt of the request: a sequence of its own. */
struct lane {
    struct flight *fl;
    struct infer_req *req;
    struct req_seq *seq; /* NULL: not in the engine */
};

struct flight {
    struct inst_req of; /* first */
    struct instance *in;
    struct http_x *x;
    const struct api_path *path;
    char req_id[64];
    char tenant[TENANT_BYTES_MAX + 1];
    struct req_read *reading; /* until the body is read */
    struct infer_req *req;
    struct answer *answer;
    struct lane *lanes; /* [n_lanes] */
    uint32_t n_lanes;
    bool streaming; /* the head of a 200 is out */
    bool admitted;  /* it has a slot of the batch */
    uint64_t sent_ms;
    struct buf out;
};

static const struct req_kind kind;

/* Its exchange has its answer, or is gone. */
static void flight_end(struct flight *fl, enum req_end how, const char *event, int status) {
    if (status != 0)
        req_end(&fl->of, how, event, "status=%d", status);
    else
        req_end(&fl->of, how, event, "tokens=%d",
                fl->answer != NULL ? answer_n_tokens(fl->answer) : 0);
    for (uint32_t i = 0; i < fl->n_lanes; i++) req_seq_drop(&fl->lanes[i].seq, ERR_CANCELLED, "");
    req_read_cancel(&fl->reading);
    answer_destroy(&fl->answer);
    infer_req_destroy(&fl->req);
    buf_free(&fl->out);
    free(fl->lanes);
    free(fl);
}

static void on_client_gone(void *arg) {
    flight_end(arg, REQ_CANCELLED, "client_gone", 0);
}

static void fail(struct flight *fl, int status, const char *text) {
    struct http_x *x = fl->x;
    http_x_on_close(x, NULL, NULL);
    if (fl->streaming && api_framings[fl->path->frames].trailers) {
        http_x_stream_fail(x, status, text, strlen(text));
    } else if (fl->streaming) {
        buf_forgive(&fl->out);
        answer_error(fl->answer, status, text, &fl->out);
        if (fl->out.failed) {
            http_x_abort(x); /* no proper end: the client must not take it for whole */
        } else {
            http_x_stream_write(x, fl->out.data, fl->out.len);
            http_x_stream_end(x);
        }
    } else {
        instance_reply_error(fl->in, x, fl->path, status, text);
    }
    flight_end(fl, req_end_of(status), "failed", status);
}

/* The head of a stream. */
static void begin(struct flight *fl) {
    if (fl->streaming) return;
    fl->streaming = true;
    http_x_set_header(fl->x, "Cache-Control", "no-cache");
    http_x_stream_begin(fl->x, 200, answer_content_type(fl->answer));
}

/* Sends what is in fl->out; ends the exchange and the flight when the answer is complete. */
static void send_piece(struct flight *fl, bool complete) {
    struct http_x *x = fl->x;
    if (fl->out.failed) {
        fail(fl, 503, "out of memory");
        return;
    }
    if (fl->req->answer.stream) {
        if (complete || fl->out.len > 0) begin(fl);
        if (fl->out.len > 0) {
            fl->sent_ms = clock_ms();
            http_x_stream_write(x, fl->out.data, fl->out.len);
        }
        buf_clear(&fl->out);
        if (!complete) return;
        http_x_on_close(x, NULL, NULL);
        http_x_stream_end(x);
    } else {
        if (!complete) return;
        http_x_on_close(x, NULL, NULL);
        if (fl->path->frames == API_FRAMES_TENSORS)
            http_tensors_reply(x, answer_content_type(fl->answer), fl->out.data, fl->out.len);
        else
            http_x_reply(x, 200, answer_content_type(fl->answer), fl->out.data, fl->out.len);
    }
    flight_end(fl, REQ_ANSWERED, "finished", 0);
}

static void on_token(void *arg, const struct token_event *ev) {
    struct lane *lane = arg;
    struct flight *fl = lane->fl;
    fl->of.last_token_ms = clock_ms();
    if (ev->index == 0 && ev->choice == 0)
        lane->req->measured.prefill_us =
            lane->req->sampling.beam ? ev->step_us : clock_us() - lane->req->head.arrival_us;
    if (ev->finish == FINISH_ERROR) {
        fail(fl, 500, "Failed to get engine response.");
        return;
    }
    req_meter_token(&fl->of.meter, lane->req, ev);
    enum finish fin = answer_token(fl->answer, lane->req->head.part, ev, &fl->out);
    bool done = answer_done(fl->answer);
    if (!done && fin != FINISH_NONE && ev->finish == FINISH_NONE)
        req_seq_choice_stop(lane->seq, ev->choice); /* a stop string */
    send_piece(fl, done);
}

static void on_admitted(void *arg, const int32_t *table, int n_blocks, int n_held, int n_cached) {
    struct lane *lane = arg;
    (void)table, (void)n_blocks, (void)n_held;
    lane->fl->admitted = true;
    lane->req->measured.cached_tokens = (uint32_t)n_cached;
}

static void on_prompt_logprob(void *arg, int position, const struct token_event *ev) {
    struct lane *lane = arg;
    answer_prompt_logprob(lane->fl->answer, lane->req->head.part, position, ev);
}

static void refused(struct flight *fl, enum err e, const char *text) {
    char msg[ERR_TEXT_BYTES_MAX + 64];
    if (e == ERR_BUSY) {
        http_x_set_header(fl->x, "Retry-After", "1");
        fail(fl, 429, "Too many requests");
        return;
    }
    snprintf(msg, sizeof(msg), "Failed to enqueue inferRequest. %s", text);
    fail(fl, e == ERR_TOO_LARGE ? 424 : 500, msg);
}

static void on_refused(void *arg, enum err e, const char *text) {
    refused(((struct lane *)arg)->fl, e, text);
}

static void on_failed(void *arg, enum err e) {
    struct flight *fl = ((struct lane *)arg)->fl;
    char text[ERR_TEXT_BYTES_MAX];
    log_error("infer", "req=%s event=engine_failed err=%s", fl->req_id, err_name(e));
    int status = endpoint_engine_failure(instance_endpoint(fl->in), e, text, sizeof(text));
    fail(fl, status, text);
}

static const struct req_seq_owner owner = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_failed = on_failed,
};

static bool lanes_create(struct flight *fl) {
    uint32_t n = 0;
    for (const struct infer_req *req = fl->req; req != NULL; req = req->next_part) n++;
    if ((fl->lanes = calloc(n, sizeof(*fl->lanes))) == NULL) return false;
    fl->n_lanes = n;
    struct infer_req *req = fl->req;
    for (uint32_t i = 0; i < n; i++, req = req->next_part)
        fl->lanes[i] = (struct lane){.fl = fl, .req = req};
    return true;
}

/* False: that ended the flight. */
static bool lane_start(struct lane *lane) {
    struct flight *fl = lane->fl;
    struct instance *in = fl->in;
    struct errbuf eb = {0};
    enum err e = ERR_NO_MEMORY;
    lane->seq = req_seq_open(req_set_seqs(instance_reqs(in)), instance_worker(in),
                             instance_endpoint(in), &owner, lane);
    if (lane->seq != NULL) e = req_seq_add(lane->seq, SEQ_WHOLE, lane->req, &eb);
    if (e == ERR_MISMATCH)
        fail(fl, 422, eb.text); /* unloaded while the body was read */
    else if (e != ERR_OK)
        refused(fl, e, err_text(e));
    return e == ERR_OK;
}

static void on_read(void *arg, struct infer_req *req, struct api_answer *err) {
    struct flight *fl = arg;
    struct instance *in = fl->in;
    fl->reading = NULL;
    if (req == NULL) {
        http_x_on_close(fl->x, NULL, NULL);
        instance_reply(fl->x, err);
        flight_end(fl, req_end_of(err->status), "refused", err->status);
        return;
    }
    fl->req = req;
    fl->of.req = req;
    bool taken = req->head.client_id != NULL &&
                 req_set_find_named(instance_reqs(in), &kind, &fl->of, req->head.client_id,
                                    fl->tenant, UINT32_MAX) != NULL;
    if (taken && req->head.client_id_soft) {
        free(req->head.client_id);
        req->head.client_id = NULL;
    } else if (taken) {
        fail(fl, 500, "Failed to enqueue inferRequest. Runtime request has been used before.");
        return;
    }
    if (!buf_reserve(&fl->out, ANSWER_ERROR_BYTES) || !lanes_create(fl) ||
        answer_create(&fl->answer, instance_endpoint(in), req) != ERR_OK) {
        fail(fl, 503, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < fl->n_lanes; i++)
        if (!lane_start(&fl->lanes[i])) return;
}

/* An id that nobody can guess. False: the system has no random numbers. */
static bool next_req_id(struct instance *in, char id[64]) {
    do {
        if (!instance_next_req_id(in, id)) return false;
    } while (req_set_find_named(instance_reqs(in), &kind, NULL, id, NULL, UINT32_MAX) != NULL);
    return true;
}

static void mixed_request(void *self, struct http_x *x, const struct api_path *path,
                          const char *path_model) {
    struct instance *in = self;
    struct kept_ask ask = {0};
    if (path->chained && !kept_ask_read(instance_kept(in), x, &ask)) {
        req_meters_refused(instance_meters(in));
        return;
    }
    struct flight *fl = calloc(1, sizeof(*fl));
    if (fl == NULL || !next_req_id(in, fl->req_id)) {
        free(fl);
        kept_ask_free(instance_kept(in), &ask);
        instance_reply_error(in, x, path, 503, "out of memory");
        return;
    }
    fl->of = (struct inst_req){.kind = &kind, .id = fl->req_id, .tenant = fl->tenant};
    fl->in = in;
    fl->x = x;
    fl->path = path;
    snprintf(fl->tenant, sizeof(fl->tenant), "%s", http_x_tenant(x));
    req_begin(instance_reqs(in), &fl->of);
    req_meter_begin(&fl->of.meter, instance_meters(in), clock_us());
    fl->sent_ms = fl->of.arrival_ms;
    http_x_set_header(x, "RequestUUID", fl->req_id);
    http_x_on_close(x, on_client_gone, fl);
    kept_record(instance_kept(in), x, &ask, fl->req_id);
    const struct req_read_opts o = {.path = path,
                                    .path_model = path_model,
                                    .req_id = fl->req_id,
                                    .tenant = fl->tenant,
                                    .context = ask.context.data,
                                    .context_len = ask.context.len};
    enum err e = req_read_start(&fl->reading, in, x, &o, on_read, fl);
    kept_ask_free(instance_kept(in), &ask);
    if (e != ERR_OK) refused(fl, e, err_text(e));
}

/* ---- as a request of the instance's */

static void on_fail(struct inst_req *r, enum cause cause, int status, const char *text) {
    (void)cause; /* for coordinators */
    fail((struct flight *)r, status, text);
}

static void on_stop(struct inst_req *r) {
    struct flight *fl = (struct flight *)r;
    req_meter_end(&r->meter, REQ_CANCELLED);
    if (fl->answer == NULL) {
        fail(fl, 424, "The request was stopped.");
    } else {
        answer_abort(fl->answer, &fl->out);
        send_piece(fl, true);
    }
}

static enum req_phase phase(const struct inst_req *r) {
    return ((const struct flight *)r)->admitted ? REQ_RUNNING : REQ_WAITING;
}

/* A comment line on a stream that has been silent for so long (inference-api 5.1), also while it
 * waits or prefills: then its head goes first, and from here on an error is an event. */
static void keep_alive(struct inst_req *r, uint64_t now) {
    struct flight *fl = (struct flight *)r;
    uint64_t every_ms = (uint64_t)instance_conf(fl->in)->sse_keep_alive_s * 1000;
    if (every_ms == 0 || fl->answer == NULL || now - fl->sent_ms < every_ms) return;
    const char *line = answer_comment(fl->answer);
    if (line == NULL) return;
    begin(fl);
    fl->sent_ms = now;
    http_x_stream_write(fl->x, line, strlen(line));
}

static const struct req_kind kind = {
    .area = "infer",
    .role = ROLE_MIXED,
    .late_status = 500,
    .fail = on_fail,
    .stop = on_stop,
    .phase = phase,
    .look = keep_alive,
};

/* ---- the contract */

static enum err mixed_start(void **self, struct instance *in) {
    *self = in;
    return ERR_OK;
}

static void mixed_stop(void **self) {
    if (*self != NULL) req_set_abort(instance_reqs(*self), ROLE_MIXED, ERR_STOPPING);
    *self = NULL;
}

const struct role_ops mixed_role = {
    .role = ROLE_MIXED,
    .needs = CAN_BOTH,
    .start = mixed_start,
    .on_request = mixed_request,
    .stop = mixed_stop,
};
