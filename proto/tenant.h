/* tenant: whose request it is, as one short word. The process that sees the client (a coordinator,
 * a standalone instance) makes it; it travels in the header baton-tenant to P, and with the offer
 * to D.
 *
 *   key-<32 hex digits>   a client with an API key (api_keys.h: from its hash, which it does not
 * show) addr-<address>        a client without one, by its IPv4 address or the /64 of its IPv6
 * address
 *
 * Shares of slots, queues and threads are a tenant's. What must not leak from one client to another
 * (prefix blocks, ids of requests) belongs to the owner: the key, and where nobody has keys all
 * clients together, for an address is no identity and a cache that nobody shares is no cache. */
#ifndef BATON_PROTO_TENANT_H
#define BATON_PROTO_TENANT_H

#include <stdbool.h>
#include <stddef.h>

#define TENANT_HEADER     "baton-tenant" /* internal: a client's own is never passed on or obeyed */
#define TENANT_KEY_PREFIX "key-"

enum { TENANT_BYTES_MAX = 63 };

/* 1 to TENANT_BYTES_MAX of [A-Za-z0-9.:_-]. */
bool tenant_ok(const char *s);
/* peer: "10.0.0.7:45122" or "[2001:db8::1]:45122"; anything else gives "addr-unknown". */
void tenant_of_peer(char out[TENANT_BYTES_MAX + 1], const char *peer);
/* hash[n]: of a key, n of at least 16; its first bytes become the word. */
void tenant_of_key(char out[TENANT_BYTES_MAX + 1], const unsigned char *hash, size_t n);
/* Whom the request belongs to: the tenant with a key, else "" (NULL too). Lives as long as t. */
const char *tenant_owner(const char *t);
bool tenant_same_owner(const char *a, const char *b);

#endif
