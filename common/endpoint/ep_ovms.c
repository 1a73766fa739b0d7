/* ep_ovms: what OpenVINO Model Server answers by itself: /v3/tokenize and /v1/tokenize
 * (kserve-runtimes 9). Its other paths are those of OpenAI's families. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

struct tokenizing {
    const struct endpoint *ep;
    const struct endpoint_ask *ask;
    const struct json_value *body;
    bool special;
    int64_t length_max; /* ids of a text; 0: as many as it has */
    struct api_answer *out;
};

static bool fail(const struct tokenizing *t, int status, const char *param, const char *code,
                 const char *text) {
    buf_free(&t->out->body);
    ep_answer_error_of(t->ep, t->ask->path->errors, status, text, param, code, t->out);
    return false;
}

static bool find_model(const struct tokenizing *t) {
    const char *name = "";
    size_t n = 0;
    char text[MODEL_NAME_BYTES_MAX + 64];
    enum json_got got = json_get_str(t->body, "model", &name, &n);
    if (got == JSON_ABSENT || got == JSON_NULL)
        return fail(t, 400, "model", EP_MISSING, "model is missing");
    if (got != JSON_OK) return fail(t, 400, "model", EP_INVALID_TYPE, "model must be a string");
    if (ep_names_model(t->ep, name, n)) return true;
    snprintf(text, sizeof(text), "Model with requested name is not found: %.*s",
             (int)ep_name_shown(name, n), name);
    return fail(t, 404, "model", EP_NO_MODEL, text);
}

static bool read_options(struct tokenizing *t) {
    bool pad = false;
    t->special = true;
    if (json_get_bool(t->body, "add_special_tokens", &t->special) == JSON_WRONG_TYPE)
        return fail(t, 400, "add_special_tokens", NULL, "add_special_tokens must be a boolean");
    if (json_get_bool(t->body, "pad_to_max_length", &pad) == JSON_WRONG_TYPE)
        return fail(t, 400, "pad_to_max_length", NULL, "pad_to_max_length must be a boolean");
    if (pad)
        return fail(t, 400, "pad_to_max_length", NULL,
                    "pad_to_max_length is not supported: no text is padded here");
    enum json_got got = json_get_i64(t->body, "max_length", &t->length_max);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got == JSON_OK && t->length_max >= 1 && t->length_max <= PROMPT_TOKENS_MAX) return true;
    char text[80];
    snprintf(text, sizeof(text), "max_length must be an integer from 1 to %d", PROMPT_TOKENS_MAX);
    return fail(t, 400, "max_length", NULL, text);
}

static bool put_ids(const struct tokenizing *t, const struct json_value *text) {
    struct buf *out = &t->out->body;
    struct id_list ids = {0};
    const char *s;
    size_t n;
    if (json_as_str(text, &s, &n) != JSON_OK)
        return fail(t, 400, "text", EP_INVALID_TYPE, "text must be a string or a list of strings");
    if (t->ask->cancelled != NULL && atomic_load(t->ask->cancelled))
        return fail(t, 503, NULL, NULL, err_text(ERR_CANCELLED)); /* nobody reads this */
    if (tokenizer_encode(t->ep->tok, s, n, t->special, PROMPT_TOKENS_MAX, &ids) != ERR_OK) {
        id_list_free(&ids);
        return fail(t, 400, "text", NULL, "text cannot be tokenised");
    }
    if (t->length_max > 0 && ids.n > (uint64_t)t->length_max) ids.n = (size_t)t->length_max;
    buf_putc(out, '[');
    for (size_t i = 0; i < ids.n && out->len <= DRESULT_PIECE_BYTES_MAX; i++) {
        if (i > 0) buf_putc(out, ',');
        put_i64(out, ids.ids[i]);
    }
    buf_putc(out, ']');
    id_list_free(&ids);
    if (out->failed) return fail(t, 503, NULL, NULL, err_text(ERR_NO_MEMORY));
    return out->len <= DRESULT_PIECE_BYTES_MAX ||
           fail(t, 400, "text", NULL, "the answer would be too long: ask for fewer texts");
}

static bool put_texts(const struct tokenizing *t) {
    struct buf *out = &t->out->body;
    struct json_value *text, *list;
    char missing[EP_ELSEWHERE_BYTES];
    if (json_get(t->body, "text", &text) != JSON_OK) {
        (void)ep_elsewhere(missing, t->ask->path, t->body, "text", "text is missing");
        return fail(t, 400, "text", EP_MISSING, missing);
    }
    *t->out = (struct api_answer){.status = 200, .content_type = "application/json"};
    buf_puts(out, "{\"tokens\":");
    if (json_as_arr(text, &list) != JSON_OK) {
        if (!put_ids(t, text)) return false;
    } else {
        buf_putc(out, '[');
        for (size_t i = 0; i < json_arr_len(list); i++) {
            if (i > 0) buf_putc(out, ',');
            if (!put_ids(t, json_arr_at(list, i))) return false;
        }
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
    return !out->failed || fail(t, 503, NULL, NULL, err_text(ERR_NO_MEMORY));
}

void endpoint_ovms_tokenize(const struct endpoint *ep, const struct endpoint_ask *ask,
                            struct api_answer *out) {
    struct tokenizing t = {.ep = ep, .ask = ask, .out = out};
    struct json_value *body = NULL;
    struct buf wire = BUF_INIT;
    *out = (struct api_answer){0};
    if (ep_ask_read(ep, ask, &wire, &body, out)) {
        t.body = body;
        (void)(find_model(&t) && read_options(&t) && put_texts(&t));
    }
    json_put(body);
    buf_free(&wire);
}
