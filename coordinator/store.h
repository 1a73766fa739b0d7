/* store: what a coordinator keeps of its cluster for the one after it: its term, and of each
 * instance its id, its place in the plan, and an operator's order to drain it. What is said here of
 * an instance yields to what that says itself of the orders it took.
 *
 * Three implementations behind one header: store_memory keeps the state as long as the process
 * lives; store_file writes it to a folder as well, whenever it has changed; store_etcd.h to an
 * etcd, for coordinators on several hosts. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_STORE_H
#define BATON_COORDINATOR_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "coordinator/plan.h"
#include "proto/err.h"

enum {
    STORE_IDENTITY_BYTES = 24,
    STORE_FILE_BYTES_MAX = 1 << 20, /* INSTANCES_MAX rows, and room */
    STORE_VERSION = 1,
    STORE_ID_MIN = 100000, /* derived ids have six digits */
    STORE_ID_MAX = 999999,
};
#define STORE_FILE_NAME "coordinator-state.json"

/* An instance is who listens on its management address. */
struct store_row {
    char identity[STORE_IDENTITY_BYTES]; /* "10.0.0.3:1026" */
    uint32_t id;
    enum inst_role role;           /* ROLE_NONE, ROLE_PREFILL or ROLE_DECODE */
    unsigned group;                /* 0: none */
    bool drained;                  /* an operator has ordered it */
    enum inst_role override, back; /* override.h; ROLE_NONE: there is none, there was no role */
    uint64_t override_unix_s;      /* its end */
};

struct store_state {
    uint64_t term;
    struct store_row *rows; /* by identity, strcmp() */
    size_t n_rows;
};

struct store;

/* Starts empty. */
enum err store_memory_open(struct store **out);
/* Starts with what the file of the folder holds. A file that does not hold is logged and counts as
 * empty: instances say the same. ERR_BAD_CONFIG: the folder cannot be used (absent, not writable,
 * used by another coordinator), or others may write the file; eb names the folder. */
enum err store_file_open(struct store **out, const char *dir, struct errbuf *eb);
void store_close(struct store **s);

uint64_t store_term(const struct store *s); /* the highest that was kept; 0: none */
/* The same of what another process would find. Behind store_term() where writing takes a while, or
 * has failed. */
uint64_t store_written_term(const struct store *s);
/* NULL: unknown. Valid until the next store_keep(). */
const struct store_row *store_find(const struct store *s, const char *identity);
/* Keeps this state, its rows in any order, in place of what was there; others: beside the rows of
 * other instances. Writes when something has changed. An error leaves the new state in memory, and
 * the next call tries again to write it. */
enum err store_keep(struct store *s, const struct store_state *state, bool others,
                    struct errbuf *eb);

/* The id of an instance that nobody knows yet: the same at each coordinator, from STORE_ID_MIN to
 * STORE_ID_MAX. The next one to try where it is taken. */
uint32_t store_first_id(const char *identity);
uint32_t store_next_id(uint32_t id);

/* The bytes of the file, both ways: one line of JSON, and the CRC-32C of that line in a second one.
 * eb names what is wrong. On an error *out is zeroed; else store_state_free() frees its rows. */
enum err store_state_format(struct buf *out, const struct store_state *s);
enum err store_state_parse(struct store_state *out, const char *bytes, size_t n, struct errbuf *eb);
void store_state_free(struct store_state *s);

#endif
