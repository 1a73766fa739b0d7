/* relay_answer: what P answers: first tokens, or why there are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/base64.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/console.h"
#include "coordinator/recorder.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"

/* ---- first tokens */

static uint64_t get_u64(const struct json_value *o, const char *key) {
    uint64_t v = 0;
    return json_get_u64(o, key, &v) == JSON_OK ? v : 0;
}

static double get_f64(const struct json_value *o, const char *key) {
    double v = 0;
    return json_get_f64(o, key, &v) == JSON_OK ? v : 0;
}

static uint64_t cached_of(const struct json_value *root) {
    struct json_value *cached = NULL;
    uint64_t sum = 0, v;
    json_get_arr(root, "cachedTokens", &cached);
    for (size_t i = 0; i < json_arr_len(cached); i++)
        if (json_as_u64(json_arr_at(cached, i), &v) == JSON_OK && v <= PROMPT_TOKENS_MAX) sum += v;
    return sum;
}

static void measure(struct relay *r, const struct json_value *root, size_t n_tokens) {
    const uint64_t now = clock_us();
    struct inst *p = registry_find(&r->set->co->reg, r->attempt.p_id);
    r->handover = (struct handover){.kv_bytes = get_u64(root, "kvBytes"),
                                    .kv_blocks = get_u64(root, "kvBlocks"),
                                    .kv_blocks_held = get_u64(root, "kvBlocksHeld"),
                                    .prompt_tokens = get_u64(root, "promptTokens"),
                                    .cached_tokens = cached_of(root),
                                    .transfer_ms = get_f64(root, "kvTransferMs"),
                                    .exposed_ms = get_f64(root, "kvExposedMs"),
                                    .p_queue_ms = get_f64(root, "queueWaitMs"),
                                    .prefill_ms = get_f64(root, "prefillMs")};
    const struct history_first first = {.p_id = r->attempt.p_id,
                                        .d_id = r->attempt.d_id,
                                        .ttft_us = r->first_token_us == 0 ? now - r->arrival_us : 0,
                                        .prompt_tokens = r->handover.prompt_tokens,
                                        .cached_tokens = r->handover.cached_tokens,
                                        .output_tokens = n_tokens,
                                        .kv_bytes = r->handover.kv_bytes,
                                        .transfer_ms = r->handover.transfer_ms};
    console_first_token(r->set->co->console, &first);
    r->last_token_us = now;
    if (p != NULL && r->handover.prompt_tokens > 0)
        rate_meter_add(&p->prefill_rate, r->handover.prompt_tokens, r->attempt.sent_us, now);
    if (r->n_logged > 0) r->lost[r->n_logged - 1].n_fetched = get_u64(root, "fetchedTokens");
    if (r->last_piece_us < now) r->last_piece_us = now;
    if (r->first_token_us != 0) return; /* of an attempt before this one */
    r->first_token_us = now;
    coord_metrics_first_token(r->set->co->metrics, now - r->arrival_us);
    relay_targets_first(r, now - r->arrival_us);
}

/* What part of prompts has to be computed. */
static void note_cached(const struct relay *r, const struct json_value *cached) {
    double n = 0;
    uint64_t v;
    if (r->handover.prompt_tokens == 0) return;
    for (size_t i = 0; i < json_arr_len(cached); i++)
        if (json_as_u64(json_arr_at(cached, i), &v) == JSON_OK) n += (double)v;
    const double part = 1 - n / (double)r->handover.prompt_tokens;
    r->set->uncached_mean += ((part > 0 ? part : 0) - r->set->uncached_mean) / RELAY_MEAN_OF;
}

/* Which of the model and its adapters it is for, and how many prompts it has. */
static void take_model(struct relay *r, const struct json_value *root) {
    struct json_value *cached = NULL;
    const char *adapter = "";
    size_t n = 0;
    json_get_arr(root, "cachedTokens", &cached);
    note_cached(r, cached);
    json_get_str(root, "adapter", &adapter, &n);
    r->n_answered = (unsigned)json_arr_len(cached);
    if (r->adapter == NULL && n > 0 && n <= ADAPTER_NAME_BYTES_MAX) r->adapter = strdup(adapter);
}

/* The tokens whose events are in P's piece, as many as its list has. NULL: not as it should be, or
 * no memory. */
static struct emitted *read_tokens(const struct json_value *root, size_t *n_tokens) {
    const char *list = "";
    size_t n = 0, at = 0, cap;
    json_get_str(root, "tokens", &list, &n);
    cap = n / 2 + 1; /* an item has a digit and a comma at least */
    if (cap > TRANSCRIPT_IDS_MAX) return NULL;
    struct emitted *t = malloc(cap * sizeof(*t));
    *n_tokens = 0;
    while (t != NULL && at < n && *n_tokens < cap) {
        if (emitted_parse(list, n, &at, &t[(*n_tokens)++]) == ERR_OK) continue;
        free(t);
        return NULL;
    }
    return t;
}

static void lose_bad_answer(struct relay *r, const char *detail) {
    relay_report_fault(r, CAUSE_P_BAD_ANSWER, detail);
    relay_lose(r, &(struct relay_input){
                      .cause = CAUSE_P_BAD_ANSWER, .left = LEFT_BOTH, .text = "P instance error"});
}

/* What the client gets of it; bytes that are no text come as base64. */
static bool get_output(const struct json_value *root, struct buf *bytes, struct piece *p) {
    const char *s;
    size_t n;
    json_get_str(root, "output", &p->body, &p->len);
    if (json_get_str(root, "outputBase64", &s, &n) != JSON_OK) return true;
    if (!base64_take(bytes, s, n)) { /* or there is no memory: another attempt may have it */
        buf_free(bytes);
        return false;
    }
    p->body = bytes->data;
    p->len = bytes->len;
    return true;
}

static void first_token(struct relay *r, const struct json_value *root) {
    struct piece p = {.kind = DR_DATA, .body = ""};
    struct buf output = BUF_INIT;
    bool last = false;
    const char *seed = "";
    size_t n = 0;
    struct emitted *tokens = read_tokens(root, &p.n_tokens);
    if (tokens == NULL) {
        lose_bad_answer(r, "a list of tokens that is none");
        return;
    }
    p.tokens = tokens;
    json_get_bool(root, "isLastResp", &last);
    if (!get_output(root, &output, &p)) {
        free(tokens);
        lose_bad_answer(r, "an output that is none");
        return;
    }
    json_get_str(root, "seed", &seed, &n);
    recorder_first(r->set->co->recorder, r->id_text, r->attempt.epoch, seed, p.tokens, p.n_tokens);
    relay_log_first(r, root);
    measure(r, root, p.n_tokens);
    take_model(r, root);
    relay_prefix_learn(r, root, !last);
    r->n_tokens += p.n_tokens; /* the rest comes with D's frames */
    r->attempt.answered = true;
    if (r->attempt.frame_ms != 0) r->attempt.frame_ms = clock_ms(); /* D waited for this */
    attempt_p_done(r);
    relay_report_p(r, VERDICT_GOOD, "");
    if (!last) relay_report_link(r, VERDICT_GOOD, "");
    relay_step(r, last ? EV_ANSWERED : EV_FIRST_TOKEN, &(struct relay_input){.piece = &p});
    buf_free(&output);
    free(tokens);
}

/* ---- refusals */

/* Whether some other instance of its role has more room than this one in all. */
static bool has_larger(const struct coordinator *co, uint32_t id) {
    const struct inst *small = registry_find(&co->reg, id);
    for (const struct inst *in = co->reg.first; in != NULL && small != NULL; in = in->next)
        if ((in->plan.place.role == small->plan.place.role || inst_stands_in(small)) &&
            in != small &&
            (in->facts.status.total_slots > small->facts.status.total_slots ||
             in->facts.status.total_blocks > small->facts.status.total_blocks))
            return true;
    return false;
}

/* What failed gets no work before a poll found it well: a request waits for it rather than using
 * its attempts up. */
static void cast_doubt(struct relay *r, enum cause why) {
    struct coordinator *co = r->set->co;
    struct inst *p = registry_find(&co->reg, r->attempt.p_id);
    if (why == CAUSE_KV_LINK_DOWN && p != NULL) inst_suspect_link(p, r->attempt.d_id);
    if ((why == CAUSE_P_NOT_SERVING || why == CAUSE_P_NOT_PREFILL) && p != NULL)
        inst_suspect(p, clock_ms(), "it refused a request");
    if (cause_elsewhere(why) && why != CAUSE_P_FULL) controller_poll_soon(co);
}

/* P's own word goes to the client, unless another pair may do better. */
static void refused(struct relay *r, const struct http_result *res) {
    const struct coordinator *co = r->set->co;
    enum cause why = res->cause != CAUSE_NONE ? res->cause : cause_of_p_status(res->status);
    const struct piece own = {
        .kind = DR_ERROR, .status = res->status, .body = res->body, .len = res->body_len};
    char detail[BREAKER_CAUSE_BYTES];
    snprintf(detail, sizeof(detail), "status %d: %.60s", res->status, res->body);
    relay_report_fault(r, why, detail);
    /* a probe that is refused for what it asks is answered, so P is well */
    if (cause_side(why) == SIDE_CLIENT && r->attempt.p_end.probe)
        relay_report_p(r, VERDICT_GOOD, "");
    cast_doubt(r, why);
    if (cause_elsewhere(why))
        log_info("relay", "req=%s event=refused p=%u d=%u status=%d cause=%s detail=\"%.200s\"",
                 r->id_text, r->attempt.p_id, r->attempt.d_id, res->status, cause_name(why),
                 res->body);
    if ((why == CAUSE_D_TOO_SMALL && !has_larger(co, r->attempt.d_id)) ||
        (why == CAUSE_P_TOO_SMALL && !has_larger(co, r->attempt.p_id)))
        why = CAUSE_REQUEST; /* nobody can ever have room for it */
    if (why == CAUSE_NO_JSON && strcmp(co->conf.error_format, "text") == 0) {
        /* what the reference's coordinator says by itself; here P reads all of a body */
        relay_step(r, EV_FAILED,
                   &(struct relay_input){
                       .cause = why, .status = 400, .text = "Request format is invalid"});
        return;
    }
    const char *type = res->content_type[0] != 0 ? res->content_type : "application/json";
    relay_lose(r, &(struct relay_input){
                      .piece = &own,
                      .type = coord_media_type(type),
                      .cause = why,
                      /* D's ack may be what was lost with the link: then it decodes, for nobody */
                      .left = cause_side(why) == SIDE_LINK ? LEFT_D : LEFT_NOBODY});
}

/* The connection broke, or was never there. */
static void lost(struct relay *r, const struct http_result *res) {
    struct coordinator *co = r->set->co;
    const char *detail = res->detail != NULL ? res->detail : err_text(res->err);
    struct inst *p = registry_find(&co->reg, r->attempt.p_id);
    relay_report_fault(r, CAUSE_P_LOST, detail);
    log_warn("relay", "req=%s event=p_lost p=%u err=%s detail=\"%s\"", r->id_text, r->attempt.p_id,
             err_name(res->err), detail);
    if (p != NULL) inst_suspect(p, clock_ms(), "a request lost its connection");
    controller_poll_soon(co);
    relay_lose(r, &(struct relay_input){.cause = CAUSE_P_LOST,
                                        .left = LEFT_BOTH,
                                        .text = res->connected
                                                    ? "Receive messages from p instance failed"
                                                    : "Connect to p instance failed"});
}

void relay_on_p_answer(void *arg, const struct http_result *res) {
    struct relay *r = arg;
    struct relay_set *s = r->set;
    struct json_value *root = NULL;
    r->attempt.call = NULL;
    if (res->err == ERR_TOO_LARGE) {
        lose_bad_answer(r, "too large");
    } else if (res->err != ERR_OK) {
        lost(r, res);
    } else if (res->status != 200 || res->cause == CAUSE_ANSWERED) {
        refused(r, res); /* it goes to the client as it is */
    } else if (json_read(&root, res->body, res->body_len, NULL, NULL) != ERR_OK ||
               !json_is(root, json_type_object)) {
        lose_bad_answer(r, "no JSON object");
    } else {
        first_token(r, root);
    }
    json_put(root);
    relay_schedule(s);
}
