/* tensor_map: see tensor_map.h. Source: published checkpoints, their reference code, and the
 * writers of llama.cpp (gguf-py/gguf/tensor_mapping.py). */
#include "common/engine/tensor_map.h"

#include "common/engine/weights.h"

#define LAYER(field)   IN_LAYER, offsetof(struct layer_weights, field)
#define MODEL(field)   IN_MODEL, offsetof(struct weights, field)
#define NORM(i, field) IN_NORMS, (size_t)(i) * sizeof(struct norm) + offsetof(struct norm, field)
#define FIRST(field)   IN_FIRST_NORM, offsetof(struct norm, field)
#define LAST(field)    IN_LAST_NORM, offsetof(struct norm, field)
#define BRANCH(i, field)                                                                           \
    IN_BRANCHES, (size_t)(i) * sizeof(struct norm) + offsetof(struct norm, field)
#define MATRIX(name, gguf, at, n, k)                                                               \
    {                                                                                              \
        name ".weight", gguf ".weight", at, true, false, n, k, NO_ROWS, ALWAYS, IN_ORDER,          \
            AS_IT_IS, false, false                                                                 \
    }
#define ROWS(name, gguf, at, n, k, from)                                                           \
    {                                                                                              \
        name ".weight", gguf ".weight", at, true, false, n, k, from, ALWAYS, IN_ORDER, AS_IT_IS,   \
            false, false                                                                           \
    }
#define GROUPED(name, at, n, from, order)                                                          \
    {                                                                                              \
        name ".weight", NULL, at, true, false, n, HIDDEN, from, ALWAYS, order, AS_IT_IS, false,    \
            false                                                                                  \
    }
#define GROUPED_BIAS(name, at, n, from, order)                                                     \
    { name ".bias", NULL, at, false, false, n, ONE, from, QKV_BIAS, order, AS_IT_IS, false, false }
#define TABLE(name, gguf, at, n, when)                                                             \
    {                                                                                              \
        name ".weight", gguf ".weight", at, true, true, n, HIDDEN, NO_ROWS, when, IN_ORDER,        \
            AS_IT_IS, false, false                                                                 \
    }
#define VECTOR(name, gguf, at, n, when)                                                            \
    { name, gguf, at, false, false, n, ONE, NO_ROWS, when, IN_ORDER, AS_IT_IS, false, false }
/* A norm's weight; change: PLUS_ONE or AS_IT_IS. */
#define WEIGHT(name, gguf, at, n, when, change)                                                    \
    {                                                                                              \
        name ".weight", gguf ".weight", at, false, false, n, ONE, NO_ROWS, when, IN_ORDER, change, \
            false, false                                                                           \
    }
#define HEAD(name, at, n, when)                                                                    \
    { "/" name, NULL, at, true, true, n, HIDDEN, NO_ROWS, when, IN_ORDER, AS_IT_IS, false, false }
#define HEAD_VECTOR(name, at, n, when)                                                             \
    { "/" name, NULL, at, false, false, n, ONE, NO_ROWS, when, IN_ORDER, AS_IT_IS, false, false }
/* Weight and bias. */
#define LINEAR(name, gguf, field, n, k, when)                                                      \
    MATRIX(name, gguf, LAYER(field), n, k),                                                        \
        VECTOR(name ".bias", gguf ".bias", LAYER(field##_bias), n, when)
#define LAYER_NORM(name, gguf, at)                                                                 \
    VECTOR(name ".weight", gguf ".weight", at(weight), HIDDEN, ALWAYS),                            \
        VECTOR(name ".bias", gguf ".bias", at(bias), HIDDEN, NORM_BIAS)
#define AT_MLP(field)   NORM(1, field)
#define AT_NEXT(field)  NORM(2, field)
#define AT_FIRST(field) FIRST(field)

#define EMBED(name) MATRIX(name, "token_embd", MODEL(embed), VOCAB, HIDDEN)
#define LM_HEAD(name, change)                                                                      \
    {                                                                                              \
        "/" name ".weight", "output.weight", MODEL(head), true, false, VOCAB, HIDDEN, NO_ROWS,     \
            UNTIED, IN_ORDER, change, false, false                                                 \
    }
/* q, k and v as rows of one tensor. */
#define QKV(name, gguf)                                                                            \
    ROWS(name, gguf, LAYER(q), Q_DIM, HIDDEN, NO_ROWS),                                            \
        ROWS(name, gguf, LAYER(k), KV_DIM, HIDDEN, Q_DIM),                                         \
        ROWS(name, gguf, LAYER(v), KV_DIM, HIDDEN, QK_DIM)
/* What is activated, then what it is multiplied with, as rows of one tensor. */
#define GATE_UP(name, gguf)                                                                        \
    ROWS(name, gguf, LAYER(gate), INTER, HIDDEN, NO_ROWS),                                         \
        ROWS(name, gguf, LAYER(up), INTER, HIDDEN, INTER)
#define ATTENTION                                                                                  \
    LINEAR("self_attn.q_proj", "attn_q", q, Q_DIM, HIDDEN, QKV_BIAS),                              \
        LINEAR("self_attn.k_proj", "attn_k", k, KV_DIM, HIDDEN, QKV_BIAS),                         \
        LINEAR("self_attn.v_proj", "attn_v", v, KV_DIM, HIDDEN, QKV_BIAS),                         \
        LINEAR("self_attn.o_proj", "attn_output", o, HIDDEN, Q_DIM, O_BIAS)
#define QK_NORMS(change)                                                                           \
    WEIGHT("self_attn.q_norm", "attn_q_norm", LAYER(q_norm), Q_NORM, QK_NORM, change),             \
        WEIGHT("self_attn.k_norm", "attn_k_norm", LAYER(k_norm), K_NORM, QK_NORM, change)
#define MLP                                                                                        \
    LINEAR("mlp.gate_proj", "ffn_gate", gate, INTER, HIDDEN, MLP_BIAS),                            \
        LINEAR("mlp.up_proj", "ffn_up", up, INTER, HIDDEN, MLP_BIAS),                              \
        LINEAR("mlp.down_proj", "ffn_down", down, HIDDEN, INTER, MLP_BIAS)
#define FINAL_NORM(change) WEIGHT("norm", "output_norm", LAST(weight), HIDDEN, ALWAYS, change)
#define FIRST_HALF_NORM(change)                                                                    \
    WEIGHT("input_layernorm", "attn_norm", NORM(0, weight), HIDDEN, ALWAYS, change)
#define SECOND_HALF_NORM(name, when, change)                                                       \
    WEIGHT(name, "ffn_norm", NORM(1, weight), HIDDEN, when, change)
#define BRANCH_NORMS(first, second, change)                                                        \
    WEIGHT(first, "post_attention_norm", BRANCH(0, weight), HIDDEN, ALWAYS, change),               \
        WEIGHT(second, "post_ffw_norm", BRANCH(1, weight), HIDDEN, ALWAYS, change)

static const struct tensor_row llama_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    QK_NORMS(AS_IT_IS),
    SECOND_HALF_NORM("post_attention_layernorm", TWO_NORMS, AS_IT_IS),
    MLP,
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", UNIT_ROWS),
};

#define PART(name, gguf, at, n, k, when)                                                           \
    {                                                                                              \
        name ".weight", gguf ".weight", at, true, false, n, k, NO_ROWS, when, IN_ORDER, AS_IT_IS,  \
            false, false                                                                           \
    }
#define EXPERT(field) IN_EXPERTS, offsetof(struct expert_weights, field)
/* Rows of a matrix, or values, of each expert in one tensor for all. */
#define STACK(name, gguf, field, n, k, from, order, turned)                                        \
    {                                                                                              \
        name, gguf ".weight", EXPERT(field), true, false, n, k, from, MIXED_LAYER, order,          \
            AS_IT_IS, true, turned                                                                 \
    }
#define STACK_BIAS(name, gguf, field, n, from, order)                                              \
    {                                                                                              \
        name, gguf ".bias", EXPERT(field), false, false, n, ONE, from, EXPERT_BIAS, order,         \
            AS_IT_IS, true, false                                                                  \
    }
/* Rows of a tensor that is cut in GGUF. */
#define CUT(name, gguf, at, n, k, from, when)                                                      \
    {                                                                                              \
        name ".weight", gguf ".weight", at, true, false, n, k, from, when, IN_ORDER, AS_IT_IS,     \
            true, false                                                                            \
    }
#define EXPERTS(at, gate_name, up_name, down_name)                                                 \
    PART(at "%d." gate_name, "ffn_gate_exps", EXPERT(gate), EXPERT_INTER, HIDDEN, MIXED_LAYER),    \
        PART(at "%d." up_name, "ffn_up_exps", EXPERT(up), EXPERT_INTER, HIDDEN, MIXED_LAYER),      \
        PART(at "%d." down_name, "ffn_down_exps", EXPERT(down), HIDDEN, EXPERT_INTER, MIXED_LAYER)
/* The same as newer tools write them. */
#define STACKED_EXPERTS                                                                            \
    STACK("mlp.experts.gate_up_proj", "", gate, EXPERT_INTER, HIDDEN, NO_ROWS, IN_ORDER, false),   \
        STACK("mlp.experts.gate_up_proj", "", up, EXPERT_INTER, HIDDEN, EXPERT_INTER, IN_ORDER,    \
              false),                                                                              \
        STACK("mlp.experts.down_proj", "", down, HIDDEN, EXPERT_INTER, NO_ROWS, IN_ORDER, false)
/* In f32: what is chosen must not depend on the weights' type. */
#define ROUTER(name) TABLE(name, "ffn_gate_inp", LAYER(router), N_EXPERTS, MIXED_LAYER)

static const struct tensor_row mixtral_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    ROUTER("block_sparse_moe.gate"),
    EXPERTS("block_sparse_moe.experts.", "w1", "w3", "w2"),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row expert_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    QK_NORMS(AS_IT_IS),
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    PART("mlp.gate_proj", "ffn_gate", LAYER(gate), INTER, HIDDEN, DENSE_LAYER),
    PART("mlp.up_proj", "ffn_up", LAYER(up), INTER, HIDDEN, DENSE_LAYER),
    PART("mlp.down_proj", "ffn_down", LAYER(down), HIDDEN, INTER, DENSE_LAYER),
    ROUTER("mlp.gate"),
    EXPERTS("mlp.experts.", "gate_proj", "up_proj", "down_proj"),
    STACKED_EXPERTS,
    PART("mlp.shared_expert.gate_proj", "ffn_gate_shexp", LAYER(gate), SHARED_INTER, HIDDEN,
         SHARED_EXPERT),
    PART("mlp.shared_expert.up_proj", "ffn_up_shexp", LAYER(up), SHARED_INTER, HIDDEN,
         SHARED_EXPERT),
    PART("mlp.shared_expert.down_proj", "ffn_down_shexp", LAYER(down), HIDDEN, SHARED_INTER,
         SHARED_EXPERT),
    TABLE("mlp.shared_expert_gate", "ffn_gate_inp_shexp", LAYER(shared_gate), ONE, SHARED_GATE),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row llama4_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    PART("feed_forward.gate_proj", "ffn_gate", LAYER(gate), INTER, HIDDEN, DENSE_LAYER),
    PART("feed_forward.up_proj", "ffn_up", LAYER(up), INTER, HIDDEN, DENSE_LAYER),
    PART("feed_forward.down_proj", "ffn_down", LAYER(down), HIDDEN, INTER, DENSE_LAYER),
    ROUTER("feed_forward.router"),
    EXPERTS("feed_forward.experts.", "gate_proj", "up_proj", "down_proj"),
    STACK("feed_forward.experts.gate_up_proj", "", gate, EXPERT_INTER, HIDDEN, NO_ROWS, IN_ORDER,
          true),
    STACK("feed_forward.experts.gate_up_proj", "", up, EXPERT_INTER, HIDDEN, EXPERT_INTER, IN_ORDER,
          true),
    STACK("feed_forward.experts.down_proj", "", down, HIDDEN, EXPERT_INTER, NO_ROWS, IN_ORDER,
          true),
    PART("feed_forward.shared_expert.gate_proj", "ffn_gate_shexp", LAYER(gate), SHARED_INTER,
         HIDDEN, SHARED_EXPERT),
    PART("feed_forward.shared_expert.up_proj", "ffn_up_shexp", LAYER(up), SHARED_INTER, HIDDEN,
         SHARED_EXPERT),
    PART("feed_forward.shared_expert.down_proj", "ffn_down_shexp", LAYER(down), HIDDEN,
         SHARED_INTER, SHARED_EXPERT),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row phi3_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    QKV("self_attn.qkv_proj", "attn_qkv"),
    MATRIX("self_attn.o_proj", "attn_output", LAYER(o), HIDDEN, Q_DIM),
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    GATE_UP("mlp.gate_up_proj", "ffn_up"),
    MATRIX("mlp.down_proj", "ffn_down", LAYER(down), HIDDEN, INTER),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row gemma_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(PLUS_ONE),
    ATTENTION,
    QK_NORMS(PLUS_ONE),
    BRANCH_NORMS("post_attention_layernorm", "post_feedforward_layernorm", PLUS_ONE),
    SECOND_HALF_NORM("pre_feedforward_layernorm", ALWAYS, PLUS_ONE),
    MLP,
    FINAL_NORM(PLUS_ONE),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row behind_rows[] = {
    EMBED("embed_tokens"),
    ATTENTION,
    QK_NORMS(AS_IT_IS),
    BRANCH_NORMS("post_attention_layernorm", "post_feedforward_layernorm", AS_IT_IS),
    MLP,
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row glm4_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    BRANCH_NORMS("post_self_attn_layernorm", "post_mlp_layernorm", AS_IT_IS),
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    GATE_UP("mlp.gate_up_proj", "ffn_up"),
    MATRIX("mlp.down_proj", "ffn_down", LAYER(down), HIDDEN, INTER),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row granite4_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    CUT("shared_mlp.input_linear", "ffn_gate", LAYER(gate), INTER, HIDDEN, NO_ROWS, DENSE_LAYER),
    CUT("shared_mlp.input_linear", "ffn_up", LAYER(up), INTER, HIDDEN, INTER, DENSE_LAYER),
    PART("shared_mlp.output_linear", "ffn_down", LAYER(down), HIDDEN, INTER, DENSE_LAYER),
    ROUTER("block_sparse_moe.router.layer"),
    STACK("block_sparse_moe.input_linear.weight", "ffn_gate_exps", gate, EXPERT_INTER, HIDDEN,
          NO_ROWS, IN_ORDER, false),
    STACK("block_sparse_moe.input_linear.weight", "ffn_up_exps", up, EXPERT_INTER, HIDDEN,
          EXPERT_INTER, IN_ORDER, false),
    STACK("block_sparse_moe.output_linear.weight", "ffn_down_exps", down, HIDDEN, EXPERT_INTER,
          NO_ROWS, IN_ORDER, false),
    CUT("shared_mlp.input_linear", "ffn_gate_shexp", LAYER(gate), SHARED_INTER, HIDDEN, NO_ROWS,
        SHARED_EXPERT),
    CUT("shared_mlp.input_linear", "ffn_up_shexp", LAYER(up), SHARED_INTER, HIDDEN, SHARED_INTER,
        SHARED_EXPERT),
    PART("shared_mlp.output_linear", "ffn_down_shexp", LAYER(down), HIDDEN, SHARED_INTER,
         SHARED_EXPERT),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

static const struct tensor_row glm4_moe_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    QK_NORMS(AS_IT_IS),
    WEIGHT("post_attention_layernorm", "post_attention_norm", NORM(1, weight), HIDDEN, ALWAYS,
           AS_IT_IS),
    PART("mlp.gate_proj", "ffn_gate", LAYER(gate), INTER, HIDDEN, DENSE_LAYER),
    PART("mlp.up_proj", "ffn_up", LAYER(up), INTER, HIDDEN, DENSE_LAYER),
    PART("mlp.down_proj", "ffn_down", LAYER(down), HIDDEN, INTER, DENSE_LAYER),
    ROUTER("mlp.gate"),
    VECTOR("mlp.gate.e_score_correction_bias", "exp_probs_b.bias", LAYER(choice_bias), N_EXPERTS,
           CHOICE_BIAS),
    EXPERTS("mlp.experts.", "gate_proj", "up_proj", "down_proj"),
    STACKED_EXPERTS,
    PART("mlp.shared_experts.gate_proj", "ffn_gate_shexp", LAYER(gate), SHARED_INTER, HIDDEN,
         SHARED_EXPERT),
    PART("mlp.shared_experts.up_proj", "ffn_up_shexp", LAYER(up), SHARED_INTER, HIDDEN,
         SHARED_EXPERT),
    PART("mlp.shared_experts.down_proj", "ffn_down_shexp", LAYER(down), HIDDEN, SHARED_INTER,
         SHARED_EXPERT),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

#define BY_HEADS(name, gguf, field, n, k, order)                                                   \
    {                                                                                              \
        name ".weight", gguf ".weight", LAYER(field), true, false, n, k, NO_ROWS, ALWAYS, order,   \
            AS_IT_IS, false, false                                                                 \
    }
#define LATENT_ROWS(...)                                                                           \
    EMBED("embed_tokens"), FIRST_HALF_NORM(AS_IT_IS),                                              \
        PART("self_attn.q_proj", "attn_q", LAYER(q), LATENT_Q, HIDDEN, Q_AT_ONCE),                 \
        PART("self_attn.q_a_proj", "attn_q_a", LAYER(q_down), LATENT_Q_RANK, HIDDEN, Q_IN_TWO),    \
        WEIGHT("self_attn.q_a_layernorm", "attn_q_a_norm", LAYER(q_norm), LATENT_Q_RANK, Q_IN_TWO, \
               AS_IT_IS),                                                                          \
        PART("self_attn.q_b_proj", "attn_q_b", LAYER(q), LATENT_Q, LATENT_Q_RANK, Q_IN_TWO),       \
        MATRIX("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", LAYER(k), KV_DIM, HIDDEN),         \
        WEIGHT("self_attn.kv_a_layernorm", "attn_kv_a_norm", LAYER(k_norm), LATENT_RANK, ALWAYS,   \
               AS_IT_IS),                                                                          \
        __VA_ARGS__, MATRIX("self_attn.o_proj", "attn_output", LAYER(o), HIDDEN, LATENT_VALUES),   \
        SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),                            \
        PART("mlp.gate_proj", "ffn_gate", LAYER(gate), INTER, HIDDEN, DENSE_LAYER),                \
        PART("mlp.up_proj", "ffn_up", LAYER(up), INTER, HIDDEN, DENSE_LAYER),                      \
        PART("mlp.down_proj", "ffn_down", LAYER(down), HIDDEN, INTER, DENSE_LAYER),                \
        ROUTER("mlp.gate"),                                                                        \
        VECTOR("mlp.gate.e_score_correction_bias", "exp_probs_b.bias", LAYER(choice_bias),         \
               N_EXPERTS, CHOICE_BIAS),                                                            \
        EXPERTS("mlp.experts.", "gate_proj", "up_proj", "down_proj"), STACKED_EXPERTS,             \
        PART("mlp.shared_experts.gate_proj", "ffn_gate_shexp", LAYER(gate), SHARED_INTER, HIDDEN,  \
             SHARED_EXPERT),                                                                       \
        PART("mlp.shared_experts.up_proj", "ffn_up_shexp", LAYER(up), SHARED_INTER, HIDDEN,        \
             SHARED_EXPERT),                                                                       \
        PART("mlp.shared_experts.down_proj", "ffn_down_shexp", LAYER(down), HIDDEN, SHARED_INTER,  \
             SHARED_EXPERT),                                                                       \
        FINAL_NORM(AS_IT_IS), LM_HEAD("lm_head", AS_IT_IS)

static const struct tensor_row latent_rows[] = {
    LATENT_ROWS(
        BY_HEADS("self_attn.kv_b_proj", "attn_kv_b", k_up, LATENT_KEYS, LATENT_STILL, KEY_COLUMNS),
        BY_HEADS("self_attn.kv_b_proj", "attn_kv_b", v_up, LATENT_VALUES, LATENT_RANK, VALUE_ROWS)),
};

static const struct tensor_row latent_split_rows[] = {
    LATENT_ROWS(BY_HEADS("self_attn.k_b", "attn_k_b", k_up, LATENT_KEYS, LATENT_STILL, HEADS),
                BY_HEADS("self_attn.v_b", "attn_v_b", v_up, LATENT_VALUES, LATENT_RANK, HEADS)),
};

static const struct tensor_row gpt_oss_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    ATTENTION,
    VECTOR("self_attn.sinks", "attn_sinks.weight", LAYER(sinks), N_HEADS, SINKS),
    WEIGHT("post_attention_layernorm", "post_attention_norm", NORM(1, weight), HIDDEN, ALWAYS,
           AS_IT_IS),
    ROUTER("mlp.router"),
    VECTOR("mlp.router.bias", "ffn_gate_inp.bias", LAYER(router_bias), N_EXPERTS, EXPERT_BIAS),
    STACK("mlp.experts.gate_up_proj", "ffn_gate_exps", gate, EXPERT_INTER, HIDDEN, NO_ROWS,
          FIRST_OF_TWO, true),
    STACK("mlp.experts.gate_up_proj", "ffn_up_exps", up, EXPERT_INTER, HIDDEN, EXPERT_INTER,
          SECOND_OF_TWO, true),
    STACK("mlp.experts.down_proj", "ffn_down_exps", down, HIDDEN, EXPERT_INTER, NO_ROWS, IN_ORDER,
          true),
    STACK_BIAS("mlp.experts.gate_up_proj_bias", "ffn_gate_exps", gate_bias, EXPERT_INTER, NO_ROWS,
               FIRST_OF_TWO),
    STACK_BIAS("mlp.experts.gate_up_proj_bias", "ffn_up_exps", up_bias, EXPERT_INTER, EXPERT_INTER,
               SECOND_OF_TWO),
    STACK_BIAS("mlp.experts.down_proj_bias", "ffn_down_exps", down_bias, HIDDEN, NO_ROWS, IN_ORDER),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

/* GGUF files of these three have the tensors of llama_rows. */
static const struct tensor_row internlm2_rows[] = {
    EMBED("tok_embeddings"),
    WEIGHT("attention_norm", "", NORM(0, weight), HIDDEN, ALWAYS, AS_IT_IS),
    GROUPED("attention.wqkv", LAYER(q), Q_DIM, NO_ROWS, GROUPED_Q),
    GROUPED("attention.wqkv", LAYER(k), KV_DIM, Q_DIM, GROUPED_K),
    GROUPED("attention.wqkv", LAYER(v), KV_DIM, QK_DIM, GROUPED_V),
    GROUPED_BIAS("attention.wqkv", LAYER(q_bias), Q_DIM, NO_ROWS, GROUPED_Q),
    GROUPED_BIAS("attention.wqkv", LAYER(k_bias), KV_DIM, Q_DIM, GROUPED_K),
    GROUPED_BIAS("attention.wqkv", LAYER(v_bias), KV_DIM, QK_DIM, GROUPED_V),
    LINEAR("attention.wo", "", o, HIDDEN, Q_DIM, O_BIAS),
    WEIGHT("ffn_norm", "", NORM(1, weight), HIDDEN, ALWAYS, AS_IT_IS),
    MATRIX("feed_forward.w1", "", LAYER(gate), INTER, HIDDEN),
    MATRIX("feed_forward.w3", "", LAYER(up), INTER, HIDDEN),
    MATRIX("feed_forward.w2", "", LAYER(down), HIDDEN, INTER),
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("output", AS_IT_IS),
};

static const struct tensor_row baichuan_rows[] = {
    EMBED("embed_tokens"),
    FIRST_HALF_NORM(AS_IT_IS),
    QKV("self_attn.W_pack", ""),
    MATRIX("self_attn.o_proj", "", LAYER(o), HIDDEN, Q_DIM),
    SECOND_HALF_NORM("post_attention_layernorm", ALWAYS, AS_IT_IS),
    MLP,
    FINAL_NORM(AS_IT_IS),
    LM_HEAD("lm_head", UNIT_ROWS),
};

static const struct tensor_row exaone_rows[] = {
    EMBED("wte"),
    WEIGHT("ln_1", "attn_norm", NORM(0, weight), HIDDEN, ALWAYS, AS_IT_IS),
    MATRIX("attn.attention.q_proj", "attn_q", LAYER(q), Q_DIM, HIDDEN),
    MATRIX("attn.attention.k_proj", "attn_k", LAYER(k), KV_DIM, HIDDEN),
    MATRIX("attn.attention.v_proj", "attn_v", LAYER(v), KV_DIM, HIDDEN),
    MATRIX("attn.attention.out_proj", "attn_output", LAYER(o), HIDDEN, Q_DIM),
    WEIGHT("ln_2", "ffn_norm", NORM(1, weight), HIDDEN, ALWAYS, AS_IT_IS),
    MATRIX("mlp.c_fc_0", "ffn_gate", LAYER(gate), INTER, HIDDEN),
    MATRIX("mlp.c_fc_1", "ffn_up", LAYER(up), INTER, HIDDEN),
    MATRIX("mlp.c_proj", "ffn_down", LAYER(down), HIDDEN, INTER),
    WEIGHT("ln_f", "output_norm", LAST(weight), HIDDEN, ALWAYS, AS_IT_IS),
    LM_HEAD("lm_head", AS_IT_IS),
};

/* What BERT and RoBERTa share. */
#define BERT_ROWS                                                                                  \
    MATRIX("embeddings.word_embeddings", "token_embd", MODEL(embed), VOCAB, HIDDEN),               \
        TABLE("embeddings.position_embeddings", "position_embd", MODEL(positions), POSITIONS,      \
              HAS_POSITIONS),                                                                      \
        TABLE("embeddings.token_type_embeddings", "token_types", MODEL(types), TYPES, HAS_TYPES),  \
        LAYER_NORM("embeddings.LayerNorm", "token_embd_norm", AT_FIRST),                           \
        LINEAR("attention.self.query", "attn_q", q, Q_DIM, HIDDEN, QKV_BIAS),                      \
        LINEAR("attention.self.key", "attn_k", k, KV_DIM, HIDDEN, QKV_BIAS),                       \
        LINEAR("attention.self.value", "attn_v", v, KV_DIM, HIDDEN, QKV_BIAS),                     \
        LINEAR("attention.output.dense", "attn_output", o, HIDDEN, Q_DIM, O_BIAS),                 \
        LAYER_NORM("attention.output.LayerNorm", "attn_output_norm", AT_MLP),                      \
        LINEAR("intermediate.dense", "ffn_up", gate, INTER, HIDDEN, MLP_BIAS),                     \
        LINEAR("output.dense", "ffn_down", down, HIDDEN, INTER, MLP_BIAS),                         \
        LAYER_NORM("output.LayerNorm", "layer_output_norm", AT_NEXT)

static const struct tensor_row bert_rows[] = {
    BERT_ROWS,
    TABLE("pooler.dense", "cls", MODEL(score_dense), HIDDEN, SCORE_DENSE),
    VECTOR("pooler.dense.bias", "cls.bias", MODEL(score_dense_bias), HIDDEN, SCORE_DENSE_BIAS),
    HEAD("classifier.weight", MODEL(score_out), LABELS, SCORE),
    HEAD_VECTOR("classifier.bias", MODEL(score_out_bias), LABELS, SCORE_OUT_BIAS),
};

static const struct tensor_row roberta_rows[] = {
    BERT_ROWS,
    HEAD("classifier.dense.weight", MODEL(score_dense), HIDDEN, SCORE_DENSE),
    HEAD_VECTOR("classifier.dense.bias", MODEL(score_dense_bias), HIDDEN, SCORE_DENSE_BIAS),
    HEAD("classifier.out_proj.weight", MODEL(score_out), LABELS, SCORE),
    HEAD_VECTOR("classifier.out_proj.bias", MODEL(score_out_bias), LABELS, SCORE_OUT_BIAS),
};

static const struct tensor_row nomic_rows[] = {
    MATRIX("embeddings.word_embeddings", "token_embd", MODEL(embed), VOCAB, HIDDEN),
    TABLE("embeddings.token_type_embeddings", "token_types", MODEL(types), TYPES, HAS_TYPES),
    LAYER_NORM("emb_ln", "token_embd_norm", AT_FIRST),
    QKV("attn.Wqkv", "attn_qkv"),
    MATRIX("attn.out_proj", "attn_output", LAYER(o), HIDDEN, Q_DIM),
    LAYER_NORM("norm1", "attn_output_norm", AT_MLP),
    MATRIX("mlp.fc12", "ffn_gate", LAYER(gate), INTER, HIDDEN),
    MATRIX("mlp.fc11", "ffn_up", LAYER(up), INTER, HIDDEN),
    MATRIX("mlp.fc2", "ffn_down", LAYER(down), HIDDEN, INTER),
    LAYER_NORM("norm2", "layer_output_norm", AT_NEXT),
};

static const struct tensor_row modern_rows[] = {
    MATRIX("embeddings.tok_embeddings", "token_embd", MODEL(embed), VOCAB, HIDDEN),
    VECTOR("embeddings.norm.weight", "token_embd_norm.weight", FIRST(weight), HIDDEN, ALWAYS),
    VECTOR("attn_norm.weight", "attn_norm.weight", NORM(0, weight), HIDDEN, AFTER_FIRST),
    QKV("attn.Wqkv", "attn_qkv"),
    MATRIX("attn.Wo", "attn_output", LAYER(o), HIDDEN, Q_DIM),
    VECTOR("mlp_norm.weight", "ffn_norm.weight", NORM(1, weight), HIDDEN, ALWAYS),
    GATE_UP("mlp.Wi", "ffn_up"),
    MATRIX("mlp.Wo", "ffn_down", LAYER(down), HIDDEN, INTER),
    VECTOR("final_norm.weight", "output_norm.weight", LAST(weight), HIDDEN, ALWAYS),
    HEAD("head.dense.weight", MODEL(score_dense), HIDDEN, SCORE_DENSE),
    HEAD_VECTOR("head.dense.bias", MODEL(score_dense_bias), HIDDEN, SCORE_DENSE_BIAS),
    HEAD_VECTOR("head.norm.weight", MODEL(score_norm), HIDDEN, SCORE_NORM),
    HEAD("classifier.weight", MODEL(score_out), LABELS, SCORE),
    HEAD_VECTOR("classifier.bias", MODEL(score_out_bias), LABELS, SCORE_OUT_BIAS),
};

static const char *const no_unused[] = {NULL};
/* Of a model that sees: all but its text part. */
static const char *const other_parts[] = {"vision_tower.",
                                          "vision_model.",
                                          "visual.",
                                          "multi_modal_projector.",
                                          "audio_tower.",
                                          "embed_vision.",
                                          "model.vision_tower.",
                                          "model.vision_model.",
                                          "model.visual.",
                                          "model.multi_modal_projector.",
                                          "patch_merger.",
                                          NULL};
/* The heads of the training: next sentence, masked words. */
static const char *const bert_unused[] = {"pooler.", "cls.", "embeddings.position_ids", NULL};
static const char *const roberta_unused[] = {"pooler.", "lm_head.", "embeddings.position_ids",
                                             NULL};
static const char *const nomic_unused[] = {"pooler.", "cls.", NULL};
static const char *const modern_unused[] = {"head.", "decoder.", NULL};

#define NAMES(layer_prefix, list, ignored, ...)                                                    \
    {                                                                                              \
        .roots = {__VA_ARGS__}, .layer = layer_prefix, .rows = list,                               \
        .n_rows = sizeof(list) / sizeof((list)[0]), .unused = ignored                              \
    }
#define DECODER(list) NAMES("layers.%d.", list, no_unused, "model.", "")
static const struct tensor_names maps[] = {
    [TENSORS_LLAMA] = NAMES("layers.%d.", llama_rows, no_unused, "model.", "",
                            "language_model.model.", "model.language_model."),
    [TENSORS_MIXTRAL] = DECODER(mixtral_rows),
    [TENSORS_EXPERTS] = DECODER(expert_rows),
    [TENSORS_LLAMA4] = NAMES("layers.%d.", llama4_rows, no_unused, "model.", "",
                             "language_model.model.", "model.language_model."),
    [TENSORS_GPT_OSS] = DECODER(gpt_oss_rows),
    [TENSORS_GLM4_MOE] = DECODER(glm4_moe_rows),
    [TENSORS_LATENT] = DECODER(latent_rows),
    [TENSORS_LATENT_SPLIT] = DECODER(latent_split_rows),
    [TENSORS_PHI3] = DECODER(phi3_rows),
    [TENSORS_GEMMA] = NAMES("layers.%d.", gemma_rows, no_unused, "model.", "",
                            "language_model.model.", "model.language_model."),
    [TENSORS_BEHIND] = DECODER(behind_rows),
    [TENSORS_GLM4] = DECODER(glm4_rows),
    [TENSORS_GRANITE4] = DECODER(granite4_rows),
    [TENSORS_INTERNLM2] = DECODER(internlm2_rows),
    [TENSORS_EXAONE] = NAMES("h.%d.", exaone_rows, no_unused, "transformer."),
    [TENSORS_BAICHUAN] = DECODER(baichuan_rows),
    [TENSORS_BERT] = NAMES("encoder.layer.%d.", bert_rows, bert_unused, "bert.", ""),
    [TENSORS_ROBERTA] = NAMES("encoder.layer.%d.", roberta_rows, roberta_unused, "roberta.", ""),
    [TENSORS_NOMIC] = NAMES("encoder.layers.%d.", nomic_rows, nomic_unused, "", "bert."),
    [TENSORS_MODERN] = NAMES("layers.%d.", modern_rows, modern_unused, "model.", ""),
};

const char *const *tensor_unused_of_others(const struct model_conf *c) {
    return c->text_part ? other_parts : no_unused;
}

const struct tensor_names *tensor_names_of(const struct model_conf *c) {
    return &maps[c->map];
}

bool tensor_row_in_layer(const struct tensor_row *r) {
    return r->place == IN_LAYER || r->place == IN_EXPERTS || r->place == IN_NORMS ||
           r->place == IN_BRANCHES;
}

bool tensor_row_present(const struct model_conf *c, const struct tensor_row *r, int layer) {
    switch (r->when) {
    case QKV_BIAS: return c->qkv_bias;
    case O_BIAS: return c->o_bias;
    case MLP_BIAS: return c->mlp_bias;
    case QK_NORM: return c->qk_norm != QK_NORM_NONE;
    case NORM_BIAS: return c->norm_bias;
    case AFTER_FIRST: return layer > 0;
    case TWO_NORMS: return c->norms != NORMS_ONE;
    case UNTIED: return !c->tied && !c->no_head;
    case HAS_TYPES: return c->n_token_types > 0;
    case HAS_POSITIONS: return c->n_positions > 0;
    case SCORE: return c->score.n_labels > 0;
    case SCORE_DENSE: return c->score.dense;
    case SCORE_DENSE_BIAS: return c->score.dense_bias;
    case SCORE_NORM: return c->score.norm;
    case SCORE_OUT_BIAS: return c->score.out_bias;
    case DENSE_LAYER: return !c->mixed[layer];
    case MIXED_LAYER: return c->mixed[layer];
    case SHARED_EXPERT: return c->mixed[layer] && c->experts.shared > 0;
    case SHARED_GATE: return c->mixed[layer] && c->experts.shared > 0 && c->experts.shared_gate;
    case EXPERT_BIAS: return c->mixed[layer] && c->experts.bias;
    case CHOICE_BIAS: return c->mixed[layer] && c->experts.choice_bias;
    case SINKS: return c->sinks;
    case Q_AT_ONCE: return c->latent.q_rank == 0;
    case Q_IN_TWO: return c->latent.q_rank > 0;
    case ALWAYS: break;
    }
    return true;
}

int tensor_extent(const struct model_conf *c, enum extent x) {
    switch (x) {
    case NO_ROWS: return 0;
    case HIDDEN: return c->hidden;
    case INTER: return c->intermediate;
    case Q_DIM: return c->n_heads * c->head_dim;
    case N_HEADS: return c->n_heads;
    case KV_DIM: return c->n_kv_heads * c->head_dim;
    case QK_DIM: return (c->n_heads + c->n_kv_heads) * c->head_dim;
    case Q_NORM: return c->head_dim * (c->qk_norm == QK_NORM_HEAD ? 1 : c->n_heads);
    case K_NORM: return c->head_dim * (c->qk_norm == QK_NORM_HEAD ? 1 : c->n_kv_heads);
    case VOCAB: return c->vocab_size;
    case POSITIONS: return c->n_positions;
    case TYPES: return c->n_token_types;
    case LABELS: return c->score.n_labels;
    case N_EXPERTS: return c->experts.n;
    case EXPERT_INTER: return c->experts.intermediate;
    case SHARED_INTER: return c->experts.shared;
    case LATENT_RANK: return c->latent.rank;
    case LATENT_Q_RANK: return c->latent.q_rank;
    case LATENT_Q: return c->n_heads * (c->latent.still + c->rope_dim);
    case LATENT_STILL: return c->latent.still;
    case LATENT_KEYS: return c->n_heads * c->latent.rank;
    case LATENT_VALUES: return c->n_heads * c->latent.value;
    case ONE: break;
    }
    return 1;
}
