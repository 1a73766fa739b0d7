/* Goal: OpenAI's Responses (client-apis 1). (1) Items become the chat that a client of the chat
 * path would have sent: roles, turns, reasoning, calls and outputs, what lies in earlier responses;
 * (2) each member acts, is repeated in the answer, or is refused by name; (3) whole answers and
 * streams are the documented bytes: events are numbered without gaps, an index is opened before it
 * is used, and the pieces add up to the last event; (4) input_tokens counts what a request would
 * have. Method: the prompt that the template makes is read back; golden bytes; a scripted engine
 * that writes byte by byte; a client that follows the stream by its rules. That an answer goes on
 * behind any cut is replay_test's. */
#include "tests/unit/common/endpoint/checks.h"

#define PATH "/v1/responses"
#define USER "{'model':'qwen','input':'x'"
#define TOOL                                                                                       \
    "'tools':[{'type':'function','name':'f','description':'d','parameters':{'type':'object'}}]"
#define ASKED "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"

static bool read_behind(struct fixture *f, const char *body, const char *context,
                        struct infer_req **req, struct api_answer *err) {
    char model[257];
    const struct endpoint_in in = {.path = api_path_find("POST", PATH, model),
                                   .req_id = "17",
                                   .body = body,
                                   .body_len = strlen(body),
                                   .context = context,
                                   .context_len = context != NULL ? strlen(context) : 0,
                                   .random_seed = 7};
    return endpoint_read(f->ep, &in, req, err);
}

static struct infer_req *read_req(struct fixture *f, const char *quoted, const char *context) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    char *body = unquote(quoted), *before = context != NULL ? unquote(context) : NULL;
    if (!read_behind(f, body, before, &req, &err)) fail_msg("%s refused: %s", body, err.body.data);
    free(body);
    free(before);
    return req;
}

static void expect_prompt(struct fixture *f, const char *quoted, const char *context,
                          const char *prompt) {
    expect_text_of(f, read_req(f, quoted, context), prompt);
}

#define INPUT(items) "{'model':'qwen','input':[" items "]}"
#define CALLED       "{'type':'function_call','call_id':'c','name':'f','arguments':'{}'}"

static void prompts(void **state) {
    struct fixture *f = *state;
    expect_prompt(f, USER "}", NULL, ASKED);
    expect_prompt(f, "{'input':'x'}", NULL, ASKED); /* the server's model */
    expect_prompt(f, USER ",'instructions':'be brief'}", NULL,
                  "<|im_start|>system\nbe brief<|im_end|>\n" ASKED);
    expect_prompt(f,
                  INPUT("{'role':'developer','content':'a'},{'role':'system','content':'b'},"
                        "{'role':'user','content':[{'type':'input_text','text':'x'},{'type':"
                        "'input_text','text':'y'}]}"),
                  NULL,
                  "<|im_start|>system\na\n\nb<|im_end|>\n<|im_start|>user\nxy<|im_end|>\n"
                  "<|im_start|>assistant\n");
    /* neighbours of the assistant are one turn; what says nothing is none */
    expect_prompt(
        f,
        INPUT("{'role':'user','content':'x'},{'type':'reasoning','id':'r','summary':[],"
              "'content':[{'type':'reasoning_text','text':'t'}]},{'type':'message','id':'m',"
              "'status':'completed','role':'assistant','content':[{'type':'output_text','text':"
              "'so','annotations':[]}]}," CALLED ",{'type':'function_call_output','call_id':'c',"
              "'output':[{'type':'input_text','text':'4'},{'type':'input_text','text':'2'}]},"
              "{'role':'assistant','content':[]},{'role':'user','content':'z'}"),
        NULL,
        "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nso<|im_end|>\n"
        "<|im_start|>tool\n42<|im_end|>\n<|im_start|>user\nz<|im_end|>\n<|im_start|>assistant\n");
    expect_prompt(f,
                  INPUT("{'role':'user','content':'x'},{'type':'web_search_call','id':'w'},"
                        "{'type':'custom_tool_call','call_id':'c','name':'t','input':'i'},{'type':"
                        "'custom_tool_call_output','call_id':'c','output':'o'}"),
                  NULL,
                  "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nNone<|im_end|>\n"
                  "<|im_start|>tool\no<|im_end|>\n<|im_start|>assistant\n");
}

static void earlier_responses(void **state) {
    struct fixture *f = *state;
    static const char before[] =
        "{'items':[{'type':'message','role':'user','content':'a'},{'type':'message','role':"
        "'assistant','content':[{'type':'output_text','text':'b'}]}],'referenced':{'msg_1':{'type':"
        "'message','id':'msg_1','role':'assistant','content':[{'type':'output_text','text':'c'}]},"
        "'loop':{'type':'item_reference','id':'loop'}}}";
    expect_prompt(f, USER ",'instructions':'i','previous_response_id':'resp_1'}", before,
                  "<|im_start|>system\ni<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
                  "<|im_start|>assistant\nb<|im_end|>\n" ASKED);
    expect_prompt(
        f,
        "{'previous_response_id':'resp_1','input':[{'type':'item_reference','id':"
        "'msg_1'},{'id':'msg_1'},{'role':'user','content':'x'}]}",
        before, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb\nc\nc<|im_end|>\n" ASKED);
    /* nothing new is to be said */
    expect_prompt(f, "{'previous_response_id':'resp_1'}", before,
                  "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
                  "<|im_start|>assistant\n");
    static const struct {
        const char *body, *context;
        int status;
        const char *says;
    } bad[] = {
        {"{'previous_response_id':'resp_1','input':'x'}", NULL, 400,
         "{'error':{'message':'Previous response with id 'resp_1' not found.','type':"
         "'invalid_request_error','param':'previous_response_id','code':"
         "'previous_response_not_found'}}"},
        {"{'input':[{'id':'m'}]}", NULL, 404, "Item with id 'm' not found."},
        {"{'input':[{'id':'loop'}]}", before, 400, "items of type 'item_reference'"},
        {"{'previous_response_id':'r','input':'x'}", "[1", 400, "stored conversation"},
        {"{'previous_response_id':'r','input':'x'}", "{'items':[{'type':'nope'}]}", 400,
         "previous_response_id[0].type"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct infer_req *req = NULL;
        struct api_answer err = {0};
        char *body = unquote(bad[i].body), *says = strdup(bad[i].says),
             *context = bad[i].context != NULL ? unquote(bad[i].context) : NULL;
        assert_false(read_behind(f, body, context, &req, &err));
        buf_putc(&err.body, '\0');
        for (char *p = err.body.data; *p != '\0'; p++)
            if (*p == '"') *p = '\'';
        if (err.status != bad[i].status || strstr(err.body.data, says) == NULL)
            fail_msg("%s: %d %s", body, err.status, err.body.data);
        buf_free(&err.body);
        free(body);
        free(says);
        free(context);
    }
}

/* truncation auto: whole items go, not the system's, and no call without its output. */
static void oldest_items_go(void **state) {
    struct fixture *f = *state;
    struct buf body = BUF_INIT;
    buf_puts(&body, "{'instructions':'i','truncation':'auto','input':[");
    for (int i = 0; i < 300; i++)
        buf_printf(&body,
                   "{'role':'user','content':'u%d'},{'type':'function_call','call_id':'c%d','name':"
                   "'f','arguments':'{}'},{'type':'function_call_output','call_id':'c%d','output':"
                   "'o%d'},",
                   i, i, i, i);
    buf_puts(&body, "{'role':'user','content':'last'}]}");
    struct infer_req *req = read_req(f, body.data, NULL);
    struct buf text = BUF_INIT;
    tokenizer_decode(f->tok, req->ids, req->n_ids, false, &text);
    buf_putc(&text, '\0');
    assert_true(req->n_ids <= 2048 && req->n_ids > 1800);
    assert_memory_equal(text.data, "<|im_start|>system\ni<|im_end|>\n<|im_start|>", 42);
    assert_null(strstr(text.data, "i<|im_end|>\n<|im_start|>tool"));
    assert_non_null(strstr(text.data, "o299<|im_end|>\n<|im_start|>user\nlast"));
    infer_req_destroy(&req);
    buf_free(&text);
    /* what is too long by itself is refused, and so is all of it without the word */
    struct api_answer err = {0};
    char *strict = unquote(body.data), *at = strstr(strict, "auto");
    memcpy(at, "    ", 4);
    assert_false(read_behind(f, strict, NULL, &req, &err));
    assert_non_null(strstr(err.body.data, "truncation must be auto or disabled"));
    buf_free(&err.body);
    free(strict);
    buf_clear(&body);
    buf_puts(&body, "{\"truncation\":\"auto\",\"input\":\"");
    for (int i = 0; i < 3000; i++) buf_putc(&body, 'x');
    buf_puts(&body, "\"}");
    assert_false(read_behind(f, body.data, NULL, &req, &err));
    assert_int_equal(err.status, 400);
    assert_non_null(strstr(err.body.data, "\"message\":\"This model's maximum context length is "));
    assert_non_null(
        strstr(err.body.data, "\"param\":\"input\",\"code\":\"context_length_exceeded\""));
    buf_free(&err.body);
    buf_free(&body);
}

/* A template that raises at what is left ends the request with its own words; one that wants a user
 * first gets one. */
static void templates_that_raise_while_items_go(void **state) {
    (void)state;
    static const char *const raises[] = {"messages[0].role != 'user'", "messages | length < 4"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        struct buf body = BUF_INIT, text = BUF_INIT;
        char path[128];
        struct api_answer err = {0};
        struct infer_req *req = NULL;
        fixture_init(&f, false);
        snprintf(path, sizeof(path), "%s/tokenizer_config.json", f.dir);
        FILE *out = fopen(path, "w");
        fprintf(out,
                "{\"chat_template\":\"{%% if %s %%}{{ raise_exception('not this') }}{%% endif %%}"
                "{%% for m in messages %%}{{ m.role }}:{{ m.content }};{%% endfor %%}\"}",
                raises[i]);
        fclose(out);
        fixture_open(&f);
        buf_puts(&body, "{\"truncation\":\"auto\",\"input\":[");
        for (int k = 0; k < 40; k++)
            buf_printf(&body, "%s{\"role\":\"%s\",\"content\":\"%02d%0*d\"}", k > 0 ? "," : "",
                       k % 2 == 0 ? "user" : "assistant", k, i == 0 ? 100 : 800, 0);
        buf_puts(&body, ",{\"role\":\"user\",\"content\":\"last\"}]}");
        const bool good = read_behind(&f, body.data, NULL, &req, &err);
        if (i == 0) {
            if (!good) fail_msg("%s", err.body.data);
            tokenizer_decode(f.tok, req->ids, req->n_ids, false, &text);
            buf_putc(&text, '\0');
            assert_memory_equal(text.data, "user:", 5);
            assert_non_null(strstr(text.data, "user:last;"));
        } else {
            assert_false(good);
            assert_int_equal(err.status, 400);
            assert_non_null(strstr(err.body.data, "not this"));
        }
        infer_req_destroy(&req);
        buf_free(&err.body);
        buf_free(&text);
        buf_free(&body);
        fixture_close(&f);
    }
}

static void members_act(void **state) {
    struct fixture *f = *state;
    struct infer_req *req =
        read_req(f,
                 USER ",'temperature':0.5,'top_p':0.25,'top_k':7,'stop':['b'],'max_output_tokens':"
                      "9,'seed':5,'unknown':1,'background':false,'conversation':null}",
                 NULL);
    assert_true(req->sampling.do_sample && req->sampling.temperature == 0.5f);
    assert_true(req->sampling.top_p == 0.25f && req->sampling.top_k == 7);
    assert_true(req->sampling.new_tokens_max == 9 && req->sampling.seed == 5 && req->n_stop == 1);
    assert_true(req->answer.event_ids && !req->answer.stream && !req->answer.show_logprobs);
    infer_req_destroy(&req);
    req = read_req(f,
                   USER "," TOOL ",'stream':true,'store':false,'parallel_tool_calls':false,"
                        "'tool_choice':'required','include':['message.output_text.logprobs',"
                        "'reasoning.encrypted_content']}",
                   NULL);
    assert_true(req->answer.stream && req->answer.tools == TOOLS_HERMES && req->answer.sealed);
    assert_true(req->answer.tools_forced && !req->answer.parallel_tools && !req->answer.event_ids);
    assert_true(req->answer.show_logprobs && req->sampling.top_logprobs == 0);
    infer_req_destroy(&req);
    req =
        read_req(f, USER ",'top_logprobs':2,'reasoning':{'effort':'none','summary':'auto'}}", NULL);
    assert_true(req->sampling.top_logprobs == 2 && req->answer.summary && !req->answer.reasoning);
    infer_req_destroy(&req);
    req = read_req(f,
                   USER ",'text':{'format':{'type':'json_schema','name':'n','schema':{'type':"
                        "'object'}}}}",
                   NULL);
    assert_non_null(strstr(req->guide, "\"schema\":{\"type\":\"object\"}"));
    infer_req_destroy(&req);
    req = read_req(f, USER ",'text':{'format':{'type':'json_object'}}}", NULL);
    assert_non_null(strstr(req->guide, "json_object"));
    infer_req_destroy(&req);
    /* a custom tool is a function with one parameter; one tool of several may be all that is
     * allowed, or the one that must be called */
    req = read_req(f,
                   USER ",'tools':[{'type':'custom','name':'t','format':{'type':'grammar','syntax':"
                        "'regex','definition':'[ab]+'}},{'type':'web_search'},{'type':'namespace',"
                        "'name':'s','tools':[{'type':'function','name':'g'}]}],'tool_choice':"
                        "{'type':'custom','name':'t'}}",
                   NULL);
    assert_non_null(strstr(req->guide, "\"pattern\":\"[ab]+\""));
    assert_null(strstr(req->answer.echoed, "web_search"));
    assert_non_null(strstr(req->answer.echoed, "\"namespace\""));
    infer_req_destroy(&req);
    req = read_req(f,
                   USER ",'tools':[{'type':'function','name':'a'},{'type':'function','name':'b'}],"
                        "'tool_choice':{'type':'allowed_tools','mode':'required','tools':[{'type':"
                        "'function','name':'b'}]}}",
                   NULL);
    assert_non_null(strstr(req->guide, "\"b\""));
    assert_null(strstr(req->guide, "\"a\""));
    infer_req_destroy(&req);
}

static void refusals(void **state) {
    struct fixture *f = *state;
    static const struct row rows[] = {
        {"{}", 400, "Missing required parameter: 'input'."},
        {"{'messages':[]}", 400,
         "Missing required parameter: 'input'. A body with `messages` goes to POST "
         "/v1/chat/completions or /v1/messages."},
        {"{'input':7}", 400, "input must be a string or a list of items"},
        {"{'input':[]}", 400, "input holds nothing that a model could read"},
        {"{'model':'nope','input':'x'}", 404,
         "The model `nope` does not exist. GET /v1/models lists those that do."},
        {INPUT("7"), 400, "input[0]: an item must be an object"},
        {INPUT("{'role':'tool','content':'x'}"), 400,
         "input[0].role: must be user, assistant, system or developer"},
        {INPUT("{'role':'user'}"), 400,
         "input[0].content: a string or a list of parts is required"},
        {INPUT("{'role':'user','content':[{'type':'input_image','image_url':'u'}]}"), 400,
         "input[0].content[0]: images, files and audio are not supported, the model reads text"},
        {INPUT("{'role':'user','content':[{'type':'what'}]}"), 400,
         "input[0].content[0]: the type of a part must be input_text, output_text or refusal"},
        {INPUT("{'type':'function_call','call_id':'c','name':'no blanks','arguments':''}"), 400,
         "input[0].name: must be 1 to 64 letters, digits, underscores, dashes or common Chinese "
         "characters"},
        {INPUT("{'type':'function_call_output','call_id':'c','output':'o'}"), 400,
         "No tool call found for function call output with call_id c."},
        {INPUT("{'role':'user','content':'x'}," CALLED ",{'role':'user','content':'x'}"), 400,
         "No tool output found for function call c."},
        {INPUT("{'role':'user','content':'x'}," CALLED), 200, ""},
        {INPUT("{'type':'reasoning','summary':[],'encrypted_content':'?'}"), 400,
         "input[0].encrypted_content: it was not made by this server"},
        {INPUT("{'type':'compaction'}"), 400,
         "input[0].type: items of type 'compaction' are not supported; messages, function and "
         "custom tool calls with their outputs, and reasoning are"},
        {INPUT("{'type':'shell_call_output','output':[]}"), 400,
         "input[0].type: items of type 'shell_call_output' are not supported; messages, function "
         "and custom tool calls with their outputs, and reasoning are"},
        {USER ",'conversation':'conv_1'}", 400,
         "Unsupported parameter: 'conversation' is not supported here."},
        {USER ",'prompt':{'id':'p'}}", 400,
         "Unsupported parameter: 'prompt' is not supported here."},
        {USER ",'background':true}", 400,
         "background responses are not supported: stream, or wait"},
        {USER ",'store':1}", 400, "store must be a boolean"},
        {USER ",'tools':[{'type':'file_search','vector_store_ids':[]}]}", 400,
         "Tools of type 'file_search' are not supported: tools are run by clients here, of type "
         "function or custom."},
        {USER ",'tools':[{'type':'mcp'}]}", 400,
         "Tools of type 'mcp' are not supported: tools are run by clients here, of type function "
         "or custom."},
        {USER ",'tools':[{'type':'function'}]}", 400,
         "Missing required parameter: 'tools[0].name', a string."},
        {USER ",'tools':[{'type':'namespace','name':'s','tools':[{'type':'computer'}]}]}", 400,
         "Tools of type 'computer' are not supported: tools are run by clients here, of type "
         "function or custom."},
        {USER ",'tool_choice':'required'}", 400,
         "tool_choice 'required' needs tools of type function or custom"},
        {USER "," TOOL ",'tool_choice':{'type':'function','name':'g'}}", 400,
         "Tool choice 'g' not found in 'tools' parameter."},
        {USER "," TOOL ",'tool_choice':{'type':'file_search'}}", 400,
         "tool_choice.type must be function, custom or allowed_tools"},
        {USER ",'text':{'format':{'type':'json_schema','schema':{}}}}", 400,
         "Missing required parameter: 'text.format.name'."},
        {USER ",'text':{'format':{'type':'xml'}}}", 400,
         "text.format.type must be text, json_object or json_schema"},
        {USER ",'reasoning':{'effort':'hard'}}", 400,
         "reasoning.effort must be none, minimal, low, medium, high, xhigh or max"},
        {USER ",'include':['all']}", 400,
         "include must name what responses can hold, such as message.output_text.logprobs"},
        {USER ",'metadata':{'a':1}}", 400,
         "values of metadata must be strings of 512 characters at most"},
        {USER ",'truncation':'some'}", 400, "truncation must be auto or disabled"},
        {USER ",'max_output_tokens':0}", 400,
         "Parameter max_output_tokens must be in [1,2147483647], got 0."},
        {USER ",'temperature':-1}", 400, "Parameter temperature must be at least 0, got -1."},
    };
    RUN(f, PATH, rows);
    struct buf out = BUF_INIT;
    assert_int_equal(
        fixture_ask(f, PATH, "{\"input\":[{\"type\":\"function_call\"}]}", NULL, 0, &out), 400);
    assert_string_equal(
        out.data, "{\"error\":{\"message\":\"input[0].call_id: a string is required\",\"type\":"
                  "\"invalid_request_error\",\"param\":\"input[0].call_id\",\"code\":"
                  "\"missing_required_parameter\"}}");
    buf_free(&out);
}

/* ---- answers */

#define CALL "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>"
#define CREATED                                                                                    \
    "{\"id\":\"resp_endpoint_common_17\",\"object\":\"response\",\"created_at\":1770000000,"
#define ECHOED                                                                                     \
    "\"completed_at\":null,\"model\":\"qwen\",\"instructions\":null,\"tools\":[],\"tool_choice\":" \
    "\"auto\",\"text\":{\"format\":{\"type\":\"text\"}},\"reasoning\":{\"effort\":null,"           \
    "\"summary\":null},\"top_logprobs\":0,\"metadata\":{},\"truncation\":\"disabled\","            \
    "\"parallel_tool_calls\":true,\"background\":false,\"store\":false,"                           \
    "\"previous_response_id\":null,\"prompt_cache_key\":null,\"safety_identifier\":null,"          \
    "\"user\":null,\"max_output_tokens\":null,\"max_tool_calls\":null,\"conversation\":null,"      \
    "\"service_tier\":\"default\",\"temperature\":0.0,\"top_p\":1.0,"
#define RUNNING                                                                                    \
    CREATED "\"status\":\"in_progress\",\"error\":null,\"incomplete_details\":null," ECHOED        \
            "\"output\":[],\"usage\":null}"
#define USAGE(n, thinking, all)                                                                    \
    "\"usage\":{\"input_tokens\":20,\"input_tokens_details\":{\"cached_tokens\":0,"                \
    "\"cache_write_tokens\":0},\"output_tokens\":" n ",\"output_tokens_details\":{"                \
    "\"reasoning_tokens\":" thinking "},\"total_tokens\":" all "}}"
#define DONE(output, usage)                                                                        \
    CREATED "\"status\":\"completed\",\"error\":null,\"incomplete_details\":null," ECHOED          \
            "\"output\":[" output "]," usage
#define PART(text)                                                                                 \
    "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define MSG_ID "\"msg_endpoint_common_17_0\""
#define MESSAGE(part, status)                                                                      \
    "{\"type\":\"message\",\"id\":" MSG_ID ",\"role\":\"assistant\",\"content\":[" part            \
    "],\"status\":\"" status "\"}"

static void whole_answers(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    answer_to(f, PATH, USER ",'store':false}", "Hi", &out);
    assert_string_equal(out.data, DONE(MESSAGE(PART("Hi"), "completed"), USAGE("3", "0", "23")));
    answer_to(f, PATH,
              USER "," TOOL ",'reasoning':{'summary':'auto'},'include':"
                   "['reasoning.encrypted_content']}",
              "<think>why</think>\n\n" CALL "\n" CALL, &out);
    assert_non_null(strstr(
        out.data,
        "\"output\":[{\"type\":\"reasoning\",\"id\":\"rs_endpoint_common_17_0\",\"summary\":[{"
        "\"type\":\"summary_text\",\"text\":\"why\"}],\"content\":[{\"type\":\"reasoning_text\","
        "\"text\":\"why\"}],\"encrypted_content\":\"d2h5\",\"status\":\"completed\"},{\"type\":"
        "\"function_call\",\"id\":\"fc_endpoint_common_17_1\",\"call_id\":\"call_"));
    assert_non_null(strstr(out.data, "\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\",\"status\":"
                                     "\"completed\"},{\"type\":\"function_call\",\"id\":"
                                     "\"fc_endpoint_common_17_2\""));
    answer_to(f, PATH, USER ",'max_output_tokens':2,'metadata':{'k':'v'}}", "hello", &out);
    assert_non_null(strstr(out.data, "\"status\":\"incomplete\",\"error\":null,\"incomplete_details"
                                     "\":{\"reason\":\"max_output_tokens\"}"));
    assert_non_null(strstr(out.data, "\"metadata\":{\"k\":\"v\"}"));
    assert_non_null(strstr(out.data, "\"text\":\"he\",\"annotations\":[],\"logprobs\":[]}],"
                                     "\"status\":\"incomplete\"}]"));
    answer_to(f, PATH, USER ",'tools':[{'type':'custom','name':'f'}]}",
              "<tool_call>{\"name\":\"f\",\"arguments\":{\"input\": \"a\\nb\"}}</tool_call>", &out);
    assert_non_null(strstr(out.data, "{\"type\":\"custom_tool_call\",\"id\":"
                                     "\"ctc_endpoint_common_17_0\",\"call_id\":\"call_"));
    assert_non_null(
        strstr(out.data, "\"name\":\"f\",\"input\":\"a\\nb\",\"status\":\"completed\"}]"));
    answer_to(f, PATH,
              USER ",'tools':[{'type':'namespace','name':'s','tools':[{'type':'function','name':"
                   "'f'}]}]}",
              CALL, &out);
    assert_non_null(strstr(out.data, "\"name\":\"f\",\"namespace\":\"s\",\"arguments\":"));
    answer_to(f, PATH, USER ",'top_logprobs':1}", "<think>w</think>y", &out);
    assert_non_null(strstr(out.data, "\"text\":\"y\",\"annotations\":[],\"logprobs\":[{\"token\":"
                                     "\"y\",\"logprob\":-0.5,\"bytes\":[121],\"top_logprobs\":[{"));
    answer_to(f, PATH, USER "}", "", &out);
    assert_non_null(strstr(out.data, "\"output\":[],\"usage\":{"));
    buf_free(&out);
}

#define EVENT(n, name, more)                                                                       \
    "event: " name "\ndata: {\"type\":\"" name "\",\"sequence_number\":" n "," more "}\n\n"
#define OF_ITEM "\"item_id\":" MSG_ID ",\"output_index\":0,\"content_index\":0,"

static void streams(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    answer_to(f, PATH, USER ",'stream':true,'store':false}", "Hi", &out);
    assert_string_equal(
        out.data,
        EVENT("0", "response.created", "\"response\":" RUNNING) EVENT(
            "1", "response.in_progress",
            "\"response\":" RUNNING) EVENT("2", "response.output_item.added",
                                           "\"output_index\":0,\"item\":" MESSAGE("",
                                                                                  "in_progress"))
            EVENT("3", "response.content_part.added", OF_ITEM "\"part\":" PART("")) EVENT(
                "4", "response.output_text.delta", OF_ITEM "\"delta\":\"H\",\"logprobs\":[]")
                EVENT("5", "response.output_text.delta", OF_ITEM "\"delta\":\"i\",\"logprobs\":[]")
                    EVENT("6", "response.output_text.done",
                          OF_ITEM "\"text\":\"Hi\",\"logprobs\":[]")
                        EVENT("7", "response.content_part.done", OF_ITEM "\"part\":" PART("Hi"))
                            EVENT("8", "response.output_item.done",
                                  "\"output_index\":0,\"item\":" MESSAGE(PART("Hi"), "completed"))
                                EVENT("9", "response.completed",
                                      "\"response\":" DONE(MESSAGE(PART("Hi"), "completed"),
                                                           USAGE("3", "0", "23"))));
    /* a stream that is kept can be asked for from any event on */
    answer_to(f, PATH, USER ",'stream':true}", "Hi", &out);
    assert_non_null(strstr(out.data, "id: resp_endpoint_common_17:0\nevent: response.created\n"));
    assert_non_null(strstr(out.data, "id: resp_endpoint_common_17:9\nevent: response.completed\n"));
    buf_free(&out);
}

/* ---- a client that follows a stream by its rules (client-apis 1.10) */

struct follower {
    int64_t n_events, n_items;
    bool open, part;
    struct buf text; /* pieces of the item under way */
    struct buf said; /* "type:text\n" of each item that is done */
    char last[64];
};

static void follow(struct follower *w, struct json_value *ev) {
    const char *type, *s;
    size_t n;
    int64_t seq, index;
    struct json_value *item;
    assert_int_equal(json_get_i64(ev, "sequence_number", &seq), JSON_OK);
    assert_int_equal(seq, w->n_events++);
    assert_int_equal(json_get_str(ev, "type", &type, &n), JSON_OK);
    snprintf(w->last, sizeof(w->last), "%s", type);
    if (seq == 0) assert_string_equal(type, "response.created");
    if (json_get_i64(ev, "output_index", &index) != JSON_OK) return;
    if (strcmp(type, "response.output_item.added") == 0) {
        assert_false(w->open);
        assert_int_equal(index, w->n_items++);
        w->open = true;
        w->part = false;
        buf_clear(&w->text);
        return;
    }
    assert_true(w->open && index == w->n_items - 1);
    if (strstr(type, "_part.added") != NULL) w->part = true;
    if (strstr(type, "summary") != NULL) return;
    if (json_get_str(ev, "delta", &s, &n) == JSON_OK) {
        assert_true(w->part || strstr(type, "call") != NULL);
        buf_append(&w->text, s, n);
    }
    if (strcmp(type, "response.output_item.done") != 0) return;
    w->open = false;
    assert_int_equal(json_get_obj(ev, "item", &item), JSON_OK);
    assert_int_equal(json_get_str(item, "type", &s, &n), JSON_OK);
    buf_printf(&w->said, "%s:%.*s\n", s, (int)w->text.len, w->text.len > 0 ? w->text.data : "");
}

static void expect_items(struct fixture *f, const char *quoted, const char *text, const char *said,
                         const char *last) {
    struct buf out = BUF_INIT;
    struct follower w = {0};
    answer_to(f, PATH, quoted, text, &out);
    for (const char *p = out.data; (p = strstr(p, "\ndata: ")) != NULL;) {
        struct json_value *o;
        p += 7;
        assert_int_equal(json_read(&o, p, strcspn(p, "\n"), NULL, NULL), ERR_OK);
        follow(&w, o);
        json_put(o);
    }
    assert_false(w.open);
    buf_putc(&w.said, '\0');
    assert_string_equal(w.said.data, said);
    assert_string_equal(w.last, last);
    assert_null(strstr(out.data, "[DONE]"));
    buf_free(&out);
    buf_free(&w.text);
    buf_free(&w.said);
}

static void pieces_add_up(void **state) {
    struct fixture *f = *state;
#define STREAM USER ",'stream':true"
    expect_items(f, STREAM "," TOOL ",'reasoning':{'summary':'auto'}}",
                 "<think>why</think>Well. " CALL "\n" CALL,
                 "reasoning:why\nmessage:Well.\nfunction_call:{\"a\": 1}\nfunction_call:{\"a\": "
                 "1}\n",
                 "response.completed");
    /* white space between what was thought and a call is no message; before a text it is its */
    expect_items(f, STREAM "," TOOL "}", "<think>w</think>\n\n" CALL,
                 "reasoning:w\nfunction_call:{\"a\": 1}\n", "response.completed");
    expect_items(f, STREAM "}", " \n x ", "message: \n x \n", "response.completed");
    expect_items(f, STREAM ",'max_output_tokens':3}", "hello", "message:hel\n",
                 "response.incomplete");
    expect_items(f, STREAM ",'tools':[{'type':'custom','name':'f'}]}",
                 "<tool_call>{\"name\":\"f\",\"arguments\":{\"input\": \"a b\"}}</tool_call>",
                 "custom_tool_call:a b\n", "response.completed");
    expect_items(f, STREAM "}", "", "", "response.completed");
    /* cut in the middle of a call */
    expect_items(f, STREAM "," TOOL ",'max_output_tokens':42}", CALL, "function_call:{\"a\": 1\n",
                 "response.incomplete");
}

static void failures(void **state) {
    struct fixture *f = *state;
    struct infer_req *req = read_req(f, STREAM "}", NULL);
    struct answer *a;
    struct buf out = BUF_INIT;
    struct token_event ev = {.id = TOK_A};
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    answer_token(a, 0, &ev, &out);
    buf_clear(&out);
    answer_error(a, 500, "it \"broke\"", &out);
    assert_memory_equal(out.data,
                        "id: resp_17:5\nevent: response.failed\ndata: {\"type\":"
                        "\"response.failed\",\"sequence_number\":5,\"response\":{",
                        98);
    assert_non_null(strstr(out.data,
                           "\"status\":\"failed\",\"error\":{\"code\":\"server_error\","
                           "\"message\":\"it \\\"broke\\\"\",\"type\":\"server_error\"}"));
    assert_non_null(strstr(out.data, "\"text\":\" a\""));
    answer_destroy(&a);
    /* nothing has been said, or nobody knows what */
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    buf_clear(&out);
    answer_error(a, 503, "no", &out);
    static const char plain[] =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"no\",\"type\":"
        "\"server_error\",\"param\":null,\"code\":\"service_unavailable\"}}\n\n";
    assert_string_equal(out.data, plain);
    answer_destroy(&a);
    buf_clear(&out);
    answer_error_alone(f->ep, req, 503, "no", &out);
    assert_string_equal(out.data, plain);
    /* stopped: what there is */
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    answer_token(a, 0, &ev, &out);
    buf_clear(&out);
    answer_abort(a, &out);
    assert_non_null(strstr(out.data, "event: response.incomplete\n"));
    assert_non_null(strstr(out.data, "\"incomplete_details\":{\"reason\":\"cancelled\"}"));
    answer_destroy(&a);
    infer_req_destroy(&req);
    buf_free(&out);
}

static void counts(void **state) {
    struct fixture *f = *state;
    char model[257];
    struct api_answer a;
    struct endpoint_ask ask = {.path = api_path_find("POST", "/v1/responses/input_tokens", model),
                               .name = ""};
    static const struct {
        const char *body, *context, *want;
    } rows[] = {
        {"{'input':'x'}", NULL, "{\"object\":\"response.input_tokens\",\"input_tokens\":20}"},
        {"{'input':'x','previous_response_id':'r'}", "{'items':[{'role':'user','content':'x'}]}",
         "{\"object\":\"response.input_tokens\",\"input_tokens\":29}"},
        {"{}", NULL, "Missing required parameter: 'input'."}};
    for (size_t i = 0; i < 3; i++) {
        char *b = unquote(rows[i].body),
             *context = rows[i].context != NULL ? unquote(rows[i].context) : NULL;
        ask.body = b;
        ask.n = strlen(b);
        ask.context = context;
        ask.context_len = context != NULL ? strlen(context) : 0;
        endpoint_inform(f->ep, &ask, &a);
        buf_putc(&a.body, '\0');
        if (strstr(a.body.data, rows[i].want) == NULL) fail_msg("%s", a.body.data);
        assert_int_equal(a.status, i < 2 ? 200 : 400);
        buf_free(&a.body);
        free(b);
        free(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),         cmocka_unit_test(earlier_responses),
        cmocka_unit_test(oldest_items_go), cmocka_unit_test(templates_that_raise_while_items_go),
        cmocka_unit_test(members_act),     cmocka_unit_test(refusals),
        cmocka_unit_test(whole_answers),   cmocka_unit_test(streams),
        cmocka_unit_test(pieces_add_up),   cmocka_unit_test(failures),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, setup_parsers, teardown);
}
