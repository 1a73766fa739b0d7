/* ep_count: how many tokens the body of a family would be, without asking the engine: the family's
 * own reader counts. */
#include <stdlib.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

/* Whose input is counted, and how. */
struct counting {
    enum api api;
    bool (*read)(struct ep_read *r); /* of the family, without its limits */
    struct json_value *body;         /* parsed already; NULL: it is in the question */
    bool closed;                     /* a template opens no answer unless it is asked to */
    bool all_are_400;                /* what is wrong, in kind or not */
};

static bool parse(struct ep_read *r, const struct endpoint_ask *ask) {
    struct json_limits lim = json_limits_client(JSON_DEPTH_MAX);
    return (json_read_in_place(&r->body, ask->body, ask->n, &lim, NULL) == ERR_OK &&
            json_is(r->body, json_type_object)) ||
           ep_fail(r, 422, "Failed to parse request context to json");
}

/* False: *out is the error. */
static bool read_ids(const struct endpoint *ep, const struct endpoint_ask *ask,
                     const struct counting *how, struct id_list *ids, struct api_answer *out) {
    const struct endpoint_in in = {.path = ask->path,
                                   .req_id = "",
                                   .body_len = ask->n,
                                   .context = ask->context,
                                   .context_len = ask->context_len,
                                   .cancelled = ask->cancelled};
    struct ep_read r = {
        .ep = ep, .in = &in, .fam = ep_family_of(ep, how->api), .p = EP_PARAMS_DEFAULT};
    const uint32_t failures = json_failures();
    r.p.add_generation_prompt = !how->closed;
    r.req = infer_req_create();
    r.body = json_ref(how->body);
    const bool good_body = r.body != NULL || parse(&r, ask);
    bool good = good_body && (r.req != NULL || ep_fail_memory(&r)) && how->read(&r);
    if (json_failures() != failures) {
        r.status = 0;
        good = ep_fail_memory(&r);
    }
    if (good) {
        *ids = r.ids;
        r.ids = (struct id_list){0};
    } else {
        if (how->all_are_400 && r.status < 500) r.status = 400;
        ep_answer_error_of(ep, ask->path->errors, r.status, r.error, r.at, r.code, out);
    }
    infer_req_destroy(&r.req);
    json_put(r.callable);
    json_put(r.params);
    json_put(r.body);
    id_list_free(&r.ids);
    buf_free(&r.text);
    return good;
}

bool ep_chat_ids(const struct endpoint *ep, const struct endpoint_ask *ask, struct id_list *ids,
                 struct api_answer *out) {
    const struct counting how = {.api = API_OPENAI_CHAT, .read = ep_chat_tokens};
    return read_ids(ep, ask, &how, ids, out);
}

bool ep_chat_ids_of(const struct endpoint *ep, const struct endpoint_ask *ask,
                    struct json_value *body, struct id_list *ids, struct api_answer *out) {
    const struct counting how = {.api = API_OPENAI_CHAT,
                                 .read = ep_chat_tokens,
                                 .body = body,
                                 .closed = true,
                                 .all_are_400 = true};
    return read_ids(ep, ask, &how, ids, out);
}

/* key: the member of the answer. */
static void count(const struct endpoint *ep, const struct endpoint_ask *ask, enum api api,
                  bool (*read)(struct ep_read *r), const char *key, struct api_answer *out) {
    const struct counting how = {.api = api, .read = read};
    struct id_list ids = {0};
    if (!read_ids(ep, ask, &how, &ids, out)) return;
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
    buf_printf(&out->body, "{%s\"input_tokens\":%zu}", key, ids.n);
    id_list_free(&ids);
}

void endpoint_anthropic_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct api_answer *out) {
    count(ep, ask, API_ANTHROPIC, ep_anthropic_tokens, "", out);
}

#define OF_RESPONSES "\"object\":\"response.input_tokens\","

void endpoint_responses_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct api_answer *out) {
    count(ep, ask, API_RESPONSES, ep_responses_read, OF_RESPONSES, out);
}

/* llama.cpp's, of a chat. */
void endpoint_chat_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    count(ep, ask, API_OPENAI_CHAT, ep_chat_tokens, OF_RESPONSES, out);
}
