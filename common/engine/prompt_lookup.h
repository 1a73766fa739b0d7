/* prompt_lookup: guesses how a sequence goes on from what it has said before: the longest run of
 * its newest ids, 4 down to 2 of them, is looked up among all earlier ids of prompt and answer, and
 * what followed there is the draft. Whoever drafts checks each guess against the model
 * (engine_draft.c), so a bad guess costs time only.
 *
 * How many ids are drafted follows how many were right: twice as many after a draft that was right
 * throughout, one more than were right after another, and after one with nothing right none for a
 * while, longer each time in a row. All of it depends on the sequence's own past alone.
 *
 * Memory: one allocation at creation, at most 256 KiB. Thread: the engine thread. */
#ifndef BATON_ENGINE_PROMPT_LOOKUP_H
#define BATON_ENGINE_PROMPT_LOOKUP_H

#include <stdint.h>

enum {
    LOOKUP_NGRAM_MIN = 2,
    LOOKUP_NGRAM_MAX = 4,
    LOOKUP_SLOTS_MAX = 65536,      /* of the index; older ids make room for newer ones */
    LOOKUP_INDEX_STEP_MAX = 16384, /* ids a call enters: a long prompt takes several */
    LOOKUP_PAUSE_MAX = 32,         /* calls without a draft after one with nothing right */
};

struct prompt_lookup;

/* ids_max: the longest the sequence can become. draft_max: ids of a draft at most, >= 1. NULL: no
 * memory. */
struct prompt_lookup *prompt_lookup_create(int ids_max, int draft_max);
void prompt_lookup_destroy(struct prompt_lookup **l); /* NULL inside is fine */

/* Call it once a step with the sequence so far, which only grows: ids[0 .. n_ids), followed by room
 * for `room` more. Writes the draft there and returns its length, 0: there is none. */
int prompt_lookup_draft(struct prompt_lookup *l, int32_t *ids, int n_ids, int room);

/* Of the n_draft ids that were tried, >= 1, the first n_right were right. */
void prompt_lookup_learn(struct prompt_lookup *l, int n_draft, int n_right);

#endif
