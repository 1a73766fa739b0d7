/* cause: why a request, or one attempt at it, failed: the one list that instances and coordinator
 * share. A cause crosses processes by its name: as header baton-cause on the error answers of a
 * prefill instance and on those to a load or unload of an adapter, as ";cause=<name>" in error
 * frames of the result stream. What is done about a
 * failure is decided by its row here, never by the words of a message. Pure. */
#ifndef BATON_PROTO_CAUSE_H
#define BATON_PROTO_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

#define CAUSE_HEADER "baton-cause"
enum { CAUSE_NAME_BYTES_MAX = 31 };

/* Whose affair it is: where another attempt had better not go. */
enum cause_side { SIDE_NOBODY, SIDE_CLIENT, SIDE_P, SIDE_D, SIDE_LINK };

/* name: on the wire, in metrics and logs.  status: what a client gets when nothing more specific is
 * said.  elsewhere: another pair may well succeed.  fault: something is broken there, so it counts
 * for the breaker. */
/* clang-format off */
#define CAUSE_LIST(X)                                                                              \
    /* id                 name                   status elsewhere side    fault */                 \
    X(NONE,               "none",                500, false, NOBODY, false)                        \
    /* the request itself */                                                                       \
    X(REQUEST,            "request",             400, false, CLIENT, false)                        \
    X(NO_JSON,            "no_json",             400, false, CLIENT, false)                        \
    X(ANSWERED,           "answered",            200, false, CLIENT, false) /* P has: no tokens */  \
    X(STOPPED,            "stopped",             424, false, CLIENT, false)                        \
    X(CLIENT_GONE,        "client_gone",         499, false, CLIENT, false)                        \
    X(REQUEST_TIMEOUT,    "request_timeout",     408, false, NOBODY, false)                        \
    X(ANSWER_TOO_LARGE,   "answer_too_large",    500, false, CLIENT, false)                        \
    X(ADAPTER_MISSING,    "adapter_missing",     422, false, CLIENT, false)                        \
    X(ADAPTER_PRESENT,    "adapter_present",     409, false, CLIENT, false)                        \
    X(ADAPTER_LEAVING,    "adapter_leaving",     409, false, CLIENT, false)                        \
    X(STALE_ATTEMPT,      "stale_attempt",       500, false, NOBODY, false)                        \
    /* the prefill instance */                                                                     \
    X(P_FULL,             "p_full",              429, true,  P,      false)                        \
    X(P_TOO_SMALL,        "p_too_small",         424, true,  P,      false)                        \
    X(P_NOT_PREFILL,      "p_not_prefill",       400, true,  P,      false)                        \
    X(P_NOT_SERVING,      "p_not_serving",       503, true,  P,      true)                         \
    X(P_NO_MEMORY,        "p_no_memory",         503, true,  P,      true)                         \
    X(P_FAILED,           "p_failed",            500, true,  P,      true)                         \
    X(P_BAD_ANSWER,       "p_bad_answer",        500, true,  P,      true)                         \
    X(P_LOST,             "p_lost",              500, true,  P,      true)                         \
    /* the decode instance */                                                                      \
    X(D_FULL,             "d_full",              500, true,  D,      false)                        \
    X(D_TOO_SMALL,        "d_too_small",         424, true,  D,      false)                        \
    X(D_REFUSED,          "d_refused",           500, true,  D,      false)                        \
    X(D_STOPPING,         "d_stopping",          503, true,  D,      false)                        \
    X(D_NO_MEMORY,        "d_no_memory",         503, true,  D,      true)                         \
    X(D_UNREAD,           "d_unread",            503, true,  D,      true)                         \
    X(D_FAILED,           "d_failed",            500, true,  D,      true)                         \
    X(D_LOST,             "d_lost",              500, true,  D,      false)                        \
    X(D_SILENT,           "d_silent",            500, true,  D,      true)                         \
    X(PIECES_LOST,        "pieces_lost",         500, true,  D,      true)                         \
    X(RECOMPUTE,          "recompute",           500, true,  NOBODY, false)                        \
    /* the link between them */                                                                    \
    X(KV_LINK_DOWN,       "kv_link_down",        500, true,  LINK,   true)                         \
    X(KV_TIMEOUT,         "kv_timeout",          500, true,  LINK,   false)                        \
    /* planned moves: whoever is left behind is well, and avoided all the same */                  \
    X(DRAINED,            "drained",             503, true,  NOBODY, false)                        \
    X(ROLE_SWITCHED,      "role_switched",       503, true,  NOBODY, false)                        \
    /* the coordinator */                                                                          \
    X(SCHEDULE_TIMEOUT,   "schedule_timeout",    408, false, NOBODY, false)                        \
    X(FIRST_TOKEN_TIMEOUT,"first_token_timeout", 408, false, NOBODY, false)                        \
    X(INFER_TIMEOUT,      "infer_timeout",       408, false, NOBODY, false)                        \
    X(NO_MEMORY,          "no_memory",           503, false, NOBODY, false)                        \
    X(OVER_LIMIT,         "over_limit",          503, false, NOBODY, false)                        \
    X(PUSHED_OUT,         "pushed_out",          429, false, NOBODY, false)                        \
    X(TOO_LATE,           "too_late",            429, false, NOBODY, false)                        \
    X(DEADLINE,           "deadline",            408, false, NOBODY, false)                        \
    X(STOPPING,           "stopping",            503, false, NOBODY, false)                        \
    X(INTERNAL,           "internal",            500, false, NOBODY, false)

enum cause {
#define CAUSE_ENUM(id, name, status, elsewhere, side, fault) CAUSE_##id,
    CAUSE_LIST(CAUSE_ENUM)
#undef CAUSE_ENUM
    CAUSE_COUNT
};
/* clang-format on */

const char *cause_name(enum cause c);
/* CAUSE_NONE: no such name, as of a newer version. */
enum cause cause_parse(const char *name, size_t n);
int cause_status(enum cause c);
bool cause_elsewhere(enum cause c);
enum cause_side cause_side(enum cause c);
bool cause_is_fault(enum cause c);

/* What an error answer without a cause can mean, by its status alone. */
enum cause cause_of_p_status(int status);
enum cause cause_of_d_status(int status);

#endif
