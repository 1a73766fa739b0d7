/* Goal: the information bodies of inference-api 12, 13 and 16.2 to 16.3 and client-apis 2.9, byte
 * for byte, and their errors. Method: one call each. */
#include "common/engine/lora_set.h"
#include "tests/unit/common/endpoint/checks.h"

static void expect(struct api_answer *a, int status, const char *body) {
    assert_int_equal(a->status, status);
    assert_string_equal(a->content_type, "application/json");
    assert_string_equal(a->body.data, body);
    buf_free(&a->body);
}

#define NOPE "{\"error\":\"Model nope not found.\",\"error_type\":\"NotFoundError\"}"
/* %s: name, root; then parent, as JSON, and the name again. */
#define MODEL_ROW                                                                                  \
    "{\"id\":\"%s\",\"object\":\"model\",\"created\":%s,\"owned_by\":\"MindIE "                    \
    "Server\",\"root\":\"%s\",\"parent\":%s,\"max_model_len\":2560,\"context_length\":2560,"       \
    "\"type\":\"model\",\"display_name\":\"%s\",\"created_at\":\"%s\",\"max_input_tokens\":2048,"  \
    "\"max_tokens\":512,\"meta\":{\"n_ctx\":2560,\"n_ctx_train\":4096,\"n_vocab\":330,\"n_embd\":" \
    "0,\"n_params\":0,\"size\":0,\"vocab_type\":2}}"
#define QWEN_LOADED "1770000000"
#define QWEN_DAY    "2026-02-02T02:40:00Z"
#define POET_LOADED "1780000000"
#define POET_DAY    "2026-05-28T20:26:40Z"

/* What GET of this path, with this query, by such a client, is answered with. */
static void get(const struct endpoint *ep, const char *path, const char *query, bool anthropic,
                struct api_answer *a) {
    char name[MODEL_NAME_BYTES_MAX + 1];
    const struct api_path *row = api_path_find("GET", path, name);
    assert_non_null(row);
    const struct endpoint_ask ask = {
        .path = row, .name = name, .query = query, .meta.anthropic = anthropic};
    endpoint_inform(ep, &ask, a);
}

static void model_card(const struct endpoint *ep, const char *name, struct api_answer *a) {
    char path[64];
    snprintf(path, sizeof(path), "/v1/models/%s", name);
    get(ep, path, "", false, a);
}

/* A card as it is alone: that of the list, and its state. */
static void expect_card(struct api_answer *a, const char *row) {
    char want[1024];
    snprintf(want, sizeof(want),
             "%.*s,\"model_version_status\":[{\"version\":\"1\",\"state\":\"AVAILABLE\","
             "\"status\":{\"error_code\":\"OK\",\"error_message\":\"OK\"}}]}",
             (int)strlen(row) - 1, row);
    expect(a, 200, want);
}

static void models(void **state) {
    struct fixture *f = *state;
    struct api_answer a;
    char row[640], want[1600];
    snprintf(row, sizeof(row), MODEL_ROW, "qwen", QWEN_LOADED, strrchr(f->dir, '/') + 1, "null",
             "qwen", QWEN_DAY);
    static const char *const lists[] = {"/v1/models", "/models", "/v3/models", "/v3/v1/models"};
    snprintf(want, sizeof(want),
             "{\"object\":\"list\",\"data\":[%s],\"has_more\":false,\"first_id\":\"qwen\","
             "\"last_id\":\"qwen\",\"models\":[{\"name\":\"qwen\",\"model\":\"qwen\",\"type\":"
             "\"model\",\"modified_at\":\"\",\"size\":\"\",\"digest\":\"\",\"description\":\"\","
             "\"tags\":[\"\"],\"capabilities\":[\"completion\"],\"parameters\":\"\",\"details\":{"
             "\"parent_model\":\"\",\"format\":\"safetensors\",\"family\":\"llama\",\"families\":["
             "\"llama\"],\"parameter_size\":\"0.0K\",\"quantization_level\":\"\"}}]}",
             row);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        get(f->ep, lists[i], "", false, &a);
        expect(&a, 200, want);
    }
    get(f->ep, "/v1/models", "client_version=0.5", false, &a);
    assert_non_null(strstr(a.body.data, "\"data\":[{\"id\":\"qwen\""));
    assert_non_null(strstr(a.body.data, "\"models\":[]}"));
    buf_free(&a.body);
    model_card(f->ep, "qwen", &a);
    expect_card(&a, row);
    model_card(f->ep, "nope", &a);
    expect(&a, 404,
           "{\"error\":\"Model nope not "
           "found.\",\"error_type\":\"NotFoundError\",\"object\":\"error\",\"message\":\"Model "
           "nope not found.\","
           "\"type\":\"NotFoundError\",\"param\":null,\"code\":404}");
    get(f->ep, "/v1/models/org/nope", "", true, &a);
    expect(&a, 404,
           "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"model: "
           "org/nope\"}}");
    assert_true(endpoint_has_model(f->ep, "qwen"));
    assert_false(endpoint_has_model(f->ep, "qwe"));
    endpoint_model_not_found(f->ep, "nope", &a);
    expect(&a, 404, NOPE);
    assert_int_equal(endpoint_conf(f->ep)->max_seq_len, 2560);
}

static void triton(void **state) {
    struct fixture *f = *state;
    struct api_answer a;
    char want[512];
    endpoint_triton_server(f->ep, &a);
    expect(&a, 200,
           "{\"name\":\"MindIE "
           "Server\",\"version\":\"1.0.0\",\"extensions\":{\"max_iter_times\":512,\"prefill_policy_"
           "type\":0,\"decode_policy_type\":0,"
           "\"max_prefill_batch_size\":50,\"max_prefill_tokens\":8192}}");
    endpoint_triton_model(f->ep, "qwen", &a);
    expect(&a, 200,
           "{\"name\":\"qwen\",\"platform\":\"MindIE "
           "Server\",\"inputs\":[{\"name\":\"input0\",\"shape\":[-1],\"datatype\":\"UINT32\"}],"
           "\"outputs\":[{\"name\":\"output0\",\"shape\":[-1],\"datatype\":\"UINT32\"}],"
           "\"versions\":[\"1\"]}");
    endpoint_triton_config(f->ep, "qwen", &a);
    snprintf(want, sizeof(want),
             "{\"model_name\":\"qwen\",\"input_datatype\":\"INT64\",\"output_datatype\":\"INT64\","
             "\"max_seq_len\":2560,\"npu_mem_size\":-1,"
             "\"cpu_mem_size\":5,\"world_size\":1,\"model_weight_path\":\"%s\",\"model_instance_"
             "type\":\"Standard\"}",
             strrchr(f->dir, '/') + 1);
    expect(&a, 200, want);
    endpoint_slots(f->ep, "qwen", 197, 126720, &a);
    expect(&a, 200, "{\"total_slots\":200,\"free_slots\":197,\"available_tokens_length\":126720}");
    endpoint_triton_model(f->ep, "nope", &a);
    expect(&a, 404, NOPE);
    endpoint_triton_config(f->ep, "nope", &a);
    expect(&a, 404, NOPE);
    endpoint_slots(f->ep, "nope", 1, 1, &a);
    expect(&a, 404, NOPE);
}

static void info(void **state) {
    struct fixture *f = *state;
    struct api_answer a;
    endpoint_info(f->ep, &a);
    expect(&a, 200,
           "{\"docker_label\":null,\"max_batch_total_tokens\":8192,\"max_best_of\":1,\"max_"
           "concurrent_requests\":200,\"max_stop_sequences\":null,"
           "\"max_waiting_tokens\":null,\"sha\":null,\"validation_workers\":null,\"version\":\"1.0."
           "0\",\"waiting_served_ratio\":null,"
           "\"models\":[{\"model_device_type\":\"cpu\",\"model_dtype\":\"bfloat16\",\"model_id\":"
           "\"qwen\",\"model_pipeline_tag\":\"text-generation\","
           "\"model_sha\":null,\"max_total_tokens\":2560}],\"max_input_length\":2048,\"model_id\":"
           "\"qwen\",\"model_dtype\":\"bfloat16\","
           "\"model_device_type\":\"cpu\",\"model_pipeline_tag\":\"text-generation\",\"max_input_"
           "tokens\":2048,\"max_total_tokens\":2560,"
           "\"max_client_batch_size\":1,\"auto_truncate\":false,\"router\":\"text-generation-"
           "router\"}");
}

typedef void body_fn(const struct endpoint *ep, char *body, size_t n, const atomic_bool *cancelled,
                     struct api_answer *out);

static void ask(struct fixture *f, body_fn *fn, const char *body, int status, const char *want) {
    struct api_answer a;
    char error[512];
    char *own = strdup(body); /* it is read where it lies */
    assert_non_null(own);
    fn(f->ep, own, strlen(own), NULL, &a);
    free(own);
    if (status != 200)
        snprintf(error, sizeof(error),
                 "{\"error\":\"%s\",\"error_type\":\"Input Validation Error\"}", want);
    expect(&a, status, status == 200 ? want : error);
}

static void tokenizers(void **state) {
    struct fixture *f = *state;
    ask(f, endpoint_tokenizer, "{\"inputs\":\"x a\"}", 200,
        "{\"token_number\":2,\"tokens\":[\"x\",\" a\"]}");
    ask(f, endpoint_tokenizer, "{\"inputs\":\"x\",\"do_decode\":false}", 200,
        "{\"token_number\":1,\"tokens\":[]}");
    ask(f, endpoint_tokenizer, "{\"inputs\":\"x\",\"do_decode\":5}", 200,
        "{\"token_number\":1,\"tokens\":[\"x\"]}");
    ask(f, endpoint_tokenizer, "{\"inputs\":\"\xE2\x82\xACy</s>\"}", 200,
        "{\"token_number\":5,\"tokens\":[\"\xE2\x82\xAC\",\"y\"]}");
    ask(f, endpoint_tokenizer, "x", 422, "Req body converts to json fail.");
    ask(f, endpoint_tokenizer, "[]", 422, "Req body converts to json fail.");
    ask(f, endpoint_tokenizer, "{\"inputs\":1}", 422, "Inputs in request body is invalid.");
    ask(f, endpoint_tokenizer, "{\"inputs\":null}", 422, "Inputs in request body is invalid.");
    ask(f, endpoint_tokenizer, "{}", 422, "Inputs in request body is invalid.");
    ask(f, endpoint_tokenizer, "{\"inputs\":\"\"}", 422,
        "Inputs data length in [0, 41943040], but the length of inputs is 0");

    ask(f, endpoint_tokenize_compat, "{\"prompt\":\"\",\"content\":\"\"}", 200,
        "{\"count\":0,\"max_model_len\":2560,\"tokens\":[]}");
    ask(f, endpoint_tokenize_compat, "{\"inputs\":\"\"}", 200, "[]");
    ask(f, endpoint_tokenize_compat, "{\"prompt\":\"x a\"}", 200,
        "{\"count\":2,\"max_model_len\":2560,\"tokens\":[122,320]}");
    ask(f, endpoint_tokenize_compat, "{\"inputs\":\"x\xC3\xA4\"}", 200,
        "[{\"id\":122,\"text\":\"x\",\"start\":0,\"stop\":1},{\"id\":197,\"text\":\"\xEF\xBF\xBD\","
        "\"start\":1,\"stop\":1},{\"id\":166,\"text\":\"\xEF\xBF\xBD\",\"start\":1,\"stop\":2}]");
    ask(f, endpoint_tokenize_compat,
        "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"add_generation_prompt\":false,\"chat_"
        "template\":\"{{ messages[0].content }}\"}",
        200, "{\"count\":1,\"max_model_len\":2560,\"tokens\":[122]}");
    ask(f, endpoint_tokenize_compat, "{}", 422,
        "Request param contains not messages or messages null");
    ask(f, endpoint_tokenize_compat, "{", 422, "Failed to parse request context to json");
    ask(f, endpoint_detokenize, "{\"tokens\":[122,320,300]}", 200,
        "{\"prompt\":\"x a</s>\",\"content\":\"x a</s>\"}");
    ask(f, endpoint_detokenize, "{\"tokens\":[]}", 200, "{\"prompt\":\"\",\"content\":\"\"}");
    static const char range[] = "tokens must be an array of token ids from 0 to 329.";
    ask(f, endpoint_detokenize, "{\"tokens\":[\"a\"]}", 422, range);
    ask(f, endpoint_detokenize, "{\"tokens\":[-1]}", 422, range);
    ask(f, endpoint_detokenize, "{\"tokens\":[330]}", 422, range);
    ask(f, endpoint_detokenize, "{}", 422, range);
    ask(f, endpoint_detokenize, "1", 422, "Failed to parse request context to json");
}

/* The count of /v1/tokenizer is that of an inference request: with BOS where the tokenizer adds
 * one. */
static void counts_agree(void **state) {
    struct fixture f;
    struct infer_req *req;
    struct api_answer a;
    (void)state;
    fixture_init(&f, true);
    fixture_open(&f);
    assert_true(fixture_read(&f, "/generate", "{\"inputs\":\"x\"}", &req, &a));
    assert_int_equal(req->n_prompt, 2);
    infer_req_destroy(&req);
    ask(&f, endpoint_tokenizer, "{\"inputs\":\"x\"}", 200,
        "{\"token_number\":2,\"tokens\":[\"x\"]}");
    ask(&f, endpoint_tokenize_compat, "{\"prompt\":\"x\",\"add_special_tokens\":false}", 200,
        "{\"count\":1,\"max_model_len\":2560,\"tokens\":[122]}");
    fixture_close(&f);
}

/* An adapter is a name and a hash here: requests take both along, lists show the name while it is
 * served. */
static struct lora_set *adapters_of(struct fixture *f, const char *const *names, size_t n) {
    struct lora_set *set = lora_set_create((int)n);
    assert_non_null(set);
    for (size_t i = 0; i < n; i++) {
        struct lora *l = calloc(1, sizeof(*l));
        assert_non_null(l);
        atomic_init(&l->refs, 1);
        memset(l->hash, (int)i + 1, sizeof(l->hash));
        assert_int_equal(lora_set_reserve(set, names[i]), ERR_OK);
        lora_set_serve(set, names[i], &l, "/a/folder/", 1780000000);
    }
    f->conf.loras = set;
    fixture_open(f);
    return set;
}

static void adapters(void **state) {
    static const char *const names[] = {"poet", "cook"};
    static const char base[] = "{\"id\":\"qwen\"", poet[] = "{\"id\":\"poet\"",
                      cook[] = "{\"id\":\"cook\"";
    char row[640];
    struct fixture f;
    struct api_answer a;
    (void)state;
    fixture_init(&f, false);
    struct lora_set *set = adapters_of(&f, names, 2);
    get(f.ep, "/v1/models", "", false, &a);
    const char *b = strstr(a.body.data, base), *p = strstr(a.body.data, poet),
               *c = strstr(a.body.data, cook);
    assert_true(b != NULL && p > b && c > p);
    buf_free(&a.body);
    snprintf(row, sizeof(row), MODEL_ROW, "poet", POET_LOADED, "folder", "\"qwen\"", "poet",
             POET_DAY);
    model_card(f.ep, "poet", &a);
    expect_card(&a, row);
    assert_false(endpoint_has_model(f.ep, "poet")); /* of Triton's paths */

    const struct {
        const char *path, *body, *adapter;
    } cases[] = {
        {"/v1/completions", "{\"model\":\"poet\",\"prompt\":\"x\"}", "poet"},
        {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\"}", NULL},
        {"/v1/chat/completions",
         "{\"model\":\"cook\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "cook"},
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"adapter_id\":\"cook\"}}", "cook"},
        {"/generate", "{\"inputs\":\"x\",\"parameters\":{\"adapter_id\":\"None\"}}", NULL},
        {"/generate", "{\"prompt\":\"x\",\"model\":\"poet\"}", "poet"},
        {"/generate", "{\"prompt\":\"x\",\"model\":\"None\"}", NULL},
        {"/generate", "{\"prompt\":\"x\",\"model\":\"qwen\"}", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct infer_req *req = NULL;
        if (!fixture_read(&f, cases[i].path, cases[i].body, &req, &a))
            fail_msg("%s: %s", cases[i].body, a.body.data);
        if (cases[i].adapter == NULL) {
            assert_null(req->head.adapter);
        } else {
            assert_string_equal(req->head.adapter, cases[i].adapter);
            assert_int_equal(req->head.adapter_hash[31], cases[i].adapter[0] == 'p' ? 1 : 2);
        }
        infer_req_destroy(&req);
    }
    /* Retired: no request finds it, and no list. */
    assert_int_equal(lora_set_retire(set, "poet"), ERR_OK);
    model_card(f.ep, "poet", &a);
    assert_int_equal(a.status, 404);
    buf_free(&a.body);
    get(f.ep, "/v1/models", "", false, &a);
    assert_null(strstr(a.body.data, poet));
    buf_free(&a.body);
    check(&f, "/generate", "{\"prompt\":\"x\",\"model\":\"poet\"}", 422,
          "The LoRA adapter 'poet' cannot be found.");
    fixture_close(&f);
    lora_set_destroy(&set);
}

/* Pages, as Anthropic's clients ask for them: the model is first, then its adapters. */
static void pages(void **state) {
    static const char *const names[] = {"one", "two", "three"};
    static const struct {
        const char *query, *ids, *has_more; /* ids in their order, each with a blank behind it */
    } good[] = {
        {"", "qwen one two three ", "false"},
        {"limit=1000", "qwen one two three ", "false"},
        {"limit=4", "qwen one two three ", "false"},
        {"limit=3", "qwen one two ", "true"},
        {"limit=2&after_id=qwen", "one two ", "true"},
        {"after_id=two&limit=2", "three ", "false"},
        {"after_id=three", "", "false"},
        {"before_id=three&limit=2", "one two ", "true"},
        {"before_id=two&limit=2", "qwen one ", "false"},
        {"before_id=qwen", "", "false"},
        {"after_id=qwen&before_id=three", "one two ", "true"},
        {"after_id=two&before_id=one", "", "true"},
        {"client_version=1&limit=1", "qwen ", "true"},
        {"order=x&limits=0", "qwen one two three ", "false"},
    };
    static const struct {
        const char *query, *error;
    } bad[] = {
        {"limit=0", "limit must be an integer from 1 to 1000, got '0'"},
        {"limit=1001", "limit must be an integer from 1 to 1000, got '1001'"},
        {"limit=", "limit must be an integer from 1 to 1000, got ''"},
        {"limit=-1", "limit must be an integer from 1 to 1000, got '-1'"},
        {"limit=99999999999999999999", "limit must be an integer from 1 to 1000, got '9999999'"},
        {"after_id=four", "after_id must be the id of a model in the list, got 'four'"},
        {"before_id=%C3%A4%C3", "before_id must be the id of a model in the list, got '\xC3\xA4'"},
    };
    struct fixture f;
    struct api_answer a;
    (void)state;
    fixture_init(&f, false);
    struct lora_set *set = adapters_of(&f, names, 3);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        char ids[64] = "", tail[160], *from;
        get(f.ep, "/v1/models", good[i].query, true, &a);
        assert_int_equal(a.status, 200);
        for (from = a.body.data; (from = strstr(from, "{\"id\":\"")) != NULL; from++)
            snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%.*s ",
                     (int)strcspn(from + 7, "\""), from + 7);
        assert_string_equal(ids, good[i].ids);
        const char *last = ids + strlen(ids) - (ids[0] != 0);
        while (last > ids && last[-1] != ' ') last--;
        if (ids[0] != 0)
            snprintf(tail, sizeof(tail),
                     "],\"has_more\":%s,\"first_id\":\"%.*s\",\"last_id\":\"%.*s\",\"models\"",
                     good[i].has_more, (int)strcspn(ids, " "), ids, (int)strcspn(last, " "), last);
        else
            snprintf(tail, sizeof(tail),
                     "[],\"has_more\":%s,\"first_id\":null,\"last_id\":null,\"models\":[]}",
                     good[i].has_more);
        if (strstr(a.body.data, tail) == NULL)
            fail_msg("%s: no %s in %s", good[i].query, tail, a.body.data);
        buf_free(&a.body);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char want[256];
        snprintf(want, sizeof(want),
                 "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
                 "\"%s\"}}",
                 bad[i].error);
        get(f.ep, "/v1/models", bad[i].query, true, &a);
        expect(&a, 400, want);
        get(f.ep, "/v1/models", bad[i].query, false, &a);
        assert_int_equal(a.status, 400);
        assert_non_null(strstr(a.body.data, bad[i].error));
        buf_free(&a.body);
    }
    fixture_close(&f);
    lora_set_destroy(&set);
}

/* An error of a request that has been read is that of its path. */
static void errors_by_path(void **state) {
    struct fixture *f = *state;
    for (const struct api_path *path = api_paths; path->path != NULL; path++) {
        struct api_answer got, want;
        struct infer_req *req = infer_req_create();
        req->answer.api = path->api;
        req->answer.errors = path->errors;
        endpoint_req_error(f->ep, req, 500, "Failed", &got);
        endpoint_error(f->ep, path, 500, "Failed", &want);
        assert_true(got.body.len > 0);
        assert_int_equal(got.status, want.status);
        if (path->errors != API_ERRORS_CAIKIT) /* its id is another each time */
            assert_string_equal(got.body.data, want.body.data);
        buf_free(&got.body);
        buf_free(&want.body);
        infer_req_destroy(&req);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_by_path), cmocka_unit_test(models),
        cmocka_unit_test(triton),         cmocka_unit_test(info),
        cmocka_unit_test(tokenizers),     cmocka_unit_test(counts_agree),
        cmocka_unit_test(adapters),       cmocka_unit_test(pages),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
