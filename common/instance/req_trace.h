/* req_trace: what a client's headers say of the trace its request belongs to, as fields of a log
 * line: request_id=ID traceparent=.. tracestate=.. b3=.. x-b3-traceid=... It travels with the
 * request from prefill to decode, so that the lines of all daemons about it can be found by any of
 * these. Thread: the loop thread. */
#ifndef BATON_INSTANCE_REQ_TRACE_H
#define BATON_INSTANCE_REQ_TRACE_H

#include "common/net/http_server.h"
#include "proto/infer_msg.h"

/* At most TRACE_BYTES_MAX bytes; a header that does not fit is left out, as is one whose value is
 * not printable ASCII or has a quote. Malloc'd; NULL: no memory. */
char *req_trace_read(struct http_x *x);

/* For log lines; "" when there is none. */
static inline const char *req_trace_fields(const struct infer_req *req) {
    return req != NULL && req->head.trace != NULL ? req->head.trace : "";
}

#endif
