/* rank_table: the file that lists the instances (cluster-api 7.1), and one entry of it, which is
 * also what an instance registers. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/coord_conf.h"
#include "proto/json.h"

static enum err read_ip(const struct json_value *o, const char *where, const char *key, bool must,
                        char dst[16], struct errbuf *eb) {
    const char *s = "";
    size_t n = 0;
    struct in_addr a;
    enum json_got got = json_get_str(o, key, &s, &n);
    if (got == JSON_ABSENT && !must) return ERR_OK;
    if (got != JSON_OK || n > 15 || inet_pton(AF_INET, s, &a) != 1)
        return err_set(eb, ERR_INVALID, "%s.%s must be an IPv4 address, got \"%.40s\"", where, key,
                       s);
    memcpy(dst, s, n + 1);
    return ERR_OK;
}

/* A port as a string or an integer; absent or "": def. */
static enum err read_port(const struct json_value *o, const char *where, const char *key,
                          int64_t def, uint16_t *port, struct errbuf *eb) {
    struct json_value *v;
    const char *s;
    size_t n;
    int64_t i = 0;
    *port = (uint16_t)def;
    if (json_get(o, key, &v) != JSON_OK) return ERR_OK;
    bool ok = json_as_i64(v, &i) == JSON_OK;
    if (!ok && json_as_str(v, &s, &n) == JSON_OK) {
        if (n == 0) return ERR_OK;
        ok = n <= 5 && s[strspn(s, "0123456789")] == 0;
        i = ok ? strtol(s, NULL, 10) : 0;
    }
    if (!ok || i < 1024 || i > 65535) {
        char lit[64];
        json_literal(lit, sizeof(lit), v);
        return err_set(eb, ERR_INVALID, "%s.%s must be a port from 1024 to 65535, got %s", where,
                       key, lit);
    }
    *port = (uint16_t)i;
    return ERR_OK;
}

static enum err read_word(const struct json_value *o, const char *where, const char *key,
                          const char *def, char *dst, size_t cap, struct errbuf *eb) {
    const char *s = def;
    size_t n = strlen(def);
    enum json_got got = json_get_str(o, key, &s, &n);
    if ((got != JSON_OK && got != JSON_ABSENT) || n >= cap || s[strspn(s, "0123456789")] != 0)
        return err_set(eb, ERR_INVALID, "%s.%s must be decimal digits", where, key);
    memcpy(dst, s, n + 1);
    return ERR_OK;
}

static enum err read_devices(struct node_conf *n, const struct json_value *o, const char *where,
                             struct errbuf *eb) {
    struct json_value *arr;
    if (json_get_arr(o, "device", &arr) != JSON_OK || json_arr_len(arr) == 0)
        return err_set(eb, ERR_INVALID, "%s.device must be a non-empty array", where);
    size_t k = json_arr_len(arr);
    if (k > DEVICES_MAX)
        return err_set(eb, ERR_INVALID, "%s.device has %zu entries, at most %d are allowed", where,
                       k, DEVICES_MAX);
    n->devices = calloc(k, sizeof(*n->devices));
    if (n->devices == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    n->n_devices = k;
    for (size_t i = 0; i < k; i++) {
        struct json_value *v = json_arr_at(arr, i);
        struct role_device *d = &n->devices[i];
        char at[128];
        snprintf(at, sizeof(at), "%s.device[%zu]", where, i);
        if (!json_is(v, json_type_object))
            return err_set(eb, ERR_INVALID, "%s must be an object", at);
        enum err e = read_word(v, at, "device_id", "0", d->device_id, sizeof(d->device_id), eb);
        if (e == ERR_OK)
            e = read_word(v, at, "device_logical_id", d->device_id, d->device_logical_id,
                          sizeof(d->device_logical_id), eb);
        if (e == ERR_OK)
            e = read_word(v, at, "rank_id", d->device_id, d->rank_id, sizeof(d->rank_id), eb);
        memcpy(d->device_ip, n->ip, sizeof(d->device_ip));
        if (e == ERR_OK) e = read_ip(v, at, "device_ip", false, d->device_ip, eb);
        if (e != ERR_OK) return e;
    }
    return ERR_OK;
}

void node_conf_free(struct node_conf *n) {
    free(n->devices);
    memset(n, 0, sizeof(*n));
}

enum err node_conf_read(struct node_conf *n, const struct coord_conf *c, const struct json_value *o,
                        const char *where, struct errbuf *eb) {
    int64_t label = -1;
    memset(n, 0, sizeof(*n));
    if (!json_is(o, json_type_object))
        return err_set(eb, ERR_INVALID, "%s must be an object", where);
    enum err e = read_ip(o, where, "server_ip", true, n->ip, eb);
    if (e != ERR_OK) return e;
    memcpy(n->mgmt_ip, n->ip, sizeof(n->mgmt_ip));
    e = read_ip(o, where, "mgmt_ip", false, n->mgmt_ip, eb);
    if (e == ERR_OK) e = read_port(o, where, "predict_port", c->instance_port, &n->port, eb);
    if (e == ERR_OK) e = read_port(o, where, "mgmt_port", c->instance_mgmt_port, &n->mgmt_port, eb);
    if (e == ERR_OK)
        e = read_port(o, where, "metric_port", c->instance_metric_port, &n->metric_port, eb);
    if (e == ERR_OK) e = read_port(o, where, "inter_comm_port", 1121, &n->inter_comm_port, eb);
    if (e == ERR_OK) e = read_devices(n, o, where, eb);
    enum json_got got = json_get_i64(o, "label", &label);
    if (e == ERR_OK && got != JSON_ABSENT &&
        (got != JSON_OK || label < 0 || label > LABEL_FLEX_STATIC))
        e = err_set(eb, ERR_INVALID, "%s.label must be an integer from 0 to %d", where,
                    LABEL_FLEX_STATIC);
    n->label = (int)label;
    if (e != ERR_OK) node_conf_free(n);
    return e;
}

void rank_table_free(struct rank_table *t) {
    for (size_t i = 0; i < t->n_nodes; i++) node_conf_free(&t->nodes[i]);
    free(t->nodes);
    memset(t, 0, sizeof(*t));
}

static enum err read_group(struct rank_table *t, const struct coord_conf *c,
                           const struct json_value *group, size_t idx, struct errbuf *eb) {
    struct json_value *list;
    const char *id;
    size_t id_len;
    char where[64];
    snprintf(where, sizeof(where), "server_group_list[%zu]", idx);
    if (json_get_str(group, "group_id", &id, &id_len) != JSON_OK)
        return err_set(eb, ERR_INVALID, "%s.group_id must be a string", where);
    if (strcmp(id, "0") == 0 || strcmp(id, "1") == 0)
        return ERR_OK; /* coordinators and controllers */
    if (json_get_arr(group, "server_list", &list) != JSON_OK)
        return err_set(eb, ERR_INVALID, "%s.server_list must be an array", where);
    size_t k = json_arr_len(list);
    if (t->n_nodes + k > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID, "more than %d servers", INSTANCES_MAX);
    struct node_conf *nodes = realloc(t->nodes, (t->n_nodes + k + 1) * sizeof(*nodes));
    if (nodes == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    t->nodes = nodes;
    for (size_t i = 0; i < k; i++) {
        char at[128];
        snprintf(at, sizeof(at), "%s.server_list[%zu]", where, i);
        enum err e = node_conf_read(&t->nodes[t->n_nodes], c, json_arr_at(list, i), at, eb);
        if (e != ERR_OK) return e;
        struct node_conf *own = &t->nodes[t->n_nodes++];
        for (struct node_conf *n = t->nodes; n < own; n++)
            if (n->mgmt_port == own->mgmt_port && strcmp(n->mgmt_ip, own->mgmt_ip) == 0)
                return err_set(eb, ERR_INVALID, "%s: management %s:%u is another server's too", at,
                               own->mgmt_ip, own->mgmt_port);
    }
    return ERR_OK;
}

enum err rank_table_parse(struct rank_table *t, const struct coord_conf *c, const char *json,
                          size_t n, struct errbuf *eb) {
    struct json_value *root = NULL, *groups;
    memset(t, 0, sizeof(*t));
    enum err e = json_read(&root, json, n, NULL, eb);
    if (e != ERR_OK) return e;
    if (json_get_arr(root, "server_group_list", &groups) != JSON_OK) {
        e = err_set(eb, ERR_INVALID, "server_group_list must be an array");
    } else {
        for (size_t i = 0; e == ERR_OK && i < json_arr_len(groups); i++)
            e = read_group(t, c, json_arr_at(groups, i), i, eb);
    }
    json_put(root);
    if (e != ERR_OK) rank_table_free(t);
    return e;
}
