/* Goal: what is kept comes back after a restart, whole or not at all; a disk that is full, slow or
 * interrupted costs files and nothing else; files that do not hold go, others are not touched; the
 * bytes that wait for the disk are bounded, and nobody waits for it. Method: a folder of its own
 * for each test, opened again and again; write() is this program's own and fails, stops short or
 * stands still when it is told to. */
#include "common/net/kept_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/clock.h"

#define ALICE "key-11111111111111111111111111111111"
#define BOB   "key-22222222222222222222222222222222"

/* ---- the disk */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    long room;      /* bytes that fit, then there is no space; -1: as many as come */
    size_t most;    /* bytes that one call takes; 0: all */
    bool interrupt; /* every other call is interrupted */
    bool gate;      /* calls stand still */
    unsigned calls, standing;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER, .room = -1};

ssize_t write(int fd, const void *p, size_t n) {
    if (fd <= STDERR_FILENO) return syscall(SYS_write, fd, p, n);
    pthread_mutex_lock(&disk.lock);
    disk.standing++;
    pthread_cond_broadcast(&disk.change);
    while (disk.gate) pthread_cond_wait(&disk.change, &disk.lock);
    disk.standing--;
    const bool interrupted = disk.interrupt && disk.calls++ % 2 == 0;
    if (disk.most > 0 && n > disk.most) n = disk.most;
    if (disk.room >= 0 && n > (size_t)disk.room) n = (size_t)disk.room;
    const bool full = disk.room == 0;
    if (!interrupted && !full && disk.room > 0) disk.room -= (long)n;
    pthread_mutex_unlock(&disk.lock);
    if (interrupted || full) {
        errno = interrupted ? EINTR : ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, p, n);
}

static void set_gate(bool closed) {
    pthread_mutex_lock(&disk.lock);
    disk.gate = closed;
    pthread_cond_broadcast(&disk.change);
    pthread_mutex_unlock(&disk.lock);
}

/* The writer stands at the gate. */
static void wait_for_writer(void) {
    pthread_mutex_lock(&disk.lock);
    while (disk.standing == 0) pthread_cond_wait(&disk.change, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
}

/* ---- a store over a folder */

struct world {
    char path[64];
    struct budget budget;
    struct kept_store *s;
    struct kept_dir *d;
};

static void open_with(struct world *w, uint64_t bytes, size_t count) {
    const struct kept_limits l = {.bytes_max = bytes, .count_max = count, .idle_ms = 1u << 30};
    struct errbuf eb = {0};
    budget_init(&w->budget);
    assert_int_equal(kept_store_create(&w->s, &l, &w->budget), ERR_OK);
    if (kept_dir_open(&w->d, w->s, w->path, &eb) != ERR_OK) fail_msg("%s", eb.text);
}

static void open_world(struct world *w) {
    open_with(w, 1u << 30, 1000);
}

/* As a process that ends: what waits is written. */
static void close_world(struct world *w) {
    kept_dir_close(&w->d);
    assert_null(w->d);
    kept_store_destroy(&w->s);
    assert_int_equal(budget_used(&w->budget, BUDGET_KEPT_BYTES), 0);
}

static void again(struct world *w) {
    close_world(w);
    open_world(w);
}

static int set_up(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    strcpy(w->path, "/tmp/baton_kept_XXXXXX");
    if (mkdtemp(w->path) == NULL) return -1;
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    struct world *w = *state;
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", w->path);
    const int rc = system(command);
    free(w);
    return rc;
}

static const char *path_of(const struct world *w, const char *name) {
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", w->path, name);
    return path;
}

static bool exists(const struct world *w, const char *name) {
    struct stat st;
    return lstat(path_of(w, name), &st) == 0;
}

/* An answer that is over: events and a response, of about n bytes. */
static struct kept *put(struct world *w, const char *id, const char *tenant, const char *previous,
                        size_t n) {
    const size_t n_events = n / 2, n_response = n - n_events;
    char *text = malloc(n + 1);
    memset(text, 'e', n_events);
    memset(text + n_events, 'r', n_response);
    text[n_events] = '{';
    text[n - 1] = '}';
    struct kept *k = kept_add(w->s, id, tenant, previous, "\"said\"", 6, clock_ms());
    assert_non_null(k);
    k->has_events = true;
    assert_true(kept_append(w->s, k, text, n));
    assert_true(kept_finish(w->s, k, n_events, n_response, n_events, clock_ms()));
    free(text);
    kept_dir_put(w->d, k);
    return k;
}

static void expect(const struct world *w, const char *id, const char *tenant, const char *previous,
                   size_t n) {
    const struct kept *k = kept_find(w->s, tenant, id);
    if (k == NULL) fail_msg("%s is not there", id);
    assert_string_equal(k->previous, previous);
    assert_string_equal(k->tenant_name, tenant);
    assert_false(k->runs);
    assert_true(k->has_events);
    assert_int_equal(k->events, n / 2);
    assert_int_equal(k->at, n / 2);
    assert_int_equal(k->n, n - n / 2);
    assert_int_equal(k->text.len, n);
    assert_memory_equal(k->input.data, "\"said\"", 6);
    for (size_t i = 0; i < n; i++) {
        const char want = i == n / 2 ? '{' : i == n - 1 ? '}' : i < n / 2 ? 'e' : 'r';
        assert_int_equal(k->text.data[i], want);
    }
}

/* ---- restarts */

static void restarts(void **state) {
    struct world *w = *state;
    struct stat st;
    open_world(w);
    put(w, "resp_1", ALICE, "", 1000);
    put(w, "resp_2", ALICE, "resp_1", 20);
    put(w, "resp_3", BOB, "", 300000);
    kept_add(w->s, "resp_4", BOB, "", "", 0, clock_ms()); /* it runs: nothing of it is a file */
    again(w);
    for (int i = 0; i < 2; i++, again(w)) {
        assert_int_equal(kept_count(w->s), 3);
        expect(w, "resp_1", ALICE, "", 1000);
        expect(w, "resp_2", ALICE, "resp_1", 20);
        expect(w, "resp_3", BOB, "", 300000);
        assert_null(kept_find(w->s, BOB, "resp_1"));
    }
    assert_int_equal(stat(path_of(w, "resp_3.kept"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* what is deleted stays deleted */
    kept_remove(w->s, kept_find(w->s, ALICE, "resp_1"));
    again(w);
    assert_int_equal(kept_count(w->s), 2);
    assert_false(exists(w, "resp_1.kept"));
    close_world(w);
}

/* The time since the last use goes on while the process is away. */
static void ages(void **state) {
    struct world *w = *state;
    struct buf b = BUF_INIT;
    struct kept_file f = {.used_unix_s = clock_unix_s() - 100,
                          .id = "resp_1",
                          .tenant = ALICE,
                          .input = "\"\"",
                          .n_input = 2,
                          .text = "{}",
                          .n_text = 2,
                          .n = 2};
    kept_file_format(&b, &f);
    FILE *out = fopen(path_of(w, "resp_1.kept"), "w");
    assert_non_null(out);
    assert_int_equal(fwrite(b.data, 1, b.len, out), b.len);
    fclose(out);
    buf_free(&b);
    open_world(w);
    const struct kept *k = kept_find(w->s, ALICE, "resp_1");
    assert_non_null(k);
    assert_true((int64_t)(clock_ms() - k->used_ms) >= 100 * 1000);
    assert_true((int64_t)(clock_ms() - k->used_ms) < 200 * 1000);
    close_world(w);
}

/* ---- the disk fails */

/* Whatever fits of a file before the disk is full, nothing of it is left, and what was there before
 * stays; memory has all, and with room again files are written. */
static void full_disk(void **state) {
    struct world *w = *state;
    static const long rooms[] = {0, 1, 300, 5000};
    open_world(w);
    put(w, "resp_0", ALICE, "", 2000);
    again(w);
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        disk.room = rooms[i];
        kept_remove(w->s, kept_find(w->s, ALICE, "resp_0"));
        put(w, "resp_0", ALICE, "", 9000);
        put(w, "resp_1", ALICE, "", 9000);
        expect(w, "resp_0", ALICE, "", 9000);
        expect(w, "resp_1", ALICE, "", 9000);
        kept_dir_close(&w->d);
        disk.room = -1;
        assert_false(exists(w, "resp_0.kept"));
        assert_false(exists(w, "resp_1.kept"));
        assert_false(exists(w, "new"));
        kept_store_destroy(&w->s);
        open_world(w);
        assert_int_equal(kept_count(w->s), 0);
        put(w, "resp_0", ALICE, "", 2000);
        again(w);
        expect(w, "resp_0", ALICE, "", 2000);
    }
    /* a file that is written anew and does not fit leaves the old one */
    disk.room = 100;
    kept_dir_put(w->d, kept_find(w->s, ALICE, "resp_0"));
    kept_dir_close(&w->d);
    disk.room = -1;
    kept_store_destroy(&w->s);
    open_world(w);
    expect(w, "resp_0", ALICE, "", 2000);
    close_world(w);
}

static void interrupted(void **state) {
    struct world *w = *state;
    open_world(w);
    disk.interrupt = true;
    disk.most = 7;
    put(w, "resp_1", ALICE, "", 5000);
    again(w);
    disk.interrupt = false;
    disk.most = 0;
    expect(w, "resp_1", ALICE, "", 5000);
    close_world(w);
}

/* The folder goes away under the process: nothing is written, nothing is lost in memory. */
static void folder_goes(void **state) {
    struct world *w = *state;
    char command[96];
    open_world(w);
    snprintf(command, sizeof(command), "rm -rf %s", w->path);
    assert_int_equal(system(command), 0);
    put(w, "resp_1", ALICE, "", 1000);
    expect(w, "resp_1", ALICE, "", 1000);
    close_world(w);
    assert_int_equal(mkdir(w->path, 0700), 0);
}

/* ---- files that do not hold */

static void write_file(const struct world *w, const char *name, const char *p, size_t n, int mode) {
    const int fd = open(path_of(w, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    assert_int_equal(fchmod(fd, (mode_t)mode), 0);
    close(fd);
}

static size_t read_file(const struct world *w, const char *name, char *dst, size_t most) {
    FILE *in = fopen(path_of(w, name), "r");
    assert_non_null(in);
    const size_t n = fread(dst, 1, most, in);
    fclose(in);
    return n;
}

/* Opened, only resp_good is there. */
static void expect_only_good(struct world *w, const char *bad, bool gone) {
    open_world(w);
    assert_int_equal(kept_count(w->s), 1);
    expect(w, "resp_good", ALICE, "", 600);
    close_world(w);
    if (exists(w, bad) == gone) fail_msg("%s is %s", bad, gone ? "still there" : "gone");
}

static void broken_files(void **state) {
    struct world *w = *state;
    char bytes[2048], other[2048];
    open_world(w);
    put(w, "resp_good", ALICE, "", 600);
    put(w, "resp_bad", ALICE, "", 600);
    close_world(w);
    const size_t n = read_file(w, "resp_bad.kept", bytes, sizeof(bytes));
    assert_true(n > 600 && n < sizeof(bytes));
    for (size_t cut = 0; cut < n; cut += cut < 200 || cut > n - 20 ? 1 : 37) {
        write_file(w, "resp_bad.kept", bytes, cut, 0600);
        expect_only_good(w, "resp_bad.kept", true);
    }
    for (size_t i = 0; i < n; i += i < 200 || i > n - 20 ? 1 : 37) {
        memcpy(other, bytes, n);
        other[i] ^= 0x10;
        write_file(w, "resp_bad.kept", other, n, 0600);
        expect_only_good(w, "resp_bad.kept", true);
    }
    memcpy(other, bytes, n);
    other[n] = '\n';
    write_file(w, "resp_bad.kept", other, n + 1, 0600);
    expect_only_good(w, "resp_bad.kept", true);
    write_file(w, "resp_other.kept", bytes, n, 0600); /* whole, with another's name */
    expect_only_good(w, "resp_other.kept", true);
    write_file(w, "resp_bad.kept", bytes, n, 0620); /* others may have written it */
    expect_only_good(w, "resp_bad.kept", true);
}

static void odd_files(void **state) {
    struct world *w = *state;
    char bytes[2048], name[300];
    open_world(w);
    put(w, "resp_good", ALICE, "", 600);
    close_world(w);
    const size_t n = read_file(w, "resp_good.kept", bytes, sizeof(bytes));
    assert_int_equal(symlink(path_of(w, "resp_good.kept"), "/tmp/baton_kept_link"), 0);
    assert_int_equal(rename("/tmp/baton_kept_link", path_of(w, "resp_link.kept")), 0);
    expect_only_good(w, "resp_link.kept", true);
    assert_int_equal(mkfifo(path_of(w, "resp_fifo.kept"), 0600), 0); /* nobody waits for a writer */
    expect_only_good(w, "resp_fifo.kept", true);
    assert_int_equal(mkdir(path_of(w, "resp_dir.kept"), 0700), 0);
    expect_only_good(w, "resp_dir.kept", false);
    /* what is no answer's is left alone */
    memset(name, 'x', sizeof(name));
    strcpy(name + 200, ".kept");
    static const char *const theirs[] = {"notes.txt", ".kept", "new", "resp_1.kept.old"};
    for (size_t i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++) {
        write_file(w, theirs[i], bytes, n, 0600);
        expect_only_good(w, theirs[i], false);
    }
    write_file(w, name, bytes, n, 0600);
    expect_only_good(w, name, false);
}

/* A file that says more than an answer may have is not even read. */
static void large_files(void **state) {
    struct world *w = *state;
    open_world(w);
    put(w, "resp_good", ALICE, "", 600);
    close_world(w);
    const int fd = open(path_of(w, "resp_bad.kept"), O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0); /* a hole */
    close(fd);
    expect_only_good(w, "resp_bad.kept", true);
    /* and one that is too large for a store of smaller answers goes, with the bound at its bytes */
    open_world(w);
    put(w, "resp_half", ALICE, "", 20000);
    close_world(w);
    open_with(w, 64 << 10, 10);
    assert_int_equal(kept_count(w->s), 1);
    expect(w, "resp_good", ALICE, "", 600);
    close_world(w);
    assert_false(exists(w, "resp_half.kept"));
}

/* ---- bounds */

/* More files than the store may have: the oldest go, from the folder too. */
static void count_bound(void **state) {
    struct world *w = *state;
    char id[16], name[24];
    open_world(w);
    for (int i = 0; i < 12; i++) {
        snprintf(id, sizeof(id), "resp_%02d", i);
        put(w, id, i < 10 ? ALICE : BOB, "", 100);
    }
    close_world(w);
    open_with(w, 1 << 20, 5);
    assert_int_equal(kept_count(w->s), 5);
    expect(w, "resp_10", BOB, "", 100);
    expect(w, "resp_11", BOB, "", 100);
    for (int i = 7; i < 10; i++) {
        snprintf(id, sizeof(id), "resp_%02d", i);
        expect(w, id, ALICE, "", 100);
    }
    close_world(w);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof(name), "resp_%02d.kept", i);
        assert_int_equal(exists(w, name), i >= 7);
    }
}

/* The disk stands still: answers are kept all the same, and no more bytes wait than are allowed. */
static void waiting_bound(void **state) {
    enum { ONE = 1 << 20, MAX = KEPT_DIR_WAITING_MAX / ONE };
    struct world *w = *state;
    char id[16], name[24];
    int files = 0;
    open_world(w);
    set_gate(true);
    put(w, "resp_first", ALICE, "", 100);
    wait_for_writer(); /* with that one in its hands */
    const uint64_t began_ms = clock_ms();
    for (int i = 0; i < MAX + 8; i++) {
        snprintf(id, sizeof(id), "resp_%02d", i);
        put(w, id, ALICE, "", ONE);
    }
    assert_true(clock_ms() - began_ms < 60000);
    assert_int_equal(kept_count(w->s), MAX + 9);
    set_gate(false);
    close_world(w);
    for (int i = 0; i < MAX + 8; i++) {
        snprintf(name, sizeof(name), "resp_%02d.kept", i);
        const bool there = exists(w, name);
        assert_int_equal(there, i < MAX - 1); /* a file is a little more than its answer */
        files += there;
    }
    assert_int_equal(files, MAX - 1);
    assert_true(exists(w, "resp_first.kept"));
    open_world(w);
    assert_int_equal(kept_count(w->s), MAX);
    put(w, "resp_late", ALICE, "", ONE); /* with room it is written again */
    again(w);
    expect(w, "resp_late", ALICE, "", ONE);
    close_world(w);
}

/* ---- the folder */

static void folders(void **state) {
    struct world *w = *state;
    const struct kept_limits l = {.bytes_max = 1 << 20, .count_max = 10, .idle_ms = 1000};
    struct budget budget;
    struct kept_store *s;
    struct kept_dir *d;
    struct errbuf eb = {0};
    char missing[96];
    budget_init(&budget);
    assert_int_equal(kept_store_create(&s, &l, &budget), ERR_OK);
    snprintf(missing, sizeof(missing), "%s/not/there", w->path);
    assert_int_equal(kept_dir_open(&d, s, missing, &eb), ERR_BAD_CONFIG);
    assert_null(d);
    assert_non_null(strstr(eb.text, missing));
    assert_non_null(strstr(eb.text, strerror(ENOENT)));
    write_file(w, "file", "x", 1, 0600);
    assert_int_equal(kept_dir_open(&d, s, path_of(w, "file"), &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, strerror(ENOTDIR)));
    open_world(w);
    assert_int_equal(kept_dir_open(&d, s, w->path, &eb), ERR_BAD_CONFIG);
    assert_null(d);
    assert_non_null(strstr(eb.text, "another process uses it"));
    close_world(w);
    assert_int_equal(kept_dir_open(&d, s, w->path, &eb), ERR_OK);
    kept_dir_close(&d);
    kept_dir_close(&d); /* NULL is fine */
    kept_store_destroy(&s);
}

int main(void) {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(restarts),    TEST(ages),          TEST(full_disk), TEST(interrupted),
        TEST(folder_goes), TEST(broken_files),  TEST(odd_files), TEST(large_files),
        TEST(count_bound), TEST(waiting_bound), TEST(folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
