/* plan: which role and which group every instance is to have (cluster-api 7.3, 7.4, 7.7). Pure:
 * facts, labels, the plan so far and the time in, the next plan out; no I/O, no log. The order in
 * which instances are given does not matter.
 *
 * What stands stays: an instance keeps role and group as long as its group can work. What the rules
 * change is in plan.c, one function a rule. */
#ifndef BATON_COORDINATOR_PLAN_H
#define BATON_COORDINATOR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "coordinator/digs.h"
#include "coordinator/role_needs.h"
#include "proto/err.h"
#include "proto/role_msg.h"

enum {
    PLAN_GROUP_INSTANCES = 16,
    PLAN_UNSPLIT = 96, /* the share where a group is not split, or one more (plan_place.share) */
};

/* What one instance is to be. */
struct plan_place {
    enum inst_role role; /* ROLE_NONE: not decided yet */
    enum inst_role next; /* a switch under way: it has `role` until it is drained; else ROLE_NONE */
    bool by_load;        /* that switch follows the load; else a role is lacking */
    unsigned group;      /* from 1 on; 0: in none yet */
    bool stands_in;      /* it is the other role as well, of which its group has nobody (rule 6) */
    int share; /* it is the other role as well, with so many percent of prefill (rule 7), or from
                  PLAN_UNSPLIT on with no bound but its own (rule 8); 0: it is not */
};

struct plan_node {
    /* facts */
    uint32_t id;
    int label;              /* LABEL_* (coord_conf.h); -1: none */
    bool here;              /* it answers, and has said what it is */
    bool unheard;           /* it has never answered this coordinator */
    enum inst_role reports; /* the role it says it has */
    uint64_t closed_ms;   /* since then it takes no new work: away, drained, leaving; 0: it does */
    uint64_t switched_ms; /* when a switch gave it its role; 0: none did */
    bool roleless;        /* it had its role, and has to get it again: it does no work */
    uint64_t shared_ms;   /* when its share changed; 0: it never did */
    bool paired;          /* it stands in, and could serve with one of the other role again */
    unsigned tasks;
    const uint32_t *links; /* ids of the peers it says it has */
    size_t n_links;
    /* the plan: as it was, and as it is to be */
    struct plan_place place;
};

struct plan_conf {
    bool decides;            /* false: roles come from elsewhere, and what is reported is all */
    bool single_node;        /* all instances do both, always (rule 0) */
    unsigned p_rate, d_rate; /* fixed ratio; 0 and 0: one to one */
    uint64_t first_wait_ms;  /* first roles wait so long for those that are not here */
    uint64_t settle_ms; /* so long after the start not all instances may be known: nobody moves */
    uint64_t repair_ms; /* so long a group may lack a role that an instance of it has */
    bool fall_back;     /* where a role has nobody left, the other one stands in for it */
    struct role_needs needs;    /* of all groups together; all 0: roles follow no load */
    struct digs_abilities digs; /* of an instance; p 0: rule 5 follows needs instead */
    bool flex;                  /* one of a group may do both, with a share */
    bool unsplit;               /* all of a group may do both */
    uint64_t cool_ms; /* after a switch, so long the load switches nobody back in its group */
};

struct plan {
    struct plan_node *nodes; /* sorted by id on return */
    size_t n;
    uint64_t started_ms; /* of the coordinator */
    bool decided;        /* first roles were given: those that come later get theirs at once */
};

/* ERR_NO_MEMORY: *p is as it was, but for the order of its nodes. */
enum err plan_make(struct plan *p, const struct plan_conf *c, uint64_t now_ms);

/* It computes prompts and decodes, as all of its group: a pair by itself, and of no other. */
bool plan_is_unsplit(const struct plan_place *place);

/* True: an instance of this role and group is to be linked with the one that has the place. */
bool plan_is_peer(enum inst_role role, unsigned group, const struct plan_place *place);

/* Fixed ratio: how many of n instances prefill; at least one of each when n >= 2. Rates of 0: one
 * to one. */
size_t plan_n_prefill(size_t n, unsigned p_rate, unsigned d_rate);

#endif
