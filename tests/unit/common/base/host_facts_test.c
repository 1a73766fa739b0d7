/* Goal: what the kernel's files say is read as it is meant, and what they do not say is 0. Method:
 * a folder with files as /proc and /sys have them; the process's own limits; real addresses. */
#include "common/base/host_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "proto/json.h"

static char root[] = "/tmp/host-facts-XXXXXX";

/* Makes a file and the folders above it. */
static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_files_of_the_kernel(void **state) {
    struct host_facts f;
    (void)state;
    put("/proc/meminfo",
        "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n"
        "HugePages_Total:       7\nHugePages_Free:        3\nHugepagesize:    2048 kB\n");
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor @ 2 GHz\nmodel name\t: B\n");
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/proc/sys/net/core/wmem_max", "212992\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/fs/cgroup/a/b/memory.max", "8192\n");
    put("/sys/fs/cgroup/a/b/memory.current", "4096\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    host_facts_read(&f, root);
    assert_int_equal(f.memory_bytes, 1000 << 10);
    assert_int_equal(f.memory_available, 400 << 10);
    assert_int_equal(f.huge_bytes, 7 * 2048 << 10);
    assert_int_equal(f.huge_free_bytes, 3 * 2048 << 10);
    assert_string_equal(f.cpu, "A Processor @ 2 GHz");
    assert_string_equal(f.transparent, "madvise");
    assert_int_equal(f.group_memory_max, 8192);
    assert_int_equal(f.group_memory_used, 4096);
    assert_true(f.cpus_paid > 1.49 && f.cpus_paid < 1.51);
    assert_int_equal(f.wmem_max_bytes, 212992);
    assert_true(f.cpus_allowed >= 1 && f.cpus_online >= f.cpus_allowed && f.fds_max > 0);
    /* a group without limits, and one that sees itself as the root */
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    host_facts_read(&f, root);
    assert_int_equal(f.group_memory_max, 0);
    assert_true(f.cpus_paid == 0);
    put("/sys/fs/cgroup/memory.max", "16384\n");
    put("/sys/fs/cgroup/memory.current", "1\n");
    host_facts_read(&f, root);
    assert_int_equal(f.group_memory_max, 16384);
    assert_int_equal(f.group_memory_used, 1);
}

static void test_nothing_is_there(void **state) {
    struct host_facts f;
    (void)state;
    host_facts_read(&f, "/nowhere");
    assert_int_equal(f.memory_bytes, 0);
    assert_int_equal(f.fds_open, 0);
    assert_string_equal(f.cpu, "");
    struct json_value *o = host_facts_json(&f);
    assert_non_null(json_to_text(o, JSON_COMPACT, NULL));
    json_put(o);
}

static void test_disk_and_interface(void **state) {
    uint64_t bytes = 0;
    char path[256];
    (void)state;
    snprintf(path, sizeof(path), "%s/not/there/yet", root);
    assert_true(host_disk_free(path, &bytes));
    assert_true(bytes > 0);
    assert_false(host_disk_free("", &bytes));
    assert_true(host_mtu_of("127.0.0.1") > 0);
    assert_int_equal(host_mtu_of("127.0.0.7"), host_mtu_of("127.0.0.1"));
    assert_int_equal(host_mtu_of("192.0.2.1"), 0);
    assert_int_equal(host_mtu_of("no address"), 0);
}

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) == NULL;
}

static int drop_root(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_of_the_kernel),
        cmocka_unit_test(test_nothing_is_there),
        cmocka_unit_test(test_disk_and_interface),
    };
    return cmocka_run_group_tests(tests, make_root, drop_root);
}
