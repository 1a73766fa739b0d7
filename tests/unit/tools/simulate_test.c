/* Goal: the simulated cluster loses nothing, gives the times that can be worked out by hand, and
 * the same for the same input; the planner in it follows the load. Method: sim_run alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/pace.h"
#include "tools/load/load_source.h"
#include "tools/sim/sim_abilities.h"
#include "tools/sim/sim_oracle.h"

static const char ABILITIES[] =
    "{\"perf\":{\"prompts\":[{\"tokens\":16,\"seconds\":0.01,\"samples\":32},"
    "{\"tokens\":2048,\"seconds\":1,\"samples\":32}],"
    "\"steps\":[{\"batch\":1,\"context\":64,\"seconds\":0.01,\"samples\":32},"
    "{\"batch\":32,\"context\":64,\"seconds\":0.04,\"samples\":32},"
    "{\"batch\":1,\"context\":4096,\"seconds\":0.015,\"samples\":32},"
    "{\"batch\":32,\"context\":4096,\"seconds\":0.08,\"samples\":32}]}}";

enum { ASKS_MAX = 20000 };
static struct sim_ask asks[ASKS_MAX];
static struct sim_result result, again;

static struct sim_conf conf(enum sim_mode mode, unsigned instances) {
    struct errbuf eb = {0};
    struct sim_conf c = {.mode = mode,
                         .instances = instances,
                         .p_rate = 1,
                         .d_rate = 1,
                         .slots = 32,
                         .first_token_s = 1.5,
                         .token_s = 0.05,
                         .switch_s = 0.2,
                         .window_s = 5,
                         .cool_s = 2};
    assert_int_equal(sim_abilities_parse(&c.perf, &c.times, ABILITIES, strlen(ABILITIES), &eb),
                     ERR_OK);
    return c;
}

static void stand_alone(struct sim_times *t) {
    t->prompt_beside_prompt = t->prompt_beside_step = 1;
    t->step_beside_prompt = t->step_beside_step = 1;
}

/* n requests from begin_s on. */
static void draw(size_t from, size_t n, double begin_s, double rate, uint32_t in, uint32_t out) {
    const struct load_shape shape = {.seed = 3,
                                     .rate = rate,
                                     .in = {in, in},
                                     .out = {out, out},
                                     .n_groups = 1,
                                     .time_scale = 1,
                                     .length_scale = 1};
    struct load_source *s;
    struct load_ask a;
    assert_int_equal(load_source_create(&s, &shape), ERR_OK);
    for (size_t i = 0; i < n && load_source_next(s, &a); i++)
        asks[from + i] = (struct sim_ask){.at_s = begin_s + a.at_s, .in = a.in, .out = a.out};
    load_source_free(&s);
}

static uint64_t run(const struct sim_conf *c, size_t n) {
    assert_int_equal(sim_run(&result, c, asks, n), ERR_OK);
    assert_int_equal(result.ended + result.unfinished + result.refused, n);
    return result.good;
}

static void one_request_takes_prompt_link_and_steps(void **state) {
    struct sim_conf c = conf(SIM_FIXED, 2);
    const double prompt = perf_prompt_s(&c.perf, 512);
    (void)state;
    asks[0] = (struct sim_ask){.at_s = 3, .in = 512, .out = 2};
    run(&c, 1);
    const double step = perf_step_s(&c.perf, 1, 513);
    assert_true(fabs(result.end_s - (3 + prompt + step)) < 1e-9);
    assert_true(fabs(load_hist_quantile(&result.ttft, 1) / (prompt * 1e6) - 1) < 0.011);
    assert_true(fabs(load_hist_quantile(&result.gaps, 1) / (step * 1e6) - 1) < 0.011);
    assert_int_equal(result.tokens, 2);
    /* What of the KV has not gone while it was computed is waited for. */
    c.kv_token_bytes = 1000;
    c.link_bytes_per_s = 512 * 1000 / (prompt + 0.25);
    run(&c, 1);
    assert_true(fabs(result.end_s - (3 + prompt + 0.25 + step)) < 1e-9);
    /* Unsplit nothing goes anywhere. */
    c.mode = SIM_STANDARD;
    run(&c, 1);
    assert_true(result.end_s >= 3 + prompt + step - 1e-9);
    assert_true(result.end_s < 3 + prompt + 0.25);
}

/* The same by hand, with ways, passes and steps of their own time. */
static void what_lies_beside_an_engine_takes_its_time(void **state) {
    struct sim_conf c = conf(SIM_FIXED, 2);
    (void)state;
    c.times.chunk_tokens = 256;
    c.times.step_s = 0.001;
    c.times.sequence_s = 0.0005;
    c.times.request_s = 0.02;
    c.times.prompt_token_s = 1e-5;
    c.times.request_cpu_s = 0.004;
    const double prompt = 2 * (perf_prompt_s(&c.perf, 256) + 0.0015), ways = 0.02 + 512e-5;
    asks[0] = (struct sim_ask){.at_s = 3, .in = 512, .out = 4};
    run(&c, 1);
    assert_true(fabs(load_hist_mean(&result.ttft) / ((prompt + ways) * 1e6) - 1) < 0.011);
    const double step = perf_step_s(&c.perf, 1, 513) + 0.0015;
    assert_true(fabs(result.end_s - (3 + prompt + ways / 2 + 3 * step)) < 1e-4);
    /* On machines that have a core for that it is the same. */
    c.times.cores = 2;
    c.times.threads = 1;
    stand_alone(&c.times);
    c.per_host = 1;
    const double alone = result.end_s;
    run(&c, 1);
    assert_true(fabs(result.end_s - alone) < 1e-9);
    /* Where they have not, the steps wait for the other half of the request's, and the tokens'. */
    c.times.cores = 1;
    run(&c, 1);
    assert_true(fabs(result.end_s - alone - 0.002) < 1e-9);
    c.times.token_cpu_s = 0.001;
    run(&c, 1);
    assert_true(fabs(result.end_s - alone - 0.002 - 2 * 0.001) < 1e-9);
}

/* Prompts that wait together share passes: each of them ends with the last. */
static void prompts_share_passes(void **state) {
    struct sim_conf c = conf(SIM_FIXED, 2);
    (void)state;
    c.times.chunk_tokens = 256;
    for (int i = 0; i < 3; i++) asks[i] = (struct sim_ask){.at_s = 1, .in = 512, .out = 1};
    run(&c, 3);
    /* The first is alone in its first pass, as the others come while it is computed; its second
     * half goes with their first ones. */
    const double half = perf_prompt_s(&c.perf, 256);
    assert_true(fabs(result.end_s - 1 - 6 * half) < 1e-9);
    assert_true(fabs(load_hist_quantile(&result.ttft, 0.3) / (4 * half * 1e6) - 1) < 0.011);
}

/* Two that prefill and two that decode, each with a thread, on two cores or on four. */
static void instances_of_one_machine_share_its_cores(void **state) {
    struct sim_conf c = conf(SIM_FIXED, 4);
    double end[2], gap[2];
    (void)state;
    c.times.threads = 1;
    stand_alone(&c.times);
    c.per_host = 4;
    draw(0, 200, 0, 100, 1024, 64);
    for (int i = 0; i < 2; i++) {
        c.times.cores = 4 - 2 * i;
        run(&c, 200);
        assert_int_equal(result.unfinished, 0);
        end[i] = result.end_s;
        gap[i] = load_hist_mean(&result.gaps);
    }
    /* Prompts are what takes longest: four that want a core have half of one each. */
    print_message("ends after %.1f and %.1f s, gaps of %.1f and %.1f ms\n", end[0], end[1],
                  gap[0] / 1e3, gap[1] / 1e3);
    assert_true(end[1] > 1.2 * end[0] && end[1] < 2.01 * end[0]);
    assert_true(gap[1] > 1.2 * gap[0]);
    /* What runs at once slows each other. */
    c.times.prompt_beside_prompt = c.times.prompt_beside_step = 1.5;
    run(&c, 200);
    assert_true(result.end_s > 1.3 * end[1] && result.end_s < 1.51 * end[1]);
}

static void prompts_wait_for_those_before_them(void **state) {
    const struct sim_conf c = conf(SIM_FIXED, 2);
    (void)state;
    for (int i = 0; i < 3; i++) asks[i] = (struct sim_ask){.at_s = 1, .in = 1024, .out = 1};
    run(&c, 3);
    /* The decode instance is idle until then, and computes none: the queue is short. */
    assert_true(fabs(result.end_s - (1 + 3 * perf_prompt_s(&c.perf, 1024))) < 1e-9);
    assert_int_equal(result.tokens, 3);
}

static void every_request_ends_once(void **state) {
    static const unsigned sizes[] = {2, 3, 4, 17, 64};
    const size_t n_sizes = pace_rounds(sizeof(sizes) / sizeof(sizes[0]), 3);
    (void)state;
    for (size_t i = 0; i < n_sizes; i++)
        for (int mode = SIM_FOLLOW; mode <= SIM_STANDARD; mode++)
            for (int how = 0; how < 4; how++) {
                struct sim_conf c = conf((enum sim_mode)mode, sizes[i]);
                const size_t n = 40 * sizes[i];
                uint64_t tokens = 0;
                c.flex = how & 1;
                c.unsplit = how >= 2;
                c.reference = how == 3;
                draw(0, n / 2, 0, sizes[i], 1500, 4);
                draw(n / 2, n / 2, asks[n / 2 - 1].at_s, sizes[i], 64, 200);
                for (size_t k = 0; k < n; k++) tokens += asks[k].out;
                run(&c, n);
                assert_int_equal(result.unfinished, 0);
                assert_int_equal(result.tokens, tokens);
                assert_int_equal(result.ttft.n, n);
                assert_int_equal(result.gaps.n, tokens - n);
            }
}

/* Four times what two instances can do: those that are refused leave the others in time, where
 * without that nearly all come too late; and where there is room nobody is refused. */
static void who_would_be_late_is_refused(void **state) {
    struct sim_conf c = conf(SIM_FIXED, 2);
    (void)state;
    draw(0, 400, 0, 4, 2048, 8);
    const uint64_t crowd = run(&c, 400);
    assert_int_equal(result.refused, 0);
    c.reject_factor = 1;
    const uint64_t good = run(&c, 400);
    print_message("good %d of 400, %d without refusals; refused %d\n", (int)good, (int)crowd,
                  (int)result.refused);
    assert_true(result.refused > 250 && good > 4 * crowd);
    assert_true((double)good >= 0.8 * (double)result.ended);
    assert_int_equal(result.unfinished, 0);
    draw(0, 100, 0, 0.2, 1024, 8);
    run(&c, 100);
    assert_int_equal(result.refused, 0);
}

static void the_same_input_gives_the_same(void **state) {
    const struct sim_conf c = conf(SIM_FOLLOW, 8);
    (void)state;
    draw(0, 400, 0, 8, 900, 60);
    run(&c, 400);
    assert_int_equal(sim_run(&again, &c, asks, 400), ERR_OK);
    assert_memory_equal(&result, &again, sizeof(result));
}

/* From 2,048 tokens in and 16 out to 64 in and 512 out, on four instances. */
static size_t draw_turn(void) {
    draw(0, 270, 0, 2.2, 2048, 16);
    draw(270, 480, asks[269].at_s + 1, 4, 64, 512);
    return 750;
}

static void roles_follow_a_load_that_turns(void **state) {
    struct sim_conf c = conf(SIM_FOLLOW, 4);
    uint64_t best = 0, oracle;
    (void)state;
    const size_t n = draw_turn();
    c.first_token_s = 4;
    c.token_s = 0.05;
    const uint64_t follow = run(&c, n);
    const uint64_t moves = result.moves;
    c.mode = SIM_FIXED;
    for (unsigned p = 1; p < 4; p++) {
        c.p_rate = p;
        c.d_rate = 4 - p;
        const uint64_t good = run(&c, n);
        if (good > best) best = good;
    }
    assert_int_equal(sim_oracle(&oracle, &c, asks, n, asks[270].at_s), ERR_OK);
    print_message("follow %d, best fixed ratio %d, oracle %d, moves %d\n", (int)follow, (int)best,
                  (int)oracle, (int)moves);
    assert_true(moves >= 2);
    assert_true(oracle >= best);
    assert_true((double)follow >= 1.25 * (double)best);
}

static void abilities_that_say_nothing_are_refused(void **state) {
    static const struct {
        const char *text, *says;
    } wrong[] = {{"{}", "perf.prompts"},
                 {"null", "perf.prompts"},
                 {"{\"prompts\":[{\"tokens\":9,\"seconds\":1,\"samples\":1}]}", "perf.steps"},
                 {"{\"prompts\":[{\"tokens\":-1}]}", "perf.prompts[0].tokens"},
                 {"{", ""}};
    struct perf_msg m;
    struct sim_times times;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct errbuf eb = {0};
        assert_int_not_equal(
            sim_abilities_parse(&m, &times, wrong[i].text, strlen(wrong[i].text), &eb), ERR_OK);
        assert_true(eb.text[0] != 0 && strstr(eb.text, wrong[i].says) != NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_takes_prompt_link_and_steps),
        cmocka_unit_test(what_lies_beside_an_engine_takes_its_time),
        cmocka_unit_test(prompts_share_passes),
        cmocka_unit_test(instances_of_one_machine_share_its_cores),
        cmocka_unit_test(prompts_wait_for_those_before_them),
        cmocka_unit_test(every_request_ends_once),
        cmocka_unit_test(who_would_be_late_is_refused),
        cmocka_unit_test(the_same_input_gives_the_same),
        cmocka_unit_test(roles_follow_a_load_that_turns),
        cmocka_unit_test(abilities_that_say_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
