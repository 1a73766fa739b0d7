/* web_pages: the files of console and chat, by name. */
#include "common/net/web_pages.h"

#include <stdio.h>
#include <string.h>
#include "common/net/file_bytes.h"
#include "common/net/http_server.h"
#include "proto/hash.h"

FILE_BYTES(web_console_html, "common/net/web/console.html");
FILE_BYTES(web_chat_html, "common/net/web/chat.html");
FILE_BYTES(web_style_css, "common/net/web/style.css");
FILE_BYTES(web_icon_svg, "common/net/web/icon.svg");
FILE_BYTES(web_ui_js, "common/net/web/ui.js");
FILE_BYTES(web_console_js, "common/net/web/console.js");
FILE_BYTES(web_cluster_js, "common/net/web/cluster.js");
FILE_BYTES(web_topology_js, "common/net/web/topology.js");
FILE_BYTES(web_requests_js, "common/net/web/requests.js");
FILE_BYTES(web_load_js, "common/net/web/load.js");
FILE_BYTES(web_chart_js, "common/net/web/chart.js");
FILE_BYTES(web_chat_js, "common/net/web/chat.js");
FILE_BYTES(web_snippets_js, "common/net/web/snippets.js");

/* What a chat is told of who serves it; a coordinator has a row of its own before this one. */
static const char alone[] = "{\"split\":false}";
static const uint64_t alone_bytes = sizeof(alone) - 1;

enum { IN_CONSOLE = 1, IN_CHAT = 2 };

static const struct web_file {
    unsigned in; /* IN_* */
    const char *name, *type;
    const char *bytes;
    const uint64_t *n;
} files[] = {
#define JS "text/javascript; charset=utf-8"
    {IN_CONSOLE, "", "text/html; charset=utf-8", web_console_html, &web_console_html_bytes},
    {IN_CHAT, "", "text/html; charset=utf-8", web_chat_html, &web_chat_html_bytes},
    {IN_CONSOLE | IN_CHAT, "style.css", "text/css; charset=utf-8", web_style_css,
     &web_style_css_bytes},
    {IN_CONSOLE | IN_CHAT, "icon.svg", "image/svg+xml", web_icon_svg, &web_icon_svg_bytes},
    {IN_CONSOLE | IN_CHAT, "ui.js", JS, web_ui_js, &web_ui_js_bytes},
    {IN_CONSOLE, "console.js", JS, web_console_js, &web_console_js_bytes},
    {IN_CONSOLE, "cluster.js", JS, web_cluster_js, &web_cluster_js_bytes},
    {IN_CONSOLE, "topology.js", JS, web_topology_js, &web_topology_js_bytes},
    {IN_CONSOLE, "requests.js", JS, web_requests_js, &web_requests_js_bytes},
    {IN_CONSOLE, "load.js", JS, web_load_js, &web_load_js_bytes},
    {IN_CONSOLE, "chart.js", JS, web_chart_js, &web_chart_js_bytes},
    {IN_CHAT, "chat.js", JS, web_chat_js, &web_chat_js_bytes},
    {IN_CHAT, "snippets.js", JS, web_snippets_js, &web_snippets_js_bytes},
    {IN_CHAT, "server.json", "application/json", alone, &alone_bytes},
#undef JS
};

bool web_wants_page(struct http_x *x) {
    const char *method = http_x_method(x), *accept = http_x_header(x, "Accept");
    return strcmp(http_x_path(x), "/") == 0 && accept != NULL &&
           (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) &&
           strstr(accept, "text/html") != NULL;
}

/* Of the bytes: what differs by chance is told apart. */
static void etag_of(const struct web_file *f, char etag[24]) {
    const uint64_t h = hash64_bytes(HASH64_BEGIN, f->bytes, *f->n);
    snprintf(etag, 24, "\"%016llx\"", (unsigned long long)h);
}

static void send_file(struct http_x *x, const struct web_file *f) {
    const char *seen = http_x_header(x, "If-None-Match");
    char etag[24];
    etag_of(f, etag);
    http_x_set_header(x, "Content-Security-Policy",
                      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                      "connect-src 'self'; form-action 'none'; base-uri 'none'; "
                      "frame-ancestors 'none'");
    http_x_set_header(x, "X-Content-Type-Options", "nosniff");
    http_x_set_header(x, "Referrer-Policy", "no-referrer");
    http_x_set_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    http_x_set_header(x, "Cache-Control", "no-cache"); /* asked for anew, sent when it is another */
    http_x_set_header(x, "ETag", etag);
    if (seen != NULL && strcmp(seen, etag) == 0)
        http_x_reply(x, 304, NULL, "", 0);
    else
        http_x_reply(x, 200, f->type, f->bytes, *f->n);
}

static void serve(struct http_x *x, unsigned in, const char *name) {
    static const char none[] = "There is no such file.\n";
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if ((files[i].in & in) == 0 || strcmp(files[i].name, name) != 0) continue;
        send_file(x, &files[i]);
        return;
    }
    http_x_reply(x, 404, "text/plain; charset=utf-8", none, sizeof(none) - 1);
}

/* The addresses in a page are beside it: it ends in a slash. to: its last segment and that. */
static void serve_page(struct http_x *x, unsigned in, const char *to) {
    const char *path = http_x_path(x);
    if (path[strlen(path) - 1] == '/') {
        serve(x, in, "");
        return;
    }
    http_x_set_header(x, "Location", to);
    http_x_reply(x, 308, NULL, "", 0);
}

static void on_console(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    serve_page(x, IN_CONSOLE, WEB_CONSOLE);
}

static void on_console_file(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg;
    serve(x, IN_CONSOLE, p->model);
}

static void on_chat(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    serve_page(x, IN_CHAT, WEB_CHAT);
}

static void on_chat_file(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg;
    serve(x, IN_CHAT, p->model);
}

const struct route web_console_routes[] = {
    {PLANE_MGMT | PLANE_LINKED, "GET", "/console", on_console, 0},
    {PLANE_MGMT, "GET", "/console/{m}", on_console_file, 0},
    {0, NULL, NULL, NULL, 0},
};
const struct route web_chat_routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/chat", on_chat, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/chat/web/{m}", on_chat_file, 0},
    {0, NULL, NULL, NULL, 0},
};
