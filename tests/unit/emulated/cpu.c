/* emulated/cpu: common/engine/kernels_cpu.h for programs that emulate the newer instruction sets:
 * all that AVX2 can emulate is there. */
#include "common/engine/kernels_cpu.h"

bool cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool cpu_has_avx512(void) {
    return cpu_has_avx2();
}
bool cpu_has_avx512vnni(void) {
    return cpu_has_avx2();
}
bool cpu_has_avx512bf16(void) {
    return cpu_has_avx2();
}
bool cpu_has_amx(void) {
    return cpu_has_avx2();
}
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
