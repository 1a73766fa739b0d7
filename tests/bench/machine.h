/* machine: what this machine can do, for the benchmarks that name a ceiling: register-only peaks of
 * the instructions our kernels are made of, read bandwidth, and reading beside such products. All
 * are taken as the best of short pieces, since neighbours on the machine only ever add.
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
#include "common/engine/kernels_cpu.h"
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

/* ---- register peaks: accumulators enough to hide the latency, no memory */
enum bench_peak {
    PEAK_F32_AVX2,
    PEAK_F32_AVX512,
    PEAK_BF16,
    PEAK_INT8,
    PEAK_AMX_BF16,
    PEAK_INT16_AVX2, /* products in pairs, summed in 32 bits: int8 weights without VNNI */
    PEAK_INT8_AVX2,  /* the same in 16 bits: int4 weights */
    PEAKS
};
enum { PEAK_LOOPS = 200000 };

static inline const char *bench_peak_name(enum bench_peak p) {
    static const char *const names[] = {"f32_fma_avx2",   "f32_fma_avx512", "bf16_dot",
                                        "int8_dot",       "bf16_tiles",     "int16_pairs_avx2",
                                        "int8_pairs_avx2"};
    return names[p];
}

#if defined(__x86_64__)
#include <immintrin.h>

static inline bool bench_peak_here(enum bench_peak p) {
    __builtin_cpu_init();
    switch (p) {
    case PEAK_F32_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case PEAK_F32_AVX512: return __builtin_cpu_supports("avx512f");
    case PEAK_BF16: return __builtin_cpu_supports("avx512bf16");
    case PEAK_INT8: return __builtin_cpu_supports("avx512vnni");
    case PEAK_AMX_BF16: return cpu_has_amx();
    case PEAK_INT16_AVX2:
    case PEAK_INT8_AVX2: return __builtin_cpu_supports("avx2");
    case PEAKS: break;
    }
    return false;
}

/* Written out, so that nothing is folded or left out. */
/* clang-format off */
#define BENCH_Y                                                                                    \
    "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10",       \
        "ymm11", "ymm12", "ymm13"
#define BENCH_Z                                                                                    \
    "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",       \
        "zmm11", "zmm12", "zmm13", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21"
#define BENCH_I(OP, R, A, B, D) OP " %%" R A ", %%" R B ", %%" R D "\n\t"
#define BENCH_12(OP, R)                                                                            \
    BENCH_I(OP, R, "12", "13", "0")                                                                \
    BENCH_I(OP, R, "12", "13", "1")                                                                \
    BENCH_I(OP, R, "12", "13", "2") BENCH_I(OP, R, "12", "13", "3")                                \
        BENCH_I(OP, R, "12", "13", "4") BENCH_I(OP, R, "12", "13", "5")                            \
            BENCH_I(OP, R, "12", "13", "6") BENCH_I(OP, R, "12", "13", "7")                        \
                BENCH_I(OP, R, "12", "13", "8") BENCH_I(OP, R, "12", "13", "9")                    \
                    BENCH_I(OP, R, "12", "13", "10") BENCH_I(OP, R, "12", "13", "11")
#define BENCH_18(OP, R)                                                                            \
    BENCH_12(OP, R)                                                                                \
    BENCH_I(OP, R, "12", "13", "16")                                                               \
    BENCH_I(OP, R, "12", "13", "17")                                                               \
    BENCH_I(OP, R, "12", "13", "18") BENCH_I(OP, R, "12", "13", "19")                              \
        BENCH_I(OP, R, "12", "13", "20") BENCH_I(OP, R, "12", "13", "21")
#define BENCH_ZERO                                                                                 \
    "vxorps %%ymm12, %%ymm12, %%ymm12\n\tvxorps %%ymm13, %%ymm13, %%ymm13\n\tmov %0, "             \
    "%%ecx\n\t1:\n\t"
#define BENCH_AGAIN "dec %%ecx\n\tjnz 1b"
__attribute__((target("avx2,fma"))) static inline void bench_loop_avx2(void) {
    __asm__ volatile(BENCH_ZERO BENCH_12("vfmadd231ps", "ymm") BENCH_AGAIN
                     :: "i"(PEAK_LOOPS) : "ecx", "cc", BENCH_Y);
}
__attribute__((target("avx512f"))) static inline void bench_loop_avx512(void) {
    __asm__ volatile(BENCH_ZERO BENCH_18("vfmadd231ps", "zmm")
                     BENCH_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", BENCH_Z);
}
__attribute__((target("avx512f,avx512bf16"))) static inline void bench_loop_bf16(void) {
    __asm__ volatile(BENCH_ZERO BENCH_18("vdpbf16ps", "zmm")
                     BENCH_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", BENCH_Z);
}
__attribute__((target("avx512f,avx512vnni"))) static inline void bench_loop_int8(void) {
    __asm__ volatile(BENCH_ZERO BENCH_18("vpdpbusd", "zmm")
                     BENCH_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", BENCH_Z);
}
/* A product and its sum; the products' own latency is hidden behind eleven others. */
#define BENCH_MADD(OP, ADD, D)                                                                     \
    OP " %%ymm12, %%ymm13, %%ymm14\n\t" ADD " %%ymm14, %%ymm" D ", %%ymm" D "\n\t"
#define BENCH_MADD_12(OP, ADD)                                                                     \
    BENCH_MADD(OP, ADD, "0") BENCH_MADD(OP, ADD, "1") BENCH_MADD(OP, ADD, "2")                     \
    BENCH_MADD(OP, ADD, "3") BENCH_MADD(OP, ADD, "4") BENCH_MADD(OP, ADD, "5")                     \
    BENCH_MADD(OP, ADD, "6") BENCH_MADD(OP, ADD, "7") BENCH_MADD(OP, ADD, "8")                     \
    BENCH_MADD(OP, ADD, "9") BENCH_MADD(OP, ADD, "10") BENCH_MADD(OP, ADD, "11")
__attribute__((target("avx2"))) static inline void bench_loop_int16_pairs(void) {
    __asm__ volatile(BENCH_ZERO BENCH_MADD_12("vpmaddwd", "vpaddd")
                     BENCH_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", BENCH_Y, "ymm14");
}
__attribute__((target("avx2"))) static inline void bench_loop_int8_pairs(void) {
    __asm__ volatile(BENCH_ZERO BENCH_MADD_12("vpmaddubsw", "vpaddw")
                     BENCH_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", BENCH_Y, "ymm14");
}
/* Four accumulators of 16 rows of 64 bytes; tiles 4 and 5 are the factors. */
__attribute__((target("amx-tile,amx-bf16"))) static inline void bench_loop_amx(void) {
    uint8_t config[64] = {1};
    for (int t = 0; t < 6; t++) config[16 + 2 * t] = 64, config[48 + t] = 16;
    __asm__ volatile("ldtilecfg (%0)\n\t"
                     "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\t"
                     "tilezero %%tmm3\n\ttilezero %%tmm4\n\ttilezero %%tmm5\n\t"
                     "mov %1, %%ecx\n\t1:\n\t"
                     "tdpbf16ps %%tmm5, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm1\n\t"
                     "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm3\n\t"
                     BENCH_AGAIN "\n\ttilerelease"
                     :: "r"(config), "i"(PEAK_LOOPS) : "ecx", "cc", "memory");
}
/* clang-format on */

static inline void bench_peak_item(void *arg, int item, int thread) {
    (void)item;
    (void)thread;
    switch (*(const enum bench_peak *)arg) {
    case PEAK_F32_AVX2: bench_loop_avx2(); break;
    case PEAK_F32_AVX512: bench_loop_avx512(); break;
    case PEAK_BF16: bench_loop_bf16(); break;
    case PEAK_INT8: bench_loop_int8(); break;
    case PEAK_AMX_BF16: bench_loop_amx(); break;
    case PEAK_INT16_AVX2: bench_loop_int16_pairs(); break;
    case PEAK_INT8_AVX2: bench_loop_int8_pairs(); break;
    case PEAKS: break;
    }
}

/* Operations of one loop: a multiply and an add count as two. */
static inline double bench_peak_ops(enum bench_peak p) {
    static const double per_step[] = {12 * 8 * 2,           18 * 16 * 2, 18 * 32 * 2, 18 * 64 * 2,
                                      4 * 16 * 16 * 32 * 2, 12 * 16 * 2, 12 * 32 * 2};
    return per_step[p] * PEAK_LOOPS;
}
#else
static inline bool bench_peak_here(enum bench_peak p) {
    (void)p;
    return false;
}
static inline void bench_peak_item(void *arg, int item, int thread) {
    (void)arg;
    (void)item;
    (void)thread;
}
static inline double bench_peak_ops(enum bench_peak p) {
    (void)p;
    return 0;
}
#endif

/* The pool's threads together, operations a second; best piece within `seconds`. */
static inline double bench_peak_rate(struct pool *pool, enum bench_peak p, double seconds) {
    double best = 0, end = bench_now() + seconds;
    int threads = pool_threads(pool);
    do {
        double t = bench_now();
        pool_run(pool, bench_peak_item, &p, threads);
        double rate = bench_peak_ops(p) * threads / (bench_now() - t);
        if (rate > best) best = rate;
    } while (bench_now() < end);
    return best;
}

/* What a product over such weights can reach here, with the best instruction we have a kernel for;
 * PEAKS: no loop above measures it. */
static inline enum bench_peak bench_peak_of(enum dtype w) {
    const enum bench_peak f32 = bench_peak_here(PEAK_F32_AVX512) ? PEAK_F32_AVX512 : PEAK_F32_AVX2;
    if (w == DTYPE_F32) return f32;
    if (w == DTYPE_BF16)
        return bench_peak_here(PEAK_AMX_BF16) ? PEAK_AMX_BF16
               : bench_peak_here(PEAK_BF16)   ? PEAK_BF16
                                              : f32;
    if (bench_peak_here(PEAK_INT8)) return PEAK_INT8;
    if (f32 == PEAK_F32_AVX512) return PEAKS;
    return w == DTYPE_INT8 ? PEAK_INT16_AVX2 : PEAK_INT8_AVX2;
}

/* ---- read bandwidth */
enum { PROBE_BYTES = 512 << 20, PROBE_PART_BYTES = 1 << 20 };

typedef uint64_t bench_wide __attribute__((vector_size(16), may_alias));

/* How many streams a processor reads fastest, and whether it must be told ahead, differs: the best
 * of these is the ceiling. */
static const struct bench_pattern {
    int streams, ahead_bytes;
} bench_patterns[] = {{1, 4096}, {1, 8192}, {4, 0}, {4, 1024}};
enum { BENCH_PATTERNS = sizeof(bench_patterns) / sizeof(bench_patterns[0]) };

struct bench_probe {
    const uint8_t *data;
    size_t parts; /* of PROBE_PART_BYTES, of each thread, one behind the other */
    struct bench_pattern pattern;
    uint64_t sums[1024];
};

static inline bench_wide bench_read_line(const uint8_t *at, int ahead_bytes) {
    const bench_wide *d = (const bench_wide *)(const void *)at;
    if (ahead_bytes > 0) __builtin_prefetch(at + ahead_bytes);
    return d[0] + d[1] + (d[2] + d[3]);
}

static inline void bench_probe_item(void *arg, int item, int thread) {
    struct bench_probe *p = arg;
    const size_t all = PROBE_BYTES / PROBE_PART_BYTES, q = PROBE_PART_BYTES / 4;
    const int ahead = p->pattern.ahead_bytes;
    bench_wide a[4] = {{0}};
    for (size_t part = 0; part < p->parts; part++) {
        const uint8_t *d =
            p->data + ((size_t)item * p->parts + part) % all * (size_t)PROBE_PART_BYTES;
        if (p->pattern.streams == 1) {
            for (size_t i = 0; i < PROBE_PART_BYTES; i += 256)
                for (size_t j = 0; j < 4; j++) a[j] += bench_read_line(d + i + 64 * j, ahead);
        } else {
            for (size_t i = 0; i < q; i += 64)
                for (size_t j = 0; j < 4; j++) a[j] += bench_read_line(d + j * q + i, ahead);
        }
    }
    a[0] += a[1] + a[2] + a[3];
    p->sums[thread] += a[0][0] + a[0][1];
}

static inline double bench_sweep(struct pool *pool, struct bench_probe *p, double bytes) {
    const int threads = pool_threads(pool);
    p->parts = (size_t)(bytes / threads / PROBE_PART_BYTES) + 1;
    double t = bench_now();
    pool_run(pool, bench_probe_item, p, threads);
    return (double)threads * (double)p->parts * PROBE_PART_BYTES / (bench_now() - t);
}

/* The best of `times` sweeps over so many bytes, bytes/s: as many as what is compared reads, so
 * that what disturbs the one for a moment disturbs the other as much. They go round a memory of
 * PROBE_BYTES, which no cache holds. Each pattern is tried, then the best of them is swept. */
static inline double bench_read_rate(struct pool *pool, const uint8_t *data, double bytes,
                                     int times) {
    struct bench_probe p = {.data = data};
    double best = 0;
    int chosen = 0;
    for (int i = 0; i < BENCH_PATTERNS + times; i++) {
        p.pattern = bench_patterns[i < BENCH_PATTERNS ? i : chosen];
        double rate = bench_sweep(pool, &p, bytes);
        if (rate <= best) continue;
        best = rate;
        if (i < BENCH_PATTERNS) chosen = i;
    }
    return best;
}

/* ---- reading weights while products are computed: all that a step of several rows can reach. Both
 * at their own rates at once is more than this. The products are those of peak p, two of them a row
 * for every 32 bytes read; none waits for what is read. */
struct bench_busy {
    const uint8_t *data;
    enum bench_peak p;
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
    __asm__ volatile("vzeroall" ::: BENCH_Y, "ymm14");
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
                    __asm__ volatile(BENCH_MADD_12("vpmaddwd", "vpaddd")::: BENCH_Y, "ymm14");
                else if (b->p == PEAK_INT8_AVX2)
                    __asm__ volatile(BENCH_MADD_12("vpmaddubsw", "vpaddw")::: BENCH_Y, "ymm14");
                else
                    __asm__ volatile(BENCH_12("vfmadd231ps", "ymm")::: BENCH_Y);
            }
        }
    }
}

/* Bytes/s; data: PROBE_BYTES. 0: there is no loop for such products. */
static inline double bench_busy_rate(struct pool *pool, const uint8_t *data, enum bench_peak p,
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
static inline double bench_busy_rate(struct pool *pool, const uint8_t *data, enum bench_peak p,
                                     int rows) {
    (void)pool;
    (void)data;
    (void)p;
    (void)rows;
    return 0;
}
#endif

#endif
