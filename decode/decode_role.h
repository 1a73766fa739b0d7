/* decode_role: the hat of a decode instance: takes over requests whose prompt a prefill instance
 * has computed (cluster-api 5.3, 5.4), generates the rest and writes it to the result stream (5.5).
 */
#ifndef BATON_DECODE_DECODE_ROLE_H
#define BATON_DECODE_DECODE_ROLE_H

#include "common/instance/role.h"

extern const struct role_ops decode_role;

#endif
