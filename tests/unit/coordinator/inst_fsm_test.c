/* Goal: the life of an instance goes as its table says. Method: every state times every event
 * against a second table; walks of random events never leave an instance in work that does not
 * answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "coordinator/inst_fsm.h"

/* Columns: status, role taken, role ready, role lost, drain, undrain, stopping, lost. The letter of
 * the next state (Unknown, Online, Posted, Serving, Draining, Leaving, Faulty); '-': refused. */
static const char *const want[INST_STATE_COUNT] = {
    [INST_UNKNOWN] = "O------U", [INST_ONLINE] = "OPSO--LF",   [INST_ROLE_POSTED] = "PPSO--LF",
    [INST_SERVING] = "SP-OD-LF", [INST_DRAINING] = "DP-O-SLF", [INST_LEAVING] = "P-----LF",
    [INST_FAULTY] = "O------F",
};
static const char letters[] = "UOPSDLF";

static void every_cell(void **state) {
    (void)state;
    for (int s = 0; s < INST_STATE_COUNT; s++)
        for (int e = 0; e < INST_EVENT_COUNT; e++) {
            struct inst_fsm f = {.state = (enum inst_state)s};
            enum err got = inst_fsm_step(&f, 1, (enum inst_event)e);
            char c = got == ERR_OK ? letters[f.state] : '-';
            if (got != ERR_OK) assert_int_equal(f.state, s);
            if (c != want[s][e])
                fail_msg("%s, event %d: %c", inst_state_name((enum inst_state)s), e, c);
        }
}

static void walks(void **state) {
    struct inst_fsm f = {0};
    bool lost = true, stopping = false;
    (void)state;
    srandom(7);
    for (int i = 0; i < 100000; i++) {
        enum inst_event ev = (enum inst_event)(random() % INST_EVENT_COUNT);
        if (inst_fsm_step(&f, 1, ev) != ERR_OK) continue;
        if (ev == INST_EV_LOST) lost = true;
        if (ev == INST_EV_STATUS) lost = stopping = false;
        if (ev == INST_EV_STOPPING) stopping = true;
        assert_int_equal(inst_state_answers(f.state), !lost);
        if (inst_state_has_role(f.state)) assert_false(lost || stopping);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cell), cmocka_unit_test(walks)};
    log_init(LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
