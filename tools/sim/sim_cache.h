/* sim_cache: which beginnings of prompts an instance of a simulated cluster still has, by the names
 * of their blocks: the least recently used go first, as in an instance's KV pool. What a block is
 * stands behind all before it is part of its name here, as in the digests of prefix_msg.h.
 * Thread: one. */
#ifndef BATON_TOOLS_SIM_CACHE_H
#define BATON_TOOLS_SIM_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/sim/sim_run.h"

enum { SIM_CACHE_BLOCKS_MAX = 1 << 24 };
struct sim_cache;

/* Room for so many blocks, at least 1. NULL: no memory. */
struct sim_cache *sim_cache_create(uint32_t blocks);
void sim_cache_destroy(struct sim_cache **c);

/* How many of the first blocks of a request are there. It changes nothing. */
uint32_t sim_cache_find(const struct sim_cache *c, const struct sim_ask *a);
/* The first n blocks of a request are used now, and there from now on. */
void sim_cache_use(struct sim_cache *c, const struct sim_ask *a, uint32_t n);
uint32_t sim_cache_held(const struct sim_cache *c);

#endif
