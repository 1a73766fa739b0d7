/* Goal: a client is named the same way everywhere, by its key or its address, and only keys own
 * things. Method: a table of peers, both sides of every bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "proto/tenant.h"

static void peers(void **state) {
    static const struct {
        const char *peer, *tenant;
    } rows[] = {
        {"10.0.0.7:45122", "addr-10.0.0.7"},
        {"10.0.0.7:1", "addr-10.0.0.7"},
        {"255.255.255.255:65535", "addr-255.255.255.255"},
        {"[2001:db8:1:2:3:4:5:6]:80", "addr-2001:db8:1:2::"}, /* a subscriber's /64 */
        {"[2001:db8:1:2:ffff:ffff:ffff:ffff]:80", "addr-2001:db8:1:2::"},
        {"[2001:db8:1:3::1]:80", "addr-2001:db8:1:3::"},
        {"[::ffff:10.0.0.7]:80", "addr-10.0.0.7"},
        {"[::1]:80", "addr-::"},
        {"", "addr-unknown"},
        {":80", "addr-unknown"},
        {"[:80", "addr-unknown"},
        {"[]:80", "addr-unknown"},
        {"10.0.0.7", "addr-unknown"},
        {"host:80", "addr-unknown"},
        {"0000000000000000000000000000000000000000000000000000000000000000:80", "addr-unknown"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char t[TENANT_BYTES_MAX + 1];
        tenant_of_peer(t, rows[i].peer);
        assert_string_equal(t, rows[i].tenant);
        assert_true(tenant_ok(t));
        assert_string_equal(tenant_owner(t), "");
    }
}

static void keys(void **state) {
    unsigned char a[32], b[32];
    char ta[TENANT_BYTES_MAX + 1], tb[TENANT_BYTES_MAX + 1];
    (void)state;
    memset(a, 0xa5, sizeof(a));
    memcpy(b, a, sizeof(b));
    tenant_of_key(ta, a, sizeof(a));
    assert_string_equal(ta, "key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5");
    assert_true(tenant_ok(ta));
    assert_string_equal(tenant_owner(ta), ta);
    b[15] ^= 1;
    tenant_of_key(tb, b, sizeof(b));
    assert_false(tenant_same_owner(ta, tb));
    assert_true(tenant_same_owner(ta, ta));
    assert_false(tenant_same_owner(ta, "addr-10.0.0.7"));
    assert_false(tenant_same_owner(ta, NULL));
    assert_true(tenant_same_owner("addr-10.0.0.7", "addr-10.0.0.8"));
    assert_true(tenant_same_owner("addr-10.0.0.7", NULL));
    assert_true(tenant_same_owner("", "key")); /* no prefix, no key */
}

static void words(void **state) {
    char long_one[TENANT_BYTES_MAX + 2];
    (void)state;
    memset(long_one, 'a', sizeof(long_one));
    long_one[TENANT_BYTES_MAX + 1] = '\0';
    assert_false(tenant_ok(long_one));
    long_one[TENANT_BYTES_MAX] = '\0';
    assert_true(tenant_ok(long_one));
    assert_false(tenant_ok(""));
    assert_false(tenant_ok("a b"));
    assert_false(tenant_ok("a\n"));
    assert_false(tenant_ok("a\"b"));
    assert_true(tenant_ok("key-00ff"));
    assert_true(tenant_ok("addr-::1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers),
        cmocka_unit_test(keys),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
