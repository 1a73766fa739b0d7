#include "common/base/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/whole_file.h"

struct line_file {
    char *path;
    int fd; /* the thread's, once it runs; below 0: it could not be made anew */
    uint64_t look_ms;
    bool failing; /* and said so */
    _Atomic uint64_t n_dropped;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    struct buf waiting;
    bool closing;
};

static int open_file(const char *path) {
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

/* ---- the thread that writes */

static bool is_there(const struct line_file *f) {
    struct stat ours, named;
    return f->fd >= 0 && fstat(f->fd, &ours) == 0 && stat(f->path, &named) == 0 &&
           ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static void look_again(struct line_file *f) {
    const uint64_t now = clock_ms();
    if (now < f->look_ms) return;
    f->look_ms = now + LINE_FILE_LOOK_MS;
    if (is_there(f)) return;
    if (f->fd >= 0) close(f->fd);
    f->fd = open_file(f->path);
}

static uint64_t n_lines(const struct buf *b) {
    uint64_t n = 0;
    for (size_t i = 0; i < b->len; i++) n += b->data[i] == '\n';
    return n;
}

static void write_lines(struct line_file *f, const struct buf *lines) {
    look_again(f);
    const int error = whole_write(f->fd, lines->data, lines->len);
    if (error != 0) atomic_fetch_add(&f->n_dropped, n_lines(lines));
    if (error != 0 && !f->failing)
        log_error("log", "event=lines_lost file=%s detail=\"%s\"", f->path, strerror(error));
    if (error == 0 && f->failing)
        log_info("log", "event=lines_written_again file=%s lost=%llu", f->path,
                 (unsigned long long)atomic_load(&f->n_dropped));
    f->failing = error != 0;
}

static void *writer(void *arg) {
    struct line_file *f = arg;
    struct buf out = BUF_INIT;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->waiting.len == 0 && !f->closing) pthread_cond_wait(&f->more, &f->lock);
        if (f->waiting.len == 0) break;
        struct buf taken = f->waiting;
        f->waiting = out;
        pthread_mutex_unlock(&f->lock);
        write_lines(f, &taken);
        buf_clear(&taken);
        out = taken;
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    buf_free(&out);
    return NULL;
}

/* ---- */

static void free_file(struct line_file *f) {
    if (f->fd >= 0) close(f->fd);
    buf_free(&f->waiting);
    free(f->path);
    free(f);
}

enum err line_file_open(struct line_file **out, const char *path, struct errbuf *eb) {
    struct line_file *f = calloc(1, sizeof(*f));
    if (f == NULL) return err_set(eb, ERR_NO_MEMORY, "%s: out of memory", path);
    f->fd = -1;
    f->path = strdup(path);
    if (f->path == NULL) {
        free_file(f);
        return err_set(eb, ERR_NO_MEMORY, "%s: out of memory", path);
    }
    f->fd = open_file(path);
    if (f->fd < 0) {
        const int error = errno;
        free_file(f);
        return err_set(eb, ERR_BAD_CONFIG, "%s: %s", path, strerror(error));
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->more, NULL);
    if (pthread_create(&f->thread, NULL, writer, f) != 0) {
        free_file(f);
        return err_set(eb, ERR_NO_MEMORY, "%s: no thread can be made", path);
    }
    *out = f;
    return ERR_OK;
}

void line_file_close(struct line_file **fp) {
    struct line_file *f = *fp;
    if (f == NULL) return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_signal(&f->more);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->more);
    pthread_mutex_destroy(&f->lock);
    free_file(f);
    *fp = NULL;
}

void line_file_put(struct line_file *f, const char *p, size_t n) {
    if (f == NULL) return;
    pthread_mutex_lock(&f->lock);
    bool fits = f->waiting.len + n <= LINE_FILE_WAITING_MAX;
    if (fits) buf_append(&f->waiting, p, n);
    if (f->waiting.failed) { /* what waits is kept */
        f->waiting.failed = fits = false;
    }
    pthread_cond_signal(&f->more);
    pthread_mutex_unlock(&f->lock);
    if (!fits) atomic_fetch_add(&f->n_dropped, 1);
}

uint64_t line_file_dropped(const struct line_file *f) {
    return f == NULL ? 0 : atomic_load(&f->n_dropped);
}
