/* Goal: a record is one whole line, whatever is in it and whoever writes at the same time.
 * Nobody waits for a sink that does not take lines.
 * Method: the sink is a pipe; its lines are taken apart. Four threads write at once. A pipe that
 * nobody reads, then somebody does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
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

/* ---- with the ring; from here to the end of the program */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void the_ring_writes_the_same_lines(void **state) {
    log_start();
    log_start(); /* once is enough */
    a_line(state);
    one_line_whatever_comes(state);
    threads_do_not_mix(state);
    assert_true(log_flush(5000));
    assert_int_equal(log_dropped(), 0);
}

/* Lines of 1,000 bytes, 2,000 of them: more than pipe and ring hold. */
static void flood(void) {
    char filler[900];
    memset(filler, 'f', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = 0;
    for (int i = 0; i < 2000; i++) log_info("t", "n=%d %s end", i, filler);
}

static void nobody_waits_for_a_reader(void **state) {
    static char all[4 << 20];
    size_t n = 0;
    (void)state;
    log_init(LOG_INFO, ends[1]);
    double from = now_s();
    flood();
    assert_true(now_s() - from < 2); /* microseconds each; a write would never end */
    uint64_t dropped = log_dropped();
    assert_true(dropped > 1000 && dropped < 2000);
    from = now_s();
    assert_false(log_flush(200));
    assert_true(now_s() - from < 2);
    /* a reader comes: whole lines in their order, then the number that is missing */
    char told[64];
    snprintf(told, sizeof(told), "event=lines_dropped n=%llu\n", (unsigned long long)dropped);
    do n += read_some(all + n, sizeof(all) - n);
    while (strstr(all, told) == NULL && now_s() - from < 60);
    assert_non_null(strstr(all, told));
    int last = -1, n_lines = 0;
    for (char *line = strtok(all, "\n"); line != NULL; line = strtok(NULL, "\n"), n_lines++) {
        const char *body = strstr(line, " n=");
        int k;
        if (strstr(line, "lines_dropped") != NULL) continue;
        assert_non_null(body);
        assert_int_equal(sscanf(body, " n=%d f", &k), 1);
        assert_true(k > last);
        assert_string_equal(line + strlen(line) - 4, " end");
        last = k;
    }
    assert_int_equal(n_lines, 2000 - (int)dropped + 1);
    log_info("t", "goes on");
    assert_true(log_flush(5000));
    n = read_some(all, sizeof(all));
    assert_non_null(strstr(all, "goes on\n"));
}

static int wait_for(pid_t pid, double s) {
    int status;
    for (double from = now_s(); now_s() - from < s; usleep(10000))
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return -2;
}

/* A child has no writer and writes itself; one that starts its own ends in time with a full pipe,
 * and gets its last lines out into one that is read. */
static void children(void **state) {
    char line[2048];
    (void)state;
    log_init(LOG_INFO, ends[1]);
    pid_t pid = fork();
    if (pid == 0) {
        log_info("t", "of the child");
        _exit(0);
    }
    assert_int_equal(wait_for(pid, 60), 0);
    read_some(line, sizeof(line));
    assert_non_null(strstr(line, "of the child\n"));
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        log_start();
        log_error("t", "cannot start");
        exit(3);
    }
    assert_int_equal(wait_for(pid, 60), 3);
    read_some(line, sizeof(line));
    assert_non_null(strstr(line, "cannot start\n"));
    pid = fork();
    if (pid == 0) {
        log_start();
        flood();
        exit(4);
    }
    assert_int_equal(wait_for(pid, 60), 4);
}

/* Everything that was logged so far; a thread may write it. */
static void read_lines(char *p, size_t n) {
    assert_true(log_flush(10000));
    struct pollfd wait = {.fd = ends[0], .events = POLLIN};
    size_t len = 0;
    while (poll(&wait, 1, 0) == 1 && len + 1 < n) len += read_some(p + len, n - len);
    p[len] = '\0';
}

static void areas_have_levels_of_their_own(void **state) {
    char lines[4096];
    struct log_rule all[LOG_AREAS_MAX];
    (void)state;
    log_init(LOG_INFO, ends[1]);
    const struct log_rule loud = {.area = "relay", .level = LOG_DEBUG},
                          quiet = {.area = "kv", .level = LOG_ERROR};
    assert_false(log_shows(LOG_DEBUG));
    assert_int_equal(log_rule_set(&loud), ERR_OK);
    assert_int_equal(log_rule_set(&quiet), ERR_OK);
    assert_true(log_shows(LOG_DEBUG));
    log_debug("relay", "1");
    log_debug("other", "2");
    log_info("other", "3");
    log_info("kv", "4");
    log_warn("kv", "5");
    log_error("kv", "6");
    read_lines(lines, sizeof(lines));
    assert_non_null(strstr(lines, "debug relay 1\n"));
    assert_non_null(strstr(lines, "info other 3\n"));
    assert_non_null(strstr(lines, "error kv 6\n"));
    assert_null(strstr(lines, " 2\n"));
    assert_null(strstr(lines, " 4\n"));
    assert_null(strstr(lines, " 5\n"));
    /* One for all areas, whose own rules go before; and one that is over. */
    assert_int_equal(log_rule_set(&(struct log_rule){.level = LOG_NONE}), ERR_OK);
    assert_int_equal(
        log_rule_set(&(struct log_rule){.area = "kv", .level = LOG_DEBUG, .until_ms = 1}), ERR_OK);
    log_error("other", "7");
    log_error("kv", "8");
    log_debug("relay", "9");
    read_lines(lines, sizeof(lines));
    assert_non_null(strstr(lines, " 9\n"));
    assert_null(strstr(lines, " 7\n"));
    assert_null(strstr(lines, " 8\n"));
    assert_int_equal(log_rules(all), 2);
    assert_string_equal(all[0].area, "relay");
    assert_string_equal(all[1].area, "");
    assert_true(log_rule_drop("relay") && log_rule_drop(""));
    assert_false(log_rule_drop("relay"));
    log_info("other", "10");
    log_debug("relay", "11");
    read_lines(lines, sizeof(lines));
    assert_non_null(strstr(lines, " 10\n"));
    assert_null(strstr(lines, " 11\n"));
}

static void rules_have_bounds(void **state) {
    struct log_rule r = {.level = LOG_DEBUG}, all[LOG_AREAS_MAX];
    (void)state;
    for (int i = 0; i < LOG_AREAS_MAX; i++) {
        snprintf(r.area, sizeof(r.area), "area_%d", i);
        assert_int_equal(log_rule_set(&r), ERR_OK);
    }
    assert_int_equal(log_rule_set(&(struct log_rule){.area = "more"}), ERR_BUSY);
    assert_int_equal(log_rule_set(&r), ERR_OK); /* the last one anew */
    assert_int_equal(log_rules(all), LOG_AREAS_MAX);
    assert_int_equal(log_rule_set(&(struct log_rule){.area = "a b"}), ERR_INVALID);
    memset(r.area, 'a', sizeof(r.area));
    assert_int_equal(log_rule_set(&r), ERR_INVALID);
    for (int i = 0; i < LOG_AREAS_MAX; i++) assert_true(log_rule_drop(all[i].area));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(levels_filter, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(one_line_whatever_comes, open_pipe, close_pipe),
        cmocka_unit_test(names),
        cmocka_unit_test_setup_teardown(threads_do_not_mix, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(the_ring_writes_the_same_lines, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_reader, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(children, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(areas_have_levels_of_their_own, open_pipe, close_pipe),
        cmocka_unit_test(rules_have_bounds),
    };
    if (getenv("TEST_SKIP") != NULL) cmocka_set_skip_filter(getenv("TEST_SKIP"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
