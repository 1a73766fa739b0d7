/* router: method and path to a row of a route table. Pure.
 * A pattern is literal segments and `{m}` (one segment, [A-Za-z0-9_.-]+, bound to params.model) or
 * `{*}` (the rest of the path, bound to params.rest). A table ends with a row whose path is NULL.
 */
#ifndef BATON_NET_ROUTER_H
#define BATON_NET_ROUTER_H

#include <stdbool.h>
#include <stddef.h>

struct http_x;

struct route_params {
    char model[257]; /* "" when the pattern has no {m} */
    char rest[1025]; /* "" when the pattern has no {*} */
};

typedef void route_fn(void *arg, struct http_x *x, const struct route_params *p);

/* Five are no planes but marks of rows. PLANE_LIMITED: also for clients of a limited certificate
 * (dispatch.h). PLANE_OPEN: needs no key on the data plane. PLANE_GRPC: a method of gRPC;
 * PLANE_MANY: whose client streams too, each message of which is a request (grpc_many.h).
 * PLANE_LINKED: a page that a link of another site may open, not read (dispatch.h). */
enum {
    PLANE_DATA = 1,
    PLANE_MGMT = 2,
    PLANE_METRICS = 4,
    PLANE_STATUS = 8,
    PLANE_LIMITED = 16,
    PLANE_OPEN = 32,
    PLANE_GRPC = 64,
    PLANE_MANY = 128,
    PLANE_LINKED = 256
};

struct route {
    unsigned planes; /* PLANE_* bits on which the row is served */
    const char *method;
    const char *path;
    route_fn *fn;
    size_t body_bytes_max;
};

struct route_match {
    const struct route *row; /* NULL: no such path, or the method is wrong */
    bool path_known;         /* some method of this path exists on these planes */
    unsigned planes;         /* of all rows of a known path, PLANE_OPEN too */
    char allow[64];          /* "GET, HEAD": methods of a known path */
    struct route_params params;
};

/* Walks the tables (a NULL-terminated array) in order. HEAD matches a GET row. */
void router_find(struct route_match *out, const struct route *const *tables, unsigned planes,
                 const char *method, const char *path);

#endif
