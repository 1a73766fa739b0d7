/* machine: what this machine can do: register-only peaks of the instructions our kernels are made
 * of, and read bandwidth. Both are taken as the best of short pieces, since neighbours on the
 * machine only ever add. Thread: the one that owns the pool. */
#ifndef BATON_ENGINE_MACHINE_H
#define BATON_ENGINE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/engine.h"
#include "common/engine/pool.h"

enum machine_peak {
    PEAK_F32_AVX2,
    PEAK_F32_AVX512,
    PEAK_BF16,
    PEAK_INT8,
    PEAK_AMX_BF16,
    PEAK_INT16_AVX2, /* products in pairs, summed in 32 bits: int8 weights without VNNI */
    PEAK_INT8_AVX2,  /* the same in 16 bits: int4 weights */
    PEAKS
};
const char *machine_peak_name(enum machine_peak p);
bool machine_peak_here(enum machine_peak p); /* this processor has the instruction */
/* What a product over such weights can reach here, with the best instruction we have a kernel for;
 * PEAKS: nothing here measures it. */
enum machine_peak machine_peak_of(enum dtype w);

typedef double machine_clock(void); /* seconds; NULL: wall clock */
/* The pool's threads together, operations a second: a multiply and an add count as two; best piece
 * within `seconds`. p: machine_peak_here(). */
double machine_peak_rate(struct pool *pool, enum machine_peak p, double seconds,
                         machine_clock *now);

enum { MACHINE_DATA_BYTES = 512 << 20 }; /* more than caches hold */
/* Ways of reading that machine_read_rate() tries. */
enum { MACHINE_READ_PATTERNS = 8 };
/* Bytes a second, the best of `times` sweeps over `bytes`, which go round data[0..data_bytes),
 * whole megabytes that were written: as many as what is compared reads, so that what disturbs the
 * one for a moment disturbs the other as much. */
double machine_read_rate(struct pool *pool, const uint8_t *data, size_t data_bytes, double bytes,
                         int times, machine_clock *now);

#endif
