/* ledger: what requests of this coordinator take of one instance, from the moment they get their
 * pair. These functions are its only writers; an entry that is booked is released once, with the
 * same numbers. Pure. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_LEDGER_H
#define BATON_COORDINATOR_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include "coordinator/schedule.h"

struct booking {
    uint64_t slots, blocks;
};

/* What one request takes. */
struct ledger_entry {
    struct booking room;
    uint64_t prompt_tokens; /* to compute (P) */
    double prefill_s;       /* and seconds of that, expected; 0: not known */
    double tokens;          /* expected to be kept and made (D) */
    bool decodes;           /* D's side */
    bool coming;            /* of it: its prompt is computed still */
};

struct ledger {
    unsigned tasks;   /* requests in work there: at P until its first token, at D after that */
    unsigned decodes; /* of them on D's side */
    unsigned coming;  /* of these, not begun yet */
    uint32_t asked;   /* what any instance can answer and went there, such as texts to embed */
    struct booking booked;
    struct booking at_poll,
        at_status; /* booked when the last poll began; what the last status saw */
    uint64_t prompt_tokens;
    double prefill_s;
    double tokens;
};

/* The two sides of a request: P works on its prompts, D on every sequence drawn from them. An
 * instance that is both (alone) has the room for it once, on D's side. */
struct ledger_entry ledger_entry_p(const struct demand *d, bool alone);
struct ledger_entry ledger_entry_d(const struct demand *d, double expected_tokens);

void ledger_book(struct ledger *l, const struct ledger_entry *e);
void ledger_release(struct ledger *l, const struct ledger_entry *e);
/* D's side begins: its first token is there. Once at most, between the two. */
void ledger_begin(struct ledger *l, struct ledger_entry *e);

/* One more of those. */
void ledger_ask(struct ledger *l);

/* A poll begins; its answer has come, and knows of what was booked then. */
void ledger_poll_begins(struct ledger *l);
void ledger_poll_answered(struct ledger *l);

/* Of total there were `free` as the last status had it: what is left now, by what was booked and
 * released since. */
uint64_t ledger_slots_left(const struct ledger *l, uint64_t total, uint64_t free);
uint64_t ledger_blocks_left(const struct ledger *l, uint64_t total, uint64_t free);

#endif
