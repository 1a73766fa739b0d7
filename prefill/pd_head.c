/* pd_head: the order of the checks and their texts are those of inference-api 2.6. */
#include "prefill/pd_head.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/api.h"
#include "proto/transcript.h"

static bool all_of(const char *s, const char *set) {
    return s[strspn(s, set)] == '\0';
}

/* Decimal digits only, at most max. */
static bool read_u32(const char *s, uint32_t max, uint32_t *out) {
    size_t n = strlen(s);
    if (n < 1 || n > 10 || !all_of(s, "0123456789")) return false;
    unsigned long long v = strtoull(s, NULL, 10);
    if (v > max) return false;
    *out = (uint32_t)v;
    return true;
}

static bool read_target(const char *s, char out[D_TARGET_BYTES_MAX + 1]) {
    char ip[16];
    const char *semi = strchr(s, ';');
    size_t n_ip = semi != NULL ? (size_t)(semi - s) : strlen(s);
    struct in_addr a;
    uint32_t port;
    if (n_ip == 0 || n_ip >= sizeof(ip)) return false;
    memcpy(ip, s, n_ip);
    ip[n_ip] = '\0';
    if (inet_pton(AF_INET, ip, &a) != 1) return false;
    if (semi != NULL && semi[1] != '\0' && (!read_u32(semi + 1, 65535, &port) || port == 0))
        return false;
    return snprintf(out, D_TARGET_BYTES_MAX + 1, "%s", s) <= D_TARGET_BYTES_MAX;
}

enum err pd_head_read(struct pd_head *out, pd_header_fn *header, const void *arg,
                      struct errbuf *eb) {
    const char *req_type = header(arg, "req-type"), *req_id = header(arg, "req-id"),
               *d_target = header(arg, "d-target");
    const char *is_recompute = header(arg, "is-recompute"), *epoch = header(arg, "req-epoch"),
               *tenant = header(arg, TENANT_HEADER), *replay = header(arg, REPLAY_HEADER),
               *spent = header(arg, SPENT_HEADER), *context = header(arg, CONTEXT_HEADER),
               *kv_at = header(arg, KV_AT_HEADER);
    *out = (struct pd_head){0};
    if (req_type == NULL || req_id == NULL || d_target == NULL || req_id[0] == '\0') {
        return err_set(eb, ERR_INVALID, "DMI request must have req-type, req-id, d-target headers");
    }
    if (!all_of(req_id, "0123456789abcdefABCDEF")) {
        return err_set(eb, ERR_INVALID,
                       "Invalid req-id, the character of req-id should be hex char [0-9, a-f, "
                       "A-F], but got %.256s",
                       req_id);
    }
    if (strlen(req_id) > REQ_ID_BYTES_MAX) {
        return err_set(eb, ERR_INVALID, "The length of req-id cannot exceed %d", REQ_ID_BYTES_MAX);
    }
    if (strcmp(req_type, "prefill") != 0) {
        return err_set(eb, ERR_INVALID, "Parameter req-type must be prefill but got %.256s",
                       req_type);
    }
    if (!read_target(d_target, out->d_target)) {
        return err_set(eb, ERR_INVALID, "Parameter d-target must be an IPv4 address");
    }
    if (kv_at != NULL && !read_target(kv_at, out->kv_at)) {
        return err_set(eb, ERR_INVALID, "Parameter " KV_AT_HEADER " must be an IPv4 address");
    }
    bool recompute = is_recompute != NULL && strcmp(is_recompute, "true") == 0;
    if (is_recompute != NULL && !recompute && is_recompute[0] != '\0' &&
        strcmp(is_recompute, "false") != 0) {
        return err_set(eb, ERR_INVALID,
                       "Parameter is-recompute is an optional parameter. When it is set, it must "
                       "be true or false.");
    }
    if (epoch != NULL && epoch[0] != '\0' && !read_u32(epoch, UINT32_MAX, &out->epoch)) {
        return err_set(eb, ERR_INVALID,
                       "Parameter req-epoch must be an integer from 0 to 4294967295 but got %.64s",
                       epoch);
    }
    if (replay != NULL &&
        (!read_u32(replay, TRANSCRIPT_BYTES_MAX, &out->replay_bytes) || out->replay_bytes == 0)) {
        return err_set(eb, ERR_INVALID,
                       "Parameter " REPLAY_HEADER " must be an integer from 1 to %d but got %.64s",
                       TRANSCRIPT_BYTES_MAX, replay);
    }
    if (context != NULL &&
        (!read_u32(context, CONTEXT_BYTES_MAX, &out->context_bytes) || out->context_bytes == 0)) {
        return err_set(eb, ERR_INVALID,
                       "Parameter " CONTEXT_HEADER " must be an integer from 1 to %d but got %.64s",
                       CONTEXT_BYTES_MAX, context);
    }
    if (spent != NULL && !read_u32(spent, UINT32_MAX, &out->spent_ms)) {
        return err_set(eb, ERR_INVALID,
                       "Parameter " SPENT_HEADER
                       " must be an integer from 0 to 4294967295 but got %.64s",
                       spent);
    }
    if (replay != NULL && recompute) {
        return err_set(eb, ERR_INVALID,
                       "Parameter " REPLAY_HEADER " cannot be set when is-recompute is true.");
    }
    if (tenant != NULL && tenant[0] != '\0' && !tenant_ok(tenant)) {
        return err_set(eb, ERR_INVALID,
                       "Parameter " TENANT_HEADER " must be 1 to %d of letters, digits, '.', ':', "
                       "'_' and '-' but got %.64s",
                       TENANT_BYTES_MAX, tenant);
    }
    snprintf(out->tenant, sizeof(out->tenant), "%s", tenant != NULL ? tenant : "");
    out->is_recompute = recompute;
    snprintf(out->req_id, sizeof(out->req_id), "%s", req_id);
    return ERR_OK;
}
