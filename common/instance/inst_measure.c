/* inst_measure: see inst_measure.h.
 *
 * Cells are prompts of growing length, and steps of growing batches at one context. Each has its
 * share of the time in every round, whatever it needs, so that several processes that begin
 * together measure the same thing at the same time, and with it what they take from each other. */
#include "common/instance/inst_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/engine.h"
#include "common/engine/pool.h"
#include "common/instance/inst_conf.h"
#include "proto/json.h"

enum {
    TOKENS_MAX = 1 << 20,
    SLOTS_MAX = 1024,
    SECONDS_MAX = 600,
    CELLS_MAX = 48,
    REPEATS_MAX = 32, /* of one round */
    ROUNDS = 2,
    BLOCK_TOKENS = 128,
    CHUNK_TOKENS = 256, /* as chunkTokens is by default */
    STEPS = 32,         /* that a batch is let run for before its sequences are begun anew */
};

struct args {
    const char *model, *dtype, *kv, *kernels, *threads, *tokens, *context, *slots, *seconds;
};

static int usage(void) {
    fprintf(stderr,
            "usage: --measure MODEL [--dtype auto|bf16|f32|int8|int4] [--kv bf16|f32|int8] "
            "[--kernels SET] [--threads N] [--tokens N] [--context N] [--slots N] [--seconds N]\n");
    return 2;
}

static bool read_args(struct args *a, int argc, char **argv) {
    const struct cli_value options[] = {{"--dtype", &a->dtype},     {"--kv", &a->kv},
                                        {"--kernels", &a->kernels}, {"--threads", &a->threads},
                                        {"--tokens", &a->tokens},   {"--context", &a->context},
                                        {"--slots", &a->slots},     {"--seconds", &a->seconds}};
    return cli_read_values(options, sizeof(options) / sizeof(options[0]), &a->model, "MODEL", argc,
                           argv) &&
           a->model != NULL;
}

static bool read_number(const char *flag, const char *text, int min, int max, int absent,
                        int *out) {
    char *end = NULL;
    const long v = text != NULL ? strtol(text, &end, 10) : absent;
    *out = (int)v;
    if (text == NULL || (*text != 0 && *end == 0 && v >= min && v <= max)) return true;
    fprintf(stderr, "%s must be an integer from %d to %d, got %.32s\n", flag, min, max, text);
    return false;
}

/* ---- what runs */

struct run {
    struct engine *e;
    int tokens, context, slots; /* the longest prompt, the context of steps, the largest batch */
    double seconds;
    int32_t *ids; /* [longest of both] */
    uint64_t next_id;
    int n_left; /* sequences that have not ended */
    bool failed;
    double
        spread_sum; /* standard deviations, relative, of cells that were measured more than once */
    int n_spread;
};

static void on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct run *r = arg;
    (void)seq_id;
    if (ev->finish != FINISH_NONE) r->n_left--;
}

static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct run *r = arg;
    (void)seq_id, (void)e;
    r->failed = true;
    r->n_left--;
}

static struct sampling greedy(int n_tokens) {
    return (struct sampling){.top_p = 1,
                             .typical_p = 1,
                             .repetition_penalty = 1,
                             .ignore_eos = true,
                             .new_tokens_max = n_tokens,
                             .n_choices = 1};
}

/* Another text each time: what was computed before helps none. */
static void fill_ids(struct run *r, int n) {
    const int vocab = engine_model(r->e)->vocab_size;
    for (int i = 0; i < n; i++)
        r->ids[i] = (int32_t)((r->next_id * 7919 + (uint64_t)i * 31) % (uint64_t)vocab);
}

static enum err add(struct run *r, enum seq_kind kind, int n_ids, int n_new, struct errbuf *eb) {
    const struct sampling s = greedy(n_new);
    fill_ids(r, n_ids);
    const struct seq_opts o = {.seq_id = r->next_id++,
                               .kind = kind,
                               .ids = r->ids,
                               .n_ids = (size_t)n_ids,
                               .n_prompt = (size_t)n_ids,
                               .sampling = &s,
                               .priority = 3};
    const enum err e = engine_seq_add(r->e, &o, eb);
    r->n_left += e == ERR_OK;
    return e;
}

static void run_out(struct run *r) {
    while (r->n_left > 0 && !r->failed && engine_step(r->e)) {}
}

/* One prompt and its first token; a batch for STEPS steps. */
static enum err one_prompt(struct run *r, int n, struct errbuf *eb) {
    const enum err e = add(r, SEQ_WHOLE, n, 1, eb);
    if (e == ERR_OK) run_out(r);
    return e;
}

/* Nothing is computed of what lies before: its KV counts as sent. */
static enum err one_batch(struct run *r, int n, struct errbuf *eb) {
    const uint64_t first = r->next_id;
    const int32_t id = 1;
    const struct first_ids one = {&id, 1};
    enum err e = ERR_OK;
    for (int i = 0; i < n && e == ERR_OK; i++) e = add(r, SEQ_IMPORT, r->context, STEPS + 1, eb);
    for (uint64_t q = first; q < r->next_id && e == ERR_OK; q++)
        e = engine_seq_start(r->e, q, &one, 1);
    if (e == ERR_OK) run_out(r);
    return e;
}

struct cell {
    bool prompt;
    int n, times;
    double sum, squares; /* seconds */
};

/* Again and again for so long; at least once. */
static enum err measure_cell(struct run *r, struct cell *c, double seconds, struct errbuf *eb) {
    const uint64_t end_us = clock_us() + (uint64_t)(seconds * 1e6);
    enum err e = ERR_OK;
    int times = 0;
    do {
        const uint64_t start_us = clock_us();
        e = c->prompt ? one_prompt(r, c->n, eb) : one_batch(r, c->n, eb);
        const double s = (double)(clock_us() - start_us) * 1e-6;
        c->sum += s;
        c->squares += s * s;
        c->times++;
        times++;
    } while (e == ERR_OK && !r->failed && clock_us() < end_us && times < REPEATS_MAX);
    if (r->failed && e == ERR_OK) e = err_set(eb, ERR_INTERNAL, "a sequence failed");
    return e;
}

static void add_spread(struct run *r, const struct cell *c) {
    const double mean = c->sum / c->times, variance = c->squares / c->times - mean * mean;
    if (c->times < 2 || !(mean > 0)) return;
    r->spread_sum += sqrt(variance > 0 ? variance : 0) / mean;
    r->n_spread++;
}

/* In rounds, so that what disturbs the machine for a moment is in no cell alone. */
static enum err measure(struct run *r, struct errbuf *eb) {
    struct cell cells[CELLS_MAX];
    int n = 0;
    for (int t = 16; t < r->tokens && n < CELLS_MAX / 2; t *= 2, n++)
        cells[n] = (struct cell){.prompt = true, .n = t};
    cells[n] = (struct cell){.prompt = true, .n = r->tokens};
    n++;
    for (int b = 1; b < r->slots && n < CELLS_MAX - 1; b *= 2, n++)
        cells[n] = (struct cell){.n = b};
    cells[n] = (struct cell){.n = r->slots};
    n++;
    enum err e = one_prompt(r, 16, eb); /* the first touches everything once */
    for (int round = 0; round < ROUNDS && e == ERR_OK; round++)
        for (int i = 0; i < n && e == ERR_OK; i++)
            e = measure_cell(r, &cells[i], r->seconds / n / ROUNDS, eb);
    for (int i = 0; i < n; i++) add_spread(r, &cells[i]);
    return e;
}

/* ---- what is said */

static void add_num(struct json_value *o, const char *key, double v) {
    json_obj_set(o, key, json_new_f64(v));
}

static bool print(const struct run *r, int threads, double load_s) {
    const struct model_info *m = engine_model(r->e);
    struct engine_stats st;
    struct json_value *o = json_new_obj();
    engine_stats(r->e, &st);
    const double token = m->encoder ? 0
                                    : (double)engine_kv_block_bytes(r->e) * model_kv_layers(m) /
                                          engine_block_tokens(r->e);
    json_obj_set(o, "family", json_new_str(m->family));
    json_obj_set(o, "dtype", json_new_str(dtype_name(m->weight_dtype)));
    json_obj_set(o, "kvDtype", json_new_str(dtype_name(m->kv_dtype)));
    json_obj_set(o, "kernels", json_new_str(m->kernels));
    add_num(o, "threads", threads);
    add_num(o, "weightBytes", (double)m->weight_bytes);
    add_num(o, "kvTokenBytes", token);
    add_num(o, "loadSeconds", load_s);
    add_num(o, "spread", r->n_spread > 0 ? r->spread_sum / r->n_spread : 0);
    json_obj_set(o, "perf", perf_format(&st.perf));
    const char *text = json_to_text(o, JSON_COMPACT, NULL);
    if (text != NULL) puts(text);
    json_put(o);
    return text != NULL;
}

static enum err open_engine(struct run *r, const struct args *a, int threads, struct errbuf *eb) {
    enum dtype dtype = DTYPE_NONE;
    const enum dtype kv = dtype_of_name(a->kv != NULL ? a->kv : "bf16");
    if (a->dtype != NULL && strcmp(a->dtype, "auto") != 0 &&
        (dtype = dtype_of_name(a->dtype)) == DTYPE_NONE)
        return err_set(eb, ERR_BAD_CONFIG,
                       "--dtype must be auto, bf16, f32, int8 or int4, got %.32s", a->dtype);
    if (kv != DTYPE_BF16 && kv != DTYPE_F32 && kv != DTYPE_INT8)
        return err_set(eb, ERR_BAD_CONFIG, "--kv must be bf16, f32 or int8, got %.32s", a->kv);
    const int longest = r->tokens > r->context + STEPS ? r->tokens : r->context + STEPS;
    const struct engine_opts o = {.model_dir = a->model,
                                  .weight_dtype = dtype,
                                  .kv_dtype = kv,
                                  .kernels = a->kernels,
                                  .n_threads = threads,
                                  .block_tokens = BLOCK_TOKENS,
                                  .seq_tokens_max = longest + 2,
                                  .batch_max = r->slots,
                                  .prefill_batch_max = 1,
                                  .step_tokens_max = CHUNK_TOKENS + r->slots,
                                  .chunk_tokens = CHUNK_TOKENS,
                                  .queue_max = r->slots + 1,
                                  .weight_cache = "auto"};
    return engine_open(&r->e, &o, eb);
}

static enum err run(struct run *r, const struct args *a, int threads, struct errbuf *eb) {
    const uint64_t start_us = clock_us();
    enum err e = open_engine(r, a, threads, eb);
    if (e != ERR_OK) return e;
    const struct engine_events events = {.on_token = on_token, .on_failed = on_failed, .arg = r};
    const double load_s = (double)(clock_us() - start_us) * 1e-6;
    const int max = engine_seq_tokens_max(r->e);
    if (engine_model(r->e)->encoder || engine_model(r->e)->no_head)
        return err_set(eb, ERR_BAD_CONFIG, "%s generates nothing", a->model);
    if (r->tokens > max - 2) r->tokens = max - 2; /* as the model's context has it */
    if (r->context > max - STEPS - 2) r->context = max - STEPS - 2;
    if (r->context < 1) r->context = 1;
    r->ids = malloc((size_t)(max + 1) * sizeof(*r->ids));
    if (r->ids == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    engine_set_events(r->e, &events);
    if ((e = measure(r, eb)) != ERR_OK) return e;
    return print(r, threads, load_s) ? ERR_OK : err_set(eb, ERR_NO_MEMORY, "out of memory");
}

int inst_measure(int argc, char **argv) {
    struct args a = {0};
    struct run r = {.next_id = 1};
    struct errbuf eb = {0};
    int threads, seconds;
    log_init(LOG_WARN, STDERR_FILENO);
    if (!read_args(&a, argc, argv)) return usage();
    if (!read_number("--threads", a.threads, 1, POOL_THREADS_MAX, 0, &threads) ||
        !read_number("--tokens", a.tokens, 1, TOKENS_MAX, 512, &r.tokens) ||
        !read_number("--context", a.context, 1, TOKENS_MAX, 512, &r.context) ||
        !read_number("--slots", a.slots, 1, SLOTS_MAX, 32, &r.slots) ||
        !read_number("--seconds", a.seconds, 1, SECONDS_MAX, 6, &seconds))
        return 2;
    r.seconds = seconds;
    const enum err e = run(&r, &a, threads, &eb);
    if (e != ERR_OK) fprintf(stderr, "%s: %s\n", a.model, eb.text);
    free(r.ids);
    engine_close(&r.e);
    return e == ERR_OK ? 0 : e == ERR_BAD_CONFIG ? 2 : 1;
}
