/* ep: what the files of the endpoint share about reading a body. Not for other folders: they use
 * endpoint.h.
 *
 * A family is a row of ep_families: where its input and parameters lie, the order of its checks,
 * its texts, its answers. Nothing outside the rows asks which family is at work. */
#ifndef BATON_ENDPOINT_EP_H
#define BATON_ENDPOINT_EP_H

#include "common/endpoint/endpoint.h"
#include "common/endpoint/ep_fields.h"
#include "common/text/chat_template.h"
#include "proto/tensors.h"
#include "proto/json.h"

struct answer_ops;
struct guide_cache;
struct guide_vocab;

/* What a server knows of its model's thinking (reasoningParser). */
enum ep_thinking {
    EP_THINKING_NONE,
    EP_THINKING_TAGGED,  /* qwen3: the model or the template opens it with a tag */
    EP_THINKING_ALWAYS,  /* deepseek_r1: an answer begins with it */
    EP_THINKING_CHANNEL, /* harmony: it has a channel; with any parser, as its template says */
};

/* A call that must be made. */
enum ep_forced { EP_FORCED_NO, EP_FORCED_ANY, EP_FORCED_NAMED };

struct endpoint {
    struct endpoint_conf conf; /* its strings are owned */
    const struct tokenizer *tok;
    const struct model_info *model;
    struct chat_template
        *chat[2];    /* [1]: the one for requests with tools; NULL: the model has none */
    char *bos, *eos; /* texts of bos_token and eos_token */
    enum tool_format tool_format; /* how the model writes calls; TOOLS_NONE: not known */
    enum ep_thinking thinking;
    const char *root;           /* last part of conf.model_dir */
    struct guide_vocab *vocab;  /* of tok; NULL without one */
    struct guide_cache *guides; /* locks itself */
};

/* One body on its way to an infer_req. Functions that check return false after ep_fail(). */
struct ep_read {
    const struct endpoint *ep;
    const struct endpoint_in *in;
    const struct family *fam;
    struct buf wire;  /* backs the tree of a body that is no JSON */
    const char *tail; /* the bytes behind the JSON of a body of tensors: [tail_len] */
    size_t tail_len;
    struct json_value *body; /* owned */
    bool no_json;            /* there is none */
    struct json_value
        *params; /* object the parameters are read from; owned reference, may be NULL */
    struct infer_req *req;
    struct ep_params p;
    bool stream;
    const char *prompt; /* the input as text, into body or text; NULL for token input */
    size_t prompt_len;
    bool marked;               /* prompt holds marks of tokenizer_mark() */
    struct buf text;           /* backs prompt where it is not the client's own string */
    struct id_list ids;        /* the prompt's ids; of a recompute also those generated */
    size_t n_generated;        /* of a recompute: so many at the end of ids */
    struct ep_prompt *prompts; /* a list of prompts: each waits here for its turn in prompt and
                                * ids; NULL: there is one, which stands there already */
    size_t n_prompts;
    struct json_value *held;     /* values that prompt and prompts lie in; owned, may be NULL */
    bool with_tools;             /* chat: the request has tools */
    bool drop_oldest;            /* chat: its oldest turns go until it fits */
    int32_t answer_room;         /* tokens that cutting a prompt leaves for the answer; 0: one */
    struct json_value *callable; /* chat: the tools that may be called; owned, NULL: none */
    size_t args_bytes;           /* of the trees of tool calls' arguments */
    enum ep_forced forced;
    const char *guide_member;     /* what asked for the guide; NULL: the tools */
    enum tool_format tool_format; /* of the template that renders the chat */
    /* The member that is being checked, "messages[1].content"; "": none in particular. A failure
     * keeps it: OpenAI's shape of an error shows it as `param`, and `code` beside it. */
    char at[64];
    int status; /* of the failure */
    char error[1024];
    const char *code; /* EP_..; NULL: the one that goes with the status */
};

/* How a member is wrong, in the words of OpenAI's errors. One that is just not allowed has the code
 * of its status. */
#define EP_MISSING        "missing_required_parameter"
#define EP_INVALID_TYPE   "invalid_type"
#define EP_INVALID_VALUE  "invalid_value"
#define EP_EMPTY_ARRAY    "empty_array"
#define EP_EMPTY_STRING   "empty_string"
#define EP_INVALID_JSON   "invalid_json"
#define EP_UNSUPPORTED    "unsupported_parameter"
#define EP_NO_MODEL       "model_not_found"
#define EP_CONTEXT_LENGTH "context_length_exceeded"

/* Texts of n and best_of (inference-api 4.4, 7.1, 8.2, 9.1); {b} and {n} stand for the values.
 * NULL: no such check. */
struct nbest_texts {
    const char *in_stream, *stream_without_n, *stream_unequal, *below_n, *no_sampling;
    const char *absent; /* how an absent value is written in no_sampling */
    bool any_sampling;  /* no_sampling: whatever switches sampling on (4.5) will do, else only a
                         * temperature */
};

/* Which members may ask for guided decoding (inference-api 8.6, 16.2, 16.3). */
enum {
    GUIDES_FORMAT = 1, /* response_format */
    GUIDES_VLLM = 2,   /* guided_json and its kin, structured_outputs, structural_tag */
    GUIDES_TGI = 4,    /* grammar */
    GUIDES_TGIS = 8,   /* those of vLLM, by the names that TGIS has for them */
};

/* One prompt of several. */
struct ep_prompt {
    const char *text; /* NULL: token input */
    size_t len;
    struct id_list ids;
};

struct family {
    enum api api;
    const char *input;       /* member that holds the input; of a recompute the token string */
    bool params_object;      /* parameters lie in the member `parameters`, else at the top level */
    int new_tokens_default;  /* 0: maxIterTimes */
    float temperature_max;   /* of its own, where strictRanges holds; 0: none */
    bool prompt_in_answer;   /* a whole answer repeats the prompt */
    bool thinking;           /* chat_template_kwargs.enable_thinking is checked */
    bool recompute_reduced;  /* the token limit of a recompute is less the tokens it brings along */
    bool needs_logprobs;     /* a streamed or detailed answer shows log-probabilities unasked */
    bool pd_stop_refused;    /* pdRefusals: stop strings and ids are among what is refused */
    bool tops_of_prompt;     /* its tokens are shown with their alternatives */
    bool values_are_400;     /* 422 is for what is wrong in kind alone */
    bool all_are_400;        /* and not for that either */
    unsigned guides;         /* GUIDES_.. */
    const char *text_length; /* {max}, {len} */
    const char *token_count; /* {got} */
    const char *input_missing, *input_empty_array, *input_bad_type;
    const char *model_unknown; /* of /v1/: {got} */
    const char *too_long; /* {got}, {max}, {below}: one more; NULL: the reference's, or OpenAI's */
    struct nbest_texts nbest;
    bool (*read)(struct ep_read *r); /* all checks before the parameters; fills ids */
    bool (*combine)(
        struct ep_read *r); /* checks of combinations that only this family has; NULL: none */
    const struct answer_ops *answer;
};
extern const struct family ep_families[FAM_COUNT];
const struct family *ep_family_of(const struct endpoint *ep, enum api api);

/* ---- failing: all return false and keep the first failure */
bool ep_fail(struct ep_read *r, int status, const char *text);
bool ep_missing(struct ep_read *r, const char *text);    /* 422, EP_MISSING */
bool ep_wrong_type(struct ep_read *r, const char *text); /* 422, EP_INVALID_TYPE */
/* The member that holds the input is missing: says so, and to which path a body like this one goes
 * (ep_elsewhere()). */
bool ep_missing_input(struct ep_read *r, const char *member, const char *text);
/* Of a member that Caikit does not know. */
#define EP_CAIKIT_EXTRA  "Extra inputs are not permitted"
#define EP_INPUT_MISSING "the input is missing"
/* Writes text, and when the body has the input of another dialect than member's, a sentence that
 * names the path it goes to: true. path: where it came to; NULL: one that counts tokens. body may
 * be NULL. */
enum { EP_ELSEWHERE_BYTES = 384 };
bool ep_elsewhere(char dst[EP_ELSEWHERE_BYTES], const struct api_path *path,
                  const struct json_value *body, const char *member, const char *text);
/* Pairs of (placeholder, value) after text, ending with NULL: "{got}", "1.5". */
#define ep_fail_with(r, status, text, ...)                                                         \
    ep_fail_pairs(r, status, text, (const char *const[]){__VA_ARGS__})
bool ep_fail_pairs(struct ep_read *r, int status, const char *text, const char *const *pairs);
bool ep_fail_value(struct ep_read *r, int status, const char *text, const struct json_value *got);
bool ep_fail_memory(struct ep_read *r);
/* r->text is the answer already, a JSON object: nothing is generated. */
bool ep_answer_now(struct ep_read *r);
/* What comes next is about this member of the body; "": about the body. */
void ep_at(struct ep_read *r, const char *member);
void ep_at_message(struct ep_read *r, size_t i, const char *member);
/* The manner of OpenAI's own service (errorStyle), for families under /v1/. */
bool ep_openai_manner(const struct ep_read *r);

/* ---- the body (ep_body.c) */
/* A body as a tree, by the framing of its path: JSON, or a message of gRPC. own: the same bytes
 * when they may be changed, and last as long as the tree; else NULL. *wire is freed behind the
 * tree. */
struct ep_body {
    const struct api_path *path;
    const struct endpoint_meta *meta;
    const char *p; /* [n] */
    char *own;
    size_t n, bytes_max; /* bytes_max: of a message that comes compressed */
    struct json_limits limits;
};
/* False: *status and why[n_why] say what is wrong with a message; status 0: it is no JSON object.
 */
bool ep_body_parse(const struct ep_body *b, struct buf *wire, struct json_value **out, int *status,
                   char *why, size_t n_why);

/* ---- questions of either framing (ep_call.c) */
/* The tree of a question's body or message. False: *out is its error. */
bool ep_ask_read(const struct endpoint *ep, const struct endpoint_ask *ask, struct buf *wire,
                 struct json_value **body, struct api_answer *out);
/* The answer is *json, or the message of these fields that its method answers with; json is freed.
 */
void ep_ask_reply(const struct endpoint_ask *ask, struct buf *json, struct api_answer *out);
/* Where each token of ids stands in the text of all: bytes text[at, at + n), characters [start,
 * end). spans[ids->n]. */
struct ep_span {
    size_t at, n, start, end;
};
enum err ep_token_spans(const struct endpoint *ep, const struct id_list *ids, struct buf *text,
                        struct ep_span *spans);
/* Whether the model and the version in these members of a message of
 * inference.GRPCInferenceService are ours; version_member NULL: it has none. False: why[n_why]. */
bool ep_infer_model(const struct endpoint *ep, const struct json_value *body, const char *member,
                    const char *version_member, char *why, size_t n_why);
/* What Triton's clients hear who load name[n], which is text and has a zero behind, or unload it
 * (ep_triton_info.c). The first is false where the name is served: it is loaded. */
bool ep_refuse_load(const struct endpoint *ep, enum api_errors shape, const char *name, size_t n,
                    struct api_answer *out);
void ep_refuse_unload(const struct endpoint *ep, enum api_errors shape, const char *name, size_t n,
                      struct api_answer *out);

/* ---- input (ep_input.c) */
size_t ep_utf16_len(const char *s, size_t n);
/* A string, or an array of parts whose texts are joined into r->text (inference-api 4.10): sets
 * r->prompt. The object's member `key` is looked at; the family's texts are used. */
bool ep_read_text(struct ep_read *r, const struct json_value *obj, const char *key);
/* The texts of an array of parts, appended to out. */
bool ep_join_parts(struct ep_read *r, const struct json_value *arr, struct buf *out);
/* r->prompt: its length, then its ids; checks the count. */
bool ep_check_text_length(struct ep_read *r);
bool ep_check_token_count(struct ep_read *r);
bool ep_tokenise(struct ep_read *r, bool add_special);
/* The family's input as text, or the token string of a recompute: member, length, ids. */
bool ep_read_prompt(struct ep_read *r);
/* An array of integers to r->ids; ids outside int32 become -1, which admission refuses. False at
 * the first item that is no integer. */
bool ep_ids_from_array(struct ep_read *r, const struct json_value *arr);
/* The token string "<N>,<t1>,..." of a recompute (cluster-api 5.7). */
bool ep_read_recompute(struct ep_read *r, const struct json_value *v);
/* The same from r->ids, which holds N, prompt ids, generated ids (Triton tokens). */
bool ep_split_recompute(struct ep_read *r);
/* Puts what is in prompt and ids among the prompts. */
bool ep_keep_prompt(struct ep_read *r);
/* Tokens of prompt and answer together, at least 2. */
int32_t ep_seq_len(const struct ep_read *r);
/* Whether the model only makes vectors and scores: then it has failed the request with those words.
 */
bool ep_generates_nothing(struct ep_read *r);
/* Truncation, lengths, validity of ids (inference-api 3.3 row 13, 4.7). */
bool ep_admit(struct ep_read *r);
size_t ep_prompt_max(const struct ep_read *r); /* tokens that a prompt may have */
size_t ep_prompt_cut(const struct ep_read *r); /* and that are left of one that is cut to fit */

/* ---- names */
bool ep_id_valid(const char *s, size_t n); /* ^[a-zA-Z0-9_-]{1,256}$ */
bool ep_client_id(struct ep_read *r);    /* Triton `id`, of the body: checks, sets req->client_id */
bool ep_model_member(struct ep_read *r); /* `model` of /v1/: checks, sets req->model, and
                                            req->adapter if it is one */
/* Whether s[0..n) is the model's name, or an adapter's. */
bool ep_serves(const struct endpoint *ep, const char *s, size_t n);
/* Whether s[0..n) is the model's name: all of it, also where it holds a zero. */
bool ep_names_model(const struct endpoint *ep, const char *s, size_t n);
/* The same, or the name of an adapter, which the request then uses. */
bool ep_names_served(struct ep_read *r, const char *s, size_t n);
/* The request uses the adapter of that name; false: there is none, or no memory (then failed). */
bool ep_adapter_find(struct ep_read *r, const char *s);
/* Bytes of a name that an error shows: MODEL_NAME_BYTES_MAX at most, in whole characters. */
size_t ep_name_shown(const char *s, size_t n);
char *ep_dup(const char *s, size_t n); /* terminated copy; NULL: no memory */

int guide_step_ms(const struct endpoint *ep); /* limits.guideStepMs */

/* ---- after the parameters (ep_sampling.c): n/best_of rules of 4.4, then everything into r->req */
bool ep_nbest(struct ep_read *r);
/* max_completion_tokens, else max_tokens; 0: the client gave neither. */
int32_t ep_tokens_asked(const struct ep_params *p);
bool ep_build(struct ep_read *r);
/* (ep_answer_size.c): false when what is asked for can never be one answer. */
bool ep_answer_fits(struct ep_read *r);

/* ---- the families */
bool ep_chat_read(struct ep_read *r);
bool ep_chat_tokens(struct ep_read *r); /* the same without the model's name */
bool ep_chat_messages(
    struct ep_read *r,
    struct json_value *messages); /* 8.3: checks, and puts them in the templates' form */
/* 8.4: checks; sets callable, forced, and what the request says of calls. */
bool ep_chat_tools(struct ep_read *r);
/* After the parameters: thinking (8.9), and calls and thinking into req->guide. */
bool ep_chat_combine(struct ep_read *r);
bool ep_openai_chat_combine(struct ep_read *r); /* the same of OpenAI's own chats */
/* The guide that makes a model write calls of these tools, their arguments within the schema where
 * calls are forced, else any object; NULL: no memory. One: exactly one. */
struct json_value *ep_call_guide(const struct ep_read *r, bool one);
enum tool_format ep_template_format(const struct chat_template *t); /* t may be NULL */
bool ep_tool_name(struct ep_read *r, const char *s, size_t n);
bool ep_tool_name_valid(const char *s, size_t n);
bool ep_completions_read(struct ep_read *r);
bool ep_anthropic_read(struct ep_read *r);
bool ep_anthropic_tokens(struct ep_read *r); /* the same without max_tokens */
bool ep_responses_read(struct ep_read *r);
bool ep_ollama_chat_read(struct ep_read *r);
bool ep_ollama_generate_read(struct ep_read *r);
bool ep_ollama_combine(struct ep_read *r);
bool ep_llamacpp_read(struct ep_read *r);
bool ep_llamacpp_combine(struct ep_read *r);
/* Before ep_build(), of servers that draw unless the temperature is 0: these where neither request
 * nor model says, a seed of -1 is any, penalties look at the last 64 tokens. */
void ep_drawn_by_default(struct ep_read *r, float temperature, int32_t top_k, float top_p);
/* The ids of a chat's messages, in the body of ask. False: *out is the error. */
bool ep_chat_ids(const struct endpoint *ep, const struct endpoint_ask *ask, struct id_list *ids,
                 struct api_answer *out);
/* The same of a body that is parsed, for a vector of the chat: as vLLM has it nothing opens an
 * answer unless the body says so, and what is wrong is a 400. body is only borrowed. */
bool ep_chat_ids_of(const struct endpoint *ep, const struct endpoint_ask *ask,
                    struct json_value *body, struct id_list *ids, struct api_answer *out);
/* Ollama's names: any case, "m" and "m:latest" are one. */
bool ep_ollama_same(const char *said, const char *ours);
/* Whether `keep_alive` of a body of Ollama's, if it is there, is a time. False: text[n_text] says
 * what it is. */
bool ep_ollama_keep_alive(const struct json_value *body, char *text, size_t n_text);
bool ep_openai_combine(struct ep_read *r);
/* Guided decoding: looks for the members that the family's `guides` allow, checks them, sets
 * req->guide. Called in the place of the order where the family has P_GUIDE. */
bool ep_guide_read(struct ep_read *r);
/* After everything: req->guide made ready, for every part. */
bool ep_guide_compile(struct ep_read *r);
bool ep_tgi_combine(struct ep_read *r);
bool ep_tgis_read(struct ep_read *r);
/* The same for a body that was made of another family's; chooses_seed: where tokens are drawn
 * without a seed the answer shows one. */
bool ep_tgis_take(struct ep_read *r, bool chooses_seed);
bool ep_tgis_combine(struct ep_read *r);
bool ep_caikit_read(struct ep_read *r);
bool ep_infer_read(struct ep_read *r);
/* POST /v2/models/{m}/infer (ep_infer_rest.c): whether the body has tensors by their names, else it
 * is the reference's; and, before it is parsed, where its JSON ends: sets b's text, tail and
 * tail_len. */
bool ep_infer_is_tensors(const struct ep_read *r);
bool ep_infer_split(struct ep_read *r, struct ep_body *b);
bool ep_infer_text_read(struct ep_read *r);
/* POST /v2/models/{m}/generate and /generate_stream (ep_infer_text.c): whether the body is one of
 * Triton's generate extension, else it is the reference's. */
bool ep_infer_is_text(const struct ep_read *r);
bool ep_native_read(struct ep_read *r);
bool ep_native_combine(struct ep_read *r);
bool ep_triton_token_read(struct ep_read *r);
bool ep_triton_text_read(struct ep_read *r);

/* ---- models (ep_models.c) */
#define EP_SERVER_NAME "MindIE Server"
struct lora_info;
/* The next adapter that a request may name, from number *at on; *at moves behind it. */
bool ep_next_adapter(const struct endpoint *ep, int *at, struct lora_info *out);
/* "details":{..} and "capabilities":[..] of the model, or of an adapter of it. */
void ep_put_details(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b);
void ep_put_capabilities(const struct endpoint *ep, struct buf *b);
void ep_model_not_found(const struct endpoint *ep, enum api_errors shape, const char *name,
                        struct api_answer *out);

/* ---- answers that are no generation */
void ep_answer_error(const struct endpoint *ep, enum api_errors shape, int status, const char *text,
                     struct api_answer *out);
/* The same for an error that knows its member and code (api_error_body()). */
void ep_answer_error_of(const struct endpoint *ep, enum api_errors shape, int status,
                        const char *text, const char *param, const char *code,
                        struct api_answer *out);
/* The same of a body, NULL: of none; where the shape shows what stands at the member it is there.
 */
void ep_answer_error_in(const struct endpoint *ep, enum api_errors shape, int status,
                        const char *text, const char *param, const char *code,
                        const struct json_value *body, struct api_answer *out);

#endif
