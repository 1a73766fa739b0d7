/* budget: what strangers together may hold of a process, and what they were refused: one table of
 * every such limit. A row is a resource; what a caller takes of it, it gives back. Rates and
 * deadlines hold nothing: whoever refuses by one only counts.
 *
 * Thread:  any; no lock. Over a limit by races: never (a take that does not fit takes nothing).
 * Log:     a refusal is a line "event=limit_reached", at most one a second and resource.
 * NULL:    a NULL budget has no limits and counts nothing. */
#ifndef BATON_BASE_BUDGET_H
#define BATON_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*  id, reason (label in metrics, word in the log), setting ("": a constant), what it bounds */
#define BUDGET_ROWS(X)                                                                             \
    X(BODY_BYTES, "body_bytes", "limits.bodiesInFlightMiB", "bytes of request bodies in flight")   \
    X(ANSWER_BYTES, "answer_bytes", "limits.answersMiB", "bytes of answers between D and client")  \
    X(KV_DOOR, "kv_door", "", "connections of strangers at the door of the KV links")

enum budget_id {
#define BUDGET_ID(id, reason, key, what) BUDGET_##id,
    BUDGET_ROWS(BUDGET_ID)
#undef BUDGET_ID
        BUDGET_COUNT
};

struct budget {
    struct budget_row {
        _Atomic uint64_t limit; /* UINT64_MAX: none */
        _Atomic uint64_t used, refusals;
        _Atomic uint64_t said_ms; /* when the log last said so */
    } rows[BUDGET_COUNT];
};

/* Nothing used, no limits. */
void budget_init(struct budget *b);
void budget_limit_set(struct budget *b, enum budget_id id, uint64_t limit); /* UINT64_MAX: none */

/* Takes n, or counts a refusal. The caller answers with the limit and its setting. */
bool budget_take(struct budget *b, enum budget_id id, uint64_t n);
/* Gives back what was taken. */
void budget_give(struct budget *b, enum budget_id id, uint64_t n);
/* Counts a refusal by a limit that is kept elsewhere: a rate, a deadline, a count per client. */
void budget_refused(struct budget *b, enum budget_id id);

uint64_t budget_limit(const struct budget *b, enum budget_id id);
uint64_t budget_used(const struct budget *b, enum budget_id id);
uint64_t budget_refusals(const struct budget *b, enum budget_id id);
const char *budget_reason(enum budget_id id);
const char *budget_key(enum budget_id id);

/* 256 MiB, or a sixteenth of the memory this process may use, the smaller. Bytes. */
uint64_t budget_bodies_default(void);

struct metrics;
struct budget_metrics;
/* Series <who>_limit_refused_total, <who>_limit_used and <who>_limit_max{reason} in m; who:
 * "coordinator", "instance". b is borrowed. NULL: no memory. Destroyed after m, which borrows the
 * names. */
struct budget_metrics *budget_metrics_create(struct metrics *m, const struct budget *b,
                                             const char *who);
/* Brings the series up to date: before metrics_write(). */
void budget_metrics_read(struct budget_metrics *bm);
void budget_metrics_destroy(struct budget_metrics **bm);

#endif
