/* req_read: one job of the text pool per inference body. */
#include "common/instance/req_read.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/instance/req_trace.h"
#include "proto/api.h"
#include "proto/grpc.h"
#include "proto/infer_fields.h"
#include "proto/tensors.h"
#include "proto/transcript.h"

enum { LOG_VALUES_BYTES = 600 };

struct req_read {
    const struct endpoint *ep;
    struct endpoint_in input;
    size_t body_bytes;    /* with the record behind it */
    size_t replay_bytes;  /* of it; 0: there is none */
    size_t context_bytes; /* of what is left, the same */
    char *context;
    struct transcript sent; /* the record */
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
    heap_give(r->body, r->body_bytes + 1);
    transcript_free(&r->sent);
    free(r->context);
    free(r->path_model);
    free(r->req_id);
    free(r->tenant);
    free(r->trace);
    free(r);
}

/* ---- the record */

/* The end of the body to r->sent, the rest is the client's. */
static enum err take_record(struct req_read *r, struct errbuf *eb) {
    if (r->replay_bytes == 0) return ERR_OK;
    if (r->replay_bytes > r->body_bytes)
        return err_set(eb, ERR_INVALID,
                       "Parameter " REPLAY_HEADER " must be at most the %zu bytes of the body but "
                       "got %zu",
                       r->body_bytes, r->replay_bytes);
    r->input.body_len = r->body_bytes - r->replay_bytes;
    struct rd rd = rd_of(r->body + r->input.body_len, r->replay_bytes);
    enum err e = transcript_unpack(&rd, &r->sent, eb);
    if (e == ERR_OK && rd_left(&rd) > 0)
        e = err_set(eb, ERR_BAD_FRAME,
                    "replay record: %zu bytes of " REPLAY_HEADER " %zu are behind its end",
                    rd_left(&rd), r->replay_bytes);
    r->body[r->input.body_len] = 0;
    r->input.created_unix_s = r->sent.created_unix_s;
    r->input.random_seed = r->sent.seed;
    return e;
}

/* What lies before the client's body, from behind it: apart, for the body is read where it lies. */
static enum err take_context(struct req_read *r, struct errbuf *eb) {
    const size_t n = r->context_bytes;
    if (n == 0) return ERR_OK;
    if (n > r->input.body_len)
        return err_set(eb, ERR_INVALID,
                       "Parameter " CONTEXT_HEADER " must be at most the %zu bytes of the body but "
                       "got %zu",
                       r->input.body_len, n);
    r->context = malloc(n);
    if (r->context == NULL) return ERR_NO_MEMORY;
    r->input.body_len -= n;
    memcpy(r->context, r->body + r->input.body_len, n);
    r->body[r->input.body_len] = 0;
    r->input.context = r->context;
    r->input.context_len = n;
    return ERR_OK;
}

/* Each part of the request gets what was sent of it. */
static enum err give_record(struct req_read *r, struct errbuf *eb) {
    const struct transcript *t = &r->sent;
    uint32_t n_choices = (uint32_t)r->req->sampling.n_choices;
    if (r->replay_bytes == 0) return ERR_OK;
    if (t->n_parts != r->req->head.n_parts || t->n_choices != n_choices)
        return err_set(eb, ERR_INVALID,
                       "replay record: it has %u choices of each of %u prompts, but the request "
                       "has %u of %u",
                       t->n_choices, t->n_parts, n_choices, r->req->head.n_parts);
    enum err e = ERR_OK;
    for (struct infer_req *req = r->req; req != NULL && e == ERR_OK; req = req->next_part) {
        req->replay = calloc(1, sizeof(*req->replay));
        e = req->replay != NULL ? transcript_part(req->replay, t, req->head.part) : ERR_NO_MEMORY;
    }
    return e;
}

/* ---- the job */

/* Every part is handed over by itself. One without its trace is served all the same; one without
 * its tenant would find the blocks of clients without a key. */
static enum err give_names(struct req_read *r) {
    for (struct infer_req *req = r->req; req != NULL; req = req->next_part) {
        req->head.trace = strdup(r->trace);
        if (r->tenant[0] != '\0' && (req->head.tenant = strdup(r->tenant)) == NULL)
            return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

static void log_read(const struct req_read *r) {
    char values[LOG_VALUES_BYTES];
    if (!log_shows(LOG_DEBUG)) return;
    infer_req_print(values, sizeof(values), r->req);
    log_debug("request", "req=%s event=read prompt_tokens=%zu %s", r->req_id, r->req->n_prompt,
              values);
}

static void work(void *arg) {
    struct req_read *r = arg;
    struct errbuf eb = {0};
    enum err e = take_record(r, &eb);
    if (e == ERR_OK) e = take_context(r, &eb);
    if (e == ERR_OK) {
        r->ok = endpoint_read(r->ep, &r->input, &r->req, &r->err);
        if (!r->ok) return;
        e = give_record(r, &eb);
    }
    if (e == ERR_OK) e = give_names(r);
    if (e == ERR_OK) {
        log_read(r);
        return;
    }
    infer_req_destroy(&r->req);
    r->ok = false;
    if (e == ERR_NO_MEMORY)
        endpoint_error(r->ep, r->input.path, 503, "out of memory", &r->err);
    else
        endpoint_error(r->ep, r->input.path, 400, eb.text, &r->err);
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

char *req_body_copy(const struct http_x *x, size_t *n) {
    const char *body = http_x_body(x, n);
    char *copy = heap_take(*n + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, body, *n);
    copy[*n] = 0;
    return copy;
}

void req_meta_read(struct endpoint_meta *m, const struct http_x *x) {
    const char *encoding = http_x_header(x, GRPC_ENCODING_HEADER),
               *model = http_x_header(x, GRPC_MODEL_HEADER),
               *json_bytes = http_x_header(x, TENSORS_HEADER);
    *m = (struct endpoint_meta){.anthropic = http_x_header(x, ANTHROPIC_HEADER) != NULL,
                                .has_model = model != NULL};
    snprintf(m->encoding, sizeof(m->encoding), "%s", encoding != NULL ? encoding : "");
    snprintf(m->json_bytes, sizeof(m->json_bytes), "%s", json_bytes != NULL ? json_bytes : "");
    snprintf(m->model, sizeof(m->model), "%s", model != NULL ? model : "");
}

enum err req_read_start(struct req_read **out, struct instance *in, struct http_x *x,
                        const struct req_read_opts *o, req_read_fn *fn, void *arg) {
    size_t n = 0;
    struct req_read *r = calloc(1, sizeof(*r));
    *out = NULL;
    if (r == NULL) return ERR_NO_MEMORY;
    r->body = req_body_copy(x, &n);
    r->body_bytes = n;
    r->replay_bytes = o->replay_bytes;
    r->context_bytes = o->context_bytes;
    if (o->context_len > 0) r->context = malloc(o->context_len);
    if (r->context != NULL) memcpy(r->context, o->context, o->context_len);
    r->path_model = strdup(o->path_model);
    r->req_id = strdup(o->req_id);
    r->tenant = strdup(o->tenant);
    r->trace = req_trace_read(x);
    if (r->body == NULL || r->path_model == NULL || r->req_id == NULL || r->tenant == NULL ||
        r->trace == NULL || (o->context_len > 0 && r->context == NULL)) {
        req_read_free(r);
        return ERR_NO_MEMORY;
    }
    r->ep = instance_endpoint(in);
    r->input = (struct endpoint_in){.path = o->path,
                                    .path_model = r->path_model,
                                    .req_id = r->req_id,
                                    .body = r->body,
                                    .body_own = r->body,
                                    .body_len = n,
                                    .context = r->context,
                                    .context_len = o->context_len,
                                    .is_recompute = o->is_recompute,
                                    .cancelled = &r->cancelled,
                                    .arrival_us = clock_us(),
                                    .random_seed = instance_random(in)};
    req_meta_read(&r->input.meta, x);
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
