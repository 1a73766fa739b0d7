/* random_model: a model directory with random weights of a real shape, for the benchmarks that run
 * the forward pass. Written under $TMPDIR and removed once it is loaded, or kept for the next. */
#ifndef BATON_TESTS_BENCH_RANDOM_MODEL_H
#define BATON_TESTS_BENCH_RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct shape {
    const char *name, *type;
    int hidden, intermediate, layers, heads, kv_heads, vocab;
    bool tied, bias;
};
static const struct shape shapes[] = {
    {"qwen2.5-0.5b", "qwen2", 896, 4864, 24, 14, 2, 151936, true, true},
    {"tinyllama-1.1b", "llama", 2048, 5632, 22, 32, 4, 32000, false, false},
};

static inline void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

struct tensor {
    char name[96];
    int n, k; /* n 0: a vector of k */
    bool ones;
};

static inline int add(struct tensor *t, int at, bool ones, int n, int k, const char *layer, int idx,
                      const char *name) {
    t[at] = (struct tensor){.n = n, .k = k, .ones = ones};
    if (layer != NULL)
        snprintf(t[at].name, sizeof(t[at].name), "model.layers.%d.%s.%s", idx, layer, name);
    else
        snprintf(t[at].name, sizeof(t[at].name), "%s", name);
    return at + 1;
}

static inline int list_tensors(const struct shape *s, struct tensor *t) {
    int n = 0, hd = s->hidden / s->heads, kv = s->kv_heads * hd;
    n = add(t, n, false, s->vocab, s->hidden, NULL, 0, "model.embed_tokens.weight");
    n = add(t, n, true, 0, s->hidden, NULL, 0, "model.norm.weight");
    if (!s->tied) n = add(t, n, false, s->vocab, s->hidden, NULL, 0, "lm_head.weight");
    for (int l = 0; l < s->layers; l++) {
        n = add(t, n, true, 0, s->hidden, "input_layernorm", l, "weight");
        n = add(t, n, true, 0, s->hidden, "post_attention_layernorm", l, "weight");
        n = add(t, n, false, s->hidden, s->hidden, "self_attn.q_proj", l, "weight");
        n = add(t, n, false, kv, s->hidden, "self_attn.k_proj", l, "weight");
        n = add(t, n, false, kv, s->hidden, "self_attn.v_proj", l, "weight");
        n = add(t, n, false, s->hidden, s->hidden, "self_attn.o_proj", l, "weight");
        n = add(t, n, false, s->intermediate, s->hidden, "mlp.gate_proj", l, "weight");
        n = add(t, n, false, s->intermediate, s->hidden, "mlp.up_proj", l, "weight");
        n = add(t, n, false, s->hidden, s->intermediate, "mlp.down_proj", l, "weight");
        if (!s->bias) continue;
        n = add(t, n, false, 0, s->hidden, "self_attn.q_proj", l, "bias");
        n = add(t, n, false, 0, kv, "self_attn.k_proj", l, "bias");
        n = add(t, n, false, 0, kv, "self_attn.v_proj", l, "bias");
    }
    return n;
}

static inline size_t tensor_bytes(const struct tensor *t) {
    return 2 * (size_t)t->k * (size_t)(t->n > 0 ? t->n : 1);
}

/* Random bf16 between 1/2 and 1 (both signs) over about sqrt(k). */
static inline void fill(uint16_t *v, size_t n, const struct tensor *t, uint64_t *seed) {
    int exponent = 126;
    for (int k = t->k; k > 1; k /= 4) exponent--;
    for (size_t i = 0; i < n; i++) {
        if (i % 4 == 0) {
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
        }
        uint16_t r = (uint16_t)(*seed >> (16 * (i % 4)));
        v[i] = t->ones ? 0x3F80 : (uint16_t)((r & 0x807F) | (unsigned)exponent << 7);
    }
}

static inline void model_write(const struct shape *s, const char *dir) {
    enum { PIECE = 1 << 20 };
    char path[512];
    struct tensor *t = calloc(3 + 12 * (size_t)s->layers, sizeof(*t));
    uint16_t *piece = malloc(PIECE * sizeof(*piece));
    require(t != NULL && piece != NULL, "no memory");
    snprintf(path, sizeof(path), "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    require(f != NULL, "cannot write the model");
    fprintf(f,
            "{\"model_type\":\"%s\",\"architectures\":[\"%s\"],\"hidden_size\":%d,"
            "\"intermediate_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
            "\"num_key_value_heads\":%d,\"vocab_size\":%d,\"max_position_embeddings\":32768,"
            "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\","
            "\"bos_token_id\":1,\"eos_token_id\":2,\"tie_word_embeddings\":%s}\n",
            s->type, strcmp(s->type, "qwen2") == 0 ? "Qwen2ForCausalLM" : "LlamaForCausalLM",
            s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads, s->vocab,
            s->tied ? "true" : "false");
    require(fclose(f) == 0, "cannot write the model");
    int n = list_tensors(s, t);
    char *head = malloc(64 + (size_t)n * 192);
    require(head != NULL, "no memory");
    size_t at = 0, offset = 0;
    for (int i = 0; i < n; i++) {
        char dims[32];
        if (t[i].n > 0)
            snprintf(dims, sizeof(dims), "%d,%d", t[i].n, t[i].k);
        else
            snprintf(dims, sizeof(dims), "%d", t[i].k);
        at += (size_t)sprintf(
            head + at, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            i == 0 ? '{' : ',', t[i].name, dims, offset, offset + tensor_bytes(&t[i]));
        offset += tensor_bytes(&t[i]);
    }
    head[at++] = '}';
    while (at % 8 != 0) head[at++] = ' ';
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    f = fopen(path, "w");
    require(f != NULL, "cannot write the model");
    uint64_t n_head = at, seed = 88172645463325252u;
    bool ok = fwrite(&n_head, 8, 1, f) == 1 && fwrite(head, 1, at, f) == at;
    for (int i = 0; i < n; i++) {
        for (size_t left = tensor_bytes(&t[i]) / 2, m; ok && left > 0; left -= m) {
            m = left < PIECE ? left : PIECE;
            fill(piece, m, &t[i], &seed);
            ok = fwrite(piece, 2, m, f) == m;
        }
    }
    require(fclose(f) == 0 && ok, "cannot write the model");
    free(t);
    free(piece);
    free(head);
}

static inline void model_remove(const char *dir) {
    char path[512];
    snprintf(path, sizeof(path), "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

/* dir gets the model's folder: a new one under $TMPDIR; or, with kept, the one of this shape below
 * it, which is written when it is not there and has its name only once it is whole. */
static inline void model_place(const struct shape *s, const char *kept, char *dir, size_t size) {
    const char *tmp = getenv("TMPDIR"), *under = kept != NULL ? kept : tmp != NULL ? tmp : "/tmp";
    char whole[200];
    snprintf(whole, sizeof(whole), "%s/%s-%d", under, s->name, s->layers);
    if (kept == NULL || access(whole, R_OK) != 0) {
        snprintf(dir, size, "%s/baton-bench-XXXXXX", under);
        require(mkdtemp(dir) != NULL, "no folder for the model");
        model_write(s, dir);
        if (kept == NULL) return;
        require(rename(dir, whole) == 0, "cannot name the model's folder");
    }
    snprintf(dir, size, "%s", whole);
}

#endif
