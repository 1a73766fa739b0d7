/* file_map: see the header. */
#include "common/base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What Linux maps by one fault where the page cache has it, in windows of that alignment. */
enum { FAULT_AROUND_BYTES = 64 * 1024 };

enum err file_map_open(struct file_map *m, const char *path, uint64_t bytes_min,
                       struct errbuf *eb) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct stat st;
    *m = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(eb, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", name,
                       strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < bytes_min) {
        close(fd);
        return err_set(eb, ERR_BAD_FILE, "%s: must be a regular file of at least %llu bytes", name,
                       (unsigned long long)bytes_min);
    }
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return err_set(eb, ERR_IO, "%s: cannot be mapped: %s", name, strerror(errno));
    *m = (struct file_map){.name = strdup(name),
                           .p = p,
                           .bytes = (uint64_t)st.st_size,
                           .mapped = (uint64_t)st.st_size,
                           .mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u +
                                       (uint64_t)st.st_mtim.tv_nsec,
                           .inode = (uint64_t)st.st_ino};
    if (m->name != NULL) return ERR_OK;
    file_map_close(m);
    return err_set(eb, ERR_NO_MEMORY, "no memory for file names");
}

void file_map_close(struct file_map *m) {
    if (m->p != NULL) munmap(m->p, (size_t)m->mapped);
    free(m->name);
    *m = (struct file_map){0};
}

void file_map_keep(struct file_map *m, uint64_t n) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t kept = (n > 0 ? (n + page - 1) / page : 1) * page;
    if (kept < m->mapped && munmap(m->p + kept, (size_t)(m->mapped - kept)) == 0) m->mapped = kept;
}

void file_map_drop(const struct file_map *m, uint64_t begin, uint64_t n) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t from = begin / FAULT_AROUND_BYTES * FAULT_AROUND_BYTES,
                   to = (begin + n) / page * page;
    /* A refusal costs memory, nothing else. */
    if (to > from) (void)madvise(m->p + from, (size_t)(to - from), MADV_DONTNEED);
}
