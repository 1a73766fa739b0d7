/* fds: setrlimit(2), and a little arithmetic. */
#include "common/base/fds.h"

#include <sys/resource.h>

uint64_t fds_raise(uint64_t want) {
    struct rlimit r, before;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return want;
    before = r;
    if (r.rlim_cur >= want) return r.rlim_cur;
    r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
    return setrlimit(RLIMIT_NOFILE, &r) == 0 ? r.rlim_cur : before.rlim_cur;
}

unsigned fds_for_clients(uint64_t limit, uint64_t reserve, unsigned conns_max, unsigned calls_max) {
    uint64_t left = limit > reserve ? limit - reserve : 0;
    uint64_t conns = left - (left / 4 < calls_max ? left / 4 : calls_max);
    return conns < conns_max ? (unsigned)conns : conns_max;
}
