/* Goal: each parameter of inference-api 4.2 and 4.3 is taken and refused at its bounds in each
 * family that reads it, with its text, and ignored in the others; stop strings (4.6), n and best_of
 * (4.4). Method: both sides of every bound, wrong types, null, by table. */
#include "tests/unit/common/endpoint/checks.h"

/* ---- the parameters, by table: 4.2 and 4.3. Both sides of every bound, in each family that reads
 * the parameter. */

struct family_body {
    const char *path, *before, *after;
};
enum { CHAT, COMPL, TGI, VLLM, NATIVE, TOKEN, TEXT, N_FAMILIES };
static const struct family_body families[N_FAMILIES] = {
    [CHAT] = {"/v1/chat/completions",
              "{\"model\":\"qwen\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],", "}"},
    [COMPL] = {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\",", "}"},
    [TGI] = {"/generate", "{\"inputs\":\"x\",\"parameters\":{", "}}"},
    [VLLM] = {"/generate", "{\"prompt\":\"x\",", "}"},
    [NATIVE] = {"/infer", "{\"inputs\":\"x\",\"parameters\":{", "}}"},
    [TOKEN] = {"/v2/models/qwen/infer",
               "{\"inputs\":[{\"name\":\"i\",\"shape\":[1],\"datatype\":\"UINT32\",\"data\":[5]}],"
               "\"outputs\":[{\"name\":\"o\"}],\"parameters\":{",
               "}}"},
    [TEXT] = {"/v2/models/qwen/generate", "{\"text_input\":\"x\",\"parameters\":{", "}}"},
};

static void check_param(struct fixture *f, int fam, const char *key, const char *value,
                        const char *text) {
    char body[1024];
    snprintf(body, sizeof(body), "%s\"%s\":%s%s", families[fam].before, key, value,
             families[fam].after);
    check(f, families[fam].path, body, text == NULL ? 200 : 422, text);
}

/* A text with %s where the value stands. */
static void check_bad(struct fixture *f, int fam, const char *key, const char *value,
                      const char *pattern) {
    char text[512];
    const char *at = strstr(pattern, "%s");
    if (at == NULL)
        snprintf(text, sizeof(text), "%s", pattern);
    else
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - pattern), pattern, value, at + 2);
    check_param(f, fam, key, value, text);
}

#define B(f) (1u << (f))
static const unsigned OPENAI = B(CHAT) | B(COMPL), OPENAI_VLLM = B(CHAT) | B(COMPL) | B(VLLM),
                      TRITON = B(TOKEN) | B(TEXT),
                      NEW_TOKENS = B(TGI) | B(NATIVE) | B(TOKEN) | B(TEXT),
                      ALL = (1u << N_FAMILIES) - 1;

static void bounds(void **state) {
    struct fixture *f = *state;
    static const char temperature[] = "Parameter temperature must be in (0.0,3.40282e+38], got %s.";
    static const char top_k[] = "Parameter top_k must be in -1 || (0,2147483647], got %s";
    static const char top_p[] = "Parameter top_p must be in (0.0,1.0], got %s.";
    static const char typical[] = "Parameter typical_p must be in (0.0,1.0], got %s.";
    static const char penalty_2[] = "Parameter 'repetition_penalty' must be in (0.0, 2], got %s.";
    static const char penalty[] =
        "Parameter 'repetition_penalty' must be in (0.0, 3.40282e+38], got %s.";
    static const char frequency[] = "Parameter frequency_penalty should be in [-2.0, 2.0], got %s.";
    static const char presence[] = "Parameter presence_penalty not in [-2.0, 2.0], but got %s.";
    static const char new_tokens[] = "Parameter max_new_tokens must be in (0,2147483647], got %s.";
    static const char max_tokens[] = "Parameter max_tokens must be (0,2147483647], got %s";
    static const char completion[] =
        "Parameter max_completion_tokens must be (0,2147483647], got %s";
    static const char min_p[] = "Parameter min_p must be in [0.0,1.0], got %s.";
    static const char min_tokens[] = "Parameter min_tokens must be in [0,2147483647], got %s.";
    static const char priority[] = "Parameter priority must be in [1,5], got %s.";
    static const char timeout[] =
        "Parameter timeout must be strictly positive and small than 65535 seconds, got %s.";
    static const char batch[] = "Parameter batch_size must be in (0,2147483647], got %s.";
    static const char truncate[] = "truncate must be in (0,2147483647], got %s.";
    static const char lookup[] = "Parameter prompt_lookup_num_tokens must be in [0,16], got %s.";
    static const char truncate_prompt[] =
        "Parameter truncate_prompt_tokens must be in -1 || (0,2147483647], got %s";
    const struct {
        unsigned fams;
        const char *key;
        const char *good[6], *bad[6];
        const char *text, *wrong_type, *type_text;
    } rows[] = {
        {OPENAI_VLLM,
         "temperature",
         {"0", "0.0", "1", "3e38"},
         {"-0.1", "3.5e38", "-1"},
         temperature,
         "'1'",
         TYPE("temperature", "float")},
        {NEW_TOKENS,
         "temperature",
         {"1e-6", "1", "3e38"},
         {"0", "0.0", "1e-300", "3.5e38"},
         temperature,
         "true",
         TYPE("temperature", "float")},
        {OPENAI_VLLM,
         "top_k",
         {"-1", "1", "2147483647"},
         {"0", "-2", "2147483648"},
         top_k,
         "1.0",
         TYPE("top_k", "integer")},
        {B(TGI) | B(NATIVE),
         "top_k",
         {"1", "2147483647"},
         {"0", "-1", "2147483648"},
         top_k,
         "1.0",
         TYPE("top_k", "integer")},
        {TRITON,
         "top_k",
         {"0", "1", "2147483647"},
         {"-1", "2147483648"},
         top_k,
         "'1'",
         TYPE("top_k", "integer")},
        {OPENAI_VLLM | TRITON,
         "top_p",
         {"1", "1.0", "0.000001"},
         {"0", "1.1", "-1"},
         top_p,
         "[1]",
         TYPE("top_p", "float")},
        {B(TGI) | B(NATIVE),
         "top_p",
         {"0.999", "0.000001"},
         {"0", "1.0", "1", "1.5"},
         top_p,
         "{}",
         TYPE("top_p", "float")},
        {B(TGI) | B(NATIVE) | B(TEXT),
         "typical_p",
         {"1", "0.1"},
         {"0", "1.1"},
         typical,
         "'x'",
         TYPE("typical_p", "float")},
        {OPENAI,
         "repetition_penalty",
         {"0.1", "2", "2.0"},
         {"0", "2.1", "-1"},
         penalty_2,
         "'x'",
         TYPE("repetition_penalty", "float")},
        {B(VLLM) | NEW_TOKENS,
         "repetition_penalty",
         {"0.1", "2.1", "3e38"},
         {"0", "-1", "1e39"},
         penalty,
         "'x'",
         TYPE("repetition_penalty", "float")},
        {OPENAI_VLLM | B(TGI),
         "frequency_penalty",
         {"-2", "2.0"},
         {"-2.1", "2.1"},
         frequency,
         "'x'",
         TYPE("frequency_penalty", "float")},
        {OPENAI_VLLM,
         "presence_penalty",
         {"-2", "2.0"},
         {"-2.1", "2.1"},
         presence,
         "'x'",
         TYPE("presence_penalty", "float")},
        {NEW_TOKENS,
         "max_new_tokens",
         {"1", "2147483647"},
         {"0", "-1", "2147483648"},
         new_tokens,
         "1.5",
         TYPE("max_new_tokens", "integer")},
        {OPENAI_VLLM,
         "max_tokens",
         {"1", "2147483647"},
         {"0", "-1", "2147483648"},
         max_tokens,
         "1.0",
         "Parameter max_tokens not number_integer"},
        {OPENAI,
         "max_completion_tokens",
         {"1", "2147483647"},
         {"0", "2147483648"},
         completion,
         "'1'",
         "Parameter max_completion_tokens not number_integer"},
        {ALL,
         "prompt_lookup_num_tokens",
         {"0", "1", "16"},
         {"-1", "17", "2147483648"},
         lookup,
         "'x'",
         TYPE("prompt_lookup_num_tokens", "integer")},
        {OPENAI_VLLM, "min_p", {"0", "1"}, {"-0.1", "1.1"}, min_p, "'x'", TYPE("min_p", "float")},
        {OPENAI_VLLM,
         "min_tokens",
         {"0", "2147483647"},
         {"-1", "2147483648"},
         min_tokens,
         "1.0",
         TYPE("min_tokens", "integer")},
        {ALL,
         "seed",
         {"0", "9223372036854775808", "18446744073709551615"},
         {NULL},
         "",
         "-1",
         TYPE("seed", "unsigned")},
        {ALL, "seed", {"1"}, {NULL}, "", "18446744073709551616", TYPE("seed", "unsigned")},
        {B(NATIVE) | TRITON,
         "priority",
         {"1", "5"},
         {"0", "6"},
         priority,
         "-1",
         TYPE("priority", "unsigned")},
        {B(NATIVE) | TRITON,
         "timeout",
         {"1", "65535"},
         {"0", "65536"},
         timeout,
         "1.5",
         TYPE("timeout", "unsigned")},
        {TRITON,
         "batch_size",
         {"1", "2147483647"},
         {"0", "2147483648"},
         batch,
         "'1'",
         TYPE("batch_size", "integer")},
        {B(TGI),
         "truncate",
         {"1", "2147483647"},
         {"0", "-1"},
         truncate,
         "'1'",
         TYPE("truncate", "integer")},
        {OPENAI,
         "truncate_prompt_tokens",
         {"-1", "1"},
         {"0", "-2"},
         truncate_prompt,
         "'1'",
         TYPE("truncate_prompt_tokens", "integer")},
        {B(TGI),
         "top_n_tokens",
         {"0", "5"},
         {"-1", "6"},
         "Parameter top_n_tokens must be in [0,5], got %s.",
         "'1'",
         TYPE("top_n_tokens", "integer")},
        {B(COMPL),
         "logprobs",
         {"0", "5"},
         {"-1", "6"},
         "logprobs should be in range [0, 5], got %s.",
         "true",
         TYPE("logprobs", "integer")},
        {B(CHAT),
         "top_logprobs",
         {"0", "20"},
         {"-1", "21"},
         "Parameter top logprobs must be in [0, 20], got %s.",
         "1.0",
         TYPE("top_logprobs", "integer")},
        {OPENAI_VLLM,
         "n",
         {"1"},
         {"0", "8193"},
         "Parameter [n] should be in [1, 8192], got %s. ",
         "-1",
         TYPE("n", "unsigned")},
        {OPENAI_VLLM | B(TGI),
         "best_of",
         {"1"},
         {"0", "129"},
         "Parameter [best_of] should be in [1, 128], got %s.",
         "-1",
         TYPE("best_of", "unsigned")},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int fam = 0; fam < N_FAMILIES; fam++) {
            if (!(rows[i].fams & B(fam))) continue;
            for (size_t k = 0; k < 6 && rows[i].good[k] != NULL; k++)
                check_param(f, fam, rows[i].key, rows[i].good[k], NULL);
            for (size_t k = 0; k < 6 && rows[i].bad[k] != NULL; k++)
                check_bad(f, fam, rows[i].key, rows[i].bad[k], rows[i].text);
            char *wrong = unquote(rows[i].wrong_type);
            check_bad(f, fam, rows[i].key, wrong, rows[i].type_text);
            check_param(f, fam, rows[i].key, "null", NULL); /* null is absent */
            free(wrong);
        }
    }
}

static void booleans(void **state) {
    static const struct {
        unsigned fams;
        const char *key;
    } rows[] = {
        {(1u << TGI) | (1u << NATIVE) | (1u << TOKEN) | (1u << TEXT), "do_sample"},
        {(1u << TGI) | (1u << NATIVE) | (1u << TOKEN) | (1u << TEXT), "watermark"},
        {(1u << TGI) | (1u << NATIVE) | (1u << TOKEN) | (1u << TEXT), "details"},
        {1u << TGI, "decoder_input_details"},
        {1u << TGI, "return_full_text"},
        {1u << TEXT, "perf_stat"},
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "skip_special_tokens"},
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "ignore_eos"},
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "stream"},
        {(1u << CHAT) | (1u << COMPL), "echo"},
        {(1u << CHAT) | (1u << COMPL), "add_special_tokens"},
        {1u << CHAT, "add_generation_prompt"},
        {1u << CHAT, "logprobs"},
    };
    char text[128];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(text, sizeof(text), "%s must be boolean type.", rows[i].key);
        for (int fam = 0; fam < N_FAMILIES; fam++) {
            if (!(rows[i].fams >> fam & 1)) continue;
            check_param(*state, fam, rows[i].key, "true", NULL);
            check_param(*state, fam, rows[i].key, "false", NULL);
            check_param(*state, fam, rows[i].key, "null", NULL);
            check_param(*state, fam, rows[i].key, "1", text);
            check_param(*state, fam, rows[i].key, "\"true\"", text);
        }
    }
}

/* What a family does not read is ignored, whatever its type (the dashes of 4.2). */
static void ignored(void **state) {
    static const struct {
        unsigned fams;
        const char *key;
    } rows[] = {
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "typical_p"},
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "do_sample"},
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "max_new_tokens"},
        {(1u << NATIVE) | (1u << TOKEN) | (1u << TEXT), "frequency_penalty"},
        {(1u << NATIVE) | (1u << TOKEN), "stop"},
        {(1u << TGI) | (1u << NATIVE) | (1u << TOKEN) | (1u << TEXT), "stop_token_ids"},
        {(1u << TGI) | (1u << NATIVE) | (1u << TOKEN) | (1u << TEXT), "n"},
        {(1u << VLLM), "use_beam_search"},
        {(1u << VLLM), "logprobs"},
        {(1u << VLLM), "guided_json"},
        {(1u << CHAT) | (1u << COMPL), "user"},
        {(1u << CHAT) | (1u << COMPL) | (1u << VLLM), "watermark"},
        {(1u << TOKEN), "typical_p"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int fam = 0; fam < N_FAMILIES; fam++)
            if (rows[i].fams >> fam & 1)
                check_param(*state, fam, rows[i].key, "{\"any\":[1,-7]}", NULL);
}

/* ---- 4.6: stop */

static void stops(void **state) {
    struct fixture *f = *state;
    static const char list[] = "Input validation error: `stop` must be list[string] if list, and "
                               "item length in [1, 1024] with total <= 32768";
    static const char type[] = "Input validation error: param stop must be string or list[string]";
    for (int fam = 0; fam < N_FAMILIES; fam++) {
        if (fam == NATIVE || fam == TOKEN) continue;
        bool small = fam == TGI || fam == TEXT;
        size_t max = small ? 1024 : 32768;
        char text[128];
        snprintf(text, sizeof(text),
                 "Input validation error: length of `stop` must be in [1, %zu], but got 0", max);
        check_param(f, fam, "stop", "\"\"", text);
        check_param(f, fam, "stop", "\"a\"", NULL);
        check_param(f, fam, "stop", "[]", NULL);
        check_param(f, fam, "stop", "[\"a\",\"b\"]", NULL);
        check_param(f, fam, "stop", "[\"a\",\"\"]", list);
        check_param(f, fam, "stop", "[\"a\",1]", list);
        check_param(f, fam, "stop", "1", type);
        check_param(f, fam, "stop", "{}", type);

        /* Lengths count UTF-16 units: one emoji is two. */
        struct buf body = BUF_INIT;
        for (size_t over = 0; over < 2; over++) {
            buf_clear(&body);
            buf_printf(&body, "%s\"stop\":\"", families[fam].before);
            for (size_t i = 0; i + 2 <= max; i += 2) buf_puts(&body, "\xF0\x9F\x98\x80");
            if (over) buf_puts(&body, "x");
            buf_printf(&body, "\"%s", families[fam].after);
            snprintf(text, sizeof(text),
                     "Input validation error: length of `stop` must be in [1, %zu], but got %zu",
                     max, max + 1);
            check(f, families[fam].path, body.data, over ? 422 : 200, over ? text : NULL);
        }
        /* Items of a list: 1024 units each, 32768 together. */
        for (size_t n_items = 32; n_items <= 33; n_items++) {
            buf_clear(&body);
            buf_printf(&body, "%s\"stop\":[", families[fam].before);
            for (size_t i = 0; i < n_items; i++)
                buf_printf(&body, "%s\"%01024d\"", i > 0 ? "," : "", 7);
            buf_printf(&body, "]%s", families[fam].after);
            check(f, families[fam].path, body.data, n_items == 32 ? 200 : 422,
                  n_items == 32 ? NULL : list);
        }
        buf_clear(&body);
        buf_printf(&body, "%s\"stop\":[\"%01025d\"]%s", families[fam].before, 7,
                   families[fam].after);
        check(f, families[fam].path, body.data, 422, list);
        /* Items of a list: how many. */
        for (size_t n_items = small ? 1024 : 32768; n_items <= (small ? 1025u : 32768u);
             n_items++) {
            buf_clear(&body);
            buf_printf(&body, "%s\"stop\":[\"a\"", families[fam].before);
            for (size_t i = 1; i < n_items; i++) buf_puts(&body, ",\"a\"");
            buf_printf(&body, "]%s", families[fam].after);
            snprintf(text, sizeof(text),
                     "Input validation error: length of `stop` must be in [1, 1024], but got 1025");
            check(f, families[fam].path, body.data, n_items == 1025 ? 422 : 200,
                  n_items == 1025 ? text : NULL);
        }
        buf_free(&body);
    }
    for (int fam = 0; fam < N_FAMILIES; fam++) {
        if (!(OPENAI_VLLM >> fam & 1)) continue;
        check_param(f, fam, "stop_token_ids", "1", "Parameter stop_token_ids not array");
        check_param(f, fam, "stop_token_ids", "[1,\"2\"]",
                    "Parameter stop_token_ids not list[int]");
        check_param(f, fam, "stop_token_ids", "[1,2.0]", "Parameter stop_token_ids not list[int]");
        check_param(f, fam, "stop_token_ids", "[1,9223372036854775808,-5,4294967296]", NULL);
        check_param(f, fam, "include_stop_str_in_output", "1",
                    NULL); /* nothing can stop: not read */
        check_param(f, fam, "stop\":\"x\",\"include_stop_str_in_output", "1",
                    TYPE("include_stop_str_in_output", "boolean"));
        check_param(f, fam, "stop_token_ids\":[1],\"include_stop_str_in_output", "1",
                    TYPE("include_stop_str_in_output", "boolean"));
    }
}

/* ---- 4.4 */

static void n_and_best_of(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    static const struct {
        int fam;
        const char *params, *text;
    } rows[] =
        {
            {CHAT, "'n':2",
             "best_of/n can not greater than 1 without using beam search when temperature is 0 or "
             "not set, but best_of is 2, n is 2."},
            {CHAT, "'best_of':2,'temperature':0",
             "best_of/n can not greater than 1 without using beam search when temperature is 0 or "
             "not set, but best_of is 2, n is None."},
            {CHAT, "'n':3,'best_of':2,'temperature':1",
             "best_of must be greater than or equal to n, but best_of is 2, n is 3."},
            {CHAT, "'best_of':2,'temperature':1,'stream':true",
             "best_of must be equal to n in stream mode, but best_of is 2, n is None."},
            {CHAT, "'best_of':3,'n':2,'temperature':1,'stream':true",
             "best_of must be equal to n in stream mode, but best_of is 3, n is 2."},
            {CHAT, "'n':2,'temperature':1", NULL},
            {CHAT, "'n':2,'best_of':3,'temperature':1", NULL},
            {CHAT, "'n':2,'best_of':2,'temperature':1,'stream':true", NULL},
            {CHAT, "'use_beam_search':true", NULL},
            {CHAT, "'use_beam_search':true,'n':3,'best_of':2,'stream':true", NULL},
            {COMPL, "'use_beam_search':true,'n':3,'max_tokens':128", NULL},
            {COMPL, "'use_beam_search':true,'max_tokens':129",
             "Please set the max_tokens to be not larger than 128 when the use_beam_search is on."},
            {CHAT, "'use_beam_search':true,'max_completion_tokens':129,'max_tokens':4",
             "Please set the max_tokens to be not larger than 128 when the use_beam_search is on."},
            {TGI, "'use_beam_search':true", "use_beam_search is not supported by this endpoint"},
            {NATIVE, "'use_beam_search':true", "use_beam_search is not supported by this endpoint"},
            {TOKEN, "'use_beam_search':true", "use_beam_search is not supported by this endpoint"},
            {TEXT, "'use_beam_search':true", "use_beam_search is not supported by this endpoint"},
            {TGI, "'use_beam_search':'x'", NULL},
            {VLLM, "'use_beam_search':true", NULL},
            {CHAT, "'use_beam_search':false,'n':1,'best_of':1,'stream':true", NULL},
            {COMPL, "'n':2",
             "Best_of and n shouldn't be greater than 1 when sampling is disabled, but best_of is "
             "2 and n is 2."},
            {COMPL, "'best_of':2",
             "Best_of and n shouldn't be greater than 1 when sampling is disabled, but best_of is "
             "2 and n is null."},
            {COMPL, "'n':3,'best_of':2,'temperature':1",
             "Best_of must be greater than or equal to n, but best_of is 2 and n is 3."},
            {COMPL, "'best_of':2,'temperature':1,'stream':true",
             "best_of must be equal to n in stream mode, but best_of is 2, n is None."},
            {COMPL, "'best_of':3,'n':2,'temperature':1,'stream':true",
             "best_of must be equal to n, but best_of is 3 and n is 2."},
            {COMPL, "'n':2,'temperature':1", NULL},
            {COMPL, "'best_of':2,'temperature':1", NULL},
            {VLLM, "'n':3,'best_of':2",
             "best_of should greater than or equal to n, but best_of is 2, n is 3."},
            {VLLM, "'best_of':2",
             "Best_of/N can not greater than 1 when temperature is 0 or not set, but best_of is 2, "
             "n is None."},
            {VLLM, "'n':2,'best_of':3,'temperature':1,'stream':true", NULL},
            {TGI, "'best_of':2",
             "when sampling disabled (temperature=0), best_of/n must be 1 without beam search"},
            {TGI, "'best_of':2,'temperature':1,'do_sample':false",
             "when sampling disabled (temperature=0), best_of/n must be 1 without beam search"},
            {TGI, "'best_of':2,'do_sample':true", NULL},
            {TGI, "'best_of':2,'top_k':5", NULL},
            {CHAT, "'best_of':128,'temperature':1", NULL},
            {CHAT, "'n':201",
             "The n parameter (201) exceeds 'max_batch_size' (200). Please reduce n or increase "
             "'max_batch_size' in config.json of mindie-service. "},
            {CHAT, "'n':51",
             "The n parameter (51) exceeds 'maxPrefillBatchSize' (50). Please reduce n or increase "
             "'maxPrefillBatchSize' in config.json of mindie-service."},
        },
      pd[] = {
          {CHAT, "'n':2", "Parameter [n] can only be set to 1 in pd disaggregation mode, got 2."},
          {COMPL, "'best_of':2,'stream':true",
           "Paramter [best_of] can only be set to 1 in pd disaggregation mode, got 2."},
          {COMPL, "'use_beam_search':true",
           "Request param use_beam_search can not be true in pd disaggregation mode."},
          {VLLM, "'n':2", "Parameter [n] can only be set to 1 in pd disaggregation mode, got 2."},
          {CHAT, "'n':1,'stop':'x','stop_token_ids':[1],'include_stop_str_in_output':true", NULL},
          {CHAT, "'logprobs':true", "logprobs is not supported in dmi mode"},
          {CHAT, "'top_logprobs':2", "top_logprobs is not supported in dmi mode"},
          {COMPL, "'logprobs':0", "logprobs is not supported in dmi mode"},
          {TGI, "'stop':'x'", "stop is not supported in dmi mode"},
          {VLLM, "'stop_token_ids':[1]", "stop_token_ids is not supported in dmi mode"},
          {VLLM, "'stop':[],'stop_token_ids':[1],'include_stop_str_in_output':true",
           "stop_token_ids is not supported in dmi mode"},
          {VLLM, "'stop':[],'stop_token_ids':[],'include_stop_str_in_output':true",
           "include_stop_str_in_output is not supported in dmi mode"},
      };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *params = unquote(rows[i].params), body[512];
        snprintf(body, sizeof(body), "%s%s%s", families[rows[i].fam].before, params,
                 families[rows[i].fam].after);
        check(f, families[rows[i].fam].path, body, rows[i].text != NULL ? 422 : 200, rows[i].text);
        free(params);
    }
    f->conf.split = f->conf.pd_refusals = true;
    fixture_open(f);
    for (size_t i = 0; i < sizeof(pd) / sizeof(pd[0]); i++) {
        char *params = unquote(pd[i].params), body[512];
        snprintf(body, sizeof(body), "%s%s%s", families[pd[i].fam].before, params,
                 families[pd[i].fam].after);
        check(f, families[pd[i].fam].path, body, pd[i].text != NULL ? 422 : 200, pd[i].text);
        free(params);
    }
    f->conf = was;
    f->conf.max_n = 8;
    fixture_open(f);
    check_param(f, VLLM, "n", "9",
                "The n parameter (9) exceeds 'maxN' (8). Please reduce n or increase 'maxN' in "
                "config.json of mindie-service.");
    f->conf = was;
    fixture_open(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds), cmocka_unit_test(booleans),      cmocka_unit_test(ignored),
        cmocka_unit_test(stops),  cmocka_unit_test(n_and_best_of),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
