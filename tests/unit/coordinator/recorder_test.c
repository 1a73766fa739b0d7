/* Goal: a recording says what happened, in lines that its reader takes back unchanged, and never
 * costs the service more than lines: it is private, keeps to its size, is never written over, ends
 * at a failing write, and says why it ended. Method: recordings are written and read back through
 * tools/replay_record.h; decisions of random clusters come out the same from what was written. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "coordinator/recorder.h"
#include "tools/replay_record.h"

enum { LINES_MAX = 4096, VIEWS_MAX = 5, DECISIONS = 500 };

static char folder[64], path[128];
static const struct schedule_conf conf = {.policy = POLICY_LOAD_BALANCE,
                                          .limit_demand = true,
                                          .res_limit_rate = 1.1,
                                          .coefficients = {0, 0.22, 1024, 24, 6, 0, 1, 0, 1}};

static struct {
    struct record_event e[LINES_MAX];
    size_t n;
    bool cut; /* the last line has no end */
} got;

static void forget(void) {
    for (size_t i = 0; i < got.n; i++) record_event_free(&got.e[i]);
    got.n = 0;
}

/* All lines of the file to got. */
static void read_back(const char *file) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    forget();
    got.cut = false;
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    while (!got.cut && (n = getline(&line, &cap, f)) > 0) {
        struct errbuf eb = {0};
        got.cut = line[n - 1] != '\n';
        if (got.cut) break;
        assert_true(got.n < LINES_MAX);
        if (record_event_parse(&got.e[got.n++], line, (size_t)n - 1, &eb) != ERR_OK)
            fail_msg("%s in %s", eb.text, line);
    }
    free(line);
    fclose(f);
}

static struct recorder *begin(uint64_t bytes_max) {
    struct recorder *rec;
    struct errbuf eb = {0};
    unlink(path);
    if (recorder_open(&rec, path, bytes_max, &conf, &eb) != ERR_OK) fail_msg("%s", eb.text);
    return rec;
}

static void ask(struct recorder *rec, const char *body, size_t n) {
    recorder_request(rec, &(struct record_request){.id = "77",
                                                   .path = "/v1/completions",
                                                   .tenant = "addr-127.0.0.1",
                                                   .stream = true,
                                                   .body = body,
                                                   .n = n});
}

static const struct record_event *the(enum record_kind kind) {
    for (size_t i = 0; i < got.n; i++)
        if (got.e[i].kind == kind) return &got.e[i];
    fail_msg("no event of kind %d", (int)kind);
    return NULL;
}

/* ---- what is said */

/* Where the JSON of a body ends is kept, were it nothing at all. */
static void tensors_lie_behind_json(void **state) {
    (void)state;
    for (size_t n_json = 0; n_json <= 7; n_json++) {
        struct recorder *rec = begin(1 << 20);
        recorder_request(rec, &(struct record_request){.id = "77",
                                                       .path = "/v2/models/m/infer",
                                                       .tenant = "t",
                                                       .body = "{}\xff\0\1ab",
                                                       .n = 7,
                                                       .has_tensors = true,
                                                       .n_json = n_json});
        recorder_close(&rec);
        read_back(path);
        const struct record_event *e = the(RECORD_REQUEST);
        assert_true(e->request.has_tensors);
        assert_int_equal(e->request.n_json, n_json);
        assert_int_equal(e->request.n, 7);
        assert_memory_equal(e->request.body, "{}\xff\0\1ab", 7);
    }
}

static void a_run_is_read_back(void **state) {
    const struct emitted tokens[] = {{.id = 11}, {.id = 2147483647, .choice = 1023, .finish = 4}};
    struct recorder *rec = begin(1 << 20);
    const struct record_event *e;
    struct stat st;
    (void)state;
    ask(rec, "{\"prompt\":\"caf\xC3\xA9 \\\"\n\"}", 22);
    recorder_first(rec, "77", 0, "18446744073709551615", tokens, 1);
    recorder_tokens(rec, "77", 0, tokens, 2);
    recorder_tokens(rec, "77", 0, NULL, 0); /* nothing to say */
    recorder_lost(rec, &(struct record_loss){"77", 0, 1, 3, "d_lost", 2});
    recorder_instance(rec, 3, "d\"1", "decode", "faulty", "no answer");
    recorder_end(rec, "77", 200, "none", 2);
    recorder_close(&rec);
    assert_null(rec);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    read_back(path);
    assert_int_equal(got.n, 8);
    e = the(RECORD_START);
    assert_true(e == &got.e[0]);
    assert_memory_equal(&e->conf, &conf, sizeof(conf));
    e = the(RECORD_REQUEST);
    assert_string_equal(e->request.path, "/v1/completions");
    assert_string_equal(e->request.tenant, "addr-127.0.0.1");
    assert_true(e->request.stream && e->id == 77);
    assert_int_equal(e->request.n, 22);
    assert_memory_equal(e->request.body, "{\"prompt\":\"caf\xC3\xA9 \\\"\n\"}", 22);
    assert_true(!e->request.has_tensors && e->request.n_json == 22);
    e = the(RECORD_FIRST);
    assert_true(e->has_seed && e->seed == UINT64_MAX);
    assert_int_equal(e->n_tokens, 1);
    e = the(RECORD_TOKENS);
    assert_int_equal(e->n_tokens, 2);
    assert_int_equal(e->tokens[1].id, 2147483647);
    assert_int_equal(e->tokens[1].choice, 1023);
    assert_int_equal(e->tokens[1].finish, 4);
    e = the(RECORD_LOST);
    assert_int_equal(e->p_id, 1);
    assert_int_equal(e->d_id, 3);
    assert_int_equal(e->n_kept, 2);
    assert_string_equal(e->cause, "d_lost");
    e = the(RECORD_INSTANCE);
    assert_string_equal(e->name, "d\"1");
    assert_string_equal(e->what, "faulty");
    e = the(RECORD_END);
    assert_int_equal(e->status, 200);
    e = the(RECORD_CLOSED);
    assert_true(e == &got.e[7]);
    assert_string_equal(e->why, "stopped");
}

static void any_body_is_read_back(void **state) {
    static const struct {
        const char *p;
        size_t n;
    } bodies[] = {{"", 0},
                  {"\0", 1},
                  {"\xFF", 1},
                  {"a\xC3", 2},
                  {"\xED\xA0\x80", 3},
                  {"abc\xFF", 4},
                  {"ab\0\xFFz", 5},
                  {"{\"a\":\"\x01\x7F\"}", 10}};
    const size_t n = sizeof(bodies) / sizeof(bodies[0]);
    struct recorder *rec = begin(1 << 20);
    (void)state;
    for (size_t i = 0; i < n; i++) ask(rec, bodies[i].p, bodies[i].n);
    recorder_close(&rec);
    read_back(path);
    assert_int_equal(got.n, n + 2);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got.e[i + 1].request.n, bodies[i].n);
        assert_memory_equal(got.e[i + 1].request.body, bodies[i].p, bodies[i].n);
    }
}

/* ---- decisions */

static unsigned rnd(unsigned n) {
    static uint64_t x = 88172645463325252u; /* xorshift64* */
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    return (unsigned)((x * 2685821657736338717u) >> 33) % n;
}

static double real(void) {
    return (double)rnd(1 << 30) / (1 + rnd(1000));
}

static size_t random_views(struct inst_view *v, uint32_t peers[][VIEWS_MAX], uint32_t first,
                           uint32_t first_peer) {
    const size_t n = rnd(VIEWS_MAX + 1);
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct inst_view){.id = first + (uint32_t)i,
                                  .open = rnd(5) > 0,
                                  .prefill_tokens = rnd(5000),
                                  .prefill_rate = rnd(3) > 0 ? real() : 0,
                                  .pass = real(),
                                  .slots_total = rnd(6),
                                  .blocks_total = rnd(40),
                                  .slots_booked = rnd(4),
                                  .blocks_booked = rnd(30),
                                  .blocks_avail = rnd(50),
                                  .token_sum = real(),
                                  .peers = peers[i]};
        for (uint32_t k = 0; k < VIEWS_MAX; k++)
            if (rnd(4) > 0) peers[i][v[i].n_peers++] = first_peer + k;
    }
    return n;
}

static void decisions_come_out_the_same(void **state) {
    struct recorder *rec = begin(8 << 20);
    struct record_decision said[DECISIONS];
    size_t n_found = 0;
    (void)state;
    for (size_t i = 0; i < DECISIONS; i++) {
        struct inst_view p[VIEWS_MAX], d[VIEWS_MAX];
        uint32_t p_peers[VIEWS_MAX][VIEWS_MAX], d_peers[VIEWS_MAX][VIEWS_MAX];
        struct record_decision *s = &said[i];
        *s = (struct record_decision){.id = "5",
                                      .epoch = rnd(3),
                                      .p = p,
                                      .d = d,
                                      .demand = {.prompts = 1 + rnd(2),
                                                 .slots = 1 + rnd(3),
                                                 .blocks = 1 + rnd(9),
                                                 .prompt_tokens = rnd(999)},
                                      .avoid_p = rnd(3) == 0 ? 1 + rnd(VIEWS_MAX) : 0,
                                      .turn = rnd(100)};
        s->n_p = random_views(p, p_peers, 1, 100);
        s->n_d = random_views(d, d_peers, 100, 1);
        schedule_count_links(p, s->n_p, d, s->n_d);
        s->found = schedule_pick(&s->pick, &conf, p, s->n_p, d, s->n_d, s->demand, s->avoid_p,
                                 s->avoid_d, s->turn);
        n_found += s->found;
        recorder_decision(rec, s);
    }
    recorder_close(&rec);
    assert_true(n_found > DECISIONS / 10 && n_found < DECISIONS - DECISIONS / 10);

    read_back(path);
    assert_int_equal(got.n, DECISIONS + 2);
    for (size_t i = 0; i < DECISIONS; i++) {
        const struct record_event *e = &got.e[i + 1];
        struct pair_choice pick;
        assert_int_equal(e->decision.found, said[i].found);
        assert_int_equal(schedule_pick(&pick, &conf, e->decision.p, e->decision.n_p, e->decision.d,
                                       e->decision.n_d, e->decision.demand, e->decision.avoid_p,
                                       e->decision.avoid_d, e->decision.turn),
                         said[i].found);
        if (!said[i].found) continue;
        assert_int_equal(pick.p, said[i].pick.p);
        assert_int_equal(pick.d, said[i].pick.d);
        assert_int_equal(e->decision.p_id, e->decision.p[pick.p].id);
        assert_int_equal(e->decision.d_id, e->decision.d[pick.d].id);
    }
}

/* ---- bounds */

static void nothing_is_written_over(void **state) {
    struct recorder *first = begin(1 << 20), *second;
    struct errbuf eb = {0};
    char other[160];
    (void)state;
    assert_int_equal(recorder_open(&second, path, 1 << 20, &conf, &eb), ERR_OK);
    recorder_end(second, "9", 200, "none", 1);
    recorder_close(&second);
    recorder_close(&first);
    read_back(path);
    assert_int_equal(got.n, 2);
    snprintf(other, sizeof(other), "%s.1", path);
    read_back(other);
    assert_int_equal(got.n, 3);
    unlink(other);
}

static void it_keeps_to_its_size(void **state) {
    enum { SIZE = 8192 };
    struct recorder *rec = begin(SIZE);
    struct stat st;
    (void)state;
    for (int i = 0; i < 1000; i++) recorder_end(rec, "9", 200, "none", 1);
    recorder_close(&rec);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size <= SIZE && st.st_size > SIZE / 2);
    read_back(path);
    assert_false(got.cut);
    assert_non_null(strstr(the(RECORD_CLOSED)->why, RECORDER_ENV_MIB));
    assert_int_equal(got.e[got.n - 1].kind, RECORD_CLOSED);
}

/* A file over RLIMIT_FSIZE is a write that fails, as a full disk is. */
static void a_failing_write_ends_it(void **state) {
    struct rlimit was, small;
    struct recorder *rec = begin(1 << 20);
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){.rlim_cur = 4096, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 200; i++) recorder_end(rec, "9", 200, "none", 1);
    recorder_close(&rec);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    read_back(path);
    assert_true(got.cut || got.n < 202);
    assert_true(got.n >= 1); /* what could be written is there */
}

static void opening_is_checked(void **state) {
    static const char *const bad[] = {
        "0", "-1", "x", "1x", " 1", "1048577", "99999999999999999999"};
    struct recorder *rec;
    struct errbuf eb = {0};
    (void)state;
    assert_int_equal(recorder_open(&rec, "/no/such/folder/x", 1 << 20, &conf, &eb), ERR_BAD_CONFIG);
    assert_null(rec);
    assert_non_null(
        strstr(eb.text, "BATON_RECORD: cannot make the file /no/such/folder/x: No such"));
    unsetenv(RECORDER_ENV);
    assert_int_equal(recorder_open_env(&rec, &conf, &eb), ERR_OK);
    assert_null(rec);
    setenv(RECORDER_ENV, path, 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(RECORDER_ENV_MIB, bad[i], 1);
        assert_int_equal(recorder_open_env(&rec, &conf, &eb), ERR_BAD_CONFIG);
        assert_non_null(strstr(eb.text, "BATON_RECORD_MIB must be an integer from 1 to 1048576"));
        assert_null(rec);
    }
    setenv(RECORDER_ENV_MIB, "1", 1);
    unlink(path);
    assert_int_equal(recorder_open_env(&rec, &conf, &eb), ERR_OK);
    assert_non_null(rec);
    recorder_close(&rec);
    unsetenv(RECORDER_ENV);
    unsetenv(RECORDER_ENV_MIB);
}

static void none_is_fine(void **state) {
    struct recorder *rec = NULL;
    (void)state;
    ask(rec, "{}", 2);
    recorder_decision(rec, &(struct record_decision){.id = "1"});
    recorder_first(rec, "1", 0, "", NULL, 0);
    recorder_tokens(rec, "1", 0, &(struct emitted){0}, 1);
    recorder_lost(rec, &(struct record_loss){.id = "1"});
    recorder_end(rec, "1", 200, "none", 1);
    recorder_instance(rec, 1, "", "", "", "");
    recorder_close(&rec);
}

static int set_up(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    snprintf(folder, sizeof(folder), "/tmp/baton-recorder-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof(path), "%s/run.jsonl", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    forget();
    unlink(path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_read_back),
        cmocka_unit_test(any_body_is_read_back),
        cmocka_unit_test(decisions_come_out_the_same),
        cmocka_unit_test(nothing_is_written_over),
        cmocka_unit_test(it_keeps_to_its_size),
        cmocka_unit_test(a_failing_write_ends_it),
        cmocka_unit_test(tensors_lie_behind_json),
        cmocka_unit_test(opening_is_checked),
        cmocka_unit_test(none_is_fine),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
