/* kept_dir: files read once, and a thread that writes. */
#include "common/net/kept_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/whole_file.h"

#define SUFFIX   ".kept"
#define NEW_NAME "new" /* no file of an answer: it has no suffix */

enum { NAME_BYTES = KEPT_ID_BYTES + sizeof(SUFFIX), FILE_BYTES_EXTRA = 4096 };

/* What the thread is to do: write bytes under that name, or remove it. */
struct job {
    struct job *next;
    char name[NAME_BYTES];
    struct buf bytes; /* empty: remove */
};

struct kept_dir {
    struct kept_store *store;
    char *path; /* for messages */
    int fd;
    bool full; /* the last one was not written, which is logged */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    struct job *first, **last;
    size_t waiting_bytes;
    bool closing, failed; /* failed: the last write, which is logged */
};

/* ---- the thread */

static void run_job(struct kept_dir *d, struct job *j) {
    int why = 0;
    if (j->bytes.len > 0)
        why = whole_replace(d->fd, NEW_NAME, j->name, 0600, j->bytes.data, j->bytes.len);
    else if (unlinkat(d->fd, j->name, 0) != 0 && errno != ENOENT)
        why = errno;
    if (why != 0 && !d->failed)
        log_error("kept", "event=not_written folder=%s detail=\"%s\"", d->path, strerror(why));
    d->failed = why != 0; /* this thread alone looks at it */
    buf_free(&j->bytes);
    free(j);
}

static void *writer(void *arg) {
    struct kept_dir *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (d->first == NULL && !d->closing) pthread_cond_wait(&d->more, &d->lock);
        struct job *j = d->first;
        if (j == NULL) break;
        d->first = j->next;
        if (d->first == NULL) d->last = &d->first;
        d->waiting_bytes -= j->bytes.len;
        pthread_mutex_unlock(&d->lock);
        run_job(d, j);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Takes bytes. */
static void hand_over(struct kept_dir *d, const char *id, struct buf *bytes) {
    struct job *j = calloc(1, sizeof(*j));
    bool taken = false;
    if (j != NULL && !bytes->failed) {
        snprintf(j->name, sizeof(j->name), "%s" SUFFIX, id);
        j->bytes = *bytes;
        pthread_mutex_lock(&d->lock);
        taken = d->waiting_bytes + bytes->len <= KEPT_DIR_WAITING_MAX;
        if (taken) {
            d->waiting_bytes += bytes->len;
            *d->last = j;
            d->last = &j->next;
            pthread_cond_signal(&d->more);
        }
        pthread_mutex_unlock(&d->lock);
    }
    if (!taken) {
        free(j);
        buf_free(bytes);
        if (!d->full)
            log_warn("kept", "event=not_written detail=\"the disk is too slow, or no memory\"");
    }
    d->full = !taken;
}

void kept_dir_put(struct kept_dir *d, const struct kept *k) {
    struct buf bytes = BUF_INIT;
    struct kept_file f = {.used_unix_s = clock_unix_s(),
                          .input = k->input.data,
                          .n_input = k->input.len,
                          .text = k->text.data,
                          .n_text = k->text.len,
                          .at = k->at,
                          .n = k->n,
                          .events = k->events};
    if (d == NULL) return;
    memcpy(f.id, k->id, sizeof(f.id));
    memcpy(f.previous, k->previous, sizeof(f.previous));
    memcpy(f.tenant, k->tenant_name, sizeof(f.tenant));
    kept_file_format(&bytes, &f);
    hand_over(d, k->id, &bytes);
}

static void on_gone(void *arg, const struct kept *k) {
    struct kept_dir *d = arg;
    struct buf none = BUF_INIT;
    if (k->runs) return; /* it has no file yet */
    if (k->n > 0)
        kept_dir_put(d, k);
    else
        hand_over(d, k->id, &none);
}

/* ---- reading */

struct found {
    char name[NAME_BYTES];
    int64_t used_unix_s;
};

/* Takes the file into the store; without a store only looks when it was used. */
static enum err read_file(const struct kept_dir *d, const char *name, struct kept_store *store,
                          int64_t *used_unix_s, struct errbuf *eb) {
    struct buf b = BUF_INIT;
    struct kept_file f;
    const int fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return err_set(eb, ERR_IO, "%s", strerror(errno));
    enum err e = whole_read_own(&b, fd, kept_one_max(d->store) + FILE_BYTES_EXTRA, eb);
    close(fd);
    if (e == ERR_OK) e = kept_file_parse(&f, b.data != NULL ? b.data : "", b.len, eb);
    if (e == ERR_OK && strncmp(f.id, name, strlen(f.id)) != 0)
        e = err_set(eb, ERR_INVALID, "it has another answer's name");
    if (e == ERR_OK) *used_unix_s = f.used_unix_s;
    if (e == ERR_OK && store != NULL) {
        const int64_t age_s = clock_unix_s() - f.used_unix_s;
        const uint64_t age_ms = age_s > 0 ? (uint64_t)age_s * 1000 : 0;
        struct kept *k = kept_add(store, f.id, f.tenant, f.previous, f.input, f.n_input, 0);
        if (k == NULL) {
            e = err_set(eb, ERR_NO_MEMORY, "no room for it");
        } else {
            k->has_events = f.events > 0;
            if (!kept_append(store, k, f.text, f.n_text) ||
                !kept_finish(store, k, f.at, f.n, f.events, clock_ms() - age_ms)) {
                kept_remove(store, k);
                e = err_set(eb, ERR_NO_MEMORY, "no room for it");
            }
        }
    }
    buf_free(&b);
    return e;
}

static void forget(const struct kept_dir *d, const char *name, const struct errbuf *why) {
    log_error("kept", "event=removed file=%s/%s detail=\"%s\"", d->path, name, why->text);
    unlinkat(d->fd, name, 0);
}

static int by_use(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->used_unix_s != y->used_unix_s) return x->used_unix_s < y->used_unix_s ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool is_ours(const char *name) {
    const size_t n = strlen(name), suffix = sizeof(SUFFIX) - 1;
    return n > suffix && n < NAME_BYTES && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* The names of the folder, by when they were used. */
static enum err list(struct kept_dir *d, struct found **out, size_t *n, struct errbuf *eb) {
    const int fd = dup(d->fd);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    size_t cap = 0;
    enum err e = dir != NULL ? ERR_OK : err_set(eb, ERR_IO, "%s", strerror(errno));
    if (dir == NULL && fd >= 0) close(fd);
    for (struct dirent *entry; e == ERR_OK && (entry = readdir(dir)) != NULL;) {
        struct errbuf why = {0};
        if (!is_ours(entry->d_name)) continue;
        if (*n == cap) {
            cap = cap > 0 ? 2 * cap : 64;
            struct found *more = realloc(*out, cap * sizeof(*more));
            if (more == NULL) {
                e = err_set(eb, ERR_NO_MEMORY, "out of memory");
                break;
            }
            *out = more;
        }
        struct found *f = &(*out)[*n];
        snprintf(f->name, sizeof(f->name), "%.*s", (int)sizeof(f->name) - 1, entry->d_name);
        if (read_file(d, f->name, NULL, &f->used_unix_s, &why) == ERR_OK)
            ++*n;
        else
            forget(d, f->name, &why);
    }
    if (dir != NULL) closedir(dir);
    if (*n > 1) qsort(*out, *n, sizeof(**out), by_use);
    return e;
}

static enum err load(struct kept_dir *d, struct errbuf *eb) {
    struct found *files = NULL;
    size_t n = 0;
    enum err e = list(d, &files, &n, eb);
    for (size_t i = 0; i < n && e == ERR_OK; i++) {
        struct errbuf why = {0};
        if (read_file(d, files[i].name, d->store, &files[i].used_unix_s, &why) != ERR_OK)
            forget(d, files[i].name, &why);
    }
    if (e == ERR_OK)
        log_info("kept", "event=loaded folder=%s answers=%zu", d->path, kept_count(d->store));
    free(files);
    return e;
}

/* ---- life */

static enum err open_folder(struct kept_dir *d, const char *path, struct errbuf *eb) {
    const char *why = NULL;
    d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0)
        why = strerror(errno);
    else if (faccessat(d->fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        why = "this process may not write there";
    else if (flock(d->fd, LOCK_EX | LOCK_NB) != 0)
        why = "another process uses it";
    return why == NULL ? ERR_OK
                       : err_set(eb, ERR_BAD_CONFIG, "folder of kept responses %s: %s", path, why);
}

enum err kept_dir_open(struct kept_dir **out, struct kept_store *store, const char *path,
                       struct errbuf *eb) {
    struct kept_dir *d = calloc(1, sizeof(*d));
    *out = d;
    if (d == NULL || (d->path = strdup(path)) == NULL) {
        free(d);
        *out = NULL;
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    }
    d->fd = -1;
    d->store = store;
    d->last = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    enum err e = open_folder(d, path, eb);
    if (e == ERR_OK) {
        d->has_thread = pthread_create(&d->thread, NULL, writer, d) == 0;
        if (!d->has_thread) e = err_set(eb, ERR_NO_MEMORY, "no thread for kept responses");
    }
    if (e == ERR_OK) kept_store_watch(store, on_gone, d);
    if (e == ERR_OK) e = load(d, eb);
    if (e != ERR_OK) kept_dir_close(out);
    return e;
}

void kept_dir_close(struct kept_dir **dp) {
    struct kept_dir *d = *dp;
    if (d == NULL) return;
    kept_store_watch(d->store, NULL, NULL);
    if (d->has_thread) {
        pthread_mutex_lock(&d->lock);
        d->closing = true;
        pthread_cond_signal(&d->more);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    pthread_cond_destroy(&d->more);
    pthread_mutex_destroy(&d->lock);
    if (d->fd >= 0) close(d->fd);
    free(d->path);
    free(d);
    *dp = NULL;
}
