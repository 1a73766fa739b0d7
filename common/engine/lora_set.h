/* lora_set: the adapters of an instance by name, from loading to the end of the last sequence that
 * uses one.
 *
 *   reserved (a place is kept while the files are read) -> served -> retired (no new request finds
 *   it; what runs ends) -> gone
 *
 * Thread: any; a lock inside. Strings and structs handed out are copies. */
#ifndef BATON_ENGINE_LORA_SET_H
#define BATON_ENGINE_LORA_SET_H

#include "common/engine/lora.h"
#include "proto/limits.h"

enum { LORA_SET_MAX = 1024, LORA_ROOT_BYTES = 256, LORA_PATH_BYTES = 1024 };

enum lora_state { LORA_ABSENT, LORA_RESERVED, LORA_SERVED, LORA_RETIRED };

struct lora_info {
    char name[ADAPTER_NAME_BYTES_MAX + 1];
    char root[LORA_ROOT_BYTES]; /* last part of its path */
    char path[LORA_PATH_BYTES]; /* of its folder or file, as the load named it */
    enum lora_state state;
    int rank;
    bool in_use; /* by sequences, running or waiting */
    int64_t loaded_unix_s;
};

struct lora_set;

/* adapters_max: 0..LORA_SET_MAX. NULL: no memory. */
struct lora_set *lora_set_create(int adapters_max);
void lora_set_destroy(struct lora_set **s); /* sequences may still hold references */

/* Keeps a place for a name of 1 to ADAPTER_NAME_BYTES_MAX bytes. ERR_CONFLICT: the name is taken,
 * in whatever state. ERR_BUSY: no place; retired ones keep theirs until they are gone. */
enum err lora_set_reserve(struct lora_set *s, const char *name);
/* Serves the adapter under the reserved name; takes the reference. path: of its files. */
void lora_set_serve(struct lora_set *s, const char *name, struct lora **l, const char *path,
                    int64_t now_unix_s);
void lora_set_drop(struct lora_set *s, const char *name);       /* gives a reserved place back */
enum err lora_set_retire(struct lora_set *s, const char *name); /* ERR_NOT_FOUND: is not served */
/* Lets retired adapters go that nobody uses; returns how many are still in use. */
int lora_set_reap(struct lora_set *s);

enum lora_state lora_set_state(struct lora_set *s, const char *name);
/* Served under that name: its hash. */
bool lora_set_find(struct lora_set *s, const char *name, uint8_t hash[LORA_HASH_BYTES]);
/* A reference to the adapter of that name and hash, served or retired; NULL: there is none. */
struct lora *lora_set_take(struct lora_set *s, const char *name,
                           const uint8_t hash[LORA_HASH_BYTES]);
/* The idx-th in order of loading; false past the end. */
bool lora_set_at(struct lora_set *s, int idx, struct lora_info *out);

#endif
