/* store_state: the state as bytes and back. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/store.h"
#include "proto/crc32c.h"
#include "proto/json.h"
#include "proto/limits.h"

enum { CRC_LINE_BYTES = 9 }; /* eight digits and the line end */

enum err store_state_format(struct buf *out, const struct store_state *s) {
    const size_t at = out->len;
    buf_printf(out, "{\"version\":%d,\"term\":\"%" PRIu64 "\",\"instances\":[", STORE_VERSION,
               s->term);
    for (size_t i = 0; i < s->n_rows; i++) {
        const struct store_row *r = &s->rows[i];
        buf_printf(out,
                   "%s{\"management\":\"%s\",\"id\":%u,\"role\":\"%s\",\"group\":%u,"
                   "\"drained\":%s",
                   i > 0 ? "," : "", r->identity, r->id, inst_role_name(r->role), r->group,
                   r->drained ? "true" : "false");
        if (r->override != ROLE_NONE)
            buf_printf(out, ",\"override\":\"%s\",\"back\":\"%s\",\"overrideUntil\":%" PRIu64,
                       inst_role_name(r->override), inst_role_name(r->back), r->override_unix_s);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}\n");
    if (!out->failed) buf_printf(out, "%08" PRIx32 "\n", crc32c(0, out->data + at, out->len - at));
    return out->failed ? ERR_NO_MEMORY : ERR_OK;
}

/* ---- back */
static enum err bad(struct errbuf *eb, size_t i, const char *what) {
    return err_set(eb, ERR_INVALID, "instances[%zu].%s", i, what);
}

/* "10.0.0.3:1026", as it is written. */
static bool is_identity(const char *s, size_t n) {
    char ip[16] = "", again[STORE_IDENTITY_BYTES];
    struct in_addr a;
    unsigned port = 0;
    if (n >= STORE_IDENTITY_BYTES || strlen(s) != n) return false;
    const char *colon = strchr(s, ':');
    if (colon == NULL || (size_t)(colon - s) >= sizeof(ip)) return false;
    memcpy(ip, s, (size_t)(colon - s));
    if (inet_pton(AF_INET, ip, &a) != 1 || strlen(colon + 1) > 5) return false;
    port = (unsigned)strtoul(colon + 1, NULL, 10);
    snprintf(again, sizeof(again), "%s:%u", ip, port);
    return port >= 1 && port <= 65535 && strcmp(again, s) == 0;
}

static bool read_role(const struct json_value *o, const char *key, enum inst_role *role) {
    const char *s;
    size_t n;
    if (json_get_str(o, key, &s, &n) != JSON_OK) return false;
    *role = inst_role_parse(s);
    return *role == ROLE_PREFILL || *role == ROLE_DECODE || strcmp(s, "none") == 0;
}

/* Absent: there is none. */
static enum err read_override(struct store_row *r, const struct json_value *o, size_t i,
                              struct errbuf *eb) {
    struct json_value *v;
    if (json_get(o, "override", &v) == JSON_ABSENT) return ERR_OK;
    if (!read_role(o, "override", &r->override) || r->override == ROLE_NONE)
        return bad(eb, i, "override must be \"prefill\" or \"decode\"");
    if (!read_role(o, "back", &r->back))
        return bad(eb, i, "back must be \"none\", \"prefill\" or \"decode\"");
    if (json_get_u64(o, "overrideUntil", &r->override_unix_s) != JSON_OK ||
        r->override_unix_s > INT64_MAX)
        return bad(eb, i, "overrideUntil must be seconds since 1970");
    return ERR_OK;
}

static enum err read_row(struct store_row *r, const struct json_value *o, size_t i,
                         struct errbuf *eb) {
    const char *s;
    size_t n;
    uint64_t v;
    memset(r, 0, sizeof(*r));
    if (json_get_str(o, "management", &s, &n) != JSON_OK || !is_identity(s, n))
        return bad(eb, i, "management must be an IPv4 address and a port");
    memcpy(r->identity, s, n + 1);
    if (json_get_u64(o, "id", &v) != JSON_OK || v == 0 || v > UINT32_MAX)
        return bad(eb, i, "id must be an integer from 1 to 4294967295");
    r->id = (uint32_t)v;
    if (!read_role(o, "role", &r->role))
        return bad(eb, i, "role must be \"none\", \"prefill\" or \"decode\"");
    if (json_get_u64(o, "group", &v) != JSON_OK || v > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID, "instances[%zu].group must be an integer from 0 to %d", i,
                       INSTANCES_MAX);
    r->group = (unsigned)v;
    if (json_get_bool(o, "drained", &r->drained) != JSON_OK)
        return bad(eb, i, "drained must be a boolean");
    return read_override(r, o, i, eb);
}

static int by_id(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Rows are sorted as they are written, and no two have one id. */
static enum err check_rows(const struct store_state *s, struct errbuf *eb) {
    uint32_t *ids = malloc((s->n_rows + 1) * sizeof(*ids));
    enum err e = ids != NULL ? ERR_OK : err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; e == ERR_OK && i < s->n_rows; i++) {
        ids[i] = s->rows[i].id;
        if (i > 0 && strcmp(s->rows[i - 1].identity, s->rows[i].identity) >= 0)
            e = bad(eb, i, "management must be behind that of the one before");
    }
    if (e == ERR_OK) qsort(ids, s->n_rows, sizeof(*ids), by_id);
    for (size_t i = 1; e == ERR_OK && i < s->n_rows; i++)
        if (ids[i - 1] == ids[i]) e = err_set(eb, ERR_INVALID, "id %u is there twice", ids[i]);
    free(ids);
    return e;
}

static enum err read_rows(struct store_state *s, const struct json_value *arr, struct errbuf *eb) {
    const size_t n = json_arr_len(arr);
    enum err e = ERR_OK;
    if (n > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID, "instances has %zu entries, at most %d are allowed", n,
                       INSTANCES_MAX);
    s->rows = malloc((n + 1) * sizeof(*s->rows));
    if (s->rows == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (; e == ERR_OK && s->n_rows < n; s->n_rows++)
        e = read_row(&s->rows[s->n_rows], json_arr_at(arr, s->n_rows), s->n_rows, eb);
    return e == ERR_OK ? check_rows(s, eb) : e;
}

static enum err read_term(uint64_t *term, const struct json_value *root, struct errbuf *eb) {
    const char *s;
    size_t n;
    if (json_get_str(root, "term", &s, &n) != JSON_OK || n == 0 || n > 19 ||
        strspn(s, "0123456789") != n)
        return err_set(eb, ERR_INVALID, "term must be a string of 1 to 19 digits");
    *term = strtoull(s, NULL, 10);
    return ERR_OK;
}

static enum err read_root(struct store_state *out, const struct json_value *root,
                          struct errbuf *eb) {
    struct json_value *arr;
    uint64_t version;
    if (json_get_u64(root, "version", &version) != JSON_OK || version != STORE_VERSION)
        return err_set(eb, ERR_INVALID, "version must be %d", STORE_VERSION);
    enum err e = read_term(&out->term, root, eb);
    if (e != ERR_OK) return e;
    if (json_get_arr(root, "instances", &arr) != JSON_OK)
        return err_set(eb, ERR_INVALID, "instances must be an array");
    return read_rows(out, arr, eb);
}

enum err store_state_parse(struct store_state *out, const char *bytes, size_t n,
                           struct errbuf *eb) {
    struct json_value *root = NULL;
    char crc[CRC_LINE_BYTES + 1];
    memset(out, 0, sizeof(*out));
    if (n <= CRC_LINE_BYTES)
        return err_set(eb, ERR_INVALID, "the file has %zu bytes, at least %d are needed", n,
                       CRC_LINE_BYTES + 1);
    n -= CRC_LINE_BYTES;
    snprintf(crc, sizeof(crc), "%08" PRIx32 "\n", crc32c(0, bytes, n));
    if (memcmp(crc, bytes + n, CRC_LINE_BYTES) != 0)
        return err_set(eb, ERR_INVALID, "the CRC in the last line does not fit the file");
    enum err e = json_read(&root, bytes, n, NULL, eb);
    if (e != ERR_OK) return e;
    e = read_root(out, root, eb);
    json_put(root);
    if (e != ERR_OK) store_state_free(out);
    return e;
}
