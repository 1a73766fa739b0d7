/* ctl_upgrade: instances restarted one by one, each with nothing left on it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "tools/ctl/ctl.h"

enum { LOOK_MS = 200, INSTANCES_MAX_HERE = 1000 };

struct rolling {
    struct ctl *c;
    const char *command;
    uint64_t timeout_ms;
    int done;
};

/* What there is to say; in JSON a line for each step. */
static void say(const struct rolling *r, const char *name, const char *step) {
    if (r->c->json) {
        struct buf b = BUF_INIT;
        buf_puts(&b, "{\"instance\":");
        buf_json_text(&b, name, strlen(name), true);
        buf_printf(&b, ",\"step\":\"%s\"}", step);
        printf("%s\n", b.data != NULL ? b.data : "null");
        buf_free(&b);
    } else {
        printf("%s: %s\n", name, step);
    }
    fflush(stdout);
}

/* `state` of the instance, as the status has it; "": it is not known. False: no answer. */
static bool state_of(const struct rolling *r, const char *name, char state[32]) {
    struct ctl_answer a;
    struct json_value *root = NULL;
    bool ok = ctl_ask_at(r->c, r->c->base, "GET", "/v2/status", NULL, true, &a) &&
              a.status == 200 && json_read(&root, a.body, a.len, NULL, NULL) == ERR_OK;
    if (ok) {
        const struct json_value *o = ctl_instance(root, name);
        snprintf(state, 32, "%s", o != NULL ? ctl_str(o, "state") : "");
    }
    json_put(root);
    ctl_answer_free(&a);
    return ok;
}

static bool wait_state(const struct rolling *r, const char *name, const char *wanted) {
    const uint64_t end = clock_ms() + r->timeout_ms;
    char state[32] = "";
    for (;;) {
        if (state_of(r, name, state) && strcmp(state, wanted) == 0) return true;
        if (clock_ms() >= end) break;
        ctl_sleep_ms(LOOK_MS);
    }
    ctl_fail(r->c, 1, "%s is not %s after %llu s, it is \"%s\"", name, wanted,
             (unsigned long long)r->timeout_ms / 1000, state);
    return false;
}

static bool order(const struct rolling *r, const char *name, const char *what, bool force) {
    char path[64], body[256];
    struct ctl_answer a;
    snprintf(path, sizeof(path), "/v1/instances/%s", what);
    snprintf(body, sizeof(body), "{\"name\":\"%.128s\",\"force\":%s}", name,
             force ? "true" : "false");
    if (!ctl_ask(r->c, "POST", path, body, &a)) return false;
    const bool ok = a.status == 200;
    if (!ok) ctl_refused(r->c, &a);
    ctl_answer_free(&a);
    return ok;
}

/* The command of the operator, with what it is about in its environment. */
static bool run_command(const struct rolling *r, const char *name, const struct json_value *o) {
    int status = -1;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("BATON_NAME", name, 1);
        setenv("BATON_ROLE", ctl_str(o, "role"), 1);
        setenv("BATON_ADDRESS", ctl_str(o, "address"), 1);
        setenv("BATON_MANAGEMENT", ctl_str(o, "management"), 1);
        if (r->c->json) dup2(STDERR_FILENO, STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", r->command, (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    ctl_fail(r->c, 1,
             "the command for %s failed (status %d); it takes work again, and the rest was left",
             name, pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return false;
}

static bool one(struct rolling *r, const struct json_value *o) {
    const char *name = ctl_str(o, "name");
    const bool force = ctl_option(r->c, "--force") != NULL;
    say(r, name, "is drained");
    if (!order(r, name, "drain", force)) return false;
    if (!wait_state(r, name, "drained")) {
        (void)order(r, name, "undrain", false);
        return false;
    }
    say(r, name, "is restarted");
    const bool ran = run_command(r, name, o);
    if (!order(r, name, "undrain", false) || !ran) return false;
    if (!wait_state(r, name, "serving")) return false;
    say(r, name, "serves");
    r->done++;
    return true;
}

int ctl_cmd_upgrade(struct ctl *c) {
    struct rolling r = {.c = c, .command = ctl_option(c, "--run")};
    struct json_value *arr = NULL;
    long timeout_s = 900;
    int rc = 0;
    if (ctl_option(c, "--rolling") == NULL || r.command == NULL || r.command[0] == '\0')
        return ctl_fail(c, 2,
                        "upgrade needs --rolling and --run COMMAND, which restarts the instance "
                        "that $BATON_NAME names");
    if (!ctl_number(c, "--timeout", 1, 86400, &timeout_s)) return 2;
    r.timeout_ms = (uint64_t)timeout_s * 1000;
    struct json_value *status = ctl_status(c);
    if (status == NULL) return 1;
    json_get_arr(status, "instances", &arr);
    for (int i = 0; i < c->n_args; i++)
        if (ctl_instance(status, c->args[i]) == NULL)
            rc = ctl_fail(c, 1, "no instance is called %s", c->args[i]);
    const size_t n = json_arr_len(arr);
    for (size_t i = 0; rc == 0 && i < n && i < INSTANCES_MAX_HERE; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        bool wanted = c->n_args == 0;
        for (int k = 0; k < c->n_args; k++)
            wanted = wanted || ctl_instance(status, c->args[k]) == o;
        if (wanted && !one(&r, o)) rc = 1;
    }
    if (rc == 0 && !c->json) printf("%d instances were restarted\n", r.done);
    json_put(status);
    return rc;
}
