/* Goal: what a coordinator keeps is there for the next one: every row as it was, the file whole or
 * the old one; a file that does not hold counts as none, and one that others could have written is
 * refused. Method: rows kept and found again by both implementations; the file cut, changed and
 * replaced at every byte; folders that cannot be used. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "coordinator/store.h"
#include "proto/crc32c.h"
#include "proto/limits.h"

static char dir[64], path[128];
static struct errbuf eb;

static int make_dir(void **state) {
    (void)state;
    log_init(LOG_ERROR, open("/dev/null", O_WRONLY));
    snprintf(dir, sizeof(dir), "/tmp/baton_store_XXXXXX");
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(path, sizeof(path), "%s/" STORE_FILE_NAME, dir);
    return 0;
}

static int drop_dir(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static struct store_row some[] = {
    {.identity = "10.0.0.2:1026", .id = 200000, .role = ROLE_DECODE, .group = 1},
    {.identity = "10.0.0.10:1026",
     .id = 100000,
     .role = ROLE_PREFILL,
     .group = 1,
     .drained = true,
     .override = ROLE_PREFILL,
     .back = ROLE_DECODE,
     .override_unix_s = 1800000000},
    {.identity = "10.0.0.1:1026", .id = 4294967295u},
};
static const struct store_state three = {.term = 9999999999999999999u, .rows = some, .n_rows = 3};

static void check_row(const struct store *s, const struct store_row *want) {
    const struct store_row *r = store_find(s, want->identity);
    assert_non_null(r);
    assert_int_equal(r->id, want->id);
    assert_int_equal(r->role, want->role);
    assert_int_equal(r->group, want->group);
    assert_int_equal(r->drained, want->drained);
    assert_int_equal(r->override, want->override);
    assert_int_equal(r->back, want->back);
    assert_int_equal(r->override_unix_s, want->override_unix_s);
}

static void check_three(const struct store *s) {
    assert_true(store_term(s) == three.term);
    for (size_t i = 0; i < 3; i++) check_row(s, &some[i]);
    assert_null(store_find(s, "10.0.0.3:1026"));
    assert_null(store_find(s, ""));
    assert_null(store_find(s, "a name that is longer than an address can be"));
}

static void in_memory(void **state) {
    struct store *s = NULL;
    (void)state;
    assert_int_equal(store_memory_open(&s), ERR_OK);
    assert_int_equal(store_term(s), 0);
    assert_null(store_find(s, "10.0.0.1:1026"));
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    check_three(s);
    /* another state takes its place, or goes beside it */
    struct store_row one[] = {
        {.identity = "10.0.0.2:1026", .id = 200000, .role = ROLE_PREFILL, .group = 1},
        {.identity = "10.0.0.4:1026", .id = 100000, .role = ROLE_PREFILL, .group = 2}};
    const struct store_state next = {.term = 7, .rows = one, .n_rows = 2};
    assert_int_equal(store_keep(s, &next, true, &eb), ERR_OK);
    check_row(s, &one[0]);
    check_row(s, &one[1]);
    check_row(s, &some[2]);
    assert_null(store_find(s, some[1].identity)); /* its id is another one's now */
    assert_int_equal(store_keep(s, &next, false, &eb), ERR_OK);
    assert_null(store_find(s, some[2].identity));
    store_close(&s);
    assert_null(s);
    store_close(&s);
}

static void in_a_file(void **state) {
    struct store *s = NULL, *other = NULL;
    struct stat st;
    (void)state;
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    assert_int_equal(store_term(s), 0);
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0640u, 0);
    assert_int_equal(store_file_open(&other, dir, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "another coordinator uses it"));
    store_close(&s);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    check_three(s);
    /* what is the same is not written again */
    const ino_t was = st.st_ino;
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_ino == was);
    some[0].drained = true;
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_ino != was);
    some[0].drained = false;
    store_close(&s);
}

static void put_file(const void *p, size_t n) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

/* A write that fails is said, and done again. */
static void not_written(void **state) {
    struct store *s = NULL;
    (void)state;
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    char new_path[160];
    snprintf(new_path, sizeof(new_path), "%s.new", path);
    assert_int_equal(mkdir(new_path, 0700), 0);
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_IO);
    assert_non_null(strstr(eb.text, STORE_FILE_NAME ": "));
    check_three(s); /* it goes on with it */
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_IO);
    assert_int_equal(rmdir(new_path), 0);
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    store_close(&s);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    check_three(s);
    store_close(&s);
}

/* Cut anywhere, or with any byte changed: as if there was none. */
static void damaged(void **state) {
    struct store *s = NULL;
    struct buf b = BUF_INIT;
    struct store_state out;
    (void)state;
    assert_int_equal(store_memory_open(&s), ERR_OK);
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    store_close(&s);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    assert_int_equal(store_keep(s, &three, false, &eb), ERR_OK);
    store_close(&s);
    FILE *f = fopen(path, "rb");
    char text[4096];
    const size_t n = fread(text, 1, sizeof(text), f);
    fclose(f);
    assert_int_equal(store_state_parse(&out, text, n, &eb), ERR_OK);
    store_state_free(&out);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(store_state_parse(&out, text, i, &eb), ERR_INVALID);
        assert_null(out.rows);
        text[i] ^= 1;
        assert_int_equal(store_state_parse(&out, text, n, &eb), ERR_INVALID);
        text[i] ^= 1;
    }
    text[n / 2] ^= 1;
    put_file(text, n);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    assert_int_equal(store_term(s), 0);
    store_close(&s);
    buf_free(&b);
}

/* Whole files with wrong words in them. */
static void wrong_words(void **state) {
#define ROW(more) "{\"version\":1,\"term\":\"5\",\"instances\":[{" more "}]}\n"
#define GOOD                                                                                       \
    "\"management\":\"10.0.0.1:1026\",\"id\":1,\"role\":\"none\",\"group\":0,\"drained\":false"
    static const struct {
        const char *line, *word;
    } rows[] = {
        {"[]\n", "version must be 1"},
        {"{\"version\":2,\"term\":\"5\",\"instances\":[]}\n", "version must be 1"},
        {"{\"version\":1,\"term\":5,\"instances\":[]}\n", "term must be a string"},
        {"{\"version\":1,\"term\":\"99999999999999999999\",\"instances\":[]}\n", "term must be"},
        {"{\"version\":1,\"term\":\"5\"}\n", "instances must be an array"},
        {"{\"version\":1,\"term\":\"5\",\"instances\":[5]}\n", "instances[0].management"},
        {ROW("\"management\":\"10.0.0.1\""), "instances[0].management must be"},
        {ROW("\"management\":\"10.0.0.1:01026\""), "instances[0].management must be"},
        {ROW("\"management\":\"10.0.0.1:65536\""), "instances[0].management must be"},
        {ROW("\"management\":\"10.0.0.1:1026\",\"id\":0"), "instances[0].id must be"},
        {ROW("\"management\":\"10.0.0.1:1026\",\"id\":4294967296"), "instances[0].id must be"},
        {ROW("\"management\":\"10.0.0.1:1026\",\"id\":1,\"role\":\"flex\""), "instances[0].role"},
        {ROW("\"management\":\"10.0.0.1:1026\",\"id\":1,\"role\":\"none\",\"group\":4097"),
         "instances[0].group must be an integer from 0 to 4096"},
        {ROW("\"management\":\"10.0.0.1:1026\",\"id\":1,\"role\":\"none\",\"group\":0"),
         "instances[0].drained must be a boolean"},
        {ROW(GOOD ",\"override\":\"none\""), "instances[0].override must be"},
        {ROW(GOOD ",\"override\":\"decode\""), "instances[0].back must be"},
        {ROW(GOOD ",\"override\":\"decode\",\"back\":\"flex\""), "instances[0].back must be"},
        {ROW(GOOD ",\"override\":\"decode\",\"back\":\"none\",\"overrideUntil\":-1"),
         "instances[0].overrideUntil must be seconds since 1970"},
        {ROW(GOOD "},{" GOOD), "instances[1].management must be behind"},
        {ROW(GOOD "},{\"management\":\"10.0.0.2:1026\",\"id\":1,\"role\":\"none\",\"group\":0,"
                  "\"drained\":false"),
         "id 1 is there twice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct store_state out;
        char file[1024];
        const size_t n = strlen(rows[i].line);
        snprintf(file, sizeof(file), "%s%08x\n", rows[i].line, crc32c(0, rows[i].line, n));
        eb.text[0] = 0;
        if (store_state_parse(&out, file, strlen(file), &eb) == ERR_OK ||
            strstr(eb.text, rows[i].word) == NULL)
            fail_msg("row %zu: \"%s\"", i, eb.text);
        assert_null(out.rows);
    }
}

/* As many instances as there may be fit into the file. */
static void the_most(void **state) {
    struct store_row *rows = calloc(INSTANCES_MAX, sizeof(*rows));
    struct store *s = NULL;
    (void)state;
    for (unsigned i = 0; i < INSTANCES_MAX; i++) {
        rows[i] = (struct store_row){.id = 4294967295u - i, .role = ROLE_PREFILL, .group = 4096};
        snprintf(rows[i].identity, sizeof(rows[i].identity), "255.255.255.255:%u", 60000 - i);
    }
    const struct store_state all = {.term = 1, .rows = rows, .n_rows = INSTANCES_MAX};
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    assert_int_equal(store_keep(s, &all, false, &eb), ERR_OK);
    store_close(&s);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_OK);
    for (unsigned i = 0; i < INSTANCES_MAX; i++) check_row(s, &rows[i]);
    store_close(&s);
    free(rows);
}

static void refused(void **state) {
    struct store *s = NULL;
    char gone[128];
    (void)state;
    snprintf(gone, sizeof(gone), "%s/not-there", dir);
    assert_int_equal(store_file_open(&s, gone, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "pd.state_dir"));
    assert_null(s);
    assert_int_equal(store_file_open(&s, "/dev/null", &eb), ERR_BAD_CONFIG);
    put_file("x", 1);
    assert_int_equal(chmod(path, 0660), 0);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "nobody else may write"));
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_BAD_CONFIG);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(store_file_open(&s, dir, &eb), ERR_BAD_CONFIG);
}

int main(int argc, char **argv) {
#define IN_DIR(t) cmocka_unit_test_setup_teardown(t, make_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory),   IN_DIR(in_a_file), IN_DIR(not_written), IN_DIR(damaged),
        cmocka_unit_test(wrong_words), IN_DIR(the_most),  IN_DIR(refused),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
