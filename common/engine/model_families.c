/* model_families: see model_families.h. */
#include "common/engine/model_families.h"

#include <math.h>
#include <string.h>
#include "common/base/near_text.h"

static const struct member_alias nomic_names[] = {
    {"hidden_size", "n_embd"},
    {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"layer_norm_eps", "layer_norm_epsilon"},
    {"hidden_act", "activation_function"},
    {"max_position_embeddings", "n_positions"},
    {"rope_theta", "rotary_emb_base"},
    {NULL, NULL},
};

static const struct member_neutral nomic_neutrals[] = {
    {"rotary_emb_fraction", 1},
    {"rotary_emb_interleaved", 0},
    {"rotary_emb_scale_base", NAN},
    {"qkv_proj_bias", 0},
    {"mlp_fc1_bias", 0},
    {"mlp_fc2_bias", 0},
    {"prenorm", 0},
    {"causal", 0},
    {"use_rms_norm", 0},
    {"moe_every_n_layers", 0},
    {"parallel_block", 0},
    {NULL, 0},
};

static const struct member_neutral bert_neutrals[] = {
    {"is_decoder", 0}, {"add_cross_attention", 0}, {NULL, 0}};

static const struct member_alias modern_names[] = {
    {"layer_norm_eps", "norm_eps"},
    {"hidden_act", "hidden_activation"},
    {"rope_theta", "global_rope_theta"},
    {NULL, NULL},
};

static const struct member_neutral modern_neutrals[] = {
    {"norm_bias", 0}, {"attention_bias", 0}, {"mlp_bias", 0}, {NULL, 0}};

/* ---- decoders */

static const struct member_alias gemma_names[] = {{"hidden_act", "hidden_activation"},
                                                  {NULL, NULL}};
static const struct member_neutral gemma_neutrals[] = {{"use_bidirectional_attention", 0},
                                                       {NULL, 0}};
static const struct member_number gemma2_numbers[] = {
    {"attn_logit_softcapping", NUMBER_SCORE_CAP, 50},
    {"final_logit_softcapping", NUMBER_LOGIT_CAP, 30},
    {"query_pre_attn_scalar", NUMBER_QUERY_SCALAR, 256},
    {NULL, 0, 0},
};
static const struct member_number gemma3_numbers[] = {
    {"attn_logit_softcapping", NUMBER_SCORE_CAP, 0},
    {"final_logit_softcapping", NUMBER_LOGIT_CAP, 0},
    {"query_pre_attn_scalar", NUMBER_QUERY_SCALAR, 256},
    {NULL, 0, 0},
};

static const struct member_number granite_numbers[] = {
    {"embedding_multiplier", NUMBER_EMBED_SCALE, 1},
    {"attention_multiplier", NUMBER_SCORE_SCALE, 1},
    {"residual_multiplier", NUMBER_RESIDUAL_SCALE, 1},
    {"logits_scaling", NUMBER_LOGIT_DIVISOR, 1},
    {NULL, 0, 0},
};
/* of its mixtures; absent or 0 shared: none */
#define GRANITE_EXPERTS(...)                                                                       \
    .map = TENSORS_GRANITE4, .numbers = granite_numbers, SILU,                                     \
    .experts = {.count = "num_local_experts",                                                      \
                .width = "intermediate_size",                                                      \
                .normalise = true,                                                                 \
                __VA_ARGS__}
static const struct member_alias granite4_names[] = {
    {"intermediate_size", "shared_intermediate_size"}, {NULL, NULL}};

static const struct member_alias gpt_oss_names[] = {{"num_experts_per_tok", "experts_per_token"},
                                                    {NULL, NULL}};
static const struct member_number gpt_oss_numbers[] = {
    {"swiglu_limit", NUMBER_ACT_LIMIT, 7},
    {"swiglu_alpha", NUMBER_ACT_ALPHA, 1.702},
    {NULL, 0, 0},
};

static const struct member_neutral smollm3_neutrals[] = {{"use_sliding_window", 0}, {NULL, 0}};

static const struct member_alias cohere_names[] = {{"rms_norm_eps", "layer_norm_eps"},
                                                   {"max_position_embeddings", "model_max_length"},
                                                   {NULL, NULL}};
static const struct member_number cohere_numbers[] = {{"logit_scale", NUMBER_LOGIT_SCALE, 0.0625},
                                                      {NULL, 0, 0}};
static const struct member_neutral cohere_neutrals[] = {
    {"use_parallel_block", 1},    {"rotary_pct", 1},
    {"use_gated_activation", 1},  {"use_parallel_embedding", 0},
    {"use_embedding_sharing", 1}, {NULL, 0}};

static const struct member_alias internlm2_names[] = {{"attention_bias", "bias"}, {NULL, NULL}};

static const struct member_alias exaone_names[] = {
    {"num_hidden_layers", "num_layers"},
    {"hidden_act", "activation_function"},
    {"rms_norm_eps", "layer_norm_epsilon"},
    {NULL, NULL},
};

static const struct member_alias baichuan_names[] = {
    {"max_position_embeddings", "model_max_length"}, {NULL, NULL}};

static const struct member_neutral deepseek_neutrals[] = {
    {"moe_layer_freq", 1}, {"rope_interleave", 1}, {NULL, 0}};

static const struct member_alias llama4_names[] = {{"intermediate_size", "intermediate_size_mlp"},
                                                   {NULL, NULL}};

static const struct member_neutral olmoe_neutrals[] = {{"clip_qkv", NAN}, {NULL, 0}};

/* Latent attention; what is before the experts' row is of all DeepSeek models since V2. */
#define DEEPSEEK(...)                                                                              \
    .map = TENSORS_LATENT, .neutrals = deepseek_neutrals, SILU, .latent = true,                    \
    .rope_pairs = true,                                                                            \
    .experts = {.count = "n_routed_experts",                                                       \
                .width = "moe_intermediate_size",                                                  \
                .shared_count = "n_shared_experts",                                                \
                .may_normalise = true,                                                             \
                .scaled = true,                                                                    \
                .first_dense = true,                                                               \
                .methods = true,                                                                   \
                __VA_ARGS__}

#define GELU_TANH                                                                                  \
    .acts = {{"gelu_pytorch_tanh", ACT_GELU_TANH}, {"gelu", ACT_GELU_TANH}}, .gated = true
#define GEMMA                                                                                      \
    .map = TENSORS_GEMMA, .aliases = gemma_names, .neutrals = gemma_neutrals, GELU_TANH,           \
    .attention_bias = BIAS_QKVO, .norms = NORMS_AROUND, .embed_root = true, .tied_absent = true,   \
    .head_dim_absent = 256, .kv_heads_absent = 4, .window_absent = 4096
#define SILU .acts = {{"silu", ACT_SILU}}, .gated = true
#define GELU .acts = {{"gelu", ACT_GELU}}

#define QWEN_EXPERTS(...)                                                                          \
    .map = TENSORS_EXPERTS, .experts = {.count = "num_experts",                                    \
                                        .width = "moe_intermediate_size",                          \
                                        .may_normalise = true,                                     \
                                        .some_layers = true,                                       \
                                        __VA_ARGS__}

/* BERT's layer, which those after it share. */
#define BERT_LAYER                                                                                 \
    .neutrals = bert_neutrals, GELU, .encoder = true, .norms = NORMS_OF_SUMS, .norm_bias = true,   \
    .all_biases = true, .learned_positions = true, .token_types_absent = 2

/* dense, tanh, out: of the first row. */
#define BERT_SCORE                                                                                 \
    .score = {                                                                                     \
        .dense = true, .dense_bias = true, .out_bias = true, .act = ACT_TANH, .pooling = POOL_CLS}

/* OLMo 2's layer: norms behind each half, q and k normed as whole rows. */
#define OLMO_LAYER                                                                                 \
    .map = TENSORS_BEHIND, SILU, .norms = NORMS_BEHIND, .qk_norm = QK_NORM_ROW, .eps_absent = 1e-5

/* Command-R's layer: one norm, attention and feed-forward beside each other. */
#define COHERE_LAYER                                                                               \
    .aliases = cohere_names, .neutrals = cohere_neutrals, .numbers = cohere_numbers, SILU,         \
    .norms = NORMS_ONE, .norm = NORM_LAYER, .rope_pairs = true, .tied_absent = true,               \
    .eps_absent = 1e-5

static const struct family families[] = {
    {.name = "llama",
     .architectures = {{"LlamaForCausalLM", MODEL_HEAD_LM}, {"LlamaModel", MODEL_HEAD_NONE}},
     SILU,
     .attention_bias = BIAS_QKVO,
     .mlp_bias = true},
    {.name = "mistral",
     .architectures = {{"MistralForCausalLM", MODEL_HEAD_LM}, {"MistralModel", MODEL_HEAD_NONE}},
     SILU,
     .window_always = true,
     .kv_heads_absent = 8,
     .window_absent = 4096},
    {.name = "qwen2",
     .architectures = {{"Qwen2ForCausalLM", MODEL_HEAD_LM}, {"Qwen2Model", MODEL_HEAD_NONE}},
     SILU,
     .qkv_bias = true,
     .window_switch = true,
     .kv_heads_absent = 32,
     .window_absent = 4096},
    {.name = "mixtral",
     .architectures = {{"MixtralForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_MIXTRAL,
     SILU,
     .window_always = true,
     .kv_heads_absent = 8,
     .theta_absent = 1e6,
     .eps_absent = 1e-5,
     .experts = {.count = "num_local_experts", .width = "intermediate_size", .normalise = true}},
    {.name = "qwen2_moe",
     .architectures = {{"Qwen2MoeForCausalLM", MODEL_HEAD_LM}},
     SILU,
     .qkv_bias = true,
     .window_switch = true,
     .kv_heads_absent = 16,
     .window_absent = 4096,
     QWEN_EXPERTS(.shared = "shared_expert_intermediate_size", .shared_gate = true)},
    {.name = "qwen3_moe",
     .architectures = {{"Qwen3MoeForCausalLM", MODEL_HEAD_LM}},
     SILU,
     .attention_bias = BIAS_QKVO,
     .qk_norm = QK_NORM_HEAD,
     .window_switch = true,
     .kv_heads_absent = 4,
     .window_absent = 4096,
     QWEN_EXPERTS(.shared = NULL)},
    {.name = "olmoe",
     .architectures = {{"OlmoeForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_EXPERTS,
     .neutrals = olmoe_neutrals,
     SILU,
     .attention_bias = BIAS_QKVO,
     .qk_norm = QK_NORM_ROW,
     .eps_absent = 1e-5,
     .experts = {.count = "num_experts", .width = "intermediate_size", .may_normalise = true}},
    {.name = "qwen3",
     .architectures = {{"Qwen3ForCausalLM", MODEL_HEAD_LM}, {"Qwen3Model", MODEL_HEAD_NONE}},
     SILU,
     .attention_bias = BIAS_QKVO,
     .qk_norm = QK_NORM_HEAD,
     .window_switch = true,
     .kv_heads_absent = 32,
     .head_dim_absent = 128,
     .window_absent = 4096},
    {.name = "phi3",
     .architectures = {{"Phi3ForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_PHI3,
     SILU,
     .window_always = true,
     .longrope = true,
     .partial_absent = 1,
     .eps_absent = 1e-5},
    {.name = "gemma2",
     .architectures = {{"Gemma2ForCausalLM", MODEL_HEAD_LM}, {"Gemma2Model", MODEL_HEAD_NONE}},
     GEMMA,
     .numbers = gemma2_numbers,
     .window_period = 2},
    {.name = "gemma3_text",
     .architectures = {{"Gemma3ForCausalLM", MODEL_HEAD_LM}},
     GEMMA,
     .numbers = gemma3_numbers,
     .qk_norm = QK_NORM_HEAD,
     .window_period = 6,
     .window_rope = WINDOW_ROPE_LOCAL,
     .heads_absent = 8,
     .vocab_absent = 262208,
     .context_absent = 131072,
     .theta_absent = 1e6},
    {.name = "granite",
     .architectures = {{"GraniteForCausalLM", MODEL_HEAD_LM}},
     .numbers = granite_numbers,
     SILU,
     .attention_bias = BIAS_QKVO,
     .mlp_bias = true},
    {.name = "granitemoe",
     .architectures = {{"GraniteMoeForCausalLM", MODEL_HEAD_LM}},
     .attention_bias = BIAS_QKVO,
     GRANITE_EXPERTS(.shared = NULL)},
    {.name = "granitemoeshared",
     .architectures = {{"GraniteMoeSharedForCausalLM", MODEL_HEAD_LM}},
     .attention_bias = BIAS_QKVO,
     GRANITE_EXPERTS(.shared = "shared_intermediate_size")},
    {.name = "granitemoehybrid",
     .architectures = {{"GraniteMoeHybridForCausalLM", MODEL_HEAD_LM}},
     .aliases = granite4_names,
     .position_type = true,
     GRANITE_EXPERTS(.optional = true, .shared = "shared_intermediate_size")},
    {.name = "gpt_oss",
     .architectures = {{"GptOssForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_GPT_OSS,
     .aliases = gpt_oss_names,
     .numbers = gpt_oss_numbers,
     .acts = {{"silu", ACT_SILU_CLAMPED}},
     .gated = true,
     .qkv_bias = true,
     .o_bias = true,
     .attention_bias = BIAS_QKVO,
     .window_period = 2,
     .sinks = true,
     .kv_heads_absent = 8,
     .head_dim_absent = 64,
     .window_absent = 128,
     .theta_absent = 150000,
     .eps_absent = 1e-5,
     .experts = {.count = "num_local_experts",
                 .width = "intermediate_size",
                 .normalise = true,
                 .bias = true}},
    {.name = "smollm3",
     .architectures = {{"SmolLM3ForCausalLM", MODEL_HEAD_LM}},
     .neutrals = smollm3_neutrals,
     SILU,
     .attention_bias = BIAS_QKVO,
     .mlp_bias = true,
     .tied_absent = true,
     .still = STILL_LISTED,
     .kv_heads_absent = 4,
     .theta_absent = 2e6},
    {.name = "olmo2", .architectures = {{"Olmo2ForCausalLM", MODEL_HEAD_LM}}, OLMO_LAYER},
    {.name = "olmo3",
     .architectures = {{"Olmo3ForCausalLM", MODEL_HEAD_LM}},
     OLMO_LAYER,
     .window_period = 4,
     .window_absent = 4096,
     .window_rope = WINDOW_ROPE_PLAIN},
    {.name = "glm4",
     .architectures = {{"Glm4ForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_GLM4,
     SILU,
     .attention_bias = BIAS_QKV,
     .norms = NORMS_AROUND,
     .rope_pairs = true,
     .kv_heads_absent = 2,
     .head_dim_absent = 128,
     .partial_absent = 0.5,
     .eps_absent = 1.5625e-7},
    {.name = "glm4_moe",
     .architectures = {{"Glm4MoeForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_GLM4_MOE,
     SILU,
     .attention_bias = BIAS_QKV,
     .qk_norm = QK_NORM_HEAD,
     .use_qk_norm = true,
     .guess_layers = true,
     .kv_heads_absent = 8,
     .partial_absent = 0.5,
     .eps_absent = 1e-5,
     .experts = {.count = "n_routed_experts",
                 .width = "moe_intermediate_size",
                 .shared_count = "n_shared_experts",
                 .may_normalise = true,
                 .normalise = true,
                 .sigmoid = true,
                 .choice_bias = true,
                 .grouped = true,
                 .scaled = true,
                 .first_dense = true}},
    {.name = "deepseek_v2",
     .architectures = {{"DeepseekV2ForCausalLM", MODEL_HEAD_LM}},
     DEEPSEEK(.optional = true)},
    {.name = "deepseek_v3",
     .architectures = {{"DeepseekV3ForCausalLM", MODEL_HEAD_LM}},
     .guess_layers = true,
     DEEPSEEK(.normalise = true, .sigmoid = true, .choice_bias = true)},
    {.name = "llama4_text",
     .architectures = {{"Llama4ForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_LLAMA4,
     .aliases = llama4_names,
     SILU,
     .attention_bias = BIAS_QKVO,
     .qk_norm = QK_NORM_TURNED,
     .use_qk_norm = true,
     .qk_norm_absent = true,
     .rope_pairs = true,
     .still = STILL_LISTED,
     .chunk_absent = 8192,
     .temperature = true,
     .heads_absent = 40,
     .kv_heads_absent = 8,
     .head_dim_absent = 128,
     .vocab_absent = 202048,
     .context_absent = 131072,
     .theta_absent = 500000,
     .eps_absent = 1e-5,
     .experts = {.count = "num_local_experts",
                 .width = "intermediate_size",
                 .shared_alike = true,
                 .sigmoid = true,
                 .on_input = true,
                 .interleaved = true}},
    {.name = "cohere",
     .architectures = {{"CohereForCausalLM", MODEL_HEAD_LM}},
     COHERE_LAYER,
     .qk_norm = QK_NORM_HEADS,
     .use_qk_norm = true},
    {.name = "cohere2",
     .architectures = {{"Cohere2ForCausalLM", MODEL_HEAD_LM}},
     COHERE_LAYER,
     .window_period = 4,
     .window_must = true,
     .window_absent = 4096,
     .still = STILL_WITHOUT_WINDOW},
    {.name = "internlm2",
     .architectures = {{"InternLM2ForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_INTERNLM2,
     .aliases = internlm2_names,
     SILU,
     .attention_bias = BIAS_QKVO},
    {.name = "exaone",
     .architectures = {{"ExaoneForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_EXAONE,
     .aliases = exaone_names,
     SILU,
     .eps_absent = 1e-5},
    {.name = "exaone4",
     .architectures = {{"Exaone4ForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_BEHIND,
     SILU,
     .norms = NORMS_BEHIND,
     .qk_norm = QK_NORM_HEAD,
     .window_period = 4,
     .window_absent = 4096,
     .still = STILL_WITHOUT_WINDOW,
     .kv_heads_absent = 32,
     .eps_absent = 1e-5},
    {.name = "baichuan",
     .architectures = {{"BaichuanForCausalLM", MODEL_HEAD_LM},
                       {"BaiChuanForCausalLM", MODEL_HEAD_LM}},
     .map = TENSORS_BAICHUAN,
     .aliases = baichuan_names,
     SILU,
     .unit_head_vocab = 125696,
     .alibi_layers = 40},
    {.name = "bert",
     .architectures = {{"BertModel", MODEL_HEAD_NONE},
                       {"BertForMaskedLM", MODEL_HEAD_NONE},
                       {"BertForSequenceClassification", MODEL_HEAD_SCORE}},
     .map = TENSORS_BERT,
     BERT_LAYER,
     .eps_absent = 1e-12,
     BERT_SCORE},
    {.name = "roberta",
     .architectures = {{"RobertaModel", MODEL_HEAD_NONE},
                       {"RobertaForMaskedLM", MODEL_HEAD_NONE},
                       {"RobertaForSequenceClassification", MODEL_HEAD_SCORE}},
     .map = TENSORS_ROBERTA,
     BERT_LAYER,
     .positions_from_pad = true,
     .eps_absent = 1e-12,
     BERT_SCORE},
    {.name = "xlm-roberta",
     .architectures = {{"XLMRobertaModel", MODEL_HEAD_NONE},
                       {"XLMRobertaForMaskedLM", MODEL_HEAD_NONE},
                       {"XLMRobertaForSequenceClassification", MODEL_HEAD_SCORE}},
     .map = TENSORS_ROBERTA,
     BERT_LAYER,
     .positions_from_pad = true,
     .eps_absent = 1e-12,
     BERT_SCORE},
    {.name = "nomic_bert",
     .architectures = {{"NomicBertModel", MODEL_HEAD_NONE}},
     .map = TENSORS_NOMIC,
     .aliases = nomic_names,
     .neutrals = nomic_neutrals,
     .acts = {{"swiglu", ACT_SILU}, {"silu", ACT_SILU}},
     .gated = true,
     .encoder = true,
     .norms = NORMS_OF_SUMS,
     .norm_bias = true,
     .token_types_absent = 2,
     .dynamic_rope = true,
     .eps_absent = 1e-12},
    {.name = "modernbert",
     .architectures = {{"ModernBertModel", MODEL_HEAD_NONE},
                       {"ModernBertForMaskedLM", MODEL_HEAD_NONE},
                       {"ModernBertForSequenceClassification", MODEL_HEAD_SCORE}},
     .map = TENSORS_MODERN,
     .aliases = modern_names,
     .neutrals = modern_neutrals,
     .acts = {{"gelu", ACT_GELU}, {"silu", ACT_SILU}},
     .gated = true,
     .encoder = true,
     .embed_norm = true,
     .alternating_window = true,
     .eps_absent = 1e-5,
     .score =
         {.dense = true, .norm = true, .out_bias = true, .act = ACT_GELU, .pooling = POOL_CLS}},
};
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static const struct family_wrapper wrappers[] = {
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", "gemma3_text"},
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text", "llama4_text"},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral", "mistral"},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text", "qwen2"},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", "qwen2"},
};

static const char delta_net[] =
    "layers of linear attention (gated delta net), whose recurrent state "
    "no cache holds yet";
static const char state_space[] =
    "state-space layers (Mamba), whose recurrent state no cache holds yet";
static const struct {
    const char *name, *lacks; /* a name's beginning */
} lacking[] = {
    {"qwen3_next", delta_net},  {"qwen3next", delta_net},      {"qwen3_5", delta_net},
    {"qwen35", delta_net},      {"kimi_linear", delta_net},    {"kimi-linear", delta_net},
    {"mamba", state_space},     {"falcon_mamba", state_space}, {"falcon_h1", state_space},
    {"falcon-h1", state_space}, {"jamba", state_space},        {"bamba", state_space},
    {"zamba", state_space},     {"nemotron_h", state_space},   {"granitehybrid", state_space},
    {"plamo2", state_space},
};

const char *family_lacks(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        const size_t len = strlen(lacking[i].name);
        if (n >= len && memcmp(name, lacking[i].name, len) == 0) return lacking[i].lacks;
    }
    return NULL;
}

const char *family_nearest(const char *name) {
    const size_t n = strlen(name), n_wrappers = sizeof(wrappers) / sizeof(wrappers[0]);
    const char *best = "";
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < N_FAMILIES + n_wrappers; i++) {
        const char *s = i < N_FAMILIES ? families[i].name : wrappers[i - N_FAMILIES].name;
        const size_t d = near_distance(name, n, s, strlen(s));
        if (d >= least) continue;
        least = d;
        best = s;
    }
    return best;
}

const struct family_wrapper *family_wrapper_find(const char *name) {
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
        if (strcmp(wrappers[i].name, name) == 0) return &wrappers[i];
    return NULL;
}

const struct family *family_find(const char *name) {
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}
