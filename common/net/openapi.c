/* openapi: three files as bytes of the program. tools/openapi_gen.c
 * makes the two descriptions at build time, the rules are in tests/build.mk: OPENAPI_FOLDER is
 * theirs. What no build knows, the name of the served model, has a hole in them. */
#include "common/net/openapi.h"

#include <string.h>
#include "common/base/buf.h"
#include "common/net/file_bytes.h"
#include "common/net/http_server.h"

FILE_BYTES(openapi_mindie, OPENAPI_FOLDER "/openapi_mindie.json");
FILE_BYTES(openapi_openai, OPENAPI_FOLDER "/openapi_openai.json");
FILE_BYTES(docs_html, "common/net/docs.html");

/* A string of its own, as openapi_gen writes it. */
static const char hole[] = "\"{served}\"";

void openapi_reply(struct http_x *x, enum error_style style, const char *model) {
    const bool openai = style == ERROR_STYLE_OPENAI;
    const char *from = openai ? openapi_openai : openapi_mindie, *at;
    const char *end = from + (openai ? openapi_openai_bytes : openapi_mindie_bytes);
    struct buf out = BUF_INIT;
    buf_reserve(&out, (size_t)(end - from));
    for (; (at = memmem(from, (size_t)(end - from), hole, sizeof(hole) - 1)) != NULL;
         from = at + sizeof(hole) - 1) {
        buf_append(&out, from, (size_t)(at - from));
        buf_json_str(&out, model, strlen(model));
    }
    buf_append(&out, from, (size_t)(end - from));
    if (out.failed)
        http_x_reply(x, 503, NULL, "", 0);
    else
        http_x_reply(x, 200, "application/json", out.data, out.len);
    buf_free(&out);
}

/* The page's links are of /docs; the way back to it is one that a prefix before the path does not
 * change. */
static void on_docs(void *arg, struct http_x *x, const struct route_params *p) {
    const char *path = http_x_path(x);
    (void)arg, (void)p;
    if (path[strlen(path) - 1] == '/') {
        http_x_set_header(x, "Location", "../docs");
        http_x_reply(x, 308, NULL, "", 0);
        return;
    }
    http_x_set_header(x, "Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                      "connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; "
                      "frame-ancestors 'none'");
    http_x_reply(x, 200, "text/html; charset=utf-8", docs_html, docs_html_bytes);
}

const struct route openapi_docs_routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/docs", on_docs, 0},
    {0, NULL, NULL, NULL, 0},
};
