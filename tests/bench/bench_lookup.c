/* bench_lookup: decoding with and without guesses by prompt lookup, in one run, on a text that
 * repeats itself and on one that never does.
 *
 *   bench_lookup [--shape tinyllama-1.1b] [--layers 2] [--dtype bf16] [--threads N] [--rounds R]
 *
 * Random weights write no code, so a guide dictates the text; the model computes all the same, and
 * the guide tells nobody what comes next, so guesses go wrong where the text differs from what was
 * said before. `edit`: a program of 160 tokens is the prompt, the answer is the same program with
 * every 20th token another one. `novel`: no two tokens of prompt and answer come together twice,
 * and nothing can be gained: what is left is the price of looking. Ratios are medians over the
 * rounds, each taken within one round. */
#include <sys/stat.h>
#include "common/engine/engine.h"
#include "tests/bench/machine.h"
#include "tests/bench/random_model.h"

enum { PROMPT = 160, NEW = 80, EDIT_EVERY = 20, BATCH_MAX = 4, ROUNDS_MAX = 15, N_LOOKUPS = 3 };
static const int lookups[N_LOOKUPS] = {0, 3, 8};
static const int batches[] = {1, 4};

/* ---- the dictated text */
struct dictation {
    const int32_t *ids;
    int at, n;
};

static void *dictation_fork(const void *state) {
    struct dictation *d = malloc(sizeof(*d));
    if (d != NULL) *d = *(const struct dictation *)state;
    return d;
}
static bool dictation_mask(void *state, uint64_t *bits, int n_ids) {
    const struct dictation *d = state;
    memset(bits, 0, ((size_t)n_ids + 63) / 64 * sizeof(*bits));
    if (d->at >= d->n) return false;
    bits[d->ids[d->at] >> 6] |= UINT64_C(1) << (d->ids[d->at] & 63);
    return true;
}
static bool dictation_advance(void *state, int32_t id) {
    struct dictation *d = state;
    return d->at < d->n && d->ids[d->at++] == id;
}
static const struct token_guide_ops dictation_ops = {
    .fork = dictation_fork, .mask = dictation_mask, .advance = dictation_advance, .free = free};

/* ---- runs */
struct bench {
    struct engine *e;
    int32_t prompt[BATCH_MAX][PROMPT], answer[BATCH_MAX][NEW];
    int n_first, n_tokens;
    double first, last; /* when all had their first token; when all had ended */
    int batch;
};

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct bench *b = arg;
    require(ev->id == b->answer[id][ev->index], "a token is not the dictated one");
    b->n_tokens++;
    if (ev->index == 0 && ++b->n_first == b->batch) b->first = bench_now();
    b->last = bench_now();
}

static void texts_make(struct bench *b, bool novel, int vocab) {
    uint32_t r = 17;
    for (int s = 0; s < BATCH_MAX; s++) {
        for (int i = 0; i < PROMPT; i++) {
            r = r * 1664525u + 1013904223u;
            b->prompt[s][i] = novel ? (i * 7 + s) % vocab : 3 + (int32_t)((r >> 8) % 500);
        }
        for (int i = 0; i < NEW; i++) {
            int32_t same = b->prompt[s][i % PROMPT];
            b->answer[s][i] = novel                              ? (PROMPT * 7 + i * 11 + s) % vocab
                              : i % EDIT_EVERY == EDIT_EVERY - 1 ? same + 600
                                                                 : same;
        }
    }
}

/* Decoded tokens per second of all sequences together, the first ones aside. */
static double run(struct bench *b, int batch, int lookup) {
    struct sampling p = {.temperature = 1,
                         .top_p = 1,
                         .typical_p = 1,
                         .repetition_penalty = 1,
                         .ignore_eos = true,
                         .n_choices = 1,
                         .new_tokens_max = NEW,
                         .lookup_tokens = lookup};
    b->n_first = b->n_tokens = 0;
    b->batch = batch;
    for (int s = 0; s < batch; s++) {
        struct dictation d = {b->answer[s], 0, NEW};
        const struct seq_opts o = {.seq_id = (uint64_t)s,
                                   .kind = SEQ_WHOLE,
                                   .ids = b->prompt[s],
                                   .n_ids = PROMPT,
                                   .n_prompt = PROMPT,
                                   .sampling = &p,
                                   .priority = 5,
                                   .guide = {&dictation_ops, &d}};
        require(engine_seq_add(b->e, &o, NULL) == ERR_OK, "the engine refuses the prompt");
    }
    while (engine_step(b->e)) {}
    require(b->n_tokens == batch * NEW, "tokens are missing");
    return batch * (NEW - 1) / (b->last - b->first);
}

static void bench_text(struct bench *b, const char *name, bool novel, int rounds) {
    texts_make(b, novel, engine_model(b->e)->vocab_size);
    for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]); k++) {
        double rate[N_LOOKUPS][ROUNDS_MAX], gain[N_LOOKUPS][ROUNDS_MAX], right[N_LOOKUPS] = {0};
        for (int r = 0; r < rounds; r++) {
            fprintf(stderr, "bench_lookup: %s, batch %d, round %d of %d\n", name, batches[k], r + 1,
                    rounds);
            for (int j = 0; j < N_LOOKUPS; j++) { /* each is the first one in turn */
                const int i = (j + r) % N_LOOKUPS;
                struct engine_stats before, after;
                engine_stats(b->e, &before);
                rate[i][r] = run(b, batches[k], lookups[i]);
                engine_stats(b->e, &after);
                uint64_t n = after.draft_tokens - before.draft_tokens;
                if (n > 0)
                    right[i] = (double)(after.draft_accepted - before.draft_accepted) / (double)n;
            }
            for (int i = 0; i < N_LOOKUPS; i++) gain[i][r] = rate[i][r] / rate[0][r];
        }
        for (int i = 0; i < N_LOOKUPS; i++)
            printf("lookup_%s_%d_batch_%d %.1f tokens/s %.2f of without right %.2f\n", name,
                   lookups[i], batches[k], bench_median(rate[i], rounds),
                   bench_median(gain[i], rounds), right[i]);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static struct bench b;
    const char *shape = "tinyllama-1.1b", *dtype = "bf16";
    char dir[256];
    int layers = 2, threads = 1, rounds = 3;
    struct shape s = {0};
    struct errbuf eb;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--shape") == 0)
            shape = argv[i + 1];
        else if (strcmp(argv[i], "--layers") == 0)
            layers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--dtype") == 0)
            dtype = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = atoi(argv[i + 1]);
        else
            shape = "";
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(shape, shapes[i].name) == 0) s = shapes[i];
    if (s.name == NULL || argc % 2 == 0 || layers < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_lookup [--shape NAME] [--layers L] [--dtype T] "
                        "[--threads N] [--rounds R]\n");
        return 2;
    }
    if (layers < s.layers) s.layers = layers;
    fprintf(stderr, "bench_lookup: writes and loads the model\n");
    model_place(&s, NULL, dir, sizeof(dir));
    const struct engine_opts o = {.model_dir = dir,
                                  .weight_dtype = dtype_of_name(dtype),
                                  .kv_dtype = DTYPE_BF16,
                                  .n_threads = threads,
                                  .block_tokens = 16,
                                  .kv_bytes = 256u << 20,
                                  .seq_tokens_max = 1024,
                                  .batch_max = BATCH_MAX,
                                  .prefill_batch_max = BATCH_MAX,
                                  .step_tokens_max = 512,
                                  .chunk_tokens = 256,
                                  .queue_max = BATCH_MAX,
                                  .prefix_cache = true};
    enum err e = engine_open(&b.e, &o, &eb);
    model_remove(dir);
    if (e != ERR_OK) {
        fprintf(stderr, "%s\n", eb.text);
        return 1;
    }
    const struct engine_events ev = {.on_token = on_token, .arg = &b};
    engine_set_events(b.e, &ev);
    bench_text(&b, "edit", false, rounds);
    bench_text(&b, "novel", true, rounds);
    engine_close(&b.e);
    return 0;
}
