/* mem: mappings, and what the kernel says they became. */
#include "common/engine/mem.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/base/log.h"

enum { PAGE = 4096, SMAPS_BYTES = 8192 };

static size_t huge_up(size_t n) {
    return (n + MEM_HUGE_BYTES - 1) / MEM_HUGE_BYTES * MEM_HUGE_BYTES;
}

static void *map(size_t n, int flags) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

/* Reserved pages are counted at once, so a pool that is too small is refused here and not by a
 * signal later. */
static bool map_hugetlb(struct mem *m) {
    m->map_bytes = huge_up(m->bytes);
    m->map = m->p = map(m->map_bytes, MAP_HUGETLB | (21 << 26 /* MAP_HUGE_2MB */));
    m->pages = MEM_HUGETLB;
    return m->map != NULL;
}

static bool map_plain(struct mem *m, bool transparent) {
    bool large = transparent && m->bytes >= MEM_HUGE_BYTES;
    m->map_bytes = large ? m->bytes + MEM_HUGE_BYTES : m->bytes;
    if ((m->map = m->p = map(m->map_bytes, 0)) == NULL) return false;
    m->pages = transparent ? MEM_TRANSPARENT : MEM_SMALL;
    if (large) m->p += huge_up((size_t)m->p) - (size_t)m->p;
    /* a kernel without them is fine */
    (void)madvise(m->map, m->map_bytes, transparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return true;
}

bool mem_open(struct mem *m, size_t bytes, enum mem_pages pages, bool touch) {
    memset(m, 0, sizeof(*m));
    if (bytes > PTRDIFF_MAX - 2 * (size_t)MEM_HUGE_BYTES) return false;
    m->bytes = bytes;
    bool done = pages == MEM_HUGETLB && map_hugetlb(m);
    if (!done && pages == MEM_HUGETLB)
        log_warn("load", "no %zu bytes of reserved huge pages (vm.nr_hugepages): transparent ones",
                 bytes);
    if (!done && !map_plain(m, pages != MEM_SMALL)) {
        memset(m, 0, sizeof(*m));
        return false;
    }
    for (size_t i = 0; touch && i < bytes; i += PAGE) ((volatile uint8_t *)m->p)[i] = 0;
    return true;
}

void mem_close(struct mem *m) {
    if (m->map != NULL) munmap(m->map, m->map_bytes);
    memset(m, 0, sizeof(*m));
}

/* ---- what became of it */

static bool starts(const char *p, size_t n, const char *word) {
    size_t len = strlen(word);
    return n >= len && memcmp(p, word, len) == 0;
}

/* Lines like "AnonHugePages:     2048 kB". */
uint64_t mem_huge_of_text(const char *text, size_t n) {
    static const char *const keys[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:",
                                       "Shared_Hugetlb:", "Private_Hugetlb:"};
    uint64_t total = 0;
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t len = end != NULL ? (size_t)(end - text) : n;
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            uint64_t kib = 0;
            if (!starts(text, len, keys[k])) continue;
            size_t i = strlen(keys[k]);
            while (i < len && text[i] == ' ') i++;
            for (; i < len && text[i] >= '0' && text[i] <= '9' && kib < UINT64_MAX / 20480; i++)
                kib = kib * 10 + (uint64_t)(text[i] - '0');
            if (total <= UINT64_MAX - kib * 1024) total += kib * 1024;
        }
        if (end == NULL) break;
        n -= len + 1;
        text = end + 1;
    }
    return total;
}

uint64_t mem_huge_bytes(void) {
    char text[SMAPS_BYTES];
    size_t n = 0;
    ssize_t got = 0;
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    while (n < sizeof(text) && (got = read(fd, text + n, sizeof(text) - n)) > 0) n += (size_t)got;
    close(fd);
    return mem_huge_of_text(text, n);
}
