/* perf_msg: how fast an instance is, as it has measured itself: seconds of a prompt by its length,
 * seconds of a decoding step by the sequences in it and their context. Each cell is the mean of its
 * newest PERF_SAMPLES samples, so what is old fades. The `perf` of GET /v2/status. Pure. */
#ifndef BATON_PROTO_PERF_MSG_H
#define BATON_PROTO_PERF_MSG_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

struct json_value;

enum {
    PERF_LENGTHS = 12, /* up to 16, 32, 64 .. 32768 tokens, and more in the last */
    PERF_BATCHES = 8,  /* up to 1, 2, 4 .. 128 sequences */
    PERF_CONTEXTS = 5, /* up to 128, 512, 2048, 8192 tokens, and more */
    PERF_SAMPLES = 32,
    PERF_KIND_BYTES = 48,
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
    /* What was measured: kernels, threads, model. Instances of one kind should be as fast as each
     * other. [A-Za-z0-9._/-]; "": unknown. */
    char kind[PERF_KIND_BYTES];
    struct perf_prompt prompts[PERF_LENGTHS];
    struct perf_step steps[PERF_BATCHES][PERF_CONTEXTS];
};

/* One more sample; one without a length, a batch or a time above 0 is none. */
void perf_add_prompt(struct perf_msg *m, double tokens, double seconds);
void perf_add_step(struct perf_msg *m, double batch, double context, double seconds);
/* Takes in what another instance has measured: every sample counts the same, so a cell may have
 * more than PERF_SAMPLES then. perf_without() takes that out again: what all but one have measured.
 * The kind stays. */
void perf_merge(struct perf_msg *m, const struct perf_msg *other);
void perf_without(struct perf_msg *out, const struct perf_msg *all, const struct perf_msg *one);

/* Seconds of one over those of the other, as a mean over the cells that both have measured, by the
 * samples in them; 0: there is no such cell. */
double perf_prompt_ratio(const struct perf_msg *a, const struct perf_msg *b);
double perf_step_ratio(const struct perf_msg *a, const struct perf_msg *b);

/* Seconds to compute so many tokens of a prompt, between what was measured in a straight line; more
 * tokens never take less: where they were measured so, it was noise, and the mean of both counts.
 * 0: nothing was. */
double perf_prompt_s(const struct perf_msg *m, double tokens);
/* Seconds of a step with so many sequences of about this context; more never take less either.
 * 0: nothing was measured. */
double perf_step_s(const struct perf_msg *m, double batch, double context);
/* By how much one sequence more makes a step of so many longer: on the convex line below what was
 * measured, so that it is never less for being in a larger batch. */
double perf_step_more_s(const struct perf_msg *m, double batch, double context);

/* {"kind":"..","prompts":[{"tokens":..,"seconds":..,"samples":..}..],"steps":[{"batch":..,"context":..,
 * "seconds":..,"samples":..}..]}; NULL: no memory. */
struct json_value *perf_format(const struct perf_msg *m);
/* Of a status body; o NULL: nothing was measured. ERR_INVALID: eb names the member. */
enum err perf_parse(struct perf_msg *m, const struct json_value *o, struct errbuf *eb);

#endif
