/* mgmt_msg: the bodies and the query of cluster-api 6.5. */
#include "coordinator/mgmt_msg.h"

#include <stdlib.h>
#include <string.h>
#include "proto/json.h"
#include "proto/status_msg.h"

/* The root object of a body. */
static enum err read_object(struct json_value **root, const char *body, size_t n,
                            struct errbuf *eb) {
    const enum err e = json_read(root, body, n, NULL, eb);
    if (e != ERR_OK) return e;
    if (json_is(*root, json_type_object)) return ERR_OK;
    json_put(*root);
    *root = NULL;
    return err_set(eb, ERR_INVALID, "the body must be an object");
}

static enum err refuse(struct errbuf *eb, const struct json_value *v, const char *name,
                       const char *rule) {
    char lit[64];
    json_literal(lit, sizeof(lit), v);
    return err_set(eb, ERR_INVALID, "%s must be %s, got %s", name, rule, lit);
}

static enum err read_id(const struct json_value *o, const char *key, uint32_t *id,
                        struct errbuf *eb) {
    struct json_value *v = NULL;
    uint64_t got = 0;
    if (json_get(o, key, &v) == JSON_ABSENT) return err_set(eb, ERR_INVALID, "%s is missing", key);
    if (json_as_u64(v, &got) != JSON_OK || got > UINT32_MAX)
        return refuse(eb, v, key, "an integer from 0 to 4294967295");
    *id = (uint32_t)got;
    return ERR_OK;
}

static enum err read_bool(const struct json_value *o, const char *key, bool *b, struct errbuf *eb) {
    struct json_value *v = NULL;
    if (json_get(o, key, &v) == JSON_ABSENT) return err_set(eb, ERR_INVALID, "%s is missing", key);
    return json_as_bool(v, b) == JSON_OK ? ERR_OK : refuse(eb, v, key, "a boolean");
}

static enum err read_ids(struct mgmt_ids *out, const struct json_value *root, struct errbuf *eb) {
    struct json_value *arr = NULL, *v = NULL;
    if (json_get(root, "ids", &v) == JSON_ABSENT) return err_set(eb, ERR_INVALID, "ids is missing");
    if (json_as_arr(v, &arr) != JSON_OK)
        return refuse(eb, v, "ids", "an array of ids of instances");
    const size_t n = json_arr_len(arr);
    if (n > INSTANCES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "ids must have at most %d entries, got %zu",
                       INSTANCES_MAX, n);
    for (out->n = 0; out->n < n; out->n++) {
        uint64_t id;
        v = json_arr_at(arr, out->n);
        if (json_as_u64(v, &id) != JSON_OK || id > UINT32_MAX) {
            char lit[64];
            json_literal(lit, sizeof(lit), v);
            return err_set(eb, ERR_INVALID,
                           "ids[%zu] must be an integer from 0 to 4294967295, got %s", out->n, lit);
        }
        out->ids[out->n] = (uint32_t)id;
    }
    return ERR_OK;
}

enum err mgmt_ids_parse(struct mgmt_ids *out, const char *body, size_t n, struct errbuf *eb) {
    struct json_value *root = NULL;
    out->n = 0;
    enum err e = read_object(&root, body, n, eb);
    if (e == ERR_OK) e = read_ids(out, root, eb);
    json_put(root);
    return e;
}

enum err mgmt_pair_parse(struct mgmt_pair *out, const char *body, size_t n, struct errbuf *eb) {
    struct json_value *root = NULL, *v = NULL;
    uint64_t type = 0;
    memset(out, 0, sizeof(*out));
    enum err e = read_object(&root, body, n, eb);
    if (e == ERR_OK) e = read_id(root, "p_id", &out->p_id, eb);
    if (e == ERR_OK) e = read_id(root, "d_id", &out->d_id, eb);
    if (e == ERR_OK && json_get(root, "role_change_type", &v) == JSON_ABSENT)
        e = err_set(eb, ERR_INVALID, "role_change_type is missing");
    if (e == ERR_OK && (json_as_u64(v, &type) != JSON_OK || type > 1))
        e = refuse(eb, v, "role_change_type", "0 (P becomes D) or 1 (D becomes P)");
    out->d_changes = type == 1;
    json_put(root);
    return e;
}

enum err mgmt_backup_parse(struct mgmt_backup *out, const char *body, size_t n, struct errbuf *eb) {
    struct json_value *root = NULL;
    memset(out, 0, sizeof(*out));
    enum err e = read_object(&root, body, n, eb);
    if (e == ERR_OK) e = read_bool(root, "is_master", &out->is_master, eb);
    if (e == ERR_OK) e = read_bool(root, "is_abnormal", &out->is_abnormal, eb);
    if (e == ERR_OK) e = read_bool(root, "is_random_pick", &out->is_random_pick, eb);
    json_put(root);
    return e;
}

/* Of the value of a parameter, up to its end. */
static int64_t id_of(const char *s, size_t n) {
    uint64_t id = 0;
    if (n == 0 || n > 10) return -1;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return -1;
        id = id * 10 + (uint64_t)(s[i] - '0');
    }
    return id <= UINT32_MAX ? (int64_t)id : -1;
}

enum err mgmt_tasks_parse(struct mgmt_tasks *out, const char *query, struct errbuf *eb) {
    out->n = 0;
    for (const char *p = query; *p != '\0';) {
        const size_t n = strcspn(p, "&");
        if (n >= 3 && memcmp(p, "id=", 3) == 0) {
            if (out->n == MGMT_TASKS_MAX)
                return err_set(eb, ERR_TOO_LARGE, "id must be given at most %d times",
                               MGMT_TASKS_MAX);
            out->ids[out->n++] = id_of(p + 3, n - 3);
        }
        p += n + (p[n] == '&');
    }
    return ERR_OK;
}

/* One parameter of GET /v1/plan. */
static enum err read_plan(struct mgmt_plan *out, const char *name, const char *value,
                          struct errbuf *eb) {
    if (strcmp(name, "id") == 0) {
        const int64_t id = id_of(value, strlen(value));
        if (id < 0)
            return err_set(eb, ERR_INVALID,
                           "id must be an integer from 0 to 4294967295, got \"%s\"", value);
        out->id = (uint32_t)id;
        out->asks = true;
    } else if (strcmp(name, "name") == 0) {
        if (!instance_name_ok(value))
            return err_set(eb, ERR_INVALID,
                           "name must be 1 to %d characters of A-Z, a-z, 0-9, . : _ -, got \"%s\"",
                           INSTANCE_NAME_BYTES_MAX, value);
        memcpy(out->name, value, strlen(value) + 1);
        out->asks = true;
    } else if (strcmp(name, "role") == 0) {
        out->role = inst_role_parse(value);
        if (out->role != ROLE_PREFILL && out->role != ROLE_DECODE)
            return err_set(eb, ERR_INVALID, "role must be prefill or decode, got \"%s\"", value);
    } else if (strcmp(name, "force") == 0) {
        out->force = strcmp(value, "true") == 0;
        if (!out->force && strcmp(value, "false") != 0)
            return err_set(eb, ERR_INVALID, "force must be true or false, got \"%s\"", value);
    } else {
        return err_set(eb, ERR_INVALID, "unknown parameter \"%s\": id, name, role, force are known",
                       name);
    }
    return ERR_OK;
}

enum err mgmt_plan_parse(struct mgmt_plan *out, const char *query, struct errbuf *eb) {
    memset(out, 0, sizeof(*out));
    for (const char *p = query; *p != '\0';) {
        char part[INSTANCE_NAME_BYTES_MAX + 32];
        const size_t n = strcspn(p, "&");
        if (n >= sizeof(part))
            return err_set(eb, ERR_TOO_LARGE, "a parameter must have at most %zu bytes, got %zu",
                           sizeof(part) - 1, n);
        memcpy(part, p, n);
        part[n] = '\0';
        char *value = strchr(part, '=');
        if (value != NULL) *value++ = '\0';
        if (n > 0) {
            const enum err e = read_plan(out, part, value != NULL ? value : "", eb);
            if (e != ERR_OK) return e;
        }
        p += n + (p[n] == '&');
    }
    if (out->asks == (out->role != ROLE_NONE)) return ERR_OK;
    return err_set(eb, ERR_INVALID, out->asks ? "role is missing" : "id or name is missing");
}

/* Digits alone, up to 2^53, which every client can count to. False: it is no such number. */
static bool read_step(uint64_t *out, const char *s, size_t n) {
    for (size_t i = *out = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *out = *out * 10 + (uint64_t)(s[i] - '0');
        if (*out > UINT64_C(1) << 53) return false;
    }
    return n > 0;
}

/* "11,21"; "" is nobody. */
static bool read_list(struct mgmt_history *out, const char *s, size_t n) {
    for (size_t i = out->n = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && s[i + len] != ',') len++;
        const int64_t id = id_of(s + i, len);
        if (id <= 0 || out->n == MGMT_SERIES_MAX) return false;
        out->ids[out->n++] = (uint32_t)id;
        i += len;
        if (i < n && ++i == n) return false; /* a comma at the end */
    }
    return true;
}

enum err mgmt_history_parse(struct mgmt_history *out, const char *query, struct errbuf *eb) {
    *out = (struct mgmt_history){0};
    for (const char *p = query; *p != '\0';) {
        const size_t n = strcspn(p, "&");
        if (n >= 6 && memcmp(p, "since=", 6) == 0 && !read_step(&out->since, p + 6, n - 6))
            return err_set(eb, ERR_INVALID,
                           "since must be the number of a step, from 0 to 9007199254740992, got "
                           "\"%.*s\"",
                           n < 46 ? (int)n - 6 : 40, p + 6);
        if (n >= 10 && memcmp(p, "instances=", 10) == 0 && !read_list(out, p + 10, n - 10))
            return err_set(eb, ERR_INVALID,
                           "instances must be at most %d ids from 1 to 4294967295 with commas "
                           "between, got \"%.*s\"",
                           MGMT_SERIES_MAX, n < 50 ? (int)n - 10 : 40, p + 10);
        p += n + (p[n] == '&');
    }
    return ERR_OK;
}
