/* role_needs: sums that fade, and the arithmetic. */
#include "coordinator/role_needs.h"

#include <math.h>

static const double BUSY_MAX = 0.9; /* how busy an instance may be, however evenly the load comes */
static const double LATE = 0.1;     /* so many may miss a target */
static const double LATE_SIGMA = 1.2816; /* of a normal distribution beyond which LATE lies */
static const double WAIT_PART = 0.25; /* of the target, for a prompt that is longer (forecast.c) */
static const double PRESSURE = 0.7;   /* below it nothing has to change */
static const double SHARE_RELIEF = 0.1;   /* of the pressure that a share takes off */
static const double PRESSURE_KEEP = 0.5;  /* above it a share stays, and what is not split */
static const double BESIDE = 4.0 / 3;     /* a prompt between steps takes so many times as long */
static const double STEP_BESIDE = 4;      /* and a step between parts of a prompt */
static const double UNSPLIT_MARGIN = 0.1; /* one is clearly better than the other */
static const double RELIEF = 0.5;         /* of what one more of a role can take off its pressure */

/* ---- needs */
static double at_most(double x, double max) {
    return x < max ? x : max;
}

/* The fewest instances for a seconds of prompts in a second, which vary by a * uneven_s, so that
 * no more than LATE of prompts of prompt_s wait longer than the target leaves them. */
static double n_for_prompts(double a, double uneven_s, double prompt_s, double target_s) {
    const double may_wait_s = fmax(target_s - prompt_s, WAIT_PART * target_s);
    if (!(a > 0)) return 0;
    /* 2 n (n - a) may_wait / (a uneven) = log(1 / LATE) */
    const double c = a * uneven_s * log(1 / LATE) / (2 * may_wait_s);
    return fmax((a + sqrt(a * a + 4 * c)) / 2, a / BUSY_MAX);
}

double role_batch_for(const struct perf_msg *perf, const struct role_targets *t, double context) {
    double best = 1, best_rate = 0, b = 0;
    const bool reachable = perf_step_s(perf, 1, context) <= t->token_s;
    do {
        b = at_most(b < 16 ? b + 1 : floor(b * 1.1), t->slots >= 1 ? t->slots : 1);
        const double s = perf_step_s(perf, b, context);
        if (reachable ? s > t->token_s : b / s <= best_rate) continue;
        best = b;
        best_rate = b / s;
    } while (b < t->slots);
    return best;
}

/* What is seldom exceeded by a number of this mean, whose variance is the mean times uneven. */
static double seldom_more(double mean, double uneven) {
    return mean + LATE_SIGMA * sqrt(mean * uneven);
}

struct whole {
    const struct perf_msg *perf;
    struct role_targets t;
    double context, prompt_s;          /* of a mean one */
    double arriving_s, uneven_s;       /* seconds of prompts in a second, and their variance */
    double tokens, new_tokens, uneven; /* in a second, of an answer; of the sequences */
    double decoding;
};

/* Whether answers are in time on each of n with so much of its time for prompts, r: a sequence's
 * gap is the step's over the part of the time that steps get while it runs. */
static bool steps_do(const struct whole *w, double n, double r) {
    double b = 1, step_s = perf_step_s(w->perf, 1, w->context);
    if (w->tokens <= 0 && w->decoding <= 0) return true;
    for (int i = 0; i < 12; i++) { /* so many decode as are needed at that step */
        const double running = fmax(w->tokens * step_s / (1 - r), w->decoding);
        b = fmax(seldom_more(running, w->uneven) / n, 1);
        if (b > w->t.slots) return false;
        step_s = perf_step_s(w->perf, b, w->context);
    }
    const bool reachable = perf_step_s(w->perf, 1, w->context) <= w->t.token_s;
    if (!reachable)
        return seldom_more(fmax(w->tokens * step_s / (1 - r), w->decoding), w->uneven) <=
               n * role_batch_for(w->perf, &w->t, w->context);
    if (step_s > w->t.token_s) return false;
    if (STEP_BESIDE * step_s <= w->t.token_s) return true;
    /* the part of an answer's time that has a prompt beside it: mean, variance over that time */
    const double part = at_most(BESIDE * r, 1), span_s = w->new_tokens * step_s / (1 - r);
    const double single_s = w->prompt_s + w->uneven_s / n;
    const double variance =
        fmin(BESIDE * BESIDE * r * single_s / fmax(span_s, 1e-9), part * (1 - part));
    const double may = STEP_BESIDE / (STEP_BESIDE - 1) * (1 - step_s / w->t.token_s);
    return part + LATE_SIGMA * sqrt(variance) <= may;
}

/* Whether n unsplit instances would do. */
static bool would_do(const struct whole *w, double n) {
    const double r = w->arriving_s / n; /* of the time of each */
    if (!(r < 1)) return false;
    if (n < BESIDE *
                n_for_prompts(w->arriving_s, w->uneven_s, BESIDE * w->prompt_s, w->t.first_token_s))
        return false;
    return steps_do(w, n, r);
}

/* The fewest that would do. */
static double n_whole(const struct whole *w) {
    double few = w->arriving_s, many = few > 1 ? 2 * few : 1;
    if (few <= 0 && w->tokens <= 0 && w->decoding <= 0) return 0;
    for (int i = 0; i < 20 && !would_do(w, many); i++) many *= 2;
    for (int i = 0; i < 16; i++) {
        const double n = (few + many) / 2;
        *(would_do(w, n) ? &many : &few) = n;
    }
    return many;
}

struct role_needs role_needs_part(const struct role_needs *all, double part) {
    struct role_needs out = *all;
    out.p *= part;
    out.d *= part;
    out.whole *= part;
    return out;
}

/* The step that is allowed beside so much for prompts is shorter by that; where the target cannot
 * be had by anybody, the time counts alone. */
static void shares_left(double left[ROLE_SHARES], const struct perf_msg *perf,
                        const struct role_targets *t, double context, double batch) {
    const double step_1_s = perf_step_s(perf, 1, context);
    for (int i = 0; i < ROLE_SHARES; i++) {
        const double part = 1 - (i + 1) / 10.0;
        struct role_targets beside = *t;
        beside.token_s *= part;
        if (step_1_s > t->token_s)
            left[i] = part;
        else
            left[i] = step_1_s > beside.token_s
                          ? 0
                          : fmin(role_batch_for(perf, &beside, context) / batch, 1);
    }
}

void role_needs_of(struct role_needs *out, const struct role_load *l, const struct role_targets *t,
                   const struct perf_msg *perf, uint64_t now_us) {
    const struct arrivals *a = &l->arrivals;
    const struct arrivals_rate rate = arrivals_rate(a, now_us);
    const double mean_tokens = a->prompts > 0 ? a->tokens / a->prompts : 1;
    const double context = mean_tokens + l->new_tokens / 2;
    const double prompt_s = perf_prompt_s(perf, mean_tokens),
                 step_1_s = perf_step_s(perf, 1, context);
    *out = (struct role_needs){0};
    if (prompt_s <= 0 || step_1_s <= 0) return;
    const double arriving_s =
        rate.prompt_s + (l->waiting_prompt_s + l->backlog_prompt_s) / ROLE_HORIZON_S;
    const double sequences = rate.sequences + l->waiting_sequences / ROLE_HORIZON_S;
    const double batch = role_batch_for(perf, t, context);
    const double running = sequences * l->new_tokens * perf_step_s(perf, batch, context);
    const double uneven_s = fmax(arrivals_unevenness_s(a), prompt_s),
                 uneven = arrivals_unevenness(a);
    const double decoding =
        arrivals_differs(l->decoding, running, running * uneven) ? l->decoding : 0;
    out->p = n_for_prompts(arriving_s, uneven_s, prompt_s, t->first_token_s);
    out->d = seldom_more(fmax(running, decoding), uneven) / batch;
    const struct whole w = {.perf = perf,
                            .t = *t,
                            .context = context,
                            .prompt_s = prompt_s,
                            .arriving_s = arriving_s,
                            .uneven_s = uneven_s,
                            .tokens = sequences * l->new_tokens,
                            .new_tokens = l->new_tokens,
                            .uneven = uneven,
                            .decoding = decoding};
    out->whole = n_whole(&w);
    shares_left(out->left, perf, t, context, batch);
}

/* ---- what to do about it */
static double pressure(const struct role_needs *need, size_t n_p, size_t n_d) {
    const double p = need->p / (double)n_p, d = need->d / (double)n_d;
    return p > d ? p : d;
}

int role_needs_lean(const struct role_needs *need, size_t n_p, size_t n_d) {
    if (n_p == 0 || n_d == 0) return 0;
    const double now = pressure(need, n_p, n_d);
    if (!(now >= PRESSURE)) return 0;
    const double more_p = n_d > 1 ? pressure(need, n_p + 1, n_d - 1) : INFINITY,
                 more_d = n_p > 1 ? pressure(need, n_p - 1, n_d + 1) : INFINITY;
    const bool p_gains = more_p < more_d;
    const double best = p_gains ? more_p : more_d, n = (double)(p_gains ? n_p : n_d) + 1;
    if (best > now * (1 - RELIEF / n)) return 0;
    return p_gains ? 1 : -1;
}

bool role_needs_unsplit(const struct role_needs *need, size_t n_p, size_t n_d, bool had) {
    const size_t n = n_p + n_d;
    double split = INFINITY;
    if (n_p == 0 || n_d == 0 || !(need->whole > 0)) return false;
    for (size_t k = 1; k < n; k++) split = fmin(split, pressure(need, k, n - k));
    const double whole = need->whole / (double)n, now = pressure(need, n_p, n_d);
    if (!had) return now >= PRESSURE && whole <= split * (1 - UNSPLIT_MARGIN);
    return fmax(now, whole) >= PRESSURE_KEEP && whole <= split * (1 + UNSPLIT_MARGIN);
}

/* Beside a that prefill and b that decode one does both: its part of prefill at which the worse
 * side is under the least pressure, in tens of percent, and that pressure. 0: none is possible. */
static int share_beside(const struct role_needs *need, double a, double b, double *pressed) {
    int best = 0;
    for (int i = 0; i < ROLE_SHARES; i++) {
        const int percent = 10 * (i + 1);
        const double p = need->p / (a + percent / 100.0), d = need->d / (b + need->left[i]);
        const double now = p > d ? p : d;
        if (!(now < *pressed)) continue;
        *pressed = now;
        best = percent;
    }
    return best;
}

struct role_share role_needs_share(const struct role_needs *need, size_t n_p, size_t n_d,
                                   bool had) {
    struct role_share out = {false, 0};
    if (n_p == 0 || n_d == 0) return out;
    const double now = pressure(need, n_p, n_d);
    if (!(now >= (had ? PRESSURE_KEEP : PRESSURE))) return out;
    double least = now * (1 - SHARE_RELIEF);
    for (int of_p = 0; of_p < 2; of_p++) {
        double pressed = INFINITY;
        const int percent =
            share_beside(need, (double)n_p - of_p, (double)n_d - (1 - of_p), &pressed);
        if (percent == 0 || !(pressed <= least)) continue;
        least = pressed;
        out = (struct role_share){of_p == 1, percent};
    }
    return out;
}
