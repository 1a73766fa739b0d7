/* build: facts of the compiler's macros, and /proc/self. */
#include "common/base/build.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/proc_stat.h"

/* The daemons bring it (tests/build.mk writes it at each build); tests do without. */
extern const char baton_commit[] __attribute__((weak));

const char *build_commit(void) {
    return baton_commit != NULL && baton_commit[0] != 0 ? baton_commit : "unknown";
}

const char *build_compiler(void) {
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

const char *build_isa(void) {
    return
#if defined(__x86_64__)
        "x86-64"
#elif defined(__aarch64__)
        "aarch64"
#else
        "other"
#endif
#ifdef __SSE2__
        " sse2"
#endif
#ifdef __AVX2__
        " avx2"
#endif
#ifdef __AVX512F__
        " avx512f"
#endif
        ;
}

void build_print(FILE *to, const char *name, const char *kernels) {
    fprintf(to, "%s (Baton) %s\ncommit: %s\ncompiler: %s\ninstruction sets: %s\n", name,
            BATON_VERSION, build_commit(), build_compiler(), build_isa());
    if (kernels != NULL) fprintf(to, "kernels: %s\n", kernels);
}

/* ---- series */

enum { RSS, VIRTUAL, CPU, FDS, FDS_MAX, START, THREADS, DROPPED, INFO, N_SERIES };

static const struct metric_def defs[N_SERIES] = {
    {"process_resident_memory_bytes",
     "Resident memory size in bytes.",
     METRIC_GAUGE,
     {NULL},
     NULL,
     0},
    {"process_virtual_memory_bytes",
     "Virtual memory size in bytes.",
     METRIC_GAUGE,
     {NULL},
     NULL,
     0},
    {"process_cpu_seconds_total",
     "Total user and system CPU time spent in seconds.",
     METRIC_COUNTER,
     {NULL},
     NULL,
     0},
    {"process_open_fds", "Number of open file descriptors.", METRIC_GAUGE, {NULL}, NULL, 0},
    {"process_max_fds", "Maximum number of open file descriptors.", METRIC_GAUGE, {NULL}, NULL, 0},
    {"process_start_time_seconds",
     "Start time of the process since unix epoch in seconds.",
     METRIC_GAUGE,
     {NULL},
     NULL,
     0},
    {"process_threads", "Number of OS threads in the process.", METRIC_GAUGE, {NULL}, NULL, 0},
    {"baton_log_dropped_total",
     "Lines of the log that found no room, as nobody took them.",
     METRIC_COUNTER,
     {NULL},
     NULL,
     0},
    {"baton_build_info",
     "What the program was built from; the value is 1.",
     METRIC_GAUGE,
     {"version", "commit"},
     NULL,
     0},
};

struct build_metrics {
    struct metric *series[N_SERIES];
    double boot_s; /* of the machine, since the epoch; 0: not known */
};

static double boot_time_s(void) {
    char line[256];
    double t = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (f == NULL) return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "btime %lf", &t) == 1) break;
    fclose(f);
    return t;
}

enum err build_metrics_create(struct build_metrics **out, struct metrics *m) {
    static const char *const labels[] = {BATON_VERSION, NULL, NULL};
    struct build_metrics *bm = *out = calloc(1, sizeof(*bm));
    if (bm == NULL) return ERR_NO_MEMORY;
    bm->boot_s = boot_time_s();
    for (int i = 0; i < N_SERIES; i++) {
        struct metric_family *f = metrics_family(m, &defs[i]);
        const char *const values[] = {labels[0], build_commit(), NULL};
        bm->series[i] = f == NULL ? NULL : metric_of(f, i == INFO ? values : NULL);
        if (bm->series[i] == NULL) {
            build_metrics_destroy(out);
            return ERR_NO_MEMORY;
        }
    }
    metric_set(bm->series[INFO], 1);
    return ERR_OK;
}

static void count_to(struct metric *counter, double to) {
    metric_add(counter, to - metric_value(counter));
}

static void read_process(struct build_metrics *bm) {
    struct proc_stat p;
    proc_stat_read(&p);
    if (p.threads > 0) {
        count_to(bm->series[CPU], p.cpu_s);
        metric_set(bm->series[THREADS], (double)p.threads);
        if (bm->boot_s > 0) metric_set(bm->series[START], bm->boot_s + p.start_s);
        metric_set(bm->series[VIRTUAL], (double)p.virtual_bytes);
        metric_set(bm->series[RSS], (double)p.resident_bytes);
    }
    if (p.fds_open > 0) metric_set(bm->series[FDS], p.fds_open);
    if (p.fds_max > 0) metric_set(bm->series[FDS_MAX], (double)p.fds_max);
}

void build_metrics_read(struct build_metrics *bm) {
    if (bm == NULL) return;
    read_process(bm);
    count_to(bm->series[DROPPED], (double)log_dropped());
}

void build_metrics_destroy(struct build_metrics **bm) {
    free(*bm);
    *bm = NULL;
}
