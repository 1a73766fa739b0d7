/* err: the one list of errors. A row gives the enum value, the HTTP status an API answers with when
 * nothing more specific is said, whether the same call may succeed later (on this or another
 * instance), and the text. */
#ifndef BATON_PROTO_ERR_H
#define BATON_PROTO_ERR_H

#include <stdbool.h>
#include <stddef.h>

/* clang-format off */
#define ERR_LIST(X)                                                                                \
    /* name              status retry  text */                                                     \
    X(ERR_OK,            200,   false, "ok")                                                       \
    X(ERR_NO_MEMORY,     503,   true,  "out of memory")                                            \
    X(ERR_INVALID,       422,   false, "invalid argument")                                         \
    X(ERR_TOO_LARGE,     413,   false, "larger than the limit")                                    \
    X(ERR_BAD_JSON,      422,   false, "not valid JSON")                                           \
    X(ERR_BAD_FRAME,     400,   false, "malformed frame")                                          \
    X(ERR_BAD_CONFIG,    500,   false, "bad configuration")                                        \
    X(ERR_BAD_FILE,      500,   false, "bad or unsupported file")                                  \
    X(ERR_NOT_FOUND,     404,   false, "not found")                                                \
    X(ERR_CONFLICT,      409,   false, "not possible in this state")                               \
    X(ERR_BUSY,          429,   true,  "no room at present")                                       \
    X(ERR_TIMEOUT,       408,   true,  "timed out")                                                \
    X(ERR_CANCELLED,     424,   false, "cancelled")                                                \
    X(ERR_PEER_LOST,     500,   true,  "the peer is gone")                                         \
    X(ERR_REFUSED,       500,   false, "refused by the peer")                                      \
    X(ERR_MISMATCH,      500,   false, "the two sides do not fit")                                 \
    X(ERR_IO,            500,   true,  "input or output failed")                                   \
    X(ERR_STOPPING,      503,   true,  "the service has been stopped")                             \
    X(ERR_INTERNAL,      500,   false, "internal error")

enum err {
#define ERR_ENUM(name, status, retry, text) name,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
    ERR_COUNT
};
/* clang-format on */

const char *err_name(enum err e); /* "ERR_BUSY"; never NULL, also for values outside the list */
const char *err_text(enum err e); /* "no room at present" */
int err_http_status(enum err e);
bool err_retryable(enum err e);

enum { ERR_TEXT_BYTES_MAX = 512 };

/* An error with its explanation: which file, field or peer, the value found, the range allowed.
 * Functions that can explain themselves take one as last argument; NULL is fine there. */
struct errbuf {
    enum err code;
    char text[ERR_TEXT_BYTES_MAX]; /* always terminated; cut when longer */
};

/* Fills *eb (unless NULL) and returns code, for functions that end with `return err_set(...)`. */
enum err err_set(struct errbuf *eb, enum err code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
