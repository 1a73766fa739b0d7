/* replay_record: one line of a recording (coordinator/recorder.h, docs/recording.md) as plain
 * values. Pure.
 *
 * Ownership: what an event points to lives until record_event_free(). Thread: one owner at a time.
 */
#ifndef BATON_TOOLS_REPLAY_RECORD_H
#define BATON_TOOLS_REPLAY_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "coordinator/schedule.h"
#include "proto/emitted.h"
#include "proto/err.h"

struct json_value;

enum record_kind {
    RECORD_START,
    RECORD_REQUEST,
    RECORD_DECISION,
    RECORD_FIRST,
    RECORD_TOKENS,
    RECORD_LOST,
    RECORD_END,
    RECORD_INSTANCE,
    RECORD_CLOSED,
};

struct record_event {
    enum record_kind kind;
    uint64_t us; /* since the recording began */
    const char *id_text;
    uint64_t id; /* of the request; 0: the kind has none */
    uint32_t epoch;
    struct schedule_conf conf; /* START */
    struct {
        const char *path, *tenant;
        bool stream;
        char *body;       /* terminated by a zero that n does not count */
        size_t n, n_json; /* n_json: of them, ahead of tensors; n where there are none */
        bool has_tensors; /* the client has said n_json */
    } request;
    struct {
        double kv_token_bytes;
        struct inst_view *p, *d;
        size_t n_p, n_d;
        struct demand demand;
        uint32_t avoid_p, avoid_d;
        uint64_t turn;
        bool found;
        uint32_t p_id, d_id; /* chosen, when found */
    } decision;
    bool has_seed; /* FIRST */
    uint64_t seed;
    struct emitted *tokens; /* FIRST, TOKENS */
    size_t n_tokens;
    const char *cause;           /* LOST, END */
    uint32_t p_id, d_id, n_kept; /* LOST */
    int status;                  /* END */
    uint32_t instance;           /* INSTANCE */
    const char *name, *role, *what;
    const char *why; /* INSTANCE, CLOSED */
    struct json_value *root;
};

/* line[n]: without its end. ERR_BAD_JSON, ERR_INVALID: eb says what is wrong with which member;
 * ERR_NO_MEMORY. *out needs no freeing then. */
enum err record_event_parse(struct record_event *out, const char *line, size_t n,
                            struct errbuf *eb);
void record_event_free(struct record_event *e);

#endif
