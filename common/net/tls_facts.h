/* tls_facts: a TLS block as GET /v1/facts tells it and batonctl reads it again: which files, when
 * what is in them ends, or why they cannot be used. Thread: any; reads files when nothing is open.
 */
#ifndef BATON_NET_TLS_FACTS_H
#define BATON_NET_TLS_FACTS_H

#include "common/net/tls.h"

struct json_value;

/* {"plane","cert","key","passwd","ca":[..],"caLimited":[..],"crl":[..],"verifyHost","peerName","tls12",
 * "clientOptional","expires":[{"file","unixSeconds"}..],"error"}. open: the context in force; NULL:
 * the files are opened for a moment, and "error" says what is wrong with them. */
struct json_value *tls_facts_json(const char *plane, const struct tls_conf *c, struct tls *open);
/* The same back. False: a path is too long, or there are too many. */
bool tls_facts_conf(struct tls_conf *c, const struct json_value *facts);

#endif
