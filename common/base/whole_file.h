/* whole_file: files that are read and written in one piece. Names are relative to the folder behind
 * `dir`, a descriptor or AT_FDCWD. No function logs; what fails is errno, for the caller's words.
 * Thread: any. */
#ifndef BATON_BASE_WHOLE_FILE_H
#define BATON_BASE_WHOLE_FILE_H

#include <stddef.h>
#include <sys/types.h>
#include "common/base/buf.h"
#include "proto/err.h"

/* All of p[0..n), however many calls it takes. 0, or errno; EBADF for fd < 0. */
int whole_write(int fd, const void *p, size_t n);

/* Readers see the old bytes or the new ones: writes `fresh`, which is made anew with `mode` and
 * must be no symbolic link, then gives it `name`. It is not synced. 0, or errno; `fresh` is gone
 * then. */
int whole_replace(int dir, const char *fresh, const char *name, mode_t mode, const void *p,
                  size_t n);

/* Appends all that fd has, at most `most` bytes. ERR_BAD_CONFIG: it is no plain file of the user of
 * the process that nobody else may write; ERR_TOO_LARGE, ERR_IO, ERR_NO_MEMORY. eb says which, as
 * the end of a sentence about the file. */
enum err whole_read_own(struct buf *b, int fd, size_t most, struct errbuf *eb);

#endif
