/* ep_convert: builds the body of a chat (messages, tools, what the template is told) from that of
 * another family, so that there is one way from messages to ids. What is built is read by ep_chat
 * and its kin like a client's own. Memory that fails shows in json_failures(). A body of small
 * parts that would grow too far fails the read: look at r->status between parts. */
#ifndef BATON_ENDPOINT_EP_CONVERT_H
#define BATON_ENDPOINT_EP_CONVERT_H

#include "common/endpoint/ep.h"

/* Keyed hashes of ids; open addressing, 0: free. */
struct conv_ids {
    uint64_t *at;
    size_t n, mask;
};

struct conv {
    struct ep_read *r;
    struct json_value *body;     /* owned */
    struct json_value *messages; /* lent by body */
    struct json_value *tools;    /* lent by body; NULL: none yet */
    /* the message under way */
    const char *role; /* NULL: there is none */
    struct json_value *calls;
    struct buf text, thinking, call_id;
    bool has_text;
    size_t built_bytes; /* about what has been built takes, texts apart */
    size_t n_messages;
    /* ids of all calls so far, and of those that have a result; lent */
    const char **calls_made;
    size_t n_calls, calls_cap, turn_calls; /* the first of the message under way */
    struct conv_ids called, answered;
    uint8_t key[16];
};

void conv_begin(struct conv *c, struct ep_read *r);
/* The built body takes the place of the client's, and its parameters are read from there; false:
 * the read has failed, everything is freed. */
bool conv_end(struct conv *c, bool good);

/* A message of that role begins; one of the same role goes on where `joined`. */
void conv_message(struct conv *c, const char *role, bool joined);
/* Text of the message under way; between: what stands between it and the text before it. */
void conv_text(struct conv *c, const char *s, size_t n, const char *between);
void conv_thinking(struct conv *c, const char *s, size_t n);
/* A call of the assistant; args: the JSON of its arguments. All is copied. */
void conv_call(struct conv *c, const char *id, const char *name, const char *args, size_t n_args);
/* Whether there is such a call so far, in constant time: a client decides how many there are. */
bool conv_is_called(const struct conv *c, const char *id);
/* A call without a result that is not of the message under way, which may be the assistant's last
 * word; NULL: there is none. */
const char *conv_unanswered(const struct conv *c);
/* The message under way (role tool) is the result of the call of that id. */
void conv_result_of(struct conv *c, const char *id);
/* params: an object, or NULL. */
void conv_tool(struct conv *c, const char *name, const char *description,
               struct json_value *params);
/* {"type":"function","function":{"name":..}}: this tool must be called. */
void conv_force(struct conv *c, const char *name);
/* A member of the body; takes v. */
void conv_set(struct conv *c, const char *key, struct json_value *v);
/* Copies these members of the client's body, as far as they are there; ends with NULL. */
void conv_copy(struct conv *c, struct json_value *from, const char *const *keys);
/* A variable of the template (chat_template_kwargs); takes v. */
void conv_var(struct conv *c, const char *key, struct json_value *v);
/* response_format json_schema. */
void conv_schema(struct conv *c, struct json_value *schema);

/* The model a client names, or an adapter; text: {got}, of a 404. */
bool ep_model_named(struct ep_read *r, const char *s, size_t n, const char *text);

#endif
