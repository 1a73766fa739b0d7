/* prefix_log: what a prefix cache tells of itself (proto/prefix_msg.h): the digests that are in it
 * now, and the last changes, so that who asks often gets these alone. At most PREFIX_DIGESTS_MAX
 * digests: what comes when there are as many is not told.
 *
 * Thread: any; a short lock. Nothing here allocates after the creation but prefix_log_read(). */
#ifndef BATON_ENGINE_PREFIX_LOG_H
#define BATON_ENGINE_PREFIX_LOG_H

#include "proto/prefix_msg.h"

enum { PREFIX_CHANGES_MAX = 4096 }; /* that are kept for who asks for changes */

struct prefix_log;

/* ERR_NO_MEMORY; ERR_INTERNAL: the system has no random numbers. */
enum err prefix_log_create(struct prefix_log **out);
void prefix_log_destroy(struct prefix_log **log);

/* A block with this digest came into the cache, or went. Several may have the same. NULL: nothing
 * is done. */
void prefix_log_put(struct prefix_log *log, uint64_t digest);
void prefix_log_drop(struct prefix_log *log, uint64_t digest);

/* For a reader that knows the changes up to seq of that epoch: those after it, or all that is there
 * where that is not kept any more or was another process. To be freed with prefix_msg_free().
 * ERR_NO_MEMORY: *out is empty. */
enum err prefix_log_read(struct prefix_log *log, uint64_t epoch, uint64_t seq,
                         struct prefix_msg *out);

#endif
