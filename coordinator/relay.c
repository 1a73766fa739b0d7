/* relay: admission, the ends of a request, and what may end it from outside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/entropy.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"

enum { SCAN_MS = 100, RETRY_MS = 100, RETRY_MS_MAX = 1000, NEW_TOKENS_GUESS = 128 };

static struct relay **bucket(struct relay_set *s, uint64_t id) {
    return &s->buckets[id % BUCKETS];
}

static struct relay *find(struct relay_set *s, uint64_t id) {
    for (struct relay *r = *bucket(s, id); r != NULL; r = r->hash_next)
        if (r->id == id) return r;
    return NULL;
}

static struct relay **client_bucket(struct relay_set *s, const char *id) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a; few requests have an id of their own */
    for (; *id != 0; id++) h = (h ^ (unsigned char)*id) * 0x100000001b3u;
    return &s->client_buckets[h % BUCKETS];
}

struct relay *relay_find_any(struct relay_set *s, const char *tenant, const char *id) {
    struct relay *r = *client_bucket(s, id);
    while (r != NULL &&
           (strcmp(r->client_id, id) != 0 || !tenant_same_owner(r->tenant->name, tenant)))
        r = r->client_next;
    if (r != NULL) return r;
    r = find(s, strtoull(id, NULL, 10));
    return r != NULL && strcmp(r->id_text, id) == 0 && tenant_same_owner(r->tenant->name, tenant)
               ? r
               : NULL;
}

/* One that nobody can guess from others he has seen, since an id is all it takes to end a request
 * where clients have no keys; unique in the cluster and over restarts by its 63 bits. False: the
 * system has no random numbers. */
static bool new_id(struct relay_set *s, uint64_t *id) {
    do {
        if (!entropy_get(id, sizeof(*id))) return false;
        *id >>= 1; /* far from the reserved largest value */
    } while (*id == 0 || find(s, *id) != NULL);
    return true;
}

/* ---- ends */
static void name_of(const struct relay_set *s, uint32_t id, char out[INSTANCE_NAME_BYTES_MAX + 1]) {
    const struct inst *in = registry_find(&s->co->reg, id);
    snprintf(out, INSTANCE_NAME_BYTES_MAX + 1, "%s", in != NULL ? inst_name(in) : "");
}

static void record(struct relay *r, int status) {
    struct relay_set *s = r->set;
    struct recent *e = &s->recent[s->n_recent++ % RECENT];
    uint64_t now = clock_ms();
    *e = (struct recent){.path = r->path->path,
                         .epoch = r->epoch,
                         .p_id = r->p_id,
                         .d_id = r->d_id,
                         .stream = r->stream,
                         .status = status,
                         .ttft_ms = r->first_token_ms != 0 ? r->first_token_ms - r->arrival_ms : 0,
                         .total_ms = now - r->arrival_ms,
                         .handover = r->handover};
    memcpy(e->id, r->id_text, sizeof(e->id));
    name_of(s, r->p_id, e->p_name);
    name_of(s, r->d_id, e->d_name);
    log_info("relay",
             "req=%s status=%d p=%u d=%u epoch=%u ttft_ms=%llu total_ms=%llu kv_bytes=%llu "
             "transfer_ms=%.2f exposed_ms=%.2f",
             r->id_text, status, r->p_id, r->d_id, r->epoch, (unsigned long long)e->ttft_ms,
             (unsigned long long)e->total_ms, (unsigned long long)r->handover.kv_bytes,
             r->handover.transfer_ms, r->handover.exposed_ms);
}

bool relay_status_is_failure(int status, bool stopped) {
    if (status == 408) return true; /* it took too long here */
    if (status == 424) return !stopped;
    return status >= 500;
}

void relay_finish(struct relay *r, int status) {
    struct relay_set *s = r->set;
    record(r, status);
    const struct coord_request_end end = {.status = status,
                                          .total_us = clock_us() - r->arrival_us,
                                          .decode_us = r->last_piece_us - r->first_token_us,
                                          .n_tokens = r->n_tokens,
                                          .stopped = r->stop_asked};
    coord_metrics_ended(s->co->metrics, &end);
    if (status == 200) {
        s->counts.finished++;
    } else if (relay_status_is_failure(status, r->stop_asked)) {
        s->counts.failed++;
    }
    relay_verdicts_end(r);
    relay_dequeue(r);
    relay_unbook_p(r);
    relay_unbook_d(r);
    relay_settle(r);
    tenants_leave(s->tenants, r->tenant);
    if (r->counted) budget_give(&s->co->budget, BUDGET_REQUESTS, 1);
    http_call_cancel(&r->call);
    relay_drop_kept(r);
    struct relay **at = bucket(s, r->id);
    while (*at != r) at = &(*at)->hash_next;
    *at = r->hash_next;
    if (r->client_id[0] != 0) {
        at = client_bucket(s, r->client_id);
        while (*at != r) at = &(*at)->client_next;
        *at = r->client_next;
    }
    *r->at = r->next;
    if (r->next != NULL) r->next->at = r->at;
    s->n--;
    free(r->body);
    free(r);
}

void relay_reply(struct relay *r, int status, const char *type, const char *body, size_t n) {
    coord_metrics_relayed(r->set->co->metrics, n);
    http_x_on_close(r->x, NULL, NULL);
    http_x_reply(r->x, status, type, body, n);
    relay_finish(r, status);
}

/* One event in the family's framing, its end marker, and the end of the chunked body
 * (inference-api 3.4). json[n]: an error body. */
static void end_stream_with(struct relay *r, int status, const char *json, size_t n) {
    struct buf b = BUF_INIT;
    bool triton = r->path->api == API_TRITON_TEXT;
    bool vllm = strcmp(r->path->path, "/generate") == 0; /* only its vLLM dialect streams */
    while (n > 0 && (json[n - 1] == '\n' || json[n - 1] == '\r')) n--;
    if (!vllm) buf_puts(&b, triton ? "data:" : "data: ");
    buf_append(&b, json, n);
    if (vllm) {
        buf_putc(&b, 0);
    } else {
        buf_puts(&b, "\n\n");
    }
    if (strncmp(r->path->path, "/v1/", 4) == 0) buf_puts(&b, "data: [DONE]\n\n");
    http_x_stream_write(r->x, b.data, b.len);
    buf_free(&b);
    http_x_on_close(r->x, NULL, NULL);
    http_x_stream_end(r->x);
    relay_finish(r, status);
}

static void end_stream_with_error(struct relay *r, int status, const char *text) {
    bool openai = strncmp(r->path->path, "/v1/", 4) == 0;
    char *body = api_error_body(openai, coord_error_style(r->set->co), &status, NULL, text);
    const char *json = body != NULL ? body : "{\"error\":\"out of memory\"}";
    end_stream_with(r, status, json, strlen(json));
    free(body);
}

void relay_error(struct relay *r, int status, const char *type, const char *body, size_t n) {
    if (r->started)
        end_stream_with(r, status, body, n);
    else
        relay_reply(r, status, type, body, n);
}

void relay_fail(struct relay *r, int status, const char *text) {
    log_warn("relay", "req=%s event=failed status=%d text=\"%s\"", r->id_text, status, text);
    if (r->started) {
        end_stream_with_error(r, status, text);
        return;
    }
    http_x_on_close(r->x, NULL, NULL);
    if (status == 429 || status == 503) http_x_set_header(r->x, "Retry-After", "1");
    coord_reply_error(r->set->co, r->x, status, text);
    relay_finish(r, status);
}

static void begin(struct relay *r) {
    if (r->started) return;
    r->started = true;
    http_x_set_header(r->x, "Cache-Control", "no-cache");
    http_x_stream_begin(r->x, 200, "text/event-stream; charset=utf-8");
}

void relay_piece(struct relay *r, const char *p, size_t n) {
    if (!r->stream || n == 0) return;
    begin(r);
    r->said = true;
    r->piece_ms = clock_ms();
    coord_metrics_relayed(r->set->co->metrics, n);
    http_x_stream_write(r->x, p, n);
}

void relay_piece_last(struct relay *r, const char *p, size_t n) {
    if (!r->stream) {
        relay_reply(r, 200, "application/json; charset=utf-8", p, n);
        return;
    }
    begin(r);
    coord_metrics_relayed(r->set->co->metrics, n);
    if (n > 0) http_x_stream_write(r->x, p, n);
    http_x_on_close(r->x, NULL, NULL);
    http_x_stream_end(r->x);
    relay_finish(r, 200);
}

/* ---- another attempt */

/* How long the n-th further attempt waits when nobody else can make it. */
static uint64_t pause_ms(unsigned n) {
    uint64_t ms = (uint64_t)RETRY_MS << (n < 8 ? n : 8);
    return ms < RETRY_MS_MAX ? ms : RETRY_MS_MAX;
}

bool relay_retry(struct relay *r, enum cause why) {
    struct coordinator *co = r->set->co;
    if (r->said || r->stop_asked || r->n_retries >= (unsigned)co->conf.retries_max) return false;
    log_info("relay", "req=%s event=retry attempt=%u cause=%s avoid_p=%u avoid_d=%u", r->id_text,
             r->n_retries + 1, cause_name(why), r->avoid_p, r->avoid_d);
    http_call_cancel(&r->call); /* P sees the connection close, and lets go */
    relay_verdicts_end(r);
    relay_unbook_p(r);
    relay_unbook_d(r);
    relay_drop_kept(r);
    r->not_before_ms = clock_ms() + pause_ms(r->n_retries++);
    r->epoch++; /* whatever still comes from the old attempt is dropped by it */
    r->next_seq = 0;
    r->first_token_ms = 0;
    r->n_tokens = 0;
    coord_metrics_retried(co->metrics, cause_name(why));
    r->p_id = r->d_id = 0;
    r->set->counts.retried++;
    relay_enqueue(r);
    return true;
}

/* ---- admission */
static void on_client_gone(void *arg) {
    struct relay *r = arg;
    log_info("relay", "req=%s event=client_gone", r->id_text);
    r->set->counts.cancelled++;
    relay_cancel_upstream(r);
    relay_finish(r, 499);
}

static struct relay *add(struct relay_set *s, struct http_x *x, const struct api_path *path,
                         const char *path_model, const struct body_look *look) {
    struct relay *r = calloc(1, sizeof(*r));
    if (r == NULL) return NULL;
    r->set = s;
    r->x = x;
    r->path = path;
    api_path_format(r->url_path, sizeof(r->url_path), path, path_model);
    if (!new_id(s, &r->id)) {
        free(r);
        return NULL;
    }
    snprintf(r->id_text, sizeof(r->id_text), "%llu", (unsigned long long)r->id);
    const char *name = http_x_tenant(x);
    r->tenant = tenants_join(s->tenants, name, api_keys_weight(s->co->keys, name));
    if (r->tenant == NULL) {
        free(r);
        return NULL;
    }
    memcpy(r->client_id, look->client_id, sizeof(r->client_id));
    r->stream = look->stream;
    r->n_chars = look->n_chars;
    r->n_prompts = look->n_prompts;
    r->n_sequences = look->n_sequences;
    r->new_tokens_max = look->new_tokens_max;
    r->arrival_ms = r->piece_ms = clock_ms();
    r->arrival_us = clock_us();
    r->early_last = &r->early;
    r->next = s->first;
    r->at = &s->first;
    if (r->next != NULL) r->next->at = &r->next;
    s->first = r;
    struct relay **b = bucket(s, r->id);
    r->hash_next = *b;
    *b = r;
    if (r->client_id[0] != 0) {
        b = client_bucket(s, r->client_id);
        r->client_next = *b;
        *b = r;
    }
    s->n++;
    r->counted = budget_take(&s->co->budget, BUDGET_REQUESTS, 1);
    return r;
}

/* Not admitted. */
static void turn_away(struct relay_set *s, struct http_x *x, int status, const char *reason,
                      const char *text) {
    if (relay_status_is_failure(status, false)) s->counts.failed++;
    coord_metrics_rejected(s->co->metrics, reason, status);
    if (status == 429 || status == 503) http_x_set_header(x, "Retry-After", "1");
    coord_reply_error(s->co, x, status, text);
}

/* The one refusal whose text in the reference is JSON, of a shape for each group of families. */
static void turn_away_memory(struct relay_set *s, struct http_x *x, const struct api_path *path) {
    static const char text[] = "Memory limit exceeded";
    if (strcmp(s->co->conf.error_format, "text") != 0) {
        turn_away(s, x, 429, "memory", text);
        return;
    }
    const char *body = "{\"error\": \"Memory limit exceeded\", \"code\": 429}";
    if (path->api == API_OPENAI_CHAT || path->api == API_OPENAI_COMPLETIONS)
        body = "{\"error\": {\"message\": \"Memory limit exceeded\", \"type\": \"server_error\", "
               "\"code\": 429}}";
    else if (path->api == API_TGI || path->api == API_VLLM)
        body = "{\"error\": \"Memory limit exceeded\", \"error_type\": \"overloaded\"}";
    coord_metrics_rejected(s->co->metrics, "memory", 429);
    http_x_set_header(x, "Retry-After", "1");
    http_x_reply(x, 429, "application/json; charset=utf-8", body, strlen(body));
}

/* What the reference's coordinator refuses by itself (inference-api 3.5). With JSON errors the body
 * goes on to P, which answers what a single instance would answer. NULL: nothing. */
static const char *refusal(const struct coordinator *co, const struct api_path *path,
                           const struct body_look *look) {
    bool openai = path->api == API_OPENAI_CHAT || path->api == API_OPENAI_COMPLETIONS;
    if (strcmp(co->conf.error_format, "text") != 0) return NULL;
    if (!look->is_object) return "Request format is invalid";
    if (look->has_input) return NULL;
    return openai ? "Invalid request format: Missing both 'prompt' or 'messages'"
                  : "Request format is invalid";
}

/* A place among all requests; when there is none, one is made: of those that wait, the tenant that
 * has most, over its weight, loses its youngest, if it has more than this one would. */
static bool has_place(struct relay_set *s, const char *name) {
    const struct coordinator *co = s->co;
    const struct tenant *mine = tenants_find(s->tenants, name);
    if (mine != NULL && co->conf.tenant_waiting_max > 0 &&
        mine->n_queued >= (size_t)co->conf.tenant_waiting_max) {
        budget_refused(&s->co->budget, BUDGET_TENANT_WAITING);
        return false;
    }
    if (s->n < (size_t)co->conf.requests_max) return true;
    budget_refused(&s->co->budget, BUDGET_REQUESTS);
    struct tenant *most = tenants_largest(s->tenants);
    double weight = api_keys_weight(co->keys, name),
           n = mine != NULL ? (double)mine->n_requests : 0;
    if (most == NULL || most == mine ||
        (double)most->n_requests / most->flow.weight <= (n + 1) / weight)
        return false;
    log_info("relay", "req=%s event=pushed_out tenant=%s requests=%zu for=%s", most->last->id_text,
             most->name, most->n_requests, name);
    relay_fail(most->last, 429, "Too many requests");
    return true;
}

/* The request has its place: reads what it asks for, and gives it to the queue. */
static void take_request(struct relay_set *s, struct http_x *x, const struct api_path *path,
                         const char *path_model) {
    struct coordinator *co = s->co;
    struct body_look look;
    size_t n;
    const char *body = http_x_body(x, &n), *why;
    body_look(&look, path, body, n);
    if ((why = refusal(co, path, &look)) != NULL) {
        turn_away(s, x, 400, "bad_request", why);
        return;
    }
    bool taken =
        look.client_id[0] != 0 && relay_find_any(s, http_x_tenant(x), look.client_id) != NULL;
    if (taken && look.client_id_soft) {
        look.client_id[0] = 0;
    } else if (taken) {
        turn_away(s, x, 400, "duplicate_id", "Duplicate request id");
        return;
    }
    struct relay *r = add(s, x, path, path_model, &look);
    if (r == NULL) {
        turn_away(s, x, 503, "no_memory", err_text(ERR_NO_MEMORY));
        return;
    }
    log_debug("relay", "req=%s event=admitted request_id=%s", r->id_text, http_x_request_id(x));
    http_x_set_header(x, "RequestUUID", r->id_text);
    http_x_on_close(x, on_client_gone, r);
    relay_enqueue(r);
    relay_schedule(s);
}

void relay_start(struct relay_set *s, struct http_x *x, const struct api_path *path,
                 const char *path_model) {
    struct coordinator *co = s->co;
    s->counts.received++;
    coord_metrics_received(co->metrics);
    if (co->stopping) { /* what an instance that drains says */
        turn_away(s, x, 503, "not_ready", "The service has been stopped");
        return;
    }
    if (!controller_ready(co)) {
        turn_away(s, x, 503, "not_ready", "MindIE-MS Coordinator is not ready");
        return;
    }
    if (s->memory.full) {
        budget_refused(&co->budget, BUDGET_MEMORY);
        turn_away_memory(s, x, path);
        return;
    }
    if (!has_place(s, http_x_tenant(x))) {
        turn_away(s, x, 429, "too_many", "Too many requests");
        return;
    }
    take_request(s, x, path, path_model);
}

/* ---- from outside */

/* P cannot be reached any more; D may go on with what it has. */
void relay_lose_p(struct relay *r, enum cause why, const char *error) {
    r->avoid_p = r->p_id;
    r->left_d = r->d_id;
    if (relay_retry(r, why)) return;
    relay_cancel_upstream(r);
    relay_fail(r, 500, r->n_retries > 0 ? "Request retry failed" : error);
}

/* What D computed is lost. A client that has pieces of it cannot be served again from the start. */
static void lose_d(struct relay *r, enum cause why) {
    r->avoid_d = r->left_d = r->d_id;
    if (relay_retry(r, why)) return;
    relay_cancel_upstream(r);
    relay_fail(r, 500,
               !r->said && r->n_retries > 0 ? "Request retry failed"
                                            : "Read messages from instance failed");
}

void relay_on_frame(struct relay_set *s, uint32_t inst_id, const struct dresult_frame *f) {
    char *end;
    uint64_t id = strtoull(f->req_id, &end, 10);
    struct relay *r = *end == 0 ? find(s, id) : NULL;
    if (r == NULL || r->state == RELAY_WAITING || r->d_id != inst_id)
        return; /* ended here, or of an older attempt */
    if (f->version == 2) {
        if (f->epoch != r->epoch || f->seq < r->next_seq) return;
        if (f->seq > r->next_seq) {
            relay_tell_d(r, VERDICT_FAULT, "pieces of an answer were lost");
            lose_d(r, CAUSE_PIECES_LOST);
            relay_schedule(s);
            return;
        }
        r->next_seq++;
    }
    r->n_tokens += f->n_tokens;
    if (f->kind != DR_HEARTBEAT) r->last_piece_us = clock_us();
    relay_take_frame(r, f);
}

void relay_instance_lost(struct relay_set *s, uint32_t inst_id) {
    for (struct relay *r = s->first, *next; r != NULL; r = next) {
        next = r->next;
        if (r->state != RELAY_WAITING && r->d_id == inst_id) {
            lose_d(r, CAUSE_D_LOST);
        } else if (r->state == RELAY_PREFILL && r->p_id == inst_id) {
            relay_lose_p(r, CAUSE_P_LOST, "P instance error");
        }
    }
    relay_schedule(s);
}

void relay_abort_all(struct relay_set *s, int status, const char *text) {
    while (s->first != NULL) {
        relay_cancel_upstream(s->first);
        relay_fail(s->first, status, text);
    }
}

/* A comment line on a stream that has been silent for so long (inference-api 5.1), its head first
 * where nothing of the answer has come in that time; frames that are no server-sent events have no
 * comments. */
static void keep_alive(struct relay *r, uint64_t now) {
    uint64_t every_ms = (uint64_t)r->set->co->conf.sse_keep_alive_s * 1000;
    bool frames = r->path->stream == API_STREAM_BY_DIALECT;
    if (every_ms == 0 || !r->stream || frames || now - r->piece_ms < every_ms) return;
    begin(r); /* from here on an error is an event */
    r->piece_ms = now;
    http_x_stream_write(r->x, ":\n\n", 3);
}

static void look_at_memory(struct relay_set *s) {
    bool was = s->memory.full;
    if (s->memory.limit_bytes == 0) return;
    uint64_t used = mem_used_bytes("");
    if (mem_guard_look(&s->memory, used) != was)
        log_warn("relay", "event=%s memory_bytes=%llu limit_bytes=%llu",
                 was ? "memory_back" : "memory_short", (unsigned long long)used,
                 (unsigned long long)s->memory.limit_bytes);
}

static void on_scan(void *arg) {
    struct relay_set *s = arg;
    const struct coord_conf *c = &s->co->conf;
    uint64_t now = clock_ms();
    look_at_memory(s);
    for (struct relay *r = s->first, *next; r != NULL; r = next) {
        next = r->next;
        uint64_t age = now - r->arrival_ms;
        const char *text = NULL;
        if (c->infer_timeout_s > 0 && age >= (uint64_t)c->infer_timeout_s * 1000) {
            text = "Request inference timeout";
        } else if (r->state == RELAY_WAITING && c->schedule_timeout_s > 0 &&
                   age >= (uint64_t)c->schedule_timeout_s * 1000) {
            text = "Request schedule timeout";
        } else if (r->state != RELAY_DECODE && c->first_token_timeout_s > 0 &&
                   age >= (uint64_t)c->first_token_timeout_s * 1000) {
            text = "Request first token timeout";
        }
        if (text == NULL) {
            keep_alive(r, now);
            continue;
        }
        if (r->state == RELAY_PREFILL) relay_tell_p(r, VERDICT_FAULT, text);
        relay_cancel_upstream(r);
        relay_fail(r, 408, text);
    }
}

/* ---- the set */
enum err relay_set_create(struct relay_set **out, struct coordinator *co) {
    struct relay_set *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (s == NULL) return ERR_NO_MEMORY;
    s->co = co;
    s->memory.limit_bytes = co->conf.memory_limit_mib > 0
                                ? (uint64_t)co->conf.memory_limit_mib << 20
                                : mem_limit_bytes("");
    s->new_tokens_mean = NEW_TOKENS_GUESS;
    s->tenants = tenants_create();
    enum err e = s->tenants == NULL
                     ? ERR_NO_MEMORY
                     : loop_timer_start(&s->scan, co->loop, SCAN_MS, SCAN_MS, on_scan, s);
    if (e != ERR_OK) {
        tenants_destroy(&s->tenants);
        free(s);
        return e;
    }
    *out = s;
    return ERR_OK;
}

void relay_set_destroy(struct relay_set **sp) {
    struct relay_set *s = *sp;
    if (s == NULL) return;
    relay_abort_all(s, 503, "The service has been stopped.");
    loop_timer_stop(&s->scan);
    tenants_destroy(&s->tenants);
    free(s);
    *sp = NULL;
}

void relay_counts(const struct relay_set *s, struct relay_counts *out) {
    *out = s->counts;
    out->in_flight = s->n;
    out->queued = s->n_queued;
}

const struct tenant *relay_tenants(const struct relay_set *s) {
    return tenants_first(s->tenants);
}

struct json_value *relay_recent(const struct relay_set *s) {
    struct json_value *arr = json_new_arr();
    size_t n = s->n_recent < RECENT ? s->n_recent : RECENT;
    for (size_t i = 0; i < n; i++) {
        const struct recent *e = &s->recent[(s->n_recent - 1 - i) % RECENT];
        struct json_value *o = json_new_obj();
        json_obj_set(o, "id", json_new_str(e->id));
        json_obj_set(o, "path", json_new_str(e->path));
        json_obj_set(o, "status", json_new_i64(e->status));
        json_obj_set(o, "stream", json_new_bool(e->stream));
        json_obj_set(o, "attempt", json_new_i64(e->epoch));
        json_obj_set(o, "p", json_new_i64(e->p_id));
        json_obj_set(o, "d", json_new_i64(e->d_id));
        json_obj_set(o, "pName", json_new_str(e->p_name));
        json_obj_set(o, "dName", json_new_str(e->d_name));
        json_obj_set(o, "promptTokens", json_new_i64((int64_t)e->handover.prompt_tokens));
        json_obj_set(o, "kvBytes", json_new_i64((int64_t)e->handover.kv_bytes));
        json_obj_set(o, "kvBlocks", json_new_i64((int64_t)e->handover.kv_blocks));
        json_obj_set(o, "kvBlocksHeld", json_new_i64((int64_t)e->handover.kv_blocks_held));
        json_obj_set(o, "kvTransferMs", json_new_f64(e->handover.transfer_ms));
        json_obj_set(o, "kvExposedMs", json_new_f64(e->handover.exposed_ms));
        json_obj_set(o, "ttftMs", json_new_i64((int64_t)e->ttft_ms));
        json_obj_set(o, "totalMs", json_new_i64((int64_t)e->total_ms));
        json_arr_add(arr, o);
    }
    return arr;
}
