/* mem: large buffers: mapped, in huge pages where the system gives them, and touched before they
 * are handed out, because the first touch of a page costs far more than any later one.
 *
 * Thread: any, one at a time for one buffer. The pages come from the memory node of the core that
 * touches them first. */
#ifndef BATON_ENGINE_MEM_H
#define BATON_ENGINE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mem_pages {
    MEM_TRANSPARENT, /* huge pages where the kernel finds some (MADV_HUGEPAGE) */
    MEM_HUGETLB,     /* from the reserved pool (vm.nr_hugepages); without it as the first */
    MEM_SMALL
};

struct mem {
    uint8_t *p; /* zeros; aligned to MEM_HUGE_BYTES */
    size_t bytes;
    enum mem_pages pages; /* what it became */
    void *map;
    size_t map_bytes;
};

enum { MEM_HUGE_BYTES = 2 * 1024 * 1024 };

/* bytes: > 0. touch: every page is written once; false: whoever fills it does that. False: no
 * memory, *m is empty. */
bool mem_open(struct mem *m, size_t bytes, enum mem_pages pages, bool touch);
void mem_close(struct mem *m); /* safe on an empty one */

/* Bytes of this process in huge pages, of any kind; what the kernel has given so far. */
uint64_t mem_huge_bytes(void);
/* The same from a text like /proc/PID/smaps_rollup; pure. */
uint64_t mem_huge_of_text(const char *text, size_t n);

#endif
