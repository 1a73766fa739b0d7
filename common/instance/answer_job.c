/* answer_job: one job of the text pool per request that goes on elsewhere. */
#include "common/instance/answer_job.h"

#include <stdlib.h>
#include <string.h>
#include "common/endpoint/endpoint.h"
#include "common/instance/text_pool.h"
#include "proto/transcript.h"

struct answer_job {
    const struct endpoint *ep;
    struct text_pool *pool;
    struct pool_job *job;
    answer_job_fn *fn;
    void *arg;
    bool cancelled;
    struct answer *made;
    struct errbuf eb;
    enum err e;
    uint32_t n_parts;
    struct answer_job_part parts[];
};

bool answer_job_needed(const struct infer_req *req) {
    return req->replay != NULL && req->replay->n_ids > 0;
}

static enum err replay_part(struct answer_job *j, const struct answer_job_part *part) {
    const struct transcript *t = part->req->replay;
    enum err e = ERR_OK;
    for (uint32_t i = 0; t != NULL && i < t->n_choices && e == ERR_OK; i++) {
        const struct sent_tokens sent = {
            .ids = t->choices[i].ids,
            .n_ids = t->choices[i].n_ids,
            .finish = t->choices[i].finish,
            .first = part->first != NULL ? &part->first[i] : NULL,
        };
        e = answer_replay(j->made, part->req->head.part * t->n_choices + i, &sent, &j->eb);
    }
    return e;
}

/* Requests may be chained (at P) or come one by one (at D). */
static void work(void *arg) {
    struct answer_job *j = arg;
    j->e = answer_create(&j->made, j->ep, j->parts[0].req);
    bool chained = j->parts[0].req->next_part != NULL;
    for (uint32_t i = 1; i < j->n_parts && j->e == ERR_OK && !chained; i++)
        j->e = answer_add_part(j->made, j->parts[i].req);
    for (uint32_t i = 0; i < j->n_parts && j->e == ERR_OK; i++) j->e = replay_part(j, &j->parts[i]);
    if (j->e != ERR_OK) answer_destroy(&j->made);
}

static void done(void *arg) {
    struct answer_job *j = arg;
    if (j->cancelled) answer_destroy(&j->made);
    j->fn(j->arg, j->cancelled ? ERR_CANCELLED : j->e, j->made, j->eb.text);
    free(j);
}

enum err answer_job_start(struct answer_job **out, struct instance *in, const char *tenant,
                          const struct answer_job_part *parts, uint32_t n_parts, answer_job_fn *fn,
                          void *arg) {
    struct answer_job *j = calloc(1, sizeof(*j) + n_parts * sizeof(j->parts[0]));
    *out = NULL;
    if (j == NULL) return ERR_NO_MEMORY;
    j->ep = instance_endpoint(in);
    j->pool = instance_text_pool(in);
    j->fn = fn;
    j->arg = arg;
    j->n_parts = n_parts;
    memcpy(j->parts, parts, n_parts * sizeof(*parts));
    enum err e = text_pool_start(j->pool, tenant != NULL ? tenant : "", &j->job, work, done, j);
    if (e != ERR_OK) {
        free(j);
        return e;
    }
    *out = j;
    return ERR_OK;
}

bool answer_job_cancel(struct answer_job **j_ptr) {
    struct answer_job *j = *j_ptr;
    if (j == NULL) return true;
    *j_ptr = NULL;
    j->cancelled = true;
    if (!text_pool_drop(j->pool, j->job)) return false;
    free(j);
    return true;
}
