/* inst_routes: the routes every instance serves, and the way of a request from a listener to its
 * handler. Thread: the loop thread. */
#ifndef BATON_INSTANCE_INST_ROUTES_H
#define BATON_INSTANCE_INST_ROUTES_H

#include "common/instance/instance.h"
#include "common/net/dispatch.h"

struct json_value;

/* The routes beside the inference paths (proto/api.h); ends with a row whose path is NULL.
 * Handlers' arg is the instance. */
extern const struct route
    inst_info_routes[]; /* inst_routes.c: model information, status, role, stop */
extern const struct route inst_health_routes[]; /* inst_health.c */

/* From a request to its handler, for every listener; valid as long as *in. */
struct dispatch inst_dispatch(struct instance *in);

/* STOP and not-yet-running, as most management routes ask first (cluster-api 3 "Guard"). True: x
 * was answered. */
bool inst_guard(struct instance *in, struct http_x *x);
void inst_reply_json(struct http_x *x, int status, char *body); /* frees body; NULL: 500 */
void inst_reply_tree(struct http_x *x, struct json_value *o);   /* 200; takes o; NULL: 500 */
void inst_reply_wrapped(struct http_x *x, int status, const char *text);

#endif
