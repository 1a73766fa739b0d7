/* Goal: a mask allows exactly the tokens that keep the output completable, and what is completed is
 * what the guide asks for. Method: masks against brute force (every token tried on a copy of the
 * state), random walks to the end against the automaton and a JSON reader, tables of texts that
 * must and must not be accepted, of errors, and of bounds. */
#include "tests/unit/common/guide/guide_testlib.h"

#include <pthread.h>
#include <stdio.h>
#include "common/base/clock.h"
#include "proto/json.h"

static struct guide_fixture fx;

static int open_all(void **state) {
    (void)state;
    fixture_open(&fx);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    fixture_close(&fx);
    return 0;
}

#define SCHEMA(s) "{\"type\":\"json_schema\",\"schema\":" s "}"
#define REGEX(s)  "{\"type\":\"regex\",\"value\":\"" s "\"}"

static const char *const guides[] = {
    "{\"type\":\"json_object\"}",
    REGEX("(ab|abc|[x-z]{2,5})*q?"),
    REGEX("\\\\d{1,3}(\\\\.\\\\d{2})? (EUR|USD)"),
    REGEX("[^a]{0,40}"),
    "{\"type\":\"choice\",\"value\":[\"yes\",\"no\",\"not now\",\"yes, "
    "but\",\"Gr\xC3\xBC\xC3\x9F\"]}",
    "{\"type\":\"grammar\",\"value\":\"root ::= \\\"(\\\" root* \\\")\\\" | [a-c]+\"}",
    SCHEMA("{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":6},"
           "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},"
           "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"bc\"]},\"maxItems\":3}},"
           "\"required\":[\"name\"]}"),
    SCHEMA(
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{"
        "\"v\":{\"type\":\"boolean\"},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "n\"},\"maxItems\":2}},\"required\":[\"v\"]}}}"),
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]+( [A-Z][a-z]+)?$\",\"maxLength\":12}"),
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\"},\"properties\":{"
           "\"ab\":{\"type\":\"null\"}}}"),
    "{\"type\":\"after\",\"text\":\"</think>\",\"budget\":5,\"then\":" REGEX("ok|fine") "}",
    "{\"type\":\"sequence\",\"items\":[{\"type\":\"literal\",\"value\":\"call:\"},{\"type\":"
    "\"repeat\",\"item\":{\"type\":\"json_object\"},\"min\":1,\"max\":2,\"separator\":{\"type\":"
    "\"literal\",\"value\":\";\"}}]}",
    "{\"type\":\"any_of\",\"items\":[" REGEX("a+") "," REGEX("a*b") ",{\"type\":\"json_object\"}]}",
};

/* Every token on a fork of the state. */
static void check_mask(struct token_guide *tg) {
    bool any = tg->ops->mask(tg->state, fx.bits, fx.n_ids);
    bool found = false;
    for (int32_t id = 0; id < fx.n_ids; id++) {
        struct token_guide copy = {.ops = tg->ops, .state = tg->ops->fork(tg->state)};
        assert_non_null(copy.state);
        bool alive = copy.ops->advance(copy.state, id);
        copy.ops->free(copy.state);
        found |= alive;
        if (alive != has_bit(fx.bits, id)) fail_msg("token %d: mask %d", id, !alive);
    }
    assert_int_equal(any, found);
}

/* Blanks at the start of the output that its decoder cuts: none, one, all of the first token. */
static const struct detok_cut cuts[3] = {{0}, {.n = 1}, {.n = UINT32_MAX, .of_token = true}};

/* How many bytes at the start of an output are cut; first: of its first token. */
static size_t cut_bytes(struct detok_cut cut, const struct buf *out, size_t first) {
    size_t n = 0, most = cut.of_token ? first : out->len;
    while (n < most && n < cut.n && out->data[n] == ' ') n++;
    return n;
}

static void mask_is_what_stays_alive(void **state) {
    (void)state;
    uint64_t seed = 20240607;
    for (size_t k = 0; k < sizeof(guides) / sizeof(guides[0]); k++) {
        struct guide *g = compile(&fx, guides[k]);
        for (int walk = 0; walk < 3; walk++) {
            struct token_guide tg;
            assert_int_equal(guide_start(g, cuts[walk], &tg), ERR_OK);
            for (int i = 0; i < 14; i++) {
                check_mask(&tg);
                int32_t id = draw_bit(&fx, &seed);
                if (id < 0) break;
                assert_true(tg.ops->advance(tg.state, id));
            }
            tg.ops->free(tg.state);
        }
        guide_unref(&g);
    }
}

/* Ids that are allowed one after another, then, at a random place, one that may not be: follow says
 * what advancing a fork says, and leaves the state where it is. */
static void follow_is_advance_on_a_fork(void **state) {
    (void)state;
    enum { N = 8 };
    uint64_t seed = 31;
    int n_whole = 0, n_cut = 0;
    for (size_t k = 0; k < sizeof(guides) / sizeof(guides[0]); k++) {
        struct guide *g = compile(&fx, guides[k]);
        for (int walk = 0; walk < 20; walk++) {
            struct token_guide tg;
            assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
            for (int i = 0; i < 10; i++) {
                struct token_guide copy = {.ops = tg.ops, .state = tg.ops->fork(tg.state)};
                int32_t ids[N], first = -1;
                int want = 0, n;
                bool alive = true;
                assert_non_null(copy.state);
                for (n = 0; n < N; n++) {
                    (void)copy.ops->mask(copy.state, fx.bits, fx.n_ids);
                    ids[n] = draw_bit(&fx, &seed);
                    if (n == 0) first = ids[0];
                    if (ids[n] < 0 || next_random(&seed) % 6 == 0)
                        ids[n] = (int32_t)(next_random(&seed) % (uint64_t)fx.n_ids);
                    alive = alive && copy.ops->advance(copy.state, ids[n]);
                    want += alive;
                }
                copy.ops->free(copy.state);
                assert_int_equal(tg.ops->follow(tg.state, ids, N), want);
                assert_int_equal(tg.ops->follow(tg.state, ids, want), want);
                n_whole += want == N;
                n_cut += want < N;
                if (first < 0) break;
                assert_true(tg.ops->advance(tg.state, first));
            }
            tg.ops->free(tg.state);
        }
        guide_unref(&g);
    }
    assert_true(n_whole > 50 && n_cut > 50);
}

/* Walks to the end; the text goes to out. Prefers, of a few draws, the shortest token, so that
 * walks end. False: still going after so many tokens. */
static bool walk_to_end(struct guide *g, struct detok_cut cut, uint64_t *seed, int n_max,
                        struct buf *out) {
    struct token_guide tg;
    bool done = false;
    assert_int_equal(guide_start(g, cut, &tg), ERR_OK);
    for (int i = 0; i < n_max && !done; i++) {
        assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
        int32_t id = draw_bit(&fx, seed);
        if (has_bit(fx.bits, fx.eos) && next_random(seed) % 3 == 0) id = fx.eos;
        assert_true(tg.ops->advance(tg.state, id));
        done = id == fx.eos;
        const char *p;
        size_t n = tokenizer_token_bytes(fx.tok, id, &p);
        if (!done) buf_append(out, p, n);
        if (i == 0 && out->len > 0) buf_consume(out, cut_bytes(cut, out, n));
    }
    if (done) assert_false(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
    tg.ops->free(tg.state);
    return done;
}

static void what_is_completed_is_accepted(void **state) {
    (void)state;
    uint64_t seed = 77;
    for (size_t k = 0; k < sizeof(guides) / sizeof(guides[0]); k++) {
        struct guide *g = compile(&fx, guides[k]);
        int n_done = 0;
        for (int walk = 0; walk < 30; walk++) {
            struct buf out = BUF_INIT;
            bool whole;
            if (walk_to_end(g, cuts[walk % 3 == 2 ? 2 : 0], &seed, 400, &out)) {
                n_done++;
                assert_int_equal(
                    guide_accepts(g, out.data != NULL ? out.data : "", out.len, &whole), ERR_OK);
                if (!whole) fail_msg("%s: walked to %.*s", guides[k], (int)out.len, out.data);
                if (strstr(guides[k], "json_schema") != NULL) {
                    struct json_value *v = NULL;
                    assert_int_equal(json_read(&v, out.data, out.len, NULL, NULL), ERR_OK);
                    json_put(v);
                }
            }
            buf_free(&out);
        }
        if (n_done == 0) fail_msg("%s: no walk ended", guides[k]);
        guide_unref(&g);
    }
}

struct verdict {
    const char *guide, *text;
    bool yes;
};

/* A blank that the decoder cuts is none for the guide, one that it keeps is. */
static void cut_blanks_are_no_text(void **state) {
    (void)state;
    struct guide *g = compile(&fx, "{\"type\":\"choice\",\"value\":[\" a\",\"a\"]}");
    for (int32_t id = 0; id < fx.n_ids; id++) {
        const char *p;
        size_t n = tokenizer_token_bytes(fx.tok, id, &p);
        if (n != 2 || memcmp(p, " a", 2) != 0) continue;
        for (int k = 0; k < 3; k++) { /* " a" is both texts, or with its blank cut "a" */
            struct token_guide tg;
            assert_int_equal(guide_start(g, cuts[k], &tg), ERR_OK);
            assert_true(tg.ops->advance(tg.state, id));
            assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids) && has_bit(fx.bits, fx.eos));
            tg.ops->free(tg.state);
        }
    }
    guide_unref(&g);
    g = compile(&fx, "{\"type\":\"regex\",\"value\":\" [a-z]+\"}");
    for (int k = 0; k < 2; k++) {
        struct token_guide tg;
        bool open = false;
        assert_int_equal(guide_start(g, cuts[k], &tg), ERR_OK);
        assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
        for (int32_t id = 0; id < fx.n_ids; id++) {
            const char *p;
            size_t n = tokenizer_token_bytes(fx.tok, id, &p);
            if (n == 3 && memcmp(p, " th", 3) == 0) open = has_bit(fx.bits, id);
        }
        assert_int_equal(open, k == 0); /* its blank would not be in the text */
        tg.ops->free(tg.state);
    }
    guide_unref(&g);
}

/* A guide that is at too many positions at once, or has too little time, gives its sequence up and
 * says why; a copy made before goes on. */
static void giving_up_has_a_reason(void **state) {
    (void)state;
    struct buf text = BUF_INIT;
    buf_puts(&text, "{\"type\":\"regex\",\"value\":\"a(");
    for (int i = 0; i < 2000; i++)
        buf_printf(&text, "%s[^\\\\u%04x\\\\u%04x]{20}", i > 0 ? "|" : "", 0x4e00 + 2 * i,
                   0x4e01 + 2 * i);
    buf_puts(&text, ")\"}");
    guide_vocab_limits(fx.v, 60000, GUIDE_STEP_MS); /* sanitizers are slow at compiling */
    struct guide *g = compile(&fx, text.data);
    guide_vocab_limits(fx.v, GUIDE_COMPILE_MS, GUIDE_STEP_MS);
    struct token_guide tg, copy;
    assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
    copy = (struct token_guide){.ops = tg.ops, .state = tg.ops->fork(tg.state)};
    int n_alive = 0;
    while (tg.ops->mask(tg.state, fx.bits, fx.n_ids)) {
        uint64_t seed = 9;
        assert_int_equal(tg.ops->failed(tg.state), ERR_OK);
        assert_true(n_alive++ < 25);
        if (!tg.ops->advance(tg.state, draw_bit(&fx, &seed))) break;
    }
    assert_int_equal(tg.ops->failed(tg.state), ERR_TOO_LARGE);
    assert_false(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
    assert_int_equal(copy.ops->failed(copy.state), ERR_OK);
    tg.ops->free(tg.state);
    copy.ops->free(copy.state);
    guide_unref(&g);
    buf_free(&text);

    atomic_bool cancelled = true;
    struct errbuf eb = {.code = ERR_OK};
    const char *any = "{\"type\":\"json_object\"}";
    assert_int_equal(guide_compile(&g, fx.v, any, strlen(any), &cancelled, &eb), ERR_CANCELLED);
    assert_null(g);
}

static void texts_are_accepted_or_not(void **state) {
    (void)state;
    static const struct verdict table[] = {
        {"{\"type\":\"json_object\"}", "{}", true},
        {"{\"type\":\"json_object\"}", "[]", false},
        {"{\"type\":\"json_object\"}", "{\"a\": [1, -2.5e+3, true, null, {\"b\":\"\\u00e9\\n\"}]}",
         true},
        {"{\"type\":\"json_object\"}", "{\n  \"a\": 1,\n  \"b\": []\n}", true},
        {"{\"type\":\"json_object\"}", "{  \"a\":1}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":01}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":1,}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\n\"}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80\"}", true},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\xED\xA0\x80\"}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\xC0\x80\"}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\\ud83d\\ude00\"}", true},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\\ud83d\"}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":\"\\ude00\"}", false},
        {"{\"type\":\"json_object\"}", "{\"a\":1234567890123456}", false},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":345}"), "-12", true},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":345}"), "-13", false},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":345}"), "345", true},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":345}"), "346", false},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":345}"), "99", true},
        {SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":0}"), "0", false},
        {SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":0}"), "1", true},
        {SCHEMA("{\"type\":\"integer\",\"exclusiveMinimum\":0}"), "100", true},
        {SCHEMA("{\"type\":\"integer\",\"exclusiveMaximum\":0}"), "-1", true},
        {SCHEMA("{\"type\":\"integer\",\"exclusiveMaximum\":0}"), "-0", false},
        {SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}"), "0.5", true},
        {SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}"), "0.49", false},
        {SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}"), "1.25", true},
        {SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}"), "1.250", true},
        {SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}"), "1.2501", false},
        {SCHEMA("{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.25}"), "1", true},
        {SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}"), "0", false},
        {SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}"), "0.001", true},
        {SCHEMA("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.5}"), "-1.5", true},
        {SCHEMA("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.5}"), "-0.4", false},
        {SCHEMA("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.5}"), "-1.6", false},
        {SCHEMA("{\"type\":\"number\",\"minimum\":100}"), "99.9", false},
        {SCHEMA("{\"type\":\"number\",\"minimum\":100}"), "1000.5", true},
        {SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}"), "\"a\"", false},
        {SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}"), "\"a\\u00e9\"", true},
        {SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}"),
         "\"\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\"", true},
        {SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}"), "\"abcd\"", false},
        {SCHEMA("{\"type\":\"string\",\"pattern\":\"b+\"}"), "\"abbc\"", true},
        {SCHEMA("{\"type\":\"string\",\"pattern\":\"b+\"}"), "\"ac\"", false},
        {SCHEMA("{\"type\":\"string\",\"pattern\":\"^\\\"x\\\\\\\\$\"}"), "\"\\\"x\\\\\"", true},
        {SCHEMA("{\"type\":\"string\",\"format\":\"date\"}"), "\"2024-02-28\"", true},
        {SCHEMA("{\"type\":\"string\",\"format\":\"date\"}"), "\"2024-02-30\"", false},
        {SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\"}"), "\"192.168.0.255\"", true},
        {SCHEMA("{\"type\":\"string\",\"format\":\"ipv4\"}"), "\"192.168.0.256\"", false},
        {SCHEMA("{\"type\":[\"string\",\"null\"]}"), "null", true},
        {SCHEMA("{\"type\":\"array\"}"), "[null, ]", false},
        {SCHEMA("{\"type\":\"array\"}"), "[null, 1]", true},
        {SCHEMA("{\"type\":\"array\",\"items\":true}"), "[null,]", false},
        {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"}}"), "[]", true},
        {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"}}"), "[,null]", false},
        {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"}}"), "[null,null,\n]", false},
        {SCHEMA("{\"type\":\"array\",\"minItems\":1}"), "[1,]", false},
        {SCHEMA("{\"type\":\"array\",\"items\":false}"), "[1]", false},
        {SCHEMA("{\"enum\":[1,\"a\",{\"k\":[null]}]}"), "{\"k\":[null]}", true},
        {SCHEMA("{\"enum\":[1,\"a\"],\"type\":\"string\"}"), "1", false},
        {SCHEMA("{\"const\":\"\xC3\xBC\\\"\"}"), "\"\xC3\xBC\\\"\"", true},
        {SCHEMA("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
                "\"required\":[\"a\"]},"
                "{\"properties\":{\"b\":{\"const\":1}}}]}"),
         "{\"a\":3,\"b\":1}", true},
        {SCHEMA("{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\","
                "\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}}"),
         "{\"b\":null}", true},
        {SCHEMA("{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\","
                "\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}}"),
         "{}", false},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":"
                "\"null\"}}}"),
         "{}", true},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":"
                "\"null\"}}}"),
         "{\"b\":null,\"a\":null}", false},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}}"), "{\"c\":null}",
         false},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},"
                "\"additionalProperties\":true}"),
         "{\"a\":1,\"abc\":2,\"b\":3}", true},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},"
                "\"additionalProperties\":true}"),
         "{\"ab\":1}", false},
        {SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":"
                "\"boolean\"},\"minItems\":2}"),
         "[null, true]", true},
        {SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":"
                "\"boolean\"},\"minItems\":2}"),
         "[null]", false},
        {SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}"),
         "[null,null]", false},
        {SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}"), "[]",
         true},
        {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}"),
         "[null,null,null]", true},
        {SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}"),
         "[null,null,null,null]", false},
        {"{\"type\":\"grammar\",\"value\":\"root ::= e\\ne ::= t (\\\"+\\\" t)*\\nt ::= [0-9]+ | "
         "\\\"(\\\" e \\\")\\\"\"}",
         "(1+(22+3))+4", true},
        {"{\"type\":\"grammar\",\"value\":\"root ::= e\\ne ::= t (\\\"+\\\" t)*\\nt ::= [0-9]+ | "
         "\\\"(\\\" e \\\")\\\"\"}",
         "(1+(22+3)", false},
        {"{\"type\":\"repeat\",\"item\":{\"type\":\"literal\",\"value\":\"a\"},\"min\":2,\"max\":"
         "3}",
         "aaa", true},
        {"{\"type\":\"repeat\",\"item\":{\"type\":\"literal\",\"value\":\"a\"},\"min\":2,\"max\":"
         "3}",
         "a", false},
        {"{\"type\":\"repeat\",\"item\":{\"type\":\"literal\",\"value\":\"a\"},\"separator\":{"
         "\"type\":\"literal\",\"value\":\",\"}}",
         "a,a,a,a", true},
        {"{\"type\":\"repeat\",\"item\":{\"type\":\"literal\",\"value\":\"a\"},\"separator\":{"
         "\"type\":\"literal\",\"value\":\",\"}}",
         "a,a,", false},
        {"{\"type\":\"repeat\",\"item\":{\"type\":\"literal\",\"value\":\"a\"}}", "", true},
        {"{\"type\":\"after\",\"text\":\"abab\",\"then\":{\"type\":\"literal\",\"value\":\"!\"}}",
         "ababab!", false},
        {"{\"type\":\"after\",\"text\":\"aab\",\"then\":{\"type\":\"literal\",\"value\":\"!\"}}",
         "xaaaab!", true},
#define AFTER_NEVER                                                                                \
    "{\"type\":\"after\",\"text\":\"<|e\",\"never\":[\"<|c\",\"b\",\"xyx\"],\"then\":{\"type\":"   \
    "\"literal\",\"value\":\"!\"}}"
        {AFTER_NEVER, "a <|<|e!", true},
        {AFTER_NEVER, "a <||c xyyx<|e!", true},
        {AFTER_NEVER, "a <|c<|e!", false},
        {AFTER_NEVER, "xxyx<|e!", false},
        {AFTER_NEVER, "ab<|e!", false},
        {AFTER_NEVER, "a", false},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct guide *g = compile(&fx, table[i].guide);
        bool whole;
        assert_int_equal(guide_accepts(g, table[i].text, strlen(table[i].text), &whole), ERR_OK);
        if (whole != table[i].yes) fail_msg("%s: %s: %d", table[i].guide, table[i].text, whole);
        guide_unref(&g);
    }
}

struct refusal {
    const char *guide;
    enum err e;
    const char *part;
};

static void what_is_wrong_is_said(void **state) {
    (void)state;
    static const struct refusal table[] = {
        {"{\"type\":\"json_object\"", ERR_BAD_JSON, "byte"},
        {"[]", ERR_INVALID, "must be an object with a type"},
        {"{\"type\":\"after\",\"text\":\"abc\",\"never\":[\"b\"]}", ERR_INVALID,
         "a text of never is within that of after"},
        {"{\"type\":\"after\",\"text\":\"abc\",\"never\":\"x\"}", ERR_INVALID,
         "never must be an array of up to 16 texts"},
        {"{\"type\":\"after\",\"text\":\"abc\",\"never\":[1]}", ERR_INVALID,
         "an item of never is no text"},
        {"{\"type\":\"after\",\"text\":\"abc\",\"never\":[\"\"]}", ERR_INVALID,
         "the texts of after must have 1 to 1024 bytes each"},
        {"{\"type\":\"poem\"}", ERR_INVALID, "unknown type 'poem'"},
        {"{\"type\":\"choice\",\"value\":[]}", ERR_INVALID, "choice"},
        {REGEX("a(b"), ERR_INVALID, "')' is missing"},
        {REGEX("a(?=b)"), ERR_INVALID, "look-around"},
        {REGEX("(a)\\\\1"), ERR_INVALID, "back references"},
        {REGEX("a^b"), ERR_INVALID, "'^'"},
        {REGEX("[z-a]"), ERR_INVALID, "wrong way round"},
        {REGEX("a{3,2}"), ERR_INVALID, "reversed"},
        {REGEX("a{65537}"), ERR_INVALID, "65536"},
        {REGEX("((a{1000}){1000}){1000}"), ERR_TOO_LARGE, "states"},
        {"{\"type\":\"grammar\",\"value\":\"root ::= a\"}", ERR_INVALID, "rule 'a' is not defined"},
        {"{\"type\":\"grammar\",\"value\":\"a ::= \\\"x\\\"\"}", ERR_INVALID, "no rule 'root'"},
        {"{\"type\":\"grammar\",\"value\":\"root ::= root \\\"x\\\" | \\\"y\\\"\"}", ERR_INVALID,
         "itself before any text"},
        {"{\"type\":\"grammar\",\"value\":\"root ::= n* root \\\"x\\\" | \\\"y\\\"\\nn ::= "
         "\\\"k\\\"?\"}",
         ERR_INVALID, "itself before any text"},
        {"{\"type\":\"grammar\",\"value\":\"root ::= \\\"x\\\" root\"}", ERR_INVALID,
         "no text satisfies"},
        {SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}"), ERR_INVALID,
         "'not' is not supported, at 'schema.properties.a'"},
        {SCHEMA("{\"type\":\"array\",\"uniqueItems\":true}"), ERR_INVALID,
         "'uniqueItems' is not supported, at 'schema'"},
        {SCHEMA("{\"type\":\"number\",\"multipleOf\":2}"), ERR_INVALID, "'multipleOf'"},
        {SCHEMA("{\"type\":\"object\",\"patternProperties\":{\"a\":{}}}"), ERR_INVALID,
         "'patternProperties'"},
        {SCHEMA("{\"if\":{},\"then\":{}}"), ERR_INVALID, "'if'"},
        {SCHEMA("{\"type\":\"thing\"}"), ERR_INVALID, "unsupported type 'thing' at 'schema'"},
        {SCHEMA("{\"type\":3}"), ERR_INVALID, "'type' at 'schema' must be a string"},
        {SCHEMA("{\"$ref\":\"#/$defs/x\"}"), ERR_INVALID, "not found"},
        {SCHEMA("{\"$ref\":\"other.json\"}"), ERR_INVALID, "must begin with"},
        {SCHEMA("{\"$ref\":\"#\"}"), ERR_INVALID, ""},
        {SCHEMA("{\"allOf\":[{\"$ref\":\"#\"}]}"), ERR_INVALID, ""},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}"), ERR_INVALID,
         "no integer lies"},
        {SCHEMA("{\"type\":\"integer\",\"minimum\":2.1,\"maximum\":2.9}"), ERR_INVALID,
         "no integer lies"},
        {SCHEMA("{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}"), ERR_INVALID,
         "'maxLength'"},
        {SCHEMA("{\"type\":\"string\",\"pattern\":\"^ab$\",\"minLength\":3}"), ERR_INVALID,
         "no string satisfies"},
        {SCHEMA("{\"type\":\"string\",\"pattern\":\"(?<!a)b\"}"), ERR_INVALID,
         "'pattern': regex: look-around"},
        {SCHEMA("{\"enum\":[1,2],\"type\":\"string\"}"), ERR_INVALID, "no value satisfies 'enum'"},
        {SCHEMA("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}"), ERR_INVALID,
         "no value satisfies 'type'"},
        {SCHEMA("{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}"),
         ERR_INVALID, "'a' is not in properties"},
        {SCHEMA("{\"type\":\"object\",\"properties\":[]}"), ERR_INVALID,
         "'properties' at 'schema' must be an object"},
        {SCHEMA("{\"type\":\"array\",\"items\":[]}"), ERR_INVALID,
         "'items' at 'schema' must be an object"},
        {SCHEMA("{\"type\":\"object\",\"required\":\"a\"}"), ERR_INVALID,
         "'required' at 'schema' must be an array"},
        {SCHEMA("{\"type\":\"object\",\"required\":[1]}"), ERR_INVALID,
         "elements of 'required' at 'schema' must be strings"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct errbuf eb = {.code = ERR_OK};
        struct guide *g = NULL;
        enum err e = guide_compile(&g, fx.v, table[i].guide, strlen(table[i].guide), NULL, &eb);
        if (e != table[i].e || strstr(eb.text, table[i].part) == NULL)
            fail_msg("%s: %s: %s", table[i].guide, err_name(e), eb.text);
        assert_null(g);
    }
}

/* A walk of 3000 tokens through nested arrays makes more configurations than are kept. */
static void tables_are_collected(void **state) {
    (void)state;
    struct guide *g = compile(&fx, "{\"type\":\"grammar\",\"value\":\"root ::= [ab] root \\\"x\\\" "
                                   "| [cd] root \\\"y\\\" | \\\"!\\\"\"}");
    struct token_guide tg, early;
    struct buf out = BUF_INIT;
    uint64_t seed = 5;
    bool whole;
    int32_t bang = tokenizer_token_id(fx.tok, "!");
    assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
    early = (struct token_guide){.ops = tg.ops, .state = tg.ops->fork(tg.state)};
    for (int i = 0; i < 12000; i++) {
        char c[2] = {"abcd"[next_random(&seed) % 4], '\0'};
        int32_t id = tokenizer_token_id(fx.tok, c);
        assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
        assert_true(has_bit(fx.bits, id));
        assert_true(tg.ops->advance(tg.state, id));
        buf_append(&out, c, 1);
    }
    assert_true(tg.ops->advance(tg.state, bang));
    buf_append(&out, "!", 1);
    for (int i = 0; i < 12000; i++) {
        const char *p;
        assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
        int32_t id = draw_bit(&fx, &seed);
        size_t n = tokenizer_token_bytes(fx.tok, id, &p);
        if (id == fx.eos) break;
        assert_true(tg.ops->advance(tg.state, id));
        buf_append(&out, p, n);
    }
    assert_int_equal(guide_accepts(g, out.data, out.len, &whole), ERR_OK);
    assert_true(whole);
    check_mask(&early);
    early.ops->free(early.state);
    tg.ops->free(tg.state);
    buf_free(&out);
    guide_unref(&g);
}

static void free_text_ends_with_its_budget(void **state) {
    (void)state;
    uint64_t seed = 11;
    struct guide *g =
        compile(&fx, "{\"type\":\"after\",\"text\":\"</think>\",\"budget\":7,\"then\":"
                     "{\"type\":\"literal\",\"value\":\"ok\"}}");
    for (int walk = 0; walk < 40; walk++) {
        struct buf out = BUF_INIT;
        struct token_guide tg;
        int n_free = 0;
        const char *at;
        assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
        for (int i = 0; i < 40; i++) {
            const char *p;
            assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
            int32_t id = draw_bit(&fx, &seed);
            assert_true(tg.ops->advance(tg.state, id));
            if (id == fx.eos) break;
            if (out.data == NULL || strstr(out.data, "</think>") == NULL) n_free++;
            size_t n = tokenizer_token_bytes(fx.tok, id, &p);
            buf_append(&out, p, n);
        }
        at = strstr(out.data, "</think>");
        assert_non_null(at);
        assert_string_equal(at, "</think>ok");
        assert_true(n_free <= 7 + 8); /* the mark has eight bytes, a token each at worst */
        buf_free(&out);
        tg.ops->free(tg.state);
    }
    guide_unref(&g);
}

static void special_tokens_only_where_named(void **state) {
    (void)state;
    int32_t start = tokenizer_token_id(fx.tok, "<|user|>");
    assert_true(start >= 0 && tokenizer_is_special(fx.tok, start));
    struct token_guide tg;
    struct guide *g = compile(&fx, REGEX(".*"));
    assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
    assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
    assert_false(has_bit(fx.bits, start));
    tg.ops->free(tg.state);
    guide_unref(&g);
    g = compile(&fx, "{\"type\":\"literal\",\"value\":\"a<|user|>b\"}");
    assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
    assert_true(tg.ops->advance(tg.state, tokenizer_token_id(fx.tok, "a")));
    assert_true(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
    for (int32_t id = 0; id < fx.n_ids; id++) assert_int_equal(has_bit(fx.bits, id), id == start);
    assert_true(tg.ops->advance(tg.state, start));
    assert_true(tg.ops->advance(tg.state, tokenizer_token_id(fx.tok, "b")));
    assert_true(tg.ops->advance(tg.state, fx.eos));
    assert_false(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
    tg.ops->free(tg.state);
    guide_unref(&g);
}

static void dead_states_stay_dead(void **state) {
    (void)state;
    struct token_guide tg;
    struct guide *g = compile(&fx, REGEX("ab"));
    static const int32_t bad[] = {-1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
        assert_false(tg.ops->advance(tg.state, bad[i]));
        assert_false(tg.ops->advance(tg.state, tokenizer_token_id(fx.tok, "a")));
        assert_false(tg.ops->mask(tg.state, fx.bits, fx.n_ids));
        tg.ops->free(tg.state);
    }
    assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
    assert_false(tg.ops->advance(tg.state, fx.eos)); /* the text is not complete */
    tg.ops->free(tg.state);
    guide_unref(&g);
}

/* docs/guided.md: an upper bound above 65536 is read as 65536, a lower one refused. */
static void counts_above_the_largest(void **state) {
    static const char *const bounds[] = {"65536", "65537", "9223372036854775807"};
    enum { MOST = GUIDE_REPEAT_MAX };
    char *text = malloc(MOST + 4), schema[128];
    (void)state;
    assert_non_null(text);
    guide_vocab_limits(fx.v, 60000, GUIDE_STEP_MS); /* of counts, not of times */
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        struct guide *g;
        for (int items = 0; items < 2; items++) {
            struct errbuf eb = {0};
            snprintf(schema, sizeof(schema), SCHEMA("{\"type\":\"%s\",\"%s\":%s}"),
                     items ? "array" : "string", items ? "minItems" : "minLength", bounds[i]);
            enum err e = guide_compile(&g, fx.v, schema, strlen(schema), NULL, &eb);
            if (i == 0) {
                assert_true(e == ERR_OK || e == ERR_TOO_LARGE || e == ERR_TIMEOUT);
                guide_unref(&g);
                continue;
            }
            assert_int_equal(e, ERR_INVALID);
            assert_non_null(strstr(eb.text, "must be at most 65536"));
        }
    }
    bool whole;
    struct guide *g;
    snprintf(schema, sizeof(schema), SCHEMA("{\"type\":\"string\",\"maxLength\":%s}"), bounds[2]);
    g = compile(&fx, schema);
    for (int more = 0; more < 2; more++) {
        memset(text, 'a', MOST + 3);
        text[0] = text[MOST + 1 + more] = '"';
        assert_int_equal(guide_accepts(g, text, (size_t)(MOST + 2 + more), &whole), ERR_OK);
        assert_int_equal(whole, more == 0);
    }
    guide_unref(&g);
    guide_vocab_limits(fx.v, GUIDE_COMPILE_MS, GUIDE_STEP_MS);
    free(text);
}

static void large_guides_compile_in_time(void **state) {
    (void)state;
    static const char *const large[] = {
        SCHEMA("{\"type\":\"string\",\"maxLength\":65536}"),
        SCHEMA("{\"type\":\"string\",\"maxLength\":10000000}"),
        SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":20000}"),
        REGEX("(a|b)*a(a|b){14}"),
        REGEX(".{0,3000}x.{0,3000}"),
    };
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        uint64_t from = clock_us();
        struct guide *g = NULL;
        struct errbuf eb = {.code = ERR_OK};
        enum err e = guide_compile(&g, fx.v, large[i], strlen(large[i]), NULL, &eb);
        uint64_t ms = (clock_us() - from) / 1000;
        if (e != ERR_OK && e != ERR_TOO_LARGE && e != ERR_TIMEOUT)
            fail_msg("%s: %s", large[i], eb.text);
        print_message("%s: %s, %llu ms\n", large[i], err_name(e), (unsigned long long)ms);
        if (e == ERR_OK) {
            struct buf out = BUF_INIT;
            uint64_t seed = i + 1;
            walk_to_end(g, cuts[0], &seed, 20, &out);
            buf_free(&out);
        }
        guide_unref(&g);
    }
}

static void cache_keeps_the_last_used(void **state) {
    (void)state;
    struct guide_cache *c;
    struct guide *a, *b, *again;
    assert_int_equal(guide_cache_create(&c, fx.v, 2), ERR_OK);
    assert_int_equal(guide_cache_get(c, REGEX("a"), strlen(REGEX("a")), NULL, &a, NULL), ERR_OK);
    assert_int_equal(guide_cache_get(c, REGEX("b"), strlen(REGEX("b")), NULL, &b, NULL), ERR_OK);
    assert_int_equal(guide_cache_get(c, REGEX("a"), strlen(REGEX("a")), NULL, &again, NULL),
                     ERR_OK);
    assert_ptr_equal(a, again);
    guide_unref(&again);
    assert_int_equal(guide_cache_get(c, REGEX("c"), strlen(REGEX("c")), NULL, &again, NULL),
                     ERR_OK);
    guide_unref(&again);
    assert_int_equal(guide_cache_get(c, REGEX("b"), strlen(REGEX("b")), NULL, &again, NULL),
                     ERR_OK);
    assert_ptr_not_equal(b, again);
    guide_unref(&again);
    struct errbuf eb;
    assert_int_equal(guide_cache_get(c, "{}", 2, NULL, &again, &eb), ERR_INVALID);
    assert_null(again);
    guide_unref(&a);
    guide_unref(&b);
    guide_cache_destroy(&c);
}

struct job {
    struct guide_cache *cache;
    uint64_t seed;
};

static void *walk_in_thread(void *arg) {
    struct job *job = arg;
    uint64_t *bits = calloc(fx.words, sizeof(*bits));
    for (int k = 0; k < 40; k++) {
        const char *text = guides[next_random(&job->seed) % (sizeof(guides) / sizeof(guides[0]))];
        struct guide *g;
        struct token_guide tg;
        if (guide_cache_get(job->cache, text, strlen(text), NULL, &g, NULL) != ERR_OK) abort();
        if (guide_start(g, (struct detok_cut){0}, &tg) != ERR_OK) abort();
        guide_unref(&g);
        for (int i = 0; i < 10 && tg.ops->mask(tg.state, bits, fx.n_ids); i++) {
            int32_t id = (int32_t)(next_random(&job->seed) % (uint64_t)fx.n_ids);
            while (!has_bit(bits, id)) id = (id + 1) % fx.n_ids;
            if (!tg.ops->advance(tg.state, id)) abort();
        }
        tg.ops->free(tg.state);
    }
    free(bits);
    return NULL;
}

static void threads_share_guides(void **state) {
    (void)state;
    struct guide_cache *c;
    struct job jobs[3];
    pthread_t t[3];
    assert_int_equal(guide_cache_create(&c, fx.v, 3), ERR_OK);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct job){.cache = c, .seed = (uint64_t)i * 7919 + 3};
        assert_int_equal(pthread_create(&t[i], NULL, walk_in_thread, &jobs[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    guide_cache_destroy(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_accepted_or_not),
        cmocka_unit_test(cut_blanks_are_no_text),
        cmocka_unit_test(giving_up_has_a_reason),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(mask_is_what_stays_alive),
        cmocka_unit_test(follow_is_advance_on_a_fork),
        cmocka_unit_test(what_is_completed_is_accepted),
        cmocka_unit_test(free_text_ends_with_its_budget),
        cmocka_unit_test(special_tokens_only_where_named),
        cmocka_unit_test(dead_states_stay_dead),
        cmocka_unit_test(tables_are_collected),
        cmocka_unit_test(counts_above_the_largest),
        cmocka_unit_test(large_guides_compile_in_time),
        cmocka_unit_test(cache_keeps_the_last_used),
        cmocka_unit_test(threads_share_guides),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
