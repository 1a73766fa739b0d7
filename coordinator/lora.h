/* lora: the adapters of the whole cluster (inference-api 15). The management plane's load and
 * unload go to every instance that is there: a load answers when all have the adapter, and takes it
 * back from those that took it when one does not. What was loaded is remembered and given to
 * instances that come later or come back, before they get work.
 *
 * Thread: the loop thread. */
#ifndef BATON_COORDINATOR_LORA_H
#define BATON_COORDINATOR_LORA_H

#include "coordinator/coordinator.h"

enum { LORA_BODY_BYTES_MAX = 1 << 16, LORA_ANSWER_BYTES_MAX = 1 << 16 };

/* ---- lora_route.c: POST /v1/load_lora_adapter and /v1/unload_lora_adapter */
void lora_route(struct coordinator *co, struct http_x *x, bool load);

/* ---- lora_sync.c: what every instance should have */
struct coord_lora {
    struct coord_lora *next;
    char *name, *body; /* body: of the load that every instance took */
};
/* Remembers body for name, in the place of an older one. False: no memory. */
bool lora_remember(struct coordinator *co, const char *name, const char *body, size_t n);
void lora_forget(struct coordinator *co, const char *name);
/* NULL: not loaded through this coordinator. */
const struct coord_lora *lora_find(const struct coordinator *co, const char *name);
void lora_forget_all(struct coordinator *co);
/* The first status of an instance: adapters it has that this coordinator was not told of, because
 * it started later or because they stand in the instance's configuration, are remembered, and given
 * to every instance. Those that serve go on serving meanwhile. */
void lora_learn(struct inst *in);

/* The instance came, or may have restarted: it is given all of them before it serves. */
void lora_sync_start(struct inst *in);
void lora_sync_tick(struct inst *in, uint64_t now_ms); /* carries on, or tries again */
void lora_sync_stop(struct inst *in);

/* POST body to an instance's management plane. total_ms 0: none. */
enum err lora_post(struct coordinator *co, const struct inst *in, bool load, const void *body,
                   size_t n, unsigned total_ms,
                   void (*on_done)(void *arg, const struct http_result *r), void *arg,
                   struct http_call **call);

#endif
