/* jinja_seq: what has a length, can be walked, cut and searched. */
#ifndef BATON_TEXT_JINJA_SEQ_H
#define BATON_TEXT_JINJA_SEQ_H

#include "common/text/jinja_run.h"

bool jinja_seq_len(struct jinja_run *r, const struct jv *v,
                   size_t *out); /* len(v); fails where Python does */
/* Item i of a list, tuple, range or view; i is in range. */
bool jinja_seq_at(struct jinja_run *r, const struct jv *v, size_t i, struct jv *out);

bool jinja_is_iterable(const struct jv *v);
/* All items. An iterator is used up by it. The list may be the value's own: not to be changed. */
bool jinja_iterate(struct jinja_run *r, const struct jv *v, struct jv_list **out);

/* v[start:stop:step]; JV_NONE and JV_ABSENT are left-out bounds. */
bool jinja_slice(struct jinja_run *r, const struct jv *v, const struct jv *start,
                 const struct jv *stop, const struct jv *step, struct jv *out);
bool jinja_contains(struct jinja_run *r, const struct jv *item, const struct jv *in, bool *out);

/* Stable sort of idx-less items: keys[i] belongs to items[i], both are moved. */
bool jinja_sort(struct jinja_run *r, struct jv *keys, struct jv *items, size_t n, bool reverse);

#endif
