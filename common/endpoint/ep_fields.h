/* ep_fields: reads the generation parameters (inference-api 4.2, 4.3) by their rows (ep_rows.h):
 * one loop checks them. A new parameter is a member, a row and a place in the families' orders. */
#ifndef BATON_ENDPOINT_EP_FIELDS_H
#define BATON_ENDPOINT_EP_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The columns of the table. Chat has two: the mode compatible with vLLM and the vendor's own
 * (openAiSupport). */
enum fam {
    FAM_CHAT,
    FAM_CHAT_OWN,
    FAM_COMPLETIONS,
    FAM_TGI,
    FAM_VLLM,
    FAM_NATIVE,
    FAM_TRITON_TOKEN,
    FAM_TRITON_TEXT,
    FAM_NOT_OF_REFERENCE, /* those from here on have the ranges of OpenAI's manner */
    FAM_ANTHROPIC = FAM_NOT_OF_REFERENCE,
    FAM_RESPONSES,
    FAM_OLLAMA_CHAT,
    FAM_OLLAMA_GENERATE,
    FAM_TGIS,
    FAM_LLAMACPP,
    FAM_CAIKIT,
    FAM_CAIKIT_GRPC,
    FAM_INFER,
    FAM_INFER_REST,
    FAM_INFER_TEXT,
    FAM_COUNT,
};

enum ep_param {
    P_END,
    P_TEMPERATURE,
    P_TOP_K,
    P_TOP_P,
    P_TYPICAL_P,
    P_MIN_P,
    P_DO_SAMPLE,
    P_SEED,
    P_REPETITION_PENALTY,
    P_FREQUENCY_PENALTY,
    P_PRESENCE_PENALTY,
    P_LOGIT_BIAS,
    P_MAX_NEW_TOKENS,
    P_MAX_TOKENS,
    P_MAX_COMPLETION_TOKENS,
    P_MIN_TOKENS,
    P_STOP,
    P_STOP_TOKEN_IDS,
    P_INCLUDE_STOP,
    P_SKIP_SPECIAL,
    P_IGNORE_EOS,
    P_N,
    P_N_CMPL, /* llama.cpp's name of it */
    P_BEST_OF,
    P_BEAM,
    P_CHAT_LOGPROBS,
    P_TOP_LOGPROBS,
    P_LOGPROBS,
    P_TOP_N_TOKENS,
    P_WATERMARK,
    P_BATCH_SIZE,
    P_PRIORITY,
    P_OPENAI_PRIORITY,
    P_TIMEOUT,
    P_DETAILS,
    P_DECODER_INPUT_DETAILS,
    P_RETURN_FULL_TEXT,
    P_PERF_STAT,
    P_TRUNCATE,
    P_TRUNCATE_PROMPT_TOKENS,
    P_ADAPTER_ID,
    P_VLLM_MODEL,
    P_TEMPLATE_KWARGS,
    P_PROMPT_LOGPROBS,
    P_REQUEST_ID,
    P_ECHO,
    P_SUFFIX,
    P_BEAM_ELSEWHERE,
    P_ADD_SPECIAL,
    P_ADD_GENERATION_PROMPT,
    P_CONTINUE_FINAL,
    P_STREAM,
    P_STREAM_OPTIONS,
    P_GUIDE, /* every member that asks for guided decoding: ep_guide.c */
    P_BAD_WORDS,
    P_ALLOWED_TOKEN_IDS,
    P_LOOKUP_TOKENS,
    P_STOP_SEQUENCES,
    P_MAX_OUTPUT_TOKENS,
    P_REPEAT_PENALTY,
    P_REPEAT_LAST_N,
    P_NUM_PREDICT,
    P_NUM_CTX,
    P_N_PREDICT,
    P_N_PROBS,
    P_RETURN_TOKEN_IDS,
    P_TOKENS_AS_IDS,
    P_TRUNCATION_SIDE,
    P_SPACES_BETWEEN,
    P_LENGTH_PENALTY,
    P_CACHE_SALT,
    P_LOGITS_PROCESSORS,
    P_PROMPT_EMBEDS,
    P_LORA,
    P_COMPLETION_TOKENS,
    P_OLLAMA_LOGPROBS,
    P_OLLAMA_TOPS,
    P_COUNT,
};

/* The values a client gave; `given` says which. Lists go straight into the request. */
struct ep_params {
    bool given[P_COUNT];
    float temperature, top_p, typical_p, min_p;
    float repetition_penalty, frequency_penalty, presence_penalty, length_penalty;
    uint64_t seed;
    int32_t top_k, max_new_tokens, max_tokens, max_completion_tokens, min_tokens;
    int32_t top_logprobs, logprobs, prompt_logprobs, top_n_tokens, batch_size;
    int32_t truncate, truncate_prompt_tokens, lookup_tokens;
    int32_t repeat_last_n, num_ctx;
    int64_t openai_priority;
    uint64_t n, best_of, priority, timeout;
    bool do_sample, include_stop, skip_special, ignore_eos, beam, chat_logprobs, watermark;
    bool details, decoder_input_details, return_full_text, perf_stat, echo, stream;
    bool add_special, add_generation_prompt, continue_final;
    bool return_token_ids, tokens_as_ids, truncate_right, spaces_between;
};

/* What an absent parameter means where it is not zero. */
#define EP_PARAMS_DEFAULT                                                                          \
    { .skip_special = true, .add_special = true, .add_generation_prompt = true }

struct ep_read;
struct json_value;

/* Checks the parameters of the family's order one after the other and stores them; the first
 * failure wins (false). */
bool ep_fields_read(struct ep_read *r, const uint8_t *order);

/* Whether the parameters are read as OpenAI's manner has them: ep_rows_as_openai() of r. */
bool ep_as_openai(const struct ep_read *r);

/* Checks that need more than a range (ep_custom.c); v is neither absent nor null. */
bool ep_check_seed(struct ep_read *r, const struct json_value *v);
bool ep_check_stop(struct ep_read *r, const struct json_value *v);
bool ep_check_stop_sequences(struct ep_read *r, const struct json_value *v);
bool ep_check_repeat_penalty(struct ep_read *r, const struct json_value *v);
bool ep_check_num_predict(struct ep_read *r, const struct json_value *v);
bool ep_check_n_predict(struct ep_read *r, const struct json_value *v);
bool ep_check_n_probs(struct ep_read *r, const struct json_value *v);
bool ep_check_stop_token_ids(struct ep_read *r, const struct json_value *v);
bool ep_check_include_stop(struct ep_read *r, const struct json_value *v);
bool ep_check_logit_bias(struct ep_read *r, const struct json_value *v);
bool ep_check_max_output(struct ep_read *r, const struct json_value *v);
bool ep_check_n(struct ep_read *r, const struct json_value *v);
bool ep_check_n_cmpl(struct ep_read *r, const struct json_value *v);
bool ep_check_lora(struct ep_read *r, const struct json_value *v);
bool ep_check_temperature(struct ep_read *r, const struct json_value *v);
bool ep_check_chat_logprobs(struct ep_read *r, const struct json_value *v);
bool ep_check_completion_tokens(struct ep_read *r, const struct json_value *v);
bool ep_check_ollama_tops(struct ep_read *r, const struct json_value *v);
bool ep_check_adapter(struct ep_read *r, const struct json_value *v);
bool ep_check_vllm_model(struct ep_read *r, const struct json_value *v);
bool ep_check_template_kwargs(struct ep_read *r, const struct json_value *v);
bool ep_check_stream_options(struct ep_read *r, const struct json_value *v);
bool ep_check_bad_words(struct ep_read *r, const struct json_value *v);
bool ep_check_allowed_ids(struct ep_read *r, const struct json_value *v);
bool ep_check_request_id(struct ep_read *r, const struct json_value *v);
bool ep_check_guide(struct ep_read *r, const struct json_value *v); /* v is NULL */
bool ep_check_suffix(struct ep_read *r, const struct json_value *v);
bool ep_check_truncation_side(struct ep_read *r, const struct json_value *v);
bool ep_check_cache_salt(struct ep_read *r, const struct json_value *v);
bool ep_check_logits_processors(struct ep_read *r, const struct json_value *v);
bool ep_check_prompt_embeds(struct ep_read *r, const struct json_value *v);
bool ep_check_beam_elsewhere(struct ep_read *r, const struct json_value *v);
bool ep_check_response_format(struct ep_read *r, const struct json_value *v); /* ep_schema.c */

#endif
