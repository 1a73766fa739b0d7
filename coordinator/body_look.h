/* body_look: what the coordinator wants to know of a client's body before it goes to P unchanged:
 * whether the client wants a stream, the id it gave, and a length for scheduling
 * (inference-api 2.6). P checks the body; here nothing is refused, and of what is no JSON only that
 * is noticed which has no end. The loop thread does this, so nothing is built and most bytes are
 * not looked at one by one (proto/json_skim.h): constant memory, and about a nanosecond a byte
 * whatever the body (docs/performance.md), beside a millisecond for the objects of a list that are
 * looked at one by one. Pure. */
#ifndef BATON_COORDINATOR_BODY_LOOK_H
#define BATON_COORDINATOR_BODY_LOOK_H

#include "proto/api.h"
#include "proto/limits.h"

enum { PRIORITY_FIRST = 1, PRIORITY_LAST = 5 }; /* who does not say is among the last */

struct body_look {
    bool is_object; /* an object is the top of the body, and ends with it */
    bool has_input; /* it has the member the path's family puts the input in */
    bool stream;
    unsigned n_prompts;      /* a list of texts or of token lists: its items; else 1 */
    unsigned n_sequences;    /* drawn from all prompts: by n or best_of; at most SEQUENCES_MAX */
    uint64_t new_tokens_max; /* of a sequence; 0: it does not say */
    /* Of the input; a token id, or any other number or word, counts for four. An unreadable body
     * counts by its bytes, and so does what is left of a list behind 8,192 objects. */
    size_t n_chars;
    /* Triton's id, or request_id of the OpenAI paths; "" when there is none, or one that no
     * instance would take. */
    char client_id[CLIENT_ID_BYTES_MAX + 1];
    bool client_id_soft; /* in use already: no error, it is left out */
    /* The input's bytes as the client wrote them, lent; 0: unknown, or none to compare with others.
     * Of a long body some of what follows the input may be counted to it. */
    const char *input;
    size_t input_bytes;
    uint64_t before_input; /* of what stands before it in a prompt: model, system text, tools */
    unsigned priority;     /* 1 first to 5 last, as instances take it; 0: it does not say */
};

void body_look(struct body_look *out, const struct api_path *path, const char *body, size_t n);

/* [A-Za-z0-9_-]{1,256}: what may be the id of a request. id[n] is a zero. */
bool body_id_ok(const char *id, size_t n);

#endif
