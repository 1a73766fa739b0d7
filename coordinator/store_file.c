/* store_file: the state as a file of a folder. It is replaced as a whole, so that a coordinator
 * that is killed leaves the old one or the new one. It is not flushed to the disk: that would hold
 * the loop thread, and a file that a power failure has cut is found out by its CRC; then instances
 * say what they are. The folder is locked as long as the coordinator runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "common/base/log.h"
#include "common/base/whole_file.h"
#include "coordinator/store_priv.h"

#define NEW_NAME STORE_FILE_NAME ".new"

struct store_file {
    struct store store;
    char *dir; /* for messages */
    int dir_fd;
};

static enum err refuse(struct errbuf *eb, const char *dir, const char *what) {
    return err_set(eb, ERR_BAD_CONFIG, "pd.state_dir %s: %s", dir, what);
}

static enum err load(struct store_file *f, struct errbuf *eb) {
    struct errbuf why = {0};
    struct buf b = BUF_INIT;
    const int fd =
        openat(f->dir_fd, STORE_FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return ERR_OK;
    if (fd < 0) return refuse(eb, f->dir, "its " STORE_FILE_NAME " cannot be opened");
    enum err e = whole_read_own(&b, fd, STORE_FILE_BYTES_MAX, &why);
    if (e == ERR_BAD_CONFIG) {
        e = err_set(eb, e, "pd.state_dir %s: its " STORE_FILE_NAME ": %s", f->dir, why.text);
    } else {
        if (e == ERR_OK)
            e = store_state_parse(&f->store.state, b.data != NULL ? b.data : "", b.len, &why);
        if (e != ERR_OK)
            log_error("store", "event=ignored file=%s/" STORE_FILE_NAME " detail=\"%s\"", f->dir,
                      why.text);
        e = ERR_OK;
    }
    close(fd);
    buf_free(&b);
    return e;
}

static enum err file_write(struct store *s, struct errbuf *eb) {
    struct store_file *f = (struct store_file *)s;
    struct buf b = BUF_INIT;
    enum err e = store_state_format(&b, &s->state);
    if (e == ERR_OK) {
        const int why = whole_replace(f->dir_fd, NEW_NAME, STORE_FILE_NAME, 0640, b.data, b.len);
        if (why != 0) e = err_set(eb, ERR_IO, "%s/" STORE_FILE_NAME ": %s", f->dir, strerror(why));
    } else {
        err_set(eb, e, "no memory for the state");
    }
    buf_free(&b);
    return e;
}

static void file_close(struct store *s) {
    struct store_file *f = (struct store_file *)s;
    if (f->dir_fd >= 0) close(f->dir_fd);
    free(f->dir);
    free(f);
}

static enum err open_dir(struct store_file *f, const char *dir, struct errbuf *eb) {
    f->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir_fd < 0) return refuse(eb, dir, strerror(errno));
    if (faccessat(f->dir_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return refuse(eb, dir, "the coordinator may not write there");
    if (flock(f->dir_fd, LOCK_EX | LOCK_NB) != 0)
        return refuse(eb, dir, "another coordinator uses it");
    return ERR_OK;
}

enum err store_file_open(struct store **out, const char *dir, struct errbuf *eb) {
    static const struct store_ops ops = {file_write, file_close};
    struct store_file *f = calloc(1, sizeof(*f));
    if (f == NULL || (f->dir = strdup(dir)) == NULL) {
        free(f);
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    }
    f->store.ops = &ops;
    f->dir_fd = -1;
    enum err e = open_dir(f, dir, eb);
    if (e == ERR_OK) e = load(f, eb);
    f->store.written_term = f->store.state.term;
    *out = &f->store;
    if (e != ERR_OK) store_close(out);
    return e;
}
