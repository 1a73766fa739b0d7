/* clock: the kernel's clocks as plain numbers. */
#include "common/base/clock.h"

#include <time.h>

static uint64_t read_us(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts); /* cannot fail for these clocks */
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_us(void) {
    return read_us(CLOCK_MONOTONIC);
}

uint64_t clock_thread_us(void) {
    return read_us(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_boot_ms(void) {
    return read_us(CLOCK_BOOTTIME) / 1000u;
}

uint64_t clock_ms(void) {
    return clock_us() / 1000u;
}

int64_t clock_unix_s(void) {
    return (int64_t)(clock_unix_us() / 1000000u);
}

uint64_t clock_unix_us(void) {
    return read_us(CLOCK_REALTIME);
}
