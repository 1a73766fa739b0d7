/* Goal: what is counted comes out, exactly, in the text form that Prometheus reads; no label value
 * breaks a line or grows memory without bound; threads may count at once.
 * Method: values on both sides of each bucket's edge; label values with every character that needs
 * an escape; more label values than a family may have; eight threads on one series while another
 * writes. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/metrics.h"

static struct metrics *fresh(void) {
    struct metrics *m;
    assert_int_equal(metrics_create(&m), ERR_OK);
    return m;
}

static char *text_of(struct metrics *m) {
    struct buf b = BUF_INIT;
    metrics_write(m, &b);
    assert_false(b.failed);
    return b.data != NULL ? buf_steal(&b) : strdup("");
}

static void assert_has(struct metrics *m, const char *line) {
    char *text = text_of(m), *at = strstr(text, line);
    if (at == NULL) print_error("no \"%s\" in\n%s", line, text);
    assert_non_null(at);
    assert_true(at == text || at[-1] == '\n');
    free(text);
}

static void a_counter_counts_and_never_falls(void **state) {
    (void)state;
    struct metrics *m = fresh();
    struct metric_def def = {.name = "x_total", .help = "Xs.", .kind = METRIC_COUNTER};
    struct metric *c = metric_of(metrics_family(m, &def), NULL);
    assert_has(m, "# HELP x_total Xs.\n# TYPE x_total counter\nx_total 0\n");
    metric_add(c, 2);
    metric_add(c, 0.5);
    metric_add(c, -1);
    metric_add(c, NAN);
    assert_has(m, "x_total 2.5\n");
    metric_add(c, 1e15);
    assert_has(m, "x_total 1000000000000002.5\n");
    metrics_destroy(&m);
    assert_null(m);
}

static void a_gauge_is_what_was_set_last(void **state) {
    (void)state;
    struct metrics *m = fresh();
    struct metric_def def = {.name = "g", .help = "G.", .kind = METRIC_GAUGE};
    struct metric *g = metric_of(metrics_family(m, &def), NULL);
    metric_set(g, -3);
    assert_has(m, "g -3\n");
    metric_add(g, -1);
    assert_has(m, "g -4\n");
    metric_set(g, INFINITY);
    assert_has(m, "g +Inf\n");
    metric_set(g, -INFINITY);
    assert_has(m, "g -Inf\n");
    metric_set(g, NAN);
    assert_has(m, "g NaN\n");
    metric_set(g, 0.1);
    assert_has(m, "g 0.1\n");
    metrics_destroy(&m);
}

/* The next double below (-1) or above (1) a positive one. */
static double neighbour(double v, int way) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    bits += (uint64_t)(int64_t)way;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* A bucket takes what is at most its bound: the edge itself, and not the next double above it. */
static void buckets_end_at_their_bound(void **state) {
    (void)state;
    static const double bounds[] = {0.001, 1, 2.5};
    struct metrics *m = fresh();
    struct metric_def def = {
        .name = "h", .help = "H.", .kind = METRIC_HISTOGRAM, .buckets = bounds, .n_buckets = 3};
    struct metric *h = metric_of(metrics_family(m, &def), NULL);
    for (int i = 0; i < 3; i++) {
        metric_observe(h, neighbour(bounds[i], -1));
        metric_observe(h, bounds[i]);
        metric_observe(h, neighbour(bounds[i], 1));
    }
    metric_observe(h, -1);
    metric_observe(h, NAN); /* says nothing */
    assert_has(m, "h_bucket{le=\"0.001\"} 3\nh_bucket{le=\"1\"} 6\nh_bucket{le=\"2.5\"} "
                  "9\nh_bucket{le=\"+Inf\"} 10\n");
    assert_has(m, "h_count 10\n");
    assert_int_equal(metric_count(h), 10);
    assert_true(__builtin_fabs(metric_value(h) - (3 * 3.501 - 1)) < 1e-9);
    metrics_destroy(&m);
}

static void labels_are_escaped_and_ordered(void **state) {
    (void)state;
    struct metrics *m = fresh();
    assert_int_equal(metrics_common_label(m, "model_name", "a \"b\"\\\n"), ERR_OK);
    static const double bounds[] = {1};
    struct metric_def def = {.name = "l",
                             .help = "Line\nbreak, \\ and \"quotes\".",
                             .kind = METRIC_HISTOGRAM,
                             .labels = {"peer", "why", NULL},
                             .buckets = bounds,
                             .n_buckets = 1};
    struct metric_family *f = metrics_family(m, &def);
    struct metric *s = metric_of(f, (const char *const[]){"1", "x\"y", NULL});
    assert_ptr_equal(s, metric_of(f, (const char *const[]){"1", "x\"y", NULL}));
    assert_ptr_not_equal(s, metric_of(f, (const char *const[]){"1", "x", NULL}));
    assert_has(m, "# HELP l Line\\nbreak, \\\\ and \"quotes\".\n");
    assert_has(
        m, "l_bucket{model_name=\"a \\\"b\\\"\\\\\\n\",peer=\"1\",why=\"x\\\"y\",le=\"1\"} 0\n");
    assert_has(m, "l_sum{model_name=\"a \\\"b\\\"\\\\\\n\",peer=\"1\",why=\"x\\\"y\"} 0\n");
    metrics_destroy(&m);
}

static void label_values_are_bounded(void **state) {
    (void)state;
    struct metrics *m = fresh();
    struct metric_def def = {
        .name = "b_total", .help = "B.", .kind = METRIC_COUNTER, .labels = {"id", NULL}};
    struct metric_family *f = metrics_family(m, &def);
    for (int i = 0; i < METRIC_SERIES_MAX + 100; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        metric_add(metric_of(f, (const char *const[]){id, NULL}), 1);
    }
    assert_has(m, "b_total{id=\"1023\"} 1\n");
    assert_has(m, "b_total{id=\"other\"} 100\n");
    char *text = text_of(m);
    assert_null(strstr(text, "id=\"1024\""));
    free(text);
    metric_clear(f);
    text = text_of(m);
    assert_string_equal(text, ""); /* a family without a series says nothing */
    free(text);
    metric_add(metric_of(f, (const char *const[]){"1024", NULL}), 1);
    assert_has(m, "b_total{id=\"1024\"} 1\n");
    metrics_destroy(&m);
}

static void an_alias_shows_the_same_numbers(void **state) {
    (void)state;
    struct metrics *m = fresh();
    struct metric_def def = {.name = "a_total", .help = "A.", .kind = METRIC_COUNTER};
    struct metric_family *f = metrics_family(m, &def);
    assert_int_equal(metrics_alias(m, f, "vllm:a_total", "The same."), ERR_OK);
    metric_add(metric_of(f, NULL), 7);
    assert_has(m, "a_total 7\n");
    assert_has(m, "# HELP vllm:a_total The same.\n# TYPE vllm:a_total counter\nvllm:a_total 7\n");
    assert_int_equal(metrics_alias(m, NULL, "x", "x"), ERR_NO_MEMORY);
    metrics_destroy(&m);
}

static void nothing_is_allowed(void **state) {
    (void)state;
    struct metrics *none = NULL;
    metric_add(NULL, 1);
    metric_set(NULL, 1);
    metric_observe(NULL, 1);
    metric_clear(NULL);
    assert_null(metric_of(NULL, NULL));
    assert_true(metric_value(NULL) == 0);
    assert_int_equal(metric_count(NULL), 0);
    metrics_destroy(&none);
}

/* ---- threads */
enum { THREADS = 8, ROUNDS = 2000 };

struct crowd {
    struct metrics *m;
    struct metric_family *counter, *histogram;
};

static void *count(void *arg) {
    struct crowd *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i % 16);
        metric_add(metric_of(c->counter, (const char *const[]){id, NULL}), 1);
        metric_observe(metric_of(c->histogram, NULL), i % 2 ? 0.25 : 4);
    }
    return NULL;
}

static void threads_lose_no_count(void **state) {
    (void)state;
    static const double bounds[] = {1};
    struct metric_def counter = {.name = "t_total",
                                 .help = "T.",
                                 .kind = METRIC_COUNTER,
                                 .labels = {"id", NULL}},
                      histogram = {.name = "t_seconds",
                                   .help = "T.",
                                   .kind = METRIC_HISTOGRAM,
                                   .buckets = bounds,
                                   .n_buckets = 1};
    struct crowd c = {.m = fresh()};
    pthread_t threads[THREADS];
    c.counter = metrics_family(c.m, &counter);
    c.histogram = metrics_family(c.m, &histogram);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, &c), 0);
    for (int i = 0; i < 20; i++) free(text_of(c.m));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 16; i++) {
        char line[64];
        snprintf(line, sizeof(line), "t_total{id=\"%d\"} %d\n", i, THREADS * ROUNDS / 16);
        assert_has(c.m, line);
    }
    assert_has(c.m, "t_seconds_bucket{le=\"1\"} 8000\nt_seconds_bucket{le=\"+Inf\"} 16000\n"
                    "t_seconds_sum 34000\nt_seconds_count 16000\n");
    metrics_destroy(&c.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_counts_and_never_falls),
        cmocka_unit_test(a_gauge_is_what_was_set_last),
        cmocka_unit_test(buckets_end_at_their_bound),
        cmocka_unit_test(labels_are_escaped_and_ordered),
        cmocka_unit_test(label_values_are_bounded),
        cmocka_unit_test(an_alias_shows_the_same_numbers),
        cmocka_unit_test(nothing_is_allowed),
        cmocka_unit_test(threads_lose_no_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
