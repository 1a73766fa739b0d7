/* Goal: config.json of each family gives the numbers its publisher means, and what is not
 * understood is refused with file, member, value and what is allowed. Method: a good config per
 * family (members as published), then changed by one member at a time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/model_conf.h"
#include "common/engine/rope.h"
#include "tests/unit/common/engine/model_files.h"

#define SHAPE                                                                                      \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":" \
    "4,"                                                                                           \
    "\"num_key_value_heads\":2,\"vocab_size\":100,\"max_position_embeddings\":128,\"hidden_act\":" \
    "\"silu\","                                                                                    \
    "\"rms_norm_eps\":1e-05,\"eos_token_id\":2,\"bos_token_id\":1"
#define LLAMA   "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"]," SHAPE
#define MISTRAL "{\"model_type\":\"mistral\",\"architectures\":[\"MistralForCausalLM\"]," SHAPE
#define QWEN2   "{\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2ForCausalLM\"]," SHAPE
#define QWEN3   "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"]," SHAPE

static enum err read_both(struct model_conf *c, const char *config, const char *generation,
                          struct errbuf *eb) {
    struct model_files f;
    files_make(&f);
    if (config != NULL) files_text(&f, "config.json", config);
    if (generation != NULL) files_text(&f, "generation_config.json", generation);
    enum err e = model_conf_read(c, f.dir, eb);
    files_remove(&f);
    return e;
}

static struct model_conf good(const char *config) {
    struct model_conf c;
    struct errbuf eb = {0};
    if (read_both(&c, config, NULL, &eb) != ERR_OK) fail_msg("%s: %s", config, eb.text);
    return c;
}

static void families_differ_by_their_row(void **state) {
    (void)state;
    struct model_conf c = good(LLAMA "}");
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.context_max, 128);
    assert_true(c.rope.theta == 10000 && c.rope.type == ROPE_DEFAULT &&
                c.rope.attention_factor == 1);
    assert_false(c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm || c.tied);
    assert_int_equal(c.window[0], 0);
    assert_true(c.norm_eps == 1e-5f);

    c = good(
        LLAMA
        ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true,\"head_dim\":32,"
        "\"sliding_window\":null,\"rope_theta\":500000,\"dtype\":\"bfloat16\",\"pretraining_tp\":"
        "1}");
    assert_true(c.qkv_bias && c.o_bias && c.mlp_bias && c.tied);
    assert_int_equal(c.head_dim, 32);
    assert_true(c.rope.theta == 500000);

    c = good(MISTRAL "}");
    assert_int_equal(c.window[3], 4096);
    c = good(MISTRAL ",\"sliding_window\":null}");
    assert_int_equal(c.window[3], 0);
    c = good(MISTRAL ",\"sliding_window\":7}");
    assert_int_equal(c.window[0], 7);
    c = good(MISTRAL ",\"head_dim\":null,\"sliding_window\":7}");
    assert_int_equal(c.head_dim, 16);

    c = good(QWEN2
             ",\"use_sliding_window\":false,\"sliding_window\":32768,\"max_window_layers\":2}");
    assert_true(c.qkv_bias && !c.o_bias);
    assert_int_equal(c.window[3], 0);
    c = good(QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":9,\"max_window_layers\":2}");
    assert_int_equal(c.window[1], 0);
    assert_int_equal(c.window[2], 9);
    c = good(
        QWEN2
        ",\"use_sliding_window\":true,\"sliding_window\":9,\"layer_types\":[\"sliding_attention\","
        "\"full_attention\",\"full_attention\",\"sliding_attention\"]}");
    assert_int_equal(c.window[0], 9);
    assert_int_equal(c.window[2], 0);

    c = good(QWEN3 "}");
    assert_true(c.qk_norm == QK_NORM_HEAD && !c.qkv_bias);
    assert_int_equal(c.head_dim, 128);
}

static void kv_heads_default_to_heads_in_llama(void **state) {
    (void)state;
    struct model_conf c =
        good("{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
             "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":100,"
             "\"max_position_embeddings\":128}");
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.bos_id, -1);
    assert_true(c.norm_eps == 1e-6f);
}

static void rope_is_read_in_both_spellings(void **state) {
    (void)state;
    struct model_conf c = good(LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}");
    assert_true(c.rope.type == ROPE_LINEAR && c.rope.factor == 4);
    assert_int_equal(c.context_max, 512);
    c = good(LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":"
                   "8.0,\"low_freq_factor\":1.0,"
                   "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}}");
    assert_true(c.rope.type == ROPE_LLAMA3 && c.rope.original_context == 64 &&
                c.rope.theta == 500000);
    assert_int_equal(c.context_max, 128);
    c = good(LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":77.5}}");
    assert_true(c.rope.type == ROPE_DEFAULT && c.rope.theta == 77.5);
    c = good(QWEN2 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_"
                   "embeddings\":128}}");
    assert_true(c.rope.type == ROPE_YARN && c.rope.beta_fast == 32 && c.rope.beta_slow == 1 &&
                c.rope.truncate);
    assert_true(fabs(c.rope.attention_factor - (0.1 * log(4.0) + 1)) < 1e-15);
    assert_int_equal(c.context_max, 512);
    c = good(QWEN2
             ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"attention_factor\":0.5}}");
    assert_true(c.rope.attention_factor == 0.5 && c.rope.original_context == 128);
    c = good(QWEN2 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"mscale\":1.0,\"mscale_"
                   "all_dim\":1.0}}");
    assert_true(c.rope.attention_factor == 1);
}

/* The frequencies themselves, at points where the definition can be read off. */
static void frequencies_follow_the_definition(void **state) {
    double f[64], plain[64];
    struct rope_conf r = {.type = ROPE_DEFAULT, .theta = 10000};
    float c[64], s[64];
    (void)state;
    rope_freqs(plain, &r, 128);
    assert_true(plain[0] == 1 && fabs(plain[32] - 0.01) < 1e-15);
    r = (struct rope_conf){.type = ROPE_LINEAR, .theta = 10000, .factor = 4};
    rope_freqs(f, &r, 128);
    for (int i = 0; i < 64; i++) assert_true(f[i] == plain[i] / 4);
    r = (struct rope_conf){.type = ROPE_LLAMA3,
                           .theta = 10000,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_context = 8192};
    rope_freqs(f, &r, 128);
    assert_true(f[0] == plain[0] && fabs(f[63] - plain[63] / 8) < 1e-18);
    for (int i = 1; i < 64; i++)
        assert_true(f[i] <= plain[i] && f[i] >= plain[i] / 8 && f[i] < f[i - 1]);
    /* where both factors are one, a wavelength just there stays as it is */
    r.low_freq_factor = r.high_freq_factor = 1;
    r.original_context = 2 * 3.14159265358979323846;
    rope_freqs(f, &r, 128);
    assert_true(f[0] == plain[0] && f[1] == plain[1] / 8 && f[63] == plain[63] / 8);
    r = (struct rope_conf){.type = ROPE_YARN,
                           .theta = 10000,
                           .factor = 8,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .original_context = 4096,
                           .truncate = true};
    rope_freqs(f, &r, 128);
    assert_true(f[0] == plain[0] && fabs(f[63] - plain[63] / 8) < 1e-18);
    /* angles stay exact far out: position 100,000 with frequency 0.01 is an angle of 1,000 */
    rope_row(c, s, plain, 64, 1, 100000);
    assert_true(fabs((double)c[32] - cos(1000.0)) < 1e-7 &&
                fabs((double)s[32] - sin(1000.0)) < 1e-7);
    rope_row(c, s, plain, 64, 2.5, 0);
    assert_true(c[5] == 2.5f && s[5] == 0);
}

static void generation_config_wins(void **state) {
    struct model_conf c;
    struct errbuf eb = {0};
    (void)state;
    assert_int_equal(read_both(&c, LLAMA "}", NULL, &eb), ERR_OK);
    assert_true(c.n_eos == 1 && c.eos_ids[0] == 2 && c.bos_id == 1);
    assert_false(c.gen.do_sample_set || c.gen.temperature_set || c.gen.top_k_set ||
                 c.gen.top_p_set || c.gen.min_p_set);
    assert_int_equal(read_both(&c, LLAMA "}",
                               "{\"eos_token_id\":[7,99],\"bos_token_id\":3,\"do_sample\":true,"
                               "\"temperature\":0.7,\"top_k\":20,\"top_p\":0.8,\"min_p\":0.05,"
                               "\"repetition_penalty\":1.05}",
                               &eb),
                     ERR_OK);
    assert_true(c.n_eos == 2 && c.eos_ids[0] == 7 && c.eos_ids[1] == 99 && c.bos_id == 3);
    assert_true(c.gen.do_sample_set && c.gen.do_sample && c.gen.temperature_set &&
                c.gen.temperature == 0.7f);
    assert_true(c.gen.top_k_set && c.gen.top_k == 20 && c.gen.top_p_set && c.gen.top_p == 0.8f);
    assert_true(c.gen.min_p_set && c.gen.min_p == 0.05f);
    assert_true(c.gen.repetition_penalty_set && c.gen.repetition_penalty == 1.05f);
    assert_int_equal(read_both(&c, LLAMA "}", "{\"temperature\":null}", &eb), ERR_OK);
    assert_true(c.n_eos == 1 && c.eos_ids[0] == 2 && !c.gen.temperature_set);
    assert_int_equal(read_both(&c, LLAMA "}", "{\"eos_token_id\":[]}", &eb), ERR_BAD_FILE);
    assert_non_null(strstr(
        eb.text, "generation_config.json: eos_token_id must be a token id from 0 to 99 or a list"));
    assert_int_equal(read_both(&c, LLAMA "}", "{\"eos_token_id\":100}", &eb), ERR_BAD_FILE);
    assert_int_equal(read_both(&c, LLAMA "}", "{\"top_p\":1.5}", &eb), ERR_BAD_FILE);
    assert_int_equal(read_both(&c, LLAMA "}", "{\"min_p\":-0.1}", &eb), ERR_BAD_FILE);
    assert_non_null(strstr(eb.text, "generation_config.json: min_p must be"));
    assert_int_equal(read_both(&c, LLAMA "}", "[]", &eb), ERR_BAD_FILE);
    assert_int_equal(read_both(&c, NULL, NULL, &eb), ERR_NOT_FOUND);
}

static void what_is_not_known_is_refused(void **state) {
    static const struct {
        const char *config, *says;
    } rows[] = {
        {"{\"model_type\":\"gemma9\"," SHAPE "}",
         "config.json: model_type must be one of those in docs/models.md, the nearest is "
         "\"gemma2\", got \"gemma9\""},
        {"{" SHAPE "}", "model_type must be one of"},
        {"{\"model_type\":\"llama\",\"architectures\":[\"LlamaForSequenceClassification\"]," SHAPE
         "}",
         "architectures must be [\"LlamaForCausalLM\"] or [\"LlamaModel\"] with this model_type"},
        {"{\"model_type\":\"llama\",\"architectures\":[]," SHAPE "}", "architectures must be"},
        {"[]", "must be a JSON object"},
        {"{", "config.json"},
        {LLAMA ",\"hidden_act\":\"gelu\"}", "hidden_act must be \"silu\", got \"gelu\""},
        {LLAMA ",\"quantization_config\":{\"bits\":4}}",
         "quantization_config.quant_method must be \"awq\", \"gptq\", \"compressed-tensors\", "
         "\"fp8\" or \"mxfp4\", got nothing"},
        {LLAMA ",\"quantization_config\":4}", "quantization_config must be absent or an object"},
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
               "\"group_size\":0}}",
         "quantization_config.group_size must be -1 or an integer from 1 on, got 0"},
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
               "\"dynamic\":{\"+:.*\":{\"bits\":8}}}}",
         "quantization_config.dynamic must be absent, or rules that begin with \"-:\""},
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\","
               "\"weight_block_size\":[128]}}",
         "weight_block_size must be absent or two integers from 1 on"},
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
               "\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"type\":\"float\"}}}}}",
         "quantization_config.config_groups.a.weights.num_bits must be 8, got 4"},
        {LLAMA ",\"partial_rotary_factor\":0.5}",
         "partial_rotary_factor must be absent, null or 1, got 0.5"},
        {LLAMA ",\"num_experts\":8}", "num_experts must be absent, null or 0, got 8"},
        {LLAMA ",\"sliding_window\":64}",
         "sliding_window must be absent or null for this model_type, got 64"},
        {LLAMA ",\"hidden_size\":0}", "hidden_size must be an integer from 1 to 65536, got 0"},
        {LLAMA ",\"hidden_size\":64.0}",
         "hidden_size must be an integer from 1 to 65536, got 64.0"},
        {LLAMA ",\"hidden_size\":\"64\"}", "hidden_size must be an integer"},
        {LLAMA ",\"num_hidden_layers\":1025}",
         "num_hidden_layers must be an integer from 1 to 1024, got 1025"},
        {LLAMA ",\"num_key_value_heads\":3}",
         "num_key_value_heads must divide num_attention_heads = 4, got 3"},
        {LLAMA ",\"num_key_value_heads\":5}",
         "num_key_value_heads must be an integer from 1 to 4, got 5"},
        {LLAMA ",\"head_dim\":15}", "head_dim must be an even integer from 2 to 256, got 15"},
        {LLAMA ",\"head_dim\":258}", "head_dim must be an integer from 1 to 256, got 258"},
        {LLAMA ",\"hidden_size\":66}", "hidden_size must be a multiple of num_attention_heads = 4"},
        {LLAMA ",\"rms_norm_eps\":-1}", "rms_norm_eps must be a number from 1e-20 to 1, got -1"},
        {LLAMA ",\"rms_norm_eps\":0e-05}",
         "rms_norm_eps must be a number from 1e-20 to 1, got 0e-05"},
        {LLAMA ",\"tie_word_embeddings\":1}", "tie_word_embeddings must be true or false, got 1"},
        {LLAMA ",\"rope_theta\":0}", "rope_theta must be a number from 1"},
        {LLAMA ",\"rope_scaling\":4}", "rope_scaling must be an object or null, got 4"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"ntk\"}}",
         "rope_scaling.rope_type must be one of \"default\" \"linear\" \"llama3\" \"yarn\" "
         "\"dynamic\" \"longrope\", got \"ntk\""},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\"}}",
         "rope_scaling.short_factor must be 8 numbers above 0, one for each pair that turns"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"mrope\"}}", "rope_scaling.type must be one of"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\"}}",
         "rope_scaling.factor must be a number from 1"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}",
         "rope_scaling.factor must be a number from 1"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
               "\"high_freq_factor\":3,\"original_max_position_embeddings\":64}}",
         "rope_scaling.high_freq_factor must be low_freq_factor or larger, got 3"},
        {LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":0.5}}",
         "rope_parameters.factor must be a number from 1"},
        {LLAMA ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
         "eos_token_id must be a token id from 0 to 99 or a list of 1 to 16 such"},
        {LLAMA ",\"eos_token_id\":\"x\"}", "eos_token_id must be"},
        {LLAMA ",\"bos_token_id\":[1,2]}", "bos_token_id must be one token id"},
        {QWEN2 ",\"attention_bias\":true}",
         "attention_bias must be absent or false for this model_type"},
        {MISTRAL ",\"mlp_bias\":true}", "mlp_bias must be absent or false for this model_type"},
        {MISTRAL ",\"sliding_window\":0}", "sliding_window must be an integer from 1"},
        {QWEN2 ",\"layer_types\":[\"full_attention\"]}", "layer_types must be 4 items"},
        {QWEN2 ",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
               "\"linear_attention\"]}",
         "layer_types must be 4 items"},
        {QWEN2 ",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
               "\"sliding_attention\"]}",
         "sliding_window must be a number of tokens"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct model_conf c;
        struct errbuf eb = {0};
        enum err e = read_both(&c, rows[i].config, NULL, &eb);
        if (e != ERR_BAD_FILE || strstr(eb.text, rows[i].says) == NULL)
            fail_msg("%s: %s \"%s\", not \"%s\"", rows[i].config, err_name(e), eb.text,
                     rows[i].says);
    }
}

#define SMALL                                                                                      \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"vocab_size\":100,"      \
    "\"num_attention_heads\":4,\"max_position_embeddings\":131072"

/* What the class has where a config is silent; layers by turns as the large model's. */
static void llama4_has_chunks_and_a_temperature(void **state) {
    (void)state;
    struct model_conf c =
        good("{\"model_type\":\"llama4\",\"architectures\":[\"Llama4ForConditionalGeneration\"],"
             "\"text_config\":{\"model_type\":\"llama4_text\",\"hidden_size\":5120,"
             "\"intermediate_size\":8192,\"intermediate_size_mlp\":16384,\"num_hidden_layers\":48,"
             "\"num_local_experts\":16,\"num_experts_per_tok\":1,\"no_rope_layers\":[]}}");
    assert_true(c.n_heads == 40 && c.n_kv_heads == 8 && c.head_dim == 128 && c.text_part);
    assert_true(c.window[0] == -8192 && c.window[2] == -8192 && c.window[3] == 0);
    assert_true(!c.still[2] && c.still[3] && c.still_scale == 0.1f && c.still_floor == 8192);
    assert_true(c.qk_norm == QK_NORM_TURNED && c.rope_pairs && c.rope.theta == 500000);
    assert_true(c.intermediate == 16384 && c.experts.intermediate == 8192);
    assert_true(c.experts.shared == 8192 && c.experts.on_input && c.mixed[0] && c.mixed[1]);
    c = good("{\"model_type\":\"llama4_text\",\"num_key_value_heads\":4,\"use_qk_norm\":false,"
             "\"attn_temperature_tuning\":0,"
             "\"attention_chunk_size\":null,\"interleave_moe_layer_step\":2,\"num_local_experts\":"
             "128,\"num_experts_per_tok\":1," SMALL "}");
    assert_true(c.qk_norm == QK_NORM_NONE && c.still_scale == 0 && c.window[0] == 0 && c.still[3]);
    assert_true(!c.mixed[0] && c.mixed[1] && !c.mixed[2] && c.mixed[3]);
    c = good("{\"model_type\":\"llama4_text\",\"num_key_value_heads\":4,\"attn_temperature_"
             "tuning\":4,\"moe_layers\":[],"
             "\"layer_types\":[\"full_attention\",\"chunked_attention\",\"full_attention\","
             "\"chunked_attention\"],\"attention_chunk_size\":64,\"num_local_experts\":8,"
             "\"num_experts_per_tok\":1," SMALL "}");
    assert_true(c.still_scale == 0.1f && !c.mixed[0] && !c.mixed[3]);
    assert_true(c.window[0] == 0 && c.window[1] == -64 && c.window[3] == -64 && c.still[3]);
}

/* Members of the published configs, and what they come to. */
static void decoders_scale_cap_and_turn_as_published(void **state) {
    (void)state;
    struct model_conf c = good("{\"model_type\":\"gemma2\"," SMALL "}");
    assert_true(c.score_cap == 50 && c.logit_cap == 30 && c.score_scale == 0.0625f);
    assert_true(c.embed_scale == 8 && c.tied && c.head_dim == 256 && c.n_kv_heads == 4);
    assert_true(c.window[0] == 4096 && c.window[1] == 0 && c.window[2] == 4096);
    assert_true(c.act == ACT_GELU_TANH && c.norms == NORMS_AROUND);
    c = good(
        "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":null,\"layer_types\":["
        "\"full_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]," SMALL
        "}");
    assert_true(c.score_cap == 0 && c.window[0] == 0 && c.window[2] == 4096);

    /* what the 4B model leaves out is in the defaults; scaling is of full layers alone */
    c = good("{\"model_type\":\"gemma3\",\"architectures\":[\"Gemma3ForConditionalGeneration\"],"
             "\"eos_token_id\":[1,106],\"vision_config\":{},\"text_config\":{\"model_type\":"
             "\"gemma3_text\",\"hidden_size\":2560,\"intermediate_size\":10240,"
             "\"num_hidden_layers\":34,\"sliding_window\":1024,\"rope_scaling\":{\"rope_type\":"
             "\"linear\",\"factor\":8.0}}}");
    assert_true(c.text_part && c.n_heads == 8 && c.n_kv_heads == 4 && c.vocab_size == 262208);
    assert_true(c.context_max == 131072 && c.rope.theta == 1e6 && c.rope.factor == 8);
    assert_true(c.has_window_rope && c.window_rope.theta == 10000);
    assert_true(c.window_rope.type == ROPE_DEFAULT && c.window[4] == 1024 && c.window[5] == 0);
    assert_true(c.n_eos == 2 && c.eos_ids[1] == 106 && c.tied && c.score_cap == 0);
    c = good("{\"model_type\":\"gemma3_text\",\"_sliding_window_pattern\":2,\"rope_parameters\":{"
             "\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":5000},"
             "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":700}}," SMALL "}");
    assert_true(c.rope.theta == 5000 && c.rope.factor == 4 && c.window_rope.theta == 700);
    assert_true(c.window[0] == 4096 && c.window[1] == 0);

    /* 131072 / 4096: sqrt(1 + 5 / 12) */
    c = good("{\"model_type\":\"phi3\",\"head_dim\":8,\"partial_rotary_factor\":0.75,"
             "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"yarn\","
             "\"short_factor\":[1,1.5,2],\"long_factor\":[4,5,6]}," SMALL "}");
    assert_true(c.rope_dim == 6 && c.rope.type == ROPE_LONGROPE);
    assert_true(fabs(c.rope.attention_factor - 1.1902380714238083) < 1e-12);
    double f[3], g[3];
    rope_freqs(f, &c.rope, 6);
    rope_freqs_for(g, &c.rope, 6, 4096);
    assert_true(f[0] == 1 && f[1] == g[1]);
    rope_freqs_for(g, &c.rope, 6, 4097);
    assert_true(g[0] == 0.25 && fabs(g[1] * 5 / 1.5 - f[1]) < 1e-15);

    c = good("{\"model_type\":\"smollm3\"," SMALL "}");
    assert_true(!c.still[0] && !c.still[2] && c.still[3] && c.tied && c.rope.theta == 2e6);
    c = good("{\"model_type\":\"granite\",\"attention_multiplier\":0.015625,\"logits_scaling\":8,"
             "\"residual_multiplier\":0.22,\"embedding_multiplier\":12," SMALL "}");
    assert_true(c.score_scale == 0.015625f && c.logit_scale == 0.125f);
    assert_true(c.residual_scale == 0.22f && c.embed_scale == 12);
    c = good("{\"model_type\":\"exaone4\",\"sliding_window\":null,\"num_key_value_heads\":4," SMALL
             "}");
    assert_true(!c.still[3] && c.window[0] == 0 && c.norms == NORMS_BEHIND);
    c = good("{\"model_type\":\"cohere\",\"model_max_length\":200,\"tie_word_embeddings\":true,"
             "\"layer_norm_eps\":1e-4," SMALL "}");
    assert_true(c.context_max == 200 && c.logit_scale == 0.0625f && c.norm_eps == 1e-4f);
    assert_true(c.rope_pairs && c.adapter_pairs && c.qk_norm == QK_NORM_NONE);
    c = good(
        "{\"model_type\":\"internlm2\",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}," SMALL
        "}");
    assert_true(c.rope.original_context == 131072 && c.context_max == 262144);
}

/* As published, of V2-Lite and V3. */
#define DEEPSEEK_YARN(mscale)                                                                      \
    "\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":" mscale          \
    ",\"mscale_all_dim\":" mscale                                                                  \
    ",\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":10000,"          \
    "\"max_position_embeddings\":163840,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-6,"            \
    "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"    \
    "\"attention_bias\":false,\"moe_layer_freq\":1,\"pretraining_tp\":1,\"aux_loss_alpha\":0.001"
#define V2_LITE                                                                                    \
    "{\"model_type\":\"deepseek_v2\",\"architectures\":[\"DeepseekV2ForCausalLM\"],"               \
    "\"hidden_size\":2048,\"intermediate_size\":10944,\"num_hidden_layers\":27,"                   \
    "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"vocab_size\":102400,"                 \
    "\"q_lora_rank\":null,\"n_routed_experts\":64,\"n_shared_experts\":2,"                         \
    "\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408,\"first_k_dense_replace\":1,"        \
    "\"n_group\":1,\"topk_group\":1,\"topk_method\":\"greedy\",\"scoring_func\":\"softmax\","      \
    "\"norm_topk_prob\":false,\"routed_scaling_factor\":1.0," DEEPSEEK_YARN("0.707")
#define V3                                                                                         \
    "{\"model_type\":\"deepseek_v3\",\"architectures\":[\"DeepseekV3ForCausalLM\"],"               \
    "\"hidden_size\":7168,\"intermediate_size\":18432,\"num_hidden_layers\":61,"                   \
    "\"num_attention_heads\":128,\"num_key_value_heads\":128,\"vocab_size\":129280,"               \
    "\"q_lora_rank\":1536,\"n_routed_experts\":256,\"n_shared_experts\":1,"                        \
    "\"num_experts_per_tok\":8,\"moe_intermediate_size\":2048,\"first_k_dense_replace\":3,"        \
    "\"num_nextn_predict_layers\":1,\"n_group\":8,\"topk_group\":4,"                               \
    "\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5," DEEPSEEK_YARN("1.0")

static void latent_attention_is_one_row_for_all_heads(void **state) {
    (void)state;
    struct model_conf c = good(V2_LITE "}");
    assert_true(c.head_dim == 576 && c.n_kv_heads == 1 && c.n_heads == 16 && c.rope_dim == 64);
    assert_true(c.latent.rank == 512 && c.latent.q_rank == 0);
    assert_true(c.latent.still == 128 && c.latent.value == 128 && c.rope_pairs);
    assert_true(c.rope.type == ROPE_YARN && c.rope.attention_factor == 1);
    assert_true(fabs((double)c.score_scale - 1.5896262 / sqrt(192)) < 1e-7);
    assert_true(c.context_max == MODEL_CONTEXT_MAX || c.context_max == 163840);
    assert_true(c.experts.n == 64 && c.experts.used == 6 && c.experts.shared == 2816);
    assert_true(!c.experts.sigmoid && !c.experts.choice_bias && !c.experts.normalise);
    assert_true(c.experts.groups == 0 && !c.mixed[0] && c.mixed[1] && c.mixed[26]);

    /* V2 chooses groups by their best; what the class has where members are absent */
    c = good(V2_LITE ",\"n_group\":8,\"topk_group\":3,\"topk_method\":\"group_limited_greedy\"}");
    assert_true(c.experts.groups == 8 && c.experts.groups_used == 3 && c.experts.group_best);
    assert_true(!c.experts.choice_bias);
    c = good(V2_LITE ",\"n_routed_experts\":null}");
    assert_true(c.experts.n == 0 && !c.mixed[1]);

    c = good(V3 "}");
    assert_true(c.latent.q_rank == 1536 && c.n_guess_layers == 1);
    assert_true(fabs((double)c.score_scale - 1.8738542 / sqrt(192)) < 1e-7);
    assert_true(c.experts.sigmoid && c.experts.choice_bias && c.experts.normalise);
    assert_true(c.experts.groups == 8 && c.experts.groups_used == 4 && !c.experts.group_best);
    assert_true(c.experts.scale == 2.5f && !c.mixed[2] && c.mixed[3]);

    /* the shape that a newer tool writes beside: of no effect here */
    char a[MODEL_CONF_LINE_BYTES], b[MODEL_CONF_LINE_BYTES];
    struct model_conf d = good(V3 ",\"head_dim\":64,\"rope_interleave\":true}");
    model_conf_line(&c, a);
    model_conf_line(&d, b);
    assert_string_equal(a, b);
    d = good(V3 ",\"v_head_dim\":64}");
    model_conf_line(&d, b);
    assert_string_not_equal(a, b);

    struct errbuf eb = {0};
    assert_int_equal(read_both(&c, V3 ",\"kv_lora_rank\":528}", NULL, &eb), ERR_BAD_FILE);
    assert_non_null(strstr(eb.text, "qk_rope_head_dim must be even, and with kv_lora_rank = 528 at "
                                    "most 576, got 64"));
    assert_int_equal(read_both(&c, V3 ",\"kv_lora_rank\":null}", NULL, &eb), ERR_BAD_FILE);
    assert_non_null(strstr(eb.text, "kv_lora_rank must be an integer from 16 to 576, got null"));
}

static void the_hash_line_names_what_changes_logits(void **state) {
    char a[MODEL_CONF_LINE_BYTES], b[MODEL_CONF_LINE_BYTES];
    (void)state;
    struct model_conf c = good(LLAMA "}");
    int n = model_conf_line(&c, a);
    assert_int_equal(n, strlen(a));
    c = good(LLAMA ",\"torch_dtype\":\"float16\",\"initializer_range\":0.5}");
    model_conf_line(&c, b);
    assert_string_equal(a, b);
    c = good(LLAMA ",\"rope_theta\":10001}");
    model_conf_line(&c, b);
    assert_string_not_equal(a, b);
    c.still_scale = 0.1f;
    c.still_floor = 8192;
    model_conf_line(&c, a);
    assert_string_not_equal(a, b);
    c.experts.on_input = true;
    model_conf_line(&c, b);
    assert_string_not_equal(a, b);
    c = good(MISTRAL ",\"sliding_window\":8}");
    c.n_layers = MODEL_LAYERS_MAX;
    for (int i = 0; i < MODEL_LAYERS_MAX; i++) c.window[i] = INT32_MAX;
    assert_true(model_conf_line(&c, b) < MODEL_CONF_LINE_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_differ_by_their_row),
        cmocka_unit_test(kv_heads_default_to_heads_in_llama),
        cmocka_unit_test(rope_is_read_in_both_spellings),
        cmocka_unit_test(frequencies_follow_the_definition),
        cmocka_unit_test(generation_config_wins),
        cmocka_unit_test(what_is_not_known_is_refused),
        cmocka_unit_test(llama4_has_chunks_and_a_temperature),
        cmocka_unit_test(decoders_scale_cap_and_turn_as_published),
        cmocka_unit_test(latent_attention_is_one_row_for_all_heads),
        cmocka_unit_test(the_hash_line_names_what_changes_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
