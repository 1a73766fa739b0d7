/* Preloaded: the wall clock of the process is ahead by the seconds that the file CLOCK_SHIM_FILE
 * holds (8 bytes, little-endian, signed); the monotonic clocks are as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("CLOCK_SHIM_FILE");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) ahead = p;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    long rc = syscall(SYS_clock_gettime, id, ts);
    if (rc == 0 && ahead != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        ts->tv_sec += *ahead;
    return (int)rc;
}

int gettimeofday(struct timeval *tv, void *zone) {
    struct timespec ts;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
    if (out != NULL) *out = ts.tv_sec;
    return ts.tv_sec;
}
