/* Goal:   blocks of a request that has moved come back over the link byte for byte, those that are
 * held are neither sent nor touched, whoever is asked may have fewer or none, and every way a fetch
 * can end ends it on both sides exactly once; what does not fit its request, comes twice or in
 * crowds is declined. Method: as kv_transfer_test.c, with the prefill instance as the one that
 * receives; and a peer made by hand that asks for what it likes. */
#include "common/base/budget.h"
#include "common/instance/kv_link.h"
#include "tests/unit/common/instance/kv_fixture.h"

struct asked {
    unsigned n;
    struct kv_tx *tx, *all[KV_LENDS_MAX];
    struct infer_req *req;
    uint32_t n_blocks;
};

static void on_fetch(void *arg, struct kv_peer *peer, struct kv_tx *tx, struct infer_req *req,
                     uint32_t n_blocks) {
    struct asked *a = arg;
    assert_non_null(peer);
    infer_req_destroy(&a->req);
    assert_true(a->n < KV_LENDS_MAX);
    a->all[a->n++] = tx;
    a->tx = tx;
    a->req = req;
    a->n_blocks = n_blocks;
}

static bool fact_asked(void *arg) {
    return ((struct asked *)arg)->n > 0;
}

struct pair {
    struct side p, d;
    struct asked asked;
    struct ended tx_end, rx_end;
    struct kv_rx *rx;
    int32_t tp[6], td[6];
};

static void open_pair(struct pair *x, struct loop *loop) {
    *x = (struct pair){0};
    side_init(&x->p, loop, 1);
    side_init(&x->d, loop, 2);
    side_open(&x->p);
    side_open(&x->d);
    link_sides(&x->p, &x->d);
    kv_plane_on_fetch(x->d.kp, on_fetch, &x->asked);
    make_table(x->tp, 6, 3, 5);
    make_table(x->td, 6, 40, 3);
}

static void close_pair(struct pair *x) {
    infer_req_destroy(&x->asked.req);
    kv_tx_free(&x->asked.tx);
    kv_rx_free(&x->rx);
    side_close(&x->p);
    side_close(&x->d);
}

static void commit_blocks(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct ended *end = arg;
    end->done = true;
    end->n++;
    end->e = e;
    snprintf(end->text, sizeof(end->text), "%s", text);
    end->commit.n_blocks = c != NULL ? c->n_blocks : 0;
}

/* 25 ids: 6 full blocks before the last one. */
static void ask(struct pair *x, int n_held) {
    struct infer_req *req = request("abc1", 3, 25);
    struct kv_peer *d = kv_plane_find_id(x->p.kp, D_ID);
    assert_int_equal(kv_rx_fetch(&x->rx, d, req, x->tp, 6, n_held, commit_blocks, &x->rx_end),
                     ERR_OK);
    infer_req_destroy(&req);
}

static void asked_for(struct pair *x) {
    WAIT_FOR(x->d.loop, fact_asked, &x->asked);
    assert_int_equal(x->asked.n_blocks, 6);
    assert_string_equal(x->asked.req->head.req_id, "abc1");
    assert_int_equal(x->asked.req->head.epoch, 3);
}

static void blocks_come_back_as_they_are(void **state) {
    static const struct {
        int held, lent;
    } cases[] = {{0, 6}, {2, 6}, {0, 4}, {2, 3}, {4, 2}, {0, 40}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair x;
        struct memory before = {0};
        int32_t td[40];
        open_pair(&x, *state);
        make_table(td, 40, 1, 1);
        memory_fill(&before, 1);
        ask(&x, cases[i].held);
        asked_for(&x);
        const int lent = cases[i].lent < 6 ? cases[i].lent : 6,
                  held = cases[i].held < lent ? cases[i].held : lent;
        assert_int_equal(kv_tx_lend(x.asked.tx, td, cases[i].lent, on_tx_end, &x.tx_end), ERR_OK);
        WAIT_FOR(x.p.loop, fact_done, &x.rx_end);
        WAIT_FOR(x.d.loop, fact_done, &x.tx_end);
        assert_int_equal(x.rx_end.e, ERR_OK);
        assert_int_equal(x.tx_end.e, ERR_OK);
        assert_int_equal(x.rx_end.commit.n_blocks, lent);
        assert_int_equal(x.tx_end.st.bytes, (uint64_t)(lent - held) * LAYERS * BLOCK_BYTES);
        assert_true(same_blocks(&x.d, td, &x.p, x.tp, held, lent - held));
        for (int b = 0; b < 6; b++) /* the others are what they were */
            for (int layer = 0; layer < LAYERS && (b < held || b >= lent); layer++)
                assert_memory_equal(memory_block(&x.p.mem, layer, x.tp[b]),
                                    memory_block(&before, layer, x.tp[b]), BLOCK_BYTES);
        assert_int_equal(stats_of(&x.p).n_out_of_range + stats_of(&x.p).n_protocol, 0);
        free(before.bytes);
        close_pair(&x);
    }
}

static void who_has_nothing_says_why(void **state) {
    struct pair x;
    open_pair(&x, *state);
    ask(&x, 0);
    asked_for(&x);
    kv_tx_decline(&x.asked.tx, ERR_NOT_FOUND, "nothing is kept of the request");
    WAIT_FOR(x.p.loop, fact_done, &x.rx_end);
    assert_int_equal(x.rx_end.e, ERR_REFUSED);
    assert_string_equal(x.rx_end.text, "nothing is kept of the request");
    close_pair(&x);
}

static void without_a_lender_it_is_declined(void **state) {
    struct pair x;
    open_pair(&x, *state);
    kv_plane_on_fetch(x.d.kp, NULL, NULL);
    ask(&x, 0);
    WAIT_FOR(x.p.loop, fact_done, &x.rx_end);
    assert_int_equal(x.rx_end.e, ERR_REFUSED);
    assert_int_equal(x.asked.n, 0);
    close_pair(&x);
}

/* Given up before the answer, and after it: who lends hears of it, once. */
static void who_asked_gives_up(void **state) {
    for (int late = 0; late < 2; late++) {
        struct pair x;
        open_pair(&x, *state);
        ask(&x, 0);
        asked_for(&x);
        if (late == 0) kv_rx_cancel(x.rx, ERR_CANCELLED, "too late");
        if (late == 0) WAIT_FOR(x.p.loop, fact_done, &x.rx_end);
        assert_int_equal(kv_tx_lend(x.asked.tx, x.td, 6, on_tx_end, &x.tx_end), ERR_OK);
        if (late == 1) kv_rx_cancel(x.rx, ERR_CANCELLED, "too late");
        WAIT_FOR(x.p.loop, fact_done, &x.rx_end);
        WAIT_FOR(x.d.loop, fact_done, &x.tx_end);
        assert_true(x.rx_end.e == ERR_CANCELLED || (late == 1 && x.rx_end.e == ERR_OK));
        assert_int_equal(x.rx_end.n, 1);
        assert_int_equal(x.tx_end.n, 1);
        close_pair(&x);
    }
}

static void who_lends_goes(void **state) {
    for (int answered = 0; answered < 2; answered++) {
        struct pair x;
        open_pair(&x, *state);
        ask(&x, 0);
        asked_for(&x);
        if (answered == 1)
            assert_int_equal(kv_tx_lend(x.asked.tx, x.td, 6, on_tx_end, &x.tx_end), ERR_OK);
        kv_plane_want(x.d.kp, CAN_DECODE, D_ID, NULL, 0);
        WAIT_FOR(x.p.loop, fact_done, &x.rx_end);
        assert_true(x.rx_end.e == ERR_PEER_LOST || (answered == 1 && x.rx_end.e == ERR_OK));
        if (answered == 0) /* the answer comes too late, and is told so */
            assert_int_equal(kv_tx_lend(x.asked.tx, x.td, 6, on_tx_end, &x.tx_end), ERR_OK);
        WAIT_FOR(x.d.loop, fact_done, &x.tx_end);
        assert_int_equal(x.tx_end.n, 1);
        close_pair(&x);
    }
}

/* The planes close with fetches in every state. */
static void the_end_of_an_instance(void **state) {
    for (int at = 0; at < 3; at++) {
        struct pair x;
        open_pair(&x, *state);
        ask(&x, 0);
        if (at > 0) asked_for(&x);
        if (at > 1) assert_int_equal(kv_tx_lend(x.asked.tx, x.td, 6, on_tx_end, &x.tx_end), ERR_OK);
        kv_plane_close(&x.p.kp);
        assert_int_equal(x.rx_end.n, 1);
        kv_plane_close(&x.d.kp);
        assert_int_equal(x.tx_end.n, at > 1);
        close_pair(&x);
    }
}

/* ---- a peer that asks for what it likes */

static void raw_fetch(struct raw *r, const char *id, uint32_t n_blocks, uint32_t n_held,
                      const char *req_id, size_t n_ids) {
    struct infer_req *req = request(req_id, 3, n_ids);
    struct kv_key k;
    kv_key_set(&k, id, 3, 0);
    kv_fetch_pack(&r->w, &k, n_blocks, n_held, req);
    raw_send(r);
    infer_req_destroy(&req);
}

static enum err raw_lend(struct raw *r, uint32_t *n_blocks) {
    struct kv_lend m;
    raw_expect(r, KV_LEND);
    assert_int_equal(kv_lend_unpack(&r->f.payload, &m), ERR_OK);
    if (n_blocks != NULL) *n_blocks = m.n_blocks;
    return (enum err)m.code;
}

struct fetches {
    struct asked *of;
    unsigned n;
};

static bool fact_n_asked(void *arg) {
    const struct fetches *f = arg;
    return f->of->n == f->n;
}

static void wait_asked(struct side *d, struct asked *asked, unsigned n) {
    struct fetches f = {asked, n};
    WAIT_FOR(d->loop, fact_n_asked, &f);
}

static void hostile_fetches_are_declined(void **state) {
    struct side d;
    struct raw r = {0};
    struct asked asked = {0};
    side_init(&d, *state, 2);
    side_open(&d);
    struct role_node by_hand = node(P_ID, hand_port()); /* nobody listens there */
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &by_hand, 1), ERR_OK);
    raw_link(&r, &d);
    kv_plane_on_fetch(d.kp, on_fetch, &asked);
    raw_fetch(&r, "abc1", 5, 0, "abc1", 25); /* it has 6 */
    assert_int_equal(raw_lend(&r, NULL), ERR_INVALID);
    raw_fetch(&r, "abc1", 6, 0, "abc2", 25); /* of another request */
    assert_int_equal(raw_lend(&r, NULL), ERR_INVALID);
    raw_fetch(&r, "abc1", 6, 0, "abc1", 25);
    wait_asked(&d, &asked, 1);
    raw_fetch(&r, "abc1", 6, 0, "abc1", 25); /* twice */
    assert_int_equal(raw_lend(&r, NULL), ERR_CONFLICT);
    kv_tx_decline(&asked.tx, ERR_NOT_FOUND, "");
    assert_int_equal(raw_lend(&r, NULL), ERR_NOT_FOUND);
    raw_close(&r);
    infer_req_destroy(&asked.req);
    side_close(&d);
}

/* ---- a peer that takes all it can */

enum { NEXT_ID = P_ID + 1 };

static unsigned n_crowd; /* for ids */

/* n fetches that nobody answers. */
static void raw_crowd(struct raw *r, unsigned n) {
    char id[16];
    while (n-- > 0) {
        snprintf(id, sizeof(id), "%x", 0xa000 + n_crowd++);
        raw_fetch(r, id, 6, 0, id, 25);
    }
}

static void decline_all(struct raw *r, struct asked *asked) {
    for (unsigned i = 0; i < asked->n; i++)
        kv_tx_decline(&asked->all[i], ERR_NOT_FOUND, "nothing is kept of the request");
    for (unsigned i = 0; i < asked->n; i++) assert_int_equal(raw_lend(r, NULL), ERR_NOT_FOUND);
    asked->n = 0;
}

/* One may have half of all that may be under way; then another one still finds room, for as many as
 * are left to those who come after it. */
static void a_peer_leaves_room_for_others(void **state) {
    struct side d, next;
    struct raw r = {0};
    struct asked asked = {0};
    struct ended end = {0};
    struct budget budget;
    struct kv_rx *rx;
    int32_t table[6];
    budget_init(&budget);
    side_init(&d, *state, 2);
    side_init(&next, *state, 1);
    d.o.budget = &budget;
    side_open(&d);
    side_open(&next);
    struct role_node of_d[] = {node(P_ID, hand_port()), node(NEXT_ID, kv_plane_port(next.kp))},
                     of_next = node(D_ID, kv_plane_port(d.kp));
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, of_d, 2), ERR_OK);
    assert_int_equal(kv_plane_want(next.kp, CAN_PREFILL, NEXT_ID, &of_next, 1), ERR_OK);
    raw_link(&r, &d);
    kv_plane_on_fetch(d.kp, on_fetch, &asked);
    for (int round = 0; round < 2; round++) { /* all of it comes back */
        raw_crowd(&r, KV_LENDS_MAX / 2 + 1);
        assert_int_equal(raw_lend(&r, NULL), ERR_BUSY);
        wait_asked(&d, &asked, KV_LENDS_MAX / 2);
        assert_int_equal(budget_used(&budget, BUDGET_KV_LENDS), KV_LENDS_MAX / 2);
        assert_int_equal(budget_refusals(&budget, BUDGET_KV_LENDS), round + 1);
        if (round == 0) decline_all(&r, &asked);
    }
    make_table(table, 6, 3, 5);
    struct infer_req *req = request("b1", 3, 25);
    struct kv_peer *peer = kv_plane_find_id(next.kp, D_ID);
    assert_int_equal(kv_rx_fetch(&rx, peer, req, table, 6, 0, commit_blocks, &end), ERR_OK);
    infer_req_destroy(&req);
    wait_asked(&d, &asked, KV_LENDS_MAX / 2 + 1);
    assert_int_equal(budget_used(&budget, BUDGET_KV_LENDS), KV_LENDS_MAX / 2 + 1);
    kv_tx_decline(&asked.tx, ERR_NOT_FOUND, "");
    asked.n--;
    WAIT_FOR(next.loop, fact_done, &end);
    kv_rx_free(&rx);
    decline_all(&r, &asked);
    raw_crowd(&r, 1); /* there is room again for the first */
    wait_asked(&d, &asked, 1);
    decline_all(&r, &asked);
    assert_int_equal(budget_used(&budget, BUDGET_KV_LENDS), 0);
    raw_close(&r);
    infer_req_destroy(&asked.req);
    side_close(&next);
    side_close(&d);
}

int main(void) {
    log_init(LOG_NONE, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_come_back_as_they_are, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(who_has_nothing_says_why, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(without_a_lender_it_is_declined, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(who_asked_gives_up, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(who_lends_goes, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(the_end_of_an_instance, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(hostile_fetches_are_declined, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(a_peer_leaves_room_for_others, loop_setup, loop_teardown),
    };
    int failed = cmocka_run_group_tests_name("plain", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("sealed", tests, seal_links, unseal_links);
}
