/* grpc_health: the service grpc.health.v1.Health (kserve-runtimes 15), and the probes of another:
 * what a daemon says of itself as a whole it says of each of its services. Check answers at once,
 * Watch with the state and each change of it. Thread: the loop thread. */
#ifndef BATON_GRPC_GRPC_HEALTH_H
#define BATON_GRPC_GRPC_HEALTH_H

#include <stdbool.h>
#include "common/net/http_server.h"

struct grpc_health;

/* serving(arg): whether requests are served now; has_model(arg, name): whether the model is. */
enum err grpc_health_create(struct grpc_health **out, struct loop *loop,
                            bool (*serving)(const void *arg),
                            bool (*has_model)(const void *arg, const char *name), const void *arg);
void grpc_health_destroy(
    struct grpc_health **h); /* ends what is watched; before the listeners close */

/* The rows of a table that lead to grpc_health_serve(): any method of the service, and the same
 * questions in the words of inference.GRPCInferenceService (kserve-runtimes 11). */
#define GRPC_HEALTH_PATH  "/grpc.health.v1.Health/{*}"
#define GRPC_PROBE_PREFIX "/inference.GRPCInferenceService/"
#define GRPC_PROBE_ROWS(fn)                                                                        \
    {PLANE_DATA | PLANE_OPEN | PLANE_GRPC, "POST", GRPC_PROBE_PREFIX "ServerLive", fn,             \
     GRPC_HEALTH_BODY_BYTES},                                                                      \
        {PLANE_DATA | PLANE_OPEN | PLANE_GRPC, "POST", GRPC_PROBE_PREFIX "ServerReady", fn,        \
         GRPC_HEALTH_BODY_BYTES},                                                                  \
    {                                                                                              \
        PLANE_DATA | PLANE_OPEN | PLANE_GRPC, "POST", GRPC_PROBE_PREFIX "ModelReady", fn,          \
            GRPC_HEALTH_BODY_BYTES                                                                 \
    }
enum { GRPC_HEALTH_BODY_BYTES = 4096 };
void grpc_health_serve(struct grpc_health *h, struct http_x *x); /* takes x, a call */

#endif
