/* Goal: a table of keys reads, refuses, prints and reads back; unknown keys are named.
 * Method: one table with every type; both sides of every bound; the printed form read again gives
 * the same struct. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "common/base/conf.h"
#include "proto/json.h"

struct sample {
    bool flag;
    int64_t n;
    double x;
    char text[8], word[16], name[16], ip[40], must[16];
};
static const struct conf_key keys[] = {
    CONF_B(struct sample, flag, "a.flag", "true", "a switch"),
    CONF_I(struct sample, n, "a.n", -3, 7, "5", "a number"),
    CONF_F(struct sample, x, "a.list.0.x", 0, 1.5, "0.25", "a fraction"),
    CONF_S(struct sample, text, "text", "abc", "a text"),
    CONF_W(struct sample, word, "word", "one|two", "two", "a word"),
    CONF_IPADDR(struct sample, ip, "ip", "127.0.0.1", "an address"),
    CONF_MUST_NAME(struct sample, name, "name", "a name"),
    CONF_MUST_S(struct sample, must, "must", "needed"),
};
enum { N = sizeof(keys) / sizeof(keys[0]) };

static enum err read(struct sample *s, const char *text, struct errbuf *eb) {
    struct json_value *root = NULL;
    memset(s, 0, sizeof(*s));
    conf_defaults(s, keys, N);
    assert_int_equal(json_read(&root, text, strlen(text), NULL, eb), ERR_OK);
    enum err e = conf_read(s, keys, N, root, "top.", true, eb);
    json_put(root);
    return e;
}

static void defaults_then_file(void **state) {
    (void)state;
    struct sample s;
    struct errbuf eb = {0};
    assert_int_equal(read(&s, "{\"name\":\"m-1\",\"must\":\"x\"}", &eb), ERR_OK);
    assert_true(s.flag && s.n == 5 && s.x == 0.25);
    assert_string_equal(s.word, "two");
    assert_int_equal(
        read(&s,
             "{\"a\":{\"flag\":false,\"n\":\"-3\",\"list\":[{\"x\":1.5}]},\"ip\":\"::"
             "1\",\"word\":\"one\",\"text\":\"1234567\",\"name\":\"m\",\"must\":\"y\"}",
             &eb),
        ERR_OK);
    assert_true(!s.flag && s.n == -3 && s.x == 1.5);
    assert_string_equal(s.text, "1234567");
    assert_string_equal(s.ip, "::1");
}

static void a_wrong_value_names_key_value_and_range(void **state) {
    (void)state;
    static const struct {
        const char *body, *words;
    } rows[] = {
        {"{\"a\":{\"n\":8},\"name\":\"m\",\"must\":\"\"}",
         "top.a.n must be an integer from -3 to 7, got 8"},
        {"{\"a\":{\"n\":-4},\"name\":\"m\",\"must\":\"\"}", "got -4"},
        {"{\"a\":{\"n\":1.0},\"name\":\"m\",\"must\":\"\"}", "got 1.0"},
        {"{\"a\":{\"n\":\"1x\"},\"name\":\"m\",\"must\":\"\"}", "got \"1x\""},
        {"{\"a\":{\"flag\":1},\"name\":\"m\",\"must\":\"\"}",
         "top.a.flag must be true or false, got 1"},
        {"{\"a\":{\"list\":[{\"x\":1.51}]},\"name\":\"m\",\"must\":\"\"}",
         "from 0 to 1.5, got 1.51"},
        {"{\"text\":\"12345678\",\"name\":\"m\",\"must\":\"\"}", "at most 7 characters, got 8"},
        {"{\"text\":7,\"name\":\"m\",\"must\":\"\"}", "top.text must be a string, got 7"},
        {"{\"word\":\"three\",\"name\":\"m\",\"must\":\"\"}", "one of one|two, got \"three\""},
        {"{\"ip\":\"localhost\",\"name\":\"m\",\"must\":\"\"}", "IPv4 or IPv6 address"},
        {"{\"name\":\"-m\",\"must\":\"\"}", "top.name must be letters"},
        {"{\"name\":\"m/..\",\"must\":\"\"}", "top.name must be letters"},
        {"{\"name\":\"m\"}", "top.must is missing: needed"},
        {"{\"name\":\"m\",\"must\":null}", "top.must is missing: needed"},
        {"{\"name\":\"m\",\"must\":\"\"}", "top.must must not be empty: needed"},
        /* a section of the wrong kind is not the same as none */
        {"{\"a\":[],\"name\":\"m\",\"must\":\"x\"}", "top.a must be an object, got []"},
        {"{\"a\":5,\"name\":\"m\",\"must\":\"x\"}", "top.a must be an object, got 5"},
        {"{\"a\":{\"list\":7},\"name\":\"m\",\"must\":\"x\"}",
         "top.a.list must be an array, got 7"},
        {"{\"a\":{\"list\":[true]},\"name\":\"m\",\"must\":\"x\"}",
         "top.a.list.0 must be an object, got true"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sample s;
        struct errbuf eb = {0};
        assert_int_equal(read(&s, rows[i].body, &eb), ERR_BAD_CONFIG);
        if (strstr(eb.text, rows[i].words) == NULL) fail_msg("row %zu: %s", i, eb.text);
    }
}

static void printed_settings_are_read_again(void **state) {
    (void)state;
    struct sample a, b;
    struct errbuf eb = {0};
    struct buf out = BUF_INIT;
    assert_int_equal(
        read(&a, "{\"a\":{\"n\":2,\"list\":[{\"x\":0.1}]},\"name\":\"m\",\"must\":\"q\\\"\"}", &eb),
        ERR_OK);
    conf_print(&out, &a, keys, N);
    assert_int_equal(read(&b, out.data, &eb), ERR_OK);
    assert_memory_equal(&a, &b, sizeof(a));
    buf_free(&out);
}

static void collect(void *arg, const char *path) {
    strcat(arg, path);
    strcat(arg, " ");
}

static void unknown_keys_are_named(void **state) {
    (void)state;
    struct json_value *root = NULL;
    char seen[256] = "";
    static const char *const also[] = {"a.old", NULL};
    const char *text = "{\"a\":{\"n\":1,\"m\":2,\"old\":{\"deep\":1},\"list\":[{\"x\":0,\"y\":1}]},"
                       "\"zz\":{\"q\":1},\"name\":\"m\"}";
    assert_int_equal(json_read(&root, text, strlen(text), NULL, NULL), ERR_OK);
    struct conf_tables t = {.keys = keys, .n_keys = N, .also = also};
    conf_unknown(&t, root, collect, seen);
    assert_string_equal(seen, "a.m a.list.0.y zz ");
    static const struct conf_key checked[] = {CHECKED_I("zz.q", 2, 3, "2")};
    struct errbuf eb = {0};
    t.checked = checked;
    t.n_checked = 1;
    seen[0] = '\0';
    conf_unknown(&t, root, collect, seen);
    assert_string_equal(seen, "a.m a.list.0.y ");
    assert_int_equal(conf_check(&t, root, &eb), ERR_BAD_CONFIG);
    assert_string_equal(eb.text, "zz.q must be an integer from 2 to 3, got 1");
    json_put(root);
}

/* A number without a default is 0 when it is absent, and not printed then. */
static void a_number_may_be_absent(void **state) {
    (void)state;
    struct conf_scratch s;
    struct errbuf eb = {0};
    static const struct conf_key rows[] = {
        CONF_I(struct conf_scratch, whole, "n", 1, 20, "", "a number")};
    static const char *const files[] = {"{}", "{\"n\":20}"};
    for (int i = 0; i < 2; i++) {
        struct json_value *root = NULL;
        assert_int_equal(json_read(&root, files[i], strlen(files[i]), NULL, &eb), ERR_OK);
        struct buf out = BUF_INIT;
        conf_defaults(&s, rows, 1);
        assert_int_equal(conf_read(&s, rows, 1, root, "", true, &eb), ERR_OK);
        assert_int_equal(s.whole, i == 0 ? 0 : 20);
        conf_print(&out, &s, rows, 1);
        assert_int_equal(strstr(out.data, "\"n\"") != NULL, i);
        buf_free(&out);
        json_put(root);
    }
}

/* A file that everybody may write is refused, whatever stands in it; any other mode is fine. */
static void who_may_write_the_file(void **state) {
    static const mode_t modes[] = {0400, 0440, 0444, 0600, 0640, 0644, 0660,
                                   0664, 0602, 0642, 0646, 0666, 0777};
    char path[] = "/tmp/conf_test.XXXXXX";
    (void)state;
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    assert_true(fputs("{}", f) >= 0 && fclose(f) == 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct json_value *root = NULL;
        struct errbuf eb = {0};
        char mode[8];
        assert_int_equal(chmod(path, modes[i]), 0);
        enum err e = conf_read_file(&root, path, &eb);
        assert_int_equal(e, (modes[i] & 2) != 0 ? ERR_BAD_CONFIG : ERR_OK);
        assert_int_equal(root != NULL, e == ERR_OK);
        snprintf(mode, sizeof(mode), "%04o", (unsigned)modes[i]);
        if (e != ERR_OK) assert_true(strstr(eb.text, path) && strstr(eb.text, mode));
        json_put(root);
    }
    struct json_value *root;
    struct errbuf eb = {0};
    remove(path);
    assert_int_equal(conf_read_file(&root, path, &eb), ERR_NOT_FOUND);
    assert_int_equal(conf_read_file(&root, "/tmp", &eb), ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_then_file),
                                       cmocka_unit_test(a_wrong_value_names_key_value_and_range),
                                       cmocka_unit_test(printed_settings_are_read_again),
                                       cmocka_unit_test(unknown_keys_are_named),
                                       cmocka_unit_test(a_number_may_be_absent),
                                       cmocka_unit_test(who_may_write_the_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
