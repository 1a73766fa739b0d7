/* Goal: in OpenAI's manner (errorStyle openai) a failure on a path under /v1/ names its member and
 * says how it is wrong, statuses are OpenAI's, and what OpenAI's own service takes is taken; in the
 * reference's manner, and on all other paths, nothing of this shows.
 * Method: the same bodies in both manners: rows of (path, body, status, param, code, text). */
#include "tests/unit/common/endpoint/checks.h"

#define CHAT  "/v1/chat/completions"
#define COMPL "/v1/completions"
#define M     "'messages':[{'role':'user','content':'x'}]"
#define Q     "{'model':'qwen',"
#define P     "'prompt':'x'"

struct failure {
    const char *path, *body;
    int status;
    const char *param, *code, *text; /* text NULL: not looked at */
};

static const struct failure failures[] = {
    {CHAT, "nope", 400, NULL, "invalid_json", "Failed to parse request context to json"},
    {CHAT, "{" M "}", 400, "model", "missing_required_parameter", NULL},
    {CHAT, "{'model':1," M "}", 400, "model", "invalid_type", NULL},
    {CHAT, "{'model':''," M "}", 400, "model", "invalid_value", NULL},
    {CHAT, "{'model':'gpt-4o'," M "}", 404, "model", "model_not_found",
     "The model 'gpt-4o' does not exist. GET /v1/models lists those that do."},
    {COMPL, "{'model':'gpt'," P "}", 404, "model", "model_not_found", NULL},
    {CHAT, "{'model':'qwen'}", 400, "messages", "missing_required_parameter", NULL},
    {CHAT, Q "'messages':[]}", 400, "messages", "invalid_value", NULL},
    {CHAT, Q "'messages':[{'content':'x'}]}", 400, "messages[0].role", "missing_required_parameter",
     NULL},
    {CHAT, Q "'messages':[{'role':'user','content':'x'},{'role':'user'}]}", 400,
     "messages[1].content", "missing_required_parameter", NULL},
    {CHAT, Q "'messages':[{'role':'user','content':5}]}", 400, "messages[0].content",
     "invalid_type", NULL},
    {CHAT, Q "'messages':[{'role':'tool','content':'x'}]}", 400, "messages[0].tool_call_id",
     "missing_required_parameter", NULL},
    {CHAT, Q "'messages':[{'role':'assistant','tool_calls':[{}]}]}", 400, "messages[0].tool_calls",
     "invalid_value", NULL},
    {CHAT, Q M ",'tools':1}", 400, "tools", "invalid_type", NULL},
    {CHAT, Q M ",'tool_choice':'any'}", 400, "tool_choice", "invalid_value", NULL},
    {CHAT, Q M ",'top_p':1.5}", 400, "top_p", "decimal_above_max_value",
     "Parameter top_p must be in [0.0,1.0], got 1.5."},
    {CHAT, Q M ",'temperature':-1}", 400, "temperature", "decimal_below_min_value",
     "Parameter temperature must be at least 0, got -1."},
    {CHAT, Q M ",'temperature':'hot'}", 400, "temperature", "invalid_type", NULL},
    {CHAT, Q M ",'top_k':-2}", 400, "top_k", "integer_below_min_value",
     "Parameter top_k must be in [-1,2147483647], got -2."},
    {CHAT, Q M ",'seed':1.5}", 400, "seed", "invalid_type", "seed must be integer type."},
    {CHAT, Q M ",'max_tokens':0}", 400, "max_tokens", "integer_below_min_value", NULL},
    {CHAT, Q M ",'logprobs':1}", 400, "logprobs", "invalid_type", NULL},
    {CHAT, Q M ",'n':0}", 400, "n", "integer_below_min_value", NULL},
    {CHAT, Q M ",'n':2,'temperature':0}", 400, "n", "invalid_value", NULL},
    {CHAT, Q M ",'response_format':{'type':'xml'}}", 400, "response_format", "invalid_value", NULL},
    {CHAT, Q M ",'guided_json':1}", 400, "guided_json", "invalid_value", NULL},
    {CHAT, Q M ",'structural_tag':'x'}", 400, "structural_tag", "unsupported_parameter", NULL},
    {COMPL, "{'model':'qwen'}", 400, "prompt", "missing_required_parameter", NULL},
    {COMPL, Q "'prompt':5}", 400, "prompt", "invalid_type", NULL},
    {COMPL, Q "'prompt':[]}", 400, "prompt", "invalid_value", NULL},
    {COMPL, Q P ",'suffix':'y'}", 400, "suffix", "unsupported_parameter", NULL},
    {COMPL, Q P ",'logprobs':6}", 400, "logprobs", "integer_above_max_value", NULL},
    {COMPL, Q P ",'max_tokens':0}", 400, "max_tokens", "integer_below_min_value",
     "Parameter max_tokens must be (0,2147483647], got 0"},
    {COMPL, Q P ",'max_tokens':0,'echo':false}", 400, "max_tokens", "integer_below_min_value",
     NULL},
    {COMPL, Q P ",'max_tokens':-1,'echo':true}", 400, "max_tokens", "integer_below_min_value",
     NULL},
    {COMPL, Q P ",'max_tokens':0.5,'echo':true}", 400, "max_tokens", "invalid_type", NULL},
    {CHAT, Q M ",'max_tokens':0,'echo':true}", 400, "max_tokens", "integer_below_min_value", NULL},
};

/* As vLLM has it; the reference takes them. */
#define NEEDS_TOOLS    "When using `tool_choice`, `tools` must be set."
#define NEEDS_LOGPROBS "when using `top_logprobs`, `logprobs` must be set to true."
static const struct failure openai_alone[] = {
    {CHAT, Q M ",'tool_choice':'auto'}", 400, "tool_choice", "invalid_value", NEEDS_TOOLS},
    {CHAT, Q M ",'tool_choice':'none','tools':null}", 400, "tool_choice", "invalid_value",
     NEEDS_TOOLS},
    {CHAT, Q M ",'top_logprobs':2}", 400, "top_logprobs", "invalid_value", NEEDS_LOGPROBS},
    {CHAT, Q M ",'top_logprobs':1,'logprobs':null}", 400, "top_logprobs", "invalid_value",
     NEEDS_LOGPROBS},
};

static void read_error(struct fixture *f, const struct failure *w, struct json_value **o,
                       int *status) {
    struct infer_req *req;
    struct api_answer err;
    char *body = unquote(w->body);
    if (fixture_read(f, w->path, body, &req, &err)) fail_msg("%s was taken", body);
    assert_int_equal(json_read(o, err.body.data, err.body.len, NULL, NULL), ERR_OK);
    *status = err.status;
    buf_free(&err.body);
    free(body);
}

static void expect_str(const struct failure *w, const struct json_value *o, const char *key,
                       const char *want) {
    const char *got = NULL;
    size_t n;
    enum json_got g = json_get_str(o, key, &got, &n);
    if (want == NULL ? g != JSON_NULL : g != JSON_OK || strcmp(got, want) != 0)
        fail_msg("%s: %s is %s, expected %s", w->body, key, got != NULL ? got : "no text",
                 want != NULL ? want : "null");
}

static void manner(struct fixture *f, enum error_style style) {
    f->conf.error_style = style;
    fixture_open(f);
}

static void refused_in_openai(struct fixture *f, const struct failure *rows, size_t n) {
    struct json_value *o, *in;
    int status;
    manner(f, ERROR_STYLE_OPENAI);
    for (size_t i = 0; i < n; i++) {
        const struct failure *w = &rows[i];
        read_error(f, w, &o, &status);
        if (status != w->status) fail_msg("%s: status %d", w->body, status);
        assert_int_equal(json_get_obj(o, "error", &in), JSON_OK);
        expect_str(w, in, "type", "invalid_request_error");
        expect_str(w, in, "param", w->param);
        expect_str(w, in, "code", w->code);
        if (w->text != NULL) expect_str(w, in, "message", w->text);
        json_put(o);
    }
}

static void failures_name_their_member(void **state) {
    refused_in_openai(*state, failures, sizeof(failures) / sizeof(failures[0]));
}

/* The reference's manner: flat, 422, no member named. */
static void the_reference_is_as_it_was(void **state) {
    struct fixture *f = *state;
    struct json_value *o;
    int status;
    int64_t code;
    manner(f, ERROR_STYLE_MINDIE);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        const struct failure *w = &failures[i];
        read_error(f, w, &o, &status);
        assert_int_equal(status, 422);
        expect_str(w, o, "error_type", "Input Validation Error");
        expect_str(w, o, "param", NULL);
        assert_int_equal(json_get_i64(o, "code", &code), JSON_OK);
        assert_int_equal(code, 422);
        json_put(o);
    }
}

/* A prompt that is too long: a status and a code of its own. */
static void too_long(void **state) {
    struct fixture *f = *state;
    static const struct failure w = {COMPL,    Q "'prompt':[5,6,7,8,9]}", 400,
                                     "prompt", "context_length_exceeded", NULL};
    struct json_value *o, *in;
    int status, was = f->conf.max_input_token_len;
    f->conf.max_input_token_len = 4;
    manner(f, ERROR_STYLE_OPENAI);
    read_error(f, &w, &o, &status);
    assert_int_equal(status, 400);
    assert_int_equal(json_get_obj(o, "error", &in), JSON_OK);
    expect_str(&w, in, "param", "prompt");
    expect_str(&w, in, "code", "context_length_exceeded");
    expect_str(&w, in, "message",
               "Prompts of at most 4 tokens fit into this model's maximum context length; the "
               "prompt has 5. Please shorten it.");
    json_put(o);
    f->conf.max_input_token_len = was;
}

struct taken {
    const char *path, *body;
    bool in_both; /* else the reference refuses it */
};

static void what_openai_takes_is_taken(void **state) {
    struct fixture *f = *state;
    static const struct taken rows[] = {
        {CHAT, Q M ",'n':2}", false},
        {CHAT, Q M ",'top_k':0}", false},
        {COMPL, Q P ",'top_k':0}", false},
        {CHAT, Q M ",'seed':-1}", false},
        {CHAT, Q M ",'seed':-9223372036854775808}", false},
        {CHAT, Q M ",'seed':18446744073709551615}", true},
        {CHAT, Q M ",'top_p':0}", false},
        {CHAT, Q "'messages':[{'role':'assistant','content':null},{'role':'user','content':'x'}]}",
         false},
        {CHAT, Q "'messages':[{'role':'assistant'},{'role':'user','content':'x'}]}", false},
        {CHAT, Q "'messages':[{'role':'assistant','content':''}]}", false},
        {CHAT, Q M ",'top_k':-1}", true},
        {CHAT, Q M ",'temperature':null,'n':null,'seed':null,'stop':null}", true},
        /* the other families keep their ranges */
        {"/generate", "{'prompt':'x','top_k':0}", false},
    };
    struct infer_req *req;
    struct api_answer err;
    for (int openai = 0; openai < 2; openai++) {
        manner(f, openai ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            char *body = unquote(rows[i].body);
            bool v1 = strncmp(rows[i].path, "/v1/", 4) == 0;
            bool good = fixture_read(f, rows[i].path, body, &req, &err);
            if (good != (rows[i].in_both || (openai && v1)))
                fail_msg("%s in manner %d: %s", body, openai, good ? "taken" : err.body.data);
            infer_req_destroy(&req);
            buf_free(&err.body);
            free(body);
        }
    }
}

static struct infer_req *taken(struct fixture *f, const char *path, const char *text) {
    struct infer_req *req;
    struct api_answer err;
    char *body = unquote(text);
    if (!fixture_read(f, path, body, &req, &err)) fail_msg("%s: %s", body, err.body.data);
    free(body);
    return req;
}

static void what_openai_alone_refuses(void **state) {
    struct fixture *f = *state;
    refused_in_openai(f, openai_alone, sizeof(openai_alone) / sizeof(openai_alone[0]));
    manner(f, ERROR_STYLE_MINDIE);
    for (size_t i = 0; i < sizeof(openai_alone) / sizeof(openai_alone[0]); i++) {
        struct infer_req *req = taken(f, CHAT, openai_alone[i].body);
        infer_req_destroy(&req);
    }
    manner(f, ERROR_STYLE_OPENAI);
    struct infer_req *req = taken(f, CHAT, Q M ",'tools':[],'tool_choice':'none'}");
    infer_req_destroy(&req);
    req = taken(f, CHAT, Q M ",'top_logprobs':0}");
    infer_req_destroy(&req);
}

/* The prompt alone is an answer: one token is drawn for it, which nobody sees. */
static void a_prompt_alone(void **state) {
    struct fixture *f = *state;
    for (int openai = 0; openai < 2; openai++) {
        manner(f, openai ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE);
        struct infer_req *req = taken(f, COMPL, Q P ",'max_tokens':0,'echo':true}");
        assert_true(req->answer.prompt_only && req->answer.echo);
        assert_int_equal(req->sampling.new_tokens_max, 1);
        infer_req_destroy(&req);
        req = taken(f, COMPL, Q P ",'max_tokens':0,'echo':true,'max_completion_tokens':5}");
        assert_false(req->answer.prompt_only); /* this one wins */
        assert_int_equal(req->sampling.new_tokens_max, 5);
        infer_req_destroy(&req);
        req = taken(f, COMPL, Q P ",'max_tokens':1,'echo':true}");
        assert_false(req->answer.prompt_only);
        infer_req_destroy(&req);
    }
}

/* And it means what it means there. */
static void and_means_the_same(void **state) {
    struct fixture *f = *state;
    struct infer_req *req;
    manner(f, ERROR_STYLE_OPENAI);
    req = taken(f, CHAT, Q M ",'seed':-1}");
    assert_false(req->answer.seed_given);
    infer_req_destroy(&req);
    req = taken(f, CHAT, Q M ",'seed':-2}");
    assert_true(req->answer.seed_given);
    assert_true(req->sampling.seed == (uint64_t)-2);
    infer_req_destroy(&req);
    req = taken(f, CHAT, Q M ",'top_k':0,'temperature':1}");
    assert_true(req->sampling.do_sample);
    assert_int_equal(req->sampling.top_k, 0); /* all */
    infer_req_destroy(&req);
    req = taken(f, CHAT, Q M ",'top_p':0,'temperature':1}");
    assert_int_equal(req->sampling.top_k, 1); /* the likeliest */
    infer_req_destroy(&req);
    req = taken(f, CHAT, Q M ",'n':2}");
    assert_true(req->sampling.do_sample && req->sampling.temperature == 1);
    infer_req_destroy(&req);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_name_their_member),
        cmocka_unit_test(the_reference_is_as_it_was),
        cmocka_unit_test(too_long),
        cmocka_unit_test(what_openai_takes_is_taken),
        cmocka_unit_test(and_means_the_same),
        cmocka_unit_test(what_openai_alone_refuses),
        cmocka_unit_test(a_prompt_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
