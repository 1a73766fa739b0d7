/* machine: what this machine can do, for the benchmarks that name a ceiling: as the engine measures
 * it (common/engine/machine.h), and reading beside products.
 *
 * Time is wall clock; with BENCH_CPU_TIME set it is the calling thread's processor time, which says
 * something of one thread on a machine that others use. */
#ifndef BATON_TESTS_BENCH_MACHINE_H
#define BATON_TESTS_BENCH_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "common/engine/engine.h"
#include "common/engine/machine.h"
#include "common/engine/machine_loops.h"
#include "common/engine/pool.h"

static inline double bench_now(void) {
    struct timespec t;
    clock_gettime(getenv("BENCH_CPU_TIME") != NULL ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Wall clock whatever the environment says: what a user waits. */
static inline double bench_wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void *bench_memory(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static inline int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v. */
static inline double bench_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof(*v), bench_compare);
    return n % 2 != 0 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- as common/engine/machine.h has them, by the clock of above */
enum { PROBE_BYTES = MACHINE_DATA_BYTES, PROBE_PART_BYTES = 1 << 20 };

static inline double bench_peak_rate(struct pool *pool, enum machine_peak p, double seconds) {
    return machine_peak_rate(pool, p, seconds, bench_now);
}

static inline double bench_read_rate(struct pool *pool, const uint8_t *data, double bytes,
                                     int times) {
    return machine_read_rate(pool, data, PROBE_BYTES, bytes, times, bench_now);
}

/* ---- reading weights while products are computed: all that a step of several rows can reach. Both
 * at their own rates at once is more than this. The products are those of peak p, two of them a row
 * for every 32 bytes read; none waits for what is read. */
struct bench_busy {
    const uint8_t *data;
    enum machine_peak p;
    int rows;
    bool once; /* fetched 2 KiB ahead past the caches, else 4 KiB ahead into them; the better
                  counts */
};

#if defined(__x86_64__)
enum { BUSY_BYTES = 192, BUSY_PARTS = 256 }; /* six loads, beside twelve products a row */

__attribute__((target("avx2,fma"))) static inline void bench_busy_item(void *arg, int item,
                                                                       int thread) {
    const struct bench_busy *b = arg;
    const size_t q = PROBE_PART_BYTES / 4;
    const uint8_t *part = b->data + (size_t)item * PROBE_PART_BYTES;
    (void)thread;
    __asm__ volatile("vzeroall" ::: MACHINE_Y, "ymm14");
    for (size_t i = 0; i + BUSY_BYTES <= q; i += BUSY_BYTES) {
        for (const uint8_t *at = part + i; at < part + PROBE_PART_BYTES; at += q) {
            for (int l = 0; l < BUSY_BYTES; l += 64) {
                if (b->once)
                    __builtin_prefetch(at + 2048 / 4 + l, 0, 0);
                else
                    __builtin_prefetch(at + 4096 / 4 + l);
                __asm__ volatile("vmovups (%0), %%ymm14\n\tvmovups 32(%0), %%ymm14" ::"r"(at + l)
                                 : "ymm14");
            }
            for (int r = 0; r < b->rows; r++) {
                if (b->p == PEAK_INT16_AVX2)
                    __asm__ volatile(MACHINE_MADD_12("vpmaddwd", "vpaddd")::: MACHINE_Y, "ymm14");
                else if (b->p == PEAK_INT8_AVX2)
                    __asm__ volatile(MACHINE_MADD_12("vpmaddubsw", "vpaddw")::: MACHINE_Y, "ymm14");
                else
                    __asm__ volatile(MACHINE_12("vfmadd231ps", "ymm")::: MACHINE_Y);
            }
        }
    }
}

/* Bytes/s; data: PROBE_BYTES. 0: there is no loop for such products. */
static inline double bench_busy_rate(struct pool *pool, const uint8_t *data, enum machine_peak p,
                                     int rows) {
    double best = 0;
    if (p != PEAK_F32_AVX2 && p != PEAK_INT16_AVX2 && p != PEAK_INT8_AVX2) return 0;
    for (int i = 0; i < 6; i++) {
        struct bench_busy b = {.data = data + (size_t)(i / 2 % 2) * BUSY_PARTS * PROBE_PART_BYTES,
                               .p = p,
                               .rows = rows,
                               .once = i % 2 != 0};
        double t = bench_now();
        pool_run(pool, bench_busy_item, &b, BUSY_PARTS);
        double rate = (double)BUSY_PARTS * PROBE_PART_BYTES / (bench_now() - t);
        if (rate > best) best = rate;
    }
    return best;
}
#else
static inline double bench_busy_rate(struct pool *pool, const uint8_t *data, enum machine_peak p,
                                     int rows) {
    (void)pool;
    (void)data;
    (void)p;
    (void)rows;
    return 0;
}
#endif

#endif
