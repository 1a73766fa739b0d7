/* relay_prefill: the exchange with P, P's first piece, and D's pieces in order after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/fwd_headers.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"

enum { ANSWER_BYTES_MAX = 64 << 20 };

/* ---- D's pieces */
static void take_error(struct relay *r, int status, const char *body, size_t n) {
    if (status == 0) status = 500;
    if (r->said) { /* an event in the family's framing */
        relay_piece(r, body, n);
        http_x_on_close(r->x, NULL, NULL);
        http_x_stream_end(r->x);
        relay_finish(r, status);
    } else {
        relay_error(r, status, "application/json; charset=utf-8", body, n);
    }
}

/* D asks for the request to be computed again elsewhere, with the body it rebuilt (5.7). */
static void take_retry(struct relay *r, const char *body, size_t n) {
    char *copy = malloc(n + 1);
    if (copy == NULL) {
        relay_fail(r, 503, "out of memory");
        return;
    }
    memcpy(copy, body, n);
    copy[n] = 0;
    free(r->body);
    r->body = copy;
    r->body_len = n;
    r->is_recompute = true;
    if (!relay_retry(r, CAUSE_RECOMPUTE)) {
        relay_fail(r, 500, "Request retry failed");
        return;
    }
    relay_schedule(r->set);
}

/* What a piece says of its D: one that answers is well, an error of its own is a fault. */
static void tell_piece(struct relay *r, enum dresult_kind kind, int status, const char *body) {
    char cause[BREAKER_CAUSE_BYTES];
    if (kind == DR_DATA || kind == DR_LAST) {
        relay_tell_d(r, VERDICT_GOOD, "");
    } else if (kind == DR_ERROR && status >= 500) {
        snprintf(cause, sizeof(cause), "status %d: %.60s", status, body);
        relay_tell_d(r, VERDICT_FAULT, cause);
    }
}

static void pass_on_piece(struct relay *r, enum dresult_kind kind, int status, const char *body,
                          size_t n) {
    tell_piece(r, kind, status, body);
    switch (kind) {
    case DR_DATA: relay_piece(r, body, n); break;
    case DR_LAST: relay_piece_last(r, body, n); break;
    case DR_ERROR: take_error(r, status, body, n); break;
    case DR_RETRY: take_retry(r, body, n); break;
    case DR_NONE:
    case DR_CLOSE:
    case DR_HEARTBEAT:
    case DR_PART: break;
    }
}

static void fail_for_memory(struct relay *r, const char *text) {
    relay_cancel_upstream(r);
    relay_fail(r, 503, text);
}

/* Counts n bytes that r keeps. False: that ended it. */
static bool keep(struct relay *r, size_t n) {
    struct budget *b = &r->set->co->budget;
    if (budget_take(b, BUDGET_ANSWER_BYTES, n)) {
        r->kept_bytes += n;
        return true;
    }
    char text[128];
    snprintf(text, sizeof(text), "The answers under way are over the limit of %llu bytes (%s)",
             (unsigned long long)budget_limit(b, BUDGET_ANSWER_BYTES),
             budget_key(BUDGET_ANSWER_BYTES));
    fail_for_memory(r, text);
    return false;
}

static void let_go(struct relay *r, size_t n) {
    r->kept_bytes -= n;
    budget_give(&r->set->co->budget, BUDGET_ANSWER_BYTES, n);
}

void relay_drop_kept(struct relay *r) {
    for (struct early_frame *f = r->early, *next; f != NULL; f = next) {
        next = f->next;
        free(f);
    }
    r->early = NULL;
    r->early_last = &r->early;
    buf_free(&r->piece);
    let_go(r, r->kept_bytes);
}

/* Before P's first piece: waits for it. */
static void keep_early(struct relay *r, enum dresult_kind kind, int status, const char *body,
                       size_t n) {
    if (!keep(r, n)) return;
    struct early_frame *f = malloc(sizeof(*f) + n + 1);
    if (f == NULL) {
        fail_for_memory(r, "out of memory");
        return;
    }
    *f = (struct early_frame){.kind = kind, .status = status, .len = n};
    if (n > 0) memcpy(f->body, body, n);
    f->body[n] = 0;
    *r->early_last = f;
    r->early_last = &f->next;
}

static void take_piece(struct relay *r, enum dresult_kind kind, int status, const char *body,
                       size_t n) {
    if (r->state == RELAY_PREFILL)
        keep_early(r, kind, status, body, n);
    else
        pass_on_piece(r, kind, status, body, n);
}

/* One more part. False: that ended r. */
static bool add_part(struct relay *r, const struct dresult_frame *f) {
    if (f->body_len > DRESULT_PIECE_BYTES_MAX - r->piece.len) {
        relay_cancel_upstream(r);
        relay_fail(r, 500, "The answer of the decode instance is too large");
        return false;
    }
    if (!keep(r, f->body_len)) return false;
    buf_append(&r->piece, f->body, f->body_len);
    if (!r->piece.failed) return true;
    fail_for_memory(r, "out of memory");
    return false;
}

void relay_take_frame(struct relay *r, const struct dresult_frame *f) {
    if (f->kind != DR_PART && r->piece.len == 0) {
        take_piece(r, f->kind, f->status, f->body, f->body_len);
        return;
    }
    if (!add_part(r, f) || f->kind == DR_PART) return;
    struct buf whole = r->piece;
    r->piece = BUF_INIT;
    let_go(r, whole.len);
    take_piece(r, f->kind, f->status, whole.data, whole.len);
    buf_free(&whole);
}

static void flush_early(struct relay *r) {
    while (r->early != NULL) {
        struct early_frame *f = r->early;
        bool ends = f->kind != DR_DATA;
        r->early = f->next;
        if (r->early == NULL) r->early_last = &r->early;
        let_go(r, f->len);
        pass_on_piece(r, f->kind, f->status, f->body, f->len);
        free(f);
        if (ends) return; /* r may be gone */
    }
}

/* ---- P's answer */
static uint64_t get_u64(const struct json_value *o, const char *key) {
    uint64_t v = 0;
    return json_get_u64(o, key, &v) == JSON_OK ? v : 0;
}

static double get_f64(const struct json_value *o, const char *key) {
    double v = 0;
    return json_get_f64(o, key, &v) == JSON_OK ? v : 0;
}

/* How many tokens P's piece has; the rest comes with D's frames. */
static uint64_t n_tokens_of(const struct json_value *root) {
    const char *list = "";
    size_t n = 0;
    json_get_str(root, "tokens", &list, &n);
    uint64_t n_items = n > 0;
    for (size_t i = 0; i < n; i++) n_items += list[i] == ',';
    return n_items;
}

static void first_token(struct relay *r, const struct json_value *root) {
    const char *output = "";
    size_t n = 0;
    bool last = false;
    json_get_bool(root, "isLastResp", &last);
    json_get_str(root, "output", &output, &n);
    r->handover = (struct handover){.kv_bytes = get_u64(root, "kvBytes"),
                                    .kv_blocks = get_u64(root, "kvBlocks"),
                                    .kv_blocks_held = get_u64(root, "kvBlocksHeld"),
                                    .prompt_tokens = get_u64(root, "promptTokens"),
                                    .transfer_ms = get_f64(root, "kvTransferMs"),
                                    .exposed_ms = get_f64(root, "kvExposedMs")};
    r->state = RELAY_DECODE;
    r->first_token_ms = clock_ms();
    r->first_token_us = clock_us();
    struct inst *p = registry_find(&r->set->co->reg, r->p_id);
    if (p != NULL && r->handover.prompt_tokens > 0)
        rate_meter_add(&p->prefill_rate, r->handover.prompt_tokens, r->sent_us, r->first_token_us);
    if (r->last_piece_us < r->first_token_us) r->last_piece_us = r->first_token_us;
    r->n_tokens += n_tokens_of(root);
    coord_metrics_first_token(r->set->co->metrics, r->first_token_us - r->arrival_us);
    relay_unbook_p(r);
    relay_tell_p(r, VERDICT_GOOD, "");
    if (!last) relay_tell_link(r, VERDICT_GOOD, "");
    if (last) {
        relay_piece_last(r, output, n);
    } else {
        relay_piece(r, output, n);
        flush_early(r);
    }
}

/* Whether some other instance of its role has more room than this one in all. */
static bool has_larger(const struct coordinator *co, uint32_t id) {
    const struct inst *small = registry_find(&co->reg, id);
    for (const struct inst *in = co->reg.first; in != NULL && small != NULL; in = in->next)
        if (in->want == small->want && in != small &&
            (in->status.total_slots > small->status.total_slots ||
             in->status.total_blocks > small->status.total_blocks))
            return true;
    return false;
}

static enum cause cause_of(const struct http_result *res) {
    return res->cause != CAUSE_NONE ? res->cause : cause_of_p_status(res->status);
}

/* Tells the breakers. A probe of P that is refused for what it asks is answered, so P is well. */
static void tell_refusal(struct relay *r, enum cause why, const struct http_result *res) {
    char text[BREAKER_CAUSE_BYTES];
    snprintf(text, sizeof(text), "%s, status %d: %.50s", cause_name(why), res->status, res->body);
    if (cause_side(why) == SIDE_CLIENT && r->p_end.probe) relay_tell_p(r, VERDICT_GOOD, "");
    if (!cause_is_fault(why)) return;
    if (cause_side(why) == SIDE_P) relay_tell_p(r, VERDICT_FAULT, text);
    if (cause_side(why) == SIDE_LINK) relay_tell_link(r, VERDICT_FAULT, cause_name(why));
}

/* Whether another pair may do better, and who is to be avoided. What failed gets no work before a
 * poll found it well: a request waits for it rather than using its attempts up. */
static bool may_go_elsewhere(struct relay *r, enum cause why) {
    struct coordinator *co = r->set->co;
    struct inst *p = registry_find(&co->reg, r->p_id);
    const bool by_p = cause_side(why) == SIDE_P;
    *(by_p ? &r->avoid_p : &r->avoid_d) = by_p ? r->p_id : r->d_id;
    if (why == CAUSE_KV_LINK_DOWN) {
        r->left_d = r->d_id; /* D's ack may be what was lost: then it decodes, for nobody */
        if (p != NULL) inst_suspect_link(p, r->d_id);
    }
    if ((why == CAUSE_P_NOT_SERVING || why == CAUSE_P_NOT_PREFILL) && p != NULL)
        inst_suspect(p, clock_ms(), "it refused a request");
    if (why != CAUSE_P_FULL) controller_poll_soon(co);
    if (why == CAUSE_D_TOO_SMALL) return has_larger(co, r->d_id);
    if (why == CAUSE_P_TOO_SMALL) return has_larger(co, r->p_id);
    return true;
}

/* Another attempt, or false. */
static bool try_elsewhere(struct relay *r, const struct http_result *res) {
    const enum cause why = cause_of(res);
    tell_refusal(r, why, res);
    if (!cause_elsewhere(why) || !may_go_elsewhere(r, why)) return false;
    log_info("relay", "req=%s event=refused p=%u d=%u status=%d cause=%s detail=\"%.200s\"",
             r->id_text, r->p_id, r->d_id, res->status, cause_name(why), res->body);
    return relay_retry(r, why);
}

/* P's own word goes to the client, but what the reference's coordinator says by itself: whether a
 * body is JSON is left to P, which reads all of it. */
static void pass_on(struct relay *r, const struct http_result *res) {
    if (res->cause == CAUSE_NO_JSON && strcmp(r->set->co->conf.error_format, "text") == 0) {
        relay_fail(r, 400, "Request format is invalid");
        return;
    }
    if (res->status == 429 || res->status == 503) http_x_set_header(r->x, "Retry-After", "1");
    const char *type = res->content_type[0] != 0 ? res->content_type : "application/json";
    relay_error(r, res->status, coord_media_type(type), res->body, res->body_len);
}

static void on_p_answer(void *arg, const struct http_result *res) {
    struct relay *r = arg;
    struct relay_set *s = r->set;
    struct json_value *root = NULL;
    r->call = NULL;
    if (res->err == ERR_TOO_LARGE) {
        relay_tell_p(r, VERDICT_FAULT, "an answer that is too large");
        relay_cancel_upstream(r);
        relay_fail(r, 500, "P instance error");
    } else if (res->err != ERR_OK) {
        relay_tell_p(r, VERDICT_FAULT, res->detail != NULL ? res->detail : err_text(res->err));
        log_warn("relay", "req=%s event=p_lost p=%u err=%s detail=\"%s\"", r->id_text, r->p_id,
                 err_name(res->err), res->detail != NULL ? res->detail : "");
        struct inst *p = registry_find(&s->co->reg, r->p_id);
        if (p != NULL) inst_suspect(p, clock_ms(), "a request lost its connection");
        controller_poll_soon(s->co);
        relay_lose_p(r, CAUSE_P_LOST,
                     res->connected ? "Receive messages from p instance failed"
                                    : "Connect to p instance failed");
    } else if (res->status != 200) {
        if (!try_elsewhere(r, res)) {
            relay_stop_left(r);
            pass_on(r, res);
        }
    } else if (json_read(&root, res->body, res->body_len, NULL, NULL) != ERR_OK ||
               !json_is(root, json_type_object)) {
        relay_tell_p(r, VERDICT_FAULT, "an answer that is no JSON object");
        relay_cancel_upstream(r);
        relay_fail(r, 500, "P instance error");
    } else {
        first_token(r, root);
    }
    json_put(root);
    relay_schedule(s);
}

void relay_send(struct relay *r, struct inst *p, struct inst *d) {
    struct coordinator *co = r->set->co;
    char value[96], url[API_PATH_BYTES + 64];
    struct fwd_headers headers;
    size_t body_len;
    const char *body = http_x_body(r->x, &body_len);
    if (r->body != NULL) {
        body = r->body;
        body_len = r->body_len;
    }
    /* Only what is listed here goes to P: nothing internal that a client sends can pass. */
    fwd_headers_init(&headers);
    fwd_headers_add(&headers, "Content-Type", "application/json");
    fwd_headers_add(&headers, "req-type", "prefill");
    fwd_headers_add(&headers, "req-id", r->id_text);
    snprintf(value, sizeof(value), "%s;%u", d->node.ip, d->node.inter_comm_port);
    fwd_headers_add(&headers, "d-target", value);
    snprintf(value, sizeof(value), "%u", d->node.port);
    fwd_headers_add(&headers, "d-port", value);
    snprintf(value, sizeof(value), "%u", r->epoch);
    fwd_headers_add(&headers, "req-epoch", value);
    fwd_headers_add(&headers, TENANT_HEADER, r->tenant->name);
    if (r->is_recompute) fwd_headers_add(&headers, "is-recompute", "true");
    fwd_headers_add_trace(&headers, r->x);
    struct tls *tls =
        coord_tls_url(&co->tls, url, sizeof(url), &p->node, NODE_BUSINESS, r->url_path);
    if (r->left_d != d->id) relay_stop_left(r); /* the same D gives the old attempt up by itself */
    r->left_d = 0;
    r->state = RELAY_PREFILL;
    r->sent_us = clock_us();
    log_debug("relay", "req=%s event=sent p=%u d=%u epoch=%u", r->id_text, p->id, d->id, r->epoch);
    struct http_call_opts o = {.method = "POST",
                               .url = url,
                               .tls = tls,
                               .headers = headers.list,
                               .body = body,
                               .body_len = body_len,
                               .connect_ms = (unsigned)co->conf.instance_timeout_s * 1000,
                               .body_bytes_max = ANSWER_BYTES_MAX,
                               .on_done = on_p_answer,
                               .arg = r};
    enum err e = http_client_call(co->client, &o, &r->call);
    if (e != ERR_OK) relay_fail(r, 500, "Send messges to p instance failed");
}
