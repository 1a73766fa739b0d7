/* otlp_priv: the spans of one request as JSON (otlp_spans.c), pure, for otlp.c and its test. */
#ifndef BATON_COORDINATOR_OTLP_PRIV_H
#define BATON_COORDINATOR_OTLP_PRIV_H

#include "common/base/buf.h"
#include "coordinator/otlp.h"

struct recent;

/* Appends the spans, with commas between them. next_id: gives ids of spans below the request's. */
void otlp_spans(struct buf *out, const struct otlp_place *at, const struct recent *e,
                void (*next_id)(void *arg, uint8_t id[SPAN_ID_BYTES]), void *arg);
/* {"resourceSpans":[{..."spans":[ and what closes it. resource: "key=value,..". */
void otlp_head(struct buf *out, const char *service, const char *resource);
void otlp_tail(struct buf *out);
/* The next "key=value" of a list with commas; percent-escapes are taken out of the value (W3C
 * Baggage). False: the list is over, or *bad. */
struct otlp_pair {
    char key[256], value[1024];
};
bool otlp_pair_next(struct otlp_pair *out, const char **list, bool *bad);

#endif
