/* batonctl: asks a coordinator's management plane: the cluster as a table, or the change of a role.
 * quantize and inspect work on files, and hand over to the instance's program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/base/build.h"
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "common/net/loop.h"
#include "common/net/tls.h"
#include "proto/json.h"
#include "proto/status_msg.h"

enum { TIMEOUT_MS = 10000, ANSWER_BYTES_MAX = 16 << 20, ROWS_RECENT = 5 };

/* Where the coordinator is, and who we are there. */
struct target {
    const char *base;
    struct tls *tls; /* NULL: plain */
};

struct ask {
    struct loop *loop;
    int status; /* 0: no answer */
    char *body;
    size_t len;
    char detail[160];
};

static void on_done(void *arg, const struct http_result *r) {
    struct ask *a = arg;
    if (r->err == ERR_OK && (a->body = malloc(r->body_len + 1)) != NULL) {
        memcpy(a->body, r->body, r->body_len);
        a->body[r->body_len] = 0;
        a->len = r->body_len;
        a->status = r->status;
    } else {
        snprintf(a->detail, sizeof(a->detail), "%s",
                 r->detail != NULL ? r->detail : err_text(r->err));
    }
    loop_stop(a->loop);
}

/* One request and its answer. */
static bool ask(struct ask *a, const char *method, const struct target *t, const char *path,
                const char *body) {
    struct http_client *client = NULL;
    struct http_call *call;
    char url[1024];
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    memset(a, 0, sizeof(*a));
    snprintf(url, sizeof(url), "%s%s", t->base, path);
    if (loop_create(&a->loop) != ERR_OK ||
        http_client_create(&client, a->loop, "batonctl/1.0") != ERR_OK)
        return false;
    struct http_call_opts o = {.method = method,
                               .url = url,
                               .tls = t->tls,
                               .headers = body != NULL ? headers : NULL,
                               .body = body,
                               .body_len = body != NULL ? strlen(body) : 0,
                               .total_ms = TIMEOUT_MS,
                               .body_bytes_max = ANSWER_BYTES_MAX,
                               .on_done = on_done,
                               .arg = a};
    if (http_client_call(client, &o, &call) == ERR_OK) loop_run(a->loop);
    http_client_destroy(&client);
    loop_destroy(&a->loop);
    if (a->status == 0)
        fprintf(stderr, "batonctl: %s: %s\n", url, a->detail[0] != 0 ? a->detail : "no answer");
    return a->status != 0;
}

static const char *str(const struct json_value *o, const char *key) {
    const char *s = "";
    size_t n;
    json_get_str(o, key, &s, &n);
    return s;
}

static long long num(const struct json_value *o, const char *key) {
    int64_t v = 0;
    json_get_i64(o, key, &v);
    return v;
}

static double real(const struct json_value *o, const char *key) {
    double v = 0;
    json_get_f64(o, key, &v);
    return v;
}

static void print_instances(const struct json_value *arr) {
    printf("%-21s %-10s %-8s %-10s %-21s %-9s %-13s %-8s %s\n", "NAME", "ID", "ROLE", "STATE",
           "ADDRESS", "SLOTS", "BLOCKS", "RUNNING", "LINKS");
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const struct json_value *o = json_arr_at(arr, i);
        struct json_value *links;
        char slots[32], blocks[40];
        snprintf(slots, sizeof(slots), "%lld/%lld", num(o, "slotsTotal") - num(o, "slotsFree"),
                 num(o, "slotsTotal"));
        snprintf(blocks, sizeof(blocks), "%lld/%lld", num(o, "blocksTotal") - num(o, "blocksFree"),
                 num(o, "blocksTotal"));
        printf("%-21s %-10lld %-8s %-10s %-21s %-9s %-13s %-8lld ", str(o, "name"), num(o, "id"),
               str(o, "role"), str(o, "state"), str(o, "address"), slots, blocks,
               num(o, "runningRequests"));
        size_t n = json_get_arr(o, "links", &links) == JSON_OK ? json_arr_len(links) : 0;
        for (size_t k = 0; k < n; k++) {
            const struct json_value *l = json_arr_at(links, k);
            printf("%s%s:%s%s%s", k > 0 ? ", " : "", str(l, "name"), str(l, "link"),
                   str(l, "detail")[0] != 0 ? ": " : "", str(l, "detail"));
        }
        printf("%s\n", n == 0 ? "-" : "");
        if (str(o, "lastError")[0] != 0) printf("     last error: %s\n", str(o, "lastError"));
    }
}

static void print_recent(const struct json_value *arr) {
    size_t n = json_arr_len(arr);
    if (n == 0) return;
    printf("\n%-20s %-32s %-6s %-21s %-21s %-10s %-11s %-11s %-8s %s\n", "REQUEST", "PATH",
           "STATUS", "P", "D", "KV_BYTES", "TRANSFER_MS", "EXPOSED_MS", "TTFT_MS", "TOTAL_MS");
    for (size_t i = 0; i < n && i < ROWS_RECENT; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        printf("%-20s %-32s %-6lld %-21s %-21s %-10lld %-11.2f %-11.2f %-8lld %lld\n", str(o, "id"),
               str(o, "path"), num(o, "status"), str(o, "pName"), str(o, "dName"),
               num(o, "kvBytes"), real(o, "kvTransferMs"), real(o, "kvExposedMs"), num(o, "ttftMs"),
               num(o, "totalMs"));
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
               num(o, "attempt") + 1, str(o, "pName"), str(o, "dName"), str(o, "cause"),
               num(o, "tokensKept"), real(o, "silenceMs"));
        if (num(o, "tokensFetched") > 0)
            printf(", which fetched the KV of %lld", num(o, "tokensFetched"));
        else
            printf(", which fetched no KV");
        printf("\n");
    }
}

/* The way of one request through the cluster: who computed, what moved, who wrote. */
static int print_request(const char *body, size_t n, const char *id) {
    struct json_value *root = NULL, *recent;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        json_get_arr(root, "recentRequests", &recent) != JSON_OK)
        recent = NULL;
    const struct json_value *o = NULL;
    for (size_t i = 0; recent != NULL && o == NULL && i < json_arr_len(recent); i++) {
        const struct json_value *e = json_arr_at(recent, i);
        if (id == NULL || strcmp(str(e, "id"), id) == 0) o = e;
    }
    if (o == NULL) {
        fprintf(stderr, "batonctl: %s%s is not among the last requests\n",
                id != NULL ? "request " : "nothing", id != NULL ? id : "");
    } else {
        printf("request %s on %s: status %lld\n", str(o, "id"), str(o, "path"), num(o, "status"));
        printf("prompt of %lld tokens computed on instance %s (P), answer written by instance %s "
               "(D)\n",
               num(o, "promptTokens"), str(o, "pName"), str(o, "dName"));
        printf("KV moved: %lld bytes of %lld blocks (%lld were on D already); %.2f ms on the way, "
               "%.2f ms of it exposed after the prefill\n",
               num(o, "kvBytes"), num(o, "kvBlocks"), num(o, "kvBlocksHeld"),
               real(o, "kvTransferMs"), real(o, "kvExposedMs"));
        printf("first token after %lld ms, whole answer after %lld ms\n", num(o, "ttftMs"),
               num(o, "totalMs"));
        print_lost(o);
    }
    int rc = o == NULL;
    json_put(root);
    return rc;
}

static int print_status(const char *body, size_t n) {
    struct json_value *root = NULL, *co, *arr, *recent;
    bool ready = false;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        json_get_obj(root, "coordinator", &co) != JSON_OK ||
        json_get_arr(root, "instances", &arr) != JSON_OK) {
        fprintf(stderr, "batonctl: the answer is not a cluster status (is this the coordinator's "
                        "management port?)\n");
        json_put(root);
        return 1;
    }
    json_get_bool(co, "ready", &ready);
    printf("coordinator: %s, in flight %lld, queued %lld, finished %lld, failed %lld, refused "
           "%lld, retried %lld\n",
           ready ? "ready" : "NOT ready", num(co, "requestsInFlight"), num(co, "requestsQueued"),
           num(co, "requestsFinished"), num(co, "requestsFailed"), num(co, "requestsRefused"),
           num(co, "requestsRetried"));
    print_instances(arr);
    if (json_get_arr(root, "recentRequests", &recent) == JSON_OK) print_recent(recent);
    json_put(root);
    return 0;
}

static int print_error(const struct ask *a) {
    struct json_value *root = NULL;
    const char *text = a->body;
    size_t n;
    if (json_read(&root, a->body, a->len, NULL, NULL) == ERR_OK) {
        if (json_get_str(root, "error", &text, &n) != JSON_OK) text = a->body;
    }
    fprintf(stderr, "batonctl: status %d: %s\n", a->status, text);
    json_put(root);
    return 1;
}

static int cmd_status(const struct target *t, bool json) {
    struct ask a;
    int rc = 1;
    if (!ask(&a, "GET", t, "/v2/status", NULL)) return 1;
    if (a.status != 200) {
        rc = print_error(&a);
    } else if (json) {
        printf("%s\n", a.body);
        rc = 0;
    } else {
        rc = print_status(a.body, a.len);
    }
    free(a.body);
    return rc;
}

static int cmd_request(const struct target *t, const char *id) {
    struct ask a;
    if (!ask(&a, "GET", t, "/v2/status", NULL)) return 1;
    int rc = a.status == 200 ? print_request(a.body, a.len, id) : print_error(&a);
    free(a.body);
    return rc;
}

/* `"id":7` or `"name":"x"`; false: it is neither, and that is said. */
static bool name_member(char out[128], const char *id) {
    bool number = id[0] != 0 && id[strspn(id, "0123456789")] == 0 && strlen(id) <= 10;
    if (!number && !instance_name_ok(id)) {
        fprintf(stderr,
                "batonctl: NAME must be an instance's name, address or number, got \"%s\"\n", id);
        return false;
    }
    const char *quote = number ? "" : "\"";
    snprintf(out, 128, "\"%s\":%s%s%s", number ? "id" : "name", quote, id, quote);
    return true;
}

static int cmd_drain(const struct target *t, const char *id, bool on, bool force) {
    struct ask a;
    char body[160], member[128];
    if (!name_member(member, id)) return 2;
    snprintf(body, sizeof(body), "{%s,\"force\":%s}", member, force ? "true" : "false");
    if (!ask(&a, "POST", t, on ? "/v1/instances/drain" : "/v1/instances/undrain", body)) return 1;
    int rc = a.status == 200 ? 0 : print_error(&a);
    if (rc == 0 && on)
        printf("instance %s gets no new work; `batonctl status` shows when it is drained\n", id);
    if (rc == 0 && !on) printf("instance %s takes new work again\n", id);
    free(a.body);
    return rc;
}

/* ---- the plan */

static void print_change(const struct json_value *o) {
    struct json_value *from = NULL, *to = NULL;
    json_get_obj(o, "from", &from);
    json_get_obj(o, "to", &to);
    bool stands_in = false;
    json_get_bool(to, "standsIn", &stands_in);
    if (strcmp(str(from, "role"), str(to, "role")) != 0)
        printf("  %s becomes %s (%s before)", str(o, "name"), str(to, "role"), str(from, "role"));
    else if (num(from, "group") != num(to, "group"))
        printf("  %s goes from group %lld to group %lld", str(o, "name"), num(from, "group"),
               num(to, "group"));
    else
        printf("  %s %s for the other role", str(o, "name"),
               stands_in ? "stands in" : "stands in no more");
    printf(": %s\n", str(o, "why"));
}

static int print_plan(const char *body, size_t n) {
    struct json_value *root = NULL, *changes, *unmet, *ratio = NULL;
    bool decides = true;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK ||
        json_get_arr(root, "changes", &changes) != JSON_OK ||
        json_get_arr(root, "unmet", &unmet) != JSON_OK) {
        fprintf(stderr, "batonctl: the answer is not a plan (is this the coordinator's management "
                        "port?)\n");
        json_put(root);
        return 1;
    }
    json_get_bool(root, "decides", &decides);
    json_get_obj(root, "ratio", &ratio);
    if (!decides) printf("roles come from another controller (controller.enabled is false)\n");
    const size_t n_changes = json_arr_len(changes);
    if (n_changes == 0)
        printf("nothing changes (ratio %lld:%lld)\n", num(ratio, "prefill"), num(ratio, "decode"));
    else if (real(root, "inSeconds") > 0)
        printf("in %.1f s, if nothing else happens:\n", real(root, "inSeconds"));
    else
        printf("now:\n");
    for (size_t i = 0; i < n_changes; i++) print_change(json_arr_at(changes, i));
    for (size_t i = 0; i < json_arr_len(unmet); i++) {
        const struct json_value *o = json_arr_at(unmet, i);
        printf("group %lld has no %s instance at work: %s\n", num(o, "group"), str(o, "role"),
               str(o, "why"));
    }
    json_put(root);
    return 0;
}

/* path: what it would be like after an order, or what is. */
static int show_plan(const struct target *t, const char *path, bool json) {
    struct ask a;
    if (!ask(&a, "GET", t, path, NULL)) return 1;
    int rc = 0;
    if (a.status != 200)
        rc = print_error(&a);
    else if (json)
        printf("%s\n", a.body);
    else
        rc = print_plan(a.body, a.len);
    free(a.body);
    return rc;
}

static int suppose_role(const struct target *t, const char *id, const char *role, bool force) {
    char path[256];
    const bool number = id[strspn(id, "0123456789")] == 0;
    snprintf(path, sizeof(path), "/v1/plan?%s=%s&role=%s&force=%s", number ? "id" : "name", id,
             role, force ? "true" : "false");
    printf("if %s was %s:\n", id, role);
    fflush(stdout);
    return show_plan(t, path, false);
}

struct role_order {
    const char *id, *role, *seconds; /* seconds: NULL: it stays */
    bool force, dry_run;
};

static int cmd_role(const struct target *t, const struct role_order *o) {
    struct ask a;
    const char *id = o->id, *role = o->role;
    const bool force = o->force;
    char body[200], member[128];
    if (!name_member(member, id)) return 2;
    const bool back = strcmp(role, "auto") == 0;
    if (strcmp(role, "prefill") != 0 && strcmp(role, "decode") != 0 && !back) {
        fprintf(stderr, "batonctl: role must be prefill, decode or auto, got %s\n", role);
        return 2;
    }
    if (o->seconds != NULL &&
        (o->seconds[strspn(o->seconds, "0123456789")] != 0 || strlen(o->seconds) > 6 ||
         atoi(o->seconds) < 1 || atoi(o->seconds) > 604800)) {
        fprintf(stderr, "batonctl: --for must be a number of seconds from 1 to 604800, got %s\n",
                o->seconds);
        return 2;
    }
    if (back && (o->dry_run || o->seconds != NULL || force)) {
        fprintf(stderr, "batonctl: role auto takes no --for, --force and --dry-run\n");
        return 2;
    }
    if (o->dry_run) return suppose_role(t, id, role, force);
    snprintf(body, sizeof(body), "{%s,\"role\":\"%s\",\"force\":%s%s%s}", member, role,
             force ? "true" : "false", o->seconds != NULL ? ",\"for_s\":" : "",
             o->seconds != NULL ? o->seconds : "");
    if (!ask(&a, "POST", t, "/v1/instances/role", body)) return 1;
    int rc = a.status == 200 ? 0 : print_error(&a);
    if (rc == 0 && back)
        printf("instance %s gets its role back; `batonctl status` shows when it serves\n", id);
    if (rc == 0 && !back)
        printf("instance %s becomes %s; `batonctl status` shows when it serves\n", id, role);
    if (rc == 0 && o->seconds != NULL) printf("after %s s it goes back\n", o->seconds);
    free(a.body);
    return rc;
}

/* ---- alarms */

static int print_alarms(const char *body, size_t n) {
    struct json_value *root = NULL;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK || !json_is(root, json_type_array)) {
        fprintf(stderr, "batonctl: the answer is no list of alarms\n");
        json_put(root);
        return 1;
    }
    if (json_arr_len(root) == 0) printf("no alarms\n");
    for (size_t i = 0; i < json_arr_len(root); i++) {
        const struct json_value *o = json_arr_at(root, i);
        const time_t s = (time_t)(num(o, "occurUtc") / 1000);
        struct tm tm;
        char when[32] = "";
        if (gmtime_r(&s, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
        printf("%s %-7s %s %s, reason %lld (%s): %s%s%s\n", when,
               num(o, "cleared") != 0 ? "cleared" : "raised", str(o, "alarmId"),
               str(o, "alarmName"), num(o, "reasonId"), str(o, "probableCause"), str(o, "moi"),
               str(o, "additionalInformation")[0] != 0 ? ": " : "",
               str(o, "additionalInformation"));
    }
    json_put(root);
    return 0;
}

static int cmd_alarms(const struct target *t) {
    struct ask a;
    if (!ask(&a, "GET", t, "/v1/alarms", NULL)) return 1;
    const int rc = a.status == 200 ? print_alarms(a.body, a.len) : print_error(&a);
    free(a.body);
    return rc;
}

/* Options of the connection, each with the environment's name for it. */
enum { OPT_URL, OPT_CA, OPT_CERT, OPT_KEY, OPT_PASS, OPT_COUNT };
static const struct {
    const char *flag, *env, *fallback;
} options[OPT_COUNT] = {
    [OPT_URL] = {"-m", "BATON_MANAGE", "http://127.0.0.1:1026"},
    [OPT_CA] = {"--ca", "BATON_CA", ""},
    [OPT_CERT] = {"--cert", "BATON_CERT", ""},
    [OPT_KEY] = {"--key", "BATON_KEY", ""},
    [OPT_PASS] = {"--pass", "BATON_PASS", ""},
};

/* Models and kernels are the affair of the instance's program, which lies beside this one. */
static int cmd_model(char **argv, const char *flag) {
    static const char *const names[] = {"prefill", "baton-prefill"};
    char dir[3500], path[4096];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    if (n <= 0) {
        fprintf(stderr, "batonctl: cannot find its own folder: %s\n", strerror(errno));
        return 1;
    }
    dir[n] = 0;
    char *slash = strrchr(dir, '/');
    if (slash != NULL) *slash = 0;
    argv[0] = (char *)flag;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        argv[-1] = path;
        execv(path, argv - 1);
    }
    fprintf(stderr, "batonctl: %s/%s cannot be run: %s\n", dir, names[0], strerror(errno));
    return 1;
}

static int usage(int status) {
    fprintf(
        status == 0 ? stdout : stderr,
        "usage: batonctl [OPTIONS] status [--json]     the cluster: instances, links, last "
        "requests\n"
        "       batonctl [OPTIONS] request [ID]        the way of a request: P, D, KV moved "
        "(default: the last one)\n"
        "       batonctl [OPTIONS] plan [--json]       what the planner would change, now or "
        "later, and why; changes nothing\n"
        "       batonctl [OPTIONS] alarms              the last alarms, newest first\n"
        "       batonctl [OPTIONS] role NAME prefill|decode [--for SECONDS] [--force] "
        "[--dry-run]  changes the role of\n"
        "                                              an instance, for so long; --dry-run says "
        "what would follow\n"
        "       batonctl [OPTIONS] role NAME auto      gives it the role again that it had before "
        "--for\n"
        "       batonctl [OPTIONS] drain NAME [--force]  gives it no new work; what it has ends "
        "there, "
        "or goes on elsewhere\n"
        "       batonctl [OPTIONS] undrain NAME        gives it work again\n"
        "       batonctl --version                     what this program was built from and of\n"
        "       batonctl inspect MODEL [--context TOKENS] [--slots N] [--dtype TYPE] [--kv TYPE] "
        "[--kernels SET]\n"
        "                                              what a model is, the memory it needs, "
        "whether it fits here\n"
        "       batonctl quantize MODEL_DIR --dtype auto|bf16|f32|int8|int4 [--out DIR] [--kernels "
        "SET] "
        "[--threads N]\n"
        "                                              packs a model's weights for later starts "
        "on this kind of CPU\n"
        "  -m URL        management plane of the coordinator ($BATON_MANAGE; default "
        "http://127.0.0.1:1026)\n"
        "an https URL needs, as PEM files of mode 0400:\n"
        "  --ca FILE     the CA of the management plane ($BATON_CA)\n"
        "  --cert FILE   our certificate ($BATON_CERT)\n"
        "  --key FILE    its key ($BATON_KEY)\n"
        "  --pass FILE   the file with the key's password, when it is encrypted "
        "($BATON_PASS)\n");
    return status;
}

static bool open_target(struct target *t, const char *const values[OPT_COUNT]) {
    struct tls_conf c = {
        .names = {.ca = "--ca", .cert = "--cert", .key = "--key", .passwd = "--pass"},
        .verify_host = true};
    struct errbuf eb = {0};
    char *const paths[OPT_COUNT] = {NULL, c.ca[0], c.cert, c.key, c.passwd};
    t->base = values[OPT_URL];
    if (strncmp(t->base, "https://", 8) != 0) return true;
    for (int i = OPT_CA; i < OPT_COUNT; i++) {
        if (snprintf(paths[i], TLS_PATH_BYTES, "%s", values[i]) >= TLS_PATH_BYTES) {
            fprintf(stderr, "batonctl: %s: the path is too long\n", options[i].flag);
            return false;
        }
    }
    if (tls_open(&t->tls, &c, &eb) == ERR_OK) return true;
    fprintf(stderr, "batonctl: %s\n", eb.text);
    return false;
}

static int run(const struct target *t, int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "status") == 0) {
        bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
        if (1 + json != argc) return usage(2);
        return cmd_status(t, json);
    }
    if (argc > 0 && strcmp(argv[0], "request") == 0 && argc <= 2)
        return cmd_request(t, argc > 1 ? argv[1] : NULL);
    if (argc > 2 && strcmp(argv[0], "role") == 0) {
        struct role_order o = {.id = argv[1], .role = argv[2]};
        for (int i = 3; i < argc; i++) {
            if (strcmp(argv[i], "--for") == 0 && i + 1 < argc && o.seconds == NULL) {
                o.seconds = argv[++i];
                continue;
            }
            bool *flag = strcmp(argv[i], "--force") == 0     ? &o.force
                         : strcmp(argv[i], "--dry-run") == 0 ? &o.dry_run
                                                             : NULL;
            if (flag == NULL || *flag) return usage(2);
            *flag = true;
        }
        return cmd_role(t, &o);
    }
    if (argc > 0 && strcmp(argv[0], "plan") == 0) {
        bool json = false;
        for (int i = 1; i < argc; i++) {
            if (strcmp(argv[i], "--json") == 0)
                json = true;
            else if (strcmp(argv[i], "--dry-run") != 0) /* it never does anything else */
                return usage(2);
        }
        return show_plan(t, "/v1/plan", json);
    }
    if (argc == 1 && strcmp(argv[0], "alarms") == 0) return cmd_alarms(t);
    if (argc > 1 && strcmp(argv[0], "drain") == 0) {
        bool force = argc > 2 && strcmp(argv[2], "--force") == 0;
        return 2 + force == argc ? cmd_drain(t, argv[1], true, force) : usage(2);
    }
    if (argc == 2 && strcmp(argv[0], "undrain") == 0) return cmd_drain(t, argv[1], false, false);
    return usage(2);
}

int main(int argc, char **argv) {
    const char *values[OPT_COUNT];
    struct target t = {NULL, NULL};
    int i = 1;
    log_init(LOG_ERROR, 2);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        build_print(stdout, "batonctl", NULL);
        return 0;
    }
    for (int k = 0; k < OPT_COUNT; k++) {
        const char *env = getenv(options[k].env);
        values[k] = env != NULL && env[0] != 0 ? env : options[k].fallback;
    }
    for (bool found = true; found && i + 1 < argc;) {
        found = false;
        for (int k = 0; k < OPT_COUNT && !found; k++) {
            if (strcmp(argv[i], options[k].flag) != 0) continue;
            values[k] = argv[i + 1];
            i += 2;
            found = true;
        }
    }
    if (i < argc && (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)) return usage(0);
    if (i == argc) return usage(2);
    if (strcmp(argv[i], "quantize") == 0)
        return i + 1 < argc ? cmd_model(argv + i, "--pack-weights") : usage(2);
    if (strcmp(argv[i], "inspect") == 0)
        return i + 1 < argc ? cmd_model(argv + i, "--inspect") : usage(2);
    if (!open_target(&t, values)) return 2;
    int rc = run(&t, argc - i, argv + i);
    tls_close(&t.tls);
    return rc;
}
