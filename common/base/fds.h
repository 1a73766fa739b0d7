/* fds: the descriptors of the process, and how a server shares them out. */
#ifndef BATON_BASE_FDS_H
#define BATON_BASE_FDS_H

#include <stdint.h>

/* Raises the limit of open files to want, or as far as the hard limit allows; never lowers it. The
 * limit in force then. */
uint64_t fds_raise(uint64_t want);

/* Connections of clients that `limit` descriptors bear, at most conns_max, when `reserve` are kept
 * for everything else, and calls_max, or a quarter of what is left when that is less, for calls
 * that requests of the clients need. Pure. */
unsigned fds_for_clients(uint64_t limit, uint64_t reserve, unsigned conns_max, unsigned calls_max);

#endif
