/* relay: admission, the set of all requests, and what happens to them from outside. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/entropy.h"
#include "coordinator/affinity.h"
#include "coordinator/console.h"
#include "coordinator/journal.h"
#include "coordinator/recorder.h"
#include "coordinator/relay_priv.h"
#include "proto/api_error.h"
#include "proto/hash.h"
#include "proto/tensors.h"
#include "proto/json.h"

enum {
    SCAN_MS = 100,
    REST_MS = 256,
    EXPIRE_MS = 1000,
    NEW_TOKENS_GUESS = 128,
    DEADLINE_MS_MAX = 3600000
};
#define DEADLINE_HEADER "x-baton-deadline-ms"

static struct relay **bucket(struct relay_set *s, uint64_t id) {
    return &s->buckets[id % BUCKETS];
}

struct relay *relay_find(struct relay_set *s, uint64_t id) {
    for (struct relay *r = *bucket(s, id); r != NULL; r = r->hash_next)
        if (r->id == id) return r;
    return NULL;
}

static struct relay **client_bucket(struct relay_set *s, const char *id) {
    return &s->client_buckets[hash64_text(HASH64_BEGIN, id) % BUCKETS];
}

struct relay *relay_find_any(struct relay_set *s, const char *tenant, const char *id) {
    struct relay *r = *client_bucket(s, id);
    while (r != NULL &&
           (strcmp(r->client_id, id) != 0 || !tenant_same_owner(r->tenant->name, tenant)))
        r = r->client_next;
    if (r != NULL) return r;
    r = relay_find(s, strtoull(id, NULL, 10));
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
    } while (*id == 0 || relay_find(s, *id) != NULL);
    return true;
}

bool relay_status_is_failure(int status, bool stopped) {
    if (status == 408) return true; /* it took too long here */
    if (status == 424) return !stopped;
    return status >= 500;
}

void relay_remove(struct relay *r) {
    struct relay_set *s = r->set;
    tenants_leave(s->tenants, r->tenant);
    if (r->counted) budget_give(&s->co->budget, BUDGET_REQUESTS, 1);
    relay_log_free(r);
    kept_ask_free(s->co->kept, &r->ask);
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
    s->looks[r->slot] = s->looks[--s->n];
    s->looks[r->slot].r->slot = r->slot;
    buf_free(&r->recompute);
    free(r->adapter);
    free(r->keys);
    free(r);
}

/* ---- admission */
static void on_client_gone(void *arg) {
    relay_client_left(arg);
}

static bool has_room_to_look(struct relay_set *s) {
    if (s->n < s->looks_cap) return true;
    const size_t cap = s->looks_cap * 2 + 64;
    struct relay_look *more = realloc(s->looks, cap * sizeof(*more));
    if (more == NULL) return false;
    s->looks = more;
    s->looks_cap = cap;
    return true;
}

struct relay *relay_add(struct relay_set *s, struct http_x *x, const struct api_path *path,
                        const char *path_model, const struct body_look *look, uint64_t id) {
    struct relay *r = has_room_to_look(s) ? calloc(1, sizeof(*r)) : NULL;
    heap_pages_follow(&s->co->pages);
    if (r == NULL) return NULL;
    r->set = s;
    r->path = path;
    api_path_format(r->url_path, sizeof(r->url_path), path, path_model);
    r->id = id;
    if (id == 0 && !new_id(s, &r->id)) {
        free(r);
        return NULL;
    }
    snprintf(r->id_text, sizeof(r->id_text), "%llu", (unsigned long long)r->id);
    const char *name = http_x_tenant(x);
    const struct key_terms terms = api_keys_terms(s->co->keys, name);
    r->tenant = tenants_join(s->tenants, name, terms.weight);
    if (r->tenant == NULL) {
        free(r);
        return NULL;
    }
    relay_targets_open(r, &terms);
    memcpy(r->client_id, look->client_id, sizeof(r->client_id));
    r->n_chars = look->n_chars;
    r->n_prompts = look->n_prompts;
    r->n_sequences = look->n_sequences;
    r->new_tokens_max = look->new_tokens_max;
    r->priority = look->priority != 0 ? look->priority : PRIORITY_LAST;
    r->arrival_ms = r->since_ms = clock_ms();
    r->arrival_us = clock_us();
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
    r->slot = s->n++;
    s->looks[r->slot] = (struct relay_look){.r = r};
    r->counted = budget_take(&s->co->budget, BUDGET_REQUESTS, 1);
    r->traced = otlp_begin(s->co->otlp, &r->trace, http_x_header(x, "traceparent"));
    relay_out_open(&r->out, s->co, x, path, look->stream, r->id_text, on_client_gone, r);
    return r;
}

/* Not admitted. */
static void turn_away(struct relay_set *s, struct http_x *x, int status, const char *reason,
                      const char *text) {
    s->counts.refused++;
    console_ended(s->co->console, HISTORY_REFUSED);
    coord_metrics_rejected(s->co->metrics, reason, status);
    if (status == 429 || status == 503) http_x_set_header(x, "Retry-After", "1");
    coord_reply_error(s->co, x, status, text);
}

/* There is no pair that could say it (ep_input.c, ep_ollama.c): models that generate nothing need
 * none. */
static void turn_away_text(struct relay_set *s, struct http_x *x, const struct api_path *path) {
    char text[MODEL_NAME_BYTES_MAX + 64] = API_GENERATES_NOTHING;
    const char *model = coord_model(s->co);
    const bool chat = path->api == API_OLLAMA_CHAT;
    if (model != NULL && (chat || path->api == API_OLLAMA_GENERATE))
        snprintf(text, sizeof(text), "\"%s\" does not support %s", model,
                 chat ? "chat" : "generate");
    const int status = path->errors == API_ERRORS_CAIKIT ? 400 : 422;
    s->counts.refused++;
    coord_metrics_rejected(s->co->metrics, "unsupported", status);
    coord_reply_error_code(s->co, x, status, "unsupported_parameter", text);
}

/* The one refusal whose text in the reference is JSON, of a shape for each group of families. */
static void turn_away_memory(struct relay_set *s, struct http_x *x, const struct api_path *path) {
    static const char text[] = "Memory limit exceeded";
    if (strcmp(s->co->conf.error_format, "text") != 0) {
        turn_away(s, x, 429, "memory", text);
        return;
    }
    const char *body = "{\"error\": \"Memory limit exceeded\", \"code\": 429}";
    if (path->errors == API_ERRORS_V1)
        body = "{\"error\": {\"message\": \"Memory limit exceeded\", \"type\": \"server_error\", "
               "\"code\": 429}}";
    else if (path->api == API_TGI || path->api == API_VLLM)
        body = "{\"error\": \"Memory limit exceeded\", \"error_type\": \"overloaded\"}";
    s->counts.refused++;
    coord_metrics_rejected(s->co->metrics, "memory", 429);
    http_x_set_header(x, "Retry-After", "1");
    http_x_reply(x, 429, "application/json; charset=utf-8", body, strlen(body));
}

/* What the reference's coordinator refuses by itself (inference-api 3.5). With JSON errors the body
 * goes on to P, which answers what a single instance would answer. NULL: nothing. */
static const char *refusal(const struct coordinator *co, const struct api_path *path,
                           const struct body_look *look) {
    bool openai = path->errors == API_ERRORS_V1;
    if (strcmp(co->conf.error_format, "text") != 0) return NULL;
    if (!look->is_object) return "Request format is invalid";
    if (look->has_input || path->chained) return NULL;
    return openai ? "Invalid request format: Missing both 'prompt' or 'messages'"
                  : "Request format is invalid";
}

/* The youngest that waits for its first pair; one that has begun is not given up for others. */
static struct relay *youngest(const struct tenant *t) {
    struct relay *r = t->last;
    while (r != NULL && r->state != RELAY_WAITING) r = r->queue_prev;
    return r;
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
    double weight = api_keys_terms(co->keys, name).weight,
           n = mine != NULL ? (double)mine->n_requests : 0;
    if (most == NULL || most == mine ||
        (double)most->n_requests / most->flow.weight <= (n + 1) / weight)
        return false;
    struct relay *r = youngest(most);
    if (r == NULL) return false;
    log_info("relay", "req=%s event=pushed_out tenant=%s requests=%zu for=%s", r->id_text,
             most->name, most->n_requests, name);
    relay_fail(r, CAUSE_PUSHED_OUT, "Too many requests");
    return true;
}

/* Of tensors the JSON says what is asked for, and the bytes behind it are the input's as well; a
 * body of them alone is one prompt. True: the client says where its JSON ends, behind *n_json. */
static bool look_at(struct body_look *look, struct http_x *x, const struct api_path *path,
                    const char *body, size_t n, size_t *n_json) {
    const char *said = path->frames == API_FRAMES_TENSORS ? http_x_header(x, TENSORS_HEADER) : NULL;
    const bool has_tensors = said != NULL && tensors_json_bytes(said, n, n_json);
    if (!has_tensors) *n_json = n;
    body_look(look, path, body, *n_json);
    look->n_chars += n - *n_json;
    if (*n_json == 0 && n > 0) look->is_object = look->has_input = true;
    return has_tensors;
}

/* Milliseconds from the arrival on in which a client wants its first token; 0: it does not say. */
static bool read_deadline(struct http_x *x, uint64_t *ms) {
    const char *text = http_x_header(x, DEADLINE_HEADER);
    *ms = 0;
    if (text == NULL) return true;
    const size_t n = strlen(text);
    if (n < 1 || n > 7 || strspn(text, "0123456789") != n) return false;
    *ms = strtoull(text, NULL, 10);
    return *ms >= 1 && *ms <= DEADLINE_MS_MAX;
}

/* It would come too late: nothing is computed for it. */
static bool refused_early(struct relay *r) {
    struct forecast f;
    char text[96];
    if (!relay_comes_too_late(r, &f)) return false;
    const bool late = f.says == FORECAST_LATE;
    if (late)
        snprintf(text, sizeof(text), "Too many requests: the first token is expected in %.1f s",
                 f.first_token_s);
    else
        snprintf(text, sizeof(text), "Too many requests: tokens would come too slowly");
    coord_metrics_turned_away(r->set->co->metrics, late ? "late" : "slow");
    r->out.retry_after_s = f.retry_after_s;
    relay_fail(r, CAUSE_TOO_LATE, text);
    return true;
}

/* The request has its place: reads what it asks for, and gives it to the queue. */
static void take_request(struct relay_set *s, struct http_x *x, const struct api_path *path,
                         const char *path_model) {
    struct coordinator *co = s->co;
    struct body_look look;
    size_t n, n_json;
    const char *body = http_x_body(x, &n), *why;
    const bool has_tensors = look_at(&look, x, path, body, n, &n_json);
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
    uint64_t deadline_ms;
    if (!read_deadline(x, &deadline_ms)) {
        char text[160];
        snprintf(text, sizeof(text),
                 DEADLINE_HEADER " must be an integer from 1 to %d, got \"%.40s\"", DEADLINE_MS_MAX,
                 http_x_header(x, DEADLINE_HEADER));
        turn_away(s, x, 400, "bad_request", text);
        return;
    }
    struct kept_ask ask = {0};
    if (path->chained && !kept_ask_read(co->kept, x, &ask)) {
        s->counts.refused++;
        coord_metrics_rejected(co->metrics, "bad_request", 400);
        return;
    }
    look.n_chars += ask.context.len;
    struct relay *r = relay_add(s, x, path, path_model, &look, 0);
    if (r == NULL) {
        kept_ask_free(co->kept, &ask);
        turn_away(s, x, 503, "no_memory", err_text(ERR_NO_MEMORY));
        return;
    }
    r->ask = ask;
    r->body = body;
    r->n_body = n;
    relay_journal_open(r, x);
    if (deadline_ms > 0) r->deadline_ms = r->arrival_ms + deadline_ms;
    relay_prefix_open(r, &look);
    kept_record(co->kept, x, &r->ask, r->id_text);
    log_debug("relay", "req=%s event=admitted request_id=%s", r->id_text, http_x_request_id(x));
    recorder_request(co->recorder, &(struct record_request){.id = r->id_text,
                                                            .path = r->url_path,
                                                            .tenant = r->tenant->name,
                                                            .stream = r->out.stream,
                                                            .body = body,
                                                            .n = n,
                                                            .has_tensors = has_tensors,
                                                            .n_json = n_json});
    relay_note_arrival(r);
    relay_enqueue(r); /* its first state */
    if (!refused_early(r)) relay_schedule(s);
}

bool relay_admit(struct relay_set *s, struct http_x *x, const struct api_path *path) {
    struct coordinator *co = s->co;
    s->counts.received++;
    coord_metrics_received(co->metrics);
    if (co->stopping) { /* what an instance that drains says */
        turn_away(s, x, 503, "not_ready", "The service has been stopped");
    } else if (!co->stands_by && controller_embeds(co) && !controller_ready(co)) {
        turn_away_text(s, x, path);
    } else if (co->stands_by || !controller_admits(co)) {
        turn_away(s, x, 503, "not_ready", coord_not_ready(co));
    } else if (s->memory.full) {
        budget_refused(&co->budget, BUDGET_MEMORY);
        turn_away_memory(s, x, path);
    } else if (!has_place(s, http_x_tenant(x))) {
        turn_away(s, x, 429, "too_many", "Too many requests");
    } else {
        return true;
    }
    return false;
}

void relay_start(struct relay_set *s, struct http_x *x, const struct api_path *path,
                 const char *path_model) {
    if (!relay_come_back(s, x, path, path_model) && relay_admit(s, x, path))
        take_request(s, x, path, path_model);
}

/* ---- from outside */

static bool runs(const struct relay *r) {
    return r->attempt.p_id != 0;
}

static void lose_d(struct relay *r, enum cause cause, enum left left) {
    relay_lose(r, &(struct relay_input){
                      .cause = cause, .left = left, .text = "Read messages from instance failed"});
}

/* Of the attempt that runs, and the next one in its order; else it is dropped, or what is missing
 * is lost. */
static bool is_next(struct relay *r, const struct dresult_frame *f) {
    struct attempt *a = &r->attempt;
    if (f->version != 2) return true;
    if (f->epoch != a->epoch || f->seq < a->next_seq) return false;
    if (f->seq == a->next_seq) {
        a->next_seq++;
        return true;
    }
    relay_report_fault(r, CAUSE_PIECES_LOST, "");
    lose_d(r, CAUSE_PIECES_LOST, LEFT_BOTH);
    return false;
}

bool relay_uses_pair(const struct relay_set *s, uint32_t p_id, uint32_t d_id) {
    for (const struct relay *r = s->first; r != NULL; r = r->next)
        if (p_id != 0 && r->attempt.p_id == p_id && r->attempt.d_id == d_id) return true;
    return false;
}

void relay_on_frame(struct relay_set *s, uint32_t inst_id, const struct dresult_frame *f) {
    char *end;
    uint64_t id = strtoull(f->req_id, &end, 10);
    struct relay *r = *end == 0 ? relay_find(s, id) : NULL;
    if (r == NULL || !runs(r) || r->attempt.d_id != inst_id)
        return; /* ended here, or of an older attempt */
    const size_t n_queued = s->n_queued;
    if (is_next(r, f)) {
        r->last_piece_us = clock_us();
        r->attempt.frame_ms = r->last_piece_us / 1000;
        relay_take_frame(r, f);
    }
    if (s->n_queued > n_queued) relay_schedule(s); /* it has to go elsewhere */
}

/* What is written for each event: its beginning and, of a relay, the lines that follow. */
static void fetch(const void *p, size_t n) {
    enum { LINE_BYTES = 64 };
    for (size_t at = 0; at < n; at += LINE_BYTES) __builtin_prefetch((const char *)p + at, 1);
}

/* One of those that come `steps` later than the newest: what it has is a chain of pointers, and
 * each step brings the next link. */
static struct relay *expected(struct relay_set *s, unsigned steps) {
    const uint64_t id =
        s->n_expected > steps ? s->expected[(s->n_expected - 1 - steps) % RELAY_EXPECTED] : 0;
    return id != 0 ? relay_find(s, id) : NULL;
}

void relay_expect(struct relay_set *s, const char *id, size_t id_len) {
    enum { TO_RELAY = 3, TO_EXCHANGE = 7, TO_CONN = 11 };
    uint64_t v = 0;
    for (size_t i = 0; i < id_len; i++) v = v * 10 + (uint64_t)(unsigned char)(id[i] - '0');
    s->expected[s->n_expected++ % RELAY_EXPECTED] = v;
    if (v != 0) __builtin_prefetch(bucket(s, v));
    if (s->n_expected > TO_RELAY) {
        const uint64_t near = s->expected[(s->n_expected - 1 - TO_RELAY) % RELAY_EXPECTED];
        if (near != 0 && *bucket(s, near) != NULL)
            fetch(*bucket(s, near), offsetof(struct relay, path));
    }
    const struct relay *r = expected(s, TO_EXCHANGE);
    if (r != NULL && r->out.x != NULL) http_x_fetch(r->out.x, 0);
    r = expected(s, TO_CONN);
    if (r != NULL && r->out.x != NULL) http_x_fetch(r->out.x, 1);
}

void relay_instance_lost(struct relay_set *s, uint32_t inst_id) {
    for (struct relay *r = s->first, *next; r != NULL; r = next) {
        next = r->next;
        if (r->attempt.d_id == inst_id) {
            lose_d(r, CAUSE_D_LOST, LEFT_BOTH);
        } else if (r->attempt.p_id == inst_id && !r->attempt.answered) {
            relay_lose(r, &(struct relay_input){.cause = CAUSE_P_LOST,
                                                .left = LEFT_BOTH,
                                                .text = "P instance error"});
        }
    }
    relay_schedule(s);
}

/* Those that use the instance as P, as D. */
static size_t move_all(struct relay_set *s, uint32_t inst_id, bool of_p, bool of_d,
                       enum cause cause) {
    size_t n_left = 0;
    for (struct relay *r = s->first, *next; r != NULL; r = next) {
        next = r->next;
        const struct attempt *a = &r->attempt;
        if ((of_d && a->d_id == inst_id) || (of_p && a->p_id == inst_id && !a->answered))
            n_left += !relay_move(r, inst_id, cause);
    }
    relay_schedule(s);
    return n_left;
}

size_t relay_move_off(struct relay_set *s, uint32_t inst_id, enum cause cause) {
    return move_all(s, inst_id, true, true, cause);
}

void relay_move_part(struct relay_set *s, uint32_t inst_id, bool of_d) {
    (void)move_all(s, inst_id, !of_d, of_d, CAUSE_ROLE_SWITCHED);
}

void relay_abort_all(struct relay_set *s, int status, const char *text) {
    while (s->first != NULL)
        relay_step(s->first, EV_FAILED,
                   &(struct relay_input){
                       .cause = CAUSE_STOPPING, .status = status, .text = text, .left = LEFT_BOTH});
}

/* ---- time */

static void look_at_memory(struct relay_set *s) {
    bool was = s->memory.full;
    if (s->memory.limit_bytes == 0) return;
    uint64_t used = mem_used_bytes("");
    if (mem_guard_look(&s->memory, used) != was)
        log_warn("relay", "event=%s memory_bytes=%llu limit_bytes=%llu",
                 was ? "memory_back" : "memory_short", (unsigned long long)used,
                 (unsigned long long)s->memory.limit_bytes);
}

static bool is_over(uint64_t since_ms, int64_t limit_s, uint64_t now) {
    return limit_s > 0 && now - since_ms >= (uint64_t)limit_s * 1000;
}

/* Why r has taken too long; CAUSE_NONE: it has not. */
static enum cause lateness(const struct relay *r, uint64_t now, const char **text) {
    const struct coord_conf *c = &r->set->co->conf;
    if (is_over(r->arrival_ms, c->infer_timeout_s, now)) {
        *text = "Request inference timeout";
        return CAUSE_INFER_TIMEOUT;
    }
    if (!runs(r) && is_over(r->since_ms, c->schedule_timeout_s, now)) {
        *text = "Request schedule timeout";
        return CAUSE_SCHEDULE_TIMEOUT;
    }
    if (!r->attempt.answered && is_over(r->since_ms, c->first_token_timeout_s, now)) {
        *text = "Request first token timeout";
        return CAUSE_FIRST_TOKEN_TIMEOUT;
    }
    if (!r->attempt.answered && r->first_token_us == 0 && r->deadline_ms > 0 &&
        now >= r->deadline_ms) {
        *text = "Request first token timeout";
        return CAUSE_DEADLINE;
    }
    return CAUSE_NONE;
}

/* A D that has begun to speak and says nothing any more. Who sends everything at the end is not
 * asked for anything before. */
static bool is_silent(const struct relay *r, uint64_t now) {
    const struct attempt *a = &r->attempt;
    return r->state == RELAY_DECODING && a->frame_ms != 0 && r->out.stream &&
           is_over(a->frame_ms, r->set->co->conf.decode_silence_s, now);
}

static void scan_one(struct relay *r, uint64_t now) {
    const char *text = NULL;
    const enum cause late = lateness(r, now, &text);
    if (late != CAUSE_NONE) {
        if (runs(r) && !r->attempt.answered && late != CAUSE_DEADLINE)
            relay_report_p(r, VERDICT_FAULT, text);
        relay_fail(r, late, text);
    } else if (r->gone_ms != 0 && is_over(r->gone_ms, r->set->co->conf.resume_grace_s, now)) {
        relay_step(r, EV_CLIENT_GONE, &(struct relay_input){.left = LEFT_BOTH});
    } else if (is_silent(r, now)) {
        relay_report_fault(r, CAUSE_D_SILENT, "");
        lose_d(r, CAUSE_D_SILENT, LEFT_BOTH);
    } else {
        relay_out_tick(&r->out, now);
    }
}

/* A stream under way has nothing that is due within less than seconds: it is looked at once in one
 * or two times REST_MS, which differ, so that thousands that began together are not looked at
 * together. */
static bool may_rest(const struct relay *r) {
    return r->state == RELAY_DECODING && r->attempt.answered;
}

static void on_scan(void *arg) {
    struct relay_set *s = arg;
    const uint64_t now = clock_ms();
    const size_t n_queued = s->n_queued;
    heap_pages_follow(&s->co->pages);
    look_at_memory(s);
    if (s->co->journal != NULL && now >= s->expire_ms) {
        journal_expire(s->co->journal, now);
        s->expire_ms = now + EXPIRE_MS;
    }
    /* From the end: in the place of one that goes comes the last, which has been looked at. */
    for (size_t i = s->n; i-- > 0;) {
        if (i >= s->n || now < s->looks[i].at_ms) continue;
        struct relay *r = s->looks[i].r;
        if (may_rest(r)) s->looks[i].at_ms = now + REST_MS + r->id % REST_MS;
        scan_one(r, now);
    }
    if (s->n_queued > n_queued) relay_schedule(s);
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
    s->uncached_mean = 1;
    s->token_chars = s->token_bytes = co->conf.string_token_rate;
    s->arrivals.window_s = s->placed.window_s = (double)co->conf.role_window_s;
    s->tenants = tenants_create();
    s->stats = model_stats_create();
    const bool by_cost = co->sched.policy == POLICY_COST,
               by_affinity = co->sched.policy == POLICY_CACHE_AFFINITY;
    s->book = by_cost ? prefix_book_create() : NULL;
    s->affinity = by_affinity ? affinity_create((size_t)co->conf.cache_size) : NULL;
    enum err e = s->tenants == NULL || s->stats == NULL || (by_cost && s->book == NULL) ||
                         (by_affinity && s->affinity == NULL)
                     ? ERR_NO_MEMORY
                     : loop_timer_start(&s->scan, co->loop, SCAN_MS, SCAN_MS, on_scan, s);
    if (e != ERR_OK) {
        tenants_destroy(&s->tenants);
        model_stats_destroy(&s->stats);
        prefix_book_destroy(&s->book);
        affinity_destroy(&s->affinity);
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
    model_stats_destroy(&s->stats);
    prefix_book_destroy(&s->book);
    affinity_destroy(&s->affinity);
    for (size_t i = 0; i < RECENT; i++) free(s->recent[i].lost);
    free(s->looks);
    free(s);
    *sp = NULL;
}

void relay_counts(const struct relay_set *s, struct relay_counts *out) {
    *out = s->counts;
    out->in_flight = s->n;
    out->queued = s->n_queued;
}

void relay_counts_named(const struct relay_set *s, struct relay_count out[RELAY_COUNTS]) {
    struct relay_counts c;
    relay_counts(s, &c);
    const struct relay_count all[RELAY_COUNTS] = {
        {"requestsInFlight", c.in_flight},  {"requestsQueued", c.queued},
        {"requestsReceived", c.received},   {"requestsFinished", c.finished},
        {"requestsFailed", c.failed},       {"requestsRetried", c.retried},
        {"requestsCancelled", c.cancelled}, {"requestsRefused", c.refused},
    };
    memcpy(out, all, sizeof(all));
}

const struct model_stats *relay_stats(const struct relay_set *s) {
    return s->stats;
}

const struct tenant *relay_tenants(const struct relay_set *s) {
    return tenants_first(s->tenants);
}
