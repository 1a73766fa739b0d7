/* store_priv: what the implementations of the store share. */
#ifndef BATON_COORDINATOR_STORE_PRIV_H
#define BATON_COORDINATOR_STORE_PRIV_H

#include "coordinator/store.h"

struct store_ops {
    /* Writes the state where another process finds it. One that takes a while begins here, sets
     * written_term itself when it has ended, and says in the next call that it has failed. */
    enum err (*write)(struct store *s, struct errbuf *eb);
    void (*close)(struct store *s); /* frees *s itself; its state is freed already */
};

/* First member of an implementation. */
struct store {
    const struct store_ops *ops;
    struct store_state state;
    bool unwritten; /* the last write failed */
    bool takes_a_while;
    uint64_t written_term;
};

#endif
