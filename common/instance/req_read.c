/* req_read: one job of the text pool per inference body. */
#include "common/instance/req_read.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/instance/req_trace.h"

struct req_read {
    const struct endpoint *ep;
    struct endpoint_in input;
    char *body, *path_model, *req_id, *tenant, *trace;
    struct text_pool *pool;
    struct pool_job *job;
    atomic_bool cancelled;
    req_read_fn *fn; /* NULL: cancelled */
    void *arg;
    struct infer_req *req;
    struct api_answer err;
    bool ok;
};

static void req_read_free(struct req_read *r) {
    heap_give(r->body, r->input.body_len + 1);
    free(r->path_model);
    free(r->req_id);
    free(r->tenant);
    free(r->trace);
    free(r);
}

static void work(void *arg) {
    struct req_read *r = arg;
    r->ok = endpoint_read(r->ep, &r->input, &r->req, &r->err);
    bool whose = true;
    /* Every part is handed over by itself. One without its trace is served all the same; one
     * without its tenant would find the blocks of clients without a key. */
    for (struct infer_req *req = r->ok ? r->req : NULL; req != NULL; req = req->next_part) {
        req->trace = strdup(r->trace);
        if (r->tenant[0] != '\0') whose = (req->tenant = strdup(r->tenant)) != NULL && whose;
    }
    if (whose) return;
    infer_req_destroy(&r->req);
    r->ok = false;
    endpoint_error(r->ep, r->input.path, 503, "out of memory", &r->err);
}

static void done(void *arg) {
    struct req_read *r = arg;
    if (r->fn == NULL) {
        infer_req_destroy(&r->req);
        if (!r->ok) buf_free(&r->err.body);
    } else {
        r->fn(r->arg, r->ok ? r->req : NULL, r->ok ? NULL : &r->err);
    }
    req_read_free(r);
}

enum err req_read_start(struct req_read **out, struct instance *in, struct http_x *x,
                        const struct api_path *path, const char *path_model, const char *req_id,
                        const char *tenant, bool is_recompute, req_read_fn *fn, void *arg) {
    size_t n;
    const char *body = http_x_body(x, &n);
    struct req_read *r = calloc(1, sizeof(*r));
    *out = NULL;
    if (r == NULL) return ERR_NO_MEMORY;
    r->body = heap_take(n + 1);
    r->input.body_len = n;
    r->path_model = strdup(path_model);
    r->req_id = strdup(req_id);
    r->tenant = strdup(tenant);
    r->trace = req_trace_read(x);
    if (r->body == NULL || r->path_model == NULL || r->req_id == NULL || r->tenant == NULL ||
        r->trace == NULL) {
        req_read_free(r);
        return ERR_NO_MEMORY;
    }
    memcpy(r->body, body, n);
    r->body[n] = 0;
    r->ep = instance_endpoint(in);
    r->input = (struct endpoint_in){.path = path,
                                    .path_model = r->path_model,
                                    .req_id = r->req_id,
                                    .body = r->body,
                                    .body_own = r->body,
                                    .body_len = n,
                                    .is_recompute = is_recompute,
                                    .cancelled = &r->cancelled,
                                    .arrival_us = clock_us(),
                                    .random_seed = instance_random(in)};
    r->fn = fn;
    r->arg = arg;
    r->pool = instance_text_pool(in);
    enum err e = text_pool_start(r->pool, r->tenant, &r->job, work, done, r);
    if (e != ERR_OK) {
        req_read_free(r);
        return e;
    }
    *out = r;
    return ERR_OK;
}

void req_read_cancel(struct req_read **r_ptr) {
    struct req_read *r = *r_ptr;
    if (r == NULL) return;
    *r_ptr = NULL;
    r->fn = NULL;
    atomic_store(&r->cancelled, true);
    if (text_pool_drop(r->pool, r->job)) req_read_free(r);
}
