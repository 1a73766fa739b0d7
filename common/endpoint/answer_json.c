/* answer_json: the pieces of JSON that several families print. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/endpoint/answer.h"

void put_cstr(struct buf *out, const char *s) {
    if (s != NULL)
        buf_json_str(out, s, strlen(s));
    else
        buf_append(out, "null", 4);
}

void put_u64(struct buf *out, uint64_t v) {
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    buf_append(out, digits + at, sizeof(digits) - at);
}

void put_i64(struct buf *out, int64_t v) {
    if (v < 0) buf_putc(out, '-');
    put_u64(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void put_rfc3339(struct buf *out, int64_t unix_s) {
    char text[40];
    struct tm tm;
    time_t t = (time_t)unix_s;
    if (gmtime_r(&t, &tm) == NULL ||
        strftime(text, sizeof(text), "\"%Y-%m-%dT%H:%M:%SZ\"", &tm) == 0)
        strcpy(text, "\"1970-01-01T00:00:00Z\"");
    buf_puts(out, text);
}

void put_ms(struct buf *out, uint64_t us) {
    put_u64(out, (us + 500) / 1000);
}

void put_logprob(struct buf *out, float v) {
    char text[32];
    if (isnan(v)) {
        buf_append(out, "null", 4);
        return;
    }
    if (!isfinite(v))
        v = -9999.0f; /* as other servers write a probability of zero; JSON has no infinity */
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    buf_puts(out, text);
    if (strpbrk(text, ".e") == NULL) buf_append(out, ".0", 2);
}

size_t token_text(const struct answer *a, int32_t id, struct detok_cut cut, const char **p) {
    size_t n = tokenizer_token_bytes(answer_tokenizer(a), id, p);
    size_t gone = cut.n > 0 ? detok_cut_bytes(answer_tokenizer(a), cut, id) : 0;
    *p += gone;
    return n - gone;
}

void put_token_text(struct buf *out, const struct answer *a, int32_t id, struct detok_cut cut) {
    const char *p = "";
    size_t n = token_text(a, id, cut, &p);
    buf_json_text(out, p, n, answer_keeps_controls(a));
}

/* The text [from, to), with the prompt and `between` before it in the same string. */
static void put_joined(struct buf *out, struct choice *c, const char *between, size_t from,
                       size_t to) {
    struct buf *joined = &c->a->scratch;
    buf_clear(joined);
    if (c->req->answer.text != NULL)
        buf_append(joined, c->req->answer.text, c->req->answer.text_len);
    buf_puts(joined, between);
    if (to > from) buf_append(joined, c->text.data + from, to - from);
    buf_json_str(out, joined->data != NULL ? joined->data : "", joined->len);
}

void put_new_text(struct buf *out, struct choice *c) {
    bool full = answer_conf(c->a)->full_text;
    size_t from = full ? 0 : c->sent;
    if (c->req->answer.echo && (full || c->n_events == 0))
        put_joined(out, c, "", from, c->ready);
    else
        buf_json_text(out, c->text.data != NULL ? c->text.data + from : "", c->ready - from, true);
}

void put_all_text(struct buf *out, struct choice *c, const char *between) {
    if (between != NULL)
        put_joined(out, c, between, 0, c->text.len);
    else
        buf_json_text(out, c->text.data != NULL ? c->text.data : "", c->text.len, true);
}

void put_id_list(struct buf *out, const struct choice *c, size_t from, size_t to) {
    buf_putc(out, '[');
    for (size_t i = from; i < to; i++) {
        if (i > from) buf_putc(out, ',');
        put_i64(out, c->recs[i].id);
    }
    buf_putc(out, ']');
}

void put_details_finish(struct buf *out, enum finish f) {
    static const char *const names[] = {
        [FINISH_NONE] = "null",
        [FINISH_EOS] = "\"eos_token\"",
        [FINISH_STOP_TOKEN] = "\"stop_sequence\"",
        [FINISH_STOP_STRING] = "\"stop_sequence\"",
        [FINISH_LENGTH] = "\"length\"",
        [FINISH_ABORT] = "\"stop_sequence\"",
        [FINISH_ERROR] = "\"stop_sequence\"",
    };
    buf_puts(out, names[f]);
}

size_t utf8_chars(const char *s, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars;
}
