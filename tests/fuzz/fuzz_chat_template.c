/* Goal: no template and no variables make the engine crash, leak, hang or pass its bounds.
 * Input: the template, a zero byte, the variables as JSON (both may be absent).
 * Properties: the same rendering twice gives the same; an error has a text; the output bound holds.
 */
#include <stdlib.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "proto/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *cut = size == 0 ? NULL : memchr(text, '\0', size);
    size_t n = cut == NULL ? size : (size_t)(cut - text);
    struct chat_template *t = NULL;
    struct json_value *vars = NULL;
    struct errbuf eb = {0};
    if (chat_template_parse(&t, text, n, &eb) != ERR_OK) {
        if (t != NULL || eb.text[0] == '\0') abort();
        return 0;
    }
    if (cut != NULL) (void)json_read(&vars, cut + 1, size - n - 1, NULL, &eb);
    struct chat_vars v = {
        .vars = json_is(vars, json_type_object) ? vars : NULL,
        .now_unix_s = 1753900245,
    };
    struct buf first = BUF_INIT, second = BUF_INIT;
    eb.text[0] = '\0';
    enum err e = chat_template_render(t, &v, OUT_BYTES_MAX, &first, &eb);
    if (first.len > OUT_BYTES_MAX) abort();
    if (e != ERR_OK && (eb.text[0] == '\0' || first.len != 0)) abort();
    if (chat_template_render(t, &v, OUT_BYTES_MAX, &second, NULL) != e) abort();
    if (first.len != second.len ||
        (first.len > 0 && memcmp(first.data, second.data, first.len) != 0)) {
        abort();
    }
    buf_free(&first);
    buf_free(&second);
    json_put(vars);
    chat_template_free(&t);
    return 0;
}
