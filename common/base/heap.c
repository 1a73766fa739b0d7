/* heap: mmap() for what is large; glibc's own switches. */
#include "common/base/heap.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024, /* glibc takes no more */
    TRIM_THRESHOLD_BYTES = 64 * 1024 * 1024,
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
