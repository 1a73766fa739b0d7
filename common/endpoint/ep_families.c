/* ep_families: the client families as rows (inference-api 4.1, 6 to 11): input, order of checks,
 * texts, reader, answers. */
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

/* What upstream servers know beyond the vendor, for the families with parameters at the top level
 * (inference-api 16). Checked after the vendor's own, so that its order stays. */
#define UPSTREAM_OPENAI                                                                            \
    P_MIN_P, P_MIN_TOKENS, P_TRUNCATE_PROMPT_TOKENS, P_MAX_COMPLETION_TOKENS, P_LOGIT_BIAS,        \
        P_OPENAI_PRIORITY, P_STREAM_OPTIONS, P_BAD_WORDS, P_ALLOWED_TOKEN_IDS, P_PROMPT_LOGPROBS,  \
        P_REQUEST_ID, P_LOOKUP_TOKENS

/* clang-format off */
static const uint8_t order_chat[] = {
    P_IGNORE_EOS, P_STOP, P_STOP_TOKEN_IDS, P_INCLUDE_STOP, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_SEED, P_TEMPLATE_KWARGS,
    P_REPETITION_PENALTY, P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_BEST_OF, P_N, P_BEAM, P_CHAT_LOGPROBS,
    P_TOP_LOGPROBS, P_MAX_TOKENS, P_STREAM, P_GUIDE, UPSTREAM_OPENAI, P_ECHO, P_END,
};
static const uint8_t order_chat_own[] = { /* neither response_format nor thinking */
    P_IGNORE_EOS, P_STOP, P_STOP_TOKEN_IDS, P_INCLUDE_STOP, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_SEED,
    P_REPETITION_PENALTY, P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_BEST_OF, P_N, P_BEAM, P_CHAT_LOGPROBS,
    P_TOP_LOGPROBS, P_MAX_TOKENS, P_STREAM, P_GUIDE, UPSTREAM_OPENAI, P_ECHO, P_END,
};
static const uint8_t order_completions[] = {
    P_IGNORE_EOS, P_STOP, P_INCLUDE_STOP, P_STOP_TOKEN_IDS, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_SEED, P_REPETITION_PENALTY,
    P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_BEST_OF, P_N, P_BEAM, P_LOGPROBS, P_MAX_TOKENS, P_STREAM,
    P_GUIDE, UPSTREAM_OPENAI, P_ECHO, P_SUFFIX, P_END,
};
static const uint8_t order_tgi[] = {
    P_STOP, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_TYPICAL_P, P_DO_SAMPLE, P_SEED, P_REPETITION_PENALTY, P_WATERMARK, P_ADAPTER_ID,
    P_MAX_NEW_TOKENS, P_DETAILS, P_DECODER_INPUT_DETAILS, P_RETURN_FULL_TEXT, P_TRUNCATE,
    P_FREQUENCY_PENALTY, P_BEST_OF, P_TOP_N_TOKENS, P_GUIDE, P_LOOKUP_TOKENS, P_BEAM_ELSEWHERE, P_END,
};
static const uint8_t order_vllm[] = {
    P_IGNORE_EOS, P_STOP, P_STOP_TOKEN_IDS, P_INCLUDE_STOP, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_SEED, P_REPETITION_PENALTY,
    P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_BEST_OF, P_N, P_VLLM_MODEL, P_MAX_TOKENS, P_STREAM,
    P_MIN_P, P_MIN_TOKENS, P_LOOKUP_TOKENS, P_END,
};
static const uint8_t order_native[] = {
    P_TEMPERATURE, P_TOP_K, P_TOP_P, P_TYPICAL_P, P_DO_SAMPLE, P_SEED, P_REPETITION_PENALTY, P_WATERMARK, P_PRIORITY,
    P_MAX_NEW_TOKENS, P_TIMEOUT, P_DETAILS, P_LOOKUP_TOKENS, P_BEAM_ELSEWHERE, P_END,
};
static const uint8_t order_triton_token[] = {
    P_TEMPERATURE, P_TOP_K, P_TOP_P, P_DO_SAMPLE, P_SEED, P_REPETITION_PENALTY, P_WATERMARK, P_PRIORITY, P_MAX_NEW_TOKENS,
    P_TIMEOUT, P_DETAILS, P_BATCH_SIZE, P_LOOKUP_TOKENS, P_BEAM_ELSEWHERE, P_END,
};
static const uint8_t order_triton_text[] = {
    P_TEMPERATURE, P_TOP_K, P_TOP_P, P_TYPICAL_P, P_DO_SAMPLE, P_SEED, P_REPETITION_PENALTY, P_WATERMARK, P_PRIORITY,
    P_MAX_NEW_TOKENS, P_DETAILS, P_BATCH_SIZE, P_TIMEOUT, P_PERF_STAT, P_STOP, P_LOOKUP_TOKENS, P_BEAM_ELSEWHERE, P_END,
};
/* clang-format on */

enum { MAX_NEW_TOKENS_DEFAULT = 20 };

#define MESSAGES_TOKENS                                                                            \
    "Messages token length must be in (0, 1048576], but got {got}. This could be caused by "       \
    "invalid input format or empty content."

#define CHAT_ROW(order_, thinking_, guides_, unknown)                                              \
    {                                                                                              \
        .api = API_OPENAI_CHAT, .input = "messages", .order = order_, .thinking = thinking_,       \
        .guides = guides_, .token_count = MESSAGES_TOKENS,                                         \
        .input_bad_type = "The type of inputs is abnormal",                                        \
        .input_empty_array = "Inputs arr is empty", .model_unknown = unknown,                      \
        .nbest =                                                                                   \
            {                                                                                      \
                .stream_without_n = "best_of must be equal to n in stream mode, but best_of is "   \
                                    "{b}, n is None.",                                             \
                .stream_unequal =                                                                  \
                    "best_of must be equal to n in stream mode, but best_of is {b}, n is {n}.",    \
                .below_n =                                                                         \
                    "best_of must be greater than or equal to n, but best_of is {b}, n is {n}.",   \
                .no_sampling = "best_of/n can not greater than 1 without using beam search when "  \
                               "temperature is 0 or not set, but best_of is {b}, n is {n}.",       \
                .absent = "None",                                                                  \
            },                                                                                     \
        .read = ep_chat_read, .combine = ep_chat_combine, .answer = &answer_chat,                  \
    }

const struct family ep_families[FAM_COUNT] = {
    [FAM_CHAT] = CHAT_ROW(order_chat, true, GUIDES_FORMAT | GUIDES_VLLM, "Model not found"),
    [FAM_CHAT_OWN] =
        CHAT_ROW(order_chat_own, false, GUIDES_VLLM, "Got model {got}, but not found in server"),
    [FAM_COMPLETIONS] =
        {
            .api = API_OPENAI_COMPLETIONS,
            .input = "prompt",
            .order = order_completions,
            .guides = GUIDES_FORMAT | GUIDES_VLLM,
            .text_length =
                "Length of Prompt text should be greater than 0 and less than or equal to "
                "{max}, but got {len}",
            .token_count =
                "Length of Prompt token should be greater than 0 and less than or equal to "
                "1048576, but got {got}",
            .input_missing = "Contains not prompt or prompt null",
            .input_empty_array = "Prompt array cannot be empty.",
            .input_bad_type = "The type of prompt is abnormal,prompt must be str or integer list.",
            .model_unknown = "Not found given model, please check modelName in config file.",
            .nbest =
                {
                    .stream_without_n =
                        "best_of must be equal to n in stream mode, but best_of is {b}, n is None.",
                    .stream_unequal =
                        "best_of must be equal to n, but best_of is {b} and n is {n}.",
                    .below_n = "Best_of must be greater than or equal to n, but best_of is {b} and "
                               "n is {n}.",
                    .no_sampling =
                        "Best_of and n shouldn't be greater than 1 when sampling is disabled, "
                        "but best_of is {b} and n is {n}.",
                    .absent = "null",
                },
            .read = ep_completions_read,
            .combine = ep_openai_combine,
            .answer = &answer_completions,
        },
    [FAM_TGI] =
        {
            .api = API_TGI,
            .input = "inputs",
            .params_object = true,
            .order = order_tgi,
            .guides = GUIDES_TGI,
            .pd_stop_refused = true,
            .new_tokens_default = MAX_NEW_TOKENS_DEFAULT,
            .needs_logprobs = true,
            .text_length = "Inputs length must be in (0, {max}], but got {len}",
            .token_count = "Inputs token length must be in (0, 1048576], but got {got}",
            .input_missing = "Request should contain 'inputs' and the type should be string.",
            .input_empty_array = "Inputs arr is empty",
            .input_bad_type = "The type of inputs is abnormal",
            .nbest =
                {
                    .in_stream = "best_of/n greater than 1 are not supported by this endpoint",
                    .no_sampling = "when sampling disabled (temperature=0), best_of/n must be 1 "
                                   "without beam search",
                    .any_sampling = true,
                },
            .read = ep_read_prompt,
            .combine = ep_tgi_combine,
            .answer = &answer_tgi,
        },
    [FAM_VLLM] =
        {
            .api = API_VLLM,
            .input = "prompt",
            .order = order_vllm,
            .pd_stop_refused = true,
            .prompt_in_answer = true,
            .text_length =
                "Prompt must be necessary and data type must be string and length in (0, "
                "{max}], but the length of inputs is {len}",
            .token_count = MESSAGES_TOKENS,
            .input_missing = "Contains not prompt or prompt null",
            .input_empty_array = "Prompt arr is empty",
            .input_bad_type = "The type of prompt is abnormal",
            .nbest =
                {
                    .below_n =
                        "best_of should greater than or equal to n, but best_of is {b}, n is {n}.",
                    .no_sampling =
                        "Best_of/N can not greater than 1 when temperature is 0 or not set, but "
                        "best_of is {b}, n is {n}.",
                    .absent = "None",
                },
            .read = ep_read_prompt,
            .answer = &answer_vllm,
        },
    [FAM_NATIVE] =
        {
            .api = API_NATIVE,
            .input = "inputs",
            .params_object = true,
            .order = order_native,
            .new_tokens_default = MAX_NEW_TOKENS_DEFAULT,
            .text_length =
                "Inputs must be necessary and data type must be string and length in (0, "
                "{max}], but the length of inputs is {len}",
            .token_count = "Inputs token length must be in (0, 1048576], but got {got}",
            .input_missing = "Inputs must not be null",
            .input_empty_array = "Inputs arr is empty",
            .input_bad_type = "The type of inputs is abnormal",
            .read = ep_native_read,
            .combine = ep_native_combine,
            .answer = &answer_native,
        },
    [FAM_TRITON_TOKEN] =
        {
            .api = API_TRITON_TOKEN,
            .input = "inputs",
            .params_object = true,
            .order = order_triton_token,
            .recompute_reduced = true,
            .new_tokens_default = MAX_NEW_TOKENS_DEFAULT,
            .token_count =
                "Shape must be at most two-dimensional, and the last element's value must be in "
                "(0,1048576].",
            .read = ep_triton_token_read,
            .answer = &answer_triton_token,
        },
    [FAM_TRITON_TEXT] =
        {
            .api = API_TRITON_TEXT,
            .input = "text_input",
            .params_object = true,
            .order = order_triton_text,
            .new_tokens_default = MAX_NEW_TOKENS_DEFAULT,
            .text_length =
                "text_input must be necessary and data type must be string and length in (0, "
                "{max}], but the length of inputs is {len}",
            .token_count = "text_input token length must be in (0, 1048576], but got {got}",
            .input_missing = "The text_input not found",
            .input_empty_array = "Parameter text_input arr is empty",
            .input_bad_type = "The type of text_input is abnormal. The requestId is {id}",
            .read = ep_triton_text_read,
            .answer = &answer_triton_text,
        },
};

/* The family of an api; chat has the one the configuration chose. */
const struct family *ep_family_of(const struct endpoint *ep, enum api api) {
    if (api == ep_families[FAM_CHAT].api)
        return &ep_families[ep->conf.openai_vllm_mode ? FAM_CHAT : FAM_CHAT_OWN];
    for (int i = 0; i < FAM_COUNT; i++)
        if (ep_families[i].api == api) return &ep_families[i];
    return NULL;
}
