/* process_file: process_manager's file (cluster-api 7.8): the reference's object, with a version,
 * a hash of the settings that decide roles, the term, and a CRC of all before it as last member.
 * What is read back of it is the state that a store keeps. Pure. */
#ifndef BATON_COORDINATOR_PROCESS_FILE_H
#define BATON_COORDINATOR_PROCESS_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "coordinator/store.h"
#include "proto/err.h"

enum { PROCESS_FILE_VERSION = 1, PROCESS_FILE_BYTES_MAX = 16 << 20 };

struct process_file {
    uint32_t configuration;
    struct store_state state;
};

/* Makes the file of an object that has its other members: in place of the last `}` come the CRC and
 * the end. ERR_NO_MEMORY. */
enum err process_file_seal(struct buf *b);
/* eb names what is wrong. On an error *out is zeroed; else store_state_free(&out->state). */
enum err process_file_parse(struct process_file *out, const char *bytes, size_t n,
                            struct errbuf *eb);
/* Whether the rows are those of these identities, whatever their order; eb names the first that is
 * on one side only. */
enum err process_file_same_nodes(const struct process_file *f, const char *const *identities,
                                 size_t n, struct errbuf *eb);

#endif
