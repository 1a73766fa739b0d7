/* Goal: a body that asks for vectors or scores becomes the texts that its form promises, and what
 * is wrong is refused by name. Method: rows of bodies with the ids they give, for a model without a
 * head for scores and one with; both sides of each limit. Answers are tests/cluster/test_vectors's,
 * bodies of any kind those of the fuzz target. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "common/endpoint/vectors.h"
#include "tests/unit/common/endpoint/fixture.h"

enum { ROOM = 8, TEXTS = 4, TOKENS = 20 };

static int setup(void **state) {
    static struct fixture f;
    fixture_init(&f, true);
    f.conf.max_seq_len = ROOM;
    f.model.hidden = 16;
    f.model.matryoshka = (struct matryoshka){.n = 2, .sizes = {4, 8}};
    fixture_open(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture_close(*state);
    return 0;
}

/* Bodies are written with ' for ", because JSON inside C strings reads badly otherwise. */
static char *unquote(const char *s) {
    char *out = strdup(s);
    for (char *p = out; *p != '\0'; p++)
        if (*p == '\'') *p = '"';
    return out;
}

static bool read_body(struct fixture *f, const char *path, const char *quoted,
                      struct vectors_req **v, struct api_answer *err) {
    static const struct vectors_limits limits = {.texts_max = TEXTS, .tokens_max = TOKENS};
    static char *body; /* the request looks into it */
    char model[257];
    free(body);
    body = unquote(quoted);
    const struct endpoint_ask ask = {
        .path = fixture_path(path, model), .name = "", .body = body, .n = strlen(body)};
    *err = (struct api_answer){0};
    bool good = vectors_read(f->ep, &ask, &limits, v, err);
    if (!good) {
        free(body);
        body = NULL;
    }
    return good;
}

/* texts: their ids, " " between those of a text, "|" between texts; "/" behind the first of a pair.
 */
static void expect(struct fixture *f, const char *path, const char *quoted, const char *texts) {
    struct vectors_req *v = NULL;
    struct api_answer err;
    struct buf got = BUF_INIT;
    if (!read_body(f, path, quoted, &v, &err))
        fail_msg("%s %s\n refused: %s", path, quoted, err.body.data);
    uint64_t sum = 0;
    for (size_t i = 0; i < v->n_texts; i++) {
        const struct vectors_text *t = &v->texts[i];
        if (i > 0) buf_putc(&got, '|');
        for (size_t k = 0; k < t->ids.n; k++)
            buf_printf(&got, "%s%d", k == 0 ? "" : k == t->n_first ? "/" : " ", t->ids.ids[k]);
        sum += t->ids.n;
    }
    buf_putc(&got, '\0');
    if (strcmp(got.data, texts) != 0)
        fail_msg("%s %s\n got      %s\n expected %s", path, quoted, got.data, texts);
    assert_int_equal(v->n_tokens, sum);
    buf_free(&got);
    vectors_free(&v);
}

static void refuse(struct fixture *f, const char *path, const char *quoted, int status,
                   const char *text) {
    struct vectors_req *v = NULL;
    struct api_answer err;
    if (read_body(f, path, quoted, &v, &err)) fail_msg("%s %s\n was taken", path, quoted);
    assert_null(v);
    buf_putc(&err.body, '\0');
    if (err.status != status || strstr(err.body.data, text) == NULL)
        fail_msg("%s %s\n got      %d %s\n expected %d %s", path, quoted, err.status, err.body.data,
                 status, text);
    buf_free(&err.body);
}

#define EMBED  "/v1/embeddings"
#define TASK   "/api/v1/task/"
#define CAIKIT ",'model_id':'qwen'}"

/* <s> is 301, " a" 320, " b" 41, " c" 77. */
static void texts_of_every_form(void **state) {
    struct fixture *f = *state;
    expect(f, EMBED, "{'input':' a b'}", "301 320 41");
    expect(f, EMBED, "{'input':[' a',' b c'],'model':'qwen'}", "301 320|301 41 77");
    expect(f, EMBED, "{'input':[320,41]}", "320 41"); /* ids are taken as they are */
    expect(f, EMBED, "{'input':[[320],[41,77]]}", "320|41 77");
    expect(f, "/pooling", "{'input':' a'}", "301 320");
    expect(f, "/score", "{'text_1':' a','text_2':[' b',' c']}", "301 320|301 41|301 77");
    expect(f, "/v1/score", "{'queries':[' a',' b'],'items':[' c',' a']}",
           "301 320|301 41|301 77|301 320");
    expect(f, "/rerank", "{'query':' a','documents':[' b',{'text':' c'},{'_text':' a','id':7}]}",
           "301 320|301 41|301 77|301 320");
    expect(f, "/v1/rerank", "{'query':' a','texts':[' b']}", "301 320|301 41");
    expect(f, TASK "embedding", "{'inputs':' a'" CAIKIT, "301 320");
    expect(f, TASK "embedding-tasks", "{'inputs':{'texts':[' a',' b']}" CAIKIT, "301 320|301 41");
    expect(f, TASK "sentence-similarity",
           "{'inputs':{'source_sentence':' a','sentences':[' b']}" CAIKIT, "301 320|301 41");
    expect(f, TASK "rerank-tasks",
           "{'inputs':{'queries':[' a',' b'],'documents':[{'text':' c'}]}" CAIKIT,
           "301 320|301 41|301 77");
    expect(f, "/api/embed", "{'model':'qwen','input':[' a',' b']}", "301 320|301 41");
    expect(f, "/api/embed", "{'model':'qwen','input':[]}", "");
    expect(f, "/api/embeddings", "{'model':'qwen','prompt':' a'}", "301 320");
}

/* A text may have 8 tokens. Its end is cut where the body asks for that, and else it is refused. */
static void long_texts(void **state) {
    struct fixture *f = *state;
    static const char seven[] = "301 320 320 320 320 320 320 320";
    expect(f, EMBED, "{'input':' a a a a a a a'}", seven);
    refuse(f, EMBED, "{'input':' a a a a a a a a'}", 400,
           "This model's maximum context length is 8 tokens. However, a text has 9 tokens.");
    expect(f, EMBED, "{'input':' a a a a a a a a','truncate_prompt_tokens':-1}", seven);
    expect(f, EMBED, "{'input':' a b c','truncate_prompt_tokens':3}", "301 320 41");
    expect(f, EMBED, "{'input':[320,41,77],'truncate_prompt_tokens':2}", "320 41");
    refuse(f, EMBED, "{'input':' a','truncate_prompt_tokens':0}", 400, "must not be 0");
    refuse(f, EMBED, "{'input':' a','truncate_prompt_tokens':9}", 400,
           "truncate_prompt_tokens must be an integer from -1 to 8, got 9");
    /* Caikit's number counts no specials */
    expect(f, TASK "embedding",
           "{'inputs':' a b c','parameters':{'truncate_input_tokens':2}" CAIKIT, "301 320 41");
    expect(f, TASK "embedding",
           "{'inputs':' a a a a a a a a','parameters':{'truncate_input_tokens':-1}" CAIKIT, seven);
    refuse(f, TASK "embedding", "{'inputs':' a a a a a a a a'" CAIKIT, 400, "maximum context");
    expect(f, "/api/embed", "{'model':'qwen','input':' a a a a a a a a'}", seven);
    refuse(f, "/api/embed", "{'model':'qwen','input':' a a a a a a a a','truncate':false}", 400,
           "the input length exceeds the context length");
}

static void what_one_body_may_ask_for(void **state) {
    struct fixture *f = *state;
    expect(f, EMBED, "{'input':[' a',' a',' a',' a']}", "301 320|301 320|301 320|301 320");
    refuse(f, EMBED, "{'input':[' a',' a',' a',' a',' a']}", 400,
           "at most 4 texts can be asked for at once, got 5");
    refuse(f, "/score", "{'text_1':[' a',' a',' a'],'text_2':[' a',' a']}", 400,
           "one text on the left");
    refuse(f, TASK "sentence-similarity-tasks",
           "{'inputs':{'source_sentences':[' a',' b',' c'],'sentences':[' a',' b']}" CAIKIT, 400,
           "at most 4 pairs of texts can be asked for at once, got 6");
    expect(f, EMBED, "{'input':[[1,2,3,4,5,6,7,8],[1,2,3,4,5,6,7,8],[1,2,3,4]]}",
           "1 2 3 4 5 6 7 8|1 2 3 4 5 6 7 8|1 2 3 4");
    refuse(f, EMBED, "{'input':[[1,2,3,4,5,6,7,8],[1,2,3,4,5,6,7,8],[1,2,3,4,5]]}", 400,
           "all texts together may have at most 20 tokens");
}

static void what_is_wrong_is_named(void **state) {
    struct fixture *f = *state;
    refuse(f, EMBED, "[]", 422, "The body must be a JSON object");
    refuse(f, EMBED, "{'input':' a'", 422, "The body must be a JSON object");
    refuse(f, EMBED, "{}", 400, "input must be a string or a list of at least one");
    refuse(f, EMBED, "{'input':[]}", 400, "input must be a string or a list of at least one");
    refuse(f, EMBED, "{'input':[' a',5]}", 400, "input[1] must be a string");
    refuse(f, EMBED, "{'input':[330]}", 400, "a token id must be an integer from 0 to 329");
    refuse(f, EMBED, "{'input':[5,-1]}", 400, "a token id must be an integer from 0 to 329");
    refuse(f, EMBED, "{'input':[[]]}", 400, "input must not be empty");
    refuse(f, EMBED, "{'input':' a','model':'other'}", 404, "The model `other` does not exist.");
    refuse(f, EMBED, "{'input':' a','model':7}", 400, "the model's name must be a string");
    refuse(f, EMBED, "{'input':' a','dimensions':5}", 400, "dimensions must be one of 4, 8, got 5");
    refuse(f, EMBED, "{'input':' a','dimensions':17}", 400,
           "dimensions must be an integer from 1 to 16, got 17");
    refuse(f, EMBED, "{'input':' a','encoding_format':'int8'}", 400, "encoding_format must be");
    refuse(f, EMBED, "{'input':' a','normalize':1}", 400, "normalize must be true or false");
    refuse(f, "/rerank", "{'query':[' a'],'documents':[' b']}", 400, "query must be a string");
    refuse(f, "/rerank", "{'query':' a','documents':[3]}", 400, "documents[0] must be a string");
    refuse(f, EMBED, "{'input':' a','model':'qwen\\u0000x'}", 404, "does not exist");
    refuse(f, TASK "embedding", "{'inputs':' a','model_id':'qwen\\u0000x'}", 404, "not loaded");
    refuse(f, TASK "embedding", "{'inputs':' a'}", 400, "Please provide model_id in payload");
    refuse(f, TASK "embedding", "{'model_id':'qwen'}", 400, "inputs is missing");
    refuse(f, TASK "embedding", "{'inputs':' a','x':1" CAIKIT, 422,
           "Extra inputs are not permitted");
    refuse(f, TASK "embedding", "{'inputs':' a','parameters':{'top_k':1}" CAIKIT, 422,
           "Extra inputs are not permitted");
    refuse(f, TASK "rerank", "{'inputs':' a'" CAIKIT, 422, "inputs must be an object");
    refuse(f, TASK "rerank", "{'inputs':{'query':7,'documents':[{}]}" CAIKIT, 422,
           "Input should be a valid string");
    refuse(f, TASK "rerank", "{'inputs':{'query':' a','documents':[7]}" CAIKIT, 422,
           "Input should be a valid dictionary");
    refuse(f, TASK "rerank", "{'inputs':{'query':' a','documents':[]}" CAIKIT, 400,
           "Cannot rerank without a query and at least one document");
    refuse(f, TASK "embedding-tasks", "{'inputs':' a'" CAIKIT, 422, "Input should be a valid list");
    refuse(f, TASK "embedding-tasks", "{'inputs':[]" CAIKIT, 400,
           "the required argument texts is missing");
    refuse(f, TASK "embedding", "{'inputs':''" CAIKIT, 400,
           "the required argument text is missing");
    refuse(f, TASK "embedding", "{'inputs':' a','parameters':{'truncate_input_tokens':true}" CAIKIT,
           422, "Input should be a valid integer");
    refuse(f, TASK "embedding", "{'input':' a'}", 400,
           "Please provide model_id in payload. A body with `input` goes to POST /v1/embeddings.");
    refuse(f, EMBED, "{'input':' a','endianness':'big'}", 400, "endianness must be");
    refuse(f, EMBED, "{'input':' a','embed_dtype':1}", 400, "embed_dtype must be");
    refuse(f, "/score", "{'text_1':' a','text_2':' b','add_special_tokens':false}", 400,
           "add_special_tokens must be true");
    refuse(f, "/v3/embeddings", "{'input':' a'}", 412, "model field is missing in JSON body");
    refuse(f, EMBED, "{'content':' a'}", 400, "A body with `content` goes to POST /embedding.");
    refuse(f, "/rerank", "{'query':' a','text_1':' b'}", 400, "documents must be a string or a");
    refuse(f, "/api/embed", "{'input':' a'}", 400, "model is required");
    refuse(f, "/api/embed", "{'model':'other','input':' a'}", 404, "model 'other' not found");
}

/* A model with a head judges pairs: every text on the left with every one on the right, or the i-th
 * with the i-th; of too long a pair the second text is cut. */
static void pairs(void **state) {
    struct fixture *f = *state;
    f->model.n_labels = 1;
    expect(f, "/score", "{'text_1':' a','text_2':[' b',' c']}", "320/41|320/77");
    expect(f, "/score", "{'text_1':[' a',' b'],'text_2':[' b',' c']}", "320/41|41/77");
    expect(f, TASK "rerank-tasks",
           "{'inputs':{'queries':[' a',' b'],'documents':[{'text':' c'},{'text':' a'}]}" CAIKIT,
           "320/77|320/320|41/77|41/320");
    expect(f, "/score", "{'text_1':' a a a','text_2':' b b b b b b b','truncate_prompt_tokens':6}",
           "320 320 320/41 41 41");
    refuse(f, "/score", "{'text_1':' a a a','text_2':' b b b b b b'}", 400,
           "However, a text has 9");
    refuse(f, "/score", "{'text_1':' a a a a a a a a a','text_2':' b','truncate_prompt_tokens':-1}",
           400, "However, a text has 9");
    expect(f, EMBED, "{'input':' a'}", "301 320");
    f->model.n_labels = 0;
}

/* Its client has gone: nothing more is tokenised. */
/* A body stays only where the answer repeats something of it. */
static void bodies_that_are_not_repeated_go(void **state) {
    static const struct {
        const char *path, *body;
        bool stays;
    } rows[] = {
        {"/v1/embeddings", "{'input':[' a',' b']}", false},
        {"/pooling", "{'input':' a'}", false},
        {"/v1/score", "{'text_1':' a','text_2':[' b']}", false},
        {"/rerank", "{'query':' a','documents':[' b']}", true},
        {"/rerank", "{'query':' a','documents':[' b'],'return_documents':false}", false},
        {"/v2/rerank", "{'query':' a','documents':[' b']}", false},
        {"/v2/rerank", "{'query':' a','documents':[' b'],'return_documents':true}", true},
        {"/rerank", "{'query':' a','texts':[' b']}", false},
        {"/rerank", "{'query':' a','texts':[' b'],'return_text':true}", true},
        {"/api/embed", "{'model':'qwen','input':' a'}", false},
        {TASK "embedding", "{'inputs':' a'" CAIKIT, false},
        {TASK "sentence-similarity", "{'inputs':{'source_sentence':' a','sentences':[' b']}" CAIKIT,
         false},
        {TASK "rerank", "{'inputs':{'query':' a','documents':[{'text':' b'}]}" CAIKIT, true},
        {TASK "rerank",
         "{'inputs':{'query':' a','documents':[{'text':' b'}]},'parameters':{'return_documents':"
         "false,'return_text':false,'return_query':false},'model_id':'qwen'}",
         false},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct vectors_req *v = NULL;
        struct api_answer err, a;
        if (!read_body(f, rows[i].path, rows[i].body, &v, &err)) fail_msg("%s", err.body.data);
        if ((v->body != NULL) != rows[i].stays) fail_msg("%s %s", rows[i].path, rows[i].body);
        assert_true((v->body_bytes > 0) == rows[i].stays);
        float *rows_of = calloc(v->n_texts * vectors_row(f->ep, v), sizeof(float));
        vectors_answer(f->ep, v, rows_of, &a);
        assert_int_equal(a.status, 200);
        buf_free(&a.body);
        free(rows_of);
        vectors_free(&v);
    }
}

static void a_client_that_left(void **state) {
    struct fixture *f = *state;
    static const struct vectors_limits limits = {.texts_max = TEXTS, .tokens_max = TOKENS};
    const atomic_bool gone = true;
    struct vectors_req *v = NULL;
    struct api_answer err = {0};
    char model[257], *body = unquote("{'input':' a'}");
    const struct endpoint_ask ask = {.path = fixture_path(EMBED, model),
                                     .name = "",
                                     .body = body,
                                     .n = strlen(body),
                                     .cancelled = &gone};
    assert_false(vectors_read(f->ep, &ask, &limits, &v, &err));
    assert_int_equal(err.status, 503);
    buf_free(&err.body);
    free(body);
}

/* vLLM's other form of a text: a chat, as its template writes it, that nothing is added to. */
static void chats(void **state) {
#define SAID "{'messages':[{'role':'user','content':' a'},{'role':'assistant','content':' b'}]"
#define PLAIN                                                                                      \
    ",'chat_template':'{% for m in messages %}{{ m.content }}{% endfor %}"                         \
    "{% if add_generation_prompt %} c{% endif %}'"
    struct fixture *f = *state;
    static const char *const paths[] = {EMBED, "/v3/embeddings", "/pooling"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        expect(f, paths[i], SAID PLAIN ",'model':'qwen'}", "320 41");
    expect(f, EMBED, SAID PLAIN ",'input':null}", "320 41");
    expect(f, EMBED, SAID PLAIN ",'add_generation_prompt':true}", "320 41 77");
    expect(f, EMBED, SAID PLAIN ",'add_special_tokens':true}", "301 320 41");
    expect(f, EMBED, SAID PLAIN ",'truncate_prompt_tokens':1}", "320");
    expect(f, EMBED, SAID PLAIN ",'input':' c'}", "301 77"); /* a text is before it */
    refuse(f, EMBED, "{'messages':[]}", 400, "messages not arr or arr is empty");
    refuse(f, EMBED, "{'messages':5}", 400, "messages not arr or arr is empty");
    refuse(f, EMBED, "{'messages':[{'content':'x'}]}", 400, "role");
    refuse(f, EMBED, SAID ",'chat_template':'{%'}", 400, "chat_template is not valid");
    refuse(f, EMBED, SAID ",'add_generation_prompt':1}", 400, "add_generation_prompt");
    refuse(f, EMBED, SAID "}", 400, "context length"); /* the model's own template is longer */
    refuse(f, "/score", SAID "}", 400, "A body with `messages` goes to POST");
    refuse(f, "/embedding", SAID "}", 400, "A body with `messages` goes to POST");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_every_form),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(what_one_body_may_ask_for),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(pairs),
        cmocka_unit_test(chats),
        cmocka_unit_test(a_client_that_left),
        cmocka_unit_test(bodies_that_are_not_repeated_go),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
