/* kept_file: the bytes of a kept answer's file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/kept_dir.h"
#include "proto/crc32c.h"
#include "proto/json.h"

enum { VERSION = 1, HEAD_BYTES_MAX = 1024, CRC_BYTES = 9 /* "\n" and 8 digits */ };

static void put_string(struct buf *out, const char *key, const char *s) {
    buf_printf(out, ",\"%s\":", key);
    buf_json_str(out, s, strlen(s));
}

void kept_file_format(struct buf *out, const struct kept_file *f) {
    buf_printf(out, "{\"version\":%d", VERSION);
    put_string(out, "id", f->id);
    put_string(out, "tenant", f->tenant);
    put_string(out, "previous", f->previous);
    buf_printf(out,
               ",\"used_unix\":%lld,\"input\":%zu,\"text\":%zu,\"at\":%zu,\"response\":%zu,"
               "\"events\":%zu}\n",
               (long long)f->used_unix_s, f->n_input, f->n_text, f->at, f->n, f->events);
    buf_append(out, f->input, f->n_input);
    buf_append(out, f->text, f->n_text);
    if (!out->failed) buf_printf(out, "\n%08x", crc32c(0, out->data, out->len));
}

static bool string_of(const struct json_value *o, const char *key, char *dst, size_t dst_bytes) {
    const char *s;
    size_t n;
    if (json_get_str(o, key, &s, &n) != JSON_OK || n >= dst_bytes || strlen(s) != n) return false;
    memcpy(dst, s, n + 1);
    return true;
}

static bool size_of(const struct json_value *o, const char *key, size_t max, size_t *out) {
    uint64_t v;
    if (json_get_u64(o, key, &v) != JSON_OK || v > max) return false;
    *out = (size_t)v;
    return true;
}

/* body[n]: input and text. */
static bool read_head(struct kept_file *f, const struct json_value *o, const char *body, size_t n) {
    size_t version;
    if (!size_of(o, "version", VERSION, &version) || version != VERSION ||
        !string_of(o, "id", f->id, sizeof(f->id)) || f->id[0] == '\0' ||
        !string_of(o, "tenant", f->tenant, sizeof(f->tenant)) || !tenant_ok(f->tenant) ||
        !string_of(o, "previous", f->previous, sizeof(f->previous)) ||
        json_get_i64(o, "used_unix", &f->used_unix_s) != JSON_OK ||
        !size_of(o, "input", n, &f->n_input) || !size_of(o, "text", n, &f->n_text) ||
        f->n_input + f->n_text != n || !size_of(o, "at", f->n_text, &f->at) ||
        !size_of(o, "response", f->n_text - f->at, &f->n) || f->n == 0 ||
        !size_of(o, "events", f->n_text, &f->events))
        return false;
    f->input = body;
    f->text = body + f->n_input;
    return f->text[f->at] == '{' && f->text[f->at + f->n - 1] == '}';
}

enum err kept_file_parse(struct kept_file *out, const char *bytes, size_t n, struct errbuf *eb) {
    const char *end = memchr(bytes, '\n', n < HEAD_BYTES_MAX ? n : HEAD_BYTES_MAX);
    struct json_value *o = NULL;
    char crc[CRC_BYTES + 1];
    *out = (struct kept_file){0};
    if (end == NULL || n < (size_t)(end - bytes) + 1 + CRC_BYTES)
        return err_set(eb, ERR_BAD_JSON, "it is too short");
    const size_t n_head = (size_t)(end - bytes), n_body = n - n_head - 1 - CRC_BYTES;
    snprintf(crc, sizeof(crc), "\n%08x", crc32c(0, bytes, n - CRC_BYTES));
    if (memcmp(crc, bytes + n - CRC_BYTES, CRC_BYTES) != 0)
        return err_set(eb, ERR_BAD_JSON, "its CRC is wrong");
    enum err e = json_read(&o, bytes, n_head, NULL, eb);
    if (e == ERR_OK && !read_head(out, o, end + 1, n_body))
        e = err_set(eb, ERR_BAD_JSON, "its first line is not that of a kept answer");
    json_put(o);
    return e;
}
