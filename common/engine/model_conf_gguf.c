/* model_conf_gguf: tables from keys to members. Source: docs/gguf.md of ggml and the writers of
 * llama.cpp (gguf-py/gguf/constants.py). */
#include "common/engine/model_conf_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/base/near_text.h"
#include "common/engine/model_families.h"
#include "common/engine/tensor_type.h"

enum { KEY_BYTES = 128 };

enum kind { COUNT, NUMBER };
struct key {
    const char *key; /* behind "ARCH."; NULL: no more */
    const char *member;
    enum kind kind;
    bool must;
};
static const struct key keys[] = {
    {"context_length", "max_position_embeddings", COUNT, true},
    {"embedding_length", "hidden_size", COUNT, true},
    {"block_count", "num_hidden_layers", COUNT, true},
    {"feed_forward_length", "intermediate_size", COUNT, true},
    {"attention.head_count", "num_attention_heads", COUNT, true},
    {"attention.head_count_kv", "num_key_value_heads", COUNT, false},
    {"attention.key_length", "head_dim", COUNT, false},
    {"rope.freq_base", "rope_theta", NUMBER, false},
    {NULL, NULL, COUNT, false},
};
static const struct key rms_keys[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", NUMBER, true},
    {NULL, NULL, COUNT, false},
};

/* Beside those: what some architectures have. 0 is as good as absent. */
#define RMS_EPS                                                                                    \
    { "attention.layer_norm_rms_epsilon", "rms_norm_eps", NUMBER, true }
#define LAYER_EPS                                                                                  \
    { "attention.layer_norm_epsilon", "rms_norm_eps", NUMBER, true }
#define WINDOW                                                                                     \
    { "attention.sliding_window", "sliding_window", COUNT, false }
#define END                                                                                        \
    { NULL, NULL, COUNT, false }
static const struct key window_keys[] = {RMS_EPS, WINDOW, END};
static const struct key gemma2_keys[] = {
    RMS_EPS,
    WINDOW,
    {"attn_logit_softcapping", "attn_logit_softcapping", NUMBER, false},
    {"final_logit_softcapping", "final_logit_softcapping", NUMBER, false},
    END,
};
static const struct key gemma3_keys[] = {
    RMS_EPS,
    WINDOW,
    {"rope.freq_base_swa", "rope_local_base_freq", NUMBER, false},
    {"final_logit_softcapping", "final_logit_softcapping", NUMBER, false},
    END,
};
#define GRANITE_KEYS                                                                               \
    RMS_EPS, {"attention.scale", "attention_multiplier", NUMBER, false},                           \
        {"embedding_scale", "embedding_multiplier", NUMBER, false},                                \
        {"residual_scale", "residual_multiplier", NUMBER, false}, {                                \
        "logit_scale", "logits_scaling", NUMBER, false                                             \
    }
static const struct key granite_keys[] = {GRANITE_KEYS, END};
static const struct key cohere_keys[] = {
    LAYER_EPS, {"logit_scale", "logit_scale", NUMBER, false}, END};
static const struct key cohere2_keys[] = {
    LAYER_EPS, WINDOW, {"logit_scale", "logit_scale", NUMBER, false}, END};

#define EXPERTS                                                                                    \
    {"expert_count", "num_experts", COUNT, true}, {                                                \
        "expert_used_count", "num_experts_per_tok", COUNT, true                                    \
    }
#define EXPERT_WIDTH                                                                               \
    { "expert_feed_forward_length", "moe_intermediate_size", COUNT, true }
static const struct key mixtral_keys[] = {
    RMS_EPS,
    {"expert_count", "num_local_experts", COUNT, true},
    {"expert_used_count", "num_experts_per_tok", COUNT, true},
    END,
};
static const struct key qwen2moe_keys[] = {
    RMS_EPS,
    EXPERTS,
    EXPERT_WIDTH,
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", COUNT, true},
    END,
};
static const struct key qwen3moe_keys[] = {RMS_EPS, EXPERTS, EXPERT_WIDTH, END};
static const struct key granitemoe_keys[] = {
    GRANITE_KEYS,
    {"expert_count", "num_local_experts", COUNT, true},
    {"expert_used_count", "num_experts_per_tok", COUNT, true},
    {"expert_shared_feed_forward_length", "shared_intermediate_size", COUNT, false},
    END,
};
/* Of routers that choose groups of experts first, as DeepSeek's. */
#define GROUPED_EXPERT_KEYS                                                                        \
    RMS_EPS, EXPERT_WIDTH, {"expert_count", "n_routed_experts", COUNT, true},                      \
        {"expert_used_count", "num_experts_per_tok", COUNT, true},                                 \
        {"expert_shared_count", "n_shared_experts", COUNT, false},                                 \
        {"expert_group_count", "n_group", COUNT, false},                                           \
        {"expert_group_used_count", "topk_group", COUNT, false},                                   \
        {"expert_weights_scale", "routed_scaling_factor", NUMBER, false},                          \
        {"leading_dense_block_count", "first_k_dense_replace", COUNT, false}, {                    \
        "nextn_predict_layers", "num_nextn_predict_layers", COUNT, false                           \
    }
static const struct key glm4moe_keys[] = {
    GROUPED_EXPERT_KEYS,
    END,
};
static const struct key deepseek2_keys[] = {
    GROUPED_EXPERT_KEYS,
    {"attention.kv_lora_rank", "kv_lora_rank", COUNT, true},
    {"rope.dimension_count", "qk_rope_head_dim", COUNT, true},
    END,
};
static const struct key llama4_keys[] = {
    RMS_EPS,
    {"expert_count", "num_local_experts", COUNT, true},
    {"expert_used_count", "num_experts_per_tok", COUNT, true},
    {"expert_feed_forward_length", "intermediate_size", COUNT, true},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", COUNT, true},
    {"attention.chunk_size", "attention_chunk_size", COUNT, false},
    {"attention.temperature_length", "floor_scale", COUNT, false},
    {"attention.temperature_scale", "attn_scale", NUMBER, false},
    END,
};
static const struct key gpt_oss_keys[] = {
    RMS_EPS,
    WINDOW,
    {"expert_count", "num_local_experts", COUNT, true},
    {"expert_used_count", "num_experts_per_tok", COUNT, true},
    END,
};
static const struct key encoder_keys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps", NUMBER, true}, END};
static const struct key olmoe_keys[] = {RMS_EPS, EXPERTS, END};

/* An architecture is a family of model_families.c under another name. */
static const char tanh_act[] = "gelu_pytorch_tanh";
static const struct arch {
    const char *name, *model_type, *architecture, *act; /* act NULL: silu */
    const struct key *keys;
    bool pairs;         /* the converter has put rows of q and k as RoPE's pairs */
    bool partial;       /* rope.dimension_count may be less than a head */
    bool llama_names;   /* tensors are Llama's, whatever HuggingFace's are called */
    const char *second; /* a key that is above 0 where this row and not that before it is meant */
    bool normalise;     /* the shares of chosen experts sum to 1, unless a key says other */
    int gating;         /* what expert_gating_func must be; 0: it is not looked at */
    bool latent;        /* latent attention; expert_gating_func may be 1 or 2 */
    bool smooth_ramp;   /* YaRN's ramp does not begin and end at whole dimensions; no key says so */
    bool encoder;       /* architecture is a whole name; its rows see all others */
    const char *dense_width; /* what feed_forward_length is; NULL: intermediate_size */
    int plain_experts; /* of so many experts the model has no norms of q and k; 0: tensors say it */
    int root_layers; /* the size whose scores are divided by the root of hidden / heads; 0: none */
} archs[] = {
#define ARCH(arch, type, class, ...)                                                               \
    { .name = arch, .model_type = type, .architecture = class "ForCausalLM", __VA_ARGS__ }
    ARCH("llama", "llama", "Llama", .keys = rms_keys, .pairs = true),
    ARCH("llama", "mixtral", "Mixtral", .keys = mixtral_keys, .pairs = true,
         .second = "expert_count"),
    ARCH("qwen2moe", "qwen2_moe", "Qwen2Moe", .keys = qwen2moe_keys),
    ARCH("qwen3moe", "qwen3_moe", "Qwen3Moe", .keys = qwen3moe_keys, .normalise = true),
    ARCH("olmoe", "olmoe", "Olmoe", .keys = olmoe_keys),
    ARCH("qwen2", "qwen2", "Qwen2", .keys = rms_keys),
    ARCH("qwen3", "qwen3", "Qwen3", .keys = rms_keys),
    ARCH("mistral3", "mistral", "Mistral", .keys = window_keys, .pairs = true),
    ARCH("qwen2vl", "qwen2", "Qwen2", .keys = rms_keys),
    ARCH("phi3", "phi3", "Phi3", .keys = window_keys, .partial = true),
    ARCH("gemma2", "gemma2", "Gemma2", .keys = gemma2_keys, .act = tanh_act, .root_layers = 46),
    ARCH("gemma3", "gemma3_text", "Gemma3", .keys = gemma3_keys, .act = tanh_act,
         .root_layers = 62),
    ARCH("granite", "granite", "Granite", .keys = granite_keys, .pairs = true),
    ARCH("granitemoe", "granitemoeshared", "GraniteMoeShared", .keys = granitemoe_keys,
         .pairs = true),
    ARCH("gpt-oss", "gpt_oss", "GptOss", .keys = gpt_oss_keys, .smooth_ramp = true),
    ARCH("smollm3", "smollm3", "SmolLM3", .keys = rms_keys, .pairs = true),
    ARCH("olmo2", "olmo2", "Olmo2", .keys = rms_keys),
    ARCH("olmo2", "olmo3", "Olmo3", .keys = window_keys, .second = "attention.sliding_window"),
    ARCH("glm4", "glm4", "Glm4", .keys = rms_keys, .partial = true),
    ARCH("glm4moe", "glm4_moe", "Glm4Moe", .keys = glm4moe_keys, .partial = true, .normalise = true,
         .gating = 2),
    ARCH("deepseek2", "deepseek_v3", "DeepseekV3", .keys = deepseek2_keys, .latent = true),
    ARCH("llama4", "llama4_text", "Llama4", .keys = llama4_keys, .gating = 2,
         .dense_width = "intermediate_size_mlp", .plain_experts = 128),
    ARCH("command-r", "cohere", "Cohere", .keys = cohere_keys),
    ARCH("cohere2", "cohere2", "Cohere2", .keys = cohere2_keys),
    ARCH("internlm2", "internlm2", "InternLM2", .keys = rms_keys, .pairs = true,
         .llama_names = true),
    ARCH("exaone", "exaone", "Exaone", .keys = rms_keys),
    ARCH("exaone4", "exaone4", "Exaone4", .keys = window_keys),
    ARCH("baichuan", "baichuan", "Baichuan", .keys = rms_keys, .pairs = true, .llama_names = true),
    /* RoBERTa's too: their positions are written without those of the padding */
    {.name = "bert",
     .model_type = "bert",
     .architecture = "BertModel",
     .act = "gelu",
     .keys = encoder_keys,
     .encoder = true},
    {.name = "nomic-bert",
     .model_type = "nomic_bert",
     .architecture = "NomicBertModel",
     .keys = encoder_keys,
     .encoder = true},
};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

/* Keys that change the numbers in a way the forward pass does not know, and the one value that
 * changes nothing. */
static const struct {
    const char *key;
    double value;
} neutrals[] = {
    {"expert_count", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 0},
    {"residual_scale", 0},
    {"embedding_scale", 0},
    {"attention.scale", 0},
    {"attention.sliding_window", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"nextn_predict_layers", 0},
    {"attention.temperature_scale", 0},
    {"attention.causal", 1},
};

/* What the file's author would sample with. */
static const struct {
    const char *member, *key;
} sampling_keys[] = {{"temperature", "general.sampling.temp"},
                     {"top_k", "general.sampling.top_k"},
                     {"top_p", "general.sampling.top_p"},
                     {"min_p", "general.sampling.min_p"},
                     {"repetition_penalty", "general.sampling.penalty_repeat"}};
enum { N_SAMPLING_KEYS = sizeof(sampling_keys) / sizeof(sampling_keys[0]) };

static const char *member_key(const struct key *k, const char *member) {
    for (; k->key != NULL; k++)
        if (strcmp(k->member, member) == 0) return k->key;
    return NULL;
}

const char *gguf_key_of(const char *member) {
    static const struct {
        const char *member, *key;
    } others[] = {{"rope_scaling.", "rope.scaling."},
                  {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                  {"bos_token_id", "tokenizer.ggml.bos_token_id"},
                  {"vocab_size", "tokenizer.ggml.tokens"}};
    const char *key = member_key(keys, member);
    for (int i = 0; i < N_ARCHS && key == NULL; i++) key = member_key(archs[i].keys, member);
    if (key != NULL) return key;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(others[i].member, member) == 0) return others[i].key;
    for (int i = 0; i < N_SAMPLING_KEYS; i++)
        if (strcmp(sampling_keys[i].member, member) == 0) return sampling_keys[i].key;
    return member;
}

/* A key that may be one value for all layers or a list of them, which then must agree. */
static bool uniform(const struct gguf *g, const char *key, double *out) {
    const struct gguf_pair *p = gguf_find(g, key);
    double v;
    if (p == NULL || p->n == 0 || !gguf_pair_f64(p, 0, out)) return false;
    for (uint64_t i = 1; i < p->n; i++)
        if (!gguf_pair_f64(p, i, &v) || v != *out) return false;
    return true;
}

/* The value of a key of the architecture; absent where it is not there or is no number. */
static double number_of(const struct gguf *g, const struct arch *a, const char *name,
                        double absent) {
    char key[KEY_BYTES];
    double v = 0;
    snprintf(key, sizeof(key), "%s.%s", a->name, name);
    return uniform(g, key, &v) && isfinite(v) ? v : absent;
}

static const struct arch *arch_of(const struct gguf *g, struct errbuf *eb) {
    const char *s = NULL, *near = archs[0].name;
    size_t n = 0, least = SIZE_MAX;
    if (gguf_str(g, "general.architecture", &s, &n)) {
        for (int i = 0; i < N_ARCHS; i++) {
            const size_t len = strlen(archs[i].name);
            if (len == n && memcmp(archs[i].name, s, n) == 0) {
                const bool next = i + 1 < N_ARCHS && strcmp(archs[i + 1].name, archs[i].name) == 0;
                const bool second = next && number_of(g, &archs[i], archs[i + 1].second, 0) > 0;
                return &archs[second ? i + 1 : i];
            }
            const size_t d = near_distance(s, n, archs[i].name, len);
            if (d >= least) continue;
            least = d;
            near = archs[i].name;
        }
    }
    const char *lacks = s != NULL ? family_lacks(s, n) : NULL;
    if (lacks != NULL) {
        err_set(eb, ERR_BAD_FILE, "%s: general.architecture \"%.*s\" is not supported: it has %s",
                gguf_name(g), n < 60 ? (int)n : 60, s, lacks);
        return NULL;
    }
    err_set(eb, ERR_BAD_FILE,
            "%s: general.architecture must be one of those in docs/models.md, the nearest is "
            "\"%s\", got \"%.*s\"",
            gguf_name(g), near, n < 60 ? (int)n : 60, s != NULL ? s : "");
    return NULL;
}

bool gguf_adapter_fits(const char *arch, size_t n, const char *family, bool *pairs) {
    static const char *const as[][2] = {/* a family, and that in whose place a converter puts it */
                                        {"mistral", "llama"},
                                        {"granitemoe", "granitemoeshared"},
                                        {"granitemoehybrid", "granite"}};
    const char *other = family;
    for (size_t i = 0; i < sizeof(as) / sizeof(as[0]); i++)
        if (strcmp(as[i][0], family) == 0) other = as[i][1];
    for (int i = 0; i < N_ARCHS; i++) {
        const struct arch *a = &archs[i];
        if (strlen(a->name) != n || memcmp(a->name, arch, n) != 0) continue;
        if (strcmp(a->model_type, family) != 0 && strcmp(a->model_type, other) != 0) continue;
        *pairs = a->pairs;
        return true;
    }
    return false;
}

static bool arch_has(const struct arch *a, const char *key) {
    for (const struct key *k = a->keys; k->key != NULL; k++)
        if (strcmp(k->key, key) == 0) return true;
    return false;
}

static enum err put_keys(struct buf *b, const struct gguf *g, const struct arch *a,
                         const struct key *k, struct errbuf *eb) {
    char key[KEY_BYTES];
    for (; k->key != NULL; k++) {
        double v;
        snprintf(key, sizeof(key), "%s.%s", a->name, k->key);
        if (gguf_find(g, key) == NULL) {
            if (!k->must) continue;
            return err_set(eb, ERR_BAD_FILE, "%s: key %s is missing", gguf_name(g), key);
        }
        if (!uniform(g, key, &v) || !isfinite(v) || (k->kind == COUNT && v != floor(v)))
            return err_set(eb, ERR_BAD_FILE, "%s: key %s must be %s, the same for every layer",
                           gguf_name(g), key, k->kind == COUNT ? "an integer" : "a number");
        const char *member = k->member;
        if (a->dense_width != NULL && strcmp(k->key, "feed_forward_length") == 0)
            member = a->dense_width;
        if (strcmp(k->key, "block_count") == 0 && arch_has(a, "nextn_predict_layers"))
            v -= number_of(g, a, "nextn_predict_layers", 0);
        if (k->kind == COUNT && (v != 0 || k->must))
            buf_printf(b, "\"%s\":%.0f,", member, v);
        else if (k->kind == NUMBER && (v != 0 || k->must))
            buf_printf(b, "\"%s\":%.17g,", member, v);
    }
    return ERR_OK;
}

/* What HuggingFace's classes and llama.cpp take where a key is not there is not the same. */
static void put_absent(struct buf *b, const struct gguf *g, const struct arch *a) {
    const double hidden = number_of(g, a, "embedding_length", 0),
                 heads = number_of(g, a, "attention.head_count", 1),
                 layers = number_of(g, a, "block_count", 0),
                 head_dim = number_of(g, a, "attention.key_length", floor(hidden / heads)),
                 turning = number_of(g, a, "rope.dimension_count", head_dim);
    if (number_of(g, a, "attention.head_count_kv", 0) == 0)
        buf_printf(b, "\"num_key_value_heads\":%.0f,", heads);
    if (number_of(g, a, "attention.key_length", 0) == 0 && fmod(hidden, heads) == 0)
        buf_printf(b, "\"head_dim\":%.0f,", head_dim);
    /* half a value more, lest a quotient that is rounded down loses one */
    if (a->partial && turning > 0 && turning < head_dim)
        buf_printf(b, "\"partial_rotary_factor\":%.17g,", (turning + 0.5) / head_dim);
    else if (a->partial)
        buf_puts(b, "\"partial_rotary_factor\":1,");
    if (a->root_layers > 0)
        buf_printf(b, "\"query_pre_attn_scalar\":%.17g,",
                   layers == a->root_layers ? hidden / heads : head_dim);
    if (arch_has(a, "embedding_scale") && number_of(g, a, "attention.scale", 0) == 0)
        buf_printf(b, "\"attention_multiplier\":%.17g,", 1 / sqrt(head_dim));
}

static bool pair_bool(const struct gguf_pair *p, uint64_t idx, bool *out) {
    if (p->kind != GGUF_BOOL || idx >= p->n) return false;
    *out = p->value[idx] != 0;
    return true;
}

/* Windows: a period, or for each layer whether it has one. */
static enum err put_windows(struct buf *b, const struct gguf *g, const struct arch *a,
                            struct errbuf *eb) {
    char key[KEY_BYTES];
    bool on;
    const double window = number_of(g, a, "attention.sliding_window", 0);
    const bool gemma2 = strcmp(a->name, "gemma2") == 0; /* has one also where no key says so */
    snprintf(key, sizeof(key), "%s.attention.sliding_window", a->name);
    if (arch_has(a, "attention.chunk_size") && gguf_find(g, key) != NULL)
        return err_set(eb, ERR_BAD_FILE, "%s: key %s must be absent for %s, got %g", gguf_name(g),
                       key, a->name, window);
    if (!arch_has(a, "attention.sliding_window")) return ERR_OK;
    if (window == 0 && !gemma2) buf_puts(b, "\"sliding_window\":null,");
    snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", a->name);
    const struct gguf_pair *p = gguf_find(g, key);
    if (p == NULL || (window == 0 && !gemma2)) return ERR_OK;
    if (!pair_bool(p, 0, &on)) {
        buf_printf(b, "\"sliding_window_pattern\":%.0f,",
                   number_of(g, a, "attention.sliding_window_pattern", -1));
        return ERR_OK;
    }
    buf_puts(b, "\"layer_types\":[");
    for (uint64_t i = 0; i < p->n && i < MODEL_LAYERS_MAX; i++) {
        if (!pair_bool(p, i, &on))
            return err_set(eb, ERR_BAD_FILE, "%s: key %s must be a number or a list of booleans",
                           gguf_name(g), key);
        buf_printf(b, "%s\"%s\"", i > 0 ? "," : "", on ? "sliding_attention" : "full_attention");
    }
    buf_puts(b, "],");
    return ERR_OK;
}

static enum err check_neutrals(const struct gguf *g, const struct arch *a, struct errbuf *eb) {
    char key[KEY_BYTES];
    const double gating = number_of(g, a, "expert_gating_func", a->latent ? 1 : a->gating);
    if (a->latent && gating != 1 && gating != 2)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: key %s.expert_gating_func must be absent, 1 or 2, got %g", gguf_name(g),
                       a->name, gating);
    if (a->gating != 0 && gating != a->gating)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: key %s.expert_gating_func must be absent or %d, got %g", gguf_name(g),
                       a->name, a->gating, gating);
    for (size_t i = 0; i < sizeof(neutrals) / sizeof(neutrals[0]); i++) {
        double v = 0;
        bool on;
        snprintf(key, sizeof(key), "%s.%s", a->name, neutrals[i].key);
        const double want =
            strcmp(neutrals[i].key, "attention.causal") == 0 && a->encoder ? 0 : neutrals[i].value;
        if (gguf_find(g, key) == NULL || arch_has(a, neutrals[i].key)) continue;
        if (gguf_bool(g, key, &on))
            v = on;
        else if (!uniform(g, key, &v))
            v = NAN;
        if (v != want)
            return err_set(eb, ERR_BAD_FILE, "%s: key %s must be absent or %g for %s, got %g",
                           gguf_name(g), key, want, a->name, v);
    }
    return ERR_OK;
}

static const char *rope_key(char key[KEY_BYTES], const struct arch *a, const char *name) {
    snprintf(key, KEY_BYTES, "%s.rope.scaling.%s", a->name, name);
    return key;
}

/* Longrope: the divisors of the pairs are two tensors. */
static enum err put_longrope(struct buf *b, const struct gguf *g, const struct arch *a,
                             struct errbuf *eb) {
    static const char *const lists[][2] = {{"short_factor", "rope_factors_short.weight"},
                                           {"long_factor", "rope_factors_long.weight"}};
    const double factor = number_of(g, a, "rope.scaling.attn_factor", 0),
                 original = number_of(g, a, "rope.scaling.original_context_length", 0);
    if (original > 0) buf_printf(b, "\"original_max_position_embeddings\":%.17g,", original);
    buf_puts(b, "\"rope_scaling\":{\"rope_type\":\"longrope\"");
    if (factor > 0) buf_printf(b, ",\"attention_factor\":%.17g", factor);
    for (int i = 0; i < 2; i++) {
        const struct gguf_tensor *t = gguf_tensor_find(g, lists[i][1]);
        float v;
        if (t == NULL || strcmp(gguf_type_name(t->type, NULL, NULL), "F32") != 0 ||
            t->bytes > MODEL_HEAD_DIM_MAX / 2 * sizeof(float))
            return err_set(eb, ERR_BAD_FILE, "%s: tensor %s must be F32, a value for each pair",
                           gguf_name(g), lists[i][1]);
        buf_printf(b, ",\"%s\":[", lists[i][0]);
        for (uint64_t at = 0; at < t->bytes; at += sizeof(v)) {
            memcpy(&v, (const uint8_t *)gguf_tensor_data(g, t) + at, sizeof(v));
            buf_printf(b, "%s%.9g", at > 0 ? "," : "", (double)v);
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "},");
    return ERR_OK;
}

/* rope.scaling.*: none, linear, yarn, longrope. */
static enum err put_rope(struct buf *b, const struct gguf *g, const struct arch *a,
                         struct errbuf *eb) {
    char key[KEY_BYTES];
    const char *type = "linear";
    size_t n = strlen(type);
    double factor = 1, v;
    if (a->partial && gguf_tensor_find(g, "rope_factors_short.weight") != NULL)
        return put_longrope(b, g, a, eb);
    gguf_str(g, rope_key(key, a, "type"), &type, &n);
    if (!gguf_f64(g, rope_key(key, a, "factor"), &factor)) {
        snprintf(key, sizeof(key), "%s.rope.scale_linear", a->name);
        gguf_f64(g, key, &factor);
    }
    const bool none = n == 4 && memcmp(type, "none", 4) == 0,
               linear = n == 6 && memcmp(type, "linear", 6) == 0,
               yarn = n == 4 && memcmp(type, "yarn", 4) == 0;
    if (!none && !linear && !yarn)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: key %s must be one of \"none\" \"linear\" \"yarn\", got \"%.*s\"",
                       gguf_name(g), rope_key(key, a, "type"), n < 60 ? (int)n : 60, type);
    if (none || factor == 0 || (linear && factor == 1)) return ERR_OK;
    if (a->encoder)
        return err_set(eb, ERR_BAD_FILE, "%s: key %s must be absent or 1 for %s, got %g",
                       gguf_name(g), rope_key(key, a, "factor"), a->name, factor);
    buf_printf(b, "\"rope_scaling\":{\"rope_type\":\"%.*s\",\"factor\":%.17g", (int)n, type,
               factor);
    if (yarn && gguf_f64(g, rope_key(key, a, "original_context_length"), &v))
        buf_printf(b, ",\"original_max_position_embeddings\":%.17g", v);
    if (yarn && gguf_f64(g, rope_key(key, a, "yarn_beta_fast"), &v))
        buf_printf(b, ",\"beta_fast\":%.17g", v);
    if (yarn && gguf_f64(g, rope_key(key, a, "yarn_beta_slow"), &v))
        buf_printf(b, ",\"beta_slow\":%.17g", v);
    if (yarn && a->latent) {
        /* Beside the frequencies YaRN changes the scores alone. */
        buf_printf(b, ",\"attention_factor\":1,\"mscale_all_dim\":%.17g",
                   number_of(g, a, "rope.scaling.yarn_log_multiplier", 0) / 0.1);
    }
    if (yarn && a->smooth_ramp) buf_puts(b, ",\"truncate\":false");
    buf_puts(b, "},");
    return ERR_OK;
}

/* Latent attention. Heads' sizes are those of the model: older files have them as its keys' and
 * values', newer ones, whose keys and values are what is kept, apart. */
static void put_latent(struct buf *b, const struct gguf *g, const struct arch *a) {
    const double rank = number_of(g, a, "attention.q_lora_rank", 0),
                 turning = number_of(g, a, "rope.dimension_count", 0),
                 key = number_of(g, a, "attention.key_length_mla",
                                 number_of(g, a, "attention.key_length", 0)),
                 value = number_of(g, a, "attention.value_length_mla",
                                   number_of(g, a, "attention.value_length", 0));
    const double groups = number_of(g, a, "expert_group_count", 0);
    const bool sigmoid = number_of(g, a, "expert_gating_func", 1) == 2;
    if (!a->latent) return;
    if (rank > 0)
        buf_printf(b, "\"q_lora_rank\":%.0f,", rank);
    else
        buf_puts(b, "\"q_lora_rank\":null,");
    buf_printf(b, "\"qk_nope_head_dim\":%.0f,\"v_head_dim\":%.0f,", key - turning, value);
    buf_printf(b, "\"scoring_func\":\"%s\",\"topk_method\":\"%s\",",
               sigmoid ? "sigmoid" : "softmax",
               sigmoid      ? "noaux_tc"
               : groups > 1 ? "group_limited_greedy"
                            : "greedy");
}

/* Rows of the embedding matrix, which may be more than there are tokens. */
static enum err put_vocab(struct buf *b, const struct gguf *g, struct errbuf *eb) {
    const struct gguf_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    if (t == NULL)
        return err_set(eb, ERR_BAD_FILE, "%s: tensor token_embd.weight is missing", gguf_name(g));
    buf_printf(b, "\"vocab_size\":%llu,\"tie_word_embeddings\":%s,", (unsigned long long)t->dims[1],
               gguf_tensor_find(g, "output.weight") == NULL ? "true" : "false");
    return ERR_OK;
}

/* What an encoder has beside its shape. */
static void put_encoder(struct buf *b, const struct gguf *g) {
    const struct gguf_tensor *t = gguf_tensor_find(g, "token_types.weight");
    buf_printf(b, "\"type_vocab_size\":%llu,\"use_cache\":false}",
               t != NULL ? (unsigned long long)t->dims[1] : 0ull);
}

/* How a text becomes a vector; a key that is there says that this is what the model is for. */
static enum err read_pooling(struct model_conf *c, const struct gguf *g, const struct arch *a,
                             struct errbuf *eb) {
    static const enum pooling kinds[] = {POOL_NONE, POOL_MEAN, POOL_CLS, POOL_LAST};
    char key[KEY_BYTES];
    uint64_t v = 0;
    snprintf(key, sizeof(key), "%s.pooling_type", a->name);
    c->is_embedder = c->is_embedder || a->encoder;
    if (gguf_find(g, key) == NULL) return ERR_OK;
    if (!gguf_u64(g, key, &v) || v > 3)
        return err_set(eb, ERR_BAD_FILE,
                       "%s: key %s must be 0 (none), 1 (mean), 2 (cls) or 3 (last), got %llu",
                       gguf_name(g), key, (unsigned long long)v);
    if (kinds[v] == POOL_NONE) return ERR_OK;
    c->pooling = kinds[v];
    c->is_embedder = true;
    return ERR_OK;
}

static bool has(const struct gguf *g, const char *tensor) {
    return gguf_tensor_find(g, tensor) != NULL;
}

/* ---- ends of an answer */

/* Tokens that end an answer whatever the keys say, by their text; with harmony's pair <|end|> only
 * ends a message. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|eot|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<|eom|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "</s>",
    "<end_of_utterance>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
};
enum { N_END_TEXTS = sizeof(end_texts) / sizeof(end_texts[0]) };

struct ids {
    uint64_t v[EOS_IDS_MAX];
    int n;
};

static void add_id(struct ids *ids, uint64_t id) {
    for (int i = 0; i < ids->n; i++)
        if (ids->v[i] == id) return;
    if (ids->n < EOS_IDS_MAX) ids->v[ids->n++] = id;
}

static void find_end_texts(const struct gguf *g, struct ids *ids) {
    const struct gguf_pair *p = gguf_find(g, "tokenizer.ggml.tokens");
    struct gguf_cursor at = {0};
    uint64_t found[N_END_TEXTS];
    const char *s;
    size_t n;
    bool call = false, ret = false;
    memset(found, 0xff, sizeof(found));
    while (p != NULL && gguf_next_str(p, &at, &s, &n)) {
        if (n < 4 || n > 32) continue;
        for (int i = 0; i < N_END_TEXTS; i++)
            if (strlen(end_texts[i]) == n && memcmp(end_texts[i], s, n) == 0) found[i] = at.idx - 1;
    }
    for (int i = 0; i < N_END_TEXTS; i++) {
        call = call || (found[i] != UINT64_MAX && strcmp(end_texts[i], "<|call|>") == 0);
        ret = ret || (found[i] != UINT64_MAX && strcmp(end_texts[i], "<|return|>") == 0);
    }
    for (int i = 0; i < N_END_TEXTS; i++)
        if (found[i] != UINT64_MAX && !(call && ret && strcmp(end_texts[i], "<|end|>") == 0))
            add_id(ids, found[i]);
}

static void put_special(struct buf *b, const struct gguf *g) {
    static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id",
                                           "tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
    struct ids ids = {0};
    uint64_t id;
    for (size_t i = 0; i < sizeof(end_keys) / sizeof(end_keys[0]); i++)
        if (gguf_u64(g, end_keys[i], &id)) add_id(&ids, id);
    find_end_texts(g, &ids);
    if (ids.n > 0) buf_puts(b, "\"eos_token_id\":[");
    for (int i = 0; i < ids.n; i++)
        buf_printf(b, "%s%llu", i > 0 ? "," : "", (unsigned long long)ids.v[i]);
    if (ids.n > 0) buf_puts(b, "],");
    if (gguf_u64(g, "tokenizer.ggml.bos_token_id", &id))
        buf_printf(b, "\"bos_token_id\":%llu,", (unsigned long long)id);
}

static void put_generation(struct buf *b, const struct gguf *g) {
    double v;
    buf_puts(b, "{");
    for (int i = 0; i < N_SAMPLING_KEYS; i++) {
        if (gguf_f64(g, sampling_keys[i].key, &v)) /* ten digits: an integer of 31 bits whole */
            buf_printf(b, "\"%s\":%.10g,", sampling_keys[i].member, v);
    }
    if (b->data[b->len - 1] == ',')
        buf_puts(b, "\"do_sample\":true}");
    else
        buf_puts(b, "}");
}

enum err gguf_config(struct buf *config, struct buf *generation, const struct gguf *g,
                     struct errbuf *eb) {
    const struct arch *a = arch_of(g, eb);
    if (a == NULL) return ERR_BAD_FILE;
    buf_printf(config, "{\"model_type\":\"%s\",\"architectures\":[\"%s\"],\"hidden_act\":\"%s\",",
               a->model_type, a->architecture, a->act != NULL ? a->act : "silu");
    enum err e = check_neutrals(g, a, eb);
    if (e == ERR_OK) e = put_keys(config, g, a, keys, eb);
    if (e == ERR_OK) e = put_keys(config, g, a, a->keys, eb);
    if (e == ERR_OK) e = put_windows(config, g, a, eb);
    if (e == ERR_OK) e = put_rope(config, g, a, eb);
    if (e == ERR_OK) e = put_vocab(config, g, eb);
    if (e != ERR_OK) return e;
    put_latent(config, g, a);
    put_special(config, g);
    put_absent(config, g, a);
    if (a->encoder) {
        put_encoder(config, g);
        put_generation(generation, g);
        return config->failed || generation->failed
                   ? err_set(eb, ERR_NO_MEMORY, "no memory to read the metadata")
                   : ERR_OK;
    }
    if (has(g, "blk.0.attn_q_norm.weight") &&
        (strcmp(a->model_type, "cohere") == 0 || strcmp(a->model_type, "glm4_moe") == 0))
        buf_puts(config, "\"use_qk_norm\":true,");
    if (a->plain_experts > 0 && number_of(g, a, "expert_count", 0) == a->plain_experts)
        buf_puts(config, "\"use_qk_norm\":false,");
    bool normalise = a->normalise;
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), "%s.expert_weights_norm", a->name);
    if (a->gating != 0 || a->latent) gguf_bool(g, key, &normalise);
    if (arch_has(a, "expert_count"))
        buf_printf(config, "\"norm_topk_prob\":%s,", normalise ? "true" : "false");
    if (strcmp(a->model_type, "qwen2") != 0 && strcmp(a->model_type, "qwen2_moe") != 0 &&
        strcmp(a->model_type, "mixtral") != 0)
        buf_printf(config, "\"attention_bias\":%s,",
                   has(g, "blk.0.attn_q.bias") ? "true" : "false");
    if (has(g, "blk.0.ffn_gate.bias") || strcmp(a->model_type, "llama") == 0)
        buf_printf(config, "\"mlp_bias\":%s,", has(g, "blk.0.ffn_gate.bias") ? "true" : "false");
    buf_puts(config, "\"use_cache\":true}");
    put_generation(generation, g);
    return config->failed || generation->failed
               ? err_set(eb, ERR_NO_MEMORY, "no memory to read the metadata")
               : ERR_OK;
}

enum err gguf_config_rest(struct model_conf *c, const struct gguf *g, struct errbuf *eb) {
    const struct gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight");
    char key[KEY_BYTES];
    uint64_t n_rot; /* and other lengths */
    const struct arch *a = arch_of(g, eb);
    if (a == NULL) return ERR_BAD_FILE;
    c->rope_pairs = c->rope_pairs || a->pairs;
    if (a->llama_names) c->map = TENSORS_LLAMA;
    if (a->latent && has(g, "blk.0.attn_k_b.weight")) c->map = TENSORS_LATENT_SPLIT;
    enum err e = read_pooling(c, g, a, eb);
    if (e != ERR_OK) return e;
    snprintf(key, sizeof(key), "%s.attention.value_length", a->name);
    if (!a->latent && gguf_u64(g, key, &n_rot) && n_rot != (uint64_t)c->head_dim)
        return err_set(eb, ERR_BAD_FILE, "%s: key %s must be that of the keys, %d, got %llu",
                       gguf_name(g), key, c->head_dim, (unsigned long long)n_rot);
    snprintf(key, sizeof(key), "%s.rope.dimension_count", a->name);
    if (gguf_u64(g, key, &n_rot) && n_rot != (uint64_t)c->rope_dim)
        return err_set(eb, ERR_BAD_FILE, "%s: key %s must be the heads' dimension %d, got %llu",
                       gguf_name(g), key, c->rope_dim, (unsigned long long)n_rot);
    if (t == NULL) return ERR_OK;
    const char *type = gguf_type_name(t->type, NULL, NULL);
    if (strcmp(type, "F32") != 0 || t->bytes != (uint64_t)(c->rope_dim / 2) * sizeof(float))
        return err_set(eb, ERR_BAD_FILE, "%s: tensor rope_freqs.weight must be F32 [%d], got %s",
                       gguf_name(g), c->rope_dim / 2, type);
    memcpy(c->rope.divisors, gguf_tensor_data(g, t), (size_t)t->bytes);
    for (int i = 0; i < c->rope_dim / 2; i++)
        if (!(c->rope.divisors[i] > 0) || !isfinite(c->rope.divisors[i]))
            return err_set(eb, ERR_BAD_FILE,
                           "%s: rope_freqs.weight[%d] must be above 0 and finite, got %g",
                           gguf_name(g), i, (double)c->rope.divisors[i]);
    c->rope.has_divisors = true;
    return ERR_OK;
}
