/* lora_bytes: a PEFT adapter of the tiny Llama (tiny_llama.h) as bytes, whole or with one thing
 * wrong, and a source that lora_read() reads it from. Included after cmocka.h. */
#ifndef BATON_TESTS_LORA_BYTES_H
#define BATON_TESTS_LORA_BYTES_H

#include "common/engine/lora.h"
#include "tests/unit/common/engine/tiny_llama.h"

enum { LORA_FILE_HEADER_BYTES = 16384 };

/* What an adapter is; the pointers NULL for a good one. */
struct lora_spec {
    int rank;
    unsigned modules;               /* bit m; 0: all */
    uint32_t seed;                  /* of the values */
    const char *config;             /* instead of the one that fits */
    const char *skip, *wide, *twin; /* tensors to leave out, to give one row more, to rename to
                                       `twin_name` */
    const char *twin_name, *dtype;  /* dtype: of every tensor, as text */
    bool nan;
};

struct lora_bytes {
    char config[2048];
    uint8_t *file;
    size_t n;
};

static inline const char *lora_half_name(char name[96], int layer, int m, int half) {
    snprintf(name, 96, "base_model.model.model.layers.%d.%s.lora_%c.weight", layer,
             lora_module_name((enum lora_module)m), "AB"[half]);
    return name;
}

static inline void lora_extents(int m, int *n, int *k) {
    const struct tensor *t = &layer_tensors[m < LORA_GATE ? 1 + m : 2 + m];
    *n = t->n;
    *k = t->k;
}

static inline void lora_bytes_make(struct lora_bytes *b, const struct lora_spec *s) {
    static const char *const targets[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                          "gate_proj", "up_proj", "down_proj"};
    char header[LORA_FILE_HEADER_BYTES] = "{", name[96], list[256] = "";
    unsigned modules = s->modules != 0 ? s->modules : (1u << LORA_MODULES) - 1;
    const char *dtype = s->dtype != NULL ? s->dtype : "F32";
    size_t at = 0, size = strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "I64") == 0 ? 8 : 2;
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int m = 0; m < LORA_MODULES; m++) {
            if ((modules & 1u << m) == 0) continue;
            for (int half = 0; half < 2; half++) {
                int n, k;
                lora_extents(m, &n, &k);
                lora_half_name(name, layer, m, half);
                if (s->skip != NULL && strcmp(name, s->skip) == 0) continue;
                int rows = half == 0 ? s->rank : n, columns = half == 0 ? k : s->rank;
                if (s->wide != NULL && strcmp(name, s->wide) == 0) rows++;
                size_t bytes = (size_t)rows * (size_t)columns * size, len = strlen(header);
                snprintf(header + len, sizeof(header) - len,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
                         len > 1 ? "," : "",
                         s->twin != NULL && strcmp(name, s->twin) == 0 ? s->twin_name : name, dtype,
                         rows, columns, at, at + bytes);
                at += bytes;
            }
        }
    }
    strcat(header, "}");
    for (int m = 0; m < LORA_MODULES; m++)
        if ((modules & 1u << m) != 0)
            snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s\"%s\"",
                     list[0] != 0 ? "," : "", targets[m]);
    snprintf(b->config, sizeof(b->config),
             "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d,\"bias\":\"none\",\"target_modules"
             "\":[%s]}",
             s->rank, 2 * s->rank, list);
    if (s->config != NULL) snprintf(b->config, sizeof(b->config), "%s", s->config);
    float *values = calloc(at / 4 + 1, sizeof(float));
    assert_non_null(values);
    uint32_t x = s->seed + 1;
    for (size_t i = 0; size == 4 && i < at / 4; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)x * 0x1p-33f;
    }
    if (s->nan) values[at / 8] = __builtin_nanf("");
    b->file = malloc(8 + strlen(header) + at);
    assert_non_null(b->file);
    b->n = safetensors_bytes(b->file, header, values, at);
    free(values);
}

static inline bool lora_bytes_read(void *arg, uint64_t offset, void *dst, size_t n) {
    const struct lora_bytes *b = arg;
    if (offset > b->n || n > b->n - offset) return false;
    if (n > 0) memcpy(dst, b->file + offset, n);
    return true;
}

static inline enum err lora_bytes_open(struct lora **out, struct lora_bytes *b,
                                       const struct model_info *base, int rank_max,
                                       struct errbuf *eb) {
    const struct lora_source source = {"adapter_model.safetensors", lora_bytes_read, b, b->n};
    return lora_read(out, b->config, strlen(b->config), &source, base, rank_max, eb);
}

static inline struct lora *lora_of(const struct lora_spec *s, const struct model_info *base) {
    struct lora_bytes b;
    struct lora *l = NULL;
    struct errbuf eb = {0};
    lora_bytes_make(&b, s);
    if (lora_bytes_open(&l, &b, base, LORA_RANK_MAX, &eb) != ERR_OK) fail_msg("%s", eb.text);
    free(b.file);
    return l;
}

#endif
