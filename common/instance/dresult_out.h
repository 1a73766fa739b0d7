/* dresult_out: the decode side of the result stream (cluster-api 5.5): one listener, heartbeats,
 * replacement of the listener, frames kept for replay over a reconnect (DRESULT_REPLAY_BYTES_MAX
 * per request, DRESULT_REPLAY_MS_MAX). Version 1 replays only frames that no socket has taken;
 * version 2 replays all kept frames of live and just finished requests, and the coordinator drops
 * what it has by (reqId, epoch, seq). Thread: the loop thread. */
#ifndef BATON_INSTANCE_DRESULT_OUT_H
#define BATON_INSTANCE_DRESULT_OUT_H

#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "proto/dresult.h"

struct dresult_out;

enum err dresult_out_create(struct dresult_out **out, struct loop *loop);
void dresult_out_destroy(struct dresult_out **d);
/* GET /dresult: header dresult-version (1 or 2; absent: 1). Takes x. */
void dresult_out_listen(struct dresult_out *d, struct http_x *x);
bool dresult_out_has_listener(const struct dresult_out *d);
/* Sends or keeps one piece. ERR_TOO_LARGE: no listener, or one that does not read, and the
 * request's replay room is full: the caller must end the request. DR_LAST, DR_ERROR and DR_RETRY
 * end the request's numbering; its frames are forgotten after the replay time. */
enum err dresult_out_send(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          enum dresult_kind kind, const int32_t *ids, size_t n_ids, int status,
                          const char *body, size_t n);
/* The attempt is over without an end frame of its own (a newer epoch took its place): its frames
 * are forgotten. */
void dresult_out_forget(struct dresult_out *d, const char *req_id, uint32_t epoch);
/* Ends every connection and heartbeat (the role ends). */
void dresult_out_close_listener(struct dresult_out *d);

#endif
