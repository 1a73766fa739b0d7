/* sim_asks: rows of a source, laid over each other. */
#include "tools/sim/sim_asks.h"

#include <math.h>
#include <stdlib.h>
#include "coordinator/role_needs.h"

/* Uniform in [0, 1): the place of a copy. */
static double place_of(uint64_t seed, unsigned copy) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + copy + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

static int by_time(const void *a, const void *b) {
    const struct sim_ask *x = a, *y = b;
    if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* What the rows span, in seconds. */
static double take_rows(struct sim_asks *out, size_t most) {
    struct load_ask a;
    while (out->n < most && load_source_next(out->source, &a)) {
        out->a[out->n] = (struct sim_ask){.at_s = a.at_s,
                                          .in = a.in,
                                          .out = a.out,
                                          .number = (uint32_t)out->n,
                                          .blocks = a.shared,
                                          .n_blocks = (uint32_t)a.n_shared,
                                          .block_tokens = a.shared_tokens};
        out->n++;
    }
    return out->n > 0 ? out->a[out->n - 1].at_s : 0;
}

/* a[0..n) becomes `copies` times as many. */
static void overlay(struct sim_asks *out, unsigned copies, double span_s, uint64_t seed) {
    const size_t rows = out->n;
    for (unsigned k = copies; k-- > 0;) { /* the first copy takes the place of the rows */
        const double from_s = place_of(seed, k) * span_s;
        for (size_t i = 0; i < rows; i++) {
            struct sim_ask *to = &out->a[k * rows + i];
            *to = out->a[i];
            to->at_s -= from_s;
            if (to->at_s < 0) to->at_s += span_s;
            to->copy = k;
            to->number = (uint32_t)(k * rows + i);
        }
    }
    out->n = copies * rows;
    qsort(out->a, out->n, sizeof(*out->a), by_time);
}

enum err sim_asks_read(struct sim_asks *out, const struct sim_asks_conf *c, struct errbuf *eb) {
    *out = (struct sim_asks){0};
    enum err e = c->trace != NULL ? load_source_read_trace(&out->source, &c->shape, c->trace, eb)
                                  : load_source_create(&out->source, &c->shape);
    const unsigned copies = c->trace != NULL && c->overlay > 1 ? c->overlay : 1;
    size_t rows = 0;
    if (e == ERR_OK) {
        rows = c->trace != NULL ? load_source_rows(out->source)
               : c->most > 0    ? c->most
                                : SIM_ASKS_DEFAULT;
        if (rows > SIM_ASKS_MAX / copies)
            e = err_set(eb, ERR_TOO_LARGE, "%zu requests, %u times, are more than %d", rows, copies,
                        SIM_ASKS_MAX);
    }
    if (e == ERR_OK && (out->a = malloc((rows * copies + 1) * sizeof(*out->a))) == NULL)
        e = ERR_NO_MEMORY;
    if (e != ERR_OK) {
        if (eb->text[0] == 0) err_set(eb, e, "out of memory");
        sim_asks_free(out);
        return e;
    }
    const double span_s = take_rows(out, rows);
    if (c->trace != NULL && c->overlay > 0) overlay(out, copies, span_s, c->shape.seed);
    if (c->most > 0 && c->most < out->n) out->n = c->most;
    return ERR_OK;
}

void sim_asks_free(struct sim_asks *a) {
    free(a->a);
    load_source_free(&a->source);
    *a = (struct sim_asks){0};
}

void sim_asks_scale(struct sim_asks *a, const struct sim_conf *c, double load) {
    const struct role_targets t = {c->first_token_s, c->token_s, c->slots};
    double work_s = 0, tokens = 0, context = 0;
    for (size_t i = 0; i < a->n; i++) {
        work_s += perf_prompt_s(&c->perf, a->a[i].in);
        tokens += a->a[i].out;
        context += (a->a[i].in + a->a[i].out / 2.0) * a->a[i].out;
    }
    if (a->n == 0 || !(a->a[a->n - 1].at_s > 0)) return;
    context /= tokens;
    const double batch = role_batch_for(&c->perf, &t, context);
    work_s += tokens * perf_step_s(&c->perf, batch, context) / batch;
    const double by = work_s / (load * c->instances * a->a[a->n - 1].at_s);
    for (size_t i = 0; i < a->n; i++) a->a[i].at_s *= by;
}
