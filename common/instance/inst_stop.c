/* inst_stop: /stopService (cluster-api 3.8): drain, answer, end. */
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"

enum { POLL_MS = 100, FORCE_MS = 5000, FORCE_END_S = 5 };

static void answer_stop(struct instance *in) {
    struct http_x *x = in->stop_x;
    in->stop_x = NULL;
    if (x == NULL) return;
    http_x_on_close(x, NULL, NULL);
    http_x_reply(x, 200, NULL, "", 0);
}

static void end(void *arg) {
    struct instance *in = arg;
    loop_timer_stop(&in->stop_timer);
    loop_stop(in->loop);
}

/* Whatever hangs, an engine in its step or a peer, SIGALRM ends the process if nothing else does.
 */
static void end_by_force(void *arg) {
    (void)alarm(FORCE_END_S);
    end(arg);
}

static void on_poll(void *arg) {
    struct instance *in = arg;
    struct role_load load;
    void *self;
    role_ctl_load(in->role_ctl, &load);
    bool idle = load.waiting + load.running + load.leases == 0;
    if (!idle && (in->stop_deadline_ms == 0 || clock_ms() < in->stop_deadline_ms)) return;
    if (!idle) {
        log_warn("stop", "event=drain_timeout waiting=%u running=%u leases=%u", load.waiting,
                 load.running, load.leases);
        const struct role_ops *ops = role_ctl_ops(in->role_ctl, &self);
        if (ops != NULL) ops->abort_all(self, ERR_STOPPING);
    }
    answer_stop(in);
    /* One more pass, so that the answer leaves before the sockets close. */
    loop_timer_stop(&in->stop_timer);
    if (loop_timer_start(&in->stop_timer, in->loop, POLL_MS, 0, end, in) != ERR_OK)
        loop_stop(in->loop);
}

static void on_stop_gone(void *arg) {
    ((struct instance *)arg)->stop_x = NULL;
}

void inst_stop_service(struct instance *in, struct http_x *x, bool force) {
    if (in->stopping) {
        http_x_reply(x, 500, NULL, "", 0);
        return;
    }
    in->stopping = true;
    log_info("stop", "event=stop_service force=%d", force);
    if (force || !in->loaded) {
        http_x_reply(x, 200, NULL, "", 0);
        enum err e =
            force ? loop_timer_start(&in->stop_timer, in->loop, FORCE_MS, 0, end_by_force, in)
                  : loop_timer_start(&in->stop_timer, in->loop, POLL_MS, 0, end, in);
        if (e != ERR_OK) loop_stop(in->loop);
        return;
    }
    in->stop_x = x;
    http_x_on_close(x, on_stop_gone, in);
    if (in->conf.stop_drain_timeout_s > 0)
        in->stop_deadline_ms = clock_ms() + (uint64_t)in->conf.stop_drain_timeout_s * 1000;
    if (loop_timer_start(&in->stop_timer, in->loop, POLL_MS, POLL_MS, on_poll, in) != ERR_OK)
        loop_stop(in->loop);
}

void inst_stop_fini(struct instance *in) {
    loop_timer_stop(&in->stop_timer);
}
