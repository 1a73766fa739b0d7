/* limits_conf: the settings of the budgets (budget.h), the same for every daemon: "limits." of the
 * coordinator's and of the instance's configuration. A new limit is a member, a row, and a line in
 * docs/configuration.md. */
#ifndef BATON_BASE_LIMITS_CONF_H
#define BATON_BASE_LIMITS_CONF_H

#include <stdint.h>
#include "common/base/conf.h"

struct limits_conf {
    int64_t bodies_mib;  /* of request bodies in flight; 0: budget_bodies_default() */
    int64_t answers_mib; /* of answers between D and client; 0: the same */
};

/* Rows of a table of struct st, whose member m is a struct limits_conf; prefix: "pd.limits." */
#define LIMITS_KEYS(st, m, prefix)                                                                 \
    CONF_I(st, m.bodies_mib, prefix "bodiesInFlightMiB", 0, 1048576, "0",                          \
           "MiB of request bodies in flight over all connections; 0: 256 or a sixteenth of the "   \
           "memory, the smaller"),                                                                 \
        CONF_I(st, m.answers_mib, prefix "answersMiB", 0, 1048576, "0",                            \
               "MiB of answers that a decode instance keeps for the coordinator, and the "         \
               "coordinator "                                                                      \
               "until it can pass them on; 0: 256 or a sixteenth of the memory, the smaller")

#endif
