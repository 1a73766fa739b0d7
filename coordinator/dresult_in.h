/* dresult_in: the persistent GET /dresult to one instance (cluster-api 5.5): asks for version 2,
 * understands version 1, reconnects, and hands the frames of a decode instance to the requests.
 *
 * An instance that lets itself be watched (proto/dresult.h) is connected whatever its role, and
 * found to be lost by controller_instance_lost():
 *   - at once, when its connection ends and another one is refused, or is answered by another
 * process;
 *   - when neither the stream nor the answer of a poll has brought a byte for MISSES_MAX
 * heartbeats; a stream that alone is silent for so long is opened anew, and nothing is lost by
 * that;
 *   - when the stream that was opened anew brings nothing for twice as long: the way to the
 * business plane is broken, whatever the polls say. Only time in which this loop ran counts, so
 * that a coordinator which stood still blames nobody. Every other instance has 30 s of silence, and
 * the polls.
 *
 * Thread: the loop thread. */
#ifndef BATON_COORDINATOR_DRESULT_IN_H
#define BATON_COORDINATOR_DRESULT_IN_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

struct coordinator;
struct dresult_in;

enum err dresult_in_open(struct dresult_in **out, struct coordinator *co, uint32_t inst_id);
void dresult_in_close(struct dresult_in **d); /* NULL is fine; the instance's stream is down */

/* Every TICK of the controller. May find the instance to be lost, which closes d. */
void dresult_in_tick(struct dresult_in *d, uint64_t now_ms);
/* How long the stream of an instance that is watched is away before it is back or the instance is
 * lost. */
uint64_t dresult_in_away_ms_max(const struct coordinator *co);
/* A poll of the instance was answered. NULL is fine. */
void dresult_in_alive(struct dresult_in *d);

#endif
