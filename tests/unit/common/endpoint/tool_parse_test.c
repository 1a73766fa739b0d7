/* Goal: calls are found in every format, however the text is cut; what is no call is content, and
 * nothing that a model writes breaks the parser.
 * Method: a table of texts with what must come out, for whole answers and for streams. Each text is
 * fed at once, byte by byte and in random pieces: the result must be the same. Every cut-off
 * beginning of every text is fed too, with rules that hold for any text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/endpoint/tool_parse.h"
#include "proto/json.h"

#define CB  "<｜tool▁calls▁begin｜>"
#define CE  "<｜tool▁calls▁end｜>"
#define B   "<｜tool▁call▁begin｜>"
#define E   "<｜tool▁call▁end｜>"
#define SEP "<｜tool▁sep｜>"

/* What comes out, as text: content, then |name(arguments) for each call, with ! after one that is
 * not complete. */
struct row {
    enum tool_format format;
    const char *text, *whole;
    const char *stream; /* NULL: as whole */
    uint32_t hidden;
    bool one; /* parallel_tool_calls false */
};

static const struct row rows[] = {
    /* ---- hermes */
    {.format = TOOLS_HERMES,
     .text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "|f({\"a\": 1})"},
    {.format = TOOLS_HERMES,
     .text = "Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "Let me see.|f({})"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"b\","
             "\"arguments\":{\"x\":[1,{\"y\":\"}\"}]}}</tool_call> and so on",
     "|a({})|b({\"x\":[1,{\"y\":\"}\"}]})"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"arguments\":{\"a\":\"\\\"\"},\"name\":\"f\"}</tool_call>",
     "|f({\"a\":\"\\\"\"})"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\":\"f\",\"parameters\":{}}</tool_call>",
     "|f({})"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"id\":[1,2.5e-3,null],\"z\":-0,\"name\":\"\\u4f60\",\"arguments\":{}}</"
             "tool_call>",
     "|你({})"},
    {.format = TOOLS_HERMES, .text = "no calls, 1 < 2 and <tool> is text <tool_cal", NULL},
    {.format = TOOLS_HERMES, .text = "  spaces stay  \n", NULL},
    {.format = TOOLS_HERMES, .text = "<<tool_call>{\"name\":\"f\",\"arguments\":{}}", "<|f({})"},
    /* the end tag may be missing, or the last brace */
    {.format = TOOLS_HERMES, .text = "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "|f({})"},
    {.format = TOOLS_HERMES, .text = "<tool_call>{\"name\":\"f\",\"arguments\":{}", "|f({})"},
    {.format = TOOLS_HERMES, .text = "<tool_call>{\"name\":\"f\",\"arguments\":{}]} x", "|f({})"},
    /* malformed: nothing was sent yet, so stream and whole agree */
    {.format = TOOLS_HERMES, .text = "<tool_call>nonsense</tool_call>", NULL},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
     NULL},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
     NULL},
    {.format = TOOLS_HERMES, .text = "<tool_call>{\"name\": \"f\"}</tool_call>", NULL},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>",
     NULL},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}</tool_call>",
     NULL},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\": \"\\x\", \"arguments\": {}}</tool_call>",
     NULL},
    {.format = TOOLS_HERMES,
     .text = "x <tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "x <tool_call>|f({})"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call> "
             "<tool_call>{\"name\":1}</tool_call>",
     "<tool_call>{\"name\":1}</tool_call>|a({})"},
    /* malformed inside the arguments: a stream has sent their beginning */
    {.format = TOOLS_HERMES,
     .text = "hi <tool_call>{\"name\":\"f\",\"arguments\":{\"a\": }}</tool_call>",
     "hi <tool_call>{\"name\":\"f\",\"arguments\":{\"a\": }}</tool_call>",
     "hi}}</tool_call>|f({\"a\": )!"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b",
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b",
     "|f({\"a\": \"b)!"},
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\":\"f\",\"arguments\":{1}}</tool_call><tool_call>{\"name\":\"g\","
             "\"arguments\":{}}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":{1}}</tool_call>|g({})",
     "1}}</tool_call>|f({)!|g({})"},
    /* tags that are special tokens stay unseen */
    {.format = TOOLS_HERMES,
     .text = "a <tool_call>nonsense</tool_call> b",
     "a nonsense b",
     NULL,
     3},
    {.format = TOOLS_HERMES, .text = "</tool_call>b</tool_cal", "b</tool_cal", NULL, 3},
    /* one call only */
    {.format = TOOLS_HERMES,
     .text = "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"b\","
             "\"arguments\":{}}</tool_call>",
     "|a({})",
     NULL,
     0,
     true},
    /* ---- llama3 */
    {.format = TOOLS_LLAMA3,
     .text = "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
     "|f({\"a\": \"b\"})"},
    {.format = TOOLS_LLAMA3,
     .text = "\n <|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
     "|f({})"},
    {.format = TOOLS_LLAMA3,
     .text = "I call <|python_tag|>{\"name\": \"f\", \"arguments\": {}}",
     "I call|f({})"},
    {.format = TOOLS_LLAMA3,
     .text = "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {\"x\": 1}}",
     "|a({})|b({\"x\": 1})"},
    {.format = TOOLS_LLAMA3,
     .text = "{\"type\": \"function\", \"name\": \"a\", \"parameters\": {}} thanks",
     "|a({})"},
    {.format = TOOLS_LLAMA3, .text = "{\"name\": \"Bob\", \"age\": 3}", NULL},
    {.format = TOOLS_LLAMA3, .text = " {\"answer\": {\"name\": \"x\"}}", NULL},
    {.format = TOOLS_LLAMA3, .text = "{not JSON", NULL},
    {.format = TOOLS_LLAMA3, .text = "a {\"name\": \"f\", \"parameters\": {}}", NULL},
    {.format = TOOLS_LLAMA3, .text = "<|python_tag|>print(1)", "print(1)", NULL, 1},
    {.format = TOOLS_LLAMA3,
     .text = "{\"name\": \"f\", \"parameters\": {\"a\"}}",
     "{\"name\": \"f\", \"parameters\": {\"a\"}}",
     "}}|f({\"a\")!"},
    {.format = TOOLS_LLAMA3,
     .text = "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}",
     "|a({})",
     NULL,
     0,
     true},
    /* ---- mistral */
    {.format = TOOLS_MISTRAL,
     .text = "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
     "|f({\"a\": 1})"},
    {.format = TOOLS_MISTRAL,
     .text = "[TOOL_CALLS] [ {\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"} , "
             "{\"arguments\": {}, \"name\": \"g\"} ] rest",
     "|f({})|g({})"},
    {.format = TOOLS_MISTRAL, .text = "ok [TOOL_CALLS]f{\"a\": [2]}", "ok|f({\"a\": [2]})"},
    {.format = TOOLS_MISTRAL,
     .text = "[TOOL_CALLS]f{\"a\":1}[TOOL_CALLS]g{\"b\":2}",
     "|f({\"a\":1})|g({\"b\":2})"},
    {.format = TOOLS_MISTRAL,
     .text = "[TOOL_CALLS]f[ARGS]{\"a\":1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
     "|f({\"a\":1})|g({})"},
    {.format = TOOLS_MISTRAL, .text = "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "|f({})"},
    {.format = TOOLS_MISTRAL, .text = "[TOOL_CALLS][]", NULL},
    {.format = TOOLS_MISTRAL, .text = "[TOOL_CALLS]f[BAD]{}", NULL},
    {.format = TOOLS_MISTRAL, .text = "[TOOL_CALLS]not a call", "not a call", NULL, 7},
    {.format = TOOLS_MISTRAL, .text = "an [array] and [TOOL_CAL", NULL},
    {.format = TOOLS_MISTRAL,
     .text = "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": 1}]",
     ", {\"name\": 1}]|f({})"},
    {.format = TOOLS_MISTRAL,
     .text =
         "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
     "|f({})",
     NULL,
     0,
     true},
    /* ---- deepseek */
    {.format = TOOLS_DEEPSEEK_V3,
     .text = CB B "function" SEP "f\n```json\n{\"a\": 1}\n```" E "\n" B "function" SEP
                  "g\n```json\n{}\n```" E CE,
     "|f({\"a\": 1})|g({})"},
    {.format = TOOLS_DEEPSEEK_V3,
     .text = "Well. " CB B "function" SEP "f\n```json\n{}\n```" E CE,
     "Well.|f({})"},
    {.format = TOOLS_DEEPSEEK_V3,
     .text = CB B "function" SEP "f\n{}" E CE,
     B "function" SEP "f\n{}" E},
    {.format = TOOLS_DEEPSEEK_V3,
     .text = CB B "function" SEP "f\n{}" E CE,
     "functionf\n{}",
     NULL,
     31},
    {.format = TOOLS_DEEPSEEK_V31,
     .text = CB B "f" SEP "{\"a\": 1}" E B "g" SEP "{}" E CE,
     "|f({\"a\": 1})|g({})"},
    {.format = TOOLS_DEEPSEEK_V31, .text = "Hm." CB B "f" SEP "{}" E CE, "Hm.|f({})"},
    {.format = TOOLS_DEEPSEEK_V31, .text = CB B "f g" SEP "{}" E CE, "f g{}", NULL, 31},
    {.format = TOOLS_DEEPSEEK_V31, .text = "no call", NULL},
    /* ---- chatglm */
    {.format = TOOLS_CHATGLM,
     .text = "get_weather\n{\"city\": \"x\"}",
     "|get_weather({\"city\": \"x\"})"},
    {.format = TOOLS_CHATGLM, .text = "\nf\n{}\ng\n{\"a\": 1}", "|f({})|g({\"a\": 1})"},
    {.format = TOOLS_CHATGLM, .text = "Hello there", NULL},
    {.format = TOOLS_CHATGLM, .text = "Hello\nthere", NULL},
    {.format = TOOLS_CHATGLM, .text = "Hello", NULL},
    {.format = TOOLS_CHATGLM, .text = "{\"a\": 1}", NULL},
    {.format = TOOLS_CHATGLM, .text = "你好", NULL},
    /* ---- llama4 */
    {.format = TOOLS_LLAMA4,
     .text = "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
     "|f({\"a\": \"b\"})"},
    {.format = TOOLS_LLAMA4,
     .text = "<|python_start|><|python_end|>{\"name\": \"a\", \"parameters\": {}}{\"name\": "
             "\"b\", \"parameters\": {}}",
     "|a({})|b({})"},
    {.format = TOOLS_LLAMA4,
     .text = "<|python_start|>Let me look. <|python_end|>{\"name\": \"a\", \"parameters\": {}}",
     "Let me look.|a({})"},
    {.format = TOOLS_LLAMA4, .text = "<|python_start|>print(1)<|python_end|>", "print(1)"},
    {.format = TOOLS_LLAMA4,
     .text =
         "<|python_start|>[get_weather(city='San \"F\"', days=[1, -2.5e3], m={'x': (1, None)}), "
         "get.time()]<|python_end|>",
     "|get_weather({\"city\": \"San \\\"F\\\"\", \"days\": [1, -2.5e3], \"m\": {\"x\": [1, "
     "null]}})|get.time({})"},
    {.format = TOOLS_LLAMA4,
     .text = " [ f ( ) ] ",
     " [ f ( ) ] "}, /* a name stands before its parenthesis */
    {.format = TOOLS_LLAMA4,
     .text = "[f( a = True , b=False,), {\"name\": \"g\", \"parameters\": {}}] and more",
     "|f({\"a\": true, \"b\": false})|g({})"},
    {.format = TOOLS_LLAMA4,
     .text = "[f(a=\"\\x41\\u00e9\\U0001F600\\d\\n\\\"\")]",
     "|f({\"a\": \"\\u0041\\u00e9\\ud83d\\ude00\\\\d\\u000a\\\"\"})"},
    {.format = TOOLS_LLAMA4,
     .text = "[f(a=(), b=(1,), c={}, d=[])]",
     "|f({\"a\": [], \"b\": [1], \"c\": {}, \"d\": []})"},
    {.format = TOOLS_LLAMA4, .text = "[link](https://x.y) is text", NULL},
    {.format = TOOLS_LLAMA4, .text = "[f(1)]", NULL},
    {.format = TOOLS_LLAMA4, .text = "[1, 2, 3]", NULL},
    {.format = TOOLS_LLAMA4, .text = "[]", NULL},
    {.format = TOOLS_LLAMA4, .text = "I write [f(a=1)]", NULL},
    {.format = TOOLS_LLAMA4, .text = "[f(a=g(1))]", NULL, "(1))]|f({\"a\": )!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a=[1})]", NULL, "})]|f({\"a\": [1)!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a='\\ud800')]", NULL, "0')]|f({\"a\": \")!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a=1", NULL, "|f({\"a\": )!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a=01)]", NULL, ")]|f({\"a\": )!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a=1, a=2)]", NULL, "=2)]|f({\"a\": 1)!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a=(1))]", NULL, "))]|f({\"a\": [1)!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a={1: 2})]", NULL, "1: 2})]|f({\"a\": {)!"},
    {.format = TOOLS_LLAMA4, .text = "[f(a=1), g(b=2)]", "|f({\"a\": 1})", NULL, 0, true},
    {.format = TOOLS_LLAMA4, .text = "[f(a=1), g(2)]", ", g(2)]|f({\"a\": 1})"},
    /* ---- nothing is looked for */
    {.format = TOOLS_NONE,
     .text = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     NULL},
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static struct tool_parse *open_row(const struct row *r, bool whole) {
    const struct tool_parse_opts opts = {.format = r->format,
                                         .whole = whole,
                                         .parallel = !r->one,
                                         .hidden = r->hidden,
                                         .id_seed = 7};
    struct tool_parse *p = tool_parse_create(&opts);
    assert_non_null(p);
    return p;
}

static void describe(const struct tool_parse *p, struct buf *out) {
    const struct buf *content = tool_parse_content(p);
    buf_append(out, content->data != NULL ? content->data : "", content->len);
    for (size_t i = 0; i < tool_parse_n_calls(p); i++) {
        const struct tool_call *c = tool_parse_call(p, i);
        buf_printf(out, "|%s(%s)%s", c->name.data, c->args.data != NULL ? c->args.data : "",
                   c->complete ? "" : "!");
    }
}

/* cut: 0 all at once, n > 0: pieces of n bytes, negative: random pieces. */
static void run(const struct row *r, const char *text, size_t n, bool whole, int cut,
                struct buf *out) {
    struct tool_parse *p = open_row(r, whole);
    for (size_t at = 0; at < n;) {
        size_t piece = cut == 0 ? n : cut > 0 ? (size_t)cut : 1 + (size_t)rand() % 9;
        if (piece > n - at) piece = n - at;
        tool_parse_feed(p, text + at, piece);
        at += piece;
    }
    tool_parse_finish(p);
    tool_parse_feed(p, "late", 4);
    assert_false(tool_parse_failed(p));
    buf_clear(out);
    buf_puts(out, "");
    describe(p, out);
    tool_parse_destroy(&p);
    assert_null(p);
}

static void check_row(const struct row *r, bool whole, struct buf *out) {
    const char *want = r->whole != NULL ? r->whole : r->text;
    if (!whole && r->stream != NULL) want = r->stream;
    for (int cut = -20; cut <= 3; cut++) {
        run(r, r->text, strlen(r->text), whole, cut, out);
        if (strcmp(out->data, want) != 0)
            fail_msg("text %s\nwhole %d, cut %d\nwant %s\ngot  %s", r->text, whole, cut, want,
                     out->data);
    }
}

static void test_table(void **state) {
    (void)state;
    struct buf out = BUF_INIT;
    srand(1);
    for (size_t i = 0; i < N_ROWS; i++) {
        check_row(&rows[i], true, &out);
        check_row(&rows[i], false, &out);
    }
    buf_free(&out);
}

/* Rules for any text: a complete call's arguments are a JSON object; in whole answers every call is
 * complete; what was there once stays (a stream has sent it). */
static void check_any(const struct row *r, const char *text, size_t n, bool whole) {
    struct tool_parse *p = open_row(r, whole);
    size_t content = 0, calls = 0, args = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n)
            tool_parse_feed(p, text + i, 1);
        else
            tool_parse_finish(p);
        assert_true(tool_parse_content(p)->len >= content);
        assert_true(tool_parse_n_calls(p) >= calls);
        if (tool_parse_n_calls(p) > calls) args = 0;
        content = tool_parse_content(p)->len;
        calls = tool_parse_n_calls(p);
        if (calls == 0) continue;
        const struct tool_call *c = tool_parse_call(p, calls - 1);
        assert_true(c->args.len >= args && c->name.len > 0);
        args = c->args.len;
    }
    for (size_t i = 0; i < calls; i++) {
        const struct tool_call *c = tool_parse_call(p, i);
        struct json_value *o = NULL;
        assert_true(c->complete || !whole);
        if (!c->complete) continue;
        if (json_read(&o, c->args.data, c->args.len, NULL, NULL) != ERR_OK)
            fail_msg("%.*s gives %s", (int)n, text, c->args.data);
        assert_true(json_is(o, json_type_object));
        json_put(o);
    }
    tool_parse_destroy(&p);
}

static void test_cut_off(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t n = 0; n <= strlen(rows[i].text); n++) {
            check_any(&rows[i], rows[i].text, n, true);
            check_any(&rows[i], rows[i].text, n, false);
        }
}

/* One byte of a good text becomes another. */
static void test_damaged(void **state) {
    static const char bytes[] = "{}[]\":,\\ <>x0-\n";
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        char text[512];
        size_t n = strlen(rows[i].text);
        assert_true(n < sizeof(text));
        for (size_t at = 0; at < n; at++)
            for (size_t b = 0; b + 1 < sizeof(bytes); b++) {
                memcpy(text, rows[i].text, n);
                text[at] = bytes[b];
                check_any(&rows[i], text, n, (at + b) % 2 == 0);
            }
    }
}

/* An answer counts as calls unless its end, or a malformed call that a stream has begun to send,
 * says otherwise. */
static void test_called(void **state) {
#define GOOD "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
    static const struct {
        const char *text;
        bool whole, stream;
    } texts[] = {
        {"", false, false},
        {"text", false, false},
        {GOOD, true, true},
        {GOOD "\n", true, true},
        {GOOD "<tool_call>{", false, false}, /* cut */
        {GOOD "<tool_call>{\"name\":\"f\",\"arguments\":{", false, false},
        {GOOD "<tool_call>{\"name\":\"f\",\"arguments\":{}", true, true},
        {GOOD "<tool_call>x", true, true},
        {GOOD "<tool_call>{\"name\":\"f\",\"arguments\":{x", true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (int whole = 0; whole <= 1; whole++) {
            struct tool_parse *p = open_row(&(struct row){.format = TOOLS_HERMES}, whole == 1);
            tool_parse_feed(p, texts[i].text, strlen(texts[i].text));
            tool_parse_finish(p);
            assert_int_equal(tool_parse_called(p), whole == 1 ? texts[i].whole : texts[i].stream);
            tool_parse_destroy(&p);
        }
}

static void test_ids(void **state) {
    struct buf text = BUF_INIT;
    (void)state;
    for (int i = 0; i < 20; i++)
        buf_puts(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
    struct tool_parse *p = open_row(&(struct row){.format = TOOLS_HERMES}, true);
    struct tool_parse *again = open_row(&(struct row){.format = TOOLS_HERMES}, false);
    tool_parse_feed(p, text.data, text.len);
    tool_parse_feed(again, text.data, text.len);
    assert_int_equal(tool_parse_n_calls(p), 20);
    for (size_t i = 0; i < 20; i++) {
        const char *id = tool_parse_call(p, i)->id;
        assert_int_equal(strlen(id), 13);
        assert_memory_equal(id, "call_", 5);
        assert_int_equal(strspn(id + 5, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
                                        "WXYZ"),
                         8);
        assert_string_equal(id, tool_parse_call(again, i)->id);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(id, tool_parse_call(p, j)->id);
    }
    tool_parse_destroy(&p);
    tool_parse_destroy(&again);
    buf_free(&text);
}

static void test_bounds(void **state) {
    struct row r = {.format = TOOLS_HERMES};
    struct buf text = BUF_INIT, out = BUF_INIT;
    (void)state;
    /* calls of one answer */
    for (int more = 0; more <= 1; more++)
        for (int whole = 0; whole <= 1; whole++) {
            buf_clear(&text);
            for (int i = 0; i < TOOL_CALLS_MAX + more; i++)
                buf_puts(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
            struct tool_parse *p = open_row(&r, whole == 1);
            tool_parse_feed(p, text.data, text.len);
            tool_parse_finish(p);
            assert_int_equal(tool_parse_n_calls(p), TOOL_CALLS_MAX);
            assert_int_equal(tool_parse_content(p)->len, 0);
            tool_parse_destroy(&p);
        }
    /* as many that a stream cannot take back, and one more */
    buf_clear(&text);
    for (int i = 0; i < TOOL_CALLS_MAX + 1; i++)
        buf_puts(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{x");
    struct tool_parse *p = open_row(&r, false);
    tool_parse_feed(p, text.data, text.len);
    tool_parse_finish(p);
    assert_int_equal(tool_parse_n_calls(p), TOOL_CALLS_MAX);
    assert_non_null(strstr(tool_parse_content(p)->data, "<tool_call>{\"name\""));
    assert_false(tool_parse_called(p));
    tool_parse_destroy(&p);
    /* length of a name */
    for (int more = 0; more <= 1; more++) {
        char name[TOOL_NAME_BYTES + 2];
        memset(name, 'n', sizeof(name));
        name[TOOL_NAME_BYTES + more] = '\0';
        buf_clear(&text);
        buf_printf(&text, "<tool_call>{\"name\":\"%s\",\"arguments\":{}}", name);
        run(&r, text.data, text.len, true, 0, &out);
        assert_int_equal(out.data[0], more == 0 ? '|' : '<');
        buf_clear(&text);
        buf_printf(&text, "[TOOL_CALLS]%s{}", name);
        run(&(struct row){.format = TOOLS_MISTRAL}, text.data, text.len, true, 0, &out);
        assert_int_equal(out.data[0], more == 0 ? '|' : '[');
    }
    /* depth of the arguments: containers inside each other */
    for (int depth = 128; depth <= 129; depth++) {
        buf_clear(&text);
        buf_puts(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":");
        for (int i = 1; i < depth; i++) buf_putc(&text, '[');
        for (int i = 1; i < depth; i++) buf_putc(&text, ']');
        buf_puts(&text, "}}");
        run(&r, text.data, text.len, true, 0, &out);
        assert_int_equal(out.data[0], depth == 128 ? '|' : '<');
    }
    buf_free(&text);
    buf_free(&out);
}

/* A call whose name is none leaves the text as it was, also the space that may come before a call.
 */
static void test_open_without_a_name(void **state) {
    char name[TOOL_NAME_BYTES + 1];
    (void)state;
    memset(name, 'n', sizeof(name));
    for (int whole = 0; whole <= 1; whole++) {
        struct tool_parse *p = open_row(&(struct row){.format = TOOLS_HARMONY}, whole == 1);
        tool_parse_feed(p, "Well. \n", 7);
        assert_false(tool_parse_open(p, name, sizeof(name)));
        assert_false(tool_parse_open(p, name, 0));
        assert_false(tool_parse_open(p, "a\0b", 3));
        tool_parse_feed(p, "so ", 3);
        assert_true(tool_parse_open(p, name, TOOL_NAME_BYTES));
        tool_parse_feed(p, "{}", 2);
        tool_parse_shut(p);
        tool_parse_finish(p);
        const struct buf *content = tool_parse_content(p);
        assert_int_equal(content->len, 9);
        assert_memory_equal(content->data, "Well. \nso", 9);
        assert_int_equal(tool_parse_n_calls(p), 1);
        tool_parse_destroy(&p);
    }
}

static void test_names_and_templates(void **state) {
    static const struct {
        const char *src;
        enum tool_format format;
    } templates[] = {
        {"{{ '<tool_call>' }}", TOOLS_HERMES},
        {"x [TOOL_CALLS] y", TOOLS_MISTRAL},
        {"<|python_tag|>", TOOLS_LLAMA3},
        {"Environment: ipython", TOOLS_LLAMA3},
        {"Environment: ipython <|python_start|>", TOOLS_LLAMA4},
        {"<|header_start|>user<|header_end|>", TOOLS_LLAMA4},
        {B "```json", TOOLS_DEEPSEEK_V3},
        {B SEP, TOOLS_DEEPSEEK_V31},
        {"<|observation|>", TOOLS_CHATGLM},
        {"<tool_call><function=f>", TOOLS_NONE},
        {"<tool_call><arg_key>", TOOLS_NONE},
        {"{{ messages }}", TOOLS_NONE},
        {"", TOOLS_NONE},
    };
    static const char *const names[] = {"hermes",      "qwen2_5",         "qwen3",       "llama3",
                                        "llama4",      "llama4_pythonic", "llama4_json", "mistral",
                                        "deepseek_v3", "deepseek_v31",    "chatglm",     "none"};
    enum tool_format f;
    (void)state;
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
        assert_int_equal(tool_format_of_template(templates[i].src, strlen(templates[i].src)),
                         templates[i].format);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_true(tool_format_of_name(names[i], &f));
    assert_int_equal(f, TOOLS_NONE);
    assert_false(tool_format_of_name("", &f));
    assert_false(tool_format_of_name("Hermes", &f));
    for (int i = 0; i < TOOLS_COUNT; i++)
        for (size_t t = 0; t < TOOL_TAGS_MAX; t++) {
            const char *tag = tool_format_tags((enum tool_format)i)[t];
            /* what text() relies on */
            if (tag != NULL) assert_null(strchr(tag + 1, tag[0]));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_called),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_open_without_a_name),
        cmocka_unit_test(test_names_and_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
