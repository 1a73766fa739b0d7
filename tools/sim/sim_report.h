/* sim_report: results of simulated clusters as lines of a table. */
#ifndef BATON_TOOLS_SIM_REPORT_H
#define BATON_TOOLS_SIM_REPORT_H

#include <stdio.h>
#include "tools/sim/sim_run.h"

void sim_report_head(FILE *to);
/* One line; name: "follow", "fixed 1:1". */
void sim_report_line(FILE *to, const char *name, const struct sim_result *r);
/* Of these only goodput is known. */
void sim_report_good(FILE *to, const char *name, uint64_t good, uint64_t asked, double span_s);

#endif
