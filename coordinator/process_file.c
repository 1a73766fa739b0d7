/* process_file: the end of the file, and the members that are read back. */
#include "coordinator/process_file.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/crc32c.h"
#include "proto/json.h"
#include "proto/limits.h"

#define TAIL_BEGIN ",\"crc\":\""
enum { TAIL_BYTES = sizeof(TAIL_BEGIN) - 1 + 8 + 3 }; /* eight digits, `"}` and a line end */

static void tail_of(char tail[TAIL_BYTES + 1], const char *bytes, size_t n) {
    snprintf(tail, TAIL_BYTES + 1, TAIL_BEGIN "%08" PRIx32 "\"}\n", crc32c(0, bytes, n));
}

enum err process_file_seal(struct buf *b) {
    char tail[TAIL_BYTES + 1];
    if (b->failed || b->len == 0) return ERR_NO_MEMORY;
    b->len--;
    tail_of(tail, b->data, b->len);
    buf_append(b, tail, TAIL_BYTES);
    return b->failed ? ERR_NO_MEMORY : ERR_OK;
}

static enum err bad(struct errbuf *eb, size_t i, const char *what) {
    return err_set(eb, ERR_INVALID, "server[%zu].%s", i, what);
}

static bool read_ip(const struct json_value *o, const char *key, char ip[16]) {
    struct in_addr a;
    const char *s;
    size_t n;
    if (json_get_str(o, key, &s, &n) != JSON_OK || n > 15 || strlen(s) != n ||
        inet_pton(AF_INET, s, &a) != 1)
        return false;
    memcpy(ip, s, n + 1);
    return true;
}

static bool read_port(const struct json_value *o, const char *key, unsigned *port) {
    const char *s;
    size_t n;
    if (json_get_str(o, key, &s, &n) != JSON_OK || n == 0 || n > 5 || strspn(s, "0123456789") != n)
        return false;
    *port = (unsigned)strtoul(s, NULL, 10);
    return *port >= 1 && *port <= 65535;
}

/* Absent: false, in a file of the reference's. */
static bool read_drained(const struct json_value *o, bool *drained) {
    const enum json_got got = json_get_bool(o, "is_drained", drained);
    return got == JSON_OK || got == JSON_ABSENT;
}

static enum err read_row(struct store_row *r, const struct json_value *o, size_t i,
                         struct errbuf *eb) {
    struct json_value *info = NULL;
    char ip[16];
    unsigned port;
    uint64_t v = 0;
    memset(r, 0, sizeof(*r));
    if (!read_ip(o, "mgmt_ip", ip)) return bad(eb, i, "mgmt_ip must be an IPv4 address");
    if (!read_port(o, "mgmt_port", &port))
        return bad(eb, i, "mgmt_port must be a string, \"1\" to \"65535\"");
    snprintf(r->identity, sizeof(r->identity), "%s:%u", ip, port);
    if (json_get_u64(o, "id", &v) != JSON_OK || v == 0 || v > UINT32_MAX)
        return bad(eb, i, "id must be an integer from 1 to 4294967295");
    r->id = (uint32_t)v;
    if (json_get_u64(o, "current_role", &v) != JSON_OK || (v != 'P' && v != 'D' && v != 'U'))
        return bad(eb, i, "current_role must be 80 (P), 68 (D) or 85 (none yet)");
    r->role = v == 'P' ? ROLE_PREFILL : v == 'D' ? ROLE_DECODE : ROLE_NONE;
    if (json_get_obj(o, "static_info", &info) != JSON_OK ||
        json_get_u64(info, "group_id", &v) != JSON_OK || v > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID,
                       "server[%zu].static_info.group_id must be an integer from 0 to %d", i,
                       INSTANCES_MAX);
    r->group = (unsigned)v;
    return read_drained(o, &r->drained) ? ERR_OK : bad(eb, i, "is_drained must be a boolean");
}

static int by_identity(const void *a, const void *b) {
    return strcmp(((const struct store_row *)a)->identity, ((const struct store_row *)b)->identity);
}

static int by_id(const void *a, const void *b) {
    const struct store_row *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum err check_unique(struct store_state *s, struct errbuf *eb) {
    qsort(s->rows, s->n_rows, sizeof(*s->rows), by_id);
    for (size_t i = 1; i < s->n_rows; i++)
        if (s->rows[i - 1].id == s->rows[i].id)
            return err_set(eb, ERR_INVALID, "id %u is there twice", s->rows[i].id);
    qsort(s->rows, s->n_rows, sizeof(*s->rows), by_identity);
    for (size_t i = 1; i < s->n_rows; i++)
        if (strcmp(s->rows[i - 1].identity, s->rows[i].identity) == 0)
            return err_set(eb, ERR_INVALID, "%s is there twice", s->rows[i].identity);
    return ERR_OK;
}

static enum err read_root(struct process_file *out, const struct json_value *root,
                          struct errbuf *eb) {
    struct json_value *arr = NULL;
    struct store_state *s = &out->state;
    uint64_t v = 0;
    const char *text;
    size_t n;
    if (json_get_u64(root, "version", &v) != JSON_OK || v != PROCESS_FILE_VERSION)
        return err_set(eb, ERR_INVALID, "version must be %d", PROCESS_FILE_VERSION);
    if (json_get_u64(root, "configuration", &v) != JSON_OK || v > UINT32_MAX)
        return err_set(eb, ERR_INVALID, "configuration must be an integer from 0 to 4294967295");
    out->configuration = (uint32_t)v;
    if (json_get_str(root, "term", &text, &n) != JSON_OK || n == 0 || n > 19 ||
        strspn(text, "0123456789") != n)
        return err_set(eb, ERR_INVALID, "term must be a string of 1 to 19 digits");
    s->term = strtoull(text, NULL, 10);
    if (json_get_arr(root, "server", &arr) != JSON_OK)
        return err_set(eb, ERR_INVALID, "server must be an array");
    const size_t n_rows = json_arr_len(arr);
    if (n_rows > INSTANCES_MAX)
        return err_set(eb, ERR_INVALID, "server must have at most %d entries, got %zu",
                       INSTANCES_MAX, n_rows);
    if ((s->rows = calloc(n_rows + 1, sizeof(*s->rows))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    for (; s->n_rows < n_rows; s->n_rows++) {
        const enum err e =
            read_row(&s->rows[s->n_rows], json_arr_at(arr, s->n_rows), s->n_rows, eb);
        if (e != ERR_OK) return e;
    }
    return check_unique(s, eb);
}

enum err process_file_parse(struct process_file *out, const char *bytes, size_t n,
                            struct errbuf *eb) {
    struct json_value *root = NULL;
    char tail[TAIL_BYTES + 1];
    memset(out, 0, sizeof(*out));
    if (n <= TAIL_BYTES)
        return err_set(eb, ERR_INVALID, "the file has %zu bytes, more than %d are needed", n,
                       TAIL_BYTES);
    tail_of(tail, bytes, n - TAIL_BYTES);
    if (memcmp(tail, bytes + n - TAIL_BYTES, TAIL_BYTES) != 0)
        return err_set(eb, ERR_INVALID, "the CRC at the end does not fit the file");
    enum err e = json_read(&root, bytes, n, NULL, eb);
    if (e != ERR_OK) return e;
    e = read_root(out, root, eb);
    json_put(root);
    if (e != ERR_OK) {
        store_state_free(&out->state);
        memset(out, 0, sizeof(*out));
    }
    return e;
}

enum err process_file_same_nodes(const struct process_file *f, const char *const *identities,
                                 size_t n, struct errbuf *eb) {
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++) {
        struct store_row key = {.id = 0};
        snprintf(key.identity, sizeof(key.identity), "%s", identities[i]);
        if (bsearch(&key, f->state.rows, f->state.n_rows, sizeof(key), by_identity) == NULL)
            return err_set(eb, ERR_CONFLICT, "%s of the rank table is not in it", identities[i]);
        n_found++;
    }
    if (n_found == f->state.n_rows) return ERR_OK;
    for (size_t i = 0; i < f->state.n_rows; i++) {
        size_t k = 0;
        while (k < n && strcmp(identities[k], f->state.rows[i].identity) != 0) k++;
        if (k == n)
            return err_set(eb, ERR_CONFLICT, "its %s is not in the rank table",
                           f->state.rows[i].identity);
    }
    return err_set(eb, ERR_CONFLICT, "the rank table has an address twice");
}
