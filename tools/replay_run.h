/* replay_run: a recording as a whole: its requests with the tokens of their answers, its decisions
 * taken again, its faults. Also what of a request is sent when it is asked again, and how two runs
 * are compared.
 *
 * Ownership: run_free() frees all of it. Thread: one owner at a time. */
#ifndef BATON_TOOLS_REPLAY_RUN_H
#define BATON_TOOLS_REPLAY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "common/base/buf.h"
#include "proto/emitted.h"
#include "proto/err.h"
#include "tools/replay_record.h"

struct run_request {
    struct run_request *next_id; /* in a bucket */
    uint64_t id, us;             /* of its arrival */
    char *path;
    char *body;
    size_t n, n_json; /* n_json: of them, ahead of tensors */
    bool has_tensors; /* it said so: TENSORS_HEADER */
    bool has_seed;
    uint64_t seed;
    uint32_t p, d; /* where it began; 0: nowhere */
    unsigned n_lost;
    int status;             /* 0: the recording ends before it */
    uint64_t end_us;        /* UINT64_MAX then */
    struct emitted *tokens; /* what its client was sent, of all its choices */
    size_t n_tokens, cap;
    bool taken; /* by another one of another run */
};

enum { RUN_BUCKETS = 65536 };

struct run {
    struct schedule_conf conf;
    struct run_request **requests; /* [n] as they came */
    size_t n, cap;
    struct run_request *buckets[RUN_BUCKETS];
    size_t n_events, n_decisions, n_wrong, n_lost;
    char wrong[320]; /* the first decision that comes out in another way */
    char closed[80]; /* why it ends; "": it was cut off */
};

/* Reads the file and takes each decision again. faults: where losses and steps of instances are
 * told, a line each; may be NULL. ERR_NOT_FOUND, ERR_IO, ERR_INVALID, ERR_BAD_JSON, ERR_NO_MEMORY:
 * eb names the file and the line. A last line without its end is left out: the writer died. */
enum err run_read(struct run **out, const char *path, FILE *faults, struct errbuf *eb);
void run_free(struct run **run);

/* The body to send in place of r's: with the seed that was drawn for it, where it has none of its
 * own, so that the same tokens are drawn; *n_json: of it the bytes ahead of tensors. False: no
 * memory. */
bool run_body(struct buf *out, size_t *n_json, const struct run_request *r);

struct run_verdict {
    size_t n, n_same, n_part; /* all; equal; equal as far as one of both goes, since the first was
                                 ended early */
    size_t n_differ, n_missing, n_open; /* missing, or not at its end, in the second run */
    size_t n_tokens, n_same_pair;       /* of those found: began on the same P and D */
    char first[320];                    /* what differs first */
};

/* Finds each request of a in b, by path and body, in the order they came, and compares what clients
 * were sent: tokens and ends of each choice. ERR_NO_MEMORY. */
enum err run_compare(struct run_verdict *out, const struct run *a, const struct run *b);

#endif
