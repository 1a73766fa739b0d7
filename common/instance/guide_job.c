/* guide_job: one job of the text pool per guide. */
#include "common/instance/guide_job.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "common/instance/text_pool.h"

struct guide_job {
    const struct endpoint *ep;
    char *guide;
    struct text_pool *pool;
    struct pool_job *job;
    atomic_bool cancelled;
    guide_job_fn *fn; /* NULL: cancelled */
    void *arg;
    struct endpoint_guide made;
    struct errbuf eb;
    enum err e;
};

static void job_free(struct guide_job *j) {
    endpoint_guide_drop(&j->made);
    free(j->guide);
    free(j);
}

static void work(void *arg) {
    struct guide_job *j = arg;
    j->e = endpoint_guide_compile(j->ep, j->guide, &j->cancelled, &j->made, &j->eb);
}

static void done(void *arg) {
    struct guide_job *j = arg;
    if (j->fn != NULL) j->fn(j->arg, j->e, &j->made, j->eb.text);
    job_free(j);
}

enum err guide_job_start(struct guide_job **out, struct instance *in, const char *tenant,
                         const char *guide, guide_job_fn *fn, void *arg) {
    struct guide_job *j = calloc(1, sizeof(*j));
    *out = NULL;
    if (j == NULL) return ERR_NO_MEMORY;
    j->ep = instance_endpoint(in);
    j->fn = fn;
    j->arg = arg;
    j->guide = strdup(guide);
    j->pool = instance_text_pool(in);
    enum err e = ERR_NO_MEMORY;
    if (j->guide != NULL)
        e = text_pool_start(j->pool, tenant != NULL ? tenant : "", &j->job, work, done, j);
    if (e != ERR_OK) {
        job_free(j);
        return e;
    }
    *out = j;
    return ERR_OK;
}

void guide_job_cancel(struct guide_job **j_ptr) {
    struct guide_job *j = *j_ptr;
    if (j == NULL) return;
    *j_ptr = NULL;
    j->fn = NULL;
    atomic_store(&j->cancelled, true);
    if (text_pool_drop(j->pool, j->job)) job_free(j);
}
