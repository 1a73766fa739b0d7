/* ctl_order: what changes the cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "proto/status_msg.h"
#include "tools/ctl/ctl.h"

enum { LEAVE_LOOK_MS = 250, LEASE_MS = 12000 };

/* `"id":7` or `"name":"x"`; false: it is neither, and that is said. */
static bool name_member(const struct ctl *c, char out[128], const char *id) {
    bool number = id[0] != 0 && id[strspn(id, "0123456789")] == 0 && strlen(id) <= 10;
    if (!number && !instance_name_ok(id)) {
        ctl_fail(c, 2, "NAME must be an instance's name, address or number, got \"%s\"", id);
        return false;
    }
    const char *quote = number ? "" : "\"";
    snprintf(out, 128, "\"%s\":%s%s%s", number ? "id" : "name", quote, id, quote);
    return true;
}

/* Gives the order; what it did is said by the caller, or in JSON by `answer`. Returns the exit
 * status. */
static int order(struct ctl *c, const char *path, const char *body, bool answer) {
    struct ctl_answer a;
    if (!ctl_ask(c, "POST", path, body, &a)) return 1;
    const int rc = a.status == 200 ? 0 : ctl_refused(c, &a);
    if (rc == 0 && c->json && answer) printf("%s\n", a.len > 0 ? a.body : "{\"result\":\"ok\"}");
    ctl_answer_free(&a);
    return rc;
}

static int drain(struct ctl *c, bool on) {
    char body[160], member[128];
    const char *id = c->args[0];
    if (!name_member(c, member, id)) return 2;
    snprintf(body, sizeof(body), "{%s,\"force\":%s}", member,
             on && ctl_option(c, "--force") != NULL ? "true" : "false");
    const int rc = order(c, on ? "/v1/instances/drain" : "/v1/instances/undrain", body, true);
    if (rc != 0 || c->json) return rc;
    if (on)
        printf("instance %s gets no new work; `%s status` shows when it is drained\n", id, c->name);
    else
        printf("instance %s takes new work again\n", id);
    return 0;
}

int ctl_cmd_drain(struct ctl *c) {
    return drain(c, true);
}

int ctl_cmd_undrain(struct ctl *c) {
    return drain(c, false);
}

static int suppose_role(struct ctl *c, const char *id, const char *role, bool force) {
    char path[256];
    const bool number = id[strspn(id, "0123456789")] == 0;
    snprintf(path, sizeof(path), "/v1/plan?%s=%s&role=%s&force=%s", number ? "id" : "name", id,
             role, force ? "true" : "false");
    if (!c->json) printf("if %s was %s:\n", id, role);
    fflush(stdout);
    return ctl_show_plan(c, path);
}

int ctl_cmd_role(struct ctl *c) {
    const char *id = c->args[0], *role = c->args[1];
    const bool force = ctl_option(c, "--force") != NULL,
               dry_run = ctl_option(c, "--dry-run") != NULL;
    long seconds = 0;
    char body[200], member[128], for_s[32] = "";
    if (!name_member(c, member, id)) return 2;
    const bool back = strcmp(role, "auto") == 0;
    if (strcmp(role, "prefill") != 0 && strcmp(role, "decode") != 0 && !back)
        return ctl_fail(c, 2, "role must be prefill, decode or auto, got %s", role);
    if (!ctl_number(c, "--for", 1, 604800, &seconds)) return 2;
    if (back && (dry_run || seconds != 0 || force))
        return ctl_fail(c, 2, "role auto takes no --for, --force and --dry-run");
    if (dry_run) return suppose_role(c, id, role, force);
    if (seconds != 0) snprintf(for_s, sizeof(for_s), ",\"for_s\":%ld", seconds);
    snprintf(body, sizeof(body), "{%s,\"role\":\"%s\",\"force\":%s%s}", member, role,
             force ? "true" : "false", for_s);
    const int rc = order(c, "/v1/instances/role", body, true);
    if (rc != 0 || c->json) return rc;
    if (back)
        printf("instance %s gets its role back; `%s status` shows when it serves\n", id, c->name);
    else
        printf("instance %s becomes %s; `%s status` shows when it serves\n", id, role, c->name);
    if (seconds != 0) printf("after %ld s it goes back\n", seconds);
    return 0;
}

/* ---- who is there */

/* "10.0.0.3:2026", the management plane of an instance that does not register by itself. */
int ctl_cmd_join(struct ctl *c) {
    const char *at = c->args[0], *label = ctl_option(c, "--role");
    static const char *const roles[] = {"prefill", "decode"};
    const size_t n = strcspn(at, ":");
    char ip[16] = "", member[32] = "", body[600];
    long mgmt = 1026, port = 0, metrics = 0, kv = 1121;
    if (at[n] == ':') {
        char *end;
        mgmt = strtol(at + n + 1, &end, 10);
        if (end == at + n + 1 || *end != '\0') mgmt = 0;
    }
    if (n == 0 || n >= sizeof(ip) || mgmt < 1024 || mgmt > 65535)
        return ctl_fail(c, 2,
                        "ADDRESS must be IPV4:PORT of an instance's management plane, with a port "
                        "from 1024 to 65535, got \"%s\"",
                        at);
    memcpy(ip, at, n);
    port = mgmt > 1024 ? mgmt - 1 : mgmt;
    if (!ctl_number(c, "--port", 1024, 65535, &port) ||
        !ctl_number(c, "--kv-port", 1024, 65535, &kv))
        return 2;
    metrics = mgmt;
    if (!ctl_number(c, "--metrics-port", 1024, 65535, &metrics)) return 2;
    if (label != NULL) {
        const bool decode = strcmp(label, roles[1]) == 0;
        if (!decode && strcmp(label, roles[0]) != 0)
            return ctl_fail(c, 2, "--role must be prefill or decode, got \"%s\"", label);
        snprintf(member, sizeof(member), "\"label\":%d,", decode);
    }
    snprintf(body, sizeof(body),
             "{\"server_ip\":\"%s\",\"predict_port\":\"%ld\",\"mgmt_port\":\"%ld\","
             "\"metric_port\":\"%ld\",\"inter_comm_port\":\"%ld\",%s\"device\":[{\"device_id\":"
             "\"0\",\"device_ip\":\"%s\",\"rank_id\":\"0\",\"device_logical_id\":\"0\"}]}",
             ip, port, mgmt, metrics, kv, member, ip);
    const int rc = order(c, "/v1/instances/register", body, true);
    if (rc == 0 && !c->json)
        printf("%s:%ld is known; `%s status` shows when it serves\n", ip, port, c->name);
    return rc;
}

/* Still there: "draining", say; gone: NULL. */
static const char *state_of(const struct json_value *status, const char *name) {
    const struct json_value *o = ctl_instance(status, name);
    return o != NULL ? ctl_str(o, "state") : NULL;
}

int ctl_cmd_leave(struct ctl *c) {
    const char *id = c->args[0];
    long timeout_s = 330;
    char body[160], member[128];
    if (!name_member(c, member, id) || !ctl_number(c, "--timeout", 1, 86400, &timeout_s)) return 2;
    snprintf(body, sizeof(body), "{%s,\"force\":%s}", member,
             ctl_option(c, "--force") != NULL ? "true" : "false");
    const bool json = c->json;
    const int rc = order(c, "/v1/instances/leave", body, false);
    if (rc != 0) return rc;
    if (!json) {
        printf("instance %s gets no new work and leaves when it is empty\n", id);
        fflush(stdout);
    }
    const uint64_t end = clock_ms() + (uint64_t)timeout_s * 1000;
    uint64_t drained_ms = 0;
    long long lease_ms = INT64_MAX; /* when it grows, somebody has registered it again */
    for (;;) {
        struct json_value *status = ctl_status(c);
        if (status == NULL) return 1;
        const char *state = state_of(status, id);
        const bool gone = state == NULL, drained = !gone && strcmp(state, "drained") == 0;
        const long long lease_now = gone ? 0 : ctl_num(ctl_instance(status, id), "leaseMs");
        const bool renewed = lease_now > lease_ms;
        lease_ms = lease_now;
        json_put(status);
        const uint64_t now = clock_ms();
        if (!drained) drained_ms = 0;
        if (drained && drained_ms == 0) drained_ms = now;
        const bool stays = drained && (renewed || now - drained_ms > LEASE_MS);
        if (gone || stays) {
            if (json)
                printf("{\"result\":\"ok\",\"gone\":%s}\n", gone ? "true" : "false");
            else if (gone)
                printf("instance %s is gone\n", id);
            else
                printf("instance %s is empty; it registers by itself, and is gone when it is "
                       "stopped\n",
                       id);
            return 0;
        }
        if (now >= end)
            return ctl_fail(c, 1, "instance %s is not empty after %ld s; it stays drained", id,
                            timeout_s);
        ctl_sleep_ms(LEAVE_LOOK_MS);
    }
}

/* ---- files read again */

int ctl_cmd_reload(struct ctl *c) {
    char base[CTL_BASE_BYTES];
    if (!ctl_base_of(c, c->n_args > 0 ? c->args[0] : NULL, base)) return 1;
    struct ctl_answer a;
    if (!ctl_ask_at(c, base, "POST", "/v1/reload", "{}", false, &a)) return 1;
    const int rc = a.status == 200 ? 0 : ctl_refused(c, &a);
    if (rc == 0 && c->json) printf("%s\n", a.body);
    if (rc == 0 && !c->json)
        printf("%s reads its certificates, keys and lists again; its log says what is wrong with "
               "them\n",
               c->n_args > 0 ? c->args[0] : "the coordinator");
    ctl_answer_free(&a);
    return rc;
}

/* ---- levels of the log */

static void show_levels(const struct json_value *root) {
    struct json_value *rules;
    printf("%s\n", ctl_str(root, "level"));
    for (size_t i = 0; json_get_arr(root, "rules", &rules) == JSON_OK && i < json_arr_len(rules);
         i++) {
        const struct json_value *o = json_arr_at(rules, i);
        const char *area = ctl_str(o, "area");
        printf("%s: %s", area[0] != '\0' ? area : "all areas", ctl_str(o, "level"));
        if (ctl_num(o, "seconds") > 0) printf(", for %lld s more", ctl_num(o, "seconds"));
        putchar('\n');
    }
}

int ctl_cmd_log(struct ctl *c) {
    char base[CTL_BASE_BYTES];
    long minutes = -1;
    struct buf body = BUF_INIT;
    struct ctl_answer a;
    if (!ctl_number(c, "--minutes", 0, 10080, &minutes)) return 2;
    if (c->n_args == 0 && minutes >= 0) return ctl_fail(c, 2, "--minutes needs a LEVEL");
    if (!ctl_base_of(c, ctl_option(c, "--on"), base)) return 1;
    if (c->n_args > 0) {
        buf_puts(&body, "{\"level\":");
        buf_json_str(&body, c->args[0], strlen(c->args[0]));
        buf_puts(&body, ",\"area\":");
        buf_json_str(&body, c->n_args > 1 ? c->args[1] : "",
                     c->n_args > 1 ? strlen(c->args[1]) : 0);
        if (minutes >= 0) buf_printf(&body, ",\"minutes\":%ld", minutes);
        buf_putc(&body, '}');
    }
    const bool ok = !body.failed && ctl_ask_at(c, base, c->n_args > 0 ? "POST" : "GET", "/v1/log",
                                               body.data, false, &a);
    buf_free(&body);
    if (!ok) return 1;
    int rc = a.status == 200 ? 0 : ctl_refused(c, &a);
    if (rc == 0 && c->json) {
        printf("%s\n", a.body);
    } else if (rc == 0) {
        struct json_value *root = NULL;
        if (json_read(&root, a.body, a.len, NULL, NULL) == ERR_OK)
            show_levels(root);
        else
            rc = ctl_fail(c, 1, "%s/v1/log: an answer that is no JSON", base);
        json_put(root);
    }
    ctl_answer_free(&a);
    return rc;
}
