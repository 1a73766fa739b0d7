/* Goal: every text of inference-api 3.3, 6 to 7 and 9 to 11 comes with its status, and the first
 * failure in the family's order wins. Method: rows of (path, body, status, error text); the text is
 * compared in full. */
#include "tests/unit/common/endpoint/checks.h"

/* ---- 3.3, 6.1: before the family */

static void entry(void **state) {
    struct fixture *f = *state;
    static const char neither[] = "{\"Error\": \"`inputs` or `prompt` must be necessary and data "
                                  "type must be string. Additionally, the request "
                                  "body must be valid json\", \"error_type\": \"validation\"}";
    static const struct row generate[] = {
        {"{}", 422, neither},
        {"", 422, neither},
        {"[1]", 422, neither},
        {"not json", 422, neither},
        {"{'prompt':null,'inputs':null}", 422, neither},
        {"{'text_input':'x'}", 422,
         "{\"Error\": \"`inputs` or `prompt` must be necessary and data type must be string. "
         "Additionally, the request body must be valid json. A body with `text_input` goes to POST "
         "/v2/models/{model}/generate.\", \"error_type\": \"validation\"}"},
        {"{'prompt':null,'inputs':'x'}", 200, NULL},
        {"{'prompt':'x','inputs':null}", 200, NULL},
        {"{'inputs':'x','stream':'yes'}", 200,
         NULL}, /* TGI on this path never streams and never looks */
        {"{'prompt':'x','stream':'yes'}", 422, TYPE("stream", "boolean")},
    };
    static const struct row root[] = {
        {"nope", 422, "Failed to parse context to json body"},
        {"[]", 422, "Failed to parse context to json body"},
        {"{'inputs':'x','stream':'yes'}", 422, "Stream must be boolean type."},
        {"{'stream':1}", 422, "Stream must be boolean type."}, /* before the input is looked at */
        {"{'inputs':'x','stream':null}", 200, NULL},
        {"{'stream':true}", 422, "Request should contain 'inputs' and the type should be string."},
    };
    static const struct row plain[] = {
        {"", 422, "Failed to parse request context to json"},
        {"{'inputs':'x'", 422, "Failed to parse request context to json"},
        {"'x'", 422, "Failed to parse request context to json"},
        {"{'inputs':'x'} x", 422, "Failed to parse request context to json"},
        {"{'inputs':'\xFF'}", 422, "Failed to parse request context to json"},
        {"\xEF\xBB\xBF{'inputs':'x'}", 200, NULL},
        {"{'inputs':'x','inputs':1}", 422,
         "The type of inputs is abnormal"}, /* the last key wins */
        {"{'inputs':'x','a':{'b':[[[[[[[[[[]]]]]]]]]]}}", 422,
         "Failed to parse request context to json"},
        {"{'inputs':'x','a':{'b':[[[[[[[[[]]]]]]]]]}}", 200, NULL}, /* depth 10 */
    };
    RUN(f, "/generate", generate);
    RUN(f, "/", root);
    RUN(f, "/infer", plain);
    RUN(f, "/generate_stream", plain);
    check(f, "/v2/models/nope/generate", "not json", 404, "Model nope not found.");
    check(f, "/v2/models/nope/infer", "{}", 404, "Model nope not found.");
    check(f, "/v2/models/qwen/generate", "not json", 422,
          "Failed to parse request context to json");
}

/* ---- inputs of the families */

static void inputs(void **state) {
    struct fixture *f = *state;
    static const char count[] = "Messages token length must be in (0, 1048576], but got 0. This "
                                "could be caused by invalid input format or empty content.";
    static const struct row tgi[] = {
        {"{}", 422, "Request should contain 'inputs' and the type should be string."},
        {"{'inputs':null}", 422, "Request should contain 'inputs' and the type should be string."},
        {"{'inputs':[]}", 422, "Inputs arr is empty"},
        {"{'inputs':1}", 422, "The type of inputs is abnormal"},
        {"{'inputs':{}}", 422, "The type of inputs is abnormal"},
        {"{'inputs':''}", 422, "Inputs length must be in (0, 41943040], but got 0"},
        {"{'inputs':['x']}", 422, "The type of inputs is abnormal"},
        {"{'inputs':[{'type':'text'}]}", 422, "Request param text must be string"},
        {"{'inputs':[{'type':'text','text':1}]}", 422, "Request param text must be string"},
        {"{'inputs':[{'type':'image_url'}]}", 422, "Request param image_url null"},
        {"{'inputs':[{'type':'video_url','video_url':null}]}", 422, "Request param video_url null"},
        {"{'inputs':[{'type':'image_url','image_url':'http://h/a.jpg'}]}", 422,
         "The type of inputs is abnormal"},
        {"{'inputs':[{'type':'image_url','image_url':{'url':'a'}},{'type':'text','text':'x'}]}",
         422, "The type of inputs is abnormal"},
        {"{'inputs':'x','parameters':[]}", 422, "parameters must be object type."},
        {"{'inputs':'x','parameters':null}", 200, NULL},
        {"{'inputs':'x','parameters':{'decoder_input_details':true}}", 422,
         "The decoder_input_details must not be true when stream is true."},
        {"{'inputs':'x','parameters':{'adapter_id':1}}", 422, TYPE("adapter_id", "string")},
        {"{'inputs':'x','parameters':{'adapter_id':''}}", 422,
         "The format of adapter_id is invalid."},
        {"{'inputs':'x','parameters':{'adapter_id':'a b'}}", 422,
         "The format of adapter_id is invalid."},
        {"{'inputs':'x','parameters':{'adapter_id':'a/b.c_d-e'}}", 422,
         "The LoRA adapter 'a/b.c_d-e' cannot be found."},
        {"{'inputs':'x','parameters':{'adapter_id':'None'}}", 200, NULL},
        {"{'inputs':'x','parameters':{'grammar':{'type':'json','value':{}}}}", 200, NULL},
        {"{'inputs':'x','parameters':{'grammar':{'type':'regex','value':'a+'}}}", 200, NULL},
        {"{'inputs':'x','parameters':{'grammar':1}}", 422, "Parameter grammar must be an object"},
        {"{'inputs':'x','parameters':{'grammar':{'type':'poem','value':'a'}}}", 422,
         "Parameter grammar.type must be 'json' or 'regex'"},
        {"{'inputs':'x','parameters':{'grammar':{'type':'json'}}}", 422,
         "Parameter grammar.value must be given"},
        {"{'inputs':'x','parameters':{'grammar':{'type':'regex','value':1}}}", 422,
         "Parameter grammar.value must be a string that is not empty"},
        /* order: stop before temperature before top_p */
        {"{'inputs':'x','parameters':{'top_p':7,'temperature':-1,'stop':1}}", 422,
         "Input validation error: param stop must be string or list[string]"},
        {"{'inputs':'x','parameters':{'top_p':7,'temperature':-1}}", 422,
         "Parameter temperature must be in (0.0,3.40282e+38], got -1."},
        {"{'inputs':1,'parameters':{'top_p':7}}", 422, "The type of inputs is abnormal"},
    };
    static const struct row vllm[] = {
        {"{'prompt':[]}", 422, "Prompt arr is empty"},
        {"{'prompt':1}", 422, "The type of prompt is abnormal"},
        {"{'prompt':''}", 422,
         "Prompt must be necessary and data type must be string and length in (0, 41943040], but "
         "the length of inputs is 0"},
        {"{'prompt':'x','model':1}", 422, "Model must be string type."},
        {"{'prompt':'x','model':''}", 422,
         "Input validation error: length of `model` must be in [1, 256], but got 0"},
        {"{'prompt':'x','model':'None'}", 200, NULL},
        {"{'prompt':'x','model':'qwen'}", 200, NULL},
        {"{'prompt':'x','model':'other'}", 422, "The LoRA adapter 'other' cannot be found."},
        {"{'prompt':'x','n':0,'model':1}", 422, "Parameter [n] should be in [1, 8192], got 0. "},
        {"{'prompt':'x','max_tokens':0,'model':1}", 422, "Model must be string type."},
    };
    static const struct row native[] = {
        {"{'inputs':'x','input_id':[1]}", 422, "Input conflict."},
        {"{'inputs':null,'input_id':null}", 422, "Input conflict."},
        {"{}", 422, "Not found inputs."},
        {"{'messages':[]}", 422,
         "Not found inputs. A body with `messages` goes to POST /v1/chat/completions or "
         "/v1/messages."},
        {"{'messages':null,'text':'x'}", 422, "Not found inputs."},
        {"{'inputs':null}", 422, "Inputs must not be null"},
        {"{'input_id':null}", 422, "Input_id should not be empty"},
        {"{'input_id':[]}", 422, "Input_id should not be empty"},
        {"{'input_id':1}", 422, "Parameter input_id must be an array"},
        {"{'input_id':[1,'2']}", 422, "Parameter input_id must be integer"},
        {"{'input_id':[1.0]}", 422, "Parameter input_id must be integer"},
        {"{'input_id':[-1]}", 422, "Data element in param input_id is invalid"},
        {"{'input_id':[1048577]}", 422, "Data element in param input_id is invalid"},
        {"{'input_id':[9223372036854775807]}", 422, "Data element in param input_id is invalid"},
        {"{'input_id':[1048576]}", 424, "Failed to enqueue inferRequest. Invalid Input Ids"},
        {"{'input_id':[330]}", 424, "Failed to enqueue inferRequest. Invalid Input Ids"},
        {"{'input_id':[0,329]}", 200, NULL},
        {"{'inputs':[]}", 422, "Inputs arr is empty"},
        {"{'inputs':true}", 422, "The type of inputs is abnormal"},
        {"{'inputs':''}", 422,
         "Inputs must be necessary and data type must be string and length in (0, 41943040], but "
         "the length of inputs is 0"},
        {"{'inputs':'x','stream':1}", 422, TYPE("stream", "boolean")},
        {"{'inputs':'x','stream':1,'parameters':{'details':1}}", 422, TYPE("details", "boolean")},
    };
    static const struct row completions[] = {
        {"{'prompt':'x'}", 422, "Request contains not model or model null"},
        {"{'model':1,'prompt':'x'}", 422, "Request param model must be string"},
        {"{'model':'','prompt':'x'}", 422, "Request param model must be not empty"},
        {"{'model':'m','prompt':[]}", 422,
         "Not found given model, please check modelName in config file."},
        {"{'model':'qwen'}", 422, "Contains not prompt or prompt null"},
        {"{'model':'qwen','prompt':null}", 422, "Contains not prompt or prompt null"},
        {"{'model':'qwen','prompt':[]}", 422, "Prompt array cannot be empty."},
        {"{'model':'qwen','prompt':[[]]}", 422, "Prompt array cannot be empty."},
        {"{'model':'qwen','prompt':[1,'x']}", 422,
         "All elements of the prompt array must be integers."},
        {"{'model':'qwen','prompt':[1.0]}", 422,
         "All elements of the prompt array must be integers."},
        {"{'model':'qwen','prompt':[null]}", 422,
         "All elements of the prompt array must be integers."},
        {"{'model':'qwen','prompt':[-1]}", 424,
         "Failed to enqueue inferRequest. Invalid Input Ids"},
        {"{'model':'qwen','prompt':[18446744073709551615]}", 424,
         "Failed to enqueue inferRequest. Invalid Input Ids"},
        {"{'model':'qwen','prompt':7}", 422,
         "The type of prompt is abnormal,prompt must be str or integer list."},
        {"{'model':'qwen','prompt':{}}", 422,
         "The type of prompt is abnormal,prompt must be str or integer list."},
        {"{'model':'qwen','prompt':''}", 422,
         "Length of Prompt text should be greater than 0 and less than or equal to 41943040, but "
         "got 0"},
        {"{'model':'qwen','prompt':['x','y']}", 200, NULL},
        {"{'model':'qwen','prompt':[[1],[2]]}", 200, NULL},
        {"{'model':'qwen','prompt':['x',1]}", 422,
         "The type of prompt is abnormal,prompt must be str or integer list."},
        {"{'model':'qwen','prompt':[[1],'x']}", 422,
         "The type of prompt is abnormal,prompt must be str or integer list."},
        {"{'model':'qwen','prompt':[[1],[]]}", 422, "Prompt array cannot be empty."},
        {"{'model':'qwen','prompt':[[1],['x']]}", 422,
         "All elements of the prompt array must be integers."},
        {"{'model':'qwen','prompt':['x','']}", 422,
         "Length of Prompt text should be greater than 0 and less than or equal to 41943040, but "
         "got 0"},
        {"{'model':'qwen','prompt':[[1],[330]]}", 424,
         "Failed to enqueue inferRequest. Invalid Input Ids"},
        {"{'model':'qwen','prompt':'x','suffix':'y'}", 422, "suffix is not supported."},
        {"{'model':'qwen','prompt':'x','suffix':null}", 200, NULL},
        {"{'model':'qwen','prompt':'x','bad_words':[]}", 200, NULL},
        {"{'model':'qwen','prompt':'x','bad_words':['y']}", 200, NULL},
        {"{'model':'qwen','prompt':'x','bad_words':'y'}", 422, "bad_words must be array type."},
        {"{'model':'qwen','prompt':'x','bad_words':[1]}", 422, "bad_words must hold string type."},
        {"{'model':'qwen','prompt':'x','bad_words':['']}", 422,
         "bad_words must not hold an empty string or a zero character."},
        {"{'model':'qwen','prompt':'x','allowed_token_ids':[0,329]}", 200, NULL},
        {"{'model':'qwen','prompt':'x','allowed_token_ids':7}", 422,
         "allowed_token_ids must be array type."},
        {"{'model':'qwen','prompt':'x','allowed_token_ids':[330]}", 422,
         "Parameter allowed_token_ids must hold token ids in [0,329], got 330."},
        {"{'model':'qwen','prompt':'x','allowed_token_ids':[-1]}", 422,
         "Parameter allowed_token_ids must hold token ids in [0,329], got -1."},
        {"{'model':'qwen','prompt':'x','allowed_token_ids':[1.5]}", 422,
         "Parameter allowed_token_ids must hold token ids in [0,329], got 1.5."},
        {"{'model':'qwen','prompt':'x','prompt_logprobs':20}", 200, NULL},
        {"{'model':'qwen','prompt':'x','prompt_logprobs':0,'stream':true}", 200, NULL},
        {"{'model':'qwen','prompt':'x','prompt_logprobs':21}", 422,
         "Parameter prompt_logprobs must be in [0, 20], got 21."},
        {"{'model':'qwen','prompt':'x','prompt_logprobs':1,'stream':true}", 422,
         "prompt_logprobs are not available when stream is true."},
        {"{'model':'qwen','prompt':'x','request_id':7}", 422, "request_id must be string type."},
        {"{'model':'qwen','prompt':'x','request_id':'a b'}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_regex':'y'}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_regex':''}", 422,
         "Parameter guided_regex must be a string that is not empty"},
        {"{'model':'qwen','prompt':'x','guided_regex':1}", 422,
         "Parameter guided_regex must be a string that is not empty"},
        {"{'model':'qwen','prompt':'x','guided_regex':'(a'}", 422,
         "regex: ')' is missing at byte 2"},
        {"{'model':'qwen','prompt':'x','guided_choice':['a','b']}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_choice':[]}", 422,
         "Parameter guided_choice must be an array of at least one string"},
        {"{'model':'qwen','prompt':'x','guided_choice':['a',1]}", 422,
         "Parameter guided_choice must be an array of at least one string"},
        {"{'model':'qwen','prompt':'x','guided_json':{'type':'integer'}}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_json':'{}'}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_json':'[]'}", 422,
         "Parameter guided_json must be a JSON schema: an object, or a string that holds one"},
        {"{'model':'qwen','prompt':'x','guided_json':{'type':'number','multipleOf':3}}", 422,
         "Invalid json_schema: 'multipleOf' is not supported, at 'schema'"},
        {"{'model':'qwen','prompt':'x','guided_grammar':'root ::= [ab]+'}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_grammar':'a ::= [ab]+'}", 422,
         "grammar: there is no rule 'root'"},
        {"{'model':'qwen','prompt':'x','guided_json':null,'guided_regex':'a'}", 200, NULL},
        {"{'model':'qwen','prompt':'x','guided_json':{},'guided_choice':['a']}", 422,
         "Parameters guided_json and guided_choice cannot be used together"},
        {"{'model':'qwen','prompt':'x','structural_tag':{}}", 422,
         "Parameter structural_tag is not supported"},
        {"{'model':'qwen','prompt':'x','structured_outputs':1}", 422,
         "Parameter structured_outputs must be an object"},
        {"{'model':'qwen','prompt':'x','structured_outputs':{}}", 200, NULL},
        {"{'model':'qwen','prompt':'x','structured_outputs':{'json_object':true}}", 200, NULL},
        {"{'model':'qwen','prompt':'x','structured_outputs':{'json_object':1}}", 422,
         "Parameter structured_outputs.json_object must be boolean"},
        {"{'model':'qwen','prompt':'x','structured_outputs':{'json':{},'regex':'a'}}", 422,
         "Parameters structured_outputs.json and structured_outputs.regex cannot be used together"},
        {"{'model':'qwen','prompt':'x','structured_outputs':{'choice':['a']},'guided_grammar':'"
         "root ::= [a]'}",
         422, "Parameters guided_grammar and structured_outputs.choice cannot be used together"},
        {"{'model':'qwen','prompt':'x','response_format':{'type':'json_object'},'guided_regex':'a'"
         "}",
         422, "Parameters response_format and guided_regex cannot be used together"},
        {"{'model':'qwen','prompt':'x','response_format':{'type':'text'},'guided_regex':'a'}", 200,
         NULL},
        {"{'model':'qwen','prompt':'x','logit_bias':[]}", 422, TYPE("logit_bias", "object")},
        {"{'model':'qwen','prompt':'x','logit_bias':{'330':1}}", 422,
         "Parameter logit_bias must have token ids in [0,329] as keys, got 330."},
        {"{'model':'qwen','prompt':'x','logit_bias':{'-1':1}}", 422,
         "Parameter logit_bias must have token ids in [0,329] as keys, got -1."},
        {"{'model':'qwen','prompt':'x','logit_bias':{'99999999999':1}}", 422,
         "Parameter logit_bias must have token ids in [0,329] as keys, got 99999999999."},
        {"{'model':'qwen','prompt':'x','logit_bias':{'5':101}}", 422,
         "Parameter logit_bias must have values in [-100.0,100.0], got 101."},
        {"{'model':'qwen','prompt':'x','logit_bias':{'5':'1'}}", 422,
         "Parameter logit_bias must have values in [-100.0,100.0], got \"1\"."},
        {"{'model':'qwen','prompt':'x','logit_bias':{'5':-100,'329':100}}", 200, NULL},
        {"{'model':'qwen','prompt':'x','stream_options':1}", 422, TYPE("stream_options", "object")},
        {"{'model':'qwen','prompt':'x','stream_options':{'include_usage':1}}", 422,
         TYPE("include_usage", "boolean")},
    };
    RUN(f, "/generate_stream", tgi);
    RUN(f, "/generate", vllm);
    RUN(f, "/infer", native);
    RUN(f, "/infer_token", native);
    RUN(f, "/v1/completions", completions);
    static const struct row empty_chat[] = {
        {"{'model':'qwen','messages':[{'role':'user','content':'x'}],'chat_template':'{{ 1 if 0 "
         "}}'}",
         422, count},
    };
    RUN(f, "/v1/chat/completions", empty_chat);
}

static void triton(void **state) {
    struct fixture *f = *state;
    static const char id[] = "The id can contain only digits, letters, underscores(_), hyphens(-) "
                             "and no more than 256 words in length.";
    static const char shape[] = "Shape must be at most two-dimensional, and the last element's "
                                "value must be in (0,1048576].";
#define T(in, out) "{'inputs':[{'name':'i'," in "}],'outputs':" out "}"
#define OUT        "[{'name':'o'}]"
    static const struct row token[] = {
        {"{}", 422, "Req should contain 'inputs' and the type should be array."},
        {"{'inputs':{}}", 422, "Req should contain 'inputs' and the type should be array."},
        {"{'inputs':[]}", 422, "Inputs count must be 1."},
        {"{'inputs':[1,2]}", 422, "Inputs count must be 1."},
        {"{'inputs':[{}]}", 422, "Cannot find name in inputs or its type is not string"},
        {"{'inputs':[{'name':1}]}", 422, "Cannot find name in inputs or its type is not string"},
        {T("'shape':1", OUT), 422, "Cannot find shape in inputs or its type is not array"},
        {T("'shape':['1']", OUT), 422, "Shape element must be integer type."},
        {T("'shape':[1.0]", OUT), 422, "Shape element must be integer type."},
        {T("'shape':[]", OUT), 422, shape},
        {T("'shape':[1,1,1]", OUT), 422, shape},
        {T("'shape':[2,1]", OUT), 422, shape},
        {T("'shape':[0]", OUT), 422, shape},
        {T("'shape':[1,1048577]", OUT), 422, shape},
        {T("'shape':[1]", OUT), 422, "Cannot find datatype in inputs or its type is not string"},
        {T("'shape':[1],'datatype':'INT64'", OUT), 422, "Unsupported datatype, got INT64."},
        {T("'shape':[1],'datatype':'BYTES'", OUT), 422, "Unsupported datatype, got BYTES."},
        {T("'shape':[1],'datatype':'UINT32'", OUT), 422,
         "Cannot find data in inputs or its type is not array"},
        {T("'shape':[1,3],'datatype':'UINT32','data':[1,2]", OUT), 422,
         "Data size should be 3, got 2."},
        {T("'shape':[2],'datatype':'UINT32','data':[[1,2]]", OUT), 422, /* nested for [1,n] only */
         "Data size should be 2, got 1."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,'2']", OUT), 422,
         "Data element must be integer type."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,-2]", OUT), 422,
         "Data element must be integer type."},
        {T("'shape':[1],'datatype':'UINT32','data':[330]", OUT), 424,
         "Failed to enqueue inferRequest. Invalid Input Ids"},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2]", "1"), 422,
         "Req should contain 'outputs' and the type should be array."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2]", "[]"), 422,
         "Outputs size should be 1, got 0."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2]", "[{'name':'a'},{'name':'b'}]"), 422,
         "Outputs size should be 1, got 2."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2]", "[{'name':''}]"), 422,
         "Outputs name must be non-empty string."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2]", OUT), 200, NULL},
        {T("'shape':[1,2],'datatype':'UINT32','data':[[1,2]]", OUT), 200, NULL},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2],'parameters':{'top_p':7}", OUT), 422,
         "Parameter top_p must be in (0.0,1.0], got 7."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2],'parameters':{'top_p':7}",
           OUT ",'parameters':{'top_p':0.5}"),
         200, NULL},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2],'parameters':{'top_p':0.5}",
           OUT ",'parameters':{'top_p':7}"),
         422, "Parameter top_p must be in (0.0,1.0], got 7."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2],'parameters':{'top_p':7}",
           OUT ",'parameters':{'top_p':null}"),
         422, "Parameter top_p must be in (0.0,1.0], got 7."},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2],'parameters':[]", OUT), 422,
         TYPE("parameters", "object")},
        {T("'shape':[2],'datatype':'UINT32','data':[1,2]", "[],'id':'a b'"), 422,
         id}, /* id before outputs */
        {T("'shape':[2],'datatype':'UINT32','data':[1]", OUT ",'id':'a b'"), 422,
         "Data size should be 2, got 1."},
    };
    static const struct row text[] = {
        {"{'id':'a b','text_input':'x'}", 422, id},
        {"{'id':'','text_input':'x'}", 422, id},
        {"{'id':5,'text_input':'x'}", 422, id},
        {"{'id':'a-Z_09','text_input':'x'}", 200, NULL},
        {"{}", 422, "The text_input not found"},
        {"{'inputs':'x'}", 422,
         "The text_input not found. A body with `inputs` goes to POST /generate."},
        {"{'text_input':null}", 422, "The text_input not found"},
        {"{'text_input':[]}", 422, "Parameter text_input arr is empty"},
        {"{'text_input':5}", 422,
         "The type of text_input is abnormal. The requestId is endpoint_common_17"},
        {"{'text_input':''}", 422,
         "text_input must be necessary and data type must be string and length in (0, 41943040], "
         "but the length of inputs is 0"},
        {"{'text_input':'x','max_tokens':0}", 422,
         "Parameter max_new_tokens must be in (0,2147483647], got 0."},
        {"{'text_input':'x','max_tokens':0,'parameters':{'max_new_tokens':1}}", 200, NULL},
        {"{'text_input':'x','max_tokens':0,'parameters':{'max_tokens':1}}", 200, NULL},
        {"{'text_input':'x','stop_words':5}", 422,
         "Input validation error: param stop must be string or list[string]"},
        {"{'text_input':'x','stream':'any'}", 200, NULL},
    };
    RUN(f, "/v2/models/qwen/infer", token);
    RUN(f, "/v2/models/qwen/generate", text);
    RUN(f, "/v2/models/qwen/generate_stream", text);
    char body[1024], name[300];
    for (size_t n = 256; n <= 257; n++) {
        memset(name, 'n', n);
        name[n] = '\0';
        snprintf(body, sizeof(body),
                 "{\"inputs\":[{\"name\":\"%s\",\"shape\":[1],\"datatype\":\"UINT32\",\"data\":[1]}"
                 "],\"outputs\":[{\"name\":\"o\"}]}",
                 name);
        check(f, "/v2/models/qwen/infer", body, n == 256 ? 200 : 422,
              "The length of name set in inputs exceeds 256.");
        snprintf(body, sizeof(body), "{\"id\":\"%s\",\"text_input\":\"x\"}", name);
        check(f, "/v2/models/qwen/generate", body, n == 256 ? 200 : 422, id);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(entry), cmocka_unit_test(inputs),
                                       cmocka_unit_test(triton)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
