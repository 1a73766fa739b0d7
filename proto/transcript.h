/* transcript: what a client has been sent of an answer, as tokens: for each choice the ids whose
 * events are out, and whether it ended; with what the first attempt decided once. It is all that
 * another attempt needs beside the client's body to go on as if nothing had happened: the
 * coordinator keeps one for each request in flight, and its packed form is the replay record
 * (docs/wire-replay.md). Pure.
 *
 * It has no prompt ids: who reads the body with the same clock makes the same ones.
 *
 * Ownership: arrays are malloc'd; transcript_free() frees them. Thread: one owner at a time. */
#ifndef BATON_PROTO_TRANSCRIPT_H
#define BATON_PROTO_TRANSCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/emitted.h"
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/wire.h"

enum {
    TRANSCRIPT_IDS_MAX = PROMPT_TOKENS_MAX, /* of all choices together: 4 MiB */
    TRANSCRIPT_BYTES_MAX = 4 * TRANSCRIPT_IDS_MAX + 4 * PARTS_MAX + 5 * SEQUENCES_MAX + 64,
};

struct transcript_choice {
    int32_t *ids;
    uint32_t n_ids, cap;
    enum finish finish; /* with its last id; FINISH_NONE: it goes on */
};

struct transcript {
    int64_t created_unix_s; /* the answer's `created`, and the clock of chat templates */
    uint64_t seed;
    uint32_t n_parts, n_choices;       /* prompts; sequences of each. 0 of 0: nothing is known */
    uint32_t *cached_tokens;           /* [n_parts] as the first attempt reported it */
    struct transcript_choice *choices; /* [n_parts * n_choices] by part, then choice */
    uint32_t n_ids;                    /* of all choices */
};

#define TRANSCRIPT_INIT ((struct transcript){0})

/* Header of a request to P: so many bytes at the end of its body are a packed transcript. */
#define REPLAY_HEADER "baton-replay"

/* Makes the choices, all empty. *t is TRANSCRIPT_INIT before. ERR_INVALID: n_parts must be 1 to
 * PARTS_MAX, n_choices 1 to CHOICES_MAX, their product at most SEQUENCES_MAX. ERR_NO_MEMORY. */
enum err transcript_open(struct transcript *t, uint32_t n_parts, uint32_t n_choices);
void transcript_free(struct transcript *t); /* and zeroes it */

/* ERR_INVALID: no such choice, or it has ended. ERR_TOO_LARGE: over TRANSCRIPT_IDS_MAX.
 * ERR_NO_MEMORY. Nothing is changed then. */
enum err transcript_add(struct transcript *t, const struct emitted *e);
/* Bytes of memory that it holds, for accounts of memory. */
size_t transcript_memory(const struct transcript *t);
bool transcript_has_ended(const struct transcript *t); /* every choice */

/* Of one prompt alone, a copy with n_parts 1. ERR_INVALID: no such part; ERR_NO_MEMORY: *out is
 * TRANSCRIPT_INIT. */
enum err transcript_part(struct transcript *out, const struct transcript *t, uint32_t part);

void transcript_pack(struct wr *w, const struct transcript *t);
/* Reads what transcript_pack() wrote; the peer may be hostile. Bytes behind it are left to the
 * caller. ERR_BAD_FRAME: eb names the member, its value and the range. ERR_NO_MEMORY. *t is
 * TRANSCRIPT_INIT then. */
enum err transcript_unpack(struct rd *r, struct transcript *t, struct errbuf *eb);

#endif
