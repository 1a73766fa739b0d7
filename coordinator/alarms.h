/* alarms: what operators are to know, in the reference's form (cluster-api 6.7): a ring of the
 * newest ALARMS_MAX, read with GET /v1/alarms, and a line of the log each. One that stands is not
 * raised again before it was cleared; clearing is an entry of its own. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_ALARMS_H
#define BATON_COORDINATOR_ALARMS_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

enum { ALARMS_MAX = 1024, ALARM_TEXT_BYTES = 160 };

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

/* of: what it is about, an instance's name and address, or NULL: the coordinator. reason: reasonId
 * of the table. a NULL: nothing happens. */
void alarms_raise(struct alarms *a, enum alarm which, const char *of, const char *address,
                  int reason, const char *info);
void alarms_clear(struct alarms *a, enum alarm which, const char *of, const char *address);
/* Raises or clears by whether it stands now. */
void alarms_set(struct alarms *a, enum alarm which, bool on, int reason, const char *info);
/* Newest first: an array, the caller's. */
struct json_value *alarms_json(const struct alarms *a);

#endif
