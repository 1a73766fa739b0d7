/* fake_instance: see fake_instance.h. */
#include "tests/unit/fakes/fake_instance.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- endpoint: bodies */

static bool parse_body(const char *body, struct infer_req *r, int32_t *stop) {
    int stream, max, stop_id, lp, timeout, at = 0;
    if (sscanf(body, "%d %d %d %d %d :%n", &stream, &max, &stop_id, &lp, &timeout, &at) != 5 ||
        at == 0)
        return false;
    r->stream = stream != 0;
    r->sampling.new_tokens_max = max;
    r->sampling.prompt_logprobs = lp != 0;
    r->timeout_s = timeout;
    *stop = stop_id;
    r->ids = calloc(strlen(body) + 1, sizeof(*r->ids));
    assert(r->ids != NULL);
    const char *p = body + at;
    int id, n;
    while (sscanf(p, "%d%n", &id, &n) == 1) {
        r->ids[r->n_ids++] = id;
        p += n;
    }
    r->n_prompt = r->n_ids;
    return r->n_ids > 0;
}

static void set_error(struct api_answer *a, int status, const char *text) {
    *a = (struct api_answer){.status = status, .content_type = "application/json"};
    buf_printf(&a->body, "{\"error\":\"%s\"}", text);
}

bool endpoint_read(const struct endpoint *ep, const struct endpoint_in *in, struct infer_req **out,
                   struct api_answer *err) {
    (void)ep;
    int32_t stop = -1;
    struct infer_req *r = infer_req_create();
    assert(r != NULL);
    *out = NULL;
    if (!parse_body(in->body, r, &stop)) {
        infer_req_destroy(&r);
        set_error(err, 422, "bad body");
        return false;
    }
    r->req_id = strdup(in->req_id);
    r->api = in->path->api;
    r->is_recompute = in->is_recompute;
    r->arrival_us = in->arrival_us;
    r->sampling.seed = in->random_seed;
    if (stop >= 0) { /* travels as a stop string */
        char text[16];
        snprintf(text, sizeof(text), "%d", stop);
        r->stop = calloc(1, sizeof(*r->stop));
        assert(r->stop != NULL);
        r->stop[0] = strdup(text);
        r->n_stop = 1;
    }
    *out = r;
    return true;
}

enum err endpoint_guide_compile(const struct endpoint *ep, const char *guide,
                                struct endpoint_guide *out, struct errbuf *eb) {
    (void)ep, (void)guide, (void)eb;
    *out = (struct endpoint_guide){0};
    return ERR_OK;
}

void endpoint_guide_keep(struct infer_req *req, struct endpoint_guide *g) {
    (void)req, (void)g;
}

void endpoint_guide_drop(struct endpoint_guide *g) {
    (void)g;
}

enum err endpoint_guide_start(const struct infer_req *req, struct token_guide *out) {
    (void)req;
    *out = (struct token_guide){0};
    return ERR_OK;
}

void endpoint_error(const struct endpoint *ep, const struct api_path *path, int status,
                    const char *text, struct api_answer *out) {
    (void)ep, (void)path;
    set_error(out, status, text);
}

/* ---- endpoint: answers */

struct answer {
    const struct infer_req *req;
    int n;
    double prompt_logprobs;
    bool done;
    struct buf kept; /* held back */
};

enum err answer_create(struct answer **out, const struct endpoint *ep,
                       const struct infer_req *req) {
    (void)ep;
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) return ERR_NO_MEMORY;
    (*out)->req = req;
    return ERR_OK;
}
void answer_destroy(struct answer **a) {
    if (*a == NULL) return;
    buf_free(&(*a)->kept);
    free(*a);
    *a = NULL;
}
const char *answer_content_type(const struct answer *a) {
    return a->req->stream ? "text/event-stream" : "application/json";
}
static void end_answer(struct answer *a, const char *reason, struct buf *out) {
    buf_printf(&a->kept, "(%d:%s:%g)", a->n, reason, a->prompt_logprobs);
    buf_append(out, a->kept.data, a->kept.len);
    buf_clear(&a->kept);
}
enum finish answer_token(struct answer *a, uint32_t part, const struct token_event *ev,
                         struct buf *out) {
    (void)part;
    enum finish fin = ev->finish;
    a->n++;
    buf_printf(&a->kept, "<%d>", (int)ev->id);
    if (a->req->n_stop > 0 && atoi(a->req->stop[0]) == ev->id) fin = FINISH_STOP_STRING;
    if (fin != FINISH_NONE) {
        a->done = true;
        end_answer(a, fin == FINISH_LENGTH ? "length" : "stop", out);
    } else if (a->req->stream && ev->id % 3 != 0) {
        buf_append(out, a->kept.data, a->kept.len);
        buf_clear(&a->kept);
    }
    return fin;
}
bool answer_done(const struct answer *a) {
    return a->done;
}
void answer_prompt_logprob(struct answer *a, uint32_t part, int position,
                           const struct token_event *ev) {
    (void)part;
    a->prompt_logprobs += position * (double)ev->logprob;
}
void answer_abort(struct answer *a, struct buf *out) {
    end_answer(a, "abort", out);
}
void answer_error(struct answer *a, int status, const char *text, struct buf *out) {
    (void)a;
    buf_printf(out, "event: %d %s", status, text);
}
int answer_n_tokens(const struct answer *a) {
    return a->n;
}

void fake_expected(const char *body, int block_tokens, struct buf *out, int32_t *tokens,
                   size_t *n) {
    struct infer_req *r = infer_req_create();
    struct answer *a = NULL;
    int32_t stop = -1;
    assert(r != NULL && parse_body(body, r, &stop));
    char text[16], *stops[1] = {text};
    snprintf(text, sizeof(text), "%d", stop);
    r->stop = stop >= 0 ? stops : NULL;
    r->n_stop = stop >= 0;
    assert(answer_create(&a, NULL, r) == ERR_OK);
    for (size_t i = 1; i < r->n_prompt && r->sampling.prompt_logprobs; i++)
        answer_prompt_logprob(a, 0, (int)i, &(struct token_event){.logprob = -(float)i});
    *n = 0;
    for (enum finish fin = FINISH_NONE; fin == FINISH_NONE;) {
        struct token_event ev = {
            .id = fake_token(r->ids, r->n_ids, r->n_prompt, block_tokens, tokens, *n)};
        tokens[(*n)++] = ev.id;
        if (ev.id == FAKE_EOS) {
            ev.finish = FINISH_EOS;
        } else if (*n >= (size_t)r->sampling.new_tokens_max) {
            ev.finish = FINISH_LENGTH;
        }
        fin = answer_token(a, 0, &ev, out);
    }
    answer_destroy(&a);
    r->stop = NULL;
    r->n_stop = 0;
    infer_req_destroy(&r);
}

/* ---- instance.h */

struct loop *instance_loop(struct instance *in) {
    return in->loop;
}
const struct inst_conf *instance_conf(const struct instance *in) {
    return &in->conf;
}
const struct endpoint *instance_endpoint(const struct instance *in) {
    (void)in;
    return NULL;
}
struct worker *instance_worker(struct instance *in) {
    return in->worker;
}
struct text_pool *instance_text_pool(struct instance *in) {
    return in->text_pool;
}
struct kv_plane *instance_kv_plane(struct instance *in) {
    return in->kv_plane;
}
struct dresult_out *instance_dresult(struct instance *in) {
    return in->dresult;
}
struct req_meters *instance_meters(struct instance *in) {
    (void)in;
    return NULL; /* counts nothing */
}
uint32_t instance_id(const struct instance *in) {
    return in->id;
}
bool instance_stopping(const struct instance *in) {
    return in->stopping;
}
uint64_t instance_random(struct instance *in) {
    return ++in->n_random;
}
void instance_reply(struct http_x *x, struct api_answer *a) {
    http_x_reply(x, a->status, a->content_type, a->body.data, a->body.len);
    buf_free(&a->body);
}
void instance_reply_error(struct instance *in, struct http_x *x, const struct api_path *path,
                          int status, const char *text) {
    struct api_answer a;
    (void)in;
    endpoint_error(NULL, path, status, text, &a);
    instance_reply(x, &a);
}

/* ---- life */

static void on_request(void *arg, struct http_x *x) {
    struct instance *in = arg;
    if (strcmp(http_x_path(x), "/dresult") == 0) {
        dresult_out_listen(in->dresult, x);
        return;
    }
    const struct api_path *path = api_paths;
    while (path->api != API_OPENAI_COMPLETIONS) path++;
    in->ops->on_request(in->role, x, path, "");
}
static size_t body_max(void *arg, const char *method, const char *path) {
    (void)arg, (void)method, (void)path;
    return 1 << 20;
}

void fake_instance_open(struct instance *in, struct loop *loop, const struct role_ops *ops,
                        uint32_t id, const struct fake_engine_opts *eo) {
    struct errbuf eb;
    *in = (struct instance){.loop = loop, .ops = ops, .id = id};
    in->conf.token_timeout_s = in->conf.e2e_timeout_s = 600;
    in->conf.listener_grace_s = 30;
    struct engine *e = in->engine = fake_engine_create(eo);
    enum err err = worker_open(&in->worker, loop, &e, 256);
    if (err == ERR_OK) err = text_pool_open(&in->text_pool, loop, 2, 64);
    if (err == ERR_OK) err = dresult_out_create(&in->dresult, loop);
    struct kv_plane_opts o;
    kv_plane_opts_default(&o);
    kv_plane_opts_of_engine(&o, worker_engine(in->worker));
    o.loop = loop;
    o.bind_ip = "127.0.0.1";
    o.heartbeat_ms = 100;
    o.misses_max = 20;
    o.backoff_ms = o.backoff_ms_max = 50;
    if (err == ERR_OK) err = kv_plane_open(&in->kv_plane, &o, &eb);
    struct http_server_opts so = {.host = "127.0.0.1",
                                  .conns_max = 256,
                                  .head_bytes_max = 16384,
                                  .idle_ms = 60000,
                                  .read_ms = 60000,
                                  .write_ms = 60000,
                                  .stream_pending_max = 64 << 20,
                                  .body_bytes_max = body_max,
                                  .on_request = on_request,
                                  .arg = in};
    if (err == ERR_OK) err = http_server_open(&in->server, loop, &so, &eb);
    if (err == ERR_OK) err = ops->start(&in->role, in);
    assert(err == ERR_OK);
}

void fake_instance_want(struct instance *in, const struct instance *peer) {
    struct role_node n = {.server_ip = "127.0.0.1",
                          .host_ip = "127.0.0.1",
                          .has_id = true,
                          .id = peer->id,
                          .inter_comm_port = kv_plane_port(peer->kv_plane)};
    enum err e = kv_plane_want(in->kv_plane, in->ops->role, in->id, &n, 1);
    assert(e == ERR_OK);
    (void)e;
}

void fake_instance_close(struct instance *in) {
    if (in->role != NULL) in->ops->stop(&in->role);
    http_server_close(&in->server);
    dresult_out_destroy(&in->dresult);
    text_pool_close(&in->text_pool);
    kv_plane_close(&in->kv_plane);
    worker_close(&in->worker);
}
