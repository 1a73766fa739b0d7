/* entropy: random bytes of the operating system, for what a stranger must not guess. Thread: any.
 */
#ifndef BATON_BASE_ENTROPY_H
#define BATON_BASE_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>

/* False: the system gave none; *p is zero then. May wait in the first seconds of a machine only. */
bool entropy_get(void *p, size_t n);

#endif
