/* proc_stat: /proc/self/stat, /proc/self/fd and the limit of descriptors. */
#include "common/base/proc_stat.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void read_stat(struct proc_stat *p) {
    char text[1024];
    unsigned long long utime, stime, threads, start, vsize;
    long long rss;
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    const double tick = (double)sysconf(_SC_CLK_TCK);
    /* utime, stime, number of threads, start time, vsize and rss */
    if (at == NULL ||
        sscanf(at + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d "
               "%llu %*d %llu %llu %lld",
               &utime, &stime, &threads, &start, &vsize, &rss) != 6)
        return;
    p->cpu_s = (double)(utime + stime) / tick;
    p->start_s = (double)start / tick;
    p->threads = (unsigned)threads;
    p->virtual_bytes = vsize;
    p->resident_bytes = rss > 0 ? (uint64_t)rss * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

unsigned proc_fds_walk(void) {
    char line[128];
    int size = 0;
    unsigned n = 0;
    FILE *f = fopen("/proc/self/status", "re");
    if (f == NULL) return 0;
    while (size == 0 && fgets(line, sizeof(line), f) != NULL) sscanf(line, "FDSize: %d", &size);
    fclose(f);
    for (int fd = 0; fd < size; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

unsigned proc_fds_open(void) {
    struct stat st;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) return (unsigned)st.st_size;
    return proc_fds_walk();
}

void proc_stat_read(struct proc_stat *p) {
    struct rlimit limit;
    *p = (struct proc_stat){0};
    read_stat(p);
    p->fds_open = proc_fds_open();
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) p->fds_max = limit.rlim_cur;
}
