/* jinja_mem: memory of one template or one rendering: taken piece by piece, given back in one call.
 * A bound on the total is what keeps a hostile template from eating the machine.
 * One thread at a time. */
#ifndef BATON_TEXT_JINJA_MEM_H
#define BATON_TEXT_JINJA_MEM_H

#include <stdbool.h>
#include <stddef.h>

struct jinja_chunk;

struct jinja_mem {
    struct jinja_chunk *head;
    char *last_end; /* one past the latest piece, as asked for (not rounded up) */
    size_t chunk_bytes, used_bytes, bytes_max;
    bool exhausted; /* it was the system that had none left, not the bound */
};

void jinja_mem_init(struct jinja_mem *m, size_t bytes_max);
void jinja_mem_fini(struct jinja_mem *m);

/* 16-byte aligned, not cleared. NULL: over the bound, or the system has none left. */
void *jinja_mem_alloc(struct jinja_mem *m, size_t n);

/* Makes the latest piece n bytes longer without moving it. end: one past its last byte. False when
 * end is not the end of the latest piece or there is no room behind it; nothing changes then. */
bool jinja_mem_extend(struct jinja_mem *m, const char *end, size_t n);

/* Gives back the last n bytes of the latest piece; end as above. Does nothing for another piece. */
void jinja_mem_shrink(struct jinja_mem *m, const char *end, size_t n);

#endif
