/* controller: keeps the list of instances and polls them (cluster-api 7.1, 7.2, 10.1); has their
 * plan made and carried out in each round. The coordinator believes what an instance reports of
 * itself, not what it asked for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/entropy.h"
#include "common/base/log.h"
#include "coordinator/otlp.h"
#include "coordinator/alarm_send.h"
#include "coordinator/alarm_watch.h"
#include "coordinator/alarms.h"
#include "coordinator/coord_metrics.h"
#include "coordinator/coordinator.h"
#include "coordinator/dresult_in.h"
#include "coordinator/ha.h"
#include "coordinator/lora.h"
#include "coordinator/relay.h"
#include "coordinator/stand_in.h"

enum {
    TICK_MS = 100,
    TABLE_BYTES_MAX = 10 << 20,
    STATUS_PATH_MAX = 64,
    AWAY_CONNECT_MS = 1000, /* to one that is away: a SYN that is lost comes again after a second */
    DESERTED_MS = 5000,     /* without the coordinator it obeys, an instance may have another */
    RANK_TABLE_REASON = 2,  /* of its alarm */
    STUCK_LOST_MS = 6000,   /* what runs on an engine that has stood still so long is lost */
    POLLS_TOGETHER = 32,
};

/* ---- the instances */
struct alarm_of controller_alarm_of(const struct inst *in) {
    return (struct alarm_of){in->identity, inst_name(in), in->address};
}

void controller_forget(struct coordinator *co, struct inst *in) {
    log_info("controller", "id=%u event=forgotten", in->id);
    http_call_cancel(&in->probe_call);
    http_call_cancel(&in->role_call);
    lora_sync_stop(in);
    dresult_in_close(&in->dresult);
    const struct alarm_of of = controller_alarm_of(in);
    alarms_forget(co->alarms, &of);
    (void)inst_step(in, INST_EV_LOST); /* or its requests could be sent to it again */
    relay_instance_lost(co->relays, in->id);
    coord_metrics_forget(co->metrics, in->id);
    registry_remove(&co->reg, in);
}

static enum err read_file(struct buf *b, const char *path, struct errbuf *eb) {
    FILE *f = fopen(path, "rb");
    char chunk[4096];
    size_t n;
    if (f == NULL) return err_set(eb, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0 && b->len <= TABLE_BYTES_MAX)
        buf_append(b, chunk, n);
    bool bad = ferror(f) != 0;
    fclose(f);
    if (bad || b->failed) return err_set(eb, ERR_IO, "%s: cannot be read", path);
    if (b->len > TABLE_BYTES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "%s: larger than %d bytes", path, TABLE_BYTES_MAX);
    return ERR_OK;
}

enum err controller_read_table(struct rank_table *t, const struct coordinator *co,
                               struct errbuf *eb) {
    struct buf b = BUF_INIT;
    struct errbuf why = {0};
    char path[2 * COORD_PATH_BYTES];
    const char *name = co->conf.rank_table_path;
    memset(t, 0, sizeof(*t));
    if (name[0] == 0) return ERR_OK;
    snprintf(path, sizeof(path), "%s%s%s", name[0] == '/' ? "" : co->conf.dir,
             name[0] == '/' ? "" : "/", name);
    enum err e = read_file(&b, path, eb);
    if (e == ERR_OK &&
        (e = rank_table_parse(t, &co->conf, b.data != NULL ? b.data : "", b.len, &why)) != ERR_OK)
        err_set(eb, e, "%s: %s", path, why.text);
    buf_free(&b);
    return e;
}

enum err controller_check(const struct coordinator *co, struct errbuf *eb) {
    struct rank_table t;
    const enum err e = controller_read_table(&t, co, eb);
    if (e == ERR_OK) rank_table_free(&t);
    return e;
}

/* Reads the rank table and brings the registry in line with it. */
static enum err read_table(struct coordinator *co, struct errbuf *eb) {
    struct rank_table t;
    const enum err e = controller_read_table(&t, co, eb);
    if (e != ERR_OK || co->conf.rank_table_path[0] == 0) return e;
    uint64_t now = clock_ms();
    for (struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (in->from_table && in->gone_since_ms == 0) in->gone_since_ms = now;
    for (size_t i = 0; i < t.n_nodes; i++) {
        bool known = registry_find_node(&co->reg, t.nodes[i].mgmt_ip, t.nodes[i].mgmt_port) != NULL;
        struct inst *in = registry_put(&co->reg, &t.nodes[i]);
        if (in == NULL) continue;
        in->from_table = true;
        in->gone_since_ms = 0;
        if (!known)
            log_info("controller", "id=%u event=listed ip=%s port=%u mgmt=%s:%u", in->id,
                     in->node.ip, in->node.port, in->node.mgmt_ip, in->node.mgmt_port);
    }
    rank_table_free(&t);
    return ERR_OK;
}

struct inst *controller_register(struct coordinator *co, struct node_conf *node) {
    bool known = registry_find_node(&co->reg, node->mgmt_ip, node->mgmt_port) != NULL;
    struct inst *in = registry_put(&co->reg, node);
    if (in == NULL) return NULL;
    in->lease_end_ms = clock_ms() + (uint64_t)co->conf.register_lease_s * 1000;
    if (!known)
        log_info("controller", "id=%u event=registered ip=%s port=%u", in->id, in->node.ip,
                 in->node.port);
    return in;
}

/* An address of a name of pd.discover_names. One that is known already keeps what it said of
 * itself, or what the rank table says. */
static void on_found(void *arg, const struct discover_name *name, const char *ip) {
    struct coordinator *co = arg;
    struct inst *in = registry_find_node(&co->reg, ip, name->mgmt_port);
    struct node_conf node = {.port = name->port,
                             .mgmt_port = name->mgmt_port,
                             .metric_port = name->metric_port,
                             .inter_comm_port = name->kv_port,
                             .label = name->label,
                             .n_devices = 1};
    if (in != NULL) {
        const uint64_t until = clock_ms() + (uint64_t)co->conf.register_lease_s * 1000;
        if (in->lease_end_ms < until) in->lease_end_ms = until;
        return;
    }
    if ((node.devices = calloc(1, sizeof(*node.devices))) == NULL) return;
    snprintf(node.ip, sizeof(node.ip), "%s", ip);
    snprintf(node.mgmt_ip, sizeof(node.mgmt_ip), "%s", ip);
    snprintf(node.devices->device_id, sizeof(node.devices->device_id), "0");
    snprintf(node.devices->device_logical_id, sizeof(node.devices->device_logical_id), "0");
    snprintf(node.devices->rank_id, sizeof(node.devices->rank_id), "0");
    snprintf(node.devices->device_ip, sizeof(node.devices->device_ip), "%s", ip);
    if (controller_register(co, &node) == NULL)
        log_warn("discover", "name=%s event=no_room ip=%s", name->host, ip);
}

/* Twice in a lease, and no more often than the rank table is looked at. */
static enum err start_discover(struct coordinator *co) {
    const struct coord_conf *c = &co->conf;
    uint64_t period_ms = (uint64_t)c->register_lease_s * 500;
    if (c->discover_names.n == 0) return ERR_OK;
    if (period_ms > (uint64_t)c->rank_table_s * 1000) period_ms = (uint64_t)c->rank_table_s * 1000;
    const struct discover_opts o = {.loop = co->loop,
                                    .names = &c->discover_names,
                                    .look_up = discover_look_up,
                                    .period_ms = period_ms,
                                    .found = on_found,
                                    .arg = co};
    return discover_start(&co->discover, &o);
}

static void drop_gone(struct coordinator *co, uint64_t now) {
    for (struct inst *in = co->reg.first, *next; in != NULL; in = next) {
        next = in->next;
        bool table_gone = in->from_table && in->gone_since_ms != 0 &&
                          now - in->gone_since_ms >= (uint64_t)co->conf.disappeared_s * 1000;
        bool lease_gone =
            !in->from_table && !in->pushed.on && now > in->lease_end_ms && !inst_answers(in);
        if (table_gone || lease_gone || drain_is_over(in, now)) controller_forget(co, in);
    }
}

/* ---- polls */
static void poll(struct coordinator *co, struct inst *in);

/* It has to be given its role again, whatever it is when it comes back, and its requests are gone.
 */
static void lose_role(struct inst *in) {
    in->facts.roleless = true;
    in->plan.posted_hash = 0;
    in->plan.both = false;
    in->reread_config = true;
    inst_breakers_reset(&in->co->reg, in);
}

void controller_instance_lost(struct coordinator *co, uint32_t id, enum alarm_lost how,
                              const char *why) {
    struct inst *in = registry_find(&co->reg, id);
    if (in == NULL) return;
    snprintf(in->facts.last_error, sizeof(in->facts.last_error), "%s", why);
    log_warn("controller", "id=%u event=faulty detail=\"%s\"", in->id, in->facts.last_error);
    const struct alarm_of of = controller_alarm_of(in);
    alarms_raise(co->alarms, ALARM_INSTANCE, &of, (int)how, in->facts.last_error);
    (void)inst_step(in, INST_EV_LOST);
    in->plan.place.next = ROLE_NONE;
    in->pushed.lost_ms = clock_ms();
    in->session++;
    lose_role(in);
    http_call_cancel(&in->probe_call);
    dresult_in_close(&in->dresult);
    co->next_poll_ms = 0;
    relay_instance_lost(co->relays, in->id);
    stand_in_now(co);
}

static void poll_failed(struct coordinator *co, struct inst *in, enum alarm_lost how,
                        const char *text) {
    snprintf(in->facts.last_error, sizeof(in->facts.last_error), "%s", text);
    if (in->facts.n_failures < UINT32_MAX) in->facts.n_failures++;
    if (!inst_answers(in) || in->facts.n_failures <= (unsigned)co->conf.instance_retries) return;
    controller_instance_lost(co, in->id, how, text);
}

void controller_listen(struct coordinator *co, struct inst *in) {
    if (in->dresult != NULL || !in->facts.online || in->facts.status.role == ROLE_NONE) return;
    if (dresult_in_open(&in->dresult, co, in->id) != ERR_OK)
        log_warn("controller", "id=%u event=dresult_not_opened", in->id);
}

/* Where the store is others' as well, it has a term before anything is ordered under it. */
static void raise_term(struct coordinator *co, uint64_t term) {
    if (co->ha == NULL) {
        co->term = term;
    } else if (co->next_term < term) {
        co->next_term = term;
    }
}

static void take_next_term(struct coordinator *co) {
    if (co->next_term <= co->term || store_written_term(co->store) < co->next_term) return;
    co->term = co->next_term;
    log_warn("controller", "event=term_raised term=%llu", (unsigned long long)co->term);
}

/* It obeys a coordinator of a higher term. That one may be gone: then its term is no bar, at once
 * for a coordinator that starts (a clock went back), else when it has been away for long enough not
 * to be about to connect again. One that is there keeps the instance. */
static void meet_higher_term(struct coordinator *co, struct inst *in, uint64_t now) {
    const struct status_msg *m = &in->facts.status;
    if (m->listened || in->facts.deserted_ms == 0) in->facts.deserted_ms = now;
    if (!m->listened && (!in->kept_id || now - in->facts.deserted_ms >= DESERTED_MS)) {
        raise_term(co, m->term + 1);
        if (co->term <= m->term) return;
        log_warn("controller", "id=%u event=term_raised term=%llu", in->id,
                 (unsigned long long)co->term);
        return;
    }
    snprintf(in->facts.last_error, sizeof(in->facts.last_error),
             "obeys another coordinator, of term %llu; ours is %llu", (unsigned long long)m->term,
             (unsigned long long)co->term);
    ha_superseded(co, in->facts.last_error);
}

/* What a coordinator before this one ordered: id, role and peers stay as they are, and so does a
 * drain, unless the store has it from a later one. */
static void take_orders_over(struct coordinator *co, struct inst *in) {
    const struct status_msg *m = &in->facts.status;
    if (m->term > co->term) meet_higher_term(co, in, clock_ms());
    if (in->kept_id) return;
    uint32_t was = in->id;
    registry_keep_id(&co->reg, in, m->id);
    if (in->id != was) log_info("controller", "id=%u event=id_kept given=%u", in->id, was);
    if (m->plan == 0) return;
    if (m->term > in->drain.term) in->drain.ordered = m->drained;
    in->plan.posted_hash = m->plan;
    in->plan.posted_role = m->role;
    in->plan.place.role = stand_in_reported(co, m);
    const bool both = m->role == ROLE_FLEX && co->conf.controller_enabled;
    planner_stands_in(co, in, both && co->conf.fall_back && stand_in_says(m->p_percentage));
    if (both && (co->conf.flex || co->conf.unsplit || co->conf.single_node) &&
        !stand_in_says(m->p_percentage))
        in->plan.place.share = m->p_percentage;
    log_info("controller", "id=%u event=role_kept role=%s", in->id,
             inst_role_name(in->plan.place.role));
    planner_run(co);
}

static void took_status(struct coordinator *co, struct inst *in, struct status_msg *m) {
    const uint64_t was_stuck_ms = in->facts.status.stuck_ms;
    status_msg_free(&in->facts.status);
    in->facts.status = *m;
    inst_links_heard(in);
    prefix_set_take(&in->prefix, &m->prefix);
    prefix_msg_free(&in->facts.status.prefix); /* said, and kept there */
    ledger_poll_answered(&in->ledger);
    in->facts.n_failures = 0;
    if (!inst_answers(in)) {
        log_info("controller", "id=%u event=healthy role=%s", in->id,
                 inst_role_name(in->facts.status.role));
        const struct alarm_of of = controller_alarm_of(in);
        alarms_clear(co->alarms, ALARM_INSTANCE, &of);
    }
    (void)inst_step(in, INST_EV_STATUS);
    take_orders_over(co, in);
    controller_listen(co, in);
    lora_learn(in);
    if ((was_stuck_ms > 0) != (m->stuck_ms > 0))
        log_warn("controller", "id=%u event=%s", in->id,
                 m->stuck_ms > 0 ? "engine_stuck" : "engine_moves");
    if (was_stuck_ms < STUCK_LOST_MS && m->stuck_ms >= STUCK_LOST_MS)
        relay_instance_lost(co->relays, in->id); /* what runs there has waited long enough */
    if (in->facts.suspect_ms != 0 && in->poll_started_ms > in->facts.suspect_ms) {
        in->facts.suspect_ms = 0;
        in->facts.last_error[0] = 0;
    }
    if (in->poll_started_ms <= in->role_taken_ms)
        return; /* this answer may be older than the role */
    if (in->plan.posted_hash != 0 && in->role_call == NULL &&
        in->facts.status.role != in->plan.posted_role) {
        /* it restarted, or others meddled */
        log_warn("controller", "id=%u event=lost_its_role role=%s", in->id,
                 inst_role_name(in->facts.status.role));
        const struct alarm_of of = controller_alarm_of(in);
        alarms_raise(co->alarms, ALARM_INSTANCE, &of, ALARM_LOST_REBOOT, "it has lost its role");
        (void)inst_step(in, INST_EV_ROLE_LOST);
        lose_role(in);
        relay_instance_lost(co->relays, in->id);
        stand_in_now(co);
    }
    if (!inst_has_role(in) || in->plan.posted_hash == 0 || m->role_status != ROLE_STATUS_READY)
        return;
    in->facts.roleless = false;
    if (inst_step(in, INST_EV_ROLE_READY) == ERR_OK) {
        const struct alarm_of of = controller_alarm_of(in);
        alarms_clear(co->alarms, ALARM_INSTANCE, &of);
        in->facts.last_error[0] = 0;
        log_info("controller", "id=%u event=role_ready role=%s", in->id,
                 inst_role_name(in->plan.place.role));
    }
}

/* The answer of an instance that has been told to stop (cluster-api 3 "Guard"): a 503, which has no
 * body while it still loads. What runs on it ends there, or is moved. */
static bool says_stopping(struct inst *in, const struct http_result *r) {
    if (r->err != ERR_OK || r->status != 503 || r->body_len == 0 || !inst_answers(in)) return false;
    (void)status_msg_parse_draining(&in->facts.status, r->body,
                                    r->body_len); /* others say only that */
    return true;
}

static void note_rtt(struct inst *in) {
    const uint64_t us = clock_us() - in->poll_started_us, was = in->facts.rtt_us;
    in->facts.rtt_us = was == 0 ? us : (7 * was + us) / 8;
}

static void on_poll(void *arg, const struct http_result *r) {
    struct inst *in = arg;
    struct coordinator *co = in->co;
    struct errbuf eb = {0};
    struct status_msg m;
    char text[160];
    in->probe_call = NULL;
    if (r->err == ERR_OK) {
        dresult_in_alive(in->dresult);
        note_rtt(in);
    }
    if (says_stopping(in, r)) {
        (void)inst_step(in, INST_EV_STOPPING);
        in->facts.n_failures = 0;
        ledger_poll_answered(&in->ledger);
        drain_tick(co, in, clock_ms());
    } else if (r->err != ERR_OK) {
        poll_failed(co, in, ALARM_LOST_NO_REPLY, r->detail != NULL ? r->detail : err_text(r->err));
    } else if (r->status != 200) {
        snprintf(text, sizeof(text), "status %d: %.100s", r->status, r->body);
        poll_failed(co, in, ALARM_LOST_ERROR_STATUS, text);
    } else if (in->probing_config) {
        if (config_msg_parse(&in->facts.config, r->body, r->body_len, &eb) != ERR_OK) {
            poll_failed(co, in, ALARM_LOST_ERROR_STATUS, eb.text);
        } else {
            in->facts.online = true;
            in->reread_config = false;
            lora_sync_start(in);
            log_info("controller", "id=%u event=online name=%s model=%s", in->id, inst_name(in),
                     in->facts.config.model_name);
            controller_poll_soon(co);
        }
    } else if (status_msg_parse(&m, r->body, r->body_len, &eb) != ERR_OK) {
        poll_failed(co, in, ALARM_LOST_ERROR_STATUS, eb.text);
    } else {
        took_status(co, in, &m);
    }
    if (in->look_again) {
        in->look_again = false;
        poll(co, in);
    }
    relay_schedule(co->relays);
}

/* Beside the status, what its prefix cache has since it was asked last. */
static void status_path(char out[STATUS_PATH_MAX], const struct inst *in) {
    snprintf(out, STATUS_PATH_MAX, "/v2/status?prefix=%016" PRIx64 ".%" PRIu64, in->prefix.epoch,
             in->prefix.seq);
}

static void poll(struct coordinator *co, struct inst *in) {
    char url[192], path[STATUS_PATH_MAX];
    if (in->probe_call != NULL || in->pushed.on) return;
    in->probing_config = !in->facts.online || in->reread_config;
    in->poll_started_ms = clock_ms();
    in->poll_started_us = clock_us();
    ledger_poll_begins(&in->ledger);
    const unsigned timeout_ms = (unsigned)co->conf.instance_timeout_s * 1000;
    status_path(path, in);
    struct tls *tls = coord_tls_url(&co->tls, url, sizeof(url), &in->node, NODE_CONTROL,
                                    in->probing_config ? "/v1/config" : path);
    struct http_call_opts o = {.method = "GET",
                               .url = url,
                               .tls = tls,
                               .connect_ms = inst_answers(in) ? timeout_ms : AWAY_CONNECT_MS,
                               .total_ms = timeout_ms,
                               .fresh_connection = !inst_answers(in),
                               .body_bytes_max = 4 << 20,
                               .on_done = on_poll,
                               .arg = in};
    enum err e = http_client_call(co->client, &o, &in->probe_call);
    if (e != ERR_OK) poll_failed(co, in, ALARM_LOST_NO_REPLY, err_text(e));
}

void controller_poll_soon(struct coordinator *co) {
    co->next_poll_ms = 0;
}

void controller_look_now(struct coordinator *co, uint32_t id) {
    struct inst *in = registry_find(&co->reg, id);
    if (in == NULL || in->pushed.on) return;
    in->look_again = in->probe_call != NULL; /* its answer may be older than what there is to see */
    poll(co, in);
}

/* Of a large cluster so many at a time have their turn, all of them within a round: hundreds at
 * once would keep the loop from everything else meanwhile, and find nothing of theirs in a cache.
 */
static size_t n_turns(const struct coordinator *co) {
    return (co->reg.n + POLLS_TOGETHER - 1) / POLLS_TOGETHER;
}

/* Those that have had no turn in this round, up to so many in all. */
static void poll_up_to(struct coordinator *co, size_t n) {
    struct inst *in = co->reg.first;
    for (size_t i = 0; in != NULL && i < n; i++, in = in->next)
        if (i >= co->n_polled) poll(co, in);
    if (n > co->n_polled) co->n_polled = n;
}

/* True: a round has begun, and is to get its end. */
static bool poll_in_turn(struct coordinator *co, uint64_t now) {
    const bool begins = now >= co->next_poll_ms, all = co->next_poll_ms == 0;
    size_t turns = 1;
    if (begins) {
        if (!all) poll_up_to(co, co->reg.n); /* whose turn is over */
        co->round_ms = now;
        co->n_polled = 0;
    } else {
        turns += n_turns(co) * (now - co->round_ms) / (co->next_poll_ms - co->round_ms);
    }
    poll_up_to(co, all ? co->reg.n : turns * POLLS_TOGETHER);
    return begins;
}

/* ---- the round */
bool controller_ready(const struct coordinator *co) {
    if (!coord_leads(co)) return false;
    for (const struct inst *p = co->reg.first; p != NULL; p = p->next) {
        if (!inst_works_as(p, ROLE_PREFILL) || !inst_serves(p, NULL)) continue;
        for (const struct inst *d = co->reg.first; d != NULL; d = d->next)
            if (inst_works_as(d, ROLE_DECODE) && inst_serves(d, NULL) && inst_linked(p, d))
                return true;
    }
    return false;
}

bool controller_embeds(const struct coordinator *co) {
    bool any = false;
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!in->facts.online || !inst_answers(in)) continue;
        if (!in->facts.status.embeds_only) return false;
        any |= inst_serves(in, NULL);
    }
    return any;
}

bool controller_serves(const struct coordinator *co) {
    return controller_ready(co) || controller_embeds(co);
}

/* Its stream broke: in a moment it is back, or lost. */
static bool is_in_doubt(const struct inst *in) {
    return inst_state_has_role(in->life.state) && in->stream == STREAM_DOWN;
}

/* What serves, or is there, has its role and nobody's order to do something else: its stream or a
 * link is away, or a request was lost on the way to it. */
static bool serves_or_will(const struct inst *in) {
    return inst_serves(in, NULL) ||
           (in->life.state == INST_SERVING && inst_has_role(in) && in->facts.online &&
            in->drain.why == DRAIN_NONE && in->plan.place.next == ROLE_NONE &&
            !in->facts.status.held && in->facts.status.stuck_ms == 0);
}

/* A pair served a moment ago, and none of it is known to be lost. */
static bool pair_in_doubt(const struct coordinator *co) {
    bool p = false, d = false;
    if (!co->was_ready &&
        (co->unready_ms == 0 || clock_ms() - co->unready_ms >= dresult_in_away_ms_max(co)))
        return false;
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!serves_or_will(in)) continue;
        p |= inst_works_as(in, ROLE_PREFILL);
        d |= inst_works_as(in, ROLE_DECODE);
    }
    return p && d;
}

bool controller_admits(const struct coordinator *co) {
    if (!coord_leads(co)) return false;
    if (controller_ready(co) || pair_in_doubt(co)) return true;
    if (!co->conf.fall_back) return false;
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (is_in_doubt(in) ||
            (in->plan.place.stands_in && in->facts.closed_ms == 0 && in->facts.last_error[0] == 0))
            return true;
    return false;
}

static bool settled(const struct coordinator *co) {
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (!inst_serves(in, NULL) ||
            (in->facts.status.role_status != ROLE_STATUS_READY && !in->facts.status.embeds_only))
            return false;
    return co->reg.n > 0;
}

/* While the cluster is coming up or changing, look more often than the published period: it only
 * costs small calls, as long as they are few. */
static uint64_t round_ms(const struct coordinator *co) {
    const uint64_t period = (uint64_t)co->conf.sync_s * 1000, soon = 2 * TICK_MS * n_turns(co);
    return settled(co) || soon > period ? period : soon;
}

static void on_tick(void *arg) {
    struct coordinator *co = arg;
    struct errbuf eb = {0};
    uint64_t now = clock_ms();
    if (!coord_leads(co)) return;
    if (now >= co->next_table_ms) {
        co->next_table_ms = now + (uint64_t)co->conf.rank_table_s * 1000;
        const enum err e = read_table(co, &eb);
        if (e != ERR_OK) log_error("controller", "event=rank_table detail=\"%s\"", eb.text);
        alarms_set(co->alarms, ALARM_RANK_TABLE, NULL, e != ERR_OK, RANK_TABLE_REASON, eb.text);
    }
    drop_gone(co, now);
    planner_run(co);
    planner_keep(co);
    take_next_term(co);
    const bool begins = poll_in_turn(co, now);
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
        planner_end_late_switch(in, now);
        override_tick(co, in, now);
        drain_tick(co, in, now);
        stand_in_tick(co, in, now);
        if (in->dresult != NULL) dresult_in_tick(in->dresult, now);
        lora_sync_tick(in, now);
    }
    if (co->conf.controller_enabled) role_post_all(co);
    if (begins) co->next_poll_ms = now + round_ms(co);
    bool ready = controller_serves(co);
    co->published |= ready;
    if (ready != co->was_ready) {
        log_info("controller", "event=%s",
                 ready ? "coordinator is ready" : "coordinator is not ready");
        if (!ready) co->unready_ms = now;
    }
    /* At the start instances are on their way; for as long as they have to register. */
    if (ready || co->was_ready ||
        now - co->started_ms >= (uint64_t)co->conf.register_lease_s * 1000)
        alarms_set(co->alarms, ALARM_COORDINATOR, NULL, !ready, 1,
                   ready ? "" : coord_not_ready(co));
    co->was_ready = ready;
    cluster_files_tick(co, now);
    alarm_watch_tick(co, now);
    alarm_send_tick(co->alarm_send, now);
    otlp_tick(co->otlp, now);
    relay_schedule(co->relays);
}

/* What the process file says goes before what the rank table lists. */
static enum err load_files(struct coordinator *co, struct errbuf *eb) {
    struct rank_table t;
    const enum err e = controller_read_table(&t, co, eb);
    if (e != ERR_OK) return e;
    cluster_files_load(co, co->conf.rank_table_path[0] != 0 ? &t : NULL);
    rank_table_free(&t);
    return ERR_OK;
}

enum err controller_start(struct coordinator *co, struct errbuf *eb) {
    co->started_ms = clock_ms();
    co->was_ready = co->roles_decided = co->published = co->stands_by = false;
    co->next_poll_ms = co->unready_ms = co->next_term = 0;
    enum err e = load_files(co, eb);
    if (e != ERR_OK) return e;
    co->term = clock_unix_us() / 1000;
    if (co->term <= store_term(co->store)) co->term = store_term(co->store) + 1;
    if (co->ha != NULL) co->term = store_term(co->store);
    if (!entropy_get(&co->boot, sizeof(co->boot)))
        return err_set(eb, ERR_IO, "the system has no random numbers");
    e = read_table(co, eb);
    if (e != ERR_OK) return e;
    planner_keep(co); /* the term above all: before anybody hears of it */
    co->next_table_ms = co->started_ms + (uint64_t)co->conf.rank_table_s * 1000;
    e = loop_timer_start(&co->tick, co->loop, 1, TICK_MS, on_tick, co);
    if (e == ERR_OK) e = start_discover(co);
    return e == ERR_OK ? e : err_set(eb, e, "cannot start the controller: %s", err_text(e));
}

void controller_stop(struct coordinator *co) {
    loop_timer_stop(&co->tick);
    discover_stop(&co->discover);
    while (co->reg.first != NULL) controller_forget(co, co->reg.first);
}
