/* inst_metrics: GET /metrics and /metrics-json of an instance (cluster-api 3.10, 3.11): the
 * registry, the gauges, the routes. What is counted of requests: req_meter.h. Thread: the loop
 * thread. */
#ifndef BATON_INSTANCE_INST_METRICS_H
#define BATON_INSTANCE_INST_METRICS_H

#include "common/instance/instance.h"
#include "common/instance/req_meter.h"
#include "common/net/router.h"

struct inst_metrics;

/* Reads its settings of in (model name, metricsEnabled) and the environment
 * (MIES_SERVICE_MONITOR_MODE, DYNAMIC_AVERAGE_WINDOW_SIZE). Before the first role starts. */
enum err inst_metrics_create(struct inst_metrics **out, struct instance *in);
void inst_metrics_destroy(struct inst_metrics **im); /* after the roles stopped */
struct req_meters *inst_metrics_requests(struct inst_metrics *im);
struct metric *inst_metrics_steps(struct inst_metrics *im); /* for worker_meter_steps() */

extern const struct route inst_metrics_routes[];

#endif
