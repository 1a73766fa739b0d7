/* proxy: requests that any instance can answer (model information, tokenising, vectors and scores)
 * go to the one with the fewest tasks, and of equals to each in turn. None of them changes
 * anything, so one whose instance is lost before its answer is whole goes to another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/kept.h"
#include "coordinator/coordinator.h"
#include "coordinator/fwd_headers.h"

enum {
    ANSWER_BYTES_MAX = 64 << 20,

    INFO_TIMEOUT_S = 30,
    PATH_BYTES_MAX = 4096,
    TRIED_MAX = 11 /* the largest max_retry, and the first */
};

struct proxied {
    struct coordinator *co;
    struct http_x *x;
    const struct api_path *row; /* NULL: asked for on a management plane */
    struct http_call *call;
    uint32_t tried[TRIED_MAX];
    int n_tried;
    uint64_t began_ms;
    struct buf answer; /* counted in BUDGET_ANSWER_BYTES: `taken` of it */
    uint64_t taken;
    struct kept_ask ask; /* what lies before the body */
    bool over_limit;
};

static void proxied_free(struct proxied *p) {
    budget_give(&p->co->budget, BUDGET_ANSWER_BYTES, p->taken);
    kept_ask_free(p->co->kept, &p->ask);
    buf_free(&p->answer);
    free(p);
}

static void on_gone(void *arg) {
    struct proxied *p = arg;
    http_call_cancel(&p->call);
    proxied_free(p);
}

/* A small body can ask for many megabytes of vectors. */
static bool on_data(void *arg, const char *bytes, size_t n) {
    struct proxied *p = arg;
    if (p->answer.len + n > ANSWER_BYTES_MAX) return false;
    p->over_limit = !budget_take(&p->co->budget, BUDGET_ANSWER_BYTES, n);
    if (p->over_limit) return false;
    p->taken += n;
    buf_append(&p->answer, bytes, n);
    return !p->answer.failed;
}

static void reply_over_limit(struct proxied *p) {
    const struct budget *b = &p->co->budget;
    char text[128];
    snprintf(text, sizeof(text), "The answers under way are over the limit of %llu bytes (%s)",
             (unsigned long long)budget_limit(b, BUDGET_ANSWER_BYTES),
             budget_key(BUDGET_ANSWER_BYTES));
    http_x_set_header(p->x, "Retry-After", "1");
    coord_reply_error(p->co, p->x, 503, text);
}

/* Slots are decode instances' (inference-api 13.7), so management calls prefer those. */
static bool more_of_a_decode(const struct inst *a, const struct inst *b) {
    return a->plan.place.role == ROLE_DECODE && b->plan.place.role != ROLE_DECODE;
}

/* One that is drained, held, stuck or in doubt is asked when there is no other. */
static bool fitter(const struct inst *a, const struct inst *b) {
    const bool a_serves = inst_serves(a, NULL), b_serves = inst_serves(b, NULL);
    if (a_serves != b_serves) return a_serves;
    return a->ledger.tasks != b->ledger.tasks ? a->ledger.tasks < b->ledger.tasks
                                              : a->ledger.asked < b->ledger.asked;
}

static bool was_tried(const struct proxied *p, const struct inst *in) {
    for (int i = 0; i < p->n_tried; i++)
        if (p->tried[i] == in->id) return true;
    return false;
}

static struct inst *choose(const struct proxied *p) {
    const bool management = p->row == NULL;
    struct inst *best = NULL;
    for (struct inst *in = p->co->reg.first; in != NULL; in = in->next) {
        if (!in->facts.online || !inst_answers(in) || in->life.state == INST_LEAVING) continue;
        if (was_tried(p, in)) continue;
        if (best == NULL || (management ? more_of_a_decode(in, best) : fitter(in, best))) best = in;
    }
    return best;
}

static bool is_get(const struct http_x *x) {
    return strcmp(http_x_method(x), "GET") == 0 || strcmp(http_x_method(x), "HEAD") == 0;
}

/* A query goes on as it came: the parser let no byte through that ends a request line. */
static bool put_query(char *dst, size_t cap, const struct http_x *x) {
    const char *query = http_x_query(x);
    const size_t n = strlen(dst);
    if (!is_get(x) || query[0] == '\0') return true;
    return snprintf(dst + n, cap - n, "?%s", query) < (int)(cap - n);
}

/* What an instance is asked for has every other byte escaped, so that it may be three times as long
 * as what the client sent. */
static void reply_too_long(struct coordinator *co, struct http_x *x) {
    char text[160];
    const size_t n_path = strlen(http_x_path(x)), n_query = is_get(x) ? strlen(http_x_query(x)) : 0;
    snprintf(text, sizeof(text),
             "The path and its query must have at most %d bytes as they go on to an instance, got "
             "%zu and %zu before they are escaped",
             PATH_BYTES_MAX - 1, n_path, n_query);
    coord_reply_error(co, x, 414, text);
}

static bool is_vectors(const struct proxied *p) {
    return p->row != NULL && (p->row->work == API_EMBED || p->row->work == API_SCORE);
}

/* Seconds of all attempts together; 0: no bound. */
static int64_t limit_s(const struct proxied *p) {
    const struct coord_conf *c = &p->co->conf;
    if (is_get(p->x)) return INFO_TIMEOUT_S;
    return is_vectors(p) ? c->vectors_timeout_s : c->tokenizer_timeout_s;
}

static void on_answer(void *arg, const struct http_result *r);

/* ERR_NOT_FOUND: nobody is left to ask. ERR_INVALID: a path that is too long. */
static enum err ask_next(struct proxied *p) {
    struct coordinator *co = p->co;
    struct http_x *x = p->x;
    struct inst *in = choose(p);
    char url[PATH_BYTES_MAX + 64], path[PATH_BYTES_MAX], context[24];
    size_t n;
    const char *body = http_x_body(x, &n);
    if (!fwd_path_put(path, sizeof(path), http_x_path(x)) || !put_query(path, sizeof(path), x))
        return ERR_INVALID;
    if (in == NULL) return ERR_NOT_FOUND;
    const uint64_t bound_ms = (uint64_t)limit_s(p) * 1000, spent_ms = clock_ms() - p->began_ms;
    if (bound_ms > 0 && spent_ms >= bound_ms) return ERR_TIMEOUT;
    struct tls *tls = coord_tls_url(&co->tls, url, sizeof(url), &in->node,
                                    p->row == NULL ? NODE_MANAGEMENT : NODE_BUSINESS, path);
    struct fwd_headers headers;
    fwd_headers_init(&headers);
    if (!is_get(x)) fwd_headers_add_framing(&headers, x, p->row);
    if (p->row != NULL && http_x_header(x, ANTHROPIC_HEADER) != NULL)
        fwd_headers_add(&headers, ANTHROPIC_HEADER, "any");
    fwd_headers_add(&headers, TENANT_HEADER, http_x_tenant(x));
    fwd_headers_add_trace(&headers, x, NULL);
    snprintf(context, sizeof(context), "%zu", p->ask.context.len);
    if (p->ask.context.len > 0) fwd_headers_add(&headers, CONTEXT_HEADER, context);
    struct http_call_opts o = {.method = is_get(x) ? "GET" : http_x_method(x),
                               .url = url,
                               .tls = tls,
                               .headers = headers.list,
                               .body = body,
                               .body_len = n,
                               .body_lent = true, /* x has it until it is answered */
                               .tail = p->ask.context.data,
                               .tail_len = p->ask.context.len,
                               .total_ms = (unsigned)(bound_ms > 0 ? bound_ms - spent_ms : 0),
                               .on_data = on_data,
                               .on_done = on_answer,
                               .arg = p};
    if (p->row != NULL) ledger_ask(&in->ledger);
    p->tried[p->n_tried++] = in->id;
    return http_client_call(co->client, &o, &p->call);
}

/* The instance has gone with the answer: another one may have it. True: it is asked. */
static bool goes_on(struct proxied *p, const struct http_result *r) {
    struct coordinator *co = p->co;
    const uint32_t id = p->tried[p->n_tried - 1];
    struct inst *in = registry_find(&co->reg, id);
    if (r->err != ERR_PEER_LOST) return false;
    log_warn("proxy", "path=%s id=%u event=lost detail=\"%s\"", http_x_path(p->x), id,
             r->detail != NULL ? r->detail : err_text(r->err));
    if (in != NULL) inst_suspect(in, clock_ms(), "a request lost its connection");
    controller_poll_soon(co);
    if (p->n_tried > co->conf.retries_max || p->n_tried == TRIED_MAX) return false;
    budget_give(&co->budget, BUDGET_ANSWER_BYTES, p->taken);
    p->taken = 0;
    buf_free(&p->answer);
    return ask_next(p) == ERR_OK;
}

static void reply_timeout(const struct proxied *p) {
    char text[128];
    if (!is_vectors(p)) {
        coord_reply_error(p->co, p->x, 408, "Request tokenizer timeout");
        return;
    }
    snprintf(text, sizeof(text), "The answer took longer than %lld s (pd.vectors_timeout_s)",
             (long long)p->co->conf.vectors_timeout_s);
    coord_reply_error(p->co, p->x, 408, text);
}

static void on_answer(void *arg, const struct http_result *r) {
    struct proxied *p = arg;
    p->call = NULL;
    if (goes_on(p, r)) return;
    http_x_on_close(p->x, NULL, NULL);
    if (r->err == ERR_OK) {
        const bool ours = p->answer.len > 0; /* of other statuses on_data gets nothing */
        http_x_reply(p->x, r->status, coord_media_type(r->content_type),
                     ours ? p->answer.data : r->body, ours ? p->answer.len : r->body_len);
    } else if (p->over_limit) {
        reply_over_limit(p);
    } else if (r->err == ERR_TIMEOUT) {
        reply_timeout(p);
    } else {
        coord_reply_error(p->co, p->x, 500, "Read tokenizer response from mindie-server failed");
    }
    proxied_free(p);
}

void proxy_to_instance(struct coordinator *co, struct http_x *x, const struct api_path *row) {
    struct proxied *p = calloc(1, sizeof(*p));
    enum err e = ERR_NO_MEMORY;
    if (p != NULL) {
        *p = (struct proxied){.co = co, .x = x, .row = row, .began_ms = clock_ms()};
        if (row != NULL && row->chained && !kept_ask_read(co->kept, x, &p->ask)) {
            free(p);
            return;
        }
        http_x_on_close(x, on_gone, p);
        if ((e = ask_next(p)) == ERR_OK) return;
        http_x_on_close(x, NULL, NULL);
        proxied_free(p);
    }
    if (e == ERR_INVALID) {
        reply_too_long(co, x);
        return;
    }
    http_x_set_header(x, "Retry-After", "1");
    coord_reply_error(co, x, 503, e == ERR_NOT_FOUND ? coord_not_ready(co) : err_text(e));
}
