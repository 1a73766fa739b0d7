/* grpc_health: the service grpc.health.v1.Health (kserve-runtimes 15): what a daemon says of itself
 * as a whole it says of each of its services. Check answers at once, Watch with the state and each
 * change of it. Thread: the loop thread. */
#ifndef BATON_GRPC_GRPC_HEALTH_H
#define BATON_GRPC_GRPC_HEALTH_H

#include <stdbool.h>
#include "common/net/http_server.h"

struct grpc_health;

/* serving(arg): whether requests are served now. */
enum err grpc_health_create(struct grpc_health **out, struct loop *loop,
                            bool (*serving)(const void *arg), const void *arg);
void grpc_health_destroy(
    struct grpc_health **h); /* ends what is watched; before the listeners close */

/* The row of a table that leads to grpc_health_serve(): any method of the service. */
#define GRPC_HEALTH_PATH "/grpc.health.v1.Health/{*}"
enum { GRPC_HEALTH_BODY_BYTES = 4096 };
void grpc_health_serve(struct grpc_health *h, struct http_x *x); /* takes x, a call */

#endif
