/* Goal: what the coordinator reads out of a body is what each family means by it, and no body makes
 * it fail. Method: a table of bodies by path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/body_look.h"

static struct body_look look(const char *path, const char *body, size_t n) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    const struct api_path *a = api_path_find(path, model);
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
        /* deeper than any family nests its text */
        {"/", "{\"inputs\":[[[[[[1]]]]]]}", 1, 1, 0, 0, ""},
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bodies), cmocka_unit_test(ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
