/* doctor_between: the checks between nodes, for the table in doctor_checks.c. */
#ifndef BATON_TOOLS_CTL_DOCTOR_BETWEEN_H
#define BATON_TOOLS_CTL_DOCTOR_BETWEEN_H

#include "tools/ctl/doctor.h"

void doc_check_trust(struct doctor *d);
void doc_check_plain(struct doctor *d, struct doc_node *n);
void doc_check_addresses(struct doctor *d);
void doc_check_table(struct doctor *d, struct doc_node *n);
void doc_check_same(struct doctor *d);
void doc_check_machines(struct doctor *d);
void doc_check_cores(struct doctor *d);
void doc_check_mtu(struct doctor *d);
void doc_check_cluster(struct doctor *d);
void doc_check_rates(struct doctor *d);
void doc_check_links(struct doctor *d, struct doc_node *n);

/* Of one node: bytes a start would take, and bytes that are left for it. */
double doc_memory_wanted(const struct doc_node *n);
double doc_memory_left(const struct json_value *facts);

#endif
