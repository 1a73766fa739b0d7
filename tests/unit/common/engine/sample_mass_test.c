/* Goal: passes in vectors choose what sums one by one choose, on every processor; and what is known
 * of groups of logits changes no token.
 * Method: the sets of this processor beside one another, every bit of what must be equal; draws by
 * top_p and typical_p the short and the long way over distributions with a crowd, with few that
 * stand out, with ties, at every temperature; the same request with and without the maxima. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/engine/kernels_cpu.h"
#include "common/engine/sample_priv.h"

enum { N_MAX = 20000 };

static uint64_t state_of_rng = 1;

static uint64_t rnd(void) {
    state_of_rng += 0x9e3779b97f4a7c15u;
    uint64_t z = state_of_rng;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static double unit(void) {
    return (double)(rnd() >> 11) * 0x1p-53;
}
static float normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += unit();
    return (float)sum;
}

static int sets_here(const struct sample_wide *sets[3]) {
    int n = 0;
    sets[n++] = sample_wide_plain();
    if (cpu_has_avx2() && sample_wide_avx2() != NULL) sets[n++] = sample_wide_avx2();
    if (cpu_has_avx512() && sample_wide_avx512() != NULL) sets[n++] = sample_wide_avx512();
    return n;
}

enum kind { CROWD, FEW_STAND_OUT, STEPS, MOST_ARE_BANNED, ALL_EQUAL, KINDS };

static void fill(float *x, int n, enum kind kind) {
    for (int i = 0; i < n; i++) {
        x[i] = kind == ALL_EQUAL ? 1 : 3 * normal();
        if (kind == FEW_STAND_OUT && rnd() % 500 == 0) x[i] += 15;
        if (kind == STEPS) x[i] = roundf(x[i] * 4) / 4;
        if (kind == MOST_ARE_BANNED && rnd() % 10 != 0) x[i] = -INFINITY;
    }
    if (kind == MOST_ARE_BANNED) x[rnd() % (uint64_t)n] = 2;
}

static float largest(const float *x, int n) {
    float max = -INFINITY;
    for (int i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

static void near(double a, double b, double rel) {
    if (!(fabs(a - b) <= rel * (fabs(b) + 1e-30))) fail_msg("%.17g, not %.17g", a, b);
}

static void sets_agree(void **state) {
    static const int sizes[] = {1, 3, 15, 16, 17, 63, 64, 65, 127, 1000, 4099};
    const struct sample_wide *sets[3];
    const int n_sets = sets_here(sets);
    float *x = calloc(N_MAX, sizeof(*x)), *p = calloc(N_MAX, sizeof(*p)),
          *want = calloc(N_MAX, sizeof(*want));
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int n = sizes[i], groups = sample_groups(n);
        for (enum kind kind = 0; kind < KINDS; kind++) {
            fill(x, n, kind);
            const float max = largest(x, n), scale = kind == STEPS ? 3 : 0.7f;
            const struct sample_z z = {.max = max, .scale = scale, .centre = -2};
            const float edge[SAMPLE_EDGES] = {0.1f, 0.5f, 1, 2, 5, 40};
            double mass[2][SAMPLE_EDGES];
            float most[2][N_MAX / SAMPLE_GROUP + 1];
            double all[2][5], sums[2][N_MAX / SAMPLE_GROUP + 1];
            int32_t ids[2][N_MAX];
            int found[2];
            for (int k = 0; k < n_sets; k++) {
                const struct sample_wide *w = sets[k];
                const int to = k > 0;
                float *q = k == 0 ? want : p;
                w->exp(q, x, n, max, scale);
                if (k > 0) assert_memory_equal(p, want, (size_t)n * sizeof(*p));
                memset(q, 0, N_MAX * sizeof(*q));
                w->weigh(q, x, n, max, scale, &all[to][0], &all[to][1]);
                if (k > 0) assert_memory_equal(p, want, (size_t)n * sizeof(*p));
                w->spread(mass[to], q, x, n, NULL, groups, &z, edge);
                found[to] = w->head(sums[to], ids[to], N_MAX, q, x, n, &z, 0.5f, 2, &all[to][2],
                                    &all[to][3]);
                assert_int_equal(
                    w->head(sums[to], ids[to], N_MAX, q, x, n, &z, 0.5f, 2, &all[to][4], NULL),
                    found[to]);
                if (found[to] > 0)
                    assert_int_equal(w->head(sums[to], ids[to], found[to] - 1, q, x, n, &z, 0.5f, 2,
                                             &all[to][4], NULL),
                                     -1);
                w->head(sums[to], ids[to], N_MAX, q, x, n, &z, 0.5f, 2, &all[to][4], NULL);
                w->maxima(most[to], x, n);
                near(all[to][0], all[to][2], 1e-5);
                if (k == 0) continue;
                for (int j = 0; j < SAMPLE_EDGES; j++) near(mass[1][j], mass[0][j], 1e-5);
                for (int j = 0; j < 5; j++) near(all[1][j], all[0][j], j < 2 ? 1e-5 : 1e-12);
                assert_int_equal(found[1], found[0]);
                assert_memory_equal(ids[1], ids[0], (size_t)found[0] * sizeof(**ids));
                for (int g = 0; g < groups; g++) near(sums[1][g], sums[0][g], 1e-12);
                assert_memory_equal(most[1], most[0], (size_t)groups * sizeof(**most));
            }
        }
    }
    free(x);
    free(p);
    free(want);
}

static void maxima_of_strange_logits(void **state) {
    const struct sample_wide *sets[3];
    const int n_sets = sets_here(sets);
    (void)state;
    for (int k = 0; k < n_sets; k++) {
        float x[200], most[4];
        for (int i = 0; i < 200; i++) x[i] = -(float)i;
        x[70] = INFINITY;
        x[199] = NAN;
        for (int i = 128; i < 192; i++) x[i] = -INFINITY;
        sets[k]->maxima(most, x, 200);
        assert_true(most[0] == 0 && isnan(most[1]) && most[2] == -INFINITY && isnan(most[3]));
        sets[k]->maxima(most, x, 199);
        assert_true(most[3] == -192);
    }
}

/* Every draw of the short way is that of the long one; and of a crowd nearly all go it. */
static void the_short_way_is_the_long_one(void **state) {
    static const float temperatures[] = {0.05f, 0.3f, 1, 1.7f};
    static const float shares[] = {0.001f, 0.1f, 0.5f, 0.9f, 0.999f, 0.999999f};
    const struct sample_wide *sets[3];
    const int n_sets = sets_here(sets);
    float *x = calloc(N_MAX, sizeof(*x)), *work = calloc(N_MAX, sizeof(*work));
    struct sample_scratch *s = NULL, *slow = NULL;
    int tried[KINDS] = {0}, certain[KINDS] = {0};
    (void)state;
    assert_int_equal(sample_scratch_create(&s, N_MAX), ERR_OK);
    assert_int_equal(sample_scratch_create(&slow, N_MAX), ERR_OK);
    slow->one_by_one = true;
    for (int round = 0; round < 240; round++) {
        const enum kind kind = (enum kind)(round % KINDS);
        const int n = round % 7 == 0 ? 1 + (int)(rnd() % 200) : N_MAX - (int)(rnd() % 100);
        s->wide = sets[round % n_sets];
        fill(x, n, kind);
        for (int i = 0; i < 8; i++) {
            struct sampling p = {.do_sample = true,
                                 .top_p = 1,
                                 .typical_p = 1,
                                 .repetition_penalty = 1,
                                 .seed = rnd()};
            const bool typical = i % 2 != 0;
            const float share = shares[rnd() % 6];
            p.temperature = temperatures[rnd() % 4];
            *(typical ? &p.typical_p : &p.top_p) = share;
            const struct sample_in in = {.p = &p, .n_history = i};
            struct token_event fast = {0}, right = {0};
            memcpy(work, x, (size_t)n * sizeof(*x));
            assert_true(sample_token(slow, work, n, &in, &right));
            memcpy(work, x, (size_t)n * sizeof(*x));
            assert_true(sample_token(s, work, n, &in, &fast));
            if (fast.id != right.id)
                fail_msg("round %d, %d logits of kind %d, %s %g at %g: %d, not %d", round, n, kind,
                         typical ? "typical_p" : "top_p", (double)share, (double)p.temperature,
                         fast.id, right.id);
            int32_t id = -1;
            tried[kind]++;
            certain[kind] += sample_mass_draw(s, work, n, largest(work, n), 1 / p.temperature,
                                              (double)share, typical, unit(), &id);
        }
    }
    /* all but those with nearly all of the mass */
    assert_true(certain[CROWD] >= tried[CROWD] * 85 / 100);
    assert_true(certain[FEW_STAND_OUT] >= tried[FEW_STAND_OUT] * 85 / 100);
    assert_true(certain[ALL_EQUAL] < tried[ALL_EQUAL]); /* the long way is gone too */
    sample_scratch_destroy(&s);
    sample_scratch_destroy(&slow);
    free(x);
    free(work);
}

/* One request in every way that changes logits. */
static void request(struct sampling *p, struct sample_in *in, int round) {
    static const int32_t allowed[] = {3, 70, 5000, 5001, 19999};
    static const int32_t words[] = {1, 9, 2, 4, 128};
    static const struct logit_bias bias[] = {{.id = 64, .bias = 30}, {.id = 6400, .bias = -50}};
    *p = (struct sampling){.do_sample = round % 3 != 0,
                           .temperature = 1,
                           .top_k = round % 3 == 1 ? 40 : 0,
                           .top_p = 1,
                           .typical_p = 1,
                           .repetition_penalty = 1,
                           .seed = rnd(),
                           .logprobs = round % 4 == 0,
                           .top_logprobs = round % 4 == 0 ? 5 : 0,
                           .ranks = round % 5 == 0};
    if (round % 7 == 1) p->repetition_penalty = 1.7f;
    if (round % 7 == 2) p->presence_penalty = 2, p->frequency_penalty = 1.5f;
    if (round % 7 == 3) p->logit_bias = (struct logit_bias *)bias, p->n_logit_bias = 2;
    if (round % 7 == 4) p->allowed_ids = (int32_t *)allowed, p->n_allowed_ids = 5;
    if (round % 7 == 5) p->bad_words = (int32_t *)words, p->n_bad_words = 5;
    if (round % 7 == 6) p->decay_factor = 1.5f;
    in->p = p;
    in->no_end = round % 2 != 0 && round % 7 != 6;
}

static void maxima_change_no_token(void **state) {
    enum { HISTORY = 40 };
    float *x = calloc(N_MAX, sizeof(*x)), *work = calloc(N_MAX, sizeof(*work)),
          *again = calloc(N_MAX, sizeof(*again)), most[N_MAX / SAMPLE_GROUP + 1];
    uint64_t mask[N_MAX / 64 + 1];
    int32_t history[HISTORY];
    const int32_t ends[] = {11, 12000};
    struct sample_scratch *s = NULL;
    (void)state;
    assert_int_equal(sample_scratch_create(&s, N_MAX), ERR_OK);
    for (int round = 0; round < 420; round++) {
        struct sampling p;
        struct sample_in in = {.history = history,
                               .n_history = HISTORY,
                               .n_prompt = 10,
                               .ends = ends,
                               .n_ends = 2,
                               .maxima = NULL};
        struct token_event a = {0}, b = {0};
        const int n = N_MAX - (int)(rnd() % 70);
        fill(x, n, (enum kind)(rnd() % KINDS));
        for (int i = 0; i < HISTORY; i++) history[i] = (int32_t)(rnd() % N_MAX);
        history[HISTORY - 1] = 4;
        x[rnd() % (uint64_t)n] = 12;
        if (round % 11 == 0) x[rnd() % (uint64_t)n] = NAN;
        if (round % 11 == 1) x[rnd() % (uint64_t)n] = x[history[3] % n] = INFINITY;
        request(&p, &in, round);
        for (int i = 0; i <= N_MAX / 64; i++) mask[i] = rnd() % 3 == 0 ? UINT64_MAX : rnd();
        if (round % 13 == 0) in.mask = mask;
        memcpy(work, x, (size_t)n * sizeof(*x));
        const bool any = sample_token(s, work, n, &in, &a);
        sample_maxima(most, x, n);
        in.maxima = most;
        memcpy(again, x, (size_t)n * sizeof(*x));
        assert_int_equal(sample_token(s, again, n, &in, &b), any);
        if (!any) continue;
        assert_memory_equal(&a, &b, sizeof(a));
        struct top_logprob top[2][8];
        memcpy(again, x, (size_t)n * sizeof(*x));
        const int found = sample_best(s, again, n, &in, 8, top[0]);
        in.maxima = NULL;
        memcpy(again, x, (size_t)n * sizeof(*x));
        assert_int_equal(sample_best(s, again, n, &in, 8, top[1]), found);
        assert_memory_equal(top[0], top[1], (size_t)found * sizeof(**top));
    }
    sample_scratch_destroy(&s);
    free(x);
    free(work);
    free(again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_agree),
        cmocka_unit_test(maxima_of_strange_logits),
        cmocka_unit_test(the_short_way_is_the_long_one),
        cmocka_unit_test(maxima_change_no_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
