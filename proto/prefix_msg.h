/* prefix_msg: which prompts lie in an instance's prefix cache, as digests that mean the same on
 * every instance. A digest stands for the full KV blocks of a prompt from its beginning up to one
 * of them, and for whose they are. Only blocks at certain depths are told (prefix_digest_counts()):
 * so a prompt of a million tokens has at most PREFIX_PROMPT_DIGESTS_MAX, and what is not told of a
 * shared beginning is at most its sixteenth part.
 *
 * Digests guide requests to where their KV is. They prove nothing: who looks for KV compares tokens
 * (kv_cache.h), so one that is forged or collides costs time, no more. Pure. */
#ifndef BATON_PROTO_PREFIX_MSG_H
#define BATON_PROTO_PREFIX_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

struct json_value;

enum {
    PREFIX_DIGESTS_MAX = 16384,      /* of an instance */
    PREFIX_PROMPT_DIGESTS_MAX = 256, /* of one prompt */
    PREFIX_DIGEST_CHARS = 16,        /* hexadecimal, in lower case */
};
/* Of a digest in a message: the block is not there any more. */
#define PREFIX_GONE (UINT64_C(1) << 63)

/* Where a prompt's digests begin: whose it is (tenant_owner(), "": of nobody), its cache_salt
 * (NULL: none), the first bytes of the adapter's hash (0: the base model). */
uint64_t prefix_digest_seed(const char *owner, const char *salt, uint64_t adapter);
/* One full block more; the result is neither 0 nor has PREFIX_GONE. */
uint64_t prefix_digest_next(uint64_t before, const int32_t *ids, int n_ids);
/* Whether the digest after so many blocks is told: after each of the first 16, then after each
 * sixteenth part more. */
bool prefix_digest_counts(uint32_t depth);
/* The least depth above this one whose digest is told. */
uint32_t prefix_digest_after(uint32_t depth);

/* Those of n_ids tokens that are told, first to last; at most PREFIX_PROMPT_DIGESTS_MAX. */
size_t prefix_digests_of(uint64_t out[PREFIX_PROMPT_DIGESTS_MAX], uint64_t seed, const int32_t *ids,
                         size_t n_ids, int block_tokens);

/* What changed in a cache since the reader's last message, or all of it. */
struct prefix_msg {
    uint64_t epoch; /* of the process: another one knows nothing of this one's changes; 0: nothing
                       is told, there is no prefix cache */
    uint64_t seq;   /* changes so far, for the next question */
    bool whole;     /* digests are all there are; else they are what came and went since then */
    uint64_t *digests; /* [n] in order of time; owned */
    size_t n;
};

/* {"epoch":"..","seq":..,"whole":..,"digests":"<16 hexadecimal characters each>"}; NULL: no memory,
 * or nothing to tell (epoch 0). */
struct json_value *prefix_msg_format(const struct prefix_msg *m);
/* o NULL: nothing was told. On errors *m is empty: ERR_INVALID: eb names the member;
 * ERR_NO_MEMORY. */
enum err prefix_msg_parse(struct prefix_msg *m, const struct json_value *o, struct errbuf *eb);
void prefix_msg_free(struct prefix_msg *m);

/* The list alone: of a prompt's answer. Writes n * PREFIX_DIGEST_CHARS bytes and a zero. */
void prefix_digests_write(char *out, const uint64_t *digests, size_t n);
/* At most max of them; false: text is no such list. */
bool prefix_digests_read(uint64_t *out, size_t max, size_t *n, const char *text, size_t n_text);

#endif
