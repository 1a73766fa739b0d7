/* heap: mmap() for what is large; glibc's own switches. */
#include "common/base/heap.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024, /* glibc takes no more */
    TRIM_THRESHOLD_BYTES = 64 * 1024 * 1024,
    STEP_BYTES = 16 * 1024 * 1024,
    /* malloc chooses none of its bounds any more once it is told one: larger blocks are mappings.
     */
    MAPPED_BYTES = 1024 * 1024,
};

void *heap_take(size_t n) {
    if (n < HEAP_LARGE_BYTES) return malloc(n);
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

void heap_give(void *p, size_t n) {
    if (p == NULL) return;
    if (n < HEAP_LARGE_BYTES)
        free(p);
    else
        munmap(p, n);
}

void heap_keep(void) {
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
}

void heap_trim(void) {
    malloc_trim(0);
}

/* ---- large pages */

void heap_pages_open(struct heap_pages *h) {
    (void)mallopt(M_TOP_PAD, STEP_BYTES);
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    h->end = sbrk(0); /* what came before is little */
}

void heap_pages_follow(struct heap_pages *h) {
    char *const end = sbrk(0);
    if (h->end == NULL || end == h->end) return;
    if (end > h->end) {
        char *const from = h->end - (uintptr_t)h->end % (uintptr_t)sysconf(_SC_PAGESIZE);
        (void)madvise(from, (size_t)(end - from), MADV_HUGEPAGE);
    }
    h->end = end; /* where it is less now, what comes again is new */
}
