/* lora_conf: adapter_config.json of a PEFT directory, checked and reduced to what changes numbers:
 * which linear layers are adapted, with which rank and which scale.
 *
 * Refused, because the result would not be what was trained: kinds other than LORA, DoRA, biases,
 * fan_in_fan_out, modules_to_save, new tokens, replicated layers, ways of initialising that change
 * the base model (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) and modules chosen by a regular expression.
 * Members that matter in training only are not looked at. Pure. Source: the published format of
 * huggingface/peft (LoraConfig). */
#ifndef BATON_ENGINE_LORA_CONF_H
#define BATON_ENGINE_LORA_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include "proto/err.h"

enum {
    LORA_CONF_BYTES_MAX = 1 << 20,
    LORA_CONF_RANK_MAX = 65536, /* what is read; what may be served is lora_open()'s question */
    LORA_PATTERNS_MAX = 4096,
    LORA_TARGETS_MAX = 4096,
};

/* The adapted linear layers of a decoder layer. */
enum lora_module { LORA_Q, LORA_K, LORA_V, LORA_O, LORA_GATE, LORA_UP, LORA_DOWN, LORA_MODULES };
/* "self_attn.q_proj" ...; and the reverse of n bytes, LORA_MODULES: none of them. */
const char *lora_module_name(enum lora_module m);
enum lora_module lora_module_find(const char *name, size_t n);

struct lora_pattern {
    char *key; /* the last parts of a module's path: "q_proj", "layers.3.mlp.up_proj" */
    double value;
};

struct lora_patterns {
    struct lora_pattern *items;
    size_t n;
};

struct lora_conf {
    int rank;
    double alpha;
    bool rslora;       /* scale is alpha / sqrt(rank), else alpha / rank */
    bool some_layers;  /* layers_to_transform: not every layer need be there */
    bool some_modules; /* target_modules holds paths of single layers: the same */
    unsigned modules;  /* bit m: target_modules allows it */
    struct lora_patterns rank_pattern, alpha_pattern;
};

/* ERR_BAD_FILE: eb names member, value and what is allowed. On an error *c owns nothing. */
enum err lora_conf_parse(struct lora_conf *c, const char *json, size_t n, struct errbuf *eb);
void lora_conf_free(struct lora_conf *c);

/* Of module m of a layer: the first pattern that fits its path, else the config's own. */
int lora_conf_rank(const struct lora_conf *c, int layer, enum lora_module m);
float lora_conf_scale(const struct lora_conf *c, int layer, enum lora_module m);

#endif
