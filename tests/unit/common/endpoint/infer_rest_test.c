/* Goal: POST /v2/models/{m}/infer takes tensors by their names as JSON and as bytes behind it, and
 * answers in either; one tensor of UINT32 stays the reference's (kserve-runtimes 8.2 to 8.7,
 * inference-api 11.1). Method: bodies with the header that says where their JSON ends; whole
 * answers of the stub engine, byte for byte; a wrong value for each field, its text whole. */
#include "proto/tensors.h"
#include "tests/unit/common/endpoint/checks.h"

#define PATH "/v2/models/qwen/infer"
#define TEXT "{'name':'text_input','datatype':'BYTES','shape':[1],'data':['x']}"

/* `quoted` and tail[n] behind it; json_bytes: the header, NULL: it is not sent. */
static int ask(struct fixture *f, const char *quoted, const char *tail, size_t n,
               const char *json_bytes, struct buf *out) {
    static const int32_t abc[] = {TOK_A, TOK_B, TOK_C};
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    struct buf body = BUF_INIT;
    char model[257], *json = unquote(quoted);
    buf_puts(&body, json);
    buf_append(&body, tail, n);
    struct endpoint_in in = {.path = fixture_path(PATH, model),
                             .path_model = model,
                             .req_id = "r",
                             .body = body.data != NULL ? body.data : "",
                             .body_own = body.data,
                             .body_len = body.len,
                             .random_seed = 7};
    if (json_bytes != NULL)
        snprintf(in.meta.json_bytes, sizeof(in.meta.json_bytes), "%s", json_bytes);
    buf_clear(out);
    const bool good = endpoint_read(f->ep, &in, &req, &err);
    if (good) fixture_run(f, req, abc, 3, out);
    buf_append(out, err.body.data != NULL ? err.body.data : "", err.body.len);
    buf_putc(out, '\0');
    infer_req_destroy(&req);
    buf_free(&err.body);
    buf_free(&body);
    free(json);
    return good ? 200 : err.status;
}

static int ask_binary(struct fixture *f, const char *quoted, const char *tail, size_t n,
                      struct buf *out) {
    char value[24];
    snprintf(value, sizeof(value), "%zu", strlen(quoted));
    return ask(f, quoted, tail, n, value, out);
}

static void expect(struct fixture *f, const char *quoted, const char *tail, size_t n,
                   const char *want) {
    struct buf out = BUF_INIT;
    char *json = unquote(want);
    const int status =
        n > 0 ? ask_binary(f, quoted, tail, n, &out) : ask(f, quoted, "", 0, NULL, &out);
    if (status != 200 || strcmp(out.data, json) != 0)
        fail_msg("%s\n got      %d %s\n expected %s", quoted, status, out.data, json);
    buf_free(&out);
    free(json);
}

#define HEAD   "'model_name':'qwen','model_version':'1','outputs':["
#define OUTPUT "{'name':'text_output','datatype':'BYTES','shape':[1],'data':["
#define ABC    "{" HEAD OUTPUT "' a b c']}]}"
#define THREE  "'parameters':{'max_tokens':3}"

static void texts(void **state) {
    struct fixture *f = *state;
    expect(f, "{'inputs':[" TEXT "]," THREE "}", "", 0, ABC);
    expect(f, "{'id':'a/1','inputs':[" TEXT "]," THREE "}", "", 0,
           "{'id':'a/1'," HEAD OUTPUT "' a b c']}]}");
    expect(f,
           "{'inputs':[" TEXT ",{'name':'max_tokens','datatype':'INT32','shape':[1,1],'data':"
           "[[2]]}]}",
           "", 0, "{" HEAD OUTPUT "' a b']}]}");
    /* a name that nobody knows, other names of the answer, a batch */
    expect(f,
           "{'inputs':[{'name':'INPUT','datatype':'BYTES','shape':[1,1],'data':[['x']]}],"
           "'outputs':[{'name':'OUT'},{'name':'num_output_tokens'},{'name':'finish_reason'}]," THREE
           "}",
           "", 0,
           "{" HEAD "{'name':'OUT','datatype':'BYTES','shape':[1],'data':[' a b c']},"
           "{'name':'finish_reason','datatype':'BYTES','shape':[1],'data':['length']},"
           "{'name':'num_output_tokens','datatype':'UINT32','shape':[1],'data':[3]}]}");
    expect(f,
           "{'inputs':[" TEXT ",{'name':'return_cumulative_logprob','datatype':'BOOL','shape':[1],"
           "'data':[true]}],'parameters':{'max_tokens':1,'stop':'q','temperature':0.0}}",
           "", 0,
           "{" HEAD OUTPUT "' a']},{'name':'cumulative_logprob','datatype':'FP32','shape':[1],"
           "'data':[-0.5]}]}");
}

static void ids(void **state) {
    struct fixture *f = *state;
    static const char *const types[] = {"INT64", "INT32", "UINT64"};
    char body[512], want[512];
    for (size_t i = 0; i < 3; i++) {
        snprintf(body, sizeof(body),
                 "{'inputs':[{'name':'input_ids','datatype':'%s','shape':[1,2],'data':[[5,6]]},"
                 "{'name':'attention_mask','datatype':'INT64','shape':[1,2],'data':[1,1]}]," THREE
                 "}",
                 types[i]);
        snprintf(want, sizeof(want),
                 "{" HEAD
                 "{'name':'output_ids','datatype':'%s','shape':[1,3],'data':[320,41,77]}]}",
                 types[i]);
        expect(f, body, "", 0, want);
    }
    /* told from the reference's by the name, and by outputs that are not there */
    expect(f,
           "{'inputs':[{'name':'input_ids','datatype':'UINT32','shape':[2],'data':[5,6]}]," THREE
           "}",
           "", 0,
           "{" HEAD "{'name':'output_ids','datatype':'UINT32','shape':[1,3],'data':[320,41,77]}]}");
}

/* One tensor of UINT32 is the reference's, and so is what it refuses in its own words. */
static void the_reference_has_its_form(void **state) {
    struct fixture *f = *state;
#define ONE(name, type, more)                                                                      \
    "{'inputs':[{'name':'" name "','shape':[2],'datatype':'" type "'" more                         \
    "}],'outputs':[{'name':'o'}]}"
#define REF "The reference's"
    static const struct row rows[] = {
        {ONE("input0", "INT64", ",'data':[5,6]"), 422, "Unsupported datatype, got INT64."},
        {ONE("x", "INT64", ""), 422, "Unsupported datatype, got INT64."},
        {ONE("x", "UINT33", ",'data':[5,6]"), 422, "Unsupported datatype, got UINT33."},
        {ONE("input_ids", "UINT32", ",'data':[5]"), 422, "Data size should be 2, got 1."},
        {"{'inputs':[1,2]}", 422, "Inputs count must be 1."},
        {"{'inputs':[{'name':'x','shape':[2],'datatype':'UINT32','data':[5]}],'outputs':[{'name':"
         "'o','parameters':{'binary_data':false}}]}",
         422, "Data size should be 2, got 1."},
    };
    RUN(f, PATH, rows);
    expect(
        f,
        "{'id':'q','inputs':[{'name':'input_ids','shape':[2],'datatype':'UINT32','data':[5,6],"
        "'parameters':{'max_new_tokens':3}}],'outputs':[{'name':'o'}]}",
        "", 0,
        "{'id':'q','outputs':[{'name':'o','shape':[1,3],'datatype':'UINT32','data':[320,41,77]}],"
        "'model_name':'qwen','model_version':null}");
}

/* ---- bytes behind the JSON */

#define SIZED(name, type, shape, size)                                                             \
    "{'name':'" name "','datatype':'" type "','shape':[" shape "],'parameters':{"                  \
    "'binary_data_size':" size "}}"

static void bytes_in(void **state) {
    struct fixture *f = *state;
    static const char text[] = "\1\0\0\0x", two[] = "\1\0\0\0x\3\0\0\0";
    static const char mixed[] = "\1\0\0\0x\3\0\0\0\0\0\0\0\x00\x3c";
    expect(f, "{'inputs':[" SIZED("text_input", "BYTES", "1", "5") "]," THREE "}", text, 5, ABC);
    expect(f,
           "{'inputs':[" SIZED("text_input", "BYTES", "1", "5") "," SIZED("max_tokens", "INT32",
                                                                          "1", "4") "]}",
           two, 9, ABC);
    /* a half of 1.0, and a tensor that is JSON between those that are not */
    expect(f,
           "{'inputs':[" SIZED("text_input", "BYTES", "1",
                               "5") ",{'name':'seed','datatype':'UINT8','shape':[1],'data':[9]}"
                                    "," SIZED("max_tokens", "INT64", "1",
                                              "8") "," SIZED("temperature", "FP16", "1", "2") "]}",
           mixed, 15, ABC);
    expect(f, "{'inputs':[" SIZED("ids", "UINT16", "2", "4") "]," THREE "}", "\5\0\6\0", 4,
           "{" HEAD "{'name':'output_ids','datatype':'UINT32','shape':[1,3],'data':[320,41,77]}]}");
    /* the only one, a text, and nothing said: with its length ahead and without */
    expect(f, "{'inputs':[{'name':'t','datatype':'BYTES','shape':[1]}]," THREE "}", text, 5, ABC);
    expect(f, "{'inputs':[{'name':'t','datatype':'BYTES','shape':[1]}]," THREE "}", "hello", 5,
           ABC);
}

/* The answer's JSON ends where it must, and the bytes are these. */
static void expect_bytes(struct fixture *f, const char *quoted, const char *tail, size_t n,
                         const char *json_bytes, const char *want, const char *bytes,
                         size_t n_bytes) {
    struct buf out = BUF_INIT;
    char *json = unquote(want);
    assert_int_equal(ask(f, quoted, tail, n, json_bytes, &out), 200);
    const size_t end = tensors_json_end(out.data, out.len - 1);
    if (end != strlen(json) || memcmp(out.data, json, end) != 0) fail_msg("%s\n%s", out.data, json);
    assert_int_equal(out.len - 1 - end, n_bytes);
    assert_memory_equal(out.data + end, bytes, n_bytes);
    buf_free(&out);
    free(json);
}

static void bytes_out(void **state) {
    struct fixture *f = *state;
    static const char abc[] = "\6\0\0\0 a b c";
#define IN_BYTES(name, type, shape, size)                                                          \
    "{'name':'" name "','datatype':'" type "','shape':[" shape                                     \
    "],'parameters':{'binary_data_size':" size "}}"
#define ABC_BYTES "{" HEAD IN_BYTES("text_output", "BYTES", "1", "10") "]}"
    expect_bytes(f, "{'inputs':[" TEXT "],'parameters':{'max_tokens':3,'binary_data_output':true}}",
                 "", 0, NULL, ABC_BYTES, abc, 10);
    expect_bytes(f,
                 "{'inputs':[" TEXT
                 "],'outputs':[{'name':'text_output','parameters':{'binary_data':true}}]," THREE
                 "}",
                 "", 0, NULL, ABC_BYTES, abc, 10);
    /* of two, the first not */
    expect_bytes(
        f,
        "{'inputs':[" TEXT "],'outputs':[{'name':'text_output','parameters':{'binary_data':false}},"
        "{'name':'num_input_tokens'}],'parameters':{'max_tokens':3,'binary_data_output':true}}",
        "", 0, NULL,
        "{" HEAD OUTPUT "' a b c']}," IN_BYTES("num_input_tokens", "UINT32", "1", "4") "]}",
        "\1\0\0\0", 4);
    expect_bytes(
        f,
        "{'inputs':[{'name':'input_ids','datatype':'INT64','shape':[2],'data':[5,6]}],'outputs':["
        "{'name':'output_ids','parameters':{'binary_data':true}}],'parameters':{'max_tokens':1}}",
        "", 0, NULL, "{" HEAD IN_BYTES("output_ids", "INT64", "1,1", "8") "]}",
        "\x40\1\0\0\0\0\0\0", 8);
    /* what the reference would take: it knows no bytes */
    expect_bytes(f,
                 "{'inputs':[{'name':'input0','datatype':'UINT32','shape':[1,2],'data':[5,6]}],"
                 "'outputs':[{'name':'o','parameters':{'binary_data':true}}],'parameters':{"
                 "'max_tokens':1}}",
                 "", 0, NULL, "{" HEAD IN_BYTES("o", "UINT32", "1,1", "4") "]}", "\x40\1\0\0", 4);
    expect_bytes(f,
                 "{'inputs':[{'name':'x','datatype':'UINT32','shape':[2],'data':[5,6]}],"
                 "'parameters':{'max_tokens':1,'binary_data_output':true}}",
                 "", 0, NULL, "{" HEAD IN_BYTES("output_ids", "UINT32", "1,1", "4") "]}",
                 "\x40\1\0\0", 4);
    /* no JSON at all: sixteen tokens of the script, in bytes */
    struct buf out = BUF_INIT;
    assert_int_equal(ask(f, "", "\1\0\0\0x", 5, "0", &out), 200);
    assert_non_null(strstr(out.data, "\"parameters\":{\"binary_data_size\":36}}]}"));
    buf_free(&out);
}

/* Where outputs are named, those are answered and no others. */
static void outputs_are_those_that_are_named(void **state) {
    struct fixture *f = *state;
    expect(f, "{'inputs':[" TEXT "],'outputs':[{'name':'finish_reason'}]," THREE "}", "", 0,
           "{" HEAD "{'name':'finish_reason','datatype':'BYTES','shape':[1],'data':['length']}]}");
    expect(f,
           "{'inputs':[{'name':'input_ids','datatype':'INT64','shape':[2],'data':[5,6]}],'outputs':"
           "[{'name':'num_output_tokens'},{'name':'num_input_tokens'}]," THREE "}",
           "", 0,
           "{" HEAD "{'name':'num_input_tokens','datatype':'UINT32','shape':[1],'data':[2]},"
           "{'name':'num_output_tokens','datatype':'UINT32','shape':[1],'data':[3]}]}");
    expect(f, "{'inputs':[" TEXT "],'outputs':[]," THREE "}", "", 0, ABC);
}

/* The header is there also when no byte is. */
static void no_bytes_are_bytes(void **state) {
    static const struct {
        const char *json;
        bool want;
    } rows[] = {
        {"{'outputs':[{'name':'o','parameters':{'binary_data_size':0}}]}", true},
        {"{'outputs':[{'name':'o','data':[1]},{'name':'p','parameters':{'binary_data_size':0}}]}",
         true},
        {"{'outputs':[{'name':'o','parameters':{'binary_data_size':10}}]}", false},
        {"{'outputs':[{'name':'o','data':['#parameters#:{#binary_data_size#:0}']}]}", false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf b = BUF_INIT;
        char *json = unquote(rows[i].json);
        for (const char *s = json; *s != '\0'; s++) {
            if (*s == '#') buf_putc(&b, '\\');
            buf_putc(&b, *s == '#' ? '"' : *s);
        }
        assert_int_equal(tensors_has_empty(b.data, b.len), rows[i].want);
        buf_free(&b);
        free(json);
    }
}

/* ---- refusals */

static void refusals(void **state) {
    struct fixture *f = *state;
#define I(tensor)        "{'inputs':[" tensor "]}"
#define D(name, type, d) "{'name':'" name "','datatype':'" type "','shape':[1],'data':" d "}"
#define IN(name)         "inference input '" name "': "
    static const struct row rows[] = {
        {I(TEXT "," D("temperature", "FP32", "['a']")), 400,
         IN("temperature") "\\\"a\\\" is no FP32"},
        {I(TEXT "," D("max_tokens", "INT8", "[128]")), 400, IN("max_tokens") "128 is no INT8"},
        {I(TEXT "," D("max_tokens", "UINT16", "[-1]")), 400, IN("max_tokens") "-1 is no UINT16"},
        {I(TEXT "," D("seed", "UINT64", "[-1]")), 400, IN("seed") "-1 is no UINT64"},
        {I(TEXT "," D("ignore_eos", "BOOL", "[1]")), 400, IN("ignore_eos") "1 is no BOOL"},
        {I(TEXT "," D("temperature", "FP16", "[1]")), 400,
         IN("temperature") "FP16 is taken as raw bytes alone"},
        {I(TEXT "," D("temperature", "FP32", "[1,2]")), 400,
         IN("temperature") "the data have another number of elements than the shape: it says 1, "
                           "got 2"},
        {I(D("t", "BYTES", "[[['a']]]")), 400,
         IN("t") "data must be flat or nested as the 1 dimensions of shape"},
        {I("{'name':'t','datatype':'BYTES','shape':[3],'data':[['a','b'],['c']]}"), 400,
         IN("t") "data must be flat or nested as the 1 dimensions of shape"},
        {I("{'name':'t','datatype':'BYTES','shape':[2,2],'data':[['a','b','c'],['d']]}"), 400,
         IN("t") "data must be flat or nested as the 2 dimensions of shape"},
        {I("{'name':'t','datatype':'BYTES','shape':[2,1],'data':[['a'],'b']}"), 400,
         IN("t") "data must be flat or nested as the 2 dimensions of shape"},
        {I("{'name':'t','datatype':'BYTES','shape':[2,1],'data':['a',['b']]}"), 400,
         IN("t") "data must be flat or nested as the 2 dimensions of shape"},
        {I("{'name':'input_ids','datatype':'INT64','shape':[2,2],'data':[[5,6],[7,8]]}"), 400,
         "inference input 'input_ids' has ids of 2 prompts, one for each row of its shape: of ids "
         "one prompt is taken in a request, shape [n] or [1,n]"},
        {I("{'name':'input_ids','datatype':'INT64','shape':[3,1],'data':[5,6,7]}"), 400,
         "has ids of 3 prompts"},
        {I(TEXT "," D("max_tokens", "INT33", "[1]")), 400,
         IN("max_tokens") "datatype 'INT33' is none of those that are taken"},
        {I("{'name':'input0','datatype':'INT33','shape':[1],'data':[5]},"
           "{'name':'max_tokens','datatype':'INT32','shape':[1],'data':[5]}"),
         400, IN("input0") "datatype 'INT33' is none of those that are taken"},
        {I(TEXT "," D("max_tokens", "INT32", "[1]") "," D("max_tokens", "INT32", "[1]")), 400,
         "max_tokens is given twice, or under two names: it must be given once"},
        {I(TEXT "," D("max_tokens", "INT32", "[1]") "," D("max_new_tokens", "INT32", "[2]")), 400,
         "max_new_tokens is given twice, or under two names"},
        {I(TEXT "," D("end_id", "INT32", "[1]") "," D("stop_token_ids", "INT32", "[2]")), 400,
         "stop_token_ids is given twice"},
        {I(TEXT "," D("stream", "BOOL", "[false]") "," D("streaming", "BOOL", "[false]")), 400,
         "streaming is given twice"},
        {I(TEXT
           "," D("return_logprobs", "BOOL", "[true]") "," D("return_log_probs", "BOOL", "[false]")),
         400, "return_log_probs is given twice"},
        {"{'inputs':[" TEXT "," D("seed", "INT64", "[1]") "],'parameters':{'random_seed':1}}", 400,
         "seed is given twice"},
        {I(D("t", "BYTES", "[5]")), 400, IN("t") "elements of BYTES must be strings"},
        {I(D("t", "BYTES", "'a'")), 400, IN("t") "data must be an array"},
        {I(D("t", "FP32", "[1]")), 400, "unexpected inference input 't' for model 'qwen'"},
        {I(TEXT "," TEXT), 400,
         "unexpected inference input 'text_input' for model 'qwen': there is a prompt already"},
        {I("{'name':'text_input','datatype':'BYTES','shape':[],'data':['x']}"), 400,
         IN("text_input") "shape must have 1 to 8 dimensions, got 0"},
        {I("{'name':'text_input','datatype':'BYTES','shape':[-3],'data':['x']}"), 400,
         IN("text_input") "each dimension of shape must be 0 to 1048576, got -3"},
        {I("{'name':'text_input','datatype':'BYTES','shape':[1048576,2],'data':['x']}"), 400,
         IN("text_input") "the tensor may have at most 1048576 elements, its shape says 2097152"},
        {I("{'name':'text_input','datatype':'BYTES','shape':[1],'parameters':{'shared_memory_"
           "region':'r'}}"),
         400,
         IN("text_input") "shared memory is not available here, the data must be in the request"},
        {I("{'name':'text_input','datatype':'BYTES','shape':[1],'data':['x'],'parameters':{'binary_"
           "data_size':1}}"),
         400, IN("text_input") "it has both data and binary_data_size, it must have one of them"},
        {I(SIZED("text_input", "BYTES", "1", "1")), 400,
         IN("text_input") "binary_data_size must be 0 to 0, the bytes that are left behind the "
                          "JSON, got 1"},
        {I(TEXT ",{'name':'stop','datatype':'BYTES','shape':[1]}"), 400,
         "unable to find data for input tensor 'stop' for model 'qwen' in request."},
        {"{'inputs':[" TEXT "],'parameters':[]}", 400, "parameters must be an object"},
        {"{'inputs':[" TEXT "],'outputs':{}}", 400, "outputs must be an array"},
        {"{'inputs':[" TEXT "],'id':5}", 400, "id must be a string"},
        {"{'inputs':[" TEXT "],'parameters':{'triton_enable_empty_final_response':true}}", 400,
         "parameter keys starting with 'triton_' are reserved: "
         "'triton_enable_empty_final_response'"},
        {"{'inputs':[" TEXT "],'parameters':{'binary_data_output':1}}", 400,
         "binary_data_output must be a boolean, got 1"},
        {"{'inputs':[" TEXT "],'parameters':{'stream':true}}", 400,
         "stream must be false here: generate_stream answers in pieces"},
        {"{'inputs':[" TEXT "],'parameters':{'beam_width':4}}", 400,
         "beam_width must be 1, got 4: beam search is not available here"},
        {"{'inputs':[" TEXT "],'parameters':{'timeout':-1}}", 400,
         "timeout must be microseconds, 0 to 2^64-1, got -1"},
        {"{'inputs':[" TEXT "],'parameters':{'top_p':1.5}}", 400,
         "Parameter top_p must be in [0.0,1.0], got 1.5."},
        {"{'inputs':[" TEXT "],'parameters':{'repetition_penalty':0}}", 400,
         "Parameter 'repetition_penalty' must be in (0.0, "},
        {"{'inputs':[" TEXT "],'parameters':{'repetition_penalty':1e300}}", 400,
         "Parameter 'repetition_penalty' must be in (0.0, "},
        {"{'inputs':[" TEXT "],'parameters':{'temperature':-1}}", 400, "temperature"},
        {"{'inputs':[" TEXT "],'parameters':{'min_p':2}}", 400, "min_p"},
        {"{'inputs':[" TEXT "],'parameters':{'top_k':-7}}", 400, "top_k"},
        {"{'inputs':[" TEXT "],'parameters':{'n':3,'best_of':2}}", 400,
         "best_of must be greater than or equal to n, but best_of is 2, n is 3."},
        {"{'inputs':[" TEXT "],'outputs':[{'name':'o','parameters':{'classification':3}}]}", 400,
         "inference output 'o': classification is not available here"},
        {"{'inputs':[" TEXT "],'outputs':[{'name':'o','parameters':{'binary_data':'yes'}}]}", 400,
         "inference output 'o': binary_data must be a boolean, got \\\"yes\\\""},
        {"{'inputs':[" TEXT "],'outputs':[{'name':'o'},{'name':'p'}]}", 400,
         "unexpected inference output 'p' for model 'qwen'"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = BUF_INIT;
        const int status = ask(f, rows[i].body, "", 0, NULL, &out);
        if (status != rows[i].status || strstr(out.data, rows[i].text) == NULL)
            fail_msg("%s\n got      %d %s\n expected %d %s", rows[i].body, status, out.data,
                     rows[i].status, rows[i].text);
        buf_free(&out);
    }
}

static void refused_bytes(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *json, *tail;
        size_t n;
        const char *header, *want; /* header NULL: the JSON's bytes */
    } rows[] = {
        {"{}", "", 0, "3",
         "Inference-Header-Content-Length must be 0 to the 2 bytes of the body, got '3'"},
        {"{}", "", 0, "-1", "must be 0 to the 2 bytes of the body, got '-1'"},
        {"{}", "", 0, "99999999999999999999999",
         "must be 0 to the 2 bytes of the body, got '99999999999999999999999'"},
        {"{}", "", 0, "2x", "got '2x'"},
        {"{}", "", 0, "000000000000000000002", "must be 0 to the 2 bytes of the body, got '0"},
        {"{}", "", 0, NULL, "model 'qwen' expects 1 to 64 inference inputs, got 0"},
        {"{'inputs':", "xxxx", 4, NULL, "Failed to parse request context to json"},
        {"{'inputs':[" TEXT "]}", "xxxx", 4, NULL,
         "unexpected additional input data for model 'qwen': the inputs' binary_data_size leave 4 "
         "bytes of the body"},
        {"{'inputs':[" SIZED("text_input", "BYTES", "1", "5") "]}", "\2\0\0\0x", 5, NULL,
         IN("text_input") "element 0 has 2 bytes, of the raw bytes 1 are left"},
        {"{'inputs':[" SIZED("text_input", "BYTES", "1", "5") "]}", "\1\0\0\0\xff", 5, NULL,
         "an element of BYTES is not UTF-8"},
        {"{'inputs':[" SIZED("text_input", "BYTES", "2", "5") "]}", "\1\0\0\0x", 5, NULL,
         IN("text_input") "the raw bytes have another number of elements than the shape: it says 2 "
                          "of BYTES, got 5 bytes"},
        {"{'inputs':[" SIZED("text_input", "BYTES", "1", "6") "]}", "\1\0\0\0x", 5, NULL,
         IN("text_input") "binary_data_size must be 0 to 5, the bytes that are left behind the "
                          "JSON, got 6"},
        {"{'inputs':[" SIZED("text_input", "BYTES", "1", "-1") "]}", "\1\0\0\0x", 5, NULL,
         "left behind the JSON, got -1"},
        {"{'inputs':[" SIZED("input_ids", "INT64", "1", "5") "]}", "\1\0\0\0x", 5, NULL,
         "it says 1 of INT64, got 5 bytes"},
        {"", "\2\0\0\0x", 5, "0", "element 0 has 2 bytes"},
        {"", "", 0, "0", "it says 1 of BYTES, got 0 bytes"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = BUF_INIT;
        char header[24];
        snprintf(header, sizeof(header), "%zu", strlen(rows[i].json));
        const int status = ask(f, rows[i].json, rows[i].tail, rows[i].n,
                               rows[i].header != NULL ? rows[i].header : header, &out);
        if (status != 400 || strstr(out.data, rows[i].want) == NULL)
            fail_msg("%s\n got      %d %s\n expected %s", rows[i].json, status, out.data,
                     rows[i].want);
        buf_free(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(ids),
        cmocka_unit_test(bytes_in),
        cmocka_unit_test(the_reference_has_its_form),
        cmocka_unit_test(bytes_out),
        cmocka_unit_test(refusals),
        cmocka_unit_test(refused_bytes),
        cmocka_unit_test(outputs_are_those_that_are_named),
        cmocka_unit_test(no_bytes_are_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
