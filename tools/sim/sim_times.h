/* sim_times: what takes time beside what an instance measures of itself (proto/perf_msg.h): the
 * cores that several share, a pass that computes parts of several prompts, the ways between client,
 * coordinator and instances. Times in seconds. Pure.
 *
 * `times` of what `batonctl advise` measures, and of the abilities that `simulate` reads:
 * an object of numbers, one for each member of struct sim_times. */
#ifndef BATON_TOOLS_SIM_TIMES_H
#define BATON_TOOLS_SIM_TIMES_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/perf_msg.h"
#include "tools/sim/sim_host.h"

struct json_value;

struct sim_times {
    double cores;   /* of a machine; 0: instances take nothing from each other */
    double threads; /* of an instance */
    /* sim_host_conf.beside: of a prompt beside prompts, beside steps; of a step likewise. */
    double prompt_beside_prompt, prompt_beside_step, step_beside_prompt, step_beside_step;
    double hop_beside_engines;           /* of what lies outside engines, beside both */
    double prompt_sharing, step_sharing; /* sim_host_conf.sharing */
    /* Of an instance: tokens of one prompt in a pass, prompts, and tokens of all. chunk_tokens 0:
     * prompts are computed whole, one after the other. */
    double chunk_tokens, pass_prompts, pass_tokens;
    /* Of an engine beside what it measures: for each step, and for each sequence in it. */
    double step_s, sequence_s;
    /* From a client's request to its first token, beside the prompt and the link, when nothing else
     * is at work: for each request, and for each token of its prompt. Half of it lies before the
     * prompt, half behind it. */
    double request_s, prompt_token_s;
    /* Processor time outside engines: of a request, of a token of its prompt, of one of its
     * answer. */
    double request_cpu_s, prompt_token_cpu_s, token_cpu_s;
    /* The same of the one who asks, where that is on the machine too; in no run until it is added
     * to them. */
    double client_request_cpu_s, client_token_cpu_s;
};

/* root: an object with `times` in it, or without: all 0. ERR_INVALID: eb names the member. */
enum err sim_times_parse(struct sim_times *out, const struct json_value *root, struct errbuf *eb);
struct json_value *sim_times_format(const struct sim_times *t); /* NULL: no memory */
/* As a machine of such instances has it; only where cores are known. */
struct sim_host_conf sim_times_host(const struct sim_times *t);

/* A part of a prompt: rows from..to of it, 0 <= from < to. */
struct sim_part {
    double from, to;
};

/* What a pass costs: rows of matrices, which share a pass, and attention, which nobody shares. */
struct sim_pass {
    const struct perf_msg *perf;
    double chunk;     /* rows up to which the first is known; what is beyond is in proportion */
    double quadratic; /* seconds for each row and each row before it */
};
void sim_pass_of(struct sim_pass *out, const struct perf_msg *perf, unsigned chunk_tokens);
double sim_pass_s(const struct sim_pass *c, const struct sim_part *parts, size_t n);

#endif
