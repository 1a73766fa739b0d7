/* Goal: an instance is posted its role and its peers when they are not what it has, and only then;
 * a refusal is noted and tried again, at the configured pace. Method: a real coordinator over
 * instances of the test, which count what they are posted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":100},"                              \
    "\"controller\":{\"http_retries\":1}}"

static bool has_error(void *arg) {
    return fake_inst(arg)->facts.last_error[0] != 0;
}

static bool has_role(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->role != ROLE_NONE;
}

static bool has_two_peers(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->n_peers == 2;
}

static bool has_three_posts(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->n_posts >= 3;
}

/* Nothing is posted to one without a peer; then each gets the other, once. */
static void once(void **state) {
    (void)state;
    fc_open(CONF);
    struct fake *p = fc_add(LABEL_PREFILL_STATIC);
    run_for(400);
    assert_int_equal(p->n_posts, 0);
    struct fake *d = fc_add(LABEL_DECODE_STATIC);
    run_until(fc_all_serve, NULL);
    assert_int_equal(p->peers[0], d->id);
    assert_int_equal(d->peers[0], p->id);
    assert_false(p->last_forced);
    unsigned posts = p->n_posts + d->n_posts;
    run_for(400);
    assert_int_equal(p->n_posts + d->n_posts, posts);
    /* Another D: P is told of it, the first D is not. */
    unsigned to_d = d->n_posts;
    fc_add(LABEL_DECODE_STATIC);
    run_until(has_two_peers, p);
    run_until(fc_all_serve, NULL);
    assert_int_equal(d->n_posts, to_d);
    fc_close();
}

static bool has_no_stream(void *arg) {
    return fake_inst(arg)->stream == STREAM_NONE;
}

/* One that has no stream in its role is asked again for one at its own pace, not with each new peer
 * that it is told of. */
static void no_stream_in_its_role(void **state) {
    (void)state;
    fc_open(CONF);
    struct fake *p = fc_add(LABEL_PREFILL_STATIC);
    p->no_stream = true;
    fc_add(LABEL_DECODE_STATIC);
    run_until(fc_all_serve, NULL);
    run_until(has_no_stream, p);
    const int listens = p->n_listens;
    for (int i = 0; i < 2; i++) {
        fc_add(LABEL_DECODE_STATIC);
        run_until(fc_all_serve, NULL);
    }
    run_until(has_three_posts, p);
    run_for(200);
    assert_int_equal(p->n_listens, listens);
    fc_close();
}

/* A refusal is kept for the operator, and tried again until it is taken; not more often than said.
 */
static void refused(void **state) {
    (void)state;
    fc_open(CONF);
    struct fake *p = fc_add(LABEL_PREFILL_STATIC), *d = fc_add(LABEL_DECODE_STATIC);
    d->refuse_roles = true;
    run_until(has_error, d);
    assert_string_equal(fake_inst(d)->facts.last_error, "status 409: {\"error\":\"busy\"}");
    unsigned posts = d->n_posts;
    run_for(500);
    assert_in_range(d->n_posts - posts, 1, 5);
    assert_int_equal(d->role, ROLE_NONE);
    run_until(has_role, p); /* the other one is not kept from its own */
    d->refuse_roles = false;
    run_until(fc_all_serve, NULL);
    assert_string_equal(fake_inst(d)->facts.last_error, "");
    fc_close();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once),
        cmocka_unit_test(no_stream_in_its_role),
        cmocka_unit_test(refused),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
