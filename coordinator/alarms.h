/* alarms: what operators are to know, in the reference's form (cluster-api 6.7): a ring of the
 * newest ALARMS_MAX, read with GET /v1/alarms, and a line of the log each. One that stands is not
 * raised again before it was cleared; clearing is an entry of its own. What stands is kept apart
 * from the ring, by who the instance is, whatever its name becomes. Names and texts may be any
 * bytes: they are shown as UTF-8, U+FFFD where they are not, cut between characters. Thread: the
 * loop thread. */
#ifndef BATON_COORDINATOR_ALARMS_H
#define BATON_COORDINATOR_ALARMS_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

enum { ALARMS_MAX = 1024, ALARM_TEXT_BYTES = 160, ALARM_WHO_BYTES = 64 };

/* Situations; two may share the id of the reference's table, and differ in their reasonId. */
enum alarm {
    ALARM_SUPERSEDED,     /* 0xFC001000: instances obey another coordinator */
    ALARM_DEGRADED,       /* 0xFC001001: a role has lost its last instance; others fill it */
    ALARM_MODEL_INSTANCE, /* 0xFC001002: an instance answers, and does not work in its role */
    ALARM_INSTANCE,       /* 0xFC001003: an instance is lost (enum alarm_lost) */
    ALARM_COORDINATOR,    /* 0xFC001004, 1: no P, or no D */
    ALARM_STATE,          /* 0xFC001004, 2: the coordinator cannot keep its state */
    ALARM_CONGESTION,     /* 0xFC001005, an event: more requests than 85 % of max_requests */
    ALARM_RANK_TABLE,     /* 0xFC001006, 2: the rank table cannot be read */
    ALARM_CONNECTION,     /* 0xFC001007: requests to an instance fail, or its results stay away */
    ALARM_ENGINE,         /* 0xFC001008, 4: an engine does not get on */
    ALARM_KV_LINK,        /* 0xFC001008, 3: no KV comes over a link */
    ALARM_KINDS
};
/* reasonId of ALARM_INSTANCE. */
enum alarm_lost { ALARM_LOST_NO_REPLY = 1, ALARM_LOST_ERROR_STATUS, ALARM_LOST_REBOOT };

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
/* Raises or clears by whether it is so now. */
void alarms_set(struct alarms *a, enum alarm which, const struct alarm_of *of, bool on, int reason,
                const char *info);
/* Nobody misses the instance: clears what stands of it. */
void alarms_forget(struct alarms *a, const struct alarm_of *of);
/* Newest first: an array, the caller's. */
struct json_value *alarms_json(const struct alarms *a);
/* How many entries there ever were; the i-th of them from 0, the caller's (NULL: no memory, or the
 * ring has forgotten it). */
uint64_t alarms_count(const struct alarms *a);
struct json_value *alarms_at(const struct alarms *a, uint64_t i);

#endif
