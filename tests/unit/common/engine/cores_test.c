/* Goal: compute threads go to different cores of one node first, whatever a system says of itself,
 * and the other threads stay off them. Method: lists of cpus right and wrong, both sides of each
 * bound; a folder like /sys with two nodes and two hardware threads a core, then with files
 * missing, empty, endless or contradicting; systems of four nodes, of uneven ones, with nodes that
 * have no memory or no cpus, with cpus offline and with cpusets that cut nodes; then this process
 * on the cores it really has. */
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

static void put_node(const struct tree *t, int node, const char *cpus) {
    char path[128];
    snprintf(path, sizeof(path), "devices/system/node/node%d/cpulist", node);
    put(t, path, cpus);
}

static int bare_tree_open(void **state) {
    struct tree *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    snprintf(t->dir, sizeof(t->dir), "/tmp/baton-sys-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    *state = t;
    return 0;
}

static int tree_open(void **state) {
    static const char *const siblings[] = {"0,2\n", "1,3\n", "4,6\n", "5,7\n"};
    (void)bare_tree_open(state);
    const struct tree *t = *state;
    put(t, "devices/system/node/online", "0-1\n");
    put_node(t, 0, "0-3\n");
    put_node(t, 1, "4-7\n");
    for (int cpu = 0; cpu < 8; cpu++) put_siblings(t, cpu, siblings[cpu / 4 * 2 + cpu % 2]);
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

/* ---- systems of more nodes, and odd ones */

/* `cpus` in their best order are `want`, on so many cores of so many nodes. */
static void check_order(const struct tree *t, const char *cpus, const char *want, int cores,
                        int nodes) {
    int list[64], wanted[64], n, n_wanted, n_nodes;
    assert_true(cores_list(list, 64, &n, cpus, strlen(cpus)));
    assert_true(cores_list(wanted, 64, &n_wanted, want, strlen(want)));
    assert_int_equal(n, n_wanted);
    assert_int_equal(cores_order(t->dir, list, n, &n_nodes), cores);
    assert_int_equal(n_nodes, nodes);
    for (int i = 0; i < n; i++)
        if (list[i] != wanted[i])
            fail_msg("%s: place %d is cpu %d, not %d", cpus, i, list[i], wanted[i]);
}

static int list_of(const char *text, int out[64]) {
    int n;
    assert_true(cores_list(out, 64, &n, text, strlen(text)));
    return n;
}

static void check_keep(const char *may, const char *cpus, const char *want) {
    int list[64], wanted[64], allowed[64];
    const int n_allowed = list_of(may, allowed), n = list_of(cpus, list),
              n_wanted = list_of(want, wanted);
    assert_int_equal(cores_keep(allowed, n_allowed, list, n), n_wanted);
    assert_memory_equal(list, wanted, (size_t)n_wanted * sizeof(*list));
}

/* Whoever may use `may` and computes on `cpus` has these for its other threads. */
static void check_others(const struct tree *t, const char *may, const char *cpus,
                         const char *want) {
    int list[64], wanted[64], allowed[64], out[64];
    const int n_allowed = list_of(may, allowed), n = list_of(cpus, list),
              n_wanted = list_of(want, wanted);
    assert_int_equal(cores_others(t->dir, allowed, n_allowed, list, n, out), n_wanted);
    assert_memory_equal(out, wanted, (size_t)n_wanted * sizeof(*out));
}

/* Four nodes of four cores, two hardware threads each: the second of cpu i is i + 16. */
static void four_nodes(void **state) {
    static const char *const lists[] = {"0-3,16-19\n", "4-7,20-23\n", "8-11,24-27\n",
                                        "12-15,28-31\n"};
    struct tree *t = *state;
    put(t, "devices/system/node/online", "0-3\n");
    put(t, "devices/system/node/has_memory", "0-3\n");
    for (int node = 0; node < 4; node++) put_node(t, node, lists[node]);
    for (int cpu = 0; cpu < 32; cpu++) {
        char text[32];
        snprintf(text, sizeof(text), "%d,%d\n", cpu % 16, cpu % 16 + 16);
        put_siblings(t, cpu, text);
    }
    check_order(t, "0-31", "0-31", 16, 4);
    check_order(t, "31,30,0-1,29", "31,30,29,0-1", 5, 2);       /* three cores of node 3 */
    check_order(t, "4,20,8-10,24-26", "8-10,4,24-26,20", 4, 2); /* cores, then second threads */
    check_order(t, "12,8,4,0", "0,4,8,12", 4, 4);               /* one of each: by node */
    check_others(t, "0-31", "8-11", "24-27");
    check_others(t, "0-31", "8-11,24-27", "0-7,12-23,28-31"); /* the whole node computes */
    /* a cpuset that cuts two nodes: what is left of them counts */
    check_keep("6-9,22-25", "4-11,20-27", "6-9,22-25");
    check_order(t, "6-9,22-25", "6-9,22-25", 4, 2);
    check_keep("7-9", "4-11", "7-9");
    check_order(t, "7-9", "8-9,7", 3, 2); /* node 2 has more of them */
    check_others(t, "7-9", "8-9", "7");
    check_others(t, "7-9", "8", "9");
    check_others(t, "8-9", "8-9", "");
    check_others(t, "0-31", "", "");
    check_keep("0-3", "8-11", ""); /* nothing of what was asked for */
}

/* Node 0 has four cores, node 1 three with two threads each, node 5 one; there are no others. */
static void uneven_nodes(void **state) {
    struct tree *t = *state;
    put(t, "devices/system/node/online", "0-1,5\n");
    put_node(t, 0, "0-3\n");
    put_node(t, 1, "4-9\n");
    put_node(t, 5, "10\n");
    for (int cpu = 4; cpu < 10; cpu++) {
        char text[32];
        snprintf(text, sizeof(text), "%d-%d\n", cpu / 2 * 2, cpu / 2 * 2 + 1);
        put_siblings(t, cpu, text);
    }
    check_order(t, "0-10", "0-3,4,6,8,10,5,7,9", 8, 3); /* most cores, not most cpus */
    check_order(t, "10,2,5,4,7,3", "2,3,5,7,10,4", 5, 3);
    check_order(t, "10,4,5", "4,10,5", 2, 2);
    check_others(t, "0-10", "10", "0-9");
}

/* Nodes 1 and 3 have no memory, whatever their cores; nodes 2 and 4 have nothing but memory. */
static void nodes_without_memory_or_cpus(void **state) {
    struct tree *t = *state;
    put(t, "devices/system/node/online", "0-4\n");
    put(t, "devices/system/node/has_memory", "0,2,4\n");
    put_node(t, 0, "6-7\n");
    put_node(t, 1, "0-3\n");
    put_node(t, 2, "\n");
    put_node(t, 3, "4-5\n"); /* node 4 does not even say */
    struct core_place p;
    cores_where(t->dir, 1, &p);
    assert_true(p.node == 1 && !p.memory);
    cores_where(t->dir, 6, &p);
    assert_true(p.node == 0 && p.memory);
    check_order(t, "0-7", "6-7,0-5", 8, 3);
    check_order(t, "0-5", "0-5", 6, 2); /* memory is far from all of them */
    check_order(t, "4,5,3", "4-5,3", 3, 2);
    static const char *const unknown[] = {"", "junk\n", "\n"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        put(t, "devices/system/node/has_memory", unknown[i]);
        cores_where(t->dir, 1, &p);
        assert_true(p.memory);
        check_order(t, "0-7", "0-3,6-7,4-5", 8, 3); /* node 0 before node 3, which has as many */
    }
}

/* Cpus 3 and 4 are offline: no node has them, they have no topology, their siblings are alone. */
static void offline_cpus(void **state) {
    struct tree *t = *state;
    struct core_place p;
    char command[640];
    put(t, "devices/system/node/node0/cpulist", "0-2\n");
    put(t, "devices/system/node/node1/cpulist", "5-7\n");
    put_siblings(t, 1, "1\n");
    put_siblings(t, 6, "6\n");
    snprintf(command, sizeof(command),
             "rm -r '%s'/devices/system/cpu/cpu3 '%s'/devices/system/cpu/cpu4", t->dir, t->dir);
    assert_int_equal(system(command), 0);
    cores_where(t->dir, 3, &p);
    assert_true(p.core == 3 && p.node == 0);
    cores_where(t->dir, 1, &p);
    assert_true(p.core == 1 && p.node == 0);
    check_keep("0-2,5-7", "0-7", "0-2,5-7"); /* the kernel lets nobody on the others */
    check_order(t, "0-2,5-7", "0-1,5-6,2,7", 4, 2);
    check_others(t, "0-2,5-7", "5,7", "6");
    check_keep("0-2,5-7", "3,4", "");
    check_keep("0-2,5-7", "1024,4095,7", "7");
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
#define BARE(f) cmocka_unit_test_setup_teardown(f, bare_tree_open, tree_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        TREE(a_system_is_read),
        TREE(an_endless_file_is_left),
        TREE(different_cores_come_first),
        BARE(four_nodes),
        BARE(uneven_nodes),
        BARE(nodes_without_memory_or_cpus),
        TREE(offline_cpus),
        cmocka_unit_test(the_others_stay_off),
        cmocka_unit_test(huge_pages_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
