/* Goal: of two wrong parameters the one that inference-api 6.2, 7.1, 8.2, 9.1, 10.1 and 11 check
 * first is reported, in every family and for every pair, and the input before all of them. Method:
 * the orders of the document are written out here; each pair of its rows is made wrong in one body
 * and the error must be that of the first of them alone. */
#include "tests/unit/common/endpoint/checks.h"

struct wrong {
    const char *key, *value;
    const char *with; /* what must stand beside it for it to be read; NULL: nothing */
};

#define S(key)                                                                                     \
    { key, "7", NULL } /* no string, object, array or boolean */
#define N(key)                                                                                     \
    { key, "'x'", NULL } /* no number */
#define INCLUDE                                                                                    \
    { "include_stop_str_in_output", "7", "'stop':['s']" }

static const struct wrong chat[] = {
    S("ignore_eos"),
    S("stop"),
    S("stop_token_ids"),
    INCLUDE,
    N("temperature"),
    N("top_k"),
    N("top_p"),
    N("seed"),
    {"chat_template_kwargs", "{'enable_thinking':true,'thinking_budget':0}", NULL},
    N("repetition_penalty"),
    N("frequency_penalty"),
    N("presence_penalty"),
    S("skip_special_tokens"),
    N("best_of"),
    N("n"),
    S("use_beam_search"),
    S("logprobs"),
    N("top_logprobs"),
    N("max_tokens"),
    S("stream"),
    S("response_format")};
static const struct wrong completions[] = {S("ignore_eos"),
                                           S("stop"),
                                           INCLUDE,
                                           S("stop_token_ids"),
                                           N("temperature"),
                                           N("top_k"),
                                           N("top_p"),
                                           N("seed"),
                                           N("repetition_penalty"),
                                           N("frequency_penalty"),
                                           N("presence_penalty"),
                                           S("skip_special_tokens"),
                                           N("best_of"),
                                           N("n"),
                                           S("use_beam_search"),
                                           N("logprobs"),
                                           N("max_tokens"),
                                           S("stream"),
                                           S("response_format")};
static const struct wrong tgi[] = {S("stop"),
                                   N("temperature"),
                                   N("top_k"),
                                   N("top_p"),
                                   N("typical_p"),
                                   S("do_sample"),
                                   N("seed"),
                                   N("repetition_penalty"),
                                   S("watermark"),
                                   S("adapter_id"),
                                   N("max_new_tokens"),
                                   S("details"),
                                   S("decoder_input_details"),
                                   S("return_full_text"),
                                   N("truncate")};
static const struct wrong vllm[] = {S("ignore_eos"),
                                    S("stop"),
                                    S("stop_token_ids"),
                                    INCLUDE,
                                    N("temperature"),
                                    N("top_k"),
                                    N("top_p"),
                                    N("seed"),
                                    N("repetition_penalty"),
                                    N("frequency_penalty"),
                                    N("presence_penalty"),
                                    S("skip_special_tokens"),
                                    N("best_of"),
                                    N("n"),
                                    S("model"),
                                    N("max_tokens"),
                                    S("stream")};
static const struct wrong native[] = {N("temperature"),        N("top_k"),     N("top_p"),
                                      N("typical_p"),          S("do_sample"), N("seed"),
                                      N("repetition_penalty"), S("watermark"), N("priority"),
                                      N("max_new_tokens"),     N("timeout"),   S("details")};
static const struct wrong triton_token[] = {
    N("temperature"), N("top_k"),    N("top_p"),
    S("do_sample"),   N("seed"),     N("repetition_penalty"),
    S("watermark"),   N("priority"), N("max_new_tokens"),
    N("timeout"),     S("details"),  N("batch_size")};
static const struct wrong triton_text[] = {N("temperature"),
                                           N("top_k"),
                                           N("top_p"),
                                           N("typical_p"),
                                           S("do_sample"),
                                           N("seed"),
                                           N("repetition_penalty"),
                                           S("watermark"),
                                           N("priority"),
                                           N("max_new_tokens"),
                                           S("details"),
                                           N("batch_size"),
                                           N("timeout"),
                                           S("perf_stat")};

#define ROWS(r) r, sizeof(r) / sizeof(r[0])
static const struct {
    const char *path, *before, *after;
    const struct wrong *rows;
    size_t n;
    const char *bad_input; /* `before` with an input that is refused itself */
} families[] = {
    {"/v1/chat/completions", "{'model':'qwen','messages':[{'role':'user','content':'x'}],", "}",
     ROWS(chat), "{'model':'qwen','messages':[],"},
    {"/v1/completions", "{'model':'qwen','prompt':'x',", "}", ROWS(completions),
     "{'model':'qwen','prompt':[],"},
    {"/generate", "{'inputs':'x','parameters':{", "}}", ROWS(tgi), "{'inputs':[],'parameters':{"},
    {"/generate_stream", "{'inputs':'x','parameters':{", "}}", ROWS(tgi),
     "{'inputs':[],'parameters':{"},
    {"/generate", "{'prompt':'x',", "}", ROWS(vllm), "{'prompt':[],"},
    {"/infer", "{'inputs':'x','parameters':{", "}}", ROWS(native), "{'inputs':[],'parameters':{"},
    {"/v2/models/qwen/infer",
     "{'inputs':[{'name':'i','shape':[1],'datatype':'UINT32','data':[5]}],'outputs':[{'name':'o'}],"
     "'parameters':{",
     "}}", ROWS(triton_token),
     "{'inputs':[{'name':'i','shape':[1],'datatype':'UINT32','data':[5]}],'outputs':[],"
     "'parameters':{"},
    {"/v2/models/qwen/generate", "{'text_input':'x','parameters':{", "}}", ROWS(triton_text),
     "{'text_input':[],'parameters':{"},
};
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static void put(struct buf *b, const struct wrong *w, bool comma) {
    if (comma) buf_puts(b, ",");
    buf_printf(b, "'%s':%s", w->key, w->value);
}

/* The error of a body, malloc'd; fails when the body is taken. */
static char *error_of(struct fixture *f, const char *path, const char *quoted) {
    struct infer_req *req;
    struct api_answer err;
    char *body = unquote(quoted);
    if (fixture_read(f, path, body, &req, &err)) fail_msg("%s %s was taken", path, body);
    assert_int_equal(err.status, 422);
    char *text = strdup(err.body.data);
    buf_free(&err.body);
    free(body);
    return text;
}

/* One wrong parameter alone. */
static char *alone(struct fixture *f, size_t fam, const struct wrong *w) {
    struct buf b = BUF_INIT;
    buf_puts(&b, families[fam].before);
    put(&b, w, false);
    if (w->with != NULL) buf_printf(&b, ",%s", w->with);
    buf_puts(&b, families[fam].after);
    char *text = error_of(f, families[fam].path, b.data);
    buf_free(&b);
    return text;
}

static void pairs(void **state) {
    struct fixture *f = *state;
    struct buf b = BUF_INIT;
    for (size_t fam = 0; fam < N_FAMILIES; fam++) {
        for (size_t i = 0; i < families[fam].n; i++) {
            const struct wrong *first = &families[fam].rows[i];
            char *want = alone(f, fam, first);
            for (size_t j = i + 1; j < families[fam].n; j++) {
                const struct wrong *second = &families[fam].rows[j];
                buf_clear(&b);
                buf_puts(&b, families[fam].before);
                put(&b, second, false); /* the order in the body does not matter */
                put(&b, first, true);
                if (first->with != NULL && strcmp(second->key, "stop") != 0)
                    buf_printf(&b, ",%s", first->with);
                buf_puts(&b, families[fam].after);
                char *got = error_of(f, families[fam].path, b.data);
                if (strcmp(got, want) != 0)
                    fail_msg("%s\n %s before %s\n got  %s\n want %s", families[fam].path,
                             first->key, second->key, got, want);
                free(got);
            }
            free(want);
        }
    }
    buf_free(&b);
}

/* The input is looked at before any parameter, every parameter before what they mean together. */
static void input_first(void **state) {
    struct fixture *f = *state;
    struct buf b = BUF_INIT;
    for (size_t fam = 0; fam < N_FAMILIES; fam++) {
        buf_clear(&b);
        buf_puts(&b, families[fam].bad_input);
        put(&b, &families[fam].rows[1], false); /* 0 is ignore_eos or stop */
        buf_puts(&b, families[fam].after);
        char *got = error_of(f, families[fam].path, b.data);
        char *param = alone(f, fam, &families[fam].rows[1]);
        if (strcmp(got, param) == 0) fail_msg("%s: %s", families[fam].path, got);
        free(got);
        free(param);
    }
    buf_free(&b);
    check(f, "/generate_stream",
          "{\"inputs\":\"x\",\"parameters\":{\"decoder_input_details\":true,\"truncate\":0}}", 422,
          "truncate must be in (0,2147483647], got 0.");
    check(f, "/infer", "{\"inputs\":\"x\",\"stream\":7,\"parameters\":{\"details\":7}}", 422,
          "details must be boolean type.");
    check(f, "/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\",\"n\":2,\"max_tokens\":0}",
          422, "Parameter max_tokens must be (0,2147483647], got 0");
    /* together before the engine's own limits */
    check(f, "/v1/completions", "{\"model\":\"qwen\",\"prompt\":[330],\"n\":2}", 422,
          "Best_of and n shouldn't be greater than 1 when sampling is disabled, but best_of is 2 "
          "and n is 2.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs),
        cmocka_unit_test(input_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
