/* process_state: what of a running daemon has the same form in all: the `process` of GET
 * /debug/state. Bounded by the budgets and the rules of the log there can be; no text of clients.
 * Thread: any. */
#ifndef BATON_BASE_PROCESS_STATE_H
#define BATON_BASE_PROCESS_STATE_H

struct budget;
struct json_value;

/* Owned by the caller; members are missing where memory was. NULL: no memory at all. */
struct json_value *process_state(const struct budget *b);

#endif
