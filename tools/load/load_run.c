/* load_run: one loop; a flight for each request under way. Requests are sent by a timer of a
 * millisecond where they have times, and behind each answer where clients wait for it. */
#include "tools/load/load_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/net/http_client.h"
#include "common/net/loop.h"
#include "proto/json.h"
#include "tools/load/load_answer.h"
#include "tools/load/load_sse.h"

enum { TICK_MS = 1, PROGRESS_MS = 500, PREPARE_MS = 120000, WORDS_FEW = 40, WORDS_MANY = 240 };

struct runner {
    struct load_result *out;
    const struct load_target *to;
    const struct load_plan *plan;
    struct load_source *source;
    struct loop *loop;
    struct http_client *client;
    struct loop_timer *tick, *tell;
    uint64_t began_us,
        counted_us; /* counted_us: when the first counted request was sent; 0: none */
    uint64_t n_given;
    unsigned n_open;
    bool has_next, source_ended, no_memory;
    struct load_ask next;
    struct flight *long_one; /* under way */
    uint64_t long_due_us, n_long;
};

struct flight {
    struct runner *r;
    struct http_call *call;
    struct load_sse sse;
    uint64_t sent_us, first_us, last_us;
    int64_t in, out; /* usage; -1: not told */
    uint64_t n_texts;
    bool counted, is_long, done;
    char error[200];
};

static void go_on(struct runner *r);

static double now_s(const struct runner *r) {
    return (double)(clock_us() - r->began_us) / 1e6;
}

/* ---- an answer as it comes */

static void note_gap(struct runner *r, double us) {
    load_hist_add(&r->out->gap, us);
    if (r->plan->long_tokens > 0)
        load_hist_add(r->long_one != NULL ? &r->out->gap_beside : &r->out->gap_calm, us);
}

static void note_text(struct flight *f) {
    struct runner *r = f->r;
    const uint64_t now = clock_us();
    f->n_texts++;
    if (f->first_us == 0)
        f->first_us = now;
    else if (f->counted && !f->is_long)
        note_gap(r, (double)(now - f->last_us));
    f->last_us = now;
    if (!f->counted || f->is_long) return;
    const uint64_t s = (now - r->counted_us) / 1000000;
    if (s >= LOAD_SERIES_S) return;
    r->out->tokens_in_second[s]++;
    if (s + 1 > r->out->n_seconds) r->out->n_seconds = (uint32_t)s + 1;
}

static bool on_event(void *arg, const char *data, size_t n) {
    struct flight *f = arg;
    struct load_event e;
    if (!load_event_read(&e, data, n)) {
        snprintf(f->error, sizeof(f->error), "an event that is no JSON: %.80s", data);
        return false;
    }
    if (e.error[0] != 0) {
        snprintf(f->error, sizeof(f->error), "%s", e.error);
        return false;
    }
    if (e.has_text) note_text(f);
    if (e.in >= 0) f->in = e.in;
    if (e.out >= 0) f->out = e.out;
    f->done = f->done || e.is_end;
    return true;
}

static bool on_data(void *arg, const char *p, size_t n) {
    struct flight *f = arg;
    if (load_sse_feed(&f->sse, p, n)) return true;
    if (f->error[0] == 0) snprintf(f->error, sizeof(f->error), "an event is too large");
    return false;
}

/* ---- its end */

static bool is_good(const struct load_plan *p, double ttft_us, double gap_us) {
    return (p->ttft_goal_ms <= 0 || ttft_us <= p->ttft_goal_ms * 1000) &&
           (p->gap_goal_ms <= 0 || gap_us <= p->gap_goal_ms * 1000);
}

static void count_failed(struct flight *f) {
    struct load_result *o = f->r->out;
    if (o->n_failed++ == 0) snprintf(o->first_failure, sizeof(o->first_failure), "%s", f->error);
}

static void count_ended(struct flight *f) {
    struct runner *r = f->r;
    struct load_result *o = r->out;
    const uint64_t now = clock_us();
    const double ttft = (double)(f->first_us - f->sent_us);
    const uint64_t n = f->out > 0 ? (uint64_t)f->out : f->n_texts;
    const double gap = n > 1 ? (double)(f->last_us - f->first_us) / (double)(n - 1) : 0;
    load_hist_add(&o->ttft, ttft);
    if (n > 1) load_hist_add(&o->mean_gap, gap);
    load_hist_add(&o->whole, (double)(now - f->sent_us));
    o->n_good += is_good(r->plan, ttft, gap);
    o->in_tokens += f->in > 0 ? (uint64_t)f->in : 0;
    o->out_tokens += n;
}

static void free_flight(struct flight *f) {
    load_sse_free(&f->sse);
    free(f);
}

static void on_done(void *arg, const struct http_result *res) {
    struct flight *f = arg;
    struct runner *r = f->r;
    const uint64_t now = clock_us();
    if (res->err == ERR_OK && res->status != 200) {
        int n = snprintf(f->error, sizeof(f->error), "status %d: ", res->status);
        load_error_text(f->error + n, sizeof(f->error) - (size_t)n, res->body, res->body_len);
    } else if (res->err != ERR_OK && f->error[0] == 0) {
        snprintf(f->error, sizeof(f->error), "%s",
                 res->detail[0] != 0 ? res->detail : err_text(res->err));
    } else if (f->error[0] == 0 && f->first_us == 0) {
        snprintf(f->error, sizeof(f->error), "an answer without a token");
    } else if (f->error[0] == 0 && !f->done) {
        snprintf(f->error, sizeof(f->error), "a stream without its end");
    }
    r->n_open--;
    if (f->is_long) {
        r->long_one = NULL;
        r->long_due_us = now + (uint64_t)(r->plan->long_every_s * 1e6);
        if (f->error[0] == 0 && f->counted)
            load_hist_add(&r->out->long_ttft, (double)(f->first_us - f->sent_us));
        else if (f->error[0] != 0)
            count_failed(f);
    } else if (f->counted) {
        r->out->n_ended++;
        if (f->error[0] != 0)
            count_failed(f);
        else
            count_ended(f);
        r->out->seconds = (double)(now - r->counted_us) / 1e6;
    } else if (f->error[0] != 0 && r->out->first_failure[0] == 0) {
        snprintf(r->out->first_failure, sizeof(r->out->first_failure), "%s", f->error);
    }
    free_flight(f);
    go_on(r);
}

/* ---- sending */

static void put_body(struct buf *b, const struct load_target *t, const struct load_ask *ask,
                     uint64_t seed) {
    struct buf text = BUF_INIT;
    load_text_prompt(&text, ask, &t->tokens, seed);
    buf_puts(b, "{\"model\":");
    buf_json_str(b, t->model, strlen(t->model));
    buf_puts(b, t->chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    buf_json_str(b, text.data == NULL ? "" : text.data, text.len);
    buf_printf(b,
               "%s,\"max_tokens\":%u,\"temperature\":0,\"stream\":true,\"stream_options\":{"
               "\"include_usage\":true}%s}",
               t->chat ? "}]" : "", ask->out, t->keep_eos ? "" : ",\"ignore_eos\":true");
    b->failed = b->failed || text.failed;
    buf_free(&text);
}

static enum err call(struct http_client *client, struct http_call **out,
                     const struct load_target *t, struct http_call_opts *o, const char *path) {
    struct buf url = BUF_INIT, key = BUF_INIT;
    buf_printf(&url, "%s%s", t->base, path);
    buf_printf(&key, "Authorization: Bearer %s", t->api_key != NULL ? t->api_key : "");
    const char *headers[] = {"Content-Type: application/json", t->api_key != NULL ? key.data : NULL,
                             NULL};
    o->url = url.data;
    o->headers = headers;
    o->tls = t->tls;
    const enum err e = url.failed || key.failed ? ERR_NO_MEMORY : http_client_call(client, o, out);
    buf_free(&url);
    buf_free(&key);
    return e;
}

static const char *path_of(const struct load_target *t) {
    return t->chat ? "/v1/chat/completions" : "/v1/completions";
}

static struct flight *send_one(struct runner *r, const struct load_ask *ask, bool is_long) {
    struct buf body = BUF_INIT;
    struct flight *f = calloc(1, sizeof(*f));
    put_body(&body, r->to, ask, r->plan->seed);
    enum err e = f == NULL || body.failed ? ERR_NO_MEMORY : ERR_OK;
    if (e == ERR_OK) {
        f->r = r;
        f->in = f->out = -1;
        f->is_long = is_long;
        f->sse.on_event = on_event;
        f->sse.arg = f;
        f->sent_us = clock_us();
        f->counted = now_s(r) >= r->plan->warm_up_s;
        if (f->counted && r->counted_us == 0) r->counted_us = f->sent_us;
        struct http_call_opts o = {.method = "POST",
                                   .body = body.data,
                                   .body_len = body.len,
                                   .total_ms = (unsigned)(r->plan->timeout_s * 1000),
                                   .on_data = on_data,
                                   .on_done = on_done,
                                   .arg = f};
        e = call(r->client, &f->call, r->to, &o, path_of(r->to));
    }
    buf_free(&body);
    if (e == ERR_OK) {
        r->n_open++;
        if (f->counted && !is_long) r->out->n_sent++;
        return f;
    }
    free(f);
    r->no_memory = true;
    return NULL;
}

static void take_next(struct runner *r) {
    if (r->has_next || r->source_ended) return;
    const struct load_plan *p = r->plan;
    if ((p->requests > 0 && r->n_given == p->requests) ||
        (p->seconds > 0 && now_s(r) >= p->warm_up_s + p->seconds) ||
        !load_source_next(r->source, &r->next) ||
        (p->clients == 0 && p->seconds > 0 && r->next.at_s >= p->warm_up_s + p->seconds)) {
        r->source_ended = true;
        return;
    }
    r->n_given++;
    r->has_next = true;
}

static void send_long(struct runner *r) {
    if (r->plan->long_tokens == 0 || r->source_ended || r->long_one != NULL ||
        now_s(r) < r->plan->warm_up_s || clock_us() < r->long_due_us)
        return;
    const struct load_ask ask = {
        .number = UINT64_MAX / 4 - r->n_long++, .in = r->plan->long_tokens, .out = 1};
    r->long_one = send_one(r, &ask, true);
}

static void go_on(struct runner *r) {
    const struct load_plan *p = r->plan;
    send_long(r);
    for (;;) {
        take_next(r);
        if (!r->has_next || r->no_memory) break;
        const unsigned open = r->n_open - (r->long_one != NULL);
        const double late = now_s(r) - r->next.at_s;
        if (p->clients > 0 ? open >= p->clients : late < 0) break;
        r->has_next = false;
        if (open >= LOAD_CLIENTS_MAX) {
            r->out->n_held++;
            continue;
        }
        if (p->clients == 0) r->out->late_us = fmax(r->out->late_us, late * 1e6);
        send_one(r, &r->next, false);
    }
    if (r->no_memory || (r->source_ended && r->n_open == 0)) loop_stop(r->loop);
}

static void on_tick(void *arg) {
    go_on(arg);
}

static void on_tell(void *arg) {
    const struct runner *r = arg;
    const struct load_result *o = r->out;
    fprintf(stderr,
            "\r%6.1f s: %u under way, %llu ended, %llu failed; first token %.0f ms, gap %.1f ms "
            "(medians)\033[K",
            now_s(r), r->n_open, (unsigned long long)o->n_ended, (unsigned long long)o->n_failed,
            load_hist_quantile(&o->ttft, 0.5) / 1000, load_hist_quantile(&o->gap, 0.5) / 1000);
    fflush(stderr);
}

enum err load_run(struct load_result *out, const struct load_target *t,
                  const struct load_plan *plan, struct load_source *source) {
    struct runner r = {.out = out, .to = t, .plan = plan, .source = source};
    memset(out, 0, sizeof(*out));
    load_source_rewind(source);
    enum err e = loop_create(&r.loop);
    if (e == ERR_OK) e = http_client_create(&r.client, r.loop, "baton-bench/1.0");
    r.began_us = clock_us();
    if (e == ERR_OK) e = loop_timer_start(&r.tick, r.loop, 0, TICK_MS, on_tick, &r);
    if (e == ERR_OK && plan->progress)
        e = loop_timer_start(&r.tell, r.loop, PROGRESS_MS, PROGRESS_MS, on_tell, &r);
    if (e == ERR_OK) loop_run(r.loop);
    loop_timer_stop(&r.tick);
    loop_timer_stop(&r.tell);
    if (plan->progress) fputs("\r\033[K", stderr);
    http_client_destroy(&r.client);
    if (r.loop != NULL) loop_destroy(&r.loop);
    return r.no_memory ? ERR_NO_MEMORY : e;
}

double load_result_rate(const struct load_result *r, double amount) {
    return r->seconds > 0 ? amount / r->seconds : 0;
}

/* ---- before the first run */

struct asked {
    struct loop *loop;
    enum err err;
    int status;
    struct buf body;
    char why[240];
};

static void on_asked(void *arg, const struct http_result *res) {
    struct asked *a = arg;
    a->err = res->err;
    a->status = res->status;
    if (res->err != ERR_OK)
        snprintf(a->why, sizeof(a->why), "%s",
                 res->detail[0] != 0 ? res->detail : err_text(res->err));
    buf_append(&a->body, res->body, res->body_len);
    loop_stop(a->loop);
}

/* One call, waited for; *out is the JSON of a 200. */
static enum err ask(const struct load_target *t, const char *path, const struct buf *body,
                    struct json_value **out, struct errbuf *eb) {
    struct asked a = {0};
    struct http_client *client = NULL;
    struct http_call_opts o = {.method = body == NULL ? "GET" : "POST",
                               .total_ms = PREPARE_MS,
                               .on_done = on_asked,
                               .arg = &a};
    if (body != NULL) o.body = body->data, o.body_len = body->len;
    enum err e = loop_create(&a.loop);
    if (e == ERR_OK) e = http_client_create(&client, a.loop, "baton-bench/1.0");
    if (e == ERR_OK) e = call(client, NULL, t, &o, path);
    if (e == ERR_OK) loop_run(a.loop);
    http_client_destroy(&client);
    if (a.loop != NULL) loop_destroy(&a.loop);
    if (e != ERR_OK) {
        err_set(eb, e, "%s%s: %s", t->base, path, err_text(e));
    } else if (a.err != ERR_OK) {
        e = err_set(eb, a.err, "%s%s: %s; is a server there?", t->base, path, a.why);
    } else if (a.status != 200) {
        load_error_text(a.why, sizeof(a.why), a.body.data == NULL ? "" : a.body.data, a.body.len);
        e = err_set(eb, ERR_INVALID, "%s%s: status %d: %s", t->base, path, a.status, a.why);
    } else if (json_read(out, a.body.data == NULL ? "" : a.body.data, a.body.len, NULL, NULL) !=
               ERR_OK) {
        e = err_set(eb, ERR_BAD_JSON, "%s%s: an answer that is no JSON", t->base, path);
    }
    buf_free(&a.body);
    return e;
}

static enum err first_model(struct load_target *t, struct errbuf *eb) {
    struct json_value *v = NULL, *data;
    const char *id;
    size_t n;
    enum err e = ask(t, "/v1/models", NULL, &v, eb);
    if (e != ERR_OK) return e;
    if (json_get_arr(v, "data", &data) != JSON_OK || json_arr_len(data) == 0 ||
        json_get_str(json_arr_at(data, 0), "id", &id, &n) != JSON_OK || n == 0 ||
        n >= sizeof(t->model))
        e = err_set(eb, ERR_INVALID, "%s/v1/models names no model; name one by --model", t->base);
    else
        snprintf(t->model, sizeof(t->model), "%s", id);
    json_put(v);
    return e;
}

/* prompt_tokens of a prompt of n words; -1: the server does not say. */
static enum err tokens_of(const struct load_target *t, size_t words, int64_t *tokens,
                          struct errbuf *eb) {
    struct buf body = BUF_INIT, text = BUF_INIT;
    struct json_value *v = NULL, *usage;
    load_text_words(&text, words, words);
    buf_puts(&body, "{\"model\":");
    buf_json_str(&body, t->model, strlen(t->model));
    buf_puts(&body, t->chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    buf_json_str(&body, text.data == NULL ? "" : text.data, text.len);
    buf_printf(&body, "%s,\"max_tokens\":1,\"temperature\":0}", t->chat ? "}]" : "");
    enum err e = body.failed || text.failed ? ERR_NO_MEMORY : ask(t, path_of(t), &body, &v, eb);
    *tokens = -1;
    if (e == ERR_OK && json_get_obj(v, "usage", &usage) == JSON_OK)
        json_get_i64(usage, "prompt_tokens", tokens);
    json_put(v);
    buf_free(&body);
    buf_free(&text);
    return e;
}

enum err load_target_prepare(struct load_target *t, struct errbuf *eb) {
    int64_t few, many;
    enum err e = t->model[0] == 0 ? first_model(t, eb) : ERR_OK;
    if (e == ERR_OK) e = tokens_of(t, WORDS_FEW, &few, eb);
    if (e == ERR_OK) e = tokens_of(t, WORDS_MANY, &many, eb);
    if (e != ERR_OK) return e;
    t->measured = few >= 0 && load_tokens_fit(&t->tokens, WORDS_FEW, few, WORDS_MANY, many);
    if (!t->measured) t->tokens = (struct load_tokens){.fixed = 0, .per_word = 1.3};
    return ERR_OK;
}
