/* role_ctl: checks a role body, lets go of the old role, starts the new one, and hands the wanted
 * peers to the KV plane. */
#include "common/instance/role_ctl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/log.h"
#include "common/instance/dresult_out.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_set.h"

enum { ROLES_MAX = 4 };

struct role_ctl {
    struct instance *in;
    const struct role_ops *const *roles; /* what this binary can be, at most ROLES_MAX */
    struct active {
        bool on;
        void *self;
    } active[ROLES_MAX]; /* in the order of roles */
    unsigned can;        /* capabilities; 0: no role */
    enum inst_role word; /* how the last role body called them */
    int p_percentage;    /* of a flex */
    struct role_fsm fsm;
    uint32_t id;
    uint64_t term; /* of the coordinator that is obeyed */
    uint64_t plan; /* role_msg_hash() of the last role body */
    bool drained;  /* as that body says; kept for the next coordinator */
};

enum err role_ctl_create(struct role_ctl **out, struct instance *in,
                         const struct role_ops *const *roles) {
    struct role_ctl *rc = calloc(1, sizeof(*rc));
    *out = rc;
    if (rc == NULL) return ERR_NO_MEMORY;
    rc->in = in;
    rc->roles = roles;
    return ERR_OK;
}

static bool is_wanted(const struct role_ops *ops, unsigned can) {
    return can != 0 && ((ops->needs & can) == ops->needs || (ops->own & can) != 0);
}

/* Ends the roles that can does not carry, then starts those that it newly does. On an error there
 * is none left. */
static enum err become(struct role_ctl *rc, unsigned can) {
    enum err e = ERR_OK;
    for (size_t i = 0; rc->roles[i] != NULL; i++) {
        struct active *a = &rc->active[i];
        if (!a->on || is_wanted(rc->roles[i], can)) continue;
        rc->roles[i]->stop(&a->self);
        a->on = false;
    }
    rc->can = can;
    for (size_t i = 0; rc->roles[i] != NULL && e == ERR_OK; i++) {
        struct active *a = &rc->active[i];
        if (a->on || !is_wanted(rc->roles[i], can)) continue;
        e = rc->roles[i]->start(&a->self, rc->in);
        a->on = e == ERR_OK;
    }
    if (e != ERR_OK) (void)become(rc, 0);
    return e;
}

void role_ctl_destroy(struct role_ctl **rcp) {
    struct role_ctl *rc = *rcp;
    if (rc == NULL) return;
    (void)become(rc, 0);
    free(rc);
    *rcp = NULL;
}

enum err role_ctl_start_alone(struct role_ctl *rc) {
    for (size_t i = 0; rc->roles[i] != NULL; i++) {
        if (rc->roles[i]->role != ROLE_MIXED) continue;
        enum err e = rc->roles[i]->start(&rc->active[i].self, rc->in);
        if (e != ERR_OK) return e;
        rc->active[i].on = true;
        rc->word = ROLE_MIXED;
        rc->can = CAN_BOTH;
        role_fsm_step(&rc->fsm, ROLE_EV_POSTED);
        role_fsm_step(&rc->fsm, ROLE_EV_LINKED); /* there is nobody to link to */
        return ERR_OK;
    }
    return ERR_NOT_FOUND;
}

static const struct role_ops *active_ops(const struct role_ctl *rc, enum inst_role role,
                                         void **self) {
    for (size_t i = 0; rc->roles[i] != NULL; i++) {
        if (!rc->active[i].on || rc->roles[i]->role != role) continue;
        *self = rc->active[i].self;
        return rc->roles[i];
    }
    return NULL;
}

/* Whether a request that a coordinator sends is for the role that prefills: an instance that is no
 * P is one for itself alone. */
static bool prefills(const struct role_ctl *rc, struct http_x *x) {
    const char *target = http_x_header(x, "d-target");
    return (rc->can & CAN_PREFILL) != 0 ||
           (target != NULL && kv_plane_is_self(instance_kv_plane(rc->in), target));
}

/* A coordinator's headers make a request one for P; without them its client wants it served. Who
 * cannot do what is asked says so itself. */
bool role_ctl_request(const struct role_ctl *rc, struct http_x *x, const struct api_path *path,
                      const char *path_model) {
    const bool of_coordinator =
        http_x_header(x, "req-type") != NULL || http_x_header(x, "d-target") != NULL;
    void *self = NULL;
    const struct role_ops *ops = NULL;
    if (!of_coordinator || rc->word == ROLE_MIXED) ops = active_ops(rc, ROLE_MIXED, &self);
    if (ops == NULL && prefills(rc, x)) ops = active_ops(rc, ROLE_PREFILL, &self);
    if (ops == NULL) ops = active_ops(rc, ROLE_DECODE, &self);
    if (ops == NULL) return false;
    ops->on_request(self, x, path, path_model);
    return true;
}

enum err role_ctl_take(const struct role_ctl *rc, struct infer_req **req, struct req_seq **seq,
                       struct kv_commit *c, struct errbuf *eb) {
    void *self = NULL;
    const struct role_ops *ops = active_ops(rc, ROLE_DECODE, &self);
    if (ops != NULL) return ops->take(self, req, seq, c, eb);
    infer_req_destroy(req);
    req_seq_drop(seq, ERR_CANCELLED, "");
    kv_commit_free(c);
    return err_set(eb, ERR_CONFLICT, "the instance does not decode any more");
}

enum inst_role role_ctl_role(const struct role_ctl *rc) {
    return rc->word;
}
int role_ctl_share(const struct role_ctl *rc) {
    return rc->p_percentage;
}
unsigned role_ctl_can(const struct role_ctl *rc) {
    return rc->can;
}
enum role_status role_ctl_status(const struct role_ctl *rc) {
    return rc->fsm.state;
}
uint32_t role_ctl_id(const struct role_ctl *rc) {
    return rc->id;
}

bool role_ctl_unhealthy(const struct role_ctl *rc) {
    unsigned wanted, ok, failed, linking;
    if (rc->can != CAN_DECODE) return false;
    kv_plane_counts(instance_kv_plane(rc->in), &wanted, &ok, &failed, &linking);
    return failed > 0 && ok == 0;
}

void role_ctl_on_settled(struct role_ctl *rc, unsigned n_ok) {
    if (rc->can == 0) return;
    const bool ready = n_ok > 0 || rc->can == CAN_BOTH; /* who can do all needs no link for it */
    role_fsm_step(&rc->fsm, ready ? ROLE_EV_LINKED : ROLE_EV_UNLINKED);
}

/* {"error":..,"error_type":..,"detail":..}: the reference's text, and what exactly was wrong. */
static void refuse(struct http_x *x, int status, const char *text, const char *detail) {
    struct buf b = BUF_INIT;
    buf_puts(&b, "{\"error\":");
    buf_json_str(&b, text, strlen(text));
    buf_puts(&b, ",\"error_type\":");
    const char *type = api_error_type(status);
    buf_json_str(&b, type, strlen(type));
    if (detail[0] != 0) {
        buf_puts(&b, ",\"detail\":");
        buf_json_str(&b, detail, strlen(detail));
    }
    buf_putc(&b, '}');
    log_warn("role", "event=refused status=%d detail=\"%s\"", status, detail);
    http_x_reply(x, status, "application/json", b.data, b.len);
    buf_free(&b);
}

/* ---- whose orders count */

bool role_ctl_obeys(struct role_ctl *rc, struct http_x *x) {
    static const char NOT_OBEYED[] = "The coordinator is not obeyed.";
    const char *text = http_x_header(x, COORD_TERM_HEADER);
    char detail[160], *end;
    if (text == NULL) return true; /* a coordinator that knows no terms */
    unsigned long long term = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || strlen(text) > 19) {
        snprintf(detail, sizeof(detail),
                 COORD_TERM_HEADER
                 " must be an integer from 0 to 9999999999999999999, got \"%.40s\"",
                 text);
        refuse(x, 422, NOT_OBEYED, detail);
        return false;
    }
    if (term < rc->term) {
        snprintf(detail, sizeof(detail),
                 COORD_TERM_HEADER
                 " must be at least %llu, which another coordinator has, got %llu",
                 (unsigned long long)rc->term, term);
        refuse(x, 409, NOT_OBEYED, detail);
        return false;
    }
    if (rc->term != 0 && term > rc->term)
        log_info("role", "event=new_coordinator term=%llu peer=%s", term, http_x_peer(x));
    rc->term = term;
    return true;
}

bool role_ctl_is_current(const struct role_ctl *rc, const struct http_x *x) {
    const char *text = http_x_header(x, COORD_TERM_HEADER);
    return text == NULL || strtoull(text, NULL, 10) >= rc->term;
}

uint64_t role_ctl_term(const struct role_ctl *rc) {
    return rc->term;
}
uint64_t role_ctl_plan(const struct role_ctl *rc) {
    return rc->plan;
}

bool role_ctl_drained(const struct role_ctl *rc) {
    return rc->drained;
}

void role_ctl_listen(struct role_ctl *rc, struct http_x *x) {
    struct dresult_out *out = instance_dresult(rc->in);
    if (!role_ctl_obeys(rc, x)) return;
    if (dresult_out_new_session(out, x)) {
        struct role_load load;
        req_set_load(instance_reqs(rc->in), ROLE_NONE, &load);
        if (load.waiting + load.running + load.leases > 0)
            log_warn("role", "event=new_session given_up=%u",
                     load.waiting + load.running + load.leases);
        req_set_abort(instance_reqs(rc->in), ROLE_NONE, ERR_STOPPING);
        dresult_out_reset(out);
    }
    dresult_out_listen(out, x);
}

static const char UPDATE_FAILED[] = "Update pd info failed. Reset to previous node status.";

/* A body without ids (the reference's oldest form): the address stands in. */
static void complete_ids(struct role_node *n) {
    struct in_addr a;
    if (n->has_id || inet_pton(AF_INET, n->server_ip, &a) != 1) return;
    n->has_id = true;
    n->id = ntohl(a.s_addr);
}

/* Requests of the roles that end when the instance becomes this. */
static void load_that_ends(const struct role_ctl *rc, unsigned can, struct role_load *out) {
    if (can != rc->can && can != CAN_BOTH && rc->can != CAN_BOTH) { /* all of them */
        req_set_load(instance_reqs(rc->in), ROLE_NONE, out);
        return;
    }
    *out = (struct role_load){0};
    for (size_t i = 0; rc->roles[i] != NULL; i++) {
        struct role_load load;
        if (!rc->active[i].on || is_wanted(rc->roles[i], can)) continue;
        req_set_load(instance_reqs(rc->in), rc->roles[i]->role, &load);
        out->waiting += load.waiting;
        out->running += load.running;
        out->leases += load.leases;
    }
}

/* Checks that need more than the body itself. True: *detail is untouched. */
static bool acceptable(const struct role_ctl *rc, const struct role_msg *m, enum inst_role role,
                       unsigned can, int *status, char *detail, size_t cap) {
    const struct inst_conf *c = instance_conf(rc->in);
    if ((int64_t)m->local.n_devices != c->world_size) {
        *status = 422;
        snprintf(detail, cap, "local.device must have %lld entries (worldSize), got %zu",
                 (long long)c->world_size, m->local.n_devices);
        return false;
    }
    if (role == ROLE_FLEX && m->local.p_percentage < 0) {
        *status = 422;
        snprintf(detail, cap, "local.p_percentage must be an integer from 0 to 100, got none");
        return false;
    }
    if (rc->can == 0 && m->n_peers == 0 && can != CAN_BOTH) {
        *status = 503;
        snprintf(detail, cap, "peers must not be empty when a role is given for the first time");
        return false;
    }
    for (size_t i = 0; i < m->n_peers; i++) {
        if (m->peers[i].id != m->local.id) continue;
        *status = 422;
        snprintf(detail, cap, "peers[%zu].id must not be the own id %u", i, m->local.id);
        return false;
    }
    struct role_load load;
    load_that_ends(rc, can, &load);
    if (!m->force && load.waiting + load.running + load.leases > 0) {
        *status = 409;
        snprintf(detail, cap,
                 "%s to %s needs an idle instance: %u waiting, %u running, %u KV leases held; "
                 "\"force\": true ends them",
                 inst_role_name(rc->word), inst_role_name(role), load.waiting, load.running,
                 load.leases);
        return false;
    }
    return true;
}

static enum err take_role(struct role_ctl *rc, enum inst_role word, unsigned can,
                          const struct role_msg *m) {
    if (rc->can != can) {
        if (rc->can != 0)
            log_info("role", "event=switch from=%s to=%s", inst_role_name(rc->word),
                     inst_role_name(word));
        const bool stream_ends = (rc->can & CAN_DECODE & ~can) != 0;
        enum err e = become(rc, can);
        if (stream_ends) dresult_out_role_ends(instance_dresult(rc->in));
        if (e != ERR_OK) {
            rc->word = ROLE_NONE;
            role_fsm_step(&rc->fsm, ROLE_EV_LOST);
            return e;
        }
    }
    rc->word = word;
    rc->p_percentage = word == ROLE_FLEX ? m->local.p_percentage : -1;
    const bool shares = word == ROLE_FLEX && can == CAN_BOTH;
    worker_set_prefill_share(instance_worker(rc->in), shares ? rc->p_percentage : 0);
    rc->id = m->local.id;
    role_fsm_step(&rc->fsm, ROLE_EV_POSTED);
    return kv_plane_want(instance_kv_plane(rc->in), can, rc->id, m->peers, m->n_peers);
}

void role_ctl_post(struct role_ctl *rc, struct http_x *x, int version, enum inst_role role) {
    struct role_msg m;
    struct errbuf eb = {0};
    char detail[256] = "";
    size_t n;
    int status = 0;
    const char *body = http_x_body(x, &n);
    if (strcmp(instance_conf(rc->in)->infer_mode, "dmi") != 0) {
        refuse(x, 400, UPDATE_FAILED,
               "ServerConfig.inferMode must be dmi for an instance that takes roles");
        return;
    }
    if (!role_ctl_obeys(rc, x)) return;
    if (role_msg_parse(&m, version, body, n, &eb) != ERR_OK) {
        if (version == 1) {
            refuse(x, 422, "Req body converts to json fail. Reset to previous node status.",
                   eb.text);
        } else {
            refuse(x, 503, "Parse req json failed. Reset to previous node status.", eb.text);
        }
        return;
    }
    complete_ids(&m.local);
    for (size_t i = 0; i < m.n_peers; i++) complete_ids(&m.peers[i]);
    const unsigned can = inst_role_can(role, m.local.p_percentage);
    if (!acceptable(rc, &m, role, can, &status, detail, sizeof(detail))) {
        refuse(x, status,
               status == 422 ? "Req body converts to json fail. Reset to previous node status."
                             : UPDATE_FAILED,
               detail);
    } else {
        enum err e = take_role(rc, role, can, &m);
        rc->plan = e == ERR_OK ? role_msg_hash(body, n) : 0;
        rc->drained = e == ERR_OK && m.drained;
        if (e == ERR_OK) {
            static const char ok[] = "{\"result\":\"ok\"}";
            http_x_reply(x, 200, "application/json", ok, sizeof(ok) - 1);
        } else {
            refuse(x, 503, UPDATE_FAILED, err_text(e));
        }
    }
    role_msg_free(&m);
}
