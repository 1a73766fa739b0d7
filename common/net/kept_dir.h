/* kept_dir: kept answers over restarts: a file each in a folder, "<id>.kept". What is kept is in
 * memory all the same; the folder is read once, when it is opened.
 *
 * A file is a line of JSON (version, id, tenant, previous, used_unix, and the bytes of what
 * follows), the input, the text, and a last line with the CRC-32C of all before it. It is written
 * beside its name and moved there, so that whoever is killed leaves the old one or the new one; it
 * is not flushed to the disk. One that does not hold is logged and removed. Files hold what clients
 * said: mode 0600, and the folder is locked as long as the process runs.
 *
 * Bounds: those of the store, and KEPT_DIR_WAITING_MAX bytes that wait for a slow disk; what comes
 * beyond is not written, with a line in the log. The service never waits for the disk.
 * Thread: the loop thread; a thread of its own writes. A NULL folder is fine everywhere. */
#ifndef BATON_NET_KEPT_DIR_H
#define BATON_NET_KEPT_DIR_H

#include "common/net/kept_store.h"

enum { KEPT_DIR_WAITING_MAX = 32 << 20 };

struct kept_dir;

/* Fills the store (which is empty, and borrowed) with what the folder holds, and watches it.
 * ERR_BAD_CONFIG: the folder is not there, not writable, or another process uses it; eb names it.
 */
enum err kept_dir_open(struct kept_dir **out, struct kept_store *store, const char *path,
                       struct errbuf *eb);
/* Writes what waits, and leaves the files. */
void kept_dir_close(struct kept_dir **d);
/* Writes an answer that is over. */
void kept_dir_put(struct kept_dir *d, const struct kept *k);

/* A file's bytes, both ways. Parsing: ERR_BAD_JSON,
 * eb says what is wrong; the parts lie in bytes. */
struct kept_file {
    char id[KEPT_ID_BYTES], previous[KEPT_ID_BYTES], tenant[TENANT_BYTES_MAX + 1];
    int64_t used_unix_s;
    const char *input, *text;
    size_t n_input, n_text, at, n, events;
};
void kept_file_format(struct buf *out, const struct kept_file *f);
enum err kept_file_parse(struct kept_file *out, const char *bytes, size_t n, struct errbuf *eb);

#endif
