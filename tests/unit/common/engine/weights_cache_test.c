/* Goal: packed weights come from the cache file only when they are those of this model, type and
 * kernel set and nobody else could have written them; whatever is wrong with the file, the weights
 * in use are right and the next start finds a good one. Method: a tiny Llama is opened with and
 * without a cache and compared byte for byte; the file is damaged, cut, replaced and mistrusted in
 * every way; processes race for it, one dies half way, one has no room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "common/base/log.h"
#include "common/engine/weights.h"
#include "common/engine/weights_cache.h"
#include "common/engine/weights_check.h"
#include "tests/unit/common/engine/tiny_llama.h"

enum { PATH_BYTES = 1024 };

struct rig {
    struct model_files files;
    struct model_conf conf;
    struct kernels kn;
    struct pool *pool;
    char cache[PATH_BYTES];
    bool always;
    void (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
};

static int rig_open(void **state) {
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    log_init(LOG_NONE, 2);
    write_model(&r->files, NULL, NULL);
    assert_int_equal(model_conf_read(&r->conf, r->files.dir, NULL), ERR_OK);
    assert_int_equal(kernels_find(&r->kn, "ref", NULL), ERR_OK);
    assert_int_equal(pool_create(&r->pool, 1, NULL, NULL), ERR_OK);
    snprintf(r->cache, sizeof(r->cache), "%s/cache", r->files.dir);
    *state = r;
    return 0;
}

static void folder_remove(const char *dir) {
    char path[2 * PATH_BYTES];
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (unlink(path) != 0) rmdir(path);
    }
    if (d != NULL) closedir(d);
    rmdir(dir);
}

static int rig_close(void **state) {
    struct rig *r = *state;
    folder_remove(r->cache);
    pool_destroy(&r->pool);
    files_remove(&r->files);
    free(r);
    return 0;
}

static struct weights *weights_at(struct rig *r, const char *setting, bool verify,
                                  enum dtype dtype) {
    struct weights *w = NULL;
    struct errbuf eb = {0};
    const struct weights_place place = {.setting = setting, .verify = verify, .always = r->always};
    if (weights_open(&w, &r->conf, r->files.dir, &r->kn, dtype, &place, r->pool, r->progress, NULL,
                     NULL, &eb) != ERR_OK)
        fail_msg("%s", eb.text);
    return w;
}

static const uint8_t *bytes_of(const struct weights *w) {
    return w->file.map != NULL ? (const uint8_t *)w->file.map + WC_HEADER_BYTES : w->memory.p;
}

/* Opens with the cache and without: the same weights; and where they came from. */
static enum weights_from expect_right(struct rig *r, bool verify) {
    struct weights *plain = weights_at(r, "off", false, DTYPE_BF16),
                   *w = weights_at(r, r->cache, verify, DTYPE_BF16);
    enum weights_from from = w->from;
    assert_int_equal(plain->from, WEIGHTS_PACKED);
    assert_null(plain->file.map);
    assert_int_equal(w->bytes, plain->bytes);
    assert_memory_equal(w->hash, plain->hash, sizeof(w->hash));
    assert_memory_equal(bytes_of(w), bytes_of(plain), w->bytes);
    for (int l = 0; l < LAYERS; l++)
        assert_ptr_equal(w->layers[l].down.panels - bytes_of(w),
                         plain->layers[l].down.panels - bytes_of(plain));
    assert_int_equal((uintptr_t)w->embed.panels % 64, 0);
    weights_close(&w);
    weights_close(&plain);
    return from;
}

/* The file of the cache folder with that ending, in path; false: none. */
static bool find_file(const struct rig *r, const char *ending, char path[2 * PATH_BYTES]) {
    bool found = false;
    DIR *d = opendir(r->cache);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name), k = strlen(ending);
        if (n < k || strcmp(e->d_name + n - k, ending) != 0) continue;
        assert_false(found); /* one of a kind */
        found = true;
        snprintf(path, 2 * PATH_BYTES, "%s/%s", r->cache, e->d_name);
    }
    if (d != NULL) closedir(d);
    return found;
}

static void make_cache(struct rig *r, char path[2 * PATH_BYTES]) {
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
    assert_true(find_file(r, ".packed", path));
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

/* ---- the header */

static void the_header_is_bounded(void **state) {
    uint8_t bytes[WC_HEADER_BYTES + 1], *exact = malloc(WC_HEADER_BYTES);
    struct wc_header h = {.dtype = DTYPE_BF16, .data_bytes = 4096}, got;
    struct errbuf eb = {0};
    const uint64_t file = WC_HEADER_BYTES + 4096;
    (void)state;
    assert_non_null(exact);
    memset(h.config, 1, sizeof(h.config));
    memset(h.plan, 2, sizeof(h.plan));
    memset(h.stamp, 3, sizeof(h.stamp));
    memset(h.layout, 4, sizeof(h.layout));
    memset(h.model, 5, sizeof(h.model));
    memset(h.sum, 6, sizeof(h.sum));
    wc_header_write(exact, &h);
    assert_int_equal(wc_header_read(&got, exact, WC_HEADER_BYTES, file, &eb), ERR_OK);
    assert_memory_equal(&got, &h, sizeof(h));
    for (size_t n = 0; n < WC_HEADER_BYTES; n += n < 256 ? 1 : 255)
        assert_int_equal(wc_header_read(&got, exact, n, file, &eb), ERR_BAD_FILE);
    assert_int_equal(wc_header_read(&got, exact, WC_HEADER_BYTES, file - 1, &eb), ERR_BAD_FILE);
    assert_int_equal(wc_header_read(&got, exact, WC_HEADER_BYTES, file + 1, &eb), ERR_BAD_FILE);
    assert_int_equal(wc_header_read(&got, exact, WC_HEADER_BYTES, 0, &eb), ERR_BAD_FILE);
    for (size_t bit = 0; bit < WC_HEADER_BYTES * 8; bit += bit < 2048 ? 1 : 37) {
        memcpy(bytes, exact, WC_HEADER_BYTES);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (wc_header_read(&got, bytes, WC_HEADER_BYTES, file, &eb) != ERR_BAD_FILE)
            fail_msg("bit %zu does not matter", bit);
    }
    h.data_bytes = 0;
    wc_header_write(exact, &h);
    assert_int_equal(wc_header_read(&got, exact, WC_HEADER_BYTES, WC_HEADER_BYTES, &eb),
                     ERR_BAD_FILE);
    free(exact);
}

/* ---- hits and misses */

static void a_second_start_packs_nothing(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    struct stat st;
    make_cache(r, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_false(find_file(r, ".tmp", path));
    assert_int_equal(expect_right(r, false), WEIGHTS_FROM_CACHE);
}

static void types_and_layouts_have_files_of_their_own(void **state) {
    struct rig *r = *state;
    struct kernels ref = r->kn;
    for (int round = 0; round < 2; round++) {
        static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
        for (int i = 0; i < 3; i++) {
            if (i == 2) /* rows instead of columns */
                assert_int_equal(kernels_openblas(&r->kn, NULL), ERR_OK);
            struct weights *w = weights_at(r, r->cache, true, i == 1 ? types[1] : types[0]);
            assert_int_equal(w->from, round == 0 ? WEIGHTS_PACKED_TO_CACHE : WEIGHTS_FROM_CACHE);
            weights_close(&w);
            r->kn = ref;
        }
    }
}

static void sets_that_pack_alike_share(void **state) {
    struct rig *r = *state;
    struct kernels best;
    char path[2 * PATH_BYTES];
    make_cache(r, path);
    assert_int_equal(kernels_find(&best, "auto", NULL), ERR_OK);
    uint8_t a[16 * 64 * 4], b[16 * 64 * 4];
    float rows[16 * HIDDEN];
    for (int i = 0; i < 16 * HIDDEN; i++) rows[i] = (float)i;
    memset(a, 0, sizeof(a));
    memset(b, 0, sizeof(b));
    r->kn.panel_pack(a, rows, 16, HIDDEN, DTYPE_BF16);
    best.panel_pack(b, rows, 16, HIDDEN, DTYPE_BF16);
    bool alike = memcmp(a, b, sizeof(a)) == 0;
    r->kn = best;
    assert_int_equal(expect_right(r, true), alike ? WEIGHTS_FROM_CACHE : WEIGHTS_PACKED_TO_CACHE);
}

static void nothing_is_cached_unasked(void **state) {
    struct rig *r = *state;
    char dir[2 * PATH_BYTES];
    static const char *const settings[] = {NULL, "", "off", "auto"}; /* auto: it is small */
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        struct weights *w = weights_at(r, settings[i], true, DTYPE_BF16);
        assert_int_equal(w->from, WEIGHTS_PACKED);
        weights_close(&w);
    }
    snprintf(dir, sizeof(dir), "%s/.baton", r->files.dir);
    assert_int_not_equal(access(dir, F_OK), 0);
    /* made on purpose it is used, unasked */
    r->always = true;
    struct weights *w = weights_at(r, "auto", true, DTYPE_BF16);
    assert_int_equal(w->from, WEIGHTS_PACKED_TO_CACHE);
    weights_close(&w);
    r->always = false;
    w = weights_at(r, "auto", true, DTYPE_BF16);
    assert_int_equal(w->from, WEIGHTS_FROM_CACHE);
    weights_close(&w);
    folder_remove(dir);
}

/* ---- models that change */

static void touch(const struct rig *r) {
    char path[2 * PATH_BYTES];
    const struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 2000000}};
    snprintf(path, sizeof(path), "%s/model.safetensors", r->files.dir);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Adds `by` to a byte that many bytes before the end of the tensors. */
static void change_byte(const char *path, long before_end, int by) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -before_end, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -before_end, SEEK_END), 0);
    assert_true(fputc((c + by) & 255, f) != EOF);
    assert_int_equal(fclose(f), 0);
}

static void stamp_of(const char *path, uint8_t stamp[WC_SHA_BYTES]) {
    uint8_t bytes[WC_HEADER_BYTES];
    struct wc_header h;
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(read(fd, bytes, sizeof(bytes)), sizeof(bytes));
    close(fd);
    assert_int_equal(wc_header_read(&h, bytes, sizeof(bytes), (uint64_t)st.st_size, NULL), ERR_OK);
    memcpy(stamp, h.stamp, WC_SHA_BYTES);
}

static void a_touched_model_is_compared(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    uint8_t before[WC_SHA_BYTES], after[WC_SHA_BYTES], later[WC_SHA_BYTES];
    make_cache(r, path);
    stamp_of(path, before);
    touch(r);
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
    stamp_of(path, after);
    assert_memory_not_equal(before, after, sizeof(before));
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
    stamp_of(path, later);
    assert_memory_equal(after, later, sizeof(after));
}

static void changed_content_is_packed_anew(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES], model[2 * PATH_BYTES];
    make_cache(r, path);
    snprintf(model, sizeof(model), "%s/model.safetensors", r->files.dir);
    /* deep in lm_head: beyond the bytes that make the file's name (surplus has 12) */
    change_byte(model, 12 + 400, 1);
    touch(r);
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
    assert_true(find_file(r, ".packed", path)); /* still one: replaced */
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

static void two_models_share_a_folder(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES], model[2 * PATH_BYTES];
    make_cache(r, path);
    snprintf(model, sizeof(model), "%s/model.safetensors", r->files.dir);
    long head = (long)VOCAB * HIDDEN * 4; /* the first byte of lm_head */
    change_byte(model, head, 1);
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
    change_byte(model, head, -1);
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

static void another_config_is_another_model(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES], text[1024];
    make_cache(r, path);
    snprintf(text, sizeof(text), "%.*s,\"rms_norm_eps\":0.5}", (int)strlen(tiny_config) - 1,
             tiny_config);
    files_text(&r->files, "config.json", text);
    assert_int_equal(model_conf_read(&r->conf, r->files.dir, NULL), ERR_OK);
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
}

/* ---- files that are wrong */

static void overwrite(const char *path, long at, int c) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_true(fputc(c, f) != EOF);
    assert_int_equal(fclose(f), 0);
}

static void a_bad_file_is_replaced(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    struct stat st;
    make_cache(r, path);
    assert_int_equal(stat(path, &st), 0);
    for (int i = 0; i < 9; i++) {
        switch (i) {
        case 0: overwrite(path, 0, 'X'); break;
        case 1: overwrite(path, 100, 0x5a); break;
        case 2: assert_int_equal(truncate(path, 0), 0); break;
        case 3: assert_int_equal(truncate(path, WC_HEADER_BYTES), 0); break;
        case 4: assert_int_equal(truncate(path, st.st_size - 1), 0); break;
        case 5: assert_int_equal(truncate(path, st.st_size + 1), 0); break;
        case 6: assert_int_equal(chmod(path, 0666), 0); break;
        case 7: assert_int_equal(chmod(path, 0664), 0); break;
        case 8:
            assert_int_equal(unlink(path), 0);
            assert_int_equal(symlink("/etc/passwd", path), 0);
            break;
        }
        if (expect_right(r, false) != WEIGHTS_PACKED_TO_CACHE) fail_msg("case %d was used", i);
        if (expect_right(r, true) != WEIGHTS_FROM_CACHE) fail_msg("case %d was not replaced", i);
    }
}

static void what_cannot_be_replaced_is_left(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    make_cache(r, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not wait for a writer */
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
}

static void a_foreign_owner_is_refused(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    if (geteuid() != 0) skip(); /* only root can give files away */
    make_cache(r, path);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(expect_right(r, false), WEIGHTS_PACKED_TO_CACHE);
}

static void damaged_data_are_found_when_asked(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    make_cache(r, path);
    overwrite(path, WC_HEADER_BYTES + 5000, 0x77);
    struct weights *w = weights_at(r, r->cache, false, DTYPE_BF16);
    assert_int_equal(w->from, WEIGHTS_FROM_CACHE); /* nobody looked */
    weights_close(&w);
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

static void no_folder_is_no_trouble(void **state) {
    struct rig *r = *state;
    char setting[2 * PATH_BYTES];
    struct weights *w;
    snprintf(setting, sizeof(setting), "%s/config.json/below", r->files.dir);
    w = weights_at(r, setting, true, DTYPE_BF16);
    assert_int_equal(w->from, WEIGHTS_PACKED);
    weights_close(&w);
    char *longest = malloc(2 * WC_PATH_BYTES);
    assert_non_null(longest);
    memset(longest, 'x', 2 * WC_PATH_BYTES - 1);
    longest[2 * WC_PATH_BYTES - 1] = 0;
    w = weights_at(r, longest, true, DTYPE_BF16);
    assert_int_equal(w->from, WEIGHTS_PACKED);
    weights_close(&w);
    free(longest);
}

/* ---- other processes */

static void no_room_is_no_trouble(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    struct rlimit old, small = {.rlim_cur = 8192, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum weights_from from = expect_right(r, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(from, WEIGHTS_PACKED);
    assert_false(find_file(r, ".tmp", path));
    assert_false(find_file(r, ".packed", path));
}

static void one_of_a_crowd_packs(void **state) {
    enum { CROWD = 6 };
    struct rig *r = *state;
    pid_t ids[CROWD];
    int n[3] = {0}, go[2];
    char c;
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < CROWD; i++) {
        assert_true((ids[i] = fork()) >= 0);
        if (ids[i] != 0) continue;
        close(go[1]);
        if (read(go[0], &c, 1) < 0) _exit(9); /* until the parent closes it: all at once */
        struct weights *w = weights_at(r, r->cache, true, DTYPE_BF16);
        _exit((int)w->from);
    }
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < CROWD; i++) {
        int status;
        assert_int_equal(waitpid(ids[i], &status, 0), ids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 3);
        n[WEXITSTATUS(status)]++;
    }
    assert_int_equal(n[WEIGHTS_PACKED_TO_CACHE], 1);
    assert_int_equal(n[WEIGHTS_FROM_CACHE], CROWD - 1);
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

static void die_half_way(void *arg, const char *what, uint64_t done, uint64_t total) {
    (void)arg;
    (void)what;
    if (done > total / 2) raise(SIGKILL);
}

static void a_crash_leaves_nothing_bad(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    int status;
    pid_t id = fork();
    assert_true(id >= 0);
    if (id == 0) {
        r->progress = die_half_way;
        (void)weights_at(r, r->cache, true, DTYPE_BF16);
        _exit(0);
    }
    assert_int_equal(waitpid(id, &status, 0), id);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(find_file(r, ".tmp", path));
    assert_false(find_file(r, ".packed", path));
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
    assert_false(find_file(r, ".tmp", path));
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

struct checked {
    _Atomic int n;
    enum err e;
    char text[ERR_TEXT_BYTES_MAX];
};

static void on_checked(void *arg, enum err e, const char *text) {
    struct checked *c = arg;
    c->e = e;
    snprintf(c->text, sizeof(c->text), "%s", text);
    atomic_fetch_add(&c->n, 1);
}

/* Weights of an earlier start are looked through behind its back; a turned bit is found, and the
 * next start has good ones again. */
static void kept_weights_are_checked_in_the_background(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES], aside[2 * PATH_BYTES + 8];
    struct weights_check *check = NULL;
    make_cache(r, path);
    snprintf(aside, sizeof(aside), "%s.bad", path);
    for (int bad = 0; bad < 2; bad++) {
        struct checked c = {0};
        if (bad) overwrite(path, WC_HEADER_BYTES + 1000, 0x77);
        struct weights *w = weights_at(r, r->cache, false, DTYPE_BF16);
        assert_int_equal(w->from, WEIGHTS_FROM_CACHE);
        assert_int_equal(weights_check_start(&check, w, on_checked, &c), ERR_OK);
        assert_non_null(check);
        for (int i = 0; i < 20000 && atomic_load(&c.n) == 0; i++) usleep(500);
        assert_int_equal(atomic_load(&c.n), 1);
        assert_int_equal(c.e, bad ? ERR_BAD_FILE : ERR_OK);
        assert_int_equal(strncmp(c.text, path, strlen(path)) == 0, bad);
        assert_int_equal(access(aside, F_OK) == 0, bad);
        weights_check_stop(&check);
        weights_close(&w);
    }
    assert_int_equal(expect_right(r, false), WEIGHTS_PACKED_TO_CACHE);
    /* ended in the midst of it; nothing to check: looked through before, or of this start */
    struct checked c = {0};
    struct weights *w = weights_at(r, r->cache, false, DTYPE_BF16);
    assert_int_equal(weights_check_start(&check, w, on_checked, &c), ERR_OK);
    weights_check_stop(&check);
    assert_int_equal(atomic_load(&c.n), 0);
    weights_close(&w);
    w = weights_at(r, r->cache, true, DTYPE_BF16);
    assert_int_equal(weights_check_start(&check, w, on_checked, &c), ERR_OK);
    assert_null(check);
    weights_close(&w);
    w = weights_at(r, "off", false, DTYPE_BF16);
    assert_int_equal(weights_check_start(&check, w, on_checked, &c), ERR_OK);
    assert_null(check);
    weights_close(&w);
}

static atomic_bool stop_now;

static void stop_half_way(void *arg, const char *what, uint64_t done, uint64_t total) {
    (void)arg;
    (void)what;
    if (done > total / 2) atomic_store(&stop_now, true);
}

/* A load that is to stop leaves neither weights nor files nor a lock, whatever it was about. */
static void a_load_can_be_stopped(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    const struct weights_place place = {.setting = r->cache, .verify = true, .always = true};
    for (int i = 0; i < 3; i++) { /* half-way; before it begins; before it maps what is there */
        struct weights *w = NULL;
        struct errbuf eb = {0};
        atomic_store(&stop_now, i > 0);
        if (i == 2) assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
        assert_int_equal(weights_open(&w, &r->conf, r->files.dir, &r->kn, DTYPE_BF16, &place,
                                      r->pool, stop_half_way, NULL, &stop_now, &eb),
                         ERR_STOPPING);
        assert_null(w);
        assert_false(find_file(r, ".tmp", path));
        assert_int_equal(find_file(r, ".packed", path), i == 2);
    }
    assert_int_equal(expect_right(r, true), WEIGHTS_FROM_CACHE);
}

static void a_replaced_file_stays_with_its_users(void **state) {
    struct rig *r = *state;
    char path[2 * PATH_BYTES];
    make_cache(r, path);
    struct weights *w = weights_at(r, r->cache, true, DTYPE_BF16);
    uint8_t *copy = malloc(w->bytes);
    assert_non_null(copy);
    memcpy(copy, bytes_of(w), w->bytes);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(expect_right(r, true), WEIGHTS_PACKED_TO_CACHE);
    assert_memory_equal(copy, bytes_of(w), w->bytes);
    free(copy);
    weights_close(&w);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_open, rig_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_is_bounded),
        TEST(a_second_start_packs_nothing),
        TEST(types_and_layouts_have_files_of_their_own),
        TEST(sets_that_pack_alike_share),
        TEST(nothing_is_cached_unasked),
        TEST(a_touched_model_is_compared),
        TEST(changed_content_is_packed_anew),
        TEST(two_models_share_a_folder),
        TEST(another_config_is_another_model),
        TEST(a_bad_file_is_replaced),
        TEST(what_cannot_be_replaced_is_left),
        TEST(a_foreign_owner_is_refused),
        TEST(damaged_data_are_found_when_asked),
        TEST(no_folder_is_no_trouble),
        TEST(no_room_is_no_trouble),
        TEST(one_of_a_crowd_packs),
        TEST(a_crash_leaves_nothing_bad),
        TEST(kept_weights_are_checked_in_the_background),
        TEST(a_load_can_be_stopped),
        TEST(a_replaced_file_stays_with_its_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
