/* ep_count: how many tokens the body of a family would be, without asking the engine: the family's
 * own reader counts. */
#include <stdlib.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

/* read: of the family, without its limits. False: *out is the error. */
static bool read_ids(const struct endpoint *ep, const struct endpoint_ask *ask, enum api api,
                     bool (*read)(struct ep_read *r), struct id_list *ids, struct api_answer *out) {
    const struct endpoint_in in = {.path = ask->path,
                                   .req_id = "",
                                   .body_len = ask->n,
                                   .context = ask->context,
                                   .context_len = ask->context_len,
                                   .cancelled = ask->cancelled};
    struct json_limits lim = json_limits_client(JSON_DEPTH_MAX);
    struct ep_read r = {.ep = ep, .in = &in, .fam = ep_family_of(ep, api), .p = EP_PARAMS_DEFAULT};
    const uint32_t failures = json_failures();
    r.req = infer_req_create();
    bool good = r.req != NULL || ep_fail_memory(&r);
    if (good) {
        good = json_read_in_place(&r.body, ask->body, ask->n, &lim, NULL) == ERR_OK &&
               json_is(r.body, json_type_object);
        if (!good) ep_fail(&r, 422, "Failed to parse request context to json");
    }
    good = good && read(&r);
    if (json_failures() != failures) {
        r.status = 0;
        good = ep_fail_memory(&r);
    }
    if (good) {
        *ids = r.ids;
        r.ids = (struct id_list){0};
    } else {
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
    return read_ids(ep, ask, API_OPENAI_CHAT, ep_chat_tokens, ids, out);
}

/* key: the member of the answer. */
static void count(const struct endpoint *ep, const struct endpoint_ask *ask, enum api api,
                  bool (*read)(struct ep_read *r), const char *key, struct api_answer *out) {
    struct id_list ids = {0};
    if (!read_ids(ep, ask, api, read, &ids, out)) return;
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
    buf_printf(&out->body, "{%s\"input_tokens\":%zu}", key, ids.n);
    id_list_free(&ids);
}

void endpoint_anthropic_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct api_answer *out) {
    count(ep, ask, API_ANTHROPIC, ep_anthropic_tokens, "", out);
}

void endpoint_responses_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct api_answer *out) {
    count(ep, ask, API_RESPONSES, ep_responses_read, "\"object\":\"response.input_tokens\",", out);
}
