/* Goal: every family writes its answers byte for byte as inference-api 6 to 11 say, and the
 * conformance vectors of chapter 18 that need no socket hold. Method: rows of (path, body, script,
 * whole answer), run through endpoint_read and the stub engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/common/endpoint/fixture.h"

struct row {
    const char *path, *body;
    const char *expect; /* the whole output */
};

static void run_rows(struct fixture *f, const struct row *rows, size_t n, const int32_t *script,
                     size_t n_script) {
    struct buf out = BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        int status = fixture_ask(f, rows[i].path, rows[i].body, script, n_script, &out);
        if (status != 200 || out.len != strlen(rows[i].expect) ||
            memcmp(out.data, rows[i].expect, out.len) != 0)
            fail_msg("%s %s\n status %d\n got      %s\n expected %s", rows[i].path, rows[i].body,
                     status, out.data, rows[i].expect);
    }
    buf_free(&out);
}

#define RUN(f, rows) run_rows(f, rows, sizeof(rows) / sizeof(rows[0]), NULL, 0)
#define RUN_SCRIPT(f, rows, ...)                                                                   \
    do {                                                                                           \
        static const int32_t script_[] = {__VA_ARGS__};                                            \
        run_rows(f, rows, sizeof(rows) / sizeof(rows[0]), script_,                                 \
                 sizeof(script_) / sizeof(script_[0]));                                            \
    } while (0)

#define ITEM_A "{\"id\":320,\"logprob\":-0.5,\"special\":false,\"text\":\" a\"}"
#define ITEM_B "{\"id\":41,\"logprob\":-0.5,\"special\":false,\"text\":\" b\"}"

static void tgi(void **state) {
    static const struct row rows[] = {
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2}}",
         "{\"generated_text\":\" a b\"}"},
        {"/", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2}}",
         "[{\"generated_text\":\" a b\"}]"},
        {"/generate", "{\"inputs\":\"x\",\"stream\":true,\"parameters\":{\"max_new_tokens\":1}}",
         "{\"generated_text\":\" a\"}"},
        {"/generate",
         "{\"inputs\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"text\",\"text\":\"y\"}],"
         "\"parameters\":{\"max_new_tokens\":1,\"return_full_text\":true}}",
         "{\"generated_text\":\"xy a\"}"},
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2,\"details\":true}}",
         "{\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"length\",\"generated_tokens\":2,"
         "\"prefill\":[],\"seed\":7,\"tokens\":[" ITEM_A "," ITEM_B "]},"
         "\"generated_text\":\" a b\"}"},
        {"/generate",
         "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":1,\"decoder_input_details\":true,"
         "\"seed\":18446744073709551615}}",
         "{\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"length\",\"generated_tokens\":1,"
         "\"prefill\":[{\"id\":122,\"logprob\":null,\"special\":false,\"text\":\"x\"}],\"seed\":"
         "18446744073709551615,\"tokens\":[]},\"generated_text\":\" a\"}"},
        {"/generate",
         "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":1,\"details\":true,\"top_n_tokens\":"
         "1}}",
         "{\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"length\",\"generated_tokens\":1,"
         "\"prefill\":[],\"seed\":7,\"tokens\":[" ITEM_A "],\"top_tokens\":[[" ITEM_A "]]},"
         "\"generated_text\":\" a\"}"},
        {"/", "{\"inputs\":\"x\",\"stream\":true,\"parameters\":{\"max_new_tokens\":2}}",
         "data: {\"index\":1,\"token\":{\"id\":[320],\"text\":\" "
         "a\",\"logprob\":-0.5,\"special\":false},\"generated_text\":null,\"details\":null}\n\n"
         "data: {\"index\":2,\"token\":{\"id\":[41],\"text\":\" "
         "b\",\"logprob\":-0.5,\"special\":false},\"generated_text\":\" a "
         "b\",\"details\":null}\n\n"},
        {"/generate_stream",
         "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":1,\"details\":true,\"return_full_"
         "text\":true}}",
         "data: {\"index\":1,\"token\":{\"id\":[320],\"text\":\" "
         "a\",\"logprob\":-0.5,\"special\":false},\"generated_text\":\"x a\","
         "\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"length\",\"generated_tokens\":1,"
         "\"seed\":7,\"input_length\":1}}\n\n"},
        /* vectors 12 and 13: the stop string never shows */
        {"/generate",
         "{\"inputs\":\"x\",\"parameters\":{\"stop\":\"b\",\"max_new_tokens\":9,\"details\":true}}",
         "{\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"stop_sequence\",\"generated_"
         "tokens\":2,\"prefill\":[],\"seed\":7,\"tokens\":[" ITEM_A "," ITEM_B "]},"
         "\"generated_text\":\" a \"}"},
        {"/generate_stream",
         "{\"inputs\":\"x\",\"parameters\":{\"stop\":\"b\",\"max_new_tokens\":9}}",
         "data: {\"index\":1,\"token\":{\"id\":[320],\"text\":\" "
         "a\",\"logprob\":-0.5,\"special\":false},\"generated_text\":null,\"details\":null}\n\n"
         "data: {\"index\":2,\"token\":{\"id\":[41],\"text\":\" "
         "\",\"logprob\":-0.5,\"special\":false},\"generated_text\":\" a \",\"details\":null}\n\n"},
        /* text that may become a stop string waits: " a" could begin " a c" */
        {"/generate_stream",
         "{\"inputs\":\"x\",\"parameters\":{\"stop\":[\" a c\"],\"max_new_tokens\":2}}",
         "data: "
         "{\"index\":1,\"token\":{\"id\":[320],\"text\":\"\",\"logprob\":-0.5,\"special\":false},"
         "\"generated_text\":null,\"details\":null}\n\n"
         "data: {\"index\":2,\"token\":{\"id\":[41],\"text\":\" a "
         "b\",\"logprob\":-0.5,\"special\":false},\"generated_text\":\" a "
         "b\",\"details\":null}\n\n"},
    };
    RUN(*state, rows);
}

static void vllm(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    static const struct row rows[] = {
        {"/generate", "{\"prompt\":\"x\",\"max_tokens\":2}", "{\"text\":[\"x  a b\"]}"},
        {"/generate", "{\"prompt\":\"x\",\"inputs\":\"y\",\"max_tokens\":1}",
         "{\"text\":[\"x  a\"]}"},
        {"/generate", "{\"prompt\":\"{\\\"prompt\\\":\\\"z\\\"}\",\"max_tokens\":1}",
         "{\"text\":[\"{\\\"prompt\\\":\\\"z\\\"}  a\"]}"},
        {"/generate",
         "{\"prompt\":\"x\",\"max_tokens\":9,\"stop\":[\"b\"],\"include_stop_str_in_output\":true}",
         "{\"text\":[\"x  a b\"]}"},
        {"/generate", "{\"prompt\":\"x\",\"max_tokens\":9,\"stop_token_ids\":[77]}",
         "{\"text\":[\"x  a b\"]}"},
        {"/generate",
         "{\"prompt\":\"x\",\"max_tokens\":9,\"stop_token_ids\":[77],\"include_stop_str_in_"
         "output\":true}",
         "{\"text\":[\"x  a b c\"]}"},
    };
    RUN(f, rows);
    static const char stream[] = "{\"text\":[\" a\"]}\0{\"text\":[\" b\"]}";
    assert_int_equal(fixture_ask(f, "/generate",
                                 "{\"prompt\":\"x\",\"max_tokens\":2,\"stream\":true}", NULL, 0,
                                 &out),
                     200);
    assert_int_equal(
        out.len, sizeof(stream)); /* the terminator of the literal is the last NUL of the stream */
    assert_memory_equal(out.data, stream, sizeof(stream));
    buf_free(&out);
}

#define CHAT_HEAD                                                                                  \
    "data: "                                                                                       \
    "{\"id\":\"endpoint_common_17\",\"object\":\"chat.completion.chunk\",\"created\":1770000000,"  \
    "\"model\":\"qwen\","
#define CHAT_DELTA "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"
#define CHAT_MORE  "},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
#define CHAT_LAST  "},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\n"
#define CHAT_X     "\"model\":\"qwen\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
/* <|im_start|> user \n x <|im_end|> \n <|im_start|> assistant \n */
#define CHAT_PROMPT "20"

static void chat(void **state) {
    static const struct row rows[] = {
        {"/v1/chat/completions", "{" CHAT_X ",\"max_tokens\":2}",
         "{\"id\":\"endpoint_common_17\",\"object\":\"chat.completion\",\"created\":1770000000,"
         "\"model\":\"qwen\","
         "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" a "
         "b\",\"tool_calls\":[]},\"logprobs\":null,"
         "\"finish_reason\":\"length\",\"stop_reason\":null}],\"usage\":{\"prompt_"
         "tokens\":" CHAT_PROMPT ",\"completion_tokens\":2,\"total_tokens\":22}}"},
        {"/v1/chat/completions", "{" CHAT_X ",\"max_tokens\":3,\"stop\":[\"c\"]}",
         "{\"id\":\"endpoint_common_17\",\"object\":\"chat.completion\",\"created\":1770000000,"
         "\"model\":\"qwen\","
         "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" a b "
         "\",\"tool_calls\":[]},\"logprobs\":null,"
         "\"finish_reason\":\"stop\",\"stop_reason\":\"c\"}],\"usage\":{\"prompt_"
         "tokens\":" CHAT_PROMPT ",\"completion_tokens\":3,\"total_tokens\":23}}"},
        {"/v1/chat/completions", "{" CHAT_X ",\"max_tokens\":2,\"stream\":true}",
         CHAT_HEAD CHAT_DELTA "\"\"" CHAT_MORE CHAT_HEAD CHAT_DELTA "\" a\"" CHAT_MORE CHAT_HEAD
                              "\"usage\":{\"prompt_tokens\":" CHAT_PROMPT
                              ",\"completion_tokens\":2,\"total_tokens\":22}," CHAT_DELTA
                              "\" b\"" CHAT_LAST "data: [DONE]\n\n"},
        {"/v1/chat/completions",
         "{" CHAT_X
         ",\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
         CHAT_HEAD
         "\"usage\":null," CHAT_DELTA "\"\"" CHAT_MORE CHAT_HEAD "\"usage\":null," CHAT_DELTA
         "\" a\"" CHAT_LAST CHAT_HEAD "\"usage\":{\"prompt_tokens\":" CHAT_PROMPT
         ",\"completion_tokens\":1,\"total_tokens\":21},\"choices\":[]}\n\ndata: [DONE]\n\n"},
        {"/v1/chat/completions",
         "{" CHAT_X
         ",\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"include_usage\":false}}",
         CHAT_HEAD CHAT_DELTA "\"\"" CHAT_MORE CHAT_HEAD CHAT_DELTA "\" a\"" CHAT_LAST
                              "data: [DONE]\n\n"},
        {"/v1/chat/completions",
         "{" CHAT_X
         ",\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}}",
         CHAT_HEAD "\"usage\":{\"prompt_tokens\":" CHAT_PROMPT
                   ",\"completion_tokens\":0,\"total_tokens\":20}," CHAT_DELTA
                   "\"\"" CHAT_MORE CHAT_HEAD "\"usage\":{\"prompt_tokens\":" CHAT_PROMPT
                   ",\"completion_tokens\":1,\"total_tokens\":21}," CHAT_DELTA "\" a\"" CHAT_LAST
                   "data: [DONE]\n\n"},
        {"/v1/chat/completions",
         "{" CHAT_X ",\"max_completion_tokens\":1,\"max_tokens\":9,\"logprobs\":true,\"top_"
         "logprobs\":2,\"stream\":true,\"stream_options\":{\"include_usage\":false}}",
         CHAT_HEAD CHAT_DELTA
         "\"\"" CHAT_MORE CHAT_HEAD CHAT_DELTA "\" a\"},\"logprobs\":{\"content\":[{\"token\":\" "
         "a\",\"logprob\":-0.5,\"bytes\":[32,97],\"top_logprobs\":["
         "{\"token\":\" "
         "a\",\"logprob\":-0.5,\"bytes\":[32,97]},{\"token\":\"\",\"logprob\":-1.5,\"bytes\":[1]}]}"
         "]},"
         "\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\ndata: [DONE]\n\n"},
        {"/v1/chat/completions", "{" CHAT_X ",\"max_tokens\":1,\"logprobs\":true}",
         "{\"id\":\"endpoint_common_17\",\"object\":\"chat.completion\",\"created\":1770000000,"
         "\"model\":\"qwen\","
         "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" "
         "a\",\"tool_calls\":[]},"
         "\"logprobs\":{\"content\":[{\"token\":\" "
         "a\",\"logprob\":-0.5,\"bytes\":[32,97],\"top_logprobs\":[]}]},"
         "\"finish_reason\":\"length\",\"stop_reason\":null}],\"usage\":{\"prompt_"
         "tokens\":" CHAT_PROMPT ",\"completion_tokens\":1,\"total_tokens\":21}}"},
    };
    RUN(*state, rows);
}

#define TEXT_HEAD                                                                                  \
    "{\"id\":\"endpoint_common_17\",\"object\":\"text_completion\",\"created\":1770000000,"        \
    "\"model\":\"qwen\",\"choices\":[{\"index\":0,\"text\":"

static void completions(void **state) {
    static const struct row rows[] = {
        {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":[1,2,3],\"max_tokens\":1}",
         TEXT_HEAD "\" a\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"length\"}],"
                   "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":[\"x\"],\"max_tokens\":3,\"stop_token_ids\":[41]}",
         TEXT_HEAD "\" a\",\"logprobs\":null,\"stop_reason\":41,\"finish_reason\":\"stop\"}],"
                   "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":[[122,123]],\"max_tokens\":2,\"stream\":true}",
         "data: " TEXT_HEAD
         "\" a\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":null}]}\n\n"
         "data: " TEXT_HEAD
         "\" b\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"length\"}],"
         "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4}}\n\ndata: "
         "[DONE]\n\n"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":\"x\",\"max_tokens\":1,\"stream\":true,\"stream_options\":"
         "{\"include_usage\":true}}",
         "data: " TEXT_HEAD "\" "
         "a\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":"
         "\"length\"}],\"usage\":null}\n\n"
         "data: "
         "{\"id\":\"endpoint_common_17\",\"object\":\"text_completion\",\"created\":1770000000,"
         "\"model\":\"qwen\",\"choices\":[],"
         "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}\n\ndata: "
         "[DONE]\n\n"},
        {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\",\"max_tokens\":2,\"logprobs\":0}",
         TEXT_HEAD "\" a "
                   "b\",\"logprobs\":{\"text_offset\":[0,2],\"token_logprobs\":[-0.5,-0.5],"
                   "\"tokens\":[\" a\",\" b\"],"
                   "\"top_logprobs\":[{\" a\":-0.5},{\" "
                   "b\":-0.5}]},\"stop_reason\":null,\"finish_reason\":\"length\"}],"
                   "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":\"\xC3\xA4y\",\"max_tokens\":1,\"logprobs\":1,\"echo\":"
         "true}",
         TEXT_HEAD
         "\"\xC3\xA4y "
         "a\",\"logprobs\":{\"text_offset\":[0,0,1,2],\"token_logprobs\":[null,null,null,-0.5],"
         "\"tokens\":[\"\xEF\xBF\xBD\",\"\xEF\xBF\xBD\",\"y\",\" a\"],"
         "\"top_logprobs\":[null,{\"\xEF\xBF\xBD\":null},{\"y\":null},{\" "
         "a\":-0.5}]},\"stop_reason\":null,\"finish_reason\":\"length\"}],"
         "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":\"xy\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0}",
         TEXT_HEAD "\"xy\",\"logprobs\":{\"text_offset\":[0,1],\"token_logprobs\":[null,null],"
                   "\"tokens\":[\"x\",\"y\"],\"top_logprobs\":[null,{\"y\":null}]},"
                   "\"stop_reason\":null,\"finish_reason\":\"length\"}],"
                   "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":0,\"total_tokens\":2}}"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":\"xy\",\"max_tokens\":0,\"echo\":true,\"stream\":true}",
         "data: " TEXT_HEAD
         "\"xy\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"length\"}],"
         "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":0,\"total_tokens\":2}}\n\ndata: "
         "[DONE]\n\n"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":[122],\"max_tokens\":2,\"echo\":true,\"stream\":true,"
         "\"stream_options\":{\"include_usage\":false}}",
         "data: " TEXT_HEAD
         "\"x a\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":null}]}\n\n"
         "data: " TEXT_HEAD
         "\" b\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"length\"}]}\n\ndata: "
         "[DONE]\n\n"},
    };
    RUN(*state, rows);
}

/* The match that starts first wins; of those that start together the longest (4.6 rule 1). */
static void stop_ties(void **state) {
#define TIE(text, reason, n, total)                                                                \
    TEXT_HEAD "\"" text "\",\"logprobs\":null,\"stop_reason\":\"" reason                           \
              "\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,"                    \
              "\"completion_tokens\":" n ",\"total_tokens\":" total "}}"
#define STOPS(list)                                                                                \
    "{\"model\":\"qwen\",\"prompt\":\"x\",\"include_stop_str_in_output\":true,\"stop\":" list "}"
    static const struct row rows[] = {
        {"/v1/completions", STOPS("[\" \",\" a\"]"), TIE(" a", " a", "1", "2")},
        {"/v1/completions", STOPS("[\" a\",\" \"]"), TIE(" a", " a", "1", "2")},
        {"/v1/completions", STOPS("[\"b\",\" b\"]"), TIE(" a b", " b", "2", "3")},
        {"/v1/completions", STOPS("[\"a b\",\" b\"]"), TIE(" a b", "a b", "2", "3")},
    };
    RUN(*state, rows);
}

static void native(void **state) {
    static const struct row rows[] = {
        {"/infer", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2}}",
         "{\"generated_text\":\" a b\"}"},
        {"/infer_token",
         "{\"input_id\":[1,2],\"parameters\":{\"max_new_tokens\":2,\"details\":true}}",
         "{\"generated_text\":\" a "
         "b\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,\"generated_token_"
         "ids\":[320,41],\"seed\":7}}"},
        {"/infer",
         "{\"inputs\":\"x\",\"stream\":true,\"parameters\":{\"max_new_tokens\":2,\"details\":true}"
         "}",
         "data: {\"prefill_time\":31.42,\"decode_time\":null,\"token\":{\"id\":[320],\"text\":\" "
         "a\"}}\n\n"
         "data: {\"prefill_time\":null,\"decode_time\":9.05,\"generated_text\":\" a "
         "b\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,\"seed\":7},"
         "\"token\":{\"id\":[41],\"text\":null}}\n\n"},
        {"/infer", "{\"inputs\":\"x\",\"stream\":true,\"parameters\":{\"max_new_tokens\":1}}",
         "data: {\"prefill_time\":31.42,\"decode_time\":null,\"generated_text\":\" "
         "a\",\"details\":null,\"token\":{\"id\":[320],\"text\":null}}\n\n"},
    };
    RUN(*state, rows);
}

#define TENSOR                                                                                     \
    "\"inputs\":[{\"name\":\"input0\",\"shape\":[1,2],\"datatype\":\"UINT32\",\"data\":[5,6]}],"   \
    "\"outputs\":[{\"name\":\"output0\"}]"
#define TEXT_EVENT(out)                                                                            \
    "data:{\"id\":\"a1\",\"model_name\":\"qwen\",\"model_version\":null,\"text_output\":\"" out    \
    "\","

static void triton(void **state) {
    static const struct row rows[] = {
        {"/v2/models/qwen/infer",
         "{\"id\":\"42\"," TENSOR ",\"parameters\":{\"max_new_tokens\":2}}",
         "{\"id\":\"42\",\"outputs\":[{\"name\":\"output0\",\"shape\":[1,2],\"datatype\":"
         "\"UINT32\",\"data\":[320,41]}],\"model_name\":\"qwen\",\"model_version\":null}"},
        {"/v2/models/qwen/generate", "{\"text_input\":\"x\",\"max_tokens\":1}",
         "{\"id\":\"endpoint_common_17\",\"model_name\":\"qwen\",\"model_version\":null,\"text_"
         "output\":\" a\"}"},
        {"/v2/models/qwen/generate",
         "{\"id\":\"a1\",\"text_input\":\"x\",\"parameters\":{\"max_new_tokens\":2,\"details\":"
         "true,\"perf_stat\":true}}",
         "{\"id\":\"a1\",\"model_name\":\"qwen\",\"model_version\":null,\"text_output\":\" a "
         "b\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,"
         "\"first_token_cost\":null,\"decode_cost\":null,\"perf_stat\":[[320,31],[41,9]],\"batch_"
         "size\":[1,1],\"queue_wait_time\":[5012,30]}}"},
        {"/v2/models/qwen/generate_stream",
         "{\"id\":\"a1\",\"text_input\":\"x\",\"parameters\":{\"max_new_tokens\":2,\"details\":"
         "true,\"perf_stat\":true}}",
         TEXT_EVENT(" a") "\"details\":{\"generated_tokens\":1,\"first_token_cost\":null,\"decode_"
                          "cost\":null,\"perf_stat\":[[320,31]],\"batch_size\":1,"
                          "\"queue_wait_time\":5012},\"prefill_time\":31,\"decode_time\":null}"
                          "\n\n" TEXT_EVENT(
                              " b") "\"details\":{\"finish_reason\":\"length\",\"generated_"
                                    "tokens\":2,\"first_token_cost\":null,\"decode_cost\":null,"
                                    "\"perf_stat\":[[320,31],[41,9]],\"batch_size\":1,\"queue_wait_"
                                    "time\":30},\"prefill_time\":null,\"decode_time\":9}\n\n"},
        {"/v2/models/qwen/generate_stream",
         "{\"id\":\"a1\",\"text_input\":\"x\",\"parameters\":{\"max_new_tokens\":1,\"perf_stat\":"
         "true}}",
         TEXT_EVENT(" a") "\"prefill_time\":31,\"decode_time\":null}\n\n"},
        {"/v2/models/qwen/generate", "{\"id\":\"a1\",\"text_input\":\"x\",\"stop_words\":[\" b\"]}",
         "{\"id\":\"a1\",\"model_name\":\"qwen\",\"model_version\":null,\"text_output\":\" a\"}"},
    };
    RUN(*state, rows);
}

/* EOS is counted and makes the last event, its text shows only on request (4.6 rules 6 and 7). */
static void eos(void **state) {
    static const struct row rows[] = {
        {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\"}",
         TEXT_HEAD "\" "
                   "a\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"stop\"}],"
                   "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}"},
        {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\",\"skip_special_tokens\":false}",
         TEXT_HEAD "\" "
                   "a</"
                   "s>\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"stop\"}],"
                   "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":\"x\",\"ignore_eos\":true,\"max_tokens\":3}",
         TEXT_HEAD "\" a "
                   "a\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"length\"}],"
                   "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":3,\"total_tokens\":4}}"},
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"details\":true}}",
         "{\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"eos_token\",\"generated_tokens\":2,"
         "\"prefill\":[],\"seed\":7,\"tokens\":[" ITEM_A
         ",{\"id\":300,\"logprob\":-0.5,\"special\":true,\"text\":\"</"
         "s>\"}]},\"generated_text\":\" a\"}"},
        {"/v2/models/qwen/infer", "{\"id\":\"42\"," TENSOR "}",
         "{\"id\":\"42\",\"outputs\":[{\"name\":\"output0\",\"shape\":[1,2],\"datatype\":"
         "\"UINT32\",\"data\":[320,300]}],\"model_name\":\"qwen\",\"model_version\":null}"},
        {"/generate", "{\"prompt\":\"x\",\"stream\":true,\"stop\":\"zz\"}",
         "{\"text\":[\" a\"]}\n{\"text\":[\"\"]}\n"},
    };
    struct fixture *f = *state;
    f->conf.vllm_delimiter = '\n';
    fixture_open(f);
    RUN_SCRIPT(f, rows, TOK_A, TOK_EOS);
    f->conf.vllm_delimiter = '\0';
    fixture_open(f);
}

/* Control characters vanish from generated text, and stop strings see what clients see. */
static void control_characters(void **state) {
    static const struct row rows[] = {
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2}}",
         "{\"generated_text\":\"x a\"}"},
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":9,\"stop\":\"x a\"}}",
         "{\"generated_text\":\"\"}"},
    };
    /* In OpenAI's manner they stay, but for the families that others define. */
    static const struct row kept[] = {
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2}}",
         "{\"generated_text\":\"x a\"}"},
        {"/generate", "{\"prompt\":\"x\",\"max_tokens\":2}", "{\"text\":[\"x \\u0001x\x7f a\"]}"},
        {"/generate", "{\"prompt\":\"x\",\"max_tokens\":2,\"stop\":[\"\\u007f a\"]}",
         "{\"text\":[\"x \\u0001x\"]}"},
        {"/v2/models/qwen/generate",
         "{\"id\":\"a\",\"text_input\":\"x\",\"parameters\":{\"max_new_tokens\":1,\"details\":"
         "false}}",
         "{\"id\":\"a\",\"model_name\":\"qwen\",\"model_version\":null,\"text_output\":"
         "\"\\u0001x\x7f\"}"},
    };
    struct fixture *f = *state;
    RUN_SCRIPT(f, rows, TOK_CONTROL, TOK_A);
    f->conf.error_style = ERROR_STYLE_OPENAI;
    fixture_open(f);
    RUN_SCRIPT(f, kept, TOK_CONTROL, TOK_A);
    f->conf.error_style = ERROR_STYLE_MINDIE;
    fixture_open(f);
}

/* Bytes of one character in three tokens: nothing until it is whole; cut off by the limit it
 * becomes U+FFFD. */
static void half_characters(void **state) {
    static const struct row rows[] = {
        {"/generate", "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":3}",
         "{\"text\":[\"\xE2\x82\xAC\"]}\n"},
        {"/generate", "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":2}",
         "{\"text\":[\"\xEF\xBF\xBD\"]}\n"},
    };
    struct fixture *f = *state;
    f->conf.vllm_delimiter = '\n';
    fixture_open(f);
    const int32_t script[] = {fixture_byte_id(0xE2), fixture_byte_id(0x82), fixture_byte_id(0xAC)};
    run_rows(f, rows, 2, script, 3);
    f->conf.vllm_delimiter = '\0';
    fixture_open(f);
}

static void switches(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    static const struct row rows[] = {
        {"/generate_stream",
         "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":2,\"return_full_text\":true}}",
         "data: {\"index\":1,\"token\":{\"id\":320,\"text\":\" "
         "a\",\"logprob\":-0.5,\"special\":false},\"generated_text\":null,\"details\":null}\n\n"
         "data: {\"index\":2,\"token\":{\"id\":41,\"text\":\" a "
         "b\",\"logprob\":-0.5,\"special\":false},\"generated_text\":\"x  a "
         "b\",\"details\":null}\n\n"},
        {"/generate", "{\"prompt\":\"x\",\"max_tokens\":1}", "{\"text\":[\"x a\"]}"},
        {"/infer", "{\"inputs\":\"x\",\"stream\":true,\"parameters\":{\"max_new_tokens\":1}}",
         "data: {\"prefill_time\":31.42,\"decode_time\":null,\"generated_text\":\" "
         "a\",\"details\":null,\"token\":{\"id\":320,\"text\":null}}\n\n"},
        {"/v1/chat/completions",
         "{" CHAT_X
         ",\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"include_usage\":false}}",
         "data: "
         "{\"id\":\"chatcmpl-endpoint_common_17\",\"object\":\"chat.completion.chunk\",\"created\":"
         "1770000000,\"model\":\"qwen\",\"system_fingerprint\":\"baton\",\"service_tier\":"
         "\"default\"," CHAT_DELTA "\"\"" CHAT_MORE "data: "
         "{\"id\":\"chatcmpl-endpoint_common_17\",\"object\":\"chat.completion.chunk\",\"created\":"
         "1770000000,\"model\":\"qwen\",\"system_fingerprint\":\"baton\",\"service_tier\":"
         "\"default\","
         "\"full_text\":\" a\"," CHAT_DELTA "\" a\"" CHAT_LAST "data: [DONE]\n\n"},
        {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\",\"max_tokens\":2}",
         "{\"id\":\"cmpl-endpoint_common_17\",\"object\":\"text_completion\",\"created\":"
         "1770000000,\"model\":\"qwen\",\"system_fingerprint\":\"baton\",\"service_tier\":"
         "\"default\",\"choices\":[{\"index\":0,"
         "\"text\":\" a b\","
         "\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":\"length\"}],\"usage\":{"
         "\"prompt_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":0},"
         "\"completion_tokens\":2,\"total_tokens\":3,\"batch_size\":[1,1],\"queue_wait_time\":["
         "5012,30]},\"prefill_time\":31,\"decode_time_arr\":[9]}"},
    };
    f->conf.full_text = f->conf.token_id_scalar = f->conf.tgi_legacy_space =
        f->conf.benchmark_info = true;
    f->conf.openai_id_prefix = f->conf.prefix_cache = true;
    f->conf.vllm_legacy_space = false;
    f->conf.error_style = ERROR_STYLE_OPENAI;
    fixture_open(f);
    RUN(f, rows);
    f->conf = was;
    fixture_open(f);
}

/* stopInfer and drain: the normal end with what there is; a failure: one event in the family's
 * framing. */
static void abort_and_error(void **state) {
    static const struct {
        const char *path, *body, *aborted, *failed;
    } rows[] = {
        {"/generate_stream",
         "{\"inputs\":\"x\",\"parameters\":{\"stop\":\" a c\",\"details\":true}}",
         "data: {\"index\":1,\"token\":{\"id\":[],\"text\":\" "
         "a\",\"logprob\":null,\"special\":null},\"generated_text\":\" a\","
         "\"details\":{\"prompt_tokens\":1,\"finish_reason\":\"stop_sequence\",\"generated_"
         "tokens\":1,\"seed\":7,\"input_length\":1}}\n\n",
         "data: {\"error\":\"Failed to get engine response.\",\"error_type\":\"Incomplete "
         "Generation\"}\n\n"},
        {"/generate", "{\"inputs\":\"x\"}", "{\"generated_text\":\" a\"}",
         "{\"error\":\"Failed to get engine response.\",\"error_type\":\"Incomplete Generation\"}"},
        {"/infer", "{\"inputs\":\"x\",\"stream\":true}",
         "data: {\"prefill_time\":null,\"decode_time\":null,\"generated_text\":\" "
         "a\",\"details\":null,\"token\":{\"id\":[],\"text\":null}}\n\n",
         "data: {\"error\":\"Failed to get engine response.\",\"error_type\":\"Incomplete "
         "Generation\"}\n\n"},
        {"/v2/models/qwen/generate_stream", "{\"id\":\"a1\",\"text_input\":\"x\"}",
         TEXT_EVENT("") "\"prefill_time\":null,\"decode_time\":null}\n\n",
         "data:{\"error\":\"Failed to get engine response.\",\"error_type\":\"Incomplete "
         "Generation\"}\n\n"},
        {"/v1/completions",
         "{\"model\":\"qwen\",\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"include_"
         "usage\":false}}",
         "data: " TEXT_HEAD "\"\",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":"
         "\"stop\"}]}\n\ndata: [DONE]\n\n",
         "data: {\"error\":\"Failed to get engine response.\",\"error_type\":\"Incomplete "
         "Generation\",\"object\":\"error\","
         "\"message\":\"Failed to get engine "
         "response.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}\n\ndata: "
         "[DONE]\n\n"},
    };
    struct fixture *f = *state;
    const int32_t script[] = {TOK_A};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int failing = 0; failing < 2; failing++) {
            struct infer_req *req;
            struct api_answer err;
            struct answer *a;
            struct buf out = BUF_INIT;
            assert_true(fixture_read(f, rows[i].path, rows[i].body, &req, &err));
            req->head.created_unix_s = 1770000000;
            assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
            struct token_event ev = fixture_event(req, script, 1, 0);
            assert_int_equal(answer_token(a, 0, &ev, &out), FINISH_NONE);
            buf_clear(&out);
            if (failing)
                answer_error(a, 500, "Failed to get engine response.", &out);
            else
                answer_abort(a, &out);
            assert_string_equal(out.data, failing ? rows[i].failed : rows[i].aborted);
            buf_clear(&out);
            answer_abort(a, &out); /* ended is ended */
            assert_int_equal(out.len, 0);
            assert_int_equal(answer_n_tokens(a), 1);
            buf_free(&out);
            answer_destroy(&a);
            infer_req_destroy(&req);
        }
    }
}

/* Log-probabilities of the prompt, fed before the first token. */
static void prompt_logprobs(void **state) {
    struct fixture *f = *state;
    struct infer_req *req;
    struct api_answer err;
    struct answer *a;
    struct buf out = BUF_INIT;
    const int32_t script[] = {TOK_A};
    assert_true(fixture_read(
        f, "/generate",
        "{\"inputs\":\"xy\",\"parameters\":{\"max_new_tokens\":1,\"decoder_input_details\":true}}",
        &req, &err));
    assert_true(req->sampling.prompt_logprobs);
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    answer_prompt_logprob(a, 0, 1, &(struct token_event){.logprob = -0.1f});
    answer_prompt_logprob(
        a, 0, 2, &(struct token_event){.logprob = -0.1f}); /* outside the prompt: no effect */
    answer_prompt_logprob(a, 0, -1, &(struct token_event){.logprob = -0.1f});
    struct token_event ev = fixture_event(req, script, 1, 0);
    assert_int_equal(answer_token(a, 0, &ev, &out), FINISH_LENGTH);
    assert_string_equal(
        out.data,
        "{\"details\":{\"prompt_tokens\":2,\"finish_reason\":\"length\",\"generated_tokens\":1,"
        "\"prefill\":[{\"id\":122,\"logprob\":null,\"special\":false,\"text\":\"x\"},{\"id\":123,"
        "\"logprob\":-0.1,\"special\":false,\"text\":\"y\"}],"
        "\"seed\":7,\"tokens\":[]},\"generated_text\":\" a\"}");
    buf_free(&out);
    answer_destroy(&a);
    infer_req_destroy(&req);
}

static int setup(void **state) {
    static struct fixture f;
    fixture_init(&f, false);
    fixture_open(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tgi),
        cmocka_unit_test(vllm),
        cmocka_unit_test(chat),
        cmocka_unit_test(completions),
        cmocka_unit_test(stop_ties),
        cmocka_unit_test(native),
        cmocka_unit_test(triton),
        cmocka_unit_test(eos),
        cmocka_unit_test(control_characters),
        cmocka_unit_test(half_characters),
        cmocka_unit_test(switches),
        cmocka_unit_test(abort_and_error),
        cmocka_unit_test(prompt_logprobs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
