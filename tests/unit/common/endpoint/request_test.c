/* Goal: an accepted body becomes the right request: defaults of model and family, sampling on or
 * off (inference-api 4.5), lengths and truncation (4.7, 3.3 row 13), recompute bodies
 * (cluster-api 5.7), ids and names; and every request survives the wire. Method: single bodies and
 * the fields of their infer_req, both sides of each length. */
#include "common/base/budget.h"
#include "common/grpc/grpc_json.h"
#include "proto/wire.h"
#include "tests/unit/common/endpoint/checks.h"

static struct infer_req *take(struct fixture *f, const char *path, const char *quoted,
                              bool recompute) {
    struct infer_req *req = NULL;
    struct api_answer err;
    char *body = unquote(quoted);
    if (!fixture_read_bytes(f, path, body, strlen(body), recompute, &req, &err))
        fail_msg("%s %s\n refused: %d %s", path, body, err.status, err.body.data);
    free(body);
    return req;
}

static void refuse(struct fixture *f, const char *path, const char *quoted, int status,
                   const char *text) {
    char *body = unquote(quoted);
    check(f, path, body, status, text);
    free(body);
}

static void defaults(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *path, *body;
        enum api api;
        int new_tokens;
        bool stream, text;
    } rows[] = {
        {"/generate", "{'inputs':'x'}", API_TGI, 20, false, false},
        {"/generate_stream", "{'inputs':'x'}", API_TGI, 20, true, false},
        {"/", "{'inputs':'x','stream':true}", API_TGI, 20, true, false},
        {"/generate", "{'prompt':'x'}", API_VLLM, 512, false, true},
        {"/generate", "{'prompt':'x','stream':true}", API_VLLM, 512, true, false},
        {"/v1/completions", "{'model':'qwen','prompt':'x'}", API_OPENAI_COMPLETIONS, 512, false,
         false},
        {"/v1/chat/completions", "{'model':'qwen','messages':[{'role':'user','content':'x'}]}",
         API_OPENAI_CHAT, 512, false, false},
        {"/infer", "{'inputs':'x'}", API_NATIVE, 20, false, false},
        {"/infer_token", "{'input_id':[1]}", API_NATIVE, 20, false, false},
        {"/v2/models/qwen/generate", "{'text_input':'x'}", API_TRITON_TEXT, 20, false, false},
        {"/v2/models/qwen/generate_stream", "{'text_input':'x'}", API_TRITON_TEXT, 20, true, false},
        {"/v2/models/qwen/infer",
         "{'inputs':[{'name':'i','shape':[1],'datatype':'UINT32','data':[5]}],'outputs':[{'name':'"
         "o'}]}",
         API_TRITON_TOKEN, 20, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req = take(f, rows[i].path, rows[i].body, false);
        const struct sampling *s = &req->sampling;
        assert_int_equal(req->answer.api, rows[i].api);
        assert_int_equal(req->answer.stream, rows[i].stream);
        assert_int_equal(s->new_tokens_max, rows[i].new_tokens);
        assert_int_equal(req->answer.text != NULL, rows[i].text);
        assert_string_equal(req->head.req_id, "endpoint_common_17");
        assert_int_equal(req->head.arrival_us, 5);
        assert_int_equal(req->answer.root_array, strcmp(rows[i].path, "/") == 0);
        assert_int_equal(s->seed, 7);
        assert_false(req->answer.seed_given);
        assert_false(s->do_sample);
        assert_true(req->answer.skip_special);
        assert_int_equal(req->head.priority, 5);
        assert_int_equal(req->head.timeout_s, 0);
        assert_int_equal(req->n_ids, req->n_prompt);
        assert_true(s->repetition_penalty == 1.0f && s->top_p == 1.0f && s->temperature == 1.0f &&
                    s->top_k == 0);
        infer_req_destroy(&req);
    }
}

/* 4.5: which of the parameters switch sampling on. */
static void sampling_rule(void **state) {
    struct fixture *f = *state;
    struct model_info was = f->model;
    static const struct {
        const char *params;
        bool greedy_model, sampling_model; /* do_sample of generation_config.json absent; true */
    } rows[] = {
        {"'seed':1", false, true},        {"'temperature':0.5", true, true},
        {"'top_k':5", true, true},        {"'top_p':0.5", true, true},
        {"'typical_p':0.5", false, true}, {"'temperature':null,'top_k':null", false, true},
        {"'do_sample':true", true, true}, {"'do_sample':false,'temperature':0.5", false, false},
    };
    for (int sampling = 0; sampling < 2; sampling++) {
        f->model.gen.do_sample_set = f->model.gen.do_sample = sampling == 1;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            char body[256];
            snprintf(body, sizeof(body), "{'inputs':'x','parameters':{%s}}", rows[i].params);
            struct infer_req *req = take(f, "/generate", body, false);
            assert_int_equal(req->sampling.do_sample,
                             sampling ? rows[i].sampling_model : rows[i].greedy_model);
            infer_req_destroy(&req);
        }
        struct infer_req *req =
            take(f, "/v1/completions", "{'model':'qwen','prompt':'x','temperature':0,'top_p':0.5}",
                 false);
        assert_false(req->sampling.do_sample);
        infer_req_destroy(&req);
    }
    f->model = was;
}

/* What the client says, else the model's generation_config.json, else neutral; penalties also when
 * greedy. */
static void model_defaults(void **state) {
    struct fixture *f = *state;
    struct model_info was = f->model;
    struct infer_req *req =
        take(f, "/v1/completions", "{'model':'qwen','prompt':'x','temperature':0.5}", false);
    assert_int_equal(req->sampling.top_k, 1000); /* nobody says otherwise */
    infer_req_destroy(&req);

    f->model.gen.temperature_set = f->model.gen.top_k_set = f->model.gen.top_p_set =
        f->model.gen.min_p_set = f->model.gen.repetition_penalty_set = true;
    f->model.gen.temperature = 0.6f;
    f->model.gen.top_k = 20;
    f->model.gen.top_p = 0.95f;
    f->model.gen.min_p = 0.05f;
    f->model.gen.repetition_penalty = 1.05f;
    req = take(f, "/v1/completions",
               "{'model':'qwen','prompt':'x','top_k':3,'frequency_penalty':-1.5,'presence_penalty':"
               "1,'min_p':0.25}",
               false);
    const struct sampling *s = &req->sampling;
    assert_true(s->do_sample && s->temperature == 0.6f && s->top_k == 3 && s->top_p == 0.95f &&
                s->repetition_penalty == 1.05f);
    assert_true(s->frequency_penalty == -1.5f && s->presence_penalty == 1.0f && s->min_p == 0.25f);
    infer_req_destroy(&req);
    req = take(f, "/v1/completions",
               "{'model':'qwen','prompt':'x','top_k':-1,'repetition_penalty':1.5}", false);
    assert_true(req->sampling.top_k == 0 && req->sampling.repetition_penalty == 1.5f);
    assert_true(req->sampling.min_p == 0.05f);
    infer_req_destroy(&req);
    req = take(f, "/v1/completions", "{'model':'qwen','prompt':'x','temperature':0.5,'min_p':0}",
               false);
    assert_true(req->sampling.do_sample && req->sampling.min_p == 0);
    infer_req_destroy(&req);
    req = take(f, "/v1/completions", "{'model':'qwen','prompt':'x','temperature':0,'top_k':7}",
               false);
    s = &req->sampling;
    assert_true(!s->do_sample && s->repetition_penalty == 1.05f && s->top_k == 0 &&
                s->top_p == 1.0f);
    infer_req_destroy(&req);
    f->model = was;
}

static void values(void **state) {
    struct fixture *f = *state;
    struct infer_req *req =
        take(f, "/v1/chat/completions",
             "{'model':'qwen','messages':[{'role':'user','content':'x'}],'seed':"
             "18446744073709551615,'logprobs':true,'top_logprobs':3,"
             "'stop':['b','\\u0000','aa'],'stop_token_ids':[7,5,7,99999999999],'include_stop_str_"
             "in_output':true,'skip_special_tokens':false,"
             "'ignore_eos':true,'min_tokens':4,'logit_bias':{'5':-100,'329':1.5},'priority':0,'max_"
             "completion_tokens':9,'max_tokens':8,"
             "'stream':true,'stream_options':{'include_usage':true,'continuous_usage_stats':true}}",
             false);
    const struct sampling *s = &req->sampling;
    assert_true(s->seed == UINT64_MAX && req->answer.seed_given);
    assert_true(s->logprobs && s->top_logprobs == 3 && !s->prompt_logprobs);
    assert_int_equal(req->n_stop, 2); /* a zero character never shows in a text */
    assert_string_equal(req->stop[0], "b");
    assert_string_equal(req->stop[1], "aa");
    assert_int_equal(s->n_stop_token_ids, 2);
    assert_int_equal(s->stop_token_ids[0], 5);
    assert_int_equal(s->stop_token_ids[1], 7);
    assert_true(req->answer.include_stop && !req->answer.skip_special && s->ignore_eos &&
                req->answer.stream);
    assert_int_equal(s->new_tokens_min, 4);
    assert_int_equal(s->new_tokens_max, 9);
    assert_int_equal(s->n_logit_bias, 2);
    assert_true(s->logit_bias[0].id == 5 && s->logit_bias[0].bias == -100.0f &&
                s->logit_bias[1].id == 329 && s->logit_bias[1].bias == 1.5f);
    assert_int_equal(req->head.priority, 1);
    assert_true(req->answer.include_usage && req->answer.include_usage_set &&
                req->answer.continuous_usage);
    infer_req_destroy(&req);

    req = take(f, "/infer",
               "{'inputs':'x','parameters':{'priority':2,'timeout':65535,'typical_p':0.5,'"
               "temperature':2,'details':true}}",
               false);
    assert_true(req->head.priority == 2 && req->head.timeout_s == 65535 &&
                req->sampling.typical_p == 0.5f && req->answer.details);
    infer_req_destroy(&req);
    req = take(f, "/v2/models/qwen/generate",
               "{'id':'my-id','text_input':'x','parameters':{'perf_stat':true}}", false);
    assert_string_equal(req->head.client_id, "my-id");
    assert_string_equal(req->head.model, "qwen");
    assert_false(req->answer.perf_stat); /* only with details */
    infer_req_destroy(&req);
    req = take(f, "/generate",
               "{'inputs':'x','parameters':{'details':true,'top_n_tokens':4,'best_of':1,'frequency_"
               "penalty':1}}",
               false);
    assert_true(req->sampling.logprobs && req->sampling.top_logprobs == 4 &&
                req->sampling.frequency_penalty == 1.0f);
    infer_req_destroy(&req);
    req = take(f, "/generate", "{'inputs':'x','parameters':{'top_n_tokens':4}}", false);
    assert_true(!req->sampling.logprobs &&
                req->sampling.top_logprobs == 0); /* nothing would show them */
    infer_req_destroy(&req);
    req = take(f, "/v1/completions", "{'model':'qwen','prompt':[122,123],'echo':true,'logprobs':0}",
               false);
    assert_true(req->answer.echo && req->sampling.prompt_logprobs && req->sampling.logprobs);
    assert_string_equal(req->answer.text, "xy");
    infer_req_destroy(&req);
}

/* n tokens: "x" is one token, " a" too. */
static char *prompt_of(size_t n) {
    char *s = malloc(n + 1);
    memset(s, 'x', n);
    s[n] = '\0';
    return s;
}

static void lengths(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    static const struct {
        int context, input, seq, n;
        const char *text; /* after the prefix; NULL: taken */
    } rows[] = {
        {100, 50, 80, 50, NULL},
        {100, 50, 80, 51, "50,the input ids length is 51"},
        {40, 50, 80, 40, NULL},
        {40, 50, 80, 41, "maxPositionEmbeddings 40,the input ids length is 41"},
        {100, 50, 40, 39, NULL},
        {100, 50, 40, 40, "maxSeqLen 40,the input ids length is 40"},
        {0, 50, 80, 50, NULL}, /* context unknown */
    };
    struct model_info model = f->model;
    char text[256], *prompt;
    struct buf body = BUF_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        f->model.context_max = rows[i].context;
        f->conf.max_input_token_len = rows[i].input;
        f->conf.max_seq_len = rows[i].seq;
        f->conf.truncation = 0;
        fixture_open(f);
        prompt = prompt_of((size_t)rows[i].n);
        buf_clear(&body);
        buf_printf(&body, "{\"inputs\":\"%s\"}", prompt);
        snprintf(text, sizeof(text),
                 "Failed to enqueue inferRequest. This model's maximum input ids length cannot be "
                 "greater than %s",
                 rows[i].text != NULL ? rows[i].text : "");
        check(f, "/generate", body.data, rows[i].text != NULL ? 424 : 200, text);
        /* truncation in the configuration makes all of them fit, from the side it says */
        for (int side = -1; side <= 1; side += 2) {
            f->conf.truncation = side;
            fixture_open(f);
            buf_clear(&body);
            buf_printf(&body, "{\"inputs\":\"%s%c\"}", side > 0 ? "y" : prompt,
                       side > 0 ? 'z' : 'y');
            if (side > 0) {
                buf_clear(&body);
                buf_printf(&body, "{\"inputs\":\"y%s\"}", prompt);
            }
            struct infer_req *req;
            struct api_answer err;
            assert_true(fixture_read(f, "/generate", body.data, &req, &err));
            size_t limit = (size_t)rows[i].input;
            if ((size_t)rows[i].seq - 1 < limit) limit = (size_t)rows[i].seq - 1;
            if (rows[i].context > 0 && (size_t)rows[i].context < limit)
                limit = (size_t)rows[i].context;
            size_t all = (size_t)rows[i].n + 1;
            assert_int_equal(req->n_ids, all < limit ? all : limit);
            if (all > limit) { /* the odd letter is what was dropped */
                for (size_t k = 0; k < req->n_ids; k++)
                    assert_int_equal(req->ids[k], fixture_byte_id('x'));
            }
            infer_req_destroy(&req);
        }
        free(prompt);
    }
    f->conf = was;
    f->model = model;
    fixture_open(f);
    /* room for the output: min(asked, maxIterTimes, maxSeqLen - prompt) */
    prompt = prompt_of(2048);
    buf_clear(&body);
    buf_printf(&body, "{\"inputs\":\"%s\",\"parameters\":{\"max_new_tokens\":1000000}}", prompt);
    struct infer_req *req = take(f, "/generate", body.data, false);
    assert_int_equal(req->sampling.new_tokens_max, 512);
    infer_req_destroy(&req);
    f->conf.max_iter_times = 100000;
    fixture_open(f);
    req = take(f, "/generate", body.data, false);
    assert_int_equal(req->sampling.new_tokens_max, 2560 - 2048);
    infer_req_destroy(&req);
    f->conf = was;
    fixture_open(f);
    free(prompt);
    buf_free(&body);
}

static void truncation(void **state) {
    struct fixture *f = *state;
    struct infer_req *req =
        take(f, "/generate",
             "{'inputs':'uvwxyz','parameters':{'truncate':2,'return_full_text':true}}", false);
    assert_int_equal(req->n_prompt, 2);
    assert_int_equal(req->ids[0], fixture_byte_id('y')); /* the last ones stay */
    assert_string_equal(req->answer.text, "uvwxyz");
    infer_req_destroy(&req);
    req = take(f, "/generate", "{'inputs':'xyz','parameters':{'truncate':9}}", false);
    assert_int_equal(req->n_prompt, 3);
    infer_req_destroy(&req);
    req = take(f, "/v1/completions", "{'model':'qwen','prompt':'xyz','truncate_prompt_tokens':1}",
               false);
    assert_int_equal(req->n_prompt, 1);
    infer_req_destroy(&req);
    char *prompt = prompt_of(3000);
    struct buf body = BUF_INIT;
    buf_printf(&body, "{'model':'qwen','prompt':'%s','truncate_prompt_tokens':-1}", prompt);
    req = take(f, "/v1/completions", body.data, false);
    assert_int_equal(req->n_prompt, 2048);
    infer_req_destroy(&req);
    buf_free(&body);
    free(prompt);
}

/* Text limits count UTF-16 units of maxRequestLength; the body itself is bounded by the same number
 * of bytes. */
static void size_limits(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    f->conf.max_request_bytes = 1u << 20;
    fixture_open(f);
    char *prompt = prompt_of((1u << 20) - 30);
    struct buf body = BUF_INIT;
    buf_printf(&body, "{'inputs':'%s'}", prompt);
    refuse(f, "/infer", body.data, 424,
           "Failed to enqueue inferRequest. This model's maximum input ids length cannot be "
           "greater than maxPositionEmbeddings 4096,the input ids length is 1048546");
    buf_clear(&body);
    buf_printf(&body, "{'inputs':'%s%s'}", prompt, "0123456789012345678901234567890123456789");
    refuse(f, "/infer", body.data, 413, "Request body too large. Maximum allowed size is 1MB.");
    f->conf = was;
    fixture_open(f);
    buf_free(&body);
    free(prompt);
}

static void recompute(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *path, *before, *after;
        int new_tokens;
    } rows[] = {
        {"/v1/chat/completions", "{'model':'qwen','messages':'", "','max_tokens':9,'seed':3}", 9},
        {"/v1/completions", "{'model':'qwen','prompt':'", "','max_tokens':9,'seed':3}", 9},
        {"/generate", "{'prompt':'", "','max_tokens':9,'seed':3}", 9},
        {"/generate", "{'inputs':'", "','parameters':{'max_new_tokens':9,'seed':3,'truncate':1}}",
         9},
        {"/infer", "{'inputs':'", "','parameters':{'max_new_tokens':9,'seed':3}}", 9},
        {"/v2/models/qwen/generate", "{'id':'u','text_input':'",
         "','parameters':{'max_new_tokens':9,'seed':3}}", 9},
        /* the token form: the limit is reduced already, so two more were asked for */
        {"/v2/models/qwen/infer",
         "{'inputs':[{'name':'i','shape':[1,6],'datatype':'UINT32','data':[",
         "]}],'outputs':[{'name':'o'}],'parameters':{'max_new_tokens':7,'seed':3}}", 9},
    };
    static const char *const bad[] = {"",
                                      "3",
                                      "3,",
                                      ",3",
                                      "3,1,2",
                                      "0,1",
                                      "3,1,2,3,",
                                      "3,1,,2,3",
                                      "3,1,2,x",
                                      "-1,1",
                                      "3,1,2,3,-1",
                                      " 3,1,2,3",
                                      "3,1,2,3 ",
                                      "3.0,1,2,3",
                                      "3,1,2,4294967296",
                                      "99999999999,1",
                                      "2147483648,1",
                                      "3,1,2,3,99999999999999999999"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char body[512];
        snprintf(body, sizeof(body), "%s%s%s", rows[i].before, "3,120,121,122,320,41",
                 rows[i].after);
        struct infer_req *req = take(f, rows[i].path, body, true);
        static const int32_t ids[] = {120, 121, 122, 320, 41};
        assert_int_equal(req->n_ids, 5);
        assert_int_equal(req->n_prompt, 3);
        assert_memory_equal(req->ids, ids, sizeof(ids));
        assert_true(req->head.is_recompute);
        assert_int_equal(req->sampling.new_tokens_max, rows[i].new_tokens);
        assert_int_equal(req->sampling.seed, 3);
        infer_req_destroy(&req);
        for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
            struct api_answer err;
            snprintf(body, sizeof(body), "%s%s%s", rows[i].before, bad[k], rows[i].after);
            char *plain = unquote(body);
            if (fixture_read_bytes(f, rows[i].path, plain, strlen(plain), true, &req, &err))
                fail_msg("%s was taken", plain);
            assert_int_equal(err.status, 422);
            buf_free(&err.body);
            free(plain);
        }
    }
    /* The texts of an answer that repeats the prompt come back from the ids. */
    struct infer_req *req = take(f, "/generate", "{'prompt':'2,122,123,320'}", true);
    assert_string_equal(req->answer.text, "xy");
    infer_req_destroy(&req);
    /* Nothing left to generate. */
    struct api_answer err;
    char *body = unquote("{'prompt':'1,5,320,41','max_tokens':2}");
    assert_false(fixture_read_bytes(f, "/generate", body, strlen(body), true, &req, &err));
    assert_int_equal(err.status, 424);
    buf_free(&err.body);
    free(body);
    /* Without the header it is a text like any other. */
    req = take(f, "/generate", "{'prompt':'1,5'}", false);
    assert_int_equal(req->n_prompt, 3);
    infer_req_destroy(&req);
}

/* Every accepted request is one that a decode instance takes off the wire again, unchanged. */
static void wire(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *path, *body;
    } rows[] = {
        {"/v1/chat/completions",
         "{'model':'qwen','messages':[{'role':'user','content':'x'}],'temperature':1e-6,'top_p':1e-"
         "6,'stop':['a','b'],'stop_token_ids':[3],'logit_bias':{'5':-100}}"},
        {"/generate", "{'inputs':'x','parameters':{'repetition_penalty':3e38,'temperature':3e38,'"
                      "top_k':2147483647,'details':true,'return_full_text':true}}"},
        {"/v2/models/qwen/infer", "{'id':'q','inputs':[{'name':'i','shape':[1],'datatype':'UINT32',"
                                  "'data':[5]}],'outputs':[{'name':'o'}]}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req = take(f, rows[i].path, rows[i].body, false), *again;
        struct buf first = BUF_INIT, second = BUF_INIT;
        struct wr w = WR_INIT;
        infer_req_pack(&w, req);
        struct rd r = rd_of(w.data, w.len);
        assert_int_equal(infer_req_unpack(&r, &again), ERR_OK);
        const int32_t script[] = {TOK_A};
        fixture_run(f, req, script, 1, &first);
        fixture_run(f, again, script, 1, &second);
        assert_string_equal(first.data, second.data);
        wr_free(&w);
        buf_free(&first);
        buf_free(&second);
        infer_req_destroy(&req);
        infer_req_destroy(&again);
    }
}

/* strictRanges off: what any family takes. */
static void lax_ranges(void **state) {
    struct fixture *f = *state;
    static const struct row rows[] = {
        {"{'inputs':'x','parameters':{'top_p':1.0,'top_k':0,'temperature':0}}", 200, NULL},
        {"{'inputs':'x','parameters':{'top_k':-1}}", 200, NULL},
        {"{'inputs':'x','parameters':{'top_p':1.1}}", 422,
         "Parameter top_p must be in (0.0,1.0], got 1.1."},
        {"{'inputs':'x','parameters':{'do_sample':true,'temperature':0}}", 200, NULL},
    };
    f->conf.strict_ranges = false;
    fixture_open(f);
    RUN(f, "/generate", rows);
    struct infer_req *req = take(
        f, "/generate", "{'inputs':'x','parameters':{'do_sample':true,'temperature':0}}", false);
    assert_false(req->sampling.do_sample); /* there is no sampling at temperature 0 */
    infer_req_destroy(&req);
    f->conf.strict_ranges = true;
    fixture_open(f);
}

/* The request says how many tokens are guessed, else the configuration, in every family. */
static void lookup_tokens(void **state) {
    static const char *const bodies[][3] = {
        {"/v1/chat/completions", "{'model':'qwen','messages':[{'role':'user','content':'x'}]", "}"},
        {"/v1/completions", "{'model':'qwen','prompt':'x'", "}"},
        {"/generate", "{'prompt':'x'", "}"},
        {"/generate", "{'inputs':'x','parameters':{'seed':1", "}}"},
        {"/infer", "{'inputs':'x','parameters':{'seed':1", "}}"},
        {"/v2/models/qwen/generate", "{'text_input':'x','parameters':{'seed':1", "}}"},
        {"/v2/models/qwen/infer",
         "{'inputs':[{'name':'i','shape':[1],'datatype':'UINT32','data':[5]}],"
         "'outputs':[{'name':'o'}],'parameters':{'seed':1",
         "}}"},
    };
    struct fixture *f = *state;
    for (int conf = 0; conf <= 6; conf += 6) {
        f->conf.prompt_lookup_tokens = conf;
        fixture_open(f);
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
            for (int given = -1; given <= LOOKUP_TOKENS_MAX; given++) {
                char body[512], field[64] = "";
                if (given >= 0)
                    snprintf(field, sizeof(field), ",'prompt_lookup_num_tokens':%d", given);
                snprintf(body, sizeof(body), "%s%s%s", bodies[i][1], field, bodies[i][2]);
                struct infer_req *req = take(f, bodies[i][0], body, false);
                assert_int_equal(req->sampling.lookup_tokens, given >= 0 ? given : conf);
                infer_req_destroy(&req);
            }
    }
    f->conf.prompt_lookup_tokens = 0;
    fixture_open(f);
}

static void answer_fits(struct fixture *f, const char *path, const char *quoted, bool fits,
                        const char *says) {
    struct infer_req *req;
    struct api_answer err;
    char *body = unquote(quoted);
    if (fixture_read(f, path, body, &req, &err) != fits)
        fail_msg("%s: %s", body, fits ? err.body.data : "taken");
    int status = strncmp(path, "/v3/", 4) == 0 ? 400 : 422;
    if (!fits && (err.status != status || strstr(err.body.data, says) == NULL))
        fail_msg("%s: %d %s", body, err.status, err.body.data);
    infer_req_destroy(&req);
    buf_free(&err.body);
    free(body);
}

/* A message of so many prompts, whose answers have details of n_tokens tokens in any case. */
static void call_fits(struct fixture *f, int n_prompts, int n_tokens, bool fits) {
    static const char path[] = "/fmaas.GenerationService/Generate";
    struct infer_req *req;
    struct api_answer err;
    struct buf json = BUF_INIT, body = BUF_INIT;
    buf_puts(&json, "{\"requests\":[");
    for (int i = 0; i < n_prompts; i++) buf_printf(&json, "%s{\"text\":\"x\"}", i > 0 ? "," : "");
    buf_printf(&json,
               "],\"params\":{\"stopping\":{\"max_new_tokens\":%d,\"min_new_tokens\":%d},"
               "\"response\":{\"generated_tokens\":true,\"token_logprobs\":true,"
               "\"token_ranks\":true,\"top_n_tokens\":10}}}",
               n_tokens, n_tokens);
    grpc_put_text(&body, grpc_method_find(path)->in, json.data, json.len);
    if (fixture_read_bytes(f, path, body.data, body.len, false, &req, &err) != fits)
        fail_msg("%d prompts: %s", n_prompts, fits ? err.body.data : "taken");
    if (!fits)
        assert_non_null(strstr(err.body.data, "The answer would have at least 1433600 bytes"));
    infer_req_destroy(&req);
    buf_free(&err.body);
    buf_free(&json);
    buf_free(&body);
}

/* The prompt is listed in every choice of completions, and once in a chat; ids and
 * log-probabilities are lists of their own. */
static void prompt_lists(struct fixture *f, struct budget *b) {
    static const struct {
        const char *fields, *says;
    } rows[] = {
        {"'return_token_ids':true", "at least 200 bytes"},
        {"'return_token_ids':true,'n':3", "at least 600 bytes"},
        {"'prompt_logprobs':0,'n':3", "at least 14400 bytes"},
        {"'prompt_logprobs':0,'return_token_ids':true,'n':3", "at least 15000 bytes"},
    };
    struct buf body = BUF_INIT;
    budget_limit_set(b, BUDGET_ANSWER_BYTES, 30);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_clear(&body);
        buf_printf(&body, "{'model':'qwen',%s,'prompt':[5", rows[i].fields);
        for (int k = 1; k < 100; k++) buf_puts(&body, ",5");
        buf_puts(&body, "]}");
        answer_fits(f, "/v3/completions", body.data, false, rows[i].says);
    }
    answer_fits(f, "/v3/chat/completions",
                "{'model':'qwen','messages':[{'role':'user','content':'x'}],'n':3,"
                "'return_token_ids':true}",
                false, "at least 40 bytes");
    buf_free(&body);
}

/* What can never be kept as one answer is refused at once; what may end earlier is not. */
static void answer_sizes(void **state) {
    static const struct {
        const char *path, *body;
        bool fits;
    } rows[] = {
#define ALL  "'logprobs':true,'top_logprobs':20,'n':128,'temperature':1"
#define HEAD "{'model':'qwen','messages':[{'role':'user','content':'x'}],"
        {"/v1/chat/completions", HEAD ALL ",'max_tokens':1000,'ignore_eos':true}", false},
        {"/v1/chat/completions", HEAD ALL ",'max_tokens':500,'ignore_eos':true}", true},
        {"/v1/chat/completions", HEAD ALL ",'max_tokens':1000}", true},
        {"/v1/chat/completions", HEAD ALL ",'max_tokens':1000,'min_tokens':1000}", false},
        {"/v1/chat/completions", HEAD ALL ",'max_tokens':1000,'ignore_eos':true,'stop':'y'}", true},
        {"/v1/chat/completions", HEAD ALL ",'max_tokens':1000,'ignore_eos':true,'stream':true}",
         true},
        {"/v1/chat/completions",
         HEAD "'n':128,'temperature':1,'max_tokens':1000,'ignore_eos':true}", true},
        {"/v1/completions",
         "{'model':'qwen','prompt':['x','y','z','u','v','w'],'logprobs':5,'n':128,'temperature':1,"
         "'max_tokens':4000,'ignore_eos':true}",
         false},
        {"/v1/completions",
         "{'model':'qwen','prompt':['x'],'logprobs':5,'n':128,'temperature':1,'max_tokens':4000,"
         "'ignore_eos':true}",
         true},
        {"/generate",
         "{'inputs':'x','parameters':{'details':true,'max_new_tokens':4000,'best_of':1}}", true},
    };
    struct fixture *f = *state;
    const struct endpoint_conf was = f->conf;
    struct budget b;
    budget_init(&b);
    f->conf.max_seq_len = f->conf.max_iter_times = 4096;
    f->conf.max_batch_size = f->conf.max_prefill_batch_size = f->conf.max_n = 128;
    for (int split = 0; split < 2; split++) {
        f->conf.split = split;
        fixture_open(f);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            answer_fits(f, rows[i].path, rows[i].body, rows[i].fits || !split, "67108864");
    }
    /* the setting is named when it is the smaller */
    f->conf.budget = &b;
    budget_limit_set(&b, BUDGET_ANSWER_BYTES, 1 << 20);
    fixture_open(f);
    answer_fits(f, rows[1].path, rows[1].body, false, "may have 1048576 (limits.answersMiB)");
    assert_int_equal(budget_refusals(&b, BUDGET_ANSWER_BYTES), 1);
    call_fits(f, 64, 200, false); /* 112 bytes a token */
    call_fits(f, 32, 200, true);
    prompt_lists(f, &b);
#undef HEAD
#undef ALL
    f->conf = was;
    fixture_open(f);
}

/* A configuration that no request could satisfy is refused at start. */
static void bad_configuration(void **state) {
    struct fixture *f = *state;
    struct endpoint *ep;
    struct errbuf eb;
    struct endpoint_conf c = f->conf;
    c.max_seq_len = 1;
    assert_int_equal(endpoint_create(&ep, &c, f->tok, &f->model, &eb), ERR_BAD_CONFIG);
    assert_null(ep);
    c = f->conf;
    c.max_iter_times = 0;
    assert_int_equal(endpoint_create(&ep, &c, f->tok, &f->model, &eb), ERR_BAD_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(sampling_rule),
        cmocka_unit_test(model_defaults),
        cmocka_unit_test(values),
        cmocka_unit_test(lengths),
        cmocka_unit_test(truncation),
        cmocka_unit_test(size_limits),
        cmocka_unit_test(recompute),
        cmocka_unit_test(wire),
        cmocka_unit_test(lax_ranges),
        cmocka_unit_test(answer_sizes),
        cmocka_unit_test(lookup_tokens),
        cmocka_unit_test(bad_configuration),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
