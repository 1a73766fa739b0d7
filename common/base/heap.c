/* heap: mmap() for what is large. */
#include "common/base/heap.h"

#include <stdlib.h>
#include <sys/mman.h>

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
