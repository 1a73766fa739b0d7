/* ep_call: questions that are answered in two framings: a body or a message comes in, JSON of the
 * message's fields is said, as it is or as that message. */
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/grpc/grpc_json.h"
#include "proto/grpc.h"

bool ep_ask_read(const struct endpoint *ep, const struct endpoint_ask *ask, struct buf *wire,
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
    ep_answer_error_of(ep, ask->path->errors, status != 0 ? status : 422,
                       status != 0 ? why : "the body must be a JSON object", NULL,
                       status != 0 ? NULL : EP_INVALID_JSON, out);
    return false;
}

void ep_ask_reply(const struct endpoint_ask *ask, struct buf *json, struct api_answer *out) {
    if (ask->path->frames != API_FRAMES_GRPC) {
        *out =
            (struct api_answer){.status = 200, .content_type = "application/json", .body = *json};
        *json = BUF_INIT;
        return;
    }
    *out = (struct api_answer){.status = 200, .content_type = GRPC_TYPE};
    grpc_put_made(&out->body, grpc_method_find(ask->path->path)->out, json);
}

enum err ep_token_spans(const struct endpoint *ep, const struct id_list *ids, struct buf *text,
                        struct ep_span *spans) {
    struct detok *d = NULL;
    size_t chars = 0;
    enum err e = detok_create(&d, ep->tok, true);
    for (size_t i = 0; e == ERR_OK && i < ids->n; i++) {
        const size_t at = text->len;
        e = detok_feed(d, ids->ids[i], text);
        const size_t n = text->len - at, more = n > 0 ? utf8_chars(text->data + at, n) : 0;
        spans[i] = (struct ep_span){.at = at, .n = n, .start = chars, .end = chars + more};
        chars += more;
    }
    if (text->failed) e = ERR_NO_MEMORY;
    detok_destroy(&d);
    return e;
}
