/* Goal: what a request has left is a lease as long as it may be asked for or is being lent, no
 * longer; it goes to a newer attempt of that request alone, and whatever becomes of a fetch gives
 * back what it held: blocks, lease and place in the budget. Method: a decode instance that lends,
 * around the engine without a model, whose blocks are those that a prompt left there; a prefill
 * instance's KV plane asks; the engine stands still where a fetch is to be met under way. */
#include "common/instance/kv_lends.h"
#include "tests/unit/fakes/role_fixture.h"

static const char body[] = "1 2 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13";
enum { N_IDS = 13, N_BLOCKS = 3 }; /* full ones before the last id */

struct scene {
    struct cluster c;
    struct kv_lends *lends;
    /* the fetch */
    struct kv_rx *rx;
    unsigned n_ends;
    enum err e;
    char text[128];
    uint32_t n_came;
};

/* The prompt has been at both. */
static void scene_open(struct scene *s) {
    *s = (struct scene){0};
    cluster_up(&s->c, &roomy, &roomy);
    assert_int_equal(kv_lends_create(&s->lends, &s->c.d), ERR_OK);
    struct flight *x = post(&s->c, "5ee", body);
    WAIT_FOR(&s->c, fact_ended, x);
    WAIT_FOR(&s->c, fact_idle, &s->c);
}

static uint64_t n_lent(const struct scene *s) {
    return budget_used(&s->c.d.budget, BUDGET_KV_LENDS);
}

static bool all_is_back(void *arg) {
    struct scene *s = arg;
    return n_lent(s) == 0 && fact_idle(&s->c);
}

static void scene_close(struct scene *s) {
    kv_rx_free(&s->rx);
    kv_lends_destroy(&s->lends);
    WAIT_FOR(&s->c, all_is_back, s);
    cluster_down(&s->c);
}

static unsigned leases(const struct scene *s) {
    return req_set_seqs(s->c.d.reqs)->n_kept;
}
static bool no_lease(void *arg) {
    return leases(arg) == 0;
}
static bool one_lease(void *arg) {
    return leases(arg) == 1;
}

/* ---- who asks */

static void on_end(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct scene *s = arg;
    s->n_ends++;
    s->e = e;
    snprintf(s->text, sizeof(s->text), "%s", text);
    s->n_came = c != NULL ? c->n_blocks : 0;
}
static bool has_ended(void *arg) {
    return ((struct scene *)arg)->n_ends > 0;
}

static struct infer_req *request(const char *id, uint32_t epoch, int32_t first_id) {
    struct infer_req *r = infer_req_create();
    assert_non_null(r);
    r->head.req_id = strdup(id);
    r->head.epoch = epoch;
    r->answer.api = API_OPENAI_COMPLETIONS;
    r->ids = malloc(N_IDS * sizeof(*r->ids));
    assert_non_null(r->ids);
    for (int i = 0; i < N_IDS; i++) r->ids[i] = first_id + i;
    r->n_ids = r->n_prompt = N_IDS;
    r->sampling.new_tokens_max = 2;
    return r;
}

static void ask_req(struct scene *s, struct infer_req *r) {
    static const int32_t table[N_BLOCKS] = {0, 1, 2}; /* the engine takes from the other end */
    kv_rx_free(&s->rx);
    s->n_ends = 0;
    struct kv_peer *d = kv_plane_find_id(s->c.p.kv_plane, D_ID);
    assert_int_equal(kv_rx_fetch(&s->rx, d, r, table, N_BLOCKS, 0, on_end, s), ERR_OK);
    infer_req_destroy(&r);
}
static void ask(struct scene *s, const char *id, uint32_t epoch) {
    ask_req(s, request(id, epoch, 1));
}

static bool in_time(uint64_t began_ms) {
    return clock_ms() - began_ms < KV_KEEP_MS;
}

/* Behind the word that attempt `kept` of a1 is kept; again where a slow machine took longer than
 * that word holds. */
static void ask_kept(struct scene *s, uint32_t kept, const char *id, uint32_t epoch,
                     int32_t first_id) {
    uint64_t began_ms;
    do {
        began_ms = clock_ms();
        kv_lends_keep(s->lends, "a1", kept);
        ask_req(s, request(id, epoch, first_id));
        WAIT_FOR(&s->c, has_ended, s);
    } while (!in_time(began_ms));
}

static void expect_lent(struct scene *s) {
    WAIT_FOR(&s->c, has_ended, s);
    if (s->e != ERR_OK) fail_msg("%s: %s", err_name(s->e), s->text);
    assert_int_equal(s->n_ends, 1);
    assert_int_equal(s->n_came, N_BLOCKS);
    for (int layer = 0; layer < FAKE_LAYERS; layer++)
        for (int i = 0; i < N_BLOCKS; i++)
            assert_memory_equal(engine_kv_block(s->c.p.engine, layer, i),
                                engine_kv_block(s->c.p.engine, layer, roomy.n_blocks - 1 - i),
                                engine_kv_block_bytes(s->c.p.engine));
    kv_rx_free(&s->rx);
}

static void expect_declined(struct scene *s, const char *why) {
    WAIT_FOR(&s->c, has_ended, s);
    assert_int_equal(s->n_ends, 1);
    assert_int_equal(s->e, ERR_REFUSED);
    assert_string_equal(s->text, why);
    kv_rx_free(&s->rx);
}

/* ---- leases */

static void what_was_left_is_lent_once(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    kv_lends_keep(s.lends, "a1", 0);
    assert_int_equal(leases(&s), 1);
    assert_int_equal(load_of(&s.c.d).leases, 1);
    ask_kept(&s, 0, "a1", 1, 1);
    expect_lent(&s);
    WAIT_FOR(&s.c, no_lease, &s);
    ask(&s, "a1", 2);
    expect_declined(&s, "nothing is kept of the request");
    scene_close(&s);
}

static void the_lease_ends_by_its_time(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    const uint64_t began_ms = clock_ms();
    kv_lends_keep(s.lends, "a1", 0);
    WAIT_FOR(&s.c, no_lease, &s);
    assert_true(clock_ms() - began_ms >= KV_KEEP_MS);
    ask(&s, "a1", 1);
    expect_declined(&s, "nothing is kept of the request");
    scene_close(&s);
}

/* Each prompt of a request asks for itself. */
static void several_prompts_fetch_in_turn(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    uint64_t began_ms;
    do { /* in the time of one word */
        began_ms = clock_ms();
        kv_lends_keep(s.lends, "a1", 0);
        for (uint32_t part = 0; part < 2; part++) {
            struct infer_req *r = request("a1", 1, 1);
            r->head.part = part;
            r->head.n_parts = 2;
            ask_req(&s, r);
            WAIT_FOR(&s.c, has_ended, &s);
            if (in_time(began_ms)) expect_lent(&s);
        }
    } while (!in_time(began_ms));
    scene_close(&s);
}

static void other_requests_and_old_attempts_get_nothing(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    ask(&s, "a1", 1);
    expect_declined(&s, "nothing is kept of the request");
    ask_kept(&s, 3, "a2", 4, 1);
    expect_declined(&s, "nothing is kept of the request");
    ask_kept(&s, 3, "a1", 3, 1);
    expect_declined(&s, "the attempt is no newer than the one that was stopped");
    ask_kept(&s, 3, "a1", 4, 50); /* ids that were never here */
    expect_declined(&s, "the prefix cache has none of the blocks");
    ask_kept(&s, 3, "a1", 4, 1);
    expect_lent(&s);
    scene_close(&s);
}

/* The word to stop it comes later than the one who asks. */
static void it_is_lent_while_it_runs(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    hold(&s.c.d, true);
    struct flight *x = post(&s.c, "a1", "1 200 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
    WAIT_FOR(&s.c, fact_d_decoding, &s.c);
    ask(&s, "a1", 0);
    expect_declined(&s, "nothing is kept of the request"); /* of the very attempt that runs */
    ask(&s, "a1", 1);
    expect_lent(&s);
    hold(&s.c.d, false);
    WAIT_FOR(&s.c, fact_ended, x);
    scene_close(&s);
}

static void as_many_as_there_may_be(void **state) {
    struct scene s;
    char id[16];
    (void)state;
    scene_open(&s);
    kv_lends_keep(s.lends, "a1", 0);
    kv_lends_keep(s.lends, "a1", 2);
    assert_int_equal(leases(&s), 1); /* the newer attempt took its place */
    ask_kept(&s, 2, "a1", 2, 1);
    expect_declined(&s, "the attempt is no newer than the one that was stopped");
    for (int i = 0; i < KV_KEPT_MAX + 10; i++) {
        snprintf(id, sizeof(id), "c%d", i);
        kv_lends_keep(s.lends, id, 0);
        assert_in_range(leases(&s), 1, KV_KEPT_MAX);
    }
    ask(&s, "c9", 1); /* forgotten for the newest */
    expect_declined(&s, "nothing is kept of the request");
    scene_close(&s);
}

/* ---- under way */

static bool asked_or_declined(void *arg) {
    struct scene *s = arg;
    return leases(s) >= 2 || s->n_ends > 0;
}

static bool engine_hangs(void *arg) {
    return fake_engine_hangs(((struct scene *)arg)->c.d.engine);
}

/* A fetch that D has taken, and whose blocks its engine does not give yet. */
static void ask_and_wait(struct scene *s) {
    fake_engine_hang(s->c.d.engine, true);
    worker_self_test(s->c.d.worker, NULL, NULL); /* wakes it */
    WAIT_FOR(&s->c, engine_hangs, s);
    for (uint32_t epoch = 1; s->n_ends > 0 || leases(s) < 2; epoch++) {
        kv_lends_keep(s->lends, "a1", 0); /* on a slow machine the word is over before it comes */
        ask(s, "a1", epoch);
        WAIT_FOR(&s->c, asked_or_declined, s);
    }
    assert_int_equal(n_lent(s), 1);
}

static void a_lend_is_a_lease_beyond_its_word(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    ask_and_wait(&s);
    WAIT_FOR(&s.c, one_lease, &s); /* the word is over, the lend is not */
    assert_int_equal(s.n_ends, 0);
    fake_engine_hang(s.c.d.engine, false);
    expect_lent(&s);
    WAIT_FOR(&s.c, no_lease, &s);
    scene_close(&s);
}

static void who_asked_goes(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct scene s;
        scene_open(&s);
        ask_and_wait(&s);
        if (how == 0)
            kv_rx_cancel(s.rx, ERR_CANCELLED, "computed meanwhile");
        else
            kv_plane_want(s.c.d.kv_plane, CAN_DECODE, D_ID, NULL, 0);
        WAIT_FOR(&s.c, has_ended, &s);
        assert_int_equal(s.e, how == 0 ? ERR_CANCELLED : ERR_PEER_LOST);
        assert_int_equal(n_lent(&s), 1); /* D's answer ends it */
        fake_engine_hang(s.c.d.engine, false);
        scene_close(&s);
    }
}

static void the_end_of_lending(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s);
    ask_and_wait(&s);
    kv_lends_destroy(&s.lends);
    expect_declined(&s, err_text(ERR_STOPPING));
    ask(&s, "a1", 100);
    expect_declined(&s, "the instance lends no blocks");
    fake_engine_hang(s.c.d.engine, false);
    scene_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_left_is_lent_once),
        cmocka_unit_test(the_lease_ends_by_its_time),
        cmocka_unit_test(several_prompts_fetch_in_turn),
        cmocka_unit_test(other_requests_and_old_attempts_get_nothing),
        cmocka_unit_test(it_is_lent_while_it_runs),
        cmocka_unit_test(as_many_as_there_may_be),
        cmocka_unit_test(a_lend_is_a_lease_beyond_its_word),
        cmocka_unit_test(who_asked_goes),
        cmocka_unit_test(the_end_of_lending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
