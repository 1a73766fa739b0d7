/* sim_host: a machine in virtual time: jobs share its cores as a kernel shares them, equally among
 * threads, and take from each other what cores take that are at work at once: memory, caches, the
 * clock, the second thread of a core. Times in seconds. Pure. Thread: one.
 *
 * A thread gets min(1, cores / threads) of a core. What it does there takes `beside` times as long
 * when all other cores are at work on what that is of, and between once and that in proportion. */
#ifndef BATON_TOOLS_SIM_HOST_H
#define BATON_TOOLS_SIM_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

enum sim_work { SIM_PROMPT, SIM_STEP, SIM_HOP, SIM_WORKS };

enum { SIM_CORES_MAX = 4096, SIM_NOBODY = 0 };

struct sim_host_conf {
    unsigned cores;                      /* 1 to SIM_CORES_MAX */
    double beside[SIM_WORKS][SIM_WORKS]; /* [of one][beside the other], at least 1 */
};

struct sim_job {
    uint32_t id; /* the caller's; of SIM_NOBODY nobody hears that it has ended */
    enum sim_work kind;
    unsigned threads; /* at least 1 */
    double left_s;    /* that it would take alone */
};

struct sim_host {
    struct sim_host_conf conf;
    struct sim_job *jobs; /* [n], in the order in which they came */
    size_t n, cap;
    unsigned threads, of_kind[SIM_WORKS]; /* of all */
    double now_s;
};

void sim_host_init(struct sim_host *h, const struct sim_host_conf *conf, double now_s);
void sim_host_free(struct sim_host *h);
/* From now_s on; one of SIM_NOBODY adds to the one of its kind that is there. ERR_NO_MEMORY:
 * nothing was taken. */
enum err sim_host_add(struct sim_host *h, const struct sim_job *job, double now_s);
/* Seconds of a thread of this job alone for one of time. */
double sim_host_rate(const struct sim_host *h, const struct sim_job *job);
/* When the first of them ends, if none comes; false: nothing is at work. */
bool sim_host_next(const struct sim_host *h, double *when_s);
/* Takes one out that has ended by now_s; false: none has. Of SIM_NOBODY it goes unsaid. */
bool sim_host_take(struct sim_host *h, double now_s, uint32_t *id);

#endif
