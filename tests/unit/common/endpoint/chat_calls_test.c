/* Goal: chats with tools and thinking. (1) messages and streams have calls, thinking and content in
 * their places, a stream's deltas add up to the message, and two instances write the same bytes
 * wherever the tokens are split; (2) forced calls, formats and budgets become the right guide; (3)
 * the checks have their texts.
 * Method: a scripted engine writes the text byte by byte, EOS at its end. In scripts \x02 stands
 * for the special token [TOOL_CALLS]. */
#include "tests/unit/common/endpoint/checks.h"

#define PATH             "/v1/chat/completions"
#define HEAD             "{'model':'qwen','messages':[{'role':'user','content':'x'}]"
#define TOOL(name, more) "{'type':'function','function':{'name':'" name "'" more "}}"
#define TOOLS            ",'tools':[" TOOL("f", "") "," TOOL("g", ",'parameters':{'type':'object'}") "]"
#define OPEN_TEMPLATE    ",'chat_template':'{{ messages[0].content }}<think>\\n'"
#define OURS_TEMPLATE    ",'chat_template':'{{ messages[0].content }}<|start|>assistant'"
#define ANALYSIS_TEMPLATE                                                                          \
    ",'chat_template':'{{ messages[0].content }}<|start|>assistant<|channel|>analysis<|message|>'"
#define SHUT_TEMPLATE ",'chat_template':'{{ messages[0].content }}<think>\\n\\n</think>\\n\\n'"

enum { SCRIPT_MAX = 512 };

struct scene {
    const char *tools, *thinking; /* parsers */
    const char *more;             /* of the body */
    const char *text;             /* what the model writes */
    const char *message;          /* members after role */
    const char *finish;
    int thinking_tokens; /* -1: usage has none */
};

#define CALL_F "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>"
#define JSON_F "{'type':'function','id':'?','function':{'name':'f','arguments':'{\\'a\\': 1}'}}"

static const struct scene scenes[] = {
    /* nothing to sort */
    {"hermes", NULL, "", CALL_F,
     "'content':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{\\'a\\': 1}}</tool_call>',"
     "'tool_calls':[]",
     "stop", -1},
    {"hermes", NULL, TOOLS, "Hi.", "'content':'Hi.','tool_calls':[]", "stop", -1},
    {"hermes", NULL, TOOLS ",'tool_choice':'none'", "<tool_call>",
     "'content':'<tool_call>','tool_calls':[]", "stop", -1},
    /* calls */
    {"hermes", NULL, TOOLS, CALL_F, "'content':'','tool_calls':[" JSON_F "]", "tool_calls", -1},
    {"hermes", NULL, TOOLS, "Well.\n" CALL_F "\n" CALL_F,
     "'content':'Well.','tool_calls':[" JSON_F "," JSON_F "]", "tool_calls", -1},
    {"hermes", NULL, TOOLS ",'parallel_tool_calls':false", CALL_F "\n" CALL_F,
     "'content':'','tool_calls':[" JSON_F "]", "tool_calls", -1},
    {"hermes", NULL, TOOLS, "<tool_call>{\"name\":\"f\"}</tool_call>",
     "'content':'<tool_call>{\\'name\\':\\'f\\'}</tool_call>','tool_calls':[]", "stop", -1},
    {"hermes", NULL, TOOLS ",'stop':'}}'", CALL_F " never",
     "'content':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{\\'a\\': 1','tool_calls':[]",
     "stop", -1},
    {"llama3", NULL, TOOLS, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
     "'content':'','tool_calls':[" JSON_F "]", "tool_calls", -1},
    /* the tag is a special token: read, never shown, unless specials are asked for */
    {"mistral", NULL, TOOLS, "\x02[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
     "'content':'','tool_calls':[" JSON_F "]", "tool_calls", -1},
    {"mistral", NULL, TOOLS,
     "a\x02"
     "b",
     "'content':'ab','tool_calls':[]", "stop", -1},
    {"mistral", NULL, TOOLS ",'skip_special_tokens':false",
     "a\x02"
     "b",
     "'content':'a[TOOL_CALLS]b</s>','tool_calls':[]", "stop", -1},
    {"mistral", NULL, "",
     "a\x02"
     "b",
     "'content':'ab','tool_calls':[]", "stop", -1},
    /* thinking */
    {NULL, "qwen3", "", "<think>why</think>\n\nso",
     "'content':'\\n\\nso','reasoning_content':'why','tool_calls':[]", "stop", 10},
    {NULL, "qwen3", "", "plain </think>",
     "'content':'plain </think>','reasoning_content':null,'tool_calls':[]", "stop", -1},
    {NULL, "qwen3", OPEN_TEMPLATE, "why</think>so",
     "'content':'so','reasoning_content':'why','tool_calls':[]", "stop", 3},
    {NULL, "qwen3", OPEN_TEMPLATE, "cut off",
     "'content':'','reasoning_content':'cut off','tool_calls':[]", "stop", -1},
    {NULL, "qwen3", SHUT_TEMPLATE, "<think>x</think>",
     "'content':'<think>x</think>','tool_calls':[]", "stop", -1},
    {NULL, "qwen3", ",'chat_template_kwargs':{'enable_thinking':false}", "<think>x</think>",
     "'content':'<think>x</think>','tool_calls':[]", "stop", -1},
    {NULL, "qwen3", ",'reasoning_effort':'none'", "<think>x</think>",
     "'content':'<think>x</think>','tool_calls':[]", "stop", -1},
    {NULL, "qwen3", ",'include_reasoning':false", "<think>x</think>so",
     "'content':'so','tool_calls':[]", "stop", 8},
    {NULL, "qwen3", ",'stop':'hy'", "<think>why</think>so",
     "'content':'','reasoning_content':'w','tool_calls':[]", "stop", -1},
    {NULL, "deepseek_r1", "", "why</think>so",
     "'content':'so','reasoning_content':'why','tool_calls':[]", "stop", 3},
    {NULL, "deepseek_r1", SHUT_TEMPLATE, "so", "'content':'so','tool_calls':[]", "stop", -1},
    {NULL, NULL, "", "<think>why</think>so", "'content':'<think>why</think>so','tool_calls':[]",
     "stop", -1},
    /* channels */
    {"harmony", NULL, TOOLS,
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>so",
     "'content':'so','reasoning_content':'why','tool_calls':[]", "stop", 33},
    {"harmony", NULL, TOOLS,
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f "
     "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "'content':'','reasoning_content':'why','tool_calls':[" JSON_F "]", "tool_calls", 33},
    {"harmony", NULL, TOOLS,
     "<|channel|>commentary<|message|>I look. <|end|><|start|>assistant to=functions.f<|channel|>"
     "commentary json<|message|>\n{\"a\": 1}",
     "'content':'I look.','reasoning_content':null,'tool_calls':[" JSON_F "]", "tool_calls", -1},
    {"harmony", NULL, TOOLS,
     "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|call|> <|start|>assistant "
     "to=functions.f"
     "<|channel|>commentary<|message|>{\"a\": 1}",
     "'content':'','reasoning_content':null,'tool_calls':[" JSON_F "," JSON_F "]", "tool_calls",
     -1},
    {"harmony", NULL, "", "<|channel|>final<|message|>a <b> <|channel|c",
     "'content':'a <b> <|channel|c','reasoning_content':null,'tool_calls':[]", "stop", -1},
    {"harmony", NULL, "", "plain", "'content':'plain','reasoning_content':null,'tool_calls':[]",
     "stop", -1},
    {"harmony", NULL, ",'include_reasoning':false",
     "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>so",
     "'content':'so','tool_calls':[]", "stop", 31},
    {"harmony", NULL, TOOLS OURS_TEMPLATE,
     " to=functions.f<|channel|>commentary<|constrain|>json<|message|>{\"a\": 1}",
     "'content':'','reasoning_content':null,'tool_calls':[" JSON_F "]", "tool_calls", -1},
    {"harmony", NULL, OURS_TEMPLATE,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis "
     "to=python<|message|>"
     "b<|call|>x<|start|>assistant<|channel|>final<|message|>so",
     "'content':'so','reasoning_content':'a\\nb','tool_calls':[]", "stop", 97},
    {"harmony", NULL, OURS_TEMPLATE, "no header",
     "'content':'no header','reasoning_content':null,'tool_calls':[]", "stop", -1},
    /* the prompt itself has opened the thinking */
    {"harmony", NULL, ANALYSIS_TEMPLATE,
     "why<|end|><|start|>assistant<|channel|>final<|message|>so",
     "'content':'so','reasoning_content':'why','tool_calls':[]", "stop", 3},
    {"harmony", NULL, ANALYSIS_TEMPLATE,
     "a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|channel|>final<|message|>so",
     "'content':'so','reasoning_content':'a\\nb','tool_calls':[]", "stop", 57},
    /* stops count in what is shown of a message, not in tags, headers or over their ends */
    {"harmony", NULL, OURS_TEMPLATE ",'stop':'channel'",
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>the "
     "channel is",
     "'content':'the ','reasoning_content':'why','tool_calls':[]", "stop", 33},
    {"harmony", NULL, OURS_TEMPLATE ",'stop':['whyso','|>','why<','assistant','final','>so']",
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>so",
     "'content':'so','reasoning_content':'why','tool_calls':[]", "stop", 33},
    {"harmony", NULL, OURS_TEMPLATE ",'stop':'<|x'", "<|channel|>final<|message|>a <|<|xy",
     "'content':'a <|','reasoning_content':null,"
     "'tool_calls':[]",
     "stop", -1},
    {"harmony", NULL, ",'include_reasoning':false,'stop':'h'" OURS_TEMPLATE,
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>oh so",
     "'content':'o','tool_calls':[]", "stop", 33},
    {"harmony", NULL, ",'include_reasoning':false,'stop':'h'" ANALYSIS_TEMPLATE,
     "why<|end|><|start|>assistant<|channel|>final<|message|>oh so",
     "'content':'o','tool_calls':[]", "stop", 3},
    {"harmony", NULL, OURS_TEMPLATE ",'stop':'er'", "no header",
     "'content':'no head','reasoning_content':null,'tool_calls':[]", "stop", -1},
    {"harmony", NULL, TOOLS OURS_TEMPLATE ",'stop':'to='",
     " to=functions.f<|channel|>commentary<|message|>{\"a\": 1}",
     "'content':'','reasoning_content':null,'tool_calls':[" JSON_F "]", "tool_calls", -1},
    /* both: calls are looked for in the content only */
    {"hermes", "qwen3", TOOLS, "<think>" CALL_F "</think>\n\n" CALL_F,
     "'content':'','reasoning_content':'<tool_call>{\\'name\\':\\'f\\',\\'arguments\\':{\\'a\\': "
     "1}}</tool_call>','tool_calls':[" JSON_F "]",
     "tool_calls", 63},
};
enum { N_SCENES = sizeof(scenes) / sizeof(scenes[0]) };

static size_t script_of(const char *text, int32_t *script) {
    size_t n = 0;
    for (; *text != '\0'; text++)
        script[n++] = *text == '\x02' ? TOK_TOOL_CALLS : fixture_byte_id((unsigned char)*text);
    script[n++] = TOK_EOS;
    assert_true(n <= SCRIPT_MAX);
    return n;
}

static struct infer_req *read_body(struct fixture *f, const char *more, bool stream) {
    struct infer_req *req;
    struct api_answer err;
    struct buf b = BUF_INIT;
    buf_printf(&b, HEAD "%s%s}", more, stream ? ",'stream':true" : "");
    char *body = unquote(b.data);
    if (!fixture_read(f, PATH, body, &req, &err)) fail_msg("%s\n%s", body, err.body.data);
    req->head.created_unix_s = 1770000000;
    free(body);
    buf_free(&b);
    return req;
}

static void open_scene(struct fixture *f, const struct scene *s) {
    f->conf.tool_call_parser = s->tools;
    f->conf.reasoning_parser = s->thinking;
    fixture_open(f);
}

/* Two instances: the first feeds `at` tokens, the second those for nothing and then the rest. The
 * request travels as the hand-over carries it. */
static void run_split(struct fixture *f, const struct infer_req *req, const int32_t *script,
                      size_t n, size_t at, struct buf *out) {
    struct wr w = WR_INIT;
    struct infer_req *again = NULL;
    struct buf discard = BUF_INIT;
    buf_clear(out);
    infer_req_pack(&w, req);
    struct rd rd = rd_of(w.data, w.len);
    assert_int_equal(infer_req_unpack(&rd, &again), ERR_OK);
    for (int half = 0; half < 2; half++) {
        struct answer *a;
        enum finish fin = FINISH_NONE;
        assert_int_equal(answer_create(&a, f->ep, half == 0 ? req : again), ERR_OK);
        for (size_t i = 0; fin == FINISH_NONE && (half == 1 || i < at); i++) {
            struct token_event ev = fixture_event(req, script, n, i);
            fin = answer_token(a, 0, &ev, half == 1 && i < at ? &discard : out);
        }
        answer_destroy(&a);
        if (fin != FINISH_NONE) break;
    }
    assert_false(out->failed);
    buf_putc(out, '\0');
    out->len--;
    wr_free(&w);
    buf_free(&discard);
    infer_req_destroy(&again);
}

/* ---- whole answers */

static struct json_value *parse(const char *s, size_t n) {
    struct json_value *o = NULL;
    if (json_read(&o, s, n, NULL, NULL) != ERR_OK) fail_msg("no JSON: %.*s", (int)n, s);
    return o;
}

static struct json_value *at(struct json_value *o, const char *key) {
    struct json_value *v = NULL;
    if (json_get(o, key, &v) != JSON_OK) return NULL;
    return v;
}

static struct json_value *first_choice(struct json_value *answer) {
    return json_arr_at(at(answer, "choices"), 0);
}

static const char *text_of(struct json_value *v) {
    return v != NULL ? json_to_text(v, JSON_COMPACT, NULL) : "absent";
}

/* The ids of calls become "?", so that a message can be compared as text. */
static void forget_ids(struct json_value *message) {
    struct json_value *calls = at(message, "tool_calls");
    for (size_t i = 0; calls != NULL && i < json_arr_len(calls); i++) {
        struct json_value *call = json_arr_at(calls, i);
        const char *id = json_str(at(call, "id"));
        assert_int_equal(strlen(id), 13);
        assert_memory_equal(id, "call_", 5);
        json_obj_set(call, "id", json_new_str("?"));
    }
}

static void check_whole(const struct scene *s, const struct buf *body) {
    struct json_value *o = parse(body->data, body->len), *choice = first_choice(o);
    struct json_value *message = at(choice, "message");
    struct json_value *details = at(at(o, "usage"), "completion_tokens_details");
    struct buf want = BUF_INIT;
    forget_ids(message);
    char *members = unquote(s->message);
    buf_printf(&want, "{\"role\":\"assistant\",%s}", members);
    struct json_value *w = parse(want.data, want.len);
    assert_string_equal(text_of(message), text_of(w)); /* order of the members too */
    assert_string_equal(json_str(at(choice, "finish_reason")), s->finish);
    if (s->thinking_tokens < 0)
        assert_null(details);
    else
        assert_int_equal(json_i64(at(details, "reasoning_tokens")), s->thinking_tokens);
    json_put(w);
    json_put(o);
    free(members);
    buf_free(&want);
}

static void test_whole(void **state) {
    struct fixture *f = *state;
    int32_t script[SCRIPT_MAX];
    for (size_t i = 0; i < N_SCENES; i++) {
        struct buf out = BUF_INIT, split = BUF_INIT;
        open_scene(f, &scenes[i]);
        struct infer_req *req = read_body(f, scenes[i].more, false);
        size_t n = script_of(scenes[i].text, script);
        run_split(f, req, script, n, SIZE_MAX, &out);
        check_whole(&scenes[i], &out);
        for (size_t k = 1; k < n; k++) {
            run_split(f, req, script, n, k, &split);
            assert_string_equal(split.data, out.data);
        }
        infer_req_destroy(&req);
        buf_free(&out);
        buf_free(&split);
    }
}

/* ---- streams */

struct sum {
    struct buf content, thinking;
    struct buf calls; /* {name|arguments} */
    long call;        /* the last index */
    bool some_thinking;
    char finish[16];
};

static void sum_call(struct sum *s, struct json_value *call) {
    struct json_value *fn = at(call, "function"), *name = at(fn, "name");
    long index = json_i64(at(call, "index"));
    if (name != NULL) { /* the first delta of a call */
        assert_int_equal(index, s->call + 1);
        assert_string_equal(json_str(at(call, "type")), "function");
        assert_int_equal(strlen(json_str(at(call, "id"))), 13);
        assert_string_equal(json_str(at(fn, "arguments")), "");
        buf_printf(&s->calls, "{%s|", json_str(name));
        s->call = index;
    } else {
        assert_int_equal(index, s->call);
        assert_null(at(call, "id"));
        buf_puts(&s->calls, json_str(at(fn, "arguments")));
    }
}

static void sum_delta(struct sum *s, struct json_value *chunk, size_t n_chunk) {
    struct json_value *choice = first_choice(chunk), *delta = at(choice, "delta");
    struct json_value *content = at(delta, "content"), *calls = at(delta, "tool_calls");
    struct json_value *thinking = at(delta, "reasoning_content");
    assert_string_equal(json_str(at(delta, "role")), "assistant");
    assert_int_equal((content != NULL) + (calls != NULL) + (thinking != NULL), 1);
    assert_string_equal(s->finish, ""); /* nothing comes after the finishing chunk */
    if (n_chunk == 0) assert_string_equal(json_str(content), "");
    if (content != NULL) buf_puts(&s->content, json_str(content));
    if (thinking != NULL) buf_puts(&s->thinking, json_str(thinking));
    s->some_thinking |= thinking != NULL;
    if (calls != NULL) {
        assert_int_equal(json_arr_len(calls), 1);
        sum_call(s, json_arr_at(calls, 0));
    }
    if (at(choice, "finish_reason") != NULL) {
        snprintf(s->finish, sizeof(s->finish), "%s", json_str(at(choice, "finish_reason")));
        assert_non_null(at(chunk, "usage"));
    } else {
        assert_null(at(chunk, "usage"));
    }
}

static void sum_stream(struct sum *s, const char *stream) {
    size_t n = 0;
    *s = (struct sum){.call = -1};
    buf_puts(&s->content, "");
    buf_puts(&s->thinking, "");
    buf_puts(&s->calls, "");
    while (strncmp(stream, "data: [DONE]", 12) != 0) {
        const char *end = strstr(stream, "\n\n");
        assert_non_null(end);
        assert_memory_equal(stream, "data: ", 6);
        struct json_value *o = parse(stream + 6, (size_t)(end - stream) - 6);
        sum_delta(s, o, n++);
        json_put(o);
        stream = end + 2;
    }
    assert_string_equal(stream, "data: [DONE]\n\n");
}

static const char *stripped(struct buf *b) {
    const char *s = b->data;
    while (b->len > 0 && strchr(" \n", b->data[b->len - 1]) != NULL) b->data[--b->len] = '\0';
    while (*s == ' ' || *s == '\n') s++;
    return s;
}

/* The stream adds up to the message of the whole answer. (What a malformed call leaves behind in a
 * stream is tool_parse_test's.) */
static void check_stream(const struct scene *s, const struct buf *out) {
    struct sum sum;
    struct buf calls = BUF_INIT;
    sum_stream(&sum, out->data);
    char *members = unquote(s->message);
    struct buf message = BUF_INIT;
    buf_printf(&message, "{%s}", members);
    struct json_value *m = parse(message.data, message.len), *list = at(m, "tool_calls");
    buf_puts(&calls, "");
    for (size_t i = 0; i < json_arr_len(list); i++) {
        struct json_value *fn = at(json_arr_at(list, i), "function");
        buf_printf(&calls, "{%s|%s", json_str(at(fn, "name")), json_str(at(fn, "arguments")));
    }
    const char *content = json_str(at(m, "content"));
    if (calls.len > 0) /* text before a call is trimmed only where all of it is known */
        assert_string_equal(stripped(&sum.content), content);
    else
        assert_string_equal(sum.content.data, content);
    assert_string_equal(sum.calls.data, calls.data);
    assert_string_equal(sum.finish, s->finish);
    assert_int_equal(sum.some_thinking, at(m, "reasoning_content") != NULL);
    if (sum.some_thinking)
        assert_string_equal(sum.thinking.data, json_str(at(m, "reasoning_content")));
    json_put(m);
    free(members);
    buf_free(&message);
    buf_free(&calls);
    buf_free(&sum.content);
    buf_free(&sum.thinking);
    buf_free(&sum.calls);
}

static bool cut_in_call(const struct scene *s) {
    return strstr(s->more, "}}'") != NULL; /* the stop string of one scene */
}

static void test_stream(void **state) {
    struct fixture *f = *state;
    int32_t script[SCRIPT_MAX];
    for (size_t i = 0; i < N_SCENES; i++) {
        struct buf out = BUF_INIT, split = BUF_INIT;
        open_scene(f, &scenes[i]);
        struct infer_req *req = read_body(f, scenes[i].more, true);
        size_t n = script_of(scenes[i].text, script);
        run_split(f, req, script, n, SIZE_MAX, &out);
        if (!cut_in_call(&scenes[i])) check_stream(&scenes[i], &out);
        for (size_t k = 1; k < n; k++) {
            run_split(f, req, script, n, k, &split);
            assert_string_equal(split.data, out.data);
        }
        infer_req_destroy(&req);
        buf_free(&out);
        buf_free(&split);
    }
}

#define CALL_START "\"tool_calls\":[{\"index\":0,\"id\":\"@\",\"type\":\"function\",\"function\":"

/* The frames to the letter, once. */
static void test_frames(void **state) {
    struct fixture *f = *state;
    static const struct scene s = {.tools = "hermes"};
    int32_t script[SCRIPT_MAX];
    struct buf out = BUF_INIT, want = BUF_INIT;
    open_scene(f, &s);
    struct infer_req *req = read_body(f, TOOLS, true);
    size_t n = script_of("<tool_call>{\"name\":\"f\",\"arguments\":{}", script);
    run_split(f, req, script, n, SIZE_MAX, &out);
    static const char *const deltas[] = {
        "\"content\":\"\"",
        CALL_START "{\"name\":\"f\",\"arguments\":\"\"}}]",
        "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]",
        "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]",
    };
    for (size_t i = 0; i < 4; i++)
        buf_printf(&want,
                   "data: {\"id\":\"endpoint_common_17\",\"object\":\"chat.completion.chunk\","
                   "\"created\":1770000000,\"model\":\"qwen\",\"choices\":[{\"index\":0,\"delta\":{"
                   "\"role\":\"assistant\",%s},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                   deltas[i]);
    char *id = strstr(out.data, "call_");
    assert_non_null(id);
    char *mark = strchr(want.data, '@');
    struct buf full = BUF_INIT;
    buf_append(&full, want.data, (size_t)(mark - want.data));
    buf_append(&full, id, 13);
    buf_puts(&full, mark + 1);
    assert_memory_equal(out.data, full.data, full.len);
    assert_non_null(strstr(out.data + full.len, "\"finish_reason\":\"tool_calls\",\"stop_reason\":"
                                                "null}]}\n\ndata: [DONE]\n\n"));
    infer_req_destroy(&req);
    buf_free(&out);
    buf_free(&want);
    buf_free(&full);
}

static void test_null_content(void **state) {
    struct fixture *f = *state;
    static const struct scene s = {.tools = "hermes"};
    int32_t script[SCRIPT_MAX];
    struct buf out = BUF_INIT;
    f->conf.error_style = ERROR_STYLE_OPENAI;
    open_scene(f, &s);
    struct infer_req *req = read_body(f, TOOLS, false);
    size_t n = script_of(CALL_F, script);
    run_split(f, req, script, n, SIZE_MAX, &out);
    assert_non_null(strstr(out.data, "\"content\":null,\"tool_calls\":[{"));
    infer_req_destroy(&req);
    f->conf.error_style = ERROR_STYLE_MINDIE;
    buf_free(&out);
}

/* ---- guides */

#define LIT(s)          "{'type':'literal','value':'" s "'}"
#define SEQ(items)      "{'type':'sequence','items':[" items "]}"
#define ANY(items)      "{'type':'any_of','items':[" items "]}"
#define MANY(item, sep) "{'type':'repeat','item':" item ",'min':1,'separator':" LIT(sep) "}"
#define OBJ             "{'type':'json_schema','schema':{'type':'object'}}"
#define HERMES(name)                                                                               \
    SEQ(LIT("<tool_call>\\n{\\'name\\': \\'") "," LIT(name) "," LIT(                               \
        "\\', \\'arguments\\': ") "," OBJ "," LIT("}\\n</tool_call>"))
#define LLAMA(name)                                                                                \
    SEQ(LIT("{\\'name\\': \\'") "," LIT(name) "," LIT("\\', \\'parameters\\': ") "," OBJ           \
                                                                                 "," LIT("}"))
#define MISTRAL(name)                                                                              \
    SEQ(LIT("{\\'name\\': \\'") "," LIT(name) "," LIT("\\', \\'arguments\\': ") "," OBJ            \
                                                                                "," LIT("}"))
#define CHANNEL(name)                                                                              \
    SEQ(LIT("<|channel|>commentary to=functions.") "," LIT(name) "," LIT(                          \
        " <|constrain|>json<|message|>") "," OBJ)
#define FINAL    SEQ(LIT("<|channel|>final<|message|>") ",{'type':'json_object'}")
#define NAMED_F  ",'tool_choice':{'type':'function','function':{'name':'f'}}"
#define FORMAT   ",'response_format':{'type':'json_object'}"
#define REQUIRED ",'tool_choice':'required'"
#define LINES    "{'type':'regex','value':'\\\\n{0,2}'}"
#define BUDGET   ",'chat_template_kwargs':{'enable_thinking':true,'thinking_budget':5}"

#define THOUGHT(more)                                                                              \
    "{'type':'after','text':'<|end|>','never':['<|start|>','<|message|>','<|channel|>',"           \
    "'<|constrain|>','<|return|>','<|call|>']," more "}"

static const struct guide_row {
    const char *tools, *thinking, *more, *guide; /* guide NULL: none */
} guides[] = {
    {"hermes", NULL, TOOLS, NULL},
    {"hermes", NULL, TOOLS NAMED_F, SEQ(ANY(HERMES("f")))},
    {"hermes", NULL, TOOLS REQUIRED, SEQ(MANY(ANY(HERMES("f") "," HERMES("g")), "\\n"))},
    {"hermes", NULL, TOOLS REQUIRED ",'parallel_tool_calls':false",
     SEQ(ANY(HERMES("f") "," HERMES("g")))},
    {"none", NULL, TOOLS NAMED_F, SEQ(ANY(HERMES("f")))},
    {"llama3", NULL, TOOLS REQUIRED, SEQ(MANY(ANY(LLAMA("f") "," LLAMA("g")), "; "))},
    {"mistral", NULL, TOOLS NAMED_F, SEQ(LIT("[TOOL_CALLS][") "," ANY(MISTRAL("f")) "," LIT("]"))},
    {"llama4", NULL, TOOLS NAMED_F, SEQ(ANY(LLAMA("f")))},
    {"chatglm", NULL, TOOLS NAMED_F, SEQ(ANY(SEQ(LIT("f") "," LIT("\\n") "," OBJ)))},
    {
        "harmony",
        NULL,
        TOOLS OURS_TEMPLATE REQUIRED,
        ANY(SEQ(ANY(CHANNEL("f") "," CHANNEL("g"))) "," SEQ(
            LIT("<|channel|>analysis<|message|>") "," THOUGHT("'then':" SEQ(
                LIT("<|start|>assistant") "," SEQ(ANY(CHANNEL("f") "," CHANNEL("g"))))))),
    },
    {"harmony", NULL, ANALYSIS_TEMPLATE FORMAT,
     THOUGHT("'then':" SEQ(LIT("<|start|>assistant") "," FINAL))},
    {"harmony", NULL, ANALYSIS_TEMPLATE FORMAT BUDGET,
     THOUGHT("'budget':5,'then':" SEQ(LIT("<|start|>assistant") "," FINAL))},
    {"harmony", NULL, ANALYSIS_TEMPLATE, NULL},
    {"harmony", NULL, OURS_TEMPLATE FORMAT,
     ANY(FINAL "," SEQ(LIT("<|channel|>analysis<|message|>") "," THOUGHT(
         "'then':" SEQ(LIT("<|start|>assistant") "," FINAL))))},
    {"harmony", NULL, FORMAT, "{'type':'json_object'}"},
    /* not forced: the format is that of plain content, arguments are any object */
    {"llama3", NULL, ",'tools':[" TOOL("f", ",'parameters':{'nonsense':1}") "]" FORMAT,
     ANY("{'type':'json_object'}," SEQ(
         MANY(ANY(SEQ(LIT("{\\'name\\': \\'") "," LIT("f") "," LIT(
                  "\\', \\'parameters\\': ") ",{'type':'json_object'}," LIT("}"))),
              "; ")))},
    {"none", NULL, TOOLS FORMAT, "{'type':'json_object'}"},
    {"llama3", NULL, TOOLS FORMAT ",'tool_choice':'none'", "{'type':'json_object'}"},
    {"llama3", NULL, TOOLS FORMAT NAMED_F, SEQ(ANY(LLAMA("f")))},
    /* thinking comes first */
    {NULL, "qwen3", "", NULL},
    {NULL, "qwen3", OPEN_TEMPLATE BUDGET, "{'type':'after','text':'</think>','budget':5}"},
    {NULL, "qwen3", BUDGET, SEQ(LIT("<think>") ",{'type':'after','text':'</think>','budget':5}")},
    {NULL, "qwen3", SHUT_TEMPLATE BUDGET, NULL},
    {NULL, NULL, BUDGET, NULL},
    {"hermes", "deepseek_r1", TOOLS NAMED_F,
     "{'type':'after','text':'</think>','then':" SEQ(LINES "," SEQ(ANY(HERMES("f")))) "}"},
    {"hermes", "qwen3", TOOLS NAMED_F,
     ANY(SEQ(ANY(HERMES("f"))) "," SEQ(
         LIT("<think>") ",{'type':'after','text':'</think>','then':" SEQ(
             LINES "," SEQ(ANY(HERMES("f")))) "}"))},
};

static void test_guides(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(guides) / sizeof(guides[0]); i++) {
        const struct guide_row *g = &guides[i];
        open_scene(f, &(struct scene){.tools = g->tools, .thinking = g->thinking});
        struct infer_req *req = read_body(f, g->more, false);
        if (g->guide == NULL) {
            assert_null(req->guide);
        } else {
            char *text = unquote(g->guide);
            struct json_value *want = parse(text, strlen(text));
            assert_non_null(req->guide);
            assert_string_equal(req->guide, text_of(want));
            json_put(want);
            free(text);
        }
        infer_req_destroy(&req);
    }
}

/* The arguments' schema is the tool's own; an object where it says nothing. */
static void test_schemas(void **state) {
    struct fixture *f = *state;
    static const char *const rows[][2] = {
        {",'parameters':{'type':'object','properties':{'a':{'type':'integer'}}}",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}"},
        {",'parameters':{'properties':{}}", "{\"properties\":{},\"type\":\"object\"}"},
        {",'parameters':{}", "{\"type\":\"object\"}"},
        {",'parameters':null", "{\"type\":\"object\"}"},
        {",'parameters':{'$ref':'#/$defs/x','$defs':{'x':{'type':'object'}}}",
         "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"object\"}}}"},
    };
    open_scene(f, &(struct scene){.tools = "hermes"});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf more = BUF_INIT, want = BUF_INIT;
        buf_printf(&more, ",'tools':[{'type':'function','function':{'name':'f'%s}}]" REQUIRED,
                   rows[i][0]);
        struct infer_req *req = read_body(f, more.data, false);
        buf_printf(&want, "{\"type\":\"json_schema\",\"schema\":%s}", rows[i][1]);
        if (strstr(req->guide, want.data) == NULL) fail_msg("%s\n%s", req->guide, want.data);
        infer_req_destroy(&req);
        buf_free(&more);
        buf_free(&want);
    }
}

/* ---- options and checks */

static void test_options(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *parser, *more;
        enum tool_format tools;
        bool forced, parallel;
    } rows[] = {
        {NULL, TOOLS, TOOLS_NONE, false, true}, /* the fixture's template has no tags */
        {"auto", TOOLS, TOOLS_NONE, false, true},
        {NULL, TOOLS REQUIRED, TOOLS_HERMES, true, true},
        {"llama3", TOOLS, TOOLS_LLAMA3, false, true},
        {"llama3", TOOLS ",'parallel_tool_calls':false", TOOLS_LLAMA3, false, false},
        {"llama3", TOOLS ",'tool_choice':'none'", TOOLS_NONE, false, true},
        {"llama3", TOOLS ",'tool_choice':'auto'", TOOLS_LLAMA3, false, true},
        {"llama3", TOOLS ",'tool_choice':{'type':'allowed_tools'}", TOOLS_LLAMA3, false, true},
        {"llama3", ",'tools':[]", TOOLS_NONE, false, true},
        {"llama3", ",'tools':null,'tool_choice':null", TOOLS_NONE, false, true},
        /* a template of the request's own */
        {NULL, TOOLS ",'chat_template':'[TOOL_CALLS]{{ 1 }}'", TOOLS_MISTRAL, false, true},
        {"llama3", TOOLS ",'chat_template':'{{ 1 }}'", TOOLS_LLAMA3, false, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        open_scene(f, &(struct scene){.tools = rows[i].parser});
        struct infer_req *req = read_body(f, rows[i].more, false);
        assert_int_equal(req->answer.tools, rows[i].tools);
        assert_int_equal(req->answer.tools_forced, rows[i].forced);
        assert_int_equal(req->answer.parallel_tools, rows[i].parallel);
        infer_req_destroy(&req);
    }
}

/* Mistral's templates refuse ids that are not nine characters long. */
static void test_mistral_ids(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *parser, *prompt;
    } rows[] = {{"mistral", "_ABCDEFGH _ABCDEFGH"}, {"hermes", "call_ABCDEFGH call_ABCDEFGH"}};
    static const char body[] =
        "{'model':'qwen','messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls'"
        ":[{'id':'call_ABCDEFGH','type':'function','function':{'name':'f','arguments':'{}'}}]},"
        "{'role':'tool','tool_call_id':'call_ABCDEFGH','content':'1'}],"
        "'chat_template':'{{ messages[1].tool_calls[0].id }} {{ messages[2].tool_call_id }}'}";
    for (size_t i = 0; i < 2; i++) {
        struct infer_req *req;
        struct api_answer err;
        struct buf prompt = BUF_INIT;
        char *plain = unquote(body);
        open_scene(f, &(struct scene){.tools = rows[i].parser});
        if (!fixture_read(f, PATH, plain, &req, &err)) fail_msg("%s", err.body.data);
        assert_int_equal(tokenizer_decode(f->tok, req->ids, req->n_ids, false, &prompt), ERR_OK);
        assert_string_equal(prompt.data, rows[i].prompt);
        infer_req_destroy(&req);
        free(plain);
        buf_free(&prompt);
    }
}

static void test_parser_names(void **state) {
    struct fixture *f = *state;
    struct endpoint *ep = NULL;
    struct errbuf eb = {0};
    struct endpoint_conf conf = f->conf;
    conf.tool_call_parser = "hermes2";
    conf.reasoning_parser = NULL;
    assert_int_equal(endpoint_create(&ep, &conf, f->tok, &f->model, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "toolCallParser"));
    conf.tool_call_parser = NULL;
    conf.reasoning_parser = "qwen";
    assert_int_equal(endpoint_create(&ep, &conf, f->tok, &f->model, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "reasoningParser"));
    assert_null(ep);
}

static void test_checks(void **state) {
    struct fixture *f = *state;
    static const struct row rows[] = {
        {HEAD TOOLS ",'parallel_tool_calls':1}", 422, "parallel_tool_calls must be boolean type."},
        {HEAD TOOLS ",'parallel_tool_calls':null}", 200, ""},
        {HEAD REQUIRED "}", 422, "tool_choice required is only allowed when tools are given"},
        {HEAD NAMED_F "}", 422, "Tool param invalid function object"},
        {HEAD ",'tool_choice':'auto'}", 200, ""},
        {HEAD ",'include_reasoning':'x'}", 422, "include_reasoning must be boolean type."},
        {HEAD TOOLS ",'tool_choice':'any'}", 422,
         "Parameter tool_choice string not in [none, auto, required]"},
        {HEAD TOOLS ",'tool_choice':[]}", 422, "Parameter tool_choice not string or object"},
    };
    open_scene(f, &(struct scene){.tools = "hermes"});
    run_rows(f, PATH, rows, sizeof(rows) / sizeof(rows[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_stream),
        cmocka_unit_test(test_frames),      cmocka_unit_test(test_null_content),
        cmocka_unit_test(test_guides),      cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_options),     cmocka_unit_test(test_parser_names),
        cmocka_unit_test(test_mistral_ids), cmocka_unit_test(test_checks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
