/* Goal: Anthropic's Messages (client-apis 2). (1) A body becomes the chat that a client of the chat
 * path would have sent: roles, blocks, tools, results, thinking, prefill; (2) each member acts or
 * is refused by name; (3) whole answers and streams are the documented bytes, and the stream's
 * blocks add up to the whole; (4) count_tokens counts what a request would have. Method: the prompt
 * that the template makes is read back; golden bytes; a scripted engine that writes byte by byte.
 * That an answer goes on behind any cut is replay_test's. */
#include "tests/unit/common/endpoint/checks.h"

#define PATH  "/v1/messages"
#define ASK   "{'model':'qwen','max_tokens':300,"
#define USER  ASK "'messages':[{'role':'user','content':'x'}]"
#define TOOL  "'tools':[{'name':'f','description':'d','input_schema':{'type':'object'}}]"
#define ASKED "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"

static struct infer_req *read_req(struct fixture *f, const char *quoted) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    char *body = unquote(quoted);
    if (!fixture_read(f, PATH, body, &req, &err)) fail_msg("%s refused: %s", body, err.body.data);
    free(body);
    return req;
}

static void expect_prompt(struct fixture *f, const char *quoted, const char *prompt) {
    expect_text_of(f, read_req(f, quoted), prompt);
}

static void prompts(void **state) {
    struct fixture *f = *state;
    expect_prompt(f, USER "}", ASKED);
    expect_prompt(f, USER ",'system':'be brief'}",
                  "<|im_start|>system\nbe brief<|im_end|>\n" ASKED);
    expect_prompt(f,
                  USER ",'system':[{'type':'text','text':'a','cache_control':{}},{'type':'text',"
                       "'text':'b'}]}",
                  "<|im_start|>system\na\n\nb<|im_end|>\n" ASKED);
    /* neighbours of one role are one message; blocks of a user are lines */
    expect_prompt(f,
                  ASK "'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':"
                      "'text','text':'b'}]},{'role':'user','content':'c'}]}",
                  "<|im_start|>user\na\nb\nc<|im_end|>\n<|im_start|>assistant\n");
    /* what the assistant began goes on, without the blanks at its end */
    expect_prompt(f,
                  ASK "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'So "
                      "it '}]}",
                  "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nSo it");
    /* results come before what else the user says */
    expect_prompt(f,
                  ASK TOOL ",'messages':[{'role':'user','content':'x'},{'role':'assistant',"
                           "'content':[{'type':'thinking','thinking':'t','signature':'s'},{'type':"
                           "'text','text':'y'},{'type':'tool_use','id':'i','name':'f','input':{}}"
                           "]},{'role':'user','content':[{'type':'text','text':'z'},{'type':"
                           "'tool_result','tool_use_id':'i','is_error':true}]}]}",
                  "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|im_end|>\n"
                  "<|im_start|>tool\nerror<|im_end|>\n<|im_start|>user\nz<|im_end|>\n[f]"
                  "<|im_start|>assistant\n");
    expect_prompt(f,
                  ASK "'messages':[{'role':'user','content':[{'type':'document','title':'T',"
                      "'source':{'type':'text','media_type':'text/plain','data':'D'}},{'type':"
                      "'search_result','source':'s','title':'t','content':[{'type':'text','text':"
                      "'R'}]}]}]}",
                  "<|im_start|>user\nT\nD\nR<|im_end|>\n<|im_start|>assistant\n");
}

static void members_act(void **state) {
    struct fixture *f = *state;
    struct infer_req *req =
        read_req(f, USER ",'temperature':0.5,'top_p':0.25,'top_k':7,'stop_sequences':[' ','b'],"
                         "'metadata':{'user_id':'u'},'unknown':1}");
    assert_true(req->sampling.do_sample && req->sampling.temperature == 0.5f);
    assert_true(req->sampling.top_p == 0.25f && req->sampling.top_k == 7);
    assert_int_equal(req->sampling.new_tokens_max, 300);
    assert_int_equal(req->n_stop, 1);
    assert_string_equal(req->stop[0], "b");
    assert_false(req->answer.stream);
    infer_req_destroy(&req);
    req = read_req(f, USER "," TOOL ",'stream':true,'tool_choice':{'type':'any',"
                           "'disable_parallel_tool_use':true}}");
    assert_true(req->answer.stream && req->answer.tools == TOOLS_HERMES &&
                req->answer.tools_forced && !req->answer.parallel_tools);
    infer_req_destroy(&req);
    req = read_req(f, USER ",'output_config':{'format':{'type':'json_schema','schema':{'type':"
                           "'object'}}}}");
    assert_non_null(strstr(req->guide, "\"schema\":{\"type\":\"object\"}"));
    infer_req_destroy(&req);
    req = read_req(f, USER ",'thinking':{'type':'disabled'}}");
    assert_false(req->answer.reasoning);
    infer_req_destroy(&req);
    req = read_req(f, ASK "'thinking':{'type':'enabled','budget_tokens':1024},'max_tokens':1025,"
                          "'messages':[{'role':'user','content':'x'}]}");
    assert_true(req->answer.reasoning);
    assert_non_null(strstr(req->guide, "\"budget\":1024"));
    infer_req_destroy(&req);
}

static void refusals(void **state) {
    struct fixture *f = *state;
    static const struct row rows[] = {
        {"{}", 400, "messages: Field required"},
        {"{'prompt':'x'}", 400,
         "messages: Field required. A body with `prompt` goes to POST /v1/completions."},
        {"{'input':'x'}", 400,
         "messages: Field required. A body with `input` goes to POST /v1/responses or "
         "/v1/embeddings."},
        {"{'messages':[]}", 400, "max_tokens: Field required"},
        {"{'messages':[],'max_tokens':1}", 400, "model: Field required"},
        {ASK "'messages':[]}", 400, "messages: at least one message is required"},
        {"{'model':'nope','max_tokens':1,'messages':[]}", 404, "model: nope"},
        {ASK "'messages':[{'role':'tool','content':'x'}]}", 400,
         "messages.0.role: Input should be 'user' or 'assistant'"},
        {ASK "'messages':[{'role':'user'}]}", 400, "messages.0.content: Field required"},
        {ASK "'messages':[{'role':'user','content':[{'type':'image','source':{}}]}]}", 400,
         "messages.0.content.0.type: image blocks are not supported, the model reads text"},
        {ASK "'messages':[{'role':'user','content':[{'type':'document','source':{'type':'base64'}}"
             "]}]}",
         400,
         "messages.0.content.0.source.type: only text and content are supported, the model reads "
         "text"},
        {ASK "'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'i'}]}]}",
         400, "messages.0.content.0.tool_use_id: no tool_use block before it has this id"},
        {USER ",'tools':[{'type':'bash_20250124','name':'bash'}]}", 400,
         "tools.0.type: 'bash_20250124' is not supported, only custom tools"},
        {USER ",'tools':[{'name':'f'}]}", 400, "tools.0.input_schema: Field required, an object"},
        {USER ",'tools':[{'type':'web_search_20250305','name':'web_search'}]}", 200, ""},
        {USER ",'tool_choice':{'type':'any'}}", 400,
         "tool_choice: may only be given together with tools"},
        {USER "," TOOL ",'tool_choice':{'type':'some'}}", 400,
         "tool_choice.type: Input should be auto, any, tool or none"},
        {USER ",'thinking':{'type':'enabled','budget_tokens':10}}", 400,
         "thinking.enabled.budget_tokens: Input should be an integer of at least 1024"},
        {USER ",'thinking':{'type':'enabled','budget_tokens':1024}}", 400,
         "max_tokens must be greater than thinking.budget_tokens"},
        {USER ",'thinking':{'type':'hard'}}", 400,
         "thinking.type: Input should be enabled, disabled, adaptive or between_tools"},
        {USER ",'mcp_servers':[{}]}", 400, "mcp_servers: MCP servers are not supported"},
        {USER ",'output_format':{'type':'text'}}", 400,
         "output_format: Input should be a json_schema with its schema"},
        {USER ",'temperature':-1}", 400, "Parameter temperature must be at least 0, got -1."},
        {USER ",'stop_sequences':'x'}", 400, "stop_sequences: Input should be a list of strings"},
        {USER ",'max_tokens':0}", 400, "Parameter max_tokens must be (0,2147483647], got 0"},
    };
    RUN(f, PATH, rows);
    struct buf out = BUF_INIT;
    assert_int_equal(fixture_ask(f, PATH, "{}", NULL, 0, &out), 400);
    assert_string_equal(out.data, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error"
                                  "\",\"message\":\"messages: Field required\"}}");
    buf_free(&out);
}

/* ---- answers */

#define CALL "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>"

static void whole_answers(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    answer_to(f, PATH, USER "}", "Hi", &out);
    assert_string_equal(
        out.data,
        "{\"id\":\"msg_endpoint_common_17\",\"type\":\"message\",\"role\":\"assistant\",\"model\":"
        "\"qwen\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}],\"stop_reason\":\"end_turn\","
        "\"stop_sequence\":null,\"stop_details\":null,\"container\":null,\"usage\":{"
        "\"input_tokens\":20,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,"
        "\"output_tokens\":3,\"output_tokens_details\":{\"thinking_tokens\":0},\"cache_creation\":"
        "null,\"server_tool_use\":null,\"service_tier\":\"standard\"}}");
    answer_to(f, PATH, USER "," TOOL "}", "<think>why</think>Well. " CALL, &out);
    assert_non_null(strstr(out.data, "\"content\":[{\"type\":\"thinking\",\"thinking\":\"why\","
                                     "\"signature\":\"YmF0b24=\"},{\"type\":\"text\",\"text\":"
                                     "\"Well.\"},{\"type\":\"tool_use\",\"id\":\"toolu_"));
    assert_non_null(strstr(out.data, "\",\"name\":\"f\",\"input\":{\"a\": 1}}],\"stop_reason\":"
                                     "\"tool_use\",\"stop_sequence\":null"));
    answer_to(f, PATH, USER ",'thinking':{'type':'adaptive','display':'omitted'}}",
              "<think>why</think>so", &out);
    assert_non_null(strstr(out.data, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":"));
    answer_to(f, PATH, USER ",'stop_sequences':['lo']}", "hello", &out);
    assert_non_null(strstr(out.data, "\"text\":\"hel\"}],\"stop_reason\":\"stop_sequence\","
                                     "\"stop_sequence\":\"lo\""));
    answer_to(f, PATH, ASK "'max_tokens':2,'messages':[{'role':'user','content':'x'}]}", "hello",
              &out);
    assert_non_null(strstr(out.data, "\"text\":\"he\"}],\"stop_reason\":\"max_tokens\""));
    answer_to(f, PATH, USER "}", "", &out);
    assert_non_null(strstr(out.data, "\"content\":[],\"stop_reason\":\"end_turn\""));
    buf_free(&out);
}

#define EVENT(name, more) "event: " name "\ndata: {\"type\":\"" name "\"" more "}\n\n"
#define DELTA(i, kind, key, text)                                                                  \
    EVENT("content_block_delta",                                                                   \
          ",\"index\":" i ",\"delta\":{\"type\":\"" kind "\",\"" key "\":\"" text "\"}")
#define START(i, block) EVENT("content_block_start", ",\"index\":" i ",\"content_block\":" block)
#define STOP(i)         EVENT("content_block_stop", ",\"index\":" i)
#define BEGIN                                                                                      \
    EVENT("message_start",                                                                         \
          ",\"message\":{\"id\":\"msg_endpoint_common_17\",\"type\":\"message\",\"role\":"         \
          "\"assistant\",\"model\":\"qwen\",\"content\":[],\"stop_reason\":null,"                  \
          "\"stop_sequence\":null,\"usage\":{\"input_tokens\":20,"                                 \
          "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":1}}") \
    EVENT("ping", "")
#define END(reason, n)                                                                             \
    EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"" reason                                 \
                           "\",\"stop_sequence\":null,\"stop_details\":null,\"container\":null},"  \
                           "\"usage\":{\"input_tokens\":20,\"cache_creation_input_tokens\":0,"     \
                           "\"cache_read_input_tokens\":0,\"output_tokens\":" n "}")               \
    EVENT("message_stop", "")

static void streams(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    answer_to(f, PATH, USER ",'stream':true}", "Hi", &out);
    assert_string_equal(out.data, BEGIN START("0", "{\"type\":\"text\",\"text\":\"\"}")
                                      DELTA("0", "text_delta", "text", "H")
                                          DELTA("0", "text_delta", "text", "i") STOP("0")
                                              END("end_turn", "3"));
    answer_to(f, PATH, USER ",'stream':true}", "<think>w</think>y", &out);
    assert_string_equal(
        out.data,
        BEGIN START("0", "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}")
            DELTA("0", "thinking_delta", "thinking", "w")
                DELTA("0", "signature_delta", "signature", "YmF0b24=") STOP("0")
                    START("1", "{\"type\":\"text\",\"text\":\"\"}")
                        DELTA("1", "text_delta", "text", "y") STOP("1") END("end_turn", "18"));
    buf_free(&out);
}

/* The texts of a member in all events of a stream, one after another. */
static void collect(const char *stream, const char *key, struct buf *out) {
    char name[40];
    snprintf(name, sizeof(name), "\"%s\":", key);
    buf_clear(out);
    for (const char *p = stream; (p = strstr(p, "\ndata: ")) != NULL;) {
        struct json_value *o, *delta;
        const char *s;
        size_t n;
        p += 7;
        assert_int_equal(json_read(&o, p, strcspn(p, "\n"), NULL, NULL), ERR_OK);
        if (json_get_obj(o, "delta", &delta) == JSON_OK &&
            json_get_str(delta, key, &s, &n) == JSON_OK)
            buf_append(out, s, n);
        json_put(o);
    }
    buf_putc(out, '\0');
}

static void blocks_add_up(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT, text = BUF_INIT;
    answer_to(f, PATH, USER "," TOOL ",'stream':true}", "<think>why</think>Well. " CALL "\n" CALL,
              &out);
    collect(out.data, "thinking", &text);
    assert_string_equal(text.data, "why");
    collect(out.data, "text", &text);
    assert_string_equal(text.data, "Well.");
    collect(out.data, "partial_json", &text);
    assert_string_equal(text.data, "{\"a\": 1}{\"a\": 1}");
    assert_non_null(strstr(out.data, "\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":"
                                     "\"toolu_"));
    assert_non_null(strstr(out.data, "\"name\":\"f\",\"input\":{}}"));
    assert_non_null(strstr(out.data, "\"stop_reason\":\"tool_use\""));
    assert_null(strstr(out.data, "[DONE]"));
    buf_free(&out);
    buf_free(&text);
}

static void counts(void **state) {
    struct fixture *f = *state;
    char model[257], body[] = "{'model':'qwen','messages':[{'role':'user','content':'x'}]}",
                     bad[] = "{'model':'qwen'}", none[] = "x";
    struct api_answer a;
    struct endpoint_ask ask = {.path = api_path_find("POST", "/v1/messages/count_tokens", model),
                               .name = ""};
    char *const bodies[] = {body, bad, none};
    static const char *const want[] = {
        "{\"input_tokens\":20}",
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages: "
        "Field required\"}}",
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"Failed to "
        "parse request context to json\"}}"};
    for (size_t i = 0; i < 3; i++) {
        char *b = unquote(bodies[i]);
        ask.body = b;
        ask.n = strlen(b);
        endpoint_inform(f->ep, &ask, &a);
        buf_putc(&a.body, '\0');
        assert_string_equal(a.body.data, want[i]);
        assert_int_equal(a.status, i == 0 ? 200 : 400);
        buf_free(&a.body);
        free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),       cmocka_unit_test(members_act),
        cmocka_unit_test(refusals),      cmocka_unit_test(streams),
        cmocka_unit_test(whole_answers), cmocka_unit_test(counts),
        cmocka_unit_test(blocks_add_up),
    };
    return cmocka_run_group_tests(tests, setup_parsers, teardown);
}
