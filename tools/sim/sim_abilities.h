/* sim_abilities: what an instance has measured of itself, out of a file: the body of its /v2/status
 * or the `perf` in it (proto/perf_msg.h, which computes with it), and the `times` beside it
 * (tools/sim/sim_times.h) where somebody has measured them. At most SIM_ABILITIES_BYTES_MAX bytes.
 */
#ifndef BATON_TOOLS_SIM_ABILITIES_H
#define BATON_TOOLS_SIM_ABILITIES_H

#include <stddef.h>
#include "proto/err.h"
#include "proto/perf_msg.h"
#include "tools/sim/sim_times.h"

enum { SIM_ABILITIES_BYTES_MAX = 1 << 20 };

/* p[0..n): the text. ERR_INVALID, or as json_read(): eb names what is wrong. Abilities without a
 * prompt or without a step are refused: nothing could be computed with them. */
enum err sim_abilities_parse(struct perf_msg *out, struct sim_times *times, const char *p, size_t n,
                             struct errbuf *eb);
enum err sim_abilities_read(struct perf_msg *out, struct sim_times *times, const char *path,
                            struct errbuf *eb);

#endif
