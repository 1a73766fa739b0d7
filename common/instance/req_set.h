/* req_set: the requests of an instance, in whatever role it serves them: who they are, the limits
 * of their time, and their end.
 *
 * Each kind of request (req_kind) is one role's: that role holds the rest of it and knows how its
 * client is answered. What is the same for all is here, once: they are found and stopped by id,
 * looked through by one timer, counted, given up together, and logged when they end.
 *
 * Limits of time (inference-api 4.8), by this process's own clock: an answer that does not stream
 * has min(timeout, tokenTimeout, e2eTimeout) from its arrival; a stream has `timeout` and
 * tokenTimeout for each wait for the next token, e2eTimeout for the whole. What earlier attempts
 * took counts: the arrival is that of the first.
 *
 * Thread: the loop thread. */
#ifndef BATON_INSTANCE_REQ_SET_H
#define BATON_INSTANCE_REQ_SET_H

#include "common/instance/req_meter.h"
#include "common/instance/req_seq.h"
#include "common/instance/role.h"
#include "proto/cause.h"

struct inst_req;
struct req_set;
struct instance;

enum req_phase { REQ_WAITING, REQ_RUNNING, REQ_LEASED }; /* as struct role_load counts them */

struct req_kind {
    const char *area;           /* of its log lines */
    enum inst_role role;        /* whose it is */
    enum cause stopping, ended; /* why it is given up: the instance stops, or anything else */
    int late_status;            /* of an answer whose time is over */
    const char *late_text;      /* NULL: the text that names the limit */
    /* Ends it with an error, whatever its state. */
    void (*fail)(struct inst_req *r, enum cause cause, int status, const char *text);
    /* Ends it as its client asked: the normal end of an answer, finish reason abort. */
    void (*stop)(struct inst_req *r);
    enum req_phase (*phase)(const struct inst_req *r);
    /* NULL: always. Whether its time is watched here, and not by whoever handed it over. */
    bool (*is_timed)(const struct inst_req *r);
    /* NULL: nothing. A look now and then, while its time is not over; may end it. */
    void (*look)(struct inst_req *r, uint64_t now_ms);
};

/* The part that all kinds have in common, first in theirs. */
struct inst_req {
    struct inst_req *next, **at;
    struct req_set *set; /* NULL: it has ended */
    const struct req_kind *kind;
    const char *id, *tenant; /* its owner's; live as long as it is in the set */
    uint32_t epoch;
    const struct infer_req *req; /* NULL until its body is read */
    uint64_t arrival_ms;         /* of the first attempt, as this process's clock_ms() */
    uint64_t last_token_ms;      /* or when this attempt came */
    struct req_meter meter;
};

enum err req_set_create(struct req_set **out, struct instance *in);
void req_set_destroy(struct req_set **s); /* after the worker; no request is in it */
struct req_seqs *req_set_seqs(struct req_set *s);

/* Called after each look at all requests (every 250 ms). One at a time; fn NULL: none. */
typedef void req_set_fn(void *arg, uint64_t now_ms);
void req_set_on_scan(struct req_set *s, req_set_fn *fn, void *arg);

/* kind, id, tenant, epoch are set; begins its clocks. */
void req_begin(struct req_set *s, struct inst_req *r);
/* The only end: the meter's, unless it has ended already, and that of its place in the set, with a
 * log line that ends with fmt. Does nothing the second time. */
void req_end(struct inst_req *r, enum req_end how, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The one of the kind (NULL: of any) after r (NULL: the first). NULL: there is none. */
struct inst_req *req_set_next(const struct req_set *s, const struct req_kind *kind,
                              const struct inst_req *r);
/* Whether that attempt of the request is under way in the role. */
bool req_set_has(const struct req_set *s, enum inst_role role, const char *id, uint32_t epoch);
/* Whether an older attempt of the request is under way in the role. */
bool req_set_has_older(const struct req_set *s, enum inst_role role, const char *id,
                       uint32_t epoch);
/* The newest of its kind with this internal id. NULL: none. */
struct inst_req *req_set_find(const struct req_set *s, const struct req_kind *kind, const char *id);
/* Another one than but (NULL: any) of the kind and the tenant's owner (NULL: anybody's), by its own
 * id or its client's. Attempts with a higher epoch are not meant. */
struct inst_req *req_set_find_named(const struct req_set *s, const struct req_kind *kind,
                                    const struct inst_req *but, const char *id, const char *tenant,
                                    uint32_t epoch);
/* stopInfer: ends those of any kind that are meant. False: there is none. epoch UINT32_MAX: any. */
bool req_set_stop(struct req_set *s, const char *id, const char *tenant, uint32_t epoch);
/* Gives up those of a role (ROLE_NONE: of all); the load is zero soon after. */
void req_set_abort(struct req_set *s, enum inst_role role, enum err why);
/* Of a role, ROLE_NONE: of all; what is still winding down is counted with all. */
void req_set_load(const struct req_set *s, enum inst_role role, struct role_load *out);

/* Which limit is over. Pure. */
enum req_limit { LIMIT_NONE, LIMIT_CLIENT, LIMIT_TOKEN, LIMIT_E2E };
enum req_limit req_limit_over(const struct inst_req *r, int64_t token_timeout_s,
                              int64_t e2e_timeout_s, uint64_t now_ms);

#endif
