/* Goal: an instance that lets itself be watched is lost at once when its process is gone or another
 * one answers, and after three heartbeats of silence on every way; a coordinator that stood still
 * blames nobody; one that comes back gets another session; what is no frame, another listener and a
 * stream that does not stand are asked for again in their time. Method: a real coordinator over
 * instances of the test (fake_cluster.h) that beat, fall silent, and die as told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "tests/unit/coordinator/fake_cluster.h"

enum { BEAT_MS = 100 };
#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50,\"heartbeat_ms\":100},"          \
    "\"controller\":{\"http_retries\":100}}"

static bool all_beat(void *arg) {
    if (!fc_all_serve(arg)) return false;
    for (int i = 0; i < fc.n_fakes; i++)
        if (fc.fakes[i].beat == NULL) return false;
    return true;
}

static void start(int n_p, int n_d) {
    fc_open(CONF);
    for (int i = 0; i < n_p + n_d; i++) {
        struct fake *f = fc_add(i < n_p ? LABEL_PREFILL_STATIC : LABEL_DECODE_STATIC);
        f->heartbeat_ms = BEAT_MS;
        f->boot = 0x1000 + (unsigned)i;
    }
    run_until(all_beat, NULL);
    run_for(50); /* the hello is read */
}

static bool is_lost(void *arg) {
    return !inst_answers(fake_inst(arg));
}

/* A process that ends: both roles, no retry, no poll. */
static void death(void **state) {
    (void)state;
    start(1, 1);
    for (int i = 0; i < 2; i++) {
        uint64_t began = clock_ms();
        fake_kill(&fc.fakes[i]);
        run_until(is_lost, &fc.fakes[i]);
        assert_in_range(clock_ms() - began, 0, 100);
        assert_non_null(strstr(fake_inst(&fc.fakes[i])->facts.last_error, "GET /dresult: "));
    }
    fc_close();
}

/* Silence on the stream and in the polls. */
static void silence(void **state) {
    (void)state;
    start(1, 2);
    struct fake *each[] = {&fc.fakes[0], &fc.fakes[1]};
    for (int i = 0; i < 2; i++) {
        struct fake *f = each[i];
        char session[80];
        snprintf(session, sizeof(session), "%s", f->session);
        f->mute = true;
        uint64_t began = clock_ms();
        run_until(is_lost, f);
        assert_in_range(clock_ms() - began, 2 * BEAT_MS, 3 * BEAT_MS + 1000); /* late turns */
        assert_non_null(strstr(fake_inst(f)->facts.last_error, "no sign of life for "));
        run_for(300);
        assert_true(is_lost(f));
        fake_wake(f);
        run_until(fc_serves, f);
        assert_string_not_equal(f->session, session); /* so that it gives up what it was asked */
    }
    fc_close();
}

static bool listens_again(void *arg) {
    return ((struct fake *)arg)->n_listens == 2;
}

/* Silence on the stream alone is no loss: it is opened anew, in its session. */
static void a_stream_alone(void **state) {
    (void)state;
    start(1, 1);
    struct fake *d = &fc.fakes[1];
    char session[80];
    snprintf(session, sizeof(session), "%s", d->session);
    loop_timer_stop(&d->beat);
    run_until(listens_again, d);
    assert_string_equal(d->session, session);
    assert_true(inst_answers(fake_inst(d)));
    run_for(5 * BEAT_MS);
    assert_true(fc_serves(d));
    assert_int_equal(d->n_listens, 2);
    fc_close();
}

/* Nor does the one that was opened anew say anything: the business plane is out of reach. */
static void a_business_plane(void **state) {
    (void)state;
    start(1, 2);
    struct fake *each[] = {&fc.fakes[0], &fc.fakes[1]};
    for (int i = 0; i < 2; i++) {
        struct fake *f = each[i];
        const uint64_t began = clock_ms();
        f->deaf = true;
        loop_timer_stop(&f->beat);
        run_until(is_lost, f);
        assert_in_range(clock_ms() - began, 7 * BEAT_MS, 9 * BEAT_MS + 900);
        assert_non_null(strstr(fake_inst(f)->facts.last_error, "from its business plane"));
        run_for(300);
        assert_false(fc_serves(f));
        f->deaf = false; /* to those who ask again */
        run_until(fc_serves, f);
    }
    fc_close();
}

/* A loop that did not run has heard nothing, and that is nobody's fault. */
static void standstill(void **state) {
    (void)state;
    start(1, 2);
    for (int i = 0; i < 3; i++) {
        struct timespec t = {.tv_nsec = 700 * 1000000};
        nanosleep(&t, NULL);
        run_for(10);
    }
    for (int i = 0; i < 3; i++) assert_false(is_lost(&fc.fakes[i]));
    fc_close();
}

/* A stream that ends while the process stays: the same session goes on. Another process at the same
 * address: what was asked of the old one is lost. */
static void reconnects(void **state) {
    (void)state;
    start(1, 1);
    struct fake *d = &fc.fakes[1];
    char session[80];
    snprintf(session, sizeof(session), "%s", d->session);
    http_x_stream_end(d->dresult);
    run_until(listens_again, d);
    assert_string_equal(d->session, session);
    run_for(50);
    assert_false(is_lost(d));
    d->boot++;
    http_x_stream_end(d->dresult);
    run_until(is_lost, d);
    assert_string_equal(fake_inst(d)->facts.last_error, "its process has been replaced");
    run_until(fc_serves, d);
    assert_string_not_equal(d->session, session);
    fc_close();
}

/* What is no frame ends the stream, which is opened anew: nothing is lost by that. */
static void bad_frames(void **state) {
    static const char *const bad[] = {"zzzzzzzz - 0 0 ka ", "00000004 abcd", "ffffffff - 0 0 ka "};
    (void)state;
    start(1, 1);
    struct fake *d = &fc.fakes[1];
    char session[80];
    snprintf(session, sizeof(session), "%s", d->session);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        d->n_listens = 1;
        http_x_stream_write(d->dresult, bad[i], strlen(bad[i]));
        run_until(listens_again, d);
        assert_string_equal(d->session, session);
        assert_true(inst_answers(fake_inst(d)));
    }
    run_until(fc_serves, d);
    fc_close();
}

/* Another coordinator took the stream: it is asked for again, but not at once, or the two would
 * take it from each other without end. */
static void replaced(void **state) {
    struct wr w = WR_INIT;
    const struct dresult_frame f = {.kind = DR_CLOSE,
                                    .req_id = DRESULT_CLOSE_ID,
                                    .body = DRESULT_CLOSE_TEXT,
                                    .body_len = strlen(DRESULT_CLOSE_TEXT)};
    (void)state;
    fc_open(CONF);
    (void)fc_add(LABEL_PREFILL_STATIC);
    struct fake *d = fc_add(LABEL_DECODE_STATIC); /* not watched: nothing else opens it anew */
    run_until(fc_all_serve, NULL);
    assert_int_equal(dresult_pack(&w, 2, &f), ERR_OK);
    http_x_stream_write(d->dresult, w.data, w.len);
    wr_free(&w);
    d->n_listens = 1;
    uint64_t began = clock_ms();
    http_x_on_close(d->dresult, NULL, NULL);
    http_x_stream_end(d->dresult);
    d->dresult = NULL;
    run_until(listens_again, d);
    assert_true(clock_ms() - began >= 1900);
    fc_close();
}

/* One that is not watched is asked again after 100 ms, and each time later than before while not a
 * byte comes. */
static void back_off(void **state) {
    (void)state;
    fc_open(CONF);
    (void)fc_add(LABEL_PREFILL_STATIC);
    struct fake *d = fc_add(LABEL_DECODE_STATIC);
    run_until(fc_all_serve, NULL);
    for (unsigned wait_ms = 100; wait_ms <= 400; wait_ms *= 2) {
        uint64_t began = clock_ms();
        d->n_listens = 1;
        http_x_on_close(d->dresult, NULL, NULL);
        http_x_stream_end(d->dresult);
        d->dresult = NULL;
        run_until(listens_again, d);
        assert_true(clock_ms() - began + 1 >= wait_ms);
        assert_true(inst_answers(fake_inst(d)));
    }
    fc_close();
}

static bool was_polled(void *arg) {
    return fake_inst(arg)->facts.status.running == 3;
}

/* A note brings a poll before its time. */
static void notes(void **state) {
    (void)state;
    start(1, 1);
    struct fake *d = &fc.fakes[1];
    fc.co.conf.sync_s = 3600;
    run_for(300); /* the last one of the old period */
    d->running = 3;
    run_for(300);
    assert_false(was_polled(d));
    fake_word(d, "note something");
    run_until(was_polled, d);
    fake_word(d, "hello"); /* words that mean nothing, and none that is too long to be one */
    fake_word(d, "hello zz");
    fake_word(d, "hello 1 5");
    fake_word(d, "note");
    fake_word(
        d, "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234");
    run_for(50);
    assert_true(fc_serves(d));
    fc_close();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death),          cmocka_unit_test(silence),
        cmocka_unit_test(a_stream_alone), cmocka_unit_test(a_business_plane),
        cmocka_unit_test(standstill),     cmocka_unit_test(reconnects),
        cmocka_unit_test(notes),          cmocka_unit_test(bad_frames),
        cmocka_unit_test(replaced),       cmocka_unit_test(back_off),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
