/* Goal: the rows that step_cost gives prompts make steps that last what they may, on machines of
 * many kinds, and whatever it is fed prompts get on.
 * Method: a synthetic machine says what each step took; the bounds choose the next step's rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "common/engine/step_cost.h"

enum { ROWS_MAX = 256 };

static uint64_t rng_state = 1;
static double rnd(void) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(rng_state >> 33) / (double)(UINT64_C(1) << 31);
}

/* Reads its weights in read_us whatever the rows are, computes a row in row_us and context_us more
 * for each position; reading and computing overlap. noise: times are up to this part longer. tile:
 * rows are computed so many at a time; 0: one by one. */
struct machine {
    double read_us, row_us, context_us, noise, slower;
    int tile;
};
static double takes(const struct machine *m, int n_decode, int n_prompt, double context) {
    const int tile = m->tile > 0 ? m->tile : 1,
              rows = (n_decode + n_prompt + tile - 1) / tile * tile;
    const double work = rows * m->row_us + n_prompt * context * m->context_us + 0.25 * m->read_us;
    return fmax(m->read_us, work) * (m->slower > 0 ? m->slower : 1) * (1 + m->noise * rnd());
}

static void run(struct step_cost *c, const struct machine *m, int n_decode, int n_prompt,
                double context) {
    const struct step_seen s = {.decode_rows = n_decode,
                                .prompt_rows = n_prompt,
                                .context = context,
                                .us = takes(m, n_decode, n_prompt, context)};
    step_cost_add(c, &s);
}

struct outcome {
    int n_steps, n_late; /* steps with both; those that took a tenth more than allowed */
    int n_part;          /* and those with a tile that is not full */
    double longest;      /* over the decoding rows' own time */
};
/* A prompt beside n_decode streams, from its first row to its last; skip: steps whose length does
 * not count, while it is being learnt. */
static struct outcome prompt(struct step_cost *c, const struct machine *m,
                             const struct step_bounds *b, int n_decode, int from, int n, int skip) {
    struct outcome o = {0};
    const double calm = takes(m, n_decode, 0, 0);
    const double allowed = b->ms > 0 ? b->ms * 1e3 : calm * b->percent / 100;
    for (int at = from; at < from + n;) {
        int rows = step_cost_prompt_rows(c, b, n_decode, at, ROWS_MAX);
        assert_in_range(rows, 1, ROWS_MAX);
        const int left = from + n - at;
        rows = step_cost_in_tiles(c, n_decode, rows < left ? rows : left, left);
        const double context = at + rows / 2.0, us = takes(m, n_decode, rows, context);
        run(c, m, n_decode, rows, context);
        at += rows;
        if (++o.n_steps <= skip) continue;
        o.longest = fmax(o.longest, us / calm);
        o.n_late += us > allowed * 1.1 && rows > STEP_PROMPT_ROWS_MIN;
        o.n_part += c->tile > 0 && (n_decode + rows) % c->tile != 0;
    }
    return o;
}

static const struct step_bounds four = {.percent = 400};
static const struct machine machines[] = {
    {.read_us = 20000, .row_us = 1300, .context_us = 0.2}, /* a core, 1.1 B */
    {.read_us = 100000, .row_us = 500, .context_us = 0.5}, /* slow memory */
    {.read_us = 300, .row_us = 200, .context_us = 1},      /* a small model */
    {.read_us = 50000, .row_us = 9000, .context_us = 10},  /* long contexts cost most */
    {.read_us = 1e6, .row_us = 100000, .context_us = 0},   /* a slow one */
};
enum { N_MACHINES = sizeof(machines) / sizeof(machines[0]) };

static void calm(struct step_cost *c, const struct machine *m, int n_decode, int n) {
    for (int i = 0; i < n; i++) run(c, m, n_decode, 0, 0);
}

/* The second prompt of a machine's life has steps within what is allowed, from its second one on
 * (far from the end of the first prompt the line may be off once), and they use what is allowed. */
static void test_converges(void **state) {
    (void)state;
    for (int k = 0; k < N_MACHINES; k++)
        for (int n_decode = 1; n_decode <= 16; n_decode *= 4) {
            struct step_cost c = {0};
            const struct machine *m = &machines[k];
            calm(&c, m, n_decode, 20);
            (void)prompt(&c, m, &four, n_decode, 0, 2048, 0);
            calm(&c, m, n_decode, 20);
            const struct outcome o = prompt(&c, m, &four, n_decode, 0, 2048, 1);
            assert_int_equal(o.n_late, 0);
            calm(&c, m, n_decode, 1);
            /* What it gives in the middle is what the machine allows there, within a tenth. */
            const double us = takes(m, n_decode, 0, 0) * 4;
            const double row = m->row_us + 1024 * m->context_us;
            double best = (us - 0.25 * m->read_us - n_decode * m->row_us) / row;
            best = fmin(fmax(best, STEP_PROMPT_ROWS_MIN), ROWS_MAX);
            const int rows = step_cost_prompt_rows(&c, &four, n_decode, 1024, ROWS_MAX);
            assert_true(rows >= floor(best * 0.85) && rows <= ceil(best * 1.15));
        }
}

/* Positions it has not seen are guessed from the line, and right after a few steps. */
static void test_follows_the_context(void **state) {
    (void)state;
    const struct machine m = {.read_us = 20000, .row_us = 1000, .context_us = 1};
    struct step_cost c = {0};
    calm(&c, &m, 4, 20);
    (void)prompt(&c, &m, &four, 4, 0, 2048, 0);
    const double near = step_cost_row_us(&c, 0), far = step_cost_row_us(&c, 8192);
    assert_true(near > 700 && near < 1300 && far > 6500 && far < 11000);
    assert_int_equal(prompt(&c, &m, &four, 4, 6000, 2048, 2).n_late, 0);
    assert_int_equal(prompt(&c, &m, &four, 4, 0, 2048, 4).n_late, 0); /* and back */
}

/* Noise of a half, and a step of a thousand times in each hundred: a step as long as is allowed is
 * still found, from both sides. */
static void test_survives_noise_and_outliers(void **state) {
    (void)state;
    const struct machine m = {.read_us = 20000, .row_us = 1000, .context_us = 0.2, .noise = 0.5};
    struct step_cost c = {0};
    for (int round = 0; round < 20; round++) {
        calm(&c, &m, 4, 30);
        (void)prompt(&c, &m, &four, 4, 0, 1024, 0);
        step_cost_add(&c, &(struct step_seen){.decode_rows = 4, .us = 2e7});
        step_cost_add(&c, &(struct step_seen){.decode_rows = 4, .prompt_rows = 30, .us = 6e7});
        step_cost_add(&c, &(struct step_seen){.decode_rows = 4, .prompt_rows = 30, .us = 1});
        calm(&c, &m, 4, 10);
        for (int i = 0; i < 10; i++) run(&c, &m, 4, 30, 500);
        const int rows = step_cost_prompt_rows(&c, &four, 4, 500, ROWS_MAX);
        assert_in_range(rows, 35, 105); /* 75 * 1.25 / 1.1 would fit exactly, on average */
    }
}

/* A machine that becomes ten times slower, or faster, is known again after a prompt. */
static void test_follows_the_machine(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct machine m = {.read_us = 20000, .row_us = 1000, .context_us = 0.2, .slower = 1};
        struct step_cost c = {0};
        calm(&c, &m, 4, 20);
        (void)prompt(&c, &m, &four, 4, 0, 2048, 0);
        m.slower = k == 0 ? 10 : 0.1;
        calm(&c, &m, 4, 60);
        (void)prompt(&c, &m, &four, 4, 0, 2048, 0);
        assert_int_equal(prompt(&c, &m, &four, 4, 0, 2048, 6).n_late, 0);
        const int rows = step_cost_prompt_rows(&c, &four, 4, 1024, ROWS_MAX);
        assert_in_range(rows, 45, 75);
    }
}

/* Nothing known: few rows, then twice as many at most from step to step. */
static void test_starts_slowly(void **state) {
    (void)state;
    const struct machine m = {.read_us = 1e6, .row_us = 10, .context_us = 0};
    struct step_cost c = {0};
    int before = STEP_PROMPT_ROWS_MIN;
    for (int i = 0; i < 12; i++) {
        const int rows = step_cost_prompt_rows(&c, &four, 4, 0, ROWS_MAX);
        assert_in_range(rows, STEP_PROMPT_ROWS_MIN, 2 * before);
        run(&c, &m, 4, rows, 0);
        before = rows;
    }
    assert_int_equal(before, ROWS_MAX); /* prompts cost next to nothing here */
}

/* Whatever the times are, prompts get rows: a clock that stands still, runs backwards, jumps, or
 * gives no number; a bound below what decoding takes alone. */
static void test_never_starves(void **state) {
    (void)state;
    static const double times[] = {0, -5, 1e300, 1e-300, NAN, INFINITY, -INFINITY, 1, 1e6};
    enum { N_TIMES = sizeof(times) / sizeof(times[0]) };
    const struct step_bounds bounds[] = {
        {.percent = 101}, {.percent = 100000},         {.ms = 1}, {.ms = 60000}, {.share = 1},
        {.share = 99},    {.percent = 400, .share = 1}};
    for (size_t k = 0; k < sizeof(bounds) / sizeof(bounds[0]); k++) {
        const int least = 1;
        struct step_cost c = {0};
        for (int i = 0; i < 20000; i++) {
            const struct step_seen s = {.decode_rows = (int)(rnd() * 70000),
                                        .prompt_rows = (int)(rnd() * 300),
                                        .context = rnd() < 0.1 ? NAN : rnd() * 1e6,
                                        .us = times[(int)(rnd() * N_TIMES)]};
            step_cost_add(&c, &s);
            const int rows = step_cost_prompt_rows(&c, &bounds[k], 1 + (int)(rnd() * 300),
                                                   rnd() * 1e6, ROWS_MAX);
            assert_in_range(rows, least, ROWS_MAX);
            assert_int_equal(step_cost_prompt_rows(&c, &bounds[k], 5, 0, 1), 1);
        }
    }
    struct step_cost frozen = {0};
    for (int i = 0; i < 1000; i++)
        step_cost_add(&frozen, &(struct step_seen){.decode_rows = 4, .prompt_rows = i % 50});
    assert_int_equal(frozen.steps, 0);
    assert_int_equal(step_cost_prompt_rows(&frozen, &four, 4, 0, ROWS_MAX), STEP_PROMPT_ROWS_MIN);
}

/* Nothing decodes, or nothing is bounded: all rows there are. */
static void test_all_rows_when_nothing_waits_for_them(void **state) {
    (void)state;
    struct step_cost c = {0};
    calm(&c, &machines[0], 4, 10);
    assert_int_equal(step_cost_prompt_rows(&c, &four, 0, 0, 8192), 8192);
    assert_int_equal(step_cost_prompt_rows(&c, &(struct step_bounds){0}, 4, 0, 8192), 8192);
    assert_int_equal(step_cost_prompt_rows(&c, &(struct step_bounds){.share = 100}, 4, 0, 8192),
                     8192);
}

/* Of the time of steps in which both wait, prompts have their share; never more than the gap
 * allows. */
static void test_shares(void **state) {
    (void)state;
    /* Computing is all, so that time is rows. */
    const struct machine m = {.read_us = 1, .row_us = 100, .context_us = 0};
    static const int shares[] = {10, 25, 50, 75, 90};
    for (int k = 0; k < 5; k++) {
        struct step_cost c = {0};
        const struct step_bounds b = {.share = shares[k]},
                                 both = {.percent = 200, .share = shares[k]};
        calm(&c, &m, 32, 20);
        double in_prompts = 0, in_all = 0;
        for (int i = 0; i < 400; i++) {
            const int rows = step_cost_prompt_rows(&c, &b, 32, 0, ROWS_MAX * 4);
            run(&c, &m, 32, rows, 0);
            if (i < 20) continue;
            in_prompts += rows * m.row_us;
            in_all += takes(&m, 32, rows, 0);
        }
        const double got = 100 * in_prompts / in_all;
        assert_true(got > shares[k] - 3 && got < shares[k] + 2);
        /* twice the decoding rows' time is half of it for prompts at most */
        const int rows = step_cost_prompt_rows(&c, &both, 32, 0, ROWS_MAX * 4);
        assert_in_range(rows, 1, shares[k] < 50 ? 32 * shares[k] / (100 - shares[k]) + 1 : 33);
    }
}

/* Where prompts always wait, what decoding takes alone is still learnt, of a batch that grows. */
static void test_learns_under_constant_load(void **state) {
    (void)state;
    const struct machine m = {.read_us = 20000, .row_us = 1000, .context_us = 0};
    struct step_cost c = {0};
    calm(&c, &m, 1, 5);
    int n_probes = 0;
    for (int n_decode = 1; n_decode <= 64; n_decode *= 2)
        for (int i = 0; i < 600; i++) {
            const int rows = step_cost_prompt_rows(&c, &four, n_decode, 0, ROWS_MAX);
            n_probes += rows == 1;
            run(&c, &m, n_decode, rows, 0);
            if (i < 50) continue;
            const double calm_us = takes(&m, n_decode, 0, 0), us = takes(&m, n_decode, rows, 0);
            assert_true(us <= calm_us * 4 * 1.25);
            if (rows > 1) assert_true(us >= calm_us * 4 * 0.7);
        }
    assert_true(n_probes < 7 * 8);
}

/* Where rows are computed in tiles, tiles are full, but for the end of a prompt: and the next one
 * would have been too many. */
static void test_tiles_are_full(void **state) {
    (void)state;
    static const int tiles[] = {6, 12, 16, 32};
    for (int k = 0; k < 4; k++)
        for (int n_decode = 1; n_decode <= 16; n_decode *= 4) {
            const struct machine m = {
                .read_us = 60000, .row_us = 900, .context_us = 0.01, .tile = tiles[k]};
            struct step_cost c = {.tile = tiles[k]};
            calm(&c, &m, n_decode, 20);
            (void)prompt(&c, &m, &four, n_decode, 0, 2048, 0);
            calm(&c, &m, n_decode, 20);
            const struct outcome o = prompt(&c, &m, &four, n_decode, 0, 2048, 1);
            assert_int_equal(o.n_late, 0);
            assert_true(o.n_part <= 1);
            const int bound = step_cost_prompt_rows(&c, &four, n_decode, 1024, ROWS_MAX);
            const int rows = step_cost_in_tiles(&c, n_decode, bound, 2048);
            const double allowed = takes(&m, n_decode, 0, 0) * 4;
            assert_true(takes(&m, n_decode, rows, 1024) <= allowed * 1.05);
            assert_true(rows + tiles[k] > ROWS_MAX ||
                        takes(&m, n_decode, rows + tiles[k], 1024) > allowed * 0.95);
        }
}

static void test_rows_in_tiles(void **state) {
    (void)state;
    static const struct {
        int tile, decode, most, want, rows;
    } rows[] = {
        {32, 4, 256, 2048, 252}, /* 8 tiles */
        {32, 4, 252, 2048, 252}, {32, 4, 251, 2048, 220},
        {32, 4, 256, 250, 250},                          /* the end of a prompt, in 8 tiles too */
        {32, 4, 256, 256, 252},                          /* which nine would not be */
        {32, 4, 30, 2048, 28},   {32, 4, 27, 2048, 27},  /* less than a tile */
        {32, 40, 16, 2048, 16},  {32, 40, 24, 2048, 24}, /* 64 */
        {32, 27, 7, 2048, 7},                            /* five would be few */
        {32, 0, 256, 2048, 256}, {16, 4, 64, 2048, 60},
        {1, 4, 63, 2048, 63},    {0, 4, 63, 2048, 63},
        {0, 4, 63, 12, 12},      {32, 4, 1, 2048, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct step_cost c = {.tile = rows[i].tile};
        const int got = step_cost_in_tiles(&c, rows[i].decode, rows[i].most, rows[i].want);
        if (got != rows[i].rows) fail_msg("row %zu: %d, not %d", i, got, rows[i].rows);
    }
}

/* Milliseconds instead of a part of the calm step. */
static void test_milliseconds(void **state) {
    (void)state;
    const struct machine m = {.read_us = 20000, .row_us = 1000, .context_us = 0.2};
    const struct step_bounds b = {.percent = 110, .ms = 70};
    struct step_cost c = {0};
    calm(&c, &m, 4, 20);
    (void)prompt(&c, &m, &b, 4, 0, 2048, 0);
    const struct outcome o = prompt(&c, &m, &b, 4, 0, 2048, 0);
    assert_true(o.n_late == 0 && o.longest * 20 > 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_rows_when_nothing_waits_for_them),
        cmocka_unit_test(test_starts_slowly),
        cmocka_unit_test(test_converges),
        cmocka_unit_test(test_milliseconds),
        cmocka_unit_test(test_tiles_are_full),
        cmocka_unit_test(test_rows_in_tiles),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_follows_the_context),
        cmocka_unit_test(test_follows_the_machine),
        cmocka_unit_test(test_survives_noise_and_outliers),
        cmocka_unit_test(test_learns_under_constant_load),
        cmocka_unit_test(test_never_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
