/* bench_gap: what streams feel of a long prompt on the same instance, and the prompt of them, with
 * the engine as an instance runs it and random weights of a real shape.
 *
 *   bench_gap --shape tinyllama-1.1b|qwen2.5-0.5b [--dtype bf16] [--threads N] [--layers L]
 *             [--rounds R] [--percent P] [--streams S] [--models DIR]
 *
 * A round has four parts: the streams alone; a prompt of PROMPT tokens beside them, in steps that
 * last at most P percent of the streams' own (BatonConfig.decodeGapPercent); the same without a
 * bound; the prompt alone, with the streams paused. Gaps are of all rounds together, speeds
 * medians over the rounds of the ratio to the prompt alone. Before the first round one prompt
 * teaches the engine what its steps take. Progress is told on stderr. */
#include <unistd.h>

#include <sys/stat.h>
#include "common/base/clock.h"
#include "common/engine/engine_priv.h"
#include "common/engine/kernels.h"
#include "tests/bench/machine.h"
#include "tests/bench/random_model.h"

enum {
    PROMPT = 2048,
    STREAM_PROMPT = 128,
    CALM_STEPS = 64,
    CHUNK = 256, /* BatonConfig.chunkTokens */
    STREAMS_MAX = 16,
    ROUNDS_MAX = 32,
    GAPS_MAX = 1 << 16,
    PROMPT_ID = 1000,
};

struct gaps {
    double v[GAPS_MAX];
    int n;
};

struct bench {
    struct shape shape;
    enum dtype dtype;
    int threads, rounds, percent, streams;
    const char *models;
    struct engine *e;
    double last[STREAMS_MAX]; /* when a stream had its last token; 0: not in this part */
    struct gaps *gaps;        /* of this part; NULL: nobody counts */
    bool prompt_done;
    uint64_t n_prompts;
};

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct bench *b = arg;
    (void)ev;
    if (id >= PROMPT_ID) {
        b->prompt_done = true;
        return;
    }
    const double now = bench_now();
    if (b->gaps != NULL && b->last[id] > 0 && b->gaps->n < GAPS_MAX)
        b->gaps->v[b->gaps->n++] = now - b->last[id];
    b->last[id] = now;
}

static void add_prompt(struct bench *b, uint64_t id, int n, int n_new) {
    int32_t ids[PROMPT];
    struct errbuf eb = {0};
    struct sampling p = {.temperature = 1,
                         .top_p = 1,
                         .typical_p = 1,
                         .repetition_penalty = 1,
                         .n_choices = 1,
                         .ignore_eos = true,
                         .new_tokens_max = n_new};
    b->n_prompts++;
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)((b->n_prompts * 7919 + (uint64_t)i * 37) % (uint64_t)b->shape.vocab);
    const struct seq_opts o = {.seq_id = id,
                               .kind = SEQ_WHOLE,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n,
                               .sampling = &p,
                               .priority = 3};
    if (engine_seq_add(b->e, &o, &eb) != ERR_OK) require(false, eb.text);
}

static void begin(struct bench *b, struct gaps *gaps) {
    memset(b->last, 0, sizeof(b->last));
    b->gaps = gaps;
}

static void calm(struct bench *b, struct gaps *gaps) {
    begin(b, gaps);
    for (int i = 0; i < CALM_STEPS; i++) (void)engine_step(b->e);
}

/* Seconds until its first token. */
static double prefill(struct bench *b, struct gaps *gaps) {
    for (int i = 0; i < 2; i++) (void)engine_step(b->e); /* every stream has a last token */
    begin(b, gaps);
    b->prompt_done = false;
    add_prompt(b, PROMPT_ID + b->n_prompts, PROMPT, 1);
    const double t = bench_now();
    while (!b->prompt_done) require(engine_step(b->e), "nothing to do");
    return bench_now() - t;
}

static void open_all(struct bench *b) {
    struct errbuf eb;
    char dir[256];
    model_place(&b->shape, b->models, dir, sizeof(dir));
    const struct engine_opts o = {.model_dir = dir,
                                  .weight_dtype = b->dtype,
                                  .kv_dtype = DTYPE_BF16,
                                  .n_threads = b->threads,
                                  .block_tokens = 128,
                                  .kv_bytes = UINT64_C(1) << 30,
                                  .seq_tokens_max = 16384,
                                  .batch_max = STREAMS_MAX + 1,
                                  .prefill_batch_max = 8,
                                  .step_tokens_max = CHUNK + STREAMS_MAX + 1,
                                  .chunk_tokens = CHUNK,
                                  .queue_max = 16,
                                  .decode_gap_percent = b->percent};
    const enum err e = engine_open(&b->e, &o, &eb);
    if (b->models == NULL) model_remove(dir);
    if (e != ERR_OK) require(false, eb.text);
    if (getenv("BENCH_CPU_TIME") != NULL) b->e->step_clock = clock_thread_us;
    const struct engine_events ev = {.on_token = on_token, .arg = b};
    engine_set_events(b->e, &ev);
}

static double quantile(struct gaps *g, double q) {
    qsort(g->v, (size_t)g->n, sizeof(*g->v), bench_compare);
    const int at = (int)(q * g->n);
    return g->v[at < g->n ? at : g->n - 1];
}

static void say(const struct bench *b, const char *what, double v, const char *unit, double ratio,
                const char *of) {
    printf("gap_%s_%s_threads_%d_%s %.2f %s", b->shape.name, dtype_name(b->dtype), b->threads, what,
           v, unit);
    if (of != NULL) printf(" %.3f of %s", ratio, of);
    putchar('\n');
}

static void run(struct bench *b) {
    static struct gaps quiet, bounded, free_run;
    double speed[ROUNDS_MAX], free_speed[ROUNDS_MAX], alone[ROUNDS_MAX];
    const struct step_bounds bounds = b->e->bounds;
    for (int i = 0; i < b->streams; i++) add_prompt(b, (uint64_t)i, STREAM_PROMPT, 8000);
    while (b->e->n_waiting > 0 || b->e->generated_tokens < (uint64_t)b->streams)
        (void)engine_step(b->e);
    for (int r = -1; r < b->rounds; r++) {
        fprintf(stderr, "bench_gap %s %s threads %d: round %d of %d\n", b->shape.name,
                dtype_name(b->dtype), b->threads, r + 1, b->rounds);
        calm(b, r < 0 ? NULL : &quiet);
        const double t_bounded = prefill(b, r < 0 ? NULL : &bounded);
        if (r < 0) continue;
        b->e->bounds = (struct step_bounds){0};
        const double t_free = prefill(b, &free_run);
        for (int i = 0; i < b->streams; i++) (void)engine_seq_pause(b->e, (uint64_t)i, true);
        b->prompt_done = false;
        add_prompt(b, PROMPT_ID + b->n_prompts, PROMPT, 1);
        double t = bench_now();
        while (!b->prompt_done) require(engine_step(b->e), "nothing to do");
        t = bench_now() - t;
        for (int i = 0; i < b->streams; i++) (void)engine_seq_pause(b->e, (uint64_t)i, false);
        b->e->bounds = bounds;
        speed[r] = t / t_bounded;
        free_speed[r] = t / t_free;
        alone[r] = PROMPT / t;
    }
    const double c50 = quantile(&quiet, 0.5), c99 = quantile(&quiet, 0.99);
    const double rate = bench_median(alone, b->rounds);
    say(b, "calm_p50", c50 * 1e3, "ms", 0, NULL);
    say(b, "calm_p99", c99 * 1e3, "ms", 0, NULL);
    say(b, "prefill_p50", quantile(&bounded, 0.5) * 1e3, "ms", quantile(&bounded, 0.5) / c50,
        "calm_p50");
    say(b, "prefill_p99", quantile(&bounded, 0.99) * 1e3, "ms", quantile(&bounded, 0.99) / c99,
        "calm_p99");
    say(b, "unbounded_p99", quantile(&free_run, 0.99) * 1e3, "ms", quantile(&free_run, 0.99) / c99,
        "calm_p99");
    double v = bench_median(speed, b->rounds);
    say(b, "prefill_speed", v * rate, "tokens/s", v, "prefill_alone");
    v = bench_median(free_speed, b->rounds);
    say(b, "unbounded_speed", v * rate, "tokens/s", v, "prefill_alone");
}

static bool parse(struct bench *b, int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        const char *k = argv[i], *v = argv[i + 1];
        if (strcmp(k, "--shape") == 0) {
            for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
                if (strcmp(v, shapes[s].name) == 0) b->shape = shapes[s];
        } else if (strcmp(k, "--layers") == 0) {
            if (atoi(v) < b->shape.layers) b->shape.layers = atoi(v);
        } else if (strcmp(k, "--dtype") == 0) {
            b->dtype = dtype_of_name(v);
        } else if (strcmp(k, "--threads") == 0) {
            b->threads = atoi(v);
        } else if (strcmp(k, "--rounds") == 0) {
            b->rounds = atoi(v);
        } else if (strcmp(k, "--percent") == 0) {
            b->percent = atoi(v);
        } else if (strcmp(k, "--streams") == 0) {
            b->streams = atoi(v);
        } else if (strcmp(k, "--models") == 0) {
            b->models = v;
        } else {
            return false;
        }
    }
    return b->shape.name != NULL && b->shape.layers > 0 && b->dtype != DTYPE_NONE &&
           b->threads > 0 && b->rounds > 0 && b->rounds <= ROUNDS_MAX && b->streams > 0 &&
           b->streams <= STREAMS_MAX;
}

int main(int argc, char **argv) {
    static struct bench b = {
        .dtype = DTYPE_BF16, .threads = 1, .rounds = 5, .percent = 400, .streams = 4};
    kernels_openblas_environment();
    if (!parse(&b, argc, argv)) {
        fprintf(stderr, "usage: bench_gap --shape NAME [--dtype TYPE] [--threads N] [--layers L] "
                        "[--rounds R] [--percent P] [--streams S] [--models DIR]\n");
        return 2;
    }
    open_all(&b);
    run(&b);
    engine_close(&b.e);
    return 0;
}
