/* role_msg: POST /v1|v2/role bodies to structs and back. */
#include "proto/role_msg.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/hash.h"
#include "proto/json.h"

static const char *const role_word[] = {"none", "prefill", "decode", "flex", "mixed"};

const char *inst_role_name(enum inst_role r) {
    return (unsigned)r <= ROLE_MIXED ? role_word[r] : "none";
}

unsigned inst_role_can(enum inst_role r, int p_percentage) {
    if (r == ROLE_PREFILL || (r == ROLE_FLEX && p_percentage == 100)) return CAN_PREFILL;
    if (r == ROLE_DECODE || (r == ROLE_FLEX && p_percentage == 0)) return CAN_DECODE;
    return r == ROLE_FLEX || r == ROLE_MIXED ? CAN_BOTH : 0;
}

enum inst_role inst_role_parse(const char *name) {
    for (int r = ROLE_PREFILL; r <= ROLE_MIXED; r++)
        if (strcmp(name, role_word[r]) == 0) return (enum inst_role)r;
    return ROLE_NONE;
}

static bool all_digits(const char *s) {
    return *s != 0 && s[strspn(s, "0123456789")] == 0;
}

/* A string field of at most cap - 1 bytes. `where` is the path of the object, for messages. */
static enum err get_word(const struct json_value *o, const char *where, const char *key, bool must,
                         bool digits, char *dst, size_t cap, struct errbuf *eb) {
    const char *s = NULL;
    size_t n = 0;
    enum json_got got = json_get_str(o, key, &s, &n);
    if (got == JSON_ABSENT && !must) return ERR_OK;
    if (got != JSON_OK) return err_set(eb, ERR_INVALID, "%s.%s must be a string", where, key);
    if (n >= cap || strlen(s) != n || (digits && !all_digits(s)))
        return err_set(eb, ERR_INVALID, "%s.%s must be %s of at most %zu characters, got \"%.40s\"",
                       where, key, digits ? "decimal digits" : "a string", cap - 1, s);
    memcpy(dst, s, n + 1);
    return ERR_OK;
}

static enum err get_ipv4(const struct json_value *o, const char *where, const char *key, bool must,
                         char dst[16], struct errbuf *eb) {
    struct in_addr a;
    enum err e = get_word(o, where, key, must, false, dst, 16, eb);
    if (e != ERR_OK || dst[0] == 0) return e;
    if (inet_pton(AF_INET, dst, &a) != 1)
        return err_set(eb, ERR_INVALID, "%s.%s must be an IPv4 address, got \"%s\"", where, key,
                       dst);
    return ERR_OK;
}

static enum err get_port(const struct json_value *o, const char *where, uint16_t *port,
                         struct errbuf *eb) {
    struct json_value *v;
    const char *s;
    size_t n;
    uint64_t u = 0;
    if (json_get(o, "inter_comm_port", &v) != JSON_OK) return ERR_OK;
    bool ok = json_as_u64(v, &u) == JSON_OK;
    if (!ok && json_as_str(v, &s, &n) == JSON_OK) {
        if (n == 0) return ERR_OK; /* "" means the default */
        ok = n <= 5 && all_digits(s);
        u = ok ? strtoul(s, NULL, 10) : 0;
    }
    if (!ok || u < 1 || u > 65535)
        return err_set(eb, ERR_INVALID, "%s.inter_comm_port must be a port from 1 to 65535", where);
    *port = (uint16_t)u;
    return ERR_OK;
}

static enum err get_devices(const struct json_value *o, const char *where, struct role_node *n,
                            struct errbuf *eb) {
    struct json_value *arr;
    if (json_get_arr(o, "device", &arr) != JSON_OK || json_arr_len(arr) == 0)
        return err_set(eb, ERR_INVALID, "%s.device must be a non-empty array", where);
    size_t k = json_arr_len(arr);
    if (n->n_devices + k > DEVICES_MAX)
        return err_set(eb, ERR_INVALID, "%s.device has %zu entries, at most %d are allowed", where,
                       n->n_devices + k, DEVICES_MAX);
    struct role_device *d = realloc(n->devices, (n->n_devices + k) * sizeof(*d));
    if (d == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    n->devices = d;
    for (size_t i = 0; i < k; i++) {
        struct role_device *dev = &n->devices[n->n_devices++];
        struct json_value *v = json_arr_at(arr, i);
        char at[160];
        enum err e;
        memset(dev, 0, sizeof(*dev));
        snprintf(at, sizeof(at), "%s.device[%zu]", where, i);
        if (json_as_obj(v, &v) != JSON_OK)
            return err_set(eb, ERR_INVALID, "%s must be an object", at);
        if ((e = get_word(v, at, "device_id", true, true, dev->device_id, sizeof(dev->device_id),
                          eb)) != ERR_OK ||
            (e = get_word(v, at, "device_logical_id", false, true, dev->device_logical_id,
                          sizeof(dev->device_logical_id), eb)) != ERR_OK ||
            (e = get_ipv4(v, at, "device_ip", true, dev->device_ip, eb)) != ERR_OK ||
            (e = get_word(v, at, "rank_id", false, true, dev->rank_id, sizeof(dev->rank_id), eb)) !=
                ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err get_head(const struct json_value *o, const char *where, struct role_node *n,
                         struct errbuf *eb) {
    enum err e = get_ipv4(o, where, "server_ip", true, n->server_ip, eb);
    if (e == ERR_OK) e = get_ipv4(o, where, "host_ip", false, n->host_ip, eb);
    if (e == ERR_OK) e = get_port(o, where, &n->inter_comm_port, eb);
    return e;
}

static enum err get_node_v1(const struct json_value *o, const char *where, struct role_node *n,
                            struct errbuf *eb) {
    uint64_t u;
    int64_t share;
    n->p_percentage = -1;
    enum err e = get_head(o, where, n, eb);
    if (e != ERR_OK) return e;
    enum json_got got = json_get_u64(o, "id", &u);
    if (got != JSON_ABSENT && (got != JSON_OK || u > UINT32_MAX))
        return err_set(eb, ERR_INVALID, "%s.id must be an unsigned integer up to %u", where,
                       UINT32_MAX);
    n->has_id = got == JSON_OK;
    if (n->has_id != (n->host_ip[0] != 0))
        return err_set(eb, ERR_INVALID, "%s.id and %s.host_ip must be both present or both absent",
                       where, where);
    if (n->has_id) n->id = (uint32_t)u;
    got = json_get_i64(o, "p_percentage", &share);
    if (got != JSON_ABSENT && (got != JSON_OK || share < 0 || share > 100))
        return err_set(eb, ERR_INVALID, "%s.p_percentage must be an integer from 0 to 100", where);
    if (got == JSON_OK) n->p_percentage = (int)share;
    return get_devices(o, where, n, eb);
}

/* One instance in a /v2 body: an array of node objects, each with its data-parallel groups. The
 * instance id is dp_inst_id / 10000. */
static enum err get_node_v2(const struct json_value *arr, const char *where, struct role_node *n,
                            struct errbuf *eb) {
    size_t k = json_arr_len(arr);
    n->p_percentage = -1;
    if (k == 0) return err_set(eb, ERR_INVALID, "%s must be a non-empty array", where);
    if (k > DEVICES_MAX)
        return err_set(eb, ERR_INVALID, "%s has %zu nodes, at most %d are allowed", where, k,
                       DEVICES_MAX);
    for (size_t i = 0; i < k; i++) {
        struct json_value *o = json_arr_at(arr, i), *groups;
        struct role_node head = {0};
        char at[96], at_group[160];
        snprintf(at, sizeof(at), "%s[%zu]", where, i);
        if (json_as_obj(o, &o) != JSON_OK)
            return err_set(eb, ERR_INVALID, "%s must be an object", at);
        enum err e = get_head(o, at, i == 0 ? n : &head, eb);
        if (e != ERR_OK) return e;
        if (json_get_arr(o, "dp_inst_list", &groups) != JSON_OK || json_arr_len(groups) == 0)
            return err_set(eb, ERR_INVALID, "%s.dp_inst_list must be a non-empty array", at);
        for (size_t g = 0; g < json_arr_len(groups); g++) {
            struct json_value *grp = json_arr_at(groups, g);
            uint64_t u;
            snprintf(at_group, sizeof(at_group), "%s.dp_inst_list[%zu]", at, g);
            if (json_as_obj(grp, &grp) != JSON_OK ||
                json_get_u64(grp, "dp_inst_id", &u) != JSON_OK || u / 10000 > UINT32_MAX)
                return err_set(eb, ERR_INVALID, "%s.dp_inst_id must be an unsigned integer",
                               at_group);
            if (n->has_id && n->id != u / 10000)
                return err_set(eb, ERR_INVALID,
                               "%s.dp_inst_id %llu belongs to another instance than %u", at_group,
                               (unsigned long long)u, n->id);
            n->has_id = true;
            n->id = (uint32_t)(u / 10000);
            if ((e = get_devices(grp, at_group, n, eb)) != ERR_OK) return e;
        }
    }
    if (n->host_ip[0] == 0) memcpy(n->host_ip, n->server_ip, sizeof(n->host_ip));
    return ERR_OK;
}

static enum err get_node(struct json_value *v, int version, const char *where, struct role_node *n,
                         struct errbuf *eb) {
    if (version == 1) {
        if (json_as_obj(v, &v) != JSON_OK)
            return err_set(eb, ERR_INVALID, "%s must be an object", where);
        return get_node_v1(v, where, n, eb);
    }
    if (json_as_arr(v, &v) != JSON_OK)
        return err_set(eb, ERR_INVALID, "%s must be an array of nodes", where);
    return get_node_v2(v, where, n, eb);
}

static enum err read_tree(struct role_msg *out, int version, const struct json_value *root,
                          struct errbuf *eb) {
    struct json_value *v;
    if (json_get(root, "local", &v) != JSON_OK) return err_set(eb, ERR_INVALID, "local is missing");
    enum err e = get_node(v, version, "local", &out->local, eb);
    if (e != ERR_OK) return e;
    enum json_got got = json_get_bool(root, "force", &out->force);
    if (got != JSON_ABSENT && got != JSON_OK)
        return err_set(eb, ERR_INVALID, "force must be a boolean");
    got = json_get_bool(root, "drained", &out->drained);
    if (got != JSON_ABSENT && got != JSON_OK)
        return err_set(eb, ERR_INVALID, "drained must be a boolean");
    got = json_get_arr(root, "peers", &v);
    if (got == JSON_ABSENT || got == JSON_NULL) return ERR_OK;
    if (got != JSON_OK) return err_set(eb, ERR_INVALID, "peers must be an array");
    size_t k = json_arr_len(v);
    if (k > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID, "peers has %zu entries, at most %d are allowed", k,
                       INSTANCES_MAX);
    out->has_peers = true;
    if (k == 0) return ERR_OK;
    out->peers = calloc(k, sizeof(*out->peers));
    if (out->peers == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < k; i++) {
        char at[32];
        snprintf(at, sizeof(at), "peers[%zu]", i);
        out->n_peers = i + 1;
        if ((e = get_node(json_arr_at(v, i), version, at, &out->peers[i], eb)) != ERR_OK) return e;
    }
    return ERR_OK;
}

enum err role_msg_parse(struct role_msg *out, int version, const char *body, size_t n,
                        struct errbuf *eb) {
    struct json_value *root = NULL;
    memset(out, 0, sizeof(*out));
    enum err e = json_read(&root, body, n, NULL, eb);
    if (e != ERR_OK) return e;
    e = json_is(root, json_type_object) ? read_tree(out, version, root, eb)
                                        : err_set(eb, ERR_INVALID, "the body must be an object");
    json_put(root);
    if (e != ERR_OK) role_msg_free(out);
    return e;
}

static void node_free(struct role_node *n) {
    free(n->devices);
}

uint64_t role_msg_hash(const char *body, size_t n) {
    const uint64_t h = hash64_bytes(HASH64_BEGIN, body, n);
    return h != 0 ? h : 1;
}

void role_msg_free(struct role_msg *m) {
    node_free(&m->local);
    for (size_t i = 0; i < m->n_peers; i++) node_free(&m->peers[i]);
    free(m->peers);
    memset(m, 0, sizeof(*m));
}

static void add_str(struct json_value *o, const char *key, const char *s) {
    if (s[0] != 0) json_obj_set(o, key, json_new_str(s));
}

static struct json_value *devices_json(const struct role_node *n) {
    struct json_value *arr = json_new_arr();
    for (size_t i = 0; i < n->n_devices; i++) {
        struct json_value *d = json_new_obj();
        add_str(d, "device_id", n->devices[i].device_id);
        add_str(d, "device_logical_id", n->devices[i].device_logical_id);
        add_str(d, "device_ip", n->devices[i].device_ip);
        add_str(d, "rank_id", n->devices[i].rank_id);
        json_arr_add(arr, d);
    }
    return arr;
}

static struct json_value *node_json(const struct role_node *n, int version) {
    struct json_value *o = json_new_obj();
    add_str(o, "server_ip", n->server_ip);
    if (version == 1 && n->has_id) json_obj_set(o, "id", json_new_i64(n->id));
    add_str(o, "host_ip", n->host_ip);
    if (n->inter_comm_port != 0) {
        char port[8];
        snprintf(port, sizeof(port), "%u", n->inter_comm_port);
        add_str(o, "inter_comm_port", port);
    }
    if (version == 1) {
        if (n->p_percentage >= 0) json_obj_set(o, "p_percentage", json_new_i64(n->p_percentage));
        json_obj_set(o, "device", devices_json(n));
        return o;
    }
    struct json_value *arr = json_new_arr(), *groups = json_new_arr(), *g = json_new_obj();
    json_obj_set(g, "dp_inst_id", json_new_i64((int64_t)n->id * 10000));
    json_obj_set(g, "device", devices_json(n));
    json_arr_add(groups, g);
    json_obj_set(o, "dp_inst_list", groups);
    json_arr_add(arr, o);
    return arr;
}

char *role_msg_format(const struct role_msg *m, int version) {
    struct json_value *root = json_new_obj();
    if (root == NULL) return NULL;
    json_obj_set(root, "local", node_json(&m->local, version));
    if (m->has_peers) {
        struct json_value *arr = json_new_arr();
        for (size_t i = 0; i < m->n_peers; i++) json_arr_add(arr, node_json(&m->peers[i], version));
        json_obj_set(root, "peers", arr);
    }
    if (m->force) json_obj_set(root, "force", json_new_bool(true));
    if (m->drained) json_obj_set(root, "drained", json_new_bool(true));
    const char *s = json_to_text(root, JSON_COMPACT, NULL);
    char *out = s != NULL ? strdup(s) : NULL;
    json_put(root);
    return out;
}
