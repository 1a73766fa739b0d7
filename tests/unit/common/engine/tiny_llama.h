/* A tiny random Llama in a folder, for tests of the forward pass. Included after cmocka.h. */
#ifndef BATON_TESTS_TINY_LLAMA_H
#define BATON_TESTS_TINY_LLAMA_H

#include "tests/unit/common/engine/model_files.h"

enum {
    HIDDEN = 48,
    INTER = 80,
    LAYERS = 2,
    HEADS = 6,
    KV_HEADS = 2,
    HEAD_DIM = 8,
    VOCAB = 50,
    CONTEXT = 64,
    HEADER_BYTES = 8192
};
static const char tiny_config[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":48,"
    "\"intermediate_size\":80,\"num_hidden_layers\":2,\"num_attention_heads\":6,\"head_dim\":8,"
    "\"num_key_value_heads\":2,\"vocab_size\":50,\"max_position_embeddings\":64,\"hidden_act\":"
    "\"silu\"}";

struct tensor {
    const char *name;
    int n, k; /* k 0: a vector */
};

static const struct tensor layer_tensors[] = {
    {"input_layernorm", HIDDEN, 0},
    {"self_attn.q_proj", HEADS *HEAD_DIM, HIDDEN},
    {"self_attn.k_proj", KV_HEADS *HEAD_DIM, HIDDEN},
    {"self_attn.v_proj", KV_HEADS *HEAD_DIM, HIDDEN},
    {"self_attn.o_proj", HIDDEN, HEADS *HEAD_DIM},
    {"post_attention_layernorm", HIDDEN, 0},
    {"mlp.gate_proj", INTER, HIDDEN},
    {"mlp.up_proj", INTER, HIDDEN},
    {"mlp.down_proj", HIDDEN, INTER},
};

static inline void add_tensor(char *header, size_t *at, const char *name, int n, int k) {
    size_t bytes = (size_t)n * (size_t)(k > 0 ? k : 1) * sizeof(float);
    char shape[32];
    snprintf(shape, sizeof(shape), k > 0 ? "[%d,%d]" : "[%d]", n, k);
    size_t len = strlen(header);
    snprintf(header + len, HEADER_BYTES - len,
             "%s\"%s.weight\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             len > 1 ? "," : "", name, shape, *at, *at + bytes);
    *at += bytes;
}

/* The model; `skip` and `wrong` name tensors to leave out or to give one row less. more: a tensor
 * that is none of the model's, or NULL. qk_norm: those of a Qwen3 of the same shape. */
static inline void write_model_with(struct model_files *f, const char *skip, const char *wrong,
                                    const char *more, bool qk_norm) {
    char header[HEADER_BYTES] = "{", name[64];
    size_t at = 0;
    uint32_t s = 12345;
    add_tensor(header, &at, "model.embed_tokens", VOCAB, HIDDEN);
    for (int i = 0; i < LAYERS; i++) {
        for (size_t t = 0; t < sizeof(layer_tensors) / sizeof(layer_tensors[0]); t++) {
            const struct tensor *x = &layer_tensors[t];
            snprintf(name, sizeof(name), "model.layers.%d.%s", i, x->name);
            if (skip != NULL && strcmp(name, skip) == 0) continue;
            add_tensor(header, &at, name, x->n - (wrong != NULL && strcmp(name, wrong) == 0), x->k);
        }
    }
    for (int i = 0; qk_norm && i < 2 * LAYERS; i++) {
        snprintf(name, sizeof(name), "model.layers.%d.self_attn.%c_norm", i / 2, "qk"[i % 2]);
        add_tensor(header, &at, name, HEAD_DIM, 0);
    }
    add_tensor(header, &at, "model.norm", HIDDEN, 0);
    add_tensor(header, &at, "lm_head", VOCAB, HIDDEN);
    if (more != NULL) add_tensor(header, &at, more, 3, 0);
    strcat(header, "}");
    float *data = malloc(at);
    assert_non_null(data);
    for (size_t i = 0; i < at / sizeof(float); i++) {
        s = s * 1664525u + 1013904223u;
        data[i] = (float)(int32_t)s * 0x1p-32f;
    }
    files_make(f);
    files_text(f, "config.json", tiny_config);
    files_safetensors(f, "model.safetensors", header, data, at);
    free(data);
}

static inline void write_model(struct model_files *f, const char *skip, const char *wrong) {
    write_model_with(f, skip, wrong, NULL, false);
}

#endif
