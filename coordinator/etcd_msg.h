/* etcd_msg: what is asked of etcd's JSON gateway (v3, of etcd 3.4 and later) and what it answers:
 * keys and values in base64, 64-bit numbers as strings of digits. Pure. */
#ifndef BATON_COORDINATOR_ETCD_MSG_H
#define BATON_COORDINATOR_ETCD_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"

enum {
    ETCD_ANSWER_BYTES_MAX = 4 << 20,
    ETCD_VALUE_BYTES_MAX = 1 << 20,
    ETCD_TOKEN_BYTES = 512,
    ETCD_WHY_BYTES = 160,
};

/* What an answer has of these; 0 or empty: it has it not. */
struct etcd_answer {
    int64_t revision; /* of the store when it answered */
    bool succeeded;   /* a transaction: its comparison held */
    int64_t lease, ttl_s;
    char token[ETCD_TOKEN_BYTES];
    /* the key that was asked for, where it is there */
    bool has_key;
    int64_t key_created; /* revision that made it */
    int64_t key_lease;
    struct buf value;
};

/* A body that is no answer of the gateway: ERR_BAD_JSON, or ERR_INVALID with the member in eb; *out
 * is empty then. Else etcd_answer_free() frees its value. */
enum err etcd_answer_parse(struct etcd_answer *out, const char *body, size_t n, struct errbuf *eb);
void etcd_answer_free(struct etcd_answer *a);
/* What an error answer says, in printable characters. */
void etcd_answer_error(char out[ETCD_WHY_BYTES], const char *body, size_t n);

/* Bodies; out->failed: no memory. */
void etcd_put_login(struct buf *out, const char *user, const char *password);
void etcd_put_grant(struct buf *out, unsigned ttl_s);
void etcd_put_lease(struct buf *out, int64_t lease); /* keepalive, revoke */
void etcd_put_range(struct buf *out, const char *key);
/* Makes `lock` with the lease if nobody has it, and reads `beside`; else reads `lock`. */
void etcd_put_campaign(struct buf *out, const char *lock, const char *value, int64_t lease,
                       const char *beside);
/* Writes a key if `lock` is the one that the holder made at that revision. */
void etcd_put_if(struct buf *out, const char *lock, int64_t created, const char *holder,
                 const char *key, const char *value, size_t n);

#endif
