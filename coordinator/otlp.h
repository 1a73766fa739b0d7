/* otlp: requests as traces for a collector of OpenTelemetry (OTLP over HTTP, JSON): a span for the
 * request, and below it one for the queue, the prefill, the KV on its way, the decoding, and each
 * silence after a lost attempt.
 *
 * A request goes on the trace that its client's traceparent names, and is exported when that says
 * that it is sampled; one without is a trace of its own, exported by chance (sample).
 * Bounds: OTLP_WAITING_BYTES wait; a request beyond is not exported, and counted (BUDGET_SPANS). A
 * collector that is away, busy (429) or fails (502, 503, 504) is tried again after a second, then
 * after twice as long each time, up to a minute; what it refuses otherwise is dropped and counted.
 * Serving never waits for it. Nothing of prompts, answers or keys is in a span.
 *
 * Thread: the loop thread. A NULL otlp is fine everywhere but in otlp_create(). */
#ifndef BATON_COORDINATOR_OTLP_H
#define BATON_COORDINATOR_OTLP_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/traceparent.h"

enum { OTLP_WAITING_BYTES = 4 << 20, OTLP_BATCH_BYTES = 1 << 20, OTLP_EVERY_MS = 1000 };

struct budget;
struct http_client;
struct otlp;
struct recent;
struct tls;

struct otlp_opts {
    struct http_client *client;
    struct budget *budget; /* may be NULL */
    const char *url;       /* "http://127.0.0.1:4318/v1/traces"; lent, as are headers */
    const char *headers;   /* "name=value,name2=value2" (OTEL_EXPORTER_OTLP_HEADERS), or "" */
    const char *service;   /* service.name */
    const char *resource; /* further attributes, "key=value,.." (OTEL_RESOURCE_ATTRIBUTES), or "" */
    double sample;        /* of requests without a traceparent, in [0, 1] */
    struct tls *tls;      /* for https */
};

/* ERR_BAD_CONFIG: headers or resource are no such list; eb says which. */
enum err otlp_create(struct otlp **out, const struct otlp_opts *o, struct errbuf *eb);
void otlp_destroy(struct otlp **o); /* before the client; what waits is dropped */

/* Where a request stands in its trace. */
struct otlp_place {
    struct traceparent own; /* what instances are told: the request's own span */
    uint8_t parent[SPAN_ID_BYTES];
    bool has_parent;
};
/* header: the client's traceparent, or NULL. False: nothing is exported, and the client's header
 * goes on as it is. */
bool otlp_begin(struct otlp *o, struct otlp_place *at, const char *header);
/* The request has ended as e says (relay_priv.h); at: as otlp_begin() filled it. */
void otlp_request(struct otlp *o, const struct otlp_place *at, const struct recent *e);
void otlp_tick(struct otlp *o, uint64_t now_ms);

#endif
