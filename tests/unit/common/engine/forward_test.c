/* Goal: a pass gives each row the same bits whatever else runs in it, K and V are in the pool when
 * a layer is announced, and a model directory with a wrong tensor is refused by name. Method: a
 * tiny random Llama written to a folder; three sequences run alone row by row, then together in
 * shuffled passes of every mixture of chunks and decodes; logits and KV blocks are compared byte
 * for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/forward.h"
#include "common/engine/sample.h"
#include "tests/unit/common/engine/tiny_llama.h"

enum { ROWS_MAX = 40, BLOCK = 4, N_SEQS = 3, LEN = 22, BLOCKS_EACH = (LEN + BLOCK - 1) / BLOCK };
enum { GROUPS = (VOCAB + SAMPLE_GROUP - 1) / SAMPLE_GROUP };

/* What three sequences give: logits of every row and, at the end, the pool. */
struct answer {
    float logits[N_SEQS][LEN][VOCAB];
    uint8_t *kv;
    size_t kv_bytes;
};

struct pass_check {
    struct kv_cache *kv;
    int n_layers_seen;
    size_t block_bytes;
    int32_t
        last_block; /* holds a row of this pass: must not be zeros when its layer is announced */
};

static void on_layer(void *arg, int layer) {
    struct pass_check *c = arg;
    const uint8_t *p = kv_block_ptr(c->kv, layer, c->last_block);
    bool any = false;
    for (size_t i = 0; i < c->block_bytes; i++) any = any || p[i] != 0;
    assert_true(any);
    assert_int_equal(layer, c->n_layers_seen);
    c->n_layers_seen++;
}

/* Runs the sequences with passes of random shape (seed 0: row by row, one sequence after the
 * other). */
static void run_all(struct forward *f, const struct engine_opts *o, uint32_t seed,
                    struct answer *out) {
    const struct kv_shape shape = {LAYERS,      KV_HEADS, HEAD_DIM, BLOCK, N_SEQS * BLOCKS_EACH,
                                   o->kv_dtype, 0};
    struct kv_cache *kv = NULL;
    int32_t tables[N_SEQS][BLOCKS_EACH], ids[ROWS_MAX];
    int past[N_SEQS] = {0}, logit_rows[ROWS_MAX], done = 0, passes = 0;
    static float logits[ROWS_MAX * VOCAB], maxima[ROWS_MAX * GROUPS];
    const bool told = seed % 2 != 0; /* which changes nothing else */
    forward_maxima(f, told ? maxima : NULL);
    assert_int_equal(kv_cache_create(&kv, &shape, NULL), ERR_OK);
    for (int i = 0; i < N_SEQS * BLOCKS_EACH; i++) {
        tables[i % N_SEQS][i / N_SEQS] = (i * 7) % (N_SEQS * BLOCKS_EACH);
        for (int l = 0; l < LAYERS; l++) memset(kv_block_ptr(kv, l, i), 0, kv_block_bytes(&shape));
    }
    while (done < N_SEQS * LEN) {
        struct fwd_seq seqs[N_SEQS];
        int n = 0, rows = 0, owner[ROWS_MAX], position[ROWS_MAX];
        struct pass_check check = {.kv = kv, .block_bytes = kv_block_bytes(&shape)};
        for (int i = 0; i < N_SEQS; i++) {
            int s = (i + passes) % N_SEQS, take = LEN - past[s];
            if (seed == 0) {
                take = n == 0 && take > 0 && (s == 0 || past[s - 1] == LEN) ? 1 : 0;
                if (s > 0 && past[s - 1] < LEN) take = 0;
            } else {
                seed = seed * 1664525u + 1013904223u;
                int wish = (int)(seed >> 24) % 13;
                if (take > wish) take = wish;
            }
            if (take == 0) continue;
            seqs[n++] = (struct fwd_seq){
                .block_table = tables[s], .n_past = past[s], .first_row = rows, .n_rows = take};
            for (int r = 0; r < take; r++, rows++) {
                ids[rows] = (s * 31 + (past[s] + r) * 7) % VOCAB;
                owner[rows] = s;
                position[rows] = past[s] + r;
                logit_rows[rows] = rows;
            }
            past[s] += take;
            done += take;
            check.last_block = tables[s][(past[s] - 1) / BLOCK];
        }
        passes++;
        if (n == 0) continue;
        forward_run(f, kv, ids, rows, seqs, n, logit_rows, rows, logits, on_layer, &check);
        assert_int_equal(check.n_layers_seen, LAYERS);
        for (int r = 0; r < rows && told; r++) {
            float want[GROUPS];
            sample_maxima(want, logits + (size_t)r * VOCAB, VOCAB);
            assert_memory_equal(maxima + (size_t)r * GROUPS, want, sizeof(want));
        }
        for (int r = 0; r < rows; r++)
            memcpy(out->logits[owner[r]][position[r]], logits + (size_t)r * VOCAB,
                   sizeof(out->logits[0][0]));
    }
    out->kv_bytes = kv_block_bytes(&shape) * LAYERS * N_SEQS * BLOCKS_EACH;
    out->kv = malloc(out->kv_bytes);
    assert_non_null(out->kv);
    for (int l = 0; l < LAYERS; l++) {
        for (int b = 0; b < N_SEQS * BLOCKS_EACH; b++)
            memcpy(out->kv + kv_block_bytes(&shape) * (size_t)(l * N_SEQS * BLOCKS_EACH + b),
                   kv_block_ptr(kv, l, b), kv_block_bytes(&shape));
    }
    kv_cache_destroy(&kv);
}

static void rows_do_not_see_the_batch(void **state) {
    static const char *const sets[] = {"ref", "auto"};
    struct model_files files;
    (void)state;
    write_model(&files, NULL, NULL);
    static const enum dtype weights[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT8, DTYPE_INT4};
    static const enum dtype kvs[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT8};
    for (int v = 0; v < 12; v++) {
        struct engine_opts o = {.model_dir = files.dir,
                                .weight_dtype = weights[v % 4],
                                .kv_dtype = kvs[v % 3],
                                .kernels = sets[v / 3 % 2],
                                .n_threads = 1};
        static struct answer base, got;
        struct forward *f = NULL;
        struct errbuf eb = {0};
        if (forward_open(&f, &o, ROWS_MAX, &eb) != ERR_OK) fail_msg("%s", eb.text);
        run_all(f, &o, 0, &base);
        forward_close(&f);
        for (int threads = 1; threads <= 4; threads++) {
            o.n_threads = threads;
            assert_int_equal(forward_open(&f, &o, ROWS_MAX, &eb), ERR_OK);
            for (uint32_t seed = 1; seed <= 4; seed++) {
                run_all(f, &o, seed, &got);
                assert_memory_equal(got.logits, base.logits, sizeof(base.logits));
                assert_int_equal(got.kv_bytes, base.kv_bytes);
                assert_memory_equal(got.kv, base.kv, base.kv_bytes);
                free(got.kv);
            }
            forward_close(&f);
        }
        free(base.kv);
    }
    files_remove(&files);
}

static void count_progress(void *arg, const char *what, uint64_t done, uint64_t total) {
    uint64_t *last = arg;
    assert_string_equal(what, "weights");
    assert_true(done > *last && done <= total);
    *last = done;
}

static void the_model_is_described(void **state) {
    struct model_files files;
    uint64_t loaded = 0;
    struct errbuf eb = {0};
    struct forward *f = NULL;
    (void)state;
    write_model(&files, NULL, NULL);
    const struct engine_opts o = {.model_dir = files.dir,
                                  .weight_dtype = DTYPE_BF16,
                                  .kv_dtype = DTYPE_F32,
                                  .n_threads = 1,
                                  .progress = count_progress,
                                  .progress_arg = &loaded};
    assert_int_equal(forward_open(&f, &o, 1, &eb), ERR_OK);
    const struct model_info *m = forward_model(f);
    uint64_t n = 2 * VOCAB * HIDDEN + HIDDEN +
                 LAYERS * (2 * HIDDEN + 2 * HIDDEN * HEADS * HEAD_DIM +
                           2 * HIDDEN * KV_HEADS * HEAD_DIM + 3 * HIDDEN * INTER);
    assert_int_equal(m->n_params, n);
    assert_int_equal(loaded, n * 4);
    assert_string_equal(m->family, "llama");
    assert_int_equal(m->context_max, CONTEXT);
    assert_string_equal(m->file_type, "F32");
    assert_int_equal(m->weight_dtype, DTYPE_BF16);
    assert_true(m->weight_bytes >= n * 2 && m->weight_bytes < n * 3);
    assert_int_equal(m->n_eos, 0);
    forward_close(&f);
    files_remove(&files);
}

static void expect(struct model_files files, struct engine_opts o, enum err want,
                   const char *says) {
    struct errbuf eb = {0};
    struct forward *f = NULL;
    o.model_dir = files.dir;
    enum err e = forward_open(&f, &o, 8, &eb);
    files_remove(&files);
    assert_null(f);
    if (e != want || strstr(eb.text, says) == NULL)
        fail_msg("%s \"%s\", not \"%s\"", err_name(e), eb.text, says);
}

static void refused(const char *skip, const char *wrong, struct engine_opts o, enum err want,
                    const char *says) {
    struct model_files files;
    write_model(&files, skip, wrong);
    expect(files, o, want, says);
}

/* A checkpoint with more than its family computes with is another model; some tensors that
 * frameworks leave in are none. */
static void tensors_too_many_are_refused(void **state) {
    const struct engine_opts o = {.weight_dtype = DTYPE_F32, .kv_dtype = DTYPE_F32, .n_threads = 1};
    struct model_files files;
    (void)state;
    write_model_with(&files, NULL, NULL, "model.layers.0.mlp.experts.0", false);
    expect(files, o, ERR_BAD_FILE,
           "model.safetensors: tensor model.layers.0.mlp.experts.0.weight is not used by the "
           "family llama");
    write_model_with(&files, NULL, NULL, NULL, true);
    expect(files, o, ERR_BAD_FILE, "_norm.weight is not used");
}

static void wrong_models_and_options_are_refused(void **state) {
    struct engine_opts o = {.weight_dtype = DTYPE_F32, .kv_dtype = DTYPE_F32, .n_threads = 1};
    (void)state;
    refused("model.layers.1.mlp.up_proj", NULL, o, ERR_BAD_FILE,
            "tensor model.layers.1.mlp.up_proj.weight, which config.json asks for, is missing");
    refused(NULL, "model.layers.0.self_attn.k_proj", o, ERR_BAD_FILE,
            "model.safetensors: tensor model.layers.0.self_attn.k_proj.weight must have shape [16, "
            "48] by config.json, got [15, 48]");
    refused(NULL, "model.layers.1.input_layernorm", o, ERR_BAD_FILE,
            "must have shape [48] by config.json, got [47]");
    o.kv_dtype = DTYPE_F16;
    refused(NULL, NULL, o, ERR_BAD_CONFIG, "kv_dtype must be f32, bf16 or int8, got f16");
    o.kv_dtype = DTYPE_BF16;
    o.weight_dtype = DTYPE_F16;
    refused(NULL, NULL, o, ERR_BAD_CONFIG, "weight_dtype must be f32, bf16, int8 or int4, got f16");
    o.weight_dtype = DTYPE_BF16;
    o.kernels = "openblas";
    refused(NULL, NULL, o, ERR_BAD_CONFIG,
            "weight_dtype must be f32 with openblas kernels, got bf16");
    o.kernels = "mmx";
    refused(NULL, NULL, o, ERR_BAD_CONFIG, "kernels: \"mmx\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_see_the_batch),
        cmocka_unit_test(the_model_is_described),
        cmocka_unit_test(tensors_too_many_are_refused),
        cmocka_unit_test(wrong_models_and_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
