/* Goal: a file that is replaced has its old bytes or its new ones whatever fails, and only a file
 * of one's own is read, within its bound. Method: files in a folder of the test's own; /dev/full.
 */
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
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/whole_file.h"

static char folder[64];
static int dir = -1;

static int make_dir(void **state) {
    (void)state;
    strcpy(folder, "/tmp/whole_file_XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir >= 0 ? 0 : -1;
}

static int drop_dir(void **state) {
    static const char *const names[] = {"a", "a.new", "other"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) (void)unlinkat(dir, names[i], 0);
    (void)unlinkat(dir, "sub/x", 0);
    (void)unlinkat(dir, "sub", AT_REMOVEDIR);
    close(dir);
    return rmdir(folder);
}

static enum err read_in(struct buf *b, const char *name, size_t most, struct errbuf *eb) {
    const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    const enum err e = whole_read_own(b, fd, most, eb);
    close(fd);
    return e;
}

static void expect_file(const char *want) {
    struct buf b = BUF_INIT;
    struct errbuf eb = {0};
    assert_int_equal(read_in(&b, "a", 1 << 20, &eb), ERR_OK);
    assert_int_equal(b.len, strlen(want));
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static bool is_there(const char *name) {
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void replaces(void **state) {
    struct stat st;
    (void)state;
    assert_int_equal(whole_replace(dir, "a.new", "a", 0640, "first", 5), 0);
    expect_file("first");
    assert_int_equal(whole_replace(dir, "a.new", "a", 0600, "second, longer", 14), 0);
    expect_file("second, longer");
    assert_int_equal(fstatat(dir, "a", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(whole_replace(dir, "a.new", "a", 0600, "", 0), 0);
    expect_file("");
    assert_false(is_there("a.new"));
}

static void what_fails_leaves_the_old(void **state) {
    (void)state;
    assert_int_equal(whole_replace(dir, "a.new", "a", 0600, "old", 3), 0);
    assert_int_equal(whole_replace(dir, "gone/a.new", "a", 0600, "new", 3), ENOENT);
    assert_int_equal(symlinkat("other", dir, "a.new"), 0);
    assert_int_equal(whole_replace(dir, "a.new", "a", 0600, "new", 3), ELOOP);
    assert_false(is_there("other"));
    assert_int_equal(unlinkat(dir, "a.new", 0), 0);
    assert_int_equal(mkdirat(dir, "sub", 0700), 0);
    const int x = openat(dir, "sub/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(x >= 0);
    close(x);
    assert_true(whole_replace(dir, "a.new", "sub", 0600, "new", 3) != 0);
    assert_false(is_there("a.new"));
    expect_file("old");
}

static void writes_all_or_says_why(void **state) {
    static char much[300000];
    struct buf b = BUF_INIT;
    struct errbuf eb = {0};
    (void)state;
    memset(much, 'm', sizeof(much));
    const int fd = openat(dir, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(whole_write(fd, much, sizeof(much)), 0);
    close(fd);
    assert_int_equal(read_in(&b, "a", sizeof(much), &eb), ERR_OK);
    assert_int_equal(b.len, sizeof(much));
    assert_memory_equal(b.data, much, sizeof(much));
    buf_free(&b);
    assert_int_equal(whole_write(-1, "x", 1), EBADF);
    assert_int_equal(whole_write(-1, "", 0), 0);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0) {
        assert_int_equal(whole_write(full, "x", 1), ENOSPC);
        close(full);
    }
}

static void reads_its_own_within_the_bound(void **state) {
    struct buf b = BUF_INIT;
    struct errbuf eb = {0};
    (void)state;
    buf_puts(&b, "before ");
    assert_int_equal(whole_replace(dir, "a.new", "a", 0600, "12345", 5), 0);
    assert_int_equal(read_in(&b, "a", 5, &eb), ERR_OK);
    assert_string_equal(b.data, "before 12345");
    assert_int_equal(read_in(&b, "a", 4, &eb), ERR_TOO_LARGE);
    assert_non_null(strstr(eb.text, "larger than 4 bytes"));
    assert_int_equal(fchmodat(dir, "a", 0620, 0), 0);
    assert_int_equal(read_in(&b, "a", 5, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "nobody else may write"));
    assert_int_equal(mkfifoat(dir, "other", 0600), 0);
    assert_int_equal(read_in(&b, "other", 5, &eb), ERR_BAD_CONFIG);
    buf_free(&b);
}

int main(void) {
#define IN_DIR(t) cmocka_unit_test_setup_teardown(t, make_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(replaces),
        IN_DIR(what_fails_leaves_the_old),
        IN_DIR(writes_all_or_says_why),
        IN_DIR(reads_its_own_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
