/* mixed_role: standard mode. One instance serves a request alone: body, engine, answer, in one
 * process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/lora.h"
#include "common/instance/instance.h"
#include "common/instance/req_meter.h"
#include "common/instance/req_read.h"
#include "common/instance/req_trace.h"
#include "common/instance/role.h"

enum { SCAN_MS = 250 };

struct mixed;

/* One prompt of the request: a sequence of its own. */
struct lane {
    struct flight *fl;
    struct infer_req *req;
    uint64_t seq_id; /* 0: not in the engine */
};

struct flight {
    struct flight *next, **at;
    struct mixed *role;
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
    uint64_t arrival_ms, last_token_ms, sent_ms;
    struct req_meter meter;
    struct buf out;
};

struct mixed {
    struct instance *in;
    struct flight *flights;
    struct loop_timer *scan;
};

static void flight_free(struct flight *fl) {
    *fl->at = fl->next;
    if (fl->next != NULL) fl->next->at = fl->at;
    req_meter_end(&fl->meter, REQ_CANCELLED); /* unless it ended otherwise */
    req_read_cancel(&fl->reading);
    answer_destroy(&fl->answer);
    infer_req_destroy(&fl->req);
    buf_free(&fl->out);
    free(fl->lanes);
    free(fl);
}

/* Takes the sequences out of the engine, whatever their state. */
static void leave_engine(struct flight *fl) {
    for (uint32_t i = 0; i < fl->n_lanes; i++) {
        if (fl->lanes[i].seq_id == 0) continue;
        worker_cancel(instance_worker(fl->role->in), fl->lanes[i].seq_id, NULL, NULL);
        fl->lanes[i].seq_id = 0;
    }
}

static void on_client_gone(void *arg) {
    struct flight *fl = arg;
    log_info("infer", "req=%s event=client_gone", fl->req_id);
    leave_engine(fl);
    flight_free(fl);
}

static void fail(struct flight *fl, int status, const char *text) {
    struct http_x *x = fl->x;
    leave_engine(fl);
    req_meter_end(&fl->meter, req_end_of(status));
    http_x_on_close(x, NULL, NULL);
    log_info("infer", "req=%s event=failed status=%d %s", fl->req_id, status,
             req_trace_fields(fl->req));
    if (fl->streaming) {
        buf_forgive(&fl->out);
        answer_error(fl->answer, status, text, &fl->out);
        if (fl->out.failed) {
            http_x_abort(x); /* no proper end: the client must not take it for whole */
        } else {
            http_x_stream_write(x, fl->out.data, fl->out.len);
            http_x_stream_end(x);
        }
    } else {
        instance_reply_error(fl->role->in, x, fl->path, status, text);
    }
    flight_free(fl);
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
        http_x_reply(x, 200, answer_content_type(fl->answer), fl->out.data, fl->out.len);
    }
    leave_engine(fl);
    req_meter_end(&fl->meter, REQ_ANSWERED);
    log_info("infer", "req=%s event=finished tokens=%d %s", fl->req_id, answer_n_tokens(fl->answer),
             req_trace_fields(fl->req));
    flight_free(fl);
}

static void on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct lane *lane = arg;
    struct flight *fl = lane->fl;
    fl->last_token_ms = clock_ms();
    if (ev->index == 0 && ev->choice == 0)
        lane->req->measured.prefill_us =
            lane->req->sampling.beam ? ev->step_us : clock_us() - lane->req->head.arrival_us;
    if (ev->finish == FINISH_ERROR) {
        fail(fl, 500, "Failed to get engine response.");
        return;
    }
    req_meter_token(&fl->meter, lane->req, ev);
    enum finish fin = answer_token(fl->answer, lane->req->head.part, ev, &fl->out);
    bool done = answer_done(fl->answer);
    if (!done && fin != FINISH_NONE && ev->finish == FINISH_NONE)
        worker_choice_stop(instance_worker(fl->role->in), seq_id, ev->choice); /* a stop string */
    send_piece(fl, done);
}

static void on_admitted(void *arg, uint64_t seq_id, const int32_t *table, int n_blocks, int n_held,
                        int n_cached) {
    struct lane *lane = arg;
    (void)seq_id, (void)table, (void)n_blocks, (void)n_held;
    lane->fl->admitted = true;
    lane->req->measured.cached_tokens = (uint32_t)n_cached;
}

static void on_prompt_logprob(void *arg, uint64_t seq_id, int position,
                              const struct token_event *ev) {
    struct lane *lane = arg;
    (void)seq_id;
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

static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct lane *lane = arg;
    (void)seq_id;
    lane->seq_id = 0;
    refused(lane->fl, e, text);
}

static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct lane *lane = arg;
    (void)seq_id;
    char text[ERR_TEXT_BYTES_MAX];
    log_error("infer", "req=%s event=engine_failed err=%s", lane->fl->req_id, err_name(e));
    lane->seq_id = 0;
    int status =
        endpoint_engine_failure(instance_endpoint(lane->fl->role->in), e, text, sizeof(text));
    fail(lane->fl, status, text);
}

static const struct worker_events events = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_failed = on_failed,
};

/* Another request than self of the tenant's owner (NULL: of anybody), by its own or its client's
 * id. */
static struct flight *find_id(const struct mixed *m, const struct flight *self, const char *id,
                              const char *tenant) {
    for (struct flight *fl = m->flights; fl != NULL; fl = fl->next) {
        if (fl == self || (tenant != NULL && !tenant_same_owner(fl->tenant, tenant))) continue;
        const char *client_id = fl->req != NULL ? fl->req->head.client_id : NULL;
        if (strcmp(fl->req_id, id) == 0 || (client_id != NULL && strcmp(client_id, id) == 0))
            return fl;
    }
    return NULL;
}

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
    const struct infer_req *req = lane->req;
    struct worker *w = instance_worker(fl->role->in);
    struct errbuf eb = {0};
    struct lora *lora;
    if (worker_adapter(w, req, &lora, &eb) != ERR_OK) {
        fail(fl, 422, eb.text); /* unloaded while the body was read */
        return false;
    }
    lane->seq_id = worker_next_seq_id(w);
    struct seq_opts o = {.seq_id = lane->seq_id,
                         .kind = SEQ_WHOLE,
                         .ids = req->ids,
                         .n_ids = req->n_ids,
                         .n_prompt = req->n_prompt,
                         .sampling = &req->sampling,
                         .priority = req->head.priority,
                         .tenant = worker_tenant(req),
                         .prefix_salt = worker_prefix_salt(w, req),
                         .lora = lora};
    enum err e = endpoint_guide_start(instance_endpoint(fl->role->in), req, &o.guide);
    if (e == ERR_OK) e = worker_add(w, &o, &events, lane);
    if (o.guide.ops != NULL) o.guide.ops->free(o.guide.state);
    lora_unref(&lora);
    if (e == ERR_OK) return true;
    lane->seq_id = 0;
    refused(fl, e, err_text(e));
    return false;
}

static void on_read(void *arg, struct infer_req *req, struct api_answer *err) {
    struct flight *fl = arg;
    struct instance *in = fl->role->in;
    fl->reading = NULL;
    if (req == NULL) {
        req_meter_end(&fl->meter, req_end_of(err->status));
        http_x_on_close(fl->x, NULL, NULL);
        instance_reply(fl->x, err);
        flight_free(fl);
        return;
    }
    fl->req = req;
    bool taken = req->head.client_id != NULL &&
                 find_id(fl->role, fl, req->head.client_id, fl->tenant) != NULL;
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
static bool next_req_id(struct mixed *m, struct flight *fl) {
    do {
        if (!instance_next_req_id(m->in, fl->req_id)) return false;
    } while (find_id(m, fl, fl->req_id, NULL) != NULL);
    return true;
}

static void mixed_request(void *self, struct http_x *x, const struct api_path *path,
                          const char *path_model) {
    struct mixed *m = self;
    struct flight *fl = calloc(1, sizeof(*fl));
    if (fl == NULL) {
        instance_reply_error(m->in, x, path, 503, "out of memory");
        return;
    }
    fl->role = m;
    fl->x = x;
    fl->path = path;
    fl->arrival_ms = fl->last_token_ms = fl->sent_ms = clock_ms();
    req_meter_begin(&fl->meter, instance_meters(m->in), clock_us());
    fl->next = m->flights;
    fl->at = &m->flights;
    if (fl->next != NULL) fl->next->at = &fl->next;
    m->flights = fl;
    snprintf(fl->tenant, sizeof(fl->tenant), "%s", http_x_tenant(x));
    if (!next_req_id(m, fl)) {
        fail(fl, 503, "out of memory");
        return;
    }
    http_x_set_header(x, "RequestUUID", fl->req_id);
    http_x_on_close(x, on_client_gone, fl);
    const struct req_read_opts o = {
        .path = path, .path_model = path_model, .req_id = fl->req_id, .tenant = fl->tenant};
    enum err e = req_read_start(&fl->reading, m->in, x, &o, on_read, fl);
    if (e != ERR_OK) refused(fl, e, err_text(e));
}

/* A comment line on a stream that has been silent for so long (inference-api 5.1), also while it
 * waits or prefills: then its head goes first, and from here on an error is an event. */
static void keep_alive(struct flight *fl, uint64_t now, uint64_t every_ms) {
    if (every_ms == 0 || fl->answer == NULL || now - fl->sent_ms < every_ms) return;
    const char *line = answer_comment(fl->answer);
    if (line == NULL) return;
    begin(fl);
    fl->sent_ms = now;
    http_x_stream_write(fl->x, line, strlen(line));
}

/* tokenTimeout: silence between two tokens; e2eTimeout and the request's own timeout: the whole
 * (inference-api 4.8). */
static void on_scan(void *arg) {
    struct mixed *m = arg;
    const struct inst_conf *c = instance_conf(m->in);
    uint64_t now = clock_ms();
    for (struct flight *fl = m->flights, *next; fl != NULL; fl = next) {
        next = fl->next;
        uint64_t own = fl->req != NULL && fl->req->head.timeout_s > 0
                           ? (uint64_t)fl->req->head.timeout_s * 1000
                           : UINT64_MAX;
        uint64_t wait =
            now - (fl->req != NULL && fl->req->answer.stream ? fl->last_token_ms : fl->arrival_ms);
        if (wait >= own) {
            fail(fl, 500, "Engine callback timeout: client timeout");
        } else if (wait >= (uint64_t)c->token_timeout_s * 1000) {
            fail(fl, 500, "Engine callback timeout: server tokenTimeout");
        } else if (now - fl->arrival_ms >= (uint64_t)c->e2e_timeout_s * 1000) {
            fail(fl, 500, "Engine callback timeout: server e2eTimeout");
        } else {
            keep_alive(fl, now, (uint64_t)c->sse_keep_alive_s * 1000);
        }
    }
}

static enum err mixed_start(void **self, struct instance *in) {
    struct mixed *m = calloc(1, sizeof(*m));
    *self = NULL;
    if (m == NULL) return ERR_NO_MEMORY;
    m->in = in;
    enum err e = loop_timer_start(&m->scan, instance_loop(in), SCAN_MS, SCAN_MS, on_scan, m);
    if (e != ERR_OK) {
        free(m);
        return e;
    }
    *self = m;
    return ERR_OK;
}

static bool mixed_stop_request(void *self, const char *id, const char *tenant, uint32_t epoch) {
    (void)epoch; /* it has but one attempt of a request */
    struct flight *fl = find_id(self, NULL, id, tenant);
    if (fl == NULL) return false;
    leave_engine(fl);
    req_meter_end(&fl->meter, REQ_CANCELLED);
    if (fl->answer == NULL) {
        fail(fl, 424, "The request was stopped.");
    } else {
        answer_abort(fl->answer, &fl->out);
        send_piece(fl, true);
    }
    return true;
}

static void mixed_load(void *self, struct role_load *out) {
    struct mixed *m = self;
    memset(out, 0, sizeof(*out));
    for (struct flight *fl = m->flights; fl != NULL; fl = fl->next) {
        if (fl->admitted) {
            out->running++;
        } else {
            out->waiting++;
        }
    }
}

static void mixed_abort_all(void *self, enum err why) {
    struct mixed *m = self;
    while (m->flights != NULL)
        fail(m->flights, err_http_status(why) == 503 ? 503 : 500, err_text(why));
}

static void mixed_stop(void **self) {
    struct mixed *m = *self;
    if (m == NULL) return;
    mixed_abort_all(m, ERR_STOPPING);
    loop_timer_stop(&m->scan);
    free(m);
    *self = NULL;
}

const struct role_ops mixed_role = {
    .role = ROLE_MIXED,
    .start = mixed_start,
    .on_request = mixed_request,
    .stop_request = mixed_stop_request,
    .load = mixed_load,
    .abort_all = mixed_abort_all,
    .stop = mixed_stop,
};
