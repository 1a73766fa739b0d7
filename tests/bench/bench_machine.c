/* bench_machine: the ceilings every other figure stands beside: peaks in registers and read
 * bandwidth, one thread and as many as there are cores. */
#include <unistd.h>
#include "tests/bench/machine.h"

int main(void) {
    struct errbuf eb;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint8_t *data = bench_memory(PROBE_BYTES);
    memset(data, 1, PROBE_BYTES);
    for (int threads = 1; threads <= cores && threads <= 2; threads++) {
        struct pool *pool = NULL;
        if (threads > 1) unsetenv("BENCH_CPU_TIME"); /* a clock of one thread */
        if (pool_create(&pool, threads, NULL, &eb) != ERR_OK) {
            fprintf(stderr, "%s\n", eb.text);
            return 1;
        }
        for (enum machine_peak p = 0; p < PEAKS; p++) {
            if (!machine_peak_here(p)) continue;
            printf("peak_%s_threads_%d %.1f Gop/s\n", machine_peak_name(p), threads,
                   bench_peak_rate(pool, p, 0.3) * 1e-9);
        }
        printf("read_bandwidth_threads_%d %.1f GB/s\n", threads,
               bench_read_rate(pool, data, PROBE_BYTES, 20) * 1e-9);
        pool_destroy(&pool);
    }
    munmap(data, PROBE_BYTES);
    return 0;
}
