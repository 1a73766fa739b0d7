/* refresh: instances that a controller of its own decides about and pushes (cluster-api 6.4), while
 * controller.enabled is false. They are what the last push says, are not polled and get no roles
 * from here; whether they live is seen on their /dresult. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_REFRESH_H
#define BATON_COORDINATOR_REFRESH_H

#include <stdbool.h>
#include <stdint.h>

struct coordinator;
struct http_x;

/* One that is lost is passed over so long, whatever the controller says. */
enum { REFRESH_FAULTY_MS = 120000 };

/* Of an instance: whether it was pushed, and how. */
struct inst_pushed {
    bool on;
    uint64_t group_id; /* the controller's number */
    uint64_t lost_ms;  /* the last time it was lost; 0: never */
};

/* POST /v1/instances/refresh. */
void refresh_route(struct coordinator *co, struct http_x *x);

#endif
