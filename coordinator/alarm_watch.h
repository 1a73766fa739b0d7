/* alarm_watch: the alarms that follow from what is known of the cluster, looked at in each round of
 * the controller: whatever became true is raised, whatever is so no more is cleared. Of an instance
 * that is lost only that stands (0xFC001003, which the controller raises).
 *
 * Thread: the loop thread. */
#ifndef BATON_COORDINATOR_ALARM_WATCH_H
#define BATON_COORDINATOR_ALARM_WATCH_H

#include <stdint.h>

/* What may be over in a moment is no alarm before it has lasted so long. */
enum { ALARM_AFTER_MS = 10000 };

struct coordinator;

/* Of one instance: since when what may be over in a moment lasts; 0: it does not. */
struct alarm_watch {
    uint64_t unfit_ms;    /* it answers, and is not ready in its role */
    uint64_t unheard_ms;  /* it answers, and its result stream is away */
    uint64_t unlinked_ms; /* a KV link to a peer that answers is down */
};

void alarm_watch_tick(struct coordinator *co, uint64_t now_ms);

#endif
