/* proxy: requests that any instance can answer (model information, tokenising, vectors and scores)
 * go to the one with the fewest tasks, and of equals to each in turn. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/coordinator.h"
#include "coordinator/fwd_headers.h"

enum {
    ANSWER_BYTES_MAX = 64 << 20,

    INFO_TIMEOUT_S = 30,
    PATH_BYTES_MAX = 4096
};

struct proxied {
    struct coordinator *co;
    struct http_x *x;
    struct http_call *call;
    struct buf answer; /* counted in BUDGET_ANSWER_BYTES: `taken` of it */
    uint64_t taken;
    bool over_limit;
};

static void proxied_free(struct proxied *p) {
    budget_give(&p->co->budget, BUDGET_ANSWER_BYTES, p->taken);
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

static void on_answer(void *arg, const struct http_result *r) {
    struct proxied *p = arg;
    http_x_on_close(p->x, NULL, NULL);
    if (r->err == ERR_OK) {
        const bool ours = p->answer.len > 0; /* of other statuses on_data gets nothing */
        http_x_reply(p->x, r->status, coord_media_type(r->content_type),
                     ours ? p->answer.data : r->body, ours ? p->answer.len : r->body_len);
    } else if (p->over_limit) {
        reply_over_limit(p);
    } else if (r->err == ERR_TIMEOUT) {
        coord_reply_error(p->co, p->x, 408, "Request tokenizer timeout");
    } else {
        coord_reply_error(p->co, p->x, 500, "Read tokenizer response from mindie-server failed");
    }
    proxied_free(p);
}

/* Slots are decode instances' (inference-api 13.7), so management calls prefer those. */
static bool less_busy(const struct ledger *a, const struct ledger *b) {
    return a->tasks != b->tasks ? a->tasks < b->tasks : a->asked < b->asked;
}

static struct inst *choose(const struct coordinator *co, bool management) {
    struct inst *best = NULL;
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!in->facts.online || !inst_answers(in) || in->life.state == INST_LEAVING) continue;
        bool better = best == NULL ||
                      (management && in->plan.place.role == ROLE_DECODE &&
                       best->plan.place.role != ROLE_DECODE) ||
                      (!management && less_busy(&in->ledger, &best->ledger));
        if (better) best = in;
    }
    return best;
}

/* The path as a request line has it: everything but unreserved characters (RFC 3986) escaped, so
 * that a model's name cannot become a query or another path. False: too long. */
static bool put_path(char *dst, size_t cap, const char *path) {
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (const char *p = path; *p != 0; p++) {
        unsigned char c = (unsigned char)*p;
        if (n + 4 > cap) return false;
        if (c < 0x80 && (isalnum(c) || strchr("/-._~", c) != NULL)) {
            dst[n++] = (char)c;
        } else {
            dst[n++] = '%';
            dst[n++] = hex[c >> 4];
            dst[n++] = hex[c & 15];
        }
    }
    dst[n] = 0;
    return true;
}

void proxy_to_instance(struct coordinator *co, struct http_x *x, const struct api_path *row) {
    const bool management_plane = row == NULL;
    struct inst *in = choose(co, management_plane);
    struct proxied *p = in != NULL ? calloc(1, sizeof(*p)) : NULL;
    char url[PATH_BYTES_MAX + 64], path[PATH_BYTES_MAX];
    size_t n;
    const char *body = http_x_body(x, &n);
    if (!put_path(path, sizeof(path), http_x_path(x))) {
        free(p);
        coord_reply_error(co, x, 404, "Invalid request");
        return;
    }
    if (p == NULL) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(co, x, 503, coord_not_ready(co));
        return;
    }
    *p = (struct proxied){.co = co, .x = x};
    struct tls *tls = coord_tls_url(&co->tls, url, sizeof(url), &in->node,
                                    management_plane ? NODE_MANAGEMENT : NODE_BUSINESS, path);
    const char *method = strcmp(http_x_method(x), "HEAD") == 0 ? "GET" : http_x_method(x);
    bool post = strcmp(method, "GET") != 0;
    int64_t limit_s = post ? co->conf.tokenizer_timeout_s : INFO_TIMEOUT_S;
    struct fwd_headers headers;
    fwd_headers_init(&headers);
    if (post) fwd_headers_add_framing(&headers, x, row);
    fwd_headers_add(&headers, TENANT_HEADER, http_x_tenant(x));
    fwd_headers_add_trace(&headers, x);
    struct http_call_opts o = {.method = method,
                               .url = url,
                               .tls = tls,
                               .headers = headers.list,
                               .body = body,
                               .body_len = n,
                               .body_lent = true, /* x has it until it is answered */
                               .total_ms = (unsigned)limit_s * 1000,
                               .on_data = on_data,
                               .on_done = on_answer,
                               .arg = p};
    if (!management_plane) ledger_ask(&in->ledger);
    http_x_on_close(x, on_gone, p);
    if (http_client_call(co->client, &o, &p->call) != ERR_OK) {
        http_x_on_close(x, NULL, NULL);
        free(p);
        coord_reply_error(co, x, 503, err_text(ERR_NO_MEMORY));
    }
}
