/* guide_job: compiles the guide of a request that came over the link, in the text pool, because it
 * takes milliseconds to seconds. Thread: the loop thread. */
#ifndef BATON_INSTANCE_GUIDE_JOB_H
#define BATON_INSTANCE_GUIDE_JOB_H

#include "common/instance/instance.h"

struct guide_job;

/* ERR_OK: g is the callee's (endpoint_guide_keep). Else text says why. The job is over. */
typedef void guide_job_fn(void *arg, enum err e, struct endpoint_guide *g, const char *text);

/* Copies guide. tenant: whose request it is, NULL: nobody said. ERR_BUSY: the pool's queue is full.
 * On errors fn is never called. */
enum err guide_job_start(struct guide_job **out, struct instance *in, const char *tenant,
                         const char *guide, guide_job_fn *fn, void *arg);
void guide_job_cancel(struct guide_job **j); /* fn is not called any more; NULL is fine */

#endif
