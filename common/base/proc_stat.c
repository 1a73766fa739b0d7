/* proc_stat: /proc/self/stat, /proc/self/fd and the limit of descriptors. */
#include "common/base/proc_stat.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
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

void proc_stat_read(struct proc_stat *p) {
    struct rlimit limit;
    *p = (struct proc_stat){0};
    read_stat(p);
    DIR *d = opendir("/proc/self/fd");
    if (d != NULL) {
        int n = -3; /* ".", ".." and this one */
        while (readdir(d) != NULL) n++;
        closedir(d);
        p->fds_open = n > 0 ? (unsigned)n : 0;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) p->fds_max = limit.rlim_cur;
}
