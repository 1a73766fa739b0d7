/* Goal: values of a query come by their names, in their order, without escapes, and never past
 * their room. Method: queries with what clients send and what they should not. */
#include "common/base/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void expect(const char *query, const char *name, const char *const *want) {
    char value[9];
    const char *at = query;
    for (; *want != NULL; want++) {
        assert_true(query_next(&at, name, value, sizeof(value)));
        assert_string_equal(value, *want);
    }
    assert_false(query_next(&at, name, value, sizeof(value)));
    assert_string_equal(at, "");
}
#define EXPECT(query, name, ...) expect(query, name, (const char *const[]){__VA_ARGS__, NULL})

static void values(void **state) {
    (void)state;
    EXPECT("a=1&b=2&a=3", "a", "1", "3");
    EXPECT("a=1&b=2&a=3", "b", "2");
    EXPECT("xa=1&a", "a", NULL);
    EXPECT("", "a", NULL);
    EXPECT("a=", "a", "");
    EXPECT("&&a==&&", "a", "=");
    EXPECT("ab=1&a=2", "a", "2");
}

static void escapes(void **state) {
    (void)state;
    EXPECT("a=org%2Fm", "a", "org/m");
    EXPECT("a=%26%3d&b=1", "a", "&=");
    EXPECT("a=x%00y", "a", "x%00y");
    EXPECT("a=%2", "a", "%2");
    EXPECT("a=%2&b=F", "a", "%2");
    EXPECT("a=%zz%", "a", "%zz%");
}

/* A value as long as the room is cut to it, and one that is longer shows that it is. */
static void bounds(void **state) {
    (void)state;
    EXPECT("a=12345678", "a", "12345678");
    EXPECT("a=123456789", "a", "12345678");
    EXPECT("a=%31%32%33%34%35%36%37%38%39&a=b", "a", "12345678", "b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(escapes),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
