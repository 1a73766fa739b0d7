/* log_route: the levels of the log, asked and set while a daemon runs:
 *
 *   GET /v1/log            {"level":"info","rules":[{"area":"relay","level":"debug","seconds":58}]}
 *   POST /v1/log           {"level":"debug","area":"relay","minutes":60}: sets a rule, and answers
 *                          as GET. area absent or "": all areas. minutes absent: as many as a
 *                          program says (log_route_minutes()); 0: as long as it runs
 *                          {"level":"default","area":"relay"}: drops it
 *
 * On the management plane. 422 names the member, the value and what it may be. */
#ifndef BATON_NET_LOG_ROUTE_H
#define BATON_NET_LOG_ROUTE_H

#include "common/net/router.h"

enum { LOG_MINUTES_MAX = 7 * 24 * 60, LOG_MINUTES_DEFAULT = 120 };

extern const struct route log_routes[];
/* What is taken where a client says nothing; before the listeners open. */
void log_route_minutes(unsigned minutes);

#endif
