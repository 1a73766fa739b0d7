/* infer_fields: the single values of a request as data: one row says a member's name, its type, its
 * place and its range, and by these rows it is packed, unpacked, checked and printed. The order of
 * the rows is the order on the wire: a change is a new INFER_REQ_VERSION (infer_msg.c). Lists and
 * what they hold are infer_msg.c's own. Pure. */
#ifndef BATON_PROTO_INFER_FIELDS_H
#define BATON_PROTO_INFER_FIELDS_H

#include "proto/infer_msg.h"

enum infer_type {
    INFER_BOOL,
    INFER_ENUM, /* a byte on the wire */
    INFER_I32,
    INFER_U32,
    INFER_I64,
    INFER_U64,
    INFER_F32,
    INFER_STR, /* char *, NULL where it is absent */
};

struct infer_field {
    const char *name; /* in messages and logs */
    enum infer_type type;
    size_t at;     /* in struct infer_req */
    double lo, hi; /* both 0: no range. Of INFER_STR hi: its bytes at most */
    bool above_lo; /* lo itself is outside */
};
extern const struct infer_field infer_fields[]; /* ends with name NULL */

/* A request with neutral values. */
extern const struct infer_req infer_req_default;

/* Every row in its range, and what members mean together. ERR_INVALID: eb names the member, its
 * range and its value. */
enum err infer_fields_check(const struct infer_req *req, struct errbuf *eb);
/* The same of a sampling alone, as the engine asks it. */
enum err sampling_check(const struct sampling *s, struct errbuf *eb);

/* "temperature=0.5 top_k=3": the values that are not neutral, as log fields; of a string its bytes.
 * What does not fit in dst[cap] is left out. */
void infer_req_print(char *dst, size_t cap, const struct infer_req *req);

#endif
