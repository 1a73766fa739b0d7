/* kernels_cpu: CPUID, and what the system has enabled. __builtin_cpu_supports() looks at both, but
 * knows AMX only in newer compilers. Of aarch64 the system says what a process may use. */
#include "common/engine/kernels_cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Which no processor with AVX2 lacks, but a hypervisor may hide; not all compilers know its name.
 * Asked of the processor once: CPUID leaves a virtual machine for its host, which takes as long as
 * a product of a small model. */
static bool has_f16c(void) {
    enum { F16C = 1 << 29 }; /* of ECX */
    enum { UNKNOWN, NO, YES };
    static atomic_int known = UNKNOWN;
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == UNKNOWN) {
        unsigned a, b, c = 0, d;
        is = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & F16C) != 0 ? YES : NO;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is == YES;
}

bool cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
bool cpu_has_avx512(void) {
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("bmi2");
}
bool cpu_has_avx512vnni(void) {
    return cpu_has_avx512() && __builtin_cpu_supports("avx512vnni");
}
bool cpu_has_avx512bf16(void) {
    return cpu_has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

/* Register sets that the system saves on a switch; only where AVX-512 was found, so that xgetbv is
 * known to work. */
static uint64_t saved_sets(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

bool cpu_has_amx(void) {
    enum {
        LEAF = 7,
        AMX_BF16 = 1 << 22, /* of EDX */
        AMX_TILE = 1 << 24,
        AMX_INT8 = 1 << 25,
        AMX = AMX_BF16 | AMX_TILE | AMX_INT8,
        TILE_CONFIG = 17, /* numbers of register sets */
        TILE_DATA = 18,
        TILES = 1 << TILE_CONFIG | 1 << TILE_DATA,
        REQUEST_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM; missing in older headers */
    };
    unsigned a, b, c, d;
    if (!cpu_has_avx512bf16() || !__get_cpuid_count(LEAF, 0, &a, &b, &c, &d)) return false;
    if ((d & AMX) != AMX || (saved_sets() & TILES) != TILES) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
bool cpu_has_avx2(void) {
    return false;
}
bool cpu_has_avx512(void) {
    return false;
}
bool cpu_has_avx512vnni(void) {
    return false;
}
bool cpu_has_avx512bf16(void) {
    return false;
}
bool cpu_has_amx(void) {
    return false;
}
#endif

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

bool cpu_has_neon(void) {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}
bool cpu_has_neondot(void) {
    return cpu_has_neon() && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
bool cpu_has_neoni8mm(void) {
    return cpu_has_neondot() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}
bool cpu_has_neonbf16(void) {
    return cpu_has_neoni8mm() && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
#else
bool cpu_has_neon(void) {
    return false;
}
bool cpu_has_neondot(void) {
    return false;
}
bool cpu_has_neoni8mm(void) {
    return false;
}
bool cpu_has_neonbf16(void) {
    return false;
}
#endif
