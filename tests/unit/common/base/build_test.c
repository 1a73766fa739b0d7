/* Goal: the series of the process say what the process is. Method: they change as it does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include "common/base/build.h"
#include "common/base/metrics.h"
#include "common/base/proc_stat.h"

static double value_of(struct metrics *m, struct build_metrics *bm, const char *name) {
    struct buf b = BUF_INIT;
    build_metrics_read(bm);
    metrics_write(m, &b);
    buf_putc(&b, 0);
    char line[100];
    snprintf(line, sizeof(line), "\n%s ", name);
    const char *at = strstr(b.data, line);
    if (at == NULL) fail_msg("no %s in %s", name, b.data);
    double v = strtod(at + strlen(line), NULL);
    buf_free(&b);
    return v;
}

static void series_follow_the_process(void **state) {
    enum { BYTES = 64 << 20 };
    struct metrics *m;
    struct build_metrics *bm;
    (void)state;
    assert_int_equal(metrics_create(&m), ERR_OK);
    assert_int_equal(build_metrics_create(&bm, m), ERR_OK);
    double rss = value_of(m, bm, "process_resident_memory_bytes");
    double fds = value_of(m, bm, "process_open_fds");
    double cpu = value_of(m, bm, "process_cpu_seconds_total");
    char *p = malloc(BYTES);
    assert_non_null(p);
    memset(p, 1, BYTES);
    int fd = open("/dev/null", O_RDONLY);
    for (clock_t from = clock(); clock() - from < CLOCKS_PER_SEC / 5;) p[clock() % BYTES]++;
    double more = value_of(m, bm, "process_resident_memory_bytes") - rss;
#ifndef __SANITIZE_THREAD__ /* which keeps several bytes for each */
    assert_true(more < 1.5 * BYTES);
#endif
    assert_true(more > 0.9 * BYTES);
    assert_true(value_of(m, bm, "process_virtual_memory_bytes") > rss + BYTES);
    assert_true(value_of(m, bm, "process_open_fds") == fds + 1);
    assert_int_equal(proc_fds_walk(), proc_fds_open());
    assert_true(value_of(m, bm, "process_max_fds") >= fds);
    assert_true(value_of(m, bm, "process_threads") >= 1);
    double took = value_of(m, bm, "process_cpu_seconds_total") - cpu;
    assert_true(took > 0.1 && took < 30);
    double age = (double)time(NULL) - value_of(m, bm, "process_start_time_seconds");
    assert_true(age > -3 && age < 600);
    assert_true(value_of(m, bm, "baton_log_dropped_total") == 0);
    assert_true(
        value_of(m, bm, "baton_build_info{version=\"" BATON_VERSION "\",commit=\"unknown\"}") == 1);
    close(fd);
    free(p);
    metrics_destroy(&m);
    build_metrics_destroy(&bm);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(series_follow_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
