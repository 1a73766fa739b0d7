/* http_gate: what all listeners of a daemon share, so that no client can take what every other
 * needs: room for request bodies, room for bytes that wait on connections, places of an address,
 * descriptors, and the loop's time for TLS handshakes. The limits are rows of the budget.
 *
 * Bodies:   a known length is taken when the head has come, a chunked body as it grows; all of it
 *   is given back with the exchange. When there is no room, bodies that
 *   have been under way for more than two seconds give way, oldest first. The last eighth of the
 *   room is for bodies of at most 64 KiB, so that a few large ones do not shut out the many.
 * Waiting:  over the limit, connections that hold more than their part of it and have been slow for
 *   two seconds are closed; when that does not help, new requests get 503.
 * Places:   a listener that is full closes its oldest idle connection for a new one, then those
 *   whose head or handshake, then those whose reader is slow.
 * Thread:   the loop thread. */
#ifndef BATON_NET_HTTP_GATE_H
#define BATON_NET_HTTP_GATE_H

#include "common/base/budget.h"
#include "common/base/limits_conf.h"
#include "common/net/http_server.h"

struct http_gate;

/* budget is borrowed; NULL: no limits. */
enum err http_gate_create(struct http_gate **out, struct loop *loop, struct budget *budget);
/* After its servers are closed and every exchange has ended. NULL is fine. */
void http_gate_destroy(struct http_gate **g);

/* The rows of the budget that are kept here. conns_max: connections of the user plane; streams_max:
 * its requests of HTTP/2 at once, which need no descriptor each; control_max: connections of all
 * other planes together. */
void http_gate_limits(struct budget *b, const struct limits_conf *l, unsigned conns_max,
                      unsigned streams_max, unsigned control_max);
/* Gate and deadlines of a listener's options. */
void http_gate_options(struct http_server_opts *o, struct http_gate *g,
                       const struct limits_conf *l);

#endif
