/* role_ctl: which role an instance has, and the change of it: POST /v1|v2/role
 * (cluster-api 3.4, 3.5, 4). Thread: the loop thread. */
#ifndef BATON_INSTANCE_ROLE_CTL_H
#define BATON_INSTANCE_ROLE_CTL_H

#include "common/instance/instance.h"
#include "common/instance/role_fsm.h"

struct role_ctl;

enum err role_ctl_create(struct role_ctl **out, struct instance *in,
                         const struct role_ops *const *roles);
void role_ctl_destroy(struct role_ctl **rc); /* stops the role */

/* Serves alone, without a role body: standard mode. */
enum err role_ctl_start_alone(struct role_ctl *rc);
void role_ctl_post(struct role_ctl *rc, struct http_x *x, int version, enum inst_role role);

/* Gives an inference request to the role it is for. False: there is none. */
bool role_ctl_request(const struct role_ctl *rc, struct http_x *x, const struct api_path *path,
                      const char *path_model);
/* As role_ops.take: by whatever role does. */
enum err role_ctl_take(const struct role_ctl *rc, struct infer_req **req, struct req_seq **seq,
                       struct kv_commit *c, struct errbuf *eb);

unsigned role_ctl_can(const struct role_ctl *rc); /* CAN_..; 0: no role */
/* What it is called: of a flex that can only do one thing, flex. ROLE_MIXED: standard mode. */
enum inst_role role_ctl_role(const struct role_ctl *rc);
int role_ctl_share(const struct role_ctl *rc); /* p_percentage of a flex */
enum role_status role_ctl_status(const struct role_ctl *rc);
uint32_t role_ctl_id(const struct role_ctl *rc);
/* D with at least one failed link and no good one (cluster-api 3.6). */
bool role_ctl_unhealthy(const struct role_ctl *rc);

/* Whether the coordinator that sent x may give orders: its term (COORD_TERM_HEADER) is not below
 * the highest seen, which it becomes; one without a term may. False: x is answered, with 409 or
 * 422. */
bool role_ctl_obeys(struct role_ctl *rc, struct http_x *x);
/* Whether the coordinator that passes x on is not one whose orders would be refused; changes
 * nothing. */
bool role_ctl_is_current(const struct role_ctl *rc, const struct http_x *x);
uint64_t role_ctl_term(const struct role_ctl *rc); /* 0: no coordinator has shown one */
uint64_t role_ctl_plan(const struct role_ctl *rc); /* hash of the role body it took; 0: none */
bool role_ctl_drained(const struct role_ctl *rc);  /* the coordinator has it drained by order */
/* GET /dresult of one that may: ends what another session asked for. Takes x. */
void role_ctl_listen(struct role_ctl *rc, struct http_x *x);

/* From the KV plane. */
void role_ctl_on_settled(struct role_ctl *rc, unsigned n_ok);

#endif
