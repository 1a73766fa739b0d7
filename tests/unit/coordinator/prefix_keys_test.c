/* Goal: two inputs have the same keys exactly as far as they begin alike, at cuts that are near
 * each other and behind messages. Method: random inputs that share a random beginning; a
 * conversation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/prefix_keys.h"

enum { BYTES_MAX = 20000 };

static uint64_t rng = 7;
static unsigned rnd(unsigned n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % n;
}

static void same_as_far_as_they_begin_alike(void **state) {
    static char a[BYTES_MAX], b[BYTES_MAX];
    struct prefix_key ka[PREFIX_KEYS_MAX], kb[PREFIX_KEYS_MAX];
    (void)state;
    for (int round = 0; round < 500; round++) {
        const size_t na = 1 + rnd(BYTES_MAX), nb = 1 + rnd(BYTES_MAX);
        const bool braces = rnd(2) == 0;
        for (size_t i = 0; i < BYTES_MAX; i++)
            a[i] = braces && rnd(300) == 0 ? '}' : (char)('a' + rnd(26));
        memcpy(b, a, BYTES_MAX);
        const size_t shared = rnd(BYTES_MAX);
        for (size_t i = shared; i < BYTES_MAX; i++) b[i] = (char)('a' + rnd(26));
        b[shared] = (char)(a[shared] == 'x' ? 'y' : 'x');
        const size_t n_a = prefix_keys_of(ka, 1, a, na), n_b = prefix_keys_of(kb, 1, b, nb);
        assert_true(n_a <= PREFIX_KEYS_MAX && n_b <= PREFIX_KEYS_MAX);
        for (size_t i = 0; i < n_a; i++) {
            assert_true(ka[i].at <= na && ka[i].hash != 0 && (i == 0 || ka[i].at > ka[i - 1].at));
            for (size_t j = 0; j < n_b; j++)
                if (ka[i].at == kb[j].at)
                    assert_true((ka[i].hash == kb[j].hash) == (ka[i].at <= shared));
                else
                    assert_true(ka[i].hash != kb[j].hash);
        }
        /* without braces a shared beginning is known but for a sixteenth, or 256 bytes */
        size_t known = 0;
        const size_t most = shared < na && shared < nb ? shared : na < nb ? na : nb;
        for (size_t i = 0; i < n_a; i++)
            if (ka[i].at <= most) known = ka[i].at;
        assert_true(known + 256 > most || known >= most - most / 16 - 256);
    }
}

static void a_conversation(void **state) {
    static const char one[] = "[{\"role\":\"user\",\"content\":\"What is {this}?\"}]",
                      two[] =
                          "[{\"role\":\"user\",\"content\":\"What is {this}?\"}, "
                          "{\"role\":\"assistant\",\"content\":\"A test.\"}, {\"role\":\"user\","
                          "\"content\":\"Why?\"}]";
    struct prefix_key k1[PREFIX_KEYS_MAX], k2[PREFIX_KEYS_MAX], other[PREFIX_KEYS_MAX];
    (void)state;
    const size_t n1 = prefix_keys_of(k1, 3, one, sizeof(one) - 1),
                 n2 = prefix_keys_of(k2, 3, two, sizeof(two) - 1);
    assert_int_equal(n1, 2);
    assert_int_equal(k1[1].at, sizeof(one) - 2); /* behind the last message */
    assert_int_equal(n2, 4);
    assert_true(k2[1].hash == k1[1].hash && k2[1].at == k1[1].at);
    (void)prefix_keys_of(other, 4, one, sizeof(one) - 1); /* behind another system text */
    assert_true(other[1].hash != k1[1].hash);
    assert_int_equal(prefix_keys_of(k1, 3, "", 0), 0);
}

static void what_is_long_is_bounded(void **state) {
    const size_t n = 4u << 20;
    char *p = malloc(n);
    struct prefix_key k[PREFIX_KEYS_MAX];
    (void)state;
    assert_non_null(p);
    memset(p, '}', n);
    size_t n_keys = prefix_keys_of(k, 1, p, n);
    assert_true(n_keys <= PREFIX_KEYS_MAX && k[n_keys - 1].at == PREFIX_KEY_BYTES_MAX);
    memset(p, 'a', n);
    n_keys = prefix_keys_of(k, 1, p, n);
    assert_true(k[n_keys - 1].at > PREFIX_KEY_BYTES_MAX / 16 * 15);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_far_as_they_begin_alike),
        cmocka_unit_test(a_conversation),
        cmocka_unit_test(what_is_long_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
