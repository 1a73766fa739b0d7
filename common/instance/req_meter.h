/* req_meter: what an instance counts of its requests, in any role (cluster-api 3.11).
 *
 * A request is measured where it can be measured truly, so that sums over a cluster count it once:
 *   standard   everything, from the arrival of the body to the last token
 *   prefill    prompt tokens, the first token, time to first token (arrival of the body here to
 *              that token), queue time, the transfer of the KV; the whole only of a request that
 *              ends here
 *   decode     every further token, the time from the hand-over to the first of them, and the
 *              whole: the latency is P's time to first token plus the time since the hand-over
 * A prompt of several in one body is a request of its own at a decode instance.
 *
 * Beside them it keeps what Triton's statistics tell of each model (common/base/model_stats.h):
 * what is answered here has succeeded, a hand-over is nothing.
 *
 * received = success + failed + refused + cancelled + those in work. A hand-over is P's success.
 *
 * Thread: the loop thread; the numbers are read from any. Meters begin, and end exactly once. A
 * NULL req_meters counts nothing. */
#ifndef BATON_INSTANCE_REQ_METER_H
#define BATON_INSTANCE_REQ_METER_H

#include "common/base/metrics.h"
#include "common/base/model_stats.h"
#include "proto/infer_msg.h"

struct req_meters;

/* Zeroed: not begun. */
struct req_meter {
    struct req_meters *meters; /* NULL: not begun, or over */
    uint64_t arrival_us, handed_us;
    uint64_t *last_us; /* [n_lanes] of each choice of each prompt: its last token; 0: none yet */
    unsigned n_lanes;
    uint64_t gaps_us; /* all times between two tokens */
    uint32_t n_gaps, n_tokens;
    uint64_t first_us;                        /* the first token made here, or handed over */
    uint64_t latest_us;                       /* the last one */
    unsigned n_prompts;                       /* that were computed here */
    char *adapter;                            /* known with the first token; NULL: none */
    uint64_t queue_us;                        /* before the first step */
    int32_t n_answers, tokens_asked, longest; /* asked for; tokens of the longest choice */
    enum finish finish;                       /* of the last choice whose end the engine has told */
    bool first_seen;                          /* a token was made here */
};

enum req_end {
    REQ_ANSWERED,
    REQ_HANDED_OVER, /* P: the rest is D's */
    REQ_FAILED,
    REQ_REFUSED,   /* for what it asked: a 4xx, which is no failure of the service */
    REQ_CANCELLED, /* by its client */
};

/* window: requests over which means are taken (mean_ttft_ms). reg outlives the meters. */
enum err req_meters_create(struct req_meters **out, struct metrics *reg, size_t window);
void req_meters_destroy(struct req_meters **m);

void req_meter_begin(struct req_meter *t, struct req_meters *m, uint64_t arrival_us);
/* D: a token that P made. Before the first of our own. */
void req_meter_import(struct req_meter *t, const struct infer_req *req,
                      const struct token_event *ev);
/* P: a token behind those of earlier attempts: no first one, of no prompt that counts again. */
void req_meter_resumed(struct req_meter *t);
/* A token made here. req: the prompt it belongs to. */
void req_meter_token(struct req_meter *t, const struct infer_req *req,
                     const struct token_event *ev);
enum req_end req_end_of(int status); /* of an answer without tokens */
/* Does nothing when the meter is not begun or over. */
void req_meter_end(struct req_meter *t, enum req_end how);

/* A request that was turned away before any role saw it. */
void req_meters_refused(struct req_meters *m);
/* P: the KV of a request is with peer, or is not. exposed_us: of the time, what the client waits.
 */
void req_meters_transfer(struct req_meters *m, uint32_t peer, uint64_t bytes, uint64_t transfer_us,
                         uint64_t exposed_us);
/* P: a fetch has ended; n_blocks came. */
void req_meters_fetch(struct req_meters *m, enum err e, uint32_t n_blocks);
/* ERR_CANCELLED is no failure: the request was ended. */
void req_meters_transfer_failed(struct req_meters *m, enum err why);

/* The model's, and its adapters'. NULL: there are no meters. */
const struct model_stats *req_meters_stats(const struct req_meters *m);

/* For gauges and /metrics-json. */
double req_meters_failed_part(const struct req_meters *m); /* failed of received, 0..1 */
double req_meters_ttft_ms(const struct req_meters *m); /* mean of the window; 0: no request yet */
double req_meters_tbt_ms(const struct req_meters *m);
void req_meters_tokens(const struct req_meters *m, double *prompt, double *generated);

#endif
