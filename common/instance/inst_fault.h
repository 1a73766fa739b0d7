/* inst_fault: the engine under an operator's fault handling: GET /v1/engine-server/running-status
 * and POST /v1/engine-server/fault-handling-command (cluster-api 3.12). Thread: the loop thread. */
#ifndef BATON_INSTANCE_INST_FAULT_H
#define BATON_INSTANCE_INST_FAULT_H

#include <stdbool.h>
#include "common/net/http_server.h"
#include "common/net/router.h"

struct instance;

enum engine_held {
    ENGINE_FREE,
    ENGINE_HELD,   /* takes no step */
    ENGINE_TESTED, /* the same, and found well */
    ENGINE_FAILED, /* the same, and found ill */
};

/* Zeroed: free. */
struct inst_fault {
    enum engine_held held;
    bool under_way;   /* the engine thread has not obeyed the last command yet */
    int command;      /* the last one */
    struct http_x *x; /* whom to tell; NULL: nobody */
};

extern const struct route inst_fault_routes[];

/* Requests wait until a command lets the engine go on. */
bool inst_engine_held(const struct instance *in);

#endif
