/* Goal: an answer in channels is parted into thinking, content and calls however it is cut, and no
 * tag or header is ever shown.
 * Method: a table; each text is fed at once, byte by byte and in random pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/endpoint/harmony.h"

#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL    "<|channel|>final<|message|>"
#define NEXT     "<|end|><|start|>assistant"
#define CALL_F   "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>"

static const struct row {
    bool open;
    const char *text, *thinking, *content, *calls; /* "name arguments;" of each */
    int lead;                                      /* -1: all of the thinking */
} rows[] = {
    {false, FINAL "so", "", "so", "", -1},
    {false, ANALYSIS "why" NEXT FINAL "so<|return|>", "why", "so", "", -1},
    {false, ANALYSIS "a" NEXT ANALYSIS "b" NEXT FINAL "x" NEXT FINAL "y", "a\nb", "x\ny", "", -1},
    {false, ANALYSIS "why" NEXT CALL_F, "why", "", "f {\"a\": 1};", -1},
    {false, CALL_F "<|start|>assistant" CALL_F, "", "", "f {\"a\": 1};f {\"a\": 1};", -1},
    {false, "<|channel|>commentary<|message|>I look." NEXT ANALYSIS "late" NEXT CALL_F, "late",
     "I look.", "f {\"a\": 1};", 0},
    {false, ANALYSIS "a" NEXT "<|channel|>commentary<|message|>b" NEXT ANALYSIS "c", "a\nc", "b",
     "", 1},
    {false, " to=functions.g<|channel|>commentary<|message|>{}", "", "", "g {};", -1},
    {false, "<|channel|>commentary to=browser.search<|message|>q", "", "q", "", -1},
    {false, "<|channel|>analysis to=python<|message|>1+1<|call|>", "1+1", "", "", -1},
    {false, "<|channel|>commentary to=functions.f<|message|>no object<|end|>", "", "no object", "",
     -1},
    {false, "<|channel|>commentary to=functions.<|message|>{}", "", "{}", "", -1},
    {false, "plain", "", "plain", "", -1},
    {false, "plain<|end|>", "", "plain", "", -1},
    {false, "plain<|return|>", "", "plain", "", -1},
    {false, "plain" NEXT FINAL "b", "", "plain\nb", "", -1},
    {false, "assistant" FINAL "b", "", "b", "", -1},
    {false, "to=functions.f<|end|>", "", "", "", -1},
    {false, "<|message|>x", "", "x", "", -1},
    {false, FINAL "a < b <|chan", "", "a < b <|chan", "", -1},
    {false, ANALYSIS "a" FINAL "b", "a", "b", "", -1},
    {false, FINAL "a<|end|>lost<|start|>assistant" FINAL "b", "", "a\nb", "", -1},
    {false, "", "", "", "", -1},
    {true, "goes on<|return|>", "", "goes on", "", -1},
    {true, "a" NEXT FINAL "b", "", "a\nb", "", -1},
    {true, FINAL "b", "", "b", "", -1},
    /* cut in a header: nothing of it is shown */
    {false, "<|channel|>analysis", "", "", "", -1},
    {false, "<|channel|>", "", "", "", -1},
    {false, "<|channel|>final<|mess", "", "", "", -1},
    {false, "<|chan", "", "", "", -1},
    {false, " to=functions.f", "", "", "", -1},
    {false, " to=functions.f<|channel|>commentary <|con", "", "", "", -1},
    {false, "<|start|>assist", "", "", "", -1},
    {false, "a < b <|x", "", "a < b <|x", "", -1},
    {false, "I went to=x", "", "I went to=x", "", -1},
};

static void feed(struct harmony *h, const char *text, int cut, struct tool_parse *calls,
                 struct buf *content) {
    const size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t piece = cut == 0 ? n : cut > 0 ? (size_t)cut : 1 + (size_t)rand() % 9;
        if (piece > n - at) piece = n - at;
        harmony_feed(h, text + at, piece, calls, content);
        at += piece;
    }
    harmony_finish(h, calls, content);
    if (calls != NULL) tool_parse_finish(calls);
}

static const char *text_of(const struct buf *b) {
    return b->data != NULL ? b->data : "";
}

static void check(const struct row *r, int cut) {
    const struct tool_parse_opts opts = {.format = TOOLS_HARMONY, .whole = true, .parallel = true};
    struct tool_parse *calls = tool_parse_create(&opts);
    struct buf unused = BUF_INIT, said = BUF_INIT;
    struct harmony h;
    assert_non_null(calls);
    harmony_init(&h, r->open ? HARMONY_CONTENT : HARMONY_HEADER);
    feed(&h, r->text, cut, calls, &unused);
    for (size_t i = 0; i < tool_parse_n_calls(calls); i++) {
        const struct tool_call *c = tool_parse_call(calls, i);
        buf_printf(&said, "%s %s;", text_of(&c->name), text_of(&c->args));
    }
    assert_string_equal(text_of(&h.text), r->thinking);
    assert_string_equal(text_of(tool_parse_content(calls)), r->content);
    assert_string_equal(text_of(&said), r->calls);
    assert_int_equal(harmony_lead(&h), r->lead < 0 ? h.text.len : (size_t)r->lead);
    assert_int_equal(unused.len, 0);
    harmony_fini(&h);
    tool_parse_destroy(&calls);
    buf_free(&said);
}

static void test_table(void **state) {
    (void)state;
    srand(5);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int cut = -20; cut <= 3; cut++) check(&rows[i], cut);
}

/* A request without tools: what was to be a call is content, for nobody can make it. */
static void test_without_calls(void **state) {
    struct buf content = BUF_INIT;
    struct harmony h;
    (void)state;
    harmony_init(&h, HARMONY_HEADER);
    feed(&h, ANALYSIS "why" NEXT CALL_F, 1, NULL, &content);
    assert_string_equal(text_of(&h.text), "why");
    assert_string_equal(text_of(&content), "{\"a\": 1}");
    harmony_fini(&h);
    buf_free(&content);
}

static void test_a_header_has_an_end(void **state) {
    struct buf content = BUF_INIT, text = BUF_INIT;
    struct harmony h;
    (void)state;
    for (int i = 0; i < HARMONY_HEADER_BYTES_MAX + 500; i++) buf_putc(&text, 'x');
    buf_putc(&text, '\0');
    harmony_init(&h, HARMONY_HEADER);
    feed(&h, text.data, 7, NULL, &content);
    assert_int_equal(content.len, HARMONY_HEADER_BYTES_MAX + 500);
    assert_true(h.header.len <= HARMONY_HEADER_BYTES_MAX);
    harmony_fini(&h);
    buf_free(&content);
    buf_free(&text);
}

/* One that is too long is dropped if it has said what it is: thinking stays thinking. */
static void test_a_long_header_keeps_its_channel(void **state) {
    static const struct {
        const char *before, *after;
        bool thinking;
    } longs[] = {
        {"<|channel|>analysis ", "", true}, {"<|channel|>final ", "", false},
        {" to=functions.f ", "", false},    {"<|constrain|>json <|channel|>analysis ", "", true},
        {"", "<|channel|>analysis ", true}, /* the name is not whole where the bytes run out */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(longs) / sizeof(longs[0]); i++) {
        struct buf content = BUF_INIT, text = BUF_INIT;
        struct harmony h;
        size_t pad = HARMONY_HEADER_BYTES_MAX + 1 - strlen(longs[i].before);
        if (longs[i].after[0] != '\0') pad -= 4;
        buf_puts(&text, longs[i].before);
        for (; pad > 0; pad--) buf_putc(&text, 'x');
        buf_printf(&text, "%ssecret" NEXT FINAL "so", longs[i].after);
        harmony_init(&h, HARMONY_HEADER);
        feed(&h, text.data, 7, NULL, &content);
        assert_string_equal(text_of(&h.text), longs[i].thinking ? "secret" : "");
        assert_string_equal(text_of(&content), longs[i].thinking ? "so" : "secret\nso");
        harmony_fini(&h);
        buf_free(&content);
        buf_free(&text);
    }
}

static void test_what_a_prompt_opens(void **state) {
    static const struct {
        const char *prompt;
        enum harmony_state opened;
    } prompts[] = {
        {"<|start|>user<|message|>hi<|end|><|start|>assistant", HARMONY_HEADER},
        {"<|start|>assistant \n", HARMONY_HEADER},
        {"<|start|>assistant<|channel|>analysis<|message|>", HARMONY_THINKING},
        {"<|start|>assistant<|channel|>analysis<|message|>I see <|end", HARMONY_THINKING},
        {"<|start|>assistant<|channel|>analysis<|message|>I see<|end|>", HARMONY_CONTENT},
        {"<|start|>assistant<|channel|>analysis<|message|>x<|end|><|start|>assistant",
         HARMONY_HEADER},
        {"<|start|>assistant<|channel|>final<|message|>So", HARMONY_CONTENT},
        {"<|start|>assistant<|channel|>commentary to=functions.f<|message|>{", HARMONY_CONTENT},
        {"<|start|>user<|message|>analysis", HARMONY_CONTENT},
        {"<|channel|>analysis<|message|>", HARMONY_CONTENT}, /* of no message that was begun */
        {"hi", HARMONY_CONTENT},
        {"", HARMONY_CONTENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++)
        if (harmony_opened(prompts[i].prompt, strlen(prompts[i].prompt)) != prompts[i].opened)
            fail_msg("%s", prompts[i].prompt);
}

/* What is seen of a text, spans parted by "|" where they do not go on with one another. */
static void look(const char *text, enum harmony_state opened, bool no_thinking, size_t step,
                 struct buf *out) {
    struct harmony_look l;
    struct harmony_span s;
    const size_t len = strlen(text);
    harmony_look_init(&l, opened, no_thinking);
    buf_clear(out);
    buf_puts(out, "");
    for (size_t n = 0; n <= len; n = n < len && n + step > len ? len : n + step) {
        while (harmony_look_next(&l, text, n, n == len, &s)) {
            if (s.fresh) buf_putc(out, '|');
            buf_append(out, text + s.from, s.to - s.from);
        }
        if (n == len) break;
    }
}

static void test_what_is_seen(void **state) {
    static const struct {
        const char *text, *seen, *seen_without_thinking;
        enum harmony_state opened;
    } texts[] = {
        {ANALYSIS "why" NEXT FINAL "so<|return|>", "|why|so", "|so", HARMONY_HEADER},
        {"why" NEXT FINAL "so", "why|so", "|so", HARMONY_THINKING},
        {"on" NEXT FINAL "so", "on|so", "on|so", HARMONY_CONTENT},
        {ANALYSIS "a" FINAL "b", "|a|b", "|b", HARMONY_HEADER},
        {ANALYSIS "why" NEXT CALL_F, "|why|{\"a\": 1}", "|{\"a\": 1}", HARMONY_HEADER},
        {"<|channel|>analysis to=functions.f<|message|>{}", "|{}", "|{}", HARMONY_HEADER},
        {"<|channel|>analysts<|message|>x", "|x", "|x", HARMONY_HEADER},
        {" to=functions.g<|channel|>commentary<|message|>{}", "|{}", "|{}", HARMONY_HEADER},
        {"plain text", "plain text", "plain text", HARMONY_HEADER},
        {" to", " to", " to", HARMONY_HEADER},
        {"to=x", "", "", HARMONY_HEADER},
        {FINAL "a < b <| <|chan", "|a < b <| <|chan", "|a < b <| <|chan", HARMONY_HEADER},
        {FINAL "a<|end|>lost<|start|>assistant" FINAL "b", "|a|b", "|a|b", HARMONY_HEADER},
        {"", "", "", HARMONY_HEADER},
    };
    struct buf out = BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (size_t step = 1; step < 60; step += step < 5 ? 1 : 27) {
            look(texts[i].text, texts[i].opened, false, step, &out);
            assert_string_equal(text_of(&out), texts[i].seen);
            look(texts[i].text, texts[i].opened, true, step, &out);
            assert_string_equal(text_of(&out), texts[i].seen_without_thinking);
        }
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_without_calls),
        cmocka_unit_test(test_what_a_prompt_opens),
        cmocka_unit_test(test_what_is_seen),
        cmocka_unit_test(test_a_header_has_an_end),
        cmocka_unit_test(test_a_long_header_keeps_its_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
