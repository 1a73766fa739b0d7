/* Goal: no text breaks the parsers of calls and of reasoning, and how the text is cut is all one.
 * The first byte chooses the format and the options. */
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/harmony.h"
#include "common/endpoint/reasoning.h"
#include "common/endpoint/tool_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct tool_parse *a, const struct tool_parse *b) {
    const struct buf *x = tool_parse_content(a), *y = tool_parse_content(b);
    size_t n = tool_parse_n_calls(a);
    if (x->len != y->len || (x->len > 0 && memcmp(x->data, y->data, x->len) != 0)) abort();
    if (n != tool_parse_n_calls(b) || n > TOOL_CALLS_MAX) abort();
    for (size_t i = 0; i < n; i++) {
        const struct tool_call *c = tool_parse_call(a, i), *d = tool_parse_call(b, i);
        if (c->complete != d->complete || strcmp(c->id, d->id) != 0) abort();
        if (strcmp(c->name.data, d->name.data) != 0 || c->args.len != d->args.len) abort();
        if (c->args.len > 0 && memcmp(c->args.data, d->args.data, c->args.len) != 0) abort();
    }
}

/* Channels, with calls or without. */
static void check_channels(const struct tool_parse_opts *opts, const char *text, size_t n,
                           bool open, bool with_calls) {
    struct harmony whole, bytes;
    struct buf a = BUF_INIT, b = BUF_INIT;
    struct tool_parse *p = NULL, *q = NULL;
    if (with_calls &&
        ((p = tool_parse_create(opts)) == NULL || (q = tool_parse_create(opts)) == NULL))
        abort();
    harmony_init(&whole, open ? HARMONY_CONTENT : HARMONY_HEADER);
    harmony_init(&bytes, open ? HARMONY_CONTENT : HARMONY_HEADER);
    harmony_feed(&whole, text, n, p, &a);
    for (size_t i = 0; i < n; i++) harmony_feed(&bytes, text + i, 1, q, &b);
    harmony_finish(&whole, p, &a);
    harmony_finish(&bytes, q, &b);
    if (a.len != b.len || whole.text.len != bytes.text.len || whole.closed != bytes.closed ||
        whole.close_at != bytes.close_at || whole.close_at > n)
        abort();
    if (a.len > 0 && memcmp(a.data, b.data, a.len) != 0) abort();
    if (with_calls) {
        tool_parse_finish(p);
        tool_parse_finish(q);
        check_same(p, q);
    }
    tool_parse_destroy(&p);
    tool_parse_destroy(&q);
    harmony_fini(&whole);
    harmony_fini(&bytes);
    buf_free(&a);
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct reasoning whole, bytes;
    struct buf a = BUF_INIT, b = BUF_INIT;
    if (size < 2) return 0;
    const struct tool_parse_opts opts = {
        .format = (enum tool_format)(data[0] % TOOLS_COUNT),
        .whole = (data[0] & 0x80) != 0,
        .parallel = (data[0] & 0x40) == 0,
        .hidden = data[1],
        .id_seed = size,
    };
    const char *text = (const char *)data + 2;
    size_t n = size - 2;
    reasoning_init(&whole, (data[1] & 0x80) != 0);
    reasoning_init(&bytes, (data[1] & 0x80) != 0);
    reasoning_feed(&whole, text, n, &a);
    for (size_t i = 0; i < n; i++) reasoning_feed(&bytes, text + i, 1, &b);
    reasoning_finish(&whole, &a);
    reasoning_finish(&bytes, &b);
    if (a.len != b.len || whole.text.len != bytes.text.len || whole.closed != bytes.closed) abort();
    reasoning_fini(&whole);
    reasoning_fini(&bytes);
    buf_free(&a);
    buf_free(&b);

    if (opts.format == TOOLS_HARMONY)
        check_channels(&opts, text, n, (data[1] & 0x80) != 0, (data[1] & 1) == 0);
    struct tool_parse *p = tool_parse_create(&opts), *q = tool_parse_create(&opts);
    if (p == NULL || q == NULL) abort();
    tool_parse_feed(p, text, n);
    for (size_t i = 0; i < n; i++) tool_parse_feed(q, text + i, 1);
    tool_parse_finish(p);
    tool_parse_finish(q);
    check_same(p, q);
    for (size_t i = 0; opts.whole && i < tool_parse_n_calls(p); i++)
        if (!tool_parse_call(p, i)->complete) abort();
    tool_parse_destroy(&p);
    tool_parse_destroy(&q);
    return 0;
}
