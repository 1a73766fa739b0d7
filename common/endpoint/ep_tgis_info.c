/* ep_tgis_info: Tokenize and ModelInfo of fmaas.GenerationService (kserve-runtimes 7). */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/grpc/grpc_json.h"
#include "proto/grpc.h"

/* The tree of a call's message. False: *out is its error. */
static bool parse(const struct endpoint *ep, const struct endpoint_ask *ask, struct buf *wire,
                  struct json_value **body, struct api_answer *out) {
    const struct ep_body b = {.path = ask->path,
                              .meta = &ask->meta,
                              .p = ask->body,
                              .own = ask->body,
                              .n = ask->n,
                              .bytes_max = ep->conf.max_request_bytes,
                              .limits = json_limits_client(JSON_DEPTH_MAX)};
    char why[ERR_TEXT_BYTES_MAX];
    int status;
    if (ep_body_parse(&b, wire, body, &status, why, sizeof(why))) return true;
    ep_answer_error(ep, ask->path->errors, status != 0 ? status : 422,
                    status != 0 ? why : "the body is no message", out);
    return false;
}

/* What `json` says as a message; json is freed. */
static void reply(const struct grpc_message *m, struct buf *json, struct api_answer *out) {
    *out = (struct api_answer){.status = 200, .content_type = GRPC_TYPE};
    if (json->failed)
        out->body.failed = true;
    else
        grpc_put_text(&out->body, m, json->data, json->len);
    buf_free(json);
}

/* ids[from..), and where each stands in the text, in characters. */
static enum err put_tokens(const struct endpoint *ep, const struct id_list *ids, size_t from,
                           bool tokens, bool offsets, struct buf *out) {
    struct buf piece = BUF_INIT, places = BUF_INIT;
    struct detok *d = NULL;
    size_t at = 0;
    enum err e = detok_create(&d, ep->tok, true);
    buf_printf(out, "{\"token_count\":%zu", ids->n - from);
    if (tokens) buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; e == ERR_OK && i < ids->n; i++) {
        const char *p;
        const size_t n = tokenizer_token_piece(ep->tok, ids->ids[i], &p);
        buf_clear(&piece);
        e = detok_feed(d, ids->ids[i], &piece);
        const size_t start = at;
        at += piece.len > 0 ? utf8_chars(piece.data, piece.len) : 0;
        if (i < from) continue;
        if (tokens && i > from) buf_putc(out, ',');
        if (tokens) buf_json_text(out, p, n, true);
        buf_printf(&places, "%s{\"start\":%zu,\"end\":%zu}", i > from ? "," : "", start, at);
    }
    if (tokens) buf_putc(out, ']');
    if (offsets) buf_printf(out, ",\"offsets\":[%s]", places.data != NULL ? places.data : "");
    buf_putc(out, '}');
    if (piece.failed || places.failed) e = ERR_NO_MEMORY;
    buf_free(&piece);
    buf_free(&places);
    detok_destroy(&d);
    return e;
}

static enum err put_response(const struct endpoint *ep, const struct json_value *body,
                             const struct json_value *request, struct buf *out) {
    const char *s = "";
    size_t n = 0;
    uint64_t keep = 0;
    bool tokens = false, offsets = false;
    struct id_list ids = {0};
    json_get_str(request, "text", &s, &n);
    json_get_bool(body, "return_tokens", &tokens);
    json_get_bool(body, "return_offsets", &offsets);
    json_get_u64(body, "truncate_input_tokens", &keep);
    enum err e = tokenizer_encode(ep->tok, s, n, true, PROMPT_TOKENS_MAX, &ids);
    if (e == ERR_OK)
        e = put_tokens(ep, &ids, keep > 0 && ids.n > keep ? ids.n - keep : 0, tokens, offsets, out);
    id_list_free(&ids);
    return e;
}

void endpoint_tgis_tokenize(const struct endpoint *ep, const struct endpoint_ask *ask,
                            struct api_answer *out) {
    struct buf wire = BUF_INIT, json = BUF_INIT;
    struct json_value *body = NULL, *list = NULL;
    enum err e = ERR_OK;
    if (!parse(ep, ask, &wire, &body, out)) {
        buf_free(&wire);
        return;
    }
    json_get_arr(body, "requests", &list);
    if (json_arr_len(list) > PARTS_MAX) {
        char text[96];
        snprintf(text, sizeof(text), "requests: at most %d are allowed, got %zu", PARTS_MAX,
                 json_arr_len(list));
        ep_answer_error(ep, ask->path->errors, 422, text, out);
        json_put(body);
        buf_free(&wire);
        return;
    }
    buf_puts(&json, "{\"responses\":[");
    for (size_t i = 0; i < json_arr_len(list) && e == ERR_OK; i++) {
        if (ask->cancelled != NULL && atomic_load(ask->cancelled)) e = ERR_CANCELLED;
        if (i > 0) buf_putc(&json, ',');
        if (e == ERR_OK) e = put_response(ep, body, json_arr_at(list, i), &json);
        if (json.len > DRESULT_PIECE_BYTES_MAX) e = ERR_TOO_LARGE;
    }
    buf_puts(&json, "]}");
    if (e == ERR_OK) {
        reply(&grpc_fmaas_BatchedTokenizeResponse, &json, out);
    } else {
        buf_free(&json);
        ep_answer_error(ep, ask->path->errors, e == ERR_NO_MEMORY ? 503 : 422,
                        e == ERR_TOO_LARGE ? "the answer would be over 64 MiB: ask for fewer texts"
                                           : "a text cannot be tokenised",
                        out);
    }
    json_put(body);
    buf_free(&wire);
}

void endpoint_tgis_model(const struct endpoint *ep, const struct endpoint_ask *ask,
                         struct api_answer *out) {
    struct buf wire = BUF_INIT, json = BUF_INIT;
    struct json_value *body = NULL;
    if (parse(ep, ask, &wire, &body, out)) {
        buf_printf(&json, "{\"max_sequence_length\":%d,\"max_new_tokens\":%d}",
                   ep->conf.max_seq_len, ep->conf.max_iter_times);
        reply(&grpc_fmaas_ModelInfoResponse, &json, out);
    }
    json_put(body);
    buf_free(&wire);
}
