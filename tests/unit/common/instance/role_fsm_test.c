/* Goal: the states of a role change as the table of cluster-api 4 says, and in no other way.
 * Method: every state with every event against the table written out here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "common/instance/role_fsm.h"

static void every_state_times_every_event(void **state) {
#define U ROLE_STATUS_UNKNOWN
#define S ROLE_STATUS_SWITCHING
#define R ROLE_STATUS_READY
    enum { no = -1 };
    static const struct {
        enum role_status from;
        enum role_event ev;
        int to; /* no: refused */
    } rows[] = {
        {U, ROLE_EV_POSTED, S},   {U, ROLE_EV_LINKED, no},  {U, ROLE_EV_UNLINKED, no},
        {U, ROLE_EV_LOST, no},    {S, ROLE_EV_POSTED, S},   {S, ROLE_EV_LINKED, R},
        {S, ROLE_EV_UNLINKED, S}, {S, ROLE_EV_LOST, U},     {R, ROLE_EV_POSTED, S},
        {R, ROLE_EV_LINKED, R},   {R, ROLE_EV_UNLINKED, R}, {R, ROLE_EV_LOST, U},
    };
    bool seen[ROLE_STATUS_READY + 1][ROLE_EV_COUNT] = {{false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct role_fsm f = {rows[i].from};
        seen[rows[i].from][rows[i].ev] = true;
        assert_int_equal(role_fsm_step(&f, rows[i].ev), rows[i].to == no ? ERR_CONFLICT : ERR_OK);
        assert_int_equal(f.state, rows[i].to == no ? (int)rows[i].from : rows[i].to);
    }
    for (int s = 0; s <= ROLE_STATUS_READY; s++)
        for (int e = 0; e < ROLE_EV_COUNT; e++) assert_true(seen[s][e]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_state_times_every_event)};
    log_init(LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
