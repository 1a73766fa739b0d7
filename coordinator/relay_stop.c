/* relay_stop: stopInfer (cluster-api 3.13, 5.8): the coordinator's own to P and D when nobody waits
 * for their work any more, and a client's, which is passed on to both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/log.h"
#include "coordinator/relay_priv.h"
#include "proto/json_pull.h"

enum { STOP_TIMEOUT_MS = 5000, STOP_BODY_BYTES = 64 };

/* A client that asked, until P and D have answered. */
struct asker {
    struct coordinator *co;
    struct http_x *x; /* NULL: gone */
    char id[CLIENT_ID_BYTES_MAX + 1];
    unsigned n_open;
    bool found;
};

struct stop_call {
    struct coordinator *co;
    uint32_t inst_id, epoch;
    bool keep;
    char req_id[24];
    char tenant[TENANT_BYTES_MAX + 1];
    unsigned n_tries;
    struct asker *asker; /* NULL: nobody waits for the outcome */
};

static void on_asker_gone(void *arg) {
    ((struct asker *)arg)->x = NULL;
}

static void not_found(struct coordinator *co, struct http_x *x, const char *id) {
    char text[CLIENT_ID_BYTES_MAX + 64];
    snprintf(text, sizeof(text), "Stop request id %s not found.", id);
    coord_reply_error(co, x, 404, text);
}

static void echo(struct http_x *x) {
    size_t n;
    const char *body = http_x_body(x, &n);
    http_x_reply(x, 200, "application/json; charset=utf-8", body, n);
}

static void asker_step(struct asker *a) {
    if (a->n_open > 0) return;
    if (a->x != NULL) {
        http_x_on_close(a->x, NULL, NULL);
        if (a->found) {
            echo(a->x);
        } else {
            not_found(a->co, a->x, a->id); /* it has ended meanwhile */
        }
    }
    free(a);
}

static bool send_stop(struct stop_call *c);

static void on_stopped(void *arg, const struct http_result *res) {
    struct stop_call *c = arg;
    struct asker *a = c->asker;
    bool lost = res->err == ERR_PEER_LOST || res->err == ERR_TIMEOUT;
    if (lost && c->n_tries <= (unsigned)c->co->conf.retries_max && send_stop(c)) return;
    if (lost) log_warn("relay", "req=%s event=stop_not_sent id=%u", c->req_id, c->inst_id);
    free(c);
    if (a == NULL) return;
    a->n_open--;
    a->found |= res->err == ERR_OK && res->status == 200;
    asker_step(a);
}

static bool send_stop(struct stop_call *c) {
    char tenant[sizeof(TENANT_HEADER ": ") + TENANT_BYTES_MAX], epoch[32];
    const char *const headers[] = {"Content-Type: application/json", tenant, epoch,
                                   c->keep ? "baton-keep-kv: 1" : NULL, NULL};
    const struct inst *in = registry_find(&c->co->reg, c->inst_id);
    char path[MODEL_NAME_BYTES_MAX + 64], url[MODEL_NAME_BYTES_MAX + 192], body[STOP_BODY_BYTES];
    if (in == NULL || !inst_answers(in)) return false;
    snprintf(path, sizeof(path), "/v2/models/%s/stopInfer", in->facts.config.model_name);
    struct tls *tls = coord_tls_url(&c->co->tls, url, sizeof(url), &in->node, NODE_BUSINESS, path);
    snprintf(tenant, sizeof(tenant), TENANT_HEADER ": %s", c->tenant);
    snprintf(epoch, sizeof(epoch), "req-epoch: %u", c->epoch);
    int n = snprintf(body, sizeof(body), "{\"id\":\"%s\"}", c->req_id);
    struct http_call_opts o = {.method = "POST",
                               .url = url,
                               .tls = tls,
                               .headers = headers,
                               .body = body,
                               .body_len = (size_t)n,
                               .total_ms = STOP_TIMEOUT_MS,
                               .body_bytes_max = 1 << 16,
                               .on_done = on_stopped,
                               .arg = c};
    c->n_tries++;
    return http_client_call(c->co->client, &o, NULL) == ERR_OK;
}

static void stop_at(const struct relay *r, uint32_t inst_id, uint32_t epoch, bool keep,
                    struct asker *a) {
    struct stop_call *c = calloc(1, sizeof(*c));
    if (c == NULL) return;
    *c = (struct stop_call){
        .co = r->set->co, .inst_id = inst_id, .epoch = epoch, .keep = keep, .asker = a};
    memcpy(c->req_id, r->id_text, sizeof(c->req_id));
    memcpy(c->tenant, r->tenant->name, sizeof(c->tenant));
    if (!send_stop(c)) {
        free(c); /* not there: what it held, its peers' leases and its own grace let go */
    } else if (a != NULL) {
        a->n_open++;
    }
}

void relay_stop_at(const struct relay *r, uint32_t inst_id, uint32_t epoch, bool keep) {
    stop_at(r, inst_id, epoch, keep, NULL);
}

/* The request to stop, or NULL with x answered. */
static struct relay *read_stop(struct relay_set *s, struct http_x *x,
                               char id[CLIENT_ID_BYTES_MAX + 1]) {
    size_t n, id_len;
    const char *body = http_x_body(x, &n);
    enum json_found found = json_pull_find(body, n, "id", id, CLIENT_ID_BYTES_MAX + 1, &id_len);
    if (found == JSON_FOUND_NO_OBJECT) {
        coord_reply_error(s->co, x, 422, "Failed to parse context to json body.");
    } else if (found == JSON_FOUND_NONE) {
        coord_reply_error(s->co, x, 422, "Not found id.");
    } else if (found == JSON_FOUND_TOO_LONG || !body_id_ok(id, id_len)) {
        coord_reply_error(s->co, x, 422,
                          "The id can contain only digits, letters, underscores(_), hyphens(-) and "
                          "no more than 256 words in length.");
    } else {
        struct relay *r = relay_find_any(s, http_x_tenant(x), id);
        if (r != NULL && r->state != RELAY_DRAINING) return r; /* a second stop finds nothing */
        not_found(s->co, x, id);
    }
    return NULL;
}

/* The instances end it, and the end comes the usual way. */
void relay_ask_stop(struct relay *r, struct http_x *asker, const char *asked_id) {
    struct coordinator *co = r->set->co;
    const struct attempt *at = &r->attempt;
    struct asker *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        coord_reply_error(co, asker, 500, "Stop request failed, internal failed.");
        return;
    }
    *a = (struct asker){.co = co, .x = asker};
    snprintf(a->id, sizeof(a->id), "%s", asked_id);
    http_x_on_close(asker, on_asker_gone, a);
    if (!at->answered) stop_at(r, at->p_id, at->epoch, false, a);
    stop_at(r, at->d_id, at->epoch, false, a);
    asker_step(a);
}

void relay_stop(struct relay_set *s, struct http_x *x) {
    char id[CLIENT_ID_BYTES_MAX + 1];
    struct relay *r = read_stop(s, x, id);
    if (r == NULL) return;
    const bool waits = r->state == RELAY_WAITING || r->state == RELAY_RECOVERING;
    relay_step(r, EV_STOP,
               &(struct relay_input){.asker = x,
                                     .asked_id = id,
                                     .cause = CAUSE_STOPPED,
                                     .left = LEFT_NOBODY,
                                     .text = "The request was stopped."});
    if (waits) echo(x); /* nobody else had to be asked */
}
