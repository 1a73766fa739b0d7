/* Renders chat templates for tests/oracle/test_chat_template.py: one JSON object per line in, one
 * out.
 *   {"template": text, "vars": {...}, "now": seconds, "out_max": bytes}   ("now", "out_max" may be
 * absent)
 *   {"ok": true, "text": text}  or  {"ok": false, "code": "ERR_INVALID", "error": text} */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "proto/json.h"

static enum err render_line(const char *line, size_t n, struct buf *out, struct errbuf *eb) {
    struct json_value *req = NULL, *vars = NULL;
    struct chat_template *t = NULL;
    const char *src = "";
    size_t n_src = 0;
    int64_t now = 0, out_max = 16 * 1024 * 1024;
    enum err e = json_read(&req, line, n, NULL, eb);
    if (e != ERR_OK) {
        fprintf(stderr, "chat_template: the request is not JSON: %s\n", eb->text);
        exit(2);
    }
    json_get_str(req, "template", &src, &n_src);
    json_get_obj(req, "vars", &vars);
    json_get_i64(req, "now", &now);
    json_get_i64(req, "out_max", &out_max);
    e = chat_template_parse(&t, src, n_src, eb);
    if (e == ERR_OK) {
        struct chat_vars v = {.vars = vars, .now_unix_s = now};
        e = chat_template_render(t, &v, (size_t)out_max, out, eb);
    }
    chat_template_free(&t);
    json_put(req);
    return e;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct buf text = BUF_INIT, answer = BUF_INIT;
        struct errbuf eb = {0};
        enum err e = render_line(line, (size_t)n, &text, &eb);
        if (e == ERR_OK) {
            buf_puts(&answer, "{\"ok\": true, \"text\": ");
            buf_json_str(&answer, text.data == NULL ? "" : text.data, text.len);
        } else {
            buf_printf(&answer, "{\"ok\": false, \"code\": \"%s\", \"error\": ", err_name(e));
            buf_json_text(&answer, eb.text, strlen(eb.text), false);
        }
        buf_puts(&answer, "}\n");
        fwrite(answer.data, 1, answer.len, stdout);
        fflush(stdout);
        buf_free(&text);
        buf_free(&answer);
    }
    free(line);
    return 0;
}
