/* bench_turns: the forward pass of one model, a piece whenever it is asked for, so that another
 * program can have its turn between two pieces (peer.py).
 *
 *   bench_turns MODEL [--threads N] [--weights TYPE] [--rows N] [--kernels NAME]
 *
 * MODEL is a folder or a GGUF file; --weights: what `weightDtype` may be. Once it is loaded a line
 * `ready` comes, then an answer to each line of stdin, in seconds (the time of machine.h):
 *
 *   prefill N           N tokens, up to --rows a pass, with the logits of the last one
 *   decode B CONTEXT N  N steps of B sequences, each behind CONTEXT tokens, with all their logits
 *   mixed R AT B CONTEXT  one pass of R tokens of a prompt behind AT others, with no logits, and of
 *                       a token of each of B sequences behind CONTEXT tokens, with their logits
 *   read BYTES          so many bytes from memory, the best of a few sweeps
 */
#include "common/engine/forward.h"
#include "tests/bench/machine.h"

enum { BLOCK = 16, SEQ_TOKENS = 2048, BATCH_MAX = 16, SWEEPS = 4 };
enum { SEQ_BLOCKS = SEQ_TOKENS / BLOCK };

struct turns {
    struct engine_opts o;
    int rows;
    struct forward *f;
    struct kv_cache *kv;
    struct pool *pool; /* of the probe */
    uint8_t *data;
    float *logits;
    int32_t *ids, tables[BATCH_MAX][SEQ_BLOCKS];
};

static bool parse(struct turns *t, int argc, char **argv) {
    t->o = (struct engine_opts){.kv_dtype = DTYPE_BF16, .n_threads = 1};
    t->rows = 512;
    if (argc < 2) return false;
    t->o.model_dir = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (strcmp(k, "--threads") == 0)
            t->o.n_threads = atoi(v);
        else if (strcmp(k, "--rows") == 0)
            t->rows = atoi(v);
        else if (strcmp(k, "--kernels") == 0)
            t->o.kernels = v;
        else if (strcmp(k, "--weights") == 0 && dtype_of_name(v) != DTYPE_NONE)
            t->o.weight_dtype = dtype_of_name(v);
        else
            return false;
    }
    return argc % 2 == 0 && t->o.n_threads >= 1 && t->o.n_threads <= POOL_THREADS_MAX &&
           t->rows >= BATCH_MAX && t->rows <= SEQ_TOKENS;
}

static bool open_all(struct turns *t, struct errbuf *eb) {
    if (forward_open(&t->f, &t->o, t->rows, eb) != ERR_OK) return false;
    const struct model_info *m = forward_model(t->f);
    const struct kv_shape shape = {.n_layers = m->n_layers,
                                   .n_kv_heads = m->n_kv_heads,
                                   .head_dim = m->head_dim,
                                   .block_tokens = BLOCK,
                                   .n_blocks = BATCH_MAX * SEQ_BLOCKS,
                                   .dtype = t->o.kv_dtype,
                                   .values_in_keys = m->values_in_keys};
    if (kv_cache_create(&t->kv, &shape, eb) != ERR_OK ||
        pool_create(&t->pool, t->o.n_threads, NULL, eb) != ERR_OK)
        return false;
    /* pages nobody wrote are one page of zeros, which every cache holds */
    for (int l = 0; l < shape.n_layers; l++)
        for (int i = 0; i < shape.n_blocks; i++)
            memset(kv_block_ptr(t->kv, l, i), 0, kv_block_bytes(&shape));
    for (int i = 0; i < BATCH_MAX * SEQ_BLOCKS; i++) t->tables[i / SEQ_BLOCKS][i % SEQ_BLOCKS] = i;
    t->ids = bench_memory(sizeof(*t->ids) * SEQ_TOKENS);
    for (int i = 0; i < SEQ_TOKENS; i++) t->ids[i] = (i * 37 + 11) % m->vocab_size;
    t->data = bench_memory(PROBE_BYTES);
    memset(t->data, 1, PROBE_BYTES);
    t->logits = bench_memory(sizeof(float) * (size_t)m->vocab_size * BATCH_MAX);
    return true;
}

static double prefill(struct turns *t, int n) {
    const double began = bench_now();
    for (int at = 0, m; at < n; at += m) {
        m = n - at < t->rows ? n - at : t->rows;
        const struct fwd_seq s = {.block_table = t->tables[0], .n_past = at, .n_rows = m};
        const int last = m - 1;
        forward_run(t->f, t->kv, t->ids + at, m, &s, 1, &last, at + m == n, t->logits, NULL, NULL);
    }
    return bench_now() - began;
}

static double decode(struct turns *t, int batch, int context, int steps) {
    struct fwd_seq s[BATCH_MAX];
    int rows[BATCH_MAX];
    const double began = bench_now();
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < batch; i++) {
            s[i] = (struct fwd_seq){
                .block_table = t->tables[i], .n_past = context + step, .first_row = i, .n_rows = 1};
            rows[i] = i;
        }
        forward_run(t->f, t->kv, t->ids + step, batch, s, batch, rows, batch, t->logits, NULL,
                    NULL);
    }
    return bench_now() - began;
}

/* The prompt has the last table: its tokens may be any that are there. */
static double mixed(struct turns *t, int rows, int at, int batch, int context) {
    struct fwd_seq s[BATCH_MAX];
    int logits[BATCH_MAX], n = 0;
    const double began = bench_now();
    for (; n < batch; n++) {
        s[n] = (struct fwd_seq){
            .block_table = t->tables[n], .n_past = context, .first_row = n, .n_rows = 1};
        logits[n] = n;
    }
    if (rows > 0)
        s[n++] = (struct fwd_seq){.block_table = t->tables[BATCH_MAX - 1],
                                  .n_past = at,
                                  .first_row = batch,
                                  .n_rows = rows};
    forward_run(t->f, t->kv, t->ids, batch + rows, s, n, logits, batch, t->logits, NULL, NULL);
    return bench_now() - began;
}

static bool answer(struct turns *t, const char *line) {
    int n, at, batch, context;
    double bytes, seconds;
    if (sscanf(line, "prefill %d", &n) == 1 && n >= 1 && n <= SEQ_TOKENS)
        seconds = prefill(t, n);
    else if (sscanf(line, "decode %d %d %d", &batch, &context, &n) == 3 && batch >= 1 &&
             batch <= BATCH_MAX && context >= 0 && n >= 1 && context <= SEQ_TOKENS - BATCH_MAX &&
             n <= SEQ_TOKENS - BATCH_MAX - context)
        seconds = decode(t, batch, context, n);
    else if (sscanf(line, "mixed %d %d %d %d", &n, &at, &batch, &context) == 4 && n >= 0 &&
             batch >= 0 && batch < BATCH_MAX && n + batch >= 1 && n + batch <= t->rows && at >= 0 &&
             at + n <= SEQ_TOKENS && context >= 0 && context < SEQ_TOKENS)
        seconds = mixed(t, n, at, batch, context);
    else if (sscanf(line, "read %lf", &bytes) == 1 && bytes > 0)
        seconds = bytes / bench_read_rate(t->pool, t->data, bytes, SWEEPS);
    else
        return false;
    printf("%.9f\n", seconds);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv) {
    static struct turns t;
    struct errbuf eb = {0};
    char line[128];
    if (!parse(&t, argc, argv)) {
        fprintf(stderr, "usage: bench_turns MODEL [--threads N] [--weights TYPE] [--rows N] "
                        "[--kernels NAME]\n");
        return 2;
    }
    if (!open_all(&t, &eb)) {
        fprintf(stderr, "%s\n", eb.text);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL)
        if (!answer(&t, line)) {
            fprintf(stderr, "bench_turns: not understood, or out of range: %s", line);
            return 1;
        }
    return 0;
}
