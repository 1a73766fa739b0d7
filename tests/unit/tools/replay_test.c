/* Goal: a request is asked again with the seed that was drawn for it, in the place of its family;
 * two runs are the same when clients were sent the same tokens, however these came and whatever was
 * lost on the way, and what differs is named. Method: recordings written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/replay_run.h"

#define START                                                                                      \
    "{\"event\":\"start\",\"us\":0,\"version\":1,\"policy\":\"load_balance\",\"limitDemand\":"     \
    "true,"                                                                                        \
    "\"resLimitRate\":1.1,\"coefficients\":[0,0.22,1024,24,6,0,1,0,1]}\n"
#define ASKED(id, body)                                                                            \
    "{\"event\":\"request\",\"us\":5,\"id\":\"" id "\",\"path\":\"/v1/completions\","              \
    "\"tenant\":\"t\",\"stream\":true,\"body\":\"" body "\"}\n"
#define FIRST(id, seed, tokens)                                                                    \
    "{\"event\":\"first\",\"us\":6,\"id\":\"" id "\",\"epoch\":0,\"seed\":\"" seed                 \
    "\",\"tokens\":\"" tokens "\"}\n"
#define TOKENS(id, tokens)                                                                         \
    "{\"event\":\"tokens\",\"us\":7,\"id\":\"" id "\",\"epoch\":0,\"tokens\":\"" tokens "\"}\n"
#define LOST(id, kept)                                                                             \
    "{\"event\":\"lost\",\"us\":8,\"id\":\"" id "\",\"epoch\":0,\"cause\":\"d_lost\",\"p\":1,"     \
    "\"d\":2,\"kept\":" kept "}\n"
#define END(id, status)                                                                            \
    "{\"event\":\"end\",\"us\":9,\"id\":\"" id "\",\"status\":" status                             \
    ",\"cause\":\"none\",\"attempts\":1}\n"
#define VIEW(id, peer)                                                                             \
    "{\"id\":" id                                                                                  \
    ",\"group\":0,\"open\":true,\"prefillTokens\":0,\"prefillRate\":0.0,\"links\":1,"              \
    "\"pass\":0.0,\"slotsTotal\":4,\"blocksTotal\":40,\"slotsBooked\":0,\"blocksBooked\":0,"       \
    "\"blocksAvail\":40,\"tokenSum\":0.0,\"peers\":[" peer "]}"
#define DECIDED(id, choice)                                                                        \
    "{\"event\":\"decision\",\"us\":5,\"id\":\"" id "\",\"epoch\":0,\"prompts\":1,\"slots\":1,"    \
    "\"blocks\":1,\"promptTokens\":3,\"avoidP\":0,\"avoidD\":0,\"turn\":0,\"p\":[" VIEW(           \
        "1", "2,3") "],\"d\":[" VIEW("2", "1") "," VIEW("3", "1") "],\"choice\":" choice "}\n"
#define CLOSED "{\"event\":\"closed\",\"us\":9,\"why\":\"stopped\"}\n"

static char file[64];

static enum err try_read(struct run **out, const char *text, struct errbuf *eb) {
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    return run_read(out, file, NULL, eb);
}

static struct run *read_text(const char *text) {
    struct run *run;
    struct errbuf eb = {0};
    if (try_read(&run, text, &eb) != ERR_OK) fail_msg("%s", eb.text);
    return run;
}

/* ---- seeds */

static void a_seed_goes_where_its_family_has_it(void **state) {
    static const struct {
        const char *path, *body, *want;
    } rows[] = {
        {"/v1/completions", "{\"prompt\":\"a\"}", "{\"seed\":7,\"prompt\":\"a\"}"},
        {"/v1/chat/completions", "{}", "{\"seed\":7}"},
        {"/v1/completions", " { \"seed\" : null , \"n\":2}", " { \"seed\" : 7 , \"n\":2}"},
        {"/v1/completions", "{\"seed\":-1}", "{\"seed\":7}"},
        {"/v1/completions", "{\"seed\":5}", "{\"seed\":5}"},
        {"/v1/completions", "{\"parameters\":{\"seed\":5}}",
         "{\"seed\":7,\"parameters\":{\"seed\":5}}"},
        {"/generate", "{\"prompt\":\"a\"}", "{\"seed\":7,\"prompt\":\"a\"}"},
        {"/generate", "{\"inputs\":\"a\"}", "{\"parameters\":{\"seed\":7},\"inputs\":\"a\"}"},
        {"/generate", "{\"inputs\":\"a\",\"parameters\":{}}",
         "{\"inputs\":\"a\",\"parameters\":{\"seed\":7}}"},
        {"/infer", "{\"parameters\":{\"top_k\":3}}", "{\"parameters\":{\"seed\":7,\"top_k\":3}}"},
        {"/infer", "{\"parameters\":{\"seed\":3}}", "{\"parameters\":{\"seed\":3}}"},
        {"/infer", "{\"parameters\":{\"seed\":null}}", "{\"parameters\":{\"seed\":7}}"},
        {"/infer", "{\"parameters\":null,\"seed\":[{}]}",
         "{\"parameters\":{\"seed\":7},\"seed\":[{}]}"},
        {"/v2/models/m/generate", "{\"text_input\":\"a\"}",
         "{\"parameters\":{\"seed\":7},\"text_input\":\"a\"}"},
        {"/v1/completions", "[1]", "[1]"},
        {"/v1/completions", "{\"a\":", "{\"a\":"},
        {"/v1/completions", "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf b = BUF_INIT;
        struct run_request r = {.path = (char *)(uintptr_t)rows[i].path,
                                .body = (char *)(uintptr_t)rows[i].body,
                                .n = strlen(rows[i].body),
                                .n_json = strlen(rows[i].body),
                                .has_seed = true,
                                .seed = 7};
        size_t n_json = 0;
        assert_true(run_body(&b, &n_json, &r));
        assert_string_equal(b.len > 0 ? b.data : "", rows[i].want);
        assert_int_equal(n_json, strlen(rows[i].want));
        buf_clear(&b);
        r.has_seed = false;
        assert_true(run_body(&b, &n_json, &r));
        assert_string_equal(b.len > 0 ? b.data : "", rows[i].body);
        buf_free(&b);
    }
}

/* The seed goes into the JSON, whose length grows by it; none where the request may have its own.
 */
static void tensors_stay_behind_the_json(void **state) {
    static const struct {
        const char *json, *want;
    } rows[] = {
        {"{}", "{\"parameters\":{\"seed\":7}}"},
        {"{\"inputs\":[{\"name\":\"seed\"}]}", "{\"inputs\":[{\"name\":\"seed\"}]}"},
        {"{\"parameters\":{\"random_seed\":3}}", "{\"parameters\":{\"random_seed\":3}}"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf body = BUF_INIT, out = BUF_INIT;
        size_t n_json = 0;
        const size_t n = strlen(rows[i].json), n_want = strlen(rows[i].want);
        buf_puts(&body, rows[i].json);
        buf_append(&body, "seed\0{}\xff", 8);
        const struct run_request r = {.path = "/v2/models/m/infer",
                                      .body = body.data,
                                      .n = n + 8,
                                      .n_json = n,
                                      .has_tensors = true,
                                      .has_seed = true,
                                      .seed = 7};
        assert_true(run_body(&out, &n_json, &r));
        assert_int_equal(n_json, n_want);
        assert_int_equal(out.len, n_want + 8);
        assert_memory_equal(out.data, rows[i].want, n_want);
        assert_memory_equal(out.data + n_want, "seed\0{}\xff", 8);
        buf_free(&body);
        buf_free(&out);
    }
}

/* ---- runs */

static void decisions_are_taken_again(void **state) {
    struct run *run = read_text(START ASKED("9", "{}") DECIDED("9", "[1,2]") CLOSED);
    (void)state;
    assert_int_equal(run->n_decisions, 1);
    assert_int_equal(run->n_wrong, 0);
    assert_int_equal(run->requests[0]->p, 1);
    assert_int_equal(run->requests[0]->d, 2);
    assert_string_equal(run->closed, "stopped");
    run_free(&run);
    run = read_text(START DECIDED("9", "[1,3]") DECIDED("9", "null"));
    assert_int_equal(run->n_decisions, 2);
    assert_int_equal(run->n_wrong, 2);
    assert_string_equal(run->wrong, "request 9, attempt 1, at 0.000005 s: recorded P 1 and D 3, "
                                    "now P 1 and D 2");
    assert_string_equal(run->closed, "");
    run_free(&run);
}

static void is_wrong(const char *text, const char *why) {
    struct run *run;
    struct errbuf eb = {0};
    const enum err e = try_read(&run, text, &eb);
    assert_true(e == ERR_INVALID || e == ERR_BAD_JSON);
    assert_null(run);
    if (strstr(eb.text, why) == NULL) fail_msg("\"%s\" is not in \"%s\"", why, eb.text);
}

static void what_is_no_recording_is_refused(void **state) {
    struct run *run;
    struct errbuf eb = {0};
    (void)state;
    is_wrong("", "it is empty");
    is_wrong("hello\n", "line 1");
    is_wrong(CLOSED, "line 1: a recording has one start");
    is_wrong(START START, "line 2: a recording has one start");
    is_wrong("{\"event\":\"start\",\"us\":0,\"version\":2}\n", "line 1: version must be 1");
    is_wrong(START "{\"event\":\"x\",\"us\":1}\n", "line 2: event must be");
    is_wrong(START "{\"event\":\"closed\"}\n", "us must be");
    is_wrong(START ASKED("0", "{}"), "id must be the number of a request");
    is_wrong(START ASKED("18446744073709551616", "{}"), "id must be the number of a request");
    is_wrong(START ASKED("1", "{}") ASKED("1", "{}"), "line 3: id 1 is that of a request before");
    is_wrong(START DECIDED("1", "[1,1]"), "choice must be");
    is_wrong(START DECIDED("1", "[3,2]"), "choice must be");
    is_wrong(START DECIDED("1", "[1]"), "choice must be");
    is_wrong(START FIRST("1", "x", "1"), "seed must be");
    is_wrong(START TOKENS("1", "1,,2"), "tokens must be");
    is_wrong(START END("1", "1000"), "status must be");
    assert_int_equal(run_read(&run, "/no/such/file", NULL, &eb), ERR_NOT_FOUND);
    run = read_text(START ASKED("9", "{}") "{\"event\":\"end"); /* the writer died */
    assert_int_equal(run->n, 1);
    run_free(&run);
}

static struct run_verdict compare(const char *a, const char *b) {
    struct run *x = read_text(a), *y = read_text(b);
    struct run_verdict v;
    assert_int_equal(run_compare(&v, x, y), ERR_OK);
    run_free(&x);
    run_free(&y);
    return v;
}

#define RUN START ASKED("1", "{}") FIRST("1", "7", "10") TOKENS("1", "11,1:20,12!4") END("1", "200")

static void the_same_tokens_are_the_same(void **state) {
    struct run_verdict v;
    (void)state;
    /* with the seed in the body, in other pieces, choices in another turn */
    v = compare(RUN, START ASKED("5", "{\\\"seed\\\":7}") FIRST("5", "7", "1:20")
                         TOKENS("5", "10,11") TOKENS("5", "12!4") END("5", "200"));
    assert_int_equal(v.n_same, 1);
    assert_int_equal(v.n_tokens, 4);
    assert_string_equal(v.first, "");
    /* over a lost attempt, behind what was kept */
    v = compare(START ASKED("1", "{}") FIRST("1", "7", "10") TOKENS("1", "11,1:20") LOST("1", "3")
                    TOKENS("1", "12!4") END("1", "200"),
                RUN);
    assert_int_equal(v.n_same, 1);
    /* or begun anew: what nobody was sent does not count */
    v = compare(START ASKED("1", "{}") FIRST("1", "7", "10") TOKENS("1", "99") LOST("1", "0")
                    FIRST("1", "7", "10") TOKENS("1", "11,1:20,12!4") END("1", "200"),
                RUN);
    assert_int_equal(v.n_same, 1);
    /* ended early: as far as it went */
    v = compare(START ASKED("1", "{}") FIRST("1", "7", "10") TOKENS("1", "11") END("1", "499"),
                RUN);
    assert_int_equal(v.n_part, 1);
    assert_int_equal(v.n_same + v.n_differ, 0);
    v = compare(START ASKED("1", "{}") FIRST("1", "7", "10"), RUN); /* or not ended at all */
    assert_int_equal(v.n_part, 1);
}

static void what_differs_is_named(void **state) {
    struct run_verdict v;
    (void)state;
    v = compare(RUN, START ASKED("5", "{}") FIRST("5", "7", "10") TOKENS("5", "11,1:21,12!4")
                         END("5", "200"));
    assert_int_equal(v.n_differ, 1);
    assert_string_equal(v.first, "request 1 (/v1/completions, at 0.000005 s): token 0 of choice 1: "
                                 "recorded 20, now 21");
    v = compare(RUN, START ASKED("5", "{}") FIRST("5", "7", "10") TOKENS("5", "11,1:20")
                         END("5", "200"));
    assert_non_null(strstr(v.first, "token 2 of choice 0: recorded 12 with its end (4), now none"));
    v = compare(RUN, START ASKED("5", "{}") END("5", "503"));
    assert_non_null(strstr(v.first, "recorded status 200, now 503"));
    v = compare(RUN, START ASKED("5", "{}") FIRST("5", "7", "10"));
    assert_int_equal(v.n_open, 1);
    v = compare(RUN, START ASKED("5", "{\\\"n\\\":2}") END("5", "200"));
    assert_int_equal(v.n_missing, 1);
    /* each of the second run is one of the first */
    v = compare(RUN ASKED("2", "{}") FIRST("2", "7", "10") TOKENS("2", "11,1:20,12!4")
                    END("2", "200"),
                RUN);
    assert_int_equal(v.n_same, 1);
    assert_int_equal(v.n_missing, 1);
    v = compare(START ASKED("1", "{}") FIRST("1", "7", "9") END("1", "499"), RUN);
    assert_int_equal(v.n_differ, 1);
}

static int set_up(void **state) {
    (void)state;
    snprintf(file, sizeof(file), "/tmp/baton-replay-XXXXXX");
    int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state) {
    (void)state;
    return unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_goes_where_its_family_has_it),
        cmocka_unit_test(tensors_stay_behind_the_json),
        cmocka_unit_test(decisions_are_taken_again),
        cmocka_unit_test(what_is_no_recording_is_refused),
        cmocka_unit_test(the_same_tokens_are_the_same),
        cmocka_unit_test(what_differs_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
