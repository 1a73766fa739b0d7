/* tensor_map: see tensor_map.h. Source: published checkpoints, their reference code, and the
 * writers of llama.cpp (gguf-py/gguf/tensor_mapping.py). */
#include "common/engine/tensor_map.h"

#include "common/engine/weights.h"

#define LAYER(field)   IN_LAYER, offsetof(struct layer_weights, field)
#define MODEL(field)   IN_MODEL, offsetof(struct weights, field)
#define NORM(i, field) IN_NORMS, (size_t)(i) * sizeof(struct norm) + offsetof(struct norm, field)
#define FIRST(field)   IN_FIRST_NORM, offsetof(struct norm, field)
#define LAST(field)    IN_LAST_NORM, offsetof(struct norm, field)
#define MATRIX(name, gguf, at, n, k)                                                               \
    { name ".weight", gguf ".weight", at, true, false, n, k, NO_ROWS, ALWAYS }
#define ROWS(name, gguf, at, n, k, from)                                                           \
    { name ".weight", gguf ".weight", at, true, false, n, k, from, ALWAYS }
#define TABLE(name, gguf, at, n, when)                                                             \
    { name ".weight", gguf ".weight", at, true, true, n, HIDDEN, NO_ROWS, when }
#define VECTOR(name, gguf, at, n, when)                                                            \
    { name, gguf, at, false, false, n, ONE, NO_ROWS, when }
#define HEAD(name, at, n, when)                                                                    \
    { "/" name, NULL, at, true, true, n, HIDDEN, NO_ROWS, when }
#define HEAD_VECTOR(name, at, n, when)                                                             \
    { "/" name, NULL, at, false, false, n, ONE, NO_ROWS, when }
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

static const struct tensor_row llama_rows[] = {
    MATRIX("embed_tokens", "token_embd", MODEL(embed), VOCAB, HIDDEN),
    VECTOR("input_layernorm.weight", "attn_norm.weight", NORM(0, weight), HIDDEN, ALWAYS),
    LINEAR("self_attn.q_proj", "attn_q", q, Q_DIM, HIDDEN, QKV_BIAS),
    LINEAR("self_attn.k_proj", "attn_k", k, KV_DIM, HIDDEN, QKV_BIAS),
    LINEAR("self_attn.v_proj", "attn_v", v, KV_DIM, HIDDEN, QKV_BIAS),
    LINEAR("self_attn.o_proj", "attn_output", o, HIDDEN, Q_DIM, O_BIAS),
    VECTOR("self_attn.q_norm.weight", "attn_q_norm.weight", LAYER(q_norm), HEAD_DIM, QK_NORM),
    VECTOR("self_attn.k_norm.weight", "attn_k_norm.weight", LAYER(k_norm), HEAD_DIM, QK_NORM),
    VECTOR("post_attention_layernorm.weight", "ffn_norm.weight", NORM(1, weight), HIDDEN, ALWAYS),
    LINEAR("mlp.gate_proj", "ffn_gate", gate, INTER, HIDDEN, MLP_BIAS),
    LINEAR("mlp.up_proj", "ffn_up", up, INTER, HIDDEN, MLP_BIAS),
    LINEAR("mlp.down_proj", "ffn_down", down, HIDDEN, INTER, MLP_BIAS),
    VECTOR("norm.weight", "output_norm.weight", LAST(weight), HIDDEN, ALWAYS),
    {"/lm_head.weight", "output.weight", MODEL(head), true, false, VOCAB, HIDDEN, NO_ROWS, UNTIED},
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
    ROWS("attn.Wqkv", "attn_qkv", LAYER(q), Q_DIM, HIDDEN, NO_ROWS),
    ROWS("attn.Wqkv", "attn_qkv", LAYER(k), KV_DIM, HIDDEN, Q_DIM),
    ROWS("attn.Wqkv", "attn_qkv", LAYER(v), KV_DIM, HIDDEN, QK_DIM),
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
    ROWS("attn.Wqkv", "attn_qkv", LAYER(q), Q_DIM, HIDDEN, NO_ROWS),
    ROWS("attn.Wqkv", "attn_qkv", LAYER(k), KV_DIM, HIDDEN, Q_DIM),
    ROWS("attn.Wqkv", "attn_qkv", LAYER(v), KV_DIM, HIDDEN, QK_DIM),
    MATRIX("attn.Wo", "attn_output", LAYER(o), HIDDEN, Q_DIM),
    VECTOR("mlp_norm.weight", "ffn_norm.weight", NORM(1, weight), HIDDEN, ALWAYS),
    ROWS("mlp.Wi", "ffn_up", LAYER(gate), INTER, HIDDEN, NO_ROWS),
    ROWS("mlp.Wi", "ffn_up", LAYER(up), INTER, HIDDEN, INTER),
    MATRIX("mlp.Wo", "ffn_down", LAYER(down), HIDDEN, INTER),
    VECTOR("final_norm.weight", "output_norm.weight", LAST(weight), HIDDEN, ALWAYS),
    HEAD("head.dense.weight", MODEL(score_dense), HIDDEN, SCORE_DENSE),
    HEAD_VECTOR("head.dense.bias", MODEL(score_dense_bias), HIDDEN, SCORE_DENSE_BIAS),
    HEAD_VECTOR("head.norm.weight", MODEL(score_norm), HIDDEN, SCORE_NORM),
    HEAD("classifier.weight", MODEL(score_out), LABELS, SCORE),
    HEAD_VECTOR("classifier.bias", MODEL(score_out_bias), LABELS, SCORE_OUT_BIAS),
};

static const char *const llama_unused[] = {NULL};
/* The heads of the training: next sentence, masked words. */
static const char *const bert_unused[] = {"pooler.", "cls.", "embeddings.position_ids", NULL};
static const char *const roberta_unused[] = {"pooler.", "lm_head.", "embeddings.position_ids",
                                             NULL};
static const char *const nomic_unused[] = {"pooler.", "cls.", NULL};
static const char *const modern_unused[] = {"head.", "decoder.", NULL};

#define NAMES(root, other, layer_prefix, list, ignored)                                            \
    {                                                                                              \
        .roots = {root, other}, .layer = layer_prefix, .rows = list,                               \
        .n_rows = sizeof(list) / sizeof((list)[0]), .unused = ignored                              \
    }
static const struct tensor_names maps[] = {
    [TENSORS_LLAMA] = NAMES("model.", "", "layers.%d.", llama_rows, llama_unused),
    [TENSORS_BERT] = NAMES("bert.", "", "encoder.layer.%d.", bert_rows, bert_unused),
    [TENSORS_ROBERTA] = NAMES("roberta.", "", "encoder.layer.%d.", roberta_rows, roberta_unused),
    [TENSORS_NOMIC] = NAMES("", "bert.", "encoder.layers.%d.", nomic_rows, nomic_unused),
    [TENSORS_MODERN] = NAMES("model.", "", "layers.%d.", modern_rows, modern_unused),
};

const struct tensor_names *tensor_names_of(const struct model_conf *c) {
    return &maps[c->map];
}

bool tensor_row_in_layer(const struct tensor_row *r) {
    return r->place == IN_LAYER || r->place == IN_NORMS;
}

bool tensor_row_present(const struct model_conf *c, const struct tensor_row *r, int layer) {
    switch (r->when) {
    case QKV_BIAS: return c->qkv_bias;
    case O_BIAS: return c->o_bias;
    case MLP_BIAS: return c->mlp_bias;
    case QK_NORM: return c->qk_norm;
    case NORM_BIAS: return c->norm_bias;
    case AFTER_FIRST: return layer > 0;
    case UNTIED: return !c->tied && !c->no_head;
    case HAS_TYPES: return c->n_token_types > 0;
    case HAS_POSITIONS: return c->n_positions > 0;
    case SCORE: return c->score.n_labels > 0;
    case SCORE_DENSE: return c->score.dense;
    case SCORE_DENSE_BIAS: return c->score.dense_bias;
    case SCORE_NORM: return c->score.norm;
    case SCORE_OUT_BIAS: return c->score.out_bias;
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
    case KV_DIM: return c->n_kv_heads * c->head_dim;
    case QK_DIM: return (c->n_heads + c->n_kv_heads) * c->head_dim;
    case HEAD_DIM: return c->head_dim;
    case VOCAB: return c->vocab_size;
    case POSITIONS: return c->n_positions;
    case TYPES: return c->n_token_types;
    case LABELS: return c->score.n_labels;
    case ONE: break;
    }
    return 1;
}
