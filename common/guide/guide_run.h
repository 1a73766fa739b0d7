/* guide_run: the automaton at work. A position in the output is a configuration: the set of states
 * it may be in, each with the stack of rules to return to. Configurations and stack cells are made
 * once and known by number; masks hang from them. Private to common/guide.
 *
 * Everything here is called with the guide's lock held. */
#ifndef BATON_GUIDE_RUN_H
#define BATON_GUIDE_RUN_H

#include <pthread.h>
#include "common/base/work_limit.h"
#include "common/guide/guide_net.h"
#include "common/guide/guide_vocab.h"

enum {
    CFG_DEAD = 0,   /* number of the configuration without states */
    STK_BOTTOM = 0, /* the output's own end */
    STK_HOLE = 1,   /* a stack whose lower part is not looked at (masks of one frame) */
    CFG_ITEMS_MAX =
        GUIDE_POSITIONS_MAX, /* states of one configuration; more: the text is too ambiguous */
    CFGS_MAX = 8000,         /* then what no sequence is at is forgotten */
    CFGS_HARD_MAX = 100000,  /* within one step of a sequence */
    STACKS_MAX = 200000,
    MASK_BYTES_MAX = 32 * 1024 * 1024,
    WALK_DEPTH_MAX = VOCAB_TOKEN_BYTES_MAX + 2,
};

struct run_item {
    int32_t q;
    uint32_t stk;
};

struct run_cfg {
    uint32_t first, n; /* of items */
    int32_t budget;    /* tokens of free text allowed here, -1: no free text */
    bool accepting;    /* the output may end here */
    bool popped;       /* the frame above STK_HOLE may end here */
    uint32_t *next;    /* [256] configuration by byte + 1, or NULL; 0: not known yet */
    uint64_t *mask;    /* or NULL */
    uint32_t canon;    /* + 1: the configuration whose mask is this one's; 0: not known yet */
    uint32_t hash_next;
};

struct run_stk {
    int32_t ret;
    uint32_t parent;
    uint32_t canon; /* + 1 */
    uint32_t hash_next;
};

/* Tokens that one state allows within its own rule, and the nodes of the trie where the rule is
 * complete with more of the token to come. */
struct run_local {
    bool known;
    uint64_t *bits; /* NULL: ids instead */
    int32_t *ids;
    uint32_t *nodes;
    uint32_t n_ids, n_nodes;
};

struct guide_state;

struct run {
    const struct automaton *a;
    const struct guide_vocab *v;

    struct run_cfg *cfgs;
    size_t n_cfgs, cap_cfgs;
    struct run_item *items;
    size_t n_items, cap_items;
    struct run_stk *stks;
    size_t n_stks, cap_stks;
    uint32_t *cfg_slots, *stk_slots; /* heads of chains, number + 1 */
    struct run_local *locals;        /* [n_states] */
    size_t mask_bytes;               /* of masks in cfgs and locals */

    /* one closure */
    struct run_item *todo, *found;
    size_t n_todo, cap_todo, n_found, cap_found;
    struct {
        struct run_item item;
        uint32_t stamp;
    } * seen;
    size_t seen_mask, n_seen;
    uint32_t stamp;
    bool accepting, popped;

    /* one step of a sequence: run_step_begin() */
    bool failed;
    enum err why;            /* of the failure: ERR_NO_MEMORY, ERR_TOO_LARGE, ERR_TIMEOUT */
    struct work_limit limit; /* none: zero */
    unsigned n_since_look;
};

bool run_init(struct run *r, const struct automaton *a, const struct guide_vocab *v);
void run_fini(struct run *r);
uint32_t run_begin(struct run *r);                            /* CFG_DEAD: no memory */
uint32_t run_step(struct run *r, uint32_t cfg, uint8_t byte); /* CFG_DEAD: not allowed */
/* The configuration that free text is cut short to. */
uint32_t run_force(struct run *r, uint32_t cfg);
/* Opens a step that may take step_ms of this thread's time; 0: any. What fails until the next one
 * sets failed and why. */
void run_step_begin(struct run *r, int step_ms);
void run_fail(struct run *r, enum err why); /* the first reason stays */
bool run_is_full(const struct run *r);
/* Forgets all but what the given configurations need and renumbers them in place. False: no memory;
 * everything is as it was. */
bool run_collect(struct run *r, uint32_t **cfgs, size_t n);

/* guide_mask.c: bits of the configuration's tokens, without end of sequence; NULL: no memory. Lives
 * until the next call. scratch: [words] of the caller's. */
const uint64_t *run_mask(struct run *r, uint32_t cfg, uint64_t *scratch);
/* The same where the decoder cuts blanks from the start of the next token: `mask` is run_mask()'s
 * of the configuration, which may lie in scratch; the answer does. NULL: no memory. */
const uint64_t *run_mask_cut(struct run *r, uint32_t cfg, struct detok_cut cut,
                             const uint64_t *mask, uint64_t *scratch);
/* Masks of states with many tokens, made before anyone waits for them. */
void run_warm(struct run *r, uint64_t deadline_us);
void run_forget_masks(struct run *r);
size_t run_mask_words(const struct run *r);

/* for guide_mask.c */
uint32_t run_stack(struct run *r, int32_t ret, uint32_t parent);
uint32_t run_intern(struct run *r, const struct run_item *items, size_t n, bool accepting,
                    bool popped);
uint32_t run_close(struct run *r, int32_t q, uint32_t stk); /* after one state with its stack */

#endif
