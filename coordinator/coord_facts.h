/* coord_facts: what the coordinator can say of itself for whoever looks for faults between nodes:
 * build, planes, TLS files and their ends, rank table, limits, machine. GET /v1/facts of the
 * management plane; `--facts` prints the same of a configuration that does not run. Paths, never
 * what is in the files. Thread: the loop thread, or the only one.
 *
 * It also asks an instance for what it says of itself (GET /v1/instances/facts, ../status, POST
 * ../measure, each with ?id=N), since it has the certificates for that and the way to it. */
#ifndef BATON_COORDINATOR_COORD_FACTS_H
#define BATON_COORDINATOR_COORD_FACTS_H

#include "common/net/router.h"

struct coordinator;
struct json_value;

/* Of one that has only read its configuration the TLS files are looked at. NULL: no memory. */
struct json_value *coord_facts(struct coordinator *co);
/* --facts: to stdout. Returns the exit status. */
int coord_facts_print(struct coordinator *co);

extern const struct route coord_facts_routes[];

#endif
