/* load_answer: what one event of OpenAI's streams says, or a whole answer. Pure. */
#ifndef BATON_TOOLS_LOAD_ANSWER_H
#define BATON_TOOLS_LOAD_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct load_event {
    bool has_text;   /* of a chat or a completion, thinking and calls too */
    bool is_end;     /* "[DONE]" */
    int64_t in, out; /* usage; -1: not told */
    char error[200]; /* "" or what an error event says */
};

/* false: neither JSON nor an end. */
bool load_event_read(struct load_event *e, const char *data, size_t n);
/* {"error": ..} in any of its shapes, or the beginning of another body, for a message. */
void load_error_text(char *dst, size_t dst_bytes, const char *body, size_t n);

#endif
