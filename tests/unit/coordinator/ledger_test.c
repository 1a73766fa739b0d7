/* Goal: what is booked is what was booked and not released, and what is left follows it at once and
 * never says more than the report and the bookings allow. Method: rows worked out by hand;
 * thousands of random entries booked and released in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/ledger.h"

static void two_sides(void **state) {
    const struct demand d = {.prompts = 2, .slots = 6, .blocks = 9, .prompt_tokens = 700};
    const struct ledger_entry p = ledger_entry_p(&d, false), e = ledger_entry_d(&d, 1024.5);
    (void)state;
    assert_int_equal(p.room.slots, 2);
    assert_int_equal(p.room.blocks, 9);
    assert_int_equal(p.prompt_tokens, 700);
    assert_true(p.tokens == 0);
    assert_int_equal(e.room.slots, 6);
    assert_int_equal(e.room.blocks, 9);
    assert_int_equal(e.prompt_tokens, 0);
    assert_true(e.tokens == 1024.5);
    assert_true(e.decodes && !p.decodes);
}

/* One that is P and D of a request has one sequence for it, with the room of D's side. */
static void one_instance_alone(void **state) {
    const struct demand d = {.prompts = 2, .slots = 6, .blocks = 9, .prompt_tokens = 700};
    const struct ledger_entry p = ledger_entry_p(&d, true);
    struct ledger_entry e = ledger_entry_d(&d, 100);
    struct ledger l = {0};
    (void)state;
    ledger_book(&l, &p);
    ledger_book(&l, &e);
    assert_int_equal(l.booked.slots, 6);
    assert_int_equal(l.booked.blocks, 9);
    assert_int_equal(l.prompt_tokens, 700);
    assert_int_equal(l.coming, 1);
    ledger_release(&l, &p); /* its first token is there */
    ledger_begin(&l, &e);
    assert_int_equal(l.coming, 0);
    assert_int_equal(l.decodes, 1);
    assert_int_equal(l.booked.slots, 6);
    assert_int_equal(l.prompt_tokens, 0);
    ledger_release(&l, &e);
    assert_int_equal(l.booked.blocks, 0);
    assert_int_equal(l.tasks, 0);
}

static uint32_t rnd(uint32_t n) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x >> 32) % n;
}

static void expect(const struct ledger *l, const struct ledger *want) {
    assert_int_equal(l->tasks, want->tasks);
    assert_int_equal(l->decodes, want->decodes);
    assert_int_equal(l->coming, want->coming);
    assert_int_equal(l->booked.slots, want->booked.slots);
    assert_int_equal(l->booked.blocks, want->booked.blocks);
    assert_int_equal(l->prompt_tokens, want->prompt_tokens);
    assert_true(l->tokens == want->tokens);
}

static void sums(void **state) {
    enum { LIVE = 64 };
    struct ledger l = {0}, empty = {0};
    struct ledger_entry live[LIVE];
    unsigned n = 0;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        if (n < LIVE && (n == 0 || rnd(2) == 0)) {
            live[n] = (struct ledger_entry){.room = {rnd(9), rnd(99)},
                                            .prompt_tokens = rnd(4000),
                                            .tokens = rnd(4000),
                                            .decodes = rnd(2) == 0};
            live[n].coming = live[n].decodes;
            ledger_book(&l, &live[n++]);
        } else if (rnd(3) == 0) {
            ledger_begin(&l, &live[rnd(n)]); /* some of them again, which changes nothing */
        } else {
            unsigned k = rnd(n);
            ledger_release(&l, &live[k]);
            live[k] = live[--n];
        }
        struct ledger want = {.tasks = n};
        for (unsigned k = 0; k < n; k++) {
            want.booked.slots += live[k].room.slots;
            want.booked.blocks += live[k].room.blocks;
            want.prompt_tokens += live[k].prompt_tokens;
            want.tokens += live[k].tokens;
            want.decodes += live[k].decodes;
            want.coming += live[k].coming;
        }
        expect(&l, &want);
    }
    while (n > 0) ledger_release(&l, &live[--n]);
    expect(&l, &empty);
}

static void what_is_left(void **state) {
    static const struct {
        uint64_t total, free_then, then, now, left;
    } rows[] = {
        {8, 8, 0, 0, 8}, {8, 8, 0, 3, 5}, {8, 5, 3, 3, 5},
        {8, 5, 3, 0, 8}, {8, 5, 3, 4, 4}, {8, 8, 3, 3, 5}, /* booked, not there yet */
        {8, 2, 0, 2, 0},                                   /* six of somebody else's */
        {8, 4, 2, 1, 6}, /* of four used, by two requests, one has ended */
        {8, 0, 9, 9, 0}, {0, 0, 0, 1, 0}, {8, 9, 0, 0, 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ledger l = {.booked = {.slots = rows[i].then, .blocks = rows[i].then}};
        ledger_poll_begins(&l);
        l.booked = (struct booking){99, 99}; /* while the poll is on its way */
        ledger_poll_answered(&l);
        l.booked = (struct booking){rows[i].now, rows[i].now};
        uint64_t slots = ledger_slots_left(&l, rows[i].total, rows[i].free_then),
                 blocks = ledger_blocks_left(&l, rows[i].total, rows[i].free_then);
        if (slots != rows[i].left || blocks != slots)
            fail_msg("row %zu: %llu", i, (unsigned long long)slots);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sides),
        cmocka_unit_test(one_instance_alone),
        cmocka_unit_test(sums),
        cmocka_unit_test(what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
