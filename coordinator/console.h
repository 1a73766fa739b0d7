/* console: what the console's pages (common/net/console.h) ask of a coordinator, and the hour that
 * it remembers for them:
 *
 *   GET /v2/console            the cluster as it is: instances, links, why it is not ready
 *   GET /v2/console/requests   those that run and the last that ended
 *   GET /v2/console/history    the last hour (history.h); ?since=STEP&instances=1,2
 *   GET /v2/requests/{id}      one request, for whoever sent it too
 *
 * The first two are made at most once in CONSOLE_KEEP_MS, whoever asks, and have an ETag: a page
 * that looks every second costs the cluster next to nothing. Of all, CONSOLE_ANSWERS_MAX bodies a
 * second are sent; more are 429. Thread: the loop thread. A NULL console counts nothing. */
#ifndef BATON_COORDINATOR_CONSOLE_H
#define BATON_COORDINATOR_CONSOLE_H

#include "common/net/router.h"
#include "coordinator/history.h"
#include "proto/err.h"

struct console;
struct coordinator;

enum { CONSOLE_KEEP_MS = 400, CONSOLE_ANSWERS_MAX = 64, CONSOLE_MOVING_MAX = 64 };

enum err console_create(struct console **out, struct coordinator *co);
void console_destroy(struct console **c);

/* As history.h says, now. */
void console_first_token(struct console *c, const struct history_first *f);
void console_tokens(struct console *c, uint32_t d_id, uint64_t n, uint64_t gap_us);
void console_ended(struct console *c, enum history_end how);

extern const struct route console_data_routes[]; /* handlers get the coordinator */

#endif
