/* mgmt_api: one handler a route, and the table of them at the end. */
#include "coordinator/mgmt_api.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/mgmt_msg.h"
#include "coordinator/refresh.h"
#include "coordinator/refresh_msg.h"
#include "coordinator/relay.h"

enum { IDS_BODY = 1 << 16, SMALL_BODY = 4096 };

static void reply_json(struct http_x *x, int status, struct buf *b) {
    if (b->failed)
        http_x_reply(x, 500, NULL, "", 0);
    else
        http_x_reply(x, status, "application/json; charset=utf-8", b->data, b->len);
    buf_free(b);
}

/* True: no instance has been published yet, and x is answered so. */
static bool too_early(struct coordinator *co, struct http_x *x) {
    if (co->published) return false;
    http_x_set_header(x, "Retry-After", "1");
    coord_reply_error(co, x, 503, "No instance has been published yet");
    return true;
}

/* ---- instances */

static void order_open(struct coordinator *co, struct http_x *x, bool open) {
    struct mgmt_ids msg;
    struct errbuf eb = {0};
    size_t n;
    const char *body = http_x_body(x, &n);
    if (too_early(co, x)) return;
    if (mgmt_ids_parse(&msg, body, n, &eb) != ERR_OK) {
        coord_reply_error(co, x, 400, eb.text);
        return;
    }
    for (size_t i = 0; i < msg.n; i++) drain_offline(co, msg.ids[i], !open);
    http_x_reply(x, 200, NULL, "", 0);
}

static void on_online(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    order_open(arg, x, true);
}

static void on_offline(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    order_open(arg, x, false);
}

static void on_refresh(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    refresh_route(arg, x);
}

static void on_tasks(void *arg, struct http_x *x, const struct route_params *p) {
    const struct coordinator *co = arg;
    struct mgmt_tasks msg;
    struct errbuf eb = {0};
    struct buf b = BUF_INIT;
    (void)p;
    if (mgmt_tasks_parse(&msg, http_x_query(x), &eb) != ERR_OK) {
        coord_reply_error(arg, x, 400, eb.text);
        return;
    }
    buf_puts(&b, "{\"tasks\":[");
    for (size_t i = 0; i < msg.n; i++) {
        const struct inst *in =
            msg.ids[i] >= 0 ? registry_find(&co->reg, (uint32_t)msg.ids[i]) : NULL;
        buf_printf(&b, "%s%" PRId64, i > 0 ? "," : "",
                   in != NULL ? (int64_t)in->ledger.tasks : INT64_C(-1));
    }
    buf_puts(&b, "]}");
    reply_json(x, 200, &b);
}

static void on_query_tasks(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct mgmt_pair msg;
    struct errbuf eb = {0};
    struct buf b = BUF_INIT;
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)p;
    const enum err e = mgmt_pair_parse(&msg, body, n, &eb);
    if (e != ERR_OK) log_warn("manage", "event=bad_query_tasks detail=\"%s\"", eb.text);
    const bool ended = e != ERR_OK || !relay_uses_pair(co->relays, msg.p_id, msg.d_id);
    buf_printf(&b, "{\"is_end\":%s}", ended ? "true" : "false");
    reply_json(x, e == ERR_OK ? 200 : 400, &b);
}

static void on_info(void *arg, struct http_x *x, const struct route_params *p) {
    const struct coordinator *co = arg;
    struct relay_counts counts;
    struct relay_lengths mean;
    struct buf b = BUF_INIT;
    (void)p;
    if (too_early(arg, x)) return;
    relay_counts(co->relays, &counts);
    relay_lengths(co->relays, &mean);
    buf_puts(&b, "{\"schedule_info\":[");
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        buf_printf(&b,
                   "%s{\"id\":%u,\"allocated_slots\":%" PRIu64 ",\"allocated_blocks\":%" PRIu64 "}",
                   in != co->reg.first ? "," : "", in->id, in->ledger.booked.slots,
                   in->ledger.booked.blocks);
    buf_puts(&b, "],");
    if (co->reg.n > 0) buf_printf(&b, "\"request_num\":%" PRIu64 ",", counts.in_flight);
    buf_printf(&b, "\"request_length_info\":{\"input_len\":%.0f,\"output_len\":%.0f}}", mean.input,
               mean.output);
    reply_json(x, 200, &b);
}

static void on_plan(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    plan_route(arg, x);
}

/* ---- one coordinator of two */

static void on_recvs(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct relay_counts counts;
    struct buf b = BUF_INIT;
    (void)p;
    relay_counts(co->relays, &counts);
    buf_printf(&b, "{\"is_master\":%s,\"recv_flow\":%" PRIu64 "}",
               co->stands_by || !coord_leads(co) ? "false" : "true",
               counts.received - co->received_seen);
    co->received_seen = counts.received;
    reply_json(x, 200, &b);
}

/* Two that get requests: the one that is not the master takes no more. */
static void on_backup(void *arg, struct http_x *x, const struct route_params *p) {
    static const char ok[] = "{\"update_successfully\":true}";
    struct coordinator *co = arg;
    struct mgmt_backup msg;
    struct errbuf eb = {0};
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)p;
    if (too_early(co, x)) return;
    if (mgmt_backup_parse(&msg, body, n, &eb) != ERR_OK) {
        coord_reply_error(co, x, 400, eb.text);
        return;
    }
    const bool stands_by = msg.is_abnormal && !msg.is_master;
    if (stands_by != co->stands_by)
        log_warn("manage", "event=%s master=%d abnormal=%d random_pick=%d",
                 stands_by ? "stands_by" : "takes_requests_again", msg.is_master, msg.is_abnormal,
                 msg.is_random_pick);
    co->stands_by = stands_by;
    http_x_reply(x, 200, "application/json; charset=utf-8", ok, sizeof(ok) - 1);
}

const struct route mgmt_api_routes[] = {
    {PLANE_MGMT, "POST", "/v1/instances/refresh", on_refresh, REFRESH_BODY_BYTES_MAX},
    {PLANE_MGMT, "POST", "/v1/instances/online", on_online, IDS_BODY},
    {PLANE_MGMT, "POST", "/v1/instances/offline", on_offline, IDS_BODY},
    {PLANE_MGMT, "GET", "/v1/instances/tasks", on_tasks, 0},
    {PLANE_MGMT, "POST", "/v1/instances/query_tasks", on_query_tasks, SMALL_BODY},
    {PLANE_MGMT, "GET", "/v1/coordinator_info", on_info, 0},
    {PLANE_MGMT, "GET", "/v1/plan", on_plan, 0},
    {PLANE_MGMT, "GET", "/recvs_info", on_recvs, 0},
    {PLANE_MGMT, "GET", "/recvs_metrics", on_recvs, 0},
    {PLANE_MGMT, "POST", "/backup_info", on_backup, SMALL_BODY},
    {0, NULL, NULL, NULL, 0},
};
