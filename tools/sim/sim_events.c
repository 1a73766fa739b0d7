/* sim_events: a binary heap. */
#include "tools/sim/sim_events.h"

#include <stdlib.h>

static bool before(const struct sim_event *a, const struct sim_event *b) {
    return a->at_s != b->at_s ? a->at_s < b->at_s : a->number < b->number;
}

bool sim_events_add(struct sim_events *h, double at_s, int what, uint32_t of) {
    if (h->n == h->cap) {
        const size_t cap = h->cap > 0 ? 2 * h->cap : 1024;
        struct sim_event *more = realloc(h->heap, cap * sizeof(*more));
        if (more == NULL) return false;
        h->heap = more;
        h->cap = cap;
    }
    const struct sim_event e = {at_s, h->n_added++, what, of};
    size_t i = h->n++;
    for (; i > 0 && before(&e, &h->heap[(i - 1) / 2]); i = (i - 1) / 2)
        h->heap[i] = h->heap[(i - 1) / 2];
    h->heap[i] = e;
    return true;
}

struct sim_event sim_events_take(struct sim_events *h) {
    const struct sim_event first = h->heap[0], e = h->heap[--h->n];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < h->n; i = k) {
        if (k + 1 < h->n && before(&h->heap[k + 1], &h->heap[k])) k++;
        if (!before(&h->heap[k], &e)) break;
        h->heap[i] = h->heap[k];
    }
    h->heap[i] = e;
    return first;
}

void sim_events_free(struct sim_events *h) {
    free(h->heap);
    *h = (struct sim_events){0};
}
