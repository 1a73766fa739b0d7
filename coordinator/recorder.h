/* recorder: a run of the coordinator as a file, for developers: what was asked, whom it was given
 * to and on what grounds, what was lost, and the tokens of every answer. tools/replay runs it again
 * (docs/recording.md, which has the format: one JSON object a line).
 *
 * What is in it: clients' bodies as they came, and tenants' names. Never a header's value, so no
 * API key. The file is made anew with mode 0600; one that is there already is never written over
 * (FILE.1, FILE.2, ... are tried).
 *
 * Bounds: at most bytes_max, then a last line says why it ended; RECORDER_WAITING_BYTES_MAX wait in
 * memory for a slow disk, more ends the recording. It also ends when a write fails: with one line
 * in the log. The service never waits for it and never fails by it.
 *
 * Thread: the loop thread; a thread of its own writes. A NULL recorder is fine everywhere: nothing
 * is recorded. */
#ifndef BATON_COORDINATOR_RECORDER_H
#define BATON_COORDINATOR_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "coordinator/schedule.h"
#include "proto/emitted.h"
#include "proto/err.h"

#define RECORDER_ENV     "BATON_RECORD"     /* the file; absent or "": nothing is recorded */
#define RECORDER_ENV_MIB "BATON_RECORD_MIB" /* its largest size */

enum {
    RECORD_VERSION = 1,
    RECORDER_MIB_DEFAULT = 1024,
    RECORDER_MIB_MAX = 1 << 20,
    RECORDER_WAITING_BYTES_MAX = 64 << 20, /* and one line, however long */
};

struct recorder;

/* ERR_BAD_CONFIG: the file cannot be made; eb names the setting, the file and the reason. */
enum err recorder_open(struct recorder **out, const char *path, uint64_t bytes_max,
                       const struct schedule_conf *c, struct errbuf *eb);
/* As the environment says; *out NULL where it names no file. ERR_BAD_CONFIG: RECORDER_ENV_MIB must
 * be 1 to RECORDER_MIB_MAX. */
enum err recorder_open_env(struct recorder **out, const struct schedule_conf *c, struct errbuf *eb);
/* Waits until everything is written. */
void recorder_close(struct recorder **rec);

/* Admitted. path: as P gets it, with the model; body[n]: as it came, JSON or not. */
struct record_request {
    const char *id, *path, *tenant;
    bool stream;
    const char *body;
    size_t n;
    bool has_tensors; /* the client says that tensors lie behind n_json bytes of it (tensors.h) */
    size_t n_json;
};
void recorder_request(struct recorder *rec, const struct record_request *q);

/* Numbers of a view that are for POLICY_COST. */
enum { RECORD_COSTS = 9 };

/* What schedule_pick() was shown, and what it said. */
struct record_decision {
    const char *id;
    uint32_t epoch; /* of the attempt that is to be */
    const struct inst_view *p, *d;
    size_t n_p, n_d;
    struct demand demand;
    double kv_token_bytes; /* of the policy, as it was then */
    uint32_t avoid_p, avoid_d;
    uint64_t turn;
    bool found;
    struct pair_choice pick; /* when found */
};
void recorder_decision(struct recorder *rec, const struct record_decision *d);

/* P has answered. seed: decimal, "" unknown. */
void recorder_first(struct recorder *rec, const char *id, uint32_t epoch, const char *seed,
                    const struct emitted *tokens, size_t n_tokens);
/* Of a piece of D. */
void recorder_tokens(struct recorder *rec, const char *id, uint32_t epoch,
                     const struct emitted *tokens, size_t n_tokens);

/* An attempt was lost; n_kept: tokens that the next one goes on behind, 0: it begins anew. */
struct record_loss {
    const char *id;
    uint32_t epoch, p, d;
    const char *cause;
    uint32_t n_kept;
};
void recorder_lost(struct recorder *rec, const struct record_loss *l);
void recorder_end(struct recorder *rec, const char *id, int status, const char *cause,
                  unsigned n_attempts);
/* What became of an instance: a state of its life (inst_fsm.h), "suspect". */
void recorder_instance(struct recorder *rec, uint32_t id, const char *name, const char *role,
                       const char *what, const char *why);

#endif
