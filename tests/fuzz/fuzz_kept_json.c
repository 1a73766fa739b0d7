/* Goal: no text breaks what looks at bodies, items and events of kept answers: every part that is
 * found lies within the text, walks end, and an item that is valid JSON is shown as valid JSON. */
#include <stdlib.h>
#include <string.h>
#include "common/net/kept_json.h"
#include "proto/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(struct kept_span s, const char *p, size_t n) {
    if (s.n > 0 && (s.p < p || s.p + s.n > p + n)) abort();
}

static bool is_json(const char *p, size_t n) {
    struct json_value *o = NULL;
    const bool good = json_read(&o, p, n, NULL, NULL) == ERR_OK && o != NULL;
    json_put(o);
    return good;
}

static void walk(struct kept_span list, const char *p, size_t n) {
    struct kept_items it = kept_items_of(list);
    struct kept_span item, id;
    struct buf b = BUF_INIT;
    const bool valid = is_json(list.p, list.n);
    for (size_t i = 0; kept_items_next(&it, &item); i++) {
        within(item, p, n);
        if (item.n == 0) abort();
        if (kept_is_reference(item, &id)) within(id, p, n);
        buf_clear(&b);
        if (item.p[0] == '{' || item.p[0] == '"') kept_put_item(&b, item, "17", i);
        if (valid && item.p[0] == '"' && !is_json(b.data, b.len)) abort();
    }
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size > 0 ? size : 1); /* its end is the end of what may be read */
    struct kept_body body;
    struct buf b = BUF_INIT;
    bool some = false;
    memcpy(text, data, size);
    kept_body_look(&body, text, size);
    within(body.previous, text, size);
    within(body.input, text, size);
    walk(body.input, text, size);
    kept_put_items(&b, body.input, &some);
    const struct kept_span all = {text, size}, last = kept_last_event(all);
    within(last, text, size);
    within(kept_response_of(last), text, size);
    for (size_t n = 0; n < 4; n++) within(kept_events_from(all, n), text, size);
    buf_free(&b);
    free(text);
    return 0;
}
