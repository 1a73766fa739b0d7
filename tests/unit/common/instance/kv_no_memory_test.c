/* Goal: a hand-over for which either side has no memory at its last step ends on both sides at
 * once, and the link stays. Method: two planes over real sockets, where the allocation of the
 * commit's tokens fails once, on the thread that reads the link; and one plane whose decode peer,
 * made by hand, asks for blocks again, where that of the ranges does. Not where a sanitizer owns
 * malloc. */
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/instance/kv_fixture.h"

static void hand_over(struct side *p, struct side *d, const char *id, bool fails) {
    struct ended tx_end, rx_end = {0};
    int32_t tp[2], td[2];
    make_table(tp, 2, 3, 5);
    make_table(td, 2, 40, 7);
    d->n_offers = 0;
    struct kv_tx *tx = offer(p, id, 0, 8, &tx_end);
    WAIT_FOR(d->loop, fact_offered, d);
    assert_int_equal(kv_rx_grant(d->rx, td, 2, 0, on_rx_end, &rx_end), ERR_OK);
    WAIT_FOR(p->loop, fact_granted, &tx_end);
    for (int l = 0; l < LAYERS; l++) kv_tx_ready(tx, tp, l, 0, 2);
    struct kv_commit c = commit_of(320);
#if OWN_MALLOC
    if (fails) alloc_fault_item = sizeof(*c.tokens);
#endif
    kv_tx_commit(tx, &c);
    WAIT_FOR(p->loop, fact_done, &tx_end);
    WAIT_FOR(d->loop, fact_done, &rx_end);
    assert_int_equal(tx_end.e, fails ? ERR_REFUSED : ERR_OK);
    assert_int_equal(rx_end.e, fails ? ERR_NO_MEMORY : ERR_OK);
    kv_tx_free(&tx);
    kv_rx_free(&d->rx);
}

static void a_commit_without_memory_ends_both_sides(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    side_open(&p);
    side_open(&d);
    link_sides(&p, &d);
    hand_over(&p, &d, "lost", OWN_MALLOC);
    hand_over(&p, &d, "next", false); /* over the same link */
    assert_int_equal(stats_of(&d).n_protocol, 0);
    side_close(&p);
    side_close(&d);
}

/* ---- who sends has no memory for what D asks for again */

enum { HIGH_ID = D_ID + 10 }; /* of the plane: who is made by hand connects */

static void link_as_decode(struct raw *r, struct side *p) {
    struct role_node by_hand = node(D_ID, hand_port());
    assert_int_equal(kv_plane_want(p->kp, CAN_PREFILL, HIGH_ID, &by_hand, 1), ERR_OK);
    raw_finish_as(r, p, ROLE_DECODE, D_ID, raw_pair_as(r, p, D_ID, HIGH_ID));
}

/* All of a hand-over has come to the decode peer but its ack. */
static struct kv_tx *come_to_commit(struct side *p, struct raw *r, const char *id,
                                    const int32_t *table, struct ended *end) {
    struct kv_key k;
    kv_key_set(&k, id, 0, 0);
    struct kv_tx *tx = offer(p, id, 0, 8, end);
    raw_expect(r, KV_OFFER);
    kv_grant_pack(&r->w, &(struct kv_grant){.key = k});
    raw_send(r);
    WAIT_FOR(p->loop, fact_granted, end);
    for (int l = 0; l < LAYERS; l++) kv_tx_ready(tx, table, l, 0, 2);
    struct kv_commit c = commit_of(320);
    kv_tx_commit(tx, &c);
    do {
        if (!raw_recv_any(r, DEADLINE_MS)) fail_msg("no commit came");
    } while (r->f.type == KV_DATA);
    assert_int_equal(r->f.type, KV_COMMIT);
    return tx;
}

static void pull(struct raw *r, const char *id) {
    struct kv_pull m = {.ranges = &(struct kv_range){.layer = 1, .first = 0, .n = 2},
                        .n_ranges = 1};
    kv_key_set(&m.key, id, 0, 0);
    kv_pull_pack(&r->w, &m);
    raw_send(r);
}

static void a_pull_without_memory_ends_both_sides(void **state) {
    struct side p;
    struct raw r;
    struct ended end;
    int32_t table[2];
    make_table(table, 2, 3, 5);
    side_init(&p, *state, 1);
    side_open(&p);
    link_as_decode(&r, &p);
#if OWN_MALLOC
    struct kv_tx *lost = come_to_commit(&p, &r, "a105", table, &end);
    alloc_fault_item = sizeof(struct kv_range);
    pull(&r, "a105");
    raw_expect(&r, KV_CANCEL);
    WAIT_FOR(p.loop, fact_done, &end);
    assert_int_equal(end.n, 1);
    assert_int_equal(end.e, ERR_REFUSED);
    assert_string_equal(end.text, err_text(ERR_NO_MEMORY));
    kv_tx_free(&lost);
#endif
    struct kv_tx *tx = come_to_commit(&p, &r, "a106", table, &end); /* over the same link */
    pull(&r, "a106");
    raw_expect(&r, KV_DATA);
    raw_expect(&r, KV_COMMIT);
    struct kv_key k;
    kv_key_set(&k, "a106", 0, 0);
    kv_ack_pack(&r.w, &k);
    raw_send(&r);
    WAIT_FOR(p.loop, fact_done, &end);
    assert_int_equal(end.e, ERR_OK);
    assert_int_equal(end.st.n_repaired, 2);
    assert_int_equal(stats_of(&p).n_protocol, 0);
    assert_int_equal(stats_of(&p).n_pulls, 1);
    kv_tx_free(&tx);
    raw_close(&r);
    side_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pull_without_memory_ends_both_sides, loop_setup,
                                        loop_teardown),
        cmocka_unit_test_setup_teardown(a_commit_without_memory_ends_both_sides, loop_setup,
                                        loop_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
