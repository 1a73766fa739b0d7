/* discover: instances found by names. Each name (a headless service of Kubernetes, say) has the
 * addresses of instances; they are looked up again and again on a thread of its own, since a
 * look-up may take as long as its server likes, and handed to the loop thread.
 *
 * Who is found counts as registered for a lease; who is found no more and does not answer is
 * forgotten with it (controller_register()). A name without an answer changes nothing.
 *
 * Thread: the loop thread, but for the function that looks up. */
#ifndef BATON_COORDINATOR_DISCOVER_H
#define BATON_COORDINATOR_DISCOVER_H

#include <stddef.h>
#include <stdint.h>
#include "common/net/loop.h"

enum {
    DISCOVER_NAMES_MAX = 16,
    DISCOVER_HOST_BYTES = 254,
    DISCOVER_ADDRESSES_MAX = 512, /* of one name; more are left out, and that is logged */
    DISCOVER_TEXT_BYTES = 2048,
    DISCOVER_KV_PORT = 1121, /* as an instance's own default */
};

struct discover_name {
    char host[DISCOVER_HOST_BYTES];
    uint16_t mgmt_port, port, metric_port, kv_port;
    int label; /* LABEL_*; -1: none */
};
struct discover_names {
    struct discover_name names[DISCOVER_NAMES_MAX];
    size_t n;
};

/* "NAME[:MANAGEMENT[:BUSINESS[:KV]]][=prefill|decode]", with blanks between them; what is left out
 * stays as it is in `defaults`. ERR_BAD_CONFIG: eb has the name and the rule. */
enum err discover_parse(struct discover_names *out, const char *text,
                        const struct discover_name *defaults, struct errbuf *eb);

/* At most `max` IPv4 addresses of host, in network order. Returns how many there are (which may be
 * more than max); -1: there is no answer, and why has the reason. It may block, and is called from
 * a thread of its own. */
typedef int discover_look_up_fn(const char *host, uint32_t *addresses, size_t max, char why[128]);
discover_look_up_fn discover_look_up; /* by the system's resolver */

/* One address of a name that was looked up. On the loop thread. */
typedef void discover_found_fn(void *arg, const struct discover_name *name, const char *ip);

struct discover_opts {
    struct loop *loop;
    const struct discover_names *names; /* copied */
    discover_look_up_fn *look_up;
    uint64_t period_ms; /* between the end of one round and the next */
    discover_found_fn *found;
    void *arg;
};

struct discover;
enum err discover_start(struct discover **out, const struct discover_opts *o);
/* found() is not called any more. A look-up that does not come back is left to end by itself. NULL
 * is fine. */
void discover_stop(struct discover **d);

#endif
