/* prefix_msg: a chain of multiply-and-fold, and hexadecimal. */
#include "proto/prefix_msg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/json.h"

enum { DENSE = 16 }; /* depths that are all told; beyond, steps of this part */

/* ---- digests */

static uint64_t fold(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t fold_text(uint64_t h, const char *s) {
    for (; *s != 0; s++) h = fold(h, (unsigned char)*s);
    return fold(h, 256); /* ends it: no two texts run together */
}

uint64_t prefix_digest_seed(const char *owner, const char *salt, uint64_t adapter) {
    uint64_t h = fold_text(UINT64_C(0xcbf29ce484222325), owner);
    if (salt != NULL) h = fold_text(fold(h, 257), salt);
    return fold(h, adapter);
}

uint64_t prefix_digest_next(uint64_t before, const int32_t *ids, int n_ids) {
    uint64_t h = fold(before, (uint64_t)n_ids);
    for (int i = 0; i < n_ids; i++) h = fold(h, (uint32_t)ids[i]);
    h &= ~PREFIX_GONE;
    return h != 0 ? h : 1;
}

uint32_t prefix_digest_after(uint32_t depth) {
    uint32_t d = DENSE;
    if (depth < DENSE) return depth + 1;
    while (d <= depth && d < UINT32_MAX / 2) d += d / DENSE;
    return d;
}

bool prefix_digest_counts(uint32_t depth) {
    return depth > 0 && prefix_digest_after(depth - 1) == depth;
}

size_t prefix_digests_of(uint64_t out[PREFIX_PROMPT_DIGESTS_MAX], uint64_t seed, const int32_t *ids,
                         size_t n_ids, int block_tokens) {
    uint64_t h = seed;
    uint32_t next = 1;
    size_t n = 0;
    if (block_tokens < 1) return 0;
    const size_t n_blocks = n_ids / (size_t)block_tokens;
    for (uint32_t depth = 1; depth <= n_blocks && n < PREFIX_PROMPT_DIGESTS_MAX; depth++) {
        h = prefix_digest_next(h, ids + (size_t)(depth - 1) * (size_t)block_tokens, block_tokens);
        if (depth != next) continue;
        out[n++] = h;
        next = prefix_digest_after(depth);
    }
    return n;
}

/* ---- text */

void prefix_digests_write(char *out, const uint64_t *digests, size_t n) {
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++)
        for (int shift = 60; shift >= 0; shift -= 4) *out++ = hex[digests[i] >> shift & 15];
    *out = 0;
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_one(uint64_t *out, const char *s) {
    uint64_t v = 0;
    for (int i = 0; i < PREFIX_DIGEST_CHARS; i++) {
        const int d = digit(s[i]);
        if (d < 0) return false;
        v = v << 4 | (uint64_t)d;
    }
    *out = v;
    return (v & ~PREFIX_GONE) != 0;
}

bool prefix_digests_read(uint64_t *out, size_t max, size_t *n, const char *text, size_t n_text) {
    *n = 0;
    if (n_text % PREFIX_DIGEST_CHARS != 0 || n_text / PREFIX_DIGEST_CHARS > max) return false;
    for (; *n < n_text / PREFIX_DIGEST_CHARS; ++*n)
        if (!read_one(&out[*n], text + *n * PREFIX_DIGEST_CHARS)) return false;
    return true;
}

/* ---- the message */

struct json_value *prefix_msg_format(const struct prefix_msg *m) {
    char epoch[PREFIX_DIGEST_CHARS + 1];
    if (m->epoch == 0) return NULL;
    char *text = malloc(m->n * PREFIX_DIGEST_CHARS + 1);
    if (text == NULL) return NULL;
    struct json_value *o = json_new_obj();
    snprintf(epoch, sizeof(epoch), "%016" PRIx64, m->epoch);
    prefix_digests_write(text, m->digests, m->n);
    json_obj_set(o, "epoch", json_new_str(epoch));
    json_obj_set(o, "seq", json_new_i64((int64_t)m->seq));
    json_obj_set(o, "whole", json_new_bool(m->whole));
    json_obj_set(o, "digests", json_new_str(text));
    free(text);
    return o;
}

enum err prefix_msg_parse(struct prefix_msg *m, const struct json_value *o, struct errbuf *eb) {
    const char *epoch, *text;
    size_t n_epoch, n_text;
    memset(m, 0, sizeof(*m));
    if (o == NULL) return ERR_OK;
    if (json_get_str(o, "epoch", &epoch, &n_epoch) != JSON_OK || n_epoch != PREFIX_DIGEST_CHARS ||
        strspn(epoch, "0123456789abcdef") != n_epoch || strtoull(epoch, NULL, 16) == 0)
        return err_set(eb, ERR_INVALID,
                       "prefixCache.epoch must be 16 hexadecimal digits, not all of them 0");
    if (json_get_str(o, "digests", &text, &n_text) != JSON_OK ||
        n_text % PREFIX_DIGEST_CHARS != 0 || n_text / PREFIX_DIGEST_CHARS > PREFIX_DIGESTS_MAX)
        return err_set(eb, ERR_INVALID,
                       "prefixCache.digests must be at most %d times 16 hexadecimal digits",
                       PREFIX_DIGESTS_MAX);
    uint64_t seq;
    if (json_get_u64(o, "seq", &seq) != JSON_OK || seq > INT64_MAX)
        return err_set(eb, ERR_INVALID, "prefixCache.seq must be an integer of at least 0");
    m->digests = malloc(n_text / PREFIX_DIGEST_CHARS * sizeof(*m->digests) + 1);
    if (m->digests == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    if (!prefix_digests_read(m->digests, PREFIX_DIGESTS_MAX, &m->n, text, n_text)) {
        const size_t at = m->n;
        prefix_msg_free(m);
        return err_set(eb, ERR_INVALID,
                       "prefixCache.digests[%zu] must be 16 hexadecimal digits in lower case, not "
                       "0",
                       at);
    }
    m->epoch = strtoull(epoch, NULL, 16);
    m->seq = seq;
    (void)json_get_bool(o, "whole", &m->whole);
    return ERR_OK;
}

void prefix_msg_free(struct prefix_msg *m) {
    free(m->digests);
    memset(m, 0, sizeof(*m));
}
