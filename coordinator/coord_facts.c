/* coord_facts: see coord_facts.h. */
#include "coordinator/coord_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/build.h"
#include "common/base/clock.h"
#include "common/base/host_facts.h"
#include "common/base/query.h"
#include "common/net/tls_facts.h"
#include "coordinator/coordinator.h"
#include "proto/json.h"

static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}
static void add_i64(struct json_value *o, const char *key, int64_t v) {
    json_obj_set(o, key, json_new_i64(v));
}

static struct json_value *planes_json(const struct coord_conf *c) {
    const struct {
        const char *name, *ip;
        int64_t port;
        enum coord_block block;
    } planes[] = {{"user", c->predict_ip, c->predict_port, BLOCK_REQUEST_SERVER},
                  {"management", c->manage_ip, c->manage_port, BLOCK_CONTROLLER_SERVER},
                  {"status", c->manage_ip, c->status_port, BLOCK_STATUS},
                  {"external", c->manage_ip, c->external_port, BLOCK_EXTERNAL}};
    struct json_value *arr = json_new_arr();
    for (size_t i = 0; i < sizeof(planes) / sizeof(planes[0]); i++) {
        struct json_value *o = json_new_obj();
        add_str(o, "plane", planes[i].name);
        add_str(o, "ip", planes[i].ip);
        add_i64(o, "port", planes[i].port);
        json_obj_set(o, "tls", json_new_bool(c->tls[planes[i].block].enable));
        json_arr_add(arr, o);
    }
    return arr;
}

/* One block towards the instances' management plane serves for both kinds of calls there, and for a
 * metrics plane without a block (coord_tls.h): so it is listed under each of these names. */
static enum coord_block block_used(const struct coord_conf *c, enum coord_block block) {
    if (c->tls[block].enable) return block;
    if (block == BLOCK_CONTROLLER_REQUEST) return BLOCK_MINDIE_MANAGEMENT;
    if (block == BLOCK_MINDIE_MANAGEMENT) return BLOCK_CONTROLLER_REQUEST;
    if (block == BLOCK_INSTANCE_METRICS) return block_used(c, BLOCK_MINDIE_MANAGEMENT);
    return block;
}

static struct json_value *tls_json(const struct coordinator *co) {
    struct json_value *arr = json_new_arr();
    for (int i = 0; i < BLOCK_COUNT; i++) {
        struct tls_conf o;
        struct errbuf eb = {0};
        const enum coord_block used = block_used(&co->conf, (enum coord_block)i);
        if (!co->conf.tls[used].enable || coord_tls_conf(&o, &co->conf, used, &eb) != ERR_OK)
            continue;
        json_arr_add(
            arr, tls_facts_json(coord_block_name((enum coord_block)i), &o, co->tls.block[used]));
    }
    return arr;
}

static struct json_value *table_json(const struct coordinator *co) {
    struct json_value *o = json_new_obj(), *nodes = json_new_arr();
    struct rank_table t;
    struct errbuf eb = {0};
    const enum err e = controller_read_table(&t, co, &eb);
    add_str(o, "path", co->conf.rank_table_path);
    add_str(o, "error", eb.text);
    for (size_t i = 0; e == ERR_OK && i < t.n_nodes; i++) {
        const struct node_conf *n = &t.nodes[i];
        struct json_value *node = json_new_obj();
        add_str(node, "ip", n->ip);
        add_str(node, "managementIp", n->mgmt_ip);
        add_i64(node, "business", n->port);
        add_i64(node, "management", n->mgmt_port);
        add_i64(node, "metrics", n->metric_port);
        add_i64(node, "cluster", n->inter_comm_port);
        add_i64(node, "label", n->label);
        json_arr_add(nodes, node);
    }
    if (e == ERR_OK) rank_table_free(&t);
    json_obj_set(o, "nodes", nodes);
    return o;
}

struct json_value *coord_facts(struct coordinator *co) {
    const struct coord_conf *c = &co->conf;
    struct json_value *o = json_new_obj();
    struct host_facts host;
    host_facts_read(&host, "");
    add_str(o, "kind", "coordinator");
    add_str(o, "name", "coordinator");
    add_str(o, "version", BATON_VERSION);
    add_str(o, "commit", build_commit());
    json_obj_set(o, "live", json_new_bool(co->loop != NULL));
    json_obj_set(o, "unixSeconds", json_new_f64((double)clock_unix_us() * 1e-6));
    json_obj_set(o, "insecure", json_new_bool(c->allow_insecure));
    json_obj_set(o, "planes", planes_json(c));
    json_obj_set(o, "tls", tls_json(co));
    json_obj_set(o, "rankTable", table_json(co));
    add_i64(o, "firstTokenTargetMs", c->prefill_slo_ms);
    add_i64(o, "tokenTargetMs", c->decode_slo_ms);
    add_i64(o, "descriptorsWanted", (int64_t)co->descriptors_wanted);
    struct json_value *machine = host_facts_json(&host);
    add_i64(machine, "mtu", host_mtu_of(c->manage_ip));
    json_obj_set(o, "host", machine);
    return o;
}

int coord_facts_print(struct coordinator *co) {
    return host_facts_print(coord_facts(co));
}

static void on_facts(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    struct json_value *o = coord_facts(arg);
    const char *text = o != NULL ? json_to_text(o, JSON_COMPACT, NULL) : NULL;
    if (text != NULL)
        http_x_reply(x, 200, "application/json; charset=utf-8", text, strlen(text));
    else
        coord_reply_error(arg, x, 500, err_text(ERR_NO_MEMORY));
    json_put(o);
}

/* ---- what an instance says of itself, asked for by one who can reach the coordinator alone */

enum { PASSED_BYTES_MAX = 1 << 20, MEASURE_BODY = 4096 };

static const struct passed_path {
    const char *ours, *method, *theirs;
    unsigned total_ms;
} passed_paths[] = {
    {"/v1/instances/facts", "GET", "/v1/facts", 5000},
    {"/v1/instances/status", "GET", "/v2/status", 5000},
    {"/v1/instances/measure", "POST", "/v1/measure", 60000},
};

struct passed {
    struct coordinator *co;
    struct http_x *x;
    struct http_call *call;
};

static void on_passed_gone(void *arg) {
    struct passed *p = arg;
    http_call_cancel(&p->call);
    free(p);
}

static void on_passed(void *arg, const struct http_result *r) {
    struct passed *p = arg;
    char text[256];
    http_x_on_close(p->x, NULL, NULL);
    if (r->err == ERR_OK) {
        http_x_reply(p->x, r->status, coord_media_type(r->content_type), r->body, r->body_len);
    } else {
        snprintf(text, sizeof(text), "the instance does not answer the coordinator: %.180s",
                 r->detail != NULL && r->detail[0] != 0 ? r->detail : err_text(r->err));
        coord_reply_error(p->co, p->x, 504, text);
    }
    free(p);
}

/* ?id=N of GET /v2/status. */
static void on_pass(void *arg, struct http_x *x, const struct route_params *params) {
    struct coordinator *co = arg;
    const struct passed_path *path = passed_paths;
    const char *query = http_x_query(x);
    char id[16] = "", url[512];
    (void)params;
    while (strcmp(path->ours, http_x_path(x)) != 0) path++;
    const struct inst *in =
        query_next(&query, "id", id, sizeof(id)) && id[0] != 0 && id[strspn(id, "0123456789")] == 0
            ? registry_find(&co->reg, (uint32_t)strtoul(id, NULL, 10))
            : NULL;
    struct passed *p = in != NULL ? calloc(1, sizeof(*p)) : NULL;
    if (p == NULL) {
        coord_reply_error(co, x, in != NULL ? 503 : 404,
                          in != NULL ? err_text(ERR_NO_MEMORY)
                                     : "Parameter id must be that of an instance (GET /v2/status "
                                       "lists them)");
        return;
    }
    struct tls *tls =
        coord_tls_url(&co->tls, url, sizeof(url), &in->node, NODE_CONTROL, path->theirs);
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    size_t n;
    const char *body = http_x_body(x, &n);
    *p = (struct passed){.co = co, .x = x};
    const struct http_call_opts o = {.method = path->method,
                                     .url = url,
                                     .tls = tls,
                                     .headers = n > 0 ? headers : NULL,
                                     .body = n > 0 ? body : NULL,
                                     .body_len = n,
                                     .connect_ms = 2000,
                                     .total_ms = path->total_ms,
                                     .body_bytes_max = PASSED_BYTES_MAX,
                                     .on_done = on_passed,
                                     .arg = p};
    const enum err e = http_client_call(co->client, &o, &p->call);
    if (e == ERR_OK) {
        http_x_on_close(x, on_passed_gone, p);
        return;
    }
    free(p);
    coord_reply_error(co, x, 503, err_text(e));
}

const struct route coord_facts_routes[] = {
    {PLANE_MGMT, "GET", "/v1/facts", on_facts, 0},
    {PLANE_MGMT, "GET", "/v1/instances/facts", on_pass, 0},
    {PLANE_MGMT, "GET", "/v1/instances/status", on_pass, 0},
    {PLANE_MGMT, "POST", "/v1/instances/measure", on_pass, MEASURE_BODY},
    {0, NULL, NULL, NULL, 0},
};
