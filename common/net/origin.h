/* origin: under which names a plane of the daemon's own may be spoken to. A page in a browser on
 * the same machine can point a name of its own at a loopback address (DNS rebinding); what gives it
 * away is that name, in Host, and its own origin. Pure. */
#ifndef BATON_NET_ORIGIN_H
#define BATON_NET_ORIGIN_H

#include <stdbool.h>
#include "proto/err.h"

/* names: separated by blanks; ".example.org" is every name below it, "*" is all. IP literals and
 * localhost always may. host: value of the Host header, with or without a port. */
bool origin_host_ok(const char *host, const char *names);
/* The same for the host of an Origin header; "null" may not. */
bool origin_ok(const char *origin, const char *names);
/* Whether a setting is such a list. */
bool origin_names_ok(const char *names);
/* ERR_BAD_CONFIG: what a configuration says of who may ask from where (managementHosts, and
 * corsAllowOrigin as in cors.h) is no such list; eb names the key behind prefix, and its value. */
enum err origin_check_conf(const char *prefix, const char *management_hosts,
                           const char *cors_origin, struct errbuf *eb);

#endif
