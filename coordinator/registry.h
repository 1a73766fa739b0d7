/* registry: the instances the coordinator knows: where they are, what they last said of themselves,
 * what is booked on them. No I/O. Thread: the loop thread. Pointers to instances live until
 * registry_remove(). */
#ifndef BATON_COORDINATOR_REGISTRY_H
#define BATON_COORDINATOR_REGISTRY_H

#include "coordinator/abilities.h"
#include "coordinator/alarm_watch.h"
#include "coordinator/breaker.h"
#include "coordinator/coord_conf.h"
#include "coordinator/drain.h"
#include "coordinator/inst_fsm.h"
#include "coordinator/ledger.h"
#include "coordinator/override.h"
#include "coordinator/plan.h"
#include "coordinator/prefix_book.h"
#include "coordinator/rate_meter.h"
#include "coordinator/refresh.h"
#include "coordinator/schedule.h"
#include "coordinator/store.h"
#include "proto/status_msg.h"

struct coordinator;
struct dresult_in;
struct http_call;

/* Of the link of a P to one D, once a request failed over it. */
struct link_breaker {
    uint32_t d_id;
    struct breaker b;
};

enum { INST_ADDRESS_BYTES = 24 };

/* Its /dresult (dresult_in.h). NONE: it is not a decode instance, and has none in another role. */
enum inst_stream { STREAM_DOWN, STREAM_UP, STREAM_NONE };

/* drain.c writes it. */
struct inst_drain {
    bool ordered;       /* by an operator */
    bool offline;       /* by a controller: drain_offline() */
    bool leaves;        /* it is forgotten when it is empty: drain_leave() */
    uint64_t term;      /* of the coordinator that said so last; 0: none has */
    enum drain_why why; /* DRAIN_NONE: it takes new work */
    bool empty;         /* nothing is left there */
    uint64_t move_at_ms;
};

/* What it last said, and what was seen of it. */
struct inst_facts {
    bool online;          /* /v1/config was answered in range */
    unsigned n_failures;  /* polls without answer, in a row */
    char last_error[128]; /* of the last failed poll or role post */
    uint64_t deserted_ms; /* since then the coordinator it obeys, another one, is away */
    uint64_t closed_ms;   /* since then it takes no new work (plan.h); 0: it does */
    bool roleless;        /* it lost the role that it had, and is not ready in it again */
    uint64_t rtt_us;      /* of a poll and its answer, as a mean of the last; 0: none was */
    uint64_t suspect_ms;  /* a request found it not serving then; 0: a later poll did not */
    bool links_down;      /* of its links; inst_links_heard() */
    struct config_msg config;
    struct status_msg status;
};

/* What it is to be. */
struct inst_plan {
    struct plan_place place;
    struct inst_override override;
    bool force;   /* the switch to place.next need not wait */
    bool at_once; /* nor need it, as it does both until what it has is done (stand_in.h) */
    bool both;    /* such a switch is over, and some of its old role may be left */
    uint64_t switch_until_ms, switch_began_us;
    uint64_t switched_ms;       /* when a switch was over; 0: none was */
    uint64_t shared_ms;         /* when its share changed; 0: it never did */
    uint64_t posted_hash;       /* of the role body it took last; 0: none */
    enum inst_role posted_role; /* as which */
    uint64_t unpair_at_ms;      /* stand_in.h; 0: nothing is left of that time */
};

struct inst {
    struct inst *next, *next_by_id;
    struct coordinator *co; /* for callbacks that get the instance only */
    uint32_t id;            /* written by registry.c alone, which finds it by it */
    bool kept_id;           /* what it has said of its id was heard: it is final */
    struct node_conf node;
    char address[INST_ADDRESS_BYTES];    /* of its business plane, "10.0.0.3:1025" */
    char identity[STORE_IDENTITY_BYTES]; /* its management address: who it is (store.h) */
    bool from_table;                     /* the rank table lists it; else it registered itself */
    struct inst_pushed pushed;           /* or a controller has pushed it */
    uint64_t lease_end_ms;               /* of a registration */
    uint64_t gone_since_ms;              /* 0, or when it left the table */

    struct inst_fsm life; /* inst_step() writes it */

    struct inst_facts facts;
    struct inst_plan plan;
    struct inst_drain drain;
    struct ledger ledger;

    uint64_t next_post_ms, role_taken_ms, poll_started_ms, poll_started_us;

    /* calls under way, and what they are about */
    struct http_call *probe_call, *role_call;
    bool probing_config, reread_config;
    bool look_again; /* another poll, as soon as this one is answered */
    enum inst_role posting_role;
    bool posting_switch; /* to plan.place.next */
    uint64_t posting_hash;
    /* role_post.c: what its own part in role bodies is made of, in this tick; what the last body
     * that was made for it was made of, 0: none was; and the hash of that body */
    uint64_t node_fingerprint, body_fingerprint, body_hash;

    /* adapters it is being given (lora_sync.c); one that came anew gets no work before it has them,
     * one that serves goes on serving meanwhile */
    bool lora_due, lora_anew;
    unsigned lora_next; /* number of the next one */
    uint64_t lora_retry_ms;
    struct http_call *lora_call;
    bool lora_stale; /* what it is being given was forgotten meanwhile */
    bool lora_asked; /* its first status was searched for adapters that nobody told us of */

    /* what is on it */
    struct dresult_in *dresult;
    enum inst_stream stream;
    unsigned session; /* of its /dresult: what was asked of it under another one is given up */
    struct rate_meter prefill_rate;
    struct ability ability;   /* how fast it is beside the others */
    struct prefix_set prefix; /* what its prefix cache has */
    double pass;              /* its place in the turn of its role (schedule_turn()) */

    struct alarm_watch watch;

    /* how requests ended there */
    struct breaker breaker;
    struct link_breaker *link_breakers;
    size_t n_link_breakers;
};

enum { REGISTRY_BUCKETS = 1024 };

struct registry {
    struct coordinator *co; /* given to every instance */
    struct store *store;    /* what was known of instances; NULL: nothing */
    struct inst *first, *last;
    size_t n;
    struct inst *by_id[REGISTRY_BUCKETS];
};

struct inst *registry_find(const struct registry *r, uint32_t id);
/* By what it calls itself, or by its address. NULL: none, or several. */
struct inst *registry_find_name(const struct registry *r, const char *name);
/* What operators know it by: its own name, else its address. Stays the same whenever it comes and
 * whatever its id is. */
const char *inst_name(const struct inst *in);
struct inst *registry_find_node(const struct registry *r, const char *mgmt_ip, uint16_t mgmt_port);
/* Adds a node (taking *node's devices) or updates the one with its management address. A new one
 * gets id, place and drain order of the store; one that is not there the id that follows from its
 * identity. NULL: no memory or INSTANCES_MAX. */
struct inst *registry_put(struct registry *r, struct node_conf *node);
/* Gives in the id it had under a coordinator before this one, unless another instance has kept that
 * one (kept_id); one that was merely given it takes in's. */
void registry_keep_id(struct registry *r, struct inst *in, uint32_t id);
void registry_set_id(struct registry *r, struct inst *in, uint32_t id); /* one that nobody has */
void registry_remove(
    struct registry *r,
    struct inst *in); /* frees it; its calls and dresult are the caller's to end first */

/* ERR_CONFLICT: its state knows no such event; nothing changed. */
enum err inst_step(struct inst *in, enum inst_event ev);
bool inst_answers(const struct inst *in); /* its last poll was answered, or the next may be */
/* It has the role that it is to have, alone or among others. */
bool inst_has_role(const struct inst *in);
/* It does both, in place of a role that has nobody left, or with a share (plan.h, rules 6 and 7):
 * its own pair. */
bool inst_stands_in(const struct inst *in);
/* Its part in a pair: the role of its plan, or either. */
bool inst_works_as(const struct inst *in, enum inst_role role);
/* In its role, linked, healthy: new work may go there (cluster-api 7.2, 7.6). A change of its peers
 * (RoleSwitching in the role it has) does not take it out. One whose model only embeds needs
 * neither role nor link. why: the first stage that is missing
 * ("online", "health", "draining", "role", "link", "dresult", "adapters", "held", "engine"), or
 * NULL. */
bool inst_serves(const struct inst *in, const char **why);
bool inst_link_ok(const struct inst *in, uint32_t peer_id);
/* facts.status has other links now. */
void inst_links_heard(struct inst *in);
/* A request was hurt before a poll could tell: no new work there (over that link) until one says it
 * is well. */
void inst_suspect(struct inst *in, uint64_t now_ms, const char *why);
void inst_suspect_link(struct inst *in, uint32_t peer_id);
/* NULL: no request failed over the link yet (put: no memory). Valid until the next put. */
struct breaker *inst_link_breaker(const struct inst *p, uint32_t d_id);
struct breaker *inst_link_breaker_put(struct inst *p, uint32_t d_id);
/* It was started anew, or has another role: what its requests did before says nothing. */
void inst_breakers_reset(struct registry *r, struct inst *in);
/* What is free now: as it said last, and what was booked and given back since. */
uint64_t inst_slots_free(const struct inst *in);
uint64_t inst_blocks_free(const struct inst *in);
/* Both ends list each other as ok; or it is one that stands in, alone. */
bool inst_linked(const struct inst *a, const struct inst *b);

#endif
