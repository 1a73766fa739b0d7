/* ep_responses: what the two files that read a body of OpenAI's Responses share. Not for others. */
#ifndef BATON_ENDPOINT_EP_RESPONSES_H
#define BATON_ENDPOINT_EP_RESPONSES_H

#include "common/endpoint/ep_convert.h"

struct resp_read {
    struct conv c;
    struct json_value *context; /* of endpoint_in: owned; NULL: none */
    const char *list;           /* where the items lie: "input", "previous_response_id" */
    size_t item;                /* the one under way */
    struct json_value *echoed;  /* owned */
};

/* Why a value cannot be, beside those of ep.h. */
#define EP_UNSUPPORTED_VALUE "unsupported_value"
#define EP_TOOL_NAME                                                                               \
    "must be 1 to 64 letters, digits, underscores, dashes or common Chinese characters"

/* Fails at that member ("tools[2].type") with a code. */
bool resp_wrong(struct ep_read *r, const char *member, const char *code, const char *text);
/* The items behind which the model goes on: those of the context, then `input`. */
bool resp_take_input(struct resp_read *p);
/* Function tools of a list; also of items that bring some. at: "tools". */
bool resp_take_tools(struct resp_read *p, const struct json_value *tools, const char *at,
                     struct json_value *kept);

#endif
