/* etcd: one call is a request, and a login before it where one is needed. */
#include "coordinator/etcd.h"

#include <stdio.h>
#include <string.h>
#include "common/net/http_client.h"

static const char *const paths[] = {
    [ETCD_GRANT] = "/v3/lease/grant",   [ETCD_KEEP_ALIVE] = "/v3/lease/keepalive",
    [ETCD_REVOKE] = "/v3/lease/revoke", [ETCD_RANGE] = "/v3/kv/range",
    [ETCD_TXN] = "/v3/kv/txn",
};
enum { LOGIN_MS = 5000 }; /* etcd makes it slow on purpose */
#define LOGIN_PATH "/v3/auth/authenticate"

bool etcd_busy(const struct etcd_call *c) {
    return c->call != NULL;
}

const char *etcd_member(const struct etcd *e) {
    return e->members[e->at];
}

static void on_answer(void *arg, const struct http_result *r);

static enum err send(struct etcd_call *c) {
    struct etcd *e = c->etcd;
    char url[ETCD_MEMBER_BYTES + 64], token[ETCD_TOKEN_BYTES + 32];
    const char *headers[] = {"Content-Type: application/json", NULL, NULL};
    struct buf login = BUF_INIT;
    c->logging_in = e->user[0] != '\0' && e->token[0] == '\0';
    snprintf(url, sizeof(url), "%s://%s%s", e->tls != NULL ? "https" : "http", etcd_member(e),
             c->logging_in ? LOGIN_PATH : paths[c->op]);
    if (c->logging_in) {
        etcd_put_login(&login, e->user, e->password);
    } else if (e->token[0] != '\0') {
        snprintf(token, sizeof(token), "Authorization: %s", e->token);
        headers[1] = token;
    }
    const unsigned ms =
        c->logging_in && c->timeout_ms < LOGIN_MS ? (unsigned)LOGIN_MS : c->timeout_ms;
    const struct buf *body = c->logging_in ? &login : &c->body;
    const struct http_call_opts o = {.method = "POST",
                                     .url = url,
                                     .headers = headers,
                                     .body = body->data,
                                     .body_len = body->len,
                                     .connect_ms = c->timeout_ms,
                                     .total_ms = ms,
                                     .body_bytes_max = ETCD_ANSWER_BYTES_MAX,
                                     .tls = e->tls,
                                     .on_done = on_answer,
                                     .arg = c};
    const enum err err = body->failed ? ERR_NO_MEMORY : http_client_call(e->client, &o, &c->call);
    buf_free(&login);
    return err;
}

static void finish(struct etcd_call *c, enum err err, const struct etcd_answer *a,
                   const char *why) {
    const struct etcd_result r = {.err = err, .answer = a, .why = why};
    buf_free(&c->body);
    c->on_done(c->arg, &r);
}

/* It was another one's turn to be asked, or will be. */
static void ask_next_member(struct etcd *e) {
    e->at = (e->at + 1) % e->n_members;
}

/* A token that has run out, that another member gave, or that a restart has forgotten. */
static bool may_be_the_token(const struct etcd_call *c, int status) {
    return (status == 400 || status == 401) && c->etcd->user[0] != '\0' && !c->has_logged_in;
}

static void refused(struct etcd_call *c, const struct http_result *r) {
    char said[ETCD_WHY_BYTES], why[2 * ETCD_WHY_BYTES];
    etcd_answer_error(said, r->body, r->body_len);
    snprintf(why, sizeof(why), "%s status %d: %s%s%s%s", c->logging_in ? LOGIN_PATH : paths[c->op],
             r->status, said, c->etcd->user[0] != '\0' ? " (user " : "", c->etcd->user,
             c->etcd->user[0] != '\0' ? ")" : "");
    if (r->status >= 500 || r->status == 408 || r->status == 429) {
        ask_next_member(c->etcd);
        finish(c, ERR_PEER_LOST, NULL, why);
    } else {
        finish(c, r->status == 404 && c->op == ETCD_REVOKE ? ERR_NOT_FOUND : ERR_REFUSED, NULL,
               why);
    }
}

static void again(struct etcd_call *c) {
    const enum err e = send(c);
    if (e != ERR_OK) finish(c, e, NULL, err_text(e));
}

static void on_answer(void *arg, const struct http_result *r) {
    struct etcd_call *c = arg;
    struct etcd_answer a;
    struct errbuf eb = {0};
    c->call = NULL;
    if (r->err != ERR_OK) {
        ask_next_member(c->etcd);
        finish(c, r->err == ERR_TIMEOUT ? ERR_TIMEOUT : ERR_PEER_LOST, NULL,
               r->detail != NULL && r->detail[0] != '\0' ? r->detail : err_text(r->err));
    } else if (r->status != 200 && !c->logging_in && may_be_the_token(c, r->status)) {
        c->etcd->token[0] = '\0';
        c->has_logged_in = true;
        again(c);
    } else if (r->status != 200) {
        refused(c, r);
    } else if (etcd_answer_parse(&a, r->body, r->body_len, &eb) != ERR_OK) {
        finish(c, ERR_REFUSED, NULL, eb.text);
    } else if (c->logging_in) {
        memcpy(c->etcd->token, a.token, sizeof(a.token));
        c->has_logged_in = true;
        etcd_answer_free(&a);
        if (c->etcd->token[0] == '\0')
            finish(c, ERR_REFUSED, NULL, LOGIN_PATH " gave no token");
        else
            again(c);
    } else {
        finish(c, ERR_OK, &a, "");
        etcd_answer_free(&a);
    }
}

enum err etcd_start(struct etcd *e, struct etcd_call *c, enum etcd_op op, struct buf *body,
                    unsigned timeout_ms) {
    c->etcd = e;
    c->op = op;
    c->timeout_ms = timeout_ms;
    c->has_logged_in = false;
    buf_free(&c->body);
    c->body = *body;
    *body = BUF_INIT;
    const enum err err = send(c);
    if (err != ERR_OK) buf_free(&c->body);
    return err;
}

void etcd_cancel(struct etcd_call *c) {
    http_call_cancel(&c->call);
    buf_free(&c->body);
}
