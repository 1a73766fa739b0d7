/* Goal: the last rows of a context of several chunks of attention have the same bits however they
 * were computed: in prompt passes of any length, one by one, some at a time as guesses are, on any
 * number of threads, beside other sequences; with and without windows, also where layers differ in
 * theirs. Method: a tiny random model; one long sequence goes once in large passes on one thread,
 * then in every other way; logits of its last rows are compared byte for byte. That its decodes are
 * cut into chunks is attention_test.c's to show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/attention.h"
#include "common/engine/forward.h"
#include "tests/unit/common/engine/tiny_llama.h"
#include "tests/unit/pace.h"

enum {
    ROWS_MAX = 96,
    BLOCK = 16,
    LAST = 12,                            /* rows that are compared */
    LEN = 2 * ATTENTION_CHUNK + LAST - 5, /* a chunk's bound lies within them */
    BLOCKS = (LEN + BLOCK - 1) / BLOCK,
    OTHERS = 3, /* short sequences that run beside the last rows */
};

static float logits[ROWS_MAX * VOCAB];

static int32_t token(int position) {
    return (position * 7 + position / 11) % VOCAB;
}

/* rows: of a pass until the last LAST, then last_rows a pass; beside: other sequences run along
 * with those. */
static void run(struct forward *f, enum dtype kv_dtype, int rows, int last_rows, bool beside,
                float *out) {
    const struct kv_shape shape = {LAYERS, KV_HEADS, HEAD_DIM, BLOCK, BLOCKS + OTHERS, kv_dtype, 0};
    struct kv_cache *kv = NULL;
    int32_t table[BLOCKS], other[OTHERS], ids[ROWS_MAX];
    assert_int_equal(kv_cache_create(&kv, &shape, NULL), ERR_OK);
    for (int i = 0; i < BLOCKS; i++) table[i] = BLOCKS - 1 - i;
    for (int i = 0; i < OTHERS; i++) other[i] = BLOCKS + i;
    for (int at = 0, n; at < LEN; at += n) {
        const bool last = at >= LEN - LAST;
        struct fwd_seq seqs[1 + OTHERS];
        int n_seqs = 0, n_rows = 0, logit_rows[ROWS_MAX];
        n = last ? last_rows : rows;
        if (!last && n > LEN - LAST - at) n = LEN - LAST - at;
        if (n > LEN - at) n = LEN - at;
        for (int i = 0; last && beside && i < OTHERS && at - (LEN - LAST) < BLOCK; i++) {
            ids[n_rows] = i;
            seqs[n_seqs++] = (struct fwd_seq){.block_table = &other[i],
                                              .n_past = at - (LEN - LAST),
                                              .first_row = n_rows++,
                                              .n_rows = 1};
        }
        seqs[n_seqs++] =
            (struct fwd_seq){.block_table = table, .n_past = at, .first_row = n_rows, .n_rows = n};
        for (int i = 0; i < n; i++) {
            ids[n_rows] = token(at + i);
            logit_rows[i] = n_rows++;
        }
        forward_run(f, kv, ids, n_rows, seqs, n_seqs, logit_rows, last ? n : 0, logits, NULL, NULL);
        if (last)
            memcpy(out + (size_t)(at - (LEN - LAST)) * VOCAB, logits,
                   (size_t)n * VOCAB * sizeof(float));
    }
    kv_cache_destroy(&kv);
}

static void check(const struct model_files *files, const char *kernels, enum dtype kv_dtype) {
    static const struct {
        int threads, rows, last_rows;
        bool beside;
    } ways[] = {{4, 57, 1, true},  {2, 96, 5, true},    {1, 31, 1, false}, {2, 96, 1, false},
                {4, 96, 3, false}, {3, 96, LAST, true}, {16, 96, 1, true}}; /* 2: a sample */
    const size_t n_ways = pace_rounds(sizeof(ways) / sizeof(ways[0]), 2);
    static float want[LAST * VOCAB], got[LAST * VOCAB];
    for (size_t w = 0; w <= n_ways; w++) {
        const struct engine_opts o = {.model_dir = files->dir,
                                      .weight_dtype = DTYPE_F32,
                                      .kv_dtype = kv_dtype,
                                      .kernels = kernels,
                                      .n_threads = w == 0 ? 1 : ways[w - 1].threads};
        struct forward *f = NULL;
        struct errbuf eb = {0};
        if (forward_open(&f, &o, ROWS_MAX, &eb) != ERR_OK) fail_msg("%s", eb.text);
        if (w == 0)
            run(f, kv_dtype, ROWS_MAX, LAST, false, want);
        else
            run(f, kv_dtype, ways[w - 1].rows, ways[w - 1].last_rows, ways[w - 1].beside, got);
        if (w > 0 && memcmp(want, got, sizeof(want)) != 0)
            fail_msg("%s, kv %s: way %zu", kernels, dtype_name(kv_dtype), w - 1);
        forward_close(&f);
    }
}

#define CONFIG(family, more)                                                                       \
    "{\"model_type\":\"" family "\",\"hidden_size\":48,\"intermediate_size\":80,"                  \
    "\"num_hidden_layers\":2,\"num_attention_heads\":6,\"head_dim\":8,\"num_key_value_heads\":2,"  \
    "\"vocab_size\":50,\"max_position_embeddings\":2048,\"hidden_act\":\"silu\"" more "}"

static void rows_do_not_see_how_they_came(void **state) {
    static const char *const configs[] = {
        CONFIG("llama", ""),
        CONFIG("mistral", ",\"sliding_window\":600"),
        CONFIG("qwen3", ",\"use_sliding_window\":true,\"sliding_window\":300,"
                        "\"layer_types\":[\"full_attention\",\"sliding_attention\"]"),
        CONFIG("qwen3", ",\"use_sliding_window\":true,\"sliding_window\":520,"
                        "\"layer_types\":[\"sliding_attention\",\"full_attention\"]"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        struct model_files files;
        write_model_with(&files, NULL, NULL, NULL, strstr(configs[i], "qwen3") != NULL);
        files_text(&files, "config.json", configs[i]);
        check(&files, "auto", i % 2 == 0 ? DTYPE_BF16 : DTYPE_F32);
        files_remove(&files);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_do_not_see_how_they_came)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
