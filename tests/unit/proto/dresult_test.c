/* Goal: frames of both versions survive packing and parsing, whatever the cuts of the byte stream,
 * and damage is refused. Method: a list of frames with every kind and odd bodies; every cut
 * position; every truncation; broken heads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/dresult.h"
#include "proto/limits.h"

static const struct emitted tokens[] = {
    {.id = 0}, {.id = 320, .choice = 1023}, {.id = 2147483647, .choice = 7, .finish = 6}};
static const struct dresult_frame frames[] = {
    {.kind = DR_DATA,
     .req_id = "123",
     .epoch = 7,
     .seq = 0,
     .tokens = tokens,
     .n_tokens = 3,
     .body = "data: {\"a\":1}\n\n",
     .body_len = 15},
    {.kind = DR_HEARTBEAT, .req_id = "-", .body = ""},
    {.kind = DR_DATA, .req_id = "123", .epoch = 7, .seq = 1, .body = "", .body_len = 0},
    {.kind = DR_LAST,
     .req_id = "18446744073709551614",
     .epoch = 4294967295u,
     .seq = 18446744073709551615u,
     .tokens = tokens,
     .n_tokens = 1,
     .body = "x y:z",
     .body_len = 5},
    {.kind = DR_ERROR, .req_id = "9", .status = 424, .body = "{}", .body_len = 2},
    {.kind = DR_ERROR,
     .req_id = "9",
     .status = 503,
     .cause = CAUSE_D_STOPPING,
     .body = "{}",
     .body_len = 2},
    {.kind = DR_ERROR, .req_id = "9", .cause = CAUSE_D_LOST, .body = "{}", .body_len = 2},
    {.kind = DR_RETRY, .req_id = "9", .body = "{\"inputs\":\"2,1,2\"}", .body_len = 18},
    {.kind = DR_CLOSE,
     .req_id = DRESULT_CLOSE_ID,
     .body = DRESULT_CLOSE_TEXT,
     .body_len = sizeof(DRESULT_CLOSE_TEXT) - 1},
};
enum { N = sizeof(frames) / sizeof(frames[0]) };

struct seen {
    int version;
    size_t n;
};

static enum err check(void *arg, const struct dresult_frame *f) {
    struct seen *s = arg;
    const struct dresult_frame *want = &frames[s->n++ % N];
    assert_int_equal(f->version, s->version);
    assert_int_equal(f->kind, want->kind);
    assert_string_equal(f->req_id, want->req_id);
    assert_int_equal(f->body_len, want->body_len);
    assert_memory_equal(f->body, want->body, want->body_len);
    if (s->version == 2) {
        assert_int_equal(f->epoch, want->epoch);
        assert_true(f->seq == want->seq);
        assert_int_equal(f->status, want->status);
        assert_int_equal(f->cause, want->cause);
        assert_int_equal(f->n_tokens, want->n_tokens);
        for (size_t i = 0; i < want->n_tokens; i++) {
            assert_int_equal(f->tokens[i].id, want->tokens[i].id);
            assert_int_equal(f->tokens[i].choice, want->tokens[i].choice);
            assert_int_equal(f->tokens[i].finish, want->tokens[i].finish);
        }
    }
    return ERR_OK;
}

static struct wr all(int version) {
    struct wr w = WR_INIT;
    for (size_t i = 0; i < N; i++) assert_int_equal(dresult_pack(&w, version, &frames[i]), ERR_OK);
    return w;
}

static void any_cut_gives_the_same_frames(void **state) {
    (void)state;
    for (int version = 1; version <= 2; version++) {
        struct wr w = all(version);
        for (size_t cut = 0; cut <= w.len; cut++) {
            struct dresult_parser *p;
            struct seen s = {version, 0};
            assert_int_equal(dresult_parser_create(&p, version, 1000), ERR_OK);
            assert_int_equal(dresult_parser_feed(p, (char *)w.data, cut, check, &s), ERR_OK);
            assert_int_equal(dresult_parser_feed(p, (char *)w.data + cut, w.len - cut, check, &s),
                             ERR_OK);
            assert_int_equal(s.n, N);
            dresult_parser_destroy(&p);
        }
        struct dresult_parser *p;
        struct seen s = {version, 0};
        assert_int_equal(dresult_parser_create(&p, version, 1000), ERR_OK);
        for (size_t i = 0; i < w.len; i++)
            assert_int_equal(dresult_parser_feed(p, (char *)w.data + i, 1, check, &s), ERR_OK);
        assert_int_equal(s.n, N);
        dresult_parser_destroy(&p);
        wr_free(&w);
    }
}

static enum err never(void *arg, const struct dresult_frame *f) {
    (void)arg, (void)f;
    fail();
    return ERR_OK;
}

static void a_truncated_frame_is_not_delivered(void **state) {
    (void)state;
    for (int version = 1; version <= 2; version++) {
        struct wr w = WR_INIT;
        assert_int_equal(dresult_pack(&w, version, &frames[0]), ERR_OK);
        for (size_t n = 0; n < w.len; n++) {
            struct dresult_parser *p;
            assert_int_equal(dresult_parser_create(&p, version, 1000), ERR_OK);
            assert_int_equal(dresult_parser_feed(p, (char *)w.data, n, never, NULL), ERR_OK);
            dresult_parser_destroy(&p);
        }
        wr_free(&w);
    }
}

static void refuses(int version, const char *bytes, size_t n, enum err want) {
    struct dresult_parser *p;
    assert_int_equal(dresult_parser_create(&p, version, 64), ERR_OK);
    assert_int_equal(dresult_parser_feed(p, bytes, n, never, NULL), want);
    dresult_parser_destroy(&p);
}

static void damage_is_refused(void **state) {
    (void)state;
    refuses(1, "hello\0", 6, ERR_BAD_FRAME);
    refuses(1, "reqId:\0data:x\0", 14, ERR_BAD_FRAME);
    refuses(1, "reqId:1\0data\0", 13, ERR_BAD_FRAME);
    refuses(2, "0000000G ", 9, ERR_BAD_FRAME);
    refuses(2, "00000001-x", 10, ERR_BAD_FRAME);
    refuses(2, "00000041 ", 9, ERR_TOO_LARGE); /* 65: one over the limit of 64 */
    static const char *const bodies[] = {"1 0 0 data",
                                         "1 x 0 data b",
                                         "1 0 -1 data b",
                                         "1 4294967296 0 data b",
                                         "1 0 18446744073709551616 data b",
                                         "1 0 0 data;1,,2 b",
                                         "1 0 0 data; b",
                                         "1 0 0 data;1, b",
                                         "1 0 0 data;2147483648 b",
                                         "1 0 0 error;status=99 b",
                                         "1 0 0 error;status=600 b",
                                         "1 0 0 error;status=503;later=1 b",
                                         "1 0 0 error;status=503; b",
                                         "1 0 0 error;status=503;cause= b",
                                         " 0 0 data b"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        char line[128];
        int n = snprintf(line, sizeof(line), "%08zx %s", strlen(bodies[i]), bodies[i]);
        refuses(2, line, (size_t)n, ERR_BAD_FRAME);
    }
    char flood[4096];
    memset(flood, 'x', sizeof(flood)); /* a version 1 frame that never ends */
    refuses(1, flood, sizeof(flood), ERR_TOO_LARGE);
}

static void unknown_kinds_are_skipped(void **state) {
    (void)state;
    refuses(1, "reqId:1\0later:x\0", 16, ERR_OK);
    refuses(2, "0000000d 1 0 0 later b", 22, ERR_OK);
}

static void what_cannot_be_packed_says_so(void **state) {
    (void)state;
    struct wr w = WR_INIT;
    assert_int_equal(
        dresult_pack(
            &w, 1,
            &(struct dresult_frame){.kind = DR_DATA, .req_id = "1", .body = "a\0b", .body_len = 3}),
        ERR_INVALID);
    /* vLLM's stream ends each frame with a NUL, and so does version 1 */
    assert_int_equal(dresult_pack(&w, 1,
                                  &(struct dresult_frame){
                                      .kind = DR_DATA, .req_id = "1", .body = "{}", .body_len = 3}),
                     ERR_OK);
    assert_int_equal(w.len, sizeof("reqId:1\0data:{}"));
    assert_memory_equal(w.data, "reqId:1\0data:{}", w.len);
    wr_clear(&w);
    assert_int_equal(
        dresult_pack(&w, 2, &(struct dresult_frame){.kind = DR_DATA, .req_id = "a b", .body = ""}),
        ERR_INVALID);
    assert_int_equal(
        dresult_pack(&w, 2, &(struct dresult_frame){.kind = DR_DATA, .req_id = "", .body = ""}),
        ERR_INVALID);
    assert_int_equal(dresult_pack(&w, 3, &frames[0]), ERR_INVALID);
    assert_int_equal(
        dresult_pack(&w, 2, &(struct dresult_frame){.kind = DR_NONE, .req_id = "1", .body = ""}),
        ERR_INVALID);
    assert_int_equal(w.len, 0);
    wr_free(&w);
}

struct joined {
    struct wr body;
    size_t n_tokens, n_frames;
    bool ended;
    enum dresult_kind kind;
};

static enum err join(void *arg, const struct dresult_frame *f) {
    struct joined *j = arg;
    assert_false(j->ended);
    assert_true(f->seq == 5 + j->n_frames);
    for (size_t i = 0; i < f->n_tokens; i++)
        assert_int_equal(f->tokens[i].id, (int)(j->n_tokens + i));
    wr_bytes(&j->body, f->body, f->body_len);
    j->n_tokens += f->n_tokens;
    j->n_frames++;
    j->ended = f->kind != DR_PART;
    j->kind = f->kind;
    return ERR_OK;
}

/* A piece of any size crosses in frames within the limit, as many as was said before. */
static void a_large_piece_crosses_in_parts(void **state) {
    static const size_t sizes[][2] = {{0, 0},       {1, 1},          {250000, 0},    {262144, 0},
                                      {262145, 10}, {3000000, 4097}, {5, 1 << 17},   {0, 4096},
                                      {0, 4097},    {261024, 0},     {261025, 4096}, {1 << 24, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n = sizes[i][0], n_tokens = sizes[i][1];
        char *body = malloc(n + 1);
        struct emitted *many = calloc(n_tokens + 1, sizeof(*many));
        assert_true(body != NULL && many != NULL);
        for (size_t k = 0; k < n; k++) body[k] = (char)(k * 2654435761u >> 13);
        for (size_t k = 0; k < n_tokens; k++) many[k].id = (int32_t)k;
        struct dresult_frame f = {.kind = DR_LAST,
                                  .req_id = "18446744073709551614",
                                  .epoch = UINT32_MAX,
                                  .seq = 5,
                                  .tokens = many,
                                  .n_tokens = n_tokens,
                                  .body = body,
                                  .body_len = n};
        struct joined j = {.body = WR_INIT};
        struct dresult_parser *p;
        assert_int_equal(dresult_parser_create(&p, 2, DRESULT_FRAME_BYTES_MAX), ERR_OK);
        struct dresult_cut cut = {0}, skipped;
        struct wr w = WR_INIT;
        while (!cut.done) {
            wr_clear(&w);
            assert_int_equal(dresult_pack_cut(&w, &f, &cut), ERR_OK);
            dresult_cut_skip(&f, cut.n_frames, &skipped);
            assert_int_equal(skipped.n_frames, cut.n_frames);
            assert_int_equal(skipped.body_at, cut.body_at);
            assert_int_equal(skipped.tokens_at, cut.tokens_at);
            assert_int_equal(skipped.done, cut.done);
            assert_true(w.len <= DRESULT_FRAME_BYTES_MAX + 9);
            assert_int_equal(dresult_parser_feed(p, (char *)w.data, w.len, join, &j), ERR_OK);
        }
        assert_true(j.ended);
        assert_int_equal(j.kind, DR_LAST);
        assert_int_equal(j.n_frames, dresult_n_frames(&f));
        assert_int_equal(j.n_tokens, n_tokens);
        assert_int_equal(j.body.len, n);
        if (n > 0) assert_memory_equal(j.body.data, body, n);
        dresult_parser_destroy(&p);
        wr_free(&w);
        wr_free(&j.body);
        free(body);
        free(many);
    }
}

/* Positions come back as they were put, until one does not fit; what is none ends the list. */
static void positions(void **state) {
    char text[64] = "";
    const char *at = text;
    struct dresult_position p;
    (void)state;
    assert_false(dresult_position_next(&at, &p));
    assert_true(dresult_position_put(text, sizeof(text), "1", 0, 0));
    assert_true(dresult_position_put(text, sizeof(text), "a,b", UINT32_MAX, UINT64_MAX));
    assert_false(dresult_position_put(text, sizeof(text), "a b", 0, 0));
    assert_false(dresult_position_put(text, sizeof(text), "123456789012345678901234", 0, 0));
    assert_string_equal(text, "1:0:0 a,b:4294967295:18446744073709551615");
    assert_true(dresult_position_next(&at, &p));
    assert_true(p.id_len == 1 && p.req_id[0] == '1' && p.epoch == 0 && p.seq == 0);
    assert_true(dresult_position_next(&at, &p));
    assert_true(p.id_len == 3 && memcmp(p.req_id, "a,b", 3) == 0);
    assert_true(p.epoch == UINT32_MAX && p.seq == UINT64_MAX);
    assert_false(dresult_position_next(&at, &p));
    static const char *const none[] = {" ",
                                       "1",
                                       "1:0",
                                       ":0:0",
                                       "1::0",
                                       "1:0:",
                                       "1:0:x",
                                       "1:-1:0",
                                       "1:0:0:",
                                       "1:4294967296:0",
                                       "1:0:18446744073709551616"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        at = none[i];
        assert_false(dresult_position_next(&at, &p));
    }
}

/* What no frame may be: too long for version 2, a part in version 1. */
static void what_is_no_frame(void **state) {
    (void)state;
    struct wr w = WR_INIT;
    struct dresult_frame f = {.kind = DR_LAST, .req_id = "1", .body_len = DRESULT_FRAME_BYTES_MAX};
    char *body = calloc(1, f.body_len);
    f.body = body;
    assert_int_equal(dresult_pack(&w, 2, &f), ERR_TOO_LARGE);
    assert_int_equal(w.len, 0);
    f = (struct dresult_frame){.kind = DR_PART, .req_id = "1", .body = ""};
    assert_int_equal(dresult_pack(&w, 1, &f), ERR_INVALID);
    assert_int_equal(dresult_pack(&w, 2, &f), ERR_OK);
    refuses(1, "reqId:1\0part:x\0", 15, ERR_OK); /* skipped like any unknown word */
    wr_free(&w);
    free(body);
}

/* ---- who comes */
enum { COMING = 100 };
struct coming {
    size_t n_heard, n_nobody, n_taken;
    unsigned long heard[COMING];
};

static void on_ahead(void *arg, const char *id, size_t id_len) {
    struct coming *c = arg;
    if (id == NULL) {
        c->n_nobody++;
        return;
    }
    assert_in_range(id_len, 1, 3);
    assert_true(c->n_heard < COMING);
    c->heard[c->n_heard++] = strtoul(id, NULL, 10);
}

static enum err take_coming(void *arg, const struct dresult_frame *f) {
    struct coming *c = arg;
    assert_in_range(c->n_heard, c->n_taken + 1, c->n_taken + DRESULT_AHEAD);
    assert_int_equal(c->heard[c->n_taken++], strtoul(f->req_id, NULL, 10));
    return ERR_OK;
}

static void hears(const struct wr *w, size_t part) {
    struct dresult_parser *p;
    struct coming c = {0};
    assert_int_equal(dresult_parser_create(&p, 2, 1000), ERR_OK);
    dresult_parser_ahead(p, on_ahead, &c);
    for (size_t at = 0; at < w->len; at += part) {
        const size_t n = part < w->len - at ? part : w->len - at;
        assert_int_equal(dresult_parser_feed(p, (char *)w->data + at, n, take_coming, &c), ERR_OK);
    }
    assert_int_equal(c.n_taken, COMING);
    assert_int_equal(c.n_heard, COMING);
    if (part == w->len) assert_int_equal(c.n_nobody, DRESULT_AHEAD - 1);
    dresult_parser_destroy(&p);
}

/* Every id is heard of before its frame is taken, never more than DRESULT_AHEAD before, wherever
 * the bytes are cut; and where nobody follows, that is said too. */
static void ids_come_ahead(void **state) {
    (void)state;
    struct wr w = WR_INIT;
    for (int i = 0; i < COMING; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        const struct dresult_frame f = {
            .kind = DR_DATA, .req_id = id, .body = "abc", .body_len = 3};
        assert_int_equal(dresult_pack(&w, 2, &f), ERR_OK);
    }
    for (size_t part = 1; part < w.len; part += part < 60 ? 1 : 97) hears(&w, part);
    hears(&w, w.len);
    wr_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same_frames),
        cmocka_unit_test(a_truncated_frame_is_not_delivered),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(unknown_kinds_are_skipped),
        cmocka_unit_test(what_cannot_be_packed_says_so),
        cmocka_unit_test(a_large_piece_crosses_in_parts),
        cmocka_unit_test(positions),
        cmocka_unit_test(what_is_no_frame),
        cmocka_unit_test(ids_come_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
