/* kv_fit: do two instances fit together? What each says of itself in its hello is compared fact by
 * fact; some facts may differ where both sides allow it. Pure. */
#ifndef BATON_PROTO_KV_FIT_H
#define BATON_PROTO_KV_FIT_H

#include "proto/kv_frame.h"

/* Bits of kv_hello.may_differ, each set by a key of the configuration. KV and ids of such a pair
 * still mean the same; what a request gets is no longer what one instance alone would give it. */
enum kv_may_differ {
    KV_MAY_WEIGHTS = 1,    /* allowMixedWeightDtype: type and values of the weights */
    KV_MAY_ARITHMETIC = 2, /* allowMixedIsa: the bits of the kernels */
};

/* KV_LINK_OK: they fit, and text has what differs with leave of both ("": nothing). Otherwise the
 * code of the first thing that differs without, and text names it with both values and, where a key
 * would allow it, who lacks that. Both sides log the text of the one that found out, so it names
 * instances. */
enum kv_link_code kv_fit(const struct kv_hello *mine, const struct kv_hello *theirs,
                         char text[KV_TEXT_BYTES_MAX + 1]);

#endif
