/* Goal:   a request of several choices and several prompts is answered by a prefill and a decode
 * instance together as by one process, whatever fits on D at a time; and whatever ends it, or one
 * prompt of it, leaves nothing behind on either side.
 * Method: as decode_role_test.c. The pieces of a stream are put in order by choice before they are
 * compared: choices of different prompts run at their own pace. */
#include "tests/unit/decode/lanes.h"

static int one_instance; /* prestate: with one instance that is both */

static bool fact_over(void *arg) { /* ended at D, or already at P */
    struct flight *x = arg;
    return x->answered &&
           (x->n_ends > 0 || x->status != 200 || strstr(x->body, "\"isLastResp\":true") != NULL);
}

static void expect_whole(struct flight *x, const char *body, int choices) {
    static char output[65536], got[65536], sorted[65536];
    static int32_t tokens[TOKENS_MAX];
    struct buf want = BUF_INIT;
    size_t n;
    fake_expected(body, BT, &want, tokens, &n);
    assert_int_equal(x->status, 200);
    member(x, "output", output, sizeof(output));
    snprintf(got, sizeof(got), "%s%s", output, x->text.data != NULL ? x->text.data : "");
    in_lanes(got, choices, sorted, sizeof(sorted));
    static char wanted[65536];
    in_lanes(want.data, choices, wanted, sizeof(wanted));
    assert_string_equal(sorted, wanted);
    assert_non_null(strstr(sorted, "[end:"));
    expect_tokens(x, got);
    buf_free(&want);
}

static const int lengths[] = {9, 1, BT, 4 * BT + 1, BT - 1, 13, 2, 30};

static void split_is_whole(void **state) {
    struct cluster c;
    const struct fake_engine_opts wide = {
        .n_blocks = 1024, .batch_max = 64, .queue_max = 32, .block_tokens = BT, .chunk_blocks = 2};
    either_up(&c, state, &wide, &wide);
    unsigned n = 0;
    for (int stream = 0; stream <= 1; stream++)
        for (int parts = 1; parts <= 8; parts += 3)
            for (int choices = parts == 1 ? 2 : 1; choices <= 5; choices += 2)
                for (int how = 0; how < 4; how++) {
                    char body[4096], id[16];
                    int max = how % 2 == 0 ? 1 : 12, kind = how < 2 ? choices : -choices;
                    snprintf(id, sizeof(id), "%x", n++);
                    body_of(body, sizeof(body), stream, max, -1, kind, lengths, parts, (int)n);
                    struct flight *x = post(&c, id, body);
                    WAIT_FOR(&c, fact_over, x);
                    expect_whole(x, body, choices);
                }
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* Choices that the endpoint ends, at P or at D, while others go on. */
static void stop_strings_end_one_choice(void **state) {
    struct cluster c;
    either_up(&c, state, &roomy, &roomy);
    unsigned n = 0, n_stopped = 0;
    for (int stream = 0; stream <= 1; stream++)
        for (int at = 0; at < 4; at++) {
            char body[4096], id[16];
            static int32_t tokens[TOKENS_MAX];
            size_t n_tokens;
            struct buf all = BUF_INIT;
            body_of(body, sizeof(body), stream, 9, -1, 3, lengths, 2, at);
            fake_expected(body, BT, &all, tokens, &n_tokens); /* of the last choice */
            buf_free(&all);
            if (n_tokens <= (size_t)at) continue;
            body_of(body, sizeof(body), stream, 9, tokens[at], 3, lengths, 2, at);
            snprintf(id, sizeof(id), "%x", n++);
            struct flight *x = post(&c, id, body);
            WAIT_FOR(&c, fact_over, x);
            expect_whole(x, body, 3);
            n_stopped++;
            WAIT_FOR(&c, fact_idle, &c);
        }
    assert_true(n_stopped >= 6);
    cluster_down(&c);
}

struct many {
    struct flight *x[6];
};
static bool fact_many_over(void *arg) {
    struct many *m = arg;
    for (int i = 0; i < 6; i++)
        if (!fact_over(m->x[i])) return false;
    return true;
}

/* D has room for one or a few prompts at a time: they pass through. */
static void more_than_fits(void **state) {
    struct cluster c;
    struct many m;
    static char bodies[6][4096];
    const struct fake_engine_opts narrow = {
        .n_blocks = 40, .batch_max = 4, .queue_max = 64, .block_tokens = BT, .chunk_blocks = 1};
    const struct fake_engine_opts p = {
        .n_blocks = 256, .batch_max = 8, .queue_max = 64, .block_tokens = BT, .chunk_blocks = 1};
    either_up(&c, state, &p, &narrow);
    for (int i = 0; i < 6; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%x", 0x200 + i);
        body_of(bodies[i], sizeof(bodies[i]), i % 2, 4 + i, -1, 1 + i % 4, lengths, 8, i);
        m.x[i] = post(&c, id, bodies[i]);
    }
    WAIT_FOR(&c, fact_many_over, &m);
    for (int i = 0; i < 6; i++) expect_whole(m.x[i], bodies[i], 1 + i % 4);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* One prompt of several that D can never hold fails the request, and with it the others. */
static void one_refused_prompt_ends_all(void **state) {
    (void)state;
    struct cluster c;
    const struct fake_engine_opts small = {
        .n_blocks = 12, .batch_max = 4, .queue_max = 8, .block_tokens = BT, .chunk_blocks = 1};
    const int with_long[] = {9, 5, 45, 3};
    char body[4096];
    cluster_up(&c, &roomy, &small);
    for (int choices = 1; choices <= 2; choices++) {
        char id[16];
        snprintf(id, sizeof(id), "b%d", choices);
        body_of(body, sizeof(body), 1, 6, -1, choices, with_long, 4, 5);
        struct flight *x = post(&c, id, body);
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, 424);
        assert_non_null(strstr(x->body, "KV blocks, the pool has 12"));
        WAIT_FOR(&c, fact_idle, &c);
        assert_int_equal(x->n_frames, 0); /* nothing was said of the prompts that fitted */
    }
    body_of(body, sizeof(body), 1, 6, -1, 2, with_long, 2, 5);
    struct flight *y = post(&c, "b9", body);
    WAIT_FOR(&c, fact_over, y);
    expect_whole(y, body, 2);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static bool fact_d_has_work(void *arg) {
    return fact_d_importing(arg) || fact_d_decoding(arg);
}

/* Ended by the client, by stopInfer at P or at D, or by an engine that fails: early, or while D
 * decodes. */
static void every_end_gives_all_back(void **state) {
    (void)state;
    enum { CLIENT_GONE, STOP_AT_P, STOP_AT_D, FAIL_AT_P, FAIL_AT_D, ENDS };
    for (int end = 0; end < ENDS; end++)
        for (int how = 0; how < 4; how++) {
            bool late = how % 2 == 1;
            struct cluster c;
            char body[4096];
            /* once with too few slots: parts that D waits for, and P does not offer again */
            const struct fake_engine_opts narrow = {.n_blocks = 200,
                                                    .batch_max =
                                                        late && end == CLIENT_GONE ? 5 : 16,
                                                    .queue_max = 16,
                                                    .block_tokens = BT,
                                                    .chunk_blocks = 1};
            cluster_up(&c, &roomy, &narrow);
            body_of(body, sizeof(body), 1, late ? 60 : 12, -1, how < 2 ? 2 : -2, lengths, 6, 1);
            hold(late ? &c.d : &c.p, true);
            struct flight *x = post(&c, "c1", body);
            if (late) { /* D has taken some of it, and is a few steps on */
                WAIT_FOR(&c, fact_d_has_work, &c);
                allow(&c.d, 8);
            } else {
                WAIT_FOR(&c, fact_p_running, &c);
            }
            if (end == CLIENT_GONE) http_call_cancel(&x->call);
            if (end == STOP_AT_P) (void)req_set_stop(c.p.reqs, "c1", NULL, UINT32_MAX);
            if (end == STOP_AT_D) (void)req_set_stop(c.d.reqs, "c1", NULL, UINT32_MAX);
            if (end == FAIL_AT_P) fake_engine_fail_next(c.p.engine);
            if (end == FAIL_AT_D) fake_engine_fail_next(c.d.engine);
            hold(late ? &c.d : &c.p, false);
            WAIT_FOR(&c, fact_idle, &c);
            struct flight *y = post(&c, "c2", "0 5 -1 0 0 *2 : 1 2 3 | 4 5");
            WAIT_FOR(&c, fact_over, y);
            WAIT_FOR(&c, fact_idle, &c);
            cluster_down(&c);
        }
}

/* A newer attempt ends the older one with all its parts, on both sides. */
static void a_newer_attempt_replaces_all_parts(void **state) {
    (void)state;
    struct cluster c;
    char body[4096];
    cluster_up(&c, &roomy, &roomy);
    body_of(body, sizeof(body), 1, 40, -1, 3, lengths, 5, 1);
    hold(&c.p, true);
    struct flight *x = post_epoch(&c, "d1", 0, body);
    WAIT_FOR(&c, fact_p_running, &c);
    allow(&c.p, 1); /* P admits the parts, and is through with the short ones */
    WAIT_FOR(&c, fact_d_has_work, &c);
    struct flight *y = post_epoch(&c, "d1", 1, body);
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 424);
    hold(&c.p, false);
    WAIT_FOR(&c, fact_over, y);
    expect_whole(y, body, 3);
    assert_int_equal(x->n_ends, 0);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_is_whole),
        cmocka_unit_test_prestate(split_is_whole, &one_instance),
        cmocka_unit_test(stop_strings_end_one_choice),
        cmocka_unit_test_prestate(stop_strings_end_one_choice, &one_instance),
        cmocka_unit_test(more_than_fits),
        cmocka_unit_test_prestate(more_than_fits, &one_instance),
        cmocka_unit_test(one_refused_prompt_ends_all),
        cmocka_unit_test(every_end_gives_all_back),
        cmocka_unit_test(a_newer_attempt_replaces_all_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
