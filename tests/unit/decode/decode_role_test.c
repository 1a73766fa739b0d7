/* Goal:   an answer made by a prefill and a decode instance together is the answer of one process,
 * piece by piece and id by id; a decode instance ends every request exactly once on its result
 * stream and gives back what it held. Method: both roles real, over real HTTP, KV link and engine
 * thread, around an engine without a model whose tokens follow from the KV bytes; what one process
 * would say is computed straight from the request. */
#include "tests/unit/fakes/role_fixture.h"

static void prompt_body(char *out, size_t cap, int stream, int max, int stop, int lp, int n_ids,
                        int seed) {
    int at = snprintf(out, cap, "%d %d %d %d 0 :", stream, max, stop, lp);
    for (int i = 0; i < n_ids; i++)
        at += snprintf(out + at, cap - (size_t)at, " %d", (i * 37 + seed) % 900);
}

/* P's piece and D's pieces together are the whole answer, and the ids are all there. */
static void expect_whole(struct flight *x, const char *body) {
    struct buf want = BUF_INIT;
    int32_t tokens[TOKENS_MAX];
    size_t n;
    fake_expected(body, BT, &want, tokens, &n);
    assert_int_equal(x->status, 200);
    static char output[65536], got[65536];
    member(x, "output", output, sizeof(output));
    snprintf(got, sizeof(got), "%s%s", output, x->text.data != NULL ? x->text.data : "");
    assert_string_equal(got, want.data);
    const struct transcript_choice *sent = &x->sent.choices[0];
    assert_int_equal(sent->n_ids, n);
    assert_memory_equal(sent->ids, tokens, n * sizeof(int32_t));
    assert_int_not_equal(sent->finish, FINISH_NONE);
    if (n > 1) assert_int_equal(x->end, DR_LAST);
    buf_free(&want);
}

static bool fact_over(void *arg) { /* ended at D, or already at P */
    struct flight *x = arg;
    return x->n_ends > 0 ||
           (x->answered && (x->status != 200 || strstr(x->body, "\"isLastResp\":true") != NULL));
}
static bool fact_answered_and_over(void *arg) {
    return fact_over(arg) && fact_answered(arg);
}

static void split_is_whole(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    const int lengths[] = {1, BT - 1, BT, BT + 1, 5 * BT, 43};
    unsigned n = 0;
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (int stream = 0; stream <= 1; stream++) {
            for (int lp = 0; lp <= 1; lp++) {
                char body[1024], id[16];
                snprintf(id, sizeof(id), "%x", n++);
                prompt_body(body, sizeof(body), stream, 12, -1, lp, lengths[l], (int)n);
                struct flight *x = post(&c, id, body);
                WAIT_FOR(&c, fact_answered_and_over, x);
                expect_whole(x, body);
            }
        }
    }
    /* ended by the endpoint, not the engine: the third token as a stop string */
    for (int stream = 0; stream <= 1; stream++) {
        char body[1024], id[16];
        int32_t tokens[64];
        size_t n_tokens;
        struct buf ignored = BUF_INIT;
        prompt_body(body, sizeof(body), stream, 12, -1, 0, 9, 4);
        fake_expected(body, BT, &ignored, tokens, &n_tokens);
        buf_free(&ignored);
        assert_true(n_tokens > 3);
        prompt_body(body, sizeof(body), stream, 12, tokens[2], 0, 9, 4);
        snprintf(id, sizeof(id), "%x", n++);
        struct flight *x = post(&c, id, body);
        WAIT_FOR(&c, fact_answered_and_over, x);
        expect_whole(x, body);
        assert_int_equal(x->sent.n_ids, 3);
        assert_int_equal(x->sent.choices[0].finish, FINISH_STOP_STRING);
    }
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* Prefix blocks D has already are not sent again, and the answer is the same. */
static void held_prefix_blocks_change_no_token(void **state) {
    (void)state;
    struct cluster c;
    char body[1024], v[32];
    cluster_up(&c, &roomy, &roomy);
    prompt_body(body, sizeof(body), 1, 9, -1, 0, 30, 3);
    for (int i = 0; i < 3; i++) {
        char id[8];
        snprintf(id, sizeof(id), "c%d", i);
        struct flight *x = post(&c, id, body);
        WAIT_FOR(&c, fact_answered_and_over, x);
        expect_whole(x, body);
        member(x, "kvBlocksHeld", v, sizeof(v));
        assert_int_equal(atoi(v), i == 0 ? 0 : 7); /* all full blocks of 30 tokens */
        WAIT_FOR(&c, fact_idle, &c);
    }
    cluster_down(&c);
}

enum { MANY = 40 };

struct many {
    struct flight *x[MANY];
};
static bool fact_many_over(void *arg) {
    struct many *m = arg;
    for (int i = 0; i < MANY; i++) {
        if (!fact_answered_and_over(m->x[i])) return false;
    }
    return true;
}

/* More than D has slots and blocks for: offers wait there. */
static void many_at_once_are_all_right(void **state) {
    (void)state;
    struct cluster c;
    struct many m;
    static char bodies[MANY][1024];
    const struct fake_engine_opts narrow = {
        .n_blocks = 48, .batch_max = 4, .queue_max = 64, .block_tokens = BT, .chunk_blocks = 1};
    const struct fake_engine_opts wide = {
        .n_blocks = 512, .batch_max = 8, .queue_max = 64, .block_tokens = BT, .chunk_blocks = 1};
    cluster_up(&c, &wide, &narrow);
    for (int i = 0; i < MANY; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%x", 0x100 + i);
        prompt_body(bodies[i], sizeof(bodies[i]), i % 2, 5 + i % 9, -1, i % 3 == 0, 1 + i % 23, i);
        m.x[i] = post(&c, id, bodies[i]);
    }
    WAIT_FOR(&c, fact_many_over, &m);
    for (int i = 0; i < MANY; i++) expect_whole(m.x[i], bodies[i]);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* ---- waiting for room */

static bool fact_two_wait_at_d(void *arg) {
    return load_of(&((struct cluster *)arg)->d).waiting == 2;
}
static bool fact_one_waits_at_p(void *arg) {
    return load_of(&((struct cluster *)arg)->p).waiting == 1;
}

static bool fact_d_importing_none(void *arg) {
    return load_of(&((struct cluster *)arg)->d).waiting == 0;
}

static const struct fake_engine_opts tight_d = {
    .n_blocks = 16, .batch_max = 4, .queue_max = 16, .block_tokens = BT, .chunk_blocks = 2};

/* One decodes in 11 of D's 16 blocks and stands still; the second, which needs all 16, is offered.
 */
static void fill_d(struct cluster *c, struct flight **first, struct flight **all, char *body) {
    hold(&c->d, true);
    *first = post(c, "a1", "1 40 -1 0 0 : 1 2 3");
    WAIT_FOR(c, fact_d_decoding, c);
    prompt_body(body, 1024, 1, 34, -1, 0, 30, 5);
    *all = post(c, "a2", body);
    WAIT_FOR(c, fact_p_leases, c);
    WAIT_FOR(c, fact_d_importing, c);
}

/* The second holds all of P and waits for D; the third fits into what D has left, and waits for P.
 * If D kept that for it, neither would ever move. */
static void room_at_d_is_not_kept_for_what_waits_at_p(void **state) {
    (void)state;
    struct cluster c;
    struct flight *first, *all;
    static char body[1024];
    const struct fake_engine_opts tight_p = {
        .n_blocks = 8, .batch_max = 4, .queue_max = 16, .block_tokens = BT, .chunk_blocks = 2};
    cluster_up(&c, &tight_p, &tight_d);
    fill_d(&c, &first, &all, body);
    struct flight *third = post(&c, "a3", "1 3 -1 0 0 : 1 2 3 4 5");
    WAIT_FOR(&c, fact_one_waits_at_p, &c);
    wait_ms(c.loop, fact_two_wait_at_d, &c, 50);
    assert_int_equal(load_of(&c.d).waiting, 1); /* D has not heard of it */
    hold(&c.d, false);
    WAIT_FOR(&c, fact_answered_and_over, all);
    WAIT_FOR(&c, fact_answered_and_over, third);
    expect_whole(first, "1 40 -1 0 0 : 1 2 3");
    expect_whole(all, body);
    expect_whole(third, "1 3 -1 0 0 : 1 2 3 4 5");
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* The third would fit at once; it comes after the one that waits for more. */
static void offers_are_served_in_their_order(void **state) {
    (void)state;
    struct cluster c;
    struct flight *first, *all;
    static char body[1024];
    cluster_up(&c, &roomy, &tight_d);
    fill_d(&c, &first, &all, body);
    struct flight *third = post(&c, "a3", "1 3 -1 0 0 : 1 2 3 4 5");
    WAIT_FOR(&c, fact_two_wait_at_d, &c);
    hold(&c.d, false);
    WAIT_FOR(&c, fact_over, all);
    assert_int_equal(third->n_ends, 0);
    WAIT_FOR(&c, fact_answered_and_over, third);
    expect_whole(all, body);
    expect_whole(third, "1 3 -1 0 0 : 1 2 3 4 5");
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* Whoever goes while it waits at D leaves the queue at once, and lets the next one in. */
static void a_withdrawn_offer_leaves_the_queue(void **state) {
    (void)state;
    struct cluster c;
    struct flight *first, *all;
    static char body[1024];
    cluster_up(&c, &roomy, &tight_d);
    fill_d(&c, &first, &all, body);
    struct flight *third = post(&c, "a3", "1 3 -1 0 0 : 1 2 3 4 5");
    WAIT_FOR(&c, fact_two_wait_at_d, &c);
    http_call_cancel(&all->call);
    WAIT_FOR(&c, fact_d_importing_none, &c); /* the third has its room, the first still runs */
    hold(&c.d, false);
    WAIT_FOR(&c, fact_answered_and_over, third);
    expect_whole(third, "1 3 -1 0 0 : 1 2 3 4 5");
    assert_int_equal(all->n_frames, 0);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* ---- not by this door */

static void direct_requests_are_refused(void **state) {
    (void)state;
    struct cluster c;
    char url[64];
    cluster_up(&c, &roomy, &roomy);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/completions", http_server_port(c.d.server));
    struct flight *x = &c.flights[c.n_flights++];
    const struct http_call_opts o = {.method = "POST",
                                     .url = url,
                                     .body = "1 2 -1 0 0 : 3",
                                     .body_len = 14,
                                     .on_done = on_answer,
                                     .arg = x};
    assert_int_equal(http_client_call(c.client, &o, &x->call), ERR_OK);
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 400);
    assert_non_null(strstr(x->body, "DMI inference requests can be sent only to the prefill node "
                                    "or p_percentage of the flex node == 0"));
    cluster_down(&c);
}

/* ---- ends */

static const struct fake_engine_opts big = {
    .n_blocks = 1024, .batch_max = 8, .queue_max = 16, .block_tokens = BT, .chunk_blocks = 2};

/* A long request that is D's: some frames of it are out when it streams, more would come; the
 * engine of D stands still. (It reserves and starts sequences all the same: that is the worker's
 * doing, not a step's.) */
static struct flight *still_decoding(struct cluster *c, int stream) {
    char body[1024];
    prompt_body(body, sizeof(body), stream, 900, -1, 0, 10, 1);
    hold(&c->d, true);
    struct flight *x = post(c, "d0", body);
    WAIT_FOR(c, fact_answered, x);
    WAIT_FOR(c, fact_d_decoding, c);
    allow(&c->d, 8);
    if (stream) WAIT_FOR(c, fact_some_frames, x);
    assert_int_equal(x->n_ends, 0);
    return x;
}

static void stop_infer_gives_the_normal_end(void **state) {
    (void)state;
    for (int stream = 0; stream <= 1; stream++) {
        struct cluster c;
        cluster_up(&c, &roomy, &big);
        struct flight *x = still_decoding(&c, stream);
        assert_false(req_set_stop(c.d.reqs, "ffff", NULL, UINT32_MAX));
        assert_true(req_set_stop(c.d.reqs, x->req_id, NULL, UINT32_MAX));
        WAIT_FOR(&c, fact_ended, x);
        assert_int_equal(x->end, DR_LAST);
        assert_non_null(strstr(x->text.data, ":abort:"));
        assert_false(req_set_stop(c.d.reqs, x->req_id, NULL, UINT32_MAX));
        hold(&c.d, false);
        WAIT_FOR(&c, fact_idle, &c);
        assert_int_equal(x->n_ends, 1);
        cluster_down(&c);
    }
}

static void stop_infer_during_the_import_ends_it_at_p(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    hold(&c.p, true);
    struct flight *x = post(&c, "e1", "1 40 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
    WAIT_FOR(&c, fact_p_running, &c);
    allow(&c.p, 1); /* P admits it, and is not through with it */
    WAIT_FOR(&c, fact_d_importing, &c);
    assert_true(req_set_stop(c.d.reqs, "e1", NULL, UINT32_MAX));
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 424);
    assert_non_null(strstr(x->body, "stopped"));
    WAIT_FOR(&c, fact_idle, &c);
    assert_int_equal(x->n_frames, 0);
    cluster_down(&c);
}

static bool fact_eight_frames(void *arg) {
    return ((struct flight *)arg)->n_frames >= 8;
}

/* Of an answer in one piece each token is told while it may go on elsewhere at any time: none is
 * made again. */
static void an_instance_that_leaves_tells_each_token(void **state) {
    char body[1024];
    struct cluster c;
    (void)state;
    cluster_up(&c, &roomy, &big);
    prompt_body(body, sizeof(body), 0, 900, -1, 0, 10, 1);
    hold(&c.d, true);
    struct flight *x = post(&c, "d0", body);
    WAIT_FOR(&c, fact_d_decoding, &c);
    c.d.stopping = true;
    allow(&c.d, 8);
    WAIT_FOR(&c, fact_eight_frames, x);
    assert_int_equal(x->n_frames, 8);
    assert_int_equal(x->from_d.len / sizeof(struct emitted), 8);
    assert_int_equal(x->text.len, 0); /* nothing for the client yet */
    hold(&c.d, false);
    WAIT_FOR(&c, fact_ended, x);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void a_failing_engine_ends_with_an_error_frame(void **state) {
    (void)state;
    for (int stream = 0; stream <= 1; stream++) {
        struct cluster c;
        cluster_up(&c, &roomy, &big);
        struct flight *x = still_decoding(&c, stream);
        fake_engine_fail_next(c.d.engine);
        hold(&c.d, false);
        WAIT_FOR(&c, fact_ended, x);
        assert_int_equal(x->end, DR_ERROR);
        assert_int_equal(x->end_status, 500);
        /* a stream that has begun gets an event in its framing, anything else the family's body */
        assert_non_null(
            strstr(x->text.data, stream ? "event: 500 Failed to get engine response."
                                        : "{\"error\":\"Failed to get engine response.\"}"));
        WAIT_FOR(&c, fact_idle, &c);
        cluster_down(&c);
    }
}

/* P has its ack and the coordinator its answer: what fails now must say so. */
static void a_start_that_fails_ends_with_an_error_frame(void **state) {
    (void)state;
    for (int stream = 0; stream <= 1; stream++) {
        struct cluster c;
        cluster_up(&c, &roomy, &big);
        fake_answer_fails_at = 2; /* P makes the first */
        struct flight *x = post(&c, "e2", stream ? "1 40 -1 0 0 : 1 2 3" : "0 40 -1 0 0 : 1 2 3");
        WAIT_FOR(&c, fact_ended, x);
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, 200);
        assert_int_equal(x->end, DR_ERROR);
        assert_int_equal(x->end_status, 503);
        assert_string_equal(x->text.data, "{\"error\":\"out of memory\"}");
        WAIT_FOR(&c, fact_idle, &c);
        assert_int_equal(x->n_ends, 1);
        cluster_down(&c);
    }
}

static bool fact_full(void *arg) {
    return dresult_out_is_full(((struct cluster *)arg)->d.dresult, "f0", 0);
}
static bool fact_never(void *arg) {
    (void)arg;
    return false;
}

/* The number of steps that the engine has made once it makes no more. */
static unsigned steps_at_rest(struct cluster *c) {
    const uint64_t until = clock_ms() + DEADLINE_MS;
    for (;;) {
        const unsigned steps = fake_engine_n_steps(c->d.engine);
        wait_ms(c->loop, fact_never, c, 100); /* those that were under way */
        if (fake_engine_n_steps(c->d.engine) == steps) return steps;
        assert_true(clock_ms() < until);
    }
}

/* While nobody reads, a request is held up and not lost: it stands still with what it may keep, the
 * engine with it, and goes on when it is read. */
static void a_request_nobody_reads_stands_still(void **state) {
    static const struct fake_engine_opts wide = {
        .n_blocks = 16384, .batch_max = 64, .queue_max = 16, .block_tokens = BT, .chunk_blocks = 2};
    (void)state;
    struct cluster c;
    fake_pad_bytes = 8192; /* a few tokens fill what it may keep */
    cluster_up(&c, &roomy, &wide);
    stop_listening(&c);
    WAIT_FOR(&c, fact_not_listening, &c);
    struct flight *x = post(&c, "f0", "1 600 -1 0 0 : 1 2 3");
    WAIT_FOR(&c, fact_full, &c);
    unsigned steps = steps_at_rest(&c);
    assert_int_equal(load_of(&c.d).running, 1); /* and not because it has ended */
    listen_to_d(&c);
    WAIT_FOR(&c, fact_ended, x);
    assert_int_equal(x->end, DR_LAST);
    assert_true(fake_engine_n_steps(c.d.engine) > steps);
    fake_pad_bytes = 0;
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void silence_ends_with_an_error_frame(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &big);
    struct flight *x = still_decoding(&c, 1);
    c.d.conf.token_timeout_s = 1;
    WAIT_FOR(&c, fact_ended, x);
    assert_int_equal(x->end, DR_ERROR);
    assert_non_null(strstr(x->text.data, "Engine callback timeout: server tokenTimeout"));
    hold(&c.d, false);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* What earlier attempts took is of the same request: the limit of the whole ends it at D, and at P,
 * once and as its own error, however often it was begun anew. */
static void the_time_of_earlier_attempts_counts(void **state) {
    (void)state;
    for (int at_p = 0; at_p <= 1; at_p++) {
        struct cluster c;
        char target[64], body[1024], spent[64];
        cluster_up(&c, &roomy, &big);
        c.p.conf.e2e_timeout_s = c.d.conf.e2e_timeout_s = 60;
        snprintf(target, sizeof(target), "d-target: 127.0.0.1;%u", kv_plane_port(c.d.kv_plane));
        snprintf(spent, sizeof(spent), "baton-spent-ms: %d", at_p ? 61000 : 58000);
        const char *const headers[] = {"req-type: prefill", "req-id: a7", target,
                                       "req-epoch: 3",      spent,        NULL};
        hold(at_p ? &c.p : &c.d, true);
        prompt_body(body, sizeof(body), 1, 900, -1, 0, 10, 1);
        struct flight *x = post_with(&c, headers, body);
        snprintf(x->req_id, sizeof(x->req_id), "a7");
        x->epoch = 3;
        if (at_p) {
            WAIT_FOR(&c, fact_answered, x);
            assert_int_equal(x->status, 424);
            assert_int_equal(x->cause, CAUSE_REQUEST_TIMEOUT);
            assert_non_null(strstr(x->body, "Engine callback timeout."));
        } else { /* two seconds are left: the first token, and then silence */
            WAIT_FOR(&c, fact_ended, x);
            assert_int_equal(x->end, DR_ERROR);
            assert_non_null(strstr(x->text.data, "Engine callback timeout: server e2eTimeout"));
        }
        hold(at_p ? &c.p : &c.d, false);
        WAIT_FOR(&c, fact_idle, &c);
        assert_int_equal(x->n_ends, !at_p);
        cluster_down(&c);
    }
}

static void nobody_listening_for_too_long_ends_the_requests(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &big);
    c.d.conf.listener_grace_s = 1;
    still_decoding(&c, 1);
    stop_listening(&c);
    WAIT_FOR(&c, fact_not_listening, &c);
    hold(&c.d, false);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void a_prefill_that_dies_before_the_commit_frees_the_room(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    hold(&c.p, true);
    struct flight *x = post(&c, "f1", "1 40 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
    WAIT_FOR(&c, fact_p_running, &c);
    allow(&c.p, 1);
    WAIT_FOR(&c, fact_d_importing, &c);
    fake_instance_close(&c.p);
    WAIT_FOR(&c, fact_answered, x); /* the connection broke, or an error came */
    WAIT_FOR(&c, fact_idle, &c);
    assert_int_equal(x->n_frames, 0);
    fake_instance_open(&c.p, c.loop, &prefill_role, P_ID, &roomy);
    cluster_down(&c);
}

static void a_prefill_that_dies_after_the_hand_over_is_not_missed(void **state) {
    (void)state;
    struct cluster c;
    struct flight *x = NULL;
    cluster_up(&c, &roomy, &big);
    x = still_decoding(&c, 1);
    fake_instance_close(&c.p);
    hold(&c.d, false);
    WAIT_FOR(&c, fact_ended, x);
    char body[1024];
    prompt_body(body, sizeof(body), 1, 900, -1, 0, 10, 1);
    expect_whole(x, body);
    WAIT_FOR(&c, fact_idle, &c);
    fake_instance_open(&c.p, c.loop, &prefill_role, P_ID, &roomy);
    cluster_down(&c);
}

static void a_newer_attempt_replaces_a_running_one(void **state) {
    (void)state;
    struct cluster c;
    char body[1024];
    cluster_up(&c, &roomy, &big);
    struct flight *x = still_decoding(&c, 1);
    hold(&c.d, false); /* it may go on: its frames are dropped from the moment the new attempt is
                          offered */
    prompt_body(body, sizeof(body), 1, 8, -1, 0, 10, 1);
    struct flight *y = post_epoch(&c, x->req_id, 1, body);
    WAIT_FOR(&c, fact_answered_and_over, y);
    expect_whole(y, body);
    WAIT_FOR(&c, fact_idle, &c);
    /* and an older attempt that comes late is refused */
    struct flight *z = post_epoch(&c, x->req_id, 0, body);
    WAIT_FOR(&c, fact_answered, z);
    assert_int_equal(z->status, 500);
    assert_non_null(strstr(z->body, "a newer attempt of the request was seen"));
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* A stop that was sent for an attempt before this one comes late. */
static void a_stop_of_an_older_attempt_ends_nothing(void **state) {
    (void)state;
    struct cluster c;
    char body[1024];
    cluster_up(&c, &roomy, &big);
    prompt_body(body, sizeof(body), 1, 40, -1, 0, 10, 1);
    hold(&c.d, true);
    struct flight *x = post_epoch(&c, "f9", 2, body);
    allow(&c.d, 8);
    WAIT_FOR(&c, fact_some_frames, x);
    assert_false(req_set_stop(c.d.reqs, "f9", NULL, 1));
    assert_int_equal(x->n_ends, 0);
    assert_true(req_set_stop(c.d.reqs, "f9", NULL, 2));
    WAIT_FOR(&c, fact_ended, x);
    hold(&c.d, false);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void a_stopping_instance_takes_no_offers(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    c.d.stopping = true;
    struct flight *x = post(&c, "f5", "1 4 -1 0 0 : 1 2 3");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 500);
    assert_non_null(strstr(x->body, "The service has been stopped"));
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void stopping_the_role_ends_everything(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct cluster c;
        cluster_up(&c, &roomy, &big);
        struct flight *x;
        if (how < 2) {
            x = still_decoding(&c, 1);
        } else {
            hold(&c.p, true);
            x = post(&c, "f6", "1 40 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
            WAIT_FOR(&c, fact_p_running, &c);
            allow(&c.p, 1);
            WAIT_FOR(&c, fact_d_importing, &c);
        }
        if (how % 2 == 0) {
            req_set_abort(c.d.reqs, ROLE_NONE, ERR_STOPPING);
        } else {
            c.d.ops->stop(&c.d.role);
        }
        if (how < 2) {
            WAIT_FOR(&c, fact_ended, x);
            assert_int_equal(x->end, DR_ERROR);
        } else {
            WAIT_FOR(&c, fact_answered, x);
            assert_int_not_equal(x->status, 200);
        }
        WAIT_FOR(&c, fact_idle, &c);
        cluster_down(&c);
    }
}

struct late { /* D fails at the end of the pass behind n more; each takes its time */
    struct cluster *c;
    int n_passes;
    struct loop_task task;
};
static void fail_late(void *arg) {
    struct late *l = arg;
    const struct timespec meanwhile = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&meanwhile, NULL); /* the link's threads go on, this one does not hear of it */
    if (l->n_passes-- > 0)
        loop_at_pass_end(l->c->loop, &l->task, fail_late, l);
    else
        req_set_abort(l->c->d.reqs, ROLE_NONE, ERR_STOPPING);
}
static bool fact_has_failed(void *arg) {
    return ((struct late *)arg)->n_passes < 0;
}

/* The link may have acknowledged the last block when D gives the request up without knowing: P has
 * answered then, and the end comes as a frame. */
static void who_fails_while_it_comes_is_heard(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &big);
    for (int n = 0; n < 6; n++) {
        char id[16];
        snprintf(id, sizeof(id), "e%d", n);
        hold(&c.p, true);
        struct flight *x = post(&c, id, "1 40 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
        WAIT_FOR(&c, fact_p_running, &c);
        allow(&c.p, 1);
        WAIT_FOR(&c, fact_d_importing, &c);
        hold(&c.d, true);
        hold(&c.p, false);
        struct late late = {.c = &c, .n_passes = n % 3};
        loop_at_pass_end(c.loop, &late.task, fail_late, &late);
        WAIT_FOR(&c, fact_has_failed, &late);
        WAIT_FOR(&c, fact_answered, x);
        if (x->status == 200) WAIT_FOR(&c, fact_ended, x);
        if (x->n_ends > 0) assert_int_equal(x->end, DR_ERROR);
        hold(&c.d, false);
        WAIT_FOR(&c, fact_idle, &c);
    }
    cluster_down(&c);
}

static void the_instance_may_close_at_any_moment(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct cluster c;
        cluster_up(&c, &roomy, &big);
        if (how == 0) still_decoding(&c, 1);
        if (how == 1) {
            hold(&c.p, true);
            post(&c, "f7", "1 40 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
            WAIT_FOR(&c, fact_p_running, &c);
            allow(&c.p, 1);
            WAIT_FOR(&c, fact_d_importing, &c);
        }
        if (how == 2) {
            post(&c, "f8", "1 400 -1 0 0 : 1 2 3 4 5");
            WAIT_FOR(&c, fact_d_offered, &c);
        }
        cluster_down(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_instance_that_leaves_tells_each_token),
        cmocka_unit_test(split_is_whole),
        cmocka_unit_test(held_prefix_blocks_change_no_token),
        cmocka_unit_test(many_at_once_are_all_right),
        cmocka_unit_test(room_at_d_is_not_kept_for_what_waits_at_p),
        cmocka_unit_test(offers_are_served_in_their_order),
        cmocka_unit_test(a_withdrawn_offer_leaves_the_queue),
        cmocka_unit_test(direct_requests_are_refused),
        cmocka_unit_test(stop_infer_gives_the_normal_end),
        cmocka_unit_test(stop_infer_during_the_import_ends_it_at_p),
        cmocka_unit_test(a_failing_engine_ends_with_an_error_frame),
        cmocka_unit_test(a_start_that_fails_ends_with_an_error_frame),
        cmocka_unit_test(a_request_nobody_reads_stands_still),
        cmocka_unit_test(silence_ends_with_an_error_frame),
        cmocka_unit_test(the_time_of_earlier_attempts_counts),
        cmocka_unit_test(nobody_listening_for_too_long_ends_the_requests),
        cmocka_unit_test(a_prefill_that_dies_before_the_commit_frees_the_room),
        cmocka_unit_test(a_prefill_that_dies_after_the_hand_over_is_not_missed),
        cmocka_unit_test(a_newer_attempt_replaces_a_running_one),
        cmocka_unit_test(a_stop_of_an_older_attempt_ends_nothing),
        cmocka_unit_test(a_stopping_instance_takes_no_offers),
        cmocka_unit_test(stopping_the_role_ends_everything),
        cmocka_unit_test(who_fails_while_it_comes_is_heard),
        cmocka_unit_test(the_instance_may_close_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
