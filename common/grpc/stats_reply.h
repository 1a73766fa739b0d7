/* stats_reply: what a server has counted of its models (common/base/model_stats.h) as Triton's
 * statistics, over REST and gRPC, on an instance and a coordinator alike (kserve-runtimes 10, 11).
 * Thread: the loop thread. */
#ifndef BATON_GRPC_STATS_REPLY_H
#define BATON_GRPC_STATS_REPLY_H

#include "common/base/model_stats.h"
#include "common/net/http_server.h"
#include "proto/api.h"

struct stats_served {
    const struct model_stats *stats;
    const char *model; /* what is served, under the name it has */
    /* The next of its adapters that are served; *at is 0 before the first. False: no more. */
    bool (*next_adapter)(const void *arg, int *at, char name[ADAPTER_NAME_BYTES_MAX + 1]);
    /* Answers with an error in the shape of the path. */
    void (*reply_error)(void *arg, struct http_x *x, int status, const char *text);
    void *arg;
};

/* Answers x, which is on a path of API_STATS; name: the model in the path, "" where it has none. */
void stats_reply(struct http_x *x, const struct api_path *path, const char *name,
                 const struct stats_served *s);

#endif
