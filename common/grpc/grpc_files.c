/* grpc_files: two routes. */
#include "common/grpc/grpc_files.h"

#include <string.h>
#include "common/base/buf.h"
#include "common/grpc/grpc_types.h"
#include "common/net/http_server.h"

#define TEXT "text/plain; charset=utf-8"

static void on_list(void *arg, struct http_x *x, const struct route_params *p) {
    struct buf out = BUF_INIT;
    (void)arg, (void)p;
    for (const struct grpc_file *f = grpc_files; f->name != NULL; f++)
        buf_printf(&out, "%s\n", f->name);
    http_x_reply(x, out.failed ? 503 : 200, TEXT, out.data, out.len);
    buf_free(&out);
}

static void on_file(void *arg, struct http_x *x, const struct route_params *p) {
    static const char none[] = "There is no such file. GET /proto lists them.\n";
    const struct grpc_file *f = grpc_files;
    (void)arg;
    while (f->name != NULL && strcmp(f->name, p->rest) != 0) f++;
    if (f->name != NULL)
        http_x_reply(x, 200, TEXT, f->text, f->text_bytes);
    else
        http_x_reply(x, 404, TEXT, none, sizeof(none) - 1);
}

const struct route grpc_file_routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/proto", on_list, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/proto/{*}", on_file, 0},
    {0, NULL, NULL, NULL, 0},
};
