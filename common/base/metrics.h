/* metrics: counters, gauges and histograms with labels, and their text form for Prometheus
 * (exposition format 0.0.4). No globals: a registry hangs from its owner.
 *
 * Thread:  values (metric_add, metric_set, metric_observe) from any thread, without a lock; series
 *   and families are made and written under the registry's lock, from any thread as well.
 * Bounds:  a family has at most METRIC_SERIES_MAX series. Label values beyond that share one series
 *   whose labels all read "other", so that nothing a stranger sends can grow memory.
 * Memory:  when there is none for a series, NULL comes back; all calls take a NULL metric. */
#ifndef BATON_BASE_METRICS_H
#define BATON_BASE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"

enum { METRIC_LABELS_MAX = 4, METRIC_SERIES_MAX = 1024, METRIC_BUCKETS_MAX = 32 };

struct metrics;
struct metric_family;
struct metric;

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_def {
    const char *name, *help; /* name: [a-zA-Z_:][a-zA-Z0-9_:]* */
    enum metric_kind kind;
    const char *labels[METRIC_LABELS_MAX + 1]; /* names, NULL-terminated */
    const double *buckets; /* upper bounds, ascending, without +Inf (histograms) */
    size_t n_buckets;
};

enum err metrics_create(struct metrics **out);
void metrics_destroy(struct metrics **m);
/* A label that every series of the registry carries in front of its own (model_name, say). Before
 * the first family. */
enum err metrics_common_label(struct metrics *m, const char *name, const char *value);

/* def's strings and arrays are borrowed for the life of the registry. NULL: no memory. */
struct metric_family *metrics_family(struct metrics *m, const struct metric_def *def);
/* The same series once more under another name: what other servers call it. */
enum err metrics_alias(struct metrics *m, struct metric_family *of, const char *name,
                       const char *help);

/* The series of these label values (as many as the family has labels, NULL-terminated; may be NULL
 * when it has none), made when it is new. Lives until metrics_clear() or the end of the registry.
 */
struct metric *metric_of(struct metric_family *f, const char *const *values);
/* Drops every series of a family: for gauges that are filled anew at each scrape. No other thread
 * may hold one. */
void metric_clear(struct metric_family *f);

void metric_add(struct metric *m, double by); /* counters: by >= 0, else nothing happens */
void metric_set(struct metric *m, double to);
void metric_observe(struct metric *m, double value);
double metric_value(const struct metric *m);   /* of a counter or gauge; a histogram's sum */
uint64_t metric_count(const struct metric *m); /* observations of a histogram */

/* Appends every family that has series, in the order of their making. */
void metrics_write(struct metrics *m, struct buf *out);
/* A number as the format has it: shortest that reads back the same, +Inf, -Inf, NaN. */
void metrics_put_number(struct buf *out, double v);
/* A label value or help text with its escapes. */
void metrics_put_escaped(struct buf *out, const char *s, bool quotes);

#endif
