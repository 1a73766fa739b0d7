/* limits_conf: the settings of the budgets (budget.h), the same for every daemon: "limits." of the
 * coordinator's and of the instance's configuration. A new limit is a member, a row, and a line in
 * docs/configuration.md. */
#ifndef BATON_BASE_LIMITS_CONF_H
#define BATON_BASE_LIMITS_CONF_H

#include <stdint.h>
#include "common/base/conf.h"

struct limits_conf {
    int64_t bodies_mib; /* of request bodies in flight; 0: budget_bodies_default() */
};

/* Rows of a table of struct st, whose member m is a struct limits_conf; prefix: "pd.limits." */
#define LIMITS_KEYS(st, m, prefix)                                                                 \
    CONF_I(st, m.bodies_mib, prefix "bodiesInFlightMiB", 0, 1048576, "0",                          \
           "MiB of request bodies in flight over all connections; 0: 256 or a sixteenth of the "   \
           "memory, the smaller")

#endif
