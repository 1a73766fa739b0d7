/* mgmt_api: what a controller, or an operator's tool, asks of the coordinator beside the list of
 * instances (cluster-api 6.5): no new work for some, what is under way on them, what requests are
 * like, how many came. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_MGMT_API_H
#define BATON_COORDINATOR_MGMT_API_H

#include "common/net/router.h"

extern const struct route mgmt_api_routes[]; /* handlers get the coordinator */

#endif
