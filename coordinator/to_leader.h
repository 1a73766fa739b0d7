/* to_leader: a coordinator that stands by passes what clients ask on to the one that leads
 * (pd.ha_standby_relays), and its answer back as it comes; one that leads and stops in a planned
 * way does the same with what runs there (docs/high-availability.md). It keeps nothing of them: the
 * body is the exchange's until it is answered, and an answer waits for its client in the exchange
 * alone.
 *
 * Only once: what another coordinator has passed on is not passed on again. Calls of gRPC are not,
 * nor is anything of the management plane. Where the leader is lost before its answer has begun the
 * client gets 503 `standby`, and behind that a broken connection. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_TO_LEADER_H
#define BATON_COORDINATOR_TO_LEADER_H

#include <stdbool.h>
#include "proto/err.h"

struct coordinator;
struct http_x;
struct to_leader;

#define RELAYED_HEADER "x-baton-relayed" /* on requests that one that stands by passes on */

/* co has its loop and its client, and lives longer. ERR_NO_MEMORY. */
enum err to_leader_open(struct to_leader **out, struct coordinator *co);
/* The listeners are closed. NULL is fine. */
void to_leader_close(struct to_leader **t);

/* leader: "10.0.0.1:1025", "[::1]:1025". True: x is taken, and is answered. False: it is none that
 * is passed on, or cannot be; x is as it was. t may be NULL. */
bool to_leader_pass(struct to_leader *t, struct http_x *x, const char *leader);
/* What this one, which led, does not answer to its end any more: whoever leads next gets it when
 * to_leader_go() says who that is, and the client the rest. last: id of the last event that the
 * client has; "": none. begun: the head of its answer is out. Takes x. False: x cannot go on so,
 * and is as it was. */
bool to_leader_park(struct to_leader *t, struct http_x *x, const char *last, bool begun);
/* Those that are parked, to that one. Again and again, since it may not be ready yet. */
void to_leader_go(struct to_leader *t, const char *leader);
/* Whether x may be parked. */
bool to_leader_may_park(const struct to_leader *t, struct http_x *x);
/* How many are under way. */
unsigned to_leader_count(const struct to_leader *t);

#endif
