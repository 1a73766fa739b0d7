/* cores: lists of cpus, the folder /sys/devices/system, and an order. */
#include "common/engine/cores.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, NODES_MAX = 1024 };

static bool blank(char c) {
    return c == ' ' || c == '\n' || c == '\t';
}

/* A number below CORES_CPUS_MAX. */
static bool number(const char **p, const char *end, int *v) {
    if (*p == end || **p < '0' || **p > '9') return false;
    for (*v = 0; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        *v = *v * 10 + (**p - '0');
        if (*v >= CORES_CPUS_MAX) return false;
    }
    return true;
}

static bool add(int *out, int max, int *n, int cpu) {
    for (int i = 0; i < *n; i++)
        if (out[i] == cpu) return false;
    if (*n == max) return false;
    out[(*n)++] = cpu;
    return true;
}

bool cores_list(int *out, int max, int *n, const char *text, size_t len) {
    const char *p = text, *end = text + len;
    *n = 0;
    if (len > CORES_LIST_BYTES_MAX) return false;
    while (p < end && blank(*p)) p++;
    while (p < end && blank(end[-1])) end--;
    if (p == end) return true;
    for (;;) {
        int first, last;
        if (!number(&p, end, &first)) return false;
        last = first;
        if (p < end && *p == '-') {
            p++;
            if (!number(&p, end, &last) || last < first) return false;
        }
        for (int cpu = first; cpu <= last; cpu++)
            if (!add(out, max, n, cpu)) return false;
        if (p == end) return true;
        if (*p++ != ',') return false;
    }
}

/* ---- the system */

/* The list in a file; *n 0: none, or none to be understood. */
static void read_list(const char *path, int *out, int max, int *n) {
    char text[CORES_LIST_BYTES_MAX];
    size_t len = 0;
    ssize_t got = 0;
    *n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    while (len < sizeof(text) && (got = read(fd, text + len, sizeof(text) - len)) > 0)
        len += (size_t)got;
    close(fd);
    if (got < 0 || len == sizeof(text) || !cores_list(out, max, n, text, len)) *n = 0;
}

static bool holds(const int *cpus, int n, int cpu) {
    for (int i = 0; i < n; i++)
        if (cpus[i] == cpu) return true;
    return false;
}

/* Of a node that is online: as many as fit into out; what cannot be read is none. */
static int read_nodes(const char *sys, const char *name, int out[NODES_MAX]) {
    char path[PATH_BYTES];
    int n;
    snprintf(path, sizeof(path), "%s/devices/system/node/%s", sys, name);
    read_list(path, out, NODES_MAX, &n);
    return n;
}

void cores_where(const char *sys, int cpu, struct core_place *out) {
    char path[PATH_BYTES];
    int list[CORES_CPUS_MAX], nodes[NODES_MAX], n = 0;
    *out = (struct core_place){.core = cpu, .node = 0, .memory = true};
    snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", sys,
             cpu);
    read_list(path, list, CORES_CPUS_MAX, &n);
    for (int i = 0; holds(list, n, cpu) && i < n; i++)
        if (list[i] < out->core) out->core = list[i];
    const int n_nodes = read_nodes(sys, "online", nodes);
    for (int i = 0; i < n_nodes; i++) {
        snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", sys, nodes[i]);
        read_list(path, list, CORES_CPUS_MAX, &n);
        if (!holds(list, n, cpu)) continue;
        out->node = nodes[i];
        n = read_nodes(sys, "has_memory", nodes);
        out->memory = n == 0 || holds(nodes, n, out->node);
        return;
    }
}

/* ---- order */

struct ranked {
    int cpu, at;      /* place in the list */
    int round;        /* how many of the same core stand before it */
    int node, weight; /* cores of the list on its node */
    bool memory;
};

static int by_rank(const void *x, const void *y) {
    const struct ranked *a = x, *b = y;
    if (a->round != b->round) return a->round - b->round;
    if (a->memory != b->memory) return a->memory ? -1 : 1;
    if (a->weight != b->weight) return b->weight - a->weight;
    if (a->node != b->node) return a->node - b->node;
    return a->at - b->at;
}

int cores_order(const char *sys, int *cpus, int n, int *n_nodes) {
    struct core_place *where = calloc((size_t)n + 1, sizeof(*where));
    struct ranked *r = calloc((size_t)n + 1, sizeof(*r));
    int n_cores = 0;
    *n_nodes = 0;
    if (where == NULL || r == NULL) {
        free(where);
        free(r);
        return n; /* as they are */
    }
    for (int i = 0; i < n; i++) {
        bool first_of_node = true;
        cores_where(sys, cpus[i], &where[i]);
        r[i] = (struct ranked){
            .cpu = cpus[i], .at = i, .node = where[i].node, .memory = where[i].memory};
        for (int k = 0; k < i; k++) {
            r[i].round += where[k].core == where[i].core;
            if (where[k].node == where[i].node) first_of_node = false;
        }
        n_cores += r[i].round == 0;
        *n_nodes += first_of_node;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) r[i].weight += r[k].round == 0 && r[k].node == r[i].node;
    qsort(r, (size_t)n, sizeof(*r), by_rank);
    for (int i = 0; i < n; i++) cpus[i] = r[i].cpu;
    free(where);
    free(r);
    return n_cores;
}

int cores_allowed(int out[CORES_CPUS_MAX]) {
    cpu_set_t may;
    int n = 0;
    if (sched_getaffinity(0, sizeof(may), &may) != 0) return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may)) out[n++] = cpu;
    return n;
}

int cores_keep(const int *may, int n_may, int *cpus, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (holds(may, n_may, cpus[i])) cpus[kept++] = cpus[i];
    return kept;
}

int cores_others(const char *sys, const int *may, int n_may, const int *cpus, int n, int *out) {
    struct core_place mine, its;
    int n_out = 0;
    bool near = false; /* some are on the node of the first */
    if (n == 0) return 0;
    cores_where(sys, cpus[0], &mine);
    for (int i = 0; i < n_may; i++) {
        if (holds(cpus, n, may[i])) continue;
        cores_where(sys, may[i], &its);
        if (its.node == mine.node && !near) n_out = 0;
        near = near || its.node == mine.node;
        if (its.node == mine.node || !near) out[n_out++] = may[i];
    }
    return n_out;
}

/* Every thread there is: a library may have started some before main(). */
static bool move_all(const cpu_set_t *to) {
    bool good = sched_setaffinity(0, sizeof(*to), to) == 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; good && d != NULL && (e = readdir(d)) != NULL;) {
        long id = strtol(e->d_name, NULL, 10);
        if (id > 0) (void)sched_setaffinity((pid_t)id, sizeof(*to), to);
    }
    if (d != NULL) closedir(d);
    return good;
}

bool cores_leave(const char *sys, const int *cpus, int n) {
    int may[CORES_CPUS_MAX], others[CORES_CPUS_MAX];
    const int n_may = cores_allowed(may), n_others = cores_others(sys, may, n_may, cpus, n, others);
    cpu_set_t to;
    CPU_ZERO(&to);
    for (int i = 0; i < n_others; i++) CPU_SET(others[i], &to);
    return n_others > 0 && move_all(&to);
}

void cores_yield_always(void) {
    const struct sched_param none = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}
