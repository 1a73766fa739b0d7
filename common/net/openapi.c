/* openapi: three files as bytes of the program, which the assembler reads. tools/openapi_gen.c
 * makes the two descriptions at build time, the rules are in tests/build.mk: OPENAPI_FOLDER is
 * theirs. */
#include "common/net/openapi.h"

#include <stdint.h>
#include <string.h>
#include "common/net/http_server.h"

/* name: the bytes of the file; name_bytes: how many. */
#define FILE_BYTES(name, path)                                                                     \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #name "\n"                                                                  \
            ".global " #name "_bytes\n" #name ":\n"                                                \
            ".incbin \"" path "\"\n"                                                               \
            ".L" #name "_end:\n"                                                                   \
            ".balign 8\n" #name "_bytes:\n"                                                        \
            ".8byte .L" #name "_end - " #name "\n"                                                 \
            ".previous\n");                                                                        \
    extern const char name[];                                                                      \
    extern const uint64_t name##_bytes

FILE_BYTES(openapi_mindie, OPENAPI_FOLDER "/openapi_mindie.json");
FILE_BYTES(openapi_openai, OPENAPI_FOLDER "/openapi_openai.json");
FILE_BYTES(docs_html, "common/net/docs.html");

static void on_mindie(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    http_x_reply(x, 200, "application/json", openapi_mindie, openapi_mindie_bytes);
}

static void on_openai(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    http_x_reply(x, 200, "application/json", openapi_openai, openapi_openai_bytes);
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

const struct route openapi_mindie_routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/openapi.json", on_mindie, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/docs", on_docs, 0},
    {0, NULL, NULL, NULL, 0},
};
const struct route openapi_openai_routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/openapi.json", on_openai, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/docs", on_docs, 0},
    {0, NULL, NULL, NULL, 0},
};
