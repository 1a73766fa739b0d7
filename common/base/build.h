/* build: what this program was built from and of, and what its process uses. Nothing of it depends
 * on the day or the place, so that the same sources give the same program. */
#ifndef BATON_BASE_BUILD_H
#define BATON_BASE_BUILD_H

#include <stdio.h>
#include "proto/err.h"

#define BATON_VERSION "1.0.0"

/* Of the sources, twelve digits and "-dirty" when they were changed; "unknown" when they were not
 * under git, and in the programs of the tests. */
const char *build_commit(void);
const char *build_compiler(void); /* "gcc 12.2.0" */
/* What the compiler could use everywhere ("x86-64 sse2"); kernels choose more at run time. */
const char *build_isa(void);
/* NAME version, commit, compiler, instruction sets: a line each; kernels: the sets a program can
 * choose from at run time, or NULL. */
void build_print(FILE *to, const char *name, const char *kernels);

struct metrics;
struct build_metrics;
/* Series of the process as every Prometheus client names them (process_*), baton_build_info and
 * baton_log_dropped_total. An instance shows its own; sums of them mean nothing. */
enum err build_metrics_create(struct build_metrics **out, struct metrics *m);
/* Brings the series up to date: before metrics_write(). NULL is fine, here and below. */
void build_metrics_read(struct build_metrics *bm);
void build_metrics_destroy(struct build_metrics **bm);

#endif
