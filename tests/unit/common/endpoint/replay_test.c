/* Goal: an answer that goes on behind a transcript writes what the first one would have written.
 * Whatever a family, its parameters and the server's manner: for every point at which a client can
 * have been left, (what it has got) + (what a fresh answer with the transcript of that point
 * writes) is the whole answer, byte for byte; also when that one is left again. Only measured times
 * of tokens that went out before are lost (perf_stat and benchmarkInfo repeat them). And records
 * that cannot be of the request are refused by name. Method: random tokens of text, halves of
 * characters, stop strings, tags of calls and thinking; an engine that makes one or several tokens
 * of each choice in a step; the transcript is what answer_sent() told up to the cut, a frame of the
 * result stream. */
#include "tests/unit/common/endpoint/checks.h"

enum { EVENTS_MAX = 1024, LANES_MAX_T = 16, IDS_MAX_T = 64, ROUNDS = 6 };

static uint32_t rng_state = 1;
static uint32_t pick(uint32_t n) {
    rng_state = rng_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)rng_state * n) >> 32);
}

/* ---- what clients ask */

struct ask {
    const char *path, *body; /* without the closing brace */
    const char *tools, *thinking;
};

#define CHAT "/v1/chat/completions"
#define COMP "/v1/completions"
#define MSG                                                                                        \
    "{'model':'qwen','temperature':1,'stream':true,'messages':[{'role':'user','content':'x'}]"
#define CMP  "{'model':'qwen','temperature':1,'stream':true,'max_tokens':30,'prompt':"
#define USE  ",'stream_options':{'include_usage':true}"
#define CONT ",'stream_options':{'include_usage':true,'continuous_usage_stats':true}"
#define TOOLS                                                                                      \
    ",'tools':[{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}]"
#define BLOCKS                                                                                     \
    "{'model':'qwen','temperature':1,'stream':true,'max_tokens':40,'messages':[{'role':'user',"    \
    "'content':'x'}]"
#define BLOCK_TOOLS ",'tools':[{'name':'f','input_schema':{'type':'object'}}]"
#define RESPONSES   "{'model':'qwen','temperature':1,'stream':true,'max_output_tokens':40,'input':'x'"
#define ITEM_TOOLS  ",'tools':[{'type':'function','name':'f'}]"
#define LINES                                                                                      \
    "{'model':'qwen','messages':[{'role':'user','content':'x'}],'options':{'num_predict':40}"
#define BLOCK_CALLS ",'tools':[{'type':'function','function':{'name':'f'}}]"
#define PROMPT      "{'stream':true,'n_predict':30,'prompt':"
#define STOP        ",'stop':[' b b','b c','\xE4\xB8\xAD a']"

static const struct ask asks[] = {
    {CHAT, MSG, NULL, NULL},
    {CHAT, MSG USE, NULL, NULL},
    {CHAT, MSG CONT ",'n':2", NULL, NULL},
    {CHAT, MSG ",'n':3" STOP, NULL, NULL},
    {CHAT, MSG ",'max_tokens':17,'logprobs':true,'top_logprobs':2,'n':2" STOP, NULL, NULL},
    {CHAT, MSG ",'skip_special_tokens':false,'stop_token_ids':[41]", NULL, NULL},
    {CHAT, MSG ",'min_tokens':9,'include_stop_str_in_output':true" STOP, NULL, NULL},
    {CHAT, MSG TOOLS, "hermes", NULL},
    {CHAT, MSG TOOLS ",'logprobs':true,'n':3" CONT, "hermes", NULL},
    {CHAT, MSG TOOLS, "mistral", NULL},
    {CHAT, MSG TOOLS, "llama3", NULL},
    {CHAT, MSG, NULL, "qwen3"},
    {CHAT, MSG ",'logprobs':true" USE, NULL, "qwen3"},
    {CHAT, MSG ",'include_reasoning':false,'n':2", NULL, "qwen3"},
    {CHAT, MSG, NULL, "deepseek_r1"},
    {CHAT, MSG TOOLS CONT STOP, "hermes", "qwen3"},
    {COMP, CMP "'x'", NULL, NULL},
    {COMP, CMP "'x'" USE STOP, NULL, NULL},
    {COMP, CMP "'x'" CONT ",'n':2", NULL, NULL},
    {COMP, CMP "'x','echo':true", NULL, NULL},
    {COMP, CMP "'xyz','echo':true,'logprobs':1,'n':2", NULL, NULL},
    {COMP, CMP "['x','yz','x'],'n':2,'logprobs':1" STOP, NULL, NULL},
    {COMP, CMP "['x','yz'],'echo':true" USE, NULL, NULL},
    {COMP, CMP "'x','skip_special_tokens':false,'min_tokens':5" STOP, NULL, NULL},
    {"/v1/messages", BLOCKS, NULL, NULL},
    {"/v1/messages", BLOCKS ",'stop_sequences':[' b b','b c']", NULL, "qwen3"},
    {"/v1/messages", BLOCKS BLOCK_TOOLS, "hermes", "qwen3"},
    {"/v1/messages", BLOCKS BLOCK_TOOLS ",'thinking':{'type':'adaptive','display':'omitted'}",
     "llama3", "deepseek_r1"},
    {"/v1/responses", RESPONSES, NULL, NULL},
    {"/v1/responses", RESPONSES ",'store':false" STOP, NULL, "qwen3"},
    {"/v1/responses", RESPONSES ITEM_TOOLS ",'reasoning':{'summary':'auto'}", "hermes", "qwen3"},
    {"/v1/responses",
     RESPONSES ",'tools':[{'type':'custom','name':'f'}],'include':['reasoning.encrypted_content']",
     "llama3", "deepseek_r1"},
    {"/api/chat", LINES, "hermes", "qwen3"},
    {"/api/chat", LINES BLOCK_CALLS ",'logprobs':true,'top_logprobs':1", "hermes", "qwen3"},
    {"/api/generate",
     "{'model':'qwen','prompt':'x','logprobs':true,'options':{'num_predict':30,'stop':['b c']}",
     NULL, "deepseek_r1"},
    {"/completion", PROMPT "'x'" STOP, NULL, NULL},
    {"/completion", PROMPT "['x','yz'],'n_probs':2", NULL, NULL},
    {"/generate_stream", "{'inputs':'x','parameters':{'max_new_tokens':20}", NULL, NULL},
    {"/generate_stream",
     "{'inputs':'x','parameters':{'max_new_tokens':20,'details':true,'top_n_tokens':2,'stop':['b "
     "c']}",
     NULL, NULL},
    {"/generate_stream", "{'inputs':'x','parameters':{'return_full_text':true}", NULL, NULL},
    {"/", "{'inputs':'x','stream':true,'parameters':{'details':true}", NULL, NULL},
    {"/generate", "{'prompt':'x','temperature':1,'max_tokens':20,'stream':true", NULL, NULL},
    {"/generate", "{'prompt':'x','temperature':1,'max_tokens':20,'n':3,'stream':true" STOP, NULL,
     NULL},
    {"/infer", "{'inputs':'x','stream':true,'parameters':{'max_new_tokens':20,'details':true}",
     NULL, NULL},
    {"/infer_token", "{'input_id':[1,2],'stream':true", NULL, NULL},
    {"/v2/models/qwen/generate_stream", "{'text_input':'x','parameters':{'max_new_tokens':20}",
     NULL, NULL},
    {"/v2/models/qwen/generate_stream",
     "{'id':'me','text_input':'x','parameters':{'details':true,'stop':['a']}", NULL, NULL},
    {"/v2/models/qwen/generate_stream",
     "{'id':'me','text_input':'x','max_tokens':20,'stream':true,'return_finish_reason':true,"
     "'return_num_output_tokens':true,'stop_words':['b c']",
     NULL, NULL},
    {"/v2/models/qwen/generate_stream",
     "{'text_input':'x','max_tokens':20,'temperature':1,'parameters':{'stream':false}", NULL, NULL},
};
enum { N_ASKS = sizeof(asks) / sizeof(asks[0]) };

static void open_endpoint(struct fixture *f, const struct ask *ask, unsigned manner) {
    f->conf.tool_call_parser = ask->tools;
    f->conf.reasoning_parser = ask->thinking;
    f->conf.full_text = manner == 1;
    f->conf.token_id_scalar = manner == 2;
    f->conf.error_style = manner == 3 ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE;
    f->conf.prefix_cache = manner == 3;
    f->conf.vllm_delimiter = manner == 2 ? '\n' : '\0';
    fixture_open(f);
}

static struct infer_req *read_ask(struct fixture *f, const char *path, const char *body) {
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s}", body);
    char *text = unquote(b.data);
    if (!fixture_read(f, path, text, &req, &err)) fail_msg("%s refused: %s", text, err.body.data);
    free(text);
    buf_free(&b);
    for (struct infer_req *r = req; r != NULL; r = r->next_part)
        r->head.created_unix_s = 1770000000;
    return req;
}

/* ---- what the model says */

static size_t put_text(int32_t *ids, size_t n, size_t max, const char *text) {
    for (; *text != '\0' && n < max; text++) ids[n++] = fixture_byte_id((unsigned char)*text);
    return n;
}

static void make_script(int32_t *ids, const struct ask *ask) {
    static const char *const pieces[] = {
        "\xE4\xB8\xAD", "\xF0\x9F\x98\x80",
        "so",           "\n",
        " x",           "<tool_call>",
        "</tool_call>", "<think>",
        "</think>",     "{\"name\":\"f\", \"arguments\": {\"a\": 1}}"};
    static const int32_t words[] = {TOK_A,   TOK_B,          TOK_C,       TOK_B,
                                    TOK_BOS, TOK_TOOL_CALLS, TOK_CONTROL, TOK_EOS};
    size_t n = 0;
    if (ask->thinking != NULL && pick(3) > 0) n = put_text(ids, n, IDS_MAX_T, "<think>w</think>");
    if (ask->tools != NULL && pick(3) > 0) {
        if (strcmp(ask->tools, "mistral") == 0) ids[n++] = TOK_TOOL_CALLS;
        n = put_text(ids, n, IDS_MAX_T,
                     strcmp(ask->tools, "hermes") == 0
                         ? "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>"
                     : strcmp(ask->tools, "mistral") == 0
                         ? "[{\"name\":\"f\",\"arguments\":{\"a\": 1}}]"
                         : "{\"name\": \"f\", \"parameters\": {\"a\": 1}}");
    }
    while (n < IDS_MAX_T) {
        uint32_t kind = pick(10);
        if (kind < 6)
            ids[n++] = words[pick(pick(4) == 0 ? 8 : 6)];
        else if (kind < 9)
            n = put_text(ids, n, IDS_MAX_T, pieces[pick(10)]);
        else
            ids[n++] = fixture_byte_id(0x80 + pick(128));
    }
}

/* ---- a run: tokens in the engine's order, and what they made */

struct run {
    struct infer_req *req;
    size_t n_choices, n_lanes;
    int32_t script[LANES_MAX_T][IDS_MAX_T];
    struct {
        uint32_t part;
        struct token_event ev;
    } events[EVENTS_MAX];
    size_t n_events;
    struct token_event first[LANES_MAX_T]; /* P draws these again */
    struct buf out;
};

/* What a client has been sent. */
struct sent {
    int32_t ids[LANES_MAX_T][IDS_MAX_T];
    size_t n[LANES_MAX_T];
    enum finish finish[LANES_MAX_T];
};

static void on_sent(void *arg, uint32_t choice, int32_t id, enum finish finish) {
    struct sent *s = arg;
    assert_true(choice < LANES_MAX_T && s->n[choice] < IDS_MAX_T);
    assert_int_equal(s->finish[choice], FINISH_NONE);
    s->ids[choice][s->n[choice]++] = id;
    s->finish[choice] = finish;
}

/* The first token of a choice is P's, alone; from then on a step makes up to three of each. */
static void first_run(struct fixture *f, struct run *r) {
    struct answer *a;
    bool over[LANES_MAX_T] = {false};
    size_t at[LANES_MAX_T] = {0};
    assert_int_equal(answer_create(&a, f->ep, r->req), ERR_OK);
    bool several = pick(2) == 0;
    while (!answer_done(a)) {
        for (const struct infer_req *p = r->req; p != NULL; p = p->next_part) {
            for (size_t c = 0; c < r->n_choices; c++) {
                size_t lane = p->head.part * r->n_choices + c;
                size_t n = at[lane] == 0 || !several ? 1 : 1 + pick(3);
                while (n-- > 0 && !over[lane]) {
                    struct token_event ev =
                        fixture_event(p, r->script[lane], IDS_MAX_T, at[lane]++);
                    ev.choice = (int32_t)c;
                    if (ev.finish == FINISH_NONE && at[lane] == IDS_MAX_T)
                        ev.finish = FINISH_LENGTH;
                    ev.more = n > 0 && ev.finish == FINISH_NONE;
                    assert_true(r->n_events < EVENTS_MAX);
                    if (at[lane] == 1) r->first[lane] = ev;
                    r->events[r->n_events].part = p->head.part;
                    r->events[r->n_events++].ev = ev;
                    over[lane] = answer_token(a, p->head.part, &ev, &r->out) != FINISH_NONE;
                }
            }
        }
    }
    answer_destroy(&a);
}

/* A fresh answer behind *sent, as another instance makes it. */
static struct answer *stand(struct fixture *f, struct infer_req *copy, const struct run *r,
                            const struct sent *sent) {
    struct answer *a;
    struct errbuf eb = {0};
    assert_int_equal(answer_create(&a, f->ep, copy), ERR_OK);
    for (size_t lane = 0; lane < r->n_lanes; lane++) {
        const struct sent_tokens tokens = {.ids = sent->ids[lane],
                                           .n_ids = sent->n[lane],
                                           .finish = sent->finish[lane],
                                           .first = &r->first[lane]};
        if (answer_replay(a, (uint32_t)lane, &tokens, &eb) != ERR_OK) fail_msg("%s", eb.text);
    }
    return a;
}

/* Feeds what is not in *sent, in the order of the first run, up to the n-th frame, or of an answer
 * in one piece the n-th token; *sent grows. */
static void feed_rest(struct answer *a, const struct run *r, struct sent *sent, size_t n_frames,
                      struct buf *out) {
    const bool stream = r->req->answer.stream;
    size_t seen[LANES_MAX_T] = {0}, have[LANES_MAX_T];
    bool over[LANES_MAX_T];
    memcpy(have, sent->n, sizeof(have));
    for (size_t lane = 0; lane < LANES_MAX_T; lane++)
        over[lane] = sent->finish[lane] != FINISH_NONE;
    for (size_t i = 0; i < r->n_events && n_frames > 0; i++) {
        const struct token_event *ev = &r->events[i].ev;
        size_t lane = r->events[i].part * r->n_choices + (size_t)ev->choice, was = out->len;
        if (seen[lane]++ < have[lane] || over[lane]) continue;
        over[lane] = answer_token(a, r->events[i].part, ev, out) != FINISH_NONE;
        assert_false(out->failed);
        struct sent before = *sent;
        answer_sent(a, on_sent, sent);
        if (out->len == was && stream) /* nothing went out, so nothing is told */
            assert_memory_equal(&before, sent, sizeof(before));
        if (!stream) assert_int_equal(sent->n[lane], before.n[lane] + 1);
        n_frames -= out->len > was || !stream;
    }
}

static struct infer_req *clone_all(const struct infer_req *req) {
    struct infer_req *first = NULL, **at = &first;
    for (; req != NULL; req = req->next_part, at = &(*at)->next_part)
        assert_non_null(*at = infer_req_clone(req));
    return first;
}

/* Times of tokens that another instance made are lost with it: of those that are printed only the
 * names are compared. */
static void drop_times(struct buf *b) {
    static const char *const names[] = {"_duration\":", "_ms\":", "_per_second\":"};
    size_t to = 0;
    for (size_t at = 0; at < b->len;) {
        size_t n = 0;
        for (size_t i = 0; n == 0 && i < sizeof(names) / sizeof(names[0]); i++) {
            const size_t len = strlen(names[i]);
            if (b->len - at > len && memcmp(b->data + at, names[i], len) == 0) n = len;
        }
        const bool is_time = n > 0;
        if (!is_time) n = 1;
        memmove(b->data + to, b->data + at, n);
        to += n;
        at += is_time ? n + strspn(b->data + at + n, "0123456789.") : n;
    }
    b->len = to;
}

static void check_joined(const struct run *r, const struct buf *joined, const struct ask *ask,
                         unsigned manner, size_t cut) {
    if (joined->len == r->out.len && memcmp(joined->data, r->out.data, r->out.len) == 0) return;
    size_t at = 0;
    while (at < joined->len && at < r->out.len && joined->data[at] == r->out.data[at]) at++;
    fail_msg(
        "%s %s manner %u, left after frame %zu, differs at %zu\n got    ..%.*s\n wanted ..%.*s",
        ask->path, ask->body, manner, cut, at, (int)(joined->len - at), joined->data + at,
        (int)(r->out.len - at), r->out.data + at);
}

/* Left after `cut` frames, and again after `again` more. */
static bool leave(struct fixture *f, const struct run *r, const struct ask *ask, unsigned manner,
                  size_t cut, size_t again) {
    struct buf joined = BUF_INIT;
    struct sent sent = {0};
    struct infer_req *copy = clone_all(r->req);
    const size_t legs[] = {cut, again, SIZE_MAX};
    bool done = false;
    for (size_t leg = 0; leg < 3 && !done; leg++) {
        struct answer *a = stand(f, copy, r, &sent);
        feed_rest(a, r, &sent, legs[leg], &joined);
        done = answer_done(a);
        answer_destroy(&a);
        if (leg == 0 && done) break; /* there was no such frame */
        if (leg == 1 && again == 0) continue;
    }
    drop_times(&joined);
    check_joined(r, &joined, ask, manner, cut);
    for (size_t lane = 0; lane < r->n_lanes; lane++) {
        assert_int_not_equal(sent.finish[lane], FINISH_NONE);
        assert_memory_equal(sent.ids[lane], r->script[lane], sent.n[lane] * sizeof(int32_t));
    }
    infer_req_destroy(&copy);
    buf_free(&joined);
    return cut < r->n_events;
}

static void goes_on_wherever_it_was_left(void **state) {
    struct fixture *f = *state;
    static struct run r;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t k = 0; k < N_ASKS; k++) {
            const struct ask *ask = &asks[k];
            rng_state = round * 1000 + (uint32_t)k + 1;
            open_endpoint(f, ask, round % 4);
            r = (struct run){.req = read_ask(f, ask->path, ask->body)};
            r.n_choices = (size_t)r.req->sampling.n_choices;
            r.n_lanes = r.n_choices * r.req->head.n_parts;
            assert_true(r.n_lanes <= LANES_MAX_T && answer_has_transcript(r.req, f->ep));
            for (size_t lane = 0; lane < r.n_lanes; lane++) make_script(r.script[lane], ask);
            first_run(f, &r);
            drop_times(&r.out);
            for (size_t cut = 1; leave(f, &r, ask, round % 4, cut, pick(5)); cut++) continue;
            infer_req_destroy(&r.req);
            buf_free(&r.out);
        }
    }
}

/* ---- what goes out in one piece */

#define W_CHAT "{'model':'qwen','temperature':1,'messages':[{'role':'user','content':'x'}]"
#define W_COMP "{'model':'qwen','temperature':1,'max_tokens':30,'prompt':"

static const struct ask wholes[] = {
    {CHAT, W_CHAT, NULL, NULL},
    {CHAT, W_CHAT ",'n':3,'max_tokens':25" STOP, NULL, NULL},
    {CHAT, W_CHAT ",'skip_special_tokens':false,'stop_token_ids':[41]", NULL, NULL},
    {CHAT, W_CHAT TOOLS STOP, "hermes", "qwen3"},
    {CHAT, W_CHAT TOOLS, "llama3", NULL},
    {CHAT, W_CHAT ",'n':2", NULL, "deepseek_r1"},
    {COMP, W_COMP "'x'" STOP, NULL, NULL},
    {COMP, W_COMP "['x','yz','x'],'n':2,'echo':true", NULL, NULL},
    {COMP, W_COMP "'x','min_tokens':9,'include_stop_str_in_output':true" STOP, NULL, NULL},
    {"/v1/messages",
     "{'model':'qwen','temperature':1,'max_tokens':40,'messages':[{'role':'user','content':'x'}]"
     ",'stop_sequences':[' b b','b c']" BLOCK_TOOLS,
     "hermes", "qwen3"},
    {"/v1/responses", "{'model':'qwen','temperature':1,'max_output_tokens':40,'input':'x'", NULL,
     NULL},
    {"/v1/responses",
     "{'model':'qwen','temperature':1,'max_output_tokens':40,'input':'x'" ITEM_TOOLS, "hermes",
     "qwen3"},
    {"/generate", "{'inputs':'x','parameters':{'max_new_tokens':20,'return_full_text':true}", NULL,
     NULL},
    {"/generate", "{'prompt':'x','temperature':1,'max_tokens':20" STOP, NULL, NULL},
    {"/infer", "{'inputs':'x','parameters':{'max_new_tokens':20,'details':true}", NULL, NULL},
    {"/v2/models/qwen/generate", "{'text_input':'x','parameters':{'max_new_tokens':20}", NULL,
     NULL},
    {"/v2/models/qwen/generate", "{'text_input':'x','max_tokens':20,'bad_words':''", NULL, NULL},
    {"/v2/models/qwen/infer",
     "{'id':'a','inputs':[{'name':'input0','shape':[1,2],'datatype':'UINT32','data':[1,2]}],"
     "'outputs':[{'name':'output0'}]",
     NULL, NULL},
};

/* Left at any token, and again a few tokens later: the body is the one of an undisturbed answer. */
static void whole_answers_go_on(void **state) {
    struct fixture *f = *state;
    static struct run r;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t k = 0; k < sizeof(wholes) / sizeof(wholes[0]); k++) {
            const struct ask *ask = &wholes[k];
            rng_state = round * 2000 + (uint32_t)k + 1;
            open_endpoint(f, ask, round % 4);
            r = (struct run){.req = read_ask(f, ask->path, ask->body)};
            r.n_choices = (size_t)r.req->sampling.n_choices;
            r.n_lanes = r.n_choices * r.req->head.n_parts;
            if (!answer_has_transcript(r.req, f->ep)) fail_msg("%s %s", ask->path, ask->body);
            for (size_t lane = 0; lane < r.n_lanes; lane++) make_script(r.script[lane], ask);
            first_run(f, &r);
            for (size_t cut = 1; leave(f, &r, ask, round % 4, cut, pick(5)); cut++) continue;
            infer_req_destroy(&r.req);
            buf_free(&r.out);
        }
    }
}

static void nothing_is_sent_before_the_end(void **state) {
    static const struct ask whole[] = {
        {CHAT,
         "{'model':'qwen','messages':[{'role':'user','content':'x'}],'n':2,'temperature':1,"
         "'logprobs':true",
         NULL, NULL},
        {COMP, CMP "'x','n':1,'best_of':1", NULL, NULL},
        {"/generate", "{'prompt':'x','temperature':1,'n':2,'best_of':3,'stream':true", NULL, NULL},
        {COMP, CMP "'x','n':2,'use_beam_search':true", NULL, NULL},
        {"/generate", "{'inputs':'x','parameters':{'details':true}", NULL, NULL},
    };
    struct fixture *f = *state;
    for (size_t k = 0; k < sizeof(whole) / sizeof(whole[0]); k++) {
        static struct sent sent;
        struct buf out = BUF_INIT;
        struct errbuf eb = {0};
        struct answer *a;
        open_endpoint(f, &whole[k], 0);
        struct infer_req *req = read_ask(f, whole[k].path, whole[k].body);
        size_t n = (size_t)req->sampling.n_choices;
        bool streams = k == 1;
        sent = (struct sent){0};
        assert_true(answer_has_transcript(req, f->ep) == streams);
        assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
        for (int32_t i = 0; i < 3; i++) {
            for (int32_t c = 0; c < (int32_t)n; c++) {
                struct token_event ev = {.id = i < 2 ? TOK_A : TOK_EOS, .choice = c, .index = i};
                if (i == 2) ev.finish = FINISH_EOS;
                answer_token(a, 0, &ev, &out);
                answer_sent(a, on_sent, &sent);
                if (!streams && out.len == 0) assert_int_equal(sent.n[0], 0);
            }
        }
        assert_true(answer_done(a));
        for (size_t c = 0; c < n; c++) { /* then all of it, the choices nobody sees too */
            assert_int_equal(sent.n[c], 3);
            assert_int_equal(sent.finish[c], FINISH_EOS);
        }
        answer_destroy(&a);
        assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
        const int32_t id = TOK_A;
        if (!streams) {
            assert_int_equal(
                answer_replay(a, 0, &(struct sent_tokens){.ids = &id, .n_ids = 1}, &eb),
                ERR_INVALID);
            assert_string_equal(eb.text,
                                "choice 0 has 1 tokens, but the request goes on behind none");
        }
        assert_int_equal(answer_replay(a, 0, &(struct sent_tokens){0}, &eb), ERR_OK);
        answer_destroy(&a);
        infer_req_destroy(&req);
        buf_free(&out);
    }
}

/* ---- records that are not of the request */

static void strangers(void **state) {
    static const int32_t ab[] = {TOK_A, TOK_B, TOK_C, TOK_A}, high[] = {TOK_A, FIXTURE_VOCAB},
                         low[] = {-1};
    static const struct {
        uint32_t choice;
        const int32_t *ids;
        size_t n;
        enum finish finish;
        const char *text;
    } rows[] = {
        {2, ab, 1, FINISH_NONE, "choice 2 must be below 2"},
        {UINT32_MAX, ab, 1, FINISH_NONE, "choice 4294967295 must be below 2"},
        {1, ab, 0, FINISH_EOS, "choice 1 ended (finish 1) without a token"},
        {0, ab, 1, FINISH_ABORT, "the finish of choice 0 must be 0 to 4, got 5"},
        {0, ab, 1, (enum finish)77, "the finish of choice 0 must be 0 to 4, got 77"},
        {0, high, 2, FINISH_NONE, "token 1 of choice 0 must be an id from 0 to 329, got 330"},
        {0, low, 1, FINISH_NONE, "token 0 of choice 0 must be an id from 0 to 329, got -1"},
        {0, ab, 3, FINISH_NONE, "choice 0 has 3 tokens, at most 2 are possible"},
        {0, ab, 4, FINISH_LENGTH, "choice 0 has 4 tokens, at most 3 are possible"},
        {1, ab, 2, FINISH_NONE, "choice 1 has 2 tokens, but it ended with token 1 (finish 3)"},
        {1, ab, 3, FINISH_EOS, "choice 1 has 3 tokens, but it ended with token 1 (finish 3)"},
    };
    struct fixture *f = *state;
    const struct ask plain = {0};
    open_endpoint(f, &plain, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req =
            read_ask(f, COMP,
                     "{'model':'qwen','temperature':1,'stream':true,'max_tokens':3,'n':2,"
                     "'prompt':'x','stop':' b'");
        struct errbuf eb = {0};
        struct answer *a;
        assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
        const struct sent_tokens tokens = {
            .ids = rows[i].ids, .n_ids = rows[i].n, .finish = rows[i].finish};
        assert_int_equal(answer_replay(a, rows[i].choice, &tokens, &eb), ERR_INVALID);
        assert_string_equal(eb.text, rows[i].text);
        answer_destroy(&a);
        infer_req_destroy(&req);
    }
}

/* A request whose every choice has ended has nothing to go on with. */
static void all_ended(void **state) {
    struct fixture *f = *state;
    const struct ask plain = {0};
    const int32_t ids[] = {TOK_A, TOK_EOS};
    struct errbuf eb = {0};
    struct answer *a;
    open_endpoint(f, &plain, 0);
    struct infer_req *req = read_ask(f, COMP, CMP "['x','y']");
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    const struct sent_tokens tokens = {.ids = ids, .n_ids = 2, .finish = FINISH_EOS};
    assert_int_equal(answer_replay(a, 0, &tokens, &eb), ERR_OK);
    assert_int_equal(answer_replay(a, 1, &tokens, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "every choice has ended, nothing is left to generate");
    assert_false(answer_done(a));
    answer_destroy(&a);
    infer_req_destroy(&req);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_wherever_it_was_left),
        cmocka_unit_test(whole_answers_go_on),
        cmocka_unit_test(nothing_is_sent_before_the_end),
        cmocka_unit_test(strangers),
        cmocka_unit_test(all_ended),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
