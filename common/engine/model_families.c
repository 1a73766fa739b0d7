/* model_families: see model_families.h. */
#include "common/engine/model_families.h"

#include <math.h>
#include <string.h>

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

#define SILU .acts = {{"silu", ACT_SILU}}, .gated = true
#define GELU .acts = {{"gelu", ACT_GELU}}

/* BERT's layer, which those after it share. */
#define BERT_LAYER                                                                                 \
    .neutrals = bert_neutrals, GELU, .encoder = true, .post_norm = true, .norm_bias = true,        \
    .all_biases = true, .learned_positions = true, .token_types_absent = 2

/* dense, tanh, out: of the first row. */
#define BERT_SCORE                                                                                 \
    .score = {                                                                                     \
        .dense = true, .dense_bias = true, .out_bias = true, .act = ACT_TANH, .pooling = POOL_CLS}

static const struct family families[] = {
    {.name = "llama",
     .architectures = {{"LlamaForCausalLM", MODEL_HEAD_LM}, {"LlamaModel", MODEL_HEAD_NONE}},
     SILU,
     .attention_bias_qkvo = true,
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
    {.name = "qwen3",
     .architectures = {{"Qwen3ForCausalLM", MODEL_HEAD_LM}, {"Qwen3Model", MODEL_HEAD_NONE}},
     SILU,
     .attention_bias_qkvo = true,
     .qk_norm = true,
     .window_switch = true,
     .kv_heads_absent = 32,
     .head_dim_absent = 128,
     .window_absent = 4096},
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
     .post_norm = true,
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

const struct family *family_at(int idx) {
    return idx < N_FAMILIES ? &families[idx] : NULL;
}

const struct family *family_find(const char *name) {
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}
