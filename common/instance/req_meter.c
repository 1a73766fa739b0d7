/* req_meter: the families of requests and tokens, and the clock of one request. */
#include "common/instance/req_meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"

enum { LANES_MAX = CHOICES_MAX * PARTS_MAX };

/* The last values, for means. */
struct window {
    double *values; /* [size] */
    size_t size, n; /* n: ever added */
    double sum;
};

struct req_meters {
    struct metric *received, *success, *failed, *refused, *cancelled, *prompt_tokens,
        *generation_tokens;
    struct metric *ttft, *tpot, *e2e, *queue, *prompt_len, *generation_len, *decode_wait;
    struct metric *inference_time, *longest, *n_answers, *tokens_asked;
    struct metric *prefill_time, *decode_time, *own_tpot, *stopped, *at_length, *aborted;
    struct metric_family *adapters;
    struct metric_family *transfer, *transfer_failures, *fetches;
    struct metric *fetched;
    struct metric_family *exposed_family, *bytes_family, *decode_wait_family;
    struct metric *exposed, *bytes;
    struct window ttft_ms, tbt_ms;
    struct model_stats *stats;
};

static const double ttft_buckets[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                      0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10};
static const double tpot_buckets[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                      0.3,  0.4,   0.5,  0.75,  1,   2.5};
static const double e2e_buckets[] = {1, 2.5, 5, 10, 15, 20, 30, 40, 50, 60};
static const double queue_buckets[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5,
                                       2,     2.5,   5,    10,   15,  20,  30,  40,  50, 60};
static const double tokens_buckets[] = {10,    50,    100,   200,   500,   1000,  2000,  5000,
                                        10000, 16000, 20000, 32000, 50000, 64000, 128000};
static const double answers_buckets[] = {1, 2, 5, 10, 20};
static const double transfer_buckets[] = {0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                          0.1,    0.25,   0.5,   1,      2.5,   5,    10};

#define BUCKETS(b) .buckets = (b), .n_buckets = sizeof(b) / sizeof((b)[0])

enum row {
    RECEIVED,
    SUCCESS,
    FAILED,
    REFUSED,
    CANCELLED,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    PREEMPTIONS,
    TTFT,
    TPOT,
    E2E,
    QUEUE,
    PROMPT_LEN,
    GENERATION_LEN,
    TRANSFER,
    EXPOSED,
    BYTES,
    FAILURES,
    FETCHES,
    FETCHED,
    DECODE_WAIT,
    PREFILL_TIME,
    DECODE_TIME,
    OWN_TPOT,
    INFERENCE_TIME,
    LONGEST,
    N_ANSWERS,
    TOKENS_ASKED,
    FINISHED,
    ADAPTERS,
    N_ROWS
};

/* `other`: what vLLM calls the same; a second one where it has changed the name. */
static const struct {
    struct metric_def def;
    const char *other[2];
} rows[N_ROWS] = {
    [RECEIVED] = {{.name = "request_received_total", .help = "Requests received."}, {NULL}},
    [SUCCESS] = {{.name = "request_success_total",
                  .help = "Requests answered, or handed over to a decode instance."},
                 {NULL}},
    [FAILED] = {{.name = "request_failed_total",
                 .help = "Requests ended by an error of the service."},
                {NULL}},
    [REFUSED] = {{.name = "request_refused_total",
                  .help = "Requests refused for what they asked: answered with a 4xx."},
                 {NULL}},
    [CANCELLED] = {{.name = "request_cancelled_total",
                    .help = "Requests whose client went away or stopped them."},
                   {NULL}},
    [PROMPT_TOKENS] = {{.name = "prompt_tokens_total",
                        .help = "Prompt tokens of requests whose first token was made here."},
                       {"vllm:prompt_tokens_total"}},
    [GENERATION_TOKENS] = {{.name = "generation_tokens_total", .help = "Tokens generated."},
                           {"vllm:generation_tokens_total"}},
    [PREEMPTIONS] = {{.name = "num_preemptions_total",
                      .help = "Running requests put back; blocks are reserved at admission, so "
                              "there are none."},
                     {"vllm:num_preemptions_total"}},
    [TTFT] = {{.name = "time_to_first_token_seconds",
               .help = "From the arrival of a request to its first token.",
               .kind = METRIC_HISTOGRAM,
               BUCKETS(ttft_buckets)},
              {"vllm:time_to_first_token_seconds"}},
    [TPOT] = {{.name = "time_per_output_token_seconds",
               .help = "Between two tokens of one answer.",
               .kind = METRIC_HISTOGRAM,
               BUCKETS(tpot_buckets)},
              {"vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"}},
    [E2E] = {{.name = "e2e_request_latency_seconds",
              .help = "From the arrival of a request to its last token.",
              .kind = METRIC_HISTOGRAM,
              BUCKETS(e2e_buckets)},
             {"vllm:e2e_request_latency_seconds"}},
    [QUEUE] = {{.name = "request_queue_time_seconds",
                .help = "What a request waited for its first step.",
                .kind = METRIC_HISTOGRAM,
                BUCKETS(queue_buckets)},
               {"vllm:request_queue_time_seconds"}},
    [PROMPT_LEN] = {{.name = "request_prompt_tokens",
                     .help = "Tokens of a prompt.",
                     .kind = METRIC_HISTOGRAM,
                     BUCKETS(tokens_buckets)},
                    {"vllm:request_prompt_tokens"}},
    [GENERATION_LEN] = {{.name = "request_generation_tokens",
                         .help = "Tokens of an answer.",
                         .kind = METRIC_HISTOGRAM,
                         BUCKETS(tokens_buckets)},
                        {"vllm:request_generation_tokens"}},
    [TRANSFER] = {{.name = "pd_kv_transfer_seconds",
                   .help = "From the first KV frame of a request to the peer's acknowledgement.",
                   .kind = METRIC_HISTOGRAM,
                   .labels = {"peer"},
                   BUCKETS(transfer_buckets)},
                  {NULL}},
    [EXPOSED] = {{.name = "pd_kv_exposed_seconds",
                  .help = "What of a transfer the client waits for: from the first token to the "
                          "acknowledgement.",
                  .kind = METRIC_HISTOGRAM,
                  BUCKETS(transfer_buckets)},
                 {NULL}},
    [BYTES] = {{.name = "pd_kv_transfer_bytes_total", .help = "KV bytes sent to peers."}, {NULL}},
    [FAILURES] = {{.name = "pd_kv_transfer_failures_total",
                   .help = "Hand-overs that were not taken, by reason.",
                   .labels = {"reason"}},
                  {NULL}},
    [FETCHES] = {{.name = "pd_kv_fetches_total",
                  .help =
                      "Prompts whose KV was asked for at the decode instance they left, by what "
                      "came of it: ok, or why it was computed here.",
                  .labels = {"result"}},
                 {NULL}},
    [FETCHED] = {{.name = "pd_kv_fetched_blocks_total",
                  .help = "KV blocks that came from decode instances which requests had left."},
                 {NULL}},
    [DECODE_WAIT] = {{.name = "pd_decode_wait_seconds",
                      .help = "From the hand-over of a request to the first token made here.",
                      .kind = METRIC_HISTOGRAM,
                      BUCKETS(transfer_buckets)},
                     {NULL}},
    /* These only vLLM has. */
    [PREFILL_TIME] = {{.name = "vllm:request_prefill_time_seconds",
                       .help = "From the first step of a request to its first token.",
                       .kind = METRIC_HISTOGRAM,
                       BUCKETS(queue_buckets)},
                      {NULL}},
    [DECODE_TIME] = {{.name = "vllm:request_decode_time_seconds",
                      .help = "From the first token of a request, or its hand-over, to the last.",
                      .kind = METRIC_HISTOGRAM,
                      BUCKETS(queue_buckets)},
                     {NULL}},
    [OWN_TPOT] = {{.name = "vllm:request_time_per_output_token_seconds",
                   .help = "Mean time between the tokens of a request.",
                   .kind = METRIC_HISTOGRAM,
                   BUCKETS(tpot_buckets)},
                  {NULL}},
    [INFERENCE_TIME] = {{.name = "vllm:request_inference_time_seconds",
                         .help = "From the first step of a request to its last token.",
                         .kind = METRIC_HISTOGRAM,
                         BUCKETS(queue_buckets)},
                        {NULL}},
    [LONGEST] = {{.name = "vllm:request_max_num_generation_tokens",
                  .help = "Tokens of the longest answer to a request.",
                  .kind = METRIC_HISTOGRAM,
                  BUCKETS(tokens_buckets)},
                 {NULL}},
    [N_ANSWERS] = {{.name = "vllm:request_params_n",
                    .help = "Answers that a request asked for to each prompt.",
                    .kind = METRIC_HISTOGRAM,
                    BUCKETS(answers_buckets)},
                   {NULL}},
    [TOKENS_ASKED] = {{.name = "vllm:request_params_max_tokens",
                       .help = "Tokens that an answer was allowed to have.",
                       .kind = METRIC_HISTOGRAM,
                       BUCKETS(tokens_buckets)},
                      {NULL}},
    [FINISHED] = {{.name = "vllm:request_success_total",
                   .help = "Requests that ended here, by how; a hand-over is no end.",
                   .labels = {"finished_reason"}},
                  {NULL}},
    [ADAPTERS] = {{.name = "lora_requests_total",
                   .help = "Prompts computed with a LoRA adapter, by its name.",
                   .labels = {"lora_name"}},
                  {NULL}},
};

static struct metric *with_label(struct metric_family *f, const char *value) {
    return metric_of(f, (const char *const[]){value, NULL});
}

static enum err window_create(struct window *w, size_t size) {
    w->size = size > 0 ? size : 1;
    w->values = calloc(w->size, sizeof(*w->values));
    return w->values != NULL ? ERR_OK : ERR_NO_MEMORY;
}

static void window_add(struct window *w, double v) {
    double *at = &w->values[w->n % w->size];
    if (w->n >= w->size) w->sum -= *at;
    *at = v;
    w->sum += v;
    w->n++;
}

static double window_mean(const struct window *w) {
    size_t n = w->n < w->size ? w->n : w->size;
    return n > 0 && w->sum > 0 ? w->sum / (double)n : 0; /* the sum may round to just below 0 */
}

enum err req_meters_create(struct req_meters **out, struct metrics *reg, size_t window) {
    struct req_meters *m = calloc(1, sizeof(*m));
    struct metric_family *f[N_ROWS];
    *out = m;
    if (m == NULL) return ERR_NO_MEMORY;
    for (int i = 0; i < N_ROWS; i++) {
        if ((f[i] = metrics_family(reg, &rows[i].def)) == NULL) goto fail;
        for (int k = 0; k < 2 && rows[i].other[k] != NULL; k++)
            if (metrics_alias(reg, f[i], rows[i].other[k], rows[i].def.help) != ERR_OK) goto fail;
    }
    struct metric **const plain[N_ROWS] = {[RECEIVED] = &m->received,
                                           [SUCCESS] = &m->success,
                                           [FAILED] = &m->failed,
                                           [REFUSED] = &m->refused,
                                           [CANCELLED] = &m->cancelled,
                                           [PROMPT_TOKENS] = &m->prompt_tokens,
                                           [GENERATION_TOKENS] = &m->generation_tokens,
                                           [TTFT] = &m->ttft,
                                           [TPOT] = &m->tpot,
                                           [E2E] = &m->e2e,
                                           [QUEUE] = &m->queue,
                                           [PROMPT_LEN] = &m->prompt_len,
                                           [GENERATION_LEN] = &m->generation_len,
                                           [PREFILL_TIME] = &m->prefill_time,
                                           [DECODE_TIME] = &m->decode_time,
                                           [INFERENCE_TIME] = &m->inference_time,
                                           [LONGEST] = &m->longest,
                                           [N_ANSWERS] = &m->n_answers,
                                           [TOKENS_ASKED] = &m->tokens_asked,
                                           [FETCHED] = &m->fetched,
                                           [OWN_TPOT] = &m->own_tpot};
    for (int i = 0; i < N_ROWS; i++)
        if (plain[i] != NULL && (*plain[i] = metric_of(f[i], NULL)) == NULL) goto fail;
    if (metric_of(f[PREEMPTIONS], NULL) == NULL) goto fail;
    m->stopped = with_label(f[FINISHED], "stop");
    m->at_length = with_label(f[FINISHED], "length");
    m->aborted = with_label(f[FINISHED], "abort");
    if (m->stopped == NULL || m->at_length == NULL || m->aborted == NULL) goto fail;
    m->adapters = f[ADAPTERS];
    m->transfer = f[TRANSFER];
    m->transfer_failures = f[FAILURES];
    m->fetches = f[FETCHES];
    m->exposed_family = f[EXPOSED];
    m->bytes_family = f[BYTES];
    m->decode_wait_family = f[DECODE_WAIT];
    if (window_create(&m->ttft_ms, window) != ERR_OK || window_create(&m->tbt_ms, window) != ERR_OK)
        goto fail;
    if ((m->stats = model_stats_create()) == NULL) goto fail;
    return ERR_OK;
fail:
    req_meters_destroy(out);
    return ERR_NO_MEMORY;
}

void req_meters_destroy(struct req_meters **mp) {
    if (*mp == NULL) return;
    free((*mp)->ttft_ms.values);
    free((*mp)->tbt_ms.values);
    model_stats_destroy(&(*mp)->stats);
    free(*mp);
    *mp = NULL;
}

/* ---- one request */

void req_meter_begin(struct req_meter *t, struct req_meters *m, uint64_t arrival_us) {
    *t = (struct req_meter){.meters = m, .arrival_us = arrival_us, .handed_us = clock_us()};
    if (m != NULL) metric_add(m->received, 1);
}

/* The lane of a token, or NULL: no memory, and the times between its tokens are not known. */
static uint64_t *lane_of(struct req_meter *t, const struct infer_req *req,
                         const struct token_event *ev) {
    unsigned n = req->sampling.n_choices > 0 ? (unsigned)req->sampling.n_choices : 1;
    if (req->head.part >= PARTS_MAX || ev->choice < 0 || (unsigned)ev->choice >= CHOICES_MAX)
        return NULL;
    unsigned lane = req->head.part * n + (unsigned)ev->choice;
    if (lane >= LANES_MAX) return NULL;
    if (lane >= t->n_lanes) {
        uint64_t *grown = realloc(t->last_us, (lane + 1) * sizeof(*grown));
        if (grown == NULL) return NULL;
        for (unsigned i = t->n_lanes; i <= lane; i++) grown[i] = 0;
        t->last_us = grown;
        t->n_lanes = lane + 1;
    }
    return &t->last_us[lane];
}

void req_meter_import(struct req_meter *t, const struct infer_req *req,
                      const struct token_event *ev) {
    if (t->meters == NULL) return;
    uint64_t *last = lane_of(t, req, ev);
    if (last != NULL) *last = t->handed_us;
    t->n_tokens++;
}

static void first_of_all(struct req_meter *t, const struct infer_req *req,
                         const struct token_event *ev, uint64_t now, bool imported) {
    struct req_meters *m = t->meters;
    t->first_seen = true;
    t->n_answers = req->answer.n;
    t->tokens_asked = req->sampling.new_tokens_max;
    t->queue_us = imported ? req->measured.queue_wait_us : ev->queue_wait_us;
    t->first_us = imported ? t->handed_us : now;
    if (req->head.adapter != NULL) t->adapter = strdup(req->head.adapter);
    if (imported) {
        if (m->decode_wait == NULL) m->decode_wait = metric_of(m->decode_wait_family, NULL);
        metric_observe(m->decode_wait, (double)(now - t->handed_us) / 1e6);
        return;
    }
    double seconds = (double)(now - t->arrival_us) / 1e6;
    metric_observe(m->ttft, seconds);
    metric_observe(m->queue, ev->queue_wait_us / 1e6);
    double prefill = seconds - ev->queue_wait_us / 1e6;
    metric_observe(m->prefill_time, prefill > 0 ? prefill : 0);
    window_add(&m->ttft_ms, seconds * 1e3);
}

void req_meter_resumed(struct req_meter *t) {
    if (t->meters == NULL) return;
    t->n_tokens++;
    metric_add(t->meters->generation_tokens, 1);
}

void req_meter_token(struct req_meter *t, const struct infer_req *req,
                     const struct token_event *ev) {
    struct req_meters *m = t->meters;
    if (m == NULL) return;
    uint64_t now = clock_us(), *last = lane_of(t, req, ev);
    bool starts = last != NULL && *last == 0;
    if (!t->first_seen) first_of_all(t, req, ev, now, t->n_tokens > 0);
    t->latest_us = now;
    if (starts && ev->choice == 0) { /* a prompt was computed here */
        t->n_prompts++;
        metric_add(m->prompt_tokens, (double)req->n_prompt);
        metric_observe(m->prompt_len, (double)req->n_prompt);
        if (req->head.adapter != NULL) metric_add(with_label(m->adapters, req->head.adapter), 1);
    } else if (last != NULL && !starts) {
        /* The tokens of a beam search are told all at once, long after they were made. */
        uint64_t gap_us = req->sampling.beam ? ev->step_us : now - *last;
        metric_observe(m->tpot, (double)gap_us / 1e6);
        t->gaps_us += gap_us;
        t->n_gaps++;
    }
    if (last != NULL) *last = now;
    if (ev->finish != FINISH_NONE) t->finish = ev->finish;
    if (ev->index >= t->longest) t->longest = ev->index + 1;
    t->n_tokens++;
    metric_add(m->generation_tokens, 1);
}

enum req_end req_end_of(int status) {
    if (status == 200) return REQ_ANSWERED;
    return status >= 400 && status < 500 ? REQ_REFUSED : REQ_FAILED;
}

/* What only vLLM has of a request that ends here with tokens of its own. */
static void answered(const struct req_meter *t, uint64_t took_us) {
    const struct req_meters *m = t->meters;
    metric_observe(m->inference_time,
                   took_us > t->queue_us ? (double)(took_us - t->queue_us) / 1e6 : 0);
    metric_observe(m->longest, t->longest);
    metric_observe(m->n_answers, t->n_answers);
    metric_observe(m->tokens_asked, t->tokens_asked);
}

/* A hand-over is told of where it ends, and of what was refused no model knows. */
static void tell_stats(const struct req_meter *t, enum req_end how) {
    if (how == REQ_HANDED_OVER || how == REQ_REFUSED) return;
    const struct model_request r = {.ok = how == REQ_ANSWERED,
                                    .n_prompts = t->n_prompts,
                                    .arrival_us = t->arrival_us,
                                    .first_us = t->first_us,
                                    .last_us = t->latest_us,
                                    .end_us = clock_us(),
                                    .queue_us = t->queue_us};
    model_stats_add(t->meters->stats, t->adapter, &r);
}

void req_meter_end(struct req_meter *t, enum req_end how) {
    struct req_meters *m = t->meters;
    if (m == NULL) return;
    tell_stats(t, how);
    if (how == REQ_ANSWERED) {
        const uint64_t took_us = clock_us() - t->arrival_us;
        metric_observe(m->e2e, (double)took_us / 1e6);
        if (t->first_seen) answered(t, took_us);
        metric_observe(m->generation_len, t->n_tokens);
        metric_observe(m->decode_time,
                       t->first_us > 0 ? (double)(clock_us() - t->first_us) / 1e6 : 0);
        if (t->n_gaps > 0) {
            window_add(&m->tbt_ms, (double)t->gaps_us / 1e3 / t->n_gaps);
            metric_observe(m->own_tpot, (double)t->gaps_us / 1e6 / t->n_gaps);
        }
        /* The engine knows nothing of stop strings: an end it has not told is one. */
        metric_add(t->finish == FINISH_LENGTH ? m->at_length : m->stopped, 1);
    } else if (how == REQ_CANCELLED) {
        metric_add(m->aborted, 1);
    }
    struct metric *const counters[] = {[REQ_ANSWERED] = m->success,
                                       [REQ_HANDED_OVER] = m->success,
                                       [REQ_FAILED] = m->failed,
                                       [REQ_REFUSED] = m->refused,
                                       [REQ_CANCELLED] = m->cancelled};
    metric_add(counters[how], 1);
    free(t->last_us);
    free(t->adapter);
    *t = (struct req_meter){0};
}

/* ---- beside requests */

void req_meters_refused(struct req_meters *m) {
    if (m == NULL) return;
    metric_add(m->received, 1);
    metric_add(m->failed, 1);
}

void req_meters_transfer(struct req_meters *m, uint32_t peer, uint64_t bytes, uint64_t transfer_us,
                         uint64_t exposed_us) {
    char id[16];
    if (m == NULL) return;
    snprintf(id, sizeof(id), "%u", peer);
    if (m->bytes == NULL) m->bytes = metric_of(m->bytes_family, NULL);
    if (m->exposed == NULL) m->exposed = metric_of(m->exposed_family, NULL);
    metric_observe(metric_of(m->transfer, (const char *const[]){id, NULL}),
                   (double)transfer_us / 1e6);
    metric_observe(m->exposed, (double)exposed_us / 1e6);
    metric_add(m->bytes, (double)bytes);
}

void req_meters_transfer_failed(struct req_meters *m, enum err why) {
    if (m == NULL || why == ERR_CANCELLED) return;
    const char *reason = why == ERR_BUSY        ? "busy"
                         : why == ERR_REFUSED   ? "refused"
                         : why == ERR_PEER_LOST ? "peer_lost"
                         : why == ERR_TIMEOUT   ? "timeout"
                         : why == ERR_IO        ? "verify"
                         : why == ERR_TOO_LARGE ? "too_large"
                                                : "internal";
    metric_add(metric_of(m->transfer_failures, (const char *const[]){reason, NULL}), 1);
}

void req_meters_fetch(struct req_meters *m, enum err e, uint32_t n_blocks) {
    if (m == NULL) return;
    const char *result = "internal";
    switch (e) {
    case ERR_OK: result = "ok"; break;
    case ERR_PEER_LOST: result = "peer_lost"; break;
    case ERR_BUSY: result = "busy"; break;
    case ERR_TIMEOUT:
    case ERR_CANCELLED: result = "timeout"; break; /* here, or at the lender */
    case ERR_REFUSED:
    case ERR_NOT_FOUND: /* no prefix cache */
    case ERR_MISMATCH:
    case ERR_TOO_LARGE: result = "refused"; break;
    default: break;
    }
    metric_add(metric_of(m->fetches, (const char *const[]){result, NULL}), 1);
    metric_add(m->fetched, n_blocks);
}

/* ---- readings */

const struct model_stats *req_meters_stats(const struct req_meters *m) {
    return m != NULL ? m->stats : NULL;
}

double req_meters_failed_part(const struct req_meters *m) {
    double n = metric_value(m->received);
    return n > 0 ? metric_value(m->failed) / n : 0;
}

double req_meters_ttft_ms(const struct req_meters *m) {
    return window_mean(&m->ttft_ms);
}

double req_meters_tbt_ms(const struct req_meters *m) {
    return window_mean(&m->tbt_ms);
}

void req_meters_tokens(const struct req_meters *m, double *prompt, double *generated) {
    *prompt = metric_value(m->prompt_tokens);
    *generated = metric_value(m->generation_tokens);
}
