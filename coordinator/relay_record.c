/* relay_record: what is said of requests: the ones that run, and the last that ended. */
#include <string.h>
#include "coordinator/relay_priv.h"
#include "proto/json.h"

static struct json_value *lost_json(const struct recent *e) {
    struct json_value *arr = json_new_arr();
    for (unsigned i = 0; i < e->n_lost; i++) {
        const struct lost_attempt *l = &e->lost[i];
        struct json_value *o = json_new_obj();
        json_obj_set(o, "attempt", json_new_i64(l->epoch));
        json_obj_set(o, "p", json_new_i64(l->p_id));
        json_obj_set(o, "d", json_new_i64(l->d_id));
        json_obj_set(o, "pName", json_new_str(l->p_name));
        json_obj_set(o, "dName", json_new_str(l->d_name));
        json_obj_set(o, "cause", json_new_str(cause_name(l->cause)));
        json_obj_set(o, "tokensKept", json_new_i64(l->n_kept));
        json_obj_set(o, "tokensFetched", json_new_i64((int64_t)l->n_fetched));
        json_obj_set(o, "silenceMs", json_new_f64((double)l->silence_us / 1000));
        json_arr_add(arr, o);
    }
    return arr;
}

static struct json_value *recent_json(const struct recent *e) {
    struct json_value *o = json_new_obj();
    json_obj_set(o, "id", json_new_str(e->id));
    json_obj_set(o, "path", json_new_str(e->path));
    json_obj_set(o, "state", json_new_str(relay_state_name(e->state)));
    if (e->state == RELAY_ENDED) json_obj_set(o, "status", json_new_i64(e->status));
    if (e->cause != CAUSE_NONE) json_obj_set(o, "cause", json_new_str(cause_name(e->cause)));
    json_obj_set(o, "stream", json_new_bool(e->stream));
    json_obj_set(o, "attempt", json_new_i64(e->epoch));
    json_obj_set(o, "p", json_new_i64(e->p_id));
    json_obj_set(o, "d", json_new_i64(e->d_id));
    json_obj_set(o, "pName", json_new_str(e->p_name));
    json_obj_set(o, "dName", json_new_str(e->d_name));
    if (e->tenant[0] != 0) json_obj_set(o, "tenant", json_new_str(e->tenant));
    if (e->adapter[0] != 0) json_obj_set(o, "adapter", json_new_str(e->adapter));
    json_obj_set(o, "promptTokens", json_new_i64((int64_t)e->handover.prompt_tokens));
    json_obj_set(o, "cachedTokens", json_new_i64((int64_t)e->handover.cached_tokens));
    json_obj_set(o, "outputTokens", json_new_i64((int64_t)e->n_tokens));
    json_obj_set(o, "kvBytes", json_new_i64((int64_t)e->handover.kv_bytes));
    json_obj_set(o, "kvBlocks", json_new_i64((int64_t)e->handover.kv_blocks));
    json_obj_set(o, "kvBlocksHeld", json_new_i64((int64_t)e->handover.kv_blocks_held));
    json_obj_set(o, "kvTransferMs", json_new_f64(e->handover.transfer_ms));
    json_obj_set(o, "kvExposedMs", json_new_f64(e->handover.exposed_ms));
    json_obj_set(o, "startedUnixMs", json_new_i64((int64_t)e->started_unix_ms));
    json_obj_set(o, "queueMs", json_new_f64((double)e->queue_us / 1000));
    json_obj_set(o, "prefillQueueMs", json_new_f64(e->handover.p_queue_ms));
    json_obj_set(o, "prefillMs", json_new_f64(e->handover.prefill_ms));
    json_obj_set(o, "ttftMs", json_new_i64((int64_t)(e->ttft_us / 1000)));
    json_obj_set(o, "totalMs", json_new_i64((int64_t)e->total_ms));
    json_obj_set(o, "lostAttempts", lost_json(e));
    return o;
}

struct json_value *relay_recent(const struct relay_set *s) {
    struct json_value *arr = json_new_arr();
    size_t n = s->n_recent < RECENT ? s->n_recent : RECENT;
    for (size_t i = 0; i < n; i++)
        json_arr_add(arr, recent_json(&s->recent[(s->n_recent - 1 - i) % RECENT]));
    return arr;
}

static struct json_value *running_json(const struct relay *r) {
    struct recent e;
    relay_log_fill(r, &e); /* lends its lost attempts */
    return recent_json(&e);
}

struct json_value *relay_requests(const struct relay_set *s) {
    struct json_value *root = json_new_obj(), *running = json_new_arr();
    size_t n = 0;
    for (const struct relay *r = s->first; r != NULL && n < RECENT; r = r->next, n++)
        json_arr_add(running, running_json(r));
    json_obj_set(root, "running", running);
    json_obj_set(root, "recent", relay_recent(s));
    json_obj_set(root, "nRunning", json_new_i64((int64_t)s->n));
    json_obj_set(root, "nEnded", json_new_i64((int64_t)s->n_recent));
    return root;
}

struct json_value *relay_moving(const struct relay_set *s, size_t most) {
    struct json_value *arr = json_new_arr();
    size_t n = 0;
    for (const struct relay *r = s->first; r != NULL && n < most; r = r->next, n++) {
        struct json_value *o = json_new_obj();
        json_obj_set(o, "id", json_new_str(r->id_text));
        json_obj_set(o, "state", json_new_str(relay_state_name(r->state)));
        json_obj_set(o, "p", json_new_i64(r->attempt.p_id));
        json_obj_set(o, "d", json_new_i64(r->attempt.d_id));
        json_arr_add(arr, o);
    }
    return arr;
}

struct json_value *relay_record(struct relay_set *s, const char *tenant, const char *id) {
    const struct relay *r = relay_find_any(s, tenant, id);
    const size_t n = s->n_recent < RECENT ? s->n_recent : RECENT;
    if (r != NULL) return running_json(r);
    for (size_t i = 0; i < n; i++) {
        const struct recent *e = &s->recent[(s->n_recent - 1 - i) % RECENT];
        if (strcmp(e->id, id) == 0 && tenant_same_owner(e->tenant, tenant)) return recent_json(e);
    }
    return NULL;
}
