/* console: the cluster, its requests and its last hour as JSON. */
#include "coordinator/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/build.h"
#include "common/base/clock.h"
#include "common/net/web_pages.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/mgmt_msg.h"
#include "coordinator/relay.h"
#include "proto/hash.h"
#include "proto/json.h"

enum { TICK_MS = 1000 };

/* An answer that is there for everybody. */
struct kept_answer {
    struct buf body;
    char etag[24];
    uint64_t made_ms; /* 0: not yet */
};

struct console {
    struct coordinator *co;
    struct history *history;
    struct loop_timer *tick;
    struct kept_answer cluster, requests;
    uint64_t since_ms; /* the second in which n_answers bodies were sent */
    unsigned n_answers;
    uint64_t started_unix_ms;
};

/* ---- the cluster */

static void key(struct buf *out, const char *name) {
    buf_printf(out, ",\"%s\":", name);
}

static void put_str(struct buf *out, const char *name, const char *s) {
    key(out, name);
    buf_json_text(out, s, strlen(s), false);
}

static void put_u64(struct buf *out, const char *name, uint64_t v) {
    buf_printf(out, ",\"%s\":%llu", name, (unsigned long long)v);
}

/* Takes v. */
static void put_json(struct buf *out, const char *name, struct json_value *v) {
    const char *s = json_to_text(v, JSON_COMPACT, NULL);
    key(out, name);
    buf_puts(out, s != NULL ? s : "null");
    json_put(v);
}

/* Tells of each link from its P's side; of one that fails, why. */
static void put_links(struct buf *out, const struct console *c, const struct inst *in) {
    const uint64_t now = clock_ms();
    key(out, "links");
    buf_putc(out, '[');
    for (size_t i = 0; i < in->facts.status.n_links; i++) {
        const struct link_status *l = &in->facts.status.links[i];
        const struct breaker *b = inst_link_breaker(in, l->target);
        struct history_link h;
        buf_printf(out, "%s{\"to\":%u", i > 0 ? "," : "", l->target);
        if (history_link_get(c->history, now, in->id, l->target, &h))
            buf_printf(out, ",\"bytesPerS\":%.0f,\"transferMs\":%.1f,\"n\":%llu", h.bytes_per_s,
                       h.transfer_ms, (unsigned long long)h.n);
        if (l->ok && l->rtt_us > 0) buf_printf(out, ",\"rttMs\":%.3f", (double)l->rtt_us / 1000);
        if (l->ok && (l->bytes_per_s | l->idle_bytes_per_s) != 0)
            put_u64(out, "capacityBytesPerS",
                    l->bytes_per_s > 0 ? l->bytes_per_s : l->idle_bytes_per_s);
        if (!l->ok) {
            put_str(out, "error", l->text);
            if (l->detail[0] != 0) put_str(out, "detail", l->detail);
        }
        if (b != NULL && b->state != BREAKER_CLOSED)
            put_str(out, "breaker", breaker_state_name(b->state));
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void put_plan(struct buf *out, const struct inst *in) {
    const struct inst_override *v = &in->plan.override;
    const uint64_t now = clock_ms();
    if (in->plan.place.next != ROLE_NONE)
        put_str(out, "wantedRole", inst_role_name(in->plan.place.next));
    if (in->plan.place.stands_in) buf_puts(out, ",\"standsIn\":true");
    if (v->role != ROLE_NONE)
        put_u64(out, "backInS", v->until_ms > now ? (v->until_ms - now + 999) / 1000 : 0);
    if (in->drain.why != DRAIN_NONE) put_str(out, "draining", drain_why_name(in->drain.why));
}

static void put_instance(struct buf *out, const struct console *c, const struct inst *in) {
    const struct status_msg *s = &in->facts.status;
    buf_printf(out, "{\"id\":%u", in->id);
    put_str(out, "name", inst_name(in));
    put_str(out, "address", in->address);
    put_u64(out, "group", in->plan.place.group);
    put_str(out, "role", inst_role_name(s->role));
    put_str(out, "state", coord_instance_state(in));
    put_plan(out, in);
    if (in->facts.last_error[0] != 0) put_str(out, "lastError", in->facts.last_error);
    if (in->breaker.state != BREAKER_CLOSED)
        put_str(out, "breaker", breaker_state_name(in->breaker.state));
    if (s->embeds_only) buf_puts(out, ",\"embedsOnly\":true");
    put_str(out, "model", in->facts.config.model_name);
    put_u64(out, "slotsTotal", s->total_slots);
    put_u64(out, "slotsFree", inst_slots_free(in));
    put_u64(out, "blocksTotal", s->total_blocks);
    put_u64(out, "blocksFree", inst_blocks_free(in));
    put_u64(out, "waiting", s->waiting);
    put_u64(out, "running", s->running);
    put_u64(out, "kvLeases", s->kv_leases);
    put_u64(out, "tasks", in->ledger.tasks);
    buf_printf(out, ",\"tokensPerS\":%.1f,\"rttMs\":%.1f",
               history_tokens_per_s(c->history, clock_ms(), in->id),
               (double)in->facts.rtt_us / 1000);
    if (inst_works_as(in, ROLE_PREFILL)) put_links(out, c, in);
    buf_putc(out, '}');
}

static void put_counts(struct buf *out, const struct coordinator *co) {
    struct relay_count n[RELAY_COUNTS];
    relay_counts_named(co->relays, n);
    for (int i = 0; i < RELAY_COUNTS; i++) put_u64(out, n[i].name, n[i].n);
}

static void put_conf(struct buf *out, const struct coord_conf *c) {
    key(out, "userPlane");
    buf_printf(out, "{\"port\":%lld,\"tls\":%s", (long long)c->predict_port,
               c->tls[BLOCK_REQUEST_SERVER].enable ? "true" : "false");
    put_str(out, "ip", c->predict_ip);
    put_str(out, "managementIp", c->manage_ip);
    buf_printf(out, "},\"targets\":{\"ttftMs\":%lld,\"gapMs\":%lld}", (long long)c->prefill_slo_ms,
               (long long)c->decode_slo_ms);
}

static void put_coordinator(struct buf *out, const struct console *c) {
    struct coordinator *co = c->co;
    const char *model = coord_model(co);
    const bool ready = controller_serves(co) && !co->stopping && !co->stands_by;
    struct json_value *ha = ha_status(co);
    buf_printf(out, "{\"version\":\"%s\",\"commit\":\"%s\"", BATON_VERSION, build_commit());
    buf_printf(out, ",\"boot\":\"%016llx\"", (unsigned long long)co->boot);
    put_u64(out, "startedUnixMs", c->started_unix_ms);
    put_str(out, "model", model != NULL ? model : "");
    buf_printf(out, ",\"leads\":%s,\"ready\":%s", coord_leads(co) ? "true" : "false",
               ready ? "true" : "false");
    put_json(out, "reasons", ready ? json_new_arr() : coord_reasons(co));
    put_json(out, "needs", coord_needs(co));
    if (ha != NULL) put_json(out, "ha", ha);
    put_counts(out, co);
    put_conf(out, &co->conf);
    buf_putc(out, '}');
}

static void write_cluster(struct console *c, struct buf *out) {
    struct coordinator *co = c->co;
    buf_puts(out, "{\"coordinator\":");
    put_coordinator(out, c);
    buf_puts(out, ",\"instances\":[");
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (in != co->reg.first) buf_putc(out, ',');
        put_instance(out, c, in);
    }
    buf_puts(out, "]");
    put_json(out, "moving", relay_moving(co->relays, CONSOLE_MOVING_MAX));
    buf_putc(out, '}');
}

static void write_requests(struct console *c, struct buf *out) {
    struct json_value *root = relay_requests(c->co->relays);
    const char *s = json_to_text(root, JSON_COMPACT, NULL);
    buf_puts(out, s != NULL ? s : "{}");
    json_put(root);
}

/* ---- answers */

/* False: x is told to come again. */
static bool has_room(struct console *c, struct http_x *x) {
    const uint64_t second = clock_ms() / 1000;
    if (second != c->since_ms) {
        c->since_ms = second;
        c->n_answers = 0;
    }
    if (c->n_answers++ < CONSOLE_ANSWERS_MAX) return true;
    http_x_set_header(x, "Retry-After", "1");
    coord_reply_error(c->co, x, 429, "Too many viewers of the console");
    return false;
}

static void set_etag(struct kept_answer *a) {
    const uint64_t h = hash64_bytes(HASH64_BEGIN, a->body.data, a->body.len);
    snprintf(a->etag, sizeof(a->etag), "\"%016llx\"", (unsigned long long)h);
}

static void reply_kept(struct console *c, struct http_x *x, struct kept_answer *a,
                       void (*write)(struct console *c, struct buf *out)) {
    const char *seen = http_x_header(x, "If-None-Match");
    const uint64_t now = clock_ms();
    if (a->made_ms == 0 || now - a->made_ms >= CONSOLE_KEEP_MS) {
        buf_clear(&a->body);
        buf_forgive(&a->body);
        write(c, &a->body);
        set_etag(a);
        a->made_ms = now;
    }
    if (a->body.failed) {
        coord_reply_error(c->co, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    http_x_set_header(x, "Cache-Control", "no-cache");
    http_x_set_header(x, "ETag", a->etag);
    if (seen != NULL && strcmp(seen, a->etag) == 0)
        http_x_reply(x, 304, NULL, "", 0);
    else if (has_room(c, x))
        http_x_reply(x, 200, "application/json; charset=utf-8", a->body.data, a->body.len);
}

static void on_cluster(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    (void)p;
    reply_kept(co->console, x, &co->console->cluster, write_cluster);
}

static void on_requests(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    (void)p;
    reply_kept(co->console, x, &co->console->requests, write_requests);
}

static void on_history(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct console *c = co->console;
    struct mgmt_history ask;
    struct errbuf eb = {0};
    struct buf out = BUF_INIT;
    (void)p;
    if (mgmt_history_parse(&ask, http_x_query(x), &eb) != ERR_OK) {
        coord_reply_error(co, x, 422, eb.text);
        return;
    }
    if (!has_room(c, x)) return;
    buf_printf(&out, "{\"boot\":\"%016llx\",\"history\":", (unsigned long long)co->boot);
    history_write(c->history, clock_ms(), ask.since, ask.ids, ask.n, &out);
    buf_putc(&out, '}');
    http_x_set_header(x, "Cache-Control", "no-store");
    if (out.failed)
        coord_reply_error(co, x, 503, err_text(ERR_NO_MEMORY));
    else
        http_x_reply(x, 200, "application/json; charset=utf-8", out.data, out.len);
    buf_free(&out);
}

/* On the user plane one sees what was asked for with the same key. */
static void on_request(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct json_value *o = relay_record(co->relays, http_x_tenant(x), p->model);
    const char *s = o != NULL ? json_to_text(o, JSON_COMPACT, NULL) : NULL;
    http_x_set_header(x, "Cache-Control", "no-store");
    if (s != NULL) {
        http_x_reply(x, 200, "application/json; charset=utf-8", s, strlen(s));
    } else {
        coord_reply_error(co, x, 404,
                          "No request with this id runs, or is among the last that ended");
    }
    json_put(o);
}

/* The chat page asks who answered. */
static void on_server(void *arg, struct http_x *x, const struct route_params *p) {
    static const char split[] = "{\"split\":true}";
    (void)arg, (void)p;
    http_x_set_header(x, "Cache-Control", "no-cache");
    http_x_reply(x, 200, "application/json", split, sizeof(split) - 1);
}

const struct route console_data_routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/" WEB_CHAT "web/server.json", on_server, 0},
    {PLANE_MGMT, "GET", "/v2/console", on_cluster, 0},
    {PLANE_MGMT, "GET", "/v2/console/requests", on_requests, 0},
    {PLANE_MGMT, "GET", "/v2/console/history", on_history, 0},
    {PLANE_DATA, "GET", "/v2/requests/{m}", on_request, 0},
    {0, NULL, NULL, NULL, 0},
};

/* ---- the hour */

void console_first_token(struct console *c, const struct history_first *f) {
    if (c != NULL) history_first_token(c->history, clock_ms(), f);
}

void console_tokens(struct console *c, uint32_t d_id, uint64_t n, uint64_t gap_us) {
    if (c != NULL) history_tokens(c->history, clock_ms(), d_id, n, gap_us);
}

void console_ended(struct console *c, enum history_end how) {
    if (c != NULL) history_ended(c->history, clock_ms(), how);
}

static uint32_t permille(uint64_t part, uint64_t of) {
    return of > 0 && part <= of ? (uint32_t)(part * 1000 / of) : 0;
}

static void on_tick(void *arg) {
    struct console *c = arg;
    const uint64_t now = clock_ms();
    struct history_gauges g = {0};
    struct relay_counts n;
    uint64_t used = 0, total = 0;
    if (!coord_leads(c->co)) return;
    for (const struct inst *in = c->co->reg.first; in != NULL; in = in->next) {
        const struct status_msg *s = &in->facts.status;
        const uint64_t slots = inst_slots_free(in), blocks = inst_blocks_free(in);
        if (!in->facts.online || !inst_answers(in)) continue;
        const uint64_t taken = blocks < s->total_blocks ? s->total_blocks - blocks : 0;
        const struct history_load l = {.batch = s->running,
                                       .kv_permille = permille(taken, s->total_blocks)};
        history_instance(c->history, now, in->id, &l);
        if (!inst_works_as(in, ROLE_DECODE)) continue;
        g.slots_total += s->total_slots;
        g.slots_used += slots < s->total_slots ? s->total_slots - (uint32_t)slots : 0;
        used += taken;
        total += s->total_blocks;
    }
    relay_counts(c->co->relays, &n);
    g.running = (uint32_t)(n.in_flight - n.queued);
    g.queued = (uint32_t)n.queued;
    g.kv_permille = permille(used, total);
    history_gauges(c->history, now, &g);
}

/* ---- life */

enum err console_create(struct console **out, struct coordinator *co) {
    struct console *c = calloc(1, sizeof(*c));
    *out = c;
    if (c == NULL) return ERR_NO_MEMORY;
    c->co = co;
    c->started_unix_ms = clock_unix_us() / 1000;
    c->history = history_create(clock_ms());
    enum err e = c->history == NULL
                     ? ERR_NO_MEMORY
                     : loop_timer_start(&c->tick, co->loop, TICK_MS, TICK_MS, on_tick, c);
    if (e != ERR_OK) console_destroy(out);
    return e;
}

void console_destroy(struct console **cp) {
    struct console *c = *cp;
    if (c == NULL) return;
    loop_timer_stop(&c->tick);
    history_destroy(&c->history);
    buf_free(&c->cluster.body);
    buf_free(&c->requests.body);
    free(c);
    *cp = NULL;
}
