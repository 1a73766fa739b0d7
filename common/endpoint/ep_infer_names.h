/* ep_infer_names: what the names mean that clients of Triton and KServe give to tensors and
 * parameters (kserve-runtimes 8.5, 8.7, 10.1). One table, whatever a name comes in: a tensor of a
 * message or of REST, `parameters`, the text of sampling_parameters, a member of generate. */
#ifndef BATON_ENDPOINT_EP_INFER_NAMES_H
#define BATON_ENDPOINT_EP_INFER_NAMES_H

#include "common/endpoint/ep.h"

/* What has been said so far. The parameters go to r->params, the flags of outputs to
 * r->req->answer.tensors. */
struct infer_asked {
    struct ep_read *r;
    const char *model;
    uint64_t given; /* options: a bit for the first of the names of each */
    bool stream_given, stream;
    bool exclude_given, exclude; /* exclude_input_in_output */
};

/* ROLE_LIST takes any number of elements, ROLE_NOTHING is not read, all others take one. */
enum infer_role { ROLE_PARAM, ROLE_LIST, ROLE_FLAG, ROLE_NOTHING, ROLE_OWN };
struct infer_name {
    const char *name;
    enum infer_role role;
    const char *as; /* the parameter */
    uint32_t what;  /* of a flag the output; of ROLE_OWN which */
};
const struct infer_name *infer_name_of(const char *s, size_t n); /* NULL: nobody knows it */
/* Whether all of s[0..n) is the name, also where it holds a zero. */
bool infer_is(const char *name, const char *s, size_t n);
/* Whether it, or another name of the same, has been taken. */
bool infer_is_given(const struct infer_asked *t, const struct infer_name *row);
/* Whether Triton's backends know the name, and what it asks for is not here. */
bool infer_is_refused(const char *name);

/* All return false after ep_fail(). v is neither absent nor null. */
/* One that is known, under the name that the client wrote. */
bool infer_take(struct infer_asked *t, const struct infer_name *row, const char *name,
                struct json_value *v);
/* Of a name that is refused: fine where v asks for nothing. */
bool infer_check_refused(struct infer_asked *t, const char *name, const struct json_value *v);
bool infer_take_flag(struct infer_asked *t, const char *name, const struct json_value *v, bool *on);
/* text may hold {name} and {model}, and {got}: the value. */
bool infer_fail(struct infer_asked *t, const char *text, const char *name);
bool infer_fail_value(struct infer_asked *t, const char *text, const char *name,
                      const struct json_value *v);

#endif
