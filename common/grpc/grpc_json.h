/* grpc_json: messages of gRPC as JSON and back, by the tables of proto/grpc/, so that readers and
 * writers of bodies know one form. The JSON is protobuf's own, with the names of the .proto files:
 * {"model_id":"m","requests":[{"text":"hi"}]}; what a message does not have is absent, bytes are
 * base64, an enum is the name of its value (or a number that has none), 64-bit integers are
 * numbers, a map is an object, google.protobuf.Struct is the object it stands for. Of a field that
 * is no list and comes twice the last one counts. Thread: pure. */
#ifndef BATON_GRPC_GRPC_JSON_H
#define BATON_GRPC_GRPC_JSON_H

#include "common/base/buf.h"
#include "common/grpc/grpc_types.h"
#include "proto/grpc.h"
#include "proto/json.h"

/* NULL: there is no such method. */
const struct grpc_method *grpc_method_find(const char *path);

/* Appends the JSON of the message p[n] to out. Text is passed on as it is: whether it is UTF-8 the
 * reader of the JSON sees. ERR_BAD_FRAME: it is none; ERR_TOO_LARGE: deeper than 100 messages, or
 * out would be longer than text_bytes_max; ERR_NO_MEMORY. eb names the message. */
enum err grpc_to_json(struct buf *out, const struct grpc_message *m, const void *p, size_t n,
                      size_t text_bytes_max, struct errbuf *eb);

/* Appends the message of an object; members that are none of its fields, or of another type, are
 * left out. A want of memory shows in out->failed. */
void grpc_from_json(struct buf *out, const struct grpc_message *m, const struct json_value *v);

/* The same with the head of a frame before it. */
void grpc_put_message(struct buf *out, const struct grpc_message *m, const struct json_value *v);
/* Of a text of JSON of our own. */
void grpc_put_text(struct buf *out, const struct grpc_message *m, const char *json, size_t n);
/* Of one that was just written, which is freed; where that has failed, so has out. */
void grpc_put_made(struct buf *out, const struct grpc_message *m, struct buf *json);

/* A call's body as a tree. */
struct grpc_body {
    const struct grpc_message *message;
    const char *p; /* [n] one frame (proto/grpc.h) */
    size_t n;
    const char *encoding; /* grpc-encoding; "" or NULL: none */
    size_t message_bytes_max;
};
/* The message itself, f->p[f->n], which may lie in *plain. False: as below. */
bool grpc_body_plain(const struct grpc_body *b, struct grpc_frame *f, struct buf *plain,
                     int *status, struct errbuf *eb);
/* *text gets what the tree lies in: it is freed behind the tree. False: *status is one of HTTP and
 * eb says why. */
bool grpc_body_read(const struct grpc_body *b, const struct json_limits *lim, struct buf *text,
                    struct json_value **out, int *status, struct errbuf *eb);

/* grpc_inflate.c: p[n], as `encoding` says, to out. ERR_NOT_FOUND: no encoding that is known;
 * ERR_TOO_LARGE: more than bytes_max; ERR_BAD_FRAME; ERR_NO_MEMORY. */
enum err grpc_inflate(struct buf *out, const char *encoding, const char *p, size_t n,
                      size_t bytes_max);

#endif
