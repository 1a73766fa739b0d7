/* sim_host: a machine in virtual time: jobs share its cores as threads do under a kernel, and take
 * from each other what cores take that are at work at once: memory, caches, the clock, the second
 * thread of a core. Times in seconds. Pure. Thread: one.
 *
 * Each core has its own queue, as kernels have them. An engine's thread is put where fewest others
 * are, and wakes there ever after: a kernel does not look for another core when the machine has
 * much to do. Only when another core has had two engines less for SIM_BALANCE_S it goes there.
 * Engines of a core have equal parts of it, and take `sharing` times as long then; a hop, which
 * sleeps most of the time, goes before them, to a core without engines, else to the one whose
 * engines have not been at work for long. What a thread does takes `beside` times as long when all
 * other cores are at work on what that is of, and between once and that in proportion. */
#ifndef BATON_TOOLS_SIM_HOST_H
#define BATON_TOOLS_SIM_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

enum sim_work { SIM_PROMPT, SIM_STEP, SIM_HOP, SIM_WORKS };

enum { SIM_CORES_MAX = 4096, SIM_NOBODY = 0 };
#define SIM_BALANCE_S 0.03 /* until a core that has nothing to do gets what waits at another */

struct sim_host_conf {
    unsigned cores;                      /* 1 to SIM_CORES_MAX */
    double beside[SIM_WORKS][SIM_WORKS]; /* [of one][beside the other], at least 1 */
    double sharing[SIM_WORKS];           /* of an engine's thread in turn with others; at least 1 */
};

struct sim_job {
    uint32_t id; /* the caller's; of SIM_NOBODY nobody hears that it has ended */
    enum sim_work kind;
    unsigned threads; /* at least 1 */
    double left_s;    /* that it would take alone */
    uint64_t number;  /* sim_host's own: that of its threads */
};

struct sim_host {
    struct sim_host_conf conf;
    struct sim_job *jobs; /* [n], in the order in which they came */
    size_t n, cap;
    struct sim_thread *threads; /* [n_threads], likewise */
    size_t n_threads, threads_cap;
    struct sim_core *cores; /* [conf.cores] */
    struct sim_home *homes; /* [n_homes] where each thread of an engine wakes */
    size_t n_homes, homes_cap;
    double uneven_s; /* since when a core has two engines more than another; HUGE_VAL: none has */
    struct sim_job ended; /* the last one, whose threads may go on; id SIM_NOBODY: they have left */
    uint64_t numbers;
    double now_s;
};

/* ERR_NO_MEMORY: sim_host_free() is fine all the same. */
enum err sim_host_init(struct sim_host *h, const struct sim_host_conf *conf, double now_s);
void sim_host_free(struct sim_host *h);
/* From now_s on; one of SIM_NOBODY adds to the one of its kind that is there. One with the id of
 * the last that was taken, at the same time, goes on where that was, as an engine does that has
 * more to do; a hop is another thread each time. ERR_NO_MEMORY: nothing was taken. */
enum err sim_host_add(struct sim_host *h, const struct sim_job *job, double now_s);
/* Seconds of a thread of this job alone for one of time. */
double sim_host_rate(const struct sim_host *h, const struct sim_job *job);
/* When the first of them ends, if none comes; false: nothing is at work. */
bool sim_host_next(struct sim_host *h, double *when_s);
/* Takes one out that has ended by now_s; false: none has. Of SIM_NOBODY it goes unsaid. */
bool sim_host_take(struct sim_host *h, double now_s, uint32_t *id);

#endif
