/* inst_facts: what only this node can say of itself, for whoever looks for faults between nodes:
 * build, planes, TLS files and their ends, model and what it needs, limits, machine. GET /v1/facts
 * of the management plane; `--facts` prints the same of a configuration that does not run.
 *
 * Bounded: no list is longer than the planes and cores there are. Nothing of it is a secret: paths,
 * never what is in the files. Thread: the loop thread, or the only one. */
#ifndef BATON_INSTANCE_INST_FACTS_H
#define BATON_INSTANCE_INST_FACTS_H

#include "common/net/router.h"

struct instance;
struct json_value;

/* Of one that has only read its configuration the model's and the TLS files are looked at, of
 * tensors the headers alone. NULL: no memory. */
struct json_value *inst_facts(struct instance *in);
/* --facts: to stdout. Returns the exit status. */
int inst_facts_print(struct instance *in);

extern const struct route inst_facts_routes[];

#endif
