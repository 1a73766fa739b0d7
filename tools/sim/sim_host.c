/* sim_host: what is left of every job is brought up to date whenever one comes or goes. */
#include "tools/sim/sim_host.h"

#include <stdlib.h>
#include <string.h>

static const double NOTHING_S = 1e-12; /* what rounding leaves of a job */

void sim_host_init(struct sim_host *h, const struct sim_host_conf *conf, double now_s) {
    *h = (struct sim_host){.conf = *conf, .now_s = now_s};
}

void sim_host_free(struct sim_host *h) {
    free(h->jobs);
    h->jobs = NULL;
    h->n = h->cap = 0;
}

double sim_host_rate(const struct sim_host *h, const struct sim_job *job) {
    const double cores = h->conf.cores, all = h->threads;
    const double part = all > cores ? cores / all : 1;
    const double own = job->threads * part, others = (all < cores ? all : cores) - own;
    const double there = all - job->threads; /* threads beside it, of which those run */
    double longer = 1;
    for (int k = 0; k < SIM_WORKS && others > 0 && cores > own; k++) {
        const double threads = h->of_kind[k] - (k == (int)job->kind ? job->threads : 0);
        longer += (h->conf.beside[job->kind][k] - 1) * others / (cores - own) * threads / there;
    }
    return part / longer;
}

static void advance(struct sim_host *h, double now_s) {
    const double passed = now_s - h->now_s;
    for (size_t i = 0; i < h->n && passed > 0; i++)
        h->jobs[i].left_s -= passed * sim_host_rate(h, &h->jobs[i]);
    if (passed > 0) h->now_s = now_s;
}

static struct sim_job *like(struct sim_host *h, const struct sim_job *job) {
    for (size_t i = 0; job->id == SIM_NOBODY && i < h->n; i++)
        if (h->jobs[i].id == SIM_NOBODY && h->jobs[i].kind == job->kind) return &h->jobs[i];
    return NULL;
}

enum err sim_host_add(struct sim_host *h, const struct sim_job *job, double now_s) {
    advance(h, now_s);
    struct sim_job *there = like(h, job);
    if (there != NULL) {
        there->left_s += job->left_s;
        return ERR_OK;
    }
    if (h->n == h->cap) {
        const size_t cap = h->cap > 0 ? 2 * h->cap : 8;
        struct sim_job *more = realloc(h->jobs, cap * sizeof(*more));
        if (more == NULL) return ERR_NO_MEMORY;
        h->jobs = more;
        h->cap = cap;
    }
    h->jobs[h->n++] = *job;
    h->threads += job->threads;
    h->of_kind[job->kind] += job->threads;
    return ERR_OK;
}

bool sim_host_next(const struct sim_host *h, double *when_s) {
    for (size_t i = 0; i < h->n; i++) {
        const double left = h->jobs[i].left_s > 0 ? h->jobs[i].left_s : 0;
        const double at = h->now_s + left / sim_host_rate(h, &h->jobs[i]);
        if (i == 0 || at < *when_s) *when_s = at;
    }
    return h->n > 0;
}

bool sim_host_take(struct sim_host *h, double now_s, uint32_t *id) {
    advance(h, now_s);
    for (size_t i = 0; i < h->n;) {
        const struct sim_job *job = &h->jobs[i];
        /* and what is less than the clock can tell */
        if (job->left_s > NOTHING_S && now_s + job->left_s > now_s) {
            i++;
            continue;
        }
        *id = job->id;
        h->threads -= job->threads;
        h->of_kind[job->kind] -= job->threads;
        memmove(&h->jobs[i], &h->jobs[i + 1], (--h->n - i) * sizeof(*h->jobs));
        if (*id != SIM_NOBODY) return true;
    }
    return false;
}
