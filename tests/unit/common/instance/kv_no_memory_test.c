/* Goal: a hand-over for which the decode side has no memory at its last step ends on both sides at
 * once, and the link stays. Method: two planes over real sockets; the allocation of the commit's
 * tokens fails once, on the thread that reads the link; not where a sanitizer owns malloc. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_commit_without_memory_ends_both_sides, loop_setup,
                                        loop_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
