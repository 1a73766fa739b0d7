/* dresult_in: the persistent GET /dresult to one decode instance: asks for version 2, understands
 * version 1, reconnects, and hands frames to the requests (cluster-api 5.5). Thread: the loop
 * thread. */
#ifndef BATON_COORDINATOR_DRESULT_IN_H
#define BATON_COORDINATOR_DRESULT_IN_H

#include <stdint.h>
#include "proto/err.h"

struct coordinator;
struct dresult_in;

enum err dresult_in_open(struct dresult_in **out, struct coordinator *co, uint32_t inst_id);
void dresult_in_close(struct dresult_in **d); /* NULL is fine */

#endif
