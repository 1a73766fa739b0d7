/* grpc: the parts of gRPC over HTTP/2 that are bytes and words: messages with their lengths,
 * statuses, deadlines (kserve-runtimes 13). Pure. */
#ifndef BATON_PROTO_GRPC_H
#define BATON_PROTO_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum grpc_status {
    GRPC_OK,
    GRPC_CANCELLED,
    GRPC_UNKNOWN,
    GRPC_INVALID_ARGUMENT,
    GRPC_DEADLINE_EXCEEDED,
    GRPC_NOT_FOUND,
    GRPC_ALREADY_EXISTS,
    GRPC_PERMISSION_DENIED,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_FAILED_PRECONDITION,
    GRPC_ABORTED,
    GRPC_OUT_OF_RANGE,
    GRPC_UNIMPLEMENTED,
    GRPC_INTERNAL,
    GRPC_UNAVAILABLE,
    GRPC_DATA_LOSS,
    GRPC_UNAUTHENTICATED,
};

/* Handlers speak in statuses of HTTP: which of gRPC's that is (table in grpc.c). */
enum grpc_status grpc_status_of(int http_status);
/* Of a message that cannot be read: the client's fault, which gRPC calls INTERNAL. */
enum { GRPC_UNREADABLE = 406 };

#define GRPC_TYPE "application/grpc"
/* Between coordinator and instance the same messages are an ordinary body, answered as one. */
#define GRPC_INSIDE_TYPE "application/x-baton-grpc"
/* Headers that go along there. */
#define GRPC_ENCODING_HEADER "grpc-encoding"
#define GRPC_MODEL_HEADER    "mm-model-id"

/* application/grpc, application/grpc+proto, parameters behind either. NULL is none. */
bool grpc_is_type(const char *content_type);

/* The value of grpc-timeout in milliseconds, rounded up; false: it is none. */
bool grpc_timeout_read(const char *s, uint64_t *ms);

/* The head of a message: a flag, and its length. */
enum { GRPC_HEAD_BYTES = 5 };
void grpc_head_put(unsigned char head[GRPC_HEAD_BYTES], uint32_t n);
struct grpc_frame {
    bool compressed;
    const char *p; /* [n] */
    size_t n;
};
enum grpc_took { GRPC_TOOK, GRPC_MORE, GRPC_BAD };
/* The message at the start of p[n]: GRPC_MORE: it is not complete; GRPC_BAD: its flag is none. */
enum grpc_took grpc_frame_take(struct grpc_frame *f, const char *p, size_t n);
/* What is wrong with p[n] as the one message of a call; NULL: nothing. */
const char *grpc_one_message(const char *p, size_t n);

/* grpc-message: text[n] percent-encoded and terminated, cut where it does not fit. */
void grpc_text_put(char *dst, size_t dst_bytes, const char *text, size_t n);

/* "/package.Service/Method". */
bool grpc_is_path(const char *path);

#endif
