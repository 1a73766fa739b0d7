/* dresult: frames of the result stream a decode instance writes to its coordinator
 * (cluster-api 5.5). Pure.
 *
 * Version 1:  "reqId:" id NUL kind ":" body NUL        and "ka:heartbeat" NUL
 * Version 2:  len SP reqId SP epoch SP seq SP kind SP body
 *             len: 8 lower-case hex digits, bytes after the SP that follows it, at most
 * DRESULT_FRAME_BYTES_MAX; epoch, seq: decimal; kind: data, lastData, error, retry, close, ka,
 * part, optionally followed by ";" and the tokens of the piece (emitted.h: "data;320,41"); an
 * error's by ";status=" and ";cause=", either or both in this order
 * ("error;status=503;cause=d_stopping").
 * seq counts the frames of a request from 0, so a replayed frame is recognised. A heartbeat has
 * reqId
 * "-" and kind ka.
 *
 * A piece of an answer that is too long for one frame of version 2 crosses in several: parts, and
 * then the frame of its kind with the rest. Frames of other requests may come between them.
 *
 * Watching (version 2, our own). A request that names a period in DRESULT_HEARTBEAT_HEADER is
 * answered by an instance of any role, with a heartbeat every so often, the first at once. Their
 * bodies: empty; DRESULT_HELLO, the process' number in hex and the period (the first one);
 * DRESULT_NOTE and a word: the status has changed, and should be asked for now.
 * DRESULT_SESSION_HEADER: whatever was asked of the instance under another session is given up.
 * DRESULT_RESUME_HEADER: positions, with a blank between them: reqId ":" epoch ":" seq, the first
 * frame that is wanted of a request; of those that are not named all that is kept is sent again.
 * COORD_TERM_HEADER: the rank of the coordinator that asks; an instance obeys the highest it has
 * seen, and answers others with 409. */
#ifndef BATON_PROTO_DRESULT_H
#define BATON_PROTO_DRESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/cause.h"
#include "proto/emitted.h"
#include "proto/err.h"
#include "proto/wire.h"

#define DRESULT_HEARTBEAT_HEADER "baton-heartbeat-ms"
#define DRESULT_SESSION_HEADER   "baton-session"
#define DRESULT_RESUME_HEADER    "baton-resume"
#define COORD_TERM_HEADER        "coordinator-epoch"
#define DRESULT_HELLO            "hello "
#define DRESULT_NOTE             "note "
enum {
    DRESULT_HEARTBEAT_MS_MIN = 20,
    DRESULT_HEARTBEAT_MS_MAX = 10000,
    DRESULT_SESSION_BYTES_MAX = 64,
    DRESULT_RESUME_BYTES_MAX = 8192
};

enum dresult_kind {
    DR_NONE,
    DR_DATA,
    DR_LAST,
    DR_ERROR,
    DR_RETRY,
    DR_CLOSE,
    DR_HEARTBEAT,
    DR_PART
};

#define DRESULT_CLOSE_ID   "18446744073709551615"
#define DRESULT_CLOSE_TEXT "new connection is to established, close the old one."

struct dresult_frame {
    int version; /* as parsed; dresult_pack() is told it */
    enum dresult_kind kind;
    const char *req_id;           /* zero-terminated; lives during the callback */
    uint32_t epoch;               /* 0 in version 1 */
    uint64_t seq;                 /* 0 in version 1 */
    const struct emitted *tokens; /* of the piece; none in version 1 */
    size_t n_tokens;
    const char *body;
    size_t body_len;
    int status;       /* of an error frame in version 2; else 0 */
    enum cause cause; /* of the same; CAUSE_NONE: none, or one that is not known here */
};

/* Appends one frame in the given version (1 or 2). A NUL in a version 1 body is an ERR_INVALID; one
 * at its very end is left out. */
enum err dresult_pack(struct wr *w, int version, const struct dresult_frame *f);

/* How far a piece has been cut into frames of version 2. Zeroed: not at all. */
struct dresult_cut {
    size_t body_at, tokens_at; /* the first byte and token that no frame has */
    uint64_t n_frames;
    bool done; /* its last frame is packed */
};
/* How many frames of version 2 a piece makes; the same for every request, so that the numbers of a
 * replay are those of the first time. */
uint64_t dresult_n_frames(const struct dresult_frame *piece);
/* *cut as it is behind the first n frames of piece, or all of it where it has no more. */
void dresult_cut_skip(const struct dresult_frame *piece, uint64_t n, struct dresult_cut *cut);
/* Appends the next frame of piece, whose seq is that of its first frame, and moves *cut on. */
enum err dresult_pack_cut(struct wr *w, const struct dresult_frame *piece, struct dresult_cut *cut);

/* A position of DRESULT_RESUME_HEADER. */
struct dresult_position {
    const char *req_id; /* [id_len], inside the text */
    size_t id_len;
    uint32_t epoch;
    uint64_t seq;
};
/* Appends to text[cap], a string, what fits whole; false: it does not. */
bool dresult_position_put(char *text, size_t cap, const char *req_id, uint32_t epoch, uint64_t seq);
/* The next one of *text, which is moved on; false: there is none, or what comes is none. */
bool dresult_position_next(const char **text, struct dresult_position *out);

/* Byte-stream parser: any split of the bytes gives the same frames. frame_bytes_max: of one frame;
 * ERR_TOO_LARGE behind it. */
struct dresult_parser;
typedef enum err dresult_frame_fn(
    void *arg, const struct dresult_frame *f); /* an error ends the feed and is returned */
enum err dresult_parser_create(struct dresult_parser **out, int version, size_t frame_bytes_max);
void dresult_parser_destroy(struct dresult_parser **p);
enum err dresult_parser_feed(struct dresult_parser *p, const char *bytes, size_t n,
                             dresult_frame_fn *fn, void *arg);
/* Of version 2: fn(arg) hears the id of each frame up to DRESULT_AHEAD frames before the frame
 * comes, as far as bytes are there, so that what belongs to it can be brought into the cache; NULL
 * once for each of the last ones. What it hears may yet turn out to be no frame. */
enum { DRESULT_AHEAD = 16 };
typedef void dresult_ahead_fn(void *arg, const char *id, size_t id_len);
void dresult_parser_ahead(struct dresult_parser *p, dresult_ahead_fn *fn, void *arg);

#endif
