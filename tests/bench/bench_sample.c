/* bench_sample: one token out of 150,000 logits, by the ways a client may ask for, beside one pass
 * that only reads the logits. What the forward pass says of the logits (sample_maxima()) is known.
 * Best of many calls: microseconds, and the calls' times over the pass's. Once with the vectors
 * that the processor has, and where these are AVX-512's, once with AVX2's (sample_avx2_*). */
#include <math.h>
#include "common/engine/sample.h"
#include "common/engine/sample_priv.h"
#include "common/engine/sample_wide.h"
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

enum { WAYS = 7 };

/* What is asked, and by whom. */
struct bench {
    struct way ways[WAYS];
    float *logits, *work, *maxima;
    struct sample_scratch *scratch;
    struct token_event *out;
};

/* Seconds of the best of CALLS tokens; negative: there is none. */
static double way_seconds(struct bench *b, struct way *way) {
    double best = 1e30;
    for (int c = 0; c < CALLS; c++) {
        const int32_t history[1] = {1};
        way->p.seed = (uint64_t)c;
        const struct sample_in in = {
            .p = &way->p, .history = history, .n_history = 1, .n_prompt = 1, .maxima = b->maxima};
        memcpy(b->work, b->logits, VOCAB * sizeof(float));
        double t = bench_now();
        if (!sample_token(b->scratch, b->work, VOCAB, &in, b->out)) return -1;
        t = bench_now() - t;
        if (t < best) best = t;
    }
    return best;
}

/* set: what the lines begin with behind `sample_`. */
static bool measure(struct bench *b, const char *set, const struct sample_wide *wide) {
    double us[WAYS][ROUNDS], ratio[WAYS][ROUNDS], pass_us[ROUNDS];
    volatile float sink = 0;
    b->scratch->wide = wide;
    for (int r = 0; r < ROUNDS; r++) {
        double pass = 1e30;
        for (int c = 0; c < CALLS; c++) {
            double t = bench_now();
            sink = sink + read_pass(b->logits);
            t = bench_now() - t;
            if (t < pass) pass = t;
        }
        pass_us[r] = pass * 1e6;
        for (int i = 0; i < WAYS; i++) {
            const double best = way_seconds(b, &b->ways[i]);
            if (best < 0) return false;
            us[i][r] = best * 1e6;
            ratio[i][r] = best / pass;
        }
    }
    printf("sample_%sread_pass %.1f us\n", set, bench_median(pass_us, ROUNDS));
    for (int i = 0; i < WAYS; i++)
        printf("sample_%s%s %.1f us %.2f of sample_read_pass\n", set, b->ways[i].name,
               bench_median(us[i], ROUNDS), bench_median(ratio[i], ROUNDS));
    return true;
}

int main(void) {
    const struct sampling base = {
        .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    struct bench b = {.ways = {
                          {"greedy", base},
                          {"greedy_logprobs_20", base},
                          {"temperature", base},
                          {"top_k_50", base},
                          {"top_p_0.9", base},
                          {"top_k_50_top_p_0.9", base},
                          {"typical_0.9", base},
                      }};
    for (int i = 2; i < WAYS; i++) b.ways[i].p.do_sample = true;
    b.ways[1].p.logprobs = true;
    b.ways[1].p.top_logprobs = 20;
    b.ways[3].p.top_k = b.ways[5].p.top_k = 50;
    b.ways[4].p.top_p = b.ways[5].p.top_p = 0.9f;
    b.ways[6].p.typical_p = 0.9f;
    b.logits = bench_memory(VOCAB * sizeof(float));
    b.work = bench_memory(VOCAB * sizeof(float));
    b.out = calloc(1, sizeof(*b.out));
    b.maxima = calloc((size_t)sample_groups(VOCAB), sizeof(*b.maxima));
    if (b.out == NULL || b.maxima == NULL || sample_scratch_create(&b.scratch, VOCAB) != ERR_OK)
        return 1;
    fill(b.logits);
    sample_maxima(b.maxima, b.logits, VOCAB);
    const struct sample_wide *avx2 = sample_wide_avx2();
    bool ok = measure(&b, "", sample_wide());
    if (ok && avx2 != NULL && sample_wide() == sample_wide_avx512())
        ok = measure(&b, "avx2_", avx2);
    sample_scratch_destroy(&b.scratch);
    free(b.out);
    free(b.maxima);
    return ok ? 0 : 1;
}
