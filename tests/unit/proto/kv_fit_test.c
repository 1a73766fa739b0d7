/* Goal:   two instances link only if KV and ids mean the same to both: each fact of a hello that
 * differs has its code, its both values and who could allow it; what may differ may only where both
 * say so. Method: two hellos that fit, then one fact after the other made another, with every pair
 * of allowances. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "proto/kv_fit.h"
#include "proto/role_msg.h"

static struct kv_hello hello(uint32_t id, enum inst_role role) {
    struct kv_hello h = {
        .instance_id = id,
        .role = (uint8_t)role,
        .protocol = KV_VERSION,
        .n_layers = 24,
        .n_kv_heads = 2,
        .head_dim = 64,
        .block_tokens = 128,
        .n_shards = 1,
        .kv_dtype = "bf16",
        .weight_dtype = "int8",
        .arithmetic = "common",
        .boot = id, /* and these three may be anything */
        .ticket = id,
        .window_bytes = id,
    };
    memset(h.conf_hash, 0x3c, sizeof(h.conf_hash));
    memset(h.model_hash, 0xa5, sizeof(h.model_hash));
    memset(h.tokenizer_hash, 0x5a, sizeof(h.tokenizer_hash));
    return h;
}

static void each_difference_has_its_code_and_both_values(void **state) {
    (void)state;
    const struct kv_hello p = hello(11, ROLE_PREFILL), d = hello(21, ROLE_DECODE);
    char text[KV_TEXT_BYTES_MAX + 1];
    assert_int_equal(kv_fit(&p, &d, text), KV_LINK_OK);
    assert_int_equal(kv_fit(&d, &p, text), KV_LINK_OK);
    assert_string_equal(text, "");
    struct {
        struct kv_hello h;
        enum kv_link_code code;
        const char *text;
    } cases[13];
    const size_t n = sizeof(cases) / sizeof(cases[0]);
    for (size_t i = 0; i < n; i++) cases[i].h = d;
    cases[0].h.protocol = KV_VERSION + 1, cases[0].code = KV_LINK_VERSION,
    cases[0].text = "protocol version: instance 11 has 7, instance 21 has 8";
    cases[1].h.role = ROLE_PREFILL, cases[1].code = KV_LINK_ROLE,
    cases[1].text = "role: instance 11 has prefill, instance 21 has prefill";
    cases[2].h.model_hash[31] = 0, cases[2].code = KV_LINK_MODEL,
    cases[2].text = "model hash: instance 11 has a5a5a5a5a5a5a5a5, instance 21 has "
                    "a5a5a5a5a5a5a5a5; allowMixedWeightDtype is off in both";
    cases[3].h.n_layers = 25, cases[3].code = KV_LINK_SHARDS,
    cases[3].text = "layers: instance 11 has 24, instance 21 has 25";
    cases[4].h.n_kv_heads = 4, cases[4].code = KV_LINK_SHARDS,
    cases[4].text = "KV heads: instance 11 has 2, instance 21 has 4";
    cases[5].h.head_dim = 128, cases[5].code = KV_LINK_SHARDS,
    cases[5].text = "head size: instance 11 has 64, instance 21 has 128";
    strcpy(cases[6].h.kv_dtype, "f32"),
        cases[6].code = KV_LINK_DTYPE,
        cases[6].text = "KV dtype: instance 11 has bf16, instance 21 has f32";
    cases[7].h.block_tokens = 16, cases[7].code = KV_LINK_BLOCK,
    cases[7].text = "block tokens: instance 11 has 128, instance 21 has 16";
    cases[8].h.n_shards = 2, cases[8].code = KV_LINK_SHARDS,
    cases[8].text = "shards: instance 11 has 1, instance 21 has 2";
    strcpy(cases[9].h.weight_dtype, "bf16"),
        cases[9].code = KV_LINK_DTYPE,
        cases[9].text = "weight dtype: instance 11 has int8, instance 21 has bf16; "
                        "allowMixedWeightDtype is off in both";
    cases[10].h.conf_hash[0] = 1, cases[10].code = KV_LINK_MODEL,
    cases[10].text =
        "model configuration: instance 11 has 3c3c3c3c3c3c3c3c, instance 21 has 013c3c3c3c3c3c3c";
    cases[11].h.tokenizer_hash[0] = 1, cases[11].code = KV_LINK_TOKENIZER,
    cases[11].text =
        "tokenizer hash: instance 11 has 5a5a5a5a5a5a5a5a, instance 21 has 015a5a5a5a5a5a5a";
    strcpy(cases[12].h.arithmetic, "neonbf16"),
        cases[12].code = KV_LINK_ARITHMETIC,
        cases[12].text = "arithmetic: instance 11 has common, instance 21 has neonbf16; "
                         "allowMixedIsa is off in both";
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(kv_fit(&p, &cases[i].h, text), cases[i].code);
        assert_string_equal(text, cases[i].text);
        /* whatever is allowed, only weights and arithmetic may differ */
        struct kv_hello free_p = p, free_d = cases[i].h;
        free_p.may_differ = free_d.may_differ = 0xff;
        const bool may = i == 2 || i == 9 || i == 12;
        assert_int_equal(kv_fit(&free_p, &free_d, text), may ? KV_LINK_OK : cases[i].code);
        const size_t told = strcspn(cases[i].text, ";");
        assert_memory_equal(text, cases[i].text, told);
        assert_int_equal(text[told], 0);
    }
    struct kv_hello none = d;
    none.role = 200; /* not a role at all */
    assert_int_equal(kv_fit(&p, &none, text), KV_LINK_ROLE);
    assert_string_equal(text, "role: instance 11 has prefill, instance 21 has unknown");
}

static void weights_differ_where_both_allow_it(void **state) {
    (void)state;
    char text[KV_TEXT_BYTES_MAX + 1];
    for (unsigned leave = 0; leave < 4; leave++) {
        struct kv_hello p = hello(11, ROLE_PREFILL), d = hello(21, ROLE_DECODE);
        strcpy(p.weight_dtype, "bf16");
        memset(d.model_hash, 0xee, sizeof(d.model_hash));
        p.may_differ = leave & 1 ? KV_MAY_WEIGHTS : 0;
        d.may_differ = leave & 2 ? KV_MAY_WEIGHTS : 0;
        const enum kv_link_code code = kv_fit(&p, &d, text);
        assert_int_equal(code, leave == 3 ? KV_LINK_OK : KV_LINK_MODEL);
        static const char *const said[] = {
            "model hash: instance 11 has a5a5a5a5a5a5a5a5, instance 21 has eeeeeeeeeeeeeeee; "
            "allowMixedWeightDtype is off in both",
            "model hash: instance 11 has a5a5a5a5a5a5a5a5, instance 21 has eeeeeeeeeeeeeeee; "
            "allowMixedWeightDtype is off in instance 21",
            "model hash: instance 11 has a5a5a5a5a5a5a5a5, instance 21 has eeeeeeeeeeeeeeee; "
            "allowMixedWeightDtype is off in instance 11",
            "model hash: instance 11 has a5a5a5a5a5a5a5a5, instance 21 has eeeeeeeeeeeeeeee; "
            "weight dtype: instance 11 has bf16, instance 21 has int8",
        };
        assert_string_equal(text, said[leave]);
        /* what else differs is not forgotten behind it */
        d.n_layers++;
        assert_int_equal(kv_fit(&p, &d, text), leave == 3 ? KV_LINK_SHARDS : KV_LINK_MODEL);
        if (leave == 3) assert_string_equal(text, "layers: instance 11 has 24, instance 21 has 25");
    }
}

/* Each key allows its own alone. */
static void arithmetic_differs_where_both_allow_it(void **state) {
    (void)state;
    char text[KV_TEXT_BYTES_MAX + 1];
    static const struct {
        uint8_t p, d;
        const char *said; /* NULL: they link */
    } cases[] = {
        {0, 0, "both"},
        {KV_MAY_ARITHMETIC, 0, "instance 21"},
        {0, KV_MAY_ARITHMETIC, "instance 11"},
        {KV_MAY_WEIGHTS, KV_MAY_WEIGHTS, "both"},
        {KV_MAY_ARITHMETIC, KV_MAY_ARITHMETIC, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kv_hello p = hello(11, ROLE_PREFILL), d = hello(21, ROLE_DECODE);
        strcpy(p.arithmetic, "avx512bf16");
        p.may_differ = cases[i].p;
        d.may_differ = cases[i].d;
        const bool links = cases[i].said == NULL;
        char want[KV_TEXT_BYTES_MAX + 1];
        snprintf(want, sizeof(want),
                 "arithmetic: instance 11 has avx512bf16, instance 21 has common%s%s",
                 links ? "" : "; allowMixedIsa is off in ", links ? "" : cases[i].said);
        assert_int_equal(kv_fit(&p, &d, text), links ? KV_LINK_OK : KV_LINK_ARITHMETIC);
        assert_string_equal(text, want);
    }
}

/* The longest that can be said fits: ids of ten digits, all that may differ, the
 * longest names that there are. */
static void the_longest_text_is_whole(void **state) {
    (void)state;
    char text[KV_TEXT_BYTES_MAX + 1];
    struct kv_hello p = hello(UINT32_MAX, ROLE_FLEX), d = hello(UINT32_MAX - 1, ROLE_FLEX);
    p.may_differ = d.may_differ = 0xff;
    memset(p.model_hash, 1, sizeof(p.model_hash));
    strcpy(p.weight_dtype, "iq4_nl");
    strcpy(d.weight_dtype, "iq4_xs");
    strcpy(p.arithmetic, "avx512bf16");
    strcpy(d.arithmetic, "neonbf16");
    assert_int_equal(kv_fit(&p, &d, text), KV_LINK_OK);
    assert_string_equal(text + strlen(text) - 8, "neonbf16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_difference_has_its_code_and_both_values),
        cmocka_unit_test(weights_differ_where_both_allow_it),
        cmocka_unit_test(arithmetic_differs_where_both_allow_it),
        cmocka_unit_test(the_longest_text_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
