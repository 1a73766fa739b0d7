/* status_msg: GET /v1/config and GET /v1|v2/status bodies to structs and back. */
#include "proto/status_msg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/json.h"

static char *finish(struct json_value *root) {
    const char *s = root != NULL ? json_to_text(root, JSON_COMPACT, NULL) : NULL;
    char *out = s != NULL ? strdup(s) : NULL;
    json_put(root);
    return out;
}

static void add_int(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64((int64_t)v));
}

bool instance_name_ok(const char *s) {
    size_t n = strlen(s);
    return n >= 1 && n <= INSTANCE_NAME_BYTES_MAX && s[strspn(s, "0123456789")] != 0 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-") == n;
}

char *config_msg_format(const struct config_msg *m) {
    struct json_value *o = json_new_obj();
    if (o == NULL) return NULL;
    json_obj_set(o, "modelName", json_new_str(m->model_name));
    add_int(o, "maxSeqLen", m->max_seq_len);
    json_obj_set(o, "npuMemSize", json_new_i64(m->npu_mem_gb));
    json_obj_set(o, "cpuMemSize", json_new_i64(m->cpu_mem_gb));
    add_int(o, "worldSize", m->world_size);
    add_int(o, "maxOutputLen", m->max_output_len);
    add_int(o, "cacheBlockSize", m->cache_block_size);
    if (m->instance_name[0] != 0) /* beyond the reference, so only where there is one */
        json_obj_set(o, "instanceName", json_new_str(m->instance_name));
    return finish(o);
}

/* An unsigned field in [min, max]. */
static enum err get_uint(const struct json_value *o, const char *key, uint64_t min, uint64_t max,
                         uint64_t *out, struct errbuf *eb) {
    uint64_t v;
    if (json_get_u64(o, key, &v) != JSON_OK || v < min || v > max)
        return err_set(eb, ERR_INVALID, "%s must be an integer from %" PRIu64 " to %" PRIu64, key,
                       min, max);
    *out = v;
    return ERR_OK;
}

static enum err read_root(struct json_value **root, const char *body, size_t n, struct errbuf *eb) {
    enum err e = json_read(root, body, n, NULL, eb);
    if (e == ERR_OK && !json_is(*root, json_type_object)) {
        json_put(*root);
        *root = NULL;
        e = err_set(eb, ERR_INVALID, "the body must be an object");
    }
    return e;
}

enum err config_msg_parse(struct config_msg *m, const char *body, size_t n, struct errbuf *eb) {
    struct json_value *o;
    const char *name;
    size_t name_len;
    uint64_t seq = 0, out_len = 0, block = 0, world = 1;
    memset(m, 0, sizeof(*m));
    enum err e = read_root(&o, body, n, eb);
    if (e != ERR_OK) return e;
    if (json_get_str(o, "modelName", &name, &name_len) != JSON_OK ||
        name_len > MODEL_NAME_BYTES_MAX)
        e = err_set(eb, ERR_INVALID, "modelName must be a string of at most %d bytes",
                    MODEL_NAME_BYTES_MAX);
    const char *own = "";
    size_t own_len = 0;
    if (e == ERR_OK && json_get_str(o, "instanceName", &own, &own_len) != JSON_ABSENT &&
        !instance_name_ok(own))
        e = err_set(
            eb, ERR_INVALID,
            "instanceName must be 1 to %d letters, digits, '.', ':', '_' or '-', not digits alone",
            INSTANCE_NAME_BYTES_MAX);
    if (e == ERR_OK) e = get_uint(o, "maxSeqLen", 0, UINT32_MAX, &seq, eb);
    if (e == ERR_OK) e = get_uint(o, "maxOutputLen", 1, UINT32_MAX - 1, &out_len, eb);
    if (e == ERR_OK) e = get_uint(o, "cacheBlockSize", 1, 128, &block, eb);
    if (e == ERR_OK) {
        if (json_get_u64(o, "worldSize", &world) != JSON_OK || world > UINT32_MAX)
            world = 1; /* not checked by the reference */
        (void)json_get_i64(o, "npuMemSize", &m->npu_mem_gb);
        (void)json_get_i64(o, "cpuMemSize", &m->cpu_mem_gb);
        memcpy(m->model_name, name, name_len);
        snprintf(m->instance_name, sizeof(m->instance_name), "%s", own);
        m->max_seq_len = (uint32_t)seq;
        m->max_output_len = (uint32_t)out_len;
        m->cache_block_size = (uint32_t)block;
        m->world_size = (uint32_t)world;
    }
    json_put(o);
    return e;
}

static const char *const role_status_word[] = {"RoleUnknown", "RoleSwitching", "RoleReady"};

const char *role_status_name(enum role_status s) {
    return (unsigned)s <= ROLE_STATUS_READY ? role_status_word[s] : "RoleUnknown";
}

/* Beyond the reference, so only where there are any. */
static void add_adapters(struct json_value *root, const struct status_msg *m) {
    if (m->n_adapters == 0) return;
    struct json_value *all = json_new_arr();
    for (size_t i = 0; i < m->n_adapters; i++) {
        struct json_value *a = json_new_obj();
        json_obj_set(a, "name", json_new_str(m->adapters[i].name));
        json_obj_set(a, "path", json_new_str(m->adapters[i].path));
        json_arr_add(all, a);
    }
    json_obj_set(root, "loraAdapters", all);
}

/* Numbers of 64 bits are strings: readers of JSON numbers keep fewer. */
static void add_orders(struct json_value *root, const struct status_msg *m) {
    char text[24];
    if (m->term == 0) return;
    struct json_value *o = json_new_obj();
    snprintf(text, sizeof(text), "%" PRIu64, m->term);
    json_obj_set(o, "term", json_new_str(text));
    snprintf(text, sizeof(text), "%016" PRIx64, m->plan);
    json_obj_set(o, "plan", json_new_str(text));
    add_int(o, "id", m->id);
    json_obj_set(o, "listening", json_new_bool(m->listened));
    if (m->drained) json_obj_set(o, "drained", json_new_bool(true));
    json_obj_set(root, "orders", o);
}

char *status_msg_format(const struct status_msg *m, int version) {
    struct json_value *root = json_new_obj(), *service = json_new_obj(), *res = json_new_obj(),
                      *link = json_new_obj(), *peers = json_new_arr(), *ips = json_new_arr();
    json_obj_set(service, "roleStatus", json_new_str(role_status_name(m->role_status)));
    json_obj_set(service, "currentRole", json_new_str(inst_role_name(m->role)));
    if (m->role == ROLE_FLEX) json_obj_set(service, "p_percentage", json_new_i64(m->p_percentage));
    if (m->held) json_obj_set(service, "engineHeld", json_new_bool(true));
    if (m->embeds_only) json_obj_set(service, "embedsOnly", json_new_bool(true));
    if (m->stuck_ms > 0) add_int(service, "engineStuckMs", m->stuck_ms);
    json_obj_set(root, "service", service);
    add_int(res, "availSlotsNum", m->avail_slots);
    add_int(res, "availBlockNum", m->avail_blocks);
    add_int(res, "waitingRequestNum", m->waiting);
    add_int(res, "runningRequestNum", m->running);
    add_int(res, "swappedRequestNum", m->swapped);
    add_int(res, "freeNpuBlockNums", m->free_blocks);
    add_int(res, "freeCpuBlockNums", 0);
    add_int(res, "totalNpuBlockNums", m->total_blocks);
    add_int(res, "totalCpuBlockNums", 0);
    add_int(res, "totalSlotsNum", m->total_slots);
    add_int(res, "kvLeases", m->kv_leases);
    if (version == 2) {
        add_int(res, "totalAvailNpuSlotsNum", m->avail_slots);
        add_int(res, "totalAvailNpuBlockNum", m->avail_blocks);
        add_int(res, "maxAvailNpuBlockNum", m->avail_blocks);
        struct json_value *map = json_new_arr(), *pair = json_new_arr();
        json_arr_add(pair, json_new_i64(0));
        json_arr_add(pair, json_new_i64((int64_t)m->free_blocks));
        json_arr_add(map, pair);
        json_obj_set(res, "dpInstMap", map);
    }
    json_obj_set(root, "resource", res);
    for (size_t i = 0; i < m->n_links; i++) {
        struct json_value *p = json_new_obj();
        add_int(p, "target", m->links[i].target);
        json_obj_set(p, "link", json_new_str(m->links[i].text));
        if (m->links[i].detail[0] != 0) json_obj_set(p, "detail", json_new_str(m->links[i].detail));
        if (m->links[i].bytes_per_s > 0) add_int(p, "bytesPerSecond", m->links[i].bytes_per_s);
        if (m->links[i].rtt_us > 0) add_int(p, "rttMicroseconds", m->links[i].rtt_us);
        if (m->links[i].idle_bytes_per_s > 0)
            add_int(p, "idleBytesPerSecond", m->links[i].idle_bytes_per_s);
        json_arr_add(peers, p);
        if (m->links[i].ok) json_arr_add(ips, json_new_str(m->links[i].server_ip));
    }
    json_obj_set(link, "peers", peers);
    json_obj_set(root, "linkStatus", link);
    json_obj_set(root, "peers", ips);
    add_adapters(root, m);
    add_orders(root, m);
    if (version == 2) json_obj_set(root, "perf", perf_format(&m->perf));
    if (version == 2 && m->prefix.epoch != 0)
        json_obj_set(root, "prefixCache", prefix_msg_format(&m->prefix));
    return finish(root);
}

/* A counter that may be absent; one above max counts as max, never as less. */
static uint64_t opt_uint(const struct json_value *o, const char *key, uint64_t max) {
    uint64_t v = 0;
    if (json_get_u64(o, key, &v) != JSON_OK) return 0;
    return v < max ? v : max;
}

static enum err read_links(struct status_msg *m, const struct json_value *root, struct errbuf *eb) {
    struct json_value *link, *arr;
    bool ips = json_get_obj(root, "linkStatus", &link) != JSON_OK;
    if (ips) {
        if (json_get_arr(root, "peers", &arr) != JSON_OK) return ERR_OK;
    } else if (json_get_arr(link, "peers", &arr) != JSON_OK) {
        return ERR_OK;
    }
    size_t k = json_arr_len(arr);
    if (k == 0) return ERR_OK;
    if (k > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID, "peers has %zu entries, at most %d are allowed", k,
                       INSTANCES_MAX);
    m->links = calloc(k, sizeof(*m->links));
    if (m->links == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < k; i++) {
        struct json_value *p = json_arr_at(arr, i);
        struct link_status *l = &m->links[i];
        const char *s;
        size_t n;
        uint64_t target;
        if (ips) { /* the older shape: addresses of good links */
            if (json_as_str(p, &s, &n) != JSON_OK || n >= sizeof(l->server_ip))
                return err_set(eb, ERR_INVALID, "peers[%zu] must be an IPv4 address", i);
            memcpy(l->server_ip, s, n);
            l->ok = true;
            memcpy(l->text, "ok", 3);
        } else {
            if (json_get_u64(p, "target", &target) != JSON_OK || target > UINT32_MAX ||
                json_get_str(p, "link", &s, &n) != JSON_OK)
                return err_set(eb, ERR_INVALID, "linkStatus.peers[%zu] must have target and link",
                               i);
            l->target = (uint32_t)target;
            snprintf(l->text, sizeof(l->text), "%s", s);
            l->ok = strcmp(s, "ok") == 0;
            if (json_get_str(p, "detail", &s, &n) == JSON_OK)
                snprintf(l->detail, sizeof(l->detail), "%s", s);
            l->bytes_per_s = opt_uint(p, "bytesPerSecond", INT64_MAX);
            l->rtt_us = opt_uint(p, "rttMicroseconds", INT64_MAX);
            l->idle_bytes_per_s = opt_uint(p, "idleBytesPerSecond", INT64_MAX);
        }
        m->n_links = i + 1;
    }
    return ERR_OK;
}

static enum err read_adapters(struct status_msg *m, const struct json_value *root,
                              struct errbuf *eb) {
    struct json_value *arr;
    if (json_get_arr(root, "loraAdapters", &arr) != JSON_OK) return ERR_OK;
    size_t k = json_arr_len(arr);
    if (k == 0) return ERR_OK;
    if (k > STATUS_ADAPTERS_MAX)
        return err_set(eb, ERR_INVALID, "loraAdapters has %zu entries, at most %d are allowed", k,
                       STATUS_ADAPTERS_MAX);
    m->adapters = calloc(k, sizeof(*m->adapters));
    if (m->adapters == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < k; i++) {
        struct json_value *o = json_arr_at(arr, i);
        struct adapter_status *a = &m->adapters[i];
        const char *name, *path;
        size_t n_name, n_path;
        if (json_get_str(o, "name", &name, &n_name) != JSON_OK || n_name < 1 ||
            n_name >= sizeof(a->name) || json_get_str(o, "path", &path, &n_path) != JSON_OK ||
            n_path < 1 || n_path >= sizeof(a->path))
            return err_set(eb, ERR_INVALID,
                           "loraAdapters[%zu] must have a name of 1 to %d bytes and a path of 1 to "
                           "%d bytes",
                           i, ADAPTER_NAME_BYTES_MAX, STATUS_PATH_BYTES - 1);
        snprintf(a->name, sizeof(a->name), "%s", name);
        snprintf(a->path, sizeof(a->path), "%s", path);
        m->n_adapters = i + 1;
    }
    return ERR_OK;
}

/* Whole digits of the base, in 64 bits; else 0. */
static uint64_t opt_digits(const struct json_value *o, const char *key, int base) {
    const char *s;
    size_t n;
    char *end;
    if (json_get_str(o, key, &s, &n) != JSON_OK || n == 0 || n > (base == 16 ? 16u : 19u) ||
        strspn(s, base == 16 ? "0123456789abcdef" : "0123456789") != n)
        return 0;
    return strtoull(s, &end, base);
}

static void read_orders(struct status_msg *m, const struct json_value *root) {
    struct json_value *o;
    if (json_get_obj(root, "orders", &o) != JSON_OK) return;
    m->term = opt_digits(o, "term", 10);
    if (m->term == 0) return;
    m->plan = opt_digits(o, "plan", 16);
    m->id = (uint32_t)opt_uint(o, "id", UINT32_MAX);
    (void)json_get_bool(o, "listening", &m->listened);
    (void)json_get_bool(o, "drained", &m->drained);
}

static enum err read_service(struct status_msg *m, const struct json_value *root,
                             struct errbuf *eb) {
    struct json_value *service;
    const char *s;
    size_t n;
    if (json_get_obj(root, "service", &service) != JSON_OK)
        return err_set(eb, ERR_INVALID, "service must be an object");
    if (json_get_str(service, "roleStatus", &s, &n) != JSON_OK)
        return err_set(eb, ERR_INVALID, "service.roleStatus must be a string");
    m->role_status = ROLE_STATUS_UNKNOWN;
    for (int i = 0; i <= ROLE_STATUS_READY; i++)
        if (strcmp(s, role_status_word[i]) == 0) m->role_status = (enum role_status)i;
    if (json_get_str(service, "currentRole", &s, &n) != JSON_OK)
        return err_set(eb, ERR_INVALID, "service.currentRole must be a string");
    m->role = inst_role_parse(s);
    m->p_percentage = (int)opt_uint(service, "p_percentage", 100);
    (void)json_get_bool(service, "engineHeld", &m->held);
    (void)json_get_bool(service, "embedsOnly", &m->embeds_only);
    m->stuck_ms = opt_uint(service, "engineStuckMs", INT64_MAX);
    return ERR_OK;
}

static enum err read_perf(struct status_msg *m, const struct json_value *root, struct errbuf *eb) {
    struct json_value *o;
    return perf_parse(&m->perf, json_get_obj(root, "perf", &o) == JSON_OK ? o : NULL, eb);
}

static enum err read_prefix(struct status_msg *m, const struct json_value *root,
                            struct errbuf *eb) {
    struct json_value *o;
    return prefix_msg_parse(&m->prefix, json_get_obj(root, "prefixCache", &o) == JSON_OK ? o : NULL,
                            eb);
}

enum err status_msg_parse(struct status_msg *m, const char *body, size_t n, struct errbuf *eb) {
    struct json_value *root, *res;
    uint64_t slots = 0;
    memset(m, 0, sizeof(*m));
    enum err e = read_root(&root, body, n, eb);
    if (e != ERR_OK) return e;
    e = read_service(m, root, eb);
    if (e == ERR_OK && json_get_obj(root, "resource", &res) != JSON_OK)
        e = err_set(eb, ERR_INVALID, "resource must be an object");
    if (e == ERR_OK) e = get_uint(res, "availSlotsNum", 0, 5000, &slots, eb);
    if (e == ERR_OK) e = get_uint(res, "availBlockNum", 0, UINT32_MAX, &m->avail_blocks, eb);
    if (e == ERR_OK) {
        m->avail_slots = (uint32_t)slots;
        m->waiting = (uint32_t)opt_uint(res, "waitingRequestNum", UINT32_MAX);
        m->running = (uint32_t)opt_uint(res, "runningRequestNum", UINT32_MAX);
        m->swapped = (uint32_t)opt_uint(res, "swappedRequestNum", UINT32_MAX);
        m->free_blocks = opt_uint(res, "freeNpuBlockNums", INT64_MAX);
        m->total_blocks = opt_uint(res, "totalNpuBlockNums", INT64_MAX);
        m->total_slots = (uint32_t)opt_uint(res, "totalSlotsNum", UINT32_MAX);
        m->kv_leases = (uint32_t)opt_uint(res, "kvLeases", UINT32_MAX);
        e = read_links(m, root, eb);
        if (e == ERR_OK) e = read_adapters(m, root, eb);
        if (e == ERR_OK) e = read_perf(m, root, eb);
        if (e == ERR_OK) e = read_prefix(m, root, eb);
        read_orders(m, root);
    }
    json_put(root);
    if (e != ERR_OK) status_msg_free(m);
    return e;
}

char *status_msg_format_draining(const struct status_msg *m, const char *text) {
    struct json_value *root = json_new_obj(), *service = json_new_obj(), *res = json_new_obj();
    json_obj_set(root, "error", json_new_str(text));
    json_obj_set(root, "error_type", json_new_str("Service Unavailable"));
    json_obj_set(service, "state", json_new_str("DRAINING"));
    json_obj_set(root, "service", service);
    add_int(res, "waitingRequestNum", m->waiting);
    add_int(res, "runningRequestNum", m->running);
    add_int(res, "kvLeases", m->kv_leases);
    json_obj_set(root, "resource", res);
    return finish(root);
}

bool status_msg_parse_draining(struct status_msg *m, const char *body, size_t n) {
    struct json_value *root, *service, *res;
    const char *s = "";
    size_t len;
    if (read_root(&root, body, n, NULL) != ERR_OK) return false;
    bool is = json_get_obj(root, "service", &service) == JSON_OK &&
              json_get_str(service, "state", &s, &len) == JSON_OK && strcmp(s, "DRAINING") == 0 &&
              json_get_obj(root, "resource", &res) == JSON_OK;
    if (is) {
        m->waiting = (uint32_t)opt_uint(res, "waitingRequestNum", UINT32_MAX);
        m->running = (uint32_t)opt_uint(res, "runningRequestNum", UINT32_MAX);
        m->kv_leases = (uint32_t)opt_uint(res, "kvLeases", UINT32_MAX);
    }
    json_put(root);
    return is;
}

void status_msg_free(struct status_msg *m) {
    free(m->links);
    free(m->adapters);
    prefix_msg_free(&m->prefix);
    memset(m, 0, sizeof(*m));
}
