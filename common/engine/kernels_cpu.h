/* kernels_cpu: which instruction sets this processor has and this system lets a process use. Any
 * thread, any number of times. */
#ifndef BATON_ENGINE_KERNELS_CPU_H
#define BATON_ENGINE_KERNELS_CPU_H

#include <stdbool.h>

bool cpu_has_avx2(void);   /* with FMA and F16C */
bool cpu_has_avx512(void); /* F, BW, DQ, VL, CD */
bool cpu_has_avx512vnni(void);
bool cpu_has_avx512bf16(void);
/* Tiles, for bf16 and int8. Asks the system for them once it is known that the processor has them:
 * Linux gives the tile registers to processes that ask, and then to all threads of one. */
bool cpu_has_amx(void);
bool cpu_has_neon(void);
bool cpu_has_neondot(void);
bool cpu_has_neoni8mm(void); /* with those of dot products */
bool cpu_has_neonbf16(void); /* with those of bytes */

#endif
