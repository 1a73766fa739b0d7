/* file_map: a whole file mapped read-only, with what it was at that moment.
 *
 * Thread: any, for one map one at a time. A file that is cut short while it is mapped ends the
 * process: model files are replaced by renaming, not overwritten. */
#ifndef BATON_BASE_FILE_MAP_H
#define BATON_BASE_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

struct file_map {
    char *name; /* the last part of its path; own */
    uint8_t *p; /* [bytes] */
    uint64_t bytes, mtime_ns, inode;
    uint64_t mapped; /* bytes from the beginning on */
};

/* ERR_NOT_FOUND, ERR_IO, ERR_BAD_FILE: no regular file of at least bytes_min bytes; eb begins with
 * the file's name. On an error there is nothing to close. */
enum err file_map_open(struct file_map *m, const char *path, uint64_t bytes_min, struct errbuf *eb);
void file_map_close(struct file_map *m); /* safe twice */
/* From now on the first n bytes are needed alone: pages behind them are mapped no longer. */
void file_map_keep(struct file_map *m, uint64_t n);

/* n bytes from `begin` on are done with, so that they leave the resident set, but for a page that
 * goes on behind them. Pages in front of them that the kernel mapped around a fault leave too. */
void file_map_drop(const struct file_map *m, uint64_t begin, uint64_t n);

#endif
