/* inst_debug: what is under way, as JSON. */
#include "common/instance/inst_debug.h"

#include <stdlib.h>
#include "common/base/clock.h"
#include "common/base/process_state.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"
#include "proto/json.h"

static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}
static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64(v < INT64_MAX ? (int64_t)v : INT64_MAX));
}

static struct json_value *engine_json(struct instance *in) {
    struct engine_stats st;
    struct json_value *o = json_new_obj();
    engine_stats(worker_engine(in->worker), &st);
    add_u64(o, "slots", (uint64_t)st.slots_total);
    add_u64(o, "slotsFree", (uint64_t)st.slots_free);
    add_u64(o, "blocks", (uint64_t)st.blocks_total);
    add_u64(o, "blocksFree", (uint64_t)st.blocks_free);
    add_u64(o, "waiting", (uint64_t)st.waiting);
    add_u64(o, "held", (uint64_t)st.held);
    add_u64(o, "running", (uint64_t)st.running);
    add_u64(o, "importing", (uint64_t)st.importing);
    add_u64(o, "steps", st.steps);
    add_u64(o, "promptTokens", st.prompt_tokens);
    add_u64(o, "generatedTokens", st.generated_tokens);
    add_u64(o, "prefixLookupBlocks", st.prefix_lookup_blocks);
    add_u64(o, "prefixHitBlocks", st.prefix_hit_blocks);
    json_obj_set(o, "decodeStepMs", json_new_f64(st.decode_step_us * 1e-3));
    add_u64(o, "stuckMs", worker_stuck_ms(in->worker));
    return o;
}

static struct json_value *request_json(const struct inst_req *r, uint64_t now_ms) {
    static const char *const phases[] = {"waiting", "running", "leased"};
    struct json_value *o = json_new_obj();
    add_str(o, "id", r->id);
    add_u64(o, "epoch", r->epoch);
    add_str(o, "role", inst_role_name(r->kind->role));
    add_str(o, "phase", phases[r->kind->phase(r)]);
    add_u64(o, "ageMs", now_ms > r->arrival_ms ? now_ms - r->arrival_ms : 0);
    add_u64(o, "silentMs", now_ms > r->last_token_ms ? now_ms - r->last_token_ms : 0);
    if (r->req != NULL) {
        add_u64(o, "promptTokens", r->req->n_prompt);
        add_u64(o, "choices", (uint64_t)r->req->sampling.n_choices);
    }
    return o;
}

static struct json_value *links_json(struct instance *in) {
    struct json_value *arr = json_new_arr();
    struct link_status *links = NULL;
    const size_t n = in->kv_plane != NULL ? kv_plane_links(in->kv_plane, &links) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_value *o = json_new_obj();
        add_u64(o, "target", links[i].target);
        add_str(o, "ip", links[i].server_ip);
        json_obj_set(o, "ok", json_new_bool(links[i].ok));
        add_str(o, "text", links[i].text);
        add_str(o, "detail", links[i].detail);
        add_u64(o, "bytesPerSecond", links[i].bytes_per_s);
        add_u64(o, "rttMicroseconds", links[i].rtt_us);
        add_u64(o, "idleBytesPerSecond", links[i].idle_bytes_per_s);
        json_arr_add(arr, o);
    }
    free(links);
    return arr;
}

static void on_state(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    const uint64_t now_ms = clock_ms();
    struct json_value *root = json_new_obj(), *requests = json_new_arr();
    uint64_t n = 0;
    (void)p;
    json_obj_set(root, "process", process_state(&in->budget));
    json_obj_set(root, "loaded", json_new_bool(in->loaded));
    json_obj_set(root, "stopping", json_new_bool(in->stopping));
    if (in->loaded) {
        add_str(root, "role", inst_role_name(role_ctl_role(in->role_ctl)));
        add_u64(root, "term", role_ctl_term(in->role_ctl));
        json_obj_set(root, "engine", engine_json(in));
        json_obj_set(root, "links", links_json(in));
        for (const struct inst_req *r = req_set_next(in->reqs, NULL, NULL); r != NULL;
             r = req_set_next(in->reqs, NULL, r))
            if (n++ < DEBUG_REQUESTS_MAX) json_arr_add(requests, request_json(r, now_ms));
    }
    json_obj_set(root, "requests", requests);
    add_u64(root, "requestsInAll", n);
    inst_reply_tree(x, root);
}

const struct route inst_debug_routes[] = {
    {PLANE_MGMT, "GET", "/debug/state", on_state, 0},
    {0, NULL, NULL, NULL, 0},
};
