/* refresh_msg: a table of the numbers, and a function for each thing that is none. */
#include "coordinator/refresh_msg.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/coord_conf.h"
#include "coordinator/plan.h"
#include "proto/json.h"

enum { INTER_COMM_PORT = 1121, INSTANCES_ROOM = 2 * INSTANCES_MAX };

/* A number of static_info or dynamic_info. */
struct number {
    const char *key;
    bool must;
    uint64_t min, max;
};

enum {
    S_GROUP,
    S_SEQ,
    S_OUTPUT,
    S_SLOTS,
    S_BLOCKS,
    S_BLOCK_SIZE,
    S_LABEL,
    S_ROLE,
    S_VIRTUAL,
    S_SHARE,
    S_COUNT
};
static const struct number static_info[S_COUNT] = {
    [S_GROUP] = {"group_id", true, 0, UINT64_MAX},
    [S_SEQ] = {"max_seq_len", true, 1, UINT32_MAX},
    [S_OUTPUT] = {"max_output_len", true, 1, UINT32_MAX},
    [S_SLOTS] = {"total_slots_num", true, 1, REFRESH_SLOTS_MAX},
    [S_BLOCKS] = {"total_block_num", true, 1, UINT32_MAX},
    [S_BLOCK_SIZE] = {"block_size", true, 1, REFRESH_BLOCK_TOKENS_MAX},
    [S_LABEL] = {"label", true, LABEL_PREFILL_STATIC, LABEL_FLEX_STATIC},
    [S_ROLE] = {"role", true, 0, 127},
    [S_VIRTUAL] = {"virtual_id", false, 0, UINT64_MAX},
    [S_SHARE] = {"p_percentage", false, 0, 100},
};
enum { D_SLOTS, D_BLOCKS, D_WAITING, D_RUNNING, D_SWAPPED, D_COUNT };
static const struct number dynamic_info[D_COUNT] = {
    [D_SLOTS] = {"avail_slots_num", true, 0, REFRESH_SLOTS_MAX},
    [D_BLOCKS] = {"avail_block_num", true, 0, UINT32_MAX},
    [D_WAITING] = {"waiting_request_num", false, 0, UINT32_MAX},
    [D_RUNNING] = {"running_request_num", false, 0, UINT32_MAX},
    [D_SWAPPED] = {"swapped_request_num", false, 0, UINT32_MAX},
};

static enum err refuse(struct errbuf *eb, const char *where, const char *key,
                       const struct json_value *v, const char *rule) {
    char lit[64];
    json_literal(lit, sizeof(lit), v);
    return err_set(eb, ERR_INVALID, "%s%s must be %s, got %s", where, key, rule, lit);
}

static enum err read_numbers(uint64_t *out, const struct json_value *o, const char *where,
                             const struct number *rows, size_t n_rows, struct errbuf *eb) {
    for (size_t i = 0; i < n_rows; i++) {
        struct json_value *v = NULL;
        char rule[64];
        out[i] = 0;
        if (json_get(o, rows[i].key, &v) == JSON_ABSENT) {
            if (!rows[i].must) continue;
            return err_set(eb, ERR_INVALID, "%s%s is missing", where, rows[i].key);
        }
        if (json_as_u64(v, &out[i]) == JSON_OK && out[i] >= rows[i].min && out[i] <= rows[i].max)
            continue;
        snprintf(rule, sizeof(rule), "an integer from %" PRIu64 " to %" PRIu64, rows[i].min,
                 rows[i].max);
        return refuse(eb, where, rows[i].key, v, rule);
    }
    return ERR_OK;
}

/* A port as a string or an integer; absent or "": def, where there is one. */
static enum err read_port(const struct json_value *o, const char *key, unsigned def, uint16_t *port,
                          struct errbuf *eb) {
    struct json_value *v = NULL;
    const char *s = "";
    size_t n = 0;
    uint64_t got = 0;
    if (json_get(o, key, &v) == JSON_ABSENT && def == 0)
        return err_set(eb, ERR_INVALID, "%s is missing", key);
    const bool is_text = json_as_str(v, &s, &n) == JSON_OK;
    if (def != 0 && (v == NULL || (is_text && n == 0))) {
        *port = (uint16_t)def;
        return ERR_OK;
    }
    if (is_text && n <= 5 && n > 0 && strspn(s, "0123456789") == n)
        got = strtoul(s, NULL, 10);
    else if (!is_text)
        (void)json_as_u64(v, &got);
    if (got < 1024 || got > 65535) return refuse(eb, "", key, v, "a port from 1024 to 65535");
    *port = (uint16_t)got;
    return ERR_OK;
}

static enum err read_address(struct refresh_inst *in, const struct json_value *o,
                             struct errbuf *eb) {
    struct json_value *v = NULL;
    struct in_addr a;
    const char *s = "";
    size_t n = 0;
    json_get(o, "ip", &v);
    if (json_as_str(v, &s, &n) != JSON_OK || n >= sizeof(in->ip) || strlen(s) != n ||
        inet_pton(AF_INET, s, &a) != 1)
        return refuse(eb, "", "ip", v, "an IPv4 address");
    memcpy(in->ip, s, n + 1);
    enum err e = read_port(o, "port", 0, &in->port, eb);
    if (e == ERR_OK) e = read_port(o, "metric_port", 0, &in->metric_port, eb);
    if (e == ERR_OK) e = read_port(o, "inter_comm_port", INTER_COMM_PORT, &in->inter_comm_port, eb);
    if (e != ERR_OK) return e;
    v = NULL;
    json_get(o, "model_name", &v);
    if (json_as_str(v, &s, &n) != JSON_OK || n == 0 || n > MODEL_NAME_BYTES_MAX || strlen(s) != n)
        return refuse(eb, "", "model_name", v, "a string of 1 to 256 bytes");
    memcpy(in->model_name, s, n + 1);
    return ERR_OK;
}

/* One of single_node has no role of its own: it does both. */
static enum err read_whole(struct refresh_inst *in, uint64_t code, struct errbuf *eb) {
    in->p_percentage = PLAN_UNSPLIT;
    in->role = ROLE_FLEX;
    if (code == 'U' || code == 'F') return ERR_OK;
    return err_set(eb, ERR_INVALID,
                   "static_info.role must be 85 (undefined) or 70 (flex) with deploy_mode "
                   "single_node, got %" PRIu64,
                   code);
}

/* ASCII codes of P, D and F. */
static enum err read_role(struct refresh_inst *in, uint64_t code, uint64_t share,
                          struct errbuf *eb) {
    in->p_percentage = -1;
    in->role = code == 'P'   ? ROLE_PREFILL
               : code == 'D' ? ROLE_DECODE
               : code == 'F' ? ROLE_FLEX
                             : ROLE_NONE;
    if (in->role == ROLE_NONE)
        return err_set(eb, ERR_INVALID,
                       "static_info.role must be 80 (P), 68 (D) or 70 (flex), got %" PRIu64, code);
    if (in->role != ROLE_FLEX) return ERR_OK;
    in->p_percentage = (int)share;
    if (share == 100) in->role = ROLE_PREFILL;
    if (share == 0) in->role = ROLE_DECODE;
    return ERR_OK;
}

static enum err read_static(struct refresh_inst *in, bool single_node, const struct json_value *o,
                            struct errbuf *eb) {
    struct json_value *info = NULL;
    uint64_t v[S_COUNT];
    if (json_get_obj(o, "static_info", &info) != JSON_OK)
        return err_set(eb, ERR_INVALID, "static_info must be an object");
    const enum err e = read_numbers(v, info, "static_info.", static_info, S_COUNT, eb);
    if (e != ERR_OK) return e;
    if (v[S_OUTPUT] > v[S_SEQ])
        return err_set(eb, ERR_INVALID,
                       "static_info.max_output_len must be at most max_seq_len (%" PRIu64
                       "), got %" PRIu64,
                       v[S_SEQ], v[S_OUTPUT]);
    in->group_id = v[S_GROUP];
    in->max_seq_len = (uint32_t)v[S_SEQ];
    in->max_output_len = (uint32_t)v[S_OUTPUT];
    in->total_slots = (uint32_t)v[S_SLOTS];
    in->total_blocks = v[S_BLOCKS];
    in->block_size = (uint32_t)v[S_BLOCK_SIZE];
    in->label = (int)v[S_LABEL];
    return single_node ? read_whole(in, v[S_ROLE], eb) : read_role(in, v[S_ROLE], v[S_SHARE], eb);
}

static enum err read_peers(struct refresh_inst *in, const struct json_value *info, size_t *n_peers,
                           struct errbuf *eb) {
    struct json_value *arr = NULL, *v = NULL;
    if (json_get(info, "peers", &v) == JSON_ABSENT)
        return err_set(eb, ERR_INVALID, "dynamic_info.peers is missing");
    if (json_as_arr(v, &arr) != JSON_OK)
        return refuse(eb, "dynamic_info.", "peers", v, "an array of ids");
    const size_t n = json_arr_len(arr);
    if (n > REFRESH_PEERS_MAX - *n_peers)
        return err_set(eb, ERR_TOO_LARGE,
                       "dynamic_info.peers of all instances must have at most %d entries",
                       REFRESH_PEERS_MAX);
    if ((in->peers = calloc(n + 1, sizeof(*in->peers))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    *n_peers += n;
    for (; in->n_peers < n; in->n_peers++) {
        uint64_t id;
        v = json_arr_at(arr, in->n_peers);
        if (json_as_u64(v, &id) != JSON_OK || id > UINT32_MAX)
            return refuse(eb, "dynamic_info.", "peers", v, "ids from 0 to 4294967295");
        in->peers[in->n_peers] = (uint32_t)id;
    }
    return ERR_OK;
}

static enum err read_dynamic(struct refresh_inst *in, const struct json_value *o, size_t *n_peers,
                             struct errbuf *eb) {
    struct json_value *info = NULL;
    uint64_t v[D_COUNT];
    if (json_get_obj(o, "dynamic_info", &info) != JSON_OK)
        return err_set(eb, ERR_INVALID, "dynamic_info must be an object");
    const enum err e = read_numbers(v, info, "dynamic_info.", dynamic_info, D_COUNT, eb);
    if (e != ERR_OK) return e;
    in->avail_slots =
        (uint32_t)v[D_SLOTS] < in->total_slots ? (uint32_t)v[D_SLOTS] : in->total_slots;
    in->avail_blocks = v[D_BLOCKS] < in->total_blocks ? v[D_BLOCKS] : in->total_blocks;
    in->waiting = (uint32_t)v[D_WAITING];
    in->running = (uint32_t)v[D_RUNNING];
    in->swapped = (uint32_t)v[D_SWAPPED];
    return read_peers(in, info, n_peers, eb);
}

static enum err read_id(uint32_t *id, const struct json_value *v, const char *where,
                        struct errbuf *eb) {
    uint64_t got;
    if (json_as_u64(v, &got) != JSON_OK || got == 0 || got > UINT32_MAX)
        return refuse(eb, where, "", v, "an integer from 1 to 4294967295");
    *id = (uint32_t)got;
    return ERR_OK;
}

static int by_value(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static enum err read_ids(struct refresh_msg *m, const struct json_value *root, struct errbuf *eb) {
    struct json_value *arr = NULL;
    if (json_get_arr(root, "ids", &arr) != JSON_OK)
        return err_set(eb, ERR_INVALID, "ids must be an array");
    const size_t n = json_arr_len(arr);
    if (n > INSTANCES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "ids must have at most %d entries, got %zu",
                       INSTANCES_MAX, n);
    if ((m->ids = calloc(n + 1, sizeof(*m->ids))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        char where[32];
        snprintf(where, sizeof(where), "ids[%zu]", i);
        const enum err e = read_id(&m->ids[i], json_arr_at(arr, i), where, eb);
        if (e != ERR_OK) return e;
    }
    qsort(m->ids, n, sizeof(*m->ids), by_value);
    for (size_t i = 0; i < n; i++)
        if (m->n_ids == 0 || m->ids[m->n_ids - 1] != m->ids[i]) m->ids[m->n_ids++] = m->ids[i];
    return ERR_OK;
}

/* Whether one before it has this id: a set of those that were taken, open addressing. */
static bool is_taken(const uint32_t *set, uint32_t id, size_t *at) {
    for (*at = (id * 2654435761u) % INSTANCES_ROOM; set[*at] != 0; *at = (*at + 1) % INSTANCES_ROOM)
        if (set[*at] == id) return true;
    return false;
}

/* Out of memory and too many peers end the whole; what else is wrong leaves this one out. */
static enum err read_one(struct refresh_inst *in, bool single_node, const struct json_value *o,
                         size_t *n_peers, struct errbuf *eb) {
    enum err e = read_address(in, o, eb);
    if (e == ERR_OK) e = read_static(in, single_node, o, eb);
    if (e == ERR_OK) e = read_dynamic(in, o, n_peers, eb);
    return e;
}

static enum err read_instances(struct refresh_msg *m, const struct json_value *arr, uint32_t *set,
                               refresh_skip_fn *skip, void *arg, struct errbuf *eb) {
    size_t n_peers = 0, at = 0;
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < json_arr_len(arr); i++) {
        const struct json_value *o = json_arr_at(arr, i);
        struct refresh_inst in = {0};
        struct json_value *v = NULL;
        struct errbuf why = {0};
        char where[48], text[ERR_TEXT_BYTES_MAX + 64];
        snprintf(where, sizeof(where), "instances[%zu].id", i);
        json_get(o, "id", &v);
        if ((e = read_id(&in.id, v, where, eb)) != ERR_OK) break;
        if (is_taken(set, in.id, &at))
            e = err_set(&why, ERR_INVALID, "the id is there twice");
        else
            e = read_one(&in, m->single_node, o, &n_peers, &why);
        if (e == ERR_OK) {
            set[at] = in.id;
            m->insts[m->n_insts++] = in;
            continue;
        }
        free(in.peers);
        snprintf(text, sizeof(text), "instances[%zu] (id %u): %s", i, in.id, why.text);
        if (e == ERR_NO_MEMORY || e == ERR_TOO_LARGE) return err_set(eb, e, "%s", text);
        skip(arg, text);
        e = ERR_OK;
    }
    return e;
}

static enum err read_root(struct refresh_msg *m, const struct json_value *root,
                          refresh_skip_fn *skip, void *arg, struct errbuf *eb) {
    struct json_value *arr = NULL;
    enum err e = json_is(root, json_type_object)
                     ? read_ids(m, root, eb)
                     : err_set(eb, ERR_INVALID, "the body must be an object");
    if (e != ERR_OK) return e;
    if (json_get_arr(root, "instances", &arr) != JSON_OK)
        return err_set(eb, ERR_INVALID, "instances must be an array");
    if (json_arr_len(arr) > INSTANCES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "instances must have at most %d entries, got %zu",
                       INSTANCES_MAX, json_arr_len(arr));
    m->insts = calloc(json_arr_len(arr) + 1, sizeof(*m->insts));
    uint32_t *set = calloc(INSTANCES_ROOM, sizeof(*set));
    e = m->insts != NULL && set != NULL ? read_instances(m, arr, set, skip, arg, eb)
                                        : err_set(eb, ERR_NO_MEMORY, "out of memory");
    free(set);
    return e;
}

enum err refresh_msg_parse(struct refresh_msg *out, bool single_node, const char *body, size_t n,
                           refresh_skip_fn *skip, void *arg, struct errbuf *eb) {
    struct json_value *root = NULL;
    *out = (struct refresh_msg){.single_node = single_node};
    enum err e = json_read(&root, body, n, NULL, eb);
    if (e == ERR_OK) e = read_root(out, root, skip, arg, eb);
    json_put(root);
    if (e != ERR_OK) refresh_msg_free(out);
    return e;
}

void refresh_msg_free(struct refresh_msg *m) {
    for (size_t i = 0; i < m->n_insts; i++) free(m->insts[i].peers);
    free(m->insts);
    free(m->ids);
    memset(m, 0, sizeof(*m));
}
