/* proc_stat: what the kernel says of this process (proc(5)). Thread: any. */
#ifndef BATON_BASE_PROC_STAT_H
#define BATON_BASE_PROC_STAT_H

#include <stdint.h>

/* What is not known is 0. */
struct proc_stat {
    double cpu_s;
    double start_s; /* since the machine began */
    unsigned threads, fds_open;
    uint64_t virtual_bytes, resident_bytes, fds_max;
};

void proc_stat_read(struct proc_stat *p);

#endif
