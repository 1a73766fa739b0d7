/* json_skim_ops: the sets of walks of json_skim.h; json_skim.c picks one. */
#ifndef BATON_PROTO_JSON_SKIM_OPS_H
#define BATON_PROTO_JSON_SKIM_OPS_H

#include "proto/json_skim.h"

extern const struct json_skim json_skim_plain; /* SSE2, or bytes one by one */
/* AVX2 and BMI; NULL when the compiler or this processor has none. Any thread. */
const struct json_skim *json_skim_avx2(void);

/* The bytes of a block. */
enum { BLOCK = 64 };
#define INLINE static inline __attribute__((always_inline))
#define JSON_SKIM_OPS                                                                              \
    {                                                                                              \
        .space = space_at, .string = string_at, .container = container_at,                         \
        .arrays_end = arrays_end_from, .members = members_at, .items = items_from                  \
    }

#endif
