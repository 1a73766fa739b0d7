/* prefix_book: where the beginning of a request has been computed before. Two halves:
 *
 * - the set of an instance: which digests lie in its prefix cache, as it says itself with each
 *   status (proto/prefix_msg.h), and as answers let expect until then;
 * - the book: for each cut of inputs seen lately (prefix_keys.h) the digest of the blocks up to
 *   there, as the prefill instance that computed it said, and the decode instance that went on.
 *
 * What they say guides requests and is never relied upon. No clock, no I/O. Thread: the loop
 * thread. */
#ifndef BATON_COORDINATOR_PREFIX_BOOK_H
#define BATON_COORDINATOR_PREFIX_BOOK_H

#include <stdbool.h>
#include "coordinator/prefix_keys.h"
#include "proto/prefix_msg.h"

/* ---- the digests of one instance; all zero at first */
struct prefix_set {
    uint64_t epoch, seq; /* of its last message; epoch 0: it says nothing of a cache */
    uint64_t *slots;     /* [n_slots] open addressing; 0: free */
    size_t n, n_slots;
};
void prefix_set_free(struct prefix_set *s);
/* A message that came; without one (epoch 0) the set is empty. Without memory it knows less. */
void prefix_set_take(struct prefix_set *s, const struct prefix_msg *m);
/* Expected to be there; the next message says whether it was true. Nothing where the instance has
 * never said anything. */
void prefix_set_expect(struct prefix_set *s, uint64_t digest);
bool prefix_set_has(const struct prefix_set *s, uint64_t digest);

/* ---- the book */
enum { PREFIX_BOOK_ROWS = 1 << 16, PREFIX_FOUND_MAX = 64 };
struct prefix_book;

struct prefix_book *prefix_book_create(void); /* NULL: no memory */
void prefix_book_destroy(struct prefix_book **b);

/* What a prefill instance said of an input with these keys. */
struct prefix_told {
    const uint64_t *digests; /* [n_digests] prefix_digests_of() */
    size_t n_digests;
    unsigned block_tokens;
    double prompt_tokens; /* of the input, which has n_bytes */
    size_t n_bytes;
    uint32_t d_id; /* who decodes it */
};
void prefix_book_learn(struct prefix_book *b, const struct prefix_key *keys, size_t n_keys,
                       const struct prefix_told *told);
/* The answer behind the last of the keys has so many tokens now, which its decode instance has. */
void prefix_book_answered(struct prefix_book *b, const struct prefix_key *keys, size_t n_keys,
                          double new_tokens);

/* A beginning that is known. */
struct prefix_found {
    uint64_t digest;
    double tokens; /* up to the digest's block */
    double at;     /* up to the cut, estimated */
    size_t n_bytes;
    uint32_t d_id; /* has new_tokens more, of the answer behind it */
    double new_tokens;
};
/* The longest first. */
size_t prefix_book_find(const struct prefix_book *b, const struct prefix_key *keys, size_t n_keys,
                        struct prefix_found out[PREFIX_FOUND_MAX]);
/* Tokens of what was found that the instance has. */
double prefix_cached_at(const struct prefix_found *found, size_t n, const struct prefix_set *s,
                        uint32_t id);

#endif
