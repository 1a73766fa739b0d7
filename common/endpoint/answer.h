/* answer: what the files of the answers share. Not for other folders: they use endpoint.h.
 *
 * An answer has parts (prompts), a part has choices (sequences drawn from its prompt). A choice
 * turns tokens into text: detokeniser, stop strings, what must be held back, records of the tokens
 * (answer_choice.c). The answer decides what goes out when (answer.c). A family is a row of
 * functions that print what a choice has; it keeps no state of its own but the prefixes it
 * prepared. */
#ifndef BATON_ENDPOINT_ANSWER_H
#define BATON_ENDPOINT_ANSWER_H

#include "common/endpoint/answer_stop.h"
#include "common/endpoint/chat_text.h"
#include "common/endpoint/endpoint.h"

/* A generated token. */
struct token_rec {
    int32_t id;
    float logprob; /* NaN: nobody asked for it, or a replay has lost it */
    int32_t rank;  /* 0: the same */
    uint32_t batch_size, queue_us, step_us;
    uint32_t n_top;
    size_t top_at;        /* its alternatives: tops[top_at .. top_at + n_top) */
    size_t chars_at;      /* characters of generated text before it */
    uint32_t block;       /* blocks that there were with it, 1 at least; where logprobs are shown */
    struct detok_cut cut; /* what the decoder cuts of a text that begins here */
};

struct choice {
    struct answer *a;
    const struct answer_part *part;
    const struct infer_req *req; /* of its part */
    size_t index;                /* as the client sees it: over all parts, best first when ranked */

    /* text: all that was generated, cut at the stop, and clean unless controls are kept; [0, sent)
     * went out, [sent, ready) may go out now */
    struct detok *detok;      /* stands behind the prompt, then behind the tokens */
    bool detok_begun;         /* it cuts nothing from a text's start any more */
    struct stop_set *stops;   /* NULL: none */
    struct harmony_look look; /* of answers in channels: where stops count */
    struct chat_text *chat;   /* sorts text [0, ready) of a chat; NULL: all of it is content */
    struct buf text, fresh;   /* fresh: the detokeniser's new text before it is cleaned */
    size_t sent, ready, chars;

    /* tokens: [0, recs_sent) were in earlier events */
    struct token_rec alone; /* with prompt_only: of the token that nobody sees, its times */
    struct token_rec *recs;
    size_t n_recs, recs_cap, recs_sent;
    struct top_logprob *tops;
    size_t n_tops, tops_cap;
    double logprob_sum; /* cumulative log-probability: the rank of the choice */

    enum finish finish;
    int32_t stop_idx;   /* FINISH_STOP_STRING: which */
    size_t n_events;    /* events written */
    bool begun, closed; /* closed: its finishing event is out */

    size_t recs_told; /* tokens [0, recs_told) are no news to answer_sent() */
    bool in_written;  /* it is in answer.written */

    /* of families whose streams are lists of blocks: begun so far, the last one still open; events
     * with a number */
    size_t n_blocks, n_numbered;
    size_t block_at; /* the block that is being told */
    bool block_open;
    enum chat_kind block_kind;
};

/* Log-probabilities of one prompt token. */
struct prompt_rec {
    float logprob; /* NaN: unknown */
    int32_t rank;
    uint32_t n_top;
    struct top_logprob *top; /* owned; NULL: none */
};

struct answer_part {
    const struct infer_req *req; /* NULL: not here yet */
    struct choice *choices;      /* [sampling.n_choices] */
    struct prompt_rec *prompt;   /* [n_prompt]; NULL: no log-probability came */
};

struct answer {
    const struct endpoint *ep;
    const struct infer_req *req; /* of any part: what all parts have in common */
    const struct answer_ops *ops;
    struct answer_part *parts;
    size_t n_parts, n_choices, n_live; /* choices of each part; those that have not ended */
    struct choice **shown;             /* what the client gets, in its order; [n_shown] */
    size_t n_shown;
    struct choice **written; /* those with events since answer_sent(); [n_written] */
    size_t n_written;
    bool ranked;        /* more is drawn than shown: nothing goes out before all have ended */
    bool tells_at_once; /* all goes out at the end, and another attempt may go on before that */
    bool ended;         /* everything is out */
    bool no_memory;
    struct buf head, mid, tail; /* prepared by the family's open() */
    struct buf scratch;
};

struct answer_ops {
    bool tokens_only;       /* the text is never asked for: no detokeniser */
    enum api_frames frames; /* of a stream */
    bool every_token;       /* an event for each token, even without new text (inference-api 5.3) */
    bool best_first;  /* a whole answer shows its choices by rank even where none is left out */
    bool controls;    /* control characters stay in the text in OpenAI's manner */
    bool blocks;      /* a stream is a list of blocks, so that what is said depends on what was
                       * said: each token is an event by itself, and a replay writes them again */
    bool whole_calls; /* a call is said once it is complete, in a stream too */
    bool joint;       /* one event shows all choices: it comes once all of a step are in */
    void (*open)(struct answer *a); /* prepares head, mid, tail; NULL: nothing to prepare */
    void (*begin)(struct choice *c,
                  struct buf *out); /* before a choice's first event; NULL: nothing */
    void (*event)(struct choice *c, struct buf *out); /* one event: text [sent, ready), tokens
                                                         [recs_sent, n_recs), maybe the last */
    void (*end)(struct answer *a, struct buf *out);   /* after the last event; NULL: nothing */
    void (*body)(struct answer *a, struct buf *out);  /* the whole answer */
    void (*error)(struct answer *a, const char *json,
                  struct buf *out); /* an error inside a stream; NULL: as its frames have it */
};
extern const struct answer_ops answer_chat, answer_completions, answer_tgi, answer_vllm,
    answer_native, answer_triton_token, answer_triton_text, answer_anthropic, answer_responses,
    answer_ollama_chat, answer_ollama_generate, answer_llamacpp, answer_tgis, answer_caikit,
    answer_caikit_grpc, answer_infer, answer_infer_rest, answer_infer_text;

/* ---- pieces of JSON (answer_json.c) */
void put_cstr(struct buf *out, const char *s); /* as a JSON string; NULL: null */
void put_i64(struct buf *out, int64_t v);
void put_u64(struct buf *out, uint64_t v);
void put_rfc3339(struct buf *out, int64_t unix_s); /* "2026-01-02T03:04:05Z" */
void put_ms(struct buf *out, uint64_t us);         /* whole milliseconds */
void put_logprob(struct buf *out,
                 float v); /* shortest form that reads back; NaN: null, -inf: -9999.0 */
/* The bytes a token stands for in a text; cut: of its record, where it may be the text's first. */
size_t token_text(const struct answer *a, int32_t id, struct detok_cut cut, const char **p);
void put_token_text(struct buf *out, const struct answer *a, int32_t id, struct detok_cut cut);
void put_new_text(
    struct buf *out,
    struct choice *c); /* text of this event: the delta, or all so far with fullTextEnabled */
void put_all_text(struct buf *out, struct choice *c,
                  const char *between); /* prompt, between, text; between NULL: the text alone */
void put_id_list(struct buf *out, const struct choice *c, size_t from, size_t to);
void put_details_finish(struct buf *out, enum finish f); /* "eos_token" and so on, with quotes */
size_t utf8_chars(const char *s, size_t n);
bool answer_is_special(const struct answer *a, int32_t id);
/* Whether control characters stay in generated text: not in the reference's manner, which removes
 * them (inference-api 2.4). */
bool answer_keeps_controls(const struct answer *a);
const struct endpoint_conf *answer_conf(const struct answer *a);
const struct tokenizer *answer_tokenizer(const struct answer *a);

/* The times and counts of a token (inference-api 4.9); the first token's are P's. */
uint64_t rec_step_us(const struct choice *c, size_t i);
uint64_t rec_queue_us(const struct choice *c, size_t i);
uint32_t rec_batch(const struct choice *c, size_t i);

/* Whether the choices of req are ordered by cumulative log-probability. */
bool answer_ranked(const struct answer_ops *ops, const struct infer_req *req);

/* ---- what is out (answer_replay.c) */
/* Something of c was written: its role chunk or an event. */
void choice_written(struct choice *c);

/* ---- what goes out (answer.c) */
/* All that c has to say now is said: nothing of it goes out again. */
void choice_mark_sent(struct choice *c);
/* The stream of c goes on with what it has to say now; more: as in struct token_event. */
void answer_emit(struct choice *c, bool more, struct buf *out);

/* ---- one choice (answer_choice.c) */
enum err choice_open(struct choice *c);
void choice_close(struct choice *c);
/* Takes the token; c->finish and c->ready say where the choice stands then. */
void choice_token(struct choice *c, const struct token_event *ev);
/* Ends a choice that has not ended: what is held back becomes ready. */
void choice_end(struct choice *c, enum finish f);

/* ---- the blocks of a choice (answer_blocks.c): those of its chat_text, or all its text as one */
size_t choice_n_blocks(const struct choice *c);
struct chat_block choice_block(const struct choice *c, size_t i);
/* What the stream has to send next, as chat_text_take() has it. */
bool choice_take(struct choice *c, size_t *i, struct chat_block *b);
/* Tokens before the end tag of the thinking; *closed: there is one. */
uint64_t choice_thinking_tokens(const struct choice *c, bool *closed);
/* The text of a block as a JSON string. */
void put_block_text(struct buf *out, const struct chat_block *b);
/* An id of prefix and n letters and digits: a function of the id of the call. */
void put_call_id(struct buf *out, const char *prefix, size_t n, const struct tool_call *call);

/* ---- of TGIS and Caikit (answer_tgis.c) */
/* {"text": the token as the vocabulary has it; the object is still open. */
void put_raw_piece(struct buf *out, const struct answer *a, int32_t id);
/* Why the choice ended, or "NOT_FINISHED". */
const char *tgis_reason(const struct choice *c);

/* ---- of both OpenAI forms (answer_openai.c, answer_logprobs.c) */
/* An object a token, in an array. */
void put_logprob_items(struct buf *out, const struct choice *c, size_t from, size_t to);
void put_chat_logprobs(struct buf *out, const struct choice *c, size_t from, size_t to);
void put_chat_token_logprob(struct buf *out, const struct choice *c, size_t i); /* one entry */
void put_completion_logprobs(struct buf *out, struct choice *c, size_t from, size_t to,
                             bool with_prompt);
void put_prompt_logprobs(struct buf *out, const struct choice *c); /* with the comma before it */
/* Likewise, where return_token_ids asks for them: `prompt_token_ids`, and `token_ids` of
 * [from, to). */
void put_prompt_ids(struct buf *out, const struct choice *c);
void put_choice_ids(struct buf *out, const struct choice *c, size_t from, size_t to);

#endif
