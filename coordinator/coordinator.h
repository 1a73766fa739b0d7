/* coordinator: the one door of a cluster. Joins registry, controller, result streams, requests and
 * listeners on one loop. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_COORDINATOR_H
#define BATON_COORDINATOR_COORDINATOR_H

#include "common/base/budget.h"
#include "common/base/heap.h"
#include "common/net/api_keys.h"
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "common/net/dispatch.h"
#include "coordinator/alarms.h"
#include "coordinator/cluster_files.h"
#include "coordinator/coord_conf.h"
#include "coordinator/coord_tls.h"
#include "proto/api.h"
#include "coordinator/registry.h"
#include "coordinator/schedule.h"
#include "coordinator/store.h"

struct relay_set;
struct json_value;
struct coord_lora;
struct health_timed;
struct grpc_health;
struct http_gate;
struct kept_service;
struct recorder;
struct alarms;
struct access_log;
struct otlp;
struct alarm_send;
struct ha;
struct console;
struct journal;
struct journal_feed;
struct journal_follow;

enum { LISTENERS_MAX = 4 };

struct coordinator {
    struct coord_conf conf;
    struct coord_tls tls;
    struct budget budget;
    struct heap_pages pages;
    struct http_gate *gate;      /* of all listeners */
    unsigned conns_max;          /* of the user plane */
    uint64_t descriptors_wanted; /* for these and everything else */
    struct api_keys *keys;       /* of the user plane; NULL: none are asked for */
    struct cred_watch *creds;    /* keeps tls and keys fresh */
    struct schedule_conf sched;
    struct loop *loop;
    struct http_client *client;
    struct registry reg;
    struct store *store;           /* of the plan and the term */
    bool store_failed;             /* its last write, which is logged */
    struct ha *ha;                 /* one of several coordinators (ha.h); NULL: the only one */
    struct coord_metrics *metrics; /* NULL: nothing is counted (coord_metrics.h) */
    struct journal *journal;       /* NULL: clients may not come back (journal.h) */
    struct journal_feed *feed;     /* NULL: nobody may have a copy of it */
    struct journal_follow *follow; /* NULL: the same */
    struct console *console;       /* NULL: nothing is remembered (console.h) */
    struct alarms *alarms;         /* NULL: none are kept (alarms.h) */
    struct otlp *otlp;             /* NULL: no traces are exported */
    struct access_log *access_log; /* NULL: none is written */
    struct alarm_send *alarm_send; /* NULL: they are sent to nobody (alarm_send.h) */
    struct recorder *recorder;     /* NULL: nothing is recorded (recorder.h) */
    struct dispatch_listener listeners[LISTENERS_MAX];
    int n_listeners;
    struct relay_set *relays;
    struct kept_service *kept;  /* answers that clients may come back to */
    struct coord_lora *loras;   /* adapters that every instance should have: lora.h */
    struct health_timed *timed; /* made when the first asks */
    struct grpc_health *grpc_health;
    struct discover *discover; /* NULL: no names are looked up */
    struct loop_timer *tick;   /* controller: polls, roles, rank table */
    uint64_t started_ms, next_table_ms;
    uint64_t next_poll_ms; /* when a round of polls begins; 0: in the next tick, with all at once */
    uint64_t round_ms;     /* when the last one began */
    size_t n_polled;       /* in it */
    uint64_t boot;         /* this process, at random */
    uint64_t term;      /* its rank among coordinators: instances obey the highest they have seen */
    uint64_t next_term; /* above it: its term once the store has it */
    bool roles_decided; /* first roles were given (plan.h) */
    bool was_ready;     /* in the controller's last tick */
    uint64_t unready_ms; /* the first tick in which it was not any more; 0: there was none */
    struct cluster_files files;
    bool published;             /* an instance has served, or a list of them was pushed */
    bool stands_by;             /* POST /backup_info: another coordinator takes the requests */
    uint64_t received_seen;     /* by the last GET /recvs_info */
    struct abilities abilities; /* what the instances have measured, together and by kind, */
    uint64_t learnt_ms;         /* as they said until then */
    /* the daily decision of roles: files, 0 where there are none; what it said, and when */
    struct digs_model digs_model;
    struct digs_machine digs_machine;
    struct digs_abilities digs;
    uint64_t decided_ms;
    bool stopping, leaving;  /* SIGTERM has come; the lead is being given away */
    bool handed, left;       /* requests went to whoever leads next; it has been given away */
    struct service *service; /* NULL: no service manager listens */
    struct loop_timer *stop_timer;
    uint64_t stop_until_ms;
};

/* ---- controller.c: who is there, what they say */
enum err controller_start(
    struct coordinator *co,
    struct errbuf *eb); /* reads the rank table; eb names what is wrong with it */
/* Knows no instance any more, and calls none. May be started again. */
void controller_stop(struct coordinator *co);
/* The same, for one that does not lead yet: reads the rank table and forgets it. */
enum err controller_check(const struct coordinator *co, struct errbuf *eb);
struct rank_table;
/* The file as it is now, empty where instances register: rank_table_free(). */
enum err controller_read_table(struct rank_table *t, const struct coordinator *co,
                               struct errbuf *eb);
/* It is there no more: all that is about it ends, and it with that. */
void controller_forget(struct coordinator *co, struct inst *in);
/* It is there, and has a role: opens its /dresult, to watch it and take in what it answers. */
void controller_listen(struct coordinator *co, struct inst *in);
/* Registers or renews an instance that announced itself (takes *node). NULL: no room. */
struct inst *controller_register(struct coordinator *co, struct node_conf *node);
bool controller_ready(const struct coordinator *co); /* a pair serves */
/* Models that only turn texts into vectors are all there is, and one of them serves. It needs no
 * pair: any instance does all of it, whatever its role. */
bool controller_embeds(const struct coordinator *co);
bool controller_serves(const struct coordinator *co); /* either: what probes ask */
/* It is, or is about to be: a pair that served until a moment ago lacks a stream or a link, an
 * instance is made to stand in for a role that is missing, or it shows in a moment whether one has
 * to. */
bool controller_admits(const struct coordinator *co);
void controller_poll_soon(
    struct coordinator *co); /* something happened: look at the instances in the next pass */
/* Asks one instance for its status now. */
void controller_look_now(struct coordinator *co, uint32_t id);
/* It is gone, or nobody can tell: its requests are given up there and go elsewhere. When it comes
 * back it gets a new session, and with that ends what it may still be at. */
void controller_instance_lost(struct coordinator *co, uint32_t id, enum alarm_lost how,
                              const char *why);
/* What its alarms are about; lent from it. */
struct alarm_of controller_alarm_of(const struct inst *in);

/* ---- planner.c: what they are to be */
/* Makes the next plan (plan.h) of what is known of the instances, and begins what is new in it. */
void planner_run(struct coordinator *co);
/* What plan_make() is shown, as it is now. ERR_NO_MEMORY: *f is empty. */
struct planner_facts {
    struct plan plan;
    struct plan_conf conf;
    uint32_t *links;
};
enum err planner_facts(struct coordinator *co, struct planner_facts *f);
void planner_facts_free(struct planner_facts *f);
/* What the load needs, by what the instances say of themselves. */
void planner_needs(const struct coordinator *co, struct role_needs *out);
/* Says, and raises or clears the alarm, that an instance stands in for a role that has nobody left.
 */
void planner_stands_in(struct coordinator *co, struct inst *in, bool on);
/* Changes the role of an instance at run time: drains it, posts the role, relinks the group (7.5).
 * ERR_NOT_FOUND, ERR_CONFLICT (eb says why). */
enum err planner_switch(struct coordinator *co, uint32_t id, enum inst_role role, bool force,
                        struct errbuf *eb);
/* The same without doing it. */
enum err planner_may_switch(const struct coordinator *co, uint32_t id, enum inst_role role,
                            bool force, struct errbuf *eb);
/* Puts the plan, the orders and the term into the store. */
void planner_keep(struct coordinator *co);
/* A switch that did not come about in its time is off. */
void planner_end_late_switch(struct inst *in, uint64_t now_ms);
/* Another instance that could go on alone in the role of in. */
bool planner_has_other(const struct coordinator *co, const struct inst *in);
/* There is one, or somebody that would stand in for it. */
bool planner_can_spare(const struct coordinator *co, const struct inst *in);

/* ---- role_post.c: posts the role, its peers, or a switch, when the instance has other ones */
void role_post_if_needed(struct coordinator *co, struct inst *in);
void role_post_all(struct coordinator *co); /* to every instance, if needed */

/* ---- coord_routes.c */
/* From a request to its handler, for every listener; valid as long as *co. */
struct dispatch coord_dispatch(struct coordinator *co);
/* The coordinator's own error in the shape of the path's family, or as the reference's text
 * (errorFormat). */
void coord_reply_error(struct coordinator *co, struct http_x *x, int status, const char *text);
/* code: what OpenAI's shape of an error shows as `code`; NULL: the one that goes with the status.
 */
void coord_reply_error_code(struct coordinator *co, struct http_x *x, int status, const char *code,
                            const char *text);
enum error_style coord_error_style(const struct coordinator *co);
/* An instance's Content-Type as the coordinator says it, with the charset (inference-api 2.3); NULL
 * when it has none. */
const char *coord_media_type(const char *type);

/* Of a coordinator: a request would be taken now. */
bool coord_serves_anything(const void *co);
bool coord_has_model(const void *co, const char *name); /* some instance has it */
/* What the cluster serves; NULL: nobody has said it yet. */
const char *coord_model(const struct coordinator *co);

/* ---- coord_status.c */
void coord_reply_status(struct coordinator *co, struct http_x *x);
/* GET /debug/state: the same, with the process and where requests are; no text of a client. */
void coord_reply_state(struct coordinator *co, struct http_x *x);
void coord_reply_alarms(const struct coordinator *co, struct http_x *x);
/* Why it is not ready: [{"id","name","stage","detail"}..], one for each instance that does not
 * serve, and what that leaves missing. The caller's, as the next. */
struct json_value *coord_reasons(const struct coordinator *co);
/* How many instances of each role the load needs: {"prefill","decode"}. */
struct json_value *coord_needs(const struct coordinator *co);
/* "serving", the stage that is missing (inst_serves()), "draining" or "drained". */
const char *coord_instance_state(const struct inst *in);
/* What a 503 says while no pair serves: which role is missing (errorFormat "text": the reference's
 * words alone), or that another coordinator leads. Valid until the next call. */
const char *coord_not_ready(const struct coordinator *co);
void coord_reply_readiness(struct coordinator *co, struct http_x *x, bool with_reasons);

/* ---- plan_route.c: GET /v1/plan, what the planner would do and why */
void plan_route(struct coordinator *co, struct http_x *x);

/* ---- health_timed.c: one token on a pair within so many seconds */
void health_timed(struct coordinator *co, struct http_x *x, const char *seconds);
void health_timed_default(struct coordinator *co, struct http_x *x);
void health_timed_close(struct coordinator *co); /* before the listeners close */

/* ---- proxy.c: model information, tokenising, vectors and scores, answered by an instance. row
 * lives as long as the program; NULL: by one that decodes, on its management plane */
void proxy_to_instance(struct coordinator *co, struct http_x *x, const struct api_path *row);

#endif
