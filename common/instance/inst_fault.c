/* inst_fault: what an operator's fault handling may do to the engine (cluster-api 3.12): hold it,
 * so that it takes no step while requests wait, test it, let it go on.
 *
 *   NORMAL, BUSY, ABNORMAL --pause--> PAUSE --reinit--> READY --start--> NORMAL
 *                                     PAUSE --start--> NORMAL
 *
 * A command is answered when the engine thread has obeyed it. */
#include "common/instance/inst_fault.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"
#include "proto/json.h"

enum { BODY_BYTES_MAX = 1 << 16 };

/* As the reference numbers them. */
enum engine_status {
    ENGINE_READY,
    ENGINE_NORMAL,
    ENGINE_ABNORMAL,
    ENGINE_PAUSE,
    ENGINE_INIT,
    ENGINE_BUSY,
    N_ENGINE_STATUS
};

enum command { PAUSE_ENGINE, REINIT_NPU, START_ENGINE, PAUSE_ENGINE_ROCE, N_COMMANDS };

static const bool allowed[N_COMMANDS][N_ENGINE_STATUS] = {
    [PAUSE_ENGINE] = {[ENGINE_NORMAL] = true, [ENGINE_ABNORMAL] = true, [ENGINE_BUSY] = true},
    [REINIT_NPU] = {[ENGINE_PAUSE] = true},
    [START_ENGINE] = {[ENGINE_READY] = true, [ENGINE_PAUSE] = true},
    [PAUSE_ENGINE_ROCE] = {[ENGINE_NORMAL] = true, [ENGINE_ABNORMAL] = true, [ENGINE_BUSY] = true},
};

static const char *const command_names[N_COMMANDS] = {"PAUSE_ENGINE", "REINIT_NPU", "START_ENGINE",
                                                      "PAUSE_ENGINE_ROCE"};

static enum engine_status status_of(const struct instance *in) {
    struct engine_stats st;
    if (!in->loaded) return ENGINE_INIT;
    switch (in->fault.held) {
    case ENGINE_HELD: return ENGINE_PAUSE;
    case ENGINE_TESTED: return ENGINE_READY;
    case ENGINE_FAILED: return ENGINE_ABNORMAL;
    case ENGINE_FREE: break;
    }
    if (worker_stuck_ms(in->worker) > 0) return ENGINE_ABNORMAL;
    engine_stats(worker_engine(in->worker), &st);
    return st.slots_free == 0 ? ENGINE_BUSY : ENGINE_NORMAL;
}

bool inst_engine_held(const struct instance *in) {
    return in->fault.held != ENGINE_FREE;
}

static void on_running_status(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct buf b = BUF_INIT;
    enum engine_status s = status_of(in);
    (void)p;
    buf_printf(&b, "{\"status\":%d,\"errors\":[", (int)s);
    if (s == ENGINE_ABNORMAL) {
        uint64_t silent_s = worker_stuck_ms(in->worker) / 1000;
        buf_printf(&b, "{\"timestamp\":%lld,\"errCode\":\"MIE04E0001\",\"createdBy\":\"%s\"}",
                   (long long)clock_unix_s() - (long long)silent_s, in->conf.management_ip);
    }
    buf_puts(&b, "]}");
    http_x_reply(x, b.failed ? 500 : 200, "application/json", b.data, b.len);
    buf_free(&b);
}

/* ---- commands */

static void reply(struct instance *in, const char *failure) {
    struct http_x *x = in->fault.x;
    struct buf b = BUF_INIT;
    const char *good = failure == NULL ? "true" : "false", *text = failure == NULL ? "" : failure;
    in->fault.x = NULL;
    if (x == NULL) return;
    buf_printf(&b, "{\"status\":%s,\"message\":\"%s\",\"reason\":[", good, text);
    for (int64_t i = 0; i < in->conf.world_size; i++)
        buf_printf(&b, "%s{\"device_id\":%lld,\"result\":%s,\"message\":\"%s\"}", i > 0 ? "," : "",
                   (long long)i, good, text);
    buf_puts(&b, "]}");
    http_x_on_close(x, NULL, NULL);
    http_x_reply(x, b.failed ? 500 : 200, "application/json", b.data, b.len);
    buf_free(&b);
}

static void on_obeyed(void *arg, enum err e) {
    struct instance *in = arg;
    struct inst_fault *f = &in->fault;
    f->under_way = false;
    if (e != ERR_OK) {
        f->held = ENGINE_FAILED; /* it was held before, and stays so */
    } else if (f->command == REINIT_NPU) {
        f->held = ENGINE_TESTED;
    } else {
        f->held = f->command == START_ENGINE ? ENGINE_FREE : ENGINE_HELD;
    }
    log_warn("fault", "command=%s event=obeyed err=%s", command_names[f->command], err_name(e));
    reply(in, e != ERR_OK ? "The engine does not compute finite numbers." : NULL);
}

static void on_gone(void *arg) {
    ((struct instance *)arg)->fault.x = NULL;
}

static void command(struct instance *in, struct http_x *x, enum command c) {
    struct inst_fault *f = &in->fault;
    if (f->under_way || !allowed[c][status_of(in)]) {
        inst_reply_wrapped(x, 400, "Command is not consistent with current status.");
        return;
    }
    enum err e = c == REINIT_NPU ? worker_self_test(in->worker, on_obeyed, in)
                                 : worker_hold(in->worker, c != START_ENGINE, on_obeyed, in);
    if (e != ERR_OK) {
        inst_reply_wrapped(x, 503, err_text(e));
        return;
    }
    f->command = (int)c;
    f->under_way = true;
    f->x = x;
    http_x_on_close(x, on_gone, in);
}

static void on_command(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct json_value *root = NULL;
    size_t n;
    const char *body = http_x_body(x, &n);
    int64_t cmd = 0;
    (void)p;
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK || !json_is(root, json_type_object)) {
        inst_reply_wrapped(x, 422, "Req body converts to json fail.");
    } else if (json_get_i64(root, "cmd", &cmd) != JSON_OK) {
        inst_reply_wrapped(x, 422, "Parameter cmd must be necessary and must be integer type.");
    } else if (cmd < 0 || cmd >= N_COMMANDS) {
        struct buf b = BUF_INIT;
        buf_printf(&b, "Parameter cmd must be in [0,%d], got %lld.", N_COMMANDS - 1,
                   (long long)cmd);
        inst_reply_wrapped(x, 422, b.failed ? err_text(ERR_NO_MEMORY) : b.data);
        buf_free(&b);
    } else {
        command(in, x, (enum command)cmd);
    }
    json_put(root);
}

const struct route inst_fault_routes[] = {
    {PLANE_MGMT, "GET", "/v1/engine-server/running-status", on_running_status, 0},
    {PLANE_MGMT, "POST", "/v1/engine-server/fault-handling-command", on_command, BODY_BYTES_MAX},
    {0, NULL, NULL, NULL, 0},
};
