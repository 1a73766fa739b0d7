/* prefill_role: the hat of a prefill instance: takes requests from a coordinator
 * (cluster-api 5.1, 5.2), computes the prompt, chooses the first token, and hands the request to
 * the decode instance the coordinator named. */
#ifndef BATON_PREFILL_PREFILL_ROLE_H
#define BATON_PREFILL_PREFILL_ROLE_H

#include "common/instance/role.h"

extern const struct role_ops prefill_role;

#endif
