/* Goal: a request of a client ends exactly once, with the right bytes, whatever its instances do,
 * and leaves nothing behind. Method: a real coordinator over instances of the test
 * (relay_fixture.h). The test plays P, D and the client step by step. After each case nothing may
 * be in flight or booked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/relay_fixture.h"

/* ---- the good ways */
static void one_answer(void **state) {
    struct client c;
    (void)state;
    struct held *h = ask(&c, CHAT, BODY);
    struct held held = *h;
    fake_reply(h, 200, FIRST_ONCE);
    run_for(20);
    assert_int_equal(c.in.len, 0); /* nothing until D has ended */
    fake_frame(D, &held, 0, DR_LAST, 0, "{\"whole\":\"body\"}");
    client_expect(&c, 200, "{\"whole\":\"body\"}");
    assert_true(client_has(&c, "Content-Type: application/json; charset=utf-8"));
    assert_true(client_has(&c, "Server: MindIE-MS"));
    assert_true(client_has(&c, "RequestUUID: "));
    client_close(&c);
    struct json_value *arr = relay_recent(fc.co.relays), *o = json_arr_at(arr, 0);
    int64_t v;
    assert_int_equal(json_get_i64(o, "p", &v), JSON_OK);
    assert_int_equal(v, P->id);
    assert_int_equal(json_get_i64(o, "d", &v), JSON_OK);
    assert_int_equal(v, D->id);
    assert_int_equal(json_get_i64(o, "kvBytes", &v), JSON_OK);
    assert_int_equal(v, 5);
    json_put(arr);
}

/* What goes to P: the body as it came, the path of the table, the headers of cluster-api 5.1,
 * tracing, and nothing else of the client's. */
static void what_p_gets(void **state) {
    struct client c;
    char want[64];
    (void)state;
    client_ask(&c, "POST", "/v2/models/m/versions/1/generate",
               "req-type: decode\r\nreq-id: evil\r\nd-target: 1.1.1.1\r\nis-recompute: true\r\n"
               "req-epoch: 77\r\nAuthorization: Bearer secret\r\ntraceparent: 00-ab\r\n"
               "X-B3-TraceId: 5\r\nX-Request-Id: mine\r\n",
               "{\"text_input\":\"x\"}");
    run_until(holds_one, P);
    struct held held = P->held[0];
    assert_string_equal(held.path, "/v2/models/m/generate");
    assert_string_equal(P->last_body, "{\"text_input\":\"x\"}");
    assert_string_equal(held.epoch, "0");
    snprintf(want, sizeof(want), "d-target: 127.0.0.1;%u\n", D->port);
    assert_non_null(strstr(P->last_headers, want));
    snprintf(want, sizeof(want), "d-port: %u\n", D->port);
    assert_non_null(strstr(P->last_headers, want));
    snprintf(want, sizeof(want), "req-id: %s\n", held.req_id);
    assert_non_null(strstr(P->last_headers, want));
    static const char *const there[] = {"req-type: prefill\n", "traceparent: 00-ab\n",
                                        "X-B3-TraceId: 5\n", "X-Request-Id: mine\n",
                                        "User-Agent: Coordinator/1.0\n"};
    static const char *const absent[] = {"evil",          "decode", "1.1.1.1",
                                         "req-epoch: 77", "secret", "recompute"};
    for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
        assert_non_null(strstr(P->last_headers, there[i]));
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        assert_null(strstr(P->last_headers, absent[i]));
    assert_int_equal(strspn(held.req_id, "0123456789"), strlen(held.req_id));
    fake_reply(&P->held[0], 200,
               "{\"reqId\":\"1\",\"isStream\":false,\"isLastResp\":true,\"output\":"
               "\"{}\"}");
    client_expect(&c, 200, "{}");
    assert_true(client_has(&c, "X-Request-Id: mine"));
    client_close(&c);
}

/* P's piece first, then D's in order, whatever came first on the wire. */
static void pieces_in_order(void **state) {
    struct client c;
    (void)state;
    struct held *h = ask(&c, CHAT, STREAM);
    struct held held = *h;
    fake_frame(D, &held, 0, DR_DATA, 0, "data: 2\n\n");
    fake_frame(D, &held, 1, DR_DATA, 0, "data: 3\n\n");
    run_for(20);
    assert_int_equal(c.in.len, 0);
    fake_reply(
        h, 200,
        "{\"reqId\":\"1\",\"isStream\":true,\"isLastResp\":false,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &c);
    assert_true(client_has(&c, "Content-Type: text/event-stream; charset=utf-8"));
    assert_true(client_has(&c, "Cache-Control: no-cache"));
    fake_frame(D, &held, 1, DR_DATA, 0, "data: 3\n\n"); /* repeated, as after a reconnect */
    fake_frame(D, &held, 0, DR_DATA, 0, "data: 2\n\n");
    fake_frame(D, &held, 2, DR_LAST, 0, "data: 4\n\ndata: [DONE]\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: [DONE]\n\n");
    client_close(&c);

    /* all of D's, its last too, before P's */
    first_turn();
    client_ask(&c, "POST", CHAT, "", STREAM);
    run_until(holds_two, P);
    held = P->held[1];
    fake_frame(D, &held, 0, DR_DATA, 0, "data: 2\n\n");
    fake_frame(D, &held, 1, DR_LAST, 0, "data: 3\n\n");
    run_for(20);
    fake_reply(&P->held[1], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
    client_close(&c);
}

/* A piece in parts is put together, before and after P's answer, with others' frames in between,
 * and nothing of it stays behind, however the request ends. */
static void pieces_in_parts(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, BODY);
    fake_frame(D, &held, 0, DR_PART, 0, "{\"a\":");
    fake_frame(D, &held, 1, DR_PART, 0, "\"long");
    run_for(20);
    assert_true(budget_used(&fc.co.budget, BUDGET_ANSWER_BYTES) > 0);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    run_for(20);
    fake_frame(D, &held, 1, DR_PART, 0, "\"long"); /* repeated, as after a reconnect */
    fake_frame(D, &held, 2, DR_LAST, 0, "er\"}");
    client_expect(&c, 200, "{\"a\":\"longer\"}");
    client_close(&c);

    before(NULL);
    held = *ask(&c, CHAT, STREAM);
    fake_frame(D, &held, 0, DR_PART, 0, "data");
    fake_frame(D, &held, 1, DR_DATA, 0, ": 2\n\n");
    fake_frame(D, &held, 2, DR_PART, 0, "data: ");
    run_for(20);
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    fake_frame(D, &held, 3, DR_LAST, 0, "3\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
    client_close(&c);

    before(NULL); /* the end is an error: what came of the piece goes */
    held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    fake_frame(D, &held, 0, DR_PART, 0, "{\"error\":");
    fake_frame(D, &held, 1, DR_ERROR, 424, "\"x\"}");
    client_expect(&c, 424, "{\"error\":\"x\"}");
    client_close(&c);

    before(NULL); /* the client goes in the middle */
    held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    fake_frame(D, &held, 0, DR_PART, 0, "{\"a\":");
    run_for(20);
    client_close(&c);
    run_until(was_told_to_stop, D);
    check_idle();
    assert_int_equal(budget_used(&fc.co.budget, BUDGET_ANSWER_BYTES), 0);
}

/* The coordinator keeps no more of answers than it may: the one that would go over it ends. */
static void answers_are_bounded(void **state) {
    struct client c;
    char part[1001];
    (void)state;
    memset(part, 'x', 1000);
    part[1000] = 0;
    budget_limit_set(&fc.co.budget, BUDGET_ANSWER_BYTES, 2500);
    struct held held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    for (unsigned i = 0; i < 3; i++) fake_frame(D, &held, i, DR_PART, 0, part);
    client_expect(&c, 503,
                  "{\"error\":\"The answers under way are over the limit of 2500 bytes "
                  "(limits.answersMiB)\",\"error_type\":\"Service Unavailable\",\"object\":"
                  "\"error\",\"message\":\"The answers under way are over the limit of 2500 bytes "
                  "(limits.answersMiB)\",\"type\":\"ServiceUnavailableError\",\"param\":null,"
                  "\"code\":503}");
    assert_true(client_has(&c, "Retry-After: 1"));
    client_close(&c);
    run_until(was_told_to_stop, D);
    assert_int_equal(budget_used(&fc.co.budget, BUDGET_ANSWER_BYTES), 0);
    assert_int_equal(budget_refusals(&fc.co.budget, BUDGET_ANSWER_BYTES), 1);
    budget_limit_set(&fc.co.budget, BUDGET_ANSWER_BYTES, UINT64_MAX);
}

static bool client_has_comment(void *arg) {
    return strstr(((struct client *)arg)->in.data, ":\n\n") != NULL;
}

/* Comments count from the arrival. The head they need is no piece of an answer: another attempt is
 * still made, and an error is an event. */
static void comments_before_the_first_token(void **state) {
    static const struct {
        const char *reply, *want;
        int status;
        bool d_fails;
    } rows[] = {
        {"{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}", "data: 1\n\ndata: 2\n\n", 200, false},
        {"{\"isStream\":true,\"output\":\"\"}", "data: {\"error\":\"x\"}\n\ndata: [DONE]\n\n", 200,
         true},
        {"{\"error\":\"bad\"}", "data: {\"error\":\"bad\"}\n\ndata: [DONE]\n\n", 422, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client c;
        before(NULL);
        fc.co.conf.sse_keep_alive_s = 1;
        (void)ask(&c, CHAT, STREAM);
        run_until(client_has_comment, &c);
        assert_true(client_has(&c, "HTTP/1.1 200 OK"));
        assert_true(client_has(&c, "Content-Type: text/event-stream"));
        first_turn();
        fake_reply(&P->held[0], 429, "{\"error\":\"Too many requests\"}");
        run_until(holds_one, P2);
        struct held held = P2->held[0];
        fake_reply(&P2->held[0], rows[i].status, rows[i].reply);
        if (rows[i].d_fails)
            fake_frame(D, &held, 0, DR_ERROR, 424, "{\"error\":\"x\"}");
        else if (rows[i].status == 200)
            fake_frame(D, &held, 0, DR_LAST, 0, "data: 2\n\n");
        bool whole;
        run_until(client_done, &c);
        char *got = client_body(&c, &whole), *rest = got;
        while (strncmp(rest, ":\n\n", 3) == 0) rest += 3;
        assert_true(whole && rest > got);
        assert_string_equal(rest, rows[i].want);
        free(got);
        client_close(&c);
    }
}

/* The first token ends it. */
static void ends_at_p(void **state) {
    struct client c;
    (void)state;
    fake_reply(ask(&c, CHAT, STREAM), 200,
               "{\"isStream\":true,\"isLastResp\":true,\"output\":\"data: 1\\n\\ndata: "
               "[DONE]\\n\\n\"}");
    client_expect(&c, 200, "data: 1\n\ndata: [DONE]\n\n");
    client_close(&c);
    assert_int_equal(D->n_stops, 0);
}

/* ---- P's other answers */
static void p_refuses_the_request(void **state) {
    struct client c;
    (void)state;
    fake_reply(ask(&c, CHAT, STREAM), 422, "{\"error\":\"bad\",\"error_type\":\"x\"}");
    client_expect(&c, 422, "{\"error\":\"bad\",\"error_type\":\"x\"}");
    assert_true(client_has(&c, "Content-Type: application/json"));
    client_close(&c);
    assert_int_equal(P2->n_held, 0);
}

/* What P answers without generating anything is the client's answer, of a stream too. */
static void p_answers_by_itself(void **state) {
    struct client c;
    (void)state;
    fake_error(ask(&c, CHAT, STREAM), CAUSE_ANSWERED, 200, "{\"done_reason\":\"load\"}");
    client_expect(&c, 200, "{\"done_reason\":\"load\"}");
    assert_true(client_has(&c, "Content-Type: application/json"));
    client_close(&c);
    assert_int_equal(P2->n_held, 0);
}

/* P is full, has no role any more, stops, or cannot hand over: another pair serves. */
static void p_cannot(void **state) {
    static const struct {
        int status;
        enum cause cause; /* NONE: the status says enough */
        bool hand_over;   /* then it is D that is avoided */
    } rows[] = {
        {429, CAUSE_NONE, false},          {503, CAUSE_NONE, false},
        {500, CAUSE_NONE, false},          {424, CAUSE_P_FULL, false},
        {400, CAUSE_P_NOT_PREFILL, false}, {500, CAUSE_P_FAILED, false},
        {500, CAUSE_KV_LINK_DOWN, true},   {500, CAUSE_D_FULL, true},
        {500, CAUSE_D_STOPPING, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client c;
        before(NULL);
        struct held old = *ask(&c, CHAT, BODY);
        first_turn();
        if (rows[i].cause == CAUSE_NONE)
            fake_reply(&P->held[0], rows[i].status, "{}");
        else
            fake_error(&P->held[0], rows[i].cause, rows[i].status, "{}");
        struct fake *next = rows[i].hand_over ? P : P2, *d = rows[i].hand_over ? D2 : D;
        run_until(rows[i].hand_over ? holds_two : holds_one, next);
        struct held now = next->held[next->n_held - 1];
        assert_string_equal(now.req_id, old.req_id);
        assert_string_equal(now.epoch, "1");
        fake_reply(&next->held[next->n_held - 1], 200, FIRST_ONCE);
        fake_frame(d, &old, 0, DR_LAST, 0, "of the old attempt");
        fake_frame(d, &now, 0, DR_LAST, 0, "{}");
        client_expect(&c, 200, "{}");
        client_close(&c);
        check_idle();
    }
}

static bool has_retried(void *arg) {
    struct relay_counts now;
    relay_counts(fc.co.relays, &now);
    return now.retried > *(const uint64_t *)arg;
}

/* The request goes elsewhere, and nobody takes the link for a bad one. */
static bool d2_is_larger(void *arg) {
    (void)arg;
    return fake_inst(D2)->facts.status.total_slots > fake_inst(D)->facts.status.total_slots;
}

/* What D can never take is the client's affair at once, unless another D is larger. */
static void d_is_too_small(void **state) {
    struct client c;
    struct relay_counts start, end;
    (void)state;
    for (int larger = 0; larger <= 1; larger++) {
        before(NULL);
        (void)ask(&c, CHAT, BODY);
        first_turn();
        relay_counts(fc.co.relays, &start);
        if (larger) {
            D2->slots = 16;
            run_until(d2_is_larger, NULL);
        }
        fake_error(&P->held[0], CAUSE_D_TOO_SMALL, 424, "{\"error\":\"n is 9\"}");
        if (larger) {
            run_until(holds_two, P);
            struct held now = P->held[1];
            fake_reply(&P->held[1], 200, FIRST_ONCE);
            fake_frame(D2, &now, 0, DR_LAST, 0, "{}");
        }
        client_expect(&c, larger ? 200 : 424, larger ? "{}" : "{\"error\":\"n is 9\"}");
        client_close(&c);
        relay_counts(fc.co.relays, &end);
        assert_int_equal(end.retried - start.retried, larger);
    }
    D2->slots = D->slots;
}

static void d_refuses(void **state) {
    struct client c;
    struct relay_counts start;
    (void)state;
    relay_counts(fc.co.relays, &start);
    (void)ask(&c, CHAT, BODY);
    first_turn();
    fake_error(&P->held[0], CAUSE_D_REFUSED, 500, "{\"error\":\"no room\"}");
    run_until(has_retried, &start.retried);
    assert_true(inst_link_ok(fake_inst(P), D->id));
    run_until(holds_two, P);
    struct held now = P->held[1];
    fake_reply(&P->held[1], 200, FIRST_ONCE);
    fake_frame(D2, &now, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    assert_int_equal(D->n_stops, 0);
}

/* The link broke, and what was lost may be D's word that it has taken the request: whether another
 * pair serves now or none, D hears that nobody waits for it. A plain refusal of D's leaves nothing
 * there. */
static void a_broken_link_leaves_no_decode(void **state) {
    static const char lost[] = "{\"error\":\"the link\"}";
    (void)state;
    for (int retries = 0; retries < 2; retries++) {
        struct client c;
        before(NULL);
        fc.co.conf.retries_max = retries;
        struct held old = *ask(&c, CHAT, BODY);
        first_turn();
        fake_frame(D, &old, 0, DR_DATA, 0, "D decodes");
        fake_error(&P->held[0], CAUSE_KV_LINK_DOWN, 500, lost);
        run_until(was_told_to_stop, D);
        assert_string_equal(D->stops[0], old.req_id);
        if (retries > 0) {
            run_until(holds_two, P);
            struct held now = P->held[1];
            fake_reply(&P->held[1], 200, FIRST_ONCE);
            fake_frame(D2, &now, 0, DR_LAST, 0, "{}");
        }
        client_expect(&c, retries > 0 ? 200 : 500, retries > 0 ? "{}" : lost);
        client_close(&c);
        assert_int_equal(D2->n_stops, 0);
        check_idle();
    }
}

/* No attempt is left: P's own word goes out, with a hint when to come again. */
static void no_attempt_left(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.retries_max = 0;
    fake_reply(ask(&c, CHAT, BODY), 429, "{\"error\":\"Too many requests\"}");
    client_expect(&c, 429, "{\"error\":\"Too many requests\"}");
    assert_true(client_has(&c, "Retry-After: 1"));
    client_close(&c);
}

/* P answers nonsense: it may have handed over already, so D hears of the end; another one serves.
 */
static void p_talks_nonsense(void **state) {
    static const char *const bodies[] = {"", "[1]",
                                         "{\"reqId\":", "{\"isStream\":false,\"tokens\":\"x\"}"};
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        const bool last = i >= 4; /* no attempt is left */
        struct client c;
        before(NULL);
        if (last) fc.co.conf.retries_max = 0;
        struct held *h = ask(&c, "/generate", "{\"inputs\":\"x\"}");
        first_turn();
        fake_reply(h, 200, bodies[i % 4]);
        if (!last) {
            run_until(holds_one, P2);
            fake_reply(&P2->held[0], 200, "{\"isLastResp\":true,\"output\":\"{}\"}");
        }
        client_expect(&c, last ? 500 : 200,
                      last ? "{\"error\":\"P instance error\",\"error_type\":"
                             "\"Incomplete Generation\"}"
                           : "{}");
        client_close(&c);
        run_until(was_told_to_stop, D);
    }
}

/* As many tokens as a transcript can have are read; a list of one more is not. */
static void p_lists_too_many_tokens(void **state) {
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct client c;
        struct buf body = BUF_INIT;
        before(NULL);
        fc.co.conf.retries_max = 0;
        struct held *h = ask(&c, "/generate", "{\"inputs\":\"x\"}");
        first_turn();
        buf_puts(&body, "{\"isLastResp\":true,\"output\":\"{}\",\"tokens\":\"7");
        for (size_t i = 1; i < TRANSCRIPT_IDS_MAX + more; i++) buf_puts(&body, ",7");
        buf_puts(&body, "\"}");
        assert_false(body.failed);
        fake_reply(h, 200, body.data);
        client_expect(&c, more ? 500 : 200,
                      more ? "{\"error\":\"P instance error\",\"error_type\":"
                             "\"Incomplete Generation\"}"
                           : "{}");
        client_close(&c);
        buf_free(&body);
    }
}

/* P dies: the other one serves; the D that may work for the old attempt is told, with its epoch, so
 * that the new one is safe there. */
static void p_dies(void **state) {
    struct client c;
    (void)state;
    struct held old = *ask(&c, CHAT, BODY);
    fake_frame(D, &old, 0, DR_LAST, 0, "too early, and then P is gone");
    run_for(20);
    first_turn();
    fake_kill(P);
    run_until(holds_one, P2);
    struct held now = P2->held[0];
    assert_string_equal(now.epoch, "1");
    fake_reply(&P2->held[0], 200, FIRST_ONCE);
    run_for(20);
    assert_int_equal(c.in.len, 0);
    fake_frame(D, &now, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    run_until(was_told_to_stop, D);
    assert_string_equal(D->stop_epoch, old.epoch);
}

static void p_dies_and_d_changes(void **state) {
    struct client a, b;
    (void)state;
    struct held old = *ask(&a, CHAT, BODY);
    /* The second request takes the other pair. It goes on, so that D has more to do than D2. */
    client_ask(&b, "POST", CHAT, "", BODY);
    run_until(holds_one, P2);
    fake_inst(D)->ledger.booked.blocks += 50;
    fake_kill(P);
    run_until(holds_two, P2);
    run_until(was_told_to_stop, D);
    fake_inst(D)->ledger.booked.blocks -= 50;
    assert_string_equal(D->stops[0], old.req_id);
    for (size_t i = 0; i < 2; i++) {
        struct held h = P2->held[i];
        fake_reply(&P2->held[i], 200, FIRST_ONCE);
        fake_frame(D2, &h, 0, DR_LAST, 0, "{}");
    }
    client_expect(&a, 200, "{}");
    client_expect(&b, 200, "{}");
    client_close(&a);
    client_close(&b);
}

static bool holds_more(void *arg) {
    return P->n_held > *(const size_t *)arg;
}

/* Nobody else is there: the same P is tried again, later and later, and then its word goes out. */
static void p_stays_full(void **state) {
    struct client c;
    (void)state;
    fake_kill(P2);
    fc.co.conf.retries_max = 2;
    fc.co.conf.instance_retries = 1000000; /* P2 counts as healthy, and is tried in between */
    uint64_t began = clock_ms();
    (void)ask(&c, CHAT, BODY);
    fake_inst(P2)->ledger.tasks = 1000;
    for (size_t i = 0; i < 3; i++) {
        run_until(holds_more, &i);
        fake_reply(&P->held[i], 429, "{\"error\":\"full\"}");
    }
    client_expect(&c, 429, "{\"error\":\"full\"}");
    assert_true(clock_ms() - began >= 100 + 200);
    client_close(&c);
    fake_inst(P2)->ledger.tasks = 0;
}

/* Nobody is there at all: the request waits until somebody is. */
static void all_p_die(void **state) {
    struct client c;
    (void)state;
    (void)ask(&c, CHAT, BODY);
    fake_kill(P2);
    fake_kill(P);
    run_for(500);
    assert_int_equal(c.in.len, 0);
    P->n_held = 0;
    fake_open(P, P->port);
    run_until(holds_one, P);
    struct held held = P->held[0];
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    fake_frame(D, &held, 0, DR_LAST, 0,
               "{}"); /* it is for one of them, and no matter to the other */
    fake_frame(D2, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
}

/* ---- D's ends */
static void d_error_before_anything(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, STREAM);
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"\"}");
    fake_frame(D, &held, 0, DR_ERROR, 424, "{\"error\":\"e\"}");
    client_expect(&c, 424, "{\"error\":\"e\"}");
    assert_true(client_has(&c, "Content-Type: application/json"));
    client_close(&c);
}

static void d_error_in_a_stream(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, STREAM); /* of a P that tells no tokens */
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &c);
    fake_frame(D, &held, 0, DR_ERROR, 500, "data: {\"error\":\"e\"}\n\ndata: [DONE]\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: {\"error\":\"e\"}\n\ndata: [DONE]\n\n");
    client_close(&c);
}

/* D asks for another attempt with a body of its own. */
static void d_asks_for_another(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    first_turn();
    fake_frame(D, &held, 0, DR_RETRY, 0, "{\"messages\":\"2,5,6,7\"}");
    run_until(holds_two, P);
    assert_string_equal(P->last_body, "{\"messages\":\"2,5,6,7\"}");
    assert_non_null(strstr(P->last_headers, "is-recompute: true\n"));
    assert_string_equal(P->held[1].epoch, "1");
    held = P->held[1];
    fake_reply(&P->held[1], 200, FIRST_ONCE);
    fake_frame(D, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
}

static bool d_is_lost(void *arg) {
    controller_poll_soon(&fc.co);
    return !inst_answers(fake_inst(arg));
}

static bool three_are_held(void *arg) {
    (void)arg;
    return P->n_held + P2->n_held == 3;
}
static bool two_are_tried_again(void *arg) {
    int n = 0;
    (void)arg;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < fc.fakes[i].n_held; k++)
            n += fc.fakes[i].held[k].x != NULL && strcmp(fc.fakes[i].held[k].epoch, "1") == 0;
    return n == 2;
}

/* D dies: who has seen nothing is served by another pair, in every state; a stream that has begun
 * ends with one error. */
static void d_dies(void **state) {
    struct client early, whole, stream;
    (void)state;
    client_ask(&whole, "POST", CHAT, "", BODY);
    run_until(holds_one, P);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    run_for(20);
    fake_inst(D2)->ledger.booked.blocks += 50; /* all go to D */
    first_turn();
    client_ask(&stream, "POST", CHAT, "", STREAM);
    run_until(holds_two, P);
    fake_reply(&P->held[1], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &stream);
    client_ask(&early, "POST", CHAT, "", BODY);
    run_until(three_are_held, NULL);
    fake_inst(D2)->ledger.booked.blocks -= 50;
    fake_kill(D);
    run_until(d_is_lost, D);
    client_expect(
        &stream, 200,
        "data: 1\n\ndata: {\"error\":\"Read messages from instance failed\",\"error_type\":"
        "\"Incomplete Generation\",\"object\":\"error\",\"message\":\"Read messages from "
        "instance failed\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}\n\n"
        "data: [DONE]\n\n");
    client_close(&stream);
    run_until(two_are_tried_again, NULL); /* for D2 */
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < fc.fakes[i].n_held; k++) {
            struct held *h = &fc.fakes[i].held[k];
            if (h->x == NULL || strcmp(h->epoch, "1") != 0) continue;
            struct held held = *h;
            fake_reply(h, 200, FIRST_ONCE);
            fake_frame(D2, &held, 0, DR_LAST, 0, "{}");
        }
    client_expect(&early, 200, "{}");
    client_expect(&whole, 200, "{}");
    client_close(&early);
    client_close(&whole);
}

/* Only the stream breaks: D comes back with everything it kept. */
static bool is_known_lost(void *arg) {
    const struct fake *f = arg;
    controller_poll_soon(&fc.co);
    return fake_inst(f)->facts.status.stuck_ms == f->stuck_ms;
}

/* D's engine stands still: for a while what runs there waits, then it goes to the other D. */
static void d_is_stuck(void **state) {
    struct client c;
    (void)state;
    struct held old = *ask(&c, CHAT, BODY);
    first_turn();
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    D->stuck_ms = 5000;
    run_until(is_known_lost, D);
    run_for(50);
    assert_int_equal(P->n_held + P2->n_held, 1);
    D->stuck_ms = 6000;
    run_until(holds_two, P);
    struct held now = P->held[1];
    assert_string_equal(now.req_id, old.req_id);
    assert_string_equal(now.epoch, "1");
    fake_reply(&P->held[1], 200, FIRST_ONCE);
    fake_frame(D2, &now, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    run_until(was_told_to_stop, D);
    D->stuck_ms = 0;
    run_until(is_known_lost, D);
}

static void stream_comes_back(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, STREAM);
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    fake_frame(D, &held, 0, DR_DATA, 0, "data: 2\n\n");
    run_until(client_has_event, &c);
    http_x_on_close(D->dresult, NULL, NULL);
    http_x_abort(D->dresult);
    D->dresult = NULL;
    run_until(all_serve_and_listen, NULL);
    fake_frame(D, &held, 0, DR_DATA, 0, "data: 2\n\n");
    fake_frame(D, &held, 1, DR_DATA, 0, "data: 3\n\n");
    fake_frame(D, &held, 2, DR_LAST, 0, "data: 4\n\n");
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
    client_close(&c);
}

/* A piece is missing: never an answer with a hole. */
static void a_piece_is_lost(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, "/generate_stream", "{\"inputs\":\"x\"}");
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &c);
    fake_frame(D, &held, 1, DR_DATA, 0, "data: 3\n\n");
    client_expect(
        &c, 200,
        "data: 1\n\ndata: {\"error\":\"Read messages from instance failed\",\"error_type\":"
        "\"Incomplete Generation\"}\n\n");
    client_close(&c);
    run_until(was_told_to_stop, D);
    /* where nothing was sent, another attempt is made */
    before(NULL);
    held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    first_turn();
    fake_frame(D, &held, 1, DR_LAST, 0, "{}");
    run_until(holds_two, P);
    held = P->held[1];
    fake_reply(&P->held[1], 200, FIRST_ONCE);
    fake_frame(D2, &held, 0, DR_LAST, 0, "{\"ok\":1}");
    client_expect(&c, 200, "{\"ok\":1}");
    client_close(&c);
}

/* Frames that are nobody's are dropped: unknown ids, another instance's request, an ended one. */
static void strange_frames(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, BODY), stranger = held;
    fake_frame(D2, &held, 0, DR_LAST, 0, "of an instance that has nothing to do with it");
    strcpy(stranger.req_id, "12345");
    fake_frame(D, &stranger, 0, DR_LAST, 0, "x");
    strcpy(stranger.req_id, "abc");
    fake_frame(D, &stranger, 0, DR_LAST, 0, "x");
    strcpy(stranger.req_id, held.req_id);
    strcpy(stranger.epoch, "7");
    fake_frame(D, &stranger, 0, DR_LAST, 0, "x");
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    fake_frame(D, &held, 0, DR_LAST, 0, "{}");
    fake_frame(D, &held, 1, DR_LAST, 0, "after the end");
    client_expect(&c, 200, "{}");
    client_close(&c);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(one_answer),
        CASE(what_p_gets),
        CASE(pieces_in_order),
        CASE(pieces_in_parts),
        CASE(comments_before_the_first_token),
        CASE(answers_are_bounded),
        CASE(ends_at_p),
        CASE(p_refuses_the_request),
        CASE(p_answers_by_itself),
        CASE(p_cannot),
        CASE(d_is_too_small),
        CASE(d_refuses),
        CASE(a_broken_link_leaves_no_decode),
        CASE(no_attempt_left),
        CASE(p_talks_nonsense),
        CASE(p_lists_too_many_tokens),
        CASE(p_dies),
        CASE(p_dies_and_d_changes),
        CASE(p_stays_full),
        CASE(all_p_die),
        CASE(d_error_before_anything),
        CASE(d_error_in_a_stream),
        CASE(d_asks_for_another),
        CASE(d_dies),
        CASE(d_is_stuck),
        CASE(stream_comes_back),
        CASE(a_piece_is_lost),
        CASE(strange_frames),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
