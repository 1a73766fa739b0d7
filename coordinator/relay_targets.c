/* relay_targets: what was promised to whom, and what was kept of it. */
#include "common/base/clock.h"
#include "coordinator/relay_priv.h"

static struct targets of_all(const struct coord_conf *c) {
    return (struct targets){(double)c->prefill_slo_ms * 1e-3, (double)c->decode_slo_ms * 1e-3};
}

void relay_targets_open(struct relay *r, const struct key_terms *terms) {
    struct tenant *t = r->tenant;
    t->targets = of_all(&r->set->co->conf);
    t->own_first_token = terms->prefill_slo_ms > 0;
    t->own_token = terms->decode_slo_ms > 0;
    if (t->own_first_token) t->targets.first_token_s = (double)terms->prefill_slo_ms * 1e-3;
    if (t->own_token) t->targets.token_s = (double)terms->decode_slo_ms * 1e-3;
    targets_note(&r->set->asked, &t->targets, clock_ms());
}

struct targets relay_strictest(struct relay_set *s) {
    const struct coord_conf *c = &s->co->conf;
    const uint64_t now = clock_ms(), window_ms = (uint64_t)c->role_window_s * 1000;
    for (const struct tenant *t = tenants_first(s->tenants); t != NULL; t = t->next)
        targets_note(&s->asked, &t->targets, now); /* an answer may take longer than that */
    return targets_strictest(&s->asked, now > window_ms ? now - window_ms : 0, of_all(c));
}

void relay_targets_first(struct relay *r, uint64_t us) {
    struct tenant *t = r->tenant;
    const bool met = (double)us * 1e-6 <= t->targets.first_token_s;
    t->kept.first_token[met]++;
    coord_metrics_target(r->set->co->metrics, "first_token", t->own_first_token, met);
}

void relay_targets_ended(struct relay *r) {
    struct tenant *t = r->tenant;
    if (r->n_sequences != 1 || r->n_tokens < 2 || r->first_token_us == 0) return;
    const double s = (double)(r->last_piece_us - r->first_token_us) * 1e-6;
    const bool met = s / (double)(r->n_tokens - 1) <= t->targets.token_s;
    t->kept.token[met]++;
    coord_metrics_target(r->set->co->metrics, "token", t->own_token, met);
}
