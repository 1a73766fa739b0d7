/* json_skim_ops: the walks of json_skim.h for one instruction set; json_skim.c picks the set. */
#ifndef BATON_PROTO_JSON_SKIM_OPS_H
#define BATON_PROTO_JSON_SKIM_OPS_H

#include "proto/json_skim.h"

struct json_skim_ops {
    size_t (*space)(const char *p, size_t n, size_t at);
    size_t (*string)(const char *p, size_t n, size_t at, size_t *n_bytes);
    size_t (*container)(const char *p, size_t n, size_t at);
    size_t (*members)(const char *p, size_t n, size_t at, json_skim_name_fn *which, size_t *found,
                      size_t n_found);
    enum json_skim_item (*items)(const char *p, size_t n, size_t *at, size_t *depth,
                                 struct json_skim_sum *s);
};
extern const struct json_skim_ops json_skim_plain; /* SSE2, or bytes one by one */
/* AVX2 and BMI; NULL when the compiler or this processor has none. Any thread. */
const struct json_skim_ops *json_skim_avx2(void);

/* The bytes of a block. */
enum { BLOCK = 64 };
#define INLINE static inline __attribute__((always_inline))
#define JSON_SKIM_OPS                                                                              \
    {                                                                                              \
        .space = space_at, .string = string_at, .container = container_at, .members = members_at,  \
        .items = items_from                                                                        \
    }

#endif
