/* heap: memory for what comes from outside and is large for a moment, and what malloc keeps of the
 * rest. malloc keeps what it is given back (an instance tells it to, for the frames of the KV link:
 * heap_keep()), once for each thread, so that some large bodies would be held many times for ever;
 * a block of HEAP_LARGE_BYTES and more is a mapping of its own here, and ends when it is given
 * back. */
#ifndef BATON_BASE_HEAP_H
#define BATON_BASE_HEAP_H

#include <stddef.h>

enum { HEAP_LARGE_BYTES = 256 * 1024 };

/* n bytes, not cleared; NULL: no memory. Given back with the same n; NULL is fine there. */
void *heap_take(size_t n);
void heap_give(void *p, size_t n);

/* Makes malloc keep memory between messages of a few MiB: a fresh mapping for each would cost a
 * page fault every 4 KiB. Process-wide; call it after big loads. */
void heap_keep(void);
/* Gives the system back what malloc keeps and nobody uses: for moments of rest. Process-wide, some
 * milliseconds for 100 MB; any thread. */
void heap_trim(void);

/* The heap of malloc in large pages, for one thread that goes through tens of thousands of small
 * objects: beside the objects it finds their pages' places in no cache either, and with pages of 2
 * MiB in place of 4 KiB that second miss, on a virtual machine the larger, is gone. A hint: where
 * the kernel has no such pages all is as without. */
struct heap_pages {
    char *end; /* of what the kernel has been told of; NULL: nothing is told */
};
/* Before the process has much. malloc takes some large pages at a time from here on. */
void heap_pages_open(struct heap_pages *h);
/* Tells of what the heap has grown by; cheap where it has not. To be called at least once while it
 * grows by 16 MiB. */
void heap_pages_follow(struct heap_pages *h);

#endif
