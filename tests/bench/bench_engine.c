/* bench_engine: what the engine's arithmetic reaches, beside what this machine can do, in one run:
 * memory bandwidth moves by itself on shared hosts, so a figure without its probe says nothing.
 *
 *   bench_engine [--hidden H] [--intermediate I] [--kv-dim D] [--vocab V] [--rows M] [--threads N]
 * [--seconds S]
 *                [--kernels NAME] [--dtype TYPE] [--model DIR]
 *
 * --dtype: products with weights of that type only: f32, bf16, int8 (what Q8_0 of GGUF is kept as;
 * q8_0 is the same), int4 (q4_0), q4_k, q5_k, q6_k, mxfp4, iq4_nl or iq4_xs. With --model, of a
 * plain type, the model's too.
 *
 * Shapes default to TinyLlama-1.1B. Lines are `name value unit [ratio of]`. With --model the real
 * forward pass runs too, of a GGUF file in the types that it has. Bars: gemm_bf16 at least 0.5 of
 * openblas sgemm; decode_bf16 at least 0.5 of the read bandwidth. */
#include <unistd.h>
#include "common/engine/forward.h"
#include "common/engine/kernels_blocks.h"
#include "tests/bench/machine.h"

struct conf {
    int hidden, intermediate, kv_dim, vocab, rows, threads;
    double seconds;
    const char *kernels, *model;
    enum dtype only; /* DTYPE_NONE: all */
};

static const enum dtype dtypes[] = {DTYPE_F32,    DTYPE_BF16,  DTYPE_INT8, DTYPE_INT4,
                                    DTYPE_Q4_K,   DTYPE_Q5_K,  DTYPE_Q6_K, DTYPE_MXFP4,
                                    DTYPE_IQ4_NL, DTYPE_IQ4_XS};
enum { N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

/* A type of weights, or of a file that is kept as one. */
static bool read_dtype(enum dtype *out, const char *name) {
    if (strcmp(name, "q8_0") == 0) name = dtype_name(DTYPE_INT8);
    if (strcmp(name, "q4_0") == 0) name = dtype_name(DTYPE_INT4);
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(name, dtype_name(dtypes[i])) != 0) continue;
        *out = dtypes[i];
        return true;
    }
    fprintf(stderr, "bench_engine: --dtype must be q8_0, q4_0");
    for (int i = 0; i < N_DTYPES; i++) fprintf(stderr, ", %s", dtype_name(dtypes[i]));
    fprintf(stderr, "; got %s\n", name);
    return false;
}

static enum dtype model_dtype(const struct conf *c) {
    const size_t n = strlen(c->model);
    if (c->only != DTYPE_NONE && !dtype_is_blocks(c->only)) return c->only;
    return n > 5 && strcmp(c->model + n - 5, ".gguf") == 0 ? DTYPE_NONE : DTYPE_BF16;
}

static uint64_t rng_next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

/* ---- products at the model's shapes */

struct layer_shape {
    const char *name;
    int n, k;
};

/* Packed weights of `copies` layers, so that no cache holds what the next product reads. */
struct bench_weights {
    uint8_t *memory;
    size_t bytes; /* of one copy */
    size_t offset[8];
    int copies;
};

struct product {
    const struct kernels *kn;
    const uint8_t *panels;
    const void *xp;
    float *y;
    int m, n, k, item_panels;
    enum dtype dtype;
};

static void product_item(void *arg, int item, int thread) {
    const struct product *p = arg;
    int first = item * p->item_panels * PANEL_ROWS, n = p->n - first;
    (void)thread;
    if (n > p->item_panels * PANEL_ROWS) n = p->item_panels * PANEL_ROWS;
    p->kn->gemm(p->y + first, (size_t)p->n, p->xp,
                p->panels + (size_t)(first / PANEL_ROWS) * panel_bytes(p->k, p->dtype), p->m, p->k,
                n, p->dtype);
}

static void product_run(struct pool *pool, struct product *p) {
    int panels = (p->n + PANEL_ROWS - 1) / PANEL_ROWS, threads = pool_threads(pool);
    p->item_panels = p->kn->item_panels > 0 ? p->kn->item_panels : (panels + threads - 1) / threads;
    pool_run(pool, product_item, p, (panels + p->item_panels - 1) / p->item_panels);
}

/* Random numbers as a panel of blocks: what they are does not matter to the time, as long as no
 * scale makes denormals. */
static void pack_blocks(uint8_t *panel, int k, enum dtype dtype, uint64_t *seed) {
    for (int i = 0; i < PANEL_ROWS * (k / block_format(dtype).k); i++) {
        struct block_parts parts;
        for (size_t j = 0; j < sizeof(parts); j++) ((uint8_t *)&parts)[j] = (uint8_t)rng_next(seed);
        for (int j = 0; j < 256; j++) parts.q[j] &= (uint8_t)((16 << block_format(dtype).high) - 1);
        parts.d = dtype == DTYPE_MXFP4 ? 120 : 0x1400;
        parts.least = 0x1400;
        panel_put_block(panel, &parts, i % PANEL_ROWS, i / PANEL_ROWS, dtype);
    }
}

static void weights_make(struct bench_weights *w, const struct kernels *kn,
                         const struct layer_shape *s, int n_shapes, enum dtype dtype, int copies) {
    uint64_t seed = 88172645463325252u;
    w->bytes = 0;
    for (int i = 0; i < n_shapes; i++) {
        w->offset[i] = w->bytes;
        w->bytes += (size_t)((s[i].n + PANEL_ROWS - 1) / PANEL_ROWS) * panel_bytes(s[i].k, dtype);
    }
    w->copies = copies;
    w->memory = bench_memory(w->bytes * (size_t)copies);
    for (int i = 0; i < n_shapes; i++) {
        float *rows = bench_memory((size_t)s[i].k * PANEL_ROWS * sizeof(float));
        for (size_t j = 0; j < (size_t)s[i].k * PANEL_ROWS; j++)
            rows[j] = (float)(int32_t)rng_next(&seed) * 0x1p-31f;
        for (int p = 0; p < (s[i].n + PANEL_ROWS - 1) / PANEL_ROWS; p++) {
            uint8_t *panel = w->memory + w->offset[i] + (size_t)p * panel_bytes(s[i].k, dtype);
            if (!dtype_is_blocks(dtype))
                kn->panel_pack(panel, rows, PANEL_ROWS, s[i].k, dtype);
            else if (p == 0)
                pack_blocks(panel, s[i].k, dtype, &seed);
            else
                memcpy(panel, w->memory + w->offset[i], panel_bytes(s[i].k, dtype));
        }
        munmap(rows, (size_t)s[i].k * PANEL_ROWS * sizeof(float));
    }
    for (int c = 1; c < copies; c++) memcpy(w->memory + (size_t)c * w->bytes, w->memory, w->bytes);
}

/* Seconds of one pass over all shapes with m rows: the sum of each shape's best time within
 * `seconds`, since neighbours on the machine only ever add. The best times go into each[]. */
static double products_time(struct pool *pool, const struct kernels *kn,
                            const struct bench_weights *w, const struct layer_shape *s,
                            int n_shapes, int m, enum dtype dtype, double seconds, double *each) {
    enum { PASSES_MIN = 3 };
    double end = bench_now() + seconds, sum = 0;
    int widest_k = 0, widest_n = 0;
    uint64_t seed = 7;
    for (int i = 0; i < n_shapes; i++) {
        if (s[i].k > widest_k) widest_k = s[i].k;
        if (s[i].n > widest_n) widest_n = s[i].n;
        each[i] = 1e30;
    }
    size_t x_bytes = (size_t)m * (size_t)widest_k * sizeof(float),
           y_bytes = (size_t)m * (size_t)widest_n * sizeof(float);
    float *x = bench_memory(x_bytes), *y = bench_memory(y_bytes),
          *xp = bench_memory(x_pack_bytes(m, widest_k));
    for (size_t i = 0; i < x_bytes / sizeof(float); i++)
        x[i] = (float)(int32_t)rng_next(&seed) * 0x1p-31f;
    memset(y, 0, y_bytes);
    for (int n = 0; n < PASSES_MIN || bench_now() < end; n++) {
        for (int i = 0; i < n_shapes; i++) {
            struct product p = {.kn = kn,
                                .panels =
                                    w->memory + (size_t)(n % w->copies) * w->bytes + w->offset[i],
                                .xp = xp,
                                .y = y,
                                .m = m,
                                .n = s[i].n,
                                .k = s[i].k,
                                .dtype = dtype};
            double t = bench_now();
            kn->x_pack(xp, x, (size_t)s[i].k, 0, m, s[i].k, dtype);
            product_run(pool, &p);
            t = bench_now() - t;
            if (t < each[i]) each[i] = t;
        }
    }
    for (int i = 0; i < n_shapes; i++) sum += each[i];
    munmap(x, x_bytes);
    munmap(y, y_bytes);
    munmap(xp, x_pack_bytes(m, widest_k));
    return sum;
}

static double flops(const struct layer_shape *s, int n_shapes, int m) {
    double sum = 0;
    for (int i = 0; i < n_shapes; i++) sum += 2.0 * s[i].n * s[i].k * m;
    return sum;
}

/* Returns the rate of OpenBLAS over a layer's products, FLOP/s. */
static double bench_products(const struct conf *c, struct pool *pool, const struct kernels *own,
                             double bandwidth) {
    const struct layer_shape s[] = {
        {"q", c->hidden, c->hidden},          {"k", c->kv_dim, c->hidden},
        {"v", c->kv_dim, c->hidden},          {"o", c->hidden, c->hidden},
        {"gate", c->intermediate, c->hidden}, {"up", c->intermediate, c->hidden},
        {"down", c->hidden, c->intermediate},
    };
    enum { N = sizeof(s) / sizeof(s[0]) };
    struct kernels blas;
    struct bench_weights w;
    double each_blas[N], each[N];
    if (kernels_find(&blas, "openblas", NULL) != ERR_OK) exit(1);
    weights_make(&w, &blas, s, N, DTYPE_F32, 2);
    double blas_s = products_time(pool, &blas, &w, s, N, c->rows, DTYPE_F32, c->seconds, each_blas);
    munmap(w.memory, w.bytes * (size_t)w.copies);
    double work = flops(s, N, c->rows);
    printf("openblas_sgemm_layer %.1f GFLOP/s\n", work / blas_s * 1e-9);
    for (size_t t = 0; t < N_DTYPES; t++) {
        const enum dtype dtype = dtypes[t];
        if (c->only != DTYPE_NONE && c->only != dtype) continue;
        fprintf(stderr, "bench_engine: products with %s weights\n", dtype_name(dtype));
        weights_make(&w, own, s, N, dtype,
                     (int)((768u << 20) / ((size_t)c->hidden * (size_t)c->intermediate * 8) + 2));
        double own_s = products_time(pool, own, &w, s, N, c->rows, dtype, c->seconds, each);
        for (int i = 0; i < N; i++)
            printf("gemm_%s_%s_%dx%d %.1f GFLOP/s %.2f of openblas\n", dtype_name(dtype), s[i].name,
                   s[i].n, s[i].k, flops(s + i, 1, c->rows) / each[i] * 1e-9,
                   each_blas[i] / each[i]);
        printf("gemm_%s_layer %.1f GFLOP/s %.2f of openblas_sgemm\n", dtype_name(dtype),
               work / own_s * 1e-9, blas_s / own_s);
        static const int batches[] = {1, 4, 8, 16};
        for (int b = 0; b < 4; b++) {
            double one = products_time(pool, own, &w, s, N, batches[b], dtype, c->seconds, each);
            printf("decode_%s_batch_%d %.1f GB/s of weights %.2f of read_bandwidth_%d\n",
                   dtype_name(dtype), batches[b], (double)w.bytes / one * 1e-9,
                   (double)w.bytes / one / bandwidth, pool_threads(pool));
        }
        munmap(w.memory, w.bytes * (size_t)w.copies);
        fflush(stdout);
    }
    return work / blas_s;
}

/* ---- the forward pass of a real model directory */

static void bench_model(const struct conf *c, double bandwidth, double sgemm) {
    const struct engine_opts o = {.model_dir = c->model,
                                  .weight_dtype = model_dtype(c),
                                  .kv_dtype = DTYPE_BF16,
                                  .kernels = c->kernels,
                                  .n_threads = c->threads};
    enum { BLOCK = 16, NEW = 16 };
    struct errbuf eb;
    struct forward *f = NULL;
    struct kv_cache *kv = NULL;
    double t = bench_now();
    if (forward_open(&f, &o, c->rows, &eb) != ERR_OK) {
        fprintf(stderr, "%s\n", eb.text);
        exit(1);
    }
    const struct model_info *m = forward_model(f);
    printf("model_load %.2f s\n", bench_now() - t);
    int n_blocks = (c->rows + NEW) / BLOCK + 1, last = c->rows - 1, zero = 0;
    const struct kv_shape shape = {.n_layers = m->n_layers,
                                   .n_kv_heads = m->n_kv_heads,
                                   .head_dim = m->head_dim,
                                   .block_tokens = BLOCK,
                                   .n_blocks = n_blocks,
                                   .dtype = DTYPE_BF16,
                                   .values_in_keys = m->values_in_keys};
    int32_t *table = calloc((size_t)n_blocks, sizeof(*table)),
            *ids = calloc((size_t)c->rows, sizeof(*ids)), next = 1;
    float *logits = malloc(sizeof(float) * (size_t)m->vocab_size);
    if (table == NULL || ids == NULL || logits == NULL ||
        kv_cache_create(&kv, &shape, &eb) != ERR_OK)
        exit(1);
    for (int i = 0; i < n_blocks; i++) table[i] = i;
    for (int i = 0; i < c->rows; i++) ids[i] = i % m->vocab_size;
    struct fwd_seq s = {.block_table = table, .n_rows = c->rows};
    for (int i = 0; i < 2; i++) { /* the first one warms up */
        t = bench_now();
        forward_run(f, kv, ids, c->rows, &s, 1, &last, 1, logits, NULL, NULL);
        t = bench_now() - t;
    }
    double rate = c->rows / t;
    double best = 1e30;
    for (int i = 0; i < NEW; i++) {
        s = (struct fwd_seq){.block_table = table, .n_past = c->rows + i, .n_rows = 1};
        t = bench_now();
        forward_run(f, kv, &next, 1, &s, 1, &zero, 1, logits, NULL, NULL);
        t = bench_now() - t;
        if (t < best) best = t;
    }
    /* what one token reads: every layer's matrices, of experts the chosen, and the head; a mixture
     * is taken to have a head of its own */
    const double head = (double)m->vocab_size * m->hidden;
    const double layers =
        m->n_experts > 0
            ? (double)m->n_params_active - 2 * head
            : m->n_layers * (2.0 * m->hidden * m->head_dim * (m->n_heads + m->n_kv_heads) +
                             3.0 * m->hidden * m->intermediate);
    double bytes = (double)m->weight_bytes / (double)m->n_params * (layers + head);
    printf("model_decode_batch_1 %.1f tokens/s %.2f of read_bandwidth_%d\n", 1 / best,
           bytes / best / bandwidth, c->threads);
    printf("model_prefill_%d %.1f tokens/s %.1f GFLOP/s %.2f of openblas_sgemm\n", c->rows, rate,
           rate * layers * 2e-9, rate * layers * 2 / sgemm);
    free(table);
    free(ids);
    free(logits);
    kv_cache_destroy(&kv);
    forward_close(&f);
}

static bool parse(struct conf *c, int argc, char **argv) {
    bool known = true;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        const char *k = argv[i], *v = argv[i + 1];
        if (strcmp(k, "--hidden") == 0)
            c->hidden = atoi(v);
        else if (strcmp(k, "--intermediate") == 0)
            c->intermediate = atoi(v);
        else if (strcmp(k, "--kv-dim") == 0)
            c->kv_dim = atoi(v);
        else if (strcmp(k, "--rows") == 0)
            c->rows = atoi(v);
        else if (strcmp(k, "--threads") == 0)
            c->threads = atoi(v);
        else if (strcmp(k, "--seconds") == 0)
            c->seconds = atof(v);
        else if (strcmp(k, "--kernels") == 0)
            c->kernels = v;
        else if (strcmp(k, "--dtype") == 0)
            known = read_dtype(&c->only, v);
        else if (strcmp(k, "--model") == 0)
            c->model = v;
        else
            return false;
    }
    return known && c->hidden > 0 && c->intermediate > 0 && c->kv_dim > 0 && c->rows > 0 &&
           c->threads >= 0 && c->seconds >= 0;
}

int main(int argc, char **argv) {
    struct conf c = {
        .hidden = 2048, .intermediate = 5632, .kv_dim = 256, .rows = 512, .seconds = 2};
    struct pool *one = NULL, *all = NULL;
    struct kernels own;
    struct errbuf eb;
    kernels_openblas_environment();
    if (!parse(&c, argc, argv)) {
        fprintf(stderr, "usage: bench_engine [--hidden H] [--intermediate I] [--kv-dim D] [--rows "
                        "M] [--threads N] "
                        "[--seconds S] [--kernels NAME] [--dtype TYPE] [--model DIR]\n");
        return 2;
    }
    if (kernels_find(&own, c.kernels, &eb) != ERR_OK || pool_create(&one, 1, NULL, &eb) != ERR_OK ||
        pool_create(&all, c.threads, NULL, &eb) != ERR_OK) {
        fprintf(stderr, "%s\n", eb.text);
        return 1;
    }
    c.threads = pool_threads(all);
    uint8_t *data = bench_memory(PROBE_BYTES);
    memset(data, 1, PROBE_BYTES);
    printf("kernels %s, rows %d, threads %d\n", own.name, c.rows, c.threads);
    printf("read_bandwidth_1 %.1f GB/s\n", bench_read_rate(one, data, PROBE_BYTES, 20) * 1e-9);
    double bandwidth = bench_read_rate(all, data, PROBE_BYTES, 20);
    printf("read_bandwidth_%d %.1f GB/s\n", c.threads, bandwidth * 1e-9);
    fflush(stdout);
    double sgemm = bench_products(&c, all, &own, bandwidth);
    pool_destroy(&one);
    pool_destroy(&all);
    munmap(data, PROBE_BYTES);
    if (c.model != NULL) bench_model(&c, bandwidth, sgemm);
    return 0;
}
