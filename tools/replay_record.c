/* replay_record: members to values, with their ranges. */
#include "tools/replay_record.h"

#include <stdlib.h>
#include <string.h>
#include "coordinator/recorder.h"
#include "proto/json.h"

/* ---- members: false once one is missing or wrong; the first is named */

struct reader {
    const struct json_value *o;
    struct errbuf *eb;
    enum err e;
};

static bool wrong(struct reader *r, const char *key, const char *what) {
    if (r->e == ERR_OK) r->e = err_set(r->eb, ERR_INVALID, "%s must be %s", key, what);
    return false;
}

static bool no_memory(struct reader *r) {
    if (r->e == ERR_OK) r->e = err_set(r->eb, ERR_NO_MEMORY, "out of memory");
    return false;
}

static uint64_t get_u64(struct reader *r, const char *key, uint64_t max) {
    uint64_t v = 0;
    if (json_get_u64(r->o, key, &v) == JSON_OK && v <= max) return v;
    (void)wrong(r, key, max == UINT32_MAX ? "an integer of 32 bits" : "an integer in its range");
    return 0;
}

static uint32_t get_u32(struct reader *r, const char *key) {
    return (uint32_t)get_u64(r, key, UINT32_MAX);
}

static double get_f64(struct reader *r, const char *key) {
    double v = 0;
    if (json_get_f64(r->o, key, &v) != JSON_OK) (void)wrong(r, key, "a number");
    return v;
}

static bool get_bool(struct reader *r, const char *key) {
    bool v = false;
    if (json_get_bool(r->o, key, &v) != JSON_OK) (void)wrong(r, key, "true or false");
    return v;
}

static const char *get_str(struct reader *r, const char *key, size_t *n) {
    const char *s = "";
    size_t len = 0;
    if (json_get_str(r->o, key, &s, &len) != JSON_OK) (void)wrong(r, key, "a string");
    if (n != NULL) *n = len;
    return s;
}

static const struct json_value *get_arr(struct reader *r, const char *key, size_t max) {
    struct json_value *arr = NULL;
    if (json_get_arr(r->o, key, &arr) != JSON_OK || json_arr_len(arr) > max)
        (void)wrong(r, key, "a list, not too long");
    return r->e == ERR_OK ? arr : NULL;
}

/* A decimal of 64 bits. */
static bool parse_u64(const char *s, uint64_t *out) {
    const size_t n = strlen(s);
    uint64_t v = 0;
    if (n < 1 || n > 20 || strspn(s, "0123456789") != n) return false;
    for (size_t i = 0; i < n; i++) {
        const uint64_t digit = (uint64_t)(s[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

static void read_id(struct reader *r, struct record_event *e) {
    e->id_text = get_str(r, "id", NULL);
    if (!parse_u64(e->id_text, &e->id) || e->id == 0)
        (void)wrong(r, "id", "the number of a request");
}

/* ---- requests */

static int digit_of(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != 0 ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Four characters to at most three bytes; 0: they are none. */
static size_t take_base64(const char *s, char *out) {
    const int a = digit_of(s[0]), b = digit_of(s[1]), c = s[2] == '=' ? 0 : digit_of(s[2]),
              d = s[3] == '=' ? 0 : digit_of(s[3]);
    if (a < 0 || b < 0 || c < 0 || d < 0 || (s[2] == '=' && s[3] != '=')) return 0;
    const unsigned v = (unsigned)a << 18 | (unsigned)b << 12 | (unsigned)c << 6 | (unsigned)d;
    out[0] = (char)(v >> 16);
    out[1] = (char)(v >> 8);
    out[2] = (char)v;
    return s[2] == '=' ? 1 : s[3] == '=' ? 2 : 3;
}

static void read_body(struct reader *r, struct record_event *e) {
    size_t n;
    const bool coded = json_obj_find(r->o, "bodyBase64", NULL);
    const char *s = get_str(r, coded ? "bodyBase64" : "body", &n);
    if (r->e != ERR_OK) return;
    char *body = e->request.body = malloc(n + 4);
    if (body == NULL) {
        (void)no_memory(r);
        return;
    }
    if (!coded) {
        memcpy(body, s, n);
        e->request.n = n;
    } else {
        size_t took = n % 4 == 0 ? 3 : 0;
        for (size_t i = 0; i < n && took == 3; i += 4) {
            took = take_base64(s + i, body + e->request.n);
            if (took < 3 && i + 4 < n) took = 0;
            e->request.n += took;
        }
        if (took == 0) (void)wrong(r, "bodyBase64", "base64");
    }
    body[e->request.n] = 0;
}

static void read_json_bytes(struct reader *r, struct record_event *e) {
    e->request.n_json = e->request.n;
    e->request.has_tensors = r->e == ERR_OK && json_obj_find(r->o, "jsonBytes", NULL);
    if (e->request.has_tensors) e->request.n_json = get_u64(r, "jsonBytes", e->request.n);
}

static void read_request(struct reader *r, struct record_event *e) {
    read_id(r, e);
    e->request.path = get_str(r, "path", NULL);
    e->request.tenant = get_str(r, "tenant", NULL);
    e->request.stream = get_bool(r, "stream");
    if (r->e == ERR_OK && e->request.path[0] != '/') (void)wrong(r, "path", "a path");
    read_body(r, e);
    read_json_bytes(r, e);
}

/* ---- decisions */

static void read_view(struct reader *r, struct inst_view *v) {
    *v = (struct inst_view){
        .id = get_u32(r, "id"),
        .group = get_u32(r, "group"),
        .open = get_bool(r, "open"),
        .prefill_tokens = get_u64(r, "prefillTokens", UINT64_MAX),
        .prefill_rate = get_f64(r, "prefillRate"),
        .links = get_u64(r, "links", UINT64_MAX),
        .pass = get_f64(r, "pass"),
        .slots_total = get_u64(r, "slotsTotal", UINT64_MAX),
        .blocks_total = get_u64(r, "blocksTotal", UINT64_MAX),
        .slots_booked = get_u64(r, "slotsBooked", UINT64_MAX),
        .blocks_booked = get_u64(r, "blocksBooked", UINT64_MAX),
        .blocks_avail = get_u64(r, "blocksAvail", UINT64_MAX),
        .token_sum = get_f64(r, "tokenSum"),
    };
    const struct json_value *peers = get_arr(r, "peers", INSTANCES_MAX);
    const size_t n = json_arr_len(peers);
    uint32_t *ids = calloc(n + 1, sizeof(*ids));
    v->peers = ids; /* freed as such */
    if (ids == NULL) {
        (void)no_memory(r);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t id;
        if (json_as_u64(json_arr_at(peers, i), &id) != JSON_OK || id > UINT32_MAX) {
            (void)wrong(r, "peers", "a list of ids");
            return;
        }
        ids[v->n_peers++] = (uint32_t)id;
    }
}

/* n numbers; false: they are not there. */
static bool opt_numbers(struct reader *r, const char *key, double *out, size_t n) {
    struct json_value *arr;
    if (json_get_arr(r->o, key, &arr) != JSON_OK) return false;
    if (json_arr_len(arr) != n) return wrong(r, key, "a list of as many numbers as it needs");
    for (size_t i = 0; i < n; i++)
        if (json_as_f64(json_arr_at(arr, i), &out[i]) != JSON_OK)
            return wrong(r, key, "a list of numbers");
    return true;
}

static double opt_f64(struct reader *r, const char *key) {
    double v = 0;
    (void)json_get_f64(r->o, key, &v);
    return v;
}

/* A number that counts something. */
static unsigned count_of(double v) {
    return v >= 0 && v <= INT32_MAX ? (unsigned)v : 0;
}

static uint32_t id_of(double v) {
    return v >= 0 && v <= UINT32_MAX ? (uint32_t)v : 0;
}

static void read_cost(struct reader *r, struct inst_view *v) {
    double all[RECORD_COSTS];
    if (!opt_numbers(r, "cost", all, RECORD_COSTS)) return;
    v->start_s = all[0];
    v->token_s = all[1];
    v->step_s = all[2];
    v->step_more_s = all[3];
    v->queue_s = all[4];
    v->cached = all[5];
    v->computes = all[6] != 0;
    v->n_prompts = count_of(all[7]);
    v->n_decoding = count_of(all[8]);
    double *rates = calloc(v->n_peers + 1, sizeof(*rates));
    v->peer_rate = rates; /* freed as such */
    if (rates == NULL)
        (void)no_memory(r);
    else
        (void)opt_numbers(r, "rates", rates, v->n_peers);
}

/* Of one that is a pair by itself. */
static void read_free(struct reader *r, struct inst_view *v) {
    double parts[2];
    v->whole = opt_numbers(r, "free", parts, 2);
    if (!v->whole) return;
    v->slots_free = count_of(parts[0]);
    v->blocks_free = count_of(parts[1]);
}

static struct inst_view *read_views(struct reader *r, const char *key, size_t *n) {
    const struct json_value *arr = get_arr(r, key, INSTANCES_MAX);
    const size_t len = json_arr_len(arr);
    struct inst_view *v = calloc(len + 1, sizeof(*v));
    *n = 0;
    if (v == NULL) (void)no_memory(r);
    for (size_t i = 0; i < len && r->e == ERR_OK; i++) {
        struct reader item = {.o = json_arr_at(arr, i), .eb = r->eb};
        (*n)++; /* what it has is freed, whatever is wrong with it */
        read_view(&item, &v[i]);
        if (item.e == ERR_OK) read_free(&item, &v[i]);
        if (item.e == ERR_OK) read_cost(&item, &v[i]);
        r->e = item.e;
    }
    return v;
}

static bool has_view(const struct inst_view *v, size_t n, uint32_t id) {
    for (size_t i = 0; i < n; i++)
        if (v[i].id == id) return true;
    return false;
}

static void read_choice(struct reader *r, struct record_event *e) {
    struct json_value *pair = NULL;
    uint64_t p, d;
    if (json_get(r->o, "choice", &pair) == JSON_NULL) return;
    e->decision.found = true;
    if (json_arr_len(pair) != 2 || json_as_u64(json_arr_at(pair, 0), &p) != JSON_OK ||
        json_as_u64(json_arr_at(pair, 1), &d) != JSON_OK || p > UINT32_MAX || d > UINT32_MAX ||
        (p != d && !has_view(e->decision.p, e->decision.n_p, (uint32_t)p)) ||
        !has_view(e->decision.d, e->decision.n_d, (uint32_t)d)) {
        (void)wrong(r, "choice", "null, or the ids of one p and one d, or of a d twice");
        return;
    }
    e->decision.p_id = (uint32_t)p;
    e->decision.d_id = (uint32_t)d;
}

static void read_decision(struct reader *r, struct record_event *e) {
    read_id(r, e);
    e->epoch = get_u32(r, "epoch");
    e->decision.demand = (struct demand){.prompts = get_u64(r, "prompts", UINT64_MAX),
                                         .slots = get_u64(r, "slots", UINT64_MAX),
                                         .blocks = get_u64(r, "blocks", UINT64_MAX),
                                         .prompt_tokens = get_u64(r, "promptTokens", UINT64_MAX),
                                         .new_tokens = opt_f64(r, "newTokens"),
                                         .token_target_s = opt_f64(r, "tokenTargetS"),
                                         .home = id_of(opt_f64(r, "home"))};
    (void)json_get_bool(r->o, "whole", &e->decision.demand.whole);
    e->decision.kv_token_bytes = opt_f64(r, "kvTokenBytes");
    e->decision.avoid_p = get_u32(r, "avoidP");
    e->decision.avoid_d = get_u32(r, "avoidD");
    e->decision.turn = get_u64(r, "turn", UINT64_MAX);
    e->decision.p = read_views(r, "p", &e->decision.n_p);
    e->decision.d = read_views(r, "d", &e->decision.n_d);
    if (r->e == ERR_OK) read_choice(r, e);
}

/* ---- answers, faults, the frame */

static void read_tokens(struct reader *r, struct record_event *e) {
    size_t n, at = 0;
    const char *list = get_str(r, "tokens", &n);
    read_id(r, e);
    e->epoch = get_u32(r, "epoch");
    if (r->e != ERR_OK) return;
    const size_t cap = n / 2 + 1; /* an item has a digit and a comma at least */
    e->tokens = malloc(cap * sizeof(*e->tokens));
    if (e->tokens == NULL) (void)no_memory(r);
    while (r->e == ERR_OK && at < n)
        if (e->n_tokens == cap || emitted_parse(list, n, &at, &e->tokens[e->n_tokens++]) != ERR_OK)
            (void)wrong(r, "tokens", "a list of tokens");
}

static void read_first(struct reader *r, struct record_event *e) {
    const char *seed = get_str(r, "seed", NULL);
    e->has_seed = seed[0] != 0;
    if (e->has_seed && !parse_u64(seed, &e->seed)) (void)wrong(r, "seed", "a number of 64 bits");
    read_tokens(r, e);
}

static void read_lost(struct reader *r, struct record_event *e) {
    read_id(r, e);
    e->epoch = get_u32(r, "epoch");
    e->cause = get_str(r, "cause", NULL);
    e->p_id = get_u32(r, "p");
    e->d_id = get_u32(r, "d");
    e->n_kept = get_u32(r, "kept");
}

static void read_end(struct reader *r, struct record_event *e) {
    read_id(r, e);
    e->status = (int)get_u64(r, "status", 999);
    e->cause = get_str(r, "cause", NULL);
}

static void read_instance(struct reader *r, struct record_event *e) {
    e->instance = get_u32(r, "instance");
    e->name = get_str(r, "name", NULL);
    e->role = get_str(r, "role", NULL);
    e->what = get_str(r, "what", NULL);
    e->why = get_str(r, "why", NULL);
}

static void read_closed(struct reader *r, struct record_event *e) {
    e->why = get_str(r, "why", NULL);
}

static void read_free_min(struct reader *r, struct schedule_conf *c) {
    double parts[2];
    if (!opt_numbers(r, "freeMin", parts, 2)) return;
    c->slots_free_min = parts[0];
    c->blocks_free_min = parts[1];
}

static void read_start(struct reader *r, struct record_event *e) {
    enum {
        N = sizeof(e->conf.coefficients) / sizeof(e->conf.coefficients[0]),
        N_WEIGHTS = sizeof(e->conf.weights) / sizeof(e->conf.weights[0])
    };
    if (get_u64(r, "version", UINT64_MAX) != RECORD_VERSION) {
        (void)wrong(r, "version", "1");
        return;
    }
    const char *policy = get_str(r, "policy", NULL);
    if (!schedule_policy_parse(&e->conf.policy, policy))
        (void)wrong(r, "policy", "round_robin, load_balance, cost or cache_affinity");
    read_free_min(r, &e->conf);
    (void)opt_numbers(r, "weights", e->conf.weights, N_WEIGHTS);
    e->conf.local_tokens_max = opt_f64(r, "localTokensMax");
    e->conf.prefill_queue_max = count_of(opt_f64(r, "prefillQueueMax"));
    e->conf.token_target_s = opt_f64(r, "tokenTargetS");
    e->conf.limit_demand = get_bool(r, "limitDemand");
    e->conf.res_limit_rate = get_f64(r, "resLimitRate");
    const struct json_value *k = get_arr(r, "coefficients", N);
    for (size_t i = 0; i < N && r->e == ERR_OK; i++)
        if (json_as_f64(json_arr_at(k, i), &e->conf.coefficients[i]) != JSON_OK)
            (void)wrong(r, "coefficients", "nine numbers");
}

static const struct {
    const char *event;
    void (*read)(struct reader *r, struct record_event *e);
} kinds[] = {
    [RECORD_START] = {"start", read_start},
    [RECORD_REQUEST] = {"request", read_request},
    [RECORD_DECISION] = {"decision", read_decision},
    [RECORD_FIRST] = {"first", read_first},
    [RECORD_TOKENS] = {"tokens", read_tokens},
    [RECORD_LOST] = {"lost", read_lost},
    [RECORD_END] = {"end", read_end},
    [RECORD_INSTANCE] = {"instance", read_instance},
    [RECORD_CLOSED] = {"closed", read_closed},
};

static void views_free(struct inst_view *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)v[i].peers);
        free((void *)(uintptr_t)v[i].peer_rate);
    }
    free(v);
}

void record_event_free(struct record_event *e) {
    views_free(e->decision.p, e->decision.n_p);
    views_free(e->decision.d, e->decision.n_d);
    free(e->request.body);
    free(e->tokens);
    json_put(e->root);
    memset(e, 0, sizeof(*e));
}

enum err record_event_parse(struct record_event *out, const char *line, size_t n,
                            struct errbuf *eb) {
    const size_t n_kinds = sizeof(kinds) / sizeof(kinds[0]);
    struct reader r = {.eb = eb};
    size_t kind = 0;
    memset(out, 0, sizeof(*out));
    enum err e = json_read(&out->root, line, n, NULL, eb);
    if (e != ERR_OK) return e;
    r.o = out->root;
    const char *event = get_str(&r, "event", NULL);
    out->us = get_u64(&r, "us", UINT64_MAX);
    while (kind < n_kinds && strcmp(kinds[kind].event, event) != 0) kind++;
    if (kind == n_kinds) {
        (void)wrong(&r, "event", "one that a recording has");
    } else {
        out->kind = (enum record_kind)kind;
        if (r.e == ERR_OK) kinds[kind].read(&r, out);
    }
    if (r.e != ERR_OK) record_event_free(out);
    return r.e;
}
