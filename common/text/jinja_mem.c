/* jinja_mem: chunks that double in size, cut from the front. */
#include "common/text/jinja_mem.h"

#include <stdint.h>
#include <stdlib.h>

enum { CHUNK_BYTES_MIN = 16 * 1024, CHUNK_BYTES_MAX = 1024 * 1024, ALIGN = 16 };

struct jinja_chunk {
    struct jinja_chunk *next;
    size_t n, cap; /* used, of data */
    _Alignas(16) char data[];
};

void jinja_mem_init(struct jinja_mem *m, size_t bytes_max) {
    *m = (struct jinja_mem){.chunk_bytes = CHUNK_BYTES_MIN, .bytes_max = bytes_max};
}

void jinja_mem_fini(struct jinja_mem *m) {
    while (m->head != NULL) {
        struct jinja_chunk *c = m->head;
        m->head = c->next;
        free(c);
    }
    m->last_end = NULL;
    m->used_bytes = 0;
}

void *jinja_mem_alloc(struct jinja_mem *m, size_t n) {
    struct jinja_chunk *c = m->head;
    if (n > m->bytes_max) return NULL;
    size_t at = c == NULL ? 0 : (c->n + ALIGN - 1) / ALIGN * ALIGN;
    if (c == NULL || at > c->cap || n > c->cap - at) {
        /* A big piece gets some room behind it, so that text that grows at its end need not move.
         */
        size_t cap = m->chunk_bytes > n + n / 2 ? m->chunk_bytes : n + n / 2;
        if (cap > m->bytes_max - m->used_bytes) cap = n;
        if (cap > m->bytes_max - m->used_bytes) return NULL;
        c = malloc(sizeof(*c) + cap);
        m->exhausted = c == NULL;
        if (c == NULL) return NULL;
        *c = (struct jinja_chunk){.next = m->head, .cap = cap};
        m->head = c;
        m->used_bytes += cap;
        if (m->chunk_bytes < CHUNK_BYTES_MAX) m->chunk_bytes *= 2;
        at = 0;
    }
    c->n = at + n;
    m->last_end = c->data + c->n;
    return c->data + at;
}

bool jinja_mem_extend(struct jinja_mem *m, const char *end, size_t n) {
    struct jinja_chunk *c = m->head;
    if (c == NULL || end != m->last_end || n > c->cap - c->n) return false;
    c->n += n;
    m->last_end += n;
    return true;
}

void jinja_mem_shrink(struct jinja_mem *m, const char *end, size_t n) {
    if (m->head == NULL || end != m->last_end) return;
    m->head->n -= n;
    m->last_end -= n;
}
