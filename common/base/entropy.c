/* entropy: getrandom(2), to the last byte. */
#include "common/base/entropy.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

bool entropy_get(void *p, size_t n) {
    size_t at = 0;
    while (at < n) {
        ssize_t got = getrandom((char *)p + at, n - at, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            memset(p, 0, n);
            return false;
        }
        at += (size_t)got;
    }
    return true;
}
