/* kv_fit: one row for each fact of a hello. */
#include "proto/kv_fit.h"

#include <stdio.h>
#include <string.h>
#include "proto/role_msg.h"

enum fact_kind { FACT_NUMBER, FACT_NAME, FACT_HASH };
struct fact {
    const char *what;
    enum kv_link_code code; /* where it differs */
    enum fact_kind kind;
    size_t at;   /* of the member: uint32_t, char [] with a 0, uint8_t [KV_HASH_BYTES] */
    uint8_t may; /* enum kv_may_differ; 0: never */
};

#define AT(M) offsetof(struct kv_hello, M)
static const struct fact facts[] = {
    {"model configuration", KV_LINK_MODEL, FACT_HASH, AT(conf_hash), 0},
    {"model hash", KV_LINK_MODEL, FACT_HASH, AT(model_hash), KV_MAY_WEIGHTS},
    {"shards", KV_LINK_SHARDS, FACT_NUMBER, AT(n_shards), 0},
    {"layers", KV_LINK_SHARDS, FACT_NUMBER, AT(n_layers), 0},
    {"KV heads", KV_LINK_SHARDS, FACT_NUMBER, AT(n_kv_heads), 0},
    {"head size", KV_LINK_SHARDS, FACT_NUMBER, AT(head_dim), 0},
    {"block tokens", KV_LINK_BLOCK, FACT_NUMBER, AT(block_tokens), 0},
    {"KV dtype", KV_LINK_DTYPE, FACT_NAME, AT(kv_dtype), 0},
    {"weight dtype", KV_LINK_DTYPE, FACT_NAME, AT(weight_dtype), KV_MAY_WEIGHTS},
    {"arithmetic", KV_LINK_ARITHMETIC, FACT_NAME, AT(arithmetic), KV_MAY_ARITHMETIC},
    {"tokenizer hash", KV_LINK_TOKENIZER, FACT_HASH, AT(tokenizer_hash), 0},
};

static const struct {
    uint8_t bit;
    const char *key;
} keys[] = {
    {KV_MAY_WEIGHTS, "allowMixedWeightDtype"},
    {KV_MAY_ARITHMETIC, "allowMixedIsa"},
};

static bool same(const struct fact *f, const uint8_t *a, const uint8_t *b) {
    switch (f->kind) {
    case FACT_NUMBER: return memcmp(a, b, sizeof(uint32_t)) == 0;
    case FACT_NAME: return strcmp((const char *)a, (const char *)b) == 0;
    case FACT_HASH: return memcmp(a, b, KV_HASH_BYTES) == 0;
    }
    return false;
}

static void value_text(const struct fact *f, const uint8_t *p, char text[32]) {
    uint32_t n;
    switch (f->kind) {
    case FACT_NUMBER:
        memcpy(&n, p, sizeof(n));
        snprintf(text, 32, "%u", n);
        break;
    case FACT_NAME: snprintf(text, 32, "%s", (const char *)p); break;
    case FACT_HASH: /* enough to tell two models apart when reading a log */
        for (int i = 0; i < 8; i++) snprintf(text + 2 * i, 3, "%02x", p[i]);
        break;
    }
}

static int both_values(const struct fact *f, const struct kv_hello *a, const struct kv_hello *b,
                       char *text, size_t room) {
    char of_a[32], of_b[32];
    value_text(f, (const uint8_t *)a + f->at, of_a);
    value_text(f, (const uint8_t *)b + f->at, of_b);
    return snprintf(text, room, "%s: instance %u has %s, instance %u has %s", f->what,
                    a->instance_id, of_a, b->instance_id, of_b);
}

/* Which key would allow it, and who lacks that. */
static void say_who_lacks(const struct fact *f, const struct kv_hello *a, const struct kv_hello *b,
                          char *text, size_t room) {
    const bool a_may = (a->may_differ & f->may) != 0, b_may = (b->may_differ & f->may) != 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].bit != f->may) continue;
        if (a_may || b_may)
            snprintf(text, room, "; %s is off in instance %u", keys[i].key,
                     a_may ? b->instance_id : a->instance_id);
        else
            snprintf(text, room, "; %s is off in both", keys[i].key);
    }
}

/* Whether a can prefill for b. */
static bool hands_over(unsigned a, unsigned b) {
    return (a == ROLE_PREFILL || a == ROLE_FLEX) && (b == ROLE_DECODE || b == ROLE_FLEX);
}

enum kv_link_code kv_fit(const struct kv_hello *a, const struct kv_hello *b,
                         char text[KV_TEXT_BYTES_MAX + 1]) {
    const size_t cap = KV_TEXT_BYTES_MAX + 1;
    size_t n = 0; /* of the differences that are allowed */
    text[0] = '\0';
    if (a->protocol != b->protocol) {
        snprintf(text, cap, "protocol version: instance %u has %u, instance %u has %u",
                 a->instance_id, a->protocol, b->instance_id, b->protocol);
        return KV_LINK_VERSION;
    }
    if (!hands_over(a->role, b->role) && !hands_over(b->role, a->role)) {
        snprintf(text, cap, "role: instance %u has %s, instance %u has %s", a->instance_id,
                 inst_role_name(a->role), b->instance_id,
                 b->role <= ROLE_MIXED ? inst_role_name(b->role) : "unknown");
        return KV_LINK_ROLE;
    }
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        const struct fact *f = &facts[i];
        if (same(f, (const uint8_t *)a + f->at, (const uint8_t *)b + f->at)) continue;
        if ((a->may_differ & b->may_differ & f->may) == 0) {
            const int told = both_values(f, a, b, text, cap);
            say_who_lacks(f, a, b, text + told, cap - (size_t)told);
            return f->code;
        }
        if (n > 0 && n < cap) n += (size_t)snprintf(text + n, cap - n, "; ");
        if (n < cap) n += (size_t)both_values(f, a, b, text + n, cap - n);
    }
    return KV_LINK_OK;
}
