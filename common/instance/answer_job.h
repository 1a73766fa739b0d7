/* answer_job: makes the answer of a request and puts it behind what earlier attempts sent
 * (infer_req.replay), in the text pool: a transcript may have a million tokens. Thread: the loop
 * thread. */
#ifndef BATON_INSTANCE_ANSWER_JOB_H
#define BATON_INSTANCE_ANSWER_JOB_H

#include "common/instance/instance.h"

struct answer_job;

/* One part of the request. */
struct answer_job_part {
    const struct infer_req *req;
    const struct token_event
        *first; /* of each choice the first token, drawn again; NULL: unknown */
};

/* ERR_OK: a is the callee's. ERR_INVALID: text says what of a replay cannot be. ERR_NO_MEMORY.
 * ERR_CANCELLED: the job is over now. */
typedef void answer_job_fn(void *arg, enum err e, struct answer *a, const char *text);

/* parts: [n_parts] by number, copied; what they point at must live until fn was called. ERR_BUSY:
 * the pool's queue is full; on errors fn is never called. */
enum err answer_job_start(struct answer_job **out, struct instance *in, const char *tenant,
                          const struct answer_job_part *parts, uint32_t n_parts, answer_job_fn *fn,
                          void *arg);
/* True: the job is gone, and fn will not be called. False: it is under way, and fn will be called
 * with ERR_CANCELLED. */
bool answer_job_cancel(struct answer_job **j);
/* Whether earlier attempts have sent something of the part. */
bool answer_job_needed(const struct infer_req *req);

#endif
