/* infer_msg: one inference request, neutral of client family, as the endpoint makes it, the engine
 * obeys it, and a prefill instance hands it to a decode instance (cluster-api 5.3), plus what goes
 * with it on the wire.
 *
 * Ownership: strings and arrays inside are malloc'd and belong to the request; infer_req_destroy()
 * frees all. Thread:    one owner at a time. */
#ifndef BATON_PROTO_INFER_MSG_H
#define BATON_PROTO_INFER_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/api_error.h"
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/tenant.h"
#include "proto/wire.h"

/* How a generation ended. */
enum finish {
    FINISH_NONE,        /* still running */
    FINISH_EOS,         /* an end-of-sequence token */
    FINISH_STOP_TOKEN,  /* one of stop_token_ids */
    FINISH_STOP_STRING, /* found by the endpoint in the text */
    FINISH_LENGTH,      /* max new tokens, maxIterTimes or maxSeqLen */
    FINISH_ABORT,       /* stopInfer, client gone, engine abort */
    FINISH_ERROR,
};

struct logit_bias {
    int32_t id;
    float bias;
};

/* What the engine needs to choose tokens. Neutral values switch a step off; the endpoint has filled
 * in the model's defaults, so nothing here is "absent". Order of operations: inference-api 4.5. */
struct sampling {
    bool do_sample;           /* false: greedy, after penalties and bias */
    float temperature;        /* > 0 when do_sample */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float typical_p;          /* 1: off */
    float repetition_penalty; /* 1: off */
    float frequency_penalty;  /* 0: off; counts generated tokens */
    float presence_penalty;   /* 0: off */
    int32_t penalty_window;   /* the penalties look at so many tokens at the end; 0: at all */
    uint64_t seed;
    bool ignore_eos;
    int32_t new_tokens_max; /* over the whole request, tokens generated before a replay included */
    int32_t new_tokens_min; /* no EOS, stop token or stop string before so many */
    bool logprobs;          /* log-probability of the chosen token */
    int32_t top_logprobs;   /* alternatives, 0..TOP_LOGPROBS_MAX */
    bool prompt_logprobs;   /* log-probabilities of the prompt's tokens too (P only) */
    int32_t prompt_top_logprobs; /* alternatives to each of them, 0..TOP_LOGPROBS_MAX */
    bool ranks;                  /* the rank of each token whose log-probability is asked for */
    int32_t decay_start;         /* behind so many tokens what ends a sequence becomes likelier, */
    float decay_factor;          /* by this factor more with each, up to 10; 1 and below: off */
    int32_t n_choices; /* sequences drawn from the one prompt (best_of), 1..CHOICES_MAX; choice i
                        * draws from its own stream of random numbers, choice 0 from the one a
                        * request with a single choice has */
    bool beam;         /* beam search, n_choices beams (engine.h); do_sample is false */
    int32_t lookup_tokens; /* guesses a step by prompt lookup, 0: off; never changes a token */
    int32_t *stop_token_ids;
    size_t n_stop_token_ids;
    struct logit_bias *logit_bias;
    size_t n_logit_bias;
    int32_t *allowed_ids; /* NULL: every id; else only these, and the ends that a guide allows */
    size_t n_allowed_ids;
    int32_t *bad_words; /* forbidden id sequences one after another, each preceded by its length */
    size_t n_bad_words; /* of all of it */
};

/* Copies src into *dst, arrays too; what *dst held before is overwritten, not freed. On
 * ERR_NO_MEMORY *dst owns nothing. */
enum err sampling_copy(struct sampling *dst, const struct sampling *src);
void sampling_free(struct sampling *s); /* the arrays; safe to call twice */

/* Which door the request came through: decides the shape of every answer. */
enum api {
    API_NONE,
    API_OPENAI_CHAT,
    API_OPENAI_COMPLETIONS,
    API_TGI,          /* /, /generate, /generate_stream with `inputs` */
    API_VLLM,         /* /generate with `prompt` */
    API_TRITON_TOKEN, /* .../infer */
    API_TRITON_TEXT,  /* .../generate, .../generate_stream */
    API_NATIVE,       /* /infer, /infer_token */
    API_ANTHROPIC,    /* /v1/messages */
    API_RESPONSES,    /* /v1/responses */
    API_OLLAMA_CHAT,
    API_OLLAMA_GENERATE,
    API_TGIS,     /* fmaas.GenerationService */
    API_LLAMACPP, /* /completion */
    API_CAIKIT,   /* /api/v1/task/text-generation */
    API_CAIKIT_GRPC,
    API_INFER,      /* inference.GRPCInferenceService */
    API_INFER_REST, /* .../infer with tensors by their names */
    API_INFER_TEXT, /* .../generate, .../generate_stream with inputs by their names */
    API_COUNT,
};

/* How a model writes a tool call into its text (inference-api 8.4). */
enum tool_format {
    TOOLS_NONE, /* calls are not looked for */
    TOOLS_HERMES,
    TOOLS_LLAMA3,
    TOOLS_MISTRAL,
    TOOLS_DEEPSEEK_V3,
    TOOLS_DEEPSEEK_V31,
    TOOLS_CHATGLM,
    TOOLS_HARMONY,
    TOOLS_LLAMA4,
    TOOLS_COUNT
};

struct transcript;

/* What a request asks an instance to do. */
enum infer_work { WORK_GENERATE, WORK_EMBED, WORK_SCORE, WORK_COUNT };

/* Whose request it is, and which. */
struct infer_head {
    char *req_id;        /* cluster-wide or instance-wide id */
    char *client_id;     /* Triton id or request_id, or NULL */
    bool client_id_soft; /* one that is in use already is dropped, no error; not on the wire */
    char *trace;         /* the client's tracing headers as log fields, "request_id=a b3=.." (see
                          * common/instance/req_trace.h), or NULL */
    char *tenant;        /* whose it is (proto/tenant.h); NULL: nobody said */
    char *model;         /* as the client wrote it (path or body), echoed; NULL when it gave none */
    uint32_t epoch;      /* attempt number, from 0 */
    uint32_t part, n_parts; /* one prompt of several in one client request (inference-api 9.4):
                             * the parts share req_id and every option; 0 of 1 otherwise */
    bool is_recompute;
    int64_t created_unix_s;
    uint64_t arrival_us; /* clock_us() of this process; not on the wire */
    char *cache_salt;    /* requests with another salt share no prompt blocks with it; NULL: none */
    char *adapter;       /* LoRA name; NULL: the base model */
    uint8_t adapter_hash[32]; /* of the adapter's files; meaningful with adapter */
    int32_t priority;         /* 1 (first) .. 5 */
    int32_t timeout_s;        /* 0: the server's */
    uint32_t time_limit_ms;   /* the answer ends with what it has then; 0: never */
};

/* Outputs of an inference beside the text or the ids, and how it is answered. */
enum {
    TENSOR_FINISH_REASON = 1,
    TENSOR_CUMULATIVE_LOGPROB = 2,
    TENSOR_LOGPROBS = 4,
    TENSOR_N_INPUT = 8,
    TENSOR_N_OUTPUT = 16,
    TENSOR_IDS = 32,         /* ids in place of the text; their type: two bits */
    TENSOR_TYPE_SHIFT = 6,   /* INT64, INT32, UINT64, UINT32 */
    TENSOR_IN_STREAM = 256,  /* messages of a stream of answers */
    TENSOR_EMPTY_LAST = 512, /* and the last has no outputs */
    /* of REST: outputs that are answered as bytes behind the JSON; tensor_binary_of() */
    TENSOR_BINARY_SHIFT = 10,
    TENSOR_BINARY_ALL = 63 << TENSOR_BINARY_SHIFT,
    TENSOR_NO_MAIN = 1 << 16, /* the text or the ids are not answered */
    TENSOR_AT_END = 1 << 17,  /* a stream has one event, when the answer is complete */
    TENSOR_MAX = (1 << 18) - 1,
};

/* The bit of TENSOR_BINARY_ALL that belongs to an output: one of the first five, or 0, the text or
 * the ids. */
static inline uint32_t tensor_binary_of(uint32_t what) {
    return what == 0 ? 1u << TENSOR_BINARY_SHIFT : what << (TENSOR_BINARY_SHIFT + 1);
}

/* What the answer shows, and how: the family and its options. */
struct infer_answer {
    enum api api;
    enum api_errors errors; /* of the path it came by */
    bool stream;
    int32_t n;  /* choices that are returned, 1..sampling.n_choices */
    char *text; /* the prompt as text after the chat template, for answers that repeat it; NULL:
                 * token input, or not repeated */
    size_t text_len;
    bool include_stop; /* include_stop_str_in_output */
    bool skip_special; /* skip_special_tokens */
    bool details, decoder_input_details, return_full_text, perf_stat, echo;
    bool prompt_only; /* completions: echo with max_tokens 0, the one token is not shown */
    bool root_array;  /* TGI on POST /: the object inside an array */
    bool include_usage, include_usage_set, continuous_usage; /* stream_options */
    bool seed_given;
    bool token_ids, tokens_as_ids; /* chat, completions: ids of prompt and choices are in the
                                    * answer; log-probabilities name tokens by their ids */
    bool show_prompt_logprobs;     /* chat, completions: prompt_logprobs are in the answer */
    bool show_logprobs; /* chat, completions: log-probabilities are in the answer, not only known */
    bool top_tokens;    /* TGI: alternatives are shown as top_tokens */
    bool token_logprobs, token_ranks; /* TGIS: of each token that is listed */
    enum tool_format tools;           /* calls are looked for in the text */
    bool parallel_tools;              /* false: at most one call is returned */
    bool tools_forced;   /* `required` or a named function: the guide enforces a call */
    bool reasoning;      /* text up to the end-of-thinking tag is reasoning_content */
    bool channels;       /* the model writes messages in channels (harmony.h) */
    bool thinking_open;  /* the prompt itself has opened the thinking part; with channels a message,
                            of content unless: */
    bool analysis_open;  /* it is one of thinking */
    bool drop_reasoning; /* include_reasoning false */
    bool hide_context;   /* Ollama: the answer does not list its tokens */
    char *output_name;   /* Triton token */
    uint32_t tensors;    /* API_INFER, API_INFER_REST, API_INFER_TEXT: TENSOR_.. */
    /* Responses */
    char *echoed;   /* JSON object of the request's members that the answer repeats */
    bool summary;   /* reasoning is also shown as its summary */
    bool sealed;    /* and as encrypted_content, for clients that keep it */
    bool event_ids; /* events have `id:` lines, by which a stream that was stored goes on */
};

/* What P measured, for an answer that D writes. */
struct infer_measured {
    uint64_t prefill_us; /* arrival to first token */
    uint64_t queue_wait_us;
    uint32_t prefill_batch; /* sequences in the step that made the first token */
    uint32_t cached_tokens; /* prompt tokens found in the prefix cache */
};

struct infer_req {
    struct infer_head head;
    struct infer_answer answer;

    enum infer_work work;
    int32_t *ids;    /* prompt ids, then ids already produced: of a recompute, or of its one choice
                      * in `replay` (infer_req_is_resumed()) */
    size_t n_ids;    /* all of ids */
    size_t n_prompt; /* the first so many are the client's prompt */
    /* of WORK_GENERATE */
    struct sampling sampling;
    char **stop; /* stop strings */
    size_t n_stop;
    char *guide;                        /* what guided decoding allows, common/guide/guide.h;
                                         * NULL: all */
    void *guide_compiled;               /* made ready by the endpoint; not on the wire */
    void (*guide_drop)(void *compiled); /* lets it go; NULL: there is none */
    struct transcript *replay; /* what earlier attempts sent of this prompt's choices (n_parts 1);
                                  owned; NULL: the first attempt, or nothing was sent */
    struct infer_measured measured;

    struct infer_req *next_part; /* the prompt after this one; owned, not on the wire */
};

struct infer_req *infer_req_create(
    void); /* neutral sampling, skip_special true, priority 5; NULL: no memory */
void infer_req_destroy(struct infer_req **req); /* and the parts after it */
/* A copy of all that goes on the wire, and of arrival_us; next_part is NULL. NULL: no memory, or a
 * request that no peer would take. */
struct infer_req *infer_req_clone(const struct infer_req *req);
/* What earlier attempts sent of the only choice of its prompt, and goes on: its ids become part of
 * `ids`, so that whoever prefills computes their KV too and draws the token behind them. Nothing
 * where there is no such choice, where an offer would be too large with them, or where they would
 * be more than n_ids_max ids: as many as the instance has room for. */
enum err infer_req_resume(struct infer_req *req, uint32_t n_ids_max);
bool infer_req_is_resumed(const struct infer_req *req);
/* Appends the request: u16 version, then the members in the order of infer_msg.c. arrival_us stays
 * here. */
void infer_req_pack(struct wr *w, const struct infer_req *req);
/* Reads what infer_req_pack wrote: every count and length is checked against proto/limits.h, every
 * number against the range it has after the endpoint's checks, because the peer may be hostile. Ids
 * are only known to be >= 0: whether the model has them is the engine's question. Bytes after the
 * request are left to the caller, who looks at rd_left(). ERR_BAD_FRAME, ERR_NO_MEMORY: *out is
 * NULL. */
enum err infer_req_unpack(struct rd *r, struct infer_req **out);

/* A token as the engine made it. */
struct top_logprob {
    int32_t id;
    float logprob;
};
struct token_event {
    int32_t id;
    int32_t choice;     /* which of sampling.n_choices */
    int32_t index;      /* 0 for the first generated token of the request */
    enum finish finish; /* FINISH_NONE, or this is the last token */
    bool more;     /* the same step has made the next one of this choice too; not on the wire */
    float logprob; /* meaningful when sampling.logprobs */
    int32_t rank;  /* 1: no token was likelier; 0: not asked for (sampling.ranks) */
    int32_t n_top;
    struct top_logprob top[TOP_LOGPROBS_MAX];
    uint32_t batch_size;    /* sequences in the step that made it */
    uint32_t queue_wait_us; /* inference-api 4.9 */
    uint32_t step_us;       /* time since the previous token (or since arrival, for the first) */
};
void token_event_pack(struct wr *w, const struct token_event *ev);
/* ERR_BAD_FRAME: *ev is undefined. Bytes after the event are left to the caller. */
enum err token_event_unpack(struct rd *r, struct token_event *ev);

#endif
