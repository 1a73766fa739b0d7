/* relay_act: what is done when a request moves from state to state. */
#include <stdio.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/console.h"
#include "coordinator/relay_priv.h"

enum { RETRY_MS = 100, RETRY_MS_MAX = 1000 };

/* For Triton's statistics, as an instance counts them (req_meter.h): of what was refused no model
 * knows. */
static void count_model(const struct relay *r, int status, bool stopped) {
    const bool left = status == 499 || stopped || r->stop_asked;
    if (status != 200 && !left && !relay_status_is_failure(status, stopped)) return;
    const struct model_request m = {.ok = status == 200 && !left,
                                    .n_prompts = r->n_answered,
                                    .arrival_us = r->arrival_us,
                                    .first_us = r->first_token_us,
                                    .last_us = r->last_piece_us,
                                    .end_us = clock_us(),
                                    .queue_us = r->waited_first_us,
                                    .queue_later_us = r->waited_us - r->waited_first_us};
    model_stats_add(r->set->stats, r->adapter, &m);
}

/* The client has its answer, or has gone: what the request held goes. */
static void finish(struct relay *r, int status, enum cause cause, enum left left) {
    struct relay_set *s = r->set;
    const bool stopped = cause == CAUSE_STOPPED;
    relay_log_end(r, status, cause);
    relay_prefix_ended(r);
    relay_targets_ended(r);
    const struct coord_request_end end = {.status = status,
                                          .total_us = clock_us() - r->arrival_us,
                                          .decode_us = r->last_piece_us - r->first_token_us,
                                          .n_tokens = r->n_sequences == 1 ? r->n_tokens : 0,
                                          .stopped = stopped};
    coord_metrics_ended(s->co->metrics, &end);
    count_model(r, status, stopped);
    const enum history_end how = status == 200                              ? HISTORY_ANSWERED
                                 : status == 499                            ? HISTORY_CANCELLED
                                 : relay_status_is_failure(status, stopped) ? HISTORY_FAILED
                                                                            : HISTORY_REFUSED;
    s->counts.finished += how == HISTORY_ANSWERED;
    s->counts.cancelled += how == HISTORY_CANCELLED;
    s->counts.failed += how == HISTORY_FAILED;
    s->counts.refused += how == HISTORY_REFUSED;
    console_ended(s->co->console, how);
    attempt_end(r, left);
    relay_settle(r);
    relay_journal_ended(r, status, cause);
    relay_remove(r);
}

/* ---- the actions: each reads of the input what it names */

static void act_unexpected(struct relay *r, const struct relay_input *in) {
    (void)in;
    relay_log_note(r, CAUSE_INTERNAL);
    relay_out_fail(&r->out, 500, "internal error");
    finish(r, 500, CAUSE_INTERNAL, LEFT_BOTH);
}

static void act_send(struct relay *r, const struct relay_input *in) {
    r->out.attempt = r->n_lost + 1;
    if (!attempt_begin(r, in->p, in->d))
        relay_fail(r, CAUSE_INTERNAL, "Send messges to p instance failed");
}

static void act_first(struct relay *r, const struct relay_input *in) {
    relay_write(r, in->piece);
    relay_log_tokens(r, in->piece->tokens, in->piece->n_tokens);
    if (in->piece->len > 0 || !r->out.stream) relay_log_recovered(r);
    relay_flush_early(r);
}

static void act_keep(struct relay *r, const struct relay_input *in) {
    relay_keep_early(r, in->piece);
}

static void act_write(struct relay *r, const struct relay_input *in) {
    relay_write(r, in->piece);
    relay_log_tokens(r, in->piece->tokens, in->piece->n_tokens);
    relay_log_recovered(r);
}

static void act_finish(struct relay *r, const struct relay_input *in) {
    relay_log_note(r, CAUSE_NONE);
    relay_write_last(r, in->piece);
    relay_log_recovered(r);
    finish(r, 200, CAUSE_NONE, LEFT_NOBODY);
}

static void act_pass_error(struct relay *r, const struct relay_input *in) {
    const int status = in->piece->status;
    relay_log_note(r, in->cause);
    relay_out_error(&r->out, status, in->type, in->piece->body, in->piece->len, in->framed);
    finish(r, status, in->cause, in->left);
}

/* How long the n-th further attempt waits when nobody else can make it. */
static uint64_t pause_ms(unsigned n) {
    uint64_t ms = (uint64_t)RETRY_MS << (n < 8 ? n : 8);
    return ms < RETRY_MS_MAX ? ms : RETRY_MS_MAX;
}

static bool is_planned(enum cause c) {
    return c == CAUSE_DRAINED || c == CAUSE_ROLE_SWITCHED;
}

/* Back to the queue, where relay_step() has put it. */
static void act_recover(struct relay *r, const struct relay_input *in) {
    const uint64_t now = clock_ms();
    log_info("relay",
             "req=%s event=attempt_lost epoch=%u cause=%s p=%u d=%u tokens_kept=%u avoid_p=%u "
             "avoid_d=%u",
             r->id_text, r->attempt.epoch, cause_name(in->cause), r->attempt.p_id, r->attempt.d_id,
             r->transcript.n_ids, r->avoid.p, r->avoid.d);
    relay_log_lost(r, in->cause);
    r->kv_at = is_planned(in->cause) && r->attempt.answered ? r->attempt.d_id : 0;
    attempt_end(r, in->left);
    r->avoid.not_before_ms = now + pause_ms(r->n_failures);
    if (!is_planned(in->cause)) r->n_failures++;
    if (r->first_token_us != 0) r->since_ms = now; /* it has had its first one */
    coord_metrics_retried(r->set->co->metrics, cause_name(in->cause));
    r->set->counts.retried++;
}

static void act_ask_stop(struct relay *r, const struct relay_input *in) {
    r->stop_asked = true;
    relay_ask_stop(r, in->asker, in->asked_id);
}

static void act_drop(struct relay *r, const struct relay_input *in) {
    (void)in;
    log_info("relay", "req=%s event=client_gone", r->id_text);
    relay_log_note(r, CAUSE_CLIENT_GONE);
    r->out.x = NULL;
    finish(r, 499, CAUSE_CLIENT_GONE, LEFT_BOTH);
}

static void act_fail(struct relay *r, const struct relay_input *in) {
    const bool handed_on = relay_is_handed_on(r, in->cause);
    const int status = handed_on ? 499 : in->status != 0 ? in->status : cause_status(in->cause);
    if (handed_on)
        log_info("relay", "req=%s event=handed_on", r->id_text);
    else
        log_warn("relay", "req=%s event=failed status=%d cause=%s text=\"%s\"", r->id_text, status,
                 cause_name(in->cause), in->text);
    relay_log_note(r, in->cause);
    if (handed_on)
        relay_hand_on(r, in->text);
    else
        relay_out_fail(&r->out, status, in->text);
    finish(r, status, in->cause, in->left);
}

typedef void action_fn(struct relay *r, const struct relay_input *in);
static action_fn *const actions[RELAY_ACTIONS] = {
    [ACT_UNEXPECTED] = act_unexpected,
    [ACT_SEND] = act_send,
    [ACT_FIRST] = act_first,
    [ACT_KEEP] = act_keep,
    [ACT_WRITE] = act_write,
    [ACT_FINISH] = act_finish,
    [ACT_PASS_ERROR] = act_pass_error,
    [ACT_RECOVER] = act_recover,
    [ACT_ASK_STOP] = act_ask_stop,
    [ACT_DROP] = act_drop,
    [ACT_FAIL] = act_fail,
};

static bool waits(enum relay_state s) {
    return s == RELAY_WAITING || s == RELAY_RECOVERING;
}

void relay_step(struct relay *r, enum relay_event e, const struct relay_input *in) {
    const enum relay_state was = r->state;
    const struct relay_move m = relay_fsm_move(was, e);
    if (m.act == ACT_UNEXPECTED)
        log_error("relay", "req=%s event=unexpected state=%s on=%s", r->id_text,
                  relay_state_name(was), relay_event_name(e));
    else if (m.next != was)
        log_debug("relay", "req=%s from=%s to=%s on=%s", r->id_text, relay_state_name(was),
                  relay_state_name(m.next), relay_event_name(e));
    r->state = m.next;
    if (m.next != was) r->set->looks[r->slot].at_ms = 0;
    r->set->n_recovering -= was == RELAY_RECOVERING;
    r->set->n_recovering += m.next == RELAY_RECOVERING;
    if (waits(was) && !waits(m.next)) relay_dequeue(r);
    if (!waits(was) && waits(m.next)) relay_enqueue(r);
    actions[m.act](r, in);
}

/* ---- losses */

static bool may_recover(const struct relay *r, enum cause cause) {
    return cause_elsewhere(cause) && r->state != RELAY_DRAINING && relay_can_go_on(r) &&
           r->n_lost + 1 < ATTEMPTS_MAX &&
           (is_planned(cause) || r->n_failures < (unsigned)r->set->co->conf.retries_max);
}

static void avoid(struct relay *r, enum cause cause) {
    const enum cause_side side = cause_side(cause);
    if (side == SIDE_P) r->avoid.p = r->attempt.p_id;
    if (side == SIDE_D || side == SIDE_LINK) r->avoid.d = r->attempt.d_id;
}

void relay_lose(struct relay *r, const struct relay_input *in) {
    struct relay_input end = *in;
    if (may_recover(r, in->cause)) {
        avoid(r, in->cause);
        relay_step(r, EV_LOST, in);
        return;
    }
    if (in->piece != NULL) {
        if (r->state == RELAY_DRAINING && in->piece->status == 424) end.cause = CAUSE_STOPPED;
        relay_step(r, EV_REFUSED, &end);
        return;
    }
    if (r->state == RELAY_DRAINING) {
        end.cause = CAUSE_STOPPED;
        end.text = "The request was stopped.";
    } else if (r->n_failures > 0) {
        end.text = "Request retry failed";
    }
    relay_step(r, EV_FAILED, &end);
}

bool relay_move(struct relay *r, uint32_t inst_id, enum cause cause) {
    if (!may_recover(r, cause)) return false;
    *(r->attempt.d_id == inst_id ? &r->avoid.d : &r->avoid.p) = inst_id;
    relay_step(r, EV_LOST, &(struct relay_input){.cause = cause, .left = LEFT_BOTH});
    return true;
}

void relay_fail(struct relay *r, enum cause cause, const char *text) {
    relay_step(r, EV_FAILED,
               &(struct relay_input){.cause = cause, .text = text, .left = LEFT_BOTH});
}
