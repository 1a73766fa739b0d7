/* forecast: a wait, and what it may be. */
#include "coordinator/forecast.h"

#include <math.h>

static const double PLACED_MIN = 0.05; /* a second: where nothing was placed for long, the queue is
                                          not for ever */
static const double WAIT_PART = 0.25;  /* of the target, for a prompt that is longer than it */

static unsigned seconds(double s) {
    if (!(s > 1)) return 1;
    return s < FORECAST_RETRY_S_MAX ? (unsigned)ceil(s) : FORECAST_RETRY_S_MAX;
}

void forecast_of(struct forecast *out, const struct forecast_facts *f,
                 const struct forecast_targets *t) {
    const double rate = f->placed_per_s > PLACED_MIN ? f->placed_per_s : PLACED_MIN;
    const double queue_s = f->n_before > 0 ? f->n_before / rate : 0;
    *out = (struct forecast){.first_token_s = queue_s + f->pair_s, .retry_after_s = 1};
    if (!(f->pair_s > 0)) return;
    const double wait = out->first_token_s - f->own_s, limit = t->first_token_s * t->factor;
    const double may_wait =
        limit - f->own_s > WAIT_PART * limit ? limit - f->own_s : WAIT_PART * limit;
    if (t->deadline_s > 0 && out->first_token_s > t->deadline_s) {
        out->says = FORECAST_LATE;
        out->retry_after_s = seconds(out->first_token_s - t->deadline_s);
    } else if (t->factor > 0 && wait > may_wait) {
        out->says = FORECAST_LATE;
        out->retry_after_s = seconds(wait - may_wait);
    } else if (t->factor > 0 && !f->idle && f->step_s > t->token_s * t->factor) {
        out->says = FORECAST_SLOW;
    }
}
