/* relay_prefix: where the beginning of a request lies: keys of its input, what the book has under
 * them, and what answers tell for the next ones. */
#include <stdlib.h>
#include <string.h>
#include "coordinator/affinity.h"
#include "coordinator/body_look.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"
#include "proto/tenant.h"

enum {
    BLOCK_TOKENS_MAX = 128, /* cacheBlockSize */
    ENDS_MAX = 8,           /* keys that may be the end of an input */
};

/* What stands before an input; inputs of different owners share no KV. */
static uint64_t seed_of(const struct relay *r, const struct body_look *look) {
    const char *owner = tenant_owner(r->tenant->name);
    uint64_t seed = prefix_keys_mix(look->before_input, owner, strlen(owner));
    seed = prefix_keys_mix(seed, r->url_path, strlen(r->url_path));
    return seed;
}

void relay_prefix_open(struct relay *r, const struct body_look *look) {
    struct prefix_key keys[PREFIX_KEYS_MAX];
    /* What a kept answer stands before would have to be looked at too. */
    if ((r->set->book == NULL && r->set->affinity == NULL) || look->input_bytes == 0 ||
        look->n_prompts != 1 || r->ask.context.len > 0)
        return;
    const size_t n = prefix_keys_of(keys, seed_of(r, look), look->input, look->input_bytes);
    if (n == 0 || (r->keys = malloc(n * sizeof(*keys))) == NULL) return;
    memcpy(r->keys, keys, n * sizeof(*keys));
    r->n_keys = n;
    r->input_bytes = look->input_bytes;
    r->n_ends = look->input[0] != '['                       ? 0
                : look->input[look->input_bytes - 1] == ']' ? 1
                                                            : ENDS_MAX;
}

/* ---- who had the conversation (cache_affinity) */

/* The key of the end of its last message, or of a text as far as keys go. */
static size_t last_end(const struct relay *r) {
    size_t i = r->n_keys - 1;
    while (r->n_ends > 0 && i > 0 && !r->keys[i].behind_brace) i--;
    return i;
}

uint32_t relay_prefix_home(const struct relay *r) {
    uint32_t id = 0;
    if (r->set->affinity == NULL || r->n_keys == 0) return 0;
    /* The whole input is no conversation before it: who asks the same again takes turns. */
    for (size_t i = last_end(r); i > 0 && id == 0; i--)
        id = affinity_find(r->set->affinity, r->keys[i - 1].hash);
    return id;
}

/* Where the end of an input is not known, of a long body, what stands behind it may have braces
 * too, and its last message ends at one of the last of them. Those that are in that message are as
 * good. */
void relay_prefix_settle(const struct relay *r, uint32_t id) {
    if (r->set->affinity == NULL || r->n_keys == 0) return;
    size_t left = r->n_ends;
    affinity_put(r->set->affinity, r->keys[last_end(r)].hash, id);
    for (size_t i = last_end(r); i > 0 && left > 1; i--) {
        if (!r->keys[i - 1].behind_brace) continue;
        affinity_put(r->set->affinity, r->keys[i - 1].hash, id);
        left--;
    }
}

size_t relay_prefix_find(const struct relay *r, struct prefix_found out[PREFIX_FOUND_MAX],
                         struct demand *d) {
    const struct relay_set *s = r->set;
    const size_t n = prefix_book_find(s->book, r->keys, r->n_keys, out);
    double tokens = (double)r->n_chars / s->token_chars;
    if (n > 0) tokens = out[0].at + (double)(r->input_bytes - out[0].n_bytes) / s->token_bytes;
    tokens += r->transcript.n_ids;
    d->prompt_tokens = tokens > 1 ? (uint64_t)tokens : 1;
    return n;
}

/* ---- what answers tell */

static void note_mean(double *mean, double now) {
    *mean += (now - *mean) / RELAY_MEAN_OF;
}

static void measure(const struct relay *r) {
    struct relay_set *s = r->set;
    const double n = (double)r->handover.prompt_tokens;
    if (r->n_prompts == 1 && r->n_chars > 0) note_mean(&s->token_chars, (double)r->n_chars / n);
    if (r->input_bytes > 0) note_mean(&s->token_bytes, (double)r->input_bytes / n);
}

/* Blocks are sent whole. */
static void measure_kv(const struct relay *r, unsigned block_tokens) {
    const struct handover *h = &r->handover;
    if (h->kv_blocks <= h->kv_blocks_held || h->kv_bytes == 0 || block_tokens == 0) return;
    const double now =
        (double)h->kv_bytes / ((double)(h->kv_blocks - h->kv_blocks_held) * block_tokens);
    if (r->set->kv_token_bytes > 0)
        note_mean(&r->set->kv_token_bytes, now);
    else
        r->set->kv_token_bytes = now;
}

static void expect_at(const struct relay *r, uint32_t id, const struct prefix_told *t) {
    struct inst *in = registry_find(&r->set->co->reg, id);
    for (size_t i = 0; in != NULL && i < t->n_digests; i++)
        prefix_set_expect(&in->prefix, t->digests[i]);
}

void relay_prefix_learn(struct relay *r, const struct json_value *answer, bool handed_over) {
    uint64_t digests[PREFIX_PROMPT_DIGESTS_MAX], block_tokens = 0;
    const char *text = "";
    size_t n_text = 0;
    struct prefix_told told = {.digests = digests,
                               .prompt_tokens = (double)r->handover.prompt_tokens,
                               .n_bytes = r->input_bytes,
                               .d_id = handed_over ? r->attempt.d_id : 0};
    if (r->set->book == NULL || r->handover.prompt_tokens == 0 ||
        r->handover.prompt_tokens > PROMPT_TOKENS_MAX)
        return;
    measure(r);
    if (json_get_str(answer, "prefixDigests", &text, &n_text) != JSON_OK ||
        json_get_u64(answer, "blockTokens", &block_tokens) != JSON_OK || block_tokens < 1 ||
        block_tokens > BLOCK_TOKENS_MAX ||
        !prefix_digests_read(digests, PREFIX_PROMPT_DIGESTS_MAX, &told.n_digests, text, n_text))
        return;
    told.block_tokens = (unsigned)block_tokens;
    measure_kv(r, told.block_tokens);
    expect_at(r, r->attempt.p_id, &told);
    if (handed_over) expect_at(r, r->attempt.d_id, &told);
    if (r->n_keys > 0) prefix_book_learn(r->set->book, r->keys, r->n_keys, &told);
}

void relay_prefix_ended(struct relay *r) {
    if (r->n_keys > 0 && r->n_sequences == 1 && r->n_tokens > 1)
        prefix_book_answered(r->set->book, r->keys, r->n_keys, (double)r->n_tokens);
}
