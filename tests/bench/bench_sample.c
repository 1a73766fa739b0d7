/* bench_sample: one token out of 150,000 logits, by the ways a client may ask for, beside one pass
 * that only reads the logits. What the forward pass says of the logits (sample_maxima()) is known.
 * Best of many calls: microseconds, and the calls' times over the pass's. */
#include <math.h>
#include "common/engine/sample.h"
#include "tests/bench/machine.h"

enum { VOCAB = 150000, ROUNDS = 7, CALLS = 12 };

struct way {
    const char *name;
    struct sampling p;
};

/* Logits as models make them: a few stand out of a normal crowd. */
static void fill(float *logits) {
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < VOCAB; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (double)(seed >> 11) * 0x1p-53;
        }
        logits[i] = (float)(2 * sum);
        if (i % 15013 == 7) logits[i] += 9;
    }
}

static float read_pass(const float *logits) {
    float lanes[16] = {0};
    for (int i = 0; i + 16 <= VOCAB; i += 16)
        for (int j = 0; j < 16; j++) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
    for (int j = 1; j < 16; j++) lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

int main(void) {
    struct sampling base = {.temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    struct way ways[] = {
        {"greedy", base},      {"greedy_logprobs_20", base}, {"temperature", base},
        {"top_k_50", base},    {"top_p_0.9", base},          {"top_k_50_top_p_0.9", base},
        {"typical_0.9", base},
    };
    enum { WAYS = sizeof(ways) / sizeof(ways[0]) };
    for (int i = 2; i < WAYS; i++) ways[i].p.do_sample = true;
    ways[1].p.logprobs = true;
    ways[1].p.top_logprobs = 20;
    ways[3].p.top_k = ways[5].p.top_k = 50;
    ways[4].p.top_p = ways[5].p.top_p = 0.9f;
    ways[6].p.typical_p = 0.9f;
    float *logits = bench_memory(VOCAB * sizeof(float)),
          *work = bench_memory(VOCAB * sizeof(float));
    struct sample_scratch *scratch = NULL;
    struct token_event *out = calloc(1, sizeof(*out));
    if (out == NULL || sample_scratch_create(&scratch, VOCAB) != ERR_OK) return 1;
    fill(logits);
    float *maxima = calloc((size_t)sample_groups(VOCAB), sizeof(*maxima));
    if (maxima == NULL) return 1;
    sample_maxima(maxima, logits, VOCAB);
    double us[WAYS][ROUNDS], ratio[WAYS][ROUNDS], pass_us[ROUNDS];
    volatile float sink = 0;
    for (int r = 0; r < ROUNDS; r++) {
        double pass = 1e30;
        for (int c = 0; c < CALLS; c++) {
            double t = bench_now();
            sink = sink + read_pass(logits);
            t = bench_now() - t;
            if (t < pass) pass = t;
        }
        pass_us[r] = pass * 1e6;
        for (int i = 0; i < WAYS; i++) {
            double best = 1e30;
            for (int c = 0; c < CALLS; c++) {
                const int32_t history[1] = {1};
                ways[i].p.seed = (uint64_t)c;
                const struct sample_in in = {.p = &ways[i].p,
                                             .history = history,
                                             .n_history = 1,
                                             .n_prompt = 1,
                                             .maxima = maxima};
                memcpy(work, logits, VOCAB * sizeof(float));
                double t = bench_now();
                if (!sample_token(scratch, work, VOCAB, &in, out)) return 1;
                t = bench_now() - t;
                if (t < best) best = t;
            }
            us[i][r] = best * 1e6;
            ratio[i][r] = best / pass;
        }
    }
    printf("sample_read_pass %.1f us\n", bench_median(pass_us, ROUNDS));
    for (int i = 0; i < WAYS; i++)
        printf("sample_%s %.1f us %.2f of sample_read_pass\n", ways[i].name,
               bench_median(us[i], ROUNDS), bench_median(ratio[i], ROUNDS));
    sample_scratch_destroy(&scratch);
    free(out);
    free(maxima);
    return 0;
}
