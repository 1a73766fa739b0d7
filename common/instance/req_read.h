/* req_read: an inference body to a request, off the loop: copies what the text pool needs, runs
 * endpoint_read() there, and comes back. Thread: the loop thread. */
#ifndef BATON_INSTANCE_REQ_READ_H
#define BATON_INSTANCE_REQ_READ_H

#include "common/instance/instance.h"

struct req_read;

/* x's body for a job on the text pool: a copy with a zero behind it, in memory of heap.h that goes
 * back as *n + 1 bytes. NULL: no memory. */
char *req_body_copy(const struct http_x *x, size_t *n);

/* Exactly one of *req (the callee's) and *err (set when req is NULL; the callee answers with it and
 * frees its body). */
typedef void req_read_fn(void *arg, struct infer_req *req, struct api_answer *err);

struct req_read_opts {
    const struct api_path *path;
    const char *path_model, *req_id;
    const char *tenant; /* whose the request is (proto/tenant.h); "": nobody said */
    bool is_recompute;
    /* What lies before the body (endpoint_in.context): given here, copied; or so many bytes behind
     * the body of x. */
    const char *context;
    size_t context_len, context_bytes;
    size_t replay_bytes; /* so many at the end of the body are a transcript (docs/wire-replay.md):
                          * the request is read with its clock and seed, and each part gets its own
                          * as infer_req.replay. A bad one is a 400. 0: there is none */
};
/* Starts reading x's body. *o is copied. ERR_BUSY: too many bodies wait; nothing was started. The
 * exchange need not outlive the call. */
/* What the headers of x say of a message of gRPC. */
void req_meta_read(struct endpoint_meta *m, const struct http_x *x);

enum err req_read_start(struct req_read **out, struct instance *in, struct http_x *x,
                        const struct req_read_opts *o, req_read_fn *fn, void *arg);
/* Forgets the callback. A body that waits leaves the queue, one that is being read is given up
 * soon. NULL is fine. */
void req_read_cancel(struct req_read **r);

#endif
