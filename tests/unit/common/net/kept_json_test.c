/* Goal: bodies, items and events of kept answers are found in their texts, and put together to the
 * texts that clients and instances get; a file of one reads back as it was, and no other bytes do.
 * Method: rows of texts; every truncation and every flipped bit of a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/kept_dir.h"
#include "common/net/kept_json.h"

static struct kept_span span(const char *s) {
    return (struct kept_span){s, strlen(s)};
}

static void expect(struct kept_span got, const char *want) {
    assert_int_equal(got.n, strlen(want));
    if (got.n > 0) assert_memory_equal(got.p, want, got.n);
}

static void bodies(void **state) {
    static const struct {
        const char *body, *previous, *input;
        bool is_object, store;
    } rows[] = {
        {"{}", "", "", true, true},
        {" { \"store\" : false, \"input\" : [ 1 , \"]\" ] } ", "", "[ 1 , \"]\" ]", true, false},
        {"{\"previous_response_id\":\"resp_1\",\"input\":\"a \\\" b\",\"store\":null}",
         "\"resp_1\"", "\"a \\\" b\"", true, true},
        {"{\"previous_response_id\":null,\"input\":null,\"x\":{\"input\":\"no\"}}", "", "", true,
         true},
        {"[]", "", "", false, true},
        {"", "", "", false, true},
        {"{\"input\":\"no end", "", "", false, true},
    };
    struct kept_body b;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        kept_body_look(&b, rows[i].body, strlen(rows[i].body));
        assert_true(b.is_object == rows[i].is_object && b.store == rows[i].store);
        expect(b.previous, rows[i].previous);
        expect(b.input, rows[i].input);
    }
}

static void elements(void **state) {
    static const struct {
        const char *list, *items[4];
    } rows[] = {
        {"[]", {NULL}},
        {"[ ]", {NULL}},
        {"\"text\"", {"\"text\"", NULL}},
        {"[{\"a\":[1,{}]} , [2,\"]\"],\"s\\\\\",7]",
         {"{\"a\":[1,{}]}", "[2,\"]\"]", "\"s\\\\\"", "7"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct kept_items it = kept_items_of(span(rows[i].list));
        struct kept_span item;
        size_t n = 0;
        while (kept_items_next(&it, &item)) expect(item, rows[i].items[n++]);
        assert_true(n == 4 || rows[i].items[n] == NULL);
    }
    struct kept_items none = kept_items_of((struct kept_span){0});
    struct kept_span item;
    assert_false(kept_items_next(&none, &item));
}

static void references(void **state) {
    static const struct {
        const char *item, *id;
    } rows[] = {
        {"{\"type\":\"item_reference\",\"id\":\"m\"}", "\"m\""},
        {"{\"id\":\"m\"}", "\"m\""},
        {"{\"type\":null,\"id\":\"m\"}", "\"m\""},
        {"{\"role\":\"user\",\"id\":\"m\"}", NULL},
        {"{\"type\":\"message\",\"id\":\"m\"}", NULL},
        {"{\"id\":7}", NULL},
        {"7", NULL},
    };
    struct kept_span id;
    char plain[8];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(kept_is_reference(span(rows[i].item), &id) == (rows[i].id != NULL));
        if (rows[i].id != NULL) expect(id, rows[i].id);
    }
    assert_true(kept_plain(plain, sizeof(plain), span("\"resp_17\"")));
    assert_string_equal(plain, "resp_17");
    assert_false(kept_plain(plain, sizeof(plain), span("\"resp_178\"")));
    assert_false(kept_plain(plain, sizeof(plain), span("\"a\\n\"")));
    assert_false(kept_plain(plain, sizeof(plain), span("7")));
}

static void shown_items(void **state) {
    static const struct {
        const char *item, *shown;
    } rows[] = {
        {"\"hi\"",
         "{\"id\":\"msg_17_i3\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_text\",\"text\":\"hi\"}]}"},
        {"{\"role\":\"user\",\"content\":\"hi\"}",
         "{\"id\":\"msg_17_i3\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_text\",\"text\":\"hi\"}]}"},
        {"{\"content\":\"hi\",\"role\":\"assistant\",\"id\":\"msg_1\",\"type\":\"message\"}",
         "{\"content\":[{\"type\":\"output_text\",\"annotations\":[],\"text\":\"hi\"}],\"role\":"
         "\"assistant\",\"id\":\"msg_1\",\"type\":\"message\"}"},
        {"{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}",
         "{\"id\":\"fco_17_i3\",\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":"
         "\"o\"}"},
        {"{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"a\":1}]}",
         "{\"id\":\"msg_17_i3\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"a\":1}]}"},
    };
    struct buf b = BUF_INIT;
    bool some = false;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_clear(&b);
        kept_put_item(&b, span(rows[i].item), "17", 3);
        assert_string_equal(b.data, rows[i].shown);
    }
    buf_clear(&b);
    kept_put_items(&b, span("[]"), &some);
    kept_put_items(&b, span("\"a\""), &some);
    kept_put_items(&b, (struct kept_span){0}, &some);
    kept_put_items(&b, span("[{\"b\":1},{\"c\":2}]"), &some);
    assert_string_equal(b.data, "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
                                "\"input_text\",\"text\":\"a\"}]},{\"b\":1},{\"c\":2}");
    buf_free(&b);
}

static void events(void **state) {
    static const char stream[] = "id: r:0\nevent: a\ndata: {\"response\":{\"x\":\"}\"}}\n\n"
                                 "event: b\ndata: {\"n\":1}\n\n"
                                 "event: c\ndata: {\"response\":{\"y\":2}}\n\n";
    (void)state;
    assert_int_equal(kept_events_from(span(stream), 0).n, sizeof(stream) - 1);
    assert_memory_equal(kept_events_from(span(stream), 1).p, "event: b", 8);
    assert_memory_equal(kept_events_from(span(stream), 2).p, "event: c", 8);
    assert_int_equal(kept_events_from(span(stream), 3).n, 0);
    assert_int_equal(kept_events_from(span(stream), 9).n, 0);
    expect(kept_response_of(kept_last_event(span(stream))), "{\"y\":2}");
    expect(kept_response_of(span(stream)), "{\"x\":\"}\"}");
    expect(kept_response_of(kept_last_event(span("event: b\ndata: {\"n\":1}\n\n"))), "");
    assert_int_equal(kept_last_event(span("half of")).n, 0);
    assert_int_equal(kept_last_event((struct kept_span){0}).n, 0);
}

static void files(void **state) {
    struct kept_file f = {.id = "resp_17",
                          .previous = "resp_1",
                          .tenant = "key-11111111111111111111111111111111",
                          .used_unix_s = 1770000000,
                          .input = "\"in\"",
                          .n_input = 4,
                          .text = "event: e\ndata: {\"response\":{}}\n\n",
                          .n_text = 33,
                          .at = 27,
                          .n = 2,
                          .events = 33},
                     got;
    struct buf b = BUF_INIT;
    struct errbuf eb = {0};
    (void)state;
    f.n_text = f.events = strlen(f.text);
    f.at = (size_t)(strstr(f.text, "{}") - f.text);
    kept_file_format(&b, &f);
    assert_int_equal(kept_file_parse(&got, b.data, b.len, &eb), ERR_OK);
    assert_string_equal(got.id, f.id);
    assert_string_equal(got.previous, f.previous);
    assert_string_equal(got.tenant, f.tenant);
    assert_true(got.used_unix_s == f.used_unix_s && got.at == f.at && got.n == f.n);
    assert_true(got.events == f.events && got.n_input == 4 && got.n_text == f.n_text);
    assert_memory_equal(got.text, f.text, f.n_text);
    for (size_t n = 0; n < b.len; n++) {
        char *cut = malloc(n + 1);
        memcpy(cut, b.data, n);
        assert_int_not_equal(kept_file_parse(&got, cut, n, &eb), ERR_OK);
        free(cut);
    }
    for (size_t i = 0; i < b.len; i++) {
        b.data[i] ^= 4;
        assert_int_not_equal(kept_file_parse(&got, b.data, b.len, &eb), ERR_OK);
        b.data[i] ^= 4;
    }
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),      cmocka_unit_test(elements), cmocka_unit_test(references),
        cmocka_unit_test(shown_items), cmocka_unit_test(events),   cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
