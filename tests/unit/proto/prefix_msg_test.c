/* Goal: digests say the same wherever they are made, of a prompt few enough are told and none of a
 * shared beginning is far away, and what is no message is refused by its member. Method: prompts of
 * all lengths against the chain made block by block; messages there and back, and broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/json.h"
#include "proto/prefix_msg.h"

enum { BT = 4, N_IDS = 4096 };

static void digests_of_a_prompt(void **state) {
    static int32_t ids[N_IDS];
    uint64_t out[PREFIX_PROMPT_DIGESTS_MAX], again[PREFIX_PROMPT_DIGESTS_MAX];
    (void)state;
    for (int i = 0; i < N_IDS; i++) ids[i] = i * 7;
    for (size_t n = 0; n <= N_IDS; n += 13) {
        const size_t k = prefix_digests_of(out, 5, ids, n, BT);
        uint64_t h = 5;
        size_t at = 0;
        for (uint32_t depth = 1; depth <= n / BT; depth++) {
            h = prefix_digest_next(h, ids + (depth - 1) * BT, BT);
            assert_true(h != 0 && (h & PREFIX_GONE) == 0);
            if (prefix_digest_counts(depth)) assert_true(at < k && out[at++] == h);
        }
        assert_int_equal(at, k);
    }
    const size_t k = prefix_digests_of(out, 5, ids, N_IDS, BT);
    assert_int_equal(prefix_digests_of(again, 6, ids, N_IDS, BT), k);
    for (size_t i = 0; i < k; i++) assert_true(out[i] != again[i]); /* of another owner */
    ids[100 * BT] ^= 1;
    (void)prefix_digests_of(again, 5, ids, N_IDS, BT);
    for (size_t i = 0; i < 16; i++) assert_true(out[i] == again[i]);
    assert_true(out[k - 1] != again[k - 1]);
}

static void few_and_near(void **state) {
    unsigned n = 0;
    uint32_t last = 0;
    (void)state;
    for (uint32_t depth = 1; depth < 1u << 17; depth = prefix_digest_after(depth)) {
        assert_true(prefix_digest_counts(depth));
        assert_true(depth <= 16 || depth - last <= (depth + 15) / 16);
        assert_true(depth == last + 1 || !prefix_digest_counts(depth - 1));
        last = depth;
        n++;
    }
    assert_true(n <= PREFIX_PROMPT_DIGESTS_MAX);
    assert_false(prefix_digest_counts(0));
}

static void owners_are_apart(void **state) {
    (void)state;
    const uint64_t seeds[] = {
        prefix_digest_seed("", NULL, 0),   prefix_digest_seed("ab", NULL, 0),
        prefix_digest_seed("a", "b", 0),   prefix_digest_seed("", "ab", 0),
        prefix_digest_seed("ab", NULL, 1), prefix_digest_seed("", "", 0),
    };
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
        for (size_t j = 0; j < i; j++) assert_true(seeds[i] != seeds[j]);
}

static void there_and_back(void **state) {
    uint64_t digests[] = {1, UINT64_C(0x7fffffffffffffff), 2 | PREFIX_GONE};
    const struct prefix_msg m = {.epoch = UINT64_C(0xfedcba9876543210),
                                 .seq = 77,
                                 .whole = true,
                                 .digests = digests,
                                 .n = 3};
    struct prefix_msg got;
    struct errbuf eb = {0};
    (void)state;
    struct json_value *o = prefix_msg_format(&m);
    assert_non_null(o);
    assert_int_equal(prefix_msg_parse(&got, o, &eb), ERR_OK);
    assert_true(got.epoch == m.epoch && got.seq == 77 && got.whole && got.n == 3);
    assert_memory_equal(got.digests, digests, sizeof(digests));
    prefix_msg_free(&got);
    json_put(o);
    assert_int_equal(prefix_msg_parse(&got, NULL, &eb), ERR_OK);
    assert_true(got.epoch == 0 && got.n == 0);
    assert_null(prefix_msg_format(&got)); /* nothing to tell */
}

static void bad_messages(void **state) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"{}", "prefixCache.epoch must be 16 hexadecimal digits"},
        {"{\"epoch\":\"0000000000000000\",\"seq\":1,\"digests\":\"\"}", "prefixCache.epoch"},
        {"{\"epoch\":\"000000000000000G\",\"seq\":1,\"digests\":\"\"}", "prefixCache.epoch"},
        {"{\"epoch\":\"0000000000000001\",\"digests\":\"\"}", "prefixCache.seq"},
        {"{\"epoch\":\"0000000000000001\",\"seq\":-1,\"digests\":\"\"}", "prefixCache.seq"},
        {"{\"epoch\":\"0000000000000001\",\"seq\":1}", "prefixCache.digests must be at most"},
        {"{\"epoch\":\"0000000000000001\",\"seq\":1,\"digests\":\"12\"}", "prefixCache.digests"},
        {"{\"epoch\":\"0000000000000001\",\"seq\":1,\"digests\":\"0000000000000001"
         "000000000000000A\"}",
         "prefixCache.digests[1]"},
        {"{\"epoch\":\"0000000000000001\",\"seq\":1,\"digests\":\"8000000000000000\"}",
         "prefixCache.digests[0]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct json_value *o = NULL;
        struct prefix_msg m;
        struct errbuf eb = {0};
        assert_int_equal(json_read(&o, rows[i].text, strlen(rows[i].text), NULL, NULL), ERR_OK);
        assert_int_equal(prefix_msg_parse(&m, o, &eb), ERR_INVALID);
        if (strstr(eb.text, rows[i].why) == NULL) fail_msg("%s: %s", rows[i].text, eb.text);
        assert_true(m.n == 0 && m.digests == NULL && m.epoch == 0);
        json_put(o);
    }
}

static void no_more_than_there_is_room(void **state) {
    uint64_t out[2];
    size_t n;
    char text[3 * PREFIX_DIGEST_CHARS + 1];
    const uint64_t three[] = {1, 2, 3};
    (void)state;
    prefix_digests_write(text, three, 3);
    assert_false(prefix_digests_read(out, 2, &n, text, strlen(text)));
    assert_true(prefix_digests_read(out, 2, &n, text, 2 * PREFIX_DIGEST_CHARS));
    assert_true(n == 2 && out[0] == 1 && out[1] == 2);
    assert_true(prefix_digests_read(out, 2, &n, "", 0) && n == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_of_a_prompt), cmocka_unit_test(few_and_near),
        cmocka_unit_test(owners_are_apart),    cmocka_unit_test(there_and_back),
        cmocka_unit_test(bad_messages),        cmocka_unit_test(no_more_than_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
