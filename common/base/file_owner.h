/* file_owner: whose a file with a secret may be. */
#ifndef BATON_BASE_FILE_OWNER_H
#define BATON_BASE_FILE_OWNER_H

#include <stdbool.h>
#include <unistd.h>

#include <sys/stat.h>

/* Root has given it to a process of another user, through a group, to read: Kubernetes mounts
 * secrets so (fsGroup), and Debian keeps keys so (group ssl-cert). Nobody but root can have written
 * it, and others cannot read it. */
static inline bool file_lent_by_root(const struct stat *st) {
    return st->st_uid == 0 && geteuid() != 0 && (st->st_mode & 07777 & ~(mode_t)0640) == 0;
}

#endif
