/* Goal: a page's own name opens no plane, whatever it looks like, and every name of a setting does.
 * Method: a table of hosts and origins against a list of names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "common/net/origin.h"

#define NAMES " coordinator.example  .svc.cluster.local node-7 "

static void hosts(void **state) {
    static const struct {
        const char *host;
        bool ok;
    } cases[] = {
        {"127.0.0.1", true},
        {"127.0.0.1:1026", true},
        {"10.1.2.3:80", true},
        {"[::1]:1026", true},
        {"[2001:db8::7]", true},
        {"localhost", true},
        {"LocalHost:1026", true},
        {"localhost.", true},
        {"coordinator.example:1028", true},
        {"COORDINATOR.example.", true},
        {"node-7", true},
        {"p1.svc.cluster.local", true},
        {"a.b.svc.cluster.local:1", true},
        {"", false},
        {":1026", false},
        {"evil.example", false},
        {"evil.example:1026", false},
        {"x.coordinator.example", false},
        {"svc.cluster.local", false},
        {"xsvc.cluster.local", false},
        {"localhost.evil.example", false},
        {"127.0.0.1.evil.example", false},
        {"127.0.0.1:80:80", false},
        {"127.0.0.1:80x", false},
        {"::1", false},
        {"[::1", false},
        {"[::1]x", false},
        {"[127.0.0.1]", false},
        {"2130706433", false},
        {"0x7f.1", false},
        {"node", false},
        {"node-77", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (origin_host_ok(cases[i].host, NAMES) != cases[i].ok) fail_msg("%s", cases[i].host);
    assert_false(origin_host_ok("coordinator.example", ""));
    assert_true(origin_host_ok("evil.example", "a *"));
    char longest[300];
    for (size_t i = 0; i < sizeof(longest); i++) longest[i] = 'a';
    longest[299] = '\0';
    assert_false(origin_host_ok(longest, "*"));
}

static void origins(void **state) {
    (void)state;
    assert_true(origin_ok("http://127.0.0.1:3000", ""));
    assert_true(origin_ok("https://[::1]", ""));
    assert_true(origin_ok("http://localhost", ""));
    assert_true(origin_ok("https://coordinator.example", NAMES));
    assert_false(origin_ok("null", NAMES));
    assert_false(origin_ok("", NAMES));
    assert_false(origin_ok("http://", NAMES));
    assert_false(origin_ok("https://evil.example", NAMES));
    assert_false(origin_ok("localhost", NAMES));
    assert_false(origin_ok("http://localhost@evil.example", NAMES));
}

static void settings(void **state) {
    (void)state;
    assert_true(origin_names_ok(""));
    assert_true(origin_names_ok(NAMES));
    assert_true(origin_names_ok("*"));
    assert_false(origin_names_ok("a,b"));
    assert_false(origin_names_ok("http://a"));
    assert_false(origin_names_ok("a:80"));
    assert_false(origin_names_ok("a ."));
    assert_false(origin_names_ok("*.a"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hosts), cmocka_unit_test(origins),
                                       cmocka_unit_test(settings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
