/* traceparent: the header by which a request says which trace it belongs to (W3C Trace Context 1,
 * 3.2): "00-<trace id>-<id of the span above>-<flags>" in lower-case hex. Pure. */
#ifndef BATON_PROTO_TRACEPARENT_H
#define BATON_PROTO_TRACEPARENT_H

#include <stdbool.h>
#include <stdint.h>

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACEPARENT_BYTES = 56 };

struct traceparent {
    uint8_t trace_id[TRACE_ID_BYTES], span_id[SPAN_ID_BYTES]; /* neither is all zero */
    bool sampled;
};

/* False: it is none that can be gone on from. What later versions append is passed over. */
bool traceparent_read(struct traceparent *out, const char *text);
void traceparent_write(char dst[TRACEPARENT_BYTES], const struct traceparent *t);
/* dst[2 n + 1] */
void traceparent_hex(char *dst, const uint8_t *p, unsigned n);

#endif
