/* inst_stop: /stopService (cluster-api 3.8) and SIGTERM: drain, answer, end. From the first moment
 * on nothing new is taken in, and the coordinator is told; what runs ends here, or is moved
 * elsewhere by the coordinator, in the time of stopDrainTimeoutSeconds. */
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"

enum {
    POLL_MS = 100,
    FORCE_MS = 5000,
    FORCE_END_S = 5,
    CLOSE_S = 60, /* threads are joined and memory of many GiB is given back */
    UNHEARD_MS =
        2000, /* without a listener, whose requests these are: one may be on its way back */
};

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

void inst_stop_bound(void) {
    const unsigned left_s = alarm(CLOSE_S);
    if (left_s > 0 && left_s < CLOSE_S) (void)alarm(left_s);
}

static void on_poll(void *arg) {
    struct instance *in = arg;
    struct role_load load;
    uint64_t now = clock_ms();
    req_set_load(in->reqs, ROLE_NONE, &load);
    bool idle = load.waiting + load.running + load.leases == 0 && in->n_vector_jobs == 0,
         read = in->dresult == NULL || dresult_out_is_read(in->dresult);
    if (in->dresult == NULL || dresult_out_has_listener(in->dresult)) in->stop_heard_ms = now;
    bool over = (in->stop_deadline_ms != 0 && now >= in->stop_deadline_ms) ||
                now - in->stop_heard_ms >= UNHEARD_MS;
    if (!over && !(idle && read)) return;
    if (!idle) {
        log_warn("stop", "event=drain_timeout waiting=%u running=%u leases=%u vectors=%u",
                 load.waiting, load.running, load.leases, in->n_vector_jobs);
        req_set_abort(in->reqs, ROLE_NONE, ERR_STOPPING);
    }
    answer_stop(in);
    /* One more pass, so that the answer leaves before the sockets close. */
    loop_timer_stop(&in->stop_timer);
    if (loop_timer_start(&in->stop_timer, in->loop, POLL_MS, 0, end, in) != ERR_OK)
        loop_stop(in->loop);
}

/* Ends when what there is has come to its end. */
static void drain(struct instance *in) {
    in->stop_heard_ms = clock_ms();
    if (in->conf.stop_drain_timeout_s > 0)
        in->stop_deadline_ms = clock_ms() + (uint64_t)in->conf.stop_drain_timeout_s * 1000;
    if (in->dresult != NULL) dresult_out_note(in->dresult, "stopping");
    for (int i = 0; i < in->n_listeners; i++)
        if (in->listeners[i].planes & PLANE_DATA) http_server_leave(in->listeners[i].server);
    if (loop_timer_start(&in->stop_timer, in->loop, 1, POLL_MS, on_poll, in) != ERR_OK)
        loop_stop(in->loop);
}

void inst_stop_by_signal(struct instance *in) {
    bool again = in->stop_signalled;
    log_info("stop", "event=signal%s", again ? " at_once=1" : "");
    in->stop_signalled = true;
    atomic_store(&in->loader.cancel, true);
    if (again || !in->loaded) {
        in->stopping = true;
        req_set_abort(in->reqs, ROLE_NONE, ERR_STOPPING);
        loop_stop(in->loop);
    } else if (!in->stopping) {
        in->stopping = true;
        drain(in);
    }
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
    drain(in);
}

void inst_stop_fini(struct instance *in) {
    loop_timer_stop(&in->stop_timer);
}
