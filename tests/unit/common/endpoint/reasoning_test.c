/* Goal: thinking and answer are told apart however the text is cut, and no byte but the tags is
 * lost.
 * Method: a table; each text is fed at once, byte by byte and in random pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/endpoint/reasoning.h"

static const struct row {
    bool open;
    const char *text, *thinking, *content;
    long close_at; /* -1: no end tag */
} rows[] = {
    {false, "<think>why</think>so", "why", "so", 10},
    {false, "\n <think>\nwhy\n</think>\n\nso", "\nwhy\n", "\n\nso", 14},
    {false, "plain <think>x</think>", "", "plain <think>x</think>", -1},
    {false, "  <thin", "", "  <thin", -1},
    {false, "<thinking>", "", "<thinking>", -1},
    {false, "", "", "", -1},
    {false, "</think>x", "", "</think>x", -1},
    {false, "<think>cut off", "cut off", "", -1},
    {false, "<think>cut </thin", "cut </thin", "", -1},
    {false, "<think></think></think>", "", "</think>", 7},
    {true, "why</think>so", "why", "so", 3},
    {true, "</think>so", "", "so", 0},
    {true, "<think>why</think>so", "why", "so", 10},
    {true, " <think>why</think>so", "why", "so", 11},
    {true, " <thi</think>so", " <thi", "so", 5},
    {true, " \n", " \n", "", -1},
    {true, "a<b <</think></think", "a<b <", "</think", 5},
    {true, "no end", "no end", "", -1},
};

static void check(const struct row *r, int cut) {
    struct reasoning p;
    struct buf content = BUF_INIT;
    size_t n = strlen(r->text);
    reasoning_init(&p, r->open);
    for (size_t at = 0; at < n;) {
        size_t piece = cut == 0 ? n : cut > 0 ? (size_t)cut : 1 + (size_t)rand() % 5;
        if (piece > n - at) piece = n - at;
        reasoning_feed(&p, r->text + at, piece, &content);
        at += piece;
    }
    reasoning_finish(&p, &content);
    assert_string_equal(p.text.data != NULL ? p.text.data : "", r->thinking);
    assert_string_equal(content.data != NULL ? content.data : "", r->content);
    assert_int_equal(p.closed, r->close_at >= 0);
    if (p.closed) assert_int_equal(p.close_at, r->close_at);
    reasoning_fini(&p);
    buf_free(&content);
}

static void test_table(void **state) {
    (void)state;
    srand(2);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int cut = -20; cut <= 3; cut++) check(&rows[i], cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
