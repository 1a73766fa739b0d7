/* kv_plane: all KV links of an instance (design 6, cluster-api 5.3, 5.4) over nanomsg. One PAIR socket per (prefill, decode) pair; the instance's
 * door (a REP socket at interCommPort) gives a wanted peer the address and a one-time ticket of its PAIR, so a stranger cannot occupy it.
 * The prefill side connects. State comes from hellos and heartbeats, never from the socket.
 *
 * Thread: the loop thread. One I/O thread of its own talks to nanomsg. Callbacks come on the loop thread. */
#ifndef BATON_INSTANCE_KV_PLANE_H
#define BATON_INSTANCE_KV_PLANE_H

#include "common/net/loop.h"
#include "proto/role_msg.h"
#include "proto/status_msg.h"

struct kv_plane;
struct kv_peer;

/* The wanted set of peers, as the last role body gave it: peers not in it are unlinked, new ones are linked, failed ones are tried again.
 * role: own role (PREFILL connects, DECODE waits). Links settle in the background; on_settled runs on the loop thread each time the set
 * has no link in progress (n_ok of n_wanted). */
enum err kv_plane_want(struct kv_plane *kp, enum inst_role role, uint32_t self_id, const struct role_node *peers, size_t n_peers);
/* Link states for /v1/status: *links is malloc'd, the caller frees. Links in progress are not listed. */
size_t kv_plane_links(const struct kv_plane *kp, struct link_status **links);
void kv_plane_counts(const struct kv_plane *kp, unsigned *n_wanted, unsigned *n_ok, unsigned *n_failed, unsigned *n_linking);

#endif
