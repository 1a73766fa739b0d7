/* Goal: blocks are asked for where that is quicker than computing them, and only where they have a
 * place to come to. Method: a prefill instance around the engine without a model, whose rate is
 * given, linked to a decode instance that has the prompt; what came is counted there. */
#include "prefill/prefill_fetch.h"
#include "common/instance/kv_lends.h"
#include "tests/unit/fakes/role_fixture.h"

enum { N_IDS = 13, N_BLOCKS = 3 };

struct scene {
    struct cluster c;
    struct kv_lends *lends;
    struct infer_req *req;
    struct prefill_fetch *f;
    unsigned n_ends;
    uint32_t n_came;
};

static void scene_open(struct scene *s, double tokens_per_s, bool prefix_cache) {
    struct fake_engine_opts pe = roomy;
    *s = (struct scene){0};
    pe.prefill_tokens_per_s = tokens_per_s;
    pe.prefix_cache = prefix_cache;
    cluster_up(&s->c, &pe, &roomy);
    s->c.p.conf.kv_fetch_ms_min = 5;
    assert_int_equal(kv_lends_create(&s->lends, &s->c.d), ERR_OK);
    struct flight *x = post(&s->c, "5ee", "1 2 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
    WAIT_FOR(&s->c, fact_ended, x);
    WAIT_FOR(&s->c, fact_idle, &s->c);
    s->req = infer_req_create();
    assert_non_null(s->req);
    s->req->head.req_id = strdup("a1");
    s->req->head.epoch = 1;
    s->req->answer.api = API_OPENAI_COMPLETIONS;
    s->req->ids = malloc(N_IDS * sizeof(*s->req->ids));
    assert_non_null(s->req->ids);
    for (int i = 0; i < N_IDS; i++) s->req->ids[i] = i + 1;
    s->req->n_ids = s->req->n_prompt = N_IDS;
    s->req->sampling.new_tokens_max = 2;
}

static void scene_close(struct scene *s) {
    infer_req_destroy(&s->req);
    kv_lends_destroy(&s->lends);
    WAIT_FOR(&s->c, fact_idle, &s->c);
    cluster_down(&s->c);
}

static void on_fetched(void *arg, uint32_t n_blocks) {
    struct scene *s = arg;
    s->f = NULL;
    s->n_ends++;
    s->n_came = n_blocks;
}
static bool has_ended(void *arg) {
    return ((struct scene *)arg)->n_ends > 0;
}

/* What the prompt has left here. */
static void forget(struct instance *in) {
    for (int layer = 0; layer < FAKE_LAYERS; layer++)
        memset(engine_kv_block(in->engine, layer, 0), 0,
               (size_t)roomy.n_blocks * engine_kv_block_bytes(in->engine));
}

/* Whether it asks. */
static bool starts(struct scene *s) {
    char target[64];
    snprintf(target, sizeof(target), "127.0.0.1;%u", kv_plane_port(s->c.d.kv_plane));
    s->n_ends = 0;
    s->f = prefill_fetch_start(&s->c.p, target, s->req, on_fetched, s);
    return s->f != NULL;
}

static void fetches(struct scene *s) {
    uint64_t began_ms;
    forget(&s->c.p);
    do { /* on a slow machine the word is over before it is asked for */
        began_ms = clock_ms();
        kv_lends_keep(s->lends, "a1", 0);
        assert_true(starts(s));
        WAIT_FOR(&s->c, has_ended, s);
    } while (s->n_came == 0 && clock_ms() - began_ms >= KV_KEEP_MS);
    assert_int_equal(s->n_ends, 1);
    assert_int_equal(s->n_came, N_BLOCKS);
}

static void what_is_computed_sooner_is_not_asked_for(void **state) {
    static const struct {
        double tokens_per_s;
        int64_t ms_min;
        bool asks;
    } cases[] = {
        {0, 5, true},     /* nothing was computed yet */
        {2000, 5, true},  /* 12 tokens: 6 ms */
        {3000, 5, false}, /* 4 ms */
        {3000, 4, true},  /* as long as that */
        {1e6, 0, true},   /* always */
        {100, 1000, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        scene_open(&s, cases[i].tokens_per_s, true);
        s.c.p.conf.kv_fetch_ms_min = cases[i].ms_min;
        if (cases[i].asks)
            fetches(&s);
        else
            assert_false(starts(&s));
        scene_close(&s);
    }
}

static void without_a_place_or_a_use_nothing_is_asked_for(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s, 0, false);
    assert_false(starts(&s)); /* no prefix cache */
    scene_close(&s);
    scene_open(&s, 0, true);
    s.c.p.conf.kv_fetch_ms_min = 0;
    s.req->n_ids = BT; /* no full block before the last id */
    assert_false(starts(&s));
    s.req->n_ids = N_IDS;
    s.req->sampling.prompt_logprobs = true; /* all of it is computed */
    assert_false(starts(&s));
    s.req->sampling.prompt_logprobs = false;
    assert_null(prefill_fetch_start(&s.c.p, "", s.req, on_fetched, &s));
    assert_null(prefill_fetch_start(&s.c.p, "127.0.0.9", s.req, on_fetched, &s));
    fetches(&s);
    scene_close(&s);
}

/* The prompt was computed here: nothing is sent, though D would lend it. */
static void what_is_here_is_not_asked_for(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s, 0, true);
    const unsigned n_added = fake_engine_n_added(s.c.d.engine);
    kv_lends_keep(s.lends, "a1", 0);
    assert_true(starts(&s));
    WAIT_FOR(&s.c, has_ended, &s);
    assert_int_equal(s.n_came, 0);
    assert_int_equal(fake_engine_n_added(s.c.d.engine), n_added);
    scene_close(&s);
}

static void it_can_be_given_up(void **state) {
    struct scene s;
    (void)state;
    scene_open(&s, 0, true);
    assert_true(starts(&s));
    prefill_fetch_cancel(&s.f);
    assert_int_equal(s.n_ends, 0);
    scene_close(&s);
    assert_int_equal(s.n_ends, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_computed_sooner_is_not_asked_for),
        cmocka_unit_test(without_a_place_or_a_use_nothing_is_asked_for),
        cmocka_unit_test(what_is_here_is_not_asked_for),
        cmocka_unit_test(it_can_be_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
