/* ctl_probe: one question to one daemon, for whoever can run a command and not show a certificate:
 * exec probes of a kubelet, health checks of containers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "tools/ctl/ctl.h"

enum { TIMEOUT_S_MAX = 600, SHOWN_BYTES = 300, PATHS_MAX = 2 };

/* In the order of the life of a pod. The first path that the daemon has counts: what a coordinator
 * calls start-up, an instance calls health; a limited certificate is not told which paths there are
 * (403). */
static const struct probe {
    const char *name, *good, *bad;
    const char *paths[PATHS_MAX];
} probes[] = {
    {"startup", "started", "not started", {"/v1/startup", "/health"}},
    {"ready", "ready", "not ready", {"/v2/health/ready", NULL}},
    {"live", "alive", "not alive", {"/v2/health/live", NULL}},
};

static const struct probe *find_probe(const char *name) {
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
        if (strcmp(probes[i].name, name) == 0) return &probes[i];
    return NULL;
}

/* http://ADDRESS:PORT, and no path. */
static bool is_plane(const char *url) {
    const size_t n = strncmp(url, "https://", 8) == 0 ? 8 : strncmp(url, "http://", 7) == 0 ? 7 : 0;
    return n > 0 && url[n] != '\0' && strcspn(url + n, "/?#@ ") == strlen(url + n);
}

/* What an answer says, as a part of a line. */
static void flatten(char out[SHOWN_BYTES], const struct ctl_answer *a) {
    size_t n = 0;
    for (size_t i = 0; i < a->len && n + 1 < SHOWN_BYTES; i++)
        out[n++] = (unsigned char)a->body[i] < ' ' ? ' ' : a->body[i];
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = '\0';
}

static int say(const struct ctl *c, const struct probe *p, const char *path, int status,
               uint64_t ms, const char *why) {
    const bool ok = status == 200;
    if (c->json) {
        struct json_value *o = json_new_obj();
        char url[CTL_BASE_BYTES + 64];
        snprintf(url, sizeof(url), "%s%s", c->base, path);
        json_obj_set(o, "probe", json_new_str(p->name));
        json_obj_set(o, "ok", json_new_bool(ok));
        json_obj_set(o, "url", json_new_str(url));
        json_obj_set(o, "status", json_new_i64(status));
        json_obj_set(o, "milliseconds", json_new_i64((int64_t)ms));
        json_obj_set(o, "said", json_new_str(why));
        printf("%s\n", json_to_text(o, 0, NULL));
        json_put(o);
    } else if (ok) {
        printf("%s: %s%s, %llu ms\n", p->good, c->base, path, (unsigned long long)ms);
    }
    if (!ok && status != 0)
        fprintf(stderr, "%s: %s: %s%s: status %d%s%s\n", c->name, p->bad, c->base, path, status,
                why[0] != '\0' ? ": " : "", why);
    else if (!ok)
        fprintf(stderr, "%s: %s: %s%s: %s\n", c->name, p->bad, c->base, path, why);
    return ok ? 0 : 1;
}

int ctl_cmd_probe(struct ctl *c) {
    const struct probe *p = find_probe(c->args[0]);
    const char *env = getenv("BATON_PROBE_URL");
    long timeout_s = 5;
    if (p == NULL)
        return ctl_fail(c, 2, "the probe must be startup, ready or live, got \"%s\"", c->args[0]);
    if (!ctl_number(c, "--timeout", 1, TIMEOUT_S_MAX, &timeout_s)) return 2;
    if (c->n_args > 1)
        c->base = c->args[1];
    else if (env != NULL && env[0] != '\0')
        c->base = env;
    else
        ctl_choose_base(c);
    if (!is_plane(c->base) || strlen(c->base) >= CTL_BASE_BYTES)
        return ctl_fail(c, 2, "URL must be http://ADDRESS:PORT or https://ADDRESS:PORT, got \"%s\"",
                        c->base);
    if (!ctl_open(c)) return 2;
    c->timeout_ms = (unsigned)timeout_s * 1000;
    const uint64_t began_ms = clock_ms();
    for (int i = 0;; i++) {
        struct ctl_answer a;
        char said[SHOWN_BYTES], why[SHOWN_BYTES];
        const bool answered = ctl_ask_quiet(c, c->base, "GET", p->paths[i], &a, why, sizeof(why));
        const bool not_there = answered && (a.status == 404 || a.status == 403),
                   next = not_there && i + 1 < PATHS_MAX && p->paths[i + 1] != NULL;
        if (answered) flatten(said, &a);
        const int status = a.status;
        ctl_answer_free(&a);
        if (!next)
            return say(c, p, p->paths[i], status, clock_ms() - began_ms, answered ? said : why);
    }
}
