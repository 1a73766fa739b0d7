/* ep_body: what came as a body becomes a tree. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/grpc/grpc_json.h"

enum { MESSAGE_BYTES_MAX = 64 << 20 }; /* where no setting bounds it */

static bool parse_message(const struct ep_body *b, struct buf *wire, struct json_value **out,
                          int *status, char *why, size_t n_why) {
    const struct grpc_method *m = grpc_method_find(b->path->path);
    struct errbuf eb = {0};
    const struct grpc_body body = {.message = m != NULL ? m->in : NULL,
                                   .p = b->p,
                                   .n = b->n,
                                   .encoding = b->meta->encoding,
                                   .message_bytes_max =
                                       b->bytes_max > 0 ? b->bytes_max : MESSAGE_BYTES_MAX};
    if (m != NULL && grpc_body_read(&body, &b->limits, wire, out, status, &eb)) return true;
    if (m == NULL) *status = 501;
    snprintf(why, n_why, "%s", m == NULL ? "there is no such method" : eb.text);
    return false;
}

bool ep_body_parse(const struct ep_body *b, struct buf *wire, struct json_value **out, int *status,
                   char *why, size_t n_why) {
    *out = NULL;
    *status = 0;
    if (b->path != NULL && b->path->frames == API_FRAMES_GRPC)
        return parse_message(b, wire, out, status, why, n_why);
    enum err e = b->own != NULL ? json_read_in_place(out, b->own, b->n, &b->limits, NULL)
                                : json_read(out, b->p, b->n, &b->limits, NULL);
    if (e == ERR_OK && json_is(*out, json_type_object)) return true;
    json_put(*out);
    *out = NULL;
    return false;
}
