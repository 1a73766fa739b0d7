/* h2_mem: the memory of one nghttp2 session, as a list. A session that ran out of memory may hold
 * pointers to what it has freed itself (1.52: a stream's DATA item whose queue could not grow), so
 * that taking it apart would free them again. Here it is not taken apart: its blocks are. */
#include <stddef.h>
#include <stdlib.h>
#include "common/net/h2_priv.h"

struct h2_block {
    struct h2_block *prev, *next;
    _Alignas(max_align_t) char data[];
};

static struct h2_block *block_of(void *p) {
    return (struct h2_block *)(void *)((char *)p - offsetof(struct h2_block, data));
}

static void *join(struct h2_mem *m, struct h2_block *b) {
    if (b == NULL) return NULL;
    b->prev = NULL;
    b->next = m->first;
    if (b->next != NULL) b->next->prev = b;
    m->first = b;
    return b->data;
}

static void part(struct h2_mem *m, struct h2_block *b) {
    *(b->prev != NULL ? &b->prev->next : &m->first) = b->next;
    if (b->next != NULL) b->next->prev = b->prev;
}

static bool fits(size_t n) {
    return n <= SIZE_MAX - sizeof(struct h2_block);
}

static void *mem_malloc(size_t n, void *arg) {
    return fits(n) ? join(arg, malloc(sizeof(struct h2_block) + n)) : NULL;
}

static void mem_free(void *p, void *arg) {
    if (p == NULL) return;
    part(arg, block_of(p));
    free(block_of(p));
}

static void *mem_calloc(size_t n, size_t size, void *arg) {
    if (size > 0 && n > SIZE_MAX / size) return NULL;
    return fits(n * size) ? join(arg, calloc(1, sizeof(struct h2_block) + n * size)) : NULL;
}

static void *mem_realloc(void *p, size_t n, void *arg) {
    if (p == NULL) return mem_malloc(n, arg);
    if (!fits(n)) return NULL;
    struct h2_block *old = block_of(p);
    part(arg, old);
    struct h2_block *b = realloc(old, sizeof(struct h2_block) + n);
    if (b != NULL) return join(arg, b);
    (void)join(arg, old);
    return NULL;
}

nghttp2_mem h2_mem_calls(struct h2_mem *m) {
    return (nghttp2_mem){.mem_user_data = m,
                         .malloc = mem_malloc,
                         .free = mem_free,
                         .calloc = mem_calloc,
                         .realloc = mem_realloc};
}

void h2_mem_free(struct h2_mem *m) {
    while (m->first != NULL) {
        struct h2_block *b = m->first;
        m->first = b->next;
        free(b);
    }
}
