/* relay: admission, the ends of a request, and what may end it from outside. */
#include <json-c/json_object.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"

enum { SCAN_MS = 100 };

static struct relay **bucket(struct relay_set *s, uint64_t id) {
    return &s->buckets[id % BUCKETS];
}

static struct relay *find(struct relay_set *s, uint64_t id) {
    for (struct relay *r = *bucket(s, id); r != NULL; r = r->hash_next)
        if (r->id == id) return r;
    return NULL;
}

static struct relay *find_client(struct relay_set *s, const char *id) {
    for (struct relay *r = s->first; r != NULL; r = r->next)
        if (strcmp(r->client_id, id) == 0 || strcmp(r->id_text, id) == 0) return r;
    return NULL;
}

/* ---- ends */
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
    log_info("relay",
             "req=%s status=%d p=%u d=%u epoch=%u ttft_ms=%llu total_ms=%llu kv_bytes=%llu "
             "transfer_ms=%.2f exposed_ms=%.2f",
             r->id_text, status, r->p_id, r->d_id, r->epoch, (unsigned long long)e->ttft_ms,
             (unsigned long long)e->total_ms, (unsigned long long)r->handover.kv_bytes,
             r->handover.transfer_ms, r->handover.exposed_ms);
}

void relay_finish(struct relay *r, int status) {
    struct relay_set *s = r->set;
    record(r, status);
    if (status == 200) {
        s->counts.finished++;
    } else {
        s->counts.failed++;
    }
    relay_dequeue(r);
    relay_unbook_p(r);
    relay_unbook_d(r);
    http_call_cancel(&r->call);
    for (struct early_frame *f = r->early, *next; f != NULL; f = next) {
        next = f->next;
        free(f);
    }
    struct relay **at = bucket(s, r->id);
    while (*at != r) at = &(*at)->hash_next;
    *at = r->hash_next;
    *r->at = r->next;
    if (r->next != NULL) r->next->at = r->at;
    s->n--;
    free(r->body);
    free(r);
}

void relay_reply(struct relay *r, int status, const char *type, const char *body, size_t n) {
    http_x_on_close(r->x, NULL, NULL);
    http_x_reply(r->x, status, type, body, n);
    relay_finish(r, status);
}

/* One event in the family's framing, its end marker, and the end of the chunked body
 * (inference-api 3.4). */
static void end_stream_with_error(struct relay *r, int status, const char *text) {
    struct buf b = BUF_INIT;
    bool openai = strncmp(r->path->path, "/v1/", 4) == 0;
    char *body = api_error_body(openai, ERROR_STYLE_MINDIE, &status, NULL, text);
    if (body != NULL) {
        bool triton = r->path->api == API_TRITON_TEXT;
        bool vllm = strcmp(r->path->path, "/generate") == 0; /* only its vLLM dialect streams */
        if (!vllm) buf_puts(&b, triton ? "data:" : "data: ");
        buf_puts(&b, body);
        if (vllm) {
            buf_putc(&b, 0);
        } else {
            buf_puts(&b, "\n\n");
        }
        if (openai) buf_puts(&b, "data: [DONE]\n\n");
        http_x_stream_write(r->x, b.data, b.len);
        free(body);
    }
    buf_free(&b);
    http_x_on_close(r->x, NULL, NULL);
    http_x_stream_end(r->x);
    relay_finish(r, status);
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
    http_x_stream_write(r->x, p, n);
}

void relay_piece_last(struct relay *r, const char *p, size_t n) {
    if (!r->stream) {
        relay_reply(r, 200, "application/json; charset=utf-8", p, n);
        return;
    }
    begin(r);
    if (n > 0) http_x_stream_write(r->x, p, n);
    http_x_on_close(r->x, NULL, NULL);
    http_x_stream_end(r->x);
    relay_finish(r, 200);
}

/* ---- another attempt */
bool relay_retry(struct relay *r, const char *why) {
    struct coordinator *co = r->set->co;
    if (r->started || r->n_retries >= (unsigned)co->conf.retries_max || co->stopping) return false;
    log_info("relay", "req=%s event=retry attempt=%u reason=\"%s\" avoid_p=%u avoid_d=%u",
             r->id_text, r->n_retries + 1, why, r->avoid_p, r->avoid_d);
    http_call_cancel(&r->call);
    relay_unbook_p(r);
    relay_unbook_d(r);
    for (struct early_frame *f = r->early, *next; f != NULL; f = next) {
        next = f->next;
        free(f);
    }
    r->early = NULL;
    r->early_last = &r->early;
    r->n_retries++;
    r->epoch++; /* whatever still comes from the old attempt is dropped by it */
    r->next_seq = 0;
    r->first_token_ms = 0;
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

static size_t text_length(const struct json_object *v, int depth) {
    if (v == NULL || depth > 4) return 0;
    if (json_object_is_type(v, json_type_string)) return (size_t)json_object_get_string_len(v);
    if (json_object_is_type(v, json_type_array)) {
        size_t n = 0, k = json_object_array_length(v);
        for (size_t i = 0; i < k; i++) {
            const struct json_object *e = json_object_array_get_idx(v, i);
            struct json_object *c;
            if (json_object_is_type(e, json_type_int)) {
                n += 4; /* a token id counts as one token's characters */
            } else if (json_get(e, "content", &c) == JSON_OK ||
                       json_get(e, "text", &c) == JSON_OK || json_get(e, "data", &c) == JSON_OK) {
                n += text_length(c, depth + 1);
            } else {
                n += text_length(e, depth + 1);
            }
        }
        return n;
    }
    return 0;
}

/* What scheduling wants of a body: the stream flag, the client's id and a length. A body that
 * cannot be read goes to P as it is, which answers what a single instance would answer. */
static void look_at_body(struct relay *r, const char *body, size_t n) {
    struct json_object *root = NULL, *v;
    static const char *const inputs[] = {"messages", "prompt", "inputs", "text_input", "input_id"};
    const char *id;
    size_t id_len;
    r->n_chars = n;
    r->stream = r->path->stream == API_STREAM_ALWAYS;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK) return;
    r->stream = api_wants_stream(r->path, root);
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
        if (json_get(root, inputs[i], &v) == JSON_OK) {
            r->n_chars = text_length(v, 0);
            break;
        }
    bool triton = r->path->api == API_TRITON_TEXT || r->path->api == API_TRITON_TOKEN;
    if (triton && json_get_str(root, "id", &id, &id_len) == JSON_OK &&
        id_len <= CLIENT_ID_BYTES_MAX)
        memcpy(r->client_id, id, id_len + 1);
    json_object_put(root);
}

static struct relay *add(struct relay_set *s, struct http_x *x, const struct api_path *path) {
    struct relay *r = calloc(1, sizeof(*r));
    if (r == NULL) return NULL;
    r->set = s;
    r->x = x;
    r->path = path;
    r->id = s->next_id++;
    snprintf(r->id_text, sizeof(r->id_text), "%llu", (unsigned long long)r->id);
    r->arrival_ms = clock_ms();
    r->early_last = &r->early;
    r->next = s->first;
    r->at = &s->first;
    if (r->next != NULL) r->next->at = &r->next;
    s->first = r;
    r->hash_next = *bucket(s, r->id);
    *bucket(s, r->id) = r;
    s->n++;
    return r;
}

void relay_start(struct relay_set *s, struct http_x *x, const struct api_path *path,
                 const char *path_model) {
    struct coordinator *co = s->co;
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)path_model; /* P checks it, and answers in its words */
    s->counts.received++;
    if (co->stopping || !controller_ready(co)) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(co, x, 503, "MindIE-MS Coordinator is not ready");
        return;
    }
    struct relay *r = s->n < (size_t)co->conf.requests_max ? add(s, x, path) : NULL;
    if (r == NULL) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(co, x, 429, "Too many requests");
        return;
    }
    const char *request_id = http_x_header(x, "X-Request-Id");
    if (request_id != NULL) http_x_set_header(x, "X-Request-Id", request_id);
    http_x_set_header(x, "RequestUUID", r->id_text);
    http_x_on_close(x, on_client_gone, r);
    look_at_body(r, body, n);
    if (r->client_id[0] != 0) {
        struct relay *same = find_client(s, r->client_id);
        if (same != NULL && same != r) {
            relay_fail(r, 400, "Duplicate request id");
            return;
        }
    }
    relay_enqueue(r);
    relay_schedule(s);
}

void relay_stop(struct relay_set *s, struct http_x *x) {
    struct json_object *root = NULL;
    size_t n, id_len = 0;
    const char *body = http_x_body(x, &n), *id = NULL;
    struct relay *r = NULL;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        !json_object_is_type(root, json_type_object)) {
        coord_reply_error(s->co, x, 422, "Failed to parse context to json body.");
    } else if (json_get_str(root, "id", &id, &id_len) != JSON_OK) {
        coord_reply_error(s->co, x, 422, "Not found id.");
    } else if (id_len < 1 || id_len > CLIENT_ID_BYTES_MAX ||
               strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
                   id_len) {
        coord_reply_error(s->co, x, 422,
                          "The id can contain only digits, letters, underscores(_), hyphens(-) and "
                          "no more than 256 words in length.");
    } else if ((r = find_client(s, id)) == NULL) {
        char text[CLIENT_ID_BYTES_MAX + 64];
        snprintf(text, sizeof(text), "Stop request id %s not found.", id);
        coord_reply_error(s->co, x, 404, text);
    } else {
        http_x_reply(x, 200, "application/json; charset=utf-8", body, n);
        if (r->state == RELAY_WAITING) {
            relay_fail(r, 424, "The request was stopped.");
        } else {
            relay_cancel_upstream(
                r); /* the instance ends it, and the end comes back the usual way */
        }
    }
    json_object_put(root);
}

/* ---- from outside */
void relay_on_frame(struct relay_set *s, uint32_t inst_id, const struct dresult_frame *f) {
    char *end;
    uint64_t id = strtoull(f->req_id, &end, 10);
    struct relay *r = *end == 0 ? find(s, id) : NULL;
    if (r == NULL || r->state == RELAY_WAITING || r->d_id != inst_id)
        return; /* ended here, or of an older attempt */
    if (f->version == 2) {
        if (f->epoch != r->epoch || f->seq < r->next_seq) return;
        if (f->seq > r->next_seq) {
            relay_cancel_upstream(r);
            relay_fail(
                r, 500,
                "Pieces of the answer were lost between the decode instance and the coordinator.");
            return;
        }
        r->next_seq++;
    }
    relay_take_frame(r, f->kind, f->status, f->body, f->body_len);
}

void relay_instance_lost(struct relay_set *s, uint32_t inst_id) {
    for (struct relay *r = s->first, *next; r != NULL; r = next) {
        next = r->next;
        bool p_lost = r->state == RELAY_PREFILL && r->p_id == inst_id;
        bool d_lost = r->state != RELAY_WAITING && r->d_id == inst_id;
        if (!p_lost && !d_lost) continue;
        if (p_lost) r->avoid_p = inst_id;
        if (d_lost) r->avoid_d = inst_id;
        if (!relay_retry(r, "instance lost"))
            relay_fail(r, 500, p_lost ? "P instance error" : "D instance error");
    }
    relay_schedule(s);
}

void relay_abort_all(struct relay_set *s, int status, const char *text) {
    while (s->first != NULL) {
        relay_cancel_upstream(s->first);
        relay_fail(s->first, status, text);
    }
}

static void on_scan(void *arg) {
    struct relay_set *s = arg;
    const struct coord_conf *c = &s->co->conf;
    uint64_t now = clock_ms();
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
        if (text == NULL) continue;
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
    /* Ids are unique in the cluster and over restarts: a random start, far from the reserved
     * largest value. */
    if (getrandom(&s->next_id, sizeof(s->next_id), 0) != (ssize_t)sizeof(s->next_id))
        s->next_id = clock_unix_us();
    s->next_id = (s->next_id >> 2) | 1;
    enum err e = loop_timer_start(&s->scan, co->loop, SCAN_MS, SCAN_MS, on_scan, s);
    if (e != ERR_OK) {
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
    free(s);
    *sp = NULL;
}

void relay_counts(const struct relay_set *s, struct relay_counts *out) {
    *out = s->counts;
    out->in_flight = s->n;
    out->queued = s->n_queued;
}

struct json_object *relay_recent(const struct relay_set *s) {
    struct json_object *arr = json_object_new_array();
    size_t n = s->n_recent < RECENT ? s->n_recent : RECENT;
    for (size_t i = 0; i < n; i++) {
        const struct recent *e = &s->recent[(s->n_recent - 1 - i) % RECENT];
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "id", json_object_new_string(e->id));
        json_object_object_add(o, "path", json_object_new_string(e->path));
        json_object_object_add(o, "status", json_object_new_int(e->status));
        json_object_object_add(o, "stream", json_object_new_boolean(e->stream));
        json_object_object_add(o, "attempt", json_object_new_int64(e->epoch));
        json_object_object_add(o, "p", json_object_new_int64(e->p_id));
        json_object_object_add(o, "d", json_object_new_int64(e->d_id));
        json_object_object_add(o, "promptTokens",
                               json_object_new_int64((int64_t)e->handover.prompt_tokens));
        json_object_object_add(o, "kvBytes", json_object_new_int64((int64_t)e->handover.kv_bytes));
        json_object_object_add(o, "kvBlocks",
                               json_object_new_int64((int64_t)e->handover.kv_blocks));
        json_object_object_add(o, "kvBlocksHeld",
                               json_object_new_int64((int64_t)e->handover.kv_blocks_held));
        json_object_object_add(o, "kvTransferMs", json_object_new_double(e->handover.transfer_ms));
        json_object_object_add(o, "kvExposedMs", json_object_new_double(e->handover.exposed_ms));
        json_object_object_add(o, "ttftMs", json_object_new_int64((int64_t)e->ttft_ms));
        json_object_object_add(o, "totalMs", json_object_new_int64((int64_t)e->total_ms));
        json_object_array_add(arr, o);
    }
    return arr;
}
