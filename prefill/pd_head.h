/* pd_head: the headers a coordinator adds to a client's request (cluster-api 5.1,
 * inference-api 2.6): checks and values. Pure. */
#ifndef BATON_PREFILL_PD_HEAD_H
#define BATON_PREFILL_PD_HEAD_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/tenant.h"

/* Milliseconds that the request has been under way before this attempt: a span, for no two hosts
 * have the same clock. */
#define SPENT_HEADER "baton-spent-ms"

/* The decode instance that the request has left in a planned move, with what it computed. */
#define KV_AT_HEADER "baton-kv-at"

enum { D_TARGET_BYTES_MAX = 22 }; /* 255.255.255.255;65535 */

struct pd_head {
    char req_id[REQ_ID_BYTES_MAX + 1];
    char d_target[D_TARGET_BYTES_MAX + 1]; /* "ip" or "ip;interCommPort" */
    char kv_at[D_TARGET_BYTES_MAX + 1];    /* baton-kv-at: the same form; "" when absent */
    uint32_t epoch;                        /* req-epoch, 0 when absent */
    uint32_t context_bytes;            /* baton-context: of what lies before the body, 0: none */
    uint32_t replay_bytes;             /* baton-replay: of the record behind the body, 0: none */
    char tenant[TENANT_BYTES_MAX + 1]; /* baton-tenant, "" when absent */
    uint32_t spent_ms;                 /* baton-spent-ms: what earlier attempts took */
    bool is_recompute;
};

typedef const char *pd_header_fn(const void *arg, const char *name); /* NULL: absent */

/* ERR_INVALID: eb has the text of the 400. */
enum err pd_head_read(struct pd_head *out, pd_header_fn *header, const void *arg,
                      struct errbuf *eb);

#endif
