/* ep_tgis_info: Tokenize and ModelInfo of fmaas.GenerationService (kserve-runtimes 7). */
#include <stdio.h>
#include <stdlib.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

/* ids[from..), and where each stands in the text, in characters. */
static enum err put_tokens(const struct endpoint *ep, const struct id_list *ids, size_t from,
                           bool tokens, bool offsets, struct buf *out) {
    struct buf text = BUF_INIT;
    struct ep_span *spans = calloc(ids->n + 1, sizeof(*spans));
    enum err e = spans != NULL ? ep_token_spans(ep, ids, &text, spans) : ERR_NO_MEMORY;
    buf_printf(out, "{\"token_count\":%zu", ids->n - from);
    if (tokens) buf_puts(out, ",\"tokens\":[");
    for (size_t i = from; e == ERR_OK && tokens && i < ids->n; i++) {
        const char *p;
        const size_t n = tokenizer_token_piece(ep->tok, ids->ids[i], &p);
        if (i > from) buf_putc(out, ',');
        buf_json_text(out, p, n, true);
    }
    if (tokens) buf_putc(out, ']');
    if (offsets) buf_puts(out, ",\"offsets\":[");
    for (size_t i = from; e == ERR_OK && offsets && i < ids->n; i++)
        buf_printf(out, "%s{\"start\":%zu,\"end\":%zu}", i > from ? "," : "", spans[i].start,
                   spans[i].end);
    buf_puts(out, offsets ? "]}" : "}");
    free(spans);
    buf_free(&text);
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
    if (!ep_ask_read(ep, ask, &wire, &body, out)) {
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
        ep_ask_reply(ask, &json, out);
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
    if (ep_ask_read(ep, ask, &wire, &body, out)) {
        buf_printf(&json, "{\"max_sequence_length\":%d,\"max_new_tokens\":%d}",
                   ep->conf.max_seq_len, ep->conf.max_iter_times);
        ep_ask_reply(ask, &json, out);
    }
    json_put(body);
    buf_free(&wire);
}
