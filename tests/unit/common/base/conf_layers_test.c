/* Goal: a flag wins over the environment, that over the file, that over the default; names are as
 * short as they can be; what is wrong is named by where it was said.
 * Method: one table; every pair of places for one key; the printed origins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/conf_layers.h"
#include "proto/json.h"

struct sample {
    bool flag;
    int64_t a_port, b_port, mib, version;
    double rate;
    char word[16], list[3][8];
};
static const struct conf_key keys[] = {
    CONF_B(struct sample, flag, "Top.pinThreads", "true", "a switch"),
    CONF_I(struct sample, a_port, "Top.http.port", 1, 9, "5", "a port"),
    CONF_I(struct sample, b_port, "Other.list.0.port", 1, 9, "6", "another"),
    CONF_I(struct sample, mib, "Top.kvCacheMiB", 0, 100, "7", "mebibytes"),
    CONF_I(struct sample, version, "Top.version", 0, 100, "0", "as the program's own option"),
    CONF_F(struct sample, rate, "Top.interCommTLSRate", 0, 2, "0.5", "a rate"),
    CONF_W(struct sample, word, "Top.word", "one|two", "one", "a word"),
    CONF_LS(struct sample, list, "Top.entries", "", "some"),
};
enum { N = sizeof(keys) / sizeof(keys[0]) };
static const struct conf_alias aliases[] = {{"OLD_PORT", "Top.http.port"}, {NULL, NULL}};
static const struct conf_names names = {"T_", keys, N, aliases, "Top.ids", "ids"};

/* Reads `file` (or nothing), the flags, the environment; the result as conf_layers_print() has it.
 */
static char *read(struct sample *s, const char *file, const char *const *flags, struct errbuf *eb) {
    struct conf_layers *l = NULL;
    struct json_value *root = NULL, *printed = NULL;
    struct buf out = BUF_INIT, conf = BUF_INIT;
    struct errbuf why = {0};
    char *argv[8] = {NULL};
    int argc = 0;
    enum err e = conf_layers_create(&l, &names);
    assert_int_equal(e, ERR_OK);
    for (; flags != NULL && flags[argc] != NULL; argc++) argv[argc] = strdup(flags[argc]);
    for (int i = 0; e == ERR_OK && i < argc; i++) {
        bool taken = false;
        e = conf_layers_flag(l, argc, argv, &i, &taken, eb);
        if (e == ERR_OK && !taken) e = err_set(eb, ERR_NOT_FOUND, "unknown %s", argv[i]);
    }
    for (int i = 0; i < argc; i++) free(argv[i]);
    if (e == ERR_OK) e = conf_layers_env(l, eb);
    memset(s, 0, sizeof(*s));
    conf_defaults(s, keys, N);
    const char *text = file != NULL ? file : "{}";
    assert_int_equal(json_read(&root, text, strlen(text), NULL, NULL), ERR_OK);
    if (e == ERR_OK) e = conf_layers_apply(l, root, file != NULL ? "f.json" : NULL, eb);
    if (e == ERR_OK && (e = conf_read(s, keys, N, root, "", true, &why)) != ERR_OK)
        e = conf_layers_blame(l, file != NULL ? "f.json" : NULL, e, &why, eb);
    if (e == ERR_OK) {
        conf_print(&conf, s, keys, N);
        assert_int_equal(json_read(&printed, conf.data, conf.len, NULL, NULL), ERR_OK);
        conf_layers_print(&out, l, printed);
    }
    eb->code = e;
    json_put(printed);
    json_put(root);
    buf_free(&conf);
    conf_layers_free(&l);
    return buf_steal(&out);
}

#define FLAGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void has(const char *text, const char *line) {
    if (strstr(text, line) == NULL) fail_msg("no \"%s\" in:\n%s", line, text);
}

static void the_nearer_place_wins(void **state) {
    (void)state;
    struct sample s;
    struct errbuf eb = {0};
    static const char file[] = "{\"Top\":{\"http\":{\"port\":2}}}";
    char *text = read(&s, NULL, NULL, &eb);
    has(text, "Top.http.port = 5  # default\n");
    free(text);
    text = read(&s, file, NULL, &eb);
    has(text, "Top.http.port = 2  # file f.json\n");
    free(text);
    setenv("OLD_PORT", "3", 1);
    text = read(&s, file, NULL, &eb);
    has(text, "Top.http.port = 3  # environment OLD_PORT\n");
    free(text);
    setenv("T_HTTP_PORT", "4", 1);
    text = read(&s, file, NULL, &eb);
    has(text, "Top.http.port = 4  # environment T_HTTP_PORT\n");
    free(text);
    text = read(&s, file, FLAGS("--http-port", "7", "--list-port=8"), &eb);
    has(text, "Top.http.port = 7  # flag --http-port\n");
    has(text, "Other.list.0.port = 8  # flag --list-port\n");
    free(text);
    assert_true(s.a_port == 7 && s.b_port == 8);
    setenv("T_HTTP_PORT", "", 1); /* as if it were not there */
    text = read(&s, file, NULL, &eb);
    has(text, "Top.http.port = 3  # environment OLD_PORT\n");
    free(text);
    unsetenv("OLD_PORT");
    unsetenv("T_HTTP_PORT");
}

static void names_are_short_and_words(void **state) {
    (void)state;
    static const char *const flags[] = {"--pin-threads",  "--http-port",   "--list-port",
                                        "--kv-cache-mib", "--top-version", "--inter-comm-tls-rate",
                                        "--word",         "--entries",     "--ids"};
    struct conf_layers *l = NULL;
    assert_int_equal(conf_layers_create(&l, &names), ERR_OK);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        assert_string_equal(conf_layers_flag_name(l, i), flags[i]);
    assert_null(conf_layers_flag_name(l, sizeof(flags) / sizeof(flags[0])));
    conf_layers_free(&l);
}

static void booleans_and_lists(void **state) {
    (void)state;
    struct sample s;
    struct errbuf eb = {0};
    free(read(&s, NULL, FLAGS("--no-pin-threads", "--entries", "a,b", "--entries=c"), &eb));
    assert_int_equal(eb.code, ERR_OK);
    assert_false(s.flag);
    assert_string_equal(s.list[0], "a,b");
    assert_string_equal(s.list[1], "c");
    assert_string_equal(s.list[2], "");
    free(
        read(&s, "{\"Top\":{\"pinThreads\":false}}", FLAGS("--pin-threads", "--word", "two"), &eb));
    assert_int_equal(eb.code, ERR_OK);
    assert_true(s.flag);
    assert_string_equal(s.word, "two");
    free(read(&s, NULL, FLAGS("--pin-threads", "false", "--entries=[\"x\",\"y\"]"), &eb));
    assert_int_equal(eb.code, ERR_OK);
    assert_false(s.flag);
    assert_string_equal(s.list[1], "y");
    free(read(&s, NULL, FLAGS("--Top.http.port", "9", "--ids", "[[1]]"), &eb));
    assert_int_equal(eb.code, ERR_OK);
    assert_int_equal(s.a_port, 9);
}

static void what_is_wrong_is_named_by_where_it_was_said(void **state) {
    (void)state;
    static const struct {
        const char *const flags[3];
        const char *text;
    } rows[] = {
        {{"--http-port", "10"},
         "--http-port: Top.http.port must be an integer from 1 to 9, got 10"},
        {{"--http-port=x"}, "--http-port: Top.http.port must be an integer from 1 to 9, got \"x\""},
        {{"--http-port"}, "--http-port needs a value"},
        {{"--word=three"}, "--word: Top.word must be one of one|two, got \"three\""},
        {{"--no-pin-threads=true"}, "--no-pin-threads takes no value"},
        {{"--pin-threads=maybe"},
         "--pin-threads: Top.pinThreads must be true or false, got \"maybe\""},
        {{"--no-word"}, "unknown --no-word"},
        {{"--entries=[1]"}, "--entries: Top.entries must be an array of strings, got 1"},
        {{"--ids=[1"}, "--ids: "},
        {{"--port=1"}, "unknown --port=1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sample s;
        struct errbuf eb = {0};
        free(read(&s, NULL, rows[i].flags, &eb));
        assert_int_not_equal(eb.code, ERR_OK);
        if (strncmp(eb.text, rows[i].text, strlen(rows[i].text)) != 0)
            fail_msg("\"%s\" is not \"%s\"", eb.text, rows[i].text);
    }
    struct sample s;
    struct errbuf eb = {0};
    setenv("T_WORD", "four", 1);
    free(read(&s, NULL, NULL, &eb));
    unsetenv("T_WORD");
    assert_string_equal(eb.text,
                        "environment T_WORD: Top.word must be one of one|two, got \"four\"");
    free(read(&s, "{\"Top\":{\"word\":\"four\"}}", NULL, &eb));
    assert_string_equal(eb.text, "f.json: Top.word must be one of one|two, got \"four\"");
    /* a file of the wrong shape is told of, whatever stands behind it */
    free(read(&s, "{\"Top\":5}", FLAGS("--word", "two"), &eb));
    assert_string_equal(eb.text, "f.json: Top must be an object, got 5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearer_place_wins),
        cmocka_unit_test(names_are_short_and_words),
        cmocka_unit_test(booleans_and_lists),
        cmocka_unit_test(what_is_wrong_is_named_by_where_it_was_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
