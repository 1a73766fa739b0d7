/* Goal: compute threads go to different cores of one node first, whatever a system says of itself,
 * and the other threads stay off them. Method: lists of cpus right and wrong, both sides of each
 * bound; a folder like /sys with two nodes and two hardware threads a core, then with files
 * missing, empty, endless or contradicting; then this process on the cores it really has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/engine/cores.h"
#include "common/engine/mem.h"

static void lists(void **state) {
    static const struct {
        const char *text;
        int n, first, last; /* n -1: refused */
    } rows[] = {
        {"0", 1, 0, 0},          {"0-3\n", 4, 0, 3}, {"3,1", 2, 3, 1},
        {" 0-1,8-9 ", 4, 0, 9},  {"", 0, 0, 0},      {"\n", 0, 0, 0},
        {"4095", 1, 4095, 4095}, {"4096", -1, 0, 0}, {"99999999999999", -1, 0, 0},
        {"3-1", -1, 0, 0},       {"1,1", -1, 0, 0},  {"0-2,1", -1, 0, 0},
        {"1,", -1, 0, 0},        {",1", -1, 0, 0},   {"1-", -1, 0, 0},
        {"-1", -1, 0, 0},        {"1 2", -1, 0, 0},  {"a", -1, 0, 0},
        {"0-7", 8, 0, 7},        {"0-8", -1, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int out[8], n;
        bool good = cores_list(out, 8, &n, rows[i].text, strlen(rows[i].text));
        if (good != (rows[i].n >= 0) || (good && n != rows[i].n) ||
            (n > 0 && good && (out[0] != rows[i].first || out[n - 1] != rows[i].last)))
            fail_msg("\"%s\": %d, %d cpus", rows[i].text, good, n);
    }
    int out[1], n;
    char *spaces = malloc(CORES_LIST_BYTES_MAX + 1);
    assert_non_null(spaces);
    memset(spaces, ' ', CORES_LIST_BYTES_MAX + 1);
    assert_true(cores_list(out, 1, &n, spaces, CORES_LIST_BYTES_MAX));
    assert_false(cores_list(out, 1, &n, spaces, CORES_LIST_BYTES_MAX + 1));
    free(spaces);
}

/* ---- a made-up system: cpus 0-3 on node 0, 4-7 on node 1; cpu i and i + 2 of a node share a core
 */

struct tree {
    char dir[256];
};

static void put(const struct tree *t, const char *path, const char *text) {
    char full[1024];
    snprintf(full, sizeof(full), "%s/%s", t->dir, path);
    for (char *p = full + strlen(t->dir) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = 0;
        mkdir(full, 0700);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_siblings(const struct tree *t, int cpu, const char *text) {
    char path[128];
    snprintf(path, sizeof(path), "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    put(t, path, text);
}

static int tree_open(void **state) {
    static const char *const siblings[] = {"0,2\n", "1,3\n", "4,6\n", "5,7\n"};
    struct tree *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    snprintf(t->dir, sizeof(t->dir), "/tmp/baton-sys-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    put(t, "devices/system/node/online", "0-1\n");
    put(t, "devices/system/node/node0/cpulist", "0-3\n");
    put(t, "devices/system/node/node1/cpulist", "4-7\n");
    for (int cpu = 0; cpu < 8; cpu++) put_siblings(t, cpu, siblings[cpu / 4 * 2 + cpu % 2]);
    *state = t;
    return 0;
}

static int tree_close(void **state) {
    struct tree *t = *state;
    char command[512];
    snprintf(command, sizeof(command), "rm -r '%s'", t->dir);
    assert_int_equal(system(command), 0);
    free(t);
    return 0;
}

static void a_system_is_read(void **state) {
    struct tree *t = *state;
    struct core_place p;
    for (int cpu = 0; cpu < 8; cpu++) {
        cores_where(t->dir, cpu, &p);
        assert_int_equal(p.node, cpu / 4);
        assert_int_equal(p.core, cpu / 4 * 4 + cpu % 2);
    }
    cores_where(t->dir, 8, &p); /* there is none */
    assert_true(p.core == 8 && p.node == 0);
    static const char *const odd[] = {"", "5\n", "5,x\n", "0-99999\n"}; /* or not to be believed */
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        put_siblings(t, 6, odd[i]);
        cores_where(t->dir, 6, &p);
        assert_true(p.core == 6 && p.node == 1);
    }
    put(t, "devices/system/node/online", "junk\n");
    cores_where(t->dir, 7, &p);
    assert_true(p.core == 5 && p.node == 0);
}

static void an_endless_file_is_left(void **state) {
    struct tree *t = *state;
    struct core_place p;
    char *text = malloc(CORES_LIST_BYTES_MAX + 2);
    assert_non_null(text);
    memset(text, ' ', CORES_LIST_BYTES_MAX + 1);
    memcpy(text, "4,6", 3);
    text[CORES_LIST_BYTES_MAX + 1] = 0;
    put_siblings(t, 6, text);
    cores_where(t->dir, 6, &p);
    assert_int_equal(p.core, 6);
    free(text);
}

static void different_cores_come_first(void **state) {
    struct tree *t = *state;
    int nodes, all[] = {0, 1, 2, 3, 4, 5}, want[] = {0, 1, 4, 5, 2, 3};
    assert_int_equal(cores_order(t->dir, all, 6, &nodes), 4);
    assert_int_equal(nodes, 2);
    assert_memory_equal(all, want, sizeof(all));
    int far[] = {0, 7, 6, 5}, far_want[] = {7, 6, 0, 5}; /* node 1 has more of them */
    assert_int_equal(cores_order(t->dir, far, 4, &nodes), 3);
    assert_memory_equal(far, far_want, sizeof(far));
    int one[] = {3, 2, 1}, one_want[] = {3, 2, 1}; /* on one node the order stays */
    assert_int_equal(cores_order(t->dir, one, 3, &nodes), 2);
    assert_int_equal(nodes, 1);
    assert_memory_equal(one, one_want, sizeof(one));
    int none[1];
    assert_int_equal(cores_order(t->dir, none, 0, &nodes), 0);
    int bare[] = {5, 0}; /* no system to ask: as they are */
    assert_int_equal(cores_order("/nowhere", bare, 2, &nodes), 2);
    assert_true(bare[0] == 5 && bare[1] == 0);
}

static void the_others_stay_off(void **state) {
    cpu_set_t before, after;
    int first = -1, n = 0, all[CPU_SETSIZE];
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before)) all[n++] = cpu;
    first = all[0];
    assert_false(cores_leave("/sys", all, n)); /* nothing would be left */
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_false(cores_leave("/sys", all, 0));
    if (n < 2) skip();
    assert_true(cores_leave("/sys", &first, 1));
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_false(CPU_ISSET(first, &after));
    assert_true(CPU_COUNT(&after) > 0);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

/* ---- what the buffers are made of */

static void huge_pages_are_counted(void **state) {
    static const char text[] = "Rss: 10 kB\nAnonHugePages:     2048 kB\nShmemPmdMapped:  0 kB\n"
                               "FilePmdMapped: 4096 kB\nPrivate_Hugetlb: 6144 kB\nAnonHugePages:";
    struct mem m;
    (void)state;
    assert_int_equal(mem_huge_of_text(text, strlen(text)), 12288 * 1024);
    assert_int_equal(mem_huge_of_text("", 0), 0);
    assert_int_equal(mem_huge_of_text("AnonHugePages: 1 kB", 15), 0);
    static const enum mem_pages kinds[] = {MEM_TRANSPARENT, MEM_HUGETLB, MEM_SMALL};
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = 3 * (size_t)MEM_HUGE_BYTES + 5;
        assert_true(mem_open(&m, bytes, kinds[i], true));
        if (kinds[i] != MEM_SMALL) assert_int_equal((uintptr_t)m.p % MEM_HUGE_BYTES, 0);
        for (size_t k = 0; k < bytes; k += 997) assert_int_equal(m.p[k], 0);
        m.p[bytes - 1] = 1;
        mem_close(&m);
        mem_close(&m);
    }
    assert_false(mem_open(&m, PTRDIFF_MAX, MEM_TRANSPARENT, false));
    assert_false(mem_open(&m, (size_t)1 << 62, MEM_HUGETLB, false));
    mem_close(&m);
}

#define TREE(f) cmocka_unit_test_setup_teardown(f, tree_open, tree_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        TREE(a_system_is_read),
        TREE(an_endless_file_is_left),
        TREE(different_cores_come_first),
        cmocka_unit_test(the_others_stay_off),
        cmocka_unit_test(huge_pages_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
