/* Goal: the list of places says how many are in use, and stays short however many there are.
 * Method: counts of its members. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/slots.h"

static size_t count(const char *text, const char *word) {
    size_t n = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word)) n++;
    return n;
}

static void lists(void **state) {
    (void)state;
    static const struct {
        uint64_t total, free;
        size_t shown, busy;
    } rows[] = {
        {0, 0, 0, 0},           {1, 1, 1, 0},
        {3, 1, 3, 2},           {2, 5, 2, 0},
        {1024, 0, 1024, 1024},  {1025, 1024, 1024, 1},
        {65536, 0, 1024, 1024}, {UINT64_MAX, 5, 1024, 1024},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf b = BUF_INIT;
        slots_put(&b, rows[i].total, rows[i].free, 2048);
        buf_putc(&b, '\0');
        assert_int_equal(count(b.data, "\"n_ctx\":2048,"), rows[i].shown);
        assert_int_equal(count(b.data, "\"is_processing\":true}"), rows[i].busy);
        assert_true(b.data[0] == '[' && b.data[b.len - 2] == ']' && b.len < 128 * 1024);
        buf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
