/* ep_infer_tensor: the inputs of an inference (kserve-runtimes 8.2 to 8.4, 11): typed or raw in a
 * ModelInferRequest, as JSON or as bytes behind it in a body of REST. First what one is, which
 * costs nothing; then, where its name and its number of elements are fine, the elements: as JSON
 * values, so that what reads parameters knows one form, or as ids. */
#ifndef BATON_ENDPOINT_EP_INFER_TENSOR_H
#define BATON_ENDPOINT_EP_INFER_TENSOR_H

#include "common/text/tokenizer.h"
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
const struct infer_type *infer_type_of(const char *datatype, size_t n); /* NULL: there is none */

enum { INFER_RANK_MAX = 8 };

struct infer_tensor {
    const char *name; /* [n_name], and a zero behind */
    size_t n_name;
    const struct infer_type *type;
    size_t dims[INFER_RANK_MAX]; /* [rank] the shape */
    size_t rank, n;              /* n: elements, the product of the shape, to PROMPT_TOKENS_MAX */
    /* Where the elements are; all are lent, and one of them is there. */
    const struct json_value *raw; /* raw bytes as base64 */
    const char *bytes;            /* raw bytes as they are: [n_bytes] */
    size_t n_bytes;
    bool may_be_bare;        /* bytes: a text, maybe without its length ahead */
    struct json_value *list; /* typed; NULL of a list that is not there: empty */
    bool is_data;            /* list is `data` of REST: texts as they are, arrays in arrays */
};

/* The bytes behind the JSON of a body that no tensor has taken yet. */
struct infer_tail {
    const char *p; /* [n]; never NULL */
    size_t n;
};

/* All return ERR_INVALID, where eb says what is wrong with the tensor, or ERR_NO_MEMORY. */

/* Reads inputs[i] but for its elements; raw: its entry of raw_input_contents, base64, or NULL. t
 * lends what it holds from both. */
enum err infer_tensor_head(struct infer_tensor *t, const char *model,
                           const struct json_value *input, const struct json_value *raw,
                           struct errbuf *eb);
/* The same of a body of REST. Takes its bytes from the tail: as many as binary_data_size says, or,
 * where it is the only input, one text and does not say, all of them. */
enum err infer_tensor_rest(struct infer_tensor *t, const char *model,
                           const struct json_value *input, bool only, struct infer_tail *tail,
                           struct errbuf *eb);
/* Whether there are as many elements as the shape says, by the length alone: of raw texts, whether
 * there can be. */
enum err infer_tensor_fits(const struct infer_tensor *t, struct errbuf *eb);
/* The elements as an array, about 100 bytes for each. *values is the caller's, also on failure;
 * NULL: none. */
enum err infer_tensor_values(const struct infer_tensor *t, struct json_value **values,
                             struct errbuf *eb);
/* Appends the elements of an integer type; what is no int32 from 0 is -1. */
enum err infer_tensor_ids(const struct infer_tensor *t, struct id_list *ids, struct errbuf *eb);

#endif
