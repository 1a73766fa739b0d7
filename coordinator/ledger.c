/* ledger: sums of entries, and what they leave. */
#include "coordinator/ledger.h"

struct ledger_entry ledger_entry_p(const struct demand *d, bool alone) {
    struct ledger_entry e = {.prompt_tokens =
                                 d->computed > 0 ? (uint64_t)d->computed : d->prompt_tokens,
                             .prefill_s = d->prompt_s};
    if (!alone) e.room = (struct booking){d->prompts, d->blocks};
    return e;
}

struct ledger_entry ledger_entry_d(const struct demand *d, double expected_tokens) {
    return (struct ledger_entry){
        .room = {d->slots, d->blocks}, .tokens = expected_tokens, .decodes = true, .coming = true};
}

void ledger_book(struct ledger *l, const struct ledger_entry *e) {
    l->tasks++;
    l->decodes += e->decodes;
    l->coming += e->coming;
    l->booked.slots += e->room.slots;
    l->booked.blocks += e->room.blocks;
    l->prompt_tokens += e->prompt_tokens;
    l->prefill_s += e->prefill_s;
    l->tokens += e->tokens;
}

void ledger_release(struct ledger *l, const struct ledger_entry *e) {
    l->tasks--;
    l->decodes -= e->decodes;
    l->coming -= e->coming;
    l->booked.slots -= e->room.slots;
    l->booked.blocks -= e->room.blocks;
    l->prompt_tokens -= e->prompt_tokens;
    l->prefill_s =
        l->tasks == l->decodes ? 0 : l->prefill_s - e->prefill_s; /* no rest of rounding */
    l->tokens -= e->tokens;
}

void ledger_begin(struct ledger *l, struct ledger_entry *e) {
    l->coming -= e->coming;
    e->coming = false;
}

void ledger_poll_begins(struct ledger *l) {
    l->at_poll = l->booked;
}

void ledger_poll_answered(struct ledger *l) {
    l->at_status = l->at_poll;
}

/* free_then of total was free when `then` was booked. A booking may not have arrived there yet, so
 * at least what is booked is taken; what ended takes its part of what was used with it. */
static uint64_t left_now(uint64_t total, uint64_t free_then, uint64_t then, uint64_t now) {
    uint64_t used = total > free_then ? total - free_then : 0;
    used = now >= then ? used + (now - then) : used * now / then;
    if (used < now) used = now;
    return used < total ? total - used : 0;
}

uint64_t ledger_slots_left(const struct ledger *l, uint64_t total, uint64_t free) {
    return left_now(total, free, l->at_status.slots, l->booked.slots);
}

uint64_t ledger_blocks_left(const struct ledger *l, uint64_t total, uint64_t free) {
    return left_now(total, free, l->at_status.blocks, l->booked.blocks);
}

void ledger_ask(struct ledger *l) {
    l->asked++;
}
