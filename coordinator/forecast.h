/* forecast: when a request that comes now will have its first token, and whether that is in time
 * (cluster-api 6.3, early rejection): what would be too late is refused before anything is computed
 * for it. Pure.
 *
 * The wait is that of the requests which are placed before it, by how many were placed lately, and
 * what waits at the best pair. A prompt that takes longer than its target by itself is not refused
 * for that: it may wait a quarter of the target. */
#ifndef BATON_COORDINATOR_FORECAST_H
#define BATON_COORDINATOR_FORECAST_H

#include <stdbool.h>

struct forecast_facts {
    double n_before;     /* requests that get their pairs before it */
    double placed_per_s; /* that got theirs lately */
    double pair_s;       /* until its first token, at the best pair; 0: nobody knows */
    double own_s;        /* of that, its own */
    double step_s;       /* of the best batch with it */
    bool idle;           /* a decode instance decodes nothing */
};
struct forecast_targets {
    double first_token_s, token_s;
    double factor;     /* so many times these are in time; 0: everything is */
    double deadline_s; /* the client's own: the first token within so many seconds; 0: none */
};

enum forecast_says { FORECAST_IN_TIME, FORECAST_LATE, FORECAST_SLOW };
struct forecast {
    enum forecast_says says; /* its first token would come too late; its tokens too slowly */
    double first_token_s;
    unsigned retry_after_s; /* when it should be in time, if nothing else comes; 1 to
                               FORECAST_RETRY_S_MAX */
};
enum { FORECAST_RETRY_S_MAX = 600 };

void forecast_of(struct forecast *out, const struct forecast_facts *f,
                 const struct forecast_targets *t);

#endif
