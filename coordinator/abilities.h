/* abilities: how fast instances are, where they are compared with each other. Instances of one kind
 * (proto/perf_msg.h: kernels, threads, model) share one measurement. What like ones measure of
 * themselves differs by who was busy beside them at the time, and who goes by that sends everything
 * to the one that happened to look best. Only one that is off by half or more, and stays so, has a
 * pace of its own. Pure. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_ABILITIES_H
#define BATON_COORDINATOR_ABILITIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/perf_msg.h"

enum {
    ABILITY_KINDS_MAX = 16, /* those that are more count among all */
    PACE_WAIT_MS = 10000,   /* so long, and in so many new measurements, it has to be off */
    PACE_NEWS_MIN = 5,
    PACE_FADES_MS = 30000, /* without a new measurement it is forgotten: it may have changed */
};

/* The seconds of one instance over those of the others of its kind. */
struct pace {
    double ratio;      /* as measured last */
    uint64_t since_ms; /* off since then; 0: it is not */
    uint64_t news_ms;  /* of the last measurement that said something new */
    unsigned n_news;   /* of these since it is off */
    bool counts;
};
/* ratio 0: there is nobody to compare with, or nothing. news: something was measured since the last
 * call. */
void pace_note(struct pace *p, double ratio, bool news, uint64_t now_ms);
/* The factor of its seconds: 1, unless it counts. */
double pace_of(const struct pace *p, uint64_t now_ms);

/* Of one instance; all zero: nothing is known of it. */
struct ability {
    unsigned kind;        /* its place in struct abilities */
    struct perf_msg said; /* last */
    struct pace prompt, step;
};

/* [0]: all instances together; then one for each kind. */
struct abilities {
    struct perf_msg of[ABILITY_KINDS_MAX + 1];
    unsigned n; /* with [0]; 0: none was added */
};

/* What they have measured now: begin anew, add all, and then note each. */
void abilities_begin(struct abilities *a);
void abilities_add(struct abilities *a, struct ability *of, const struct perf_msg *measured);
void abilities_note(const struct abilities *a, struct ability *of, const struct perf_msg *measured,
                    uint64_t now_ms);

/* What one should take: of its kind, once that has measured enough not to be an accident; until
 * then of all. */
const struct perf_msg *abilities_of(const struct abilities *a, const struct ability *of);

/* Links, in place: one that has carried nothing yet, or up to half or twice of the mean, is like
 * the others. Bytes a second; 0: not measured. */
void abilities_level_rates(double *rates, size_t n);

#endif
