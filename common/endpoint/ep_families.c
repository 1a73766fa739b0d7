/* ep_families: the client families as rows (inference-api 4.1, 6 to 11): input, texts, reader,
 * answers. */
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

enum { MAX_NEW_TOKENS_DEFAULT = 20, INFER_TOKENS_DEFAULT = 16 };

#define MESSAGES_TOKENS                                                                            \
    "Messages token length must be in (0, 1048576], but got {got}. This could be caused by "       \
    "invalid input format or empty content."

#define CHAT_ROW(thinking_, guides_, unknown)                                                      \
    {                                                                                              \
        .api = API_OPENAI_CHAT, .input = "messages", .thinking = thinking_, .guides = guides_,     \
        .token_count = MESSAGES_TOKENS, .input_bad_type = "The type of inputs is abnormal",        \
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
        .read = ep_chat_read, .combine = ep_openai_chat_combine, .answer = &answer_chat,           \
    }

#define OLLAMA_ROW(api_, input_, read_, answer_)                                                   \
    {                                                                                              \
        .api = api_, .input = input_, .thinking = true, .guides = GUIDES_FORMAT,                   \
        .text_length = "prompt must have 1 to {max} characters, but has {len}",                    \
        .token_count = "The prompt must have 1 to 1048576 tokens, but has {got}",                  \
        .input_missing = input_ " is required", .input_empty_array = input_ " is empty",           \
        .input_bad_type = input_ " must be a string", .read = read_, .combine = ep_ollama_combine, \
        .answer = answer_,                                                                         \
    }

#define CAIKIT_ROW(api_, answer_)                                                                  \
    {                                                                                              \
        .api = api_, .input = "inputs", .new_tokens_default = MAX_NEW_TOKENS_DEFAULT,              \
        .guides = GUIDES_VLLM, .values_are_400 = true,                                             \
        .text_length = "text must have 1 to {max} characters, got {len}",                          \
        .token_count = "text must have 1 to 1048576 tokens, got {got}",                            \
        .too_long = "input tokens ({got}) plus prefix length (0) must be < {below}",               \
        .read = ep_caikit_read, .combine = ep_tgis_combine, .answer = answer_,                     \
    }

#define INFER_ROW(api_, input_, read_, ...)                                                        \
    {                                                                                              \
        .api = api_, .input = input_, .new_tokens_default = INFER_TOKENS_DEFAULT,                  \
        .guides = GUIDES_VLLM,                                                                     \
        .text_length = "text_input must have 1 to {max} characters, got {len}",                    \
        .token_count = "text_input must have 1 to 1048576 tokens, got {got}",                      \
        .too_long = "the prompt has {got} tokens, the model takes at most {max}",                  \
        .nbest = {.below_n =                                                                       \
                      "best_of must be greater than or equal to n, but best_of is {b}, n is "      \
                      "{n}."},                                                                     \
        .read = read_, .answer = __VA_ARGS__,                                                      \
    }

const struct family ep_families[FAM_COUNT] = {
    [FAM_CHAT] = CHAT_ROW(true, GUIDES_FORMAT | GUIDES_VLLM, "Model not found"),
    [FAM_CHAT_OWN] = CHAT_ROW(false, GUIDES_VLLM, "Got model {got}, but not found in server"),
    [FAM_COMPLETIONS] =
        {
            .api = API_OPENAI_COMPLETIONS,
            .input = "prompt",
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
    [FAM_ANTHROPIC] =
        {
            .api = API_ANTHROPIC,
            .temperature_max = 2,
            .input = "messages",
            .thinking = true,
            .guides = GUIDES_FORMAT,
            .token_count = MESSAGES_TOKENS,
            .input_bad_type = "The type of inputs is abnormal",
            .too_long = "prompt is too long: {got} tokens > {max} maximum",
            .read = ep_anthropic_read,
            .combine = ep_chat_combine,
            .answer = &answer_anthropic,
        },
    [FAM_RESPONSES] =
        {
            .api = API_RESPONSES,
            .temperature_max = 2,
            .input = "input",
            .thinking = true,
            .guides = GUIDES_FORMAT,
            .token_count = MESSAGES_TOKENS,
            .input_bad_type = "The type of inputs is abnormal",
            .too_long = "This model's maximum context length is {max} tokens for the input, which "
                        "has {got}. Please shorten it, or send truncation: auto.",
            .read = ep_responses_read,
            .combine = ep_chat_combine,
            .answer = &answer_responses,
        },
    [FAM_LLAMACPP] =
        {
            .api = API_LLAMACPP,
            .input = "prompt",
            .guides = GUIDES_VLLM,
            .text_length = "prompt must have 1 to {max} characters, but has {len}",
            .token_count = "prompt must have 1 to 1048576 tokens, but has {got}",
            .input_missing = "prompt is missing",
            .input_empty_array = "prompt is empty",
            .input_bad_type = "prompt must be a string",
            .read = ep_llamacpp_read,
            .combine = ep_llamacpp_combine,
            .answer = &answer_llamacpp,
        },
    [FAM_OLLAMA_CHAT] =
        OLLAMA_ROW(API_OLLAMA_CHAT, "messages", ep_ollama_chat_read, &answer_ollama_chat),
    [FAM_OLLAMA_GENERATE] =
        OLLAMA_ROW(API_OLLAMA_GENERATE, "prompt", ep_ollama_generate_read, &answer_ollama_generate),
    [FAM_TGIS] =
        {
            .api = API_TGIS,
            .input = "text",
            .new_tokens_default = MAX_NEW_TOKENS_DEFAULT,
            .guides = GUIDES_TGIS,
            .tops_of_prompt = true,
            .text_length = "text must have 1 to {max} characters, got {len}",
            .token_count = "text must have 1 to 1048576 tokens, got {got}",
            .too_long = "input tokens ({got}) plus prefix length (0) must be < {below}",
            .read = ep_tgis_read,
            .combine = ep_tgis_combine,
            .answer = &answer_tgis,
        },
    [FAM_CAIKIT] = CAIKIT_ROW(API_CAIKIT, &answer_caikit),
    [FAM_CAIKIT_GRPC] = CAIKIT_ROW(API_CAIKIT_GRPC, &answer_caikit_grpc),
    [FAM_INFER] = INFER_ROW(API_INFER, "inputs", ep_infer_read, &answer_infer),
    [FAM_INFER_REST] =
        INFER_ROW(API_INFER_REST, "inputs", ep_infer_read, &answer_infer_rest, .all_are_400 = true),
    [FAM_INFER_TEXT] = INFER_ROW(API_INFER_TEXT, "text_input", ep_infer_text_read,
                                 &answer_infer_text, .all_are_400 = true),
};

/* The family of an api; chat has the one the configuration chose. */
const struct family *ep_family_of(const struct endpoint *ep, enum api api) {
    if (api == ep_families[FAM_CHAT].api)
        return &ep_families[ep->conf.openai_vllm_mode ? FAM_CHAT : FAM_CHAT_OWN];
    for (int i = 0; i < FAM_COUNT; i++)
        if (ep_families[i].api == api) return &ep_families[i];
    return NULL;
}
