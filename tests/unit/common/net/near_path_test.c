/* Goal: an unknown path is told what it may have meant, and nothing where nothing is near.
 * Method: the paths that programs really get wrong, against a table in the style of ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/near_path.h"

static void one(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)x, (void)p;
}

static const struct route rows[] = {
    {PLANE_DATA, "GET", "/v1/models", one, 0},
    {PLANE_DATA | PLANE_STATUS, "GET", "/v1/health", one, 0},
    {PLANE_DATA, "GET", "/v1/models/{*}", one, 0},
    {PLANE_DATA, "GET", "/v2", one, 0},
    {PLANE_DATA, "GET", "/v2/models/{m}", one, 0},
    {PLANE_DATA, "POST", "/v2/models/{m}/stopInfer", one, 0},
    {PLANE_DATA, "GET", "/health/timed-{*}", one, 0},
    {PLANE_MGMT, "GET", "/v1/status", one, 0},
    {0, NULL, NULL, NULL, 0},
};
static const struct route again[] = {
    {PLANE_DATA, "GET", "/v1/models", one, 0}, /* a second row of a path is said once */
    {0, NULL, NULL, NULL, 0},
};
static const struct route *const tables[] = {rows, again, NULL};

static void what_programs_get_wrong(void **state) {
    static const struct {
        const char *path, *near;
    } cases[] = {
        {"/v1/chat/completion", "POST /v1/chat/completions"},
        {"/v1/chat/completions/", "POST /v1/chat/completions"},
        {"/v1/v1/chat/completions", "POST /v1/chat/completions"},
        {"/v2/chat/completions", "POST /v1/chat/completions"},
        {"//v1/chat/completions", "POST /v1/chat/completions"},
        {"/V1/Chat/Completions", "POST /v1/chat/completions"},
        {"/v1/caht/completions", "POST /v1/chat/completions"}, /* a swap is one */
        {"/v1/chat", "POST /v1/chat/completions"},             /* leads there */
        {"/v1/compeltions", "POST /v1/completions"},
        {"/v1/model", "GET /v1/models"},
        {"/v1/modelss", "GET /v1/models"},
        {"/generat", "POST /generate"},
        {"/v2/models/fable/generates", "POST /v2/models/.../generate"},
        {"/v2/model/fable/stopinfer", "POST /v2/models/.../stopInfer"},
        {"/health/timed_5", "GET /health/timed-..."},
        {"/v1/heath", "GET /v1/health"},
        {"/xyzzy", ""},
        {"/v1/fine_tuning", ""},
        {"/v1/fine_tuning/jobs", ""}, /* what fills a hole is no likeness */
        {"/", ""},
        {"", ""},
        {"/favicon.ico", ""},
    };
    char near[NEAR_PATHS_TEXT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = near_paths(near, tables, PLANE_DATA, cases[i].path),
               want = strlen(cases[i].near);
        if (strncmp(near, cases[i].near, want) != 0 || (near[want] != '\0' && near[want] != ',') ||
            (want == 0) != (n == 0) || (n == 0 && near[0] != '\0'))
            fail_msg("%s: \"%s\", expected \"%s\" first", cases[i].path, near, cases[i].near);
    }
}

static void the_nearest_first_and_no_more_than_three(void **state) {
    char near[NEAR_PATHS_TEXT_BYTES];
    (void)state;
    assert_int_equal(near_paths(near, tables, PLANE_DATA, "/v1"), 3);
    assert_int_equal(near_paths(near, tables, PLANE_DATA, "/v1/models-"), 2);
    assert_string_equal(near, "GET /v1/models, GET /v3/models");
}

static void only_what_these_planes_serve(void **state) {
    char near[NEAR_PATHS_TEXT_BYTES];
    (void)state;
    assert_int_equal(near_paths(near, tables, PLANE_MGMT, "/v1/statu"), 1);
    assert_string_equal(near, "GET /v1/status");
    assert_int_equal(near_paths(near, tables, PLANE_MGMT, "/v1/chat/completion"), 0);
    assert_int_equal(near_paths(near, tables, PLANE_STATUS, "/v1/heath"), 1);
    assert_int_equal(near_paths(near, tables, PLANE_METRICS, "/v1/heath"), 0);
}

/* Every length, and bytes of every kind: the bounds hold (ASan), and a path that is too long to be
 * compared has nothing near it. */
static void long_paths(void **state) {
    char near[NEAR_PATHS_TEXT_BYTES], path[4 * NEAR_PATH_BYTES_MAX];
    (void)state;
    static const char *const starts[] = {"/v1/models/", "/v2/models/", "/v2/models/x/", "/",
                                         "////"};
    for (size_t k = 0; k < sizeof(starts) / sizeof(starts[0]); k++)
        for (size_t n = strlen(starts[k]); n < sizeof(path) - 1; n++) {
            memset(path, (int)(n % 5 == 0 ? '/' : n % 7 == 0 ? 0xFF : '{'), n);
            memcpy(path, starts[k], strlen(starts[k]));
            path[n] = '\0';
            size_t found = near_paths(near, tables, PLANE_DATA, path);
            assert_true(found <= NEAR_PATHS_MAX && strlen(near) < NEAR_PATHS_TEXT_BYTES);
            if (n > NEAR_PATH_BYTES_MAX) assert_int_equal(found, 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_programs_get_wrong),
        cmocka_unit_test(the_nearest_first_and_no_more_than_three),
        cmocka_unit_test(only_what_these_planes_serve),
        cmocka_unit_test(long_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
