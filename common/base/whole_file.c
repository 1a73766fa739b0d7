#include "common/base/whole_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

enum { READ_BYTES = 64 << 10 };

int whole_write(int fd, const void *p, size_t n) {
    const char *at = p;
    while (n > 0) {
        const ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return k < 0 ? errno : EIO;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int whole_replace(int dir, const char *fresh, const char *name, mode_t mode, const void *p,
                  size_t n) {
    const int fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) return errno;
    int why = whole_write(fd, p, n);
    if (close(fd) != 0 && why == 0) why = errno;
    if (why == 0 && renameat(dir, fresh, dir, name) != 0) why = errno;
    if (why != 0) (void)unlinkat(dir, fresh, 0);
    return why;
}

enum err whole_read_own(struct buf *b, int fd, size_t most, struct errbuf *eb) {
    struct stat st;
    const size_t before = b->len;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 022) != 0)
        return err_set(eb, ERR_BAD_CONFIG,
                       "it must be a file of this user that nobody else may write");
    for (;;) {
        if (!buf_reserve(b, READ_BYTES)) return err_set(eb, ERR_NO_MEMORY, "out of memory");
        const ssize_t n = read(fd, b->data + b->len, READ_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(eb, ERR_IO, "%s", strerror(errno));
        if (n == 0) return ERR_OK;
        b->len += (size_t)n;
        b->data[b->len] = 0;
        if (b->len - before > most)
            return err_set(eb, ERR_TOO_LARGE, "larger than %zu bytes", most);
    }
}
