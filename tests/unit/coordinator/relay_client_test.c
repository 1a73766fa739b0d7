/* Goal: what clients and the configuration ask of the coordinator: cancelling, stopInfer,
 * time-outs, admission and its texts, the other paths, CORS. Method: as relay_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/relay_fixture.h"

/* ---- the client goes */
static void client_goes(void **state) {
    struct client c;
    (void)state;
    struct held held = *ask(&c, CHAT, STREAM); /* while P computes */
    client_close(&c);
    run_until(was_told_to_stop, P);
    run_until(was_told_to_stop, D);
    run_until(lost_one, P);
    assert_string_equal(P->stops[0], held.req_id);
    assert_string_equal(D->stops[0], held.req_id);
    check_idle();

    before(NULL);
    held = *ask(&c, CHAT, STREAM); /* while D decodes */
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &c);
    client_close(&c);
    run_until(was_told_to_stop, D);
    assert_int_equal(P->n_stops, 0);
    assert_string_equal(D->stops[0], held.req_id);
}

static void client_goes_while_it_waits(void **state) {
    struct client c;
    (void)state;
    fake_inst(P)->ledger.tasks = fake_inst(P2)->ledger.tasks = 1000; /* full */
    client_ask(&c, "POST", CHAT, "", BODY);
    wait_queue(1);
    client_close(&c);
    wait_queue(0);
    fake_inst(P)->ledger.tasks = fake_inst(P2)->ledger.tasks = 0;
    assert_int_equal(P->n_stops + D->n_stops, 0);
}

/* ---- stopInfer by a client */
static void stop(struct client *c, const char *id) {
    char body[512];
    snprintf(body, sizeof(body), "{\"id\":\"%s\"}", id);
    client_ask(c, "POST", "/v2/models/m/versions/1/stopInfer", "", body);
}

static void stop_infer(void **state) {
    struct client c, s, again;
    char echo[128];
    (void)state;
    /* by the client's own id, while D decodes; the end comes from D */
    struct held held = *ask(&c, "/v2/models/m/generate", "{\"text_input\":\"x\",\"id\":\"mine\"}");
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    run_for(20);
    stop(&s, "mine");
    client_expect(&s, 200, "{\"id\":\"mine\"}");
    client_close(&s);
    assert_string_equal(D->stops[0], held.req_id);
    assert_int_equal(P->n_stops, 0);
    stop(&again, "mine");
    client_expect(
        &again, 404,
        "{\"error\":\"Stop request id mine not found.\",\"error_type\":\"NotFoundError\"}");
    client_close(&again);
    fake_frame(D, &held, 0, DR_LAST, 0, "{\"stopped\":1}");
    client_expect(&c, 200, "{\"stopped\":1}");
    client_close(&c);

    /* by the coordinator's id, while P computes: both are asked; D does not know it yet */
    before(NULL);
    D->stop_code = 404;
    held = *ask(&c, CHAT, BODY);
    stop(&s, held.req_id);
    snprintf(echo, sizeof(echo), "{\"id\":\"%s\"}", held.req_id);
    client_expect(&s, 200, echo);
    client_close(&s);
    assert_int_equal(P->n_stops, 1);
    assert_int_equal(D->n_stops, 1);
    fake_reply(&P->held[0], 424, "{\"error\":\"stopped\"}");
    client_expect(&c, 424, "{\"error\":\"stopped\"}");
    client_close(&c);

    /* it had ended where it was asked for */
    before(NULL);
    P->stop_code = D->stop_code = 404;
    held = *ask(&c, CHAT, BODY);
    stop(&s, held.req_id);
    run_until(client_done, &s);
    assert_int_equal(client_status(&s), 404);
    client_close(&s);
    fake_reply(&P->held[0], 200, "{\"isLastResp\":true,\"output\":\"{}\"}");
    client_expect(&c, 200, "{}");
    client_close(&c);
}

/* ---- whose a request is */
#define KEY_A   "alpha-key-0123456789"
#define KEY_B   "beta-key-0123456789"
#define AS(key) "Authorization: Bearer " key "\r\n"

static struct api_keys *two_keys(void) {
    char path[] = "/tmp/baton-relay-keys-XXXXXX";
    struct api_keys *k = NULL;
    struct errbuf eb = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(dprintf(fd, "%s\n%s\n", KEY_A, KEY_B), sizeof(KEY_A KEY_B) + 1);
    close(fd);
    assert_int_equal(api_keys_open(&k, "keys", "/", path, &eb), ERR_OK);
    unlink(path);
    return k;
}

static void stop_as(struct client *c, const char *who, const char *id) {
    char body[512];
    snprintf(body, sizeof(body), "{\"id\":\"%s\"}", id);
    client_ask(c, "POST", "/v2/models/m/stopInfer", who, body);
}

/* An id belongs to the key that made the request: for another key it does not exist, whether it is
 * the coordinator's or the client's own, and both keys may use the same one. */
static void ids_belong_to_a_key(void **state) {
    static const char body[] = "{\"text_input\":\"x\",\"id\":\"same\"}";
    struct client a, b, s;
    char name[TENANT_BYTES_MAX + 1], line[96];
    struct api_keys *keys = two_keys();
    (void)state;
    fc.front.d.keys = keys;
    client_ask(&a, "POST", "/v2/models/m/generate", AS(KEY_A) TENANT_HEADER ": key-forged\r\n",
               body);
    run_until(holds_one, P);
    assert_true(api_keys_allow(keys, "Bearer " KEY_A, name));
    snprintf(line, sizeof(line), "\n" TENANT_HEADER ": %s\n", name);
    assert_non_null(strstr(P->last_headers, line));
    assert_null(strstr(P->last_headers, "key-forged"));
    struct held held = P->held[0];
    stop_as(&s, AS(KEY_B), "same");
    run_until(client_done, &s);
    assert_int_equal(client_status(&s), 404);
    client_close(&s);
    stop_as(&s, AS(KEY_B), held.req_id);
    run_until(client_done, &s);
    assert_int_equal(client_status(&s), 404);
    client_close(&s);
    assert_int_equal(P->n_stops + D->n_stops + D2->n_stops, 0);

    client_ask(&b, "POST", "/v2/models/m/generate", AS(KEY_B), body);
    run_until(holds_one, P2);
    struct held other = P2->held[0];
    stop_as(&s, AS(KEY_A), "same");
    client_expect(&s, 200, "{\"id\":\"same\"}");
    client_close(&s);
    assert_string_equal(P->stops[0], held.req_id);
    assert_string_equal(P->stop_tenant, name);
    assert_int_equal(P2->n_stops, 0);
    fake_reply(&P->held[0], 424, "{}");
    client_expect(&a, 424, "{}");
    client_close(&a);
    stop_as(&s, AS(KEY_B), other.req_id);
    run_until(client_done, &s);
    assert_int_equal(client_status(&s), 200);
    client_close(&s);
    fake_reply(&P2->held[0], 424, "{}");
    client_expect(&b, 424, "{}");
    client_close(&b);
    fc.front.d.keys = NULL;
    api_keys_close(&keys);
}

/* The ids of three requests in a row: no one follows from another, none reaches the reserved value,
 * and without keys any client may name them. */
static void ids_cannot_be_guessed(void **state) {
    uint64_t ids[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct client c;
        before(NULL);
        ids[i] = strtoull(ask(&c, CHAT, BODY)->req_id, NULL, 10);
        assert_true(ids[i] > 0 && ids[i] >> 63 == 0);
        assert_non_null(strstr(P->last_headers, "\n" TENANT_HEADER ": addr-127.0.0.1\n"));
        fake_reply(&P->held[0], 422, "{}");
        client_expect(&c, 422, "{}");
        client_close(&c);
    }
    uint64_t step = ids[1] - ids[0];
    assert_true(step != 0 && ids[2] - ids[1] != step);
    assert_true(step > 1000000 && 0 - step > 1000000);
}

static void stop_infer_refused(void **state) {
    struct client c;
    static const struct {
        const char *path, *body;
        int status;
        const char *word;
    } rows[] = {
        {"/v2/models/m/stopInfer", "{\"id\":\"5\"}", 404, "Stop request id 5 not found."},
        {"/v2/models/m/stopInfer", "{\"id\":\"18446744073709551616\"}", 404, "not found."},
        {"/v2/models/m/stopInfer", "{\"id\":5}", 422, "Not found id."},
        {"/v2/models/m/stopInfer", "{}", 422, "Not found id."},
        {"/v2/models/m/stopInfer", "[]", 422, "Failed to parse context to json body."},
        {"/v2/models/m/stopInfer", "{", 422, "Failed to parse context to json body."},
        {"/v2/models/m/stopInfer", "{\"id\":\"a b\"}", 422, "The id can contain only"},
        {"/v2/models/m/stopInfer", "{\"id\":\"\"}", 422, "The id can contain only"},
        {"/v2/models/x/stopInfer", "{\"id\":\"5\"}", 404, "Model x not found."},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool whole;
        client_ask(&c, "POST", rows[i].path, "", rows[i].body);
        run_until(client_done, &c);
        char *body = client_body(&c, &whole);
        assert_int_equal(client_status(&c), rows[i].status);
        assert_non_null(strstr(body, rows[i].word));
        free(body);
        client_close(&c);
    }
}

/* ---- time */
static void timeouts(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.first_token_timeout_s = 1;
    struct held held = *ask(&c, "/infer", "{\"inputs\":\"x\"}");
    client_expect(&c, 408,
                  "{\"error\":\"Request first token timeout\",\"error_type\":\"Request Timeout\"}");
    client_close(&c);
    run_until(was_told_to_stop, P);
    run_until(was_told_to_stop, D);

    before(NULL);
    fc.co.conf.infer_timeout_s = 1;
    held = *ask(&c, CHAT, STREAM);
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    client_expect(
        &c, 200,
        "data: 1\n\ndata: {\"error\":\"Request inference timeout\",\"error_type\":\"Request "
        "Timeout\",\"object\":\"error\",\"message\":\"Request inference timeout\",\"type\":"
        "\"RequestTimeoutError\",\"param\":null,\"code\":408}\n\ndata: [DONE]\n\n");
    client_close(&c);
    run_until(was_told_to_stop, D);
    assert_string_equal(D->stops[0], held.req_id);

    before(NULL);
    fc.co.conf.schedule_timeout_s = 1;
    fake_inst(P)->ledger.tasks = fake_inst(P2)->ledger.tasks = 1000;
    client_ask(&c, "POST", "/infer", "", "{\"inputs\":\"x\"}");
    client_expect(&c, 408,
                  "{\"error\":\"Request schedule timeout\",\"error_type\":\"Request Timeout\"}");
    client_close(&c);
    fake_inst(P)->ledger.tasks = fake_inst(P2)->ledger.tasks = 0;
    assert_int_equal(P->n_held + P2->n_held, 0);
}

/* ---- admission */
static void turned_away(void **state) {
    struct client a, b;
    (void)state;
    fc.co.conf.requests_max = 1;
    (void)ask(&a, "/v2/models/m/generate", "{\"text_input\":\"x\",\"id\":\"same\"}");
    client_ask(&b, "POST", CHAT, "", BODY);
    client_expect(
        &b, 429,
        "{\"error\":\"Too many requests\",\"error_type\":\"overloaded\",\"object\":\"error\","
        "\"message\":\"Too many requests\",\"type\":\"RateLimitError\",\"param\":null,"
        "\"code\":429}");
    assert_true(client_has(&b, "Retry-After: 1"));
    client_close(&b);
    fc.co.conf.requests_max = 10;
    client_ask(&b, "POST", "/v2/models/m/generate", "", "{\"text_input\":\"y\",\"id\":\"same\"}");
    client_expect(&b, 400, "{\"error\":\"Duplicate request id\",\"error_type\":\"Bad Request\"}");
    client_close(&b);
    fake_reply(&P->held[0], 422, "{}");
    client_expect(&a, 422, "{}");
    client_close(&a);
    /* the id is free again */
    first_turn();
    client_ask(&b, "POST", "/v2/models/m/generate", "", "{\"text_input\":\"y\",\"id\":\"same\"}");
    run_until(holds_two, P);
    fake_reply(&P->held[1], 422, "{}");
    client_expect(&b, 422, "{}");
    client_close(&b);

    fc.co.stopping = true;
    client_ask(&b, "POST", "/generate", "", "{}");
    client_expect(&b, 503,
                  "{\"error\":\"The service has been stopped\",\"error_type\":\"Service "
                  "Unavailable\"}");
    assert_true(client_has(&b, "Retry-After: 1"));
    client_close(&b);
    fc.co.stopping = false;
}

/* errorFormat=text: the reference's bytes (inference-api 3.5). */
static void text_errors(void **state) {
    struct client c;
    static const struct {
        const char *path, *body;
        int status;
        const char *text;
    } rows[] = {
        {CHAT, "{", 400, "Request format is invalid\r\n"},
        {CHAT, "[]", 400, "Request format is invalid\r\n"},
        {CHAT, "{\"prompt\":\"x\"}", 400,
         "Invalid request format: Missing both 'prompt' or 'messages'\r\n"},
        {"/v1/completions", "{}", 400,
         "Invalid request format: Missing both 'prompt' or 'messages'\r\n"},
        {"/generate", "{}", 400, "Request format is invalid\r\n"},
        {"/v2/models/m/infer", "{\"text_input\":\"x\"}", 400, "Request format is invalid\r\n"},
        {"/nothing", "{}", 404, "Invalid request\r\n"},
        {"/v2/models/m/stopInfer", "{\"id\":\"5\"}", 404, "Stop request id 5 not found.\r\n"},
    };
    (void)state;
    strcpy(fc.co.conf.error_format, "text");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        client_ask(&c, "POST", rows[i].path, "", rows[i].body);
        client_expect(&c, rows[i].status, rows[i].text);
        assert_true(client_has(&c, "Content-Type: text/plain; charset=utf-8"));
        client_close(&c);
    }
    /* what only P sees is answered alike, and P's other refusals are its own */
    for (int no_json = 1; no_json >= 0; no_json--) {
        first_turn();
        size_t n = P->n_held, more = n + 1;
        client_ask(&c, "POST", CHAT, "", "{\"messages\":[{\"content\":\"x\"}],\"y\":01}");
        run_until(holds_n, &more);
        if (no_json) http_x_set_header(P->held[n].x, CAUSE_HEADER, cause_name(CAUSE_NO_JSON));
        fake_reply(&P->held[n], 422, "{}");
        client_expect(&c, no_json ? 400 : 422, no_json ? "Request format is invalid\r\n" : "{}");
        client_close(&c);
    }
    fc.co.stopping = true;
    client_ask(&c, "POST", CHAT, "", BODY);
    client_expect(&c, 503, "The service has been stopped\r\n");
    client_close(&c);
    fc.co.stopping = false;
    fc.co.conf.requests_max = 0;
    client_ask(&c, "POST", CHAT, "", BODY);
    client_expect(&c, 429, "Too many requests\r\n");
    client_close(&c);
    fc.co.conf.requests_max = 10;
    fc.co.conf.first_token_timeout_s = 1;
    (void)ask(&c, CHAT, BODY);
    client_expect(&c, 408, "Request first token timeout\r\n");
    client_close(&c);
}

/* With JSON errors a body that cannot be read goes on to P, which answers as a single instance. */
static void unreadable_goes_to_p(void **state) {
    struct client c;
    (void)state;
    fake_reply(ask(&c, CHAT, "{"), 422, "{\"error\":\"Failed to parse\"}");
    assert_string_equal(P->last_body, "{");
    client_expect(&c, 422, "{\"error\":\"Failed to parse\"}");
    client_close(&c);
}

/* ---- other paths of the user plane */
static void other_paths(void **state) {
    struct client c;
    static const struct {
        const char *method, *path;
        int status;
        const char *body;
    } rows[] = {
        {"GET", "/v1/models", 200, "/v1/models"},
        {"GET", "/v1/models/org%2Fname", 200, "/v1/models/org/name"},
        {"GET", "/v1/models/a%3Fb%23c%20d", 200, "/v1/models/a?b#c d"},
        {"GET", "/v1/models/..%2F..%2Fdresult", 404, NULL},
        {"GET", "/v1/models/../../dresult", 404, NULL},
        {"GET", "/v1/models/x/./y", 200, "/v1/models/x/y"},
        {"GET", "/v1/models/..x", 200, "/v1/models/..x"},
        {"GET", "/v2", 200, "/v2"},
        {"GET", "/v2/models/m/versions/1/config", 200, "/v2/models/m/versions/1/config"},
        {"GET", "/info", 200, "/info"},
        {"POST", "/v1/tokenizer", 200, "/v1/tokenizer"},
        {"GET", "/v2/models/m/getSlotCount", 200,
         "{\"total_slots\":16,\"free_slots\":16,\"available_tokens_length\":3200}"},
        {"GET", "/v2/models/x/getSlotCount", 404,
         "{\"error\":\"Model x not found.\",\"error_type\":\"NotFoundError\"}"},
        {"GET", "/health", 200, "{\"status\":\"ok\"}"},
        {"GET", "/v1/startup", 200, ""},
        {"GET", "/nothing", 404,
         "{\"error\":\"Invalid request\",\"error_type\":\"NotFoundError\"}"},
        {"GET", "/generate", 405, NULL},
        {"DELETE", "/v1/models", 405, NULL},
        {"GET", "/dresult", 404, NULL},
    };
    (void)state;
    int listens = D->n_listens + D2->n_listens;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool whole;
        client_ask(&c, rows[i].method, rows[i].path, "", "");
        run_until(client_done, &c);
        char *body = client_body(&c, &whole);
        if (client_status(&c) != rows[i].status ||
            (rows[i].body != NULL && strcmp(body, rows[i].body) != 0))
            fail_msg("%s: %d %s", rows[i].path, client_status(&c), body);
        free(body);
        client_close(&c);
    }
    assert_int_equal(D->n_listens + D2->n_listens, listens); /* nobody took a result stream */
}

/* /health/timed asks both halves of a pair; the first that is not well decides. */
static void timed_health(void **state) {
    static const struct {
        const char *path;
        int p, d, status;
        const char *body;
    } rows[] = {
        {"/health/timed", 200, 200, 200, "{\"status\":\"healthy\"}"},
        {"/health/timed-1", 200, 200, 200, "{\"status\":\"healthy\"}"},
        {"/health/timed-600", 200, 500, 500, "d is ill"},
        {"/health/timed-5", 500, 200, 500, "p is ill"},
        {"/health/timed-0", 0, 0, 404,
         "Wait time should be in range of [1, 600], input is not valid"},
        {"/health/timed-601", 0, 0, 404,
         "Wait time should be in range of [1, 600], input is not valid"},
        {"/health/timed-1000", 0, 0, 404, "Max wait time is 600, input is invalid or too long"},
        {"/health/timed-x", 0, 0, 404, "Max wait time is 600, input is invalid or too long"},
    };
    struct client c;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        P->timed_code = rows[i].p;
        D->timed_code = rows[i].d;
        P->timed_text = "p is ill";
        D->timed_text = "d is ill";
        if (rows[i].status == 500) run_for(600); /* what was healthy holds for a while */
        client_ask(&c, "GET", rows[i].path, "", "");
        client_expect(&c, rows[i].status, rows[i].body);
        client_close(&c);
    }
    fc.co.stopping = true;
    client_ask(&c, "GET", "/health/timed", "", "");
    client_expect(&c, 200, "{\"status\":\"healthy\"}");
    client_close(&c);
    fc.co.stopping = false;
    P->timed_code = -1; /* it does not answer, and the client goes */
    client_ask(&c, "GET", "/health/timed", "", "");
    run_until(holds_one, P);
    client_close(&c);
    run_until(lost_one, P);
}

/* Many ask at once: P and D are asked once, and all get what they say. One who gives less time does
 * not wait longer than that; one who gives more is not answered by the failure of a shorter test.
 */
static void one_test_for_all(void **state) {
    enum { N = 20 };
    struct client c[N], hasty, patient;
    (void)state;
    P->timed_code = -1;
    D->timed_code = 200;
    D->timed_text = "{}";
    run_for(600);
    for (int i = 0; i < N; i++) client_ask(&c[i], "GET", "/health/timed-5", "", "");
    run_until(holds_one, P);
    client_ask(&hasty, "GET", "/health/timed-1", "", "");
    client_ask(&patient, "GET", "/health/timed-9", "", "");
    uint64_t began = clock_ms();
    run_until(client_done, &hasty);
    assert_int_equal(client_status(&hasty), 500);
    assert_true(clock_ms() - began < 4500);
    client_close(&hasty);
    assert_int_equal(P->n_held, 1);
    fake_reply(&P->held[0], 500, "p is late");
    for (int i = 0; i < N; i++) {
        client_expect(&c[i], 500, "p is late");
        client_close(&c[i]);
    }
    run_until(holds_two, P);
    assert_string_equal(P->held[1].path, "/health/timed-9");
    fake_reply(&P->held[1], 200, "{}");
    client_expect(&patient, 200, "{\"status\":\"healthy\"}");
    client_close(&patient);
    client_ask(&patient, "GET", "/health/timed-1", "", ""); /* still so */
    client_expect(&patient, 200, "{\"status\":\"healthy\"}");
    client_close(&patient);
    assert_int_equal(P->n_held, 2);
}

static void browsers(void **state) {
    struct client c;
    (void)state;
    client_ask(&c, "OPTIONS", CHAT, "Origin: http://a\r\n", "");
    client_expect(&c, 204, "");
    assert_true(client_has(&c, "Allow: POST, OPTIONS"));
    assert_false(client_has(&c, "Access-Control-"));
    client_close(&c);
    strcpy(fc.co.conf.cors_origin, "http://a");
    client_ask(&c, "OPTIONS", CHAT, "Origin: http://a\r\nAccess-Control-Request-Headers: x-one\r\n",
               "");
    client_expect(&c, 204, "");
    assert_true(client_has(&c, "Access-Control-Allow-Origin: http://a"));
    assert_true(client_has(&c, "Access-Control-Allow-Methods: POST, OPTIONS"));
    assert_true(client_has(&c, "Access-Control-Allow-Headers: x-one"));
    assert_true(client_has(&c, "Vary: Origin"));
    client_close(&c);
    client_ask(&c, "GET", "/v1/models", "Origin: http://a\r\n", "");
    run_until(client_done, &c);
    assert_true(client_has(&c, "Access-Control-Allow-Origin: http://a"));
    client_close(&c);
    client_ask(&c, "POST", CHAT, "Origin: http://a\r\n", BODY);
    run_until(holds_one, P);
    fake_reply(&P->held[0], 422, "{}");
    client_expect(&c, 422, "{}");
    assert_true(client_has(&c, "Access-Control-Allow-Origin: http://a"));
    client_close(&c);
    static const char *const others[] = {"", "Origin: http://b\r\n"}; /* none, and another */
    for (int i = 0; i < 2; i++) {
        client_ask(&c, "OPTIONS", CHAT, others[i], "");
        client_expect(&c, 204, "");
        assert_false(client_has(&c, "Access-Control-"));
        assert_true(client_has(&c, "Vary: Origin"));
        client_close(&c);
    }
}

/* Over the limit: refused at the head, in the family's shape. */
static void too_large(void **state) {
    struct client c;
    struct buf b = BUF_INIT;
    (void)state;
    fc.front.d.body_bytes_max = 1 << 20;
    for (int over = 0; over < 2; over++) {
        buf_clear(&b);
        for (int i = 0; i < (1 << 20) + over; i++) buf_putc(&b, ' ');
        client_ask(&c, "POST", "/generate", "", b.data);
        if (over == 0) { /* the very limit passes */
            run_until(holds_one, P);
            fake_reply(&P->held[0], 422, "{}");
            client_expect(&c, 422, "{}");
        } else {
            client_expect(&c, 413,
                          "{\"error\":\"Request body too large. Maximum allowed size is "
                          "1MB.\",\"error_type\":\"Input Validation Error\",\"message\":"
                          "\"Request body too large. Maximum allowed size is 1MB.\"}");
        }
        client_close(&c);
    }
    buf_free(&b);
}

/* ---- silence */
static bool client_has_comment(void *arg) {
    return strstr(((struct client *)arg)->in.data, "\r\n:\n\n\r\n") != NULL;
}
static bool client_has_frame(void *arg) {
    return strstr(((struct client *)arg)->in.data, "{\"text\"") != NULL;
}

/* A silent stream gets comment lines; frames that are no events never do, however long. */
static void keep_alive(void **state) {
    struct client frames, events;
    (void)state;
    fc.co.conf.sse_keep_alive_s = 1;
    (void)ask(&frames, "/generate", "{\"prompt\":\"x\",\"stream\":true}");
    client_ask(&events, "POST", "/generate_stream", "", "{\"inputs\":\"x\"}");
    run_until(holds_one, P2);
    fake_reply(&P->held[0], 200, "{\"isStream\":true,\"output\":\"{\\\"text\\\":[]}\\n\"}");
    run_until(client_has_frame, &frames);
    fake_reply(&P2->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &events);
    run_until(client_has_comment, &events);
    assert_false(client_has_comment(&frames));
    client_close(&frames);
    client_close(&events);
}

static bool stopped_at(const struct fake *f, const char *req_id) {
    for (size_t i = 0; i < f->n_stops; i++)
        if (strcmp(f->stops[i], req_id) == 0) return true;
    return false;
}

/* request_id of an OpenAI request: stopInfer finds it; one that is in use is no error. */
static void request_ids(void **state) {
    static const char body[] = "{\"prompt\":\"x\",\"request_id\":\"same\"}";
    struct client a, b, s;
    (void)state;
    struct held held = *ask(&a, "/v1/completions", body);
    client_ask(&b, "POST", "/v1/completions", "", body);
    run_until(holds_one, P2);
    struct held other = P2->held[0];
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    run_for(20);
    stop(&s, "same");
    client_expect(&s, 200, "{\"id\":\"same\"}");
    client_close(&s);
    assert_true(stopped_at(D, held.req_id) || stopped_at(D2, held.req_id));
    assert_false(stopped_at(D, other.req_id) || stopped_at(D2, other.req_id));
    client_close(&a);
    fake_reply(&P2->held[0], 422, "{}");
    client_expect(&b, 422, "{}");
    client_close(&b);
}

/* getSlotCount follows what is booked and given back, without waiting for a report; and who left is
 * no failure of the service. */
static void slots_at_once(void **state) {
    struct client c, s;
    struct relay_counts was, is;
    (void)state;
    relay_counts(fc.co.relays, &was);
    for (int i = 0; i < 2; i++) {
        if (i == 0) (void)ask(&c, "/v1/completions", "{\"prompt\":\"x\",\"n\":5}");
        client_ask(&s, "GET", "/v2/models/m/getSlotCount", "", "");
        run_until(client_done, &s);
        assert_non_null(strstr(s.in.data, i == 0 ? "\"free_slots\":11," : "\"free_slots\":16,"));
        client_close(&s);
        if (i == 0) {
            client_close(&c);
            run_until(is_idle, NULL);
        }
    }
    before(NULL);
    fake_reply(ask(&c, CHAT, BODY), 422, "{}");
    client_expect(&c, 422, "{}");
    client_close(&c);
    relay_counts(fc.co.relays, &is);
    assert_int_equal(is.failed, was.failed);
    assert_int_equal(is.cancelled, was.cancelled + 1);
    static const struct {
        int status;
        bool stopped, failure;
    } rows[] = {{200, 0, 0}, {400, 0, 0}, {404, 0, 0}, {408, 0, 1}, {413, 0, 0}, {422, 0, 0},
                {424, 0, 1}, {424, 1, 0}, {429, 0, 0}, {499, 0, 0}, {500, 0, 1}, {503, 0, 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(relay_status_is_failure(rows[i].status, rows[i].stopped), rows[i].failure);
}

/* ---- the end of the daemon */
static void abort_all(void **state) {
    struct client a, b;
    (void)state;
    (void)ask(&a, CHAT, BODY);
    client_ask(&b, "POST", "/generate_stream", "", "{\"inputs\":\"x\"}");
    run_until(holds_one, P2);
    fake_reply(&P2->held[0], 200, "{\"isStream\":true,\"output\":\"data: 1\\n\\n\"}");
    run_until(client_has_event, &b);
    relay_abort_all(fc.co.relays, 503, "The service has been stopped.");
    run_until(client_done, &a);
    assert_int_equal(client_status(&a), 503);
    assert_true(client_has(&a, "Retry-After: 1"));
    client_expect(&b, 200,
                  "data: 1\n\ndata: {\"error\":\"The service has been stopped.\",\"error_type\":"
                  "\"Service Unavailable\"}\n\n");
    client_close(&a);
    client_close(&b);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(client_goes),
        CASE(client_goes_while_it_waits),
        CASE(stop_infer),
        CASE(stop_infer_refused),
        CASE(timeouts),
        CASE(turned_away),
        CASE(text_errors),
        CASE(unreadable_goes_to_p),
        CASE(other_paths),
        CASE(timed_health),
        CASE(slots_at_once),
        CASE(one_test_for_all),
        CASE(browsers),
        CASE(too_large),
        CASE(abort_all),
        CASE(keep_alive),
        CASE(request_ids),
        CASE(ids_belong_to_a_key),
        CASE(ids_cannot_be_guessed),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
