/* alarms: what operators are to know, in the reference's form (cluster-api 6.7): a ring of the
 * newest ALARMS_MAX, read with GET /v1/alarms, and a line of the log each. One that stands is not
 * raised again before it was cleared; clearing is an entry of its own. What stands is kept apart
 * from the ring, by who the instance is, whatever its name becomes. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_ALARMS_H
#define BATON_COORDINATOR_ALARMS_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

enum { ALARMS_MAX = 1024, ALARM_TEXT_BYTES = 160, ALARM_WHO_BYTES = 64 };

enum alarm {
    ALARM_DEGRADED,    /* 0xFC001001: a role has lost its last instance; others fill it */
    ALARM_INSTANCE,    /* 0xFC001003: an instance is lost */
    ALARM_COORDINATOR, /* 0xFC001004: no P, or no D */
    ALARM_CONGESTION,  /* 0xFC001005, an event: more requests than 85 % of max_requests */
    ALARM_KINDS
};

struct alarms;
struct json_value;

/* ip: of the coordinator, for its location. */
enum err alarms_create(struct alarms **out, const char *ip);
void alarms_destroy(struct alarms **a);

/* An instance that one is about. who: what it is for as long as it is known, at most
 * ALARM_WHO_BYTES - 1; name and address: shown. Lent. */
struct alarm_of {
    const char *who, *name, *address;
};

/* of NULL: the coordinator. reason: reasonId of the table. a NULL: nothing happens. Without memory
 * an alarm does not stand: it may be raised again, and is not cleared. */
void alarms_raise(struct alarms *a, enum alarm which, const struct alarm_of *of, int reason,
                  const char *info);
void alarms_clear(struct alarms *a, enum alarm which, const struct alarm_of *of);
/* Raises or clears by whether it stands now. */
void alarms_set(struct alarms *a, enum alarm which, bool on, int reason, const char *info);
/* Newest first: an array, the caller's. */
struct json_value *alarms_json(const struct alarms *a);

#endif
