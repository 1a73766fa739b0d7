/* Goal: what baton-bench asks is what its options say, and the same for the same seed; what it
 * measures is counted within 1%, whatever pieces a stream comes in; what is wrong in a trace is
 * named by its line. Method: the pure parts alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/load/load_answer.h"
#include "tools/load/load_hist.h"
#include "tools/load/load_report.h"
#include "tools/load/load_source.h"
#include "tools/load/load_sse.h"
#include "tools/load/load_text.h"

static const struct load_shape SHAPE = {.seed = 7,
                                        .rate = 50,
                                        .in = {10, 20},
                                        .out = {1, 4},
                                        .n_groups = 1,
                                        .time_scale = 1,
                                        .length_scale = 1};

/* ---- histograms */

static void quantiles_are_within_a_hundredth(void **state) {
    (void)state;
    static struct load_hist h, twice;
    memset(&h, 0, sizeof(h));
    memset(&twice, 0, sizeof(twice));
    assert_true(load_hist_quantile(&h, 0.5) == 0 && load_hist_share(&h, 5) == 1);
    for (int i = 1; i <= 10000; i++) load_hist_add(&h, i);
    for (double q = 0.01; q <= 1; q += 0.01)
        assert_true(fabs(load_hist_quantile(&h, q) / (q * 10000) - 1) < 0.0101);
    assert_true(fabs(load_hist_mean(&h) - 5000.5) < 1e-6);
    assert_true(fabs(load_hist_share(&h, 2500) - 0.25) < 0.005);
    load_hist_merge(&twice, &h);
    load_hist_merge(&twice, &h);
    assert_true(twice.n == 20000 && load_hist_quantile(&twice, 0.5) == load_hist_quantile(&h, 0.5));
    load_hist_add(&h, 1e18);
    load_hist_add(&h, NAN);
    load_hist_add(&h, -5);
    assert_true(h.n == 10003 && load_hist_quantile(&h, 0) <= 1);
}

/* ---- sources */

static struct load_source *source(const struct load_shape *shape) {
    struct load_source *s;
    assert_int_equal(load_source_create(&s, shape), ERR_OK);
    return s;
}

static void arrivals_come_at_their_rate(void **state) {
    (void)state;
    for (int kind = LOAD_POISSON; kind <= LOAD_BURSTY; kind++) {
        struct load_shape shape = SHAPE;
        shape.arrivals = (enum load_arrivals)kind;
        struct load_source *s = source(&shape);
        struct load_ask a;
        double last = 0;
        size_t at_once = 0;
        const size_t n = 20000;
        for (size_t i = 0; i < n; i++) {
            assert_true(load_source_next(s, &a));
            assert_true(a.number == i && a.at_s >= last && a.in >= 10 && a.in <= 20 && a.out >= 1 &&
                        a.out <= 4);
            at_once += i > 0 && a.at_s == last;
            last = a.at_s;
        }
        assert_true(fabs((double)n / last / 50 - 1) < 0.08);
        assert_true(kind == LOAD_BURSTY ? at_once > n / 2 : at_once == 0);
        load_source_free(&s);
    }
}

static void the_same_seed_asks_the_same(void **state) {
    (void)state;
    struct load_shape shape = SHAPE;
    shape.prefix_tokens = 8;
    shape.n_groups = 3;
    struct load_source *s = source(&shape);
    struct load_ask a;
    double at[100];
    uint32_t in[100];
    uint64_t group[100];
    bool seen[3] = {0};
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < 100; i++) {
            assert_true(load_source_next(s, &a) && a.n_shared == 1 && a.shared[0] < 3);
            if (turn == 0) at[i] = a.at_s, in[i] = a.in, group[i] = a.shared[0];
            assert_true(at[i] == a.at_s && in[i] == a.in && group[i] == a.shared[0]);
            seen[a.shared[0]] = true;
        }
        load_source_rewind(s);
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    load_source_free(&s);
    shape.rate = 0;
    s = source(&shape);
    for (size_t i = 0; i < 5; i++) assert_true(load_source_next(s, &a) && a.at_s == 0);
    load_source_free(&s);
}

/* ---- traces */

static struct load_source *trace(const struct load_shape *shape, const char *text) {
    struct load_source *s = NULL;
    struct errbuf eb = {0};
    if (load_source_create_trace(&s, shape, text, strlen(text), &eb) != ERR_OK)
        fail_msg("%s", eb.text);
    return s;
}

static void traces_of_both_kinds_are_read(void **state) {
    (void)state;
    struct load_shape shape = SHAPE;
    shape.time_scale = 0.5;
    shape.length_scale = 0.25;
    struct load_source *s = trace(&shape, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                          "2023-12-31 23:59:59.5000000,374,44\r\n"
                                          "2024-01-01 00:00:01.5000000,8,1");
    struct load_ask a;
    assert_int_equal(load_source_rows(s), 2);
    assert_true(load_source_next(s, &a) && a.at_s == 0 && a.in == 94 && a.out == 11 &&
                a.n_shared == 0);
    assert_true(load_source_next(s, &a) && fabs(a.at_s - 1) < 1e-9 && a.in == 2 && a.out == 1);
    assert_false(load_source_next(s, &a));
    load_source_free(&s);
    s = trace(
        &shape,
        "{\"timestamp\":2000,\"input_length\":1024,\"output_length\":8,\"hash_ids\":[4,9]}\n\n"
        "{\"timestamp\":1000,\"input_length\":512,\"output_length\":0,\"hash_ids\":[4]}\n");
    assert_true(load_source_next(s, &a) && a.at_s == 0 && a.in == 128 && a.out == 1 &&
                a.n_shared == 1);
    assert_true(load_source_next(s, &a) && fabs(a.at_s - 0.5) < 1e-9 && a.in == 256 &&
                a.n_shared == 2 && a.shared[0] == 4 && a.shared[1] == 9 && a.shared_tokens == 128);
    load_source_free(&s);
}

static void what_is_wrong_in_a_trace_is_named(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"", "no request in it"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request in it"},
        {"2023-11-16 18:17:03,1,1\n2023-11-16 18:17:03,1\n",
         "line 2: three columns are wanted, got \"2023-11-16 18:17:03,1\""},
        {"yesterday,1,1\n", "line 1: TIMESTAMP must be a time like"},
        {"2023-13-16 18:17:03,1,1\n", "line 1: TIMESTAMP must be a time like"},
        {"2023-11-16 18:17:03,-1,1\n", "line 1: ContextTokens must be in [0, 1048576], got \"-1\""},
        {"2023-11-16 18:17:03,1,99999999999999999999\n", "line 1: GeneratedTokens must be in"},
        {"{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n{\"timestamp\":\"x\"}\n",
         "line 2: timestamp must be milliseconds from 0"},
        {"{\"timestamp\":0,\"input_length\":2000000,\"output_length\":1}\n",
         "line 1: input_length must be in [0, 1048576]"},
        {"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[-1]}\n",
         "line 1: hash_ids[0] must be an integer from 0"},
        {"{\"timestamp\":0,", "line 1: "},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct load_source *s = NULL;
        struct errbuf eb = {0};
        assert_int_not_equal(
            load_source_create_trace(&s, &SHAPE, wrong[i][0], strlen(wrong[i][0]), &eb), ERR_OK);
        assert_null(s);
        if (strncmp(eb.text, wrong[i][1], strlen(wrong[i][1])) != 0)
            fail_msg("%zu: %s", i, eb.text);
    }
}

/* ---- texts */

static size_t words(const struct buf *b) {
    size_t n = b->len > 0;
    for (size_t i = 0; i < b->len; i++) n += b->data[i] == ' ';
    return n;
}

static void prompts_have_their_length_and_share_beginnings(void **state) {
    (void)state;
    struct load_tokens t;
    assert_false(load_tokens_fit(&t, 40, 100, 240, 100));
    assert_true(load_tokens_fit(&t, 40, 100, 240, 500));
    assert_true(t.per_word == 2 && t.fixed == 20);
    const uint64_t blocks[] = {3, 5};
    struct buf a = BUF_INIT, b = BUF_INIT, c = BUF_INIT;
    struct load_ask ask = {
        .number = 1, .in = 220, .shared = blocks, .n_shared = 2, .shared_tokens = 60};
    load_text_prompt(&a, &ask, &t, 9);
    load_text_prompt(&c, &ask, &t, 9);
    assert_int_equal(words(&a), 100);
    assert_true(a.len == c.len && memcmp(a.data, c.data, a.len) == 0);
    ask.number = 2;
    load_text_prompt(&b, &ask, &t, 9);
    size_t same = 0, n_words = 0;
    while (same < a.len && same < b.len && a.data[same] == b.data[same])
        n_words += a.data[same++] == ' ';
    assert_in_range(n_words, 60, 65);
    buf_clear(&b);
    ask.in = 1; /* less than what stands around it */
    load_text_prompt(&b, &ask, &t, 9);
    assert_int_equal(words(&b), 1);
    buf_free(&a);
    buf_free(&b);
    buf_free(&c);
}

/* ---- streams */

struct got {
    char text[256];
    int n;
};

static bool keep(void *arg, const char *data, size_t n) {
    struct got *g = arg;
    assert_int_equal(strlen(data), n);
    strcat(g->text, data);
    strcat(g->text, "|");
    return ++g->n < 4;
}

static void events_come_in_any_pieces(void **state) {
    (void)state;
    static const char raw[] =
        ": hello\r\n\r\ndata: one\n\nid: 7\ndata:two\ndata:  three\n\nevent: x\n\ndata:\r\rdata: ";
    for (size_t step = 1; step < sizeof(raw); step++) {
        struct got g = {0};
        struct load_sse s = {.on_event = keep, .arg = &g};
        for (size_t i = 0; i < sizeof(raw) - 1; i += step)
            assert_true(
                load_sse_feed(&s, raw + i, i + step < sizeof(raw) ? step : sizeof(raw) - 1 - i));
        assert_string_equal(g.text, "one|two\n three||");
        load_sse_free(&s);
    }
    struct got g = {0};
    struct load_sse s = {.on_event = keep, .arg = &g};
    assert_false(load_sse_feed(&s, "data: a\n\ndata: b\n\ndata: c\n\ndata: d\n\n", 36));
    assert_int_equal(g.n, 4);
    load_sse_free(&s);
    char *big = malloc(LOAD_EVENT_BYTES_MAX + 2);
    memset(big, 'x', LOAD_EVENT_BYTES_MAX + 2);
    assert_false(load_sse_feed(&s, big, LOAD_EVENT_BYTES_MAX + 2));
    load_sse_free(&s);
    free(big);
}

static struct load_event event(const char *text) {
    struct load_event e;
    assert_true(load_event_read(&e, text, strlen(text)));
    return e;
}

static void events_say_what_they_say(void **state) {
    (void)state;
    struct load_event e;
    assert_true(event("[DONE]").is_end);
    assert_true(event("{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}").has_text);
    assert_true(event("{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}").has_text);
    assert_true(event("{\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}").has_text);
    assert_true(event("{\"choices\":[{\"text\":\"a\"}]}").has_text);
    assert_false(
        event("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}").has_text);
    e = event("{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}");
    assert_true(!e.has_text && e.in == 3 && e.out == 9);
    assert_true(event("{\"choices\":[],\"usage\":null}").out == -1);
    assert_string_equal(event("{\"error\":{\"message\":\"no\"}}").error, "no");
    assert_string_equal(event("{\"error\":\"no\"}").error, "no");
    assert_false(load_event_read(&e, "x", 1));
    char text[32];
    load_error_text(text, sizeof(text), "{\"error\":{\"message\":\"wrong\"}}", 29);
    assert_string_equal(text, "wrong");
    load_error_text(text, sizeof(text), "<html>\n", 7);
    assert_string_equal(text, "<html> ");
}

/* ---- reports */

static void ratios_are_of_rounds(void **state) {
    (void)state;
    struct load_result *r = calloc(4, sizeof(*r));
    assert_non_null(r);
    const double us[4] = {1000, 2000, 3000, 1000};
    for (size_t i = 0; i < 4; i++) {
        load_hist_add(&r[i].ttft, us[i]);
        r[i].n_sent = r[i].n_ended = 1;
        r[i].seconds = 1;
    }
    const struct load_target to = {.base = "http://a<b", .measured = true};
    const struct load_plan plan = {.clients = 1};
    const struct load_report rep = {.plan = &plan,
                                    .workload = "one \"client\" & more",
                                    .sides = {{&to, r, 2}, {&to, r + 2, 2}},
                                    .n_sides = 2};
    struct load_ratio q;
    assert_true(load_ratio(&q, &load_figures[0], &rep.sides[0], &rep.sides[1]));
    assert_true(fabs(q.least - 0.5) < 0.01 && fabs(q.most - 3) < 0.05 &&
                fabs(q.median - 1.75) < 0.05);
    struct buf html = BUF_INIT, json = BUF_INIT;
    load_report_html(&html, &rep);
    load_report_json(&json, &rep);
    buf_putc(&html, 0);
    buf_putc(&json, 0);
    assert_non_null(strstr(html.data, "http://a&lt;b"));
    assert_non_null(strstr(html.data, "&quot;client&quot; &amp; more"));
    assert_null(strstr(html.data, "<script"));
    assert_non_null(strstr(json.data, "\"ttft_p50_ms\":{\"median\":1.7"));
    assert_null(strstr(json.data, "goodput_s"));
    buf_free(&html);
    buf_free(&json);
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_a_hundredth),
        cmocka_unit_test(arrivals_come_at_their_rate),
        cmocka_unit_test(the_same_seed_asks_the_same),
        cmocka_unit_test(traces_of_both_kinds_are_read),
        cmocka_unit_test(what_is_wrong_in_a_trace_is_named),
        cmocka_unit_test(prompts_have_their_length_and_share_beginnings),
        cmocka_unit_test(events_come_in_any_pieces),
        cmocka_unit_test(events_say_what_they_say),
        cmocka_unit_test(ratios_are_of_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
