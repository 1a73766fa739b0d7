/* Goal: each field of vLLM's sampling (kserve-runtimes 12.3) does what its row says, or is refused
 * with a text that names it; in the reference's manner those it ignores are ignored; ids of prompt
 * and tokens are in whole answers and streams alike. Method: the list field by field, as bodies
 * with the request or the text they lead to, in OpenAI's manner; answers of a stub engine that says
 * "ab". */
#include "tests/unit/common/endpoint/checks.h"

#define COMPL "/v1/completions"
#define CHAT  "/v1/chat/completions"
#define Q     "{'model':'qwen','prompt':'xyz',"
#define M     "{'model':'qwen','messages':[{'role':'user','content':'x'}],"

static int setup_openai(void **state) {
    setup(state);
    struct fixture *f = *state;
    f->conf.error_style = ERROR_STYLE_OPENAI;
    fixture_open(f);
    return 0;
}

/* ---- what acts */

static struct infer_req *taken(struct fixture *f, const char *path, const char *quoted) {
    struct infer_req *req;
    struct api_answer err;
    char *body = unquote(quoted);
    if (!fixture_read(f, path, body, &req, &err)) fail_msg("%s: %s", body, err.body.data);
    free(body);
    return req;
}

typedef bool holds_fn(const struct infer_req *r, const struct sampling *s);
#define HOLDS(name, condition)                                                                     \
    static bool name(const struct infer_req *r, const struct sampling *s) {                        \
        (void)r, (void)s;                                                                          \
        return condition;                                                                          \
    }
HOLDS(greedy, !s->do_sample)
HOLDS(drawn, s->do_sample && s->temperature == 1.5f)
HOLDS(top_p, s->top_p == 0.5f)
HOLDS(all_tokens, s->top_k == 0)
HOLDS(top_k, s->top_k == 3)
HOLDS(min_p, s->min_p == 0.25f)
HOLDS(penalties, s->frequency_penalty == -2 && s->presence_penalty == 2)
HOLDS(repetition, s->repetition_penalty == 1.5f)
HOLDS(two, s->n_choices == 2 && r->answer.n == 2)
HOLDS(best_of, s->n_choices == 3 && r->answer.n == 2)
HOLDS(seed, s->seed == 7)
HOLDS(stops, r->n_stop == 2 && strcmp(r->stop[1], "t") == 0)
HOLDS(stop_ids, s->n_stop_token_ids == 2)
HOLDS(keeps_stop, r->answer.include_stop)
HOLDS(on_and_on, s->ignore_eos)
HOLDS(min_tokens, s->new_tokens_min == 4 && s->new_tokens_max == 5)
HOLDS(biased, s->n_logit_bias == 2 && s->logit_bias[0].bias == -100 && s->logit_bias[1].bias == 100)
HOLDS(allowed, s->n_allowed_ids == 2)
HOLDS(bad_words, s->n_bad_words > 0)
HOLDS(shows_special, !r->answer.skip_special)
HOLDS(anything, true)
HOLDS(last_two, r->n_prompt == 2 && r->ids[0] == fixture_byte_id('y'))
HOLDS(first_two, r->n_prompt == 2 && r->ids[0] == fixture_byte_id('x'))
HOLDS(of_prompt, s->prompt_logprobs && s->prompt_top_logprobs == 2)
HOLDS(beams, s->beam && s->n_choices == 2)
HOLDS(first, r->head.priority == 1)
HOLDS(named, strcmp(r->head.client_id, "mine") == 0)
HOLDS(salted, strcmp(r->head.cache_salt, "s") == 0)
HOLDS(by_id, r->answer.tokens_as_ids)
HOLDS(with_ids, r->answer.token_ids)
HOLDS(guided, r->guide != NULL)

static const struct {
    const char *fields;
    holds_fn *holds;
} acts[] = {
    {"'temperature':0", greedy},
    {"'temperature':1.5", drawn},
    {"'temperature':1,'top_p':0.5", top_p},
    {"'temperature':1,'top_k':-1", all_tokens},
    {"'temperature':1,'top_k':0", all_tokens},
    {"'temperature':1,'top_k':3", top_k},
    {"'temperature':1,'min_p':0.25", min_p},
    {"'frequency_penalty':-2,'presence_penalty':2", penalties},
    {"'repetition_penalty':1.5", repetition},
    {"'n':2", two},
    {"'n':2,'best_of':3", best_of},
    {"'seed':7", seed},
    {"'seed':null", anything},
    {"'stop':['s','t']", stops},
    {"'stop_token_ids':[5,6]", stop_ids},
    {"'stop':'s','include_stop_str_in_output':true", keeps_stop},
    {"'ignore_eos':true", on_and_on},
    {"'min_tokens':4,'max_tokens':5", min_tokens},
    {"'logit_bias':{'5':-1000,'6':1e9}", biased}, /* clamped */
    {"'allowed_token_ids':[5,6]", allowed},
    {"'bad_words':['x']", bad_words},
    {"'skip_special_tokens':false", shows_special},
    {"'spaces_between_special_tokens':false", anything},
    {"'truncate_prompt_tokens':2", last_two},
    {"'truncate_prompt_tokens':2,'truncation_side':'left'", last_two},
    {"'truncate_prompt_tokens':2,'truncation_side':'right'", first_two},
    {"'truncate_prompt_tokens':-1", anything},
    {"'prompt_logprobs':2", of_prompt},
    {"'prompt_logprobs':0,'stream':true", anything},
    {"'use_beam_search':true,'n':2,'length_penalty':1.5", beams},
    {"'add_special_tokens':false", anything},
    {"'priority':-7", first},
    {"'request_id':'mine','session_id':'a','user':'u'", named},
    {"'cache_salt':'s'", salted},
    {"'return_tokens_as_token_ids':true", by_id},
    {"'return_token_ids':true", with_ids},
    {"'kv_transfer_params':{'a':1}", anything},
    {"'vllm_xargs':{},'repetition_detection':{},'thinking_token_budget':5,'stream_interval':2",
     anything},
    {"'logits_processors':[]", anything},
    {"'logits_processors':null", anything},
    {"'response_format':{'type':'text'}", anything},
    {"'response_format':{'type':'json_object'}", guided},
    {"'response_format':{'type':'json_schema','json_schema':{'name':'a','schema':{}}}", guided},
    {"'structured_outputs':{'regex':'[ab]+'}", guided},
    {"'structured_outputs':{'grammar':'root ::= [ab]'}", guided},
    {"'guided_choice':['a','b']", guided},
    {"'guided_json':'{}','guided_decoding_backend':'auto'", guided},
    {"'stream':true,'stream_options':{'include_usage':true}", anything},
    {"'stream_options':{}", anything},
};

static void each_field_acts(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        char body[512];
        snprintf(body, sizeof(body), Q "%s}", acts[i].fields);
        struct infer_req *req = taken(f, COMPL, body);
        if (!acts[i].holds(req, &req->sampling)) fail_msg("%s", body);
        infer_req_destroy(&req);
        if (strstr(body, "truncat") != NULL) continue; /* a chat's ids are its template's */
        snprintf(body, sizeof(body), M "%s}", acts[i].fields);
        req = taken(f, CHAT, body);
        if (!acts[i].holds(req, &req->sampling)) fail_msg("%s", body);
        infer_req_destroy(&req);
    }
}

/* ---- what is refused */

static void the_others_are_refused(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *fields, *text; /* text: the beginning */
    } rows[] = {
        {"'temperature':-1", "Parameter temperature must be at least 0, got -1."},
        {"'top_p':2", "Parameter top_p must be in [0.0,1.0], got 2."},
        {"'top_k':-2", "Parameter top_k must be in [-1,"},
        {"'min_p':1.5", "Parameter min_p must be in [0.0,1.0], got 1.5."},
        {"'presence_penalty':3", "Parameter presence_penalty not in [-2.0, 2.0], but got 3."},
        {"'frequency_penalty':-3", "Parameter frequency_penalty should be in [-2.0, 2.0], got -3."},
        {"'repetition_penalty':0", "Parameter 'repetition_penalty' must be in (0.0,"},
        {"'n':0", "Parameter [n] should be in [1,"},
        {"'stop':''", "Input validation error: length of `stop`"},
        {"'stop':['']", "Input validation error: `stop` must be list[string]"},
        {"'max_tokens':0", "Parameter max_tokens must be (0,2147483647], got 0"},
        {"'min_tokens':6,'max_tokens':5",
         "min_tokens must be less than or equal to max_tokens=5, got 6."},
        {"'logit_bias':{'330':1}", "Parameter logit_bias must have token ids in [0,329]"},
        {"'logit_bias':{'5':'1'}", "Parameter logit_bias must have numbers as values, got \"1\"."},
        {"'allowed_token_ids':[330]", "Parameter allowed_token_ids"},
        {"'bad_words':['']", "bad_words must not hold an empty string"},
        {"'truncate_prompt_tokens':0", "Parameter truncate_prompt_tokens must be in -1 ||"},
        {"'truncation_side':'middle'",
         "Parameter truncation_side must be left or right, got \"middle\"."},
        {"'truncation_side':1", "truncation_side must be string type."},
        {"'prompt_logprobs':21", "Parameter prompt_logprobs must be in [0, 20], got 21."},
        {"'prompt_logprobs':-1", "Parameter prompt_logprobs must be in [0, 20], got -1."},
        {"'prompt_logprobs':1,'stream':true",
         "prompt_logprobs are not available when stream is true."},
        {"'length_penalty':'x'", "length_penalty must be float type."},
        {"'spaces_between_special_tokens':1",
         "spaces_between_special_tokens must be boolean type."},
        {"'return_token_ids':1", "return_token_ids must be boolean type."},
        {"'return_tokens_as_token_ids':'x'", "return_tokens_as_token_ids must be boolean type."},
        {"'cache_salt':''", "Parameter cache_salt must have 1 to 256 bytes"},
        {"'cache_salt':5", "cache_salt must be string type."},
        {"'logits_processors':['x']", "logits_processors are not supported."},
        {"'logits_processors':{}", "logits_processors must be array type."},
        {"'response_format':{'type':'json_schema'}", ""},
        {"'response_format':{'type':'structural_tag'}", ""},
        {"'structured_outputs':{'json':{},'regex':'a'}",
         "Parameters structured_outputs.json and structured_outputs.regex cannot"},
        {"'stream_options':{'include_usage':true}",
         "Stream options can only be defined when `stream=True`."},
    };
    static const char *const paths[] = {COMPL, CHAT}, *const inputs[] = {Q, M};
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        char quoted[512];
        struct infer_req *req;
        struct api_answer err;
        snprintf(quoted, sizeof(quoted), "%s%s}", inputs[i % 2], rows[i / 2].fields);
        char *body = unquote(quoted), *want = strdup(rows[i / 2].text);
        struct json_value *o = NULL, *in;
        const char *text;
        size_t n;
        if (fixture_read(f, paths[i % 2], body, &req, &err)) fail_msg("%s was taken", body);
        assert_int_equal(err.status, 400);
        assert_int_equal(json_read(&o, err.body.data, err.body.len, NULL, NULL), ERR_OK);
        assert_int_equal(json_get_obj(o, "error", &in), JSON_OK);
        assert_int_equal(json_get_str(in, "message", &text, &n), JSON_OK);
        if (strncmp(text, want, strlen(want)) != 0)
            fail_msg("%s\n got      %s\n expected %s", body, text, want);
        json_put(o);
        buf_free(&err.body);
        free(body);
        free(want);
    }
    static const struct row completions[] = {
        {Q "'prompt_embeds':'x'}", 400, "prompt_embeds is not supported."},
        {Q "'prompt_embeds':null}", 200, NULL},
        {Q "'suffix':'x'}", 400, "suffix is not supported."},
    };
    RUN(f, COMPL, completions);
}

/* ---- in the reference's manner (inference-api 16.2) */

static void the_reference_ignores_them(void **state) {
    struct fixture *f = *state;
    static const char *const fields[] = {
        "'length_penalty':'x'",
        "'spaces_between_special_tokens':1",
        "'return_tokens_as_token_ids':'x','return_token_ids':1",
        "'return_tokens_as_token_ids':true,'return_token_ids':true",
        "'cache_salt':'s'",
        "'cache_salt':5",
        "'truncate_prompt_tokens':2,'truncation_side':'right'",
        "'truncation_side':1",
    };
    static const char *const paths[] = {COMPL, CHAT}, *const inputs[] = {Q, M};
    f->conf.error_style = ERROR_STYLE_MINDIE;
    fixture_open(f);
    for (size_t i = 0; i < 2 * sizeof(fields) / sizeof(fields[0]); i++) {
        char body[512];
        snprintf(body, sizeof(body), "%s%s}", inputs[i % 2], fields[i / 2]);
        struct infer_req *req = taken(f, paths[i % 2], body);
        assert_null(req->head.cache_salt);
        assert_false(req->answer.token_ids || req->answer.tokens_as_ids);
        if (i % 2 == 0) assert_int_equal(req->ids[req->n_prompt - 1], fixture_byte_id('z'));
        infer_req_destroy(&req);
    }
    static const struct row refused[] = {
        {Q "'logits_processors':['x']}", 422, "logits_processors are not supported."},
        {Q "'prompt_embeds':'x'}", 422, "prompt_embeds is not supported."},
    };
    RUN(f, COMPL, refused);
    f->conf.error_style = ERROR_STYLE_OPENAI;
    fixture_open(f);
    struct infer_req *req = taken(f, COMPL, Q "'cache_salt':'s'}");
    assert_string_equal(req->head.cache_salt, "s");
    infer_req_destroy(&req);
}

/* ---- ids in answers */

static void expect_in(const struct buf *out, const char *quoted, size_t times) {
    char *want = unquote(quoted);
    size_t n = 0;
    for (const char *p = out->data; (p = strstr(p, want)) != NULL; p++) n++;
    if (n != times) fail_msg("%zu times, not %zu: %s\n in %s", n, times, want, out->data);
    free(want);
}

static void ids_are_shown(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    char a[64], b[64], both[64], prompt[64];
    int ids[] = {fixture_byte_id('a'), fixture_byte_id('b')};
    snprintf(a, sizeof(a), "'token_ids':[%d]", ids[0]);
    snprintf(b, sizeof(b), "'token_ids':[%d]", ids[1]);
    snprintf(both, sizeof(both), "'token_ids':[%d,%d,%d]", ids[0], ids[1], TOK_EOS);
    snprintf(prompt, sizeof(prompt), "'prompt_token_ids':[%d,%d,%d]", fixture_byte_id('x'),
             fixture_byte_id('y'), fixture_byte_id('z'));

    answer_to(f, COMPL, Q "'return_token_ids':true}", "ab", &out);
    expect_in(&out, both, 1);
    expect_in(&out, prompt, 1);
    answer_to(f, COMPL, Q "'return_token_ids':true,'stream':true}", "ab", &out);
    expect_in(&out, a, 1);
    expect_in(&out, b, 1);
    expect_in(&out, prompt, 1); /* in the first chunk alone */
    answer_to(f, CHAT, M "'return_token_ids':true}", "ab", &out);
    expect_in(&out, both, 1);
    expect_in(&out, "'prompt_token_ids':[302,", 1);
    answer_to(f, CHAT, M "'return_token_ids':true,'stream':true}", "ab", &out);
    expect_in(&out, a, 1);
    expect_in(&out, b, 1);
    expect_in(&out, "'prompt_token_ids':[302,", 1);
    static const char beam[] = M "'return_token_ids':true,'stream':true,'use_beam_search':true}";
    answer_to(f, CHAT, beam, "ab", &out);
    expect_in(&out, both, 1);
    expect_in(&out, "'prompt_token_ids':[302,", 1);
    answer_to(f, CHAT, M "'stream':true}", "ab", &out);
    expect_in(&out, "token_ids", 0);
    buf_free(&out);
}

/* Of beams, which have no role chunk: with the first of several chunks. */
static void first_chunk_of_beams(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    static const char thinks[] = M "'return_token_ids':true,'stream':true,'use_beam_search':true,"
                                   "'chat_template':'{{ messages[0].content }}<think>\\n'}";
    f->conf.reasoning_parser = "qwen3";
    fixture_open(f);
    answer_to(f, CHAT, thinks, "why</think>so", &out);
    expect_in(&out, "'reasoning_content':'why'", 1);
    expect_in(&out, "'prompt_token_ids':[", 1);
    expect_in(&out, "'token_ids':[", 1);
    const char *second = strstr(out.data + 1, "data: {");
    assert_non_null(second);
    assert_true(strstr(out.data, "prompt_token_ids") < second);
    buf_free(&out);
    f->conf.reasoning_parser = NULL;
    fixture_open(f);
}

static void tokens_are_named_by_their_ids(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    char name[64];
    snprintf(name, sizeof(name), "'token_id:%d'", fixture_byte_id('a'));
    answer_to(f, COMPL, Q "'logprobs':0,'return_tokens_as_token_ids':true}", "ab", &out);
    expect_in(&out, name, 2); /* among the tokens and the likeliest */
    answer_to(f, CHAT, M "'logprobs':true,'return_tokens_as_token_ids':true}", "ab", &out);
    expect_in(&out, name, 1);
    expect_in(&out, "'bytes':[97]", 1);
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_acts),
        cmocka_unit_test(the_others_are_refused),
        cmocka_unit_test(the_reference_ignores_them),
        cmocka_unit_test(ids_are_shown),
        cmocka_unit_test(first_chunk_of_beams),
        cmocka_unit_test(tokens_are_named_by_their_ids),
    };
    return cmocka_run_group_tests(tests, setup_openai, teardown);
}
