/* Goal: Ollama's generate and chat, and what it says of models (client-apis 3). (1) A body becomes
 * the chat that a client of the chat path would have sent; (2) each option acts or is refused by
 * name; (3) whole answers and lines are the documented bytes, and lines add up to the whole;
 * (4) a body without input is answered at once. Method: the prompt that the template makes is read
 * back; golden bytes; a scripted engine that writes byte by byte. That an answer goes on behind any
 * cut is replay_test's. */
#include "tests/unit/common/endpoint/checks.h"

#define CHAT  "/api/chat"
#define GEN   "/api/generate"
#define ASK   "{'model':'qwen',"
#define USER  ASK "'messages':[{'role':'user','content':'x'}]"
#define TOOL  "'tools':[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]"
#define ASKED "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"

static struct infer_req *read_req(struct fixture *f, const char *path, const char *quoted) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    char *body = unquote(quoted);
    if (!fixture_read(f, path, body, &req, &err)) fail_msg("%s refused: %s", body, err.body.data);
    free(body);
    return req;
}

static void expect_prompt(struct fixture *f, const char *path, const char *quoted,
                          const char *prompt) {
    expect_text_of(f, read_req(f, path, quoted), prompt);
}

static void prompts(void **state) {
    struct fixture *f = *state;
    expect_prompt(f, CHAT, USER "}", ASKED);
    expect_prompt(f, CHAT, ASK "'messages':[{'role':'USER','content':'x','images':[]}]}", ASKED);
    /* two messages of one role stay two; an absent content is none */
    expect_prompt(f, CHAT, ASK "'messages':[{'role':'user'},{'role':'user','content':'x'}]}",
                  "<|im_start|>user\n<|im_end|>\n" ASKED);
    expect_prompt(f, CHAT,
                  ASK TOOL ",'messages':[{'role':'user','content':'x'},{'role':'assistant',"
                           "'content':'y','tool_calls':[{'function':{'name':'f','arguments':{'a':"
                           "1}}}]},{'role':'tool','tool_name':'f','content':'z'}]}",
                  "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|im_end|>\n"
                  "<|im_start|>tool\nz<|im_end|>\n[f]<|im_start|>assistant\n");
    expect_prompt(f, GEN, ASK "'prompt':'x'}", ASKED);
    expect_prompt(f, GEN, ASK "'prompt':'x','system':'s'}",
                  "<|im_start|>system\ns<|im_end|>\n" ASKED);
    expect_prompt(f, GEN, ASK "'prompt':'x','raw':true}", "x");
    expect_prompt(f, GEN, ASK "'prompt':'x','template':'<{{ messages[0].content }}>'}", "<x>");
    expect_prompt(f, GEN, ASK "'prompt':'x','context':[320,41]}", " a b" ASKED);
}

static void options_act(void **state) {
    struct fixture *f = *state;
    struct infer_req *req =
        read_req(f, CHAT,
                 USER ",'options':{'temperature':0.5,'top_p':0.25,'top_k':7.0,'min_p':0.1,"
                      "'typical_p':0.9,'repeat_penalty':1.5,'repeat_last_n':9,"
                      "'presence_penalty':1,'frequency_penalty':-1,'seed':3,'num_predict':"
                      "11,'stop':['a','b'],'num_thread':4,'unknown':{},'mirostat':null}}");
    const struct sampling *s = &req->sampling;
    assert_true(s->do_sample && s->temperature == 0.5f && s->top_p == 0.25f && s->top_k == 7);
    assert_true(s->min_p == 0.1f && s->typical_p == 0.9f && s->repetition_penalty == 1.5f);
    assert_true(s->presence_penalty == 1 && s->frequency_penalty == -1);
    assert_int_equal(s->penalty_window, 9);
    assert_int_equal(s->seed, 3);
    assert_int_equal(s->new_tokens_max, 11);
    assert_int_equal(req->n_stop, 2);
    assert_true(req->answer.stream);
    infer_req_destroy(&req);
    /* Ollama's own defaults */
    req = read_req(f, GEN,
                   ASK "'prompt':'x','stream':false,'options':{'seed':-1,'num_predict':-1,"
                       "'repeat_last_n':-1}}");
    s = &req->sampling;
    assert_true(s->do_sample && s->temperature == 0.8f && s->top_p == 0.9f && s->top_k == 40);
    assert_int_equal(s->penalty_window, 0);
    assert_int_equal(s->seed, 7); /* one was drawn */
    assert_int_equal(s->new_tokens_max, 512);
    assert_false(req->answer.stream);
    infer_req_destroy(&req);
    req = read_req(f, GEN,
                   ASK "'prompt':'x','options':{'temperature':0,'repeat_penalty':2,"
                       "'repeat_last_n':0}}");
    assert_true(!req->sampling.do_sample && req->sampling.repetition_penalty == 1);
    infer_req_destroy(&req);
    /* the prompt loses its beginning */
    req = read_req(f, GEN, ASK "'prompt':'abcdef','raw':true,'options':{'num_ctx':4}}");
    assert_int_equal(req->n_prompt, 3);
    assert_int_equal(req->ids[0], fixture_byte_id('d'));
    assert_int_equal(req->sampling.new_tokens_max, 1);
    infer_req_destroy(&req);
    req = read_req(f, CHAT, USER ",'format':{'type':'object'}}");
    assert_non_null(strstr(req->guide, "\"schema\":{\"type\":\"object\"}"));
    infer_req_destroy(&req);
    req = read_req(f, CHAT, USER ",'format':'json','think':false}");
    assert_non_null(strstr(req->guide, "json_object"));
    assert_false(req->answer.reasoning);
    infer_req_destroy(&req);
    req = read_req(f, CHAT, USER ",'think':'max','logprobs':true,'top_logprobs':2}");
    assert_true(req->answer.reasoning && req->answer.show_logprobs);
    assert_int_equal(req->sampling.top_logprobs, 2);
    infer_req_destroy(&req);
    /* without logprobs nothing of them is shown */
    static const char *const silent[] = {",'top_logprobs':2}",
                                         ",'logprobs':false,'top_logprobs':20}",
                                         ",'logprobs':null,'top_logprobs':0}"};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        char body[160];
        snprintf(body, sizeof(body), USER "%s", silent[i]);
        req = read_req(f, CHAT, body);
        assert_false(req->answer.show_logprobs || req->sampling.logprobs);
        assert_int_equal(req->sampling.top_logprobs, 0);
        infer_req_destroy(&req);
    }
}

/* What is cut leaves room for the answer: as much as num_predict says, up to half of the context,
 * or a quarter of it. */
static void room_for_the_answer(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *options;
        int n_prompt, n_new;
    } rows[] = {
        {"'num_ctx':16", 12, 4},
        {"'num_ctx':16,'num_predict':6", 10, 6},
        {"'num_ctx':16,'num_predict':100", 8, 8},
        {"'num_ctx':16,'num_predict':-1", 12, 4},
        {"'num_ctx':40", 20, 20}, /* it fits */
        {"'num_ctx':2", 1, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char body[256];
        snprintf(body, sizeof(body),
                 ASK "'prompt':'abcdefghijklmnopqrst','raw':true,'options':{%s}}", rows[i].options);
        struct infer_req *req = read_req(f, GEN, body);
        assert_int_equal(req->n_prompt, rows[i].n_prompt);
        assert_int_equal(req->sampling.new_tokens_max, rows[i].n_new);
        assert_int_equal(req->ids[req->n_prompt - 1], fixture_byte_id('t'));
        infer_req_destroy(&req);
    }
}

/* A chat loses whole turns, never its system message; what is too long alone loses tokens. */
static void oldest_turns_go(void **state) {
    struct fixture *f = *state;
#define TURNS                                                                                      \
    "'messages':[{'role':'system','content':'s'},{'role':'user','content':'old'},{'role':"         \
    "'assistant','content':'answer'},{'role':'user','content':'new'}]"
#define SYSTEM "<|im_start|>system\ns<|im_end|>\n"
#define NEWEST "<|im_start|>user\nnew<|im_end|>\n<|im_start|>assistant\n"
    /* all have 66 tokens, without the oldest 36 */
    expect_prompt(
        f, CHAT, ASK TURNS ",'options':{'num_ctx':80,'num_predict':4}}",
        SYSTEM "<|im_start|>user\nold<|im_end|>\n<|im_start|>assistant\nanswer<|im_end|>\n" NEWEST);
    expect_prompt(f, CHAT, ASK TURNS ",'options':{'num_ctx':60}}", SYSTEM NEWEST);
    struct infer_req *req = read_req(f, CHAT, ASK TURNS ",'options':{'num_ctx':20}}");
    assert_int_equal(req->n_prompt, 15);
    infer_req_destroy(&req);
    check(f, CHAT,
          "{\"model\":\"qwen\",\"truncate\":false,\"messages\":[{\"role\":\"user\",\"content\":"
          "\"abcdef\"}],\"options\":{\"num_ctx\":20}}",
          400,
          "Prompts of at most 19 tokens fit into this model's maximum context length; the prompt "
          "has 25. Please shorten it.");
}

static void refusals(void **state) {
    struct fixture *f = *state;
    static const struct row chat[] = {
        {"{}", 400, "model is required"},
        {"{'model':''}", 400, "model is required"},
        {"{'model':'nope:latest'}", 404, "model 'nope:latest' not found"},
        {ASK "'messages':'x'}", 400, "messages must be a list"},
        {ASK "'messages':[{'content':'x'}]}", 400,
         "messages[0].role must be system, user, assistant or tool"},
        {ASK "'messages':[{'role':'user','content':[]}]}", 400,
         "messages[0].content must be a string"},
        {ASK "'messages':[{'role':'user','images':['x']}]}", 400, "qwen does not support vision"},
        {ASK "'messages':[{'role':'assistant','tool_calls':{}}]}", 400,
         "messages[0].tool_calls must be a list"},
        {ASK "'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':"
             "'x'}}]}]}",
         400, "messages[0].tool_calls must have objects as arguments"},
        {USER ",'think':'hard'}", 400,
         "invalid think value: \"hard\" (must be \"high\", \"medium\", \"low\", \"max\", true, or "
         "false)"},
        {USER ",'format':'xml'}", 400,
         "invalid format: \"xml\"; expected \"json\" or a valid JSON Schema object"},
        {USER ",'options':[]}", 400, "options must be an object"},
        {USER ",'top_logprobs':21}", 400, "top_logprobs must be between 0 and 20"},
        {USER ",'logprobs':true,'top_logprobs':-1}", 400, "top_logprobs must be between 0 and 20"},
        {USER ",'options':{'num_ctx':'4'}}", 400, "option \"num_ctx\" must be of type integer"},
        {USER ",'options':{'top_p':2}}", 400, "Parameter top_p must be in [0.0,1.0], got 2."},
        {USER ",'options':{'repeat_penalty':0}}", 400,
         "Parameter repeat_penalty must be above 0, got 0."},
        {USER ",'stream':'yes'}", 400, "stream must be boolean type."},
        {USER ",'tools':{}}", 400, "tools must be a list"},
    };
    static const struct row gen[] = {
        {ASK "'prompt':[]}", 400, "prompt must be a string"},
        {ASK "'prompt':'x','suffix':'y'}", 400, "qwen does not support insert"},
        {ASK "'prompt':'x','images':['y']}", 400, "qwen does not support vision"},
        {ASK "'prompt':'x','raw':true,'system':'s'}", 400,
         "raw mode does not support template, system, or context"},
        {ASK "'prompt':'x','context':[-1]}", 400,
         "context must be a list of at most 1048576 token ids"},
        {ASK "'prompt':'x','template':'{{ .Prompt }}'}", 400,
         "Parameter chat_template is not valid"},
        {ASK "'prompt':'abcdef','raw':true,'truncate':false,'options':{'num_ctx':4}}", 400,
         "Prompts of at most 3 tokens fit into this model's maximum context length; the prompt has "
         "6. Please shorten it."},
    };
    RUN(f, CHAT, chat);
    RUN(f, GEN, gen);
}

/* What is asked of a model alone is answered without an engine. */
static void loading(void **state) {
    struct fixture *f = *state;
    static const char *const rows[][3] = {
        {CHAT, ASK "'messages':[]}",
         "{'model':'qwen','created_at':'1970-01-01T00:00:09Z','message':{'role':'assistant',"
         "'content':''},'done':true,'done_reason':'load'}"},
        {GEN, "{'model':'Qwen:latest','keep_alive':0}",
         "{'model':'Qwen:latest','created_at':'1970-01-01T00:00:09Z','response':'','done':true,"
         "'done_reason':'unload'}"},
        {GEN, ASK "'prompt':'','keep_alive':'0s'}",
         "{'model':'qwen','created_at':'1970-01-01T00:00:09Z','response':'','done':true,"
         "'done_reason':'unload'}"},
        {GEN, ASK "'keep_alive':'5m'}",
         "{'model':'qwen','created_at':'1970-01-01T00:00:09Z','response':'','done':true,"
         "'done_reason':'load'}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *body = unquote(rows[i][1]), *want = unquote(rows[i][2]), model[257];
        struct infer_req *req;
        struct api_answer a;
        const struct endpoint_in in = {.path = fixture_path(rows[i][0], model),
                                       .path_model = "",
                                       .req_id = "r",
                                       .body = body,
                                       .body_len = strlen(body),
                                       .created_unix_s = 9};
        assert_false(endpoint_read(f->ep, &in, &req, &a));
        assert_null(req);
        assert_int_equal(a.status, 200);
        buf_putc(&a.body, '\0');
        assert_string_equal(a.body.data, want);
        buf_free(&a.body);
        free(body);
        free(want);
    }
}

/* ---- answers */

/* The answer without the time of the clock, which is the first thing behind the model. */
static const char *behind_time(const char *s) {
    static const char head[] = "{\"model\":\"qwen\",\"created_at\":\"";
    assert_int_equal(strncmp(s, head, sizeof(head) - 1), 0);
    return s + sizeof(head) - 1 + sizeof("2026-11-22T21:28:28Z") - 1;
}

#define CALL "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>"
#define TIMES(n)                                                                                   \
    ",\"total_duration\":" n ",\"load_duration\":0,\"prompt_eval_count\":20,"                      \
    "\"prompt_eval_duration\":"

static void whole_answers(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    answer_to(f, CHAT, USER ",'stream':false}", "Hi", &out);
    assert_string_equal(behind_time(out.data),
                        "\",\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"done\":true,"
                        "\"done_reason\":\"stop\"" TIMES("49518000") "26404000,\"eval_count\":3,"
                                                                     "\"eval_duration\":18102000}");
    answer_to(f, CHAT, USER "," TOOL ",'stream':false}", "<think>why</think>Well. " CALL CALL,
              &out);
    assert_non_null(strstr(out.data, "\"content\":\"Well.\",\"thinking\":\"why\",\"tool_calls\":[{"
                                     "\"id\":\"call_"));
    assert_non_null(strstr(out.data,
                           "\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":"
                           " 1}}},{\"id\":\"call_"));
    assert_non_null(strstr(out.data, "\"function\":{\"index\":1,"));
    assert_non_null(strstr(out.data, "\"done_reason\":\"stop\""));
    answer_to(f, GEN, ASK "'prompt':'x','raw':true,'stream':false,'options':{'num_predict':2}}",
              "hello", &out);
    assert_non_null(strstr(behind_time(out.data),
                           "\",\"response\":\"he\",\"done\":true,"
                           "\"done_reason\":\"length\",\"total_duration\":"));
    answer_to(f, GEN, ASK "'prompt':'x','stream':false,'template':'{{ messages[0].content }}'}",
              "y", &out);
    assert_non_null(strstr(out.data, "\"context\":[122,123,300],"));
    answer_to(f, GEN, ASK "'prompt':'x','stream':false,'logprobs':true,'top_logprobs':1}", "y",
              &out);
    assert_non_null(strstr(out.data, "\"logprobs\":[{\"token\":\"y\",\"logprob\":-0.5,\"bytes\":["
                                     "121],\"top_logprobs\":[{"));
    buf_free(&out);
}

/* Each line without its model and time. */
static void strip(const char *lines, struct buf *out) {
    buf_clear(out);
    for (const char *p = lines; *p != '\0';) {
        const char *end = strchr(p, '\n');
        assert_non_null(end);
        p = behind_time(p);
        buf_append(out, p + 2, (size_t)(end - p) - 2);
        buf_putc(out, '\n');
        p = end + 1;
    }
    buf_putc(out, '\0');
}

#define SAID(more) "\"message\":{\"role\":\"assistant\",\"content\":" more "},\"done\":false}\n"

static void streams(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT, lines = BUF_INIT;
    answer_to(f, CHAT, USER "}", "<think>w</think>y", &out);
    strip(out.data, &lines);
    assert_string_equal(
        lines.data,
        SAID("\"\",\"thinking\":\"w\"")
            SAID("\"y\"") "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
                          "\"done_reason\":\"stop\"" TIMES(
                              "185283000") "26404000,"
                                           "\"eval_count\":18,\"eval_duration\":153867000}\n");
    answer_to(f, CHAT, USER "," TOOL "}", "A. " CALL, &out);
    strip(out.data, &lines);
    assert_non_null(strstr(lines.data, SAID("\".\"")));
    const char *call = strstr(lines.data, "\"content\":\"\",\"tool_calls\":[{\"id\":\"call_");
    assert_non_null(call);
    assert_non_null(strstr(call, "\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\": 1}"
                                 "}}]},\"done\":false}\n"));
    assert_null(strstr(strstr(call, "index"), "tool_calls"));
    /* what never became a call is text */
    answer_to(f, CHAT, USER "," TOOL ",'options':{'num_predict':30}}", CALL, &out);
    strip(out.data, &lines);
    assert_null(strstr(lines.data, "tool_calls"));
    assert_non_null(strstr(lines.data, "<tool_call>"));
    assert_non_null(strstr(lines.data, "\"done_reason\":\"length\""));
    answer_to(f, GEN, ASK "'prompt':'x','logprobs':true}", "yz", &out);
    strip(out.data, &lines);
    assert_int_equal(strncmp(lines.data,
                             "\"response\":\"y\",\"logprobs\":[{\"token\":\"y\",\"logprob\":-0.5,"
                             "\"bytes\":[121],\"top_logprobs\":[]}],\"done\":false}\n"
                             "\"response\":\"z\",\"logprobs\":[{\"token\":\"z\",",
                             120),
                     0);
    buf_free(&out);
    buf_free(&lines);
}

/* ---- models */

static void models(void **state) {
    struct fixture *f = *state;
    expect_informed(f, "GET", "/api/tags", "", 200,
                    "{\"models\":[{\"name\":\"qwen:latest\",\"model\":\"qwen:latest\",\"size\":0,"
                    "\"digest\":\"0000");
    expect_informed(
        f, "GET", "/api/tags", "", 200,
        "\"modified_at\":\"2026-02-02T02:40:00Z\",\"capabilities\":[\"completion\",\"tools\","
        "\"thinking\"]}]}");
    expect_informed(f, "GET", "/api/ps", "", 200,
                    "\"expires_at\":\"2318-01-01T00:00:00.000000+00:00\",\"size_vram\":0,"
                    "\"context_length\":2560}]}");
    expect_informed(f, "GET", "/api/version", "", 200, "{\"version\":\"0.12.0\"}");
    expect_informed(f, "HEAD", "/", "", 200, "Ollama is running");
    expect_informed(
        f, "POST", "/api/show", "{'name':'QWEN'}", 200,
        "\"model_info\":{\"general.architecture\":\"llama\",\"general.parameter_count\":0,"
        "\"llama.context_length\":2560,");
    expect_informed(
        f, "POST", "/api/show", "{'model':'qwen:latest'}", 200,
        "\"parameters\":\"num_ctx                        2560\",\"template\":\"{% for m");
    expect_informed(f, "POST", "/api/show", "{'model':'x'}", 404,
                    "{\"error\":\"model 'x' not found\"}");
    expect_informed(f, "POST", "/api/show", "", 400, "{\"error\":\"missing request body\"}");
    expect_informed(f, "POST", "/api/show", "[]", 400,
                    "{\"error\":\"the body must be a JSON object\"}");
    expect_informed(f, "POST", "/api/pull", "{'model':'qwen'}", 200, "{\"status\":\"success\"}\n");
    expect_informed(f, "POST", "/api/pull", "{'model':'llama3'}", 400,
                    "{\"error\":\"not supported: this");
    expect_informed(f, "DELETE", "/api/delete", "", 400, "{\"error\":\"not supported: this");
    assert_int_equal(api_path_errors("/api/nothing"), API_ERRORS_OLLAMA);
    assert_int_equal(api_path_errors("/api/v1/task/nothing"), API_ERRORS_CAIKIT);
}

/* A model that neither thinks nor calls. */
static void what_a_model_cannot_do(void **state) {
    struct fixture *f = *state;
    f->conf.tool_call_parser = f->conf.reasoning_parser = NULL;
    fixture_open(f);
    static const struct row rows[] = {
        {USER ",'think':true}", 400, "\"qwen\" does not support thinking"},
        {USER ",'think':false}", 200, ""},
        {USER "," TOOL "}", 400, "qwen does not support tools"},
        {USER "," TOOL ",'tool_choice':'required'}", 200, ""},
    };
    RUN(f, CHAT, rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),
        cmocka_unit_test(options_act),
        cmocka_unit_test(room_for_the_answer),
        cmocka_unit_test(oldest_turns_go),
        cmocka_unit_test(refusals),
        cmocka_unit_test(loading),
        cmocka_unit_test(whole_answers),
        cmocka_unit_test(streams),
        cmocka_unit_test(models),
        cmocka_unit_test(what_a_model_cannot_do),
    };
    return cmocka_run_group_tests(tests, setup_parsers, teardown);
}
