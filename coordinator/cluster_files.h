/* cluster_files: the two files of the reference's controller (cluster-api 7.8), for tools that read
 * them: cluster_status, written at each synchronisation, and process_manager, written when
 * something of it has changed. With the second a coordinator without state folder and etcd starts
 * where the one before it was. Both are replaced as a whole, mode 0640. Thread: the loop thread,
 * which the writing holds for as long as it takes, as store_file does. */
#ifndef BATON_COORDINATOR_CLUSTER_FILES_H
#define BATON_COORDINATOR_CLUSTER_FILES_H

#include <stdbool.h>
#include <stdint.h>

struct coordinator;
struct rank_table;

struct cluster_files {
    uint64_t next_ms;
    uint32_t written;                   /* hash of the process file as it was written last */
    bool status_failed, process_failed; /* the last time, which is logged */
};

/* Before instances are known: what the process file says of them goes into the store, where that
 * has nothing. A file that does not hold, or is of another rank table (NULL: instances register) or
 * other settings, is logged and counts as absent. */
void cluster_files_load(struct coordinator *co, const struct rank_table *t);
/* In each tick of a coordinator that leads. */
void cluster_files_tick(struct coordinator *co, uint64_t now_ms);

#endif
