/* bench_forward: the real forward pass over random weights of a real shape, beside the ceilings of
 * the same minute: prefill over the register peak, decode over read bandwidth.
 *
 *   bench_forward --shape tinyllama-1.1b|qwen2.5-0.5b [--dtype bf16] [--threads N] [--layers L]
 *                 [--rounds R] [--seconds S] [--prompt N] [--decode 0|1] [--kernels NAME]
 *                 [--kv bf16|int8] [--models DIR]
 *
 * What is printed begins with the kernel set that ran, of which --kernels names one. The model is
 * written to a folder of its own under $TMPDIR and removed once it is loaded; with
 * --models it is kept under DIR for the next run of the same shape. --layers keeps so many of the
 * shape's layers: work per layer, and so the ratios of prefill, are the same. A round measures a
 * figure once, between two probes of its ceiling; ratios are medians over the rounds. A prompt
 * length has R rounds, or fewer once it took S seconds, yet three of them. Prefill counts the
 * operations of the layers' matrices (not of the output matrix) and of attention (4 x heads x head
 * size for every pair of positions that see each other). Decode counts the bytes of every matrix,
 * the output matrix too. With several threads a prefill of SCALING tokens runs in turns with one of
 * one thread, each beside its own peak: what the threads keep of its efficiency. Progress is told
 * on stderr. */
#include <unistd.h>
#include <sys/stat.h>
#include "common/engine/forward.h"
#include "common/engine/kernels.h"
#include "tests/bench/machine.h"
#include "tests/bench/random_model.h"

enum {
    BLOCK = 16,
    CHUNK = 512, /* rows of one pass of a prefill */
    CONTEXT_SHORT = 128,
    CONTEXT_LONG = 2048,
    BATCH_MAX = 16,
    BLOCKS_LONG = CONTEXT_LONG / BLOCK + 1,
    BLOCKS_SHORT = CONTEXT_SHORT / BLOCK + 1,
    SCALING = 512,
    ROUNDS_MIN = 3,
    ROUNDS_MAX = 15,
    /* the best of so many steps beside the best of as many sweeps: a probe tries each of its
       patterns once, then the best of them SWEEPS times */
    SWEEPS = 4,
    DECODE_STEPS = MACHINE_READ_PATTERNS + SWEEPS,
};

struct conf {
    struct shape shape;
    enum dtype dtype, kv_dtype;
    char label[96]; /* how the lines begin: kernel set, shape, weights, KV when it is not bf16 */
    int threads, rounds, prompt;
    double seconds;
    bool decode;
    const char *kernels, *models;
};

/* ---- what is counted */
static double layers_weights(const struct shape *s) {
    int kv = s->kv_heads * (s->hidden / s->heads);
    return (2.0 * s->hidden * s->hidden + 2.0 * kv * s->hidden +
            3.0 * s->intermediate * s->hidden) *
           s->layers;
}

/* The output matrix beside int4 layers is int8 (weights.h). */
static enum dtype head_dtype(enum dtype t) {
    return t == DTYPE_INT4 ? DTYPE_INT8 : t;
}

static double matrix_bytes(int n, int k, enum dtype t) {
    return (double)(n / PANEL_ROWS) * (double)panel_bytes(k, t);
}

/* Of all matrices, the output matrix too. */
static double weight_bytes(const struct shape *s, enum dtype t) {
    int kv = s->kv_heads * (s->hidden / s->heads);
    double layer = 2 * matrix_bytes(s->hidden, s->hidden, t) + 2 * matrix_bytes(kv, s->hidden, t) +
                   2 * matrix_bytes(s->intermediate, s->hidden, t) +
                   matrix_bytes(s->hidden, s->intermediate, t);
    return layer * s->layers + matrix_bytes(s->vocab, s->hidden, head_dtype(t));
}

static double prefill_ops(const struct shape *s, int n) {
    return 2 * layers_weights(s) * n + 4.0 * s->hidden * s->layers * ((double)n * (n + 1) / 2);
}

/* ---- runs */
struct bench {
    struct conf c;
    struct forward *f;
    struct kv_cache *kv;
    struct pool *pool;   /* of the probes */
    struct forward *one; /* the same with one thread, or NULL */
    struct pool *pool_one;
    uint8_t *data;
    float *logits;
    int32_t ids[CHUNK], tables[BATCH_MAX][BLOCKS_SHORT], table[BLOCKS_LONG];
};

static double prefill(struct bench *b, struct forward *f, int n) {
    double t = bench_now();
    for (int at = 0, m; at < n; at += m) {
        m = n - at < CHUNK ? n - at : CHUNK;
        const struct fwd_seq s = {.block_table = b->table, .n_past = at, .n_rows = m};
        const int last = m - 1;
        forward_run(f, b->kv, b->ids, m, &s, 1, &last, at + m == n, b->logits, NULL, NULL);
    }
    return bench_now() - t;
}

/* The best of a few steps, seconds. */
static double decode(struct bench *b, int batch, int context) {
    struct fwd_seq s[BATCH_MAX];
    int rows[BATCH_MAX];
    double best = 1e30;
    for (int i = 0; i < batch; i++) {
        s[i] = (struct fwd_seq){.block_table = context == CONTEXT_LONG ? b->table : b->tables[i],
                                .n_past = context - 1,
                                .first_row = i,
                                .n_rows = 1};
        rows[i] = i;
    }
    for (int i = 0; i < DECODE_STEPS; i++) {
        double t = bench_now();
        forward_run(b->f, b->kv, b->ids, batch, s, batch, rows, batch, b->logits, NULL, NULL);
        t = bench_now() - t;
        if (t < best) best = t;
    }
    return best;
}

static void progress(const struct bench *b, const char *what, int n) {
    fprintf(stderr, "bench_forward %s threads %d: %s", b->c.label, b->c.threads, what);
    if (n > 0) fprintf(stderr, " %d", n);
    fputc('\n', stderr);
}

static bool scales(const struct conf *c) {
    return c->threads > 1 && c->prompt >= SCALING;
}

static void name_lines(struct conf *c, const char *kernels) {
    const bool plain = c->kv_dtype == DTYPE_BF16;
    snprintf(c->label, sizeof(c->label), "%s_%s_%s%s%s", kernels, c->shape.name,
             dtype_name(c->dtype), plain ? "" : "_kv_", plain ? "" : dtype_name(c->kv_dtype));
}

static void open_all(struct bench *b) {
    const struct conf *c = &b->c;
    struct errbuf eb;
    char dir[256];
    progress(b, "its model", 0);
    model_place(&c->shape, c->models, dir, sizeof(dir));
    progress(b, "loads it", 0);
    struct engine_opts o = {.model_dir = dir,
                            .weight_dtype = c->dtype,
                            .kv_dtype = c->kv_dtype,
                            .kernels = c->kernels,
                            .n_threads = c->threads};
    double t = bench_now();
    enum err e = forward_open(&b->f, &o, CHUNK, &eb);
    t = bench_now() - t;
    if (e == ERR_OK && scales(c)) {
        o.n_threads = 1;
        e = forward_open(&b->one, &o, CHUNK, &eb);
    }
    if (c->models == NULL) model_remove(dir);
    if (e != ERR_OK) require(false, eb.text);
    name_lines(&b->c, forward_model(b->f)->kernels);
    printf("%s_load_threads_%d %.2f s\n", c->label, c->threads, t);
    const struct kv_shape shape = {.n_layers = c->shape.layers,
                                   .n_kv_heads = c->shape.kv_heads,
                                   .head_dim = c->shape.hidden / c->shape.heads,
                                   .block_tokens = BLOCK,
                                   .n_blocks = BLOCKS_LONG + BATCH_MAX * BLOCKS_SHORT,
                                   .dtype = c->kv_dtype};
    if (kv_cache_create(&b->kv, &shape, &eb) != ERR_OK ||
        pool_create(&b->pool, c->threads, NULL, &eb) != ERR_OK ||
        (b->one != NULL && pool_create(&b->pool_one, 1, NULL, &eb) != ERR_OK))
        require(false, eb.text);
    /* Pages nobody wrote are one page of zeros, which every cache holds. */
    for (int l = 0; l < shape.n_layers; l++)
        for (int i = 0; i < shape.n_blocks; i++)
            memset(kv_block_ptr(b->kv, l, i), 0, kv_block_bytes(&shape));
    for (int i = 0; i < BLOCKS_LONG; i++) b->table[i] = i;
    for (int i = 0; i < BATCH_MAX * BLOCKS_SHORT; i++)
        b->tables[i / BLOCKS_SHORT][i % BLOCKS_SHORT] = BLOCKS_LONG + i;
    for (int i = 0; i < CHUNK; i++) b->ids[i] = (i * 37) % c->shape.vocab;
    b->data = bench_memory(PROBE_BYTES);
    memset(b->data, 1, PROBE_BYTES);
    b->logits = bench_memory(sizeof(float) * (size_t)c->shape.vocab * BATCH_MAX);
}

static double median(const double *v, int n) {
    double copy[ROUNDS_MAX];
    memcpy(copy, v, (size_t)n * sizeof(*v));
    return bench_median(copy, n);
}

/* What products with such weights can reach with the instructions of the kernels that run. */
static enum machine_peak peak_of(const struct bench *b, enum dtype w) {
    const char *kernels = forward_model(b->f)->kernels;
    if (strcmp(kernels, "avx2") == 0)
        return w == DTYPE_INT8 ? PEAK_INT16_AVX2 : w == DTYPE_INT4 ? PEAK_INT8_AVX2 : PEAK_F32_AVX2;
    if (w == DTYPE_BF16 && strcmp(kernels, "avx512bf16") == 0) return PEAK_BF16;
    if (w == DTYPE_BF16 && strncmp(kernels, "avx512", 6) == 0) return PEAK_F32_AVX512;
    return machine_peak_of(w);
}

/* A prefill between two probes of peak p: its time, and the part of the peak it reaches. */
static double prefill_beside_peak(struct bench *b, struct forward *f, struct pool *pool, int n,
                                  enum machine_peak p, double *seconds) {
    double peak = bench_peak_rate(pool, p, 0.05), t = prefill(b, f, n),
           after = bench_peak_rate(pool, p, 0.05);
    if (seconds != NULL) *seconds = t;
    return prefill_ops(&b->c.shape, n) / t / (peak > after ? peak : after);
}

static void bench_scaling(struct bench *b) {
    const enum machine_peak p = peak_of(b, DTYPE_BF16);
    double kept[ROUNDS_MAX];
    prefill(b, b->one, 128);
    for (int r = 0; r < b->c.rounds; r++) {
        progress(b, "in turns with one thread, round", r + 1);
        const double one = prefill_beside_peak(b, b->one, b->pool_one, SCALING, p, NULL);
        kept[r] = prefill_beside_peak(b, b->f, b->pool, SCALING, p, NULL) / one;
    }
    printf("%s_prefill_%d_efficiency_threads_%d %.3f x\n", b->c.label, SCALING, b->c.threads,
           median(kept, b->c.rounds));
    fflush(stdout);
}

static void bench_prefill(struct bench *b) {
    static const int lengths[] = {128, 512, 2048};
    const enum machine_peak p = peak_of(b, DTYPE_BF16);
    /* Tiles and f32 products also stand beside the products of bf16 pairs, whatever those do here.
     */
    const bool pairs = p != PEAK_BF16 && machine_peak_here(PEAK_BF16);
    double rate[ROUNDS_MAX], ratio[ROUNDS_MAX], of_pairs[ROUNDS_MAX];
    prefill(b, b->f, 128); /* warms up */
    for (int i = 0; i < 3 && lengths[i] <= b->c.prompt; i++) {
        double began = bench_wall();
        int n = 0;
        while (n < b->c.rounds && (n < ROUNDS_MIN || bench_wall() - began < b->c.seconds)) {
            progress(b, "prefill", lengths[i]);
            double t;
            ratio[n] = prefill_beside_peak(b, b->f, b->pool, lengths[i], p, &t);
            if (pairs)
                of_pairs[n] = prefill_ops(&b->c.shape, lengths[i]) / t /
                              bench_peak_rate(b->pool, PEAK_BF16, 0.05);
            rate[n++] = lengths[i] / t;
        }
        printf("%s_prefill_%d_threads_%d %.1f tokens/s %.3f of peak_%s", b->c.label, lengths[i],
               b->c.threads, median(rate, n), median(ratio, n), machine_peak_name(p));
        if (pairs) printf(" %.3f of peak_%s", median(of_pairs, n), machine_peak_name(PEAK_BF16));
        printf(" rounds %d\n", n);
        fflush(stdout);
    }
}

/* Seconds a product with one matrix, or several, cannot be faster than: the weights must be read,
 * beside the products as far as a loop of machine.h tells, else apart from them. */
static double product_least(struct bench *b, double bytes, double ops, enum dtype w, int batch,
                            double read) {
    const enum machine_peak p = peak_of(b, w);
    const double busy = bench_busy_rate(b->pool, b->data, p, batch),
                 peak = busy > 0 || p == PEAKS ? 0 : bench_peak_rate(b->pool, p, 0.05);
    double t = bytes / (busy > 0 && busy < read ? busy : read);
    return peak > 0 && batch * ops / peak > t ? batch * ops / peak : t;
}

/* The same of a step: of its layers' matrices and of the output matrix. */
static double step_least(struct bench *b, int batch, double read) {
    const struct shape *s = &b->c.shape;
    const enum dtype layers = b->c.dtype, head = head_dtype(layers);
    const double head_bytes = matrix_bytes(s->vocab, s->hidden, head);
    return product_least(b, weight_bytes(s, layers) - head_bytes, 2 * layers_weights(s), layers,
                         batch, read) +
           product_least(b, head_bytes, 2.0 * s->vocab * s->hidden, head, batch, read);
}

static void bench_decode(struct bench *b) {
    static const int batches[] = {1, 4, 8, 16};
    const struct conf *c = &b->c;
    double rate[4][ROUNDS_MAX], ratio[4][ROUNDS_MAX], gain[4][ROUNDS_MAX], allowed[4][ROUNDS_MAX],
        deep[ROUNDS_MAX], deep_rate[ROUNDS_MAX];
    double weights = weight_bytes(&c->shape, c->dtype);
    double kv_bytes = 2.0 * c->shape.layers * c->shape.kv_heads *
                      (double)kv_row_bytes(c->shape.hidden / c->shape.heads, c->kv_dtype) *
                      (CONTEXT_LONG - CONTEXT_SHORT);
    for (int r = 0; r < c->rounds; r++) {
        double one = 0, read = 0;
        progress(b, "decode, round", r + 1);
        for (int i = 0; i < 4; i++) {
            double before = bench_read_rate(b->pool, b->data, weights, SWEEPS),
                   t = decode(b, batches[i], CONTEXT_SHORT),
                   after = bench_read_rate(b->pool, b->data, weights, SWEEPS);
            if (i == 0) one = t;
            read = before > after ? before : after;
            rate[i][r] = batches[i] / t;
            ratio[i][r] = weights / t / read;
            gain[i][r] = batches[i] * one / t;
            if (i > 0)
                allowed[i][r] = batches[i] * weights / read / step_least(b, batches[i], read);
        }
        double t = decode(b, 1, CONTEXT_LONG), again = decode(b, 1, CONTEXT_SHORT);
        deep[r] = (again + kv_bytes / read) / t;
        deep_rate[r] = 1 / t;
    }
    for (int i = 0; i < 4; i++)
        printf("%s_decode_batch_%d_threads_%d %.1f tokens/s %.3f of read_bandwidth\n", c->label,
               batches[i], c->threads, median(rate[i], c->rounds), median(ratio[i], c->rounds));
    for (int i = 1; i < 4; i++)
        printf("%s_decode_gain_%d_threads_%d %.2f x allowed %.2f\n", c->label, batches[i],
               c->threads, median(gain[i], c->rounds), median(allowed[i], c->rounds));
    printf("%s_decode_context_%d_threads_%d %.1f tokens/s %.3f of context_%d_and_kv_bytes\n",
           c->label, CONTEXT_LONG, c->threads, median(deep_rate, c->rounds),
           median(deep, c->rounds), CONTEXT_SHORT);
    fflush(stdout);
}

static bool parse(struct conf *c, int argc, char **argv) {
    const char *dtype = "bf16", *kv = "bf16";
    int layers = 0;
    *c = (struct conf){
        .threads = 1, .rounds = 5, .prompt = CONTEXT_LONG, .seconds = 60, .decode = true};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (strcmp(k, "--shape") == 0) {
            for (size_t j = 0; j < sizeof(shapes) / sizeof(shapes[0]); j++)
                if (strcmp(v, shapes[j].name) == 0) c->shape = shapes[j];
        } else if (strcmp(k, "--dtype") == 0)
            dtype = v;
        else if (strcmp(k, "--threads") == 0)
            c->threads = atoi(v);
        else if (strcmp(k, "--layers") == 0)
            layers = atoi(v);
        else if (strcmp(k, "--rounds") == 0)
            c->rounds = atoi(v);
        else if (strcmp(k, "--seconds") == 0)
            c->seconds = atof(v);
        else if (strcmp(k, "--kv") == 0)
            kv = v;
        else if (strcmp(k, "--models") == 0)
            c->models = v;
        else if (strcmp(k, "--prompt") == 0)
            c->prompt = atoi(v);
        else if (strcmp(k, "--decode") == 0)
            c->decode = atoi(v) != 0;
        else if (strcmp(k, "--kernels") == 0)
            c->kernels = v;
        else
            return false;
    }
    c->dtype = dtype_of_name(dtype);
    c->kv_dtype = dtype_of_name(kv);
    if (layers > 0 && layers < c->shape.layers) c->shape.layers = layers;
    if (c->shape.name != NULL && c->dtype != DTYPE_NONE && c->kv_dtype != DTYPE_NONE)
        name_lines(c, "auto");
    return argc % 2 == 1 && c->shape.name != NULL && c->dtype != DTYPE_NONE &&
           (c->kv_dtype == DTYPE_BF16 || c->kv_dtype == DTYPE_INT8) && c->threads >= 1 &&
           c->threads <= 1024 && c->rounds >= 1 && c->rounds <= ROUNDS_MAX;
}

int main(int argc, char **argv) {
    static struct bench b;
    if (!parse(&b.c, argc, argv)) {
        fprintf(stderr, "usage: bench_forward --shape tinyllama-1.1b|qwen2.5-0.5b [--dtype T] "
                        "[--threads N] [--layers L] [--rounds R] [--seconds S] [--prompt N] "
                        "[--decode 0|1] [--kernels NAME] [--kv bf16|int8] [--models DIR]\n");
        return 2;
    }
    open_all(&b);
    bench_prefill(&b);
    if (b.one != NULL) bench_scaling(&b);
    if (b.c.decode) bench_decode(&b);
    kv_cache_destroy(&b.kv);
    forward_close(&b.f);
    forward_close(&b.one);
    pool_destroy(&b.pool);
    pool_destroy(&b.pool_one);
    return 0;
}
