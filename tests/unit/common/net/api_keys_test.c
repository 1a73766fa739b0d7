/* Goal: only who shows a key of the file is let in; a file that is wrong is refused with setting,
 * file and line, and never takes the place of a good one.
 * Method: files of a temporary folder, both sides of every bound, then the headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/log.h"
#include "common/net/api_keys.h"

#define KEY_A "alpha-key-0123456789"
#define KEY_B "beta-key-9876543210!"

static char dir[64];

static int setup(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    strcpy(dir, "/tmp/baton-keys-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int teardown(void **state) {
    char path[128];
    (void)state;
    snprintf(path, sizeof(path), "%s/keys", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/link", dir);
    unlink(path);
    return rmdir(dir);
}

static void put_n(const char *text, size_t n, unsigned mode) {
    char path[128];
    snprintf(path, sizeof(path), "%s/keys", dir);
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void put(const char *text) {
    put_n(text, strlen(text), 0600);
}

static struct api_keys *take(void) {
    struct api_keys *k;
    struct errbuf eb = {0};
    if (api_keys_open(&k, "t.keys", dir, "keys", &eb) != ERR_OK) fail_msg("%s", eb.text);
    return k;
}

static void refuse(const char *says) {
    struct api_keys *k = (struct api_keys *)1;
    struct errbuf eb = {0};
    enum err e = api_keys_open(&k, "t.keys", dir, "keys", &eb);
    if (e != ERR_BAD_CONFIG || k != NULL || strncmp(eb.text, "t.keys: ", 8) != 0 ||
        strstr(eb.text, says) == NULL)
        fail_msg("%s: \"%s\", wanted \"%s\"", err_name(e), eb.text, says);
}

static void entries(void **state) {
    (void)state;
    put("# keys of the house\n\n  " KEY_A "  \r\n\t\n" KEY_B);
    struct api_keys *k = take();
    assert_true(api_keys_allow(k, "Bearer " KEY_A, NULL));
    assert_true(api_keys_allow(k, "Bearer " KEY_B, NULL));
    assert_true(api_keys_allow(k, "bearer   " KEY_B " ", NULL));
    static const char *const no[] = {NULL,
                                     "",
                                     "Bearer",
                                     "Bearer ",
                                     "Bearer    ",
                                     KEY_A,
                                     "Bearer" KEY_A,
                                     "Basic " KEY_A,
                                     "Bearer " KEY_A "x",
                                     "Bearer alpha-key-012345678",
                                     "Bearer Alpha-key-0123456789",
                                     "Bearer # keys of the house",
                                     "Bearer " KEY_A " " KEY_B};
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_false(api_keys_allow(k, no[i], NULL));
    api_keys_close(&k);
    assert_null(k);
    api_keys_close(&k);
}

/* The same word for a key and for its hash, another for another key, none when it is refused. */
static void tenants(void **state) {
    char plain[TENANT_BYTES_MAX + 1], hashed[TENANT_BYTES_MAX + 1],
        other[TENANT_BYTES_MAX + 1] = "";
    (void)state;
    put("abcdefghijklmnop\n" KEY_B "\n");
    struct api_keys *k = take();
    assert_true(api_keys_allow(k, "Bearer abcdefghijklmnop", plain));
    assert_false(api_keys_allow(k, "Bearer " KEY_A, other));
    assert_string_equal(other, "");
    assert_true(api_keys_allow(k, "Bearer " KEY_B, other));
    api_keys_close(&k);
    put("sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf\n");
    k = take();
    assert_true(api_keys_allow(k, "bearer abcdefghijklmnop", hashed));
    api_keys_close(&k);
    assert_true(tenant_ok(plain) && tenant_ok(other));
    assert_string_equal(plain, hashed);
    assert_true(tenant_same_owner(plain, hashed));
    assert_false(tenant_same_owner(plain, other));
    assert_null(strstr(plain, "f39dac6c")); /* not the hash that the file may hold */
}

static void hashed_entries(void **state) {
    (void)state;
    /* printf %s abcdefghijklmnop | sha256sum */
    put("sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf\n");
    struct api_keys *k = take();
    assert_true(api_keys_allow(k, "Bearer abcdefghijklmnop", NULL));
    assert_false(api_keys_allow(
        k, "Bearer sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf", NULL));
    api_keys_close(&k);
    put("sha256:F39DAC6CBABA535E2C207CD0CD8F154974223C848F727F98B3564CEA569B41CF\n");
    k = take();
    assert_true(api_keys_allow(k, "Bearer abcdefghijklmnop", NULL));
    api_keys_close(&k);
    put("sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41c\n");
    refuse("line 1");
    put("sha256:g39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf\n");
    refuse("line 1");
    put("sha256:\n");
    refuse("line 1");
}

static void weights(void **state) {
    char a[TENANT_BYTES_MAX + 1], b[TENANT_BYTES_MAX + 1];
    (void)state;
    put(KEY_A
        "  weight=7\n" KEY_B
        "\nsha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf\tweight=100\n");
    struct api_keys *k = take();
    assert_true(api_keys_allow(k, "Bearer " KEY_A, a));
    assert_int_equal(api_keys_terms(k, a).weight, 7);
    assert_true(api_keys_allow(k, "Bearer " KEY_B, b));
    assert_int_equal(api_keys_terms(k, b).weight, 1);
    assert_true(api_keys_allow(k, "Bearer abcdefghijklmnop", b));
    assert_int_equal(api_keys_terms(k, b).weight, 100);
    assert_int_equal(api_keys_terms(k, "addr-127.0.0.1").weight, 1);
    assert_int_equal(api_keys_terms(NULL, a).weight, 1);
    put(KEY_A " weight=9\n");
    api_keys_reload(k);
    assert_int_equal(api_keys_terms(k, a).weight, 9);
    api_keys_close(&k);
    static const char *const wrong[] = {
        " weight=0",  " weight=101", " weight=",          " weight=1x",
        " weight=-1", " heavy",      " weight=1 weight=2"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), KEY_A "%s\n", wrong[i]);
        put(text);
        refuse("line 1");
    }
}

/* Each alone and together, in any order. */
static void targets(void **state) {
    char a[TENANT_BYTES_MAX + 1], b[TENANT_BYTES_MAX + 1];
    (void)state;
    put(KEY_A " digs_decode_slo=65535 weight=3\tdigs_prefill_slo=1\n" KEY_B
              " digs_prefill_slo=250\n");
    struct api_keys *k = take();
    assert_true(api_keys_allow(k, "Bearer " KEY_A, a) && api_keys_allow(k, "Bearer " KEY_B, b));
    struct key_terms t = api_keys_terms(k, a);
    assert_true(t.weight == 3 && t.prefill_slo_ms == 1 && t.decode_slo_ms == 65535);
    t = api_keys_terms(k, b);
    assert_true(t.weight == 1 && t.prefill_slo_ms == 250 && t.decode_slo_ms == 0);
    t = api_keys_terms(NULL, b);
    assert_true(t.weight == 1 && t.prefill_slo_ms == 0 && t.decode_slo_ms == 0);
    api_keys_close(&k);
    static const char *const wrong[] = {" digs_prefill_slo=0",
                                        " digs_prefill_slo=65536",
                                        " digs_prefill_slo=999999",
                                        " digs_decode_slo=1.5",
                                        " digs_decode_slo=",
                                        " prefill_slo=1",
                                        " digs_decode_slo=5 digs_decode_slo=5"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[96];
        snprintf(text, sizeof(text), KEY_A "%s\n", wrong[i]);
        put(text);
        refuse("digs_prefill_slo=1 to 65535, digs_decode_slo=1 to 65535, each at most once");
    }
}

static void bounds(void **state) {
    char line[300], *many = malloc((API_KEYS_MAX + 1) * 24);
    (void)state;
    for (size_t n = API_KEY_BYTES_MIN - 1; n <= API_KEY_BYTES_MIN; n++) {
        memset(line, 'k', n);
        line[n] = 0;
        put(line);
        if (n < API_KEY_BYTES_MIN) {
            refuse("must be a key of 16 to 256 visible ASCII characters");
        } else {
            struct api_keys *k = take();
            api_keys_close(&k);
        }
    }
    for (size_t n = API_KEY_BYTES_MAX; n <= API_KEY_BYTES_MAX + 1; n++) {
        memset(line, 'k', n);
        line[n] = 0;
        put(line);
        if (n > API_KEY_BYTES_MAX) {
            refuse("line 1");
        } else {
            struct api_keys *k = take();
            api_keys_close(&k);
        }
    }
    assert_non_null(many);
    for (int n = API_KEYS_MAX; n <= API_KEYS_MAX + 1; n++) {
        size_t at = 0;
        for (int i = 0; i < n; i++) at += (size_t)sprintf(many + at, "key-%017d\n", i);
        put(many);
        if (n > API_KEYS_MAX) {
            refuse("must have at most 10000 keys");
        } else {
            struct api_keys *k = take();
            assert_true(api_keys_allow(k, "Bearer key-00000000000009999", NULL));
            api_keys_close(&k);
        }
    }
    free(many);
    static const char *const wrong[] = {"two words of a key\n", "key-with-umlaut-\xc3\xa4-00000\n",
                                        "key-with-a-\x01-control\n"};
    for (size_t i = 0; i < 3; i++) {
        put(wrong[i]);
        refuse("line 1");
    }
    put_n("key-with-a-zero-\0-inside", 25, 0600);
    refuse("line 1");
    put("# one\n" KEY_A "\n\nshort\n");
    refuse("line 4");
}

/* The wrong line is named and not shown: it may be a key with a slip. */
static void never_shown(void **state) {
    struct api_keys *k;
    struct errbuf eb = {0};
    (void)state;
    put("my-secret key\n");
    assert_int_equal(api_keys_open(&k, "t.keys", dir, "keys", &eb), ERR_BAD_CONFIG);
    assert_null(strstr(eb.text, "secret"));
}

static void files(void **state) {
    static const unsigned good[] = {0600, 0400, 0700}, bad[] = {0640, 0604, 0610, 0602};
    char path[128], link_path[128];
    (void)state;
    put("");
    refuse("holds no key");
    put("# nothing\n\n");
    refuse("holds no key");
    for (size_t i = 0; i < 3; i++) {
        put_n(KEY_A, strlen(KEY_A), good[i]);
        struct api_keys *k = take();
        api_keys_close(&k);
    }
    for (size_t i = 0; i < 4; i++) {
        put_n(KEY_A, strlen(KEY_A), bad[i]);
        refuse("must be closed to group and others");
    }
    snprintf(path, sizeof(path), "%s/keys", dir);
    snprintf(link_path, sizeof(link_path), "%s/link", dir);
    if (geteuid() == 0) {
        put(KEY_A);
        assert_int_equal(chown(path, 1, (gid_t)-1), 0);
        refuse("must belong to the user of the process (uid 0)");
    }
    put(KEY_A);
    assert_int_equal(rename(path, link_path), 0);
    refuse("No such file");
    assert_int_equal(symlink(link_path, path), 0);
    refuse("must not be a symbolic link");
    unlink(path);
    put_n("", 0, 0600);
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    refuse("must have at most 1048576 bytes, it has 1048577");
}

static void reload(void **state) {
    (void)state;
    put(KEY_A);
    struct api_keys *k = take();
    put(KEY_B "\n");
    assert_false(api_keys_allow(k, "Bearer " KEY_B, NULL));
    api_keys_reload(k);
    assert_true(api_keys_allow(k, "Bearer " KEY_B, NULL));
    assert_false(api_keys_allow(k, "Bearer " KEY_A, NULL));
    static const char *const wrong[] = {"", "short\n", KEY_A "\nnot a key\n"};
    for (size_t i = 0; i < 3; i++) {
        put(wrong[i]);
        api_keys_reload(k);
        assert_true(api_keys_allow(k, "Bearer " KEY_B, NULL));
        assert_false(api_keys_allow(k, "Bearer " KEY_A, NULL));
    }
    put_n(KEY_A, strlen(KEY_A), 0644);
    api_keys_reload(k);
    assert_false(api_keys_allow(k, "Bearer " KEY_A, NULL));
    put(KEY_A);
    api_keys_reload(k);
    assert_true(api_keys_allow(k, "Bearer " KEY_A, NULL));
    api_keys_close(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries),     cmocka_unit_test(hashed_entries), cmocka_unit_test(tenants),
        cmocka_unit_test(weights),     cmocka_unit_test(targets),        cmocka_unit_test(bounds),
        cmocka_unit_test(never_shown), cmocka_unit_test(files),          cmocka_unit_test(reload),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
