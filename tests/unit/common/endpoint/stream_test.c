/* Goal: whatever tokens and stop strings come, (1) the text of an answer is what a naive search
 * over the whole text gives, streaming or not; (2) a stream never shows text that could still
 * become a stop string, nor half a character, and holds back no more than that; (3) an answer is a
 * pure function of request and tokens: split at any token between two instances, or replayed after
 * a failure, its output is the same bytes. Method: random scripts of tokens with multi-byte
 * characters in pieces, random stop strings over the same letters. */
#include "tests/unit/common/endpoint/checks.h"

enum { ROUNDS = 400, SCRIPT_MAX = 24, STOPS_MAX = 4 };

static uint64_t rng = 0x9E3779B97F4A7C15u; /* fixed: a failing round prints its number */

static unsigned pick(unsigned n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (unsigned)(rng >> 33) % n;
}

static const char *const letters[] = {
    "a", "b", " ", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD"};
enum { N_LETTERS = sizeof(letters) / sizeof(letters[0]) };

struct scene {
    int32_t script[SCRIPT_MAX];
    size_t n_script;
    char stops[STOPS_MAX][32];
    size_t n_stops;
    bool include_stop, skip_special, ignore_eos;
    unsigned max_tokens, min_tokens;
    int stop_token; /* -1: none */
};

static void make_scene(struct scene *s) {
    memset(s, 0, sizeof(*s));
    while (s->n_script < SCRIPT_MAX) {
        static const int32_t words[] = {TOK_A, TOK_B, TOK_C, TOK_CONTROL, TOK_IM_END, TOK_EOS};
        unsigned kind = pick(10);
        if (kind < 6) { /* a letter, byte by byte */
            const char *l = letters[pick(N_LETTERS)];
            for (size_t i = 0; l[i] != '\0' && s->n_script < SCRIPT_MAX; i++)
                s->script[s->n_script++] = fixture_byte_id((unsigned char)l[i]);
        } else if (kind < 9) {
            s->script[s->n_script++] = words[pick(kind < 8 ? 4 : 6)];
        } else { /* half of something */
            s->script[s->n_script++] = fixture_byte_id(0x80 + pick(128));
        }
    }
    s->n_stops = pick(STOPS_MAX + 1);
    for (size_t i = 0; i < s->n_stops; i++)
        for (unsigned k = 1 + pick(5); k > 0; k--) strcat(s->stops[i], letters[pick(N_LETTERS)]);
    s->include_stop = pick(2);
    s->skip_special = pick(2);
    s->ignore_eos = pick(2);
    s->max_tokens = 1 + pick(SCRIPT_MAX);
    s->min_tokens = pick(3) == 0 ? pick(8) : 0;
    s->stop_token = pick(4) == 0 ? TOK_C : -1;
}

/* The request of a family for this scene; parameters it has no names for are set directly, as one
 * from the wire would have them. */
static struct infer_req *scene_req(struct fixture *f, const struct scene *s, const char *path,
                                   const char *body) {
    struct infer_req *req;
    struct api_answer err;
    char *plain = unquote(body);
    if (!fixture_read(f, path, plain, &req, &err)) fail_msg("%s", err.body.data);
    free(plain);
    req->head.created_unix_s = 1770000000;
    req->stop = calloc(STOPS_MAX, sizeof(char *));
    for (size_t i = 0; i < s->n_stops; i++) req->stop[req->n_stop++] = strdup(s->stops[i]);
    req->answer.include_stop = s->include_stop;
    req->answer.skip_special = s->skip_special;
    req->sampling.ignore_eos = s->ignore_eos;
    req->sampling.new_tokens_max = (int32_t)s->max_tokens;
    req->sampling.new_tokens_min =
        (int32_t)(s->min_tokens < s->max_tokens ? s->min_tokens : s->max_tokens);
    if (s->stop_token >= 0) {
        req->sampling.stop_token_ids = malloc(sizeof(int32_t));
        req->sampling.stop_token_ids[0] = s->stop_token;
        req->sampling.n_stop_token_ids = 1;
    }
    return req;
}

/* ---- the naive reference */

struct reference {
    struct buf text;
    size_t shown[SCRIPT_MAX]; /* bytes of text that may be visible after each token */
    size_t n_tokens;
    enum finish finish;
};

static void append_clean(struct buf *text, const struct buf *piece) {
    for (size_t i = 0; i < piece->len; i++) {
        unsigned char c = (unsigned char)piece->data[i];
        if ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\r' || c == '\t')
            buf_putc(text, (char)c);
    }
}

/* The longest end of the text that begins some stop string, by trying every length. */
static size_t could_become(const struct scene *s, const struct buf *text) {
    for (size_t n = 31; n > 0; n--)
        for (size_t i = 0; i < s->n_stops; i++)
            if (n <= text->len && n < strlen(s->stops[i]) &&
                memcmp(text->data + text->len - n, s->stops[i], n) == 0)
                return n;
    return 0;
}

static bool find_stop(const struct scene *s, const struct buf *text, size_t old, size_t *start,
                      size_t *end) {
    bool found = false;
    for (size_t at = 0; at < text->len && !found; at++) {
        for (size_t i = 0; i < s->n_stops; i++) {
            size_t n = strlen(s->stops[i]);
            if (at + n > text->len || at + n <= old || memcmp(text->data + at, s->stops[i], n) != 0)
                continue;
            if (!found || at + n > *end) *end = at + n;
            *start = at;
            found = true;
        }
    }
    return found;
}

static void naive(struct fixture *f, const struct scene *s, const struct infer_req *req,
                  struct reference *ref) {
    struct detok *d;
    struct buf piece = BUF_INIT;
    memset(ref, 0, sizeof(*ref));
    buf_reserve(&ref->text, 1);
    assert_int_equal(detok_create(&d, f->tok, s->skip_special), ERR_OK);
    while (ref->finish == FINISH_NONE) {
        struct token_event ev = fixture_event(req, s->script, s->n_script, ref->n_tokens);
        size_t old = ref->text.len, start = 0, end = 0;
        bool silent = (ev.finish == FINISH_EOS && s->skip_special) ||
                      (ev.finish == FINISH_STOP_TOKEN && !s->include_stop);
        buf_clear(&piece);
        if (!silent) detok_feed(d, ev.id, &piece);
        if (ev.finish != FINISH_NONE) detok_flush(d, &piece);
        append_clean(&ref->text, &piece);
        ref->n_tokens++;
        ref->finish = ev.finish;
        if ((int32_t)ref->n_tokens >= req->sampling.new_tokens_min &&
            find_stop(s, &ref->text, old, &start, &end)) {
            ref->text.len = s->include_stop ? end : start;
            ref->finish = FINISH_STOP_STRING;
        }
        ref->shown[ref->n_tokens - 1] =
            ref->text.len - (ref->finish == FINISH_NONE ? could_become(s, &ref->text) : 0);
    }
    buf_free(&piece);
    detok_destroy(&d);
}

/* ---- reading what the families wrote */

enum shape {
    SHAPE_TGI,
    SHAPE_VLLM,
    SHAPE_CHAT,
    SHAPE_COMPLETIONS,
    SHAPE_TRITON,
    SHAPE_NATIVE,
    N_SHAPES
};

static const struct family_case {
    const char *path, *stream_body, *whole_path, *whole_body, *frame;
} cases[N_SHAPES] = {
    [SHAPE_TGI] = {"/generate_stream", "{'inputs':'x'}", "/generate", "{'inputs':'x'}", "data: "},
    [SHAPE_VLLM] = {"/generate", "{'prompt':'x','stream':true}", "/generate", "{'prompt':'x'}", ""},
    [SHAPE_CHAT] = {"/v1/chat/completions",
                    "{'model':'qwen','messages':[{'role':'user','content':'x'}],'stream':true}",
                    "/v1/chat/completions",
                    "{'model':'qwen','messages':[{'role':'user','content':'x'}]}", "data: "},
    [SHAPE_COMPLETIONS] = {"/v1/completions",
                           "{'model':'qwen','prompt':'x','stream':true,'logprobs':2}",
                           "/v1/completions", "{'model':'qwen','prompt':'x','logprobs':2}",
                           "data: "},
    [SHAPE_TRITON] = {"/v2/models/qwen/generate_stream",
                      "{'text_input':'x','parameters':{'details':true,'perf_stat':true}}",
                      "/v2/models/qwen/generate",
                      "{'text_input':'x','parameters':{'details':true}}", "data:"},
    [SHAPE_NATIVE] = {"/infer", "{'inputs':'x','stream':true,'parameters':{'details':true}}",
                      "/infer", "{'inputs':'x','parameters':{'details':true}}", "data: "},
};

static const char *string_at(struct json_value *o, const char *key, size_t *n) {
    const char *s = "";
    *n = 0;
    json_get_str(o, key, &s, n);
    return s;
}

/* The delta text of one event; Native has none in its last. */
static const char *event_text(enum shape shape, struct json_value *o, size_t *n) {
    struct json_value *v = NULL, *in = NULL;
    switch (shape) {
    case SHAPE_TGI:
    case SHAPE_NATIVE: json_get_obj(o, "token", &v); return string_at(v, "text", n);
    case SHAPE_VLLM: {
        const char *s = "";
        json_get_arr(o, "text", &v);
        json_as_str(json_arr_at(v, 0), &s, n);
        return s;
    }
    case SHAPE_CHAT:
        json_get_arr(o, "choices", &v);
        json_get_obj(json_arr_at(v, 0), "delta", &in);
        return string_at(in, "content", n);
    case SHAPE_COMPLETIONS:
        json_get_arr(o, "choices", &v);
        return string_at(json_arr_at(v, 0), "text", n);
    case SHAPE_TRITON: return string_at(o, "text_output", n);
    default: return "";
    }
}

/* Appends the texts of the events in out[0..n) to text. Every event is JSON, so never half a
 * character. */
static void collect(enum shape shape, const char *p, size_t n, struct buf *text) {
    const char *end = p + n, *frame = cases[shape].frame;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        struct json_value *o = NULL;
        struct errbuf eb;
        size_t len;
        assert_non_null(stop);
        assert_memory_equal(p, frame, strlen(frame));
        p += strlen(frame);
        if (strncmp(p, "[DONE]", 6) != 0) {
            if (json_read(&o, p, (size_t)(stop - p), NULL, &eb) != ERR_OK)
                fail_msg("%s in %.*s", eb.text, (int)(stop - p), p);
            const char *s = event_text(shape, o, &len);
            buf_append(text, s, len);
            json_put(o);
        }
        p = stop;
        while (p < end && *p == '\n') p++;
    }
}

static void check_text(const struct buf *got, const struct buf *want, unsigned round,
                       const char *what) {
    if (got->len != want->len || (got->len > 0 && memcmp(got->data, want->data, got->len) != 0))
        fail_msg("round %u, %s: got \"%.*s\", expected \"%.*s\"", round, what, (int)got->len,
                 got->data != NULL ? got->data : "", (int)want->len, want->data);
}

static void check_stream(struct fixture *f, enum shape shape, const struct scene *s, unsigned round,
                         struct buf *whole) {
    struct infer_req *req = scene_req(f, s, cases[shape].path, cases[shape].stream_body);
    struct reference ref;
    struct answer *a;
    struct buf text = BUF_INIT;
    enum finish fin = FINISH_NONE;
    naive(f, s, req, &ref);
    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
    assert_string_equal(answer_content_type(a), "text/event-stream");
    buf_clear(whole);
    for (size_t i = 0; fin == FINISH_NONE; i++) {
        struct token_event ev = fixture_event(req, s->script, s->n_script, i);
        size_t before = whole->len;
        fin = answer_token(a, 0, &ev, whole);
        if (whole->len > before) collect(shape, whole->data + before, whole->len - before, &text);
        struct buf shown = {.data = ref.text.data, .len = ref.shown[i]};
        if (shape != SHAPE_NATIVE || fin == FINISH_NONE)
            check_text(&text, &shown, round, cases[shape].path);
    }
    assert_int_equal(fin, ref.finish);
    assert_int_equal(answer_n_tokens(a), ref.n_tokens);
    buf_free(&text);
    buf_free(&ref.text);
    answer_destroy(&a);
    infer_req_destroy(&req);
}

static void check_whole(struct fixture *f, enum shape shape, const struct scene *s,
                        unsigned round) {
    struct infer_req *req = scene_req(f, s, cases[shape].whole_path, cases[shape].whole_body);
    struct reference ref;
    struct buf out = BUF_INIT, text = BUF_INIT;
    struct json_value *o, *v, *in = NULL;
    const char *p = "";
    size_t n = 0;
    naive(f, s, req, &ref);
    assert_int_equal(fixture_run(f, req, s->script, s->n_script, &out), ref.finish);
    assert_int_equal(json_read(&o, out.data, out.len, NULL, NULL), ERR_OK);
    switch (shape) {
    case SHAPE_TGI:
    case SHAPE_NATIVE: p = string_at(o, "generated_text", &n); break;
    case SHAPE_VLLM: /* prompt and a space stand before it */
        p = event_text(shape, o, &n);
        p += 2;
        n -= 2;
        break;
    case SHAPE_CHAT:
        json_get_arr(o, "choices", &v);
        json_get_obj(json_arr_at(v, 0), "message", &in);
        p = string_at(in, "content", &n);
        break;
    default: p = event_text(shape, o, &n); break;
    }
    buf_append(&text, p, n);
    check_text(&text, &ref.text, round, cases[shape].whole_path);
    json_put(o);
    buf_free(&text);
    buf_free(&out);
    buf_free(&ref.text);
    infer_req_destroy(&req);
}

static void text_is_naive_text(void **state) {
    struct fixture *f = *state;
    struct scene s;
    struct buf out = BUF_INIT;
    for (unsigned round = 0; round < ROUNDS; round++) {
        make_scene(&s);
        for (enum shape shape = 0; shape < N_SHAPES; shape++) {
            check_stream(f, shape, &s, round, &out);
            check_whole(f, shape, &s, round);
        }
    }
    buf_free(&out);
}

/* Steps that give several tokens: the families with an event for each token write what they write
 * anyway, the others one event a step; what is visible after a step is the same. */
static void one_event_for_each_step(void **state) {
    struct fixture *f = *state;
    struct buf single = BUF_INIT, steps = BUF_INIT;
    size_t n_joined = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct scene s;
        make_scene(&s);
        uint64_t from = rng;
        for (enum shape shape = 0; shape < N_SHAPES; shape++) {
            bool each = shape == SHAPE_TGI || shape == SHAPE_TRITON || shape == SHAPE_NATIVE;
            struct infer_req *req = scene_req(f, &s, cases[shape].path, cases[shape].stream_body);
            struct reference ref;
            struct answer *a;
            struct buf text = BUF_INIT;
            naive(f, &s, req, &ref);
            rng = from; /* the same steps for every family */
            assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
            buf_clear(&steps);
            for (size_t i = 0; i < ref.n_tokens; i++) {
                struct token_event ev = fixture_event(req, s.script, s.n_script, i);
                size_t before = steps.len;
                ev.more = ev.finish == FINISH_NONE && pick(3) > 0;
                enum finish fin = answer_token(a, 0, &ev, &steps);
                if (steps.len > before)
                    collect(shape, steps.data + before, steps.len - before, &text);
                if (!each && ev.more && fin == FINISH_NONE) {
                    assert_int_equal(steps.len, before);
                    n_joined++;
                    continue;
                }
                struct buf shown = {.data = ref.text.data, .len = ref.shown[i]};
                if (shape != SHAPE_NATIVE || fin == FINISH_NONE)
                    check_text(&text, &shown, round, cases[shape].path);
            }
            assert_true(answer_done(a));
            if (each) {
                buf_clear(&single);
                fixture_run(f, req, s.script, s.n_script, &single);
                assert_int_equal(single.len, steps.len);
                assert_memory_equal(single.data, steps.data, steps.len);
            }
            answer_destroy(&a);
            buf_free(&text);
            buf_free(&ref.text);
            infer_req_destroy(&req);
        }
    }
    assert_true(n_joined > ROUNDS);
    buf_free(&single);
    buf_free(&steps);
}

/* P writes the pieces of the first tokens, D those of the rest after feeding the first ones for
 * nothing. */
static void split_at_every_token(void **state) {
    struct fixture *f = *state;
    struct scene s;
    struct buf whole = BUF_INIT, joined = BUF_INIT, discard = BUF_INIT;
    for (unsigned round = 0; round < ROUNDS / 8; round++) {
        make_scene(&s);
        for (unsigned kind = 0; kind < 2 * N_SHAPES; kind++) {
            enum shape shape = kind / 2;
            bool stream = kind % 2 == 0;
            struct infer_req *req =
                scene_req(f, &s, stream ? cases[shape].path : cases[shape].whole_path,
                          stream ? cases[shape].stream_body : cases[shape].whole_body);
            struct answer *a;
            buf_clear(&whole);
            fixture_run(f, req, s.script, s.n_script, &whole);
            struct reference ref;
            naive(f, &s, req, &ref);
            for (size_t at = 0; at < ref.n_tokens; at++) {
                buf_clear(&joined);
                for (int half = 0; half < 2; half++) {
                    assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
                    for (size_t i = 0; i < (half == 0 ? at : ref.n_tokens); i++) {
                        struct token_event ev = fixture_event(req, s.script, s.n_script, i);
                        answer_token(a, 0, &ev, half == 1 && i < at ? &discard : &joined);
                    }
                    answer_destroy(&a);
                }
                assert_int_equal(joined.len, whole.len);
                assert_memory_equal(joined.data, whole.data, whole.len);
            }
            buf_free(&ref.text);
            infer_req_destroy(&req);
        }
    }
    buf_free(&whole);
    buf_free(&joined);
    buf_free(&discard);
}

/* A replay brings the tokens so far in the request; the stream goes on as if nothing had happened.
 * Log-probabilities and times of tokens before the failure are lost, so families that repeat those
 * are left out. */
static void replay_after_every_token(void **state) {
    static const enum shape shapes[] = {SHAPE_CHAT, SHAPE_VLLM, SHAPE_TGI};
    struct fixture *f = *state;
    struct scene s;
    struct buf before = BUF_INIT, after = BUF_INIT, whole = BUF_INIT;
    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        make_scene(&s);
        for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
            struct infer_req *req =
                scene_req(f, &s, cases[shapes[k]].path, cases[shapes[k]].stream_body);
            struct reference ref;
            naive(f, &s, req, &ref);
            buf_clear(&whole);
            fixture_run(f, req, s.script, s.n_script, &whole);
            for (size_t at = 0; at < ref.n_tokens; at++) {
                struct answer *a;
                buf_clear(&before);
                assert_int_equal(answer_create(&a, f->ep, req), ERR_OK);
                for (size_t i = 0; i < at; i++) {
                    struct token_event ev = fixture_event(req, s.script, s.n_script, i);
                    answer_token(a, 0, &ev, &before);
                }
                answer_destroy(&a);
                struct infer_req *again =
                    scene_req(f, &s, cases[shapes[k]].path, cases[shapes[k]].stream_body);
                again->ids = realloc(again->ids, (again->n_prompt + at + 1) * sizeof(int32_t));
                for (size_t i = 0; i < at; i++)
                    again->ids[again->n_ids++] = s.script[i % s.n_script];
                buf_clear(&after);
                fixture_run(f, again, s.script, s.n_script, &after);
                assert_int_equal(before.len + after.len, whole.len);
                if (before.len > 0) assert_memory_equal(before.data, whole.data, before.len);
                assert_memory_equal(after.data, whole.data + before.len, after.len);
                infer_req_destroy(&again);
            }
            buf_free(&ref.text);
            infer_req_destroy(&req);
        }
    }
    buf_free(&before);
    buf_free(&after);
    buf_free(&whole);
}

/* fullTextEnabled: each event shows all text so far, so the last one shows what a whole answer has.
 */
static void full_text(void **state) {
    struct fixture *f = *state;
    struct scene s;
    struct buf out = BUF_INIT, last = BUF_INIT;
    f->conf.full_text = true;
    fixture_open(f);
    for (unsigned round = 0; round < ROUNDS / 8; round++) {
        make_scene(&s);
        struct infer_req *req =
            scene_req(f, &s, cases[SHAPE_VLLM].path, cases[SHAPE_VLLM].stream_body);
        struct reference ref;
        naive(f, &s, req, &ref);
        buf_clear(&out);
        fixture_run(f, req, s.script, s.n_script, &out);
        const char *p = out.data;
        for (const char *end; (end = memchr(p, '\n', out.len - (size_t)(p - out.data))) != NULL &&
                              end + 1 < out.data + out.len;)
            p = end + 1;
        buf_clear(&last);
        collect(SHAPE_VLLM, p, out.len - (size_t)(p - out.data), &last);
        check_text(&last, &ref.text, round, "full text");
        buf_free(&ref.text);
        infer_req_destroy(&req);
    }
    f->conf.full_text = false;
    fixture_open(f);
    buf_free(&out);
    buf_free(&last);
}

static int setup_newline(void **state) {
    setup(state);
    struct fixture *f = *state;
    f->conf.vllm_delimiter = '\n'; /* so that every family's stream has lines */
    fixture_open(f);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_naive_text),
        cmocka_unit_test(one_event_for_each_step),
        cmocka_unit_test(split_at_every_token),
        cmocka_unit_test(replay_after_every_token),
        cmocka_unit_test(full_text),
    };
    return cmocka_run_group_tests(tests, setup_newline, teardown);
}
