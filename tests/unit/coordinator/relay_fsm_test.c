/* Goal: the table of a request's states says what design and readers expect of it, in every cell.
 * Method: all states times all events against rules: what ends a request ends it from everywhere it
 * can come, nothing leaves "ended", only an attempt that runs can be lost, and a pair is only for
 * those that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/relay_fsm.h"

static bool runs(enum relay_state s) {
    return s == RELAY_PREFILLING || s == RELAY_DECODING || s == RELAY_DRAINING;
}

static bool waits(enum relay_state s) {
    return s == RELAY_WAITING || s == RELAY_RECOVERING;
}

static bool is_expected(enum relay_state s, enum relay_event e) {
    switch (e) {
    case EV_PAIR: return waits(s);
    case EV_FIRST_TOKEN:
    case EV_EARLY: return s == RELAY_PREFILLING || s == RELAY_DRAINING;
    case EV_PIECE: return s == RELAY_DECODING || s == RELAY_DRAINING;
    case EV_ANSWERED:
    case EV_REFUSED: return runs(s);
    case EV_LOST: return s == RELAY_PREFILLING || s == RELAY_DECODING;
    case EV_STOP: return s != RELAY_DRAINING && s != RELAY_ENDED;
    case EV_CLIENT_GONE:
    case EV_FAILED: return s != RELAY_ENDED;
    case RELAY_EVENTS: break;
    }
    return false;
}

static void every_cell(void **state) {
    (void)state;
    for (int i = 0; i < RELAY_STATES; i++)
        for (int k = 0; k < RELAY_EVENTS; k++) {
            const enum relay_state s = (enum relay_state)i;
            const enum relay_event e = (enum relay_event)k;
            const struct relay_move m = relay_fsm_move(s, e);
            if (is_expected(s, e) != (m.act != ACT_UNEXPECTED))
                fail_msg("%s on %s", relay_state_name(s), relay_event_name(e));
            if (m.act == ACT_UNEXPECTED) assert_int_equal(m.next, RELAY_ENDED);
            const bool ends = m.act == ACT_UNEXPECTED || m.act == ACT_FINISH ||
                              m.act == ACT_PASS_ERROR || m.act == ACT_DROP || m.act == ACT_FAIL;
            assert_int_equal(m.next == RELAY_ENDED, ends);
            if (m.act == ACT_SEND) assert_int_equal(m.next, RELAY_PREFILLING);
            if (e == EV_LOST && !ends) assert_int_equal(m.next, RELAY_RECOVERING);
            if (s == RELAY_DRAINING && !ends) assert_int_equal(m.next, RELAY_DRAINING);
            assert_int_not_equal(m.next, RELAY_WAITING); /* it is only ever the first */
        }
}

static void names(void **state) {
    (void)state;
    for (int i = 0; i < RELAY_STATES; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(relay_state_name((enum relay_state)i),
                                    relay_state_name((enum relay_state)k));
    for (int i = 0; i < RELAY_EVENTS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(relay_event_name((enum relay_event)i),
                                    relay_event_name((enum relay_event)k));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cell), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
