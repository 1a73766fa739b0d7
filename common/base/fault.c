/* fault: the armed points of a test build. A build without BATON_FAULTS has nothing here. */
#include "common/base/fault.h"

#ifdef BATON_FAULTS
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FAULTS_MAX = 16 };

/* Test builds only, so this state may be global: a point is hit from places that share no struct.
 */
static struct {
    char name[64];
    unsigned long left; /* hits until it fails; 0: spent */
} armed[FAULTS_MAX];
static size_t n_armed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* "name:n,name:n"; a part that does not read so is skipped. */
static void arm_from_environment(void) {
    const char *p = getenv("BATON_FAULT");
    while (p != NULL && *p != '\0' && n_armed < FAULTS_MAX) {
        size_t part = strcspn(p, ",");
        const char *colon = memchr(p, ':', part);
        if (colon != NULL && colon > p && (size_t)(colon - p) < sizeof(armed[0].name)) {
            char *end;
            unsigned long n = strtoul(colon + 1, &end, 10);
            if (end == p + part && end > colon + 1 && n > 0) {
                memcpy(armed[n_armed].name, p, (size_t)(colon - p));
                armed[n_armed++].left = n;
            }
        }
        p += part;
        if (*p == ',') p++;
    }
}

bool fault_hit(const char *name) {
    bool fail = false;
    pthread_once(&once, arm_from_environment);
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n_armed; i++)
        if (armed[i].left > 0 && strcmp(armed[i].name, name) == 0 && --armed[i].left == 0)
            fail = true;
    pthread_mutex_unlock(&mutex);
    return fail;
}
#endif
