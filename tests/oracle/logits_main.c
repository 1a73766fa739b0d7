/* logits: runs a model directory on a list of token ids and shows what the engine computes, for
 * tests/oracle/test_engine.py.
 *
 *   logits DIR --ids 1,2,3 [--greedy N] [--out FILE] [--weights f32|bf16] [--kv f32|bf16]
 * [--kernels NAME]
 *          [--threads N] [--chunk N] [--block N] [--adapter DIR] [--pool mean|cls|last] [--first N]
 *          [--tokens N] [--beside N]
 *   logits --sets: a line for each kernel set that runs here, slowest first: its name, and whose
 * bits it has with weights and KV in bf16 (kernels_arithmetic()).
 *
 * --tokens: how long the sequence may become, where RoPE asks for it. --beside: so many rows of
 * another sequence are in every pass.
 *
 * With --pool FILE gets the one row the ids become, f32 [hidden], and the head's scores, f32
 * [n_labels]; --first: so many of the ids are the first text of a pair. Two more sequences, the ids
 * backwards and the first half of them, share the passes.
 *
 * FILE gets the logits of every prompt position, f32 [n_ids][vocab], in this machine's byte order.
 * With --greedy the N most likely tokens follow one by one; their ids are printed on a line "greedy
 * 5 17 ...". A line "model ..." tells what was loaded. Exit code 1 with the error's text when the
 * model is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/forward.h"
#include "common/engine/kernels.h"
#include "common/engine/lora.h"

struct args {
    struct engine_opts o;
    const char *ids, *out, *adapter;
    enum pooling pooling;
    int chunk, block, greedy, first, n_tokens, beside;
};

static int parse(struct args *a, int argc, char **argv) {
    *a = (struct args){.o = {.weight_dtype = DTYPE_F32, .kv_dtype = DTYPE_F32, .n_threads = 1},
                       .chunk = 64,
                       .block = 16};
    if (argc < 2) return 0;
    a->o.model_dir = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (strcmp(k, "--ids") == 0)
            a->ids = v;
        else if (strcmp(k, "--greedy") == 0)
            a->greedy = atoi(v);
        else if (strcmp(k, "--out") == 0)
            a->out = v;
        else if (strcmp(k, "--weights") == 0)
            a->o.weight_dtype = dtype_of_name(v);
        else if (strcmp(k, "--kv") == 0)
            a->o.kv_dtype = dtype_of_name(v);
        else if (strcmp(k, "--kernels") == 0)
            a->o.kernels = v;
        else if (strcmp(k, "--threads") == 0)
            a->o.n_threads = atoi(v);
        else if (strcmp(k, "--chunk") == 0)
            a->chunk = atoi(v);
        else if (strcmp(k, "--block") == 0)
            a->block = atoi(v);
        else if (strcmp(k, "--adapter") == 0)
            a->adapter = v;
        else if (strcmp(k, "--first") == 0)
            a->first = atoi(v);
        else if (strcmp(k, "--beside") == 0)
            a->beside = atoi(v);
        else if (strcmp(k, "--tokens") == 0)
            a->n_tokens = atoi(v);
        else if (strcmp(k, "--pool") == 0)
            a->pooling = strcmp(v, "mean") == 0  ? POOL_MEAN
                         : strcmp(v, "cls") == 0 ? POOL_CLS
                                                 : POOL_LAST;
        else
            return 0;
    }
    a->o.lora_rank_max = a->adapter != NULL ? LORA_RANK_MAX : 0;
    return a->ids != NULL && argc % 2 == 0 && a->chunk > 0 && a->block > 0 && a->greedy >= 0 &&
           a->beside >= 0 && a->beside <= 4096;
}

static int parse_ids(const char *s, int vocab, int32_t *ids, int n_max) {
    int n = 0;
    while (*s != '\0' && n < n_max) {
        char *end = NULL;
        long v = strtol(s, &end, 10);
        if (end == s || v < 0 || v >= vocab) return -1;
        ids[n++] = (int32_t)v;
        s = *end == ',' ? end + 1 : end;
    }
    return *s == '\0' ? n : -1;
}

/* The most that this process has had in memory, pages of files with it. */
static long peak_kib(void) {
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && kib < 0 && fgets(line, sizeof(line), f) != NULL)
        (void)sscanf(line, "VmHWM: %ld kB", &kib);
    if (f != NULL) fclose(f);
    return kib;
}

static int32_t best(const float *logits, int n) {
    int32_t at = 0;
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > logits[at]) at = i;
    }
    return at;
}

/* One sequence, and a neighbour that must not matter: ids backwards, some of them in every pass. */
struct runner {
    struct forward *f;
    struct kv_cache *kv;
    const struct args *a;
    const struct lora *lora;
    const int32_t *ids;
    int n_ids, n_beside; /* of the neighbour's, so far */
    int32_t *table, *beside_table, *row_ids;
    int *rows;
    float *logits;
};

/* n rows of the sequence from position n_past on, with the logits of each. */
static void pass(struct runner *r, const int32_t *ids, int n_past, int n) {
    const struct args *a = r->a;
    struct fwd_seq seqs[2];
    int n_seqs = 0, first = r->n_ids - r->n_beside < a->beside ? r->n_ids - r->n_beside : a->beside;
    if (first > 0)
        seqs[n_seqs++] = (struct fwd_seq){
            .block_table = r->beside_table, .n_past = r->n_beside, .n_rows = first};
    for (int i = 0; i < first; i++) r->row_ids[i] = r->ids[r->n_ids - 1 - r->n_beside++];
    memcpy(r->row_ids + first, ids, (size_t)n * sizeof(*ids));
    for (int i = 0; i < n; i++) r->rows[i] = first + i;
    seqs[n_seqs++] = (struct fwd_seq){.block_table = r->table,
                                      .n_past = n_past,
                                      .first_row = first,
                                      .n_rows = n,
                                      .lora = r->lora,
                                      .n_tokens = a->n_tokens};
    forward_run(r->f, r->kv, r->row_ids, first + n, seqs, n_seqs, r->rows, n, r->logits, NULL,
                NULL);
}

/* Prefill in chunks, then one row at a time. */
static int run(struct runner *r) {
    const struct args *a = r->a;
    const int vocab = forward_model(r->f)->vocab_size, n_blocks = kv_cache_shape(r->kv)->n_blocks;
    const size_t n_rows = (size_t)(a->chunk + a->beside);
    r->table = calloc((size_t)n_blocks, sizeof(*r->table));
    r->row_ids = calloc(n_rows, sizeof(*r->row_ids));
    r->rows = calloc(n_rows, sizeof(*r->rows));
    r->logits = calloc((size_t)a->chunk * (size_t)vocab, sizeof(*r->logits));
    FILE *out = a->out != NULL ? fopen(a->out, "wb") : NULL;
    if (r->table == NULL || r->row_ids == NULL || r->rows == NULL || r->logits == NULL ||
        (a->out != NULL && out == NULL))
        return 1;
    /* Blocks in reverse, so that a pass that takes block numbers for positions fails. */
    for (int i = 0; i < n_blocks; i++) r->table[i] = n_blocks - 1 - i;
    r->beside_table = r->table + n_blocks / 2;
    int32_t next = 0;
    for (int at = 0, n = 0; at < r->n_ids; at += n) {
        n = r->n_ids - at < a->chunk ? r->n_ids - at : a->chunk;
        pass(r, r->ids + at, at, n);
        if (out != NULL) fwrite(r->logits, sizeof(float) * (size_t)vocab, (size_t)n, out);
        next = best(r->logits + (size_t)(n - 1) * (size_t)vocab, vocab);
    }
    if (a->greedy > 0) printf("greedy");
    for (int i = 0; i < a->greedy; i++) {
        printf(" %d", next);
        pass(r, &next, r->n_ids + i, 1);
        next = best(r->logits, vocab);
    }
    if (a->greedy > 0) printf("\n");
    free(r->table);
    free(r->row_ids);
    free(r->rows);
    free(r->logits);
    return out != NULL && fclose(out) != 0;
}

/* The ids, and beside them others, which must not matter. An encoder's come whole. */
static int run_pooled(struct forward *f, struct kv_cache *kv, const struct args *a,
                      const int32_t *ids, int n_ids) {
    enum { N = 3 };
    const struct model_info *m = forward_model(f);
    const int per = kv_cache_shape(kv)->n_blocks / N, n_all[N] = {n_ids, n_ids, (n_ids + 1) / 2};
    int32_t *tables = calloc((size_t)per * N, sizeof(*tables)),
            *rows = calloc((size_t)n_ids * N, sizeof(*rows));
    float *out = calloc(((size_t)m->hidden + (size_t)m->n_labels) * N, sizeof(*out));
    float *scores = out != NULL ? out + (size_t)m->hidden * N : NULL;
    FILE *file = a->out != NULL ? fopen(a->out, "wb") : NULL;
    if (tables == NULL || rows == NULL || out == NULL || file == NULL) return 1;
    for (int i = 0; i < per * N; i++) tables[i] = per * N - 1 - i;
    for (int at = 0, n = 0; at < n_ids; at += n) {
        struct fwd_seq s[N];
        int n_rows = 0, n_seqs = 0;
        n = m->encoder ? n_ids : n_ids - at < a->chunk ? n_ids - at : a->chunk;
        for (int i = N - 1; i >= 0; i--) { /* the one that counts comes last */
            const int take = n_all[i] - at < n ? n_all[i] - at : n;
            if (take <= 0) continue;
            s[n_seqs++] =
                (struct fwd_seq){.block_table = tables + i * per,
                                 .n_past = at,
                                 .first_row = n_rows,
                                 .n_rows = take,
                                 .pooled = out + (size_t)i * (size_t)m->hidden,
                                 .pooling = a->pooling,
                                 .n_ids = n_all[i],
                                 .n_first = i == 0 ? a->first : 1,
                                 .scores = m->n_labels > 0 ? scores + i * m->n_labels : NULL};
            for (int r = 0; r < take; r++)
                rows[n_rows++] = i == 1 ? ids[n_ids - 1 - at - r] : ids[at + r];
        }
        forward_run(f, kv, rows, n_rows, s, n_seqs, NULL, 0, NULL, NULL, NULL);
    }
    fwrite(out, sizeof(float), (size_t)m->hidden, file);
    fwrite(scores, sizeof(float), (size_t)m->n_labels, file);
    free(tables);
    free(rows);
    free(out);
    return fclose(file) != 0;
}

static int say_sets(void) {
    struct kernels k;
    for (int i = 0; kernels_at(&k, i); i++)
        printf("%s %s\n", k.name, kernels_arithmetic(&k, true, DTYPE_BF16));
    return 0;
}

int main(int argc, char **argv) {
    struct args a;
    struct errbuf eb = {0};
    struct forward *f = NULL;
    struct kv_cache *kv = NULL;
    struct lora *lora = NULL;
    if (argc == 2 && strcmp(argv[1], "--sets") == 0) return say_sets();
    if (!parse(&a, argc, argv) || a.chunk > 4096) {
        fprintf(stderr, "usage: logits DIR --ids 1,2,3 [--greedy N] [--out FILE] ...\n");
        return 2;
    }
    int rows = a.chunk + a.beside;
    for (const char *s = a.ids; a.pooling != POOL_NONE && s != NULL; s = strchr(s + 1, ',')) rows++;
    if (forward_open(&f, &a.o, a.pooling != POOL_NONE ? 3 * rows : rows, &eb) != ERR_OK) {
        fprintf(stderr, "%s: %s\n", err_name(eb.code), eb.text);
        return 1;
    }
    const struct model_info *m = forward_model(f);
    if (a.adapter != NULL && lora_open(&lora, a.adapter, m, LORA_RANK_MAX, &eb) != ERR_OK) {
        fprintf(stderr, "%s: %s\n", err_name(eb.code), eb.text);
        forward_close(&f);
        return 1;
    }
    printf("model family=%s layers=%d vocab=%d context=%d weights=%s kernels=%s params=%llu "
           "peak_kib=%ld eos=",
           m->family, m->n_layers, m->vocab_size, m->context_max, dtype_name(m->weight_dtype),
           m->kernels, (unsigned long long)m->n_params, peak_kib());
    for (int i = 0; i < m->n_eos; i++) printf("%s%d", i > 0 ? "," : "", m->eos_ids[i]);
    printf(" bos=%d hash=", m->bos_id);
    for (int i = 0; i < 32; i++) printf("%02x", m->hash[i]);
    printf(" adapter=");
    for (int i = 0; lora != NULL && i < LORA_HASH_BYTES; i++) printf("%02x", lora->hash[i]);
    printf("\n");
    int32_t *ids = calloc((size_t)m->context_max, sizeof(*ids));
    int n = ids != NULL ? parse_ids(a.ids, m->vocab_size, ids, m->context_max) : -1;
    int rc = 1;
    if (n <= 0 || n + a.greedy > m->context_max) {
        fprintf(stderr, "ids: 1 to %d ids of the vocabulary\n", m->context_max);
    } else {
        const int blocks = (n + a.greedy) / a.block + 1;
        struct kv_shape shape = {.n_layers = m->n_layers,
                                 .n_kv_heads = m->n_kv_heads,
                                 .head_dim = m->head_dim,
                                 .block_tokens = a.block,
                                 .n_blocks = blocks * (a.pooling != POOL_NONE ? 3
                                                       : a.beside > 0         ? 2
                                                                              : 1),
                                 .dtype = a.o.kv_dtype,
                                 .values_in_keys = m->values_in_keys};
        if (kv_cache_create(&kv, &shape, &eb) != ERR_OK)
            fprintf(stderr, "%s: %s\n", err_name(eb.code), eb.text);
        else if (a.pooling != POOL_NONE)
            rc = run_pooled(f, kv, &a, ids, n);
        else
            rc = run(
                &(struct runner){.f = f, .kv = kv, .a = &a, .lora = lora, .ids = ids, .n_ids = n});
    }
    free(ids);
    kv_cache_destroy(&kv);
    lora_unref(&lora);
    forward_close(&f);
    return rc;
}
