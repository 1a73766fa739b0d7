/* grow: arrays that grow by doubling. */
#ifndef BATON_GUIDE_GROW_H
#define BATON_GUIDE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* p with room for n + 1 elements of size bytes; NULL: no memory, p is as it was. */
static inline void *grow_array(void *p, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return p;
    size_t more = *cap == 0 ? 16 : *cap * 2;
    void *q = more > SIZE_MAX / size ? NULL : realloc(p, more * size);
    if (q != NULL) *cap = more;
    return q;
}

/* Makes room for element n of array p; false: no memory. */
#define GROW(p, n, cap)                                                                            \
    __extension__({                                                                                \
        void *grown_ = grow_array((p), (n), &(cap), sizeof(*(p)));                                 \
        if (grown_ != NULL) (p) = grown_;                                                          \
        grown_ != NULL;                                                                            \
    })

#endif
