/* perf_msg: how fast an instance is, as it has measured itself: seconds of a prompt by its length,
 * seconds of a decoding step by the sequences in it and their context. Each cell is the mean of its
 * newest PERF_SAMPLES samples, so what is old fades. The `perf` of GET /v2/status. Pure. */
#ifndef BATON_PROTO_PERF_MSG_H
#define BATON_PROTO_PERF_MSG_H

#include <stdint.h>
#include "proto/err.h"

struct json_value;

enum {
    PERF_LENGTHS = 12, /* up to 16, 32, 64 .. 32768 tokens, and more in the last */
    PERF_BATCHES = 8,  /* up to 1, 2, 4 .. 128 sequences */
    PERF_CONTEXTS = 5, /* up to 128, 512, 2048, 8192 tokens, and more */
    PERF_SAMPLES = 32,
};

/* Means of what was measured; n 0: nothing was. */
struct perf_prompt {
    uint32_t n;
    double tokens, seconds;
};
struct perf_step {
    uint32_t n;
    double batch, context, seconds;
};
struct perf_msg {
    struct perf_prompt prompts[PERF_LENGTHS];
    struct perf_step steps[PERF_BATCHES][PERF_CONTEXTS];
};

/* One more sample; one without a length, a batch or a time above 0 is none. */
void perf_add_prompt(struct perf_msg *m, double tokens, double seconds);
void perf_add_step(struct perf_msg *m, double batch, double context, double seconds);
/* Takes in what another instance of the same kind has measured. */
void perf_merge(struct perf_msg *m, const struct perf_msg *other);

/* Seconds to compute so many tokens of a prompt, between what was measured in a straight line.
 * 0: nothing was. */
double perf_prompt_s(const struct perf_msg *m, double tokens);
/* Seconds of a step with so many sequences of about this context. 0: nothing was measured. */
double perf_step_s(const struct perf_msg *m, double batch, double context);

/* {"prompts":[{"tokens":..,"seconds":..,"samples":..}..],"steps":[{"batch":..,"context":..,
 * "seconds":..,"samples":..}..]}; NULL: no memory. */
struct json_value *perf_format(const struct perf_msg *m);
/* Of a status body; o NULL: nothing was measured. ERR_INVALID: eb names the member. */
enum err perf_parse(struct perf_msg *m, const struct json_value *o, struct errbuf *eb);

#endif
