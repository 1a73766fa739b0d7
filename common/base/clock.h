/* clock: points of the monotonic clock. Deadlines are compared, never durations recomputed. */
#ifndef BATON_BASE_CLOCK_H
#define BATON_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_us(void);        /* monotonic, microseconds */
uint64_t clock_thread_us(void); /* processor time of the calling thread, microseconds */
uint64_t clock_ms(void);        /* monotonic, milliseconds */
uint64_t clock_boot_ms(void);   /* monotonic, and goes on while the machine sleeps */
int64_t clock_unix_s(void);     /* wall clock, seconds */
uint64_t clock_unix_us(void);   /* wall clock, microseconds */

#endif
