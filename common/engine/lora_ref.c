/* lora_ref: references to an adapter. Apart from lora.c because whoever holds one needs no reader
 * of files. */
#include <stdlib.h>
#include "common/engine/lora.h"

struct lora *lora_ref(struct lora *l) {
    if (l != NULL) atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

unsigned lora_refs(const struct lora *l) {
    return atomic_load_explicit(&l->refs, memory_order_acquire);
}

void lora_unref(struct lora **l_ptr) {
    struct lora *l = *l_ptr;
    *l_ptr = NULL;
    if (l == NULL || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1) return;
    free(l->pairs);
    free(l->memory);
    free(l);
}
