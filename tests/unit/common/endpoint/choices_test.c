/* Goal: several sequences of one request (n, best_of) and several prompts of one completion are
 * written as inference-api 4.4 and 7 to 9 say, ranked, interleaved and counted, and it does not
 * matter which instance wrote which half. Method: a stub engine with a script per part and choice
 * that draws one token of each in every step; expected output is written out byte for byte, the
 * split is a property over every point of every case. */
#include "tests/unit/common/endpoint/checks.h"

enum { STEPS_MAX = 6 };

/* What one choice draws, until its zero; each token costs it `logprob`. */
struct draw {
    int32_t ids[STEPS_MAX];
    float logprob;
};

/* a then b; c alone; b b then the end: three sequences that end at different steps. */
static const struct draw draws[3] = {
    {{TOK_A, TOK_B, TOK_C}, -0.5f}, {{TOK_C, TOK_EOS}, -0.25f}, {{TOK_B, TOK_B, TOK_EOS}, -2.0f}};

static struct infer_req *read_req(struct fixture *f, const char *path, const char *quoted) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    char *body = unquote(quoted);
    if (!fixture_read(f, path, body, &req, &err)) fail_msg("%s refused: %s", body, err.body.data);
    free(body);
    for (struct infer_req *r = req; r != NULL; r = r->next_part)
        r->head.created_unix_s = 1770000000;
    return req;
}

static const struct draw *draw_of(const struct infer_req *part, size_t choice) {
    return &draws[(part->head.part + choice) % 3];
}

/* Feeds the tokens [from, to) in the order of the engine. Returns how many there are in all. */
static size_t feed(struct answer *a, const struct infer_req *req, size_t from, size_t to,
                   struct buf *out) {
    bool ended[8][8] = {{false}};
    size_t at = 0;
    for (size_t step = 0; step < STEPS_MAX; step++) {
        for (const struct infer_req *p = req; p != NULL; p = p->next_part) {
            for (int32_t c = 0; c < p->sampling.n_choices; c++) {
                const struct draw *d = draw_of(p, (size_t)c);
                if (ended[p->head.part][c] || d->ids[step] == 0) continue;
                struct token_event ev = {.id = d->ids[step],
                                         .choice = c,
                                         .index = (int32_t)step,
                                         .logprob = d->logprob,
                                         .batch_size = 3,
                                         .queue_wait_us = 30,
                                         .step_us = 9051};
                if (ev.id == TOK_EOS) ev.finish = FINISH_EOS;
                if (ev.finish == FINISH_NONE && (int32_t)step + 1 >= p->sampling.new_tokens_max)
                    ev.finish = FINISH_LENGTH;
                if (at >= from && at < to) {
                    enum finish fin = answer_token(a, p->head.part, &ev, out);
                    ended[p->head.part][c] = fin != FINISH_NONE;
                } else {
                    ended[p->head.part][c] = ev.finish != FINISH_NONE;
                }
                at++;
            }
        }
    }
    return at;
}

static void ask(struct fixture *f, const char *path, const char *body, struct buf *out) {
    struct infer_req *req = read_req(f, path, body);
    struct answer *a;
    buf_clear(out);
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    assert_false(answer_done(a));
    feed(a, req, 0, SIZE_MAX, out);
    assert_true(answer_done(a));
    assert_false(out->failed);
    answer_destroy(&a);
    infer_req_destroy(&req);
}

struct shown {
    const char *path, *body, *expect;
};

static void run_shown(struct fixture *f, const struct shown *rows, size_t n) {
    struct buf out = BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        char *expect = unquote(rows[i].expect);
        ask(f, rows[i].path, rows[i].body, &out);
        if (out.len != strlen(expect) || memcmp(out.data, expect, out.len) != 0)
            fail_msg("%s %s\n got      %.*s\n expected %s", rows[i].path, rows[i].body,
                     (int)out.len, out.data, expect);
        free(expect);
    }
    buf_free(&out);
}
#define SHOW(f, rows) run_shown(f, rows, sizeof(rows) / sizeof(rows[0]))

#define CHAT "/v1/chat/completions"
#define COMP "/v1/completions"
#define MSG  "{'model':'qwen','temperature':1,'messages':[{'role':'user','content':'x'}]"
#define CMP  "{'model':'qwen','temperature':1,'max_tokens':3,'prompt':"
#define HEAD(object)                                                                               \
    "{'id':'endpoint_common_17','object':'" object "','created':1770000000,'model':'qwen',"
#define WHOLE(i, text, fin)                                                                        \
    "{'index':" #i ",'text':'" text "','logprobs':null,'stop_reason':null,'finish_reason':'" fin   \
    "'}"

static void whole_answers(void **state) {
    static const struct shown rows[] = {
        {COMP, CMP "'x','n':3}",
         HEAD("text_completion") "'choices':[" WHOLE(0, " a b c", "length") "," WHOLE(
             1, " c",
             "stop") "," WHOLE(2, " b b",
                               "stop") "],'usage':{'prompt_tokens':1,'completion_tokens':8,'total_"
                                       "tokens':9}}"},
        /* sums: -1.5, -0.5, -6: the best two, best first; all are counted */
        {COMP, CMP "'x','n':2,'best_of':3}",
         HEAD("text_completion") "'choices':[" WHOLE(0, " c", "stop") "," WHOLE(
             1, " a b c",
             "length") "],'usage':{'prompt_tokens':1,'completion_tokens':8,'total_tokens':9}}"},
        {COMP, CMP "'x','n':1,'best_of':3,'echo':true}",
         HEAD("text_completion") "'choices':[" WHOLE(0, "x c",
                                                     "stop") "],'usage':{'prompt_tokens':1,"
                                                             "'completion_tokens':8,'total_"
                                                             "tokens':9}}"},
        /* two prompts of two choices each: index = prompt * n + choice */
        {COMP, CMP "['x','yz'],'n':2,'echo':true}",
         HEAD("text_completion") "'choices':[" WHOLE(0, "x a b c", "length") "," WHOLE(
             1, "x c",
             "stop") "," WHOLE(2, "yz c",
                               "stop") "," WHOLE(3, "yz b b",
                                                 "stop") "],'usage':{'prompt_tokens':3,'completion_"
                                                         "tokens':10,'total_tokens':13}}"},
        {COMP, CMP "[[120],[121,122]],'n':1,'best_of':2}",
         HEAD("text_completion") "'choices':[" WHOLE(0, " c", "stop") "," WHOLE(
             1, " c", "stop") "],'usage':{'prompt_tokens':3,'completion_tokens':"
                              "10,'total_tokens':13}}"},
        {CHAT, MSG ",'max_tokens':2,'n':2}",
         HEAD("chat.completion") "'choices':[{'index':0,'message':{'role':'assistant','content':' "
                                 "a b','tool_calls':[]},"
                                 "'logprobs':null,'finish_reason':'length','stop_reason':null},"
                                 "{'index':1,'message':{'role':'assistant','content':' "
                                 "c','tool_calls':[]},"
                                 "'logprobs':null,'finish_reason':'stop','stop_reason':null}],"
                                 "'usage':{'prompt_tokens':20,'completion_tokens':4,'total_tokens':"
                                 "24}}"},
        {"/generate", "{'prompt':'x','temperature':1,'max_tokens':3,'n':2}",
         "{'text':['x  c','x  a b c']}"},
        {"/generate", "{'prompt':'x','temperature':1,'max_tokens':3,'best_of':3}",
         "{'text':['x  c','x  a b c','x  b b']}"},
        {"/generate", "{'prompt':'x','temperature':1,'max_tokens':3,'n':1,'best_of':3}",
         "{'text':['x  c']}"},
        {"/generate",
         "{'inputs':'x','parameters':{'temperature':1,'max_new_tokens':3,'best_of':3}}",
         "{'generated_text':' c'}"},
    };
    SHOW(*state, rows);
}

static void best_of_sequences(void **state) {
#define ITEM(id, lp, special, text)                                                                \
    "{'id':" #id ",'logprob':" lp ",'special':" special ",'text':'" text "'}"
    static const struct shown rows[] = {
        {"/",
         "{'inputs':'x','parameters':{'temperature':1,'max_new_tokens':3,'best_of':2,'details':"
         "true,"
         "'return_full_text':true}}",
         "[{'details':{'prompt_tokens':1,'finish_reason':'eos_token','generated_tokens':2,"
         "'prefill':[],'seed':7,'tokens':[" ITEM(77, "-0.25", "false", " c") "," ITEM(
             300, "-0.25", "true",
             "</s>") "],'best_of_sequences':[{'generated_text':'x a b "
                     "c','finish_reason':'length','generated_tokens':3,"
                     "'prefill':[],'seed':7,'tokens':[" ITEM(320, "-0.5", "false", " a") "," ITEM(
                         41, "-0.5", "false", " b") "," ITEM(77, "-0.5", "false",
                                                             " c") "]}]},'generated_text':'x c'}]"},
    };
    SHOW(*state, rows);
}

#define CHUNK(i, text)                                                                             \
    "data: " HEAD("chat.completion.chunk") "'choices':[{'index':" #i                               \
                                           ",'delta':{'role':'assistant','content':'" text         \
                                           "'},'logprobs':null,'finish_reason':null}]}\n\n"
#define LAST_CHUNK(i, text, fin, tokens, total)                                                    \
    "data: " HEAD(                                                                                 \
        "chat.completion.chunk") "'usage':{'prompt_tokens':20,'completion_tokens':" #tokens        \
                                 ",'total_tokens':" #total "},'choices':[{'index':" #i             \
                                 ",'delta':{'role':'assistant','content':'" text                   \
                                 "'},'logprobs':null,'finish_reason':'" fin                        \
                                 "','stop_reason':null}]}\n\n"
#define PIECE(i, text, rest)                                                                       \
    "data: " HEAD("text_completion") "'choices':[{'index':" #i ",'text':'" text                    \
                                     "','logprobs':null,'stop_reason':null,'finish_reason':" rest  \
                                     "}\n\n"

/* A beam search: in the engine's order whatever the sums say, and one chunk of each sequence, with
 * no chunk before it, when it has ended. */
static void beams(void **state) {
    static const struct shown rows[] = {
        {COMP, CMP "'x','n':3,'use_beam_search':true}",
         HEAD("text_completion") "'choices':[" WHOLE(0, " a b c", "length") "," WHOLE(
             1, " c",
             "stop") "," WHOLE(2, " b b",
                               "stop") "],'usage':{'prompt_tokens':1,'completion_tokens':8,'total_"
                                       "tokens':9}}"},
        {COMP, CMP "'x','n':2,'use_beam_search':true,'stream':true}",
         PIECE(1, " c",
               "'stop'}],'usage':{'prompt_tokens':1,'completion_tokens':2,'total_tokens':"
               "3}") PIECE(0, " a b c",
                           "'length'}],'usage':{'prompt_tokens':1,'completion_tokens':3,"
                           "'total_tokens':4}") "data: [DONE]\n\n"},
        {COMP, CMP "'x','use_beam_search':true,'stream':true,'stop':' b'}",
         "data: " HEAD("text_completion") "'choices':[{'index':0,'text':' a','logprobs':null,"
                                          "'stop_reason':' b','finish_reason':'stop'}],'usage':{"
                                          "'prompt_tokens':1,'completion_tokens':2,'total_tokens':"
                                          "3}}\n\ndata: [DONE]\n\n"},
        {CHAT, MSG ",'max_tokens':2,'n':2,'use_beam_search':true,'stream':true}",
         LAST_CHUNK(0, " a b", "length", 2, 22)
             LAST_CHUNK(1, " c", "stop", 2, 22) "data: [DONE]\n\n"},
    };
    SHOW(*state, rows);
}

static void streams(void **state) {
    static const struct shown rows[] = {
        /* one choice per chunk, a role chunk and a finishing chunk with usage for each */
        {CHAT, MSG ",'max_tokens':2,'n':2,'stream':true}",
         CHUNK(0, "") CHUNK(0, " a") CHUNK(1, "") CHUNK(1, " c") LAST_CHUNK(
             0, " b", "length", 2, 22) LAST_CHUNK(1, "", "stop", 2, 22) "data: [DONE]\n\n"},
        {COMP, CMP "['x','yz'],'stream':true,'stream_options':{'include_usage':true}}",
         PIECE(0, " a", "null}],'usage':null") PIECE(1, " c", "null}],'usage':null") PIECE(
             0, " b", "null}],'usage':null") PIECE(1, "", "'stop'}],'usage':null")
             PIECE(0, " c", "'length'}],'usage':null") "data: " HEAD(
                 "text_completion") "'choices':[],'usage':{'prompt_tokens':3,'completion_tokens':"
                                    "5,'total_tokens':8}}\n\ndata: [DONE]\n\n"},
        {COMP, CMP "['x','yz'],'stream':true}",
         PIECE(0, " a", "null}]") PIECE(1, " c", "null}]") PIECE(0, " b", "null}]") PIECE(
             1, "", "'stop'}],'usage':{'prompt_tokens':2,'completion_tokens':2,'total_tokens':4}")
             PIECE(0, " c",
                   "'length'}],'usage':{'prompt_tokens':1,'completion_tokens':3,'total_tokens':"
                   "4}") "data: [DONE]\n\n"},
    };
    SHOW(*state, rows);
}

/* vLLM's frames show all sequences; one that ended contributes nothing, or its whole text. */
static void vllm_frames(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    static const struct shown rows[] =
        {
            {"/generate", "{'prompt':'x','temperature':1,'max_tokens':3,'n':3,'stream':true}",
             "{'text':[' a',' c',' b']}\n{'text':[' b','',' b']}\n{'text':[' c','','']}\n"},
            /* what is left out is only known at the end */
            {"/generate",
             "{'prompt':'x','temperature':1,'max_tokens':3,'n':2,'best_of':3,'stream':true}",
             "{'text':[' c',' a b c']}\n"},
        },
                              full[] = {
                                  {"/generate",
                                   "{'prompt':'x','temperature':1,'max_tokens':3,'n':2,'stream':"
                                   "true}",
                                   "{'text':[' a',' c']}\n{'text':[' a b',' c']}\n{'text':[' a b "
                                   "c',' c']}\n"},
                              };
    f->conf.vllm_delimiter = '\n';
    fixture_open(f);
    SHOW(f, rows);
    f->conf.full_text = true;
    fixture_open(f);
    SHOW(f, full);
    f->conf = was;
    fixture_open(f);
}

static const struct {
    const char *path, *body;
} kinds[] = {
    {CHAT, MSG ",'max_tokens':3,'n':3,'stream':true}"},
    {CHAT, MSG ",'max_tokens':3,'n':3,'stop':[' b b','b c'],'stream':true}"},
    {CHAT, MSG ",'max_tokens':3,'n':2,'best_of':3}"},
    {COMP, CMP "['x','yz','x'],'n':2,'stream':true,'logprobs':1}"},
    {COMP, CMP "['x','yz','x'],'n':2,'best_of':3,'logprobs':1,'echo':true}"},
    {"/generate", "{'prompt':'x','temperature':1,'max_tokens':3,'n':3,'stream':true}"},
    {"/generate", "{'prompt':'x','temperature':1,'max_tokens':3,'n':2,'best_of':3,'stream':true}"},
    {"/generate",
     "{'inputs':'x','parameters':{'temperature':1,'max_new_tokens':3,'best_of':3,'details':true}}"},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* P writes what the first tokens give, D the rest after feeding P's tokens for nothing; D gets the
 * parts one by one, the last first. */
static void split_anywhere(void **state) {
    struct fixture *f = *state;
    struct buf whole = BUF_INIT, joined = BUF_INIT, discard = BUF_INIT;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct infer_req *req = read_req(f, kinds[k].path, kinds[k].body);
        struct answer *a;
        buf_clear(&whole);
        assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
        size_t n = feed(a, req, 0, SIZE_MAX, &whole);
        assert_true(answer_done(a));
        answer_destroy(&a);
        for (size_t at = 0; at <= n; at++) {
            buf_clear(&joined);
            assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
            feed(a, req, 0, at, &joined);
            answer_destroy(&a);
            struct infer_req *parts[8] = {NULL};
            for (struct infer_req *p = req; p != NULL; p = p->next_part)
                parts[p->head.part] = infer_req_clone(p);
            for (int i = (int)req->head.n_parts - 1; i >= 0; i--) {
                assert_non_null(parts[i]);
                assert_int_equal(parts[i]->head.part, i);
                parts[i]->head.created_unix_s = 1770000000;
                enum err e = i == (int)req->head.n_parts - 1 ? answer_create(&a, f->ep, parts[i])
                                                             : answer_add_part(a, parts[i]);
                assert_int_equal(e, ERR_OK);
            }
            assert_int_equal(answer_add_part(a, parts[0]), ERR_CONFLICT);
            feed(a, req, 0, at, &discard);
            feed(a, req, at, SIZE_MAX, &joined);
            assert_true(answer_done(a));
            assert_int_equal(joined.len, whole.len);
            assert_memory_equal(joined.data, whole.data, whole.len);
            answer_destroy(&a);
            for (size_t i = 0; i < req->head.n_parts; i++) infer_req_destroy(&parts[i]);
        }
        infer_req_destroy(&req);
    }
    buf_free(&whole);
    buf_free(&joined);
    buf_free(&discard);
}

/* Only what belongs to an answer may come to it. */
static void strangers(void **state) {
    struct fixture *f = *state;
    struct infer_req *req = read_req(f, COMP, CMP "['x','y'],'n':2}");
    struct infer_req *other = read_req(f, COMP, CMP "'x','n':2}");
    struct answer *a;
    struct buf out = BUF_INIT;
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    assert_int_equal(answer_add_part(a, other), ERR_INVALID);
    static const struct {
        uint32_t part;
        int32_t choice;
    } wrong[] = {{2, 0}, {0, 2}, {0, -1}, {UINT32_MAX, 0}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct token_event ev = {.id = TOK_A, .choice = wrong[i].choice};
        assert_int_equal(answer_token(a, wrong[i].part, &ev, &out), FINISH_ERROR);
        answer_prompt_logprob(a, wrong[i].part, wrong[i].choice, &ev);
    }
    assert_int_equal(out.len, 0);
    assert_int_equal(answer_n_tokens(a), 0);
    answer_destroy(&a);
    other->sampling.n_choices = CHOICES_MAX + 1;
    assert_int_equal(answer_create(&a, f->ep, other), ERR_INVALID);
    other->sampling.n_choices = 1;
    assert_int_equal(answer_create(&a, f->ep, other), ERR_INVALID); /* fewer than are shown */
    infer_req_destroy(&other);
    infer_req_destroy(&req);
    buf_free(&out);
}

/* stopInfer after some steps: every choice ends with what it has, also one without a token; a
 * stream gets one finishing chunk for each that had not ended. */
static void stopped(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    for (size_t k = 0; k < N_KINDS; k++) {
        for (size_t at = 0; at < 5; at++) {
            struct infer_req *req = read_req(f, kinds[k].path, kinds[k].body);
            struct answer *a;
            buf_clear(&out);
            assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
            feed(a, req, 0, at, &out);
            answer_abort(a, &out);
            assert_true(answer_done(a));
            size_t len = out.len;
            feed(a, req, at, SIZE_MAX, &out);
            answer_abort(a, &out);
            answer_error(a, 500, "late", &out);
            assert_int_equal(out.len, len); /* ended is ended */
            if (!req->answer.stream) {
                struct json_value *o = NULL;
                assert_int_equal(json_read(&o, out.data, out.len, NULL, NULL), ERR_OK);
                json_put(o);
            } else if (req->answer.api == API_OPENAI_CHAT) {
                size_t n = 0;
                for (const char *p = out.data; (p = strstr(p, "\"stop_reason\"")) != NULL; p++) n++;
                assert_int_equal(n, 3);
                assert_non_null(strstr(out.data, "data: [DONE]\n\n"));
            }
            answer_destroy(&a);
            infer_req_destroy(&req);
        }
    }
    buf_free(&out);
}

/* A choice that a stop string ended takes no more tokens, the others go on. */
static void stop_ends_one(void **state) {
    static const struct shown rows[] = {
        {"/generate",
         "{'prompt':'x','temperature':1,'max_tokens':3,'n':3,'stop':'b','stream':true}",
         "{'text':[' a',' c',' ']}\n{'text':[' ','','']}\n"},
        {COMP, CMP "'x','n':2,'stop':'b'}",
         HEAD("text_completion") "'choices':[{'index':0,'text':' a "
                                 "','logprobs':null,'stop_reason':'b','finish_reason':'stop'}"
                                 "," WHOLE(1, " c",
                                           "stop") "],'usage':{'prompt_tokens':1,'completion_"
                                                   "tokens':4,'total_tokens':5}}"},
    };
    struct fixture *f = *state;
    f->conf.vllm_delimiter = '\n';
    fixture_open(f);
    SHOW(f, rows);
    f->conf.vllm_delimiter = '\0';
    fixture_open(f);
}

static void prompt_logprobs(void **state) {
    struct fixture *f = *state;
    struct buf out = BUF_INIT;
    static const struct {
        const char *path, *body, *expect;
    } rows[] = {
        {COMP, CMP "'xyz','max_tokens':1,'prompt_logprobs':2}",
         "\"finish_reason\":\"length\",\"prompt_logprobs\":[null,"
         "{\"123\":{\"logprob\":-0.5,\"rank\":2,\"decoded_token\":\"y\"},"
         "\"320\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\" a\"}},"
         "{\"124\":{\"logprob\":-3.0,\"rank\":null,\"decoded_token\":\"z\"},"
         "\"320\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\" a\"}}]}"},
        {COMP, CMP "'xyz','max_tokens':1,'echo':true,'logprobs':1}",
         "\"token_logprobs\":[null,-0.5,-3.0,-0.5],\"tokens\":[\"x\",\"y\",\"z\",\" "
         "a\"],\"top_logprobs\":[null,{\" a\":-0.25,\"y\":-0.5},{\" a\":-0.25,\"z\":-3.0},{\" "
         "a\":-0.5}]"},
        {CHAT, MSG ",'max_tokens':1,'prompt_logprobs':1}", "},\"prompt_logprobs\":[null,{"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req = read_req(f, rows[i].path, rows[i].body);
        struct answer *a;
        buf_clear(&out);
        assert_true(req->sampling.prompt_logprobs);
        assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
        struct token_event y = {.logprob = -0.5f,
                                .n_top = 2,
                                .top = {{TOK_A, -0.25f}, {req->ids[1], -0.5f}}},
                           z = {.logprob = -3.0f, .n_top = 1, .top = {{TOK_A, -0.25f}}};
        answer_prompt_logprob(a, 0, 1, &z); /* a later word about a position counts */
        answer_prompt_logprob(a, 0, 1, &y);
        answer_prompt_logprob(a, 0, 2, &z);
        struct token_event ev = {
            .id = TOK_A, .logprob = -0.5f, .n_top = 1, .top = {{TOK_A, -0.5f}}};
        answer_token(a, 0, &ev, &out);
        if (strstr(out.data, rows[i].expect) == NULL)
            fail_msg("%s\n got    %s\n wanted %s", rows[i].body, out.data, rows[i].expect);
        answer_destroy(&a);
        infer_req_destroy(&req);
    }
    buf_free(&out);
}

/* What the fields become in the request. */
static void fields(void **state) {
    struct fixture *f = *state;
    struct infer_req *req = read_req(
        f, COMP,
        CMP "['x','yz'],'n':2,'best_of':3,'bad_words':['b','xy'],'allowed_token_ids':[5,3,5],"
            "'request_id':'mine-1','logit_bias':{'7':1},'stop':['s','t'],'stop_token_ids':[9]}");
    struct infer_req *second = req->next_part;
    const struct sampling *s = &req->sampling;
    assert_non_null(second);
    assert_null(second->next_part);
    assert_int_equal(req->answer.n, 2);
    assert_int_equal(s->n_choices, 3);
    assert_int_equal(req->head.n_parts, 2);
    assert_int_equal(second->head.part, 1);
    assert_true(s->do_sample);
    assert_true(s->logprobs); /* for the ranks */
    assert_false(req->answer.show_logprobs);
    assert_string_equal(req->head.client_id, "mine-1");
    assert_true(req->head.client_id_soft);
    assert_int_equal(s->n_allowed_ids, 2);
    assert_int_equal(s->allowed_ids[0], 3);
    assert_int_equal(s->allowed_ids[1], 5);
    /* "b" alone, " b" as one other token; "xy" alone: a blank before it is a token more */
    static const int32_t words[] = {1, 100, 1, TOK_B, 2, 122, 123};
    assert_int_equal(s->n_bad_words, sizeof(words) / sizeof(words[0]));
    assert_memory_equal(s->bad_words, words, sizeof(words));
    /* the other prompt has all of it too */
    assert_int_equal(second->n_prompt, 2);
    assert_string_equal(second->head.client_id, "mine-1");
    assert_string_equal(second->head.req_id, req->head.req_id);
    assert_int_equal(second->sampling.n_bad_words, s->n_bad_words);
    assert_int_equal(second->sampling.n_choices, 3);
    assert_int_equal(second->n_stop, 2);
    assert_int_equal(second->head.arrival_us, req->head.arrival_us);
    assert_true(second->sampling.seed == s->seed);
    infer_req_destroy(&req);

    req = read_req(f, CHAT, MSG ",'request_id':'a b'}");
    assert_null(req->head.client_id); /* no id, and no error */
    infer_req_destroy(&req);
    req = read_req(f, "/generate", "{'inputs':'x','parameters':{'best_of':2,'top_k':4}}");
    assert_int_equal(req->answer.n, 2);
    infer_req_destroy(&req);
}

/* How much one request may ask for. */
static void room(void **state) {
    struct fixture *f = *state;
    struct endpoint_conf was = f->conf;
    struct buf body = BUF_INIT;
    for (size_t n = PARTS_MAX; n <= PARTS_MAX + 1; n++) {
        buf_clear(&body);
        buf_puts(&body, "{\"model\":\"qwen\",\"prompt\":[");
        for (size_t i = 0; i < n; i++) buf_puts(&body, i > 0 ? ",\"x\"" : "\"x\"");
        buf_puts(&body, "],\"temperature\":1,\"n\":8}");
        check(f, COMP, body.data, n > PARTS_MAX ? 422 : 200,
              "The number of prompts must be in [1, 128], got 129.");
    }
    buf_free(&body);
    f->conf.max_batch_size = 4;
    fixture_open(f);
    check(f, COMP, "{\"model\":\"qwen\",\"prompt\":\"x\",\"temperature\":1,\"best_of\":4}", 200,
          NULL);
    check(f, COMP, "{\"model\":\"qwen\",\"prompt\":\"x\",\"temperature\":1,\"best_of\":5}", 422,
          "The best_of parameter (5) exceeds 'max_batch_size' (4). Please reduce best_of or "
          "increase 'max_batch_size' in config.json of mindie-service. ");
    f->conf = was;
    fixture_open(f);
    struct buf many = BUF_INIT;
    buf_puts(&many, "{\"model\":\"qwen\",\"temperature\":1,\"n\":9,\"prompt\":[\"x\"");
    for (size_t i = 1; i < 114; i++) buf_puts(&many, ",\"x\"");
    buf_puts(&many, "]}");
    check(f, COMP, many.data, 422,
          "The number of prompts times best_of must be in [1, 1024], got 1026.");
    buf_free(&many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answers), cmocka_unit_test(best_of_sequences),
        cmocka_unit_test(streams),       cmocka_unit_test(beams),
        cmocka_unit_test(vllm_frames),   cmocka_unit_test(split_anywhere),
        cmocka_unit_test(strangers),     cmocka_unit_test(stopped),
        cmocka_unit_test(stop_ends_one), cmocka_unit_test(prompt_logprobs),
        cmocka_unit_test(fields),        cmocka_unit_test(room),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
