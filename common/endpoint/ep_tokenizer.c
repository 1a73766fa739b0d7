/* ep_tokenizer: what the tokenizer makes of a text: /v1/tokenizer (inference-api 12), /tokenize and
 * /detokenize (16.2, 16.3). */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/text/tok_utf8.h"

static void begin(struct api_answer *out) {
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
}

static void failed(const struct endpoint *ep, const char *text, struct api_answer *out) {
    ep_answer_error(ep, API_ERRORS_PLAIN, 422, text, out);
}

static struct json_value *parse(char *body, size_t n) {
    struct json_limits lim = json_limits_client(JSON_DEPTH_MAX);
    struct json_value *o = NULL;
    if (json_read_in_place(&o, body, n, &lim, NULL) == ERR_OK && json_is(o, json_type_object))
        return o;
    json_put(o);
    return NULL;
}

/* The text pieces of ids as a JSON array; ids that only together make a character are one piece.
 * Special tokens are left out. */
static enum err put_pieces(const struct endpoint *ep, const struct id_list *ids, struct buf *out) {
    struct buf piece = BUF_INIT;
    struct detok *d = NULL;
    enum err e = detok_create(&d, ep->tok, true);
    bool first = true;
    buf_putc(out, '[');
    for (size_t i = 0; e == ERR_OK && i <= ids->n; i++) {
        buf_clear(&piece);
        e = i < ids->n ? detok_feed(d, ids->ids[i], &piece) : detok_flush(d, &piece);
        if (piece.len == 0) continue;
        if (!first) buf_putc(out, ',');
        first = false;
        buf_json_str(out, piece.data, piece.len);
    }
    buf_putc(out, ']');
    if (piece.failed) e = ERR_NO_MEMORY;
    buf_free(&piece);
    detok_destroy(&d);
    return e;
}

void endpoint_tokenizer(const struct endpoint *ep, char *body, size_t n,
                        const atomic_bool *cancelled, struct api_answer *out) {
    (void)cancelled; /* linear in the body */
    struct json_value *o = parse(body, n);
    struct id_list ids = {0};
    const char *s;
    size_t len;
    bool decode = true;
    char text[128], elsewhere[EP_ELSEWHERE_BYTES];
    if (o == NULL) {
        failed(ep, "Req body converts to json fail.", out);
        return;
    }
    if (json_get_str(o, "inputs", &s, &len) != JSON_OK) {
        (void)ep_elsewhere(elsewhere, NULL, o, "inputs", "Inputs in request body is invalid.");
        failed(ep, elsewhere, out);
        goto done;
    }
    size_t units = ep_utf16_len(s, len);
    if (units < 1 || units > ep->conf.max_request_bytes) {
        snprintf(text, sizeof(text),
                 "Inputs data length in [0, %zu], but the length of inputs is %zu",
                 ep->conf.max_request_bytes, units);
        failed(ep, text, out);
        goto done;
    }
    json_get_bool(o, "do_decode", &decode); /* another type is no error */
    if (tokenizer_encode(ep->tok, s, len, true, PROMPT_TOKENS_MAX, &ids) != ERR_OK) {
        failed(ep, "TikToken process fail.", out);
        goto done;
    }
    begin(out);
    buf_puts(&out->body, "{\"token_number\":");
    put_u64(&out->body, ids.n);
    buf_puts(&out->body, ",\"tokens\":");
    if (!decode) {
        buf_puts(&out->body, "[]");
    } else if (put_pieces(ep, &ids, &out->body) != ERR_OK) {
        buf_free(&out->body);
        failed(ep, "TikToken process fail.", out);
        goto done;
    }
    buf_putc(&out->body, '}');
done:
    id_list_free(&ids);
    json_put(o);
}

/* Of /tokenize and /detokenize. */
static void refused(const struct endpoint *ep, const char *text, struct api_answer *out) {
    ep_answer_error(ep, API_ERRORS_VLLM, 422, text, out);
}

/* A body that names a model must name one that is served. False: *out is the error. */
static bool model_served(const struct endpoint *ep, const struct json_value *o,
                         struct api_answer *out) {
    char text[MODEL_NAME_BYTES_MAX + 32], got[64];
    struct json_value *v;
    const char *name = "";
    size_t n = 0;
    if (json_get(o, "model", &v) == JSON_OK && json_as_str(v, &name, &n) != JSON_OK) {
        json_literal(got, sizeof(got), v);
        snprintf(text, sizeof(text), "model must be a string, got %s", got);
        refused(ep, text, out);
        return false;
    }
    if (n == 0 || ep_serves(ep, name, n)) return true;
    snprintf(text, sizeof(text), "The model `%.*s` does not exist.", (int)ep_name_shown(name, n),
             name);
    ep_answer_error(ep, API_ERRORS_VLLM, 404, text, out);
    return false;
}

/* ---- /tokenize: vLLM's form with `prompt` or `messages`, TGI's with `inputs` */

static void put_token_strings(const struct endpoint *ep, const struct id_list *ids,
                              struct buf *out) {
    buf_puts(out, ",\"token_strs\":[");
    for (size_t i = 0; i < ids->n; i++) {
        const char *p = "";
        const size_t n = tokenizer_token_bytes(ep->tok, ids->ids[i], &p);
        if (i > 0) buf_putc(out, ',');
        buf_json_text(out, p, n, true);
    }
    buf_putc(out, ']');
}

static void put_vllm_tokens(const struct endpoint *ep, const struct id_list *ids, bool strings,
                            struct buf *out) {
    buf_puts(out, "{\"count\":");
    put_u64(out, ids->n);
    buf_puts(out, ",\"max_model_len\":");
    put_i64(out, ep->conf.max_seq_len);
    buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; i < ids->n; i++) {
        if (i > 0) buf_putc(out, ',');
        put_i64(out, ids->ids[i]);
    }
    buf_putc(out, ']');
    if (strings) put_token_strings(ep, ids, out);
    buf_putc(out, '}');
}

/* [{"id","text","start","stop"}]: start and stop in characters of the text the ids make. */
static enum err put_tgi_tokens(const struct endpoint *ep, const struct id_list *ids,
                               struct buf *out) {
    struct buf piece = BUF_INIT;
    struct detok *d = NULL;
    size_t at = 0;
    enum err e = detok_create(&d, ep->tok, true);
    buf_putc(out, '[');
    for (size_t i = 0; e == ERR_OK && i < ids->n; i++) {
        const char *p = "";
        size_t gone = detok_cut_bytes(ep->tok, detok_cut(d), ids->ids[i]);
        size_t n = tokenizer_token_bytes(ep->tok, ids->ids[i], &p) - gone;
        buf_clear(&piece);
        e = detok_feed(d, ids->ids[i], &piece);
        size_t chars = piece.len > 0 ? utf8_chars(piece.data, piece.len) : 0;
        buf_puts(out, i > 0 ? ",{\"id\":" : "{\"id\":");
        put_i64(out, ids->ids[i]);
        buf_puts(out, ",\"text\":");
        buf_json_text(out, p + gone, n, true);
        buf_puts(out, ",\"start\":");
        put_u64(out, at);
        buf_puts(out, ",\"stop\":");
        put_u64(out, at += chars);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
    if (piece.failed) e = ERR_NO_MEMORY;
    buf_free(&piece);
    detok_destroy(&d);
    return e;
}

/* Whether the empty text has ids: a request of none is refused, but not the question how many. */
static bool has_bos(const struct endpoint *ep, bool add_special) {
    struct id_list ids = {0};
    enum err e = tokenizer_encode(ep->tok, "", 0, add_special, 16, &ids);
    bool any = ids.n > 0 || e != ERR_OK;
    id_list_free(&ids);
    return any;
}

/* The ids of whichever input the body has. False: *out is the error. */
static bool read_input(const struct endpoint *ep, struct json_value *o,
                       const struct endpoint_in *in, const char *text, size_t len,
                       struct id_list *ids, struct api_answer *out) {
    struct ep_read r = {
        .ep = ep, .in = in, .fam = &ep_families[FAM_CHAT], .body = o, .p = EP_PARAMS_DEFAULT};
    static const uint8_t switches[] = {P_ADD_SPECIAL, P_END};
    bool good = false;
    r.params = json_ref(o);
    r.req = infer_req_create();
    r.prompt = text;
    r.prompt_len = len;
    if (r.req == NULL)
        ep_fail_memory(&r);
    else if (text == NULL)
        good = ep_chat_tokens(&r);
    else
        good = ep_fields_read(&r, switches) &&
               ((len == 0 && !has_bos(ep, r.p.add_special)) || ep_tokenise(&r, r.p.add_special));
    if (good) {
        *ids = r.ids;
        r.ids = (struct id_list){0};
    } else {
        ep_answer_error_of(ep, API_ERRORS_VLLM, r.status, r.error, r.at, r.code, out);
    }
    infer_req_destroy(&r.req);
    json_put(r.callable);
    json_put(r.params);
    id_list_free(&r.ids);
    buf_free(&r.text);
    return good;
}

/* ---- llama.cpp's form: `content`, a text or a list of texts and ids */

static bool is_llamacpp(const struct json_value *o) {
    struct json_value *v;
    return json_get(o, "content", &v) == JSON_OK && json_get(o, "prompt", &v) != JSON_OK &&
           json_get(o, "messages", &v) != JSON_OK && json_get(o, "inputs", &v) != JSON_OK;
}

/* A text, or the bytes where it is none by itself. */
static void put_piece(const struct endpoint *ep, int32_t id, struct buf *out) {
    const char *p = "";
    const size_t n = tokenizer_token_bytes(ep->tok, id, &p);
    if (tok_utf8_valid(p, n)) {
        buf_json_str(out, p, n);
        return;
    }
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(out, ',');
        put_u64(out, (unsigned char)p[i]);
    }
    buf_putc(out, ']');
}

static bool encode_content(const struct endpoint *ep, const struct json_value *v, bool special,
                           struct id_list *ids) {
    const char *s;
    size_t n;
    int64_t id;
    if (json_as_str(v, &s, &n) == JSON_OK)
        return tokenizer_encode(ep->tok, s, n, special, PROMPT_TOKENS_MAX, ids) == ERR_OK;
    if (!json_is(v, json_type_array)) return false;
    for (size_t i = 0; i < json_arr_len(v); i++) {
        const struct json_value *one = json_arr_at(v, i);
        if (json_as_i64(one, &id) == JSON_OK) {
            if (id < 0 || id >= ep->model->vocab_size || ids->n >= PROMPT_TOKENS_MAX ||
                id_list_push(ids, (int32_t)id) != ERR_OK)
                return false;
        } else if (json_as_str(one, &s, &n) != JSON_OK ||
                   tokenizer_encode(ep->tok, s, n, special && i == 0, PROMPT_TOKENS_MAX, ids) !=
                       ERR_OK) {
            return false;
        }
    }
    return true;
}

/* Answers instead that what was asked for is over the limit. */
static void answer_too_long(const struct endpoint *ep, enum api_errors errors,
                            struct api_answer *out) {
    char text[96];
    buf_free(&out->body);
    snprintf(text, sizeof(text), "the answer would be over %d bytes: ask for fewer tokens",
             DRESULT_PIECE_BYTES_MAX);
    ep_answer_error(ep, errors, 400, text, out);
}

static void tokenize_llamacpp(const struct endpoint *ep, const struct json_value *o,
                              struct api_answer *out) {
    struct json_value *content = NULL;
    struct id_list ids = {0};
    bool special = false, pieces = false;
    json_get(o, "content", &content);
    json_get_bool(o, "add_special", &special);
    json_get_bool(o, "with_pieces", &pieces);
    if (!encode_content(ep, content, special, &ids)) {
        ep_answer_error(ep, API_ERRORS_LLAMACPP, 400,
                        "content must be a text, or a list of texts and token ids", out);
        id_list_free(&ids);
        return;
    }
    begin(out);
    buf_puts(&out->body, "{\"tokens\":[");
    for (size_t i = 0; i < ids.n && out->body.len <= DRESULT_PIECE_BYTES_MAX; i++) {
        if (i > 0) buf_putc(&out->body, ',');
        if (pieces) buf_puts(&out->body, "{\"id\":");
        put_i64(&out->body, ids.ids[i]);
        if (!pieces) continue;
        buf_puts(&out->body, ",\"piece\":");
        put_piece(ep, ids.ids[i], &out->body);
        buf_putc(&out->body, '}');
    }
    buf_puts(&out->body, "]}");
    if (out->body.len > DRESULT_PIECE_BYTES_MAX) answer_too_long(ep, API_ERRORS_LLAMACPP, out);
    id_list_free(&ids);
}

void endpoint_tokenize_compat(const struct endpoint *ep, char *body, size_t n,
                              const atomic_bool *cancelled, struct api_answer *out) {
    struct json_value *o = parse(body, n);
    struct id_list ids = {0};
    const char *s = NULL;
    size_t len = 0;
    if (o == NULL) {
        refused(ep, "Failed to parse request context to json", out);
        return;
    }
    bool tgi = json_get_str(o, "inputs", &s, &len) == JSON_OK;
    if (!tgi) json_get_str(o, "prompt", &s, &len);
    if (is_llamacpp(o)) {
        tokenize_llamacpp(ep, o, out);
        json_put(o);
        return;
    }
    const struct endpoint_in in = {.req_id = "", .body_len = n, .cancelled = cancelled};
    if (model_served(ep, o, out) && read_input(ep, o, &in, s, len, &ids, out)) {
        begin(out);
        bool strings = false;
        json_get_bool(o, "return_token_strs", &strings);
        if (!tgi) {
            put_vllm_tokens(ep, &ids, strings, &out->body);
        } else if (put_tgi_tokens(ep, &ids, &out->body) != ERR_OK) {
            buf_free(&out->body);
            refused(ep, "The text of the input cannot be tokenised", out);
        }
    }
    id_list_free(&ids);
    json_put(o);
}

void endpoint_detokenize(const struct endpoint *ep, char *body, size_t n,
                         const atomic_bool *cancelled, struct api_answer *out) {
    (void)cancelled; /* linear in the body */
    struct json_value *o = parse(body, n), *arr;
    struct id_list ids = {0};
    struct buf text = BUF_INIT;
    if (o == NULL) {
        refused(ep, "Failed to parse request context to json", out);
        return;
    }
    if (!model_served(ep, o, out)) {
        json_put(o);
        return;
    }
    char why[96];
    bool good =
        json_get_arr(o, "tokens", &arr) == JSON_OK && json_arr_len(arr) <= PROMPT_TOKENS_MAX;
    for (size_t i = 0; good && i < json_arr_len(arr); i++) {
        int64_t id;
        good = json_as_i64(json_arr_at(arr, i), &id) == JSON_OK && id >= 0 &&
               id < ep->model->vocab_size && id_list_push(&ids, (int32_t)id) == ERR_OK;
    }
    if (!good) {
        char with[EP_ELSEWHERE_BYTES];
        struct json_value *given;
        snprintf(why, sizeof(why), "tokens must be an array of token ids from 0 to %d.",
                 ep->model->vocab_size - 1);
        if (json_get(o, "tokens", &given) == JSON_OK || !ep_elsewhere(with, NULL, o, "tokens", why))
            snprintf(with, sizeof(with), "%s", why);
        refused(ep, with, out);
    } else if (tokenizer_decode(ep->tok, ids.ids, ids.n, false, &text) != ERR_OK || text.failed) {
        refused(ep, "The tokens cannot be decoded.", out);
    } else if (text.len > DRESULT_PIECE_BYTES_MAX / 2) { /* it is written twice */
        answer_too_long(ep, API_ERRORS_VLLM, out);
    } else {
        begin(out);
        /* vLLM's clients read the one, llama.cpp's the other */
        buf_puts(&out->body, "{\"prompt\":");
        buf_json_str(&out->body, text.data != NULL ? text.data : "", text.len);
        buf_puts(&out->body, ",\"content\":");
        buf_json_str(&out->body, text.data != NULL ? text.data : "", text.len);
        buf_putc(&out->body, '}');
    }
    buf_free(&text);
    id_list_free(&ids);
    json_put(o);
}
