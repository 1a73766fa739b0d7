/* ctl_show: what the coordinator says, as tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tools/ctl/ctl.h"

enum { ROWS_RECENT = 5 };

static void print_instances(const struct json_value *arr) {
    printf("%-21s %-10s %-8s %-10s %-21s %-9s %-13s %-8s %s\n", "NAME", "ID", "ROLE", "STATE",
           "ADDRESS", "SLOTS", "BLOCKS", "RUNNING", "LINKS");
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const struct json_value *o = json_arr_at(arr, i);
        struct json_value *links;
        char slots[32], blocks[40];
        snprintf(slots, sizeof(slots), "%lld/%lld",
                 ctl_num(o, "slotsTotal") - ctl_num(o, "slotsFree"), ctl_num(o, "slotsTotal"));
        snprintf(blocks, sizeof(blocks), "%lld/%lld",
                 ctl_num(o, "blocksTotal") - ctl_num(o, "blocksFree"), ctl_num(o, "blocksTotal"));
        printf("%-21s %-10lld %-8s ", ctl_str(o, "name"), ctl_num(o, "id"), ctl_str(o, "role"));
        ctl_paint(ctl_str(o, "state"), 10, ctl_str(o, "state"));
        printf(" %-21s %-9s %-13s %-8lld ", ctl_str(o, "address"), slots, blocks,
               ctl_num(o, "runningRequests"));
        size_t n = json_get_arr(o, "links", &links) == JSON_OK ? json_arr_len(links) : 0;
        for (size_t k = 0; k < n; k++) {
            const struct json_value *l = json_arr_at(links, k);
            printf("%s%s:%s%s%s", k > 0 ? ", " : "", ctl_str(l, "name"), ctl_str(l, "link"),
                   ctl_str(l, "detail")[0] != 0 ? ": " : "", ctl_str(l, "detail"));
        }
        printf("%s\n", n == 0 ? "-" : "");
        if (ctl_str(o, "lastError")[0] != 0)
            printf("     last error: %s\n", ctl_str(o, "lastError"));
    }
}

static void print_recent(const struct json_value *arr) {
    size_t n = json_arr_len(arr);
    if (n == 0) return;
    printf("\n%-20s %-32s %-6s %-21s %-21s %-10s %-11s %-11s %-8s %s\n", "REQUEST", "PATH",
           "STATUS", "P", "D", "KV_BYTES", "TRANSFER_MS", "EXPOSED_MS", "TTFT_MS", "TOTAL_MS");
    for (size_t i = 0; i < n && i < ROWS_RECENT; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        printf("%-20s %-32s %-6lld %-21s %-21s %-10lld %-11.2f %-11.2f %-8lld %lld\n",
               ctl_str(o, "id"), ctl_str(o, "path"), ctl_num(o, "status"), ctl_str(o, "pName"),
               ctl_str(o, "dName"), ctl_num(o, "kvBytes"), ctl_real(o, "kvTransferMs"),
               ctl_real(o, "kvExposedMs"), ctl_num(o, "ttftMs"), ctl_num(o, "totalMs"));
    }
}

/* The attempts that were lost on the way, and what they cost the client. */
static void print_lost(const struct json_value *request) {
    struct json_value *lost;
    if (json_get_arr(request, "lostAttempts", &lost) != JSON_OK) return;
    for (size_t i = 0; i < json_arr_len(lost); i++) {
        const struct json_value *o = json_arr_at(lost, i);
        printf("attempt %lld on %s (P) and %s (D) was lost: %s; %lld tokens were kept, and "
               "waited %.0f ms for the next",
               ctl_num(o, "attempt") + 1, ctl_str(o, "pName"), ctl_str(o, "dName"),
               ctl_str(o, "cause"), ctl_num(o, "tokensKept"), ctl_real(o, "silenceMs"));
        if (ctl_num(o, "tokensFetched") > 0)
            printf(", which fetched the KV of %lld", ctl_num(o, "tokensFetched"));
        else
            printf(", which fetched no KV");
        printf("\n");
    }
}

/* The way of one request through the cluster: who computed, what moved, who wrote. */
static int print_request(const struct ctl *c, const char *body, size_t n, const char *id) {
    struct json_value *root = NULL, *recent;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        json_get_arr(root, "recentRequests", &recent) != JSON_OK)
        recent = NULL;
    const struct json_value *o = NULL;
    for (size_t i = 0; recent != NULL && o == NULL && i < json_arr_len(recent); i++) {
        const struct json_value *e = json_arr_at(recent, i);
        if (id == NULL || strcmp(ctl_str(e, "id"), id) == 0) o = e;
    }
    if (o == NULL) {
        ctl_fail(c, 1, "%s%s is not among the last requests", id != NULL ? "request " : "nothing",
                 id != NULL ? id : "");
    } else if (c->json) {
        const char *text = json_to_text(o, JSON_COMPACT, NULL);
        printf("%s\n", text != NULL ? text : "null");
    } else {
        printf("request %s on %s: status %lld\n", ctl_str(o, "id"), ctl_str(o, "path"),
               ctl_num(o, "status"));
        printf("prompt of %lld tokens computed on instance %s (P), answer written by instance %s "
               "(D)\n",
               ctl_num(o, "promptTokens"), ctl_str(o, "pName"), ctl_str(o, "dName"));
        printf("KV moved: %lld bytes of %lld blocks (%lld were on D already); %.2f ms on the way, "
               "%.2f ms of it exposed after the prefill\n",
               ctl_num(o, "kvBytes"), ctl_num(o, "kvBlocks"), ctl_num(o, "kvBlocksHeld"),
               ctl_real(o, "kvTransferMs"), ctl_real(o, "kvExposedMs"));
        printf("first token after %lld ms, whole answer after %lld ms\n", ctl_num(o, "ttftMs"),
               ctl_num(o, "totalMs"));
        print_lost(o);
    }
    int rc = o == NULL;
    json_put(root);
    return rc;
}

static int print_status(const struct ctl *c, const char *body, size_t n) {
    struct json_value *root = NULL, *co, *arr, *recent;
    bool ready = false;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        json_get_obj(root, "coordinator", &co) != JSON_OK ||
        json_get_arr(root, "instances", &arr) != JSON_OK) {
        ctl_fail(c, 1,
                 "the answer is not a cluster status (is this the coordinator's management port?)");
        json_put(root);
        return 1;
    }
    json_get_bool(co, "ready", &ready);
    printf("coordinator: ");
    ctl_paint(ready ? "ready" : "NOT ready", 0, ready ? "ready" : "NOT ready");
    printf(
        ", in flight %lld, queued %lld, finished %lld, failed %lld, refused %lld, retried %lld\n",
        ctl_num(co, "requestsInFlight"), ctl_num(co, "requestsQueued"),
        ctl_num(co, "requestsFinished"), ctl_num(co, "requestsFailed"),
        ctl_num(co, "requestsRefused"), ctl_num(co, "requestsRetried"));
    print_instances(arr);
    if (json_get_arr(root, "recentRequests", &recent) == JSON_OK) print_recent(recent);
    json_put(root);
    return 0;
}

/* GET path: as it is, or as print() has it. */
static int show(struct ctl *c, const char *path,
                int (*print)(const struct ctl *c, const char *body, size_t n)) {
    struct ctl_answer a;
    int rc = 0;
    if (!ctl_ask(c, "GET", path, NULL, &a)) return 1;
    if (a.status != 200)
        rc = ctl_refused(c, &a);
    else if (c->json)
        printf("%s\n", a.body);
    else
        rc = print(c, a.body, a.len);
    ctl_answer_free(&a);
    return rc;
}

int ctl_cmd_status(struct ctl *c) {
    return show(c, "/v2/status", print_status);
}

int ctl_cmd_request(struct ctl *c) {
    struct ctl_answer a;
    if (!ctl_ask(c, "GET", "/v2/status", NULL, &a)) return 1;
    const int rc = a.status == 200
                       ? print_request(c, a.body, a.len, c->n_args > 0 ? c->args[0] : NULL)
                       : ctl_refused(c, &a);
    ctl_answer_free(&a);
    return rc;
}

/* ---- the plan */

static void print_change(const struct json_value *o) {
    struct json_value *from = NULL, *to = NULL;
    json_get_obj(o, "from", &from);
    json_get_obj(o, "to", &to);
    bool stands_in = false;
    json_get_bool(to, "standsIn", &stands_in);
    if (strcmp(ctl_str(from, "role"), ctl_str(to, "role")) != 0)
        printf("  %s becomes %s (%s before)", ctl_str(o, "name"), ctl_str(to, "role"),
               ctl_str(from, "role"));
    else if (ctl_num(from, "group") != ctl_num(to, "group"))
        printf("  %s goes from group %lld to group %lld", ctl_str(o, "name"),
               ctl_num(from, "group"), ctl_num(to, "group"));
    else if (ctl_num(from, "prefillPercent") != ctl_num(to, "prefillPercent"))
        printf("  %s does %s", ctl_str(o, "name"),
               ctl_num(to, "prefillPercent") > 0 ? "both" : "its own part again");
    else
        printf("  %s %s for the other role", ctl_str(o, "name"),
               stands_in ? "stands in" : "stands in no more");
    printf(": %s\n", ctl_str(o, "why"));
}

static int print_plan(const struct ctl *c, const char *body, size_t n) {
    struct json_value *root = NULL, *changes, *unmet, *ratio = NULL;
    bool decides = true, whole = false;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        json_get_arr(root, "changes", &changes) != JSON_OK ||
        json_get_arr(root, "unmet", &unmet) != JSON_OK) {
        ctl_fail(c, 1, "the answer is not a plan (is this the coordinator's management port?)");
        json_put(root);
        return 1;
    }
    json_get_bool(root, "decides", &decides);
    json_get_bool(root, "singleNode", &whole);
    json_get_obj(root, "ratio", &ratio);
    if (!decides) printf("roles come from another controller (controller.enabled is false)\n");
    const size_t n_changes = json_arr_len(changes);
    if (n_changes == 0 && whole)
        printf("nothing changes (single_node: every instance does both)\n");
    else if (n_changes == 0)
        printf("nothing changes (ratio %lld:%lld)\n", ctl_num(ratio, "prefill"),
               ctl_num(ratio, "decode"));
    else if (ctl_real(root, "inSeconds") > 0)
        printf("in %.1f s, if nothing else happens:\n", ctl_real(root, "inSeconds"));
    else
        printf("now:\n");
    for (size_t i = 0; i < n_changes; i++) print_change(json_arr_at(changes, i));
    for (size_t i = 0; i < json_arr_len(unmet); i++) {
        const struct json_value *o = json_arr_at(unmet, i);
        printf("group %lld has no %s instance at work: %s\n", ctl_num(o, "group"),
               ctl_str(o, "role"), ctl_str(o, "why"));
    }
    json_put(root);
    return 0;
}

int ctl_show_plan(struct ctl *c, const char *path) {
    return show(c, path, print_plan);
}

int ctl_cmd_plan(struct ctl *c) {
    return ctl_show_plan(c, "/v1/plan");
}

/* ---- alarms */

static int print_alarms(const struct ctl *c, const char *body, size_t n) {
    struct json_value *root = NULL;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK || !json_is(root, json_type_array)) {
        ctl_fail(c, 1, "the answer is no list of alarms");
        json_put(root);
        return 1;
    }
    if (json_arr_len(root) == 0) printf("no alarms\n");
    for (size_t i = 0; i < json_arr_len(root); i++) {
        const struct json_value *o = json_arr_at(root, i);
        const time_t s = (time_t)(ctl_num(o, "occurUtc") / 1000);
        struct tm tm;
        char when[32] = "";
        if (gmtime_r(&s, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
        printf("%s %-7s %s %s, reason %lld (%s): %s%s%s\n", when,
               ctl_num(o, "cleared") != 0 ? "cleared" : "raised", ctl_str(o, "alarmId"),
               ctl_str(o, "alarmName"), ctl_num(o, "reasonId"), ctl_str(o, "probableCause"),
               ctl_str(o, "moi"), ctl_str(o, "additionalInformation")[0] != 0 ? ": " : "",
               ctl_str(o, "additionalInformation"));
    }
    json_put(root);
    return 0;
}

int ctl_cmd_alarms(struct ctl *c) {
    return show(c, "/v1/alarms", print_alarms);
}
