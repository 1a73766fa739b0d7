/* dresult_out: the decode side of the result stream (cluster-api 5.5): one listener, heartbeats,
 * replacement of the listener, frames kept for replay over a reconnect (DRESULT_REPLAY_BYTES_MAX
 * per request, DRESULT_REPLAY_MS_MAX). Version 1 replays only pieces that no socket has taken;
 * version 2 replays all kept pieces of live and just finished requests, but what the listener says
 * it has (header DRESULT_RESUME_HEADER); it drops what it has by (reqId, epoch, seq). For one that
 * watches, frames are kept as long as it may take to come back.
 *
 * A listener of version 2 may ask to watch the instance (header DRESULT_HEARTBEAT_HEADER,
 * proto/dresult.h): it gets a heartbeat every so many milliseconds whatever else is written, the
 * first of them with this process' number, and notes when it should look at the status; it stays
 * whatever role the instance has. One that comes with another session (DRESULT_SESSION_HEADER) than
 * the last has given up whatever was asked of the instance before.
 *
 * A listener that reads slowly, or is away, holds up each request by itself: what it has not taken
 * waits here, and a request of which DRESULT_REPLAY_BYTES_MAX wait is full until half of it is
 * taken. Requests with something to say take turns, a frame each, so one with a large answer does
 * not hold up the others. Thread: the loop thread. */
#ifndef BATON_INSTANCE_DRESULT_OUT_H
#define BATON_INSTANCE_DRESULT_OUT_H

#include "common/base/budget.h"
#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "proto/dresult.h"

struct dresult_out;

/* budget: everything kept counts as BUDGET_ANSWER_BYTES; NULL: no limit. */
enum err dresult_out_create(struct dresult_out **out, struct loop *loop, struct budget *budget);
void dresult_out_destroy(struct dresult_out **d);
/* GET /dresult: header dresult-version (1 or 2; absent: 1). Takes x. */
void dresult_out_listen(struct dresult_out *d, struct http_x *x);
/* Whether x asks to watch the instance, as a coordinator does in whatever role it is. */
bool dresult_out_is_watch(const struct http_x *x);
/* Whether x comes with another session than the last listener with one; it is the present one from
 * now on. The caller ends its requests then, and calls dresult_out_reset(). */
bool dresult_out_new_session(struct dresult_out *d, const struct http_x *x);
/* Forgets every request and what is kept of it: nobody asks for it any more. */
void dresult_out_reset(struct dresult_out *d);
/* Something in the status has changed that cannot wait for the next poll; why: a word for its log.
 */
void dresult_out_note(struct dresult_out *d, const char *why);
/* The role ends: a listener that does not watch goes with it. */
void dresult_out_role_ends(struct dresult_out *d);
bool dresult_out_has_listener(const struct dresult_out *d);
/* A listener is there that a piece of tokens alone says something. */
bool dresult_out_takes_tokens(const struct dresult_out *d);

/* Makes the record of an attempt of a request, with room for its end: an error frame of at most
 * DRESULT_SPARE_BYTES can be sent whatever memory and limits say. on_room (may be NULL) runs when a
 * full request is no longer full; it must not call back. ERR_CONFLICT: the attempt has one. */
enum { DRESULT_SPARE_BYTES = 2048 };
/* What a DR_ERROR says beside its body. */
struct dresult_error {
    int status;
    enum cause cause;
};
enum err dresult_out_open(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          loop_fn *on_room, void *arg);
/* Sends or keeps one piece, of any size. ERR_TOO_LARGE, ERR_BUSY: more than one request, or all
 * together, may keep (a piece over DRESULT_PIECE_BYTES_MAX; BUDGET_ANSWER_BYTES); ERR_NO_MEMORY.
 * The caller ends the request with DR_ERROR then. error: of a DR_ERROR, else NULL. DR_LAST,
 * DR_ERROR and DR_RETRY end the request's numbering; its pieces are forgotten after the replay
 * time. */
enum err dresult_out_send(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          enum dresult_kind kind, const struct emitted *tokens, size_t n_tokens,
                          const struct dresult_error *error, const char *body, size_t n);
/* A listener has all there is, on its socket at least. */
bool dresult_out_is_read(const struct dresult_out *d);
/* So much of it waits that its sender should stop until on_room. */
bool dresult_out_is_full(struct dresult_out *d, const char *req_id, uint32_t epoch);
/* The attempt is over without an end frame of its own (a newer epoch took its place, or P ends it):
 * its pieces are forgotten. Does nothing after an end frame. */
void dresult_out_forget(struct dresult_out *d, const char *req_id, uint32_t epoch);
/* Ends every connection and heartbeat (the role ends). */
void dresult_out_close_listener(struct dresult_out *d);

#endif
