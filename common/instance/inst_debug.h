/* inst_debug: GET /debug/state of the management plane: what an instance does right now, for a
 * report of a fault: process, engine, requests, links. Bounded (DEBUG_REQUESTS_MAX), and no text of
 * a client is in it. Thread: the loop thread. */
#ifndef BATON_INSTANCE_INST_DEBUG_H
#define BATON_INSTANCE_INST_DEBUG_H

#include "common/net/router.h"

enum { DEBUG_REQUESTS_MAX = 1000 };

extern const struct route inst_debug_routes[];

#endif
