/* Goal:   a request goes on at another pair wherever its client was left: what the client has, and
 * what the later attempt says, are the whole answer; and the tokens reported of both are those of
 * one attempt. Records that cannot be of the request are refused by name, and leave nothing behind.
 * Method: as decode_choices_test.c. A calm run is cut behind P's piece and behind each frame; the
 * record of that point goes with the body to P again, with the next epoch. */
#include "tests/unit/decode/lanes.h"

static bool fact_over(void *arg) {
    struct flight *x = arg;
    return x->answered &&
           (x->n_ends > 0 || x->status != 200 || strstr(x->body, "\"isLastResp\":true") != NULL);
}

static size_t n_frames(const struct flight *x) {
    return x->frames.len / sizeof(struct left_at);
}

/* What the client of x has after P's piece and n of D's frames: *t, and the text. */
static void left_after(const struct flight *x, size_t n, struct transcript *t, char *text,
                       size_t cap) {
    static char output[65536];
    struct left_at at = {0};
    if (n > 0) memcpy(&at, x->frames.data + (n - 1) * sizeof(at), sizeof(at));
    *t = TRANSCRIPT_INIT;
    assert_int_equal(transcript_open(t, x->sent.n_parts, x->sent.n_choices), ERR_OK);
    add_from_p(x, t);
    add_from_d(x, t, at.n_tokens);
    t->seed = 77;
    t->created_unix_s = 1770000000;
    for (uint32_t i = 0; i < t->n_parts; i++) t->cached_tokens[i] = 3 + i;
    member(x, "output", output, sizeof(output));
    snprintf(text, cap, "%s%.*s", output, (int)at.n_text, at.n_text > 0 ? x->text.data : "");
}

/* The record of an attempt that goes on behind *t: the two lists of tokens, one behind the other.
 */
static void add_sent(struct transcript *t, const struct flight *x) {
    for (size_t i = 0; i < (size_t)t->n_parts * t->n_choices; i++)
        for (uint32_t k = 0; k < x->sent.choices[i].n_ids; k++) {
            const struct transcript_choice *c = &x->sent.choices[i];
            const struct emitted e = {.id = c->ids[k],
                                      .choice = (uint16_t)i,
                                      .finish =
                                          (uint8_t)(k + 1 == c->n_ids ? c->finish : FINISH_NONE)};
            assert_int_equal(transcript_add(t, &e), ERR_OK);
        }
}

static void expect_joined(const struct flight *x, char *text, size_t cap, struct transcript *t,
                          const char *want) {
    static char output[65536], sorted[65536], wanted[65536], v[64];
    static struct flight whole;
    assert_int_equal(x->status, 200);
    member(x, "output", output, sizeof(output));
    size_t used = strlen(text);
    snprintf(text + used, cap - used, "%s%s", output, x->text.data != NULL ? x->text.data : "");
    in_lanes(text, (int)t->n_choices, sorted, sizeof(sorted));
    in_lanes(want, (int)t->n_choices, wanted, sizeof(wanted));
    assert_string_equal(sorted, wanted);
    add_sent(t, x);
    whole.sent = *t;
    if (t->n_parts * t->n_choices > 1) expect_tokens(&whole, text);
    assert_true(transcript_has_ended(t));
    member(x, "created", v, sizeof(v));
    assert_string_equal(v, "1770000000");
    member(x, "seed", v, sizeof(v));
    assert_string_equal(v, "77");
    assert_non_null(strstr(x->body, t->n_parts == 1   ? "\"cachedTokens\":[3],"
                                    : t->n_parts == 2 ? "\"cachedTokens\":[3,4],"
                                                      : "\"cachedTokens\":[3,4,5],"));
}

static const int lengths[] = {9, 1, BT, 4 * BT + 1};

static int one_instance; /* prestate: with one instance that is both */

static void goes_on_wherever_it_was_left(void **state) {
    static char body[4096], text[65536];
    static int32_t tokens[TOKENS_MAX];
    static const struct {
        int choices, parts, stop; /* stop: which token of the last choice is a stop string */
    } kinds[] = {{1, 1, -1}, {1, 1, 5}, {3, 1, -1}, {1, 3, -1}, {2, 2, 2}, {2, 3, -1}};
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        struct cluster c;
        struct buf want = BUF_INIT;
        int choices = kinds[kind].choices, parts = kinds[kind].parts, stop = kinds[kind].stop;
        size_t n;
        body_of(body, sizeof(body), 1, 12, -1, choices, lengths, parts, (int)kind);
        fake_expected(body, BT, &want, tokens, &n);
        if (stop >= 0 && (size_t)stop < n) {
            body_of(body, sizeof(body), 1, 12, tokens[stop], choices, lengths, parts, (int)kind);
            buf_clear(&want);
            fake_expected(body, BT, &want, tokens, &n);
        }
        either_up(&c, state, &roomy, &roomy);
        struct flight *calm = post(&c, "a0", body);
        WAIT_FOR(&c, fact_over, calm);
        assert_true(n_frames(calm) > 3 && n_frames(calm) < FLIGHTS_MAX);
        for (size_t cut = 0; cut < n_frames(calm); cut++) {
            struct transcript sent;
            char id[32];
            left_after(calm, cut, &sent, text, sizeof(text));
            snprintf(id, sizeof(id), "b%zu", cut);
            struct flight *x = post_again(&c, id, 1, body, &sent);
            WAIT_FOR(&c, fact_over, x);
            expect_joined(x, text, sizeof(text), &sent, want.data);
            transcript_free(&sent);
        }
        WAIT_FOR(&c, fact_idle, &c);
        cluster_down(&c);
        buf_free(&want);
    }
}

/* The first attempt still runs when the later one comes, which is left and followed by a third. */
static void attempt_after_attempt(void **state) {
    (void)state;
    static char text[65536];
    const char *body = "1 30 -1 0 0 *2 : 5 6 8 9 11";
    static int32_t tokens[TOKENS_MAX];
    struct buf want = BUF_INIT;
    struct cluster c;
    size_t n;
    fake_expected(body, BT, &want, tokens, &n);
    cluster_up(&c, &roomy, &roomy);
    hold(&c.d, true);
    struct flight *x = post(&c, "a1", body);
    WAIT_FOR(&c, fact_d_offered, &c);
    struct transcript sent = TRANSCRIPT_INIT;
    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        for (uint64_t until = clock_ms() + DEADLINE_MS; !fact_some_frames(x);) {
            allow(&c.d, 1);
            (void)wait_ms(c.loop, fact_some_frames, x, 2);
            assert_true(clock_ms() < until);
        }
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->n_ends, 0);
        struct transcript now;
        static char piece[65536];
        left_after(x, n_frames(x), &now, piece, sizeof(piece));
        if (epoch == 1)
            snprintf(text, sizeof(text), "%s", piece);
        else
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", piece);
        if (epoch > 1) {
            const struct flight part = {.sent = now};
            add_sent(&sent, &part);
            transcript_free(&now);
        } else {
            sent = now;
        }
        x = post_again(&c, "a1", epoch, body, &sent);
    }
    hold(&c.d, false);
    WAIT_FOR(&c, fact_over, x);
    expect_joined(x, text, sizeof(text), &sent, want.data);
    transcript_free(&sent);
    buf_free(&want);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* One that answers in one piece tells its tokens in bundles, and goes on behind them: its text has
 * all of them all the same. Behind none it begins again, with the seed and the clock of the first
 * attempt. */
static void whole_answers_go_on(void **state) {
    static char text[65536];
    static const char *const bodies[] = {"0 80 -1 0 0 : 5 6 8 9 11",
                                         "0 80 -1 1 0 *2 : 5 6 8 | 9 11", "0 8 -1 1 0 : 5 6 8"};
    for (size_t i = 0; i < 3; i++) {
        static int32_t tokens[TOKENS_MAX];
        struct buf want = BUF_INIT;
        struct cluster c;
        size_t n;
        fake_expected(bodies[i], BT, &want, tokens, &n);
        either_up(&c, state, &roomy, &roomy);
        struct flight *calm = post(&c, "a0", bodies[i]);
        WAIT_FOR(&c, fact_over, calm);
        const size_t n_bundles = n_frames(calm) - 1;
        if (i == 0) assert_in_range(n_bundles, 2, 6); /* 80 / 32; more when it was slow */
        if (i == 1) assert_in_range(n_bundles, 8, 40);
        for (size_t cut = 0; cut <= n_bundles; cut++) {
            struct transcript sent;
            char id[32];
            left_after(calm, cut, &sent, text, sizeof(text));
            assert_true(sent.n_ids >= (i == 1 ? 4 : 1) && text[0] == '\0');
            if (cut == n_bundles && i < 2) assert_true(sent.n_ids > 60);
            snprintf(id, sizeof(id), "b%zu", cut);
            struct flight *x = post_again(&c, id, 1, bodies[i], &sent);
            WAIT_FOR(&c, fact_over, x);
            text[0] = '\0';
            static char sorted[65536], wanted[65536];
            in_lanes(x->text.data, (int)sent.n_choices, sorted, sizeof(sorted));
            in_lanes(want.data, (int)sent.n_choices, wanted, sizeof(wanted));
            assert_string_equal(sorted, wanted);
            add_sent(&sent, x);
            assert_int_equal(sent.n_ids, n * sent.n_parts * sent.n_choices);
            assert_true(transcript_has_ended(&sent));
            transcript_free(&sent);
        }
        buf_free(&want);
        WAIT_FOR(&c, fact_idle, &c);
        cluster_down(&c);
    }
}

/* Only the last token of the first prompt is missing, and P makes it while the other prompt is
 * still being computed: the answer has what is said of that one as well. */
static void ends_behind_every_prompt(void **state) {
    static char text[65536], body[4096];
    static int32_t tokens[TOKENS_MAX];
    static const int short_and_long[] = {1, 200};
    struct buf want = BUF_INIT;
    struct cluster c;
    struct transcript all, sent;
    size_t n;
    body_of(body, sizeof(body), 0, 6, -1, 1, short_and_long, 2, 5);
    fake_expected(body, BT, &want, tokens, &n);
    either_up(&c, state, &roomy, &roomy);
    struct flight *calm = post(&c, "a0", body);
    WAIT_FOR(&c, fact_over, calm);
    left_after(calm, n_frames(calm), &all, text, sizeof(text));
    assert_true(transcript_has_ended(&all));
    left_after(calm, 0, &sent, text, sizeof(text)); /* the first token of each */
    for (uint16_t choice = 0; choice < 2; choice++) {
        const struct transcript_choice *from = &all.choices[choice];
        for (uint32_t k = 1; k < from->n_ids - (choice == 0 ? 1 : 0); k++) {
            const struct emitted e = {
                .id = from->ids[k],
                .choice = choice,
                .finish = (uint8_t)(k + 1 == from->n_ids ? from->finish : FINISH_NONE)};
            assert_int_equal(transcript_add(&sent, &e), ERR_OK);
        }
    }
    struct flight *x = post_again(&c, "b0", 1, body, &sent);
    WAIT_FOR(&c, fact_over, x);
    member(x, "output", text, sizeof(text));
    const char *got = x->text.len > 0 ? x->text.data : text;
    assert_string_equal(strstr(got, "[end:"), strstr(want.data, "[end:"));
    transcript_free(&all);
    transcript_free(&sent);
    buf_free(&want);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* What is missing ends with its first tokens: P answers alone, behind what was sent. */
static void p_ends_it(void **state) {
    (void)state;
    static const struct {
        const char *body;
        uint32_t parts, choices;
    } rows[] = {{"1 1 -1 0 0 *2 : 5 6 8", 1, 2}, {"1 1 -1 0 0 : 5 6 8 | 9 11", 2, 1}};
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    for (size_t i = 0; i < 2; i++) {
        static char text[65536], v[64];
        static int32_t tokens[TOKENS_MAX];
        struct buf want = BUF_INIT;
        struct transcript sent = TRANSCRIPT_INIT;
        size_t n;
        unsigned part, choice;
        int id;
        fake_expected(rows[i].body, BT, &want, tokens, &n);
        assert_int_equal(sscanf(want.data, "%u.%u<%d>", &part, &choice, &id), 3);
        assert_int_equal(transcript_open(&sent, rows[i].parts, rows[i].choices), ERR_OK);
        sent.seed = 77;
        sent.created_unix_s = 1770000000;
        for (uint32_t k = 0; k < rows[i].parts; k++) sent.cached_tokens[k] = 3 + k;
        assert_int_equal(
            transcript_add(&sent, &(struct emitted){.id = id, .finish = FINISH_LENGTH}), ERR_OK);
        snprintf(text, sizeof(text), "0.0<%d>(1:length)", id);
        struct flight *x = post_again(&c, i == 0 ? "a0" : "a1", 1, rows[i].body, &sent);
        WAIT_FOR(&c, fact_over, x);
        member(x, "isLastResp", v, sizeof(v));
        assert_string_equal(v, "true");
        expect_joined(x, text, sizeof(text), &sent, want.data);
        assert_int_equal(x->n_frames, 0);
        transcript_free(&sent);
        buf_free(&want);
        WAIT_FOR(&c, fact_idle, &c);
    }
    cluster_down(&c);
}

/* ---- while the answer is made */

static bool fact_waits(void *arg) {
    (void)arg;
    return atomic_load(&fake_replay_waits) != 0;
}

/* A later attempt of one choice whose answer is being made, at P or at D, and stays so until the
 * gate opens. */
static struct flight *stay(struct cluster *c, bool at_d, const char *body,
                           struct transcript *sent) {
    *sent = TRANSCRIPT_INIT;
    assert_int_equal(transcript_open(sent, 1, 1), ERR_OK);
    static int32_t tokens[TOKENS_MAX];
    struct buf ignored = BUF_INIT;
    size_t n;
    fake_expected(body, BT, &ignored, tokens, &n);
    buf_free(&ignored);
    assert_true(n > 8);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(transcript_add(sent, &(struct emitted){.id = tokens[i]}), ERR_OK);
    pthread_mutex_lock(&fake_replay_gate);
    atomic_store(&fake_replay_waits, 0);
    atomic_store(&fake_replay_waits_at, at_d ? 2 : 1);
    hold(&c->d, true); /* so that D is at its first steps then */
    struct flight *x = post_again(c, "a1", 1, body, sent);
    for (uint64_t until = clock_ms() + DEADLINE_MS; !fact_waits(NULL);) {
        allow(&c->d, 1);
        (void)wait_ms(c->loop, fact_waits, NULL, 2);
        assert_true(clock_ms() < until);
    }
    return x;
}

static void every_end_while_the_answer_is_made(void **state) {
    (void)state;
    enum { GOES_ON, CLIENT_GONE, STOP, NEWER, ENGINE_FAILS, ABORT_ALL, ROLE_STOPS, ENDS };
    const char *body = "1 30 -1 0 0 : 5 6 8 9 11";
    for (int end = 0; end < ENDS; end++)
        for (int at_d = 0; at_d <= 1; at_d++) {
            struct cluster c;
            struct transcript sent;
            cluster_up(&c, &roomy, &roomy);
            struct flight *x = stay(&c, at_d, body, &sent);
            struct instance *in = at_d ? &c.d : &c.p;
            if (end == ENGINE_FAILS) fake_engine_fail_next(c.d.engine);
            hold(&c.d, false);
            if (at_d) WAIT_FOR(&c, fact_answered, x);
            if (end == CLIENT_GONE) http_call_cancel(&x->call);
            if (end == STOP) assert_true(req_set_stop(in->reqs, "a1", NULL, UINT32_MAX));
            struct flight *y = end == NEWER ? post_epoch(&c, "a1", 2, body) : NULL;
            if (y != NULL) WAIT_FOR(&c, fact_over, y);
            if (end == ENGINE_FAILS && at_d) { /* in the framing of a stream that has begun */
                WAIT_FOR(&c, fact_ended, x);
                assert_int_equal(x->end, DR_ERROR);
                assert_string_equal(x->text.data, "event: 500 Failed to get engine response.");
            }
            if (end == ABORT_ALL) req_set_abort(in->reqs, ROLE_NONE, ERR_STOPPING);
            if (end == ROLE_STOPS) in->ops->stop(&in->role);
            /* D has made what it can before its answer is there */
            if (end == GOES_ON && at_d) (void)wait_ms(c.loop, fact_ended, x, 50);
            pthread_mutex_unlock(&fake_replay_gate);
            if (end == GOES_ON || (at_d && end == CLIENT_GONE)) {
                struct buf want = BUF_INIT;
                static char text[4096];
                static int32_t tokens[TOKENS_MAX];
                size_t n, used = 0;
                WAIT_FOR(&c, fact_over, x);
                fake_expected(body, BT, &want, tokens, &n);
                for (int i = 0; i < 3; i++)
                    used += (size_t)snprintf(text + used, sizeof(text) - used, "<%d>", tokens[i]);
                snprintf(text + used, sizeof(text) - used, "%s", x->text.data);
                assert_string_equal(text, want.data);
                buf_free(&want);
            }
            if (at_d && end == STOP) { /* ends as an answer does */
                WAIT_FOR(&c, fact_ended, x);
                assert_int_equal(x->end, DR_LAST);
                assert_non_null(strstr(x->text.data, ":abort:"));
            }
            WAIT_FOR(&c, fact_idle, &c);
            transcript_free(&sent);
            cluster_down(&c);
        }
}

/* ---- records that are not of the request */

struct bad {
    const char *body, *length; /* length: of the header; NULL: the record's */
    uint32_t parts, choices;
    int32_t ids[4];
    size_t n_ids;
    enum finish finish;
    size_t cut; /* bytes left out at the end */
    const char *text;
};

static struct flight *post_bad(struct cluster *c, const struct bad *b) {
    char target[64], length[64];
    struct transcript t = TRANSCRIPT_INIT;
    struct wr w = WR_INIT;
    assert_int_equal(transcript_open(&t, b->parts, b->choices), ERR_OK);
    for (size_t i = 0; i < b->n_ids; i++) {
        const struct emitted e = {.id = b->ids[i],
                                  .finish = (uint8_t)(i + 1 == b->n_ids ? b->finish : 0)};
        assert_int_equal(transcript_add(&t, &e), ERR_OK);
    }
    wr_bytes(&w, b->body, strlen(b->body));
    transcript_pack(&w, &t);
    w.len -= b->cut;
    snprintf(target, sizeof(target), "d-target: 127.0.0.1;%u", kv_plane_port(c->d.kv_plane));
    snprintf(length, sizeof(length), REPLAY_HEADER ": %zu", w.len - strlen(b->body));
    if (b->length != NULL) snprintf(length, sizeof(length), REPLAY_HEADER ": %s", b->length);
    const char *const headers[] = {"req-type: prefill", "req-id: e1", target, length, NULL};
    struct flight *x = post_bytes(c, headers, b->body, w.data, w.len);
    transcript_free(&t);
    wr_free(&w);
    return x;
}

static void strangers_are_refused(void **state) {
    (void)state;
    struct cluster c;
    static const char one[] = "1 8 -1 0 0 : 5 6 8", two[] = "1 8 -1 0 0 *2 : 5 6 | 8";
    static const struct bad cases[] = {
        {one,
         "99999",
         1,
         1,
         {5},
         1,
         FINISH_NONE,
         0,
         "Parameter baton-replay must be at most the 57 bytes of the body but got 99999"},
        {one,
         "4200001",
         1,
         1,
         {5},
         1,
         FINISH_NONE,
         0,
         "Parameter baton-replay must be an integer from 1 to 4200000 but got 4200001"},
        {one, NULL, 1, 1, {5}, 1, FINISH_NONE, 1, "it ends before the tokens of a choice"},
        {one,
         NULL,
         1,
         2,
         {5},
         1,
         FINISH_NONE,
         0,
         "replay record: it has 2 choices of each of 1 prompts, but the request has 1 of 1"},
        {one,
         NULL,
         2,
         1,
         {5},
         1,
         FINISH_NONE,
         0,
         "replay record: it has 1 choices of each of 2 prompts, but the request has 1 of 1"},
        {two,
         NULL,
         2,
         1,
         {5},
         1,
         FINISH_NONE,
         0,
         "replay record: it has 1 choices of each of 2 prompts, but the request has 2 of 2"},
        {one, NULL, 1, 1, {5, 1000}, 2, FINISH_NONE, 0, "replay record: token 1 is 1000"},
        {one, "12", 1, 1, {5}, 1, FINISH_NONE, 0, "replay record: "},
        {"nonsense", NULL, 1, 1, {5}, 1, FINISH_NONE, 0, "bad body"},
    };
    cluster_up(&c, &roomy, &roomy);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct flight *x = post_bad(&c, &cases[i]);
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, strcmp(cases[i].text, "bad body") == 0 ? 422 : 400);
        if (strstr(x->body, cases[i].text) == NULL) fail_msg("%s lacks %s", x->body, cases[i].text);
        WAIT_FOR(&c, fact_idle, &c);
    }
    struct flight *x = post(&c, "f1", one);
    WAIT_FOR(&c, fact_over, x);
    assert_int_equal(x->status, 200);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_wherever_it_was_left),
        cmocka_unit_test_prestate(goes_on_wherever_it_was_left, &one_instance),
        cmocka_unit_test(attempt_after_attempt),
        cmocka_unit_test(whole_answers_go_on),
        cmocka_unit_test_prestate(whole_answers_go_on, &one_instance),
        cmocka_unit_test(ends_behind_every_prompt),
        cmocka_unit_test_prestate(ends_behind_every_prompt, &one_instance),
        cmocka_unit_test(p_ends_it),
        cmocka_unit_test(every_end_while_the_answer_is_made),
        cmocka_unit_test(strangers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
