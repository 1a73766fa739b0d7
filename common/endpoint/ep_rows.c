/* ep_rows: the table of generation parameters, and the orders of the families. */
#include "common/endpoint/ep_rows.h"

#include <float.h>
#include "proto/limits.h"

#define AT(member) offsetof(struct ep_params, member)
#define ABOVE_0                                                                                    \
    { 0, FLT_MAX, R_ON | R_LO_OPEN }
#define FROM_0                                                                                     \
    { 0, FLT_MAX, R_ON }
#define UNIT                                                                                       \
    { 0, 1, R_ON | R_LO_OPEN }
#define UNIT_OPEN                                                                                  \
    { 0, 1, R_ON | R_LO_OPEN | R_HI_OPEN }
#define CLOSED(lo, hi)                                                                             \
    { lo, hi, R_ON }
#define CONFIGURED(lo, hi)                                                                         \
    { lo, hi, R_ON | R_CONFIGURED }
#define I32_FROM(lo)                                                                               \
    { lo, INT32_MAX, R_ON }
#define I32_FROM_1_OR_M1                                                                           \
    { 1, INT32_MAX, R_ON | R_OR_MINUS_1 }
#define ALL(...)                                                                                   \
    { [0 ... FAM_COUNT - 1] = __VA_ARGS__ }
#define NONE                                                                                       \
    {                                                                                              \
        { 0 }                                                                                      \
    }
#define OPENAI(...) [FAM_CHAT] = __VA_ARGS__, [FAM_COMPLETIONS] = __VA_ARGS__
#define TRITON(...) [FAM_TRITON_TOKEN] = __VA_ARGS__, [FAM_TRITON_TEXT] = __VA_ARGS__
#define OLLAMA(...) [FAM_OLLAMA_CHAT] = __VA_ARGS__, [FAM_OLLAMA_GENERATE] = __VA_ARGS__
#define BOOLEAN(name, member, def_, help_)                                                         \
    { name, T_BOOL, AT(member), NULL, NULL, NONE, .help = help_, .def = def_ }
#define CHECKED(name, schema_, help_)                                                              \
    { name, T_CHECK, 0, NULL, NULL, NONE, .help = help_, .schema = schema_ }
#define OPENAI_BOOLEAN(name, member, def_, help_)                                                  \
    { name, T_BOOL, AT(member), NULL, NULL, NONE, .help = help_, .def = def_, .openai_only = true }
#define OPENAI_CHECKED(name, schema_, help_)                                                       \
    { name, T_CHECK, 0, NULL, NULL, NONE, .help = help_, .schema = schema_, .openai_only = true }
#define STRING    "{\"type\":\"string\"}"
#define OBJECT    "{\"type\":\"object\"}"
#define SWITCH    "{\"type\":\"boolean\"}"
#define IDS       "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}"
#define NO_EFFECT "Checked, without effect."

/* clang-format off */
const struct ep_row ep_rows[P_COUNT] = {
    /* ---- which token is chosen */
    [P_TEMPERATURE] = {"temperature", T_F32, AT(temperature),
        "Parameter temperature must be in (0.0,{hi}], got {got}.", NULL,
        {OPENAI(FROM_0), [FAM_CHAT_OWN] = CLOSED(0, 2), [FAM_VLLM] = FROM_0, [FAM_TGI] = ABOVE_0,
         [FAM_NATIVE] = ABOVE_0, TRITON(ABOVE_0)},
        .help = "Logits are divided by it. 0, where it is allowed: greedy.",
        .openai = FROM_0, .openai_text = "Parameter temperature must be at least 0, got {got}."},
    [P_TOP_K] = {"top_k", T_I32, AT(top_k),
        "Parameter top_k must be in -1 || (0,2147483647], got {got}", NULL,
        {OPENAI(I32_FROM_1_OR_M1), [FAM_CHAT_OWN] = I32_FROM(0), [FAM_VLLM] = I32_FROM_1_OR_M1,
         [FAM_TGI] = I32_FROM(1), [FAM_NATIVE] = I32_FROM(1), TRITON(I32_FROM(0))},
        .help = "Only the k likeliest tokens are drawn from. -1 and 0, where they are allowed: all.",
        .openai = CLOSED(-1, INT32_MAX), .openai_text = "Parameter top_k must be in [-1,2147483647], got {got}."},
    [P_TOP_P] = {"top_p", T_F32, AT(top_p),
        "Parameter top_p must be in (0.0,1.0], got {got}.", NULL,
        {OPENAI(UNIT), [FAM_CHAT_OWN] = UNIT, [FAM_VLLM] = UNIT, [FAM_TGI] = UNIT_OPEN, [FAM_NATIVE] = UNIT_OPEN, TRITON(UNIT)},
        .help = "Only the likeliest tokens that together have this probability are drawn from.",
        .openai = CLOSED(0, 1), .openai_text = "Parameter top_p must be in [0.0,1.0], got {got}."},
    [P_TYPICAL_P] = {"typical_p", T_F32, AT(typical_p),
        "Parameter typical_p must be in (0.0,1.0], got {got}.", NULL, ALL(UNIT),
        .help = "Locally typical sampling: the probability that is kept. 1: off."},
    [P_MIN_P] = {"min_p", T_F32, AT(min_p),
        "Parameter min_p must be in [0.0,1.0], got {got}.", NULL, ALL(CLOSED(0, 1)),
        .help = "Tokens less likely than this share of the likeliest one are not drawn. 0: off."},
    [P_DO_SAMPLE] = BOOLEAN("do_sample", do_sample, NULL,
        "Whether tokens are drawn. Absent: when temperature, top_k or top_p asks for it."),
    [P_SEED] = {"seed", T_U64, AT(seed), NULL, NULL, NONE,
        .help = "The same seed and request give the same answer. Absent: a random one.",
        .openai = {-9223372036854775808.0, 18446744073709551615.0, R_ON},
        .openai_text = "Parameter seed must be an integer of 64 bits, got {got}.",
        .openai_type_text = "seed must be integer type."},
    [P_REPETITION_PENALTY] = {"repetition_penalty", T_F32, AT(repetition_penalty),
        "Parameter 'repetition_penalty' must be in (0.0, {hi}], got {got}.", NULL,
        {OPENAI({0, 2, R_ON | R_LO_OPEN}), [FAM_CHAT_OWN] = {0, 2, R_ON | R_LO_OPEN}, [FAM_VLLM] = ABOVE_0, [FAM_TGI] = ABOVE_0,
         [FAM_NATIVE] = ABOVE_0, TRITON(ABOVE_0), [FAM_RESPONSES] = {0, 2, R_ON | R_LO_OPEN}, [FAM_INFER] = ABOVE_0,
         [FAM_INFER_REST] = ABOVE_0, [FAM_INFER_TEXT] = ABOVE_0},
        .help = "Above 1: tokens of prompt and answer become less likely. 1: off."},
    [P_REPEAT_PENALTY] = {"repeat_penalty", T_F32, AT(repetition_penalty),
        "Parameter repeat_penalty must be above 0, got {got}.", NULL, ALL(ABOVE_0),
        .help = "Above 1: tokens among the last repeat_last_n become less likely. 1: off.", .def = "1"},
    [P_REPEAT_LAST_N] = {"repeat_last_n", T_I32, AT(repeat_last_n),
        "Parameter repeat_last_n must be in [-1,2147483647], got {got}.", NULL, ALL(CLOSED(-1, INT32_MAX)),
        .help = "How many tokens at the end the penalties look at. 0: none, -1: all.", .def = "64"},
    [P_FREQUENCY_PENALTY] = {"frequency_penalty", T_F32, AT(frequency_penalty),
        "Parameter frequency_penalty should be in [-2.0, 2.0], got {got}.", NULL, ALL(CLOSED(-2, 2)),
        .help = "Subtracted from a token's logit for each time it is in the answer.", .def = "0"},
    [P_PRESENCE_PENALTY] = {"presence_penalty", T_F32, AT(presence_penalty),
        "Parameter presence_penalty not in [-2.0, 2.0], but got {got}.", NULL, ALL(CLOSED(-2, 2)),
        .help = "Subtracted from a token's logit once it is in the answer.", .def = "0"},
    [P_LOGIT_BIAS] = CHECKED("logit_bias",
        "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\"}}",
        "Token ids, as text, and what is added to their logits, -100 .. 100; at most 1024. OpenAI's manner cuts values beyond."),

    /* ---- how long */
    [P_MAX_NEW_TOKENS] = {"max_new_tokens", T_I32, AT(max_new_tokens),
        "Parameter max_new_tokens must be in (0,2147483647], got {got}.", NULL, ALL(I32_FROM(1)),
        .help = "Tokens of the answer at most; the server's maxIterTimes bounds it too.", .def = "20"},
    [P_MAX_TOKENS] = {"max_tokens", T_I32, AT(max_tokens),
        "Parameter max_tokens must be (0,2147483647], got {got}",
        "Parameter max_tokens not number_integer", ALL(I32_FROM(1)),
        .help = "Tokens of the answer at most. Absent: the server's maxIterTimes, which bounds it too."},
    [P_COMPLETION_TOKENS] = {"max_tokens", T_I32, AT(max_tokens),
        "Parameter max_tokens must be (0,2147483647], got {got}",
        "Parameter max_tokens not number_integer", ALL(I32_FROM(0)),
        .help = "Tokens of the answer at most. Absent: the server's maxIterTimes, which bounds it too. 0, with echo alone: the prompt is the answer."},
    [P_MAX_COMPLETION_TOKENS] = {"max_completion_tokens", T_I32, AT(max_completion_tokens),
        "Parameter max_completion_tokens must be (0,2147483647], got {got}",
        "Parameter max_completion_tokens not number_integer", ALL(I32_FROM(1)),
        .help = "max_tokens by its newer name; this one wins."},
    [P_MAX_OUTPUT_TOKENS] = {"max_output_tokens", T_I32, AT(max_tokens),
        "Parameter max_output_tokens must be in [1,2147483647], got {got}.", NULL, ALL(I32_FROM(1)),
        .help = "Tokens of the answer at most, thinking included. Absent: the server's maxIterTimes, which bounds it too."},
    [P_NUM_PREDICT] = {"num_predict", T_I32, AT(max_tokens),
        "Parameter num_predict must be in [-2,2147483647], got {got}.", NULL, ALL(CLOSED(-2, INT32_MAX)),
        .help = "Tokens of the answer at most. Below 1: as many as there is room for.", .def = "-1"},
    [P_N_PREDICT] = {"n_predict", T_I32, AT(max_tokens),
        "Parameter n_predict must be in [-1,2147483647], got {got}.", NULL, ALL(CLOSED(-1, INT32_MAX)),
        .help = "Tokens of the answer at most. -1: as many as there is room for. 0: the prompt is computed, and nothing made.", .def = "-1"},
    [P_NUM_CTX] = {"num_ctx", T_I32, AT(num_ctx),
        "Parameter num_ctx must be in [0,2147483647], got {got}.", NULL, ALL(CLOSED(0, INT32_MAX)),
        .help = "Tokens that prompt and answer may have together; never more than the server allows. 0: as many as that."},
    [P_MIN_TOKENS] = {"min_tokens", T_I32, AT(min_tokens),
        "Parameter min_tokens must be in [0,2147483647], got {got}.", NULL, ALL(I32_FROM(0)),
        .help = "The answer does not end before it has this many tokens.", .def = "0"},
    [P_STOP] = {"stop", T_CHECK, 0, NULL, NULL,
        {OPENAI(CLOSED(1, STOP_STRING_UNITS_MAX)), [FAM_CHAT_OWN] = CLOSED(1, 1024), [FAM_VLLM] = CLOSED(1, STOP_STRING_UNITS_MAX),
         [FAM_TGI] = CLOSED(1, 1024), [FAM_NATIVE] = CLOSED(1, 1024), TRITON(CLOSED(1, 1024)),
         [FAM_RESPONSES] = CLOSED(1, STOP_STRING_UNITS_MAX), OLLAMA(CLOSED(1, STOP_STRING_UNITS_MAX)),
         [FAM_TGIS] = CLOSED(1, 1024), [FAM_LLAMACPP] = CLOSED(1, STOP_STRING_UNITS_MAX),
         [FAM_CAIKIT] = CLOSED(1, 1024), [FAM_CAIKIT_GRPC] = CLOSED(1, 1024), [FAM_INFER] = CLOSED(1, STOP_STRING_UNITS_MAX),
         [FAM_INFER_REST] = CLOSED(1, STOP_STRING_UNITS_MAX), [FAM_INFER_TEXT] = CLOSED(1, STOP_STRING_UNITS_MAX)},
        .help = "Texts that end the answer, which is cut before them. In a list each has at most 1024 characters, all together 32768.",
        .schema = "{\"oneOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":{hi}},"
                  "{\"type\":\"array\",\"maxItems\":{hi},\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":1024}}]}"},
    [P_STOP_SEQUENCES] = CHECKED("stop_sequences", "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
        "Texts that end the answer, which is cut before them."),
    [P_STOP_TOKEN_IDS] = CHECKED("stop_token_ids", IDS, "Tokens that end the answer; at most 1024 different ones."),
    [P_INCLUDE_STOP] = CHECKED("include_stop_str_in_output", SWITCH, "The answer keeps the stop text that ended it. Read beside stop and stop_token_ids."),
    [P_SKIP_SPECIAL] = BOOLEAN("skip_special_tokens", skip_special, "true", "false: special tokens show as text."),
    [P_IGNORE_EOS] = BOOLEAN("ignore_eos", ignore_eos, "false", "true: the end-of-text token does not end the answer."),

    /* ---- how many */
    [P_N] = {"n", T_U64, AT(n), "Parameter [n] should be in [1, 8192], got {got}. ", NULL, ALL(CONFIGURED(1, 8192)),
        .help = "Answers; at most maxN, maxPrefillBatchSize and maxBatchSize of the server.", .def = "1"},
    [P_N_CMPL] = {"n_cmpl", T_U64, AT(n), "Parameter n_cmpl must be in [1, 8192], got {got}.", NULL, ALL(CONFIGURED(1, 8192)),
        .help = "Answers, in a list; at most maxN, maxPrefillBatchSize and maxBatchSize of the server.", .def = "1"},
    [P_BEST_OF] = {"best_of", T_U64, AT(best_of), "Parameter [best_of] should be in [1, 128], got {got}.",
        NULL, ALL(CONFIGURED(1, 128)), .help = "Answers that are drawn, of which the n likeliest are returned; at most maxBatchSize of the server."},
    [P_BEAM] = BOOLEAN("use_beam_search", beam, "false", "The n likeliest answers, best first; at most 128 tokens."),

    [P_LENGTH_PENALTY] = {"length_penalty", T_F32, AT(length_penalty), NULL, NULL, NONE,
        .help = "Checked, without effect: beams are ranked by the sum of their log-probabilities.",
        .openai_only = true},

    /* ---- log-probabilities: chat says bool and top_logprobs, completions a number, TGI top_n_tokens */
    [P_CHAT_LOGPROBS] = CHECKED("logprobs", SWITCH, "The log-probability of each token of the answer."),
    [P_TOP_LOGPROBS] = {"top_logprobs", T_I32, AT(top_logprobs),
        "Parameter top logprobs must be in [0, 20], got {got}.", NULL, ALL(CLOSED(0, TOP_LOGPROBS_MAX)),
        .help = "Alternatives shown for each token; not beside logprobs false, in OpenAI's manner only beside logprobs true."},
    [P_OLLAMA_LOGPROBS] = BOOLEAN("logprobs", chat_logprobs, "false", "The log-probability of each token of the answer."),
    [P_OLLAMA_TOPS] = {"top_logprobs", T_I32, AT(top_logprobs),
        "top_logprobs must be between 0 and 20", NULL, ALL(CLOSED(0, TOP_LOGPROBS_MAX)),
        .help = "Alternatives shown for each token, where logprobs is true.", .def = "0"},
    [P_LOGPROBS] = {"logprobs", T_I32, AT(logprobs), "logprobs should be in range [0, 5], got {got}.",
        NULL, ALL(CLOSED(0, 5)), .help = "Log-probabilities, with this many alternatives for each token."},
    [P_PROMPT_LOGPROBS] = {"prompt_logprobs", T_I32, AT(prompt_logprobs),
        "Parameter prompt_logprobs must be in [0, 20], got {got}.", NULL, ALL(CLOSED(0, TOP_LOGPROBS_MAX)),
        .help = "Log-probabilities of the prompt, with this many alternatives; above 0 not in a stream."},
    [P_N_PROBS] = {"n_probs", T_I32, AT(top_logprobs),
        "Parameter n_probs must be in [0, 20], got {got}.", NULL, ALL(CLOSED(0, TOP_LOGPROBS_MAX)),
        .help = "Above 0: log-probabilities of the tokens, with this many alternatives.", .def = "0"},
    [P_TOP_N_TOKENS] = {"top_n_tokens", T_I32, AT(top_n_tokens),
        "Parameter top_n_tokens must be in [0,5], got {got}.", NULL, ALL(CLOSED(0, 5)),
        .help = "Alternatives shown for each token, with details or in a stream."},

    /* ---- options of the answer and of the service */
    [P_WATERMARK] = BOOLEAN("watermark", watermark, NULL, NO_EFFECT),
    [P_BATCH_SIZE] = {"batch_size", T_I32, AT(batch_size),
        "Parameter batch_size must be in (0,2147483647], got {got}.", NULL, ALL(I32_FROM(1)), .help = NO_EFFECT},
    [P_PRIORITY] = {"priority", T_U64, AT(priority), "Parameter priority must be in [1,5], got {got}.",
        NULL, ALL(CLOSED(1, 5)), .help = "1 is served first, 5 last.", .def = "5"},
    [P_OPENAI_PRIORITY] = {"priority", T_I64, AT(openai_priority), NULL, NULL, NONE,
        .help = "The smaller is served first; cut to 1 .. 5."},
    [P_TIMEOUT] = {"timeout", T_U64, AT(timeout),
        "Parameter timeout must be strictly positive and small than 65535 seconds, got {got}.", NULL,
        ALL(CLOSED(1, 65535)), .help = "Seconds the request may take. Absent: the server's e2eTimeout."},
    [P_DETAILS] = BOOLEAN("details", details, "false", "The answer says why it ended, how long it is, and of which tokens it is made."),
    [P_DECODER_INPUT_DETAILS] = BOOLEAN("decoder_input_details", decoder_input_details, "false",
        "The tokens of the prompt with their log-probabilities; not in a stream."),
    [P_RETURN_FULL_TEXT] = BOOLEAN("return_full_text", return_full_text, "false", "The answer begins with the prompt."),
    [P_PERF_STAT] = BOOLEAN("perf_stat", perf_stat, "false", "With details, in a stream: the time of each token."),
    [P_TRUNCATE] = {"truncate", T_I32, AT(truncate), "truncate must be in (0,2147483647], got {got}.",
        NULL, ALL(I32_FROM(1)), .help = "Keeps this many tokens at the end of the prompt."},
    [P_TRUNCATE_PROMPT_TOKENS] = {"truncate_prompt_tokens", T_I32, AT(truncate_prompt_tokens),
        "Parameter truncate_prompt_tokens must be in -1 || (0,2147483647], got {got}", NULL,
        ALL(I32_FROM_1_OR_M1), .help = "Keeps this many tokens at the end of the prompt; -1: as many as fit."},
    [P_TRUNCATION_SIDE] = OPENAI_CHECKED("truncation_side", "{\"type\":\"string\",\"enum\":[\"left\",\"right\"]}",
        "Which side of the prompt truncate_prompt_tokens takes away: left, the default, keeps its end."),
    [P_ADAPTER_ID] = CHECKED("adapter_id", "{\"type\":\"string\",\"pattern\":\"^[a-zA-Z0-9_./-]{1,256}$\"}",
        "A LoRA adapter; \"None\": the model itself."),
    [P_VLLM_MODEL] = CHECKED("model", "{\"type\":\"string\",\"minLength\":1,\"maxLength\":256}",
        "The model, or a LoRA adapter."),
    [P_TEMPLATE_KWARGS] = CHECKED("chat_template_kwargs", OBJECT,
        "Variables of the chat template; enable_thinking and thinking_budget among them."),
    [P_REQUEST_ID] = CHECKED("request_id", STRING,
        "The answer's id, and what stopInfer takes: 1 to 256 letters, digits, _ and -. Another text is ignored."),
    [P_ECHO] = BOOLEAN("echo", echo, "false", "The answer begins with the prompt; of a chat, with the message it continues."),
    [P_SUFFIX] = CHECKED("suffix", "{\"type\":\"string\",\"nullable\":true,\"enum\":[null]}", "Not supported: anything but null is refused."),
    [P_BEAM_ELSEWHERE] = CHECKED("use_beam_search", "{\"type\":\"boolean\",\"enum\":[false]}", "Refused when true."),
    [P_ADD_SPECIAL] = BOOLEAN("add_special_tokens", add_special, NULL,
        "Whether the tokenizer adds its special tokens. Absent: to a prompt, not to a chat, whose template writes them."),
    [P_ADD_GENERATION_PROMPT] = BOOLEAN("add_generation_prompt", add_generation_prompt, "true", "Whether the template opens an answer."),
    [P_CONTINUE_FINAL] = BOOLEAN("continue_final_message", continue_final, "false", "The answer goes on where the last message ends."),
    [P_STREAM] = BOOLEAN("stream", stream, "false", "The answer comes as events, while it is written."),
    [P_STREAM_OPTIONS] = CHECKED("stream_options",
        "{\"type\":\"object\",\"properties\":{"
        "\"include_usage\":{\"type\":\"boolean\",\"description\":\"Usage in a chunk of its own, the last.\"},"
        "\"continuous_usage_stats\":{\"type\":\"boolean\",\"description\":\"Usage in every chunk.\"}}}",
        "What a stream says of its usage."),

    [P_RETURN_TOKEN_IDS] = OPENAI_BOOLEAN("return_token_ids", return_token_ids, "false",
        "The ids of the prompt as prompt_token_ids, of a stream once, and those of each choice as token_ids."),
    [P_TOKENS_AS_IDS] = OPENAI_BOOLEAN("return_tokens_as_token_ids", tokens_as_ids, "false",
        "Log-probabilities name a token by its id, as token_id:123."),
    [P_SPACES_BETWEEN] = OPENAI_BOOLEAN("spaces_between_special_tokens", spaces_between, "true", NO_EFFECT),
    [P_CACHE_SALT] = OPENAI_CHECKED("cache_salt", "{\"type\":\"string\",\"minLength\":1,\"maxLength\":256}",
        "Only requests with the same salt share prompt blocks with this one."),
    [P_LOGITS_PROCESSORS] = CHECKED("logits_processors", "{\"type\":\"array\",\"maxItems\":0,\"items\":{}}",
        "Not supported: any is refused."),
    [P_LORA] = CHECKED("lora", "{\"type\":\"array\",\"maxItems\":0,\"items\":{}}",
        "Not supported: any is refused. An adapter is named as model."),
    [P_PROMPT_EMBEDS] = CHECKED("prompt_embeds", "{\"type\":\"string\",\"nullable\":true,\"enum\":[null]}",
        "Not supported: anything but null is refused."),

    /* ---- which tokens are allowed at all */
    [P_GUIDE] = {NULL, T_CHECK, 0, NULL, NULL, NONE, .help = NULL},
    [P_BAD_WORDS] = CHECKED("bad_words", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1}}", "Texts that the answer may not hold."),
    [P_ALLOWED_TOKEN_IDS] = CHECKED("allowed_token_ids", IDS, "The only tokens that the answer may hold."),

    /* ---- how fast */
    [P_LOOKUP_TOKENS] = {"prompt_lookup_num_tokens", T_I32, AT(lookup_tokens),
        "Parameter prompt_lookup_num_tokens must be in [0,{hi}], got {got}.", NULL,
        ALL(CLOSED(0, LOOKUP_TOKENS_MAX)),
        .help = "Tokens guessed from the text so far and checked in one step; the answer stays the same."},
};

/* What upstream servers know beyond the vendor, for the families with parameters at the top level
 * (inference-api 16). Checked after the vendor's own, so that its order stays. */
#define UPSTREAM_OPENAI                                                                            \
    P_MIN_P, P_MIN_TOKENS, P_TRUNCATE_PROMPT_TOKENS, P_MAX_COMPLETION_TOKENS, P_LOGIT_BIAS,        \
        P_OPENAI_PRIORITY, P_STREAM_OPTIONS, P_BAD_WORDS, P_ALLOWED_TOKEN_IDS, P_PROMPT_LOGPROBS,  \
        P_REQUEST_ID, P_LOOKUP_TOKENS, P_TRUNCATION_SIDE, P_RETURN_TOKEN_IDS, P_TOKENS_AS_IDS,     \
        P_SPACES_BETWEEN, P_LENGTH_PENALTY, P_CACHE_SALT, P_LOGITS_PROCESSORS

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
    P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_BEST_OF, P_N, P_BEAM, P_LOGPROBS, P_COMPLETION_TOKENS, P_STREAM,
    P_GUIDE, UPSTREAM_OPENAI, P_ECHO, P_SUFFIX, P_PROMPT_EMBEDS, P_END,
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
static const uint8_t order_anthropic[] = {
    P_STOP_SEQUENCES, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_MAX_TOKENS, P_STREAM, P_GUIDE, P_END,
};
static const uint8_t order_responses[] = {
    P_STOP, P_STOP_TOKEN_IDS, P_INCLUDE_STOP, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_MIN_P, P_SEED, P_TEMPLATE_KWARGS,
    P_REPETITION_PENALTY, P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_IGNORE_EOS, P_CHAT_LOGPROBS, P_TOP_LOGPROBS,
    P_MAX_OUTPUT_TOKENS, P_MIN_TOKENS, P_STREAM, P_GUIDE, P_LOGIT_BIAS, P_BAD_WORDS, P_ALLOWED_TOKEN_IDS, P_OPENAI_PRIORITY,
    P_LOOKUP_TOKENS, P_CACHE_SALT, P_END,
};
static const uint8_t order_ollama[] = { /* of `options`, as Ollama calls them */
    P_TEMPERATURE, P_TOP_K, P_TOP_P, P_MIN_P, P_TYPICAL_P, P_REPEAT_PENALTY, P_REPEAT_LAST_N, P_FREQUENCY_PENALTY,
    P_PRESENCE_PENALTY, P_SEED, P_NUM_PREDICT, P_NUM_CTX, P_STOP, P_GUIDE, P_END,
};
static const uint8_t order_llamacpp[] = {
    P_N_PREDICT, P_MAX_TOKENS, P_MAX_COMPLETION_TOKENS, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_MIN_P, P_TYPICAL_P, P_REPEAT_PENALTY,
    P_REPEAT_LAST_N, P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SEED, P_STOP, P_IGNORE_EOS, P_LOGIT_BIAS, P_N_PROBS, P_N, P_N_CMPL, P_LORA, P_STREAM,
    P_GUIDE, P_END,
};
static const uint8_t early_ollama[] = {P_STREAM, P_OLLAMA_LOGPROBS, P_OLLAMA_TOPS, P_END}; /* beside them */
static const uint8_t order_tgis[] = {
    P_TEMPERATURE, P_TOP_K, P_TOP_P, P_TYPICAL_P, P_SEED, P_REPETITION_PENALTY, P_MAX_NEW_TOKENS, P_MIN_TOKENS, P_STOP,
    P_INCLUDE_STOP, P_TRUNCATE, P_TOP_LOGPROBS, P_DETAILS, P_DECODER_INPUT_DETAILS, P_RETURN_FULL_TEXT, P_GUIDE, P_END,
};
static const uint8_t order_infer[] = {
    P_IGNORE_EOS, P_STOP, P_STOP_TOKEN_IDS, P_INCLUDE_STOP, P_TEMPERATURE, P_TOP_K, P_TOP_P, P_MIN_P, P_SEED, P_REPETITION_PENALTY,
    P_FREQUENCY_PENALTY, P_PRESENCE_PENALTY, P_SKIP_SPECIAL, P_BEST_OF, P_N, P_MAX_TOKENS, P_MIN_TOKENS, P_TOP_LOGPROBS, P_BAD_WORDS,
    P_ALLOWED_TOKEN_IDS, P_LOGIT_BIAS, P_PRIORITY, P_TIMEOUT, P_RETURN_FULL_TEXT, P_LOOKUP_TOKENS, P_GUIDE, P_END,
};
static const uint8_t early_chat[] = {P_ADD_GENERATION_PROMPT, P_CONTINUE_FINAL, P_ADD_SPECIAL, P_END};
static const uint8_t early_completions[] = {P_ADD_SPECIAL, P_END};
/* clang-format on */

const uint8_t *const ep_early[FAM_COUNT] = {
    [FAM_CHAT] = early_chat,
    [FAM_CHAT_OWN] = early_chat,
    [FAM_COMPLETIONS] = early_completions,
    [FAM_OLLAMA_CHAT] = early_ollama,
    [FAM_OLLAMA_GENERATE] = early_ollama,
};

const uint8_t *const ep_orders[FAM_COUNT] = {
    [FAM_CHAT] = order_chat,
    [FAM_CHAT_OWN] = order_chat_own,
    [FAM_COMPLETIONS] = order_completions,
    [FAM_TGI] = order_tgi,
    [FAM_VLLM] = order_vllm,
    [FAM_NATIVE] = order_native,
    [FAM_TRITON_TOKEN] = order_triton_token,
    [FAM_TRITON_TEXT] = order_triton_text,
    [FAM_ANTHROPIC] = order_anthropic,
    [FAM_RESPONSES] = order_responses,
    [FAM_OLLAMA_CHAT] = order_ollama,
    [FAM_OLLAMA_GENERATE] = order_ollama,
    [FAM_TGIS] = order_tgis,
    [FAM_LLAMACPP] = order_llamacpp,
    [FAM_CAIKIT] = order_tgis,
    [FAM_CAIKIT_GRPC] = order_tgis,
    [FAM_INFER] = order_infer,
    [FAM_INFER_REST] = order_infer,
    [FAM_INFER_TEXT] = order_infer,
};

bool ep_rows_as_openai(enum fam fam, bool openai_manner) {
    bool openai = fam == FAM_CHAT || fam == FAM_CHAT_OWN || fam == FAM_COMPLETIONS;
    return (openai_manner && openai) || fam >= FAM_NOT_OF_REFERENCE;
}

const struct ep_range *ep_row_range(const struct ep_row *row, enum fam fam, bool openai_manner) {
    bool as_openai = ep_rows_as_openai(fam, openai_manner);
    return as_openai && row->openai.how != 0 ? &row->openai : &row->range[fam];
}
