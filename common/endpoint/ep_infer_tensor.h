/* ep_infer_tensor: the inputs of a ModelInferRequest (kserve-runtimes 8.2 to 8.4, 11): their
 * elements, typed or raw, as JSON values, so that what reads prompts and parameters knows one form.
 */
#ifndef BATON_ENDPOINT_EP_INFER_TENSOR_H
#define BATON_ENDPOINT_EP_INFER_TENSOR_H

#include "proto/err.h"
#include "proto/json.h"

enum infer_class { INFER_TEXTS, INFER_INTEGERS, INFER_REALS, INFER_BOOLEANS };

struct infer_type {
    const char *name;
    enum infer_class class;
    unsigned bytes; /* of an element, raw; of BYTES: 0 */
    bool is_signed;
    const char *contents; /* the member of contents; NULL: raw only */
};
const struct infer_type *infer_type_of(const char *datatype); /* NULL: there is none */

struct infer_tensor {
    const char *name;
    const struct infer_type *type;
    size_t n;                  /* elements: the product of the shape */
    struct json_value *values; /* array of n; owned */
};

enum { INFER_RANK_MAX = 8 };

/* Reads inputs[i]; raw: its entry of raw_input_contents, base64, or NULL. t->values is the
 * caller's, also on failure. ERR_INVALID: eb says what is wrong with it; ERR_NO_MEMORY. */
enum err infer_tensor_read(struct infer_tensor *t, const char *model,
                           const struct json_value *input, const struct json_value *raw,
                           struct errbuf *eb);

#endif
