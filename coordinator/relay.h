/* relay: the life of a client's request in the coordinator (cluster-api 5.6): admitted, scheduled,
 * sent to P, first token, D's pieces in order, finished, cancelled, timed out. Whatever is lost on
 * the way (P, D, the link between them, a piece) costs the client a pause: another attempt begins
 * on another pair, behind what the client has already (docs/wire-replay.md).
 *
 * Thread: the loop thread. A request ends exactly once: a full answer, or one error. */
#ifndef BATON_COORDINATOR_RELAY_H
#define BATON_COORDINATOR_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "coordinator/targets.h"
#include "common/net/http_server.h"
#include "proto/api.h"
#include "proto/cause.h"
#include "proto/dresult.h"

struct coordinator;
struct relay_set;
struct json_value;
struct tenant;

enum err relay_set_create(struct relay_set **out, struct coordinator *co);
void relay_set_destroy(struct relay_set **s); /* ends what is left with an error */

/* An inference request of a client; admission (6.2) is done here. Takes x. */
void relay_start(struct relay_set *s, struct http_x *x, const struct api_path *path,
                 const char *path_model);
/* POST .../stopInfer of a client: by the id it was given or sent; 404 for what another key asked
 * for. Answered when P and D have answered. Takes x. */
void relay_stop(struct relay_set *s, struct http_x *x);
/* Tries to give waiting requests a pair, in the order of the queue; call when room or instances may
 * have come. Ends with the first request for which no pair has room: nobody overtakes it. */
void relay_schedule(struct relay_set *s);
void relay_on_frame(struct relay_set *s, uint32_t inst_id, const struct dresult_frame *f);
/* A frame with this id comes soon (dresult_ahead_fn): of thousands of requests each is in no cache,
 * and is brought there while others are worked on. */
void relay_expect(struct relay_set *s, const char *id, size_t id_len);
/* text[cap]: the value of DRESULT_RESUME_HEADER for the requests that inst_id decodes, those of
 * which a piece is under way first, as many as fit. "" when nothing has come yet. */
void relay_positions(const struct relay_set *s, uint32_t inst_id, char *text, size_t cap);
/* An instance is gone: what ran there goes on elsewhere. */
void relay_instance_lost(struct relay_set *s, uint32_t inst_id);
/* A planned end (CAUSE_DRAINED, CAUSE_ROLE_SWITCHED): every request that uses the instance begins
 * another attempt elsewhere and keeps what its client has. Returns how many cannot, and stay: their
 * client is about to end them, or nothing is known of what it has. */
size_t relay_move_off(struct relay_set *s, uint32_t inst_id, enum cause cause);
/* The same for its part as D (of_d), or as P, alone: it goes on in the other role. */
void relay_move_part(struct relay_set *s, uint32_t inst_id, bool of_d);
void relay_abort_all(struct relay_set *s, int status, const char *text);

/* Whether each request could go on at another coordinator that has the journal; to: what would take
 * their clients there (to_leader.h); NULL: they have to come by themselves. */
struct to_leader;
bool relay_all_can_go(const struct relay_set *s, const struct to_leader *to);

/* Whether the service failed: 5xx, a time-out of its own, a request that ended though nobody asked
 * to stop it. Other 4xx are what the client did or asked for; 499 is one that left. */
bool relay_status_is_failure(int status, bool stopped);

struct relay_counts {
    uint64_t in_flight, queued;
    /* received: finished + failed + cancelled + refused + in_flight. refused: not admitted, wrong
     * by a 4xx of P's, or ended by its client's stopInfer. retried: attempts that were lost. */
    uint64_t received, finished, failed, retried, cancelled, refused;
};
void relay_counts(const struct relay_set *s, struct relay_counts *out);
/* The members by the names that answers have for them, in the order of answers. */
enum { RELAY_COUNTS = 8 };
struct relay_count {
    const char *name; /* "requestsInFlight" */
    uint64_t n;
};
void relay_counts_named(const struct relay_set *s, struct relay_count out[RELAY_COUNTS]);
/* Some request that runs has this P and this D. */
bool relay_uses_pair(const struct relay_set *s, uint32_t p_id, uint32_t d_id);
/* Tokens of a request, as a mean of the last thousand or two that were answered: of its prompts,
 * by their characters and string_token_rate, and of its answers. 0: none was answered. */
struct relay_lengths {
    double input, output;
};
void relay_lengths(const struct relay_set *s, struct relay_lengths *mean);
/* The strictest targets of tenants that have requests, or had some within pd.role_window_s. */
struct targets relay_strictest(struct relay_set *s);
/* What came and what waits, for role_needs_of(); backlog and decoding are left alone. */
struct role_load;
void relay_load(const struct relay_set *s, struct role_load *out);
/* Of the model and its adapters. */
struct model_stats;
const struct model_stats *relay_stats(const struct relay_set *s);
/* Those who have requests here, newest first (tenants.h); NULL: nobody. */
const struct tenant *relay_tenants(const struct relay_set *s);
/* The last requests that ended, newest first: array of objects with id, P, D, KV bytes, transfer
 * and exposed ms, and the attempts that were lost on the way (the caller puts it). */
struct json_value *relay_recent(const struct relay_set *s);
/* {"running":[..],"recent":[..],"nRunning","nEnded"}: records of the newest that run, of the last
 * that ended, and how many there are and were. */
struct json_value *relay_requests(const struct relay_set *s);
/* Where the newest that run are: [{"id","state","p","d"}..], `most` of them. */
struct json_value *relay_moving(const struct relay_set *s, size_t most);
/* Of one that runs, or is among the last that ended, of the tenant's owner; NULL: there is none. */
struct json_value *relay_record(struct relay_set *s, const char *tenant, const char *id);

#endif
