/* req_read: an inference body to a request, off the loop: copies what the text pool needs, runs
 * endpoint_read() there, and comes back. Thread: the loop thread. */
#ifndef BATON_INSTANCE_REQ_READ_H
#define BATON_INSTANCE_REQ_READ_H

#include "common/instance/instance.h"

struct req_read;

/* Exactly one of *req (the callee's) and *err (set when req is NULL; the callee answers with it and
 * frees its body). */
typedef void req_read_fn(void *arg, struct infer_req *req, struct api_answer *err);

/* Starts reading x's body. tenant: whose the request is (proto/tenant.h); "": nobody said.
 * ERR_BUSY: too many bodies wait; nothing was started. The exchange need not outlive the call. */
enum err req_read_start(struct req_read **out, struct instance *in, struct http_x *x,
                        const struct api_path *path, const char *path_model, const char *req_id,
                        const char *tenant, bool is_recompute, req_read_fn *fn, void *arg);
/* Forgets the callback. A body that waits leaves the queue, one that is being read is given up
 * soon. NULL is fine. */
void req_read_cancel(struct req_read **r);

#endif
