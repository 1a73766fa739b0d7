/* Goal: the rows of a request say everything that is checked and printed, once. Method: every row
 * with a range is tried at both ends and beyond them; what members mean together; the text names
 * member, range and value; print shows what is not neutral and stays within its room. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/infer_fields.h"

/* False: the type cannot hold the value. */
static bool set(const struct infer_field *f, struct infer_req *req, double v) {
    void *at = (char *)req + f->at;
    switch (f->type) {
    case INFER_ENUM: *(unsigned *)at = (unsigned)v; return v >= 0;
    case INFER_I32: *(int32_t *)at = (int32_t)v; return v >= INT32_MIN && v <= INT32_MAX;
    case INFER_U32: *(uint32_t *)at = (uint32_t)v; return v >= 0 && v <= UINT32_MAX;
    case INFER_F32: *(float *)at = (float)v; return true;
    case INFER_BOOL:
    case INFER_I64:
    case INFER_U64:
    case INFER_STR: break;
    }
    return false;
}

static bool good_at(const struct infer_field *f, double v, bool *set_it) {
    struct infer_req *q = infer_req_create();
    struct errbuf eb = {0};
    *set_it = set(f, q, v);
    if (strcmp(f->name, "n") == 0) q->sampling.n_choices = CHOICES_MAX;
    bool good = infer_fields_check(q, &eb) == ERR_OK;
    if (!good && *set_it) assert_non_null(strstr(eb.text, f->name));
    infer_req_destroy(&q);
    return good;
}

static void every_range_has_two_ends(void **state) {
    (void)state;
    size_t n = 0;
    for (const struct infer_field *f = infer_fields; f->name != NULL; f++) {
        bool can;
        double step = f->type == INFER_F32 ? 1e-3 : 1;
        if (f->type == INFER_STR || (f->lo == 0 && f->hi == 0)) continue;
        if (!good_at(f, f->lo + (f->above_lo ? step : 0), &can)) fail_msg("%s low", f->name);
        if (!good_at(f, f->hi, &can)) fail_msg("%s high", f->name);
        if (good_at(f, f->lo - (f->above_lo ? 0 : step), &can) && can) fail_msg("%s <", f->name);
        double beyond = f->hi > 1e30 ? INFINITY : f->hi + step;
        if (good_at(f, beyond, &can) && can) fail_msg("%s >", f->name);
        if (f->type == INFER_F32 && good_at(f, NAN, &can)) fail_msg("%s NaN", f->name);
        n++;
    }
    assert_true(n > 15);
}

static void the_text_names_member_range_and_value(void **state) {
    (void)state;
    struct infer_req *q = infer_req_create();
    struct errbuf eb = {0};
    q->sampling.top_p = 2;
    assert_int_equal(infer_fields_check(q, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "top_p must be above 0 to 1, got 2");
    assert_int_equal(sampling_check(&q->sampling, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "top_p must be above 0 to 1, got 2");
    q->sampling.top_p = 1;
    q->head.priority = 6;
    assert_int_equal(sampling_check(&q->sampling, &eb), ERR_OK);
    assert_int_equal(infer_fields_check(q, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "priority must be from 1 to 5, got 6");
    q->head.priority = 5;
    q->head.model = malloc(MODEL_NAME_BYTES_MAX + 2);
    memset(q->head.model, 'a', MODEL_NAME_BYTES_MAX + 1);
    q->head.model[MODEL_NAME_BYTES_MAX + 1] = 0;
    assert_int_equal(infer_fields_check(q, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "model must have at most 256 bytes, got 257");
    infer_req_destroy(&q);
}

static void print_shows_what_is_not_neutral(void **state) {
    (void)state;
    struct infer_req *q = infer_req_create();
    char text[200];
    infer_req_print(text, sizeof(text), q);
    assert_string_equal(text, "");
    q->head.model = strdup("abc");
    q->answer.stream = true;
    q->sampling.temperature = 0.5f;
    q->sampling.seed = UINT64_MAX;
    infer_req_print(text, sizeof(text), q);
    assert_string_equal(text, "model=3B stream=1 temperature=0.5 seed=18446744073709551615");
    for (size_t cap = 1; cap < 60; cap++) {
        memset(text, 'x', sizeof(text));
        infer_req_print(text, cap, q);
        assert_true(strlen(text) < cap);
        assert_int_equal(text[cap], 'x');
    }
    infer_req_destroy(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_range_has_two_ends),
        cmocka_unit_test(the_text_names_member_range_and_value),
        cmocka_unit_test(print_shows_what_is_not_neutral),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
