/* affinity: which instance had a conversation last, for the policy cache_affinity of the reference
 * (cluster-api 8.3): the latest conversations, each under the key of its end (prefix_keys.h), so
 * that its next turn, which begins with all of it, finds it. The one that was used longest ago
 * makes room. No clock, no I/O. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_AFFINITY_H
#define BATON_COORDINATOR_AFFINITY_H

#include <stddef.h>
#include <stdint.h>

struct affinity;

/* For so many conversations, at least 1. NULL: no memory. */
struct affinity *affinity_create(size_t n_max);
void affinity_destroy(struct affinity **a);
/* The instance that had it last; 0: unknown. It counts as used. key: not 0. */
uint32_t affinity_find(struct affinity *a, uint64_t key);
/* Is remembered with the instance, which is not 0, in place of the one it had. */
void affinity_put(struct affinity *a, uint64_t key, uint32_t id);
size_t affinity_count(const struct affinity *a);

#endif
