/* Goal: pages of exactly the configured origins may call, and a setting that says none is refused.
 * Method: tables on both sides of every rule. The headers themselves: relay_client_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/net/cors.h"

#define LOCAL "http://localhost:* http://127.0.0.1:* http://[::1]:*"

static void settings(void **state) {
    static const char *const good[] = {"",
                                       "*",
                                       " * ",
                                       "https://a.example",
                                       "http://a.example:8080 https://b-c.example",
                                       "http://localhost:*",
                                       "http://[::1]:8080",
                                       "tauri://localhost",
                                       LOCAL};
    static const char *const bad[] = {"localhost",        "http://",
                                      "http://a/",        "http://a b",
                                      "http://*",         "http://*.a",
                                      "http://a:",        "http://a:x",
                                      "http://a:123456",  "http://a:80:*",
                                      "HTTP://a",         "http://A",
                                      "http://a,http://", "http://[::1",
                                      "http://[]",        "null",
                                      "http://a:*:*",     "**",
                                      "http://u@a",       "http://a?b"};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!cors_origins_ok(good[i])) fail_msg("\"%s\" is refused", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (cors_origins_ok(bad[i])) fail_msg("\"%s\" is taken", bad[i]);
}

static void origins(void **state) {
    static const struct {
        const char *origins, *origin;
        bool allowed;
    } rows[] = {
        {"", "http://localhost", false},
        {"*", "https://any.example", true},
        {"https://a.example", "https://a.example", true},
        {"https://a.example", "https://a.example:8443", false},
        {"https://a.example", "http://a.example", false},
        {"https://a.example", "https://a.example.evil.example", false},
        {"https://a.example", "", false},
        {"http://x https://a.example", "https://a.example", true},
        {LOCAL, "http://localhost", true},
        {LOCAL, "http://localhost:3000", true},
        {LOCAL, "http://127.0.0.1:65535", true},
        {LOCAL, "http://[::1]:5173", true},
        {LOCAL, "https://localhost:3000", false},
        {LOCAL, "http://localhost.evil.example", false},
        {LOCAL, "http://localhost:3000.evil.example", false},
        {LOCAL, "http://localhost:", false},
        {LOCAL, "http://localhost:123456", false},
        {LOCAL, "http://localhost:80/", false},
        {LOCAL, "http://127.0.0.10", false},
        {LOCAL, "null", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (cors_allows(rows[i].origins, rows[i].origin) != rows[i].allowed)
            fail_msg("\"%s\" with \"%s\": %d", rows[i].origin, rows[i].origins, !rows[i].allowed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(settings), cmocka_unit_test(origins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
