/* machine_loops: the instructions of the loops that measure a processor, written out so that
 * nothing is folded or left out: for machine.c, and for benchmarks that mix them with others. */
#ifndef BATON_ENGINE_MACHINE_LOOPS_H
#define BATON_ENGINE_MACHINE_LOOPS_H

#if defined(__x86_64__)
/* clang-format off */
#define MACHINE_Y                                                                                    \
    "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10",       \
        "ymm11", "ymm12", "ymm13"
#define MACHINE_Z                                                                                    \
    "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",       \
        "zmm11", "zmm12", "zmm13", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21"
#define MACHINE_I(OP, R, A, B, D) OP " %%" R A ", %%" R B ", %%" R D "\n\t"
#define MACHINE_12(OP, R)                                                                            \
    MACHINE_I(OP, R, "12", "13", "0")                                                                \
    MACHINE_I(OP, R, "12", "13", "1")                                                                \
    MACHINE_I(OP, R, "12", "13", "2") MACHINE_I(OP, R, "12", "13", "3")                                \
        MACHINE_I(OP, R, "12", "13", "4") MACHINE_I(OP, R, "12", "13", "5")                            \
            MACHINE_I(OP, R, "12", "13", "6") MACHINE_I(OP, R, "12", "13", "7")                        \
                MACHINE_I(OP, R, "12", "13", "8") MACHINE_I(OP, R, "12", "13", "9")                    \
                    MACHINE_I(OP, R, "12", "13", "10") MACHINE_I(OP, R, "12", "13", "11")
#define MACHINE_18(OP, R)                                                                            \
    MACHINE_12(OP, R)                                                                                \
    MACHINE_I(OP, R, "12", "13", "16")                                                               \
    MACHINE_I(OP, R, "12", "13", "17")                                                               \
    MACHINE_I(OP, R, "12", "13", "18") MACHINE_I(OP, R, "12", "13", "19")                              \
        MACHINE_I(OP, R, "12", "13", "20") MACHINE_I(OP, R, "12", "13", "21")
#define MACHINE_ZERO                                                                                 \
    "vxorps %%ymm12, %%ymm12, %%ymm12\n\tvxorps %%ymm13, %%ymm13, %%ymm13\n\tmov %0, "             \
    "%%ecx\n\t1:\n\t"
#define MACHINE_AGAIN "dec %%ecx\n\tjnz 1b"
/* A product and its sum; the products' own latency is hidden behind eleven others. */
#define MACHINE_MADD(OP, ADD, D)                                                                     \
    OP " %%ymm12, %%ymm13, %%ymm14\n\t" ADD " %%ymm14, %%ymm" D ", %%ymm" D "\n\t"
#define MACHINE_MADD_12(OP, ADD)                                                                     \
    MACHINE_MADD(OP, ADD, "0") MACHINE_MADD(OP, ADD, "1") MACHINE_MADD(OP, ADD, "2")                     \
    MACHINE_MADD(OP, ADD, "3") MACHINE_MADD(OP, ADD, "4") MACHINE_MADD(OP, ADD, "5")                     \
    MACHINE_MADD(OP, ADD, "6") MACHINE_MADD(OP, ADD, "7") MACHINE_MADD(OP, ADD, "8")                     \
    MACHINE_MADD(OP, ADD, "9") MACHINE_MADD(OP, ADD, "10") MACHINE_MADD(OP, ADD, "11")
/* clang-format on */
#endif

#endif
