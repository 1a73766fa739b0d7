/* journal_msg: what the leader tells those that stand by of the requests it has, so that another
 * one can go on with them (docs/wire-journal.md): frames of a stream, each u32 bytes behind it, u8
 * kind, and the members of that kind; little-endian (proto/wire.h). Pure.
 *
 * Ownership: what a message points to lives as long as the bytes it was read from; its transcript
 * and tokens are malloc'd, and journal_msg_free() frees them. Thread: one owner at a time. */
#ifndef BATON_COORDINATOR_JOURNAL_MSG_H
#define BATON_COORDINATOR_JOURNAL_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/api.h"
#include "proto/emitted.h"
#include "proto/tenant.h"
#include "proto/transcript.h"

enum {
    JOURNAL_VERSION = 1,
    JOURNAL_KEY_BYTES_MAX = 255, /* of an Idempotency-Key */
    JOURNAL_DIGEST_BYTES = 32,   /* SHA-256 of a body */
    JOURNAL_HEADERS_BYTES_MAX = 32768,
    JOURNAL_AGE_MS_MAX = 1 << 30,
};

enum journal_kind {
    JOURNAL_HELLO = 1, /* the first: version, and the term of who speaks */
    JOURNAL_ENTRY,     /* a request, as far as it has come */
    JOURNAL_START,     /* P has said what its transcript begins with */
    JOURNAL_PIECE,     /* more of its answer, and the tokens in it */
    JOURNAL_BROKEN,    /* its tokens are not known any more: nobody can go on with it */
    JOURNAL_DONE,      /* it has been answered whole */
    JOURNAL_DROP,      /* it is over: nobody may come back to it */
    JOURNAL_SYNCED,    /* all that was there has been told; from here on it is what happens */
    JOURNAL_BEAT,      /* nothing happens, and the connection stands */
    JOURNAL_KINDS,
};

struct journal_span {
    const char *p;
    size_t n;
};

struct journal_msg {
    enum journal_kind kind;
    uint64_t term; /* HELLO */
    uint64_t id;   /* of the request; all others but SYNCED and BEAT */
    /* ENTRY */
    char tenant[TENANT_BYTES_MAX + 1]; /* tenant_ok() */
    char path[API_PATH_BYTES];         /* of a request of the engine */
    char key[JOURNAL_KEY_BYTES_MAX + 1];
    uint8_t digest[JOURNAL_DIGEST_BYTES];
    bool stream, broken, done;
    uint32_t epoch_base, age_ms;
    uint64_t first_event;
    struct journal_span headers, body, context;
    /* ENTRY, PIECE: events from first_event on, or of the piece; a whole answer */
    struct journal_span answer;
    uint64_t n_events;            /* that there are with it */
    struct transcript transcript; /* ENTRY, START; n_parts 0: none is known */
    const struct emitted *tokens; /* PIECE; [n_tokens] */
    size_t n_tokens;
    struct emitted *own_tokens; /* those that were read */
};

/* Appends the frame. */
void journal_msg_pack(struct wr *w, const struct journal_msg *m);
/* Of the bytes behind a frame's length; the peer may be hostile. ERR_BAD_FRAME: eb names the
 * member. ERR_NO_MEMORY. Nothing is to be freed then. */
enum err journal_msg_unpack(struct journal_msg *m, const void *p, size_t n, struct errbuf *eb);
void journal_msg_free(struct journal_msg *m);

/* The length of the frame that begins at p[0..n): with its own four bytes. 0: it is not known yet.
 */
size_t journal_frame_bytes(const void *p, size_t n);

#endif
