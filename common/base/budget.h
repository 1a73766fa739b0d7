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
    X(BODY_RATE, "body_rate", "limits.bodyBytesPerSecondMin", "bodies slower than the least rate") \
    X(BODY_TIME, "body_time", "limits.bodySeconds", "bodies that took longer than any may")        \
    X(BODY_YIELDED, "body_yielded", "limits.bodiesInFlightMiB",                                    \
      "slow bodies given up for those of other clients")                                           \
    X(HEAD_TIME, "head_time", "limits.headSeconds", "heads of requests that did not come")         \
    X(HANDSHAKE_TIME, "handshake_time", "limits.handshakeSeconds",                                 \
      "TLS handshakes that did not end")                                                           \
    X(BUFFER_BYTES, "buffer_bytes", "limits.buffersMiB",                                           \
      "bytes that wait on connections: heads, what follows a request, answers unread")             \
    X(SLOW_READER, "slow_reader", "", "streams whose client let too much wait")                    \
    X(CONNS, "connections", "limits.connections", "connections of the user plane")                 \
    X(CONTROL_CONNS, "control_connections", "", "connections of the other planes")                 \
    X(CONNS_YIELDED, "connections_yielded", "limits.connections",                                  \
      "idle or slow connections closed for new ones")                                              \
    X(ADDRESS_CONNS, "address_connections", "limits.connectionsPerAddress",                        \
      "connections of one address")                                                                \
    X(STREAMS, "streams", "limits.connections", "HTTP/2 requests of the user plane at once")       \
    X(CONN_STREAMS, "connection_streams", "limits.http2Streams",                                   \
      "HTTP/2 requests over those that a connection may have at once")                             \
    X(H2_CONTROL, "http2_control_frames", "limits.http2ControlFrames",                             \
      "HTTP/2 connections with too many frames that ask for nothing")                              \
    X(H2_RESETS, "http2_resets", "limits.http2Resets",                                             \
      "HTTP/2 connections with too many requests begun and given up")                              \
    X(DESCRIPTORS, "descriptors", "", "connections for which no descriptor was left")              \
    X(FOREIGN_ORIGIN, "foreign_origin", "", "requests to a management plane under another name")   \
    X(ANSWER_BYTES, "answer_bytes", "limits.answersMiB", "bytes of answers between D and client")  \
    X(KV_LISTENER, "kv_listener", "", "connections of strangers at the listener of the KV links")  \
    X(KV_LENDS, "kv_lends", "",                                                                    \
      "fetches of KV blocks under way to instances that go on with them")                          \
    X(ALARMS, "alarms", "pd.alarm_url", "alarms that their receiver did not take")                 \
    X(SPANS, "spans", "pd.otlp_url", "requests whose spans their collector did not take")          \
    X(TRANSCRIPT_BYTES, "transcript_bytes", "pd.transcripts_mib",                                  \
      "bytes of what clients have been sent, as tokens")                                           \
    X(JOURNAL_BYTES, "journal_bytes", "pd.replicate_mib",                                          \
      "bytes of requests that clients may come back to")                                           \
    X(KEPT_BYTES, "kept_bytes", "limits.keptMiB", "bytes of responses that are kept")              \
    X(KEPT, "kept", "limits.keptResponses", "responses that are kept")                             \
    X(REQUESTS, "requests", "request_limit.max_requests", "requests in flight")                    \
    X(MEMORY, "memory", "request_limit.memory_limit", "memory of the process")                     \
    X(TENANT_WAITING, "tenant_waiting", "pd.tenant_waiting_max",                                   \
      "requests of one client that wait for instances")                                            \
    X(TEMPLATE_TIME, "template_time", "limits.templateMs", "time of a client's chat template")     \
    X(TEMPLATE_MEMORY, "template_memory", "",                                                      \
      "memory, text and steps of a client's chat template")                                        \
    X(GUIDE_COMPILE_TIME, "guide_compile_time", "limits.guideCompileMs",                           \
      "time of compiling a guide")                                                                 \
    X(GUIDE_STEP, "guide_step", "limits.guideStepMs", "time and positions of a guide at a token")

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
/* Takes n, even over the limit: what is there already must be counted. False: it is over now. */
bool budget_hold(struct budget *b, enum budget_id id, uint64_t n);
/* Gives back what was taken or held. */
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
