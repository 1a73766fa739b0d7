/* sim_asks: the requests of a simulated run, all of them, in the order of their times: drawn by a
 * rate or read from a trace (tools/load/load_source.h).
 *
 * A trace can be laid over itself: copies of it, each begun at a place of its own that the seed
 * draws and going on at its beginning when it ends. So a cluster of many times the size gets many
 * times the requests while bursts stay as long as they were. What a copy shares with itself
 * (beginnings of prompts) it does not share with another. */
#ifndef BATON_TOOLS_SIM_ASKS_H
#define BATON_TOOLS_SIM_ASKS_H

#include "tools/load/load_source.h"
#include "tools/sim/sim_run.h"

enum { SIM_OVERLAY_MAX = 1000, SIM_ASKS_MAX = 4000000, SIM_ASKS_DEFAULT = 1000 };

struct sim_asks_conf {
    struct load_shape shape;
    const char *trace; /* NULL: by shape.rate */
    unsigned overlay;  /* copies, each from a place of its own; 0: the trace as it is */
    size_t most;       /* requests; 0: all of a trace, else SIM_ASKS_DEFAULT */
};

struct sim_asks {
    struct sim_ask *a;
    size_t n;
    struct load_source *source; /* what the asks point into */
};

/* As load_source_read_trace(), and ERR_TOO_LARGE for more than SIM_ASKS_MAX. On an error *out is
 * empty. */
enum err sim_asks_read(struct sim_asks *out, const struct sim_asks_conf *c, struct errbuf *eb);
void sim_asks_free(struct sim_asks *a);

/* Changes the times so that the requests ask for `load` of what the cluster can do in their span:
 * seconds of prompts, and of steps in the batch that c's target for a token allows, over the
 * seconds of c->instances. 1 is what they could do if roles fitted at every moment and nothing
 * waited. */
void sim_asks_scale(struct sim_asks *a, const struct sim_conf *c, double load);

#endif
