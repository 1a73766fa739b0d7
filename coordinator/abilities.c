/* abilities: pools by kind, and who is off for long. */
#include "coordinator/abilities.h"

#include <math.h>
#include <string.h>

static const double OFF = 1.5, NEAR = 1.25; /* off from there on; again like the others below */
static const double RATE_OFF = 2;
enum { PROMPT_SAMPLES_MIN = 8, STEP_SAMPLES_MIN = 50 };

/* ---- the pace of one */
static bool is_off(double ratio, double by) {
    return ratio > 0 && (ratio >= by || ratio <= 1 / by);
}

void pace_note(struct pace *p, double ratio, bool news, uint64_t now_ms) {
    if (news) p->news_ms = now_ms;
    p->ratio = ratio;
    if (now_ms - p->news_ms >= PACE_FADES_MS || !is_off(ratio, p->counts ? NEAR : OFF)) {
        p->since_ms = 0;
        p->n_news = 0;
        p->counts = false;
        return;
    }
    if (p->since_ms == 0) p->since_ms = now_ms;
    p->n_news += news && p->n_news < PACE_NEWS_MIN;
    p->counts = p->counts || (now_ms - p->since_ms >= PACE_WAIT_MS && p->n_news >= PACE_NEWS_MIN);
}

double pace_of(const struct pace *p, uint64_t now_ms) {
    return p->counts && now_ms - p->news_ms < PACE_FADES_MS ? p->ratio : 1;
}

/* ---- all */
void abilities_begin(struct abilities *a) {
    memset(a, 0, sizeof(*a));
    a->n = 1;
}

static unsigned kind_of(struct abilities *a, const char *kind) {
    for (unsigned i = 1; i < a->n; i++)
        if (strcmp(a->of[i].kind, kind) == 0) return i;
    if (a->n == ABILITY_KINDS_MAX + 1) return 0;
    memcpy(a->of[a->n].kind, kind, sizeof(a->of[a->n].kind));
    return a->n++;
}

void abilities_add(struct abilities *a, struct ability *of, const struct perf_msg *measured) {
    of->kind = kind_of(a, measured->kind);
    perf_merge(&a->of[0], measured);
    if (of->kind != 0) perf_merge(&a->of[of->kind], measured);
}

void abilities_note(const struct abilities *a, struct ability *of, const struct perf_msg *measured,
                    uint64_t now_ms) {
    struct perf_msg others;
    const bool news = memcmp(measured, &of->said, sizeof(*measured)) != 0;
    of->said = *measured;
    perf_without(&others, &a->of[of->kind], measured);
    pace_note(&of->prompt, perf_prompt_ratio(measured, &others), news, now_ms);
    pace_note(&of->step, perf_step_ratio(measured, &others), news, now_ms);
}

static bool is_measured(const struct perf_msg *m) {
    uint64_t prompts = 0, steps = 0;
    for (int i = 0; i < PERF_LENGTHS; i++) prompts += m->prompts[i].n;
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) steps += m->steps[i][k].n;
    return prompts >= PROMPT_SAMPLES_MIN && steps >= STEP_SAMPLES_MIN;
}

const struct perf_msg *abilities_of(const struct abilities *a, const struct ability *of) {
    const unsigned kind = of->kind < a->n ? of->kind : 0;
    return is_measured(&a->of[kind]) ? &a->of[kind] : &a->of[0];
}

void abilities_level_rates(double *rates, size_t n) {
    double sum = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(rates[i] > 0)) continue;
        sum += log(rates[i]);
        n_known++;
    }
    if (n_known == 0) return;
    const double mean = exp(sum / (double)n_known);
    for (size_t i = 0; i < n; i++)
        if (!is_off(rates[i] / mean, RATE_OFF)) rates[i] = mean;
}
