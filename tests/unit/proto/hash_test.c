/* Goal: the numbers are those of FNV-1a, since files and other processes have them. Method: the
 * published vectors (draft-eastlake-fnv), by bytes, by text and byte by byte; what goes over the
 * wire is one of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "proto/hash.h"
#include "proto/role_msg.h"

static void known_vectors(void **state) {
    static const struct {
        const char *text;
        uint32_t h32;
        uint64_t h64;
    } rows[] = {
        {"", 0x811c9dc5, 0xcbf29ce484222325},
        {"a", 0xe40c292c, 0xaf63dc4c8601ec8c},
        {"foobar", 0xbf9cf968, 0x85944171f73967e8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *s = rows[i].text;
        uint64_t h64 = HASH64_BEGIN;
        uint32_t h32 = HASH32_BEGIN;
        for (const char *c = s; *c != '\0'; c++) {
            h64 = hash64_add(h64, (unsigned char)*c);
            h32 = hash32_add(h32, (unsigned char)*c);
        }
        assert_true(h64 == rows[i].h64 && h32 == rows[i].h32);
        assert_true(hash64_text(HASH64_BEGIN, s) == rows[i].h64);
        assert_true(hash64_bytes(HASH64_BEGIN, s, strlen(s)) == rows[i].h64);
        assert_int_equal(hash32_text(HASH32_BEGIN, s), rows[i].h32);
        assert_int_equal(hash32_bytes(HASH32_BEGIN, s, strlen(s)), rows[i].h32);
        assert_true(role_msg_hash(s, strlen(s)) == rows[i].h64);
    }
    /* bytes of the upper half are not negative */
    assert_true(hash64_text(HASH64_BEGIN, "\xff") == (HASH64_BEGIN ^ 0xff) * 0x100000001b3);
    assert_int_equal(hash32_text(HASH32_BEGIN, "\xff"), (HASH32_BEGIN ^ 0xffu) * 0x01000193u);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
