/* fault: named failure points. In test builds (-DBATON_FAULTS) the environment variable
 * BATON_FAULT="name:n[,name:n...]" makes the n-th hit of a point fail, once; elsewhere a hit is a
 * constant false and costs nothing. */
#ifndef BATON_BASE_FAULT_H
#define BATON_BASE_FAULT_H

#include <stdbool.h>

#ifdef BATON_FAULTS
bool fault_hit(const char *name); /* any thread */
#else
static inline bool fault_hit(const char *name) {
    (void)name;
    return false;
}
#endif

#endif
