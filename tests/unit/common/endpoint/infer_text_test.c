/* Goal: /v2/models/{m}/generate and generate_stream have two dialects, the reference's
 * (inference-api 11.2) and that of Triton's generate extension (kserve-runtimes 10.1); each body is
 * read and answered as its own, and every name of the extension acts or is refused by its name.
 * Method: bodies with the marks of either and of both, whole answers of the stub engine byte for
 * byte, the values that reach the engine, a wrong value for each field. */
#include "tests/unit/common/endpoint/checks.h"

#define WHOLE  "/v2/models/qwen/generate"
#define EVENTS "/v2/models/qwen/generate_stream"
#define X      "'text_input':'x'"

static void expect_at(struct fixture *f, int line, const char *path, const char *quoted,
                      const char *want) {
    static const int32_t abc[] = {TOK_A, TOK_B, TOK_C};
    struct buf out = BUF_INIT;
    char *body = unquote(quoted), *json = unquote(want);
    const int status = fixture_ask(f, path, body, abc, 3, &out);
    buf_putc(&out, '\0');
    if (status != 200 || strcmp(out.data, json) != 0)
        fail_msg("line %d: %s %s\n got      %d %s\n expected %s", line, path, body, status,
                 out.data, json);
    buf_free(&out);
    free(body);
    free(json);
}
#define expect(f, path, quoted, want) expect_at(f, __LINE__, path, quoted, want)

#define OURS(text)   "{'model_name':'qwen','model_version':'1','text_output':'" text "'}"
#define THEIRS(text) "{'id':'r','model_name':'qwen','model_version':null,'text_output':'" text "'}"
#define ID           "'id':'r',"

/* A mark of Triton's is a name of its backends where the reference has none; a name that the
 * reference alone has outweighs it. */
static void dialects(void **state) {
    static const char *const triton[] = {
        /* as NVIDIA's pages write them */
        "'parameters':{'stream':false,'temperature':0,'max_tokens':2}",
        "'max_tokens':2,'bad_words':'','stop_words':''",
        "'max_tokens':2,'bad_words':[''],'stop_words':[],'pad_id':2,'end_id':900",
        "'parameters':{'max_tokens':2,'temperature':0}",
        "'parameters':{'stop_words':['zz'],'temperature':0},'max_tokens':2",
        "'temperature':0,'max_tokens':2",
        "'sampling_parameters':'{\\\"max_tokens\\\":2}'",
        "'exclude_input_in_output':true,'max_tokens':2",
        "'max_tokens':2,'image':''",
        "'max_tokens':2,'parameters':{'n':1,'stream':true}",
        "'max_tokens':2,'parameters':null,'top_k':1",
        "'max_tokens':7,'parameters':{'max_tokens':2}",
        "'max_tokens':[2],'temperature':[0.0],'nobody':[1,2],'knows':{}",
    };
    static const char *const reference[] = {
        "'max_tokens':2",
        "'max_tokens':2,'stop_words':''",
        "'max_tokens':2,'stop_words':['']",
        "'max_tokens':2,'stream':true",
        "'max_tokens':2,'nobody':1,'temperature':null",
        "'parameters':{'max_new_tokens':2}",
        "'parameters':{'max_new_tokens':2,'stream':true}",
        "'temperature':0,'parameters':{'max_new_tokens':2}",
        "'max_tokens':2,'bad_words':['b'],'parameters':{'do_sample':false}",
        "'max_tokens':2,'parameters':{'frequency_penalty':'any','n':[],'best_of':{}}",
        "'max_tokens':2,'parameters':{'stream':null}",
    };
    char body[512];
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(triton) / sizeof(triton[0]); i++) {
        snprintf(body, sizeof(body), "{" X ",%s}", triton[i]);
        expect(f, WHOLE, body, OURS(" a b"));
    }
    for (size_t i = 0; i < sizeof(reference) / sizeof(reference[0]); i++) {
        snprintf(body, sizeof(body), "{" ID X ",%s}", reference[i]);
        expect(f, WHOLE, body, THEIRS(" a b"));
    }
    /* parts of a text are the reference's, texts of a batch Triton's */
    expect(f, WHOLE,
           "{" ID "'text_input':[{'type':'text','text':'x'}],'max_tokens':2,'temperature':0}",
           THEIRS(" a b"));
}

static void answers(void **state) {
    struct fixture *f = *state;
    expect(f, WHOLE, "{'id':'a/1'," X ",'max_tokens':2,'top_p':1}",
           "{'id':'a/1','model_name':'qwen','model_version':'1','text_output':' a b'}");
    expect(f, WHOLE,
           "{" X ",'max_tokens':2,'return_finish_reason':true,'return_num_input_tokens':true,"
           "'return_num_output_tokens':true,'return_cumulative_logprob':true}",
           "{'model_name':'qwen','model_version':'1','text_output':' a b','finish_reason':'length',"
           "'cumulative_logprob':-1.0,'num_input_tokens':1,'num_output_tokens':2}");
    expect(f, WHOLE, "{" X ",'max_tokens':3,'stop_words':' c','temperature':0}", OURS(" a b"));
    expect(f, WHOLE, "{" X ",'max_tokens':3,'stop':[' c'],'temperature':0}", OURS(" a b"));
    expect(f, WHOLE, "{" X ",'max_tokens':2,'exclude_input_in_output':false}", OURS("x a b"));
#define EVENT(text, reason)                                                                        \
    "data: {'model_name':'qwen','model_version':'1','text_output':'" text                          \
    "','finish_reason':'" reason "'}\n\n"
#define REASON "'return_finish_reason':true"
    expect(f, EVENTS, "{" X ",'max_tokens':2,'stream':true," REASON "}",
           EVENT(" a", "") EVENT(" b", "length"));
    expect(f, EVENTS, "{" X ",'max_tokens':2," REASON "}", EVENT(" a", "") EVENT(" b", "length"));
    expect(f, EVENTS, "{" X ",'parameters':{'max_tokens':2,'stream':false}," REASON "}",
           EVENT(" a b", "length"));
    expect(f, EVENTS,
           "{" X ",'max_tokens':2,'stream':false,'exclude_input_in_output':false," REASON "}",
           EVENT("x a b", "length"));
    expect(f, EVENTS, "{" X ",'max_tokens':2,'stream':false,'return_num_output_tokens':true}",
           "data: {'model_name':'qwen','model_version':'1','text_output':' a b',"
           "'num_output_tokens':2}\n\n");
}

static struct infer_req *read_one(struct fixture *f, const char *quoted) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    char *body = unquote(quoted);
    if (!fixture_read(f, WHOLE, body, &req, &err)) fail_msg("%s: %s", body, err.body.data);
    assert_int_equal(req->answer.api, API_INFER_TEXT);
    free(body);
    return req;
}

/* What each name does, at the top level and among the parameters. */
static void values(void **state) {
    static const char *const bodies[] = {
        "{" X ",'max_tokens':5,'min_tokens':2,'temperature':0.5,'runtime_top_k':3,'top_p':0.5,"
        "'min_p':0.25,'random_seed':11,'repetition_penalty':1.5,'presence_penalty':1,"
        "'frequency_penalty':-1,'stop_words':['p','q'],'end_id':9,'ignore_eos':true,'priority':2,"
        "'timeout':2000000,'beam_width':1,'n':2}",
        "{" X ",'parameters':{'request_output_len':5,'min_tokens':2,'temperature':0.5,'top_k':3,"
        "'runtime_top_p':0.5,'min_p':0.25,'seed':11,'repetition_penalty':1.5,'presence_penalty':1,"
        "'frequency_penalty':-1,'stop':['p','q'],'stop_token_ids':[9],'ignore_eos':true,"
        "'priority':2,'timeout':2000000,'num_return_sequences':2}}",
        "{" X ",'sampling_parameters':'{\\\"max_tokens\\\":5,\\\"min_tokens\\\":2,"
        "\\\"temperature\\\":0.5,\\\"top_k\\\":3,\\\"top_p\\\":0.5,\\\"min_p\\\":0.25,"
        "\\\"seed\\\":11,\\\"repetition_penalty\\\":1.5,\\\"presence_penalty\\\":1,"
        "\\\"frequency_penalty\\\":-1,\\\"stop\\\":[\\\"p\\\",\\\"q\\\"],"
        "\\\"stop_token_ids\\\":[9],\\\"ignore_eos\\\":true,\\\"n\\\":2}','priority':2,"
        "'timeout':2000000}",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct infer_req *req = read_one(*state, bodies[i]);
        const struct sampling *s = &req->sampling;
        assert_int_equal(s->new_tokens_max, 5);
        assert_int_equal(s->new_tokens_min, 2);
        assert_true(s->do_sample && s->temperature == 0.5f && s->top_p == 0.5f);
        assert_true(s->top_k == 3 && s->min_p == 0.25f && s->seed == 11);
        assert_true(s->repetition_penalty == 1.5f && s->presence_penalty == 1);
        assert_true(s->frequency_penalty == -1 && s->ignore_eos && s->n_choices == 2);
        assert_int_equal(s->n_stop_token_ids, 1);
        assert_int_equal(s->stop_token_ids[0], 9);
        assert_int_equal(req->n_stop, 2);
        assert_int_equal(req->head.priority, 2);
        assert_int_equal(req->head.timeout_s, 2);
        infer_req_destroy(&req);
    }
    struct infer_req *req = read_one(*state, "{" X ",'bad_words':'a','temperature':0}");
    assert_true(req->sampling.n_bad_words > 0 && !req->sampling.do_sample);
    assert_int_equal(req->sampling.new_tokens_max, 16);
    infer_req_destroy(&req);
}

static void refusals(void **state) {
    static const struct row rows[] = {
        {"{'id':5," X ",'top_k':1}", 400, "id must be a string"},
        {"{" X ",'temperature':-1}", 400, "Parameter temperature must be at least 0, got -1."},
        {"{" X ",'temperature':'hot'}", 400, "temperature must be float type."},
        {"{" X ",'temperature':[1,2]}", 400, "temperature must have one element, got [1,2]"},
        {"{" X ",'top_k':1,'max_tokens':0}", 400,
         "Parameter max_tokens must be (0,2147483647], got 0"},
        {"{" X ",'max_tokens':1,'parameters':{'temperature':0}}", 422,
         "Parameter temperature must be in (0.0,3.40282e+38], got 0."},
        {"{" X ",'seed':1,'random_seed':1}", 400,
         "random_seed is given twice, or under two names: it must be given once"},
        {"{" X ",'beam_width':2}", 400,
         "beam_width must be 1, got 2: beam search is not available here"},
        {"{" X ",'sampling_parameters':'{'}", 400,
         "sampling_parameters must be the text of a JSON object, got \"{\""},
        {"{" X ",'sampling_parameters':{}}", 400,
         "sampling_parameters must be the text of a JSON object, got {}"},
        {"{" X ",'sampling_parameters':'{\\\"x\\\":1}'}", 400,
         "sampling_parameters: unexpected member 'x'"},
        {"{" X ",'return_finish_reason':1}", 400, "return_finish_reason must be a boolean, got 1"},
        {"{" X ",'stop_words':5,'top_k':1}", 400,
         "Input validation error: `stop` must be list[string] if list, and item length in [1, "
         "1024] with total <= 32768"},
        {"{" X ",'lora_name':'nobody'}", 400,
         "lora_name must be the name of an adapter, got \"nobody\": none has it"},
        {"{" X ",'lora_name':1}", 400, "lora_name must be a string, got 1"},
        {"{" X ",'image':'aGk='}", 400, "image is not available here, got \"aGk=\""},
        {"{" X ",'prompt_logprobs':0}", 400, "prompt_logprobs is not available here, got 0"},
        {"{" X ",'parameters':{'return_context_logits':true}}", 400,
         "return_context_logits is not available here, got true"},
        {"{" X ",'top_k':1,'triton_x':1}", 400,
         "parameter keys starting with 'triton_' are reserved: 'triton_x'"},
        {"{" X ",'top_k':1,'binary_data_output':true}", 400,
         "binary_data_output must be false here: the answer is JSON"},
        {"{'text_input':'','top_k':1}", 400,
         "text_input must have 1 to 41943040 characters, got 0"},
        {"{'top_k':1}", 422, "The text_input not found"},
    };
    static const struct row events[] = {
        {"{'text_input':['x','y'],'stream':true,'top_k':1}", 400,
         "one prompt and one answer of it may be streamed"},
        {"{" X ",'n':2,'temperature':1}", 400, "one prompt and one answer of it may be streamed"},
        {"{" X ",'exclude_input_in_output':false}", 400,
         "exclude_input_in_output must be true where the answer streams"},
    };
    RUN(*state, WHOLE, rows);
    RUN(*state, EVENTS, events);
    /* as many prompts as a request may have, and one more */
    struct buf b = BUF_INIT;
    for (int n = PARTS_MAX; n <= PARTS_MAX + 1; n++) {
        buf_clear(&b);
        buf_puts(&b, "{\"top_k\":1,\"text_input\":[\"x\"");
        for (int i = 1; i < n; i++) buf_puts(&b, ",\"x\"");
        buf_puts(&b, "]}");
        buf_putc(&b, '\0');
        check(*state, WHOLE, b.data, n <= PARTS_MAX ? 200 : 400,
              "text_input may have at most 128 prompts in one request");
    }
    buf_free(&b);
    char body[600], id[300];
    for (size_t n = 256; n <= 257; n++) {
        memset(id, '/', n);
        id[n] = '\0';
        snprintf(body, sizeof(body), "{\"id\":\"%s\",\"text_input\":\"x\",\"top_k\":1}", id);
        check(*state, WHOLE, body, n == 256 ? 200 : 400, "id must have at most 256 bytes");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(dialects), cmocka_unit_test(answers),
                                       cmocka_unit_test(values), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
