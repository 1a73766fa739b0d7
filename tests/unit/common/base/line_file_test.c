/* Goal: lines reach their file in their order, also one that was moved away meanwhile; a file that
 * cannot be written loses lines, which are counted, and nobody waits. Method: files in a folder of
 * the test's own; /dev/full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/line_file.h"
#include "common/base/log.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(20000)

static char dir[64], path[96], moved[96];

static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/line_file_XXXXXX");
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(path, sizeof(path), "%s/lines", dir);
    snprintf(moved, sizeof(moved), "%s/lines.1", dir);
    log_init(LOG_NONE, STDERR_FILENO);
    return 0;
}

static int drop_dir(void **state) {
    (void)state;
    unlink(path);
    unlink(moved);
    return rmdir(dir);
}

static void pause_ms(unsigned ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static void put(struct line_file *f, const char *line) {
    line_file_put(f, line, strlen(line));
}

static void read_file(char *out, size_t n, const char *from) {
    FILE *in = fopen(from, "r");
    assert_non_null(in);
    out[fread(out, 1, n - 1, in)] = '\0';
    fclose(in);
}

static void lines_are_appended(void **state) {
    struct line_file *f;
    struct errbuf eb = {0};
    char got[256];
    struct stat st;
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(line_file_open(&f, path, &eb), ERR_OK);
        put(f, turn == 0 ? "one\n" : "three\n");
        put(f, turn == 0 ? "two\n" : "four\n");
        line_file_close(&f);
        assert_null(f);
    }
    read_file(got, sizeof(got), path);
    assert_string_equal(got, "one\ntwo\nthree\nfour\n");
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777 & ~0640u) == 0);
    put(NULL, "nowhere\n");
    line_file_close(&f);
}

static void a_file_that_was_moved_is_made_anew(void **state) {
    struct line_file *f;
    struct errbuf eb = {0};
    char got[4096];
    (void)state;
    assert_int_equal(line_file_open(&f, path, &eb), ERR_OK);
    put(f, "old\n");
    const uint64_t until = clock_ms() + DEADLINE_MS;
    do {
        pause_ms(1);
        read_file(got, sizeof(got), path);
    } while (got[0] == '\0' && clock_ms() < until);
    assert_int_equal(rename(path, moved), 0);
    while (access(path, F_OK) != 0 && clock_ms() < until) {
        put(f, "between\n");
        pause_ms(50);
    }
    put(f, "new\n");
    line_file_close(&f);
    read_file(got, sizeof(got), path);
    assert_true(strlen(got) >= 4 && strcmp(got + strlen(got) - 4, "new\n") == 0);
    read_file(got, sizeof(got), moved);
    assert_int_equal(strncmp(got, "old\n", 4), 0);
}

static void what_cannot_be_written_is_counted(void **state) {
    struct line_file *f;
    struct errbuf eb = {0};
    (void)state;
    assert_int_equal(line_file_open(&f, "/dev/full", &eb), ERR_OK);
    for (int i = 0; i < 3; i++) put(f, "a\n");
    const uint64_t until = clock_ms() + DEADLINE_MS;
    while (line_file_dropped(f) < 3 && clock_ms() < until) pause_ms(10);
    assert_int_equal(line_file_dropped(f), 3);
    char *big = malloc(LINE_FILE_WAITING_MAX + 1);
    memset(big, '\n', LINE_FILE_WAITING_MAX + 1);
    line_file_put(f, big, LINE_FILE_WAITING_MAX + 1);
    assert_int_equal(line_file_dropped(f), 4);
    free(big);
    line_file_close(&f);
    assert_int_equal(line_file_open(&f, "/nowhere/at/all", &eb), ERR_BAD_CONFIG);
    assert_string_equal(eb.text, "/nowhere/at/all: No such file or directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_are_appended, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_file_that_was_moved_is_made_anew, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_is_counted, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
