/* endpoint: the client families. Turns a body into an inference request, and tokens into pieces of
 * an answer in the client's dialect. Knows no socket, no role, no tensor. Wire law:
 * inference-api 2.4 to 13.
 *
 * Thread: an endpoint is read-only after creation; endpoint_read() and endpoint_tokenizer() are
 * meant for the text pool, any thread may call them. An answer has one user at a time. */
#ifndef BATON_ENDPOINT_ENDPOINT_H
#define BATON_ENDPOINT_ENDPOINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/budget.h"
#include "common/base/buf.h"
#include "common/engine/engine.h"
#include "common/engine/token_guide.h"
#include "common/text/tokenizer.h"
#include "proto/api.h"
#include "proto/infer_msg.h"

struct endpoint;
struct lora_set;

struct endpoint_conf {
    const char *model_name;  /* served name */
    const char *model_dir;   /* for chat templates; its last part is shown as root */
    int max_seq_len;         /* maxSeqLen after the cut to the model's context */
    int max_input_token_len; /* maxInputTokenLen as configured */
    int max_iter_times;      /* maxIterTimes */
    int max_batch_size, max_prefill_batch_size, max_prefill_tokens, max_n;
    int truncation;           /* -1 right, 0 off, 1 left */
    size_t max_request_bytes; /* maxRequestLength in bytes */
    int prefill_policy, decode_policy, cpu_mem_gb, npu_mem_gb, world_size;
    bool split;            /* inferMode=dmi */
    bool pd_refusals;      /* pdRefusals: the restrictions of inference-api 4.4 for P/D clusters */
    bool openai_vllm_mode; /* openAiSupport absent or "vllm" */
    const char *tool_call_parser; /* a name tool_parse.h knows; "auto" or NULL: by the template */
    const char *reasoning_parser; /* qwen3, deepseek_r1; "none" or NULL: none */
    bool full_text;               /* fullTextEnabled */
    enum error_style error_style;
    bool strict_ranges, token_id_scalar, tgi_legacy_space, vllm_legacy_space, benchmark_info,
        openai_id_prefix;
    char vllm_delimiter;      /* '\0' or '\n' */
    int json_depth_max;       /* maxJsonDepth, 10..100; 0: 10 */
    int prompt_lookup_tokens; /* promptLookupTokens, 0..LOOKUP_TOKENS_MAX: where the request is
                                 silent */
    bool prefix_cache;        /* answers of /v1/ report usage.prompt_tokens_details.cached_tokens */
    int64_t loaded_unix_s;
    bool special_as_text;   /* special tokens in messages, tools and documents are text */
    int template_ms;        /* processor time of a template that a client sent; 0: 200 */
    int guide_compile_ms;   /* of compiling a guide; 0: GUIDE_COMPILE_MS */
    int guide_step_ms;      /* of a guide at one token; 0: GUIDE_STEP_MS */
    struct budget *budget;  /* refusals by these are counted there; borrowed, or NULL */
    struct lora_set *loras; /* adapters that `model` and adapter_id may name; borrowed, or NULL */
};

/* Copies conf, loads the chat template; borrows tokenizer and model for its life. */
enum err endpoint_create(struct endpoint **out, const struct endpoint_conf *conf,
                         const struct tokenizer *tok, const struct model_info *model,
                         struct errbuf *eb);
void endpoint_destroy(struct endpoint **ep);
const struct endpoint_conf *endpoint_conf(const struct endpoint *ep);

/* An answer that is not a generation: an error of a request, what a request is answered with before
 * anything is generated (status 200), or an information body. */
struct api_answer {
    int status;
    const char *content_type;
    struct buf body; /* the caller frees */
    bool no_json;    /* refused since the client's body is not one JSON object */
};

/* What headers say of a body. */
struct endpoint_meta {
    char encoding[16];                    /* of the message; "": none */
    char json_bytes[24];                  /* of REST: TENSORS_HEADER, as it came; "": none */
    bool anthropic;                       /* a client of Anthropic's asks, whatever the path */
    bool has_model;                       /* one is named */
    char model[MODEL_NAME_BYTES_MAX + 1]; /* by metadata */
};

/* What the caller knows before the body is read. */
struct endpoint_in {
    const struct api_path *path;
    struct endpoint_meta meta;
    const char *path_model; /* {m} of the path, "" when none */
    const char *req_id;     /* internal id: becomes infer_req.req_id */
    const char *body;
    char *body_own; /* the same when it may be changed, with a byte behind it: it is read where it
                       lies, without a copy; or NULL */
    size_t body_len;
    /* Responses: what lies before the body, {"items":[..],"referenced":{id:item}}, as whoever keeps
     * earlier responses says (docs/api.md); 0: nothing. */
    const char *context;
    size_t context_len;
    const atomic_bool *cancelled; /* nobody wants the request any more; NULL: that never happens */
    bool is_recompute;
    uint64_t arrival_us;
    uint64_t random_seed;   /* used when the request has none */
    int64_t created_unix_s; /* of the answer, and the clock of templates; 0: now */
};

/* Body to request: JSON, every check in the family's order, chat template, tokenisation,
 * truncation, lengths (3.3 rows 3 to 13). True: *out is the caller's. False: *err holds status and
 * body; *out is NULL. */
bool endpoint_read(const struct endpoint *ep, const struct endpoint_in *in, struct infer_req **out,
                   struct api_answer *err);

/* Guided decoding. endpoint_read() compiles and keeps the guide with the request; one that came
 * over the wire is compiled here, in the text pool, and kept on the loop thread. Compiled guides
 * are cached by their text. */
struct endpoint_guide {
    void *compiled;
    void (*drop)(void *compiled);
};
enum err endpoint_guide_compile(const struct endpoint *ep, const char *guide,
                                const atomic_bool *cancelled, struct endpoint_guide *out,
                                struct errbuf *eb);
void endpoint_guide_keep(struct infer_req *req, struct endpoint_guide *g); /* takes *g */
void endpoint_guide_drop(struct endpoint_guide *g);
/* For seq_opts.guide: a state behind the prompt of req, the caller's to free; ops NULL when the
 * request has no guide. ERR_INTERNAL: it was never compiled. Any thread. */
enum err endpoint_guide_start(const struct endpoint *ep, const struct infer_req *req,
                              struct token_guide *out);

/* What a client is told when the engine gave its sequence up with this error: the status, and the
 * text in text[0..n). A guide over its bounds is the request's fault. */
int endpoint_engine_failure(const struct endpoint *ep, enum err e, char *text, size_t n);

/* The error body for a request of this path with the family's shape. */
void endpoint_error(const struct endpoint *ep, const struct api_path *path, int status,
                    const char *text, struct api_answer *out);
/* The same for a request that has been read. */
void endpoint_req_error(const struct endpoint *ep, const struct infer_req *req, int status,
                        const char *text, struct api_answer *out);

/* ---- an answer under way: a pure function of (requests, tokens of each choice), so a decode
 * instance that feeds P's tokens again stands exactly where P stood. */
struct answer;
/* Takes every part of req's chain. Borrows ep and the requests. */
enum err answer_create(struct answer **out, const struct endpoint *ep, const struct infer_req *req);
/* A further part of the same client request, for who gets them one by one; not its chain.
 * ERR_INVALID: not a part of this answer. ERR_CONFLICT: it is here already. */
enum err answer_add_part(struct answer *a, const struct infer_req *req);
void answer_destroy(struct answer **a);
const char *answer_content_type(const struct answer *a); /* of a 200 */
/* A line that keeps a silent stream open and that clients skip; NULL: the frames have none, or the
 * answer is no stream. */
const char *answer_comment(const struct answer *a);

/* Feeds one token of choice ev->choice of the part. Appends to *out what the client may have now:
 * when streaming zero or more whole events, else nothing until the end and then the whole body.
 * Returns FINISH_NONE, or the reason why that choice is complete with this token: then it takes no
 * more tokens, and an engine sequence still running must be stopped. FINISH_ERROR: no such part or
 * choice. */
enum finish answer_token(struct answer *a, uint32_t part, const struct token_event *ev,
                         struct buf *out);
/* All choices of all parts are complete and the end marker ([DONE]) is out; not when *out had no
 * memory for it. */
bool answer_done(const struct answer *a);
/* Log-probability and alternatives of prompt token `position` of a part (decoder_input_details,
 * echo with logprobs, prompt_logprobs): logprob and top of the event. Before the first token. */
void answer_prompt_logprob(struct answer *a, uint32_t part, int position,
                           const struct token_event *ev);
/* Ends the answer with what was generated so far (stopInfer, drain): finishing event or whole body.
 */
void answer_abort(struct answer *a, struct buf *out);
/* Ends a stream that has begun with one error event in the family's framing (3.4); also one whose
 * end *out had no memory for. The event says "out of memory" when there is none for the text, and
 * cannot fail where *out has room for ANSWER_ERROR_BYTES. */
enum { ANSWER_ERROR_BYTES = 256 };
/* The same of a stream that another instance began. */
void answer_error_alone(const struct endpoint *ep, const struct infer_req *req, int status,
                        const char *text, struct buf *out);
void answer_error(struct answer *a, int status, const char *text, struct buf *out);
int answer_n_tokens(const struct answer *a); /* of all choices */

/* ---- a transcript: the tokens another attempt goes on behind. Of a stream those whose events went
 * out; of an answer in one piece, of which nothing went out, any. Choices are numbered over all
 * parts: part * sampling.n_choices + choice. */
/* Calls fn(arg, ..) for each token whose event answer_token() has written since the last call, the
 * tokens of a choice in their order; the first of a choice also when only the chunk that begins it
 * is written. An answer in one piece tells each token at once where it has a transcript, and what
 * has none tells all at the end. finish: of the choice, with its last token. fn NULL: they are
 * told. Costs nothing for choices without news. */
typedef void answer_sent_fn(void *arg, uint32_t choice, int32_t id, enum finish finish);
void answer_sent(struct answer *a, answer_sent_fn *fn, void *arg);
/* Whether another attempt may go on behind tokens: not with beams and ranked choices, nor where an
 * answer in one piece shows log-probabilities, which are not kept. */
bool answer_has_transcript(const struct infer_req *req, const struct endpoint *ep);
struct sent_tokens {
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    enum finish finish;              /* of the choice, by the last of them */
    const struct token_event *first; /* the first token when it was drawn again: its probabilities,
                                      * which may not have gone out; NULL: they are lost */
};
/* Puts a choice where it stood when exactly these tokens had been told by answer_sent(): nothing of
 * them goes out again. Before any token of the choice, and with all parts there. ERR_INVALID: eb
 * names what cannot be of this answer, which is useless then. ERR_NO_MEMORY. */
enum err answer_replay(struct answer *a, uint32_t choice, const struct sent_tokens *sent,
                       struct errbuf *eb);

/* ---- what is no generation: information, the tokenizer's work (inference-api 12, 13) */
struct endpoint_ask {
    const struct api_path *path; /* of API_INFORM or API_TOKENIZE */
    struct endpoint_meta meta;
    const char *name; /* {m} or {*} of the path, "" when none */
    char *body;       /* may be changed, with a byte behind it */
    size_t n;
    const char *context; /* as in endpoint_in */
    size_t context_len;
    const atomic_bool *cancelled; /* as in endpoint_in */
    const char *query;            /* of a GET, as it came; NULL: none */
};
void endpoint_inform(const struct endpoint *ep, const struct endpoint_ask *ask,
                     struct api_answer *out);
/* fmaas.GenerationService */
void endpoint_tgis_tokenize(const struct endpoint *ep, const struct endpoint_ask *ask,
                            struct api_answer *out);
void endpoint_tgis_model(const struct endpoint *ep, const struct endpoint_ask *ask,
                         struct api_answer *out);
/* Triton's repository and shared memory */
void endpoint_triton_index(const struct endpoint *ep, struct api_answer *out);
void endpoint_triton_load(const struct endpoint *ep, const char *name, struct api_answer *out);
void endpoint_triton_unload(const struct endpoint *ep, const char *name, struct api_answer *out);
void endpoint_triton_regions(const struct endpoint *ep, struct api_answer *out);
/* OpenVINO Model Server's POST /v3/tokenize */
void endpoint_ovms_tokenize(const struct endpoint *ep, const struct endpoint_ask *ask,
                            struct api_answer *out);
/* Caikit's, over REST and gRPC */
void endpoint_caikit_tokenize(const struct endpoint *ep, const struct endpoint_ask *ask,
                              struct api_answer *out);
void endpoint_caikit_runtime(const struct endpoint *ep, const struct endpoint_ask *ask,
                             struct api_answer *out);
void endpoint_caikit_models(const struct endpoint *ep, const struct endpoint_ask *ask,
                            struct api_answer *out);
/* inference.GRPCInferenceService */
void endpoint_infer_server(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out);
void endpoint_infer_about(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
void endpoint_infer_config(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out);
void endpoint_infer_index(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
void endpoint_infer_load(const struct endpoint *ep, const struct endpoint_ask *ask,
                         struct api_answer *out);
void endpoint_infer_unload(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out);
void endpoint_infer_empty(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
/* POST /v1/messages/count_tokens */
void endpoint_anthropic_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct api_answer *out);
/* POST /v1/responses/input_tokens, /v1/chat/completions/input_tokens */
void endpoint_responses_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct api_answer *out);
void endpoint_chat_tokens(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
void endpoint_tokenizer_info(const struct endpoint *ep, struct api_answer *out);
/* A chat's body to its prompt: POST /v1/chat/completions/render, /apply-template. */
void endpoint_render(const struct endpoint *ep, const struct endpoint_ask *ask,
                     struct api_answer *out);
void endpoint_apply_template(const struct endpoint *ep, const struct endpoint_ask *ask,
                             struct api_answer *out);
/* llama.cpp's: GET /props, /lora-adapters, and what is refused. */
void endpoint_llamacpp_props(const struct endpoint *ep, struct api_answer *out);
void endpoint_llamacpp_loras(const struct endpoint *ep, struct api_answer *out);
void endpoint_unsupported(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
/* Ollama's: GET /api/tags, /api/ps, /api/version, /, POST /api/show, /api/pull and the rest. */
void endpoint_ollama_tags(const struct endpoint *ep, struct api_answer *out);
void endpoint_ollama_ps(const struct endpoint *ep, struct api_answer *out);
void endpoint_ollama_version(const struct endpoint *ep, struct api_answer *out);
void endpoint_ollama_running(const struct endpoint *ep, struct api_answer *out);
void endpoint_ollama_show(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
void endpoint_ollama_pull(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out);
void endpoint_ollama_refused(const struct endpoint *ep, struct api_answer *out);
/* cancelled: as in endpoint_in. */
void endpoint_tokenizer(const struct endpoint *ep, char *body, size_t n,
                        const atomic_bool *cancelled,
                        struct api_answer *out); /* POST /v1/tokenizer */
void endpoint_tokenize_compat(const struct endpoint *ep, char *body, size_t n,
                              const atomic_bool *cancelled,
                              struct api_answer *out); /* POST /tokenize */
void endpoint_detokenize(const struct endpoint *ep, char *body, size_t n,
                         const atomic_bool *cancelled,
                         struct api_answer *out); /* POST /detokenize */
void endpoint_models(const struct endpoint *ep, const struct endpoint_ask *ask,
                     struct api_answer *out); /* GET /v1/models */
void endpoint_model(const struct endpoint *ep, const struct endpoint_ask *ask,
                    struct api_answer *out);                              /* GET /v1/models/{m} */
void endpoint_version(const struct endpoint *ep, struct api_answer *out); /* GET /version */
void endpoint_triton_server(const struct endpoint *ep, struct api_answer *out); /* GET /v2 */
void endpoint_triton_model(const struct endpoint *ep, const char *name,
                           struct api_answer *out); /* GET /v2/models/{m} */
void endpoint_triton_config(const struct endpoint *ep, const char *name,
                            struct api_answer *out); /* GET /v2/models/{m}/config */
void endpoint_info(const struct endpoint *ep, struct api_answer *out); /* GET /info */
void endpoint_slots(const struct endpoint *ep, const char *name, int slots_free,
                    int64_t tokens_free, struct api_answer *out); /* getSlotCount */
bool endpoint_has_model(const struct endpoint *ep, const char *name);
void endpoint_model_not_found(const struct endpoint *ep, const char *name, struct api_answer *out);

#endif
