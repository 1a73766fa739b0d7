/* Goal: without memory a request is refused with a 503, and an answer is whole or ends in an error
 * that its client sees: never a proper end of half an answer, never another text, and nothing is
 * left behind. Method: for every n, the n-th allocation fails while a request of each family is
 * read and answered, alone or with all that come after it; what was written is compared with what
 * is written in calm. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/endpoint/checks.h"

#if OWN_MALLOC
static const struct {
    const char *path, *body;
} rows[] = {
    {"/generate_stream", "{'inputs':'x','parameters':{'details':true,'max_new_tokens':6}}"},
    {"/generate", "{'inputs':'x','parameters':{'details':true,'max_new_tokens':6}}"},
    {"/generate", "{'prompt':'x','stream':true,'max_tokens':6}"},
    {"/infer", "{'inputs':'x','stream':true,'parameters':{'max_new_tokens':6}}"},
    {"/v2/models/qwen/generate_stream",
     "{'id':'a1','text_input':'x','parameters':{'max_new_tokens':6}}"},
    {"/v2/models/qwen/generate_stream",
     "{'id':'a1','text_input':['x'],'max_tokens':6,'stop_words':'z','bad_words':['q'],'top_k':1,"
     "'sampling_parameters':'{\\\"seed\\\":1}','return_finish_reason':true}"},
    {"/v1/completions",
     "{'model':'qwen','prompt':'x','stream':true,'max_tokens':6,'logprobs':2,'stop':[' z']}"},
    {"/v1/completions", "{'model':'qwen','prompt':['x','y'],'max_tokens':6,'echo':true}"},
    {"/v1/chat/completions",
     "{'model':'qwen','messages':[{'role':'user','content':'x'}],'stream':true,'max_tokens':6,"
     "'stream_options':{'include_usage':true}}"},
    {"/v1/chat/completions",
     "{'model':'qwen','messages':[{'role':'user','content':[{'type':'text','text':'x'}]}],"
     "'max_tokens':6,'tools':[{'type':'function','function':{'name':'f'}}],'tool_choice':'auto'}"},
};
static const int32_t script[] = {TOK_A, TOK_B, TOK_C, TOK_CONTROL, TOK_A, TOK_B};
enum { N_SCRIPT = sizeof(script) / sizeof(script[0]) };

struct said {
    char text[16384];
    size_t n;
    bool refused, failed; /* by the reader; in an error of the answer's own */
};

/* As a role does it. True: it goes on. */
static bool write_out(struct said *s, struct answer *a, struct buf *out) {
    if (out->failed) {
        s->failed = true;
        buf_forgive(out);
        answer_error(a, 503, "no memory for the answer, in words that take a little room", out);
        assert_false(out->failed);
        assert_true(out->len > 0);
    }
    assert_true(s->n + out->len < sizeof(s->text));
    memcpy(s->text + s->n, out->data, out->len);
    s->n += out->len;
    buf_clear(out);
    return !s->failed;
}

static void answer_all(struct fixture *f, struct infer_req *req, struct said *s) {
    struct buf out = BUF_INIT;
    struct answer *a = NULL;
    bool goes_on = true;
    req->head.created_unix_s = 1770000000;
    if (!buf_reserve(&out, ANSWER_ERROR_BYTES) || answer_create(&a, f->ep, req) != ERR_OK) {
        s->refused = true;
        goes_on = false;
    }
    for (size_t i = 0; i < N_SCRIPT && goes_on; i++)
        for (const struct infer_req *part = req; part != NULL && goes_on; part = part->next_part) {
            struct token_event ev = fixture_event(part, script, N_SCRIPT, i);
            answer_token(a, part->head.part, &ev, &out);
            assert_true(!out.failed || !answer_done(a));
            goes_on = write_out(s, a, &out);
        }
    if (goes_on) assert_true(answer_done(a));
    answer_destroy(&a);
    buf_free(&out);
}

static void ask(struct fixture *f, size_t i, struct said *s, char *body) {
    struct infer_req *req;
    struct api_answer err;
    *s = (struct said){0};
    if (fixture_read(f, rows[i].path, body, &req, &err)) {
        answer_all(f, req, s);
        infer_req_destroy(&req);
        return;
    }
    if (err.status != 503) fail_msg("%s: refused with %d", rows[i].path, err.status);
    buf_free(&err.body);
    s->refused = true;
}

static void compare(const struct said *calm, const struct said *s, size_t i, int n) {
    if (s->refused) return;
    size_t same = 0;
    while (same < s->n && same < calm->n && s->text[same] == calm->text[same]) same++;
    if (same == s->n && same == calm->n) return;
    const char *rest = s->text + same;
    while (rest > s->text && rest[-1] != '\n' && rest[-1] != 0) rest--;
    if (!s->failed || strstr(rest, "\"error\"") == NULL)
        fail_msg("%s, allocation %d: %.*s\nin calm: %s", rows[i].path, n, (int)s->n, s->text,
                 calm->text);
}

static void each_allocation(void **state) {
    static struct said calm, s;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *body = unquote(rows[i].body);
        ask(*state, i, &calm, body);
        assert_false(calm.refused || calm.failed);
        long n_seen = 0, live = alloc_fault.live;
        bool hit = true;
        for (int n = 0; hit; n++) {
            hit = false;
            for (int once = 0; once < 2; once++) {
                once ? alloc_fault_once(n) : alloc_fault_after(n);
                ask(*state, i, &s, body);
                hit |= alloc_fault_end();
                if (alloc_fault.live != live)
                    fail_msg("%s, allocation %d: %ld are left", rows[i].path, n,
                             alloc_fault.live - live);
                compare(&calm, &s, i, n);
                n_seen++;
            }
        }
        assert_true(n_seen > 40); /* it did allocate */
        free(body);
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
#if OWN_MALLOC
        cmocka_unit_test(each_allocation),
#endif
        {0}
    };
    return cmocka_run_group_tests_name("answer_memory", tests, setup, teardown);
}
