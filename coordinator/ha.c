/* ha: from the configuration to the store in etcd, and from its election to the controller. */
#include "coordinator/ha.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "common/net/tls.h"
#include "coordinator/alarm_send.h"
#include "coordinator/alarms.h"
#include "coordinator/coordinator.h"
#include "coordinator/journal_feed.h"
#include "coordinator/journal_follow.h"
#include "coordinator/lora.h"
#include "coordinator/relay.h"
#include "coordinator/store_etcd.h"
#include "coordinator/to_leader.h"
#include "proto/json.h"

#define BACKUP "coordinator.backup_config."
enum { REASON_MASTER = 1 }; /* of the alarm */

struct ha {
    struct coordinator *co;
    struct etcd etcd;
    char prefix[ELECTION_KEY_BYTES / 2], value[ELECTION_VALUE_BYTES / 2];
    char lock[ELECTION_VALUE_BYTES]; /* value, and where our journal is */
    char text[2 * ELECTION_VALUE_BYTES];
    struct loop_alarm depose; /* from outside of what it frees */
    char depose_why[128];
    void (*on_left)(void *co);
    struct to_leader *to_leader; /* NULL: nothing is passed on */
};

/* ---- configuration */
static enum err bad_member(struct errbuf *eb, const char *name, const char *why) {
    return err_set(eb, ERR_BAD_CONFIG, BACKUP "database_server_dns: \"%s\" %s", name, why);
}

/* "etcd.default.svc", "10.0.0.5:2379": an IPv4 address and a port. */
static enum err add_member(struct ha *ha, const struct coord_conf *c, const char *name,
                           struct errbuf *eb) {
    const struct addrinfo want = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[ETCD_MEMBER_BYTES], ip[INET_ADDRSTRLEN] = "";
    const size_t n = strcspn(name, ":");
    long port = (long)c->etcd_port;
    if (ha->etcd.n_members == ETCD_MEMBERS_MAX)
        return err_set(eb, ERR_BAD_CONFIG,
                       BACKUP "database_server_dns must name at most %d servers", ETCD_MEMBERS_MAX);
    if (n == 0 || n >= sizeof(host)) return bad_member(eb, name, "is no name or IPv4 address");
    memcpy(host, name, n);
    host[n] = '\0';
    if (name[n] == ':') {
        char *end;
        port = strtol(name + n + 1, &end, 10);
        if (name[n + 1] < '0' || name[n + 1] > '9' || *end != '\0' || port < 1 || port > 65535)
            return bad_member(eb, name, "must have a port from 1 to 65535");
    }
    if (getaddrinfo(host, NULL, &want, &found) != 0 || found == NULL)
        return bad_member(eb, name, "has no IPv4 address");
    const struct sockaddr_in *at = (const struct sockaddr_in *)(const void *)found->ai_addr;
    inet_ntop(AF_INET, &at->sin_addr, ip, sizeof(ip));
    freeaddrinfo(found);
    if (!c->tls[BLOCK_ETCD].enable && !c->allow_insecure && strncmp(ip, "127.", 4) != 0)
        return bad_member(eb, name,
                          "must be a loopback address while "
                          "coordinator.tls_config.etcd_server_tls_enable is false; "
                          "pd.allow_insecure: true permits it");
    snprintf(ha->etcd.members[ha->etcd.n_members++], ETCD_MEMBER_BYTES, "%s:%ld", ip, port);
    return ERR_OK;
}

static enum err read_members(struct ha *ha, const struct coord_conf *c, struct errbuf *eb) {
    char names[sizeof(c->etcd_hosts)], *rest = names, *name;
    enum err e = ERR_OK;
    memcpy(names, c->etcd_hosts, sizeof(names));
    while (e == ERR_OK && (name = strtok_r(rest, ", ", &rest)) != NULL)
        e = add_member(ha, c, name, eb);
    if (e == ERR_OK && ha->etcd.n_members == 0)
        e = bad_member(eb, c->etcd_hosts, "names no server");
    return e;
}

static enum err read_user(struct ha *ha, const struct coord_conf *c, struct errbuf *eb) {
    char path[2 * COORD_PATH_BYTES];
    ha->etcd.user = c->etcd_user;
    if (c->etcd_user[0] == '\0' && c->etcd_password_file[0] == '\0') return ERR_OK;
    if (c->etcd_user[0] == '\0' || c->etcd_password_file[0] == '\0')
        return err_set(eb, ERR_BAD_CONFIG,
                       "pd.etcd_user and pd.etcd_password_file must be given both or not at all, "
                       "got \"%s\" and \"%s\"",
                       c->etcd_user, c->etcd_password_file);
    const bool beside = c->etcd_password_file[0] != '/';
    snprintf(path, sizeof(path), "%s%s%s", beside ? c->dir : "", beside ? "/" : "",
             c->etcd_password_file);
    return tls_password_read(ha->etcd.password, sizeof(ha->etcd.password), "pd.etcd_password_file",
                             path, eb);
}

/* As the reference names its keys. */
static enum err read_prefix(struct ha *ha, const struct coord_conf *c, struct errbuf *eb) {
    const char *space = getenv("POD_NAMESPACE");
    char text[sizeof(ha->prefix) + 64];
    if (c->etcd_prefix[0] != '\0')
        snprintf(text, sizeof(text), "%s", c->etcd_prefix);
    else if (space != NULL && space[0] != '\0')
        snprintf(text, sizeof(text), "/%.100s/coordinator/", space);
    else
        snprintf(text, sizeof(text), "/coordinator/");
    const size_t n = strlen(text);
    bool plain = n < sizeof(ha->prefix) && text[0] == '/' && text[n - 1] == '/';
    for (size_t i = 0; i < n; i++) plain = plain && text[i] > ' ' && text[i] < 0x7F;
    if (!plain)
        return err_set(eb, ERR_BAD_CONFIG,
                       "pd.etcd_prefix must have from 1 to %zu printable ASCII characters, and "
                       "begin and end with /, got \"%s\"",
                       sizeof(ha->prefix) - 1, text);
    memcpy(ha->prefix, text, n + 1);
    return ERR_OK;
}

static void put_address(char *out, size_t n, const char *ip, int64_t port) {
    snprintf(out, n, strchr(ip, ':') != NULL ? "[%s]:%lld" : "%s:%lld", ip, (long long)port);
}

static bool is_any(const char *ip) {
    return strcmp(ip, "0.0.0.0") == 0 || strcmp(ip, "::") == 0;
}

static enum err read_address(struct ha *ha, const struct coord_conf *c, struct errbuf *eb) {
    const char *ip = c->advertised_ip[0] != '\0' ? c->advertised_ip : c->predict_ip;
    char manage[sizeof(ha->value)];
    if (is_any(ip))
        return err_set(eb, ERR_BAD_CONFIG,
                       "pd.advertised_ip must be an address of this host while "
                       "coordinator.http_config.predict_ip is %s",
                       ip);
    put_address(ha->value, sizeof(ha->value), ip, c->predict_port);
    snprintf(ha->lock, sizeof(ha->lock), "%s", ha->value);
    if (!c->replicate) return ERR_OK;
    put_address(manage, sizeof(manage), is_any(c->manage_ip) ? ip : c->manage_ip, c->manage_port);
    snprintf(ha->lock, sizeof(ha->lock), "%s%c%s", ha->value, ELECTION_MORE, manage);
    if (c->tls[BLOCK_CONTROLLER_SERVER].enable && !c->tls[BLOCK_REPLICA].enable)
        return err_set(eb, ERR_BAD_CONFIG,
                       "coordinator.tls_config.replica_client_tls_enable must be true while "
                       "pd.replicate_requests and "
                       "coordinator.tls_config.controller_server_tls_enable are, got false");
    return ERR_OK;
}

/* The user plane of another one has what this one's has. */
static bool can_ask_leader(const struct coord_conf *c) {
    return !c->tls[BLOCK_REQUEST_SERVER].enable || c->tls[BLOCK_LEADER].enable;
}

enum err ha_open(struct coordinator *co, struct errbuf *eb) {
    const struct coord_conf *c = &co->conf;
    if (!c->ha_enabled) return ERR_OK;
    struct ha *ha = calloc(1, sizeof(*ha));
    if (ha == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    ha->co = co;
    enum err e = c->state_dir[0] == '\0' ? ERR_OK
                                         : err_set(eb, ERR_BAD_CONFIG,
                                                   "pd.state_dir must be empty while " BACKUP
                                                   "function_enable is true, got \"%s\"",
                                                   c->state_dir);
    if (e == ERR_OK && c->ha_relays && !can_ask_leader(c))
        e = err_set(eb, ERR_BAD_CONFIG,
                    "coordinator.tls_config.leader_client_tls_enable must be true while "
                    "pd.ha_standby_relays and "
                    "coordinator.tls_config.request_server_tls_enable are, got false");
    if (e == ERR_OK) e = read_members(ha, c, eb);
    if (e == ERR_OK) e = read_user(ha, c, eb);
    if (e == ERR_OK) e = read_prefix(ha, c, eb);
    if (e == ERR_OK) e = read_address(ha, c, eb);
    if (e == ERR_OK) {
        co->ha = ha;
    } else {
        memset(&ha->etcd, 0, sizeof(ha->etcd));
        free(ha);
    }
    return e;
}

/* ---- who leads */
bool coord_leads(const struct coordinator *co) {
    return co->ha == NULL || (co->store != NULL && store_etcd_leads(co->store));
}

static void step_down(struct coordinator *co, const char *text) {
    journal_feed_end(co->feed);
    relay_abort_all(co->relays, 503, text);
    controller_stop(co);
    lora_forget_all(co);
}

static void on_lead(void *arg) {
    struct coordinator *co = ((struct ha *)arg)->co;
    struct errbuf eb = {0};
    log_info("ha", "event=leads term=%llu", (unsigned long long)store_term(co->store));
    alarms_clear(co->alarms, ALARM_SUPERSEDED, NULL);
    if (co->follow != NULL) journal_follow_lead(co->follow);
    if (controller_start(co, &eb) == ERR_OK) return;
    log_error("ha", "event=cannot_lead detail=\"%s\"", eb.text);
    step_down(co, "MindIE-MS Coordinator is not ready");
    store_etcd_resign(co->store, false, NULL, NULL);
}

static void on_yield(void *arg, const char *why) {
    struct coordinator *co = ((struct ha *)arg)->co;
    log_warn("ha", "event=stands_by term=%llu why=\"%s\"", (unsigned long long)co->term, why);
    alarms_raise(co->alarms, ALARM_SUPERSEDED, NULL, REASON_MASTER, why);
    alarm_send_tick(co->alarm_send, clock_ms());
    step_down(co, "This coordinator does not lead any more");
}

static void depose(void *arg) {
    struct ha *ha = arg;
    store_etcd_depose(ha->co->store, ha->depose_why);
}

void ha_superseded(struct coordinator *co, const char *why) {
    struct ha *ha = co->ha;
    if (ha == NULL || !election_is_unsure(store_etcd_election(co->store)) ||
        loop_alarm_is_set(&ha->depose))
        return;
    snprintf(ha->depose_why, sizeof(ha->depose_why), "%s", why);
    loop_alarm_set(co->loop, &ha->depose, 0, depose, ha);
}

static void on_left(void *arg) {
    struct ha *ha = arg;
    ha->on_left(ha->co);
}

void ha_leave(struct coordinator *co, void (*fn)(void *co)) {
    struct ha *ha = co->ha;
    ha->on_left = fn;
    step_down(co, "The service has been stopped.");
    store_etcd_resign(co->store, true, on_left, ha);
}

/* ---- a planned end */
bool ha_can_hand_on(const struct coordinator *co) {
    size_t n_synced = 0;
    if (co->ha == NULL || co->feed == NULL || !coord_leads(co)) return false;
    (void)journal_feed_count(co->feed, &n_synced);
    return n_synced > 0 && relay_all_can_go(co->relays, co->ha->to_leader);
}

bool ha_park(struct coordinator *co, struct http_x *x, const char *last, bool begun) {
    return co->handed && co->ha != NULL && to_leader_park(co->ha->to_leader, x, last, begun);
}

unsigned ha_handed_on(struct coordinator *co) {
    struct ha *ha = co->ha;
    const char *leader = election_leader(store_etcd_election(co->store));
    if (strcmp(leader, ha->value) != 0) to_leader_go(ha->to_leader, leader);
    return to_leader_count(ha->to_leader);
}

/* ---- what it says */
const char *ha_standby_text(const struct coordinator *co) {
    struct ha *ha = co->ha;
    const struct election *e = store_etcd_election(co->store);
    const char *leader = election_leader(e), *trouble = election_trouble(e);
    if (trouble[0] != '\0')
        snprintf(ha->text, sizeof(ha->text),
                 "This coordinator is a standby, and etcd (%s) does not answer it: %s",
                 etcd_member(&ha->etcd), trouble);
    else if (leader[0] == '\0' || strcmp(leader, ha->value) == 0)
        snprintf(ha->text, sizeof(ha->text),
                 "This coordinator is a standby; none leads at the moment");
    else
        snprintf(ha->text, sizeof(ha->text), "This coordinator is a standby; the leader is %s",
                 leader);
    return ha->text;
}

void ha_reply_standby(struct coordinator *co, struct http_x *x) {
    const char *leader = election_leader(store_etcd_election(co->store));
    if (leader[0] != '\0') http_x_set_header(x, LEADER_HEADER, leader);
    http_x_set_header(x, "Retry-After", "1");
    coord_reply_error_code(co, x, 503, "standby", ha_standby_text(co));
}

void ha_stand_by(struct coordinator *co, struct http_x *x) {
    const struct ha *ha = co->ha;
    const char *leader = election_leader(store_etcd_election(co->store));
    const bool other = strcmp(leader, ha->value) != 0;
    if (!other || !co->conf.ha_relays || !to_leader_pass(ha->to_leader, x, leader))
        ha_reply_standby(co, x);
}

const char *ha_leader_management(const struct coordinator *co) {
    const struct election *e = store_etcd_election(co->store);
    const char *leader = election_leader(e), *at = election_leader_more(e);
    const bool own = strcmp(leader, co->ha->value) == 0;
    return own || strspn(at, "0123456789abcdefABCDEF.:[]") != strlen(at) ? "" : at;
}

void ha_serve_journal(struct coordinator *co, struct http_x *x) {
    if (co->ha != NULL && !coord_leads(co)) {
        ha_reply_standby(co, x);
    } else if (co->feed == NULL) {
        coord_reply_error(co, x, 404,
                          "There is no journal: pd.replicate_requests is false, or "
                          "coordinator.backup_config.function_enable");
    } else if (!journal_feed_serve(co->feed, x, co->journal, store_term(co->store))) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(co, x, 503, "Enough coordinators have this journal");
    }
}

/* Of requests that clients may come back to, here and at the others. */
static struct json_value *journal_status(const struct coordinator *co) {
    struct json_value *o = json_new_obj();
    size_t n_synced;
    const size_t n = journal_feed_count(co->feed, &n_synced);
    json_obj_set(o, "requests", json_new_i64((int64_t)journal_count(co->journal)));
    json_obj_set(o, "bytes", json_new_i64((int64_t)budget_used(&co->budget, BUDGET_JOURNAL_BYTES)));
    json_obj_set(o, "copies", json_new_i64((int64_t)n));
    json_obj_set(o, "copiesSynced", json_new_i64((int64_t)n_synced));
    json_obj_set(o, "synced", json_new_bool(journal_follow_is_synced(co->follow)));
    return o;
}

struct json_value *ha_status(const struct coordinator *co) {
    const struct ha *ha = co->ha;
    if (ha == NULL) return NULL;
    const struct election *e = store_etcd_election(co->store);
    struct json_value *o = json_new_obj();
    json_obj_set(o, "role", json_new_str(coord_leads(co) ? "leader" : "standby"));
    json_obj_set(o, "address", json_new_str(ha->value));
    json_obj_set(o, "leader", json_new_str(election_leader(e)));
    json_obj_set(o, "term", json_new_i64((int64_t)store_term(co->store)));
    json_obj_set(o, "leaseLeftMs", json_new_i64((int64_t)election_left_ms(e)));
    json_obj_set(o, "relayed", json_new_i64(to_leader_count(ha->to_leader)));
    json_obj_set(o, "leaseLost", json_new_bool(election_is_unsure(e)));
    json_obj_set(o, "prefix", json_new_str(ha->prefix));
    json_obj_set(o, "etcd", json_new_str(etcd_member(&ha->etcd)));
    json_obj_set(o, "etcdTrouble", json_new_str(election_trouble(e)));
    if (co->follow != NULL) json_obj_set(o, "journal", journal_status(co));
    return o;
}

/* ---- life */
enum err ha_start(struct coordinator *co, struct errbuf *eb) {
    struct ha *ha = co->ha;
    ha->etcd.client = co->client;
    ha->etcd.tls = co->tls.block[BLOCK_ETCD];
    const struct store_etcd_opts o = {.loop = co->loop,
                                      .etcd = &ha->etcd,
                                      .prefix = ha->prefix,
                                      .value = ha->lock,
                                      .ttl_s = (unsigned)co->conf.ha_lease_s,
                                      .keep_on_loss = co->conf.ha_keep,
                                      .on_lead = on_lead,
                                      .on_yield = on_yield,
                                      .arg = ha};
    enum err e = store_etcd_open(&co->store, &o);
    if (e == ERR_OK && co->journal != NULL) e = journal_follow_create(&co->follow, co);
    if (e == ERR_OK && (co->conf.ha_relays || (co->journal != NULL && can_ask_leader(&co->conf))))
        e = to_leader_open(&ha->to_leader, co);
    if (e != ERR_OK) return err_set(eb, e, "cannot stand for election: %s", err_text(e));
    co->reg.store = co->store;
    log_info("ha", "event=stands address=%s prefix=%s etcd=%s lease_s=%u", ha->value, ha->prefix,
             etcd_member(&ha->etcd), o.ttl_s);
    return ERR_OK;
}

void ha_close(struct coordinator *co) {
    struct ha *ha = co->ha;
    co->ha = NULL;
    if (ha == NULL) return;
    loop_alarm_stop(&ha->depose);
    to_leader_close(&ha->to_leader);
    journal_follow_destroy(&co->follow);
    store_close(&co->store);
    explicit_bzero(ha->etcd.password, sizeof(ha->etcd.password));
    free(ha);
}
