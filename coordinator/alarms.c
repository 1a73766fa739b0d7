/* alarms: what stands, and a ring of what was raised and cleared. */
#include "coordinator/alarms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/json.h"

enum { CATEGORY_ALARM = 1, CATEGORY_EVENT = 2, SEVERITY_CRITICAL = 1, SEVERITY_MAJOR = 2 };

static const struct kind {
    const char *id, *name, *cause;
    int category, severity;
    bool affects_service;
} kinds[ALARM_KINDS] = {
    [ALARM_SUPERSEDED] = {"0xFC001000", "Controller master became standby",
                          "another coordinator has the instances", CATEGORY_ALARM, SEVERITY_MAJOR,
                          true},
    [ALARM_DEGRADED] = {"0xFC001001", "Service level degraded", "instance reduction",
                        CATEGORY_ALARM, SEVERITY_MAJOR, false},
    [ALARM_MODEL_INSTANCE] = {"0xFC001002", "Model instance exception",
                              "an instance does not get ready", CATEGORY_ALARM, SEVERITY_MAJOR,
                              false},
    [ALARM_INSTANCE] = {"0xFC001003", "Server exception", "an instance does not work",
                        CATEGORY_ALARM, SEVERITY_MAJOR, false},
    [ALARM_COORDINATOR] = {"0xFC001004", "Coordinator exception", "no P or no D", CATEGORY_ALARM,
                           SEVERITY_CRITICAL, true},
    [ALARM_STATE] = {"0xFC001004", "Coordinator exception", "the state folder", CATEGORY_ALARM,
                     SEVERITY_CRITICAL, false},
    [ALARM_CONGESTION] = {"0xFC001005", "Request congestion", "more than 85 % of max_requests",
                          CATEGORY_EVENT, SEVERITY_MAJOR, true},
    [ALARM_RANK_TABLE] = {"0xFC001006", "Cluster service connection exception", "the rank table",
                          CATEGORY_ALARM, SEVERITY_MAJOR, false},
    [ALARM_CONNECTION] = {"0xFC001007", "Coordinator to P/D connection exception",
                          "requests or results fail", CATEGORY_ALARM, SEVERITY_MAJOR, false},
    [ALARM_ENGINE] = {"0xFC001008", "LLM engine fault", "an engine stands still", CATEGORY_ALARM,
                      SEVERITY_MAJOR, false},
    [ALARM_KV_LINK] = {"0xFC001008", "LLM engine fault", "KV does not come over a link",
                       CATEGORY_ALARM, SEVERITY_MAJOR, false},
};

struct entry {
    enum alarm which;
    bool cleared;
    int reason;
    int64_t at_ms; /* Unix */
    char moi[ALARM_TEXT_BYTES], info[ALARM_TEXT_BYTES];
};

struct standing {
    enum alarm which;
    int reason;
    char who[ALARM_WHO_BYTES]; /* "": the coordinator */
};

struct alarms {
    char location[ALARM_TEXT_BYTES];
    struct standing *standing;
    size_t n_standing, standing_cap;
    uint64_t n; /* ever written */
    struct entry ring[ALARMS_MAX];
};

enum err alarms_create(struct alarms **out, const char *ip) {
    struct alarms *a = calloc(1, sizeof(*a));
    *out = a;
    if (a == NULL) return ERR_NO_MEMORY;
    snprintf(a->location, sizeof(a->location), "service name=Coordinator, service ip=%s", ip);
    return ERR_OK;
}

void alarms_destroy(struct alarms **a) {
    if (*a != NULL) free((*a)->standing);
    free(*a);
    *a = NULL;
}

static const char *who(const struct alarm_of *of) {
    return of != NULL ? of->who : "";
}

static struct standing *find(const struct alarms *a, enum alarm which, const struct alarm_of *of) {
    for (size_t i = 0; i < a->n_standing; i++)
        if (a->standing[i].which == which && strcmp(a->standing[i].who, who(of)) == 0)
            return &a->standing[i];
    return NULL;
}

static void stand(struct alarms *a, enum alarm which, const struct alarm_of *of, int reason) {
    if (a->n_standing == a->standing_cap) {
        const size_t cap = a->standing_cap * 2 + 16;
        struct standing *more = realloc(a->standing, cap * sizeof(*more));
        if (more == NULL) return;
        a->standing = more;
        a->standing_cap = cap;
    }
    struct standing *s = &a->standing[a->n_standing++];
    *s = (struct standing){.which = which, .reason = reason};
    snprintf(s->who, sizeof(s->who), "%s", who(of));
}

static void put_moi(char dst[ALARM_TEXT_BYTES], const struct alarm_of *of) {
    char name[81], address[25];
    buf_copy_text(name, sizeof(name), of->name, strlen(of->name));
    buf_copy_text(address, sizeof(address), of->address, strlen(of->address));
    snprintf(dst, ALARM_TEXT_BYTES, "service name=%s, service ip=%s", name, address);
}

static void add(struct alarms *a, enum alarm which, const struct alarm_of *of, bool cleared,
                int reason, const char *info) {
    struct entry *e = &a->ring[a->n++ % ALARMS_MAX];
    *e = (struct entry){.which = which,
                        .cleared = cleared,
                        .reason = reason,
                        .at_ms = (int64_t)(clock_unix_us() / 1000)};
    if (of != NULL)
        put_moi(e->moi, of);
    else
        memcpy(e->moi, a->location, sizeof(e->moi));
    buf_copy_text(e->info, sizeof(e->info), info, strlen(info));
    log_warn("alarm", "id=%s event=%s name=\"%s\" of=\"%s\" reason=%d detail=\"%s\"",
             kinds[which].id, cleared ? "cleared" : "raised", kinds[which].name, e->moi, reason,
             e->info);
}

void alarms_raise(struct alarms *a, enum alarm which, const struct alarm_of *of, int reason,
                  const char *info) {
    if (a == NULL || find(a, which, of) != NULL) return;
    stand(a, which, of, reason);
    add(a, which, of, false, reason, info);
}

void alarms_clear(struct alarms *a, enum alarm which, const struct alarm_of *of) {
    struct standing *s = a != NULL ? find(a, which, of) : NULL;
    if (s == NULL) return;
    add(a, which, of, true, s->reason, "");
    *s = a->standing[--a->n_standing];
}

void alarms_set(struct alarms *a, enum alarm which, const struct alarm_of *of, bool on, int reason,
                const char *info) {
    if (on)
        alarms_raise(a, which, of, reason, info);
    else
        alarms_clear(a, which, of);
}

void alarms_forget(struct alarms *a, const struct alarm_of *of) {
    for (int which = 0; which < ALARM_KINDS; which++) alarms_clear(a, (enum alarm)which, of);
}

/* ---- shown */

static int64_t local_ms(int64_t unix_ms) {
    const time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;
    return localtime_r(&s, &tm) != NULL ? unix_ms + tm.tm_gmtoff * 1000 : unix_ms;
}

static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}
static void add_i64(struct json_value *o, const char *key, int64_t v) {
    json_obj_set(o, key, json_new_i64(v));
}

static struct json_value *entry_json(const struct alarms *a, const struct entry *e) {
    const struct kind *k = &kinds[e->which];
    struct json_value *o = json_new_obj();
    add_i64(o, "category", k->category);
    add_i64(o, "cleared", e->cleared);
    add_i64(o, "clearCategory", 1);
    add_i64(o, "occurUtc", e->at_ms);
    add_i64(o, "occurTime", local_ms(e->at_ms));
    add_str(o, "nativeMeDn", "");
    add_str(o, "originSystem", "MindIE");
    add_str(o, "originSystemName", "MindIE");
    add_str(o, "originSystemType", "MindIE");
    add_str(o, "location", a->location);
    add_str(o, "moi", e->moi);
    add_i64(o, "eventType", 1);
    add_str(o, "alarmId", k->id);
    add_str(o, "alarmName", k->name);
    add_i64(o, "severity", k->severity);
    add_str(o, "probableCause", k->cause);
    add_i64(o, "reasonId", e->reason);
    add_i64(o, "serviceAffectedType", k->affects_service);
    add_str(o, "additionalInformation", e->info);
    return o;
}

uint64_t alarms_count(const struct alarms *a) {
    return a->n;
}

struct json_value *alarms_at(const struct alarms *a, uint64_t i) {
    return i < a->n && a->n - i <= ALARMS_MAX ? entry_json(a, &a->ring[i % ALARMS_MAX]) : NULL;
}

struct json_value *alarms_json(const struct alarms *a) {
    struct json_value *arr = json_new_arr();
    for (uint64_t i = a != NULL ? a->n : 0; i > 0 && i + ALARMS_MAX > a->n; i--)
        json_arr_add(arr, entry_json(a, &a->ring[(i - 1) % ALARMS_MAX]));
    return arr;
}
