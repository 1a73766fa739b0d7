/* alarm_send: a cursor in the ring, and the call that is under way. */
#include "coordinator/alarm_send.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/http_client.h"
#include "coordinator/alarms.h"
#include "coordinator/send_again.h"
#include "proto/json.h"

struct alarm_send {
    struct alarm_send_opts o;
    struct http_call *call;
    uint64_t next; /* number of the one to be sent, or under way */
    struct send_again again;
};

enum err alarm_send_create(struct alarm_send **out, const struct alarm_send_opts *o) {
    struct alarm_send *s = calloc(1, sizeof(*s));
    *out = s;
    if (s == NULL) return ERR_NO_MEMORY;
    s->o = *o;
    s->again = (struct send_again){.area = "alarm",
                                   .url = o->url,
                                   .first_ms = ALARM_AGAIN_MS,
                                   .longest_ms = ALARM_AGAIN_MS_MAX};
    s->next = alarms_count(o->alarms);
    return ERR_OK;
}

void alarm_send_destroy(struct alarm_send **sp) {
    if (*sp != NULL) http_call_cancel(&(*sp)->call);
    free(*sp);
    *sp = NULL;
}

static void send_next(struct alarm_send *s, uint64_t now_ms);

static void on_done(void *arg, const struct http_result *r) {
    struct alarm_send *s = arg;
    s->call = NULL;
    if (r->status < 200 || r->status == 408 || r->status == 429 || r->status >= 500) {
        send_again_later(&s->again, r);
        return;
    }
    if (r->status >= 300) budget_refused(s->o.budget, BUDGET_ALARMS);
    send_again_done(&s->again, r, 0);
    s->next++;
    send_next(s, clock_ms());
}

/* The ring has gone over those that waited longest. */
static void skip_lost(struct alarm_send *s) {
    while (alarms_count(s->o.alarms) - s->next > ALARMS_MAX) {
        budget_refused(s->o.budget, BUDGET_ALARMS);
        s->next++;
    }
}

static void send_next(struct alarm_send *s, uint64_t now_ms) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    if (s->call != NULL || now_ms < s->again.not_before_ms) return;
    skip_lost(s);
    if (s->next == alarms_count(s->o.alarms)) return;
    struct json_value *arr = json_new_arr(); /* with one object */
    json_arr_add(arr, alarms_at(s->o.alarms, s->next));
    size_t n = 0;
    const char *body = json_to_text(arr, JSON_COMPACT, &n);
    const struct http_call_opts o = {.method = "POST",
                                     .url = s->o.url,
                                     .headers = headers,
                                     .body = body,
                                     .body_len = n,
                                     .connect_ms = ALARM_TIMEOUT_MS,
                                     .total_ms = ALARM_TIMEOUT_MS,
                                     .body_bytes_max = 1 << 16,
                                     .tls = s->o.tls,
                                     .on_done = on_done,
                                     .arg = s};
    const enum err e = body != NULL ? http_client_call(s->o.client, &o, &s->call) : ERR_NO_MEMORY;
    json_put(arr);
    if (e != ERR_OK) send_again_later(&s->again, &(struct http_result){.err = e});
}

void alarm_send_tick(struct alarm_send *s, uint64_t now_ms) {
    if (s != NULL) send_next(s, now_ms);
}

uint64_t alarm_send_due_ms(const struct alarm_send *s) {
    return s->call != NULL ? UINT64_MAX : s->again.not_before_ms;
}
