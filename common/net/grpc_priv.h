/* grpc_priv: what grpc_x.c (one call) and grpc_many.c (a call with many requests) share. */
#ifndef BATON_NET_GRPC_PRIV_H
#define BATON_NET_GRPC_PRIV_H

#include "common/net/http_conn.h"
#include "proto/grpc.h"

enum { GRPC_X_TEXT_BYTES = 768 };

struct grpc_x {
    const struct http_x_ops *under; /* NULL: a request of a call with many */
    struct loop_alarm deadline;
    bool began; /* the head of a stream is out */
    enum grpc_status status;
    size_t n_text;
    char text[GRPC_X_TEXT_BYTES];
};

/* More of what grpc-message will say; cut where it is full. */
void grpc_x_text(struct grpc_x *g, const char *p, size_t n);

#endif
