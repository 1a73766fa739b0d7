/* Goal:   a request's KV arrives at the decode side byte for byte, whatever the order of grant,
 * blocks and commit; what is held there is neither sent nor touched; every way a transfer can end
 * ends it on both sides exactly once. Method: two planes of one process over real sockets, each
 * with its own random block memory, driven by one loop; everything over plain and over sealed
 * links.
 */
#include "tests/unit/common/instance/kv_fixture.h"

struct pair {
    struct side p, d;
};

static void open_pair(struct pair *x, struct loop *loop) {
    side_init(&x->p, loop, 1);
    side_init(&x->d, loop, 2);
}
static void start_pair(struct pair *x) {
    side_open(&x->p);
    side_open(&x->d);
    link_sides(&x->p, &x->d);
}
static void close_pair(struct pair *x) {
    side_close(&x->p);
    side_close(&x->d);
}

static void ready_all(struct kv_tx *tx, const int32_t *table, int first, int n) {
    for (int l = 0; l < LAYERS; l++) kv_tx_ready(tx, table, l, first, n);
}

static bool fact_blocks_came(void *arg) {
    return stats_of(arg).bytes_in > BLOCK_BYTES;
}

static void blocks_arrive_as_they_left(void **state) {
    struct pair x;
    struct ended tx_end, rx_end = {0};
    int32_t tp[7], td[7];
    open_pair(&x, *state);
    start_pair(&x);
    make_table(tp, 7, 3, 5);
    make_table(td, 7, 40, 7);
    struct kv_tx *tx = offer(&x.p, "abc1", 0, 26, &tx_end); /* 6.5 blocks */
    ready_all(tx, tp, 0, 3);                                /* before the grant */
    WAIT_FOR(x.d.loop, fact_offered, &x.d);
    assert_int_equal(x.d.n_blocks, 7);
    assert_string_equal(x.d.req->head.req_id, "abc1");
    assert_int_equal(x.d.req->n_ids, 26);
    assert_int_equal(kv_rx_grant(x.d.rx, td, 7, 0, on_rx_end, &rx_end), ERR_OK);
    WAIT_FOR(x.p.loop, fact_granted, &tx_end);
    ready_all(tx, tp, 3, 2); /* while the rest is on the way */
    for (int l = LAYERS - 1; l >= 0; l--) kv_tx_ready(tx, tp, l, 5, 5); /* over the end: cut */
    WAIT_FOR(x.d.loop, fact_blocks_came, &x.d); /* the first frame goes before the commit */
    struct kv_commit c = commit_of(320);
    c.prompt_logprobs = malloc(2 * sizeof(float));
    assert_non_null(c.prompt_logprobs);
    c.prompt_logprobs[0] = -1.5f;
    c.prompt_logprobs[1] = -0.25f;
    c.n_prompt_logprobs = 2;
    kv_tx_commit(tx, &c);
    assert_null(c.prompt_logprobs);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    WAIT_FOR(x.d.loop, fact_done, &rx_end);
    assert_int_equal(tx_end.e, ERR_OK);
    assert_int_equal(rx_end.e, ERR_OK);
    assert_true(same_blocks(&x.p, tp, &x.d, td, 0, 7));
    assert_int_equal(rx_end.commit.n_tokens, 1);
    assert_int_equal(rx_end.commit.tokens[0].id, 320);
    assert_int_equal(rx_end.commit.prefill_us, 1000);
    assert_int_equal(rx_end.commit.cached_tokens, 4);
    assert_int_equal(rx_end.commit.total_bytes, (uint64_t)7 * LAYERS * BLOCK_BYTES);
    assert_true(rx_end.logprobs[0] == -1.5f && rx_end.logprobs[1] == -0.25f);
    assert_int_equal(tx_end.st.bytes, (uint64_t)7 * LAYERS * BLOCK_BYTES);
    assert_int_equal(tx_end.st.n_blocks, 7);
    assert_int_equal(tx_end.st.n_held, 0);
    assert_int_equal(tx_end.st.n_repaired, 0);
    assert_true(tx_end.st.transfer_us > 0 && tx_end.st.exposed_us > 0 &&
                tx_end.st.exposed_us <= tx_end.st.transfer_us);
    kv_tx_free(&tx);
    kv_rx_free(&x.d.rx);
    struct kv_plane_stats st = stats_of(&x.d);
    assert_int_equal(st.n_corrupt + st.n_repeated + st.n_stale + st.n_unknown + st.n_out_of_range +
                         st.n_protocol + st.n_pulls,
                     0);
    close_pair(&x);
}

/* Everything of D's pool that is not in the granted part of the table stays as it was. */
static void held_blocks_and_strangers_memory_stay_untouched(void **state) {
    struct pair x;
    struct ended tx_end, rx_end = {0};
    struct memory before = {0};
    int32_t tp[5], td[5];
    open_pair(&x, *state);
    start_pair(&x);
    make_table(tp, 5, 0, 3);
    make_table(td, 5, 9, 11);
    memory_fill(&before, 2); /* as D's */
    for (int held = 0; held <= 5; held++) {
        char id[16];
        snprintf(id, sizeof(id), "b%d", held);
        x.d.n_offers = 0;
        rx_end = (struct ended){0};
        memory_fill(&x.d.mem, 2);
        struct kv_tx *tx = offer(&x.p, id, 0, 20, &tx_end);
        WAIT_FOR(x.d.loop, fact_offered, &x.d);
        assert_int_equal(kv_rx_grant(x.d.rx, td, 5, held, on_rx_end, &rx_end), ERR_OK);
        ready_all(tx, tp, 0, 5);
        struct kv_commit c = commit_of(1);
        kv_tx_commit(tx, &c);
        WAIT_FOR(x.p.loop, fact_done, &tx_end);
        WAIT_FOR(x.d.loop, fact_done, &rx_end);
        assert_int_equal(rx_end.e, ERR_OK);
        assert_true(same_blocks(&x.p, tp, &x.d, td, held, 5 - held));
        for (int l = 0; l < LAYERS; l++) {
            for (int b = 0; b < POOL_BLOCKS; b++) {
                bool written = false;
                for (int i = held; i < 5; i++) written = written || td[i] == b;
                if (written) continue;
                assert_memory_equal(memory_block(&x.d.mem, l, b), memory_block(&before, l, b),
                                    BLOCK_BYTES);
            }
        }
        assert_int_equal(tx_end.st.n_held, held);
        assert_int_equal(tx_end.n_held, held);
        assert_int_equal(tx_end.st.bytes, (uint64_t)(5 - held) * LAYERS * BLOCK_BYTES);
        kv_tx_free(&tx);
        kv_rx_free(&x.d.rx);
    }
    free(before.bytes);
    close_pair(&x);
}

/* ---- busy, refused */

struct busy_then {
    struct side *d;
    unsigned n_busy, n_wanted;
    int32_t *table;
    struct ended *rx_end;
};

static void answer_busy(void *arg, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                        uint32_t n_blocks) {
    struct busy_then *b = arg;
    (void)peer;
    infer_req_destroy(&req);
    if (b->n_busy < b->n_wanted) {
        b->n_busy++;
        kv_rx_busy(&rx, 3);
        return;
    }
    b->d->rx = rx;
    assert_int_equal(kv_rx_grant(rx, b->table, (int)n_blocks, 0, on_rx_end, b->rx_end), ERR_OK);
}

/* D is busy so many times, about 3 ms each, before it grants. */
static void granted_after(void **state, unsigned n_busy, unsigned handover_ms, bool patient) {
    struct pair x;
    struct ended tx_end, rx_end = {0};
    int32_t t[2] = {1, 2};
    open_pair(&x, *state);
    if (handover_ms > 0) x.p.o.handover_ms = handover_ms;
    start_pair(&x);
    struct busy_then b = {.d = &x.d, .n_wanted = n_busy, .table = t, .rx_end = &rx_end};
    kv_plane_on_offer(x.d.kp, answer_busy, &b);
    struct kv_tx *tx = offer(&x.p, "c1", 0, 8, &tx_end);
    if (patient) kv_tx_patient(tx);
    ready_all(tx, t, 0, 2);
    struct kv_commit c = commit_of(1);
    kv_tx_commit(tx, &c);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    assert_int_equal(tx_end.e, ERR_OK);
    assert_int_equal(b.n_busy, n_busy);
    WAIT_FOR(x.d.loop, fact_done, &rx_end);
    kv_tx_free(&tx);
    kv_rx_free(&x.d.rx);
    close_pair(&x);
}

static void a_busy_decode_is_asked_again(void **state) {
    granted_after(state, 3, 0, false);
}

/* D is full of the same request: the time does not end the offer. */
static void a_patient_offer_outlives_the_hand_over_time(void **state) {
    granted_after(state, 100, 150, true);
}

static void a_decode_that_stays_busy_ends_the_offer(void **state) {
    struct pair x;
    struct ended tx_end;
    open_pair(&x, *state);
    x.p.o.handover_ms = 150;
    start_pair(&x);
    struct busy_then b = {.d = &x.d, .n_wanted = 1000000};
    kv_plane_on_offer(x.d.kp, answer_busy, &b);
    struct kv_tx *tx = offer(&x.p, "c2", 0, 8, &tx_end);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    assert_int_equal(tx_end.e, ERR_BUSY);
    assert_true(b.n_busy > 1);
    kv_tx_free(&tx);
    close_pair(&x);
}

static void a_decode_that_never_answers_ends_the_offer(void **state) {
    struct pair x;
    struct ended tx_end, rx_end = {0};
    int32_t t[2] = {1, 2};
    open_pair(&x, *state);
    x.p.o.handover_ms = 100;
    start_pair(&x);
    struct kv_tx *tx = offer(&x.p, "c3", 0, 8, &tx_end);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    assert_int_equal(tx_end.e, ERR_BUSY);
    kv_tx_free(&tx);
    WAIT_FOR(x.d.loop, fact_offered, &x.d);
    assert_int_equal(kv_rx_grant(x.d.rx, t, 2, 0, on_rx_end, &rx_end), ERR_OK); /* too late */
    WAIT_FOR(x.d.loop, fact_done, &rx_end);
    assert_int_equal(rx_end.e, ERR_CANCELLED);
    kv_rx_free(&x.d.rx);
    close_pair(&x);
}

/* What the commit will need is known at the offer: both sides of the bound. */
static void a_commit_too_large_for_a_frame_is_not_begun(void **state) {
    struct pair x;
    open_pair(&x, *state);
    start_pair(&x);
    size_t n = (KV_FRAME_BYTES_MAX - kv_commit_bytes_max(3, 0, 20)) / (8 + 8 * 20);
    for (size_t over = 0; over <= 1; over++) {
        struct ended end = {0};
        struct infer_req *r = request("b1", (uint32_t)over, n + over);
        r->sampling.n_choices = r->answer.n = 3;
        r->sampling.prompt_logprobs = true;
        r->sampling.prompt_top_logprobs = 20;
        const struct kv_tx_opts o = {.req = r, .n_blocks = 1, .on_end = on_tx_end, .arg = &end};
        struct kv_tx *tx = NULL;
        enum err e = kv_tx_open(&tx, kv_plane_find_id(x.p.kp, D_ID), &o);
        assert_int_equal(e, over ? ERR_TOO_LARGE : ERR_OK);
        infer_req_destroy(&r);
        if (tx == NULL) continue;
        kv_tx_cancel(tx);
        WAIT_FOR(x.p.loop, fact_done, &end);
        kv_tx_free(&tx);
    }
    close_pair(&x);
}

static void a_refusal_carries_its_reason(void **state) {
    struct pair x;
    struct ended tx_end;
    open_pair(&x, *state);
    start_pair(&x);
    struct kv_tx *tx = offer(&x.p, "c4", 0, 8, &tx_end);
    WAIT_FOR(x.d.loop, fact_offered, &x.d);
    kv_rx_refuse(&x.d.rx, ERR_TOO_LARGE, "needs 9 KV blocks, the pool has 8");
    assert_null(x.d.rx);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    assert_int_equal(tx_end.e, ERR_TOO_LARGE);
    assert_string_equal(tx_end.text, "needs 9 KV blocks, the pool has 8");
    kv_tx_free(&tx);
    /* nobody takes offers: refused too, not forgotten */
    kv_plane_on_offer(x.d.kp, NULL, NULL);
    tx = offer(&x.p, "c5", 0, 8, &tx_end);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    assert_int_equal(tx_end.e, ERR_REFUSED);
    kv_tx_free(&tx);
    close_pair(&x);
}

/* ---- cancelling at every stage */

enum stage { OFFERED, GRANTED, SOME_SENT, ALL_SENT, STAGE_COUNT };

static void reach(struct pair *x, enum stage s, struct kv_tx **tx, int32_t *t, struct ended *tx_end,
                  struct ended *rx_end) {
    x->d.n_offers = 0;
    *rx_end = (struct ended){0};
    char id[16];
    static unsigned n;
    snprintf(id, sizeof(id), "d%x", n++);
    *tx = offer(&x->p, id, 0, 16, tx_end);
    WAIT_FOR(x->d.loop, fact_offered, &x->d);
    if (s == OFFERED) return;
    assert_int_equal(kv_rx_grant(x->d.rx, t, 4, 0, on_rx_end, rx_end), ERR_OK);
    WAIT_FOR(x->p.loop, fact_granted, tx_end);
    if (s == SOME_SENT) ready_all(*tx, t, 0, 2);
    if (s == ALL_SENT) ready_all(*tx, t, 0, 4);
}

static void cancel_by_prefill_at_each_stage(void **state) {
    struct pair x;
    struct ended tx_end, rx_end;
    int32_t t[4] = {1, 2, 3, 4};
    open_pair(&x, *state);
    start_pair(&x);
    for (int s = OFFERED; s < STAGE_COUNT; s++) {
        struct kv_tx *tx;
        reach(&x, (enum stage)s, &tx, t, &tx_end, &rx_end);
        kv_tx_cancel(tx);
        kv_tx_cancel(tx); /* twice is once */
        WAIT_FOR(x.p.loop, fact_done, &tx_end);
        assert_int_equal(tx_end.e, ERR_CANCELLED);
        kv_tx_free(&tx);
        if (s == OFFERED)
            assert_int_equal(kv_rx_grant(x.d.rx, t, 4, 0, on_rx_end, &rx_end), ERR_OK);
        WAIT_FOR(x.d.loop, fact_done, &rx_end);
        assert_int_equal(rx_end.e, ERR_CANCELLED);
        assert_int_equal(rx_end.n, 1);
        kv_rx_free(&x.d.rx);
    }
    close_pair(&x);
}

static void cancel_by_decode_at_each_stage(void **state) {
    struct pair x;
    struct ended tx_end, rx_end;
    int32_t t[4] = {1, 2, 3, 4};
    open_pair(&x, *state);
    start_pair(&x);
    for (int s = GRANTED; s < STAGE_COUNT; s++) {
        struct kv_tx *tx;
        reach(&x, (enum stage)s, &tx, t, &tx_end, &rx_end);
        enum err why = s % 2 == 0 ? ERR_CANCELLED : ERR_STOPPING;
        kv_rx_cancel(x.d.rx, why, "stopped");
        kv_rx_cancel(x.d.rx, why, "stopped");
        WAIT_FOR(x.d.loop, fact_done, &rx_end);
        assert_int_equal(rx_end.e, ERR_CANCELLED);
        WAIT_FOR(x.p.loop, fact_done, &tx_end);
        assert_int_equal(tx_end.e, why == ERR_CANCELLED ? ERR_CANCELLED : ERR_REFUSED);
        assert_string_equal(tx_end.text, "stopped");
        assert_int_equal(tx_end.n, 1);
        kv_tx_free(&tx);
        kv_rx_free(&x.d.rx);
    }
    close_pair(&x);
}

/* Ends that meet their cancel half-way: each side still hears exactly one. */
static void cancels_that_race_with_the_end(void **state) {
    struct pair x;
    struct ended tx_end, rx_end;
    int32_t t[4] = {1, 2, 3, 4};
    open_pair(&x, *state);
    start_pair(&x);
    for (int i = 0; i < 40; i++) {
        struct kv_tx *tx;
        reach(&x, ALL_SENT, &tx, t, &tx_end, &rx_end);
        struct kv_commit c = commit_of(1);
        kv_tx_commit(tx, &c);
        if (i % 3 != 0) kv_tx_cancel(tx);
        if (i % 3 != 1) kv_rx_cancel(x.d.rx, ERR_CANCELLED, "stopped");
        WAIT_FOR(x.p.loop, fact_done, &tx_end);
        WAIT_FOR(x.d.loop, fact_done, &rx_end);
        kv_tx_free(&tx);
        kv_rx_free(&x.d.rx);
        assert_int_equal(tx_end.n, 1);
        assert_int_equal(rx_end.n, 1);
        if (tx_end.e == ERR_OK)
            assert_int_equal(rx_end.e, ERR_OK); /* P never believes what D does not know */
    }
    assert_true(fact_up(&x.p));
    close_pair(&x);
}

/* ---- many at once under a small window */

enum { MANY = 24 };

struct many {
    struct pair x;
    struct ended tx_end[MANY], rx_end[MANY];
    struct kv_tx *tx[MANY];
    struct kv_rx *rx[MANY];
    int32_t td[MANY][2];
    unsigned n_rx;
};

static void grant_in_turn(void *arg, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                          uint32_t n_blocks) {
    struct many *m = arg;
    (void)peer;
    unsigned i = (unsigned)strtoul(req->head.req_id, NULL, 16);
    infer_req_destroy(&req);
    m->rx[i] = rx;
    m->n_rx++;
    assert_int_equal(kv_rx_grant(rx, m->td[i], (int)n_blocks, 0, on_rx_end, &m->rx_end[i]), ERR_OK);
}
static bool fact_all_done(void *arg) {
    const struct many *m = arg;
    for (int i = 0; i < MANY; i++) {
        if (!m->tx_end[i].done || !m->rx_end[i].done) return false;
    }
    return true;
}

static void run_many(struct loop *loop, size_t window) {
    struct many *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    open_pair(&m->x, loop);
    m->x.d.o.inflight_bytes_max = window; /* what D lets come binds P */
    start_pair(&m->x);
    kv_plane_on_offer(m->x.d.kp, grant_in_turn, m);
    for (int i = 0; i < MANY; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%x", i);
        m->td[i][0] = (int32_t)(POOL_BLOCKS - 1 - 2 * i);
        m->td[i][1] = (int32_t)(POOL_BLOCKS - 2 - 2 * i);
        m->tx[i] = offer(&m->x.p, id, 0, 8, &m->tx_end[i]);
        static int32_t tp[MANY][2];
        tp[i][0] = (int32_t)(2 * i);
        tp[i][1] = (int32_t)(2 * i + 1);
        ready_all(m->tx[i], tp[i], 0, 2);
        struct kv_commit c = commit_of(i);
        kv_tx_commit(m->tx[i], &c);
    }
    WAIT_FOR(loop, fact_all_done, m);
    for (int i = 0; i < MANY; i++) {
        int32_t tp[2] = {(int32_t)(2 * i), (int32_t)(2 * i + 1)};
        assert_int_equal(m->tx_end[i].e, ERR_OK);
        assert_int_equal(m->rx_end[i].e, ERR_OK);
        assert_int_equal(m->rx_end[i].commit.tokens[0].id, i);
        assert_true(same_blocks(&m->x.p, tp, &m->x.d, m->td[i], 0, 2));
        kv_tx_free(&m->tx[i]);
        kv_rx_free(&m->rx[i]);
    }
    size_t one_frame = BLOCK_BYTES + 256;
    assert_true(stats_of(&m->x.p).inflight_bytes_peak <= (window > one_frame ? window : one_frame));
    assert_true(stats_of(&m->x.p).inflight_bytes_peak > 0);
    close_pair(&m->x);
    free(m);
}

static void many_transfers_within_the_window(void **state) {
    run_many(*state, 64u << 20);
    run_many(*state, 3 * BLOCK_BYTES);
    run_many(*state, 1); /* under one block: one frame at a time */
}

/* ---- leases, the end of the plane */

static void closing_the_plane_ends_what_lives(void **state) {
    struct ended tx_end, rx_end;
    int32_t t[4] = {1, 2, 3, 4};
    for (int s = OFFERED; s < STAGE_COUNT; s++) {
        struct pair x;
        struct kv_tx *tx;
        open_pair(&x, *state);
        start_pair(&x);
        reach(&x, (enum stage)s, &tx, t, &tx_end, &rx_end);
        if (s % 2 == 0) tx_end.free_tx = &tx;
        kv_plane_close(&x.p.kp);
        if (tx != NULL) { /* the computing thread may not know yet */
            ready_all(tx, t, 0, 4);
            kv_tx_cancel(tx);
            kv_tx_free(&tx);
        }
        assert_null(tx);
        assert_int_equal(tx_end.n, 1);
        assert_int_not_equal(tx_end.e, ERR_OK);
        if (s == OFFERED) kv_rx_refuse(&x.d.rx, ERR_BUSY, "");
        if (s != OFFERED) {
            WAIT_FOR(x.d.loop, fact_done, &rx_end);
            assert_int_equal(rx_end.e, ERR_PEER_LOST);
            kv_rx_free(&x.d.rx);
        }
        close_pair(&x);
    }
}

static void unwanted_peers_lose_their_transfers(void **state) {
    struct pair x;
    struct ended tx_end, rx_end;
    struct kv_tx *tx;
    int32_t t[4] = {1, 2, 3, 4};
    open_pair(&x, *state);
    start_pair(&x);
    reach(&x, SOME_SENT, &tx, t, &tx_end, &rx_end);
    assert_int_equal(kv_plane_want(x.p.kp, CAN_PREFILL, P_ID, NULL, 0), ERR_OK);
    WAIT_FOR(x.p.loop, fact_done, &tx_end);
    assert_int_equal(tx_end.e, ERR_PEER_LOST);
    WAIT_FOR(x.d.loop, fact_done, &rx_end);
    assert_int_equal(rx_end.e, ERR_PEER_LOST);
    kv_tx_free(&tx);
    kv_rx_free(&x.d.rx);
    assert_null(kv_plane_find_id(x.p.kp, D_ID));
    WAIT_FOR(x.d.loop, fact_failed, &x.d);
    assert_string_equal(link_text(&x.d), "failed : 8"); /* told, not guessed */
    close_pair(&x);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        TEST(blocks_arrive_as_they_left),
        TEST(held_blocks_and_strangers_memory_stay_untouched),
        TEST(a_busy_decode_is_asked_again),
        TEST(a_decode_that_stays_busy_ends_the_offer),
        TEST(a_decode_that_never_answers_ends_the_offer),
        TEST(a_patient_offer_outlives_the_hand_over_time),
        TEST(a_commit_too_large_for_a_frame_is_not_begun),
        TEST(a_refusal_carries_its_reason),
        TEST(cancel_by_prefill_at_each_stage),
        TEST(cancel_by_decode_at_each_stage),
        TEST(cancels_that_race_with_the_end),
        TEST(many_transfers_within_the_window),
        TEST(closing_the_plane_ends_what_lives),
        TEST(unwanted_peers_lose_their_transfers),
    };
    return cmocka_run_group_tests_name("plain", tests, NULL, NULL) +
           cmocka_run_group_tests_name("sealed", tests, seal_links, unseal_links);
}
