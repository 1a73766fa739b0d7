/* alarm_send: tells a receiver of every alarm and of its end (`pd.alarm_url`; cluster-api 6.7): a
 * POST each of an array with one object, the one that GET /v1/alarms shows, in their order, one at
 * a time. Any status 2xx takes it, whatever the rest of the answer is. A receiver that is away, is
 * busy (408, 429) or fails (5xx) is tried again after a second, then after twice as long each time,
 * up to a minute; any other status refuses that alarm alone. What waits is the ring of alarms.h:
 * those it forgets before they were taken are lost. Refused and lost ones are counted
 * (BUDGET_ALARMS).
 *
 * Thread: the loop thread. */
#ifndef BATON_COORDINATOR_ALARM_SEND_H
#define BATON_COORDINATOR_ALARM_SEND_H

#include <stdint.h>
#include "proto/err.h"

enum { ALARM_AGAIN_MS = 1000, ALARM_AGAIN_MS_MAX = 60000, ALARM_TIMEOUT_MS = 5000 };

struct alarm_send;
struct alarms;
struct budget;
struct http_client;
struct tls;

struct alarm_send_opts {
    const struct alarms *alarms;
    struct http_client *client;
    struct budget *budget; /* may be NULL */
    const char *url;       /* "http://10.0.0.9:1027/alarms"; lent */
    struct tls *tls;       /* for https */
};

/* All are lent for as long as it lives; it sends alarms that come from now on. */
enum err alarm_send_create(struct alarm_send **out, const struct alarm_send_opts *o);
void alarm_send_destroy(struct alarm_send **s);              /* before the client. NULL is fine */
void alarm_send_tick(struct alarm_send *s, uint64_t now_ms); /* NULL: nothing happens */
/* From when on the next may be sent (clock_ms(); 0: at once); UINT64_MAX while one is under way. */
uint64_t alarm_send_due_ms(const struct alarm_send *s);

#endif
