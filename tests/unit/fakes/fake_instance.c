/* fake_instance: see fake_instance.h. */
#include "tests/unit/fakes/fake_instance.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- endpoint: bodies */

/* One prompt's ids; returns what stands behind them, NULL: there are none. */
static const char *parse_ids(const char *p, struct infer_req *r) {
    int id, n;
    r->ids = calloc(strlen(p) + 1, sizeof(*r->ids));
    assert(r->ids != NULL);
    while (sscanf(p, "%d%n", &id, &n) == 1) {
        r->ids[r->n_ids++] = id;
        p += n;
    }
    r->n_prompt = r->n_ids;
    return r->n_ids > 0 ? p + strspn(p, " ") : NULL;
}

/* The head of the body, for each part of the chain. */
static bool parse_head(const char *body, struct infer_req *r, const char **ids) {
    int stream, max, stop_id, lp, timeout, at = 0, choices = 1;
    if (sscanf(body, "%d %d %d %d %d%n", &stream, &max, &stop_id, &lp, &timeout, &at) != 5)
        return false;
    body += at;
    if (sscanf(body, " *%d%n", &choices, &at) == 1) body += at;
    body += strspn(body, " ");
    r->sampling.beam = *body == '%';
    if (r->sampling.beam) body++;
    if (*body != ':') return false;
    *ids = body + 1;
    r->answer.stream = stream != 0;
    r->sampling.new_tokens_max = max;
    r->sampling.prompt_logprobs = lp != 0;
    r->sampling.n_choices = r->answer.n = choices;
    r->head.timeout_s = timeout;
    if (stop_id >= 0) { /* travels as a stop string */
        char text[16];
        snprintf(text, sizeof(text), "%d", stop_id);
        r->stop = calloc(1, sizeof(*r->stop));
        assert(r->stop != NULL);
        r->stop[0] = strdup(text);
        r->n_stop = 1;
    }
    return true;
}

/* The chain of parts; NULL: a bad body. */
static struct infer_req *parse_body(const char *body) {
    struct infer_req *first = NULL, **last = &first;
    const char *p = body, *ids;
    uint32_t n = 0;
    for (bool more = true; more; n++) {
        struct infer_req *r = infer_req_create();
        assert(r != NULL);
        *last = r;
        last = &r->next_part;
        r->head.part = n;
        if (!parse_head(body, r, &ids) || (p = parse_ids(n == 0 ? ids : p + 1, r)) == NULL) {
            infer_req_destroy(&first);
            return NULL;
        }
        more = *p == '|';
    }
    for (struct infer_req *r = first; r != NULL; r = r->next_part) r->head.n_parts = n;
    return first;
}

static void set_error(struct api_answer *a, int status, const char *text) {
    *a = (struct api_answer){.status = status, .content_type = "application/json"};
    buf_printf(&a->body, "{\"error\":\"%s\"}", text);
}

bool endpoint_read(const struct endpoint *ep, const struct endpoint_in *in, struct infer_req **out,
                   struct api_answer *err) {
    (void)ep;
    struct infer_req *first = *out = parse_body(in->body);
    if (first == NULL) {
        set_error(err, 422, "bad body");
        return false;
    }
    for (struct infer_req *r = first; r != NULL; r = r->next_part) {
        r->head.req_id = strdup(in->req_id);
        r->answer.api = in->path->api;
        r->head.is_recompute = in->is_recompute;
        r->head.arrival_us = in->arrival_us;
        r->sampling.seed = in->random_seed;
        r->head.created_unix_s = in->created_unix_s;
    }
    return true;
}

enum err endpoint_guide_compile(const struct endpoint *ep, const char *guide,
                                const atomic_bool *cancelled, struct endpoint_guide *out,
                                struct errbuf *eb) {
    (void)ep, (void)guide, (void)cancelled, (void)eb;
    *out = (struct endpoint_guide){0};
    return ERR_OK;
}

void endpoint_guide_keep(struct infer_req *req, struct endpoint_guide *g) {
    (void)req, (void)g;
}

void endpoint_guide_drop(struct endpoint_guide *g) {
    (void)g;
}

enum err endpoint_guide_start(const struct endpoint *ep, const struct infer_req *req,
                              struct token_guide *out) {
    (void)ep, (void)req;
    *out = (struct token_guide){0};
    return ERR_OK;
}

int endpoint_engine_failure(const struct endpoint *ep, enum err e, char *text, size_t n) {
    (void)ep, (void)e;
    snprintf(text, n, "Failed to get engine response.");
    return 500;
}

void endpoint_error(const struct endpoint *ep, const struct api_path *path, int status,
                    const char *text, struct api_answer *out) {
    (void)ep, (void)path;
    set_error(out, status, text);
}

void endpoint_req_error(const struct endpoint *ep, const struct infer_req *req, int status,
                        const char *text, struct api_answer *out) {
    (void)ep, (void)req;
    set_error(out, status, text);
}

/* ---- endpoint: answers */

int fake_answer_fails_at;
atomic_int fake_replay_waits_at, fake_replay_waits;
pthread_mutex_t fake_replay_gate = PTHREAD_MUTEX_INITIALIZER;

struct said { /* by one choice */
    int n, n_out, n_told;
    bool done;
    enum finish finish;
    struct buf kept; /* held back */
    int32_t ids[4096];
};

struct answer {
    const struct infer_req *req;
    uint32_t n_parts, n_choices;
    bool here[PARTS_MAX];
    struct said *said; /* [n_parts][n_choices] */
    double prompt_logprobs;
};

static bool several(const struct answer *a) {
    return a->n_parts * a->n_choices > 1;
}

enum err answer_add_part(struct answer *a, const struct infer_req *req) {
    if (req->head.part >= a->n_parts || req->head.n_parts != a->n_parts) return ERR_INVALID;
    if (a->here[req->head.part]) return ERR_CONFLICT;
    a->here[req->head.part] = true;
    return ERR_OK;
}
enum err answer_create(struct answer **out, const struct endpoint *ep,
                       const struct infer_req *req) {
    (void)ep;
    *out = NULL;
    if (fake_answer_fails_at > 0 && --fake_answer_fails_at == 0) return ERR_NO_MEMORY;
    struct answer *a = *out = calloc(1, sizeof(**out));
    if (a == NULL) return ERR_NO_MEMORY;
    a->req = req;
    a->n_parts = req->head.n_parts;
    a->n_choices = (uint32_t)req->sampling.n_choices;
    a->said = calloc((size_t)a->n_parts * a->n_choices, sizeof(*a->said));
    assert(a->said != NULL);
    for (; req != NULL; req = req->next_part) {
        enum err e = answer_add_part(a, req);
        assert(e == ERR_OK);
        (void)e;
    }
    return ERR_OK;
}
void answer_destroy(struct answer **ap) {
    struct answer *a = *ap;
    if (a == NULL) return;
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++) buf_free(&a->said[i].kept);
    free(a->said);
    free(a);
    *ap = NULL;
}
const char *answer_content_type(const struct answer *a) {
    return a->req->answer.stream ? "text/event-stream" : "application/json";
}
const char *answer_comment(const struct answer *a) {
    return a->req->answer.stream ? FAKE_COMMENT : NULL;
}
bool answer_done(const struct answer *a) {
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++)
        if (!a->said[i].done) return false;
    return true;
}
static void let_out(struct said *s, struct buf *out) {
    buf_append(out, s->kept.data != NULL ? s->kept.data : "", s->kept.len);
    buf_clear(&s->kept);
}
static void say_end(struct answer *a, struct said *s, enum finish fin) {
    const char *reason = fin == FINISH_LENGTH ? "length" : fin == FINISH_ABORT ? "abort" : "stop";
    s->done = true;
    s->finish = fin;
    if (several(a))
        buf_printf(&s->kept, "(%d:%s)", s->n, reason);
    else
        buf_printf(&s->kept, "(%d:%s:%g)", s->n, reason, a->prompt_logprobs);
}
static void end_answer(struct answer *a, struct said *s, enum finish fin, struct buf *out) {
    say_end(a, s, fin);
    if (a->req->answer.stream) let_out(s, out);
    if (a->req->answer.stream) s->n_out = s->n;
    if (!answer_done(a)) return;
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++) let_out(&a->said[i], out);
    if (several(a)) buf_printf(out, "[end:%g]", a->prompt_logprobs);
}
int fake_pad_bytes;
static void say_token(struct answer *a, struct said *s, int32_t id) {
    const uint32_t lane = (uint32_t)(s - a->said);
    s->ids[s->n++] = id;
    if (several(a)) buf_printf(&s->kept, "%u.%u", lane / a->n_choices, lane % a->n_choices);
    buf_printf(&s->kept, "<%d>%*s", (int)id, fake_pad_bytes, "");
}
enum finish answer_token(struct answer *a, uint32_t part, const struct token_event *ev,
                         struct buf *out) {
    assert(part < a->n_parts && a->here[part] && (uint32_t)ev->choice < a->n_choices);
    struct said *s = &a->said[part * a->n_choices + (uint32_t)ev->choice];
    enum finish fin = ev->finish;
    assert(!s->done && ev->index == s->n); /* in order, and nothing after the end */
    say_token(a, s, ev->id);
    if (a->req->n_stop > 0 && atoi(a->req->stop[0]) == ev->id) fin = FINISH_STOP_STRING;
    if (fin != FINISH_NONE)
        end_answer(a, s, fin, out);
    else if (a->req->answer.stream && ev->id % 3 != 0)
        let_out(s, out), s->n_out = s->n;
    if (!a->req->answer.stream) s->n_out = s->n; /* told at once */
    return fin;
}
void answer_sent(struct answer *a, answer_sent_fn *fn, void *arg) {
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++) {
        struct said *s = &a->said[i];
        for (int to = answer_done(a) ? s->n : s->n_out; s->n_told < to; s->n_told++)
            if (fn != NULL)
                fn(arg, i, s->ids[s->n_told], s->n_told + 1 == s->n ? s->finish : FINISH_NONE);
    }
}
enum err answer_replay(struct answer *a, uint32_t choice, const struct sent_tokens *sent,
                       struct errbuf *eb) {
    assert(choice < a->n_parts * a->n_choices && a->here[choice / a->n_choices]);
    struct said *s = &a->said[choice];
    assert(s->n == 0 && sent->n_ids < 4096);
    if (sent->n_ids > 0 && atomic_load(&fake_replay_waits_at) > 0 &&
        atomic_fetch_sub(&fake_replay_waits_at, 1) == 1) {
        atomic_store(&fake_replay_waits, 1);
        pthread_mutex_lock(&fake_replay_gate);
        pthread_mutex_unlock(&fake_replay_gate);
    }
    for (size_t i = 0; i < sent->n_ids; i++) say_token(a, s, sent->ids[i]);
    for (size_t i = 0; i < sent->n_ids; i++)
        if (sent->ids[i] > 999)
            return err_set(eb, ERR_INVALID, "token %zu is %d", i, (int)sent->ids[i]);
    s->n_out = s->n_told = s->n;
    if (sent->finish != FINISH_NONE) say_end(a, s, sent->finish);
    if (a->req->answer.stream) buf_clear(&s->kept); /* it is out */
    return ERR_OK;
}
void answer_prompt_logprob(struct answer *a, uint32_t part, int position,
                           const struct token_event *ev) {
    assert(part < a->n_parts && a->here[part]);
    a->prompt_logprobs += (part + 1) * position * (double)ev->logprob;
}
void answer_abort(struct answer *a, struct buf *out) {
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++)
        if (!a->said[i].done) end_answer(a, &a->said[i], FINISH_ABORT, out);
}
void answer_error(struct answer *a, int status, const char *text, struct buf *out) {
    (void)a;
    buf_printf(out, "event: %d %s", status, text);
}
void answer_error_alone(const struct endpoint *ep, const struct infer_req *req, int status,
                        const char *text, struct buf *out) {
    (void)ep, (void)req;
    answer_error(NULL, status, text, out);
}
int answer_n_tokens(const struct answer *a) {
    int n = 0;
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++) n += a->said[i].n;
    return n;
}

/* All tokens of one choice of one part, to the answer. */
static size_t say(struct answer *a, const struct infer_req *r, int choice, int block_tokens,
                  struct buf *out, int32_t *tokens) {
    size_t n = 0;
    for (enum finish fin = FINISH_NONE; fin == FINISH_NONE;) {
        struct token_event ev = {
            .id = fake_token_of(choice, r->ids, r->n_ids, r->n_prompt, block_tokens, tokens, n),
            .choice = choice,
            .index = (int32_t)n};
        tokens[n++] = ev.id;
        if (ev.id == FAKE_EOS) {
            ev.finish = FINISH_EOS;
        } else if (n >= (size_t)r->sampling.new_tokens_max) {
            ev.finish = FINISH_LENGTH;
        }
        fin = answer_token(a, r->head.part, &ev, out);
    }
    return n;
}

void fake_expected(const char *body, int block_tokens, struct buf *out, int32_t *tokens,
                   size_t *n) {
    struct infer_req *req = parse_body(body);
    struct answer *a = NULL;
    assert(req != NULL);
    enum err e = answer_create(&a, NULL, req);
    assert(e == ERR_OK);
    (void)e;
    for (const struct infer_req *r = req; r != NULL; r = r->next_part)
        for (size_t i = 1; i < r->n_prompt && r->sampling.prompt_logprobs; i++)
            answer_prompt_logprob(a, r->head.part, (int)i,
                                  &(struct token_event){.logprob = -(float)i});
    for (const struct infer_req *r = req; r != NULL; r = r->next_part)
        for (int choice = 0; choice < r->sampling.n_choices; choice++)
            *n = say(a, r, choice, block_tokens, out, tokens);
    answer_destroy(&a);
    infer_req_destroy(&req);
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
unsigned instance_can(const struct instance *in) {
    return in->ops->needs | (in->more_ops != NULL ? in->more_ops->needs : 0);
}

enum err instance_go_on(struct instance *in, struct infer_req **req, struct req_seq **seq,
                        struct kv_commit *c, struct errbuf *eb) {
    return in->more_ops->take(in->more, req, seq, c, eb);
}

struct req_set *instance_reqs(const struct instance *in) {
    return in->reqs;
}
/* No path of these tests is chained. */
struct kept_service *instance_kept(struct instance *in) {
    (void)in;
    return NULL;
}

uint32_t instance_id(const struct instance *in) {
    return in->id;
}
bool instance_stopping(const struct instance *in) {
    return in->stopping;
}
bool instance_leaving(const struct instance *in) {
    return in->stopping;
}
uint64_t instance_random(struct instance *in) {
    return ++in->n_random;
}
bool instance_next_req_id(struct instance *in, char out[64]) {
    snprintf(out, 64, "m%u", ++in->n_req_ids);
    return true;
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
    in->conf.prefix_cache = eo->prefix_cache;
    budget_init(&in->budget);
    struct engine *e = in->engine = fake_engine_create(eo);
    enum err err = req_set_create(&in->reqs, in);
    assert(err == ERR_OK);
    err = worker_open(&in->worker, loop, &e, 256);
    if (err == ERR_OK) err = text_pool_open(&in->text_pool, loop, 2, 64);
    if (err == ERR_OK) err = dresult_out_create(&in->dresult, loop, NULL);
    struct kv_plane_opts o;
    kv_plane_opts_default(&o);
    kv_plane_opts_of_engine(&o, worker_engine(in->worker));
    o.loop = loop;
    o.bind_ip = "127.0.0.1";
    o.budget = &in->budget;
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

void fake_instance_add(struct instance *in, const struct role_ops *ops) {
    in->more_ops = ops;
    enum err e = ops->start(&in->more, in);
    assert(e == ERR_OK);
    (void)e;
}

void fake_instance_want(struct instance *in, const struct instance *peer) {
    struct role_node n = {.server_ip = "127.0.0.1",
                          .host_ip = "127.0.0.1",
                          .has_id = true,
                          .id = peer->id,
                          .inter_comm_port = kv_plane_port(peer->kv_plane)};
    enum err e = kv_plane_want(in->kv_plane, instance_can(in), in->id, &n, 1);
    assert(e == ERR_OK);
    (void)e;
}

void fake_instance_close(struct instance *in) {
    if (in->role != NULL) in->ops->stop(&in->role);
    if (in->more != NULL) in->more_ops->stop(&in->more);
    http_server_close(&in->server);
    dresult_out_destroy(&in->dresult);
    text_pool_close(&in->text_pool);
    kv_plane_close(&in->kv_plane);
    worker_close(&in->worker);
    req_set_destroy(&in->reqs);
}
