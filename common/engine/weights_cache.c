/* weights_cache: header, place, lock and life of the file. */
#include "common/engine/weights_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/wire.h"

enum { MAGIC_BYTES = 8, SUM_AT = WC_HEADER_BYTES - 8, LOCK_LOOK_MS = 20 };
static const uint8_t magic[MAGIC_BYTES] = {'B', 'A', 'T', 'O', 'N', 'P', 'W', '\n'};

/* ---- header */

static void put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}
static void put_u64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
}

void wc_header_write(uint8_t out[WC_HEADER_BYTES], const struct wc_header *h) {
    uint8_t *p = out;
    memset(out, 0, WC_HEADER_BYTES);
    memcpy(p, magic, MAGIC_BYTES);
    put_u32(p + 8, WC_VERSION);
    put_u32(p + 12, h->dtype);
    put_u64(p + 16, h->data_bytes);
    p += 24;
    const struct {
        const uint8_t *from;
        size_t n;
    } parts[] = {{h->config, WC_SHA_BYTES}, {h->plan, WC_SHA_BYTES},  {h->stamp, WC_SHA_BYTES},
                 {h->layout, WC_XXH_BYTES}, {h->model, WC_SHA_BYTES}, {h->sum, WC_XXH_BYTES}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); p += parts[i].n, i++)
        memcpy(p, parts[i].from, parts[i].n);
    put_u64(out + SUM_AT, XXH3_64bits(out, SUM_AT));
}

enum err wc_header_read(struct wc_header *h, const uint8_t *p, size_t n, uint64_t file_bytes,
                        struct errbuf *eb) {
    struct rd r = rd_of(p, n < WC_HEADER_BYTES ? n : WC_HEADER_BYTES);
    struct rd tail;
    const uint8_t *got;
    uint32_t version = 0;
    uint64_t sum = 0;
    memset(h, 0, sizeof(*h));
    if (n < WC_HEADER_BYTES || file_bytes < WC_HEADER_BYTES)
        return err_set(eb, ERR_BAD_FILE, "shorter than its header of %d bytes", WC_HEADER_BYTES);
    if (!rd_bytes(&r, &got, MAGIC_BYTES) || memcmp(got, magic, MAGIC_BYTES) != 0)
        return err_set(eb, ERR_BAD_FILE, "not a file of packed weights");
    tail = rd_of(p + SUM_AT, WC_HEADER_BYTES - SUM_AT);
    rd_u64(&tail, &sum);
    if (sum != XXH3_64bits(p, SUM_AT))
        return err_set(eb, ERR_BAD_FILE, "the checksum of its header is wrong");
    rd_u32(&r, &version);
    rd_u32(&r, &h->dtype);
    rd_u64(&r, &h->data_bytes);
    if (version != WC_VERSION)
        return err_set(eb, ERR_BAD_FILE, "its version must be %d, got %" PRIu32, WC_VERSION,
                       version);
    if (h->data_bytes == 0 || h->data_bytes != file_bytes - WC_HEADER_BYTES)
        return err_set(eb, ERR_BAD_FILE,
                       "its header speaks of %" PRIu64 " bytes of data, the file has %" PRIu64,
                       h->data_bytes, file_bytes - WC_HEADER_BYTES);
    rd_copy(&r, h->config, WC_SHA_BYTES);
    rd_copy(&r, h->plan, WC_SHA_BYTES);
    rd_copy(&r, h->stamp, WC_SHA_BYTES);
    rd_copy(&r, h->layout, WC_XXH_BYTES);
    rd_copy(&r, h->model, WC_SHA_BYTES);
    rd_copy(&r, h->sum, WC_XXH_BYTES);
    return r.failed ? err_set(eb, ERR_BAD_FILE, "its header is cut short") : ERR_OK;
}

uint64_t wc_sum_chunk(const void *p, size_t n) {
    return XXH3_64bits(p, n);
}

bool wc_sum_chunk_unless(uint64_t *sum, const void *p, size_t n, const atomic_bool *stop) {
    enum { STEP_BYTES = 262144 };
    XXH3_state_t s;
    XXH3_INITSTATE(&s);
    (void)XXH3_64bits_reset(&s);
    for (size_t at = 0; at < n; at += STEP_BYTES) {
        if (atomic_load(stop)) return false;
        (void)XXH3_64bits_update(&s, (const uint8_t *)p + at,
                                 n - at < STEP_BYTES ? n - at : STEP_BYTES);
    }
    *sum = XXH3_64bits_digest(&s);
    return true;
}

void wc_sum(uint8_t out[WC_XXH_BYTES], const uint64_t *sums, size_t n) {
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(sums, n * sizeof(*sums)));
    memcpy(out, digest.digest, WC_XXH_BYTES);
}

/* ---- place */

static void hex(char *out, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", p[i]);
}

bool wc_place(struct wc_file *f, const char *setting, const char *model,
              const struct wc_header *want, const uint8_t sample[WC_XXH_BYTES]) {
    char layout[9], key[17], kind[32];
    struct stat st;
    const bool is_file = stat(model, &st) == 0 && !S_ISDIR(st.st_mode);
    const char *slash = is_file ? strrchr(model, '/') : NULL;
    const int dir_bytes = !is_file ? (int)strlen(model) : slash != NULL ? (int)(slash - model) : 0;
    uint8_t both[WC_SHA_BYTES + WC_XXH_BYTES], sha[SHA256_DIGEST_LENGTH];
    memset(f, 0, sizeof(*f));
    f->lock_fd = f->tmp_fd = -1;
    if (setting == NULL || setting[0] == 0 || strcmp(setting, "off") == 0) return false;
    bool automatic = strcmp(setting, "auto") == 0;
    f->may_make = !automatic || want->data_bytes >= WC_AUTO_BYTES_MIN;
    memcpy(both, want->plan, WC_SHA_BYTES);
    memcpy(both + WC_SHA_BYTES, sample, WC_XXH_BYTES);
    SHA256(both, sizeof(both), sha);
    hex(layout, want->layout, 4);
    hex(key, sha, 8);
    /* A model's own folder holds one file of a kind, so a changed model replaces it. */
    const bool shared = !automatic || is_file;
    snprintf(kind, sizeof(kind), "%s%s%s-%s", shared ? key : "", shared ? "-" : "", layout,
             dtype_name((enum dtype)want->dtype));
    const int n = automatic ? snprintf(f->path, sizeof(f->path), "%.*s%s/.baton/%s.packed",
                                       dir_bytes, model, dir_bytes == 0 ? "." : "", kind)
                            : snprintf(f->path, sizeof(f->path), "%s/%s.packed", setting, kind);
    if (n < 0 || (size_t)n >= sizeof(f->path)) {
        log_warn("load", "weight cache: the path of its folder is too long, packing into memory");
        return false;
    }
    snprintf(f->tmp, sizeof(f->tmp), "%s.tmp", f->path);
    snprintf(f->lock, sizeof(f->lock), "%s.lock", f->path);
    return true;
}

/* ---- mapping what is there */

/* NULL: this file may be trusted. */
static const char *distrust(const struct stat *st) {
    if (!S_ISREG(st->st_mode)) return "it is not a regular file";
    if (st->st_uid != geteuid() && st->st_uid != 0) return "it belongs to another user";
    if (st->st_mode & (S_IWGRP | S_IWOTH)) return "others than its owner may write it";
    return NULL;
}

static bool same(const uint8_t *a, const uint8_t *b, size_t n) {
    return memcmp(a, b, n) == 0;
}

static const char *misfit(const struct wc_header *got, const struct wc_header *want) {
    if (got->dtype != want->dtype) return "it holds another data type";
    if (!same(got->layout, want->layout, WC_XXH_BYTES)) return "it is laid out for other kernels";
    if (!same(got->config, want->config, WC_SHA_BYTES)) return "config.json has changed";
    if (got->data_bytes != want->data_bytes || !same(got->plan, want->plan, WC_SHA_BYTES))
        return "its tensors are others";
    return NULL;
}

static bool map_file(struct wc_file *f, int fd, size_t n, int prot) {
    void *p = mmap(NULL, n, prot, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return false;
    (void)madvise(p, n, MADV_HUGEPAGE); /* in a file system that has huge pages */
    f->map = p;
    f->map_bytes = n;
    return true;
}

enum wc_found wc_map(struct wc_file *f, const struct wc_header *want, struct wc_header *got) {
    uint8_t bytes[WC_HEADER_BYTES];
    struct stat st;
    struct errbuf eb = {0};
    const char *why = NULL;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            log_warn("load", "weight cache %s: cannot be opened: %s", f->path, strerror(errno));
        return WC_MISS;
    }
    ssize_t n = fstat(fd, &st) == 0 ? 0 : -1;
    if (n < 0) {
        why = strerror(errno);
    } else if ((why = distrust(&st)) == NULL) {
        n = pread(fd, bytes, sizeof(bytes), 0);
        if (wc_header_read(got, bytes, n < 0 ? 0 : (size_t)n, (uint64_t)st.st_size, &eb) != ERR_OK)
            why = eb.text;
        else if ((why = misfit(got, want)) == NULL &&
                 !map_file(f, fd, (size_t)st.st_size, PROT_READ))
            why = strerror(errno);
        f->dev = (uint64_t)st.st_dev;
        f->ino = (uint64_t)st.st_ino;
    }
    close(fd);
    if (why != NULL) {
        log_warn("load", "weight cache %s is not used: %s", f->path, why);
        return WC_MISS;
    }
    return same(got->stamp, want->stamp, WC_SHA_BYTES) ? WC_HIT : WC_TOUCHED;
}

void wc_unmap(struct wc_file *f) {
    if (f->map != NULL) munmap(f->map, f->map_bytes);
    f->map = NULL;
    f->map_bytes = 0;
}

/* ---- making one */

static bool make_folder(const char *path) {
    char dir[WC_PATH_BYTES];
    snprintf(dir, sizeof(dir), "%s", path);
    *strrchr(dir, '/') = 0;
    return mkdir(dir, 0755) == 0 || errno == EEXIST;
}

bool wc_lock(struct wc_file *f, const atomic_bool *cancel) {
    uint64_t until = clock_ms() + (uint64_t)WC_WAIT_S * 1000;
    const struct timespec nap = {.tv_nsec = LOCK_LOOK_MS * 1000000L};
    bool told = false;
    int fd = -1;
    if (make_folder(f->path))
        fd = open(f->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) {
        log_info("load", "weight cache %s cannot be written (%s): packing into memory", f->path,
                 strerror(errno));
        return false;
    }
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int e = errno;
        if (e == EINTR) continue;
        if (e != EWOULDBLOCK || clock_ms() > until) {
            log_warn("load", "weight cache %s: its lock cannot be had (%s): packing into memory",
                     f->path, strerror(e));
            close(fd);
            return false;
        }
        if (!told)
            log_info("load", "weight cache %s: another process packs these weights, waiting",
                     f->path);
        told = true;
        nanosleep(&nap, NULL);
        if (cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed)) {
            close(fd);
            return false;
        }
    }
    f->lock_fd = fd;
    return true;
}

static bool begin_failed(struct wc_file *f, int e) {
    log_warn("load", "weight cache %s cannot be written (%s): packing into memory", f->path,
             strerror(e));
    wc_unmap(f);
    wc_end(f);
    return false;
}

bool wc_begin(struct wc_file *f, uint64_t data_bytes) {
    uint64_t n = 0;
    if (__builtin_add_overflow(data_bytes, (uint64_t)WC_HEADER_BYTES, &n) || n > INT64_MAX)
        return begin_failed(f, EFBIG);
    (void)unlink(f->tmp); /* of a process that died */
    f->tmp_fd = open(f->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f->tmp_fd < 0) return begin_failed(f, errno);
    /* Whatever umask says: what others may write nobody would map. */
    if (fchmod(f->tmp_fd, 0644) != 0) return begin_failed(f, errno);
    /* A page of a hole that the disk has no room for would be a SIGBUS while packing. */
    int e = posix_fallocate(f->tmp_fd, 0, (off_t)n);
    if (e != 0) return begin_failed(f, e);
    if (!map_file(f, f->tmp_fd, (size_t)n, PROT_READ | PROT_WRITE)) return begin_failed(f, errno);
    return true;
}

static bool sync_folder(const char *path) {
    char dir[WC_PATH_BYTES];
    snprintf(dir, sizeof(dir), "%s", path);
    *strrchr(dir, '/') = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    bool good = fsync(fd) == 0;
    close(fd);
    return good;
}

bool wc_commit(struct wc_file *f, const struct wc_header *h) {
    uint64_t start = clock_ms();
    /* The header last: without it the data are nothing. */
    bool good = fsync(f->tmp_fd) == 0;
    if (good) wc_header_write(f->map, h);
    good = good && fsync(f->tmp_fd) == 0 && rename(f->tmp, f->path) == 0;
    int e = errno;
    (void)mprotect(f->map, f->map_bytes, PROT_READ);
    if (!good) {
        log_warn("load", "weight cache %s cannot be written: %s", f->path, strerror(e));
        wc_end(f);
        return false;
    }
    close(f->tmp_fd);
    f->tmp_fd = -1;
    if (!sync_folder(f->path))
        log_warn("load", "weight cache %s: its folder was not synced", f->path);
    log_info("load", "event=weights_cached file=%s bytes=%zu sync_ms=%" PRIu64, f->path,
             f->map_bytes, clock_ms() - start);
    wc_end(f);
    return true;
}

void wc_restamp(struct wc_file *f, const struct wc_header *h) {
    uint8_t bytes[WC_HEADER_BYTES];
    struct stat st;
    int lock = open(f->lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int fd = open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    wc_header_write(bytes, h);
    /* Somebody may have put another file in its place. Torn by a crash the header fails its
     * checksum, and the weights are packed again. */
    if (lock >= 0 && fd >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
        (uint64_t)st.st_dev == f->dev && (uint64_t)st.st_ino == f->ino &&
        (pwrite(fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) || fsync(fd) != 0))
        log_warn("load", "weight cache %s: its stamp cannot be written: %s", f->path,
                 strerror(errno));
    if (fd >= 0) close(fd);
    if (lock >= 0) close(lock);
}

void wc_end(struct wc_file *f) {
    if (f->tmp_fd >= 0) {
        (void)unlink(f->tmp);
        close(f->tmp_fd);
    }
    if (f->lock_fd >= 0) close(f->lock_fd);
    f->tmp_fd = f->lock_fd = -1;
}
