/* ha: a coordinator among several, of which one leads (cluster-api 9). Who leads runs the
 * controller and takes requests; the others stand by: they poll nothing, give no orders, and say
 * who leads. Without backup_config the only coordinator leads, always. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_HA_H
#define BATON_COORDINATOR_HA_H

#include <stdbool.h>
#include "proto/err.h"

struct coordinator;
struct http_x;
struct json_value;

#define LEADER_HEADER "x-baton-leader" /* on answers of one that stands by */

/* Reads what the configuration names, and resolves etcd's names, before the loop runs. *co->ha
 * stays NULL where backup_config is off. ERR_BAD_CONFIG: eb names the setting. */
enum err ha_open(struct coordinator *co, struct errbuf *eb);
/* Makes co->store and stands for election; co has its loop and its client. */
enum err ha_start(struct coordinator *co, struct errbuf *eb);
void ha_close(struct coordinator *co); /* and co->store */

/* May give orders and take requests now; looks at the clock. */
bool coord_leads(const struct coordinator *co);
/* Something obeys a coordinator of a higher term: one that leads without a lease yields to it. */
void ha_superseded(struct coordinator *co, const char *why);
/* Whether all that runs could go on at another coordinator, which has a copy of it, so that the
 * lead may be given away with requests under way. */
bool ha_can_hand_on(const struct coordinator *co);
/* x, whose answer ends here, goes to whoever leads next (to_leader_park()). */
bool ha_park(struct coordinator *co, struct http_x *x, const char *last, bool begun);
/* How many wait for that, or are passed on; those that wait are tried again. */
unsigned ha_handed_on(struct coordinator *co);
/* Gives the lead away for good, ends what still runs, and then calls fn(co). */
void ha_leave(struct coordinator *co, void (*fn)(void *co));

/* Where the leader gives its journal to others; "": nobody leads, or it is not said. */
const char *ha_leader_management(const struct coordinator *co);
/* GET JOURNAL_PATH. Takes x. */
void ha_serve_journal(struct coordinator *co, struct http_x *x);
/* Why it does not serve, when it does not lead; valid until the next call. */
const char *ha_standby_text(const struct coordinator *co);
/* 503 `standby`, with the leader's address. */
void ha_reply_standby(struct coordinator *co, struct http_x *x);
/* What a client asks of one that stands by: passed on to the leader where the configuration says so
 * (to_leader.h), else the 503. */
void ha_stand_by(struct coordinator *co, struct http_x *x);
/* Of GET /v2/status; NULL: it is the only one. The caller's. */
struct json_value *ha_status(const struct coordinator *co);

#endif
