/* api_keys: who may use the user plane: the keys of `Authorization: Bearer`, from a file.
 *
 * File:   one entry a line: a key of 16 to 256 visible ASCII characters, or "sha256:" and the 64
 * hex digits of a key's SHA-256; behind it, with blanks before each, its terms: "weight=" and 1 to
 * 100, its part of what the keys share (1 when it is not said); "digs_prefill_slo=" and
 * "digs_decode_slo=", 1 to 65535, milliseconds in which it is to have its first token and each of
 * the next, in place of those of all. Each at most once. Empty lines and lines that begin with '#'
 * are skipped. Regular, owned by the process user, no symlink, nothing for group and others, at
 * most 1 MiB and 10,000 keys. Memory: only hashes are kept; a key is compared as hash, with all of
 * them, in constant time. Thread: any. Reading is one bounded file. Keys are never logged. */
#ifndef BATON_NET_API_KEYS_H
#define BATON_NET_API_KEYS_H

#include <stdbool.h>
#include "proto/err.h"
#include "proto/tenant.h"

enum {
    API_KEY_BYTES_MIN = 16,
    API_KEY_BYTES_MAX = 256,
    API_KEYS_MAX = 10000,
    API_KEY_WEIGHT_MAX = 100,
    API_KEY_SLO_MS_MAX = 65535
};

struct key_terms {
    unsigned weight;
    unsigned prefill_slo_ms, decode_slo_ms; /* 0: it does not say */
};

struct api_keys;

/* setting: its name, for messages (a static string). A relative path starts in dir. ERR_BAD_CONFIG:
 * eb names setting, file, line and rule. */
enum err api_keys_open(struct api_keys **out, const char *setting, const char *dir,
                       const char *path, struct errbuf *eb);
void api_keys_close(struct api_keys **k);
/* Reads the file again. When it is wrong the keys stay as they were, and the error is logged and
 * returned. */
enum err api_keys_reload(struct api_keys *k);
const char *api_keys_path(const struct api_keys *k); /* of the file, for as long as k */
/* authorization: the header's value, or NULL. True: it shows a key of the file, and tenant says
 * whose it is: the same word for the same key at every time and in every process, whether the file
 * has the key or its hash. NULL: the caller does not ask. */
bool api_keys_allow(struct api_keys *k, const char *authorization,
                    char tenant[TENANT_BYTES_MAX + 1]);
/* The same of a header that has the key alone. */
bool api_keys_allow_key(struct api_keys *k, const char *key, char tenant[TENANT_BYTES_MAX + 1]);
/* The terms of the key that api_keys_allow() calls so; those that say nothing for whoever is no key
 * of the file, and when k is NULL. */
struct key_terms api_keys_terms(struct api_keys *k, const char *tenant);

#endif
