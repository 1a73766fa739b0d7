/* Goal: llama.cpp's completion and what its clients ask beside it (client-apis 4). (1) Every shape
 * of a prompt becomes its ids; (2) each parameter acts or is refused by name; (3) whole answers
 * and streams are the documented bytes; (4) what is not here says so with 501. Method: ids
 * and sampling of the request; golden bytes; a scripted engine that writes byte by byte. That an
 * answer goes on behind any cut is replay_test's. */
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/endpoint/checks.h"

#define PATH "/completion"

static struct infer_req *read_req(struct fixture *f, const char *quoted) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    char *body = unquote(quoted);
    if (!fixture_read(f, PATH, body, &req, &err)) fail_msg("%s refused: %s", body, err.body.data);
    free(body);
    return req;
}

static void expect_ids(struct fixture *f, const char *quoted, const int32_t *ids, size_t n) {
    struct infer_req *req = read_req(f, quoted);
    assert_int_equal(req->n_prompt, n);
    assert_memory_equal(req->ids, ids, n * sizeof(*ids));
    infer_req_destroy(&req);
}

static void prompts(void **state) {
    struct fixture *f = *state;
    const int32_t x = fixture_byte_id('x'), y = fixture_byte_id('y'), mixed[] = {x, 5, y};
    expect_ids(f, "{'prompt':'x'}", &x, 1);
    expect_ids(f, "{'prompt':['x']}", &x, 1);
    expect_ids(f, "{'prompt':{'prompt_string':'x','multimodal_data':[]}}", &x, 1);
    expect_ids(f, "{'prompt':['x',5,'y']}", mixed, 3);
    expect_ids(f, "{'prompt':[['x',5,'y']]}", mixed, 3);
    struct infer_req *req = read_req(f, "{'prompt':['x',[5,'y'],{'prompt_string':'y'}]}");
    assert_int_equal(req->head.n_parts, 3);
    assert_int_equal(req->next_part->n_prompt, 2);
    assert_int_equal(req->next_part->next_part->ids[0], y);
    infer_req_destroy(&req);
}

static void parameters_act(void **state) {
    struct fixture *f = *state;
    struct infer_req *req = read_req(
        f, "{'prompt':'x','n_predict':9,'temperature':-1,'repeat_penalty':1.5,'repeat_last_n':-1,"
           "'ignore_eos':true,'n_probs':2,'stop':['a'],'logit_bias':[[5,1.5],['x',false]],"
           "'samplers':['top_k','dry'],'cache_prompt':false,'id_slot':3}");
    const struct sampling *s = &req->sampling;
    assert_true(!s->do_sample && s->ignore_eos && s->repetition_penalty == 1.5f);
    assert_int_equal(s->new_tokens_max, 9);
    assert_int_equal(s->penalty_window, 0);
    assert_int_equal(s->top_logprobs, 2);
    assert_int_equal(s->n_logit_bias, 2);
    assert_int_equal(req->n_stop, 1);
    infer_req_destroy(&req);
    req = read_req(f, "{'prompt':'x','seed':4294967295,'n_predict':-1}");
    s = &req->sampling;
    assert_true(s->do_sample && s->temperature == 0.8f && s->top_p == 0.95f && s->min_p == 0.05f);
    assert_int_equal(s->top_k, 40);
    assert_int_equal(s->penalty_window, 64);
    assert_int_equal(s->seed, 7); /* one was drawn */
    assert_int_equal(s->new_tokens_max, 512);
    infer_req_destroy(&req);
    req = read_req(f, "{'prompt':'x','grammar':'','json_schema':{'type':'object'}}");
    assert_non_null(strstr(req->guide, "\"schema\":{\"type\":\"object\"}"));
    infer_req_destroy(&req);
}

static void refusals(void **state) {
    struct fixture *f = *state;
    static const char prompt[] = "prompt must be a string, a list of strings and token ids, or a "
                                 "list of such prompts";
    static const char bias[] = "logit_bias must be a list of [token id or text, number or false], "
                               "or an object of ids";
    const struct row rows[] = {
        {"{}", 400, "prompt is missing"},
        {"{'messages':[]}", 400,
         "prompt is missing. A body with `messages` goes to POST /v1/chat/completions or "
         "/v1/messages."},
        {"{'prompt':5}", 400, prompt},
        {"{'prompt':[5,{}]}", 400, prompt},
        {"{'prompt':''}", 400, "prompt must have 1 to 41943040 characters, but has 0"},
        {"{'prompt':[]}", 400, "prompt must have 1 to 1048576 tokens, but has 0"},
        {"{'prompt':{'prompt_string':'x','multimodal_data':['a']}}", 400,
         "prompt.multimodal_data is not supported, the model reads text"},
        {"{'prompt':'x','model':'nope'}", 404, "The model 'nope' does not exist."},
        {"{'prompt':'x','n_predict':-2}", 400,
         "Parameter n_predict must be in [-1,2147483647], got -2."},
        {"{'prompt':'x','n_probs':21}", 400, "Parameter n_probs must be in [0, 20], got 21."},
        {"{'prompt':'x','logit_bias':[5]}", 400, bias},
        {"{'prompt':'x','logit_bias':[[5,true]]}", 400, bias},
        {"{'prompt':'x','grammar':'root ::= a','json_schema':{}}", 400,
         "Parameters guided_json and guided_grammar cannot be used together"},
        {"{'prompt':'x','stream':1}", 400, "stream must be boolean type."},
    };
    RUN(f, PATH, rows);
    struct buf out = BUF_INIT;
    assert_int_equal(fixture_ask(f, PATH, "{}", NULL, 0, &out), 400);
    assert_string_equal(out.data, "{\"error\":{\"code\":400,\"message\":\"prompt is missing\","
                                  "\"type\":\"invalid_request_error\"}}");
    buf_free(&out);
}

/* Refused by their number, before anything is made of them. */
static void biases(void **state) {
    struct buf body = BUF_INIT, out = BUF_INIT;
    for (int n = 1024; n <= 1025; n++) {
        buf_clear(&body);
        buf_puts(&body, "{\"prompt\":\"x\",\"n_predict\":1,\"logit_bias\":[");
        for (int i = 0; i < n; i++) buf_printf(&body, "%s[%d,1]", i > 0 ? "," : "", i % 200);
        buf_puts(&body, "]}");
        buf_putc(&body, '\0');
        const int32_t end = TOK_EOS;
        assert_int_equal(fixture_ask(*state, PATH, body.data, &end, 1, &out), n > 1024 ? 400 : 200);
    }
    assert_non_null(strstr(out.data, "must have at most 1024 entries, got 1025."));
    buf_free(&body);
    buf_free(&out);
}

#define SETTINGS(n, stream, stop)                                                                  \
    ",\"generation_settings\":{\"seed\":3,\"temperature\":0,\"top_k\":0,\"top_p\":1,\"min_p\":0,"  \
    "\"typical_p\":1,\"repeat_penalty\":1,\"repeat_last_n\":64,\"presence_penalty\":0,"            \
    "\"frequency_penalty\":0,\"n_predict\":" n ",\"max_tokens\":" n ",\"n_probs\":0,"              \
    "\"ignore_eos\":false,\"stream\":" stream ",\"stop\":[" stop "]}"
#define TIMINGS                                                                                    \
    ",\"timings\":{\"cache_n\":0,\"prompt_n\":1,\"prompt_ms\":26.404,\"prompt_per_token_ms\":"     \
    "26.404,\"prompt_per_second\":37.873,\"predicted_n\":3,\"predicted_ms\":18.102,"               \
    "\"predicted_per_token_ms\":6.034,\"predicted_per_second\":165.728}"

/* Members that nobody knows cost nothing beside the body they came in. */
static void unknown_members_are_not_copied(void **state) {
#if OWN_MALLOC
    struct fixture *f = *state;
    enum { MEMBERS = 20000 };
    long taken[2];
    for (int i = 0; i < 2; i++) {
        struct buf body = BUF_INIT;
        struct infer_req *req = NULL;
        struct api_answer err = {0};
        buf_puts(&body, "{\"prompt\":\"x\"");
        for (int k = 0; k < MEMBERS; k++) buf_printf(&body, ",\"m%d\":%d", k, k);
        buf_puts(&body, i == 0 ? ",\"model\":\"nope\"}" : "}");
        const long before = atomic_load(&allocs_taken);
        (void)fixture_read(f, PATH, body.data, &req, &err);
        taken[i] = atomic_load(&allocs_taken) - before;
        infer_req_destroy(&req);
        buf_free(&err.body);
        buf_free(&body);
    }
    /* the first is refused ahead of its parameters */
    if (taken[1] > taken[0] + MEMBERS / 4) fail_msg("%ld, %ld", taken[0], taken[1]);
#else
    (void)state;
#endif
}

static void answers(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    answer_to(f, PATH, "{'prompt':'x','temperature':0,'seed':3,'n_predict':5,'stop':['lo']}", "a\n",
              &out);
    assert_string_equal(
        out.data,
        "{\"index\":0,\"content\":\"a\\n\",\"tokens\":[99,10,300],\"id_slot\":0,\"stop\":true,"
        "\"model\":\"qwen\",\"tokens_predicted\":3,\"tokens_evaluated\":1" SETTINGS(
            "5", "false",
            "\"lo\"") ",\"prompt\":\"x\",\"has_new_line\":true,\"truncated\":false,\"stop_type\":"
                      "\"eos\",\"stopping_word\":\"\",\"stopped_eos\":true,\"stopped_word\":false,"
                      "\"stopped_limit\":false,\"tokens_cached\":4" TIMINGS "}");
    answer_to(f, PATH, "{'prompt':'x','stop':['lo']}", "hello", &out);
    assert_non_null(strstr(out.data, "\"content\":\"hel\""));
    assert_non_null(strstr(out.data, "\"stop_type\":\"word\",\"stopping_word\":\"lo\""));
    answer_to(f, PATH, "{'prompt':'x','n_predict':1}", "hello", &out);
    assert_non_null(strstr(out.data, "\"stop_type\":\"limit\""));
    /* the prompt is computed, and what was drawn for it is not shown */
    answer_to(f, PATH, "{'prompt':'x','temperature':0,'seed':3,'n_predict':0,'stop':['lo']}", "h",
              &out);
    assert_string_equal(
        out.data,
        "{\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":0,\"stop\":true,\"model\":"
        "\"qwen\","
        "\"tokens_predicted\":0,\"tokens_evaluated\":1" SETTINGS(
            "0", "false",
            "\"lo\"") ",\"prompt\":\"x\",\"has_new_line\":false,\"truncated\":false,\"stop_type\":"
                      "\"limit\",\"stopping_word\":\"\",\"stopped_eos\":false,\"stopped_word\":"
                      "false,\"stopped_limit\":true,\"tokens_cached\":1,\"timings\":{\"cache_n\":0,"
                      "\"prompt_n\":1,\"prompt_ms\":26.404,\"prompt_per_token_ms\":26.404,"
                      "\"prompt_per_second\":37.873,\"predicted_n\":0,\"predicted_ms\":0.000,"
                      "\"predicted_per_token_ms\":0.000,\"predicted_per_second\":0.000}}");
    answer_to(f, PATH, "{'prompt':'x','n_predict':0,'stream':true}", "h", &out);
    static const char alone[] = "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":0,"
                                "\"stop\":true,";
    assert_int_equal(strncmp(out.data, alone, sizeof(alone) - 1), 0);
    answer_to(f, PATH, "{'prompt':'x','n_predict':1,'n_probs':1}", "h", &out);
    assert_non_null(strstr(out.data, "\"completion_probabilities\":[{\"id\":106,\"token\":\"h\","
                                     "\"bytes\":[104],\"logprob\":-0.5,\"top_logprobs\":[{\"id\":"
                                     "106,\"token\":\"h\",\"bytes\":[104],\"logprob\":-0.5}]}]}"));
    answer_to(f, PATH, "{'prompt':'x','temperature':0,'seed':3,'n_predict':2,'stream':true}", "hi",
              &out);
    assert_non_null(
        strstr(out.data,
               "data: {\"index\":0,\"content\":\"h\",\"tokens\":[106],\"stop\":false,\"id_slot\":0,"
               "\"tokens_predicted\":1,\"tokens_evaluated\":1}\n\ndata: {\"index\":0,\"content\":"
               "\"i\",\"tokens\":[107],\"stop\":false,\"id_slot\":0,\"tokens_predicted\":2,"
               "\"tokens_evaluated\":1}\n\ndata: {\"index\":0,\"content\":\"\",\"tokens\":[],"
               "\"id_slot\":0,\"stop\":true,"));
    assert_null(strstr(out.data, "[DONE]"));
    buf_free(&out);
}

static void beside(void **state) {
    struct fixture *f = *state;
    static const char chat[] = "{'messages':[{'role':'user','content':'x'}]}";
    expect_informed(f, "GET", "/props", "", 200,
                    "\"repeat_last_n\":64,\"seed\":4294967295},\"n_ctx\":2560},");
    expect_informed(f, "GET", "/props", "", 200, "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"");
    expect_informed(f, "POST", "/props", "{}", 501, "\"type\":\"not_supported_error\"");
    expect_informed(f, "POST", "/infill", "{}", 501,
                    "\"code\":501,\"message\":\"infill is not supported");
    expect_informed(f, "POST", "/slots/0", "{}", 501, "slots cannot be saved");
    expect_informed(f, "GET", "/lora-adapters", "", 200, "[]");
    expect_informed(f, "GET", "/tokenizer_info", "", 200,
                    "\"vocab_size\":330,\"model_max_length\":2560,");
    expect_informed(f, "POST", "/apply-template", chat, 200,
                    "{\"prompt\":\"<|im_start|>user\\nx<|im_end|>\\n<|im_start|>assistant\\n\"}");
    expect_informed(f, "POST", "/v1/chat/completions/render", chat, 200,
                    "\"max_model_len\":2560,\"count\":20,\"prompt_token_ids\":[302,");
    expect_informed(f, "POST", "/apply-template", "{}", 400, "\"code\":400,");
    expect_informed(f, "POST", "/tokenize", "{'content':'x'}", 200, "{\"tokens\":[122]}");
    expect_informed(f, "POST", "/tokenize", "{'content':['x',5]}", 200, "{\"tokens\":[122,5]}");
    expect_informed(f, "POST", "/tokenize", "{'content':'\xC3\xA9','with_pieces':true}", 200,
                    "\"piece\":[195]},{\"id\":171,\"piece\":[169]}]}");
    expect_informed(f, "POST", "/tokenize", "{'content':5}", 400,
                    "\"message\":\"content must be a text");
    expect_informed(f, "POST", "/tokenize", "{'prompt':'x','return_token_strs':true}", 200,
                    "\"tokens\":[122],\"token_strs\":[\"x\"]}");
    expect_informed(f, "POST", "/detokenize", "{'tokens':[122]}", 200,
                    "{\"prompt\":\"x\",\"content\":\"x\"}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),
        cmocka_unit_test(parameters_act),
        cmocka_unit_test(refusals),
        cmocka_unit_test(biases),
        cmocka_unit_test(answers),
        cmocka_unit_test(beside),
        cmocka_unit_test(unknown_members_are_not_copied),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
