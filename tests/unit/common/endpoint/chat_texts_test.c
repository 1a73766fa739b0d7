/* Goal: the texts of /v1/chat/completions (inference-api 8.2 to 8.6) in their order, and what the
 * template is given. Method: rows of (body, status, error text); rendered prompts through the ids
 * of accepted requests. */
#include "tests/unit/common/endpoint/checks.h"

#define PATH "/v1/chat/completions"
#define M    "'messages':[{'role':'user','content':'x'}]"
#define Q    "{'model':'qwen',"
#define TOOL "{'type':'function','function':{'name':'f'}}"

static void model_and_tools(void **state) {
    static const char name_text[] = "The name of function must be a-z, A-Z, 0-9, common chinese "
                                    "characters, underscores and dashe within max length of 64, "
                                    "unexpected function name: ";
    static char long_name[256], bad_name[256];
    snprintf(long_name, sizeof(long_name), "%sa b", name_text);
    snprintf(bad_name, sizeof(bad_name), "%s", name_text);
    const struct row rows[] = {
        {"{" M "}", 422, "Request contains not model or model null"},
        {"{'model':null," M "}", 422, "Request contains not model or model null"},
        {"{'model':1," M "}", 422, "Request param model must be string"},
        {"{'model':''," M "}", 422, "Request param model must be not empty"},
        {"{'model':'gpt'," M "}", 422, "Model not found"},
        {"{'model':'gpt','tool_choice':1}", 422,
         "Model not found"}, /* order: model, tool_choice, tools, messages */
        {Q "'tool_choice':1,'tools':1}", 422, "Parameter tool_choice not string or object"},
        {Q "'tool_choice':'any'," M "}", 422,
         "Parameter tool_choice string not in [none, auto, required]"},
        {Q "'tool_choice':{}," M "}", 422, "Tool param invalid, tool type not exist"},
        {Q "'tool_choice':{'type':null}," M "}", 422, "Tool param invalid tool type"},
        {Q "'tool_choice':{'type':1}," M "}", 422, "Tool param invalid tool string type"},
        {Q "'tool_choice':{'type':'x'}," M "}", 422, "Tool param not function type"},
        {Q "'tool_choice':" TOOL "," M "}", 422,
         "Tool param invalid function object"}, /* f is not in tools */
        {Q "'tool_choice':{'type':'allowed_tools'},'tools':[" TOOL "]," M "}", 200, NULL},
        {Q "'tool_choice':'required','tools':[" TOOL "]," M "}", 200, NULL},
        {Q "'tools':1," M "}", 422, "Tools not array"},
        {Q "'tools':[]," M "}", 200, NULL},
        {Q "'tools':null," M "}", 200, NULL},
        {Q "'tools':[1]," M "}", 422, "Tool param invalid, tool type not exist"},
        {Q "'tools':[{'type':null}]," M "}", 422, "Tool param invalid tool type"},
        {Q "'tools':[{'type':[]}]," M "}", 422, "Tool param invalid tool string type"},
        {Q "'tools':[{'type':'retrieval'}]," M "}", 422, "Tool param not function type"},
        {Q "'tools':[{'type':'function'}]," M "}", 422,
         "Tool param invalid, tool function not exist"},
        {Q "'tools':[{'type':'function','function':1}]," M "}", 422,
         "Tool param invalid function object"},
        {Q "'tools':[{'type':'function','function':{}}]," M "}", 422,
         "Function object invalid, function name not exist"},
        {Q "'tools':[{'type':'function','function':{'name':1}}]," M "}", 422,
         "Function object invalid name type"},
        {Q "'tools':[{'type':'function','function':{'name':'a b'}}]," M "}", 422, long_name},
        {Q "'tools':[{'type':'function','function':{'name':''}}]," M "}", 422, bad_name},
        {Q "'tools':[{'type':'function','function':{'name':'a-Z_0\xE4\xB8\x80\xE9\xBE\xA5'}}]," M
           "}",
         200, NULL},
        {Q "'chat_template_kwargs':{'enable_thinking':'yes'}," M "}", 422,
         "enable_thinking must be boolean, got string"},
        {Q "'chat_template_kwargs':{'enable_thinking':1}," M "}", 422,
         "enable_thinking must be boolean, got number"},
        {Q "'chat_template_kwargs':{'enable_thinking':[]},'messages':[]}", 422,
         "enable_thinking must be boolean, got array"},
        {Q "'chat_template_kwargs':1," M "}", 422, "chat_template_kwargsmust be a JSON object"},
        {Q "'chat_template_kwargs':1,'temperature':-1," M "}", 422,
         "Parameter temperature must be in (0.0,3.40282e+38], got -1."},
        {Q "'chat_template_kwargs':{'enable_thinking':true,'thinking_budget':0}," M "}", 422,
         "Parameter thinking_budget must be in [1,2147483647], got 0"},
        {Q "'chat_template_kwargs':{'enable_thinking':true,'thinking_budget':1}," M "}", 200, NULL},
        {Q "'chat_template_kwargs':{'thinking_budget':0}," M "}", 200,
         NULL}, /* read only with enable_thinking */
        {Q "'chat_template':1," M "}", 422, "Parameter chat_template not string"},
        {Q "'chat_template':'/etc/passwd.jinja'," M "}", 422,
         "Parameter chat_template is not valid"},
        {Q "'chat_template':'{% for %}'," M "}", 422, "Parameter chat_template is not valid"},
        {Q "'chat_template':''," M "}", 422, "Parameter chat_template is not valid"},
        {Q "'chat_template':'{{ messages[0].content }}'," M "}", 200, NULL},
        {Q "'chat_template':'{{ raise_exception(\\'no\\') }}'," M "}", 422,
         "Failed to apply the chat template: line 1: no"},
        {Q "'continue_final_message':true,'add_generation_prompt':true," M "}", 422,
         "Cannot set both continue_final_message and add_generation_prompt to true"},
        {Q "'continue_final_message':1," M "}", 422, TYPE("continue_final_message", "boolean")},
        {Q "'logprobs':false,'top_logprobs':2," M "}", 422,
         "Value error, when using top_logprobs, logprobs must be true or null in chat completions"},
        {Q "'logprobs':false,'top_logprobs':99," M "}", 422,
         "Value error, when using top_logprobs, logprobs must be true or null in chat completions"},
        {Q "'logprobs':null,'top_logprobs':2," M "}", 200, NULL},
    };
    run_rows(*state, PATH, rows, sizeof(rows) / sizeof(rows[0]));
}

static void messages(void **state) {
#define MSG(m)       Q "'messages':[" m "]}"
#define MSG_TOOLS(m) Q "'tools':[" TOOL "],'messages':[" m "]}"
#define CALL(c)      MSG("{'role':'assistant','tool_calls':[" c "]}")
    static const struct row rows[] = {
        {"{'model':'qwen'}", 422, "Request param contains not messages or messages null"},
        {Q "'messages':null}", 422, "Request param contains not messages or messages null"},
        {Q "'messages':'x'}", 422, "Request param messages not arr or arr is empty"},
        {Q "'messages':[]}", 422, "Request param messages not arr or arr is empty"},
        {Q "'tools':[" TOOL "]}", 422, "Request param messages is null"},
        {Q "'tools':[" TOOL "],'messages':[]}", 422,
         "Request param messages is not arr or arr is empty"},
        {MSG("1"), 422, "Request param contains not role or role null"},
        {MSG("{'content':'x'}"), 422, "Request param contains not role or role null"},
        {MSG("{'role':null,'content':'x'}"), 422, "Request param contains not role or role null"},
        {MSG("{'role':1,'content':'x'}"), 422, "Request param contains not role or role null"},
        {MSG("{'role':'narrator','content':'x'}"), 200, NULL},
        {MSG_TOOLS("{'role':'narrator','content':'x'}"), 422,
         "Request param contains role must be system, assistant, user or tool"},
        {MSG_TOOLS("{'role':'developer','content':'x'}"), 200, NULL},
        {MSG("{'role':'user'}"), 422, "Request param contains not content or content null"},
        {MSG("{'role':'user','content':null}"), 422,
         "Request param contains not content or content null"},
        {MSG_TOOLS("{'role':'user','content':null}"), 422,
         "Request param contains not content or content null"},
        {MSG("{'role':'user','content':[]}"), 422, "Inputs arr is empty"},
        {MSG("{'role':'user','content':5}"), 422, "The type of inputs is abnormal"},
        {MSG("{'role':'user','content':[{'type':'image_url','image_url':{'url':'a'}}]}"), 422,
         "The type of inputs is abnormal"},
        {MSG("{'role':'user','content':[{'type':'input_audio','input_audio':{}}]}"), 422,
         "The type of inputs is abnormal"},
        {MSG("{'role':'user','content':[{'type':'text','text':1}]}"), 422,
         "Request param text must be string"},
        {MSG("{'role':'user','content':''}"), 200, NULL},
        {MSG_TOOLS("{'role':'user','content':''}"), 422,
         "Request param content len should not be 0"},
        {MSG_TOOLS("{'role':'tool','content':'','tool_call_id':'c'}"), 200, NULL},
        {MSG("{'role':'assistant'}"), 422, "Request param contains not content or content null"},
        {MSG("{'role':'assistant','content':5}"), 422,
         "Request param \"content\" arguments expected to be a string"},
        {MSG("{'role':'assistant','content':''}"), 422,
         "Request param \"content\" should not be empty"},
        {MSG("{'role':'assistant','content':[{'type':'text','text':'x'}]}"), 200, NULL},
        {MSG("{'role':'tool','content':'x'}"), 422,
         "Request param contains not tool_call_id or tool_call_id null while role is tool"},
        {MSG("{'role':'tool','content':'x','tool_call_id':''}"), 422,
         "Request param tool_call_id len should not be 0 while role is tool"},
        {MSG("{'role':'tool','content':'x','tool_call_id':5}"), 422,
         "The type of tool_call_id is abnormal"},
        {MSG("{'role':'tool','content':'x','tool_call_id':'c'}"), 200, NULL},
        {MSG("{'role':'function','name':'f','content':'x'}"), 200, NULL},
        {MSG("{'role':'assistant','tool_calls':5}"), 422, TYPE("tool_calls", "array")},
        {MSG("{'role':'assistant','tool_calls':[]}"), 422,
         "Request param contains not content or content null"},
        {CALL("{}"), 422, "Tool call param contains no id."},
        {CALL("{'id':1}"), 422, "Tool call param \"id\" arguments expected to be a string"},
        {CALL("{'id':'c'}"), 422, "The type of the tool. Currently, only function is supported."},
        {CALL("{'id':'c','type':'x'}"), 422,
         "The type of the tool. Currently, only function is supported."},
        {CALL("{'id':'c','type':'function'}"), 422,
         "Tool call param contains no function that the model called."},
        {CALL("{'id':'c','type':'function','function':{}}"), 422,
         "Tool call param contains no function name"},
        {CALL("{'id':'c','type':'function','function':{'name':1}}"), 422,
         "Tool call param function name expected to be a string"},
        {CALL("{'id':'c','type':'function','function':{'name':'f'}}"), 422,
         "Tool call param contains no function arguments"},
        {CALL("{'id':'c','type':'function','function':{'name':'f','arguments':{}}}"), 422,
         "Tool call param function arguments expected to be a string"},
        {CALL("{'id':'c','type':'function','function':{'name':'f','arguments':'{}'}}"), 200, NULL},
        {CALL("{'id':'c','type':'function','function':{'name':'f','arguments':'not json'}}"), 200,
         NULL},
    };
    run_rows(*state, PATH, rows, sizeof(rows) / sizeof(rows[0]));
}

static void response_format(void **state) {
#define RF(v)     Q M ",'response_format':" v "}"
#define SCHEMA(s) RF("{'type':'json_schema','json_schema':{'name':'n','schema':" s "}}")
#define P         "Parameter response_format"
#define S64       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    static const struct row rows[] = {
        {RF("null"), 200, NULL},
        {RF("{'type':'text'}"), 200, NULL},
        {RF("1"), 422, P " must be an object"},
        {RF("{}"), 422, P " must contain 'type' field"},
        {RF("{'type':null}"), 422, P " must contain 'type' field"},
        {RF("{'type':1}"), 422, P ".type must be a string"},
        {RF("{'type':'xml'}"), 422,
         P ".type must be 'json_object', 'json_schema' or 'text', got 'xml'"},
        {RF("{'type':'json_object'}"), 200, NULL},
        {RF("{'type':'json_schema'}"), 422,
         P ".json_schema is required when type is 'json_schema'"},
        {RF("{'type':'json_schema','json_schema':1}"), 422, P ".json_schema must be an object"},
        {RF("{'type':'json_schema','json_schema':{}}"), 422, P ".json_schema.name is required"},
        {RF("{'type':'json_schema','json_schema':{'name':1}}"), 422,
         P ".json_schema.name must be a string"},
        {RF("{'type':'json_schema','json_schema':{'name':''}}"), 422,
         P ".json_schema.name must be 1-64 characters"},
        {RF("{'type':'json_schema','json_schema':{'name':'" S64 "a'}}"), 422,
         P ".json_schema.name must be 1-64 characters"},
        {RF("{'type':'json_schema','json_schema':{'name':'" S64 "'}}"), 422,
         P ".json_schema.schema is required when type is 'json_schema'"},
        {SCHEMA("1"), 422, P ".json_schema.schema must be an object"},
        {SCHEMA("{'type':1}"), 422, "Invalid json_schema: 'type' at 'schema' must be a string"},
        {SCHEMA("{'type':['string',1]}"), 422,
         "Invalid json_schema: 'type' at 'schema' must be a string"},
        {SCHEMA("{'type':'date'}"), 422,
         "Invalid json_schema: unsupported type 'date' at 'schema'"},
        {SCHEMA("{'properties':1}"), 422,
         "Invalid json_schema: 'properties' at 'schema' must be an object"},
        {SCHEMA("{'properties':{'a':1}}"), 422,
         "Invalid json_schema: property 'a' at 'schema must be an object"},
        {SCHEMA("{'properties':{'a':{'items':1}}}"), 422,
         "Invalid json_schema: 'items' at 'schema.properties.a' must be an object"},
        {SCHEMA("{'properties':{'a':{'items':true},'b':false,'c':{'items':false}}}"), 200, NULL},
        {SCHEMA("{'properties':{'a':{'items':{'type':'x'}}}}"), 422,
         "Invalid json_schema: unsupported type 'x' at 'schema.properties.a.items'"},
        {SCHEMA("{'required':1}"), 422,
         "Invalid json_schema: 'required' at 'schema' must be an array"},
        {SCHEMA("{'required':[1]}"), 422,
         "Invalid json_schema: elements of 'required' at 'schema' must be strings"},
        {SCHEMA("{'type':['string','null'],'properties':{'a':{'type':'object','properties':{'b':{'"
                "type':'array','items':{'type':'integer'}}}}},'required':['a']}"),
         200, NULL},
        {SCHEMA("{'type':'object','properties':{'a':{'not':{}}}}"), 422,
         "Invalid json_schema: 'not' is not supported, at 'schema.properties.a'"},
        {RF("{'type':'json_object'},'guided_regex':'a'"), 422,
         "Parameters response_format and guided_regex cannot be used together"},
    };
    run_rows(*state, PATH, rows, sizeof(rows) / sizeof(rows[0]));
}

/* The vendor's own mode of chat: other ranges, no thinking, no response_format. */
static void own_mode(void **state) {
    struct fixture *f = *state;
    static const struct row rows[] = {
        {"{'model':'gpt'," M "}", 422, "Got model gpt, but not found in server"},
        {Q M ",'temperature':2}", 200, NULL},
        {Q M ",'temperature':2.1}", 422, "Parameter temperature must be in (0.0,2], got 2.1."},
        {Q M ",'top_k':0}", 200, NULL},
        {Q M ",'top_k':-1}", 422, "Parameter top_k must be in -1 || (0,2147483647], got -1"},
        {Q M ",'stop':''}", 422,
         "Input validation error: length of `stop` must be in [1, 1024], but got 0"},
        {Q M ",'response_format':1,'chat_template_kwargs':{'enable_thinking':1}}", 200, NULL},
    };
    f->conf.openai_vllm_mode = false;
    fixture_open(f);
    run_rows(f, PATH, rows, sizeof(rows) / sizeof(rows[0]));
    f->conf.openai_vllm_mode = true;
    fixture_open(f);
}

/* errorStyle openai: the nested object, 422 and 424 as 400, an unknown model as 404, laxer
 * messages. */
static void openai_style(void **state) {
    struct fixture *f = *state;
    static const struct row rows[] = {
        {"{'model':'gpt'," M "}", 404,
         "The model 'gpt' does not exist. GET /v1/models lists those that do."},
        {Q M ",'temperature':-1}", 400, "Parameter temperature must be at least 0, got -1."},
        {Q "'messages':[{'role':'assistant','content':''}]}", 200, NULL},
        {Q M ",'n':2}", 200, NULL}, /* temperature is 1 there */
    };
    f->conf.error_style = ERROR_STYLE_OPENAI;
    fixture_open(f);
    run_rows(f, PATH, rows, sizeof(rows) / sizeof(rows[0]));
    check(f, "/infer", "{}", 422, "Not found inputs."); /* only /v1/ */
    f->conf.error_style = ERROR_STYLE_MINDIE;
    fixture_open(f);
}

/* What the template made: the prompt's ids as text, special tokens too. */
static void rendered(void **state) {
    struct fixture *f = *state;
#define USER(c) "<|im_start|>user\n" c "<|im_end|>\n"
#define ANSWER  "<|im_start|>assistant\n"
    static const struct {
        const char *body, *prompt;
    } rows[] = {
        {Q M "}", USER("x") ANSWER},
        {Q M ",'add_generation_prompt':false}", USER("x")},
        {Q M ",'add_special_tokens':true}", "<s>" USER("x") ANSWER},
        {Q "'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':"
           "'b'}]}]}",
         USER("ab") ANSWER},
        {Q "'messages':[{'role':'developer','content':'a'},{'role':'function','content':'b'}]}",
         "<|im_start|>system\na<|im_end|>\n<|im_start|>tool\nb<|im_end|>\n" ANSWER},
        {Q M ",'tools':[" TOOL "]}", USER("x") "[f]" ANSWER},
        {Q M ",'tools':[" TOOL "],'tool_choice':'none'}", USER("x") ANSWER},
        {Q M ",'tools':[" TOOL ",{'type':'function','function':{'name':'g'}}],'tool_choice':{'type'"
             ":'function','function':{'name':'g'}}}",
         USER("x") "[g]" ANSWER},
        {Q "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':' y "
           "'}],'continue_final_message':true}",
         USER("x") "<|im_start|>assistant\n y"},
        {Q M ",'chat_template':'{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ nothing is "
             "defined }}'}",
         "<s></s>TrueFalse"},
        {Q M ",'chat_template':'{{ flag }}{{ enable_thinking "
             "}}','reasoning_effort':'none','chat_template_kwargs':{'flag':3}}",
         "3False"},
        {Q M ",'chat_template':'{{ reasoning_effort }}','reasoning_effort':'low'}", "low"},
        {Q "'messages':[{'role':'assistant','tool_calls':[{'id':'c','type':'function','function':{'"
           "name':'f','arguments':'{\\'k\\':[1]}'}}]}],"
           "'chat_template':'{{ messages[0].tool_calls[0].function.arguments.k[0] }}{{ "
           "messages[0].content is none }}'}",
         "1True"},
    };
    struct fixture with_bos;
    fixture_init(&with_bos, true);
    fixture_open(&with_bos);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req;
        struct api_answer err;
        struct buf text = BUF_INIT;
        char *body = strdup(rows[i].body);
        for (char *p = body; *p != '\0'; p++)
            if (*p == '\'' && p > body && p[-1] == '\\')
                p[0] = '"';
            else if (*p == '\'')
                *p = '"';
        if (!fixture_read(&with_bos, PATH, body, &req, &err))
            fail_msg("%s\n refused: %s", body, err.body.data);
        assert_int_equal(tokenizer_decode(with_bos.tok, req->ids, req->n_ids, false, &text),
                         ERR_OK);
        if (strcmp(text.data, rows[i].prompt) != 0)
            fail_msg("%s\n got      %s\n expected %s", body, text.data, rows[i].prompt);
        assert_null(req->answer.text); /* nothing repeats the prompt of a chat */
        assert_string_equal(req->head.model, "qwen");
        buf_free(&text);
        infer_req_destroy(&req);
        free(body);
    }
    fixture_close(&with_bos);
    (void)f;
}

/* A model without a template serves chats only with one from the client. */
static void no_template(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    static const struct row rows[] = {
        {Q M "}", 422, "The model has no chat template; send one as chat_template"},
        {Q M ",'chat_template':'{{ messages[0].content }}'}", 200, NULL},
    };
    f->conf.model_dir = "";
    fixture_open(f);
    run_rows(f, PATH, rows, 2);
    f->conf = was;
    fixture_open(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_and_tools), cmocka_unit_test(messages),
        cmocka_unit_test(response_format), cmocka_unit_test(own_mode),
        cmocka_unit_test(openai_style),    cmocka_unit_test(rendered),
        cmocka_unit_test(no_template),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
