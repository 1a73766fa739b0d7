/* Goal: whatever is lost on the way of a stream (D, P, the link, a piece, patience) costs its
 * client a pause and nothing else: the next attempt gets the body untouched and the record of
 * exactly what the client has, an attempt that was given up is stopped and heard no more, and all
 * of it shows in records and budgets. Method: as relay_test.c; P tells tokens and what only the
 * first attempt decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/recorder.h"
#include "tests/unit/coordinator/relay_fixture.h"

/* An answer of P to a stream: its piece, the tokens in it. */
#define FIRST(output, tokens)                                                                      \
    "{\"isStream\":true,\"isLastResp\":false,\"output\":\"" output "\",\"tokens\":\"" tokens       \
    "\",\"seed\":\"18446744073709551615\",\"created\":1700000000,\"cachedTokens\":[7],"            \
    "\"choices\":1}"

static bool has_two(void *arg) {
    return strstr(((struct client *)arg)->in.data, "data: 2") != NULL;
}
static bool has_three(void *arg) {
    return strstr(((struct client *)arg)->in.data, "data: 3") != NULL;
}

static void data(struct fake *d, const struct held *h, uint64_t seq, const char *body,
                 const char *tokens) {
    fake_send(d, h, (struct dresult_frame){.kind = DR_DATA, .seq = seq}, body, tokens);
}

static void last(struct fake *d, const struct held *h, uint64_t seq, const char *body) {
    fake_send(d, h, (struct dresult_frame){.kind = DR_LAST, .seq = seq}, body, "");
}

static void has_record(const struct fake *f, const char *ids) {
    const struct transcript *t = &f->record;
    char text[256] = "";
    assert_int_equal(t->n_parts, 1);
    assert_int_equal(t->n_choices, 1);
    assert_int_equal(t->created_unix_s, 1700000000);
    assert_true(t->seed == UINT64_MAX);
    assert_int_equal(t->cached_tokens[0], 7);
    for (uint32_t i = 0; i < t->choices[0].n_ids; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), i > 0 ? ",%d" : "%d",
                 (int)t->choices[0].ids[i]);
    assert_string_equal(text, ids);
}

/* The stream has "1" from P (token 11) and "2" from D (12, 13); gives P's side of it. */
static struct held two_pieces(struct client *c) {
    struct held h = *ask(c, CHAT, STREAM);
    first_turn();
    fake_reply(&P->held[0], 200, FIRST("data: 1\\n\\n", "11"));
    data(D, &h, 0, "data: 2\n\n", "12,13");
    run_until(has_two, c);
    return h;
}

/* The second attempt, at P (or P2) and D2, to its end. */
static void goes_on(struct client *c, struct fake *p, const char *ids) {
    struct held *h = &p->held[p->n_held - 1], now = *h;
    assert_string_equal(now.epoch, "1");
    assert_string_equal(p->last_body, STREAM);
    has_record(p, ids);
    fake_reply(h, 200, FIRST("", ""));
    data(D2, &now, 0, "data: 3\n\n", "14");
    last(D2, &now, 1, "data: [DONE]\n\n");
    client_expect(c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: [DONE]\n\n");
    client_close(c);
}

static const char *recent_text(const struct json_value *o, const char *key) {
    const char *s = "";
    size_t n;
    (void)json_get_str(o, key, &s, &n);
    return s;
}

/* Of the newest record: its one lost attempt. */
static void has_lost(const char *cause, int64_t kept) {
    struct json_value *arr = relay_recent(fc.co.relays), *lost;
    int64_t v;
    assert_int_equal(json_get_arr(json_arr_at(arr, 0), "lostAttempts", &lost), JSON_OK);
    assert_int_equal(json_arr_len(lost), 1);
    const struct json_value *o = json_arr_at(lost, 0);
    assert_string_equal(recent_text(o, "cause"), cause);
    assert_int_equal(json_get_i64(o, "tokensKept", &v), JSON_OK);
    assert_int_equal(v, kept);
    assert_int_equal(json_get_i64(o, "d", &v), JSON_OK);
    assert_int_equal(v, D->id);
    assert_int_equal(budget_used(&fc.co.budget, BUDGET_TRANSCRIPT_BYTES), 0);
    json_put(arr);
}

/* ---- losses */

static bool d_is_lost(void *arg) {
    controller_poll_soon(&fc.co);
    return !inst_answers(fake_inst(arg));
}

static void d_dies(void **state) {
    struct client c;
    (void)state;
    two_pieces(&c);
    fake_kill(D);
    run_until(d_is_lost, D);
    run_until(holds_two, P);
    goes_on(&c, P, "11,12,13");
    has_lost("d_lost", 3);
}

static void a_piece_is_lost(void **state) {
    struct client c;
    (void)state;
    struct held old = two_pieces(&c);
    data(D, &old, 2, "data: 4\n\n", "15");
    run_until(holds_two, P);
    run_until(was_told_to_stop, D);
    assert_string_equal(D->stop_epoch, "0");
    data(D, &old, 1, "data: 3 of the old attempt\n\n", "14"); /* it comes too late */
    goes_on(&c, P, "11,12,13");
    has_lost("pieces_lost", 3);
}

/* D's own error of which another pair may do better; of others it may not. */
static void d_gives_it_up(void **state) {
    (void)state;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct client c;
        before(NULL);
        struct held old = two_pieces(&c);
        fake_send(
            D, &old,
            (struct dresult_frame){.kind = DR_ERROR,
                                   .seq = 1,
                                   .status = 503,
                                   .cause = elsewhere ? CAUSE_D_STOPPING : CAUSE_REQUEST_TIMEOUT},
            "data: {\"error\":\"e\"}\n\ndata: [DONE]\n\n", "");
        if (elsewhere) {
            run_until(holds_two, P);
            goes_on(&c, P, "11,12,13");
            has_lost("d_stopping", 3);
            assert_int_equal(D->n_stops, 0); /* it has let go by itself */
        } else {
            client_expect(&c, 200,
                          "data: 1\n\ndata: 2\n\ndata: {\"error\":\"e\"}\n\ndata: [DONE]\n\n");
            client_close(&c);
        }
        check_idle();
    }
}

/* Nothing comes any more, though D says it is well. */
static void d_is_silent(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.decode_silence_s = 1;
    two_pieces(&c);
    run_until(holds_two, P);
    fc.co.conf.decode_silence_s = 0;
    run_until(was_told_to_stop, D);
    goes_on(&c, P, "11,12,13");
    has_lost("d_silent", 3);
}

/* What D said before P's answer came late is no sign of silence after it. */
static void d_spoke_early(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.decode_silence_s = 1;
    struct held h = *ask(&c, CHAT, STREAM);
    data(D, &h, 0, "data: 2\n\n", "12");
    run_for(1100);
    fake_reply(&P->held[0], 200, FIRST("data: 1\\n\\n", "11"));
    run_for(300);
    last(D, &h, 1, "data: 3\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
    client_close(&c);
    assert_int_equal(P->n_held + P2->n_held, 1);
}

/* P's answer never comes; what D said early was never out, so nobody goes on behind it. */
static void p_dies_before_its_answer(void **state) {
    struct client c;
    (void)state;
    struct held old = *ask(&c, CHAT, STREAM);
    data(D, &old, 0, "data: too early\n\n", "12");
    run_for(20);
    first_turn();
    fake_kill(P);
    run_until(holds_one, P2);
    assert_int_equal(P2->record.n_parts, 0);
    struct held now = P2->held[0];
    fake_reply(&P2->held[0], 200, FIRST("data: 1\\n\\n", "11"));
    last(D, &now, 0, "data: [DONE]\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: [DONE]\n\n");
    client_close(&c);
}

/* Of an answer in one piece D tells tokens alone: the next attempt goes on behind them, and its
 * answer is all of it. */
static void a_whole_answer_goes_on(void **state) {
    struct client c;
    (void)state;
    struct held h = *ask(&c, CHAT, BODY);
    first_turn();
    fake_reply(&P->held[0], 200, FIRST("", "11"));
    data(D, &h, 0, "", "12,13");
    run_for(20);
    assert_int_equal(client_status(&c), 0);
    fake_kill(D);
    run_until(d_is_lost, D);
    run_until(holds_two, P);
    has_record(P, "11,12,13");
    struct held now = P->held[1];
    fake_reply(&P->held[1], 200, FIRST("", ""));
    data(D2, &now, 0, "", "14");
    fake_send(D2, &now, (struct dresult_frame){.kind = DR_LAST, .seq = 1}, "{\"all\":1}", "15!2");
    client_expect(&c, 200, "{\"all\":1}");
    client_close(&c);
    has_lost("d_lost", 3);
}

/* All of its tokens are there and its end is lost: behind them nothing could go on. */
static void the_end_of_a_whole_answer_is_lost(void **state) {
    struct client c;
    (void)state;
    struct held old = *ask(&c, CHAT, BODY);
    first_turn();
    fake_reply(&P->held[0], 200, FIRST("", "11"));
    data(D, &old, 0, "", "12!2");
    data(D, &old, 5, "", "");
    run_until(holds_two, P);
    assert_int_equal(P->record.n_parts, 0);
    struct held now = P->held[1];
    fake_reply(&P->held[1], 200, FIRST("", "11"));
    fake_send(D2, &now, (struct dresult_frame){.kind = DR_LAST}, "{}", "12!2");
    client_expect(&c, 200, "{}");
    client_close(&c);
    assert_int_equal(budget_used(&fc.co.budget, BUDGET_TRANSCRIPT_BYTES), 0);
}

/* Behind no token it begins again, with the seed and the clock of the first attempt. */
static void whole_answers_begin_again(void **state) {
    struct client c;
    (void)state;
    struct held old = *ask(&c, CHAT, BODY);
    first_turn();
    fake_reply(&P->held[0], 200, FIRST("", ""));
    run_for(20);
    data(D, &old, 5, "", "");
    run_until(holds_two, P);
    has_record(P, "");
    struct held now = P->held[1];
    fake_reply(&P->held[1], 200, FIRST("", ""));
    fake_send(D2, &now, (struct dresult_frame){.kind = DR_LAST}, "{}", "11,12,13!2");
    client_expect(&c, 200, "{}");
    client_close(&c);
}

static bool three_are_held(void *arg) {
    (void)arg;
    return P->n_held + P2->n_held == 3;
}

/* Twice in a row, the second time before it said anything; choices of their own. */
static void losses_add_up(void **state) {
    struct client c;
    (void)state;
    struct held h = *ask(&c, "/v1/completions", "{\"prompt\":\"x\",\"n\":2,\"stream\":true}");
    first_turn();
    fake_reply(&P->held[0], 200,
               "{\"isStream\":true,\"output\":\"data: 1\\n\\n\",\"tokens\":\"11,1:21\",\"seed\":"
               "\"5\",\"created\":9,\"cachedTokens\":[0],\"choices\":2}");
    data(D, &h, 0, "data: 2\n\n", "1:22!1,12");
    run_until(has_two, &c);
    data(D, &h, 9, "", "");
    run_until(holds_two, P);
    first_turn();
    fake_error(&P->held[1], CAUSE_KV_LINK_DOWN, 500, "{}");
    run_until(three_are_held, NULL);
    struct fake *third = P2->n_held > 0 ? P2 : P;
    struct held *at = &third->held[third->n_held - 1];
    const struct transcript *t = &third->record;
    assert_string_equal(at->epoch, "2");
    assert_int_equal(t->n_choices, 2);
    assert_int_equal(t->choices[0].n_ids, 2);
    assert_int_equal(t->choices[1].n_ids, 2);
    assert_int_equal(t->choices[1].ids[1], 22);
    assert_int_equal(t->choices[1].finish, 1);
    fake_reply(at, 200,
               "{\"isStream\":true,\"isLastResp\":true,\"output\":\"data: 3\\n\\n\","
               "\"tokens\":\"\"}");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
    client_close(&c);
}

/* ---- moves */

static void an_instance_is_drained(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.retries_max = 0; /* a move is no failure */
    two_pieces(&c);
    assert_int_equal(relay_move_off(fc.co.relays, D->id, CAUSE_DRAINED), 0);
    run_until(holds_two, P);
    run_until(was_told_to_stop, D);
    goes_on(&c, P, "11,12,13");
    has_lost("drained", 3);
}

static int64_t fetched_tokens(void) {
    struct json_value *arr = relay_recent(fc.co.relays), *lost;
    int64_t v = -1;
    assert_int_equal(json_get_arr(json_arr_at(arr, 0), "lostAttempts", &lost), JSON_OK);
    assert_int_equal(json_get_i64(json_arr_at(lost, 0), "tokensFetched", &v), JSON_OK);
    json_put(arr);
    return v;
}

/* The D that is left keeps what it computed, and the next P hears where that is: of a planned move
 * of what D has, and of nothing else. */
static void what_was_computed_is_fetched(void **state) {
    struct client c;
    char at[64];
    (void)state;
    two_pieces(&c);
    assert_null(strstr(P->last_headers, "baton-kv-at"));
    const struct inst *left = fake_inst(D);
    snprintf(at, sizeof(at), "baton-kv-at: %s;%u\n", left->node.ip, left->node.inter_comm_port);
    assert_int_equal(relay_move_off(fc.co.relays, D->id, CAUSE_ROLE_SWITCHED), 0);
    run_until(holds_two, P);
    run_until(was_told_to_stop, D);
    assert_true(D->stop_keeps);
    assert_non_null(strstr(P->last_headers, at));
    struct held *h = &P->held[1], now = *h;
    fake_reply(h, 200,
               "{\"reqId\":\"1\",\"isStream\":true,\"isLastResp\":false,\"output\":\"\","
               "\"tokens\":\"\",\"created\":1700000000,\"seed\":\"18446744073709551615\","
               "\"cachedTokens\":[7],"
               "\"fetchedTokens\":48}");
    last(D2, &now, 0, "data: [DONE]\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n");
    assert_int_equal(fetched_tokens(), 48);
    client_close(&c);
}

static void of_a_loss_nothing_is_fetched(void **state) {
    struct client c;
    (void)state;
    struct held old = two_pieces(&c);
    data(D, &old, 2, "data: 4\n\n", "15"); /* a piece is lost */
    run_until(holds_two, P);
    run_until(was_told_to_stop, D);
    assert_false(D->stop_keeps);
    assert_null(strstr(P->last_headers, "baton-kv-at"));
    goes_on(&c, P, "11,12,13");
    assert_int_equal(fetched_tokens(), 0);
}

/* Of a stream that nothing is known of a move makes no failure: it stays. */
static void what_cannot_move_stays(void **state) {
    struct client c;
    (void)state;
    struct held h = *ask(&c, CHAT, STREAM);
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &c);
    assert_int_equal(relay_move_off(fc.co.relays, D->id, CAUSE_DRAINED), 1);
    last(D, &h, 0, "data: 2\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\n");
    client_close(&c);
}

/* ---- bounds */

static void no_attempt_is_left(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.retries_max = 0;
    struct held old = two_pieces(&c);
    data(D, &old, 7, "", "");
    bool whole;
    run_until(client_done, &c);
    char *got = client_body(&c, &whole);
    assert_non_null(
        strstr(got, "data: 2\n\ndata: {\"error\":\"Read messages from instance failed\""));
    free(got);
    client_close(&c);
}

/* No room for what the client has: the stream goes on, and ends with its D. */
static void transcripts_are_bounded(void **state) {
    struct client c;
    (void)state;
    budget_limit_set(&fc.co.budget, BUDGET_TRANSCRIPT_BYTES, 16);
    struct held old = two_pieces(&c);
    assert_int_equal(budget_used(&fc.co.budget, BUDGET_TRANSCRIPT_BYTES), 0);
    assert_int_equal(budget_refusals(&fc.co.budget, BUDGET_TRANSCRIPT_BYTES), 1);
    data(D, &old, 1, "data: 3\n\n", "14");
    run_until(has_three, &c);
    assert_int_equal(relay_move_off(fc.co.relays, D->id, CAUSE_DRAINED), 1);
    last(D, &old, 2, "data: [DONE]\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: [DONE]\n\n");
    client_close(&c);
    budget_limit_set(&fc.co.budget, BUDGET_TRANSCRIPT_BYTES, UINT64_MAX);
}

/* Tokens that cannot be: nothing is known of the client any more, and nothing breaks. */
static void tokens_that_cannot_be(void **state) {
    struct client c;
    (void)state;
    struct held old = *ask(&c, CHAT, STREAM);
    fake_reply(&P->held[0], 200, FIRST("data: 1\\n\\n", "11"));
    data(D, &old, 0, "data: 2\n\n", "5:12");
    run_until(has_two, &c);
    assert_int_equal(relay_move_off(fc.co.relays, D->id, CAUSE_DRAINED), 1);
    last(D, &old, 1, "data: 3\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
    client_close(&c);
}

/* ---- what else happens meanwhile */

static bool client_has_comment(void *arg) {
    return strstr(((struct client *)arg)->in.data, "data: 2\n\n\r\n3\r\n:\n\n") != NULL;
}

/* Nobody is there to go on: comments keep the stream open, and the client may leave or stop it. */
static void while_nobody_is_there(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct client c, s;
        char body[64];
        before(NULL);
        fc.co.conf.sse_keep_alive_s = 1;
        fake_inst(P2)->ledger.tasks += 1000;
        struct held old = two_pieces(&c);
        fake_inst(P)->ledger.tasks += 1000;
        data(D, &old, 7, "", "");
        wait_queue(1);
        run_until(client_has_comment, &c);
        if (how == 1) {
            snprintf(body, sizeof(body), "{\"id\":\"%s\"}", old.req_id);
            client_ask(&s, "POST", "/v2/models/m/stopInfer", "", body);
            client_expect(&s, 200, body);
            client_close(&s);
            run_until(client_done, &c);
            assert_non_null(strstr(c.in.data, "The request was stopped."));
        }
        if (how == 2) {
            fc.co.conf.infer_timeout_s = 1;
            run_until(client_done, &c);
            assert_non_null(strstr(c.in.data, "Request inference timeout"));
        }
        client_close(&c);
        wait_queue(0);
        fake_inst(P)->ledger.tasks -= 1000;
        fake_inst(P2)->ledger.tasks -= 1000;
        check_idle();
    }
}

/* Past its time, whoever says so, it gets no further attempt: that of P, of D, and our own. */
static void past_its_time(void **state) {
    (void)state;
    for (int who = 0; who < 3; who++) {
        struct client c;
        before(NULL);
        if (who == 0) {
            (void)ask(&c, CHAT, STREAM);
            fake_error(&P->held[0], CAUSE_REQUEST_TIMEOUT, 424, "{}");
            client_expect(&c, 424, "{}");
        } else {
            struct held old = two_pieces(&c);
            const struct dresult_frame late = {
                .kind = DR_ERROR, .seq = 1, .status = 500, .cause = CAUSE_REQUEST_TIMEOUT};
            if (who == 1)
                fake_send(D, &old, late, "data: late\n\n", "");
            else
                fc.co.conf.infer_timeout_s = 1;
            run_until(client_done, &c);
            assert_non_null(
                strstr(c.in.data, who == 1 ? "data: late" : "Request inference timeout"));
            if (who == 2) { /* what is lost afterwards begins nothing */
                fake_kill(D);
                run_until(d_is_lost, D);
            }
        }
        client_close(&c);
        wait_queue(0);
        assert_int_equal(P->n_held + P2->n_held, 1);
        check_idle();
    }
}

/* A client that has a part of its answer is served before those that have nothing, and never pushed
 * out for others. */
static void who_has_begun_goes_first(void **state) {
    struct client a, b, c;
    (void)state;
    fc.co.conf.reordering_type = 2; /* shortest first */
    fake_inst(P2)->ledger.tasks += 1000;
    struct held old = two_pieces(&a);
    fake_inst(P)->ledger.tasks += 1000;
    data(D, &old, 7, "", "");
    wait_queue(1);
    client_ask(&b, "POST", "/infer", "", "{\"inputs\":\"x\"}");
    wait_queue(2);
    fc.co.conf.requests_max = 2;
    fc.client_ip = "127.0.0.2";
    client_ask(&c, "POST", "/infer", "", "{\"inputs\":\"x\"}");
    run_until(client_done, &b);
    assert_int_equal(client_status(&b), 429);
    client_close(&b);
    wait_queue(2);
    fc.co.conf.single_node_requests_max = 1;
    first_turn();
    fake_inst(P)->ledger.tasks -= 1000;
    run_until(holds_two, P);
    fc.co.conf.single_node_requests_max = 1000;
    goes_on(&a, P, "11,12,13");
    fake_inst(P2)->ledger.tasks -= 1000;
    run_until(three_are_held, NULL);
    struct fake *last_p = P2->n_held > 0 ? P2 : P;
    fake_reply(&last_p->held[last_p->n_held - 1], 422, "{}");
    client_expect(&c, 422, "{}");
    client_close(&c);
}

/* Who asked for the end gets no other attempt. */
static void a_stop_is_under_way(void **state) {
    struct client c, s;
    char body[64];
    (void)state;
    struct held old = two_pieces(&c);
    snprintf(body, sizeof(body), "{\"id\":\"%s\"}", old.req_id);
    client_ask(&s, "POST", "/v2/models/m/stopInfer", "", body);
    client_expect(&s, 200, body);
    client_close(&s);
    data(D, &old, 7, "", "");
    run_until(client_done, &c);
    assert_non_null(strstr(c.in.data, "The request was stopped."));
    client_close(&c);
    assert_int_equal(P->n_held + P2->n_held, 1);
}

static void attempts_in_the_head(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.attempts_header = true;
    (void)ask(&c, CHAT, BODY);
    first_turn();
    fake_reply(&P->held[0], 429, "{}");
    run_until(holds_one, P2);
    fake_reply(&P2->held[0], 200, "{\"isLastResp\":true,\"output\":\"{}\"}");
    client_expect(&c, 200, "{}");
    assert_non_null(strstr(c.in.data, "\r\nx-baton-attempts: 2\r\n"));
    client_close(&c);
}

/* ---- the recording */

/* What it says of a request: its events in their order, a decision without a pair as "none". */
static void told(const char *path, const char *id, char out[256]) {
    char *line = NULL, of[64], event[32];
    size_t cap = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    out[0] = 0;
    snprintf(of, sizeof(of), "\"id\":\"%s\"", id);
    while (getline(&line, &cap, f) > 0) {
        assert_int_equal(sscanf(line, "{\"event\":\"%31[a-z]", event), 1);
        if (strstr(line, of) == NULL) continue;
        const bool none = strstr(line, "\"choice\":null") != NULL;
        snprintf(out + strlen(out), 256 - strlen(out), "%s ", none ? "none" : event);
    }
    free(line);
    fclose(f);
}

static void all_of_it_is_recorded(void **state) {
    struct client c;
    char path[] = "/tmp/baton-relay-XXXXXX", events[256];
    struct errbuf eb = {0};
    (void)state;
    assert_non_null(mkdtemp(path));
    char *file = test_malloc(sizeof(path) + 8);
    snprintf(file, sizeof(path) + 8, "%s/run", path);
    assert_int_equal(recorder_open(&fc.co.recorder, file, 1 << 20, &fc.co.sched, &eb), ERR_OK);
    fake_inst(P2)->ledger.tasks += 1000;
    struct held old = two_pieces(&c);
    fake_inst(P)->ledger.tasks += 1000;
    data(D, &old, 7, "", "");
    wait_queue(1);
    for (int i = 0; i < 3; i++) relay_schedule(fc.co.relays); /* it is said once */
    fake_inst(P)->ledger.tasks -= 1000;
    relay_schedule(fc.co.relays);
    run_until(holds_two, P);
    goes_on(&c, P, "11,12,13");
    fake_inst(P2)->ledger.tasks -= 1000;
    recorder_close(&fc.co.recorder);
    told(file, old.req_id, events);
    assert_string_equal(events,
                        "request decision first tokens lost none decision first tokens end ");
    unlink(file);
    rmdir(path);
    test_free(file);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(d_dies),
        CASE(a_piece_is_lost),
        CASE(d_gives_it_up),
        CASE(d_is_silent),
        CASE(d_spoke_early),
        CASE(p_dies_before_its_answer),
        CASE(a_whole_answer_goes_on),
        CASE(the_end_of_a_whole_answer_is_lost),
        CASE(whole_answers_begin_again),
        CASE(losses_add_up),
        CASE(an_instance_is_drained),
        CASE(what_was_computed_is_fetched),
        CASE(of_a_loss_nothing_is_fetched),
        CASE(what_cannot_move_stays),
        CASE(no_attempt_is_left),
        CASE(transcripts_are_bounded),
        CASE(tokens_that_cannot_be),
        CASE(while_nobody_is_there),
        CASE(past_its_time),
        CASE(who_has_begun_goes_first),
        CASE(a_stop_is_under_way),
        CASE(attempts_in_the_head),
        CASE(all_of_it_is_recorded),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
