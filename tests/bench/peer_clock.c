/* peer_clock: the processor time of the process in the place of every clock, for a program that
 * times itself and knows no other way (LD_PRELOAD, one working thread): what BENCH_CPU_TIME does
 * for ours. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME) clock = CLOCK_PROCESS_CPUTIME_ID;
    return (int)syscall(SYS_clock_gettime, clock, t);
}
