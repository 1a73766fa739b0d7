/* Goal: jobs share a machine's cores as threads do, none gains or loses time; a pass over prompts
 * costs what was measured of them; times that are read are those that were written, and wrong ones
 * are named. Method: figures worked out by hand, and random jobs whose bounds are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/splitmix.h"
#include "proto/json.h"
#include "tools/sim/sim_host.h"
#include "tools/sim/sim_times.h"

static const struct sim_host_conf two_cores = {
    .cores = 2, .beside = {{1.1, 1.5, 1}, {1.25, 1.2, 1}, {1, 1, 1}}, .sharing = {1, 1, 1}};

static void add(struct sim_host *h, uint32_t id, enum sim_work kind, unsigned threads,
                double seconds, double now) {
    const struct sim_job job = {.id = id, .kind = kind, .threads = threads, .left_s = seconds};
    assert_int_equal(sim_host_add(h, &job, now), ERR_OK);
}

/* The next that ends must be this one, at this time. */
static void ends(struct sim_host *h, uint32_t id, double when_s) {
    double when = -1;
    uint32_t who = 0;
    assert_true(sim_host_next(h, &when));
    assert_true(fabs(when - when_s) < 1e-9);
    assert_true(sim_host_take(h, when, &who));
    assert_int_equal(who, id);
}

static void alone_a_job_takes_its_time(void **state) {
    struct sim_host h;
    uint32_t id;
    double when;
    (void)state;
    assert_int_equal(sim_host_init(&h, &two_cores, 7), ERR_OK);
    assert_false(sim_host_next(&h, &when));
    add(&h, 1, SIM_PROMPT, 1, 2, 8);
    assert_false(sim_host_take(&h, 9.5, &id));
    ends(&h, 1, 10);
    add(&h, 2, SIM_STEP, 2, 2, 11); /* with all cores there is nobody beside it */
    ends(&h, 2, 13);
    assert_int_equal(h.n, 0);
    sim_host_free(&h);
}

static void two_slow_each_other_while_both_are_there(void **state) {
    struct sim_host h;
    (void)state;
    assert_int_equal(sim_host_init(&h, &two_cores, 0), ERR_OK);
    add(&h, 1, SIM_PROMPT, 1, 3, 0);
    add(&h, 2, SIM_STEP, 1, 1, 1); /* after a second of the first alone: 2 s of it are left */
    ends(&h, 2, 2.25);             /* the first has had 1.25 / 1.5 s meanwhile */
    ends(&h, 1, 2.25 + 2 - 1.25 / 1.5);
    sim_host_free(&h);
}

static void threads_of_a_core_have_equal_parts(void **state) {
    struct sim_host h;
    (void)state;
    assert_int_equal(sim_host_init(&h, &two_cores, 0), ERR_OK);
    for (uint32_t i = 1; i <= 4; i++) add(&h, i, SIM_STEP, 1, 1, 0);
    for (uint32_t i = 1; i <= 4; i++) ends(&h, i, 4 / 2 * 1.2);
    sim_host_free(&h);
}

/* The one that is always at work keeps a core; those that come and go share the other. */
static void who_is_always_at_work_keeps_a_core(void **state) {
    struct sim_host h;
    (void)state;
    assert_int_equal(sim_host_init(&h, &two_cores, 0), ERR_OK);
    add(&h, 1, SIM_STEP, 1, 1, 0);
    ends(&h, 1, 1);
    add(&h, 1, SIM_STEP, 1, 4, 1); /* its next one, at once */
    add(&h, 2, SIM_PROMPT, 1, 1, 2);
    add(&h, 3, SIM_PROMPT, 1, 9, 2);
    ends(&h, 2, 2 + 2 * 1.5);
    /* 1 s alone, then beside a core of prompts, whosever they are. */
    ends(&h, 1, 2 + 3 * 1.25);
    sim_host_free(&h);
}

/* Two share a core, and the prompt takes longer for it; when the other core has had nothing to do
 * for a while, the one that came last goes there, and wakes there from then on. */
static void an_idle_core_takes_what_waits(void **state) {
    const struct sim_host_conf conf = {2, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, {1.25, 1, 1}};
    const double late = SIM_BALANCE_S;
    struct sim_host h;
    (void)state;
    assert_int_equal(sim_host_init(&h, &conf, 0), ERR_OK);
    add(&h, 1, SIM_STEP, 1, 1, 0);
    add(&h, 2, SIM_PROMPT, 1, 1, 0);
    add(&h, 3, SIM_PROMPT, 1, 2, 0);
    ends(&h, 2, 1);
    double when;
    uint32_t id;
    assert_true(sim_host_next(&h, &when) && fabs(when - 1 - late) < 1e-9);
    assert_false(sim_host_take(&h, when, &id));
    ends(&h, 1, 1 + late + (1 - 0.5 - late / 2));
    ends(&h, 3, 1 + late + (2 - (1 + late) / 2 / 1.25));
    add(&h, 1, SIM_STEP, 1, 1, 10); /* both wake where they were */
    add(&h, 3, SIM_PROMPT, 1, 1, 10);
    ends(&h, 1, 11);
    ends(&h, 3, 11);
    sim_host_free(&h);
}

/* It goes where no engine is, else to the core of the one that came last, and before that. */
static void a_hop_waits_for_nobody(void **state) {
    struct sim_host h;
    (void)state;
    assert_int_equal(sim_host_init(&h, &two_cores, 0), ERR_OK);
    add(&h, 1, SIM_STEP, 1, 1, 0);
    add(&h, 2, SIM_HOP, 1, 0.5, 0);
    ends(&h, 2, 0.5);
    add(&h, 3, SIM_PROMPT, 1, 3, 0.5);
    add(&h, 4, SIM_HOP, 1, 0.25, 0.5); /* on the prompt's core: the step gets on */
    ends(&h, 4, 0.75);
    ends(&h, 1, 0.75 + 0.25 * 1.25);
    ends(&h, 3, 0.75 + 0.25 * 1.25 + 3 - 0.25 * 1.25 / 1.5);
    /* Of two threads one is held up. */
    add(&h, 5, SIM_STEP, 2, 1, 10);
    add(&h, 6, SIM_HOP, 1, 1, 10);
    ends(&h, 6, 11);
    ends(&h, 5, 11.5);
    sim_host_free(&h);
}

static void what_nobody_waits_for_takes_time_too(void **state) {
    struct sim_host h;
    (void)state;
    const struct sim_host_conf one_core = {1, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, {1, 1, 1}};
    assert_int_equal(sim_host_init(&h, &one_core, 0), ERR_OK);
    add(&h, 1, SIM_STEP, 1, 1, 0);
    add(&h, SIM_NOBODY, SIM_HOP, 1, 0.25, 0);
    add(&h, SIM_NOBODY, SIM_HOP, 1, 0.25, 0);
    assert_int_equal(h.n, 2);
    double when;
    uint32_t id;
    assert_true(sim_host_next(&h, &when) && fabs(when - 0.5) < 1e-9);
    assert_false(sim_host_take(&h, when, &id));
    assert_int_equal(h.n, 1);
    ends(&h, 1, 1.5);
    sim_host_free(&h);
}

/* Whatever comes when: a job takes at least its time alone, at most that beside all others in turn,
 * and together they take no more than the cores have. */
static void no_time_is_lost_or_won(void **state) {
    enum { JOBS = 300 };
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const struct sim_host_conf conf = {
            .cores = 1 + (unsigned)(seed % 5),
            .beside = {{1 + (double)(seed % 3) / 4, 1.5, 1}, {2, 1, 1}, {1, 1.2, 1}},
            .sharing = {1.1, 1, 1}};
        struct sim_host h;
        double came[JOBS + 1], takes[JOBS + 1], done_s = 0, busy_s = 0, now = 0, when;
        uint64_t lot = seed;
        uint32_t next = 1, id, ended = 0;
        assert_int_equal(sim_host_init(&h, &conf, 0), ERR_OK);
        while (ended < JOBS) {
            const double arrival = next <= JOBS ? next * 0.3 : HUGE_VAL;
            const bool any = sim_host_next(&h, &when);
            const double to = any && when < arrival ? when : arrival;
            if (any) busy_s += to - now;
            now = to;
            while (sim_host_take(&h, now, &id)) {
                const double took = now - came[id];
                assert_true(took >= takes[id] - 1e-9);
                assert_true(took <= 2 * JOBS * 1.01);
                done_s += takes[id];
                ended++;
            }
            if (now < arrival) continue;
            lot = splitmix_mix(lot + SPLITMIX_GAMMA);
            came[next] = now;
            takes[next] = 0.01 + (double)(lot % 100) / 100;
            add(&h, next, (enum sim_work)(lot % 3), 1 + (unsigned)(lot / 128 % conf.cores),
                takes[next], now);
            next++;
        }
        assert_true(done_s <= busy_s * conf.cores + 1e-6);
        assert_int_equal(h.n, 0);
        assert_false(sim_host_next(&h, &when));
        assert_int_equal(h.n_threads, 0);
        sim_host_free(&h);
    }
}

/* ---- passes */

/* 2 ms and 50 us a token for passes of 16 to 256, and 100 ns a row and row before. */
static double prompt_s(double n) {
    double s = 0;
    for (double from = 0; from < n; from += 256)
        s += 0.002 * fmin(n - from, 256) / 256 + 50e-6 * fmin(n - from, 256);
    return s + 100e-9 * n * n / 2;
}

static void a_pass_costs_rows_and_attention(void **state) {
    static const double lengths[] = {16, 32, 64, 128, 256, 512, 1024};
    struct perf_msg m = {0};
    struct sim_pass c;
    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        perf_add_prompt(&m, lengths[i], prompt_s(lengths[i]));
    sim_pass_of(&c, &m, 256);
    assert_true(fabs(c.quadratic / 100e-9 - 1) < 1e-6);
    double sum = 0;
    for (double from = 0; from < 1024; from += 256) {
        const struct sim_part part = {from, from + 256};
        sum += sim_pass_s(&c, &part, 1);
    }
    assert_true(fabs(sum / prompt_s(1024) - 1) < 1e-6);
    /* Eight of 16 are computed like one of 128, with less attention. */
    struct sim_part parts[8];
    for (int i = 0; i < 8; i++) parts[i] = (struct sim_part){0, 16};
    const double together = sim_pass_s(&c, parts, 8);
    assert_true(together < prompt_s(128) && together > prompt_s(128) - 100e-9 * 128 * 128);
    assert_true(sim_pass_s(&c, parts, 0) == 0);
}

static void short_prompts_alone_say_nothing_of_attention(void **state) {
    struct perf_msg m = {0};
    struct sim_pass c;
    const struct sim_part part = {0, 256};
    (void)state;
    perf_add_prompt(&m, 64, 0.01);
    sim_pass_of(&c, &m, 256);
    assert_true(c.quadratic == 0);
    assert_true(fabs(sim_pass_s(&c, &part, 1) - 0.04) < 1e-9);
}

/* ---- the text of times */

static enum err parse(struct sim_times *t, const char *text, struct errbuf *eb) {
    struct json_value *root = NULL;
    assert_int_equal(json_read(&root, text, strlen(text), NULL, NULL), ERR_OK);
    const enum err e = sim_times_parse(t, root, eb);
    json_put(root);
    return e;
}

static void times_that_were_written_are_read(void **state) {
    const struct sim_times t = {2,    1,    1.5,  1.25, 1.75, 1.125, 1.4,  1.1,  1.2,  256, 50,
                                8192, 1e-4, 1e-5, 2e-3, 1e-6, 1e-3,  5e-7, 7e-5, 2e-4, 3e-5};
    struct sim_times back;
    struct json_value *root = json_new_obj();
    (void)state;
    json_obj_set(root, "times", sim_times_format(&t));
    assert_int_equal(sim_times_parse(&back, root, NULL), ERR_OK);
    assert_memory_equal(&t, &back, sizeof(t));
    json_put(root);
    const struct sim_host_conf h = sim_times_host(&t);
    assert_int_equal(h.cores, 2);
    assert_true(h.beside[SIM_HOP][SIM_STEP] == 1.4 && h.beside[SIM_HOP][SIM_HOP] == 1);
    assert_true(h.beside[SIM_PROMPT][SIM_STEP] == 1.25 && h.beside[SIM_STEP][SIM_PROMPT] == 1.75);
}

static void wrong_times_are_named(void **state) {
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"times\":[]}", "times must be an object"},
        {"{\"times\":{\"cores\":-1}}", "times.cores must be a whole number in [0, 4096], got -1"},
        {"{\"times\":{\"cores\":2,\"threads\":1.5}}", "times.threads must be a whole number"},
        {"{\"times\":{\"cores\":2}}", "times.threads must be at least 1 where cores are, got 0"},
        {"{\"times\":{\"stepBesideStep\":0.5}}",
         "times.stepBesideStep must be a number in [1, 100]"},
        {"{\"times\":{\"stepSeconds\":\"1\"}}", "times.stepSeconds must be a number in [0, 60]"}};
    struct sim_times t;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct errbuf eb = {0};
        assert_int_equal(parse(&t, wrong[i].text, &eb), ERR_INVALID);
        if (strstr(eb.text, wrong[i].says) == NULL) print_message("%s\n", eb.text);
        assert_non_null(strstr(eb.text, wrong[i].says));
    }
    assert_int_equal(parse(&t, "{}", NULL), ERR_OK);
    assert_true(t.cores == 0 && t.prompt_beside_step == 1 && t.step_beside_step == 1 &&
                t.chunk_tokens == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_a_job_takes_its_time),
        cmocka_unit_test(two_slow_each_other_while_both_are_there),
        cmocka_unit_test(threads_of_a_core_have_equal_parts),
        cmocka_unit_test(who_is_always_at_work_keeps_a_core),
        cmocka_unit_test(an_idle_core_takes_what_waits),
        cmocka_unit_test(a_hop_waits_for_nobody),
        cmocka_unit_test(what_nobody_waits_for_takes_time_too),
        cmocka_unit_test(no_time_is_lost_or_won),
        cmocka_unit_test(a_pass_costs_rows_and_attention),
        cmocka_unit_test(short_prompts_alone_say_nothing_of_attention),
        cmocka_unit_test(times_that_were_written_are_read),
        cmocka_unit_test(wrong_times_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
