/* Goal: what the coordinator reads out of a body is what each family means by it, and no body makes
 * it fail. Method: a table of bodies by path; beside a reader that builds the tree, over random
 * bodies and hostile ones on every path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/body_look.h"
#include "tests/unit/coordinator/body_tree.h"

static struct body_look look(const char *path, const char *body, size_t n) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    const struct api_path *a = api_path_find("POST", path, model);
    struct body_look l;
    assert_non_null(a);
    body_look(&l, a, body, n);
    return l;
}

#define CHAT  "/v1/chat/completions"
#define TEXT  "/v2/models/m/generate"
#define TOKEN "/v2/models/m/infer"

static void bodies(void **state) {
    static const struct {
        const char *path, *body;
        bool is_object, has_input, stream;
        size_t n_chars;
        const char *id;
    } rows[] = {
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"12345\"}]}", 1, 1, 0, 5, ""},
        {CHAT, "{\"messages\":[{\"content\":\"123\"},{\"content\":\"4567\"}],\"stream\":true}", 1,
         1, 1, 7, ""},
        {CHAT, "{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"abc\"}]}]}", 1, 1, 0, 3,
         ""},
        {CHAT, "{\"messages\":[{\"content\":null},{},5]}", 1, 1, 0, 4, ""},
        {CHAT, "{\"messages\":\"abcd\",\"stream\":\"true\"}", 1, 1, 0, 4, ""},
        {CHAT, "{\"prompt\":\"abcd\"}", 1, 0, 0, 17, ""},
        {CHAT, "{\"messages\":null}", 1, 0, 0, 17, ""},
        {CHAT, "[1]", 0, 0, 0, 3, ""},
        {CHAT, "null", 0, 0, 0, 4, ""},
        {CHAT, "", 0, 0, 0, 0, ""},
        {CHAT, "{\"messages\":", 0, 0, 0, 12, ""},
        {"/v1/completions", "{\"prompt\":\"\xC3\xA4\xC3\xB6\",\"stream\":true}", 1, 1, 1, 4, ""},
        {"/v1/completions", "{\"prompt\":[1,2,3]}", 1, 1, 0, 12, ""},
        {"/v1/completions", "{\"prompt\":[[1,2],[3]]}", 1, 1, 0, 12, ""},
        {"/v1/completions", "{\"prompt\":[\"ab\",\"c\"]}", 1, 1, 0, 3, ""},
        {"/v1/completions", "{\"inputs\":\"ab\"}", 1, 0, 0, 15, ""},
        {"/", "{\"inputs\":\"abc\",\"stream\":true}", 1, 1, 1, 3, ""},
        {"/generate", "{\"inputs\":\"abc\",\"stream\":true}", 1, 1, 0, 3, ""},
        {"/generate", "{\"prompt\":\"abcd\",\"stream\":true}", 1, 1, 1, 4, ""},
        {"/generate", "{\"inputs\":\"abc\",\"prompt\":\"abcd\"}", 1, 1, 0, 3, ""},
        {"/generate_stream", "no", 0, 0, 1, 2, ""},
        {"/infer", "{\"input_id\":[1,2],\"stream\":true}", 1, 1, 1, 8, ""},
        {"/infer_token", "{\"inputs\":\"\"}", 1, 1, 0, 0, ""},
        {TEXT, "{\"text_input\":\"abc\",\"id\":\"a-B_9\",\"stream\":true}", 1, 1, 0, 3, "a-B_9"},
        {CHAT, "{\"messages\":[],\"request_id\":\"r-1\",\"id\":\"x\"}", 1, 1, 0, 0, "r-1"},
        {CHAT, "{\"messages\":[],\"request_id\":\"r 1\"}", 1, 1, 0, 0, ""},
        {"/v1/completions", "{\"prompt\":\"\",\"request_id\":\"r\"}", 1, 1, 0, 0, "r"},
        {"/generate", "{\"prompt\":\"\",\"request_id\":\"r\"}", 1, 1, 0, 0, ""},
        {TEXT, "{\"text_input\":\"abc\",\"request_id\":\"r\"}", 1, 1, 0, 3, ""},
        {TEXT, "{\"text_input\":\"abc\",\"id\":\"a b\"}", 1, 1, 0, 3, ""},
        {TEXT, "{\"text_input\":\"abc\",\"id\":\"\"}", 1, 1, 0, 3, ""},
        {TEXT, "{\"text_input\":\"abc\",\"id\":\"a\\u0000b\"}", 1, 1, 0, 3, ""},
        {TEXT, "{\"text_input\":\"abc\",\"id\":5}", 1, 1, 0, 3, ""},
        {TEXT "_stream", "{\"text_input\":\"abc\",\"id\":\"x\"}", 1, 1, 1, 3, "x"},
        {TOKEN, "{\"id\":\"t\",\"inputs\":[{\"name\":\"i\",\"shape\":[1,3],\"data\":[7,8,9]}]}", 1,
         1, 0, 12, "t"},
        {"/", "{\"inputs\":\"x\",\"id\":\"not-triton\"}", 1, 1, 0, 1, ""},
        /* lists nest as they like; no family has text in three objects */
        {"/", "{\"inputs\":[[[[[[1]]]]]]}", 1, 1, 0, 4, ""},
        {"/", "{\"inputs\":{\"text\":{\"text\":\"abc\"}}}", 1, 1, 0, 3, ""},
        {"/", "{\"inputs\":{\"text\":{\"text\":{\"text\":\"abc\"}}}}", 1, 1, 0, 0, ""},
        /* a number, however it is spelled, and a word */
        {"/v1/completions", "{\"prompt\":[1.5, -2e1,null, true ]}", 1, 1, 0, 16, ""},
        /* what is no JSON inside goes on as it is, what has no end is noticed */
        {CHAT, "{\"messages\":[{\"content\":\"123\"}],\"x\":[01,,]}", 1, 1, 0, 3, ""},
        {CHAT, "{\"messages\":[{\"content\":\"123\"}],\"x\":\"}", 0, 0, 0, 38, ""},
        {CHAT, "{\"messages\":[{\"content\":\"123\"}]} x", 0, 0, 0, 34, ""},
        {CHAT, "{\"messages\":[{\"content\":\"123\"}]}}", 0, 0, 0, 33, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct body_look l = look(rows[i].path, rows[i].body, strlen(rows[i].body));
        if (l.is_object != rows[i].is_object || l.has_input != rows[i].has_input ||
            l.stream != rows[i].stream || l.n_chars != rows[i].n_chars ||
            strcmp(l.client_id, rows[i].id) != 0 || l.client_id_soft != (rows[i].id[0] == 'r'))
            fail_msg("row %zu: %d %d %d %zu \"%s\"", i, l.is_object, l.has_input, l.stream,
                     l.n_chars, l.client_id);
    }
}

/* What the work is: prompts, sequences drawn from all of them, tokens of a sequence. */
static void work(void **state) {
    static const struct {
        const char *path, *body;
        unsigned n_prompts, n_sequences;
        uint64_t new_tokens_max;
    } rows[] = {
        {CHAT, "{\"messages\":[{\"content\":\"a\"},{\"content\":\"b\"}]}", 1, 1, 0},
        {CHAT, "{\"messages\":[],\"n\":8,\"max_tokens\":512}", 1, 8, 512},
        {CHAT, "{\"messages\":[],\"n\":2,\"best_of\":4,\"max_completion_tokens\":9}", 1, 4, 9},
        {"/v1/completions", "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":2}", 3, 6, 0},
        {"/v1/completions", "{\"prompt\":[[1,2],[3]]}", 2, 2, 0},
        {"/v1/completions", "{\"prompt\":[1,2,3]}", 1, 1, 0},
        {"/v1/completions", "{\"prompt\":[]}", 1, 1, 0},
        {"/v1/completions", "{\"n\":4,\"prompt\":[\"a\",\"b\"]}", 2, 8, 0},
        {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":7,\"best_of\":3}}", 1,
         3, 7},
        {"/infer", "{\"inputs\":\"a\",\"parameters\":5}", 1, 1, 0},
        {CHAT, "{\"messages\":[],\"n\":0,\"max_tokens\":-5}", 1, 1, 0},
        {CHAT, "{\"messages\":[],\"n\":\"8\",\"max_tokens\":null}", 1, 1, 0},
        {CHAT, "{\"messages\":[],\"n\":18446744073709551615,\"max_tokens\":18446744073709551615}",
         1, SEQUENCES_MAX, PROMPT_TOKENS_MAX},
        {CHAT, "[", 1, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct body_look l = look(rows[i].path, rows[i].body, strlen(rows[i].body));
        if (l.n_prompts != rows[i].n_prompts || l.n_sequences != rows[i].n_sequences ||
            l.new_tokens_max != rows[i].new_tokens_max)
            fail_msg("row %zu: %u %u %llu", i, l.n_prompts, l.n_sequences,
                     (unsigned long long)l.new_tokens_max);
    }
}

static void ids(void **state) {
    char id[CLIENT_ID_BYTES_MAX + 2], body[CLIENT_ID_BYTES_MAX + 64];
    (void)state;
    memset(id, 'a', sizeof(id));
    assert_false(body_id_ok(id, 0));
    for (size_t n = CLIENT_ID_BYTES_MAX - 1; n <= CLIENT_ID_BYTES_MAX + 1; n++) {
        memset(id, 'a', n);
        id[n] = 0;
        assert_int_equal(body_id_ok(id, n), n <= CLIENT_ID_BYTES_MAX);
        int len = snprintf(body, sizeof(body), "{\"text_input\":\"\",\"id\":\"%s\"}", id);
        struct body_look l = look(TEXT, body, (size_t)len);
        assert_string_equal(l.client_id, n <= CLIENT_ID_BYTES_MAX ? id : "");
    }
    for (int c = 1; c < 256; c++) {
        char one[2] = {(char)c, 0};
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        assert_int_equal(body_id_ok(one, 1), good);
    }
}

/* ---- beside the tree */

static uint64_t seed = 88172645463325252u;

static unsigned draw(unsigned n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % n;
}

static void compare(const char *body, size_t n) {
    for (const struct api_path *path = api_paths; path->path != NULL; path++) {
        if (path->frames == API_FRAMES_GRPC) continue; /* messages: below */
        struct body_look a, b;
        body_look(&a, path, body, n);
        if (!body_tree(&b, path, body, n)) {
            assert_true(a.n_chars <= 4 * n && a.n_prompts >= 1 && a.n_prompts <= PARTS_MAX);
            assert_true(a.n_sequences >= 1 && a.n_sequences <= SEQUENCES_MAX);
            assert_true(a.client_id[0] == 0 || body_id_ok(a.client_id, strlen(a.client_id)));
            continue;
        }
        assert_true(a.input_bytes == 0 || (a.input > body && a.input + a.input_bytes <= body + n));
        b.input = a.input;
        b.input_bytes = a.input_bytes;
        b.before_input = a.before_input;
        if (memcmp(&a, &b, sizeof(a)) != 0)
            fail_msg("%s: %.*s\n%d %d %d %zu %s %u %u\n%d %d %d %zu %s %u %u", path->path, (int)n,
                     body, a.is_object, a.has_input, a.stream, a.n_chars, a.client_id, a.n_prompts,
                     a.n_sequences, b.is_object, b.has_input, b.stream, b.n_chars, b.client_id,
                     b.n_prompts, b.n_sequences);
    }
}

/* Members that matter, spelled with and without escapes, and some that do not. */
static const char *const random_names[] = {
    "messages",  "prompt",       "text_input",     "inputs",    "input_id",       "stream",
    "id",        "request_id",   "content",        "text",      "data",           "other",
    "",          "str\\u0065am", "\\u0069d",       "prompt\\n", "m\\u0065ssages", "stre",
    "streamx",   "\xC3\xA4",     "\\ud83d\\ude00", "n",         "best_of",        "max_tokens",
    "parameters"};
static const char *const random_leaves[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "17",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "1.0",
    "1e2",
    "-0.5E-7",
    "\"\"",
    "\"abc\"",
    "\"r-1\"",
    "\"a\\u0000b\"",
    "\"\\ud83d\\ude00\\n\"",
    "\"\xE2\x82\xAC\"",
    "\"id 5\"",
    "\"\\u0072_2\"",
    "\"\\\"\\\\\"",
    "[]",
    "{}",
    "1797693134862315807937289714053034150799341327100378e257",
    "17976931348623157e292"};
static const char *const wrong_leaves[] = {
    "nul",      "tru",         "01",     "1.",  "-",     "1e999",      "\"\\x\"",
    "\"\xFF\"", "\"\\ud800\"", "\"\n\"", "'a'", "[1,]",  "{\"a\":1,}", "{\"a\\u0000\":1}",
    "[",        "}",           "",       "1 2", "\"abc", "{\"a\" 1}"};

static void put_value(char **p, int depth) {
    unsigned kind = draw(depth < 7 ? 9 : 4), n = draw(5);
    if (kind < 4) {
        bool wrong = draw(300) == 0;
        *p = stpcpy(*p, wrong ? wrong_leaves[draw(20)] : random_leaves[draw(28)]);
    } else if (kind < 6) {
        *(*p)++ = '[';
        for (unsigned i = 0; i < n; i++) {
            if (i > 0) *(*p)++ = ',';
            put_value(p, depth + 1);
        }
        *p = stpcpy(*p, draw(4) == 0 ? " ]" : "]");
    } else {
        *(*p)++ = '{';
        for (unsigned i = 0; i < n; i++) {
            *p += sprintf(*p, "%s\"%s\"%s:", i > 0 ? "," : "", random_names[draw(25)],
                          draw(5) == 0 ? " " : "");
            put_value(p, depth + 1);
        }
        *p = stpcpy(*p, draw(4) == 0 ? "\n}" : "}");
    }
}

static void random_bodies_as_the_tree_says(void **state) {
    static char text[1 << 20], exact[1 << 20];
    char model[MODEL_NAME_BYTES_MAX + 1];
    const struct api_path *chat;
    struct body_look cut_look;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        char *p = text;
        if (round % 2 == 0) {
            put_value(&p, 0);
        } else {
            *p++ = '{';
            unsigned n = 1 + draw(6);
            for (unsigned i = 0; i < n; i++) {
                p += sprintf(p, "%s\"%s\":", i > 0 ? ", " : "", random_names[draw(25)]);
                put_value(&p, 1);
            }
            *p++ = '}';
        }
        *p = 0;
        size_t n = (size_t)(p - text);
        compare(text, n);
        if (n == 0) continue;
        size_t cut = draw((unsigned)n);
        compare(text, cut);
        if (text[0] == '{') { /* its end is not there */
            chat = api_path_find("POST", CHAT, model);
            body_look(&cut_look, chat, text, cut);
            assert_false(cut_look.is_object);
        }
        memcpy(exact, text, n);
        for (int i = 0; i < 3; i++) exact[draw((unsigned)n)] = (char)draw(256); /* spoiled */
        compare(exact, n);
    }
}

static void hostile_bodies_as_the_tree_says(void **state) {
    static const struct {
        const char *head, *unit, *tail;
    } rows[] = {
        {"{\"messages\":[", "{},", "{}]}"},
        {"{\"messages\":[", "[],", "[]]}"},
        {"{\"prompt\":[", "1,", "1]}"},
        {"{\"prompt\":[", "1234567890123456,12345678901234567,1,", "1]}"},
        {"{\"prompt\":[", "10,0,", "1]}"},
        {"{\"prompt\":[", "12,34,5678,01,", "1]}"},
        {"{\"prompt\":[", "12,,", "1]}"},
        {"{\"prompt\":[", "\"ab\",\"c\",\"\",\"\\n\",", "\"d\"]}"},
        {"{\"inputs\":[[[[[[", "\"ab\",", "\"d\"]]]]]]}"},
        {"{\"prompt\":[", "\"a\" ,", "\"d\"]}"},
        {"{\"prompt\":[", "151643, 12,", "1]}"},
        {"{\"x\":[", "7,12345,{},[],", "1]}"},
        {"{\"prompt\":[[", "7,12345,1e5,true,", "1]]}"},
        {"{\"prompt\":[", "-1e5,", "1]}"},
        {"{\"prompt\":\"", "\\n", "\"}"},
        {"{\"prompt\":\"", "\\u0000", "\"}"},
        {"{\"inputs\":\"", "\xE2\x82\xAC", "\"}"},
        {"{", "\"prompt\":1,", "\"prompt\":\"x\"}"},
        {"{\"messages\":", "[", ""},
        {"{\"x\":", "{\"a\":", ""},
        {"[", "{\"stream\":true},", "1]"},
        {"{", "\"\":[],", "\"stream\":true}"},
        {"\xEF\xBB\xBF{\"prompt\":[", "null,", "1]}"},
        {"{\"messages\":[{\"content\":[", "{\"text\":\"ab\"},", "1]}]}"},
        {"", " ", "{\"stream\":true}"},
        {"", "\xEF\xBB\xBF", "{}"},
    };
    static const char *const numbers[] = {
        "1e1",  "1.5",   "-0",  "01",    "-01",  "1.",   "1e",    "1e+5", "1E-05", "1e100",
        "-",    "1e999", "-1.", "0.5e2", "0e00", "1.e1", "1.5x",  "--1",  "+1",    "1e1.5",
        "00.5", "-0.0",  "1ee", "1e+",   ".5",   "1 5",  "1e308", "9e308"};
    enum { N = 20000 };
    static char text[N + 200];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t n = 1; n < N; n = n * 5 + 1) {
            char *p = stpcpy(text, rows[i].head);
            while ((size_t)(p - text) < n) p = stpcpy(p, rows[i].unit);
            p = stpcpy(p, rows[i].tail);
            compare(text, (size_t)(p - text));
        }
    }
    /* each number in its plain surroundings, with and without what ends it in reach */
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        for (int tail = 0; tail < 60; tail += 59) {
            int n = snprintf(text, N, "{\"x\":[%s,{\"y\":%s}],\"prompt\":[1,%s]%*s}", numbers[i],
                             numbers[i], numbers[i], tail, "");
            compare(text, (size_t)n);
            n = snprintf(text, N, "[%s]%*s", numbers[i], tail, "");
            compare(text, (size_t)n);
        }
    }
    for (int depth = 95; depth < 106; depth++) { /* both sides of the deepest nest */
        char *p = stpcpy(text, "{\"prompt\":");
        memset(p, '[', (size_t)depth);
        memset(p + depth, ']', (size_t)depth);
        p[2 * depth] = '}';
        compare(text, (size_t)(p - text) + 2 * (size_t)depth + 1);
    }
}

static void messages(void **state) {
    static const struct {
        const char *path, *body;
        size_t n;
        bool stream;
        unsigned n_prompts;
        size_t n_chars;
    } rows[] = {
        {"/fmaas.GenerationService/Generate", "\0\0\0\0\x0c\x1a\4\x12\2hi\x1a\4\x12\2hi", 17, false,
         2, 17},
        {"/fmaas.GenerationService/Generate", "\0\0\0\0\0", 5, false, 1, 5},
        /* compressed: as long as gzip says, within what it may come to; else four times */
        {"/fmaas.GenerationService/Generate", "\1\0\0\0\2\x1a\0", 7, false, 1, 8},
        {"/fmaas.GenerationService/Generate",
         "\1\0\0\0\x12\x1f\x8b\x08\0\0\0\0\0\0\3\0\0\0\0\0\x10\x27\0", 23, false, 1,
         16 * 18 + (1 << 20)},
        {"/fmaas.GenerationService/Generate",
         "\1\0\0\0\x12\x1f\x8b\x08\0\0\0\0\0\0\3\0\0\0\0\x10\x27\0\0", 23, false, 1, 10000},
        {"/fmaas.GenerationService/Generate", "\0\0\0\0\2\x1a\5", 7, false, 1, 7}, /* cut */
        {"/fmaas.GenerationService/GenerateStream", "\0\0\0\0\2\x1a\0", 7, true, 1, 7},
        {"/fmaas.GenerationService/GenerateStream", "", 0, true, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char model[MODEL_NAME_BYTES_MAX + 1];
        struct body_look look;
        body_look(&look, api_path_find("POST", rows[i].path, model), rows[i].body, rows[i].n);
        assert_int_equal(look.stream, rows[i].stream);
        assert_int_equal(look.n_prompts, rows[i].n_prompts);
        assert_int_equal(look.n_sequences, rows[i].n_prompts);
        assert_int_equal(look.n_chars, rows[i].n_chars);
        assert_string_equal(look.client_id, "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bodies),
                                       cmocka_unit_test(work),
                                       cmocka_unit_test(messages),
                                       cmocka_unit_test(ids),
                                       cmocka_unit_test(random_bodies_as_the_tree_says),
                                       cmocka_unit_test(hostile_bodies_as_the_tree_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
