/* weights_check: holds weights that are mapped from a cache file against the checksum in its
 * header, once, in the background: a start does not wait for it, and a bit that a disk or a copy
 * turned does not stay unnoticed.
 *
 * Thread: one of its own, of the lowest priority (SCHED_IDLE), which reads at most
 * WEIGHTS_CHECK_MIB_S. On a mismatch the file is put aside as FILE.bad, if it still is the one that
 * is mapped, so that the next start packs anew. */
#ifndef BATON_ENGINE_WEIGHTS_CHECK_H
#define BATON_ENGINE_WEIGHTS_CHECK_H

#include "common/engine/weights.h"

enum { WEIGHTS_CHECK_MIB_S = 256 };

struct weights_check;

/* done runs at most once, on the thread of the check, and not after weights_check_stop(): ERR_OK,
 * or ERR_BAD_FILE with a text that names the file. Where nothing is to be checked (weights of this
 * start, or checked by it already) *out is NULL and done is not called. w outlives the check. */
enum err weights_check_start(struct weights_check **out, const struct weights *w,
                             engine_checked_fn *done, void *arg);
void weights_check_stop(struct weights_check **c); /* NULL is fine */

#endif
