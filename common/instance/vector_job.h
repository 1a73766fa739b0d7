/* vector_job: a body that asks for vectors or scores, from its arrival to its answer: read on the
 * text pool, its texts through the engine, where they share steps with those of other requests and
 * with whatever else runs, the answer written on the text pool. Any instance does this, whatever
 * its role. A client that goes takes its texts along. Thread: the loop thread. */
#ifndef BATON_INSTANCE_VECTOR_JOB_H
#define BATON_INSTANCE_VECTOR_JOB_H

#include "common/instance/instance.h"

/* path: of API_EMBED or API_SCORE. tenant: whose it is, "" nobody said. The instance is loaded and
 * does not stop. Answers x, now or later. */
void vector_job_start(struct instance *in, struct http_x *x, const struct api_path *path,
                      const char *tenant);

#endif
