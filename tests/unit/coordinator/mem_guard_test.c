/* Goal: requests are refused from 80 % of the memory limit on and again from below 60 %, and the
 * limit is the one that the kernel's files say, in both versions of control groups, in a container
 * or not. Method: both sides of both marks; trees of such files in a folder of the test; the real
 * files of this process give a resident memory that grows with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "coordinator/mem_guard.h"

static void marks(void **state) {
    (void)state;
    struct mem_guard g = {.limit_bytes = 1000};
    assert_false(mem_guard_look(&g, 0));
    assert_false(mem_guard_look(&g, 799));
    assert_true(mem_guard_look(&g, 800));
    assert_true(mem_guard_look(&g, 600));
    assert_false(mem_guard_look(&g, 599));
    assert_false(mem_guard_look(&g, 600)); /* between the marks it stays as it is */
    assert_true(mem_guard_look(&g, UINT64_MAX));
    g = (struct mem_guard){.limit_bytes = 0};
    assert_false(mem_guard_look(&g, UINT64_MAX));
    g.limit_bytes = UINT64_MAX;
    assert_false(mem_guard_look(&g, UINT64_MAX / 2));
}

/* ---- trees of files */
static char root[] = "/tmp/mem_guard_XXXXXX";

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    char command[600];
    snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", full);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void empty(void) {
    char command[200];
    snprintf(command, sizeof(command), "rm -rf '%s'/proc '%s'/sys", root, root);
    assert_int_equal(system(command), 0);
}

static const struct tree {
    const char *groups;
    const char *file, *text, *file2, *text2;
    uint64_t want;
} trees[] = {
    {"0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max", "1048576\n", NULL, NULL, 1048576},
    {"0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max", "max\n", NULL, NULL, 0},
    {"0::/\n", "/sys/fs/cgroup/memory.max", "5000\n", NULL, NULL, 5000},
    {"0::/of/the/host\n", "/sys/fs/cgroup/memory.max", "7000\n", NULL, NULL, 7000},
    {"9:pids:/\n4:memory:/box/1\n0::/\n", "/sys/fs/cgroup/memory/box/1/memory.limit_in_bytes",
     "300\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n", 300},
    {"4:memory:/box/1\n", "/sys/fs/cgroup/memory/box/1/memory.limit_in_bytes", "900\n",
     "/sys/fs/cgroup/memory/memory.limit_in_bytes", "800\n", 800},
    {"4:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n", NULL,
     NULL, 0},
    {"4:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "99999999999999999999999\n",
     NULL, NULL, 0},
    {"0::/\n", "/sys/fs/cgroup/memory.max", "", NULL, NULL, 0},
    {"0::/\n", "/sys/fs/cgroup/memory.max", "soon\n", NULL, NULL, 0},
    {"nonsense\n:\n::\n0:\n", "/sys/fs/cgroup/other", "1\n", NULL, NULL, 0},
};

static void limits(void **state) {
    (void)state;
    assert_int_equal(mem_limit_bytes(root), 0); /* no files at all */
    for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
        const struct tree *t = &trees[i];
        put("/proc/self/cgroup", t->groups);
        put(t->file, t->text);
        if (t->file2 != NULL) put(t->file2, t->text2);
        uint64_t got = mem_limit_bytes(root);
        if (got != t->want) fail_msg("tree %zu: %llu", i, (unsigned long long)got);
        empty();
    }
}

static void used(void **state) {
    (void)state;
    enum { MORE = 32 << 20 };
    assert_int_equal(mem_used_bytes(root), 0);
    put("/proc/self/statm", "100 7 3 1 0 40 0\n");
    assert_int_equal(mem_used_bytes(root), 7 * (uint64_t)sysconf(_SC_PAGESIZE));
    put("/proc/self/statm", "100\n");
    assert_int_equal(mem_used_bytes(root), 0);
    empty();
    uint64_t before = mem_used_bytes("");
    volatile char *p = malloc(MORE);
    assert_non_null(p);
    for (size_t i = 0; i < MORE; i += 4096) p[i] = 1;
    assert_true(mem_used_bytes("") > before + MORE / 2);
    free((void *)p);
}

static int up(void **state) {
    (void)state;
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int down(void **state) {
    (void)state;
    empty();
    return rmdir(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks),
        cmocka_unit_test(limits),
        cmocka_unit_test(used),
    };
    return cmocka_run_group_tests(tests, up, down);
}
