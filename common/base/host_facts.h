/* host_facts: what a process can know of the machine it runs on, its limits and its clock, and the
 * paths it writes to; for `facts` of GET /v1/facts and for batonctl. Reads files of the kernel, so
 * it takes microseconds, and never blocks on anything else. Thread: any.
 *
 * Numbers that the system does not say are 0. */
#ifndef BATON_BASE_HOST_FACTS_H
#define BATON_BASE_HOST_FACTS_H

#include <stdbool.h>
#include <stdint.h>

struct json_value;

struct host_facts {
    char name[64], cpu[96]; /* of the host; what the processor calls itself */
    unsigned cpus_online, cpus_allowed;
    double cpus_paid;                             /* by the control group; 0: no limit */
    uint64_t memory_bytes, memory_available;      /* of the host */
    uint64_t group_memory_max, group_memory_used; /* max 0: no limit */
    char transparent[16];                         /* transparent huge pages: "madvise" */
    uint64_t huge_bytes, huge_free_bytes;         /* the reserved pool */
    uint64_t fds_max, fds_hard_max, fds_open;
    bool clock_synchronised;
    double clock_error_s;    /* as the kernel estimates it, where it is synchronised */
    uint64_t wmem_max_bytes; /* how large a socket's buffer may be asked for */
};

/* root: "" in a program, a folder with files like /proc and /sys below it in a test; limits of the
 * process and its clock come from the kernel in any case. */
void host_facts_read(struct host_facts *f, const char *root);
/* As a member of the answer; NULL: no memory. */
struct json_value *host_facts_json(const struct host_facts *f);

/* What `--facts` of a daemon prints: o on a line of stdout. Takes o. The exit status; 1: no memory.
 */
int host_facts_print(struct json_value *o);

/* Bytes that this process may still write below a path: of the next folder above it that exists.
 * False: there is none, or it may not write there. */
bool host_disk_free(const char *path, uint64_t *bytes);
/* The MTU of the interface that has this IPv4 address; 0: none has it. */
unsigned host_mtu_of(const char *ip);

#endif
