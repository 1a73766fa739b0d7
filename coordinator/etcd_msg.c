/* etcd_msg: bodies of the gateway's requests, and the members of its answers that are used. */
#include "coordinator/etcd_msg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/base64.h"
#include "proto/json.h"

enum { RESPONSES_MAX = 2, DEPTH_MAX = 8 };

/* ---- requests */
static void put_bytes(struct buf *out, const char *member, const char *p, size_t n) {
    buf_printf(out, "\"%s\":\"", member);
    base64_put(out, p, n);
    buf_putc(out, '"');
}

static void put_text(struct buf *out, const char *member, const char *s) {
    put_bytes(out, member, s, strlen(s));
}

void etcd_put_login(struct buf *out, const char *user, const char *password) {
    buf_puts(out, "{\"name\":");
    buf_json_str(out, user, strlen(user));
    buf_puts(out, ",\"password\":");
    buf_json_str(out, password, strlen(password));
    buf_puts(out, "}");
}

void etcd_put_grant(struct buf *out, unsigned ttl_s) {
    buf_printf(out, "{\"TTL\":\"%u\"}", ttl_s);
}

void etcd_put_lease(struct buf *out, int64_t lease) {
    buf_printf(out, "{\"ID\":\"%" PRId64 "\"}", lease);
}

void etcd_put_range(struct buf *out, const char *key) {
    buf_puts(out, "{");
    put_text(out, "key", key);
    buf_puts(out, "}");
}

/* The revision that made the lock is compared, 0 when nobody has it; and whose it is, unless NULL:
 * an etcd that was wiped counts its revisions anew. */
static void put_compare(struct buf *out, const char *lock, int64_t created, const char *holder) {
    buf_puts(out, "{\"compare\":[{\"target\":\"CREATE\",");
    put_text(out, "key", lock);
    buf_printf(out, ",\"createRevision\":\"%" PRId64 "\"}", created);
    if (holder != NULL) {
        buf_puts(out, ",{\"target\":\"VALUE\",");
        put_text(out, "key", lock);
        buf_putc(out, ',');
        put_text(out, "value", holder);
        buf_putc(out, '}');
    }
    buf_puts(out, "],\"success\":[");
}

void etcd_put_campaign(struct buf *out, const char *lock, const char *value, int64_t lease,
                       const char *beside) {
    put_compare(out, lock, 0, NULL);
    buf_puts(out, "{\"requestPut\":{");
    put_text(out, "key", lock);
    buf_putc(out, ',');
    put_text(out, "value", value);
    buf_printf(out, ",\"lease\":\"%" PRId64 "\"}},{\"requestRange\":", lease);
    etcd_put_range(out, beside);
    buf_puts(out, "}],\"failure\":[{\"requestRange\":");
    etcd_put_range(out, lock);
    buf_puts(out, "}]}");
}

void etcd_put_if(struct buf *out, const char *lock, int64_t created, const char *holder,
                 const char *key, const char *value, size_t n) {
    put_compare(out, lock, created, holder);
    buf_puts(out, "{\"requestPut\":{");
    put_text(out, "key", key);
    buf_putc(out, ',');
    put_bytes(out, "value", value, n);
    buf_puts(out, "}}],\"failure\":[]}");
}

/* ---- answers */
static enum err bad(struct errbuf *eb, const char *member, const char *rule) {
    return err_set(eb, ERR_INVALID, "%s must be %s", member, rule);
}

/* What is 0 is left out. */
static enum err read_number(int64_t *out, const struct json_value *o, const char *member,
                            struct errbuf *eb) {
    const char *s;
    size_t n;
    *out = 0;
    const enum json_got got = json_get_str(o, member, &s, &n);
    if (got == JSON_ABSENT) return ERR_OK;
    if (got != JSON_OK || n == 0 || n > 19 || strspn(s, "0123456789") != n)
        return bad(eb, member, "a string of 1 to 19 digits");
    const uint64_t v = strtoull(s, NULL, 10);
    if (v > INT64_MAX) return bad(eb, member, "at most 9223372036854775807");
    *out = (int64_t)v;
    return ERR_OK;
}

static enum err read_key(struct etcd_answer *a, const struct json_value *range, struct errbuf *eb) {
    struct json_value *kvs;
    const char *s = "";
    size_t n = 0;
    const enum json_got got = json_get_arr(range, "kvs", &kvs);
    if (got == JSON_ABSENT) return ERR_OK;
    if (got != JSON_OK || json_arr_len(kvs) != 1) return bad(eb, "kvs", "an array of one key");
    const struct json_value *kv = json_arr_at(kvs, 0);
    enum err e = read_number(&a->key_created, kv, "create_revision", eb);
    if (e == ERR_OK) e = read_number(&a->key_lease, kv, "lease", eb);
    if (e != ERR_OK) return e;
    const enum json_got value = json_get_str(kv, "value", &s, &n);
    if (value != JSON_ABSENT && value != JSON_OK) return bad(eb, "value", "a string");
    if (n > ETCD_VALUE_BYTES_MAX / 3 * 4)
        return err_set(eb, ERR_INVALID, "value must have at most %d bytes", ETCD_VALUE_BYTES_MAX);
    if (!base64_take(&a->value, s, n)) return bad(eb, "value", "base64");
    a->has_key = true;
    return ERR_OK;
}

static enum err read_responses(struct etcd_answer *a, const struct json_value *root,
                               struct errbuf *eb) {
    struct json_value *arr, *range;
    const enum json_got got = json_get_arr(root, "responses", &arr);
    enum err e = ERR_OK;
    if (got == JSON_ABSENT) return ERR_OK;
    if (got != JSON_OK || json_arr_len(arr) > RESPONSES_MAX)
        return bad(eb, "responses", "an array of at most two");
    for (size_t i = 0; e == ERR_OK && i < json_arr_len(arr); i++)
        if (!a->has_key && json_get_obj(json_arr_at(arr, i), "response_range", &range) == JSON_OK)
            e = read_key(a, range, eb);
    return e;
}

static enum err read_token(struct etcd_answer *a, const struct json_value *root,
                           struct errbuf *eb) {
    const char *s;
    size_t n;
    const enum json_got got = json_get_str(root, "token", &s, &n);
    if (got == JSON_ABSENT) return ERR_OK;
    if (got != JSON_OK || n >= sizeof(a->token))
        return bad(eb, "token", "a string under 512 bytes");
    for (size_t i = 0; i < n; i++) /* it becomes a header */
        if (s[i] <= ' ' || s[i] >= 0x7F) return bad(eb, "token", "printable ASCII");
    memcpy(a->token, s, n + 1);
    return ERR_OK;
}

static enum err read_answer(struct etcd_answer *a, const struct json_value *root,
                            struct errbuf *eb) {
    struct json_value *inner, *header;
    if (json_get_obj(root, "result", &inner) == JSON_OK) root = inner; /* of a stream */
    if (json_get_obj(root, "header", &header) != JSON_OK) return bad(eb, "header", "an object");
    enum err e = read_number(&a->revision, header, "revision", eb);
    if (e == ERR_OK) e = read_number(&a->lease, root, "ID", eb);
    if (e == ERR_OK) e = read_number(&a->ttl_s, root, "TTL", eb);
    if (e == ERR_OK) e = read_token(a, root, eb);
    const enum json_got got = json_get_bool(root, "succeeded", &a->succeeded);
    if (e == ERR_OK && got != JSON_ABSENT && got != JSON_OK) e = bad(eb, "succeeded", "a boolean");
    if (e == ERR_OK) e = read_key(a, root, eb);
    if (e == ERR_OK) e = read_responses(a, root, eb);
    return e;
}

enum err etcd_answer_parse(struct etcd_answer *out, const char *body, size_t n, struct errbuf *eb) {
    const struct json_limits lim = {.depth_max = DEPTH_MAX};
    struct json_value *root = NULL;
    memset(out, 0, sizeof(*out));
    enum err e = json_read(&root, body, n, &lim, eb);
    if (e != ERR_OK) return e;
    e = read_answer(out, root, eb);
    json_put(root);
    if (e != ERR_OK) etcd_answer_free(out);
    return e;
}

void etcd_answer_free(struct etcd_answer *a) {
    buf_free(&a->value);
    memset(a, 0, sizeof(*a));
}

void etcd_answer_error(char out[ETCD_WHY_BYTES], const char *body, size_t n) {
    const struct json_limits lim = {.depth_max = DEPTH_MAX};
    struct json_value *root = NULL, *inner;
    const char *s = body;
    size_t at = 0, len = n;
    if (json_read(&root, body, n, &lim, NULL) == ERR_OK) {
        const struct json_value *o = root;
        if (json_get_obj(root, "error", &inner) == JSON_OK) o = inner; /* of a stream */
        if (json_get_str(o, "message", &s, &len) != JSON_OK)
            (void)json_get_str(o, "error", &s, &len);
    }
    for (size_t i = 0; i < len && at + 1 < ETCD_WHY_BYTES; i++)
        out[at++] = s[i] >= ' ' && s[i] < 0x7F && s[i] != '"' ? s[i] : ' ';
    while (at > 0 && out[at - 1] == ' ') at--;
    out[at] = '\0';
    json_put(root);
}
