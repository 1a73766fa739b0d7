/* machine: see machine.h. */
#include "common/engine/machine.h"

#include <string.h>
#include "common/base/clock.h"
#include "common/engine/kernels_cpu.h"
#include "common/engine/machine_loops.h"

enum { PEAK_LOOPS = 200000 };

static double wall_s(void) {
    return (double)clock_us() * 1e-6;
}

/* ---- register peaks: accumulators enough to hide the latency, no memory */
const char *machine_peak_name(enum machine_peak p) {
    static const char *const names[] = {"f32_fma_avx2",   "f32_fma_avx512", "bf16_dot",
                                        "int8_dot",       "bf16_tiles",     "int16_pairs_avx2",
                                        "int8_pairs_avx2"};
    return names[p];
}

#if defined(__x86_64__)
bool machine_peak_here(enum machine_peak p) {
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

/* clang-format off */
__attribute__((target("avx2,fma"))) static void loop_avx2(void) {
    __asm__ volatile(MACHINE_ZERO MACHINE_12("vfmadd231ps", "ymm") MACHINE_AGAIN
                     :: "i"(PEAK_LOOPS) : "ecx", "cc", MACHINE_Y);
}
__attribute__((target("avx512f"))) static void loop_avx512(void) {
    __asm__ volatile(MACHINE_ZERO MACHINE_18("vfmadd231ps", "zmm")
                     MACHINE_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", MACHINE_Z);
}
__attribute__((target("avx512f,avx512bf16"))) static void loop_bf16(void) {
    __asm__ volatile(MACHINE_ZERO MACHINE_18("vdpbf16ps", "zmm")
                     MACHINE_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", MACHINE_Z);
}
__attribute__((target("avx512f,avx512vnni"))) static void loop_int8(void) {
    __asm__ volatile(MACHINE_ZERO MACHINE_18("vpdpbusd", "zmm")
                     MACHINE_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", MACHINE_Z);
}
__attribute__((target("avx2"))) static void loop_int16_pairs(void) {
    __asm__ volatile(MACHINE_ZERO MACHINE_MADD_12("vpmaddwd", "vpaddd")
                     MACHINE_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", MACHINE_Y, "ymm14");
}
__attribute__((target("avx2"))) static void loop_int8_pairs(void) {
    __asm__ volatile(MACHINE_ZERO MACHINE_MADD_12("vpmaddubsw", "vpaddw")
                     MACHINE_AGAIN :: "i"(PEAK_LOOPS) : "ecx", "cc", MACHINE_Y, "ymm14");
}
/* Four accumulators of 16 rows of 64 bytes; tiles 4 and 5 are the factors. */
__attribute__((target("amx-tile,amx-bf16"))) static void loop_amx(void) {
    uint8_t config[64] = {1};
    for (int t = 0; t < 6; t++) config[16 + 2 * t] = 64, config[48 + t] = 16;
    __asm__ volatile("ldtilecfg (%0)\n\t"
                     "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\t"
                     "tilezero %%tmm3\n\ttilezero %%tmm4\n\ttilezero %%tmm5\n\t"
                     "mov %1, %%ecx\n\t1:\n\t"
                     "tdpbf16ps %%tmm5, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm1\n\t"
                     "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm3\n\t"
                     MACHINE_AGAIN "\n\ttilerelease"
                     :: "r"(config), "i"(PEAK_LOOPS) : "ecx", "cc", "memory");
}
/* clang-format on */

static void peak_item(void *arg, int item, int thread) {
    (void)item;
    (void)thread;
    switch (*(const enum machine_peak *)arg) {
    case PEAK_F32_AVX2: loop_avx2(); break;
    case PEAK_F32_AVX512: loop_avx512(); break;
    case PEAK_BF16: loop_bf16(); break;
    case PEAK_INT8: loop_int8(); break;
    case PEAK_AMX_BF16: loop_amx(); break;
    case PEAK_INT16_AVX2: loop_int16_pairs(); break;
    case PEAK_INT8_AVX2: loop_int8_pairs(); break;
    case PEAKS: break;
    }
}

/* Operations of one loop: a multiply and an add count as two. */
static double peak_ops(enum machine_peak p) {
    static const double per_step[] = {12 * 8 * 2,           18 * 16 * 2, 18 * 32 * 2, 18 * 64 * 2,
                                      4 * 16 * 16 * 32 * 2, 12 * 16 * 2, 12 * 32 * 2};
    return per_step[p] * PEAK_LOOPS;
}
#else
bool machine_peak_here(enum machine_peak p) {
    (void)p;
    return false;
}
static void peak_item(void *arg, int item, int thread) {
    (void)arg;
    (void)item;
    (void)thread;
}
static double peak_ops(enum machine_peak p) {
    (void)p;
    return 0;
}
#endif

/* The pool's threads together, operations a second; best piece within `seconds`. */
double machine_peak_rate(struct pool *pool, enum machine_peak p, double seconds,
                         machine_clock *now) {
    if (now == NULL) now = wall_s;
    double best = 0, end = now() + seconds;
    int threads = pool_threads(pool);
    do {
        double t = now();
        pool_run(pool, peak_item, &p, threads);
        double rate = peak_ops(p) * threads / (now() - t);
        if (rate > best) best = rate;
    } while (now() < end);
    return best;
}

/* What a product over such weights can reach here, with the best instruction we have a kernel for;
 * PEAKS: no loop above measures it. */
enum machine_peak machine_peak_of(enum dtype w) {
    const enum machine_peak f32 =
        machine_peak_here(PEAK_F32_AVX512) ? PEAK_F32_AVX512 : PEAK_F32_AVX2;
    if (w == DTYPE_F32) return f32;
    if (w == DTYPE_BF16)
        return machine_peak_here(PEAK_AMX_BF16) ? PEAK_AMX_BF16
               : machine_peak_here(PEAK_BF16)   ? PEAK_BF16
                                                : f32;
    if (machine_peak_here(PEAK_INT8)) return PEAK_INT8;
    if (f32 == PEAK_F32_AVX512) return PEAKS;
    return w == DTYPE_INT8 ? PEAK_INT16_AVX2 : PEAK_INT8_AVX2;
}

/* ---- read bandwidth */
enum { PART_BYTES = 1 << 20 };

typedef uint64_t wide __attribute__((vector_size(16), may_alias));

/* How many streams a processor reads fastest, how far apart, and whether it must be told ahead,
 * differs: the best of these is the ceiling. far: ahead into the second-level cache, which a core
 * asks for more lines at a time than for the first; then streams that do not come to the end of
 * their pages together are the faster ones. */
static const struct read_pattern {
    int streams, apart_bytes, ahead_bytes, far_bytes;
} patterns[MACHINE_READ_PATTERNS] = {{1, 0, 1024, 0},          {1, 0, 4096, 0},
                                     {1, 0, 8192, 0},          {4, PART_BYTES / 4, 0, 0},
                                     {4, 1 << 15, 2048, 0},    {4, 1 << 15, 512, 4096},
                                     {4, 34 << 10, 384, 3072}, {2, 34 << 10, 384, 3072}};

struct probe {
    const uint8_t *data;
    size_t data_parts, parts; /* of PART_BYTES, of each thread, one behind the other */
    struct read_pattern pattern;
    uint64_t sums[1024];
};

static wide read_line(const uint8_t *at, const struct read_pattern *p, size_t far) {
    const wide *d = (const wide *)(const void *)at;
    if (far > 0) __builtin_prefetch(at + far, 0, 2);
    if (p->ahead_bytes > 0) __builtin_prefetch(at + p->ahead_bytes);
    return d[0] + d[1] + (d[2] + d[3]);
}

static void probe_item(void *arg, int item, int thread) {
    struct probe *p = arg;
    const size_t all = p->data_parts;
    const struct read_pattern pattern = p->pattern;
    wide a[4] = {{0}};
    for (size_t part = 0; part < p->parts; part++) {
        const uint8_t *d = p->data + ((size_t)item * p->parts + part) % all * (size_t)PART_BYTES;
        if (pattern.streams == 1) {
            for (size_t i = 0; i < PART_BYTES; i += 256)
                for (size_t j = 0; j < 4; j++) a[j] += read_line(d + i + 64 * j, &pattern, 0);
            continue;
        }
        const size_t streams = (size_t)pattern.streams, far = (size_t)pattern.far_bytes;
        size_t apart = (size_t)pattern.apart_bytes;
        for (const uint8_t *at = d; at < d + PART_BYTES; at += streams * apart) {
            const size_t left = (size_t)(d + PART_BYTES - at);
            if (left < streams * apart) apart = left / streams;
            for (size_t i = 0; i < apart; i += 64) {
                /* behind the end of these come the next ones */
                const size_t ahead =
                    far > 0 && i + far >= apart ? far + (streams - 1) * apart : far;
                for (size_t j = 0; j < streams; j++)
                    a[j] += read_line(at + j * apart + i, &pattern, ahead);
            }
        }
    }
    a[0] += a[1] + a[2] + a[3];
    p->sums[thread] += a[0][0] + a[0][1];
}

static double sweep(struct pool *pool, struct probe *p, double bytes, machine_clock *now) {
    const int threads = pool_threads(pool);
    p->parts = (size_t)(bytes / threads / PART_BYTES) + 1;
    double t = now();
    pool_run(pool, probe_item, p, threads);
    return (double)threads * (double)p->parts * PART_BYTES / (now() - t);
}

/* The best of `times` sweeps over so many bytes, bytes/s: as many as what is compared reads, so
 * that what disturbs the one for a moment disturbs the other as much. They go round a memory of
 * MACHINE_DATA_BYTES, which no cache holds. Each pattern is tried, then the best of them is swept.
 */
double machine_read_rate(struct pool *pool, const uint8_t *data, size_t data_bytes, double bytes,
                         int times, machine_clock *now) {
    struct probe p = {.data = data, .data_parts = data_bytes / PART_BYTES};
    double best = 0;
    int chosen = 0;
    for (int i = 0; i < MACHINE_READ_PATTERNS + times; i++) {
        p.pattern = patterns[i < MACHINE_READ_PATTERNS ? i : chosen];
        double rate = sweep(pool, &p, bytes, now != NULL ? now : wall_s);
        if (rate <= best) continue;
        best = rate;
        if (i < MACHINE_READ_PATTERNS) chosen = i;
    }
    return best;
}
