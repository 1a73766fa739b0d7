#include "common/net/access_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/line_file.h"
#include "common/net/http_server.h"

enum { PATH_BYTES = 4096 };

struct access_log {
    struct line_file *file;
    struct buf line;
};

enum err access_log_open(struct access_log **out, const char *key, const char *dir,
                         const char *path, struct errbuf *eb) {
    struct errbuf why = {0};
    char file[PATH_BYTES];
    *out = NULL;
    if (path[0] == 0) return ERR_OK;
    const int n = snprintf(file, sizeof(file), "%s%s%s", path[0] != '/' ? dir : "",
                           path[0] != '/' ? "/" : "", path);
    if (n >= (int)sizeof(file)) return err_set(eb, ERR_BAD_CONFIG, "%s: too long a path", key);
    struct access_log *a = calloc(1, sizeof(*a));
    if (a == NULL) return err_set(eb, ERR_NO_MEMORY, "%s: out of memory", key);
    const enum err e = line_file_open(&a->file, file, &why);
    if (e != ERR_OK) {
        free(a);
        return err_set(eb, e, "%s: %s", key, why.text);
    }
    *out = a;
    return ERR_OK;
}

void access_log_close(struct access_log **a) {
    if (*a == NULL) return;
    line_file_close(&(*a)->file);
    buf_free(&(*a)->line);
    free(*a);
    *a = NULL;
}

static void put_str(struct buf *b, const char *key, const char *value) {
    buf_printf(b, ",\"%s\":", key);
    buf_json_text(b, value, strlen(value), true);
}

/* When it came: "2026-11-28T07:00:00.123Z". */
static void put_time(struct buf *b, uint64_t unix_us) {
    const time_t s = (time_t)(unix_us / 1000000);
    struct tm t;
    gmtime_r(&s, &t);
    buf_printf(b, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03uZ\"", t.tm_year + 1900,
               t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
               (unsigned)(unix_us / 1000 % 1000));
}

static void on_ended(void *arg, const struct http_ended *e) {
    struct access_log *a = arg;
    struct buf *b = &a->line;
    buf_clear(b);
    put_time(b, clock_unix_us() - e->us);
    put_str(b, "request_id", e->request_id);
    put_str(b, "peer", e->peer);
    put_str(b, "tenant", e->tenant);
    put_str(b, "method", e->method);
    put_str(b, "path", e->path);
    put_str(b, "protocol", e->grpc ? "grpc" : e->h2 ? "h2" : "http/1.1");
    buf_printf(b, ",\"status\":%d%s,\"in_bytes\":%llu,\"out_bytes\":%llu,\"ms\":%.3f%s}\n",
               e->status, e->broken ? ",\"broken\":true" : "", (unsigned long long)e->in_bytes,
               (unsigned long long)e->out_bytes, (double)e->us / 1000, e->note);
    if (b->failed)
        buf_forgive(b);
    else
        line_file_put(a->file, b->data, b->len);
}

void access_log_watch(struct access_log *a, struct http_server_opts *o) {
    if (a == NULL) return;
    o->on_ended = on_ended;
    o->ended_arg = a;
}
