/* grpc_many: a call whose client streams too: each of its messages is served as a request of its
 * own, by an exchange that has the call's head and this one message as its body; what is answered
 * goes out on the call as it comes. So a handler serves such a method as one that takes a single
 * message, and knows nothing of the others.
 *
 * Order:  up to GRPC_MANY_AT_ONCE requests run at once; their messages mix, those of one keep their
 *   order. One that is answered from within `serve` is answered before the next begins.
 * Ends:   with status 0 once the client has sent all and everything is answered. A client that goes
 *   has gone for each of its requests. A request that fails ends the call with its status, or is
 *   answered with what put_failure makes of it.
 * Bounds: a message has the limits of a body, in bytes and in time, from its first byte on; those
 *   behind GRPC_MANY_AT_ONCE, or behind GRPC_MANY_UNSENT_MAX bytes that the client has not taken,
 *   wait at their client, by the window of the stream; a call on which nothing runs or comes ends
 *   after GRPC_MANY_IDLE_MS. Thread: the loop thread. */
#ifndef BATON_NET_GRPC_MANY_H
#define BATON_NET_GRPC_MANY_H

#include "common/base/buf.h"
#include "common/net/http_server.h"

enum { GRPC_MANY_AT_ONCE = 32, GRPC_MANY_UNSENT_MAX = 262144, GRPC_MANY_IDLE_MS = 600000 };

struct grpc_many {
    void (*serve)(void *arg, struct http_x *one, const void *row); /* takes one, as on_request */
    void *arg;
    const void *row;
    /* Appends messages, with their heads, that say to the client of request[n], a message, why it
     * failed. NULL: the call ends. */
    void (*put_failure)(struct buf *out, const char *request, size_t n, const char *text,
                        size_t n_text);
};

/* Takes x, a call (reads_body of http_server.h). */
void grpc_many_start(struct http_x *x, const struct grpc_many *how);

#endif
