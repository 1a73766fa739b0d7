/* Goal: rows with different adapters and without one run in one pass and get the bits they get
 * alone; an adapter that does not fit its config or the base model, or asks for what we do not
 * compute, is refused with its reason. Method: adapters as bytes for the tiny random Llama; four
 * sequences row by row, then together in passes of every mixture; one wrong thing at a time in
 * config and file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/forward.h"
#include "tests/unit/common/engine/lora_bytes.h"

enum { ROWS_MAX = 24, BLOCK = 4, N_SEQS = 5, LEN = 17, BLOCKS_EACH = (LEN + BLOCK - 1) / BLOCK };

/* ---- mixtures */

struct answer {
    float logits[N_SEQS][LEN][VOCAB];
};

/* All sequences have the same ids, so only the adapter tells them apart. seed 0: one row a pass. */
static void run_all(struct forward *f, const struct engine_opts *o, struct lora *const *adapters,
                    uint32_t seed, struct answer *out) {
    const struct kv_shape shape = {LAYERS,      KV_HEADS, HEAD_DIM, BLOCK, N_SEQS * BLOCKS_EACH,
                                   o->kv_dtype, 0};
    struct kv_cache *kv = NULL;
    int32_t tables[N_SEQS][BLOCKS_EACH], ids[ROWS_MAX];
    int past[N_SEQS] = {0}, logit_rows[ROWS_MAX], done = 0, passes = 0;
    static float logits[ROWS_MAX * VOCAB];
    assert_int_equal(kv_cache_create(&kv, &shape, NULL), ERR_OK);
    for (int i = 0; i < N_SEQS * BLOCKS_EACH; i++)
        tables[i % N_SEQS][i / N_SEQS] = (i * 7) % (N_SEQS * BLOCKS_EACH);
    for (; done < N_SEQS * LEN; passes++) {
        struct fwd_seq seqs[N_SEQS];
        int n = 0, rows = 0, owner[ROWS_MAX], position[ROWS_MAX];
        for (int i = 0; i < N_SEQS; i++) {
            int s = (i + passes) % N_SEQS, take = LEN - past[s];
            seed = seed == 0 ? 0 : seed * 1664525u + 1013904223u;
            int wish = seed == 0 ? (n == 0 ? 1 : 0) : (int)(seed >> 24) % 8;
            if (take > wish) take = wish;
            if (take > ROWS_MAX - rows) take = ROWS_MAX - rows;
            if (take == 0) continue;
            seqs[n++] = (struct fwd_seq){.block_table = tables[s],
                                         .n_past = past[s],
                                         .first_row = rows,
                                         .n_rows = take,
                                         .lora = adapters[s]};
            for (int r = 0; r < take; r++, rows++) {
                ids[rows] = (past[s] + r) * 7 % VOCAB;
                owner[rows] = s;
                position[rows] = past[s] + r;
                logit_rows[rows] = rows;
            }
            past[s] += take;
            done += take;
        }
        if (n == 0) continue;
        forward_run(f, kv, ids, rows, seqs, n, logit_rows, rows, logits, NULL, NULL);
        for (int r = 0; r < rows; r++)
            memcpy(out->logits[owner[r]][position[r]], logits + (size_t)r * VOCAB,
                   sizeof(out->logits[0][0]));
    }
    kv_cache_destroy(&kv);
}

static void open_model(struct forward **f, const struct engine_opts *o) {
    struct errbuf eb = {0};
    if (forward_open(f, o, ROWS_MAX, &eb) != ERR_OK) fail_msg("%s", eb.text);
}

static void rows_do_not_see_other_adapters(void **state) {
    static const struct lora_spec specs[] = {
        {.rank = 3, .seed = 1},
        {.rank = LORA_RANK_MAX, .seed = 2, .modules = 1u << LORA_Q | 1u << LORA_DOWN},
        {.rank = 1, .seed = 3, .modules = 1u << LORA_V | 1u << LORA_GATE},
    };
    static const char *const sets[] = {"ref", "auto"};
    struct model_files files;
    (void)state;
    write_model(&files, NULL, NULL);
    static const enum dtype kvs[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT8, DTYPE_INT8};
    for (int v = 0; v < 4; v++) {
        struct engine_opts o = {.model_dir = files.dir,
                                .weight_dtype = v % 2 == 0 ? DTYPE_F32 : DTYPE_BF16,
                                .kv_dtype = kvs[v],
                                .kernels = sets[v / 2],
                                .n_threads = 1,
                                .lora_rank_max = LORA_RANK_MAX};
        static struct answer alone, plain, got;
        struct lora *none[N_SEQS] = {NULL}, *adapters[N_SEQS] = {NULL};
        struct forward *f = NULL;
        open_model(&f, &o);
        for (int i = 0; i < 3; i++) adapters[i] = lora_of(&specs[i], forward_model(f));
        adapters[4] = lora_ref(adapters[0]); /* and 3 has none */
        run_all(f, &o, adapters, 0, &alone);
        run_all(f, &o, none, 0, &plain);
        assert_memory_equal(alone.logits[3], plain.logits[3], sizeof(plain.logits[3]));
        assert_memory_equal(alone.logits[4], alone.logits[0], sizeof(plain.logits[0]));
        for (int i = 0; i < 3; i++)
            for (int j = i + 1; j < 4; j++)
                assert_memory_not_equal(alone.logits[i], alone.logits[j], sizeof(plain.logits[0]));
        forward_close(&f);
        for (o.n_threads = 1; o.n_threads <= 3; o.n_threads++) {
            open_model(&f, &o);
            for (uint32_t seed = 1; seed <= 6; seed++) {
                run_all(f, &o, adapters, seed, &got);
                assert_memory_equal(&got, &alone, sizeof(got));
            }
            forward_close(&f);
        }
        /* A model opened without room for adapters gives the base's bits too. */
        o.lora_rank_max = 0;
        o.n_threads = 2;
        open_model(&f, &o);
        run_all(f, &o, none, 5, &got);
        assert_memory_equal(&got, &plain, sizeof(got));
        forward_close(&f);
        for (int i = 0; i < N_SEQS; i++) lora_unref(&adapters[i]);
    }
    files_remove(&files);
}

/* ---- refusals */

static const struct model_info base = {.n_layers = LAYERS,
                                       .n_heads = HEADS,
                                       .n_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .hidden = HIDDEN,
                                       .intermediate = INTER,
                                       .vocab_size = VOCAB,
                                       .kernels = "ref"};

static void refused(struct lora_spec s, int rank_max, enum err want, const char *says) {
    struct lora_bytes b;
    struct lora *l = NULL;
    struct errbuf eb = {0};
    if (s.rank == 0) s.rank = 2;
    lora_bytes_make(&b, &s);
    enum err e = lora_bytes_open(&l, &b, &base, rank_max, &eb);
    free(b.file);
    assert_null(l);
    if (e != want || strstr(eb.text, says) == NULL)
        fail_msg("%s \"%s\", not \"%s\"", err_name(e), eb.text, says);
}

static void configs_are_checked(void **state) {
#define GOOD(more)                                                                                 \
    "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q_proj\"]" more "}"
#define TARGETS(t) "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":" t "}"
    static const struct {
        const char *config, *says;
    } cases[] = {
        {"", "adapter_config.json: "},
        {"[]", "must be an object"},
        {"{}", "peft_type must be \"LORA\", got null"},
        {"{\"peft_type\":\"IA3\"}", "peft_type must be \"LORA\", got \"IA3\""},
        {GOOD(",\"bias\":\"all\""), "bias must be \"none\", got \"all\""},
        {GOOD(",\"use_dora\":true"), "use_dora must be absent, null, false or empty"},
        {GOOD(",\"fan_in_fan_out\":true"), "fan_in_fan_out must be"},
        {GOOD(",\"modules_to_save\":[\"lm_head\"]"), "modules_to_save must be"},
        {GOOD(",\"layer_replication\":[[0,1]]"), "layer_replication must be"},
        {GOOD(",\"trainable_token_indices\":[1]"), "trainable_token_indices must be"},
        {GOOD(",\"init_lora_weights\":\"pissa_niter_4\""), "got \"pissa_niter_4\""},
        {GOOD(",\"init_lora_weights\":\"loftq\""), "init_lora_weights must be"},
        {GOOD(",\"r\":0"), "r must be an integer from 1 to 65536, got 0"},
        {GOOD(",\"r\":65537"), "r must be an integer from 1 to 65536, got 65537"},
        {GOOD(",\"r\":2.5"), "r must be an integer"},
        {GOOD(",\"lora_alpha\":\"4\""), "lora_alpha must be a number"},
        {GOOD(",\"lora_alpha\":1000001"), "lora_alpha must be a number from -1000000 to 1000000"},
        {GOOD(",\"use_rslora\":1"), "use_rslora must be a boolean, got 1"},
        {GOOD(",\"rank_pattern\":{\"q.*\":4}"), "rank_pattern must be an object of plain module"},
        {GOOD(",\"rank_pattern\":{\"q_proj\":0}"), "rank_pattern must be"},
        {GOOD(",\"rank_pattern\":[1]"), "rank_pattern must be"},
        {GOOD(",\"alpha_pattern\":{\".q_proj\":1}"), "alpha_pattern must be"},
        {GOOD(",\"alpha_pattern\":{\"q_proj\":\"x\"}"), "alpha_pattern must be"},
        {TARGETS("null"), "target_modules must be a list of q_proj"},
        {TARGETS("[]"), "target_modules must be"},
        {TARGETS("[\"lm_head\"]"), "got \"lm_head\""},
        {TARGETS("[\"proj\"]"), "got \"proj\""},
        {TARGETS("[\"q_proj\",7]"), "got 7"},
        {TARGETS("\".*q_proj\""), "got \".*q_proj\""},
        {TARGETS("[\"mlp.q_proj\"]"), "got \"mlp.q_proj\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refused((struct lora_spec){.modules = 1u << LORA_Q, .config = cases[i].config},
                LORA_RANK_MAX, ERR_BAD_FILE, cases[i].says);
    static const char *const good[] = {
        GOOD(""),
        GOOD(",\"bias\":\"none\",\"use_dora\":false,\"modules_to_save\":null,\"rank_pattern\":{}"),
        GOOD(",\"init_lora_weights\":\"gaussian\",\"loftq_config\":{},\"task_type\":\"CAUSAL_LM\""),
        GOOD(",\"lora_alpha\":-1000000"),
        GOOD(",\"r\":7,\"rank_pattern\":{\"self_attn.q_proj\":2}"),
        TARGETS("\"q_proj\""),
        TARGETS("[\"self_attn.q_proj\"]"),
        TARGETS("[\"model.layers.0.self_attn.q_proj\",\"model.layers.1.self_attn.q_proj\"]"),
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct lora *l = lora_of(
            &(struct lora_spec){.rank = 2, .modules = 1u << LORA_Q, .config = good[i]}, &base);
        assert_int_equal(l->rank, 2);
        lora_unref(&l);
    }
    struct lora *l =
        lora_of(&(struct lora_spec){.rank = 2, .config = TARGETS("\"all-linear\"")}, &base);
    assert_int_equal(lora_pair(l, 1, LORA_DOWN)->rank, 2);
    lora_unref(&l);
}

static void scales_and_ranks_follow_the_patterns(void **state) {
    struct lora_conf c;
    static const char text[] =
        "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"use_rslora\":true,\"target_modules\":"
        "[\"q_proj\",\"up_proj\"],\"rank_pattern\":{\"layers.1.mlp.up_proj\":16,\"up_proj\":9},"
        "\"alpha_pattern\":{\"q_proj\":2}}";
    (void)state;
    assert_int_equal(lora_conf_parse(&c, text, strlen(text), NULL), ERR_OK);
    assert_int_equal(lora_conf_rank(&c, 0, LORA_Q), 4);
    assert_int_equal(lora_conf_rank(&c, 0, LORA_UP), 9);
    assert_int_equal(lora_conf_rank(&c, 1, LORA_UP), 16);
    assert_int_equal(lora_conf_rank(&c, 11, LORA_UP), 9); /* layers.1 is not the end of layers.11 */
    assert_true(lora_conf_scale(&c, 0, LORA_Q) == 1.0f);
    assert_true(lora_conf_scale(&c, 1, LORA_UP) == 2.0f);
    assert_int_equal(c.modules, 1u << LORA_Q | 1u << LORA_UP);
    lora_conf_free(&c);
}

static void tensors_are_checked(void **state) {
    char a[96], b[96];
    (void)state;
    lora_half_name(a, 1, LORA_UP, 0);
    lora_half_name(b, 0, LORA_K, 1);
    refused((struct lora_spec){.skip = a}, LORA_RANK_MAX, ERR_BAD_FILE,
            "tensor base_model.model.model.layers.1.mlp.up_proj.lora_A.weight is missing");
    refused((struct lora_spec){.skip = b}, LORA_RANK_MAX, ERR_BAD_FILE,
            "layers.0.self_attn.k_proj.lora_B.weight is missing");
    refused((struct lora_spec){.wide = b}, LORA_RANK_MAX, ERR_BAD_FILE,
            "k_proj.lora_B.weight must have shape [16, 2] by adapter_config.json and the base "
            "model, got [17, 2]");
    refused((struct lora_spec){.wide = a}, LORA_RANK_MAX, ERR_BAD_FILE,
            "must have shape [2, 48] by adapter_config.json and the base model, got [3, 48]");
    static const char *const strangers[] = {
        "base_model.model.lm_head.lora_A.weight",
        "base_model.model.model.layers.2.mlp.up_proj.lora_A.weight",
        "base_model.model.model.layers.01.mlp.up_proj.lora_A.weight",
        "base_model.model.model.layers.1.mlp.up_proj.lora_C.weight",
        "base_model.model.model.layers.1.mlp.up_proj.lora_magnitude_vector",
        "base_model.model.model.layers.1.self_attn.up_proj.lora_A.weight",
        "base_model.model.model.layers.1..lora_A.weight",
        "base_model.model.model.layers.99999999999.mlp.up_proj.lora_A.weight",
    };
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
        refused((struct lora_spec){.twin = a, .twin_name = strangers[i]}, LORA_RANK_MAX,
                ERR_BAD_FILE, "is no adapter of a linear layer of this model (2 layers)");
    refused((struct lora_spec){.dtype = "I64"}, LORA_RANK_MAX, ERR_BAD_FILE,
            "has dtype I64, allowed are F32, F16 and BF16");
    refused((struct lora_spec){.nan = true}, LORA_RANK_MAX, ERR_BAD_FILE,
            "holds a value that is not finite");
    refused((struct lora_spec){.modules = 1u << LORA_K, .config = TARGETS("[\"q_proj\"]")},
            LORA_RANK_MAX, ERR_BAD_FILE, "is not among the target_modules");
    refused((struct lora_spec){.rank = 9}, 8, ERR_TOO_LARGE, "rank must be from 1 to 8, got 9");
    struct lora *l = NULL;
    struct lora_bytes good;
    lora_bytes_make(&good, &(struct lora_spec){.rank = 8});
    assert_int_equal(lora_bytes_open(&l, &good, &base, 8, NULL), ERR_OK);
    lora_unref(&l);
    /* A file that ends anywhere is refused, wherever. */
    for (size_t whole = good.n, n = 0; n < whole; n += n < 4000 ? 61 : 4096) {
        good.n = n;
        assert_int_equal(lora_bytes_open(&l, &good, &base, 8, NULL), ERR_BAD_FILE);
    }
    free(good.file);
}

/* ---- the identity, and the folder */

static void the_hash_names_base_and_content(void **state) {
    struct model_info other = base;
    other.conf_hash[31] ^= 1;
    const struct lora_spec s = {.rank = 4, .seed = 9}, t = {.rank = 4, .seed = 10};
    (void)state;
    struct lora *a = lora_of(&s, &base), *same = lora_of(&s, &base), *b = lora_of(&s, &other),
                *c = lora_of(&t, &base);
    assert_memory_equal(a->hash, same->hash, LORA_HASH_BYTES);
    assert_memory_not_equal(a->hash, b->hash, LORA_HASH_BYTES);
    assert_memory_not_equal(a->hash, c->hash, LORA_HASH_BYTES);
    lora_unref(&a);
    lora_unref(&same);
    lora_unref(&b);
    lora_unref(&c);
}

static void folders_are_read(void **state) {
    struct model_files files;
    struct lora_bytes b;
    struct lora *l = NULL;
    struct errbuf eb = {0};
    (void)state;
    lora_bytes_make(&b, &(struct lora_spec){.rank = 4});
    files_make(&files);
    assert_int_equal(lora_open(&l, files.dir, &base, 4, &eb), ERR_NOT_FOUND);
    assert_non_null(strstr(eb.text, "adapter_config.json"));
    files_text(&files, "adapter_config.json", b.config);
    assert_int_equal(lora_open(&l, files.dir, &base, 4, &eb), ERR_NOT_FOUND);
    assert_non_null(strstr(eb.text, "adapter_model.safetensors"));
    files_write(&files, "adapter_model.safetensors", b.file, b.n);
    assert_int_equal(lora_open(&l, files.dir, &base, 3, &eb), ERR_TOO_LARGE);
    assert_int_equal(lora_open(&l, files.dir, &base, 4, &eb), ERR_OK);
    assert_int_equal(l->rank, 4);
    lora_unref(&l);
    char *long_config = malloc(LORA_CONF_BYTES_MAX + 2);
    assert_non_null(long_config);
    memset(long_config, ' ', LORA_CONF_BYTES_MAX + 2);
    memcpy(long_config, b.config, strlen(b.config));
    files_write(&files, "adapter_config.json", long_config, LORA_CONF_BYTES_MAX);
    assert_int_equal(lora_open(&l, files.dir, &base, 4, &eb), ERR_OK);
    lora_unref(&l);
    files_write(&files, "adapter_config.json", long_config, LORA_CONF_BYTES_MAX + 1);
    assert_int_equal(lora_open(&l, files.dir, &base, 4, &eb), ERR_BAD_FILE);
    assert_null(strstr(eb.text, files.dir));
    free(long_config);
    free(b.file);
    files_remove(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_see_other_adapters),
        cmocka_unit_test(configs_are_checked),
        cmocka_unit_test(scales_and_ranks_follow_the_patterns),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(the_hash_names_base_and_content),
        cmocka_unit_test(folders_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
