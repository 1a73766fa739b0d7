/* token_guide: what the engine knows of guided decoding: a state that says which tokens may come
 * next. Who implements it is not the engine's affair (common/guide does).
 *
 * A state belongs to one sequence choice. It is copied by fork, moved by advance, given back by
 * free; it holds on to everything it needs. `ops` NULL: the sequence is not guided.
 * Thread: a state is one thread's at a time; two states of one guide may be used by two threads. */
#ifndef BATON_ENGINE_TOKEN_GUIDE_H
#define BATON_ENGINE_TOKEN_GUIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

struct token_guide_ops {
    void *(*fork)(const void *state); /* an equal state of its own; NULL: no memory */
    /* Sets bit id % 64 of bits[id / 64] for every id < n_ids that may come next, clears the others.
     * End-of-sequence ids are set where the text may end here. False: no id is set; the sequence
     * must end, or fail if failed() says so. Microseconds at steady state, a few milliseconds for a
     * position never seen. */
    bool (*mask)(void *state, uint64_t *bits, int n_ids);
    /* The sequence has got this id. False: it was not allowed, the state is dead and its masks are
     * empty from now on. */
    bool (*advance)(void *state, int32_t id);
    /* How many of ids[0..n) may come one after another, from the first on; the state stays where it
     * is. NULL: nobody can say without advancing. */
    int (*follow)(void *state, const int32_t *ids, int n);
    /* ERR_OK, or why the guide gave this sequence up in mask or advance (over one of its bounds, no
     * memory): the sequence fails with it, for its text is not complete. NULL: never. */
    enum err (*failed)(const void *state);
    void (*free)(void *state); /* NULL is fine */
};

struct token_guide {
    const struct token_guide_ops *ops;
    void *state;
};

#endif
