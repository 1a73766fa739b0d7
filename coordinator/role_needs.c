/* role_needs: sums that fade, and the arithmetic. */
#include "coordinator/role_needs.h"

#include <math.h>

static const double BUSY_MIN = 0.5, BUSY_MAX = 0.9; /* how busy an instance may be */
static const double PRESSURE = 0.7;                 /* below it nothing has to change */
static const double SHARE_RELIEF = 0.1;             /* of the pressure that a share takes off */
static const double PRESSURE_KEEP = 0.5;            /* above it a share stays */
static const double BESIDE = 4.0 / 3; /* a prompt between steps takes so many times as long */
/* Of n instances one more or less of a role is a part of 1 / n: few can seldom be divided as the
 * load is, and the more there are the better unsplit must be. By FIT_PARTS / n - FIT it may be
 * worse. */
static const double FIT_PARTS = 2, FIT = 0.35;
static const double UNSPLIT_PRESSURE =
    0.4;                                 /* below it it is not given up, below half of it again */
static const double UNSPLIT_KEEP = 0.15; /* worse than that by so much: it is split again */
static const double RELIEF = 0.5;        /* of what one more of a role can take off its pressure */

/* ---- arrivals */
static double faded(const struct arrivals *a, uint64_t now_us) {
    if (a->last_us == 0 || now_us <= a->last_us) return 1;
    return exp(-(double)(now_us - a->last_us) * 1e-6 / a->window_s);
}

/* Seconds that a faded sum stands for. */
static double span_s(const struct arrivals *a, uint64_t now_us) {
    const double age = now_us > a->first_us ? (double)(now_us - a->first_us) * 1e-6 : 0;
    const double span = a->window_s * (1 - exp(-age / a->window_s));
    return span > 1 ? span : 1; /* what came in less is no rate yet */
}

void arrivals_add(struct arrivals *a, double n_prompts, double tokens, double sequences,
                  double prompt_s, uint64_t now_us) {
    const double keep = faded(a, now_us);
    if (a->first_us == 0) a->first_us = now_us;
    a->prompts = a->prompts * keep + n_prompts;
    a->tokens = a->tokens * keep + tokens;
    a->sequences = a->sequences * keep + sequences;
    a->prompt_s = a->prompt_s * keep + prompt_s;
    if (now_us > a->last_us) a->last_us = now_us;
}

double arrivals_per_s(const struct arrivals *a, uint64_t now_us) {
    return a->prompts * faded(a, now_us) / span_s(a, now_us);
}

/* ---- needs */
static double at_most(double x, double max) {
    return x < max ? x : max;
}

/* How busy prefill instances may be: a prompt of t seconds that finds them busy u of the time waits
 * about t * u / (2 * (1 - u)) (one server, steady arrivals of equal work). */
static double busy_for(double prompt_s, double target_s) {
    const double may_wait = target_s - prompt_s;
    if (may_wait <= 0) return BUSY_MIN;
    const double u = 2 * may_wait / (prompt_s + 2 * may_wait);
    return u < BUSY_MIN ? BUSY_MIN : at_most(u, BUSY_MAX);
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

struct whole {
    const struct perf_msg *perf;
    struct role_targets t;
    double context, prompt_s; /* of a mean one */
    double arriving_s, tokens,
        decoding; /* seconds of prompts, and tokens, in a second; sequences */
};

/* Whether n unsplit instances would do. */
static bool would_do(const struct whole *w, double n) {
    const double r = w->arriving_s / n; /* of the time of each */
    if (BESIDE * r > busy_for(BESIDE * w->prompt_s, w->t.first_token_s)) return false;
    struct role_targets t = w->t;
    const double step_1_s = perf_step_s(w->perf, 1, w->context);
    if (step_1_s <= w->t.token_s) { /* so short a step can be had */
        t.token_s *= 1 - r;
        if (step_1_s > t.token_s) return false;
    }
    const double b = role_batch_for(w->perf, &t, w->context);
    const double running = w->tokens * perf_step_s(w->perf, b, w->context) / (1 - r);
    return (running > w->decoding ? running : w->decoding) / b / BUSY_MAX <= n;
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
    return (struct role_needs){all->p * part, all->d * part, all->whole * part};
}

void role_needs_of(struct role_needs *out, const struct role_load *l, const struct role_targets *t,
                   const struct perf_msg *perf, uint64_t now_us) {
    const struct arrivals *a = &l->arrivals;
    const double keep = faded(a, now_us), span = span_s(a, now_us);
    const double mean_tokens = a->prompts > 0 ? a->tokens / a->prompts : 1;
    const double context = mean_tokens + l->new_tokens / 2;
    const double prompt_s = perf_prompt_s(perf, mean_tokens),
                 step_1_s = perf_step_s(perf, 1, context);
    *out = (struct role_needs){0, 0, 0};
    if (prompt_s <= 0 || step_1_s <= 0) return;
    const double arriving_s =
        a->prompt_s * keep / span + (l->waiting_prompt_s + l->backlog_prompt_s) / ROLE_HORIZON_S;
    const double sequences = a->sequences * keep / span + l->waiting_sequences / ROLE_HORIZON_S;
    const double batch = role_batch_for(perf, t, context);
    const double running = sequences * l->new_tokens * perf_step_s(perf, batch, context);
    out->p = arriving_s / busy_for(prompt_s, t->first_token_s);
    out->d = (running > l->decoding ? running : l->decoding) / batch / BUSY_MAX;
    const struct whole w = {
        perf, *t, context, prompt_s, arriving_s, sequences * l->new_tokens, l->decoding};
    out->whole = n_whole(&w);
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
    const double whole = need->whole / (double)n, now = pressure(need, n_p, n_d),
                 fit = 1 + FIT_PARTS / (double)n - FIT;
    if (!had) return now >= UNSPLIT_PRESSURE && whole <= split * fit;
    return fmax(now, whole) >= UNSPLIT_PRESSURE / 2 && whole <= split * (fit + UNSPLIT_KEEP);
}

/* Beside a that prefill and b that decode one does both: its part of prefill at which both sides
 * are under the same pressure, in tens of percent, and that pressure. 0: one role alone is as good.
 */
static int share_beside(const struct role_needs *need, double a, double b, double *pressed) {
    const double x = (need->p * (b + 1) - need->d * a) / (need->p + need->d);
    const int percent = 10 * (int)lround(x * 10);
    if (percent < 10 || percent > 90) return 0;
    const double part = percent / 100.0;
    const double p = need->p / (a + part), d = need->d / (b + 1 - part);
    *pressed = p > d ? p : d;
    return percent;
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
