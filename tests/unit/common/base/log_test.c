/* Goal: a record is one whole line, whatever is in it and whoever writes at the same time.
 * Method: the sink is a pipe; its lines are taken apart. Four threads write at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>
#include "common/base/log.h"

static int ends[2];

static int open_pipe(void **state) {
    (void)state;
    return pipe(ends);
}

static int close_pipe(void **state) {
    (void)state;
    log_init(LOG_INFO, STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static size_t read_some(char *p, size_t n) {
    ssize_t got = read(ends[0], p, n - 1);
    assert_true(got > 0);
    p[got] = '\0';
    return (size_t)got;
}

static void a_line(void **state) {
    char line[2048];
    int year, month, day, h, m, s, ms;
    char level[16], area[40];
    (void)state;
    log_init(LOG_DEBUG, ends[1]);
    log_warn("relay", "req=%s ms=%d", "a1", 12);
    read_some(line, sizeof(line));
    assert_int_equal(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %15s %39s", &year, &month, &day, &h,
                            &m, &s, &ms, level, area),
                     9);
    assert_true(year >= 2020 && month >= 1 && month <= 12);
    assert_string_equal(level, "warn");
    assert_string_equal(area, "relay");
    assert_non_null(strstr(line, " relay req=a1 ms=12\n"));
}

static void levels_filter(void **state) {
    static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR};
    char lines[4096];
    (void)state;
    for (int set = LOG_DEBUG; set <= LOG_NONE; set++) {
        log_init((enum log_level)set, ends[1]);
        for (int i = 0; i < 4; i++) log_write(levels[i], "t", "level=%d", i);
        log_init(LOG_DEBUG, ends[1]);
        log_debug("t", "mark");
        size_t n = read_some(lines, sizeof(lines)), n_lines = 0;
        for (size_t i = 0; i < n; i++) n_lines += lines[i] == '\n';
        assert_int_equal(n_lines, (size_t)(LOG_NONE - set) + 1);
    }
}

static void one_line_whatever_comes(void **state) {
    char line[4096], longer[3000];
    (void)state;
    log_init(LOG_INFO, ends[1]);
    log_info("t", "value=%s", "a\nb\r\x1b[31mc\x7F");
    size_t n = read_some(line, sizeof(line));
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    assert_non_null(strstr(line, "value=a b  [31mc \n"));
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    log_info("t", "%s", longer);
    n = read_some(line, sizeof(line));
    assert_int_equal(n, 1024);
    assert_int_equal(line[1023], '\n');
    assert_int_equal(line[1022], 'x');
}

static void names(void **state) {
    (void)state;
    assert_int_equal(log_level_parse("debug"), LOG_DEBUG);
    assert_int_equal(log_level_parse("INFO"), LOG_INFO);
    assert_int_equal(log_level_parse("warning"), LOG_WARN);
    assert_int_equal(log_level_parse("warn"), LOG_WARN);
    assert_int_equal(log_level_parse("critical"), LOG_ERROR);
    assert_int_equal(log_level_parse("null"), LOG_NONE);
    assert_int_equal(log_level_parse(""), -1);
    assert_int_equal(log_level_parse("loud"), -1);
}

static void *writer(void *arg) {
    for (int i = 0; i < 100; i++) log_info("t", "who=%s n=%d end", (const char *)arg, i);
    return NULL;
}

static void threads_do_not_mix(void **state) {
    static char all[65536];
    static char who[4][2] = {"a", "b", "c", "d"};
    pthread_t t[4];
    size_t n = 0, n_lines = 0;
    (void)state;
    log_init(LOG_INFO, ends[1]);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, writer, who[i]), 0);
    while (n_lines < 400) {
        size_t got = read_some(all + n, sizeof(all) - n);
        for (size_t i = n; i < n + got; i++) n_lines += all[i] == '\n';
        n += got;
    }
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    for (char *line = strtok(all, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char w;
        int k, end = 0;
        const char *body = strstr(line, "who=");
        assert_non_null(body);
        assert_int_equal(sscanf(body, "who=%c n=%d end%n", &w, &k, &end), 2);
        assert_int_equal(strlen(body), end);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(levels_filter, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(one_line_whatever_comes, open_pipe, close_pipe),
        cmocka_unit_test(names),
        cmocka_unit_test_setup_teardown(threads_do_not_mix, open_pipe, close_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
