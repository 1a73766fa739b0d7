/* sim_times: see sim_times.h. A member is a row of a table, which parser and printer walk. */
#include "tools/sim/sim_times.h"

#include <math.h>
#include "proto/json.h"

static const struct row {
    const char *name;
    size_t at;
    double least, most;
    bool whole;
} rows[] = {
#define AT(member) offsetof(struct sim_times, member)
    {"cores", AT(cores), 0, SIM_CORES_MAX, true},
    {"threads", AT(threads), 0, SIM_CORES_MAX, true},
    {"promptBesidePrompt", AT(prompt_beside_prompt), 1, 100, false},
    {"promptBesideStep", AT(prompt_beside_step), 1, 100, false},
    {"stepBesidePrompt", AT(step_beside_prompt), 1, 100, false},
    {"stepBesideStep", AT(step_beside_step), 1, 100, false},
    {"hopBesideEngines", AT(hop_beside_engines), 1, 100, false},
    {"promptSharing", AT(prompt_sharing), 1, 100, false},
    {"stepSharing", AT(step_sharing), 1, 100, false},
    {"chunkTokens", AT(chunk_tokens), 0, 1 << 20, true},
    {"passPrompts", AT(pass_prompts), 0, 1 << 20, true},
    {"passTokens", AT(pass_tokens), 0, 1 << 20, true},
    {"stepSeconds", AT(step_s), 0, 60, false},
    {"sequenceSeconds", AT(sequence_s), 0, 60, false},
    {"requestSeconds", AT(request_s), 0, 60, false},
    {"promptTokenSeconds", AT(prompt_token_s), 0, 1, false},
    {"requestCpuSeconds", AT(request_cpu_s), 0, 60, false},
    {"promptTokenCpuSeconds", AT(prompt_token_cpu_s), 0, 1, false},
    {"tokenCpuSeconds", AT(token_cpu_s), 0, 1, false},
    {"clientRequestCpuSeconds", AT(client_request_cpu_s), 0, 60, false},
    {"clientTokenCpuSeconds", AT(client_token_cpu_s), 0, 1, false},
#undef AT
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static double *member(struct sim_times *t, const struct row *r) {
    return (double *)(void *)((char *)t + r->at);
}

enum err sim_times_parse(struct sim_times *out, const struct json_value *root, struct errbuf *eb) {
    struct json_value *o = NULL;
    *out = (struct sim_times){.prompt_beside_prompt = 1,
                              .prompt_beside_step = 1,
                              .step_beside_prompt = 1,
                              .step_beside_step = 1,
                              .hop_beside_engines = 1,
                              .prompt_sharing = 1,
                              .step_sharing = 1};
    const enum json_got there = json_get_obj(root, "times", &o);
    if (there == JSON_ABSENT || there == JSON_NULL) return ERR_OK;
    if (there != JSON_OK) return err_set(eb, ERR_INVALID, "times must be an object");
    for (const struct row *r = rows; r < rows + ROWS; r++) {
        double v = 0;
        const enum json_got got = json_get_f64(o, r->name, &v);
        if (got == JSON_ABSENT) continue;
        if (got != JSON_OK || !(v >= r->least && v <= r->most) || (r->whole && v != floor(v)))
            return err_set(eb, ERR_INVALID, "times.%s must be a %snumber in [%g, %g], got %g",
                           r->name, r->whole ? "whole " : "", r->least, r->most, v);
        *member(out, r) = v;
    }
    if (out->cores > 0 && out->threads < 1)
        return err_set(eb, ERR_INVALID, "times.threads must be at least 1 where cores are, got 0");
    return ERR_OK;
}

struct json_value *sim_times_format(const struct sim_times *t) {
    struct sim_times copy = *t;
    struct json_value *o = json_new_obj();
    for (const struct row *r = rows; r < rows + ROWS; r++)
        json_obj_set(o, r->name, json_new_f64(*member(&copy, r)));
    return o;
}

struct sim_host_conf sim_times_host(const struct sim_times *t) {
    return (struct sim_host_conf){
        .cores = (unsigned)t->cores,
        .sharing = {[SIM_PROMPT] = t->prompt_sharing, [SIM_STEP] = t->step_sharing, [SIM_HOP] = 1},
        .beside = {[SIM_PROMPT] = {t->prompt_beside_prompt, t->prompt_beside_step, 1},
                   [SIM_STEP] = {t->step_beside_prompt, t->step_beside_step, 1},
                   [SIM_HOP] = {t->hop_beside_engines, t->hop_beside_engines, 1}}};
}

/* ---- a pass */

/* A prompt of n tokens is n / chunk passes, and attention over half of n squared: what the longest
 * one takes beyond so many of one chunk is attention. */
void sim_pass_of(struct sim_pass *out, const struct perf_msg *perf, unsigned chunk_tokens) {
    const double chunk = chunk_tokens;
    double longest = 0;
    for (int i = 0; i < PERF_LENGTHS; i++)
        if (perf->prompts[i].n > 0 && perf->prompts[i].tokens > longest)
            longest = perf->prompts[i].tokens;
    *out = (struct sim_pass){perf, longest < chunk ? longest : chunk, 0};
    if (!(longest > 1.5 * chunk)) return;
    const double beyond =
        perf_prompt_s(perf, longest) - longest / chunk * perf_prompt_s(perf, chunk);
    const double more = longest * (longest - chunk) / 2;
    if (beyond > 0) out->quadratic = beyond / more;
}

/* Of matrices alone. */
static double rows_s(const struct sim_pass *c, double n) {
    const double k = n < c->chunk ? n : c->chunk;
    const double s = perf_prompt_s(c->perf, k) - c->quadratic * k * k / 2;
    return (s > 0 ? s : 0) * n / k;
}

double sim_pass_s(const struct sim_pass *c, const struct sim_part *parts, size_t n) {
    double n_rows = 0, pairs = 0;
    for (size_t i = 0; i < n; i++) {
        n_rows += parts[i].to - parts[i].from;
        pairs += (parts[i].to * parts[i].to - parts[i].from * parts[i].from) / 2;
    }
    return n_rows > 0 ? rows_s(c, n_rows) + c->quadratic * pairs : 0;
}
