/* otlp_spans: times of a request as spans. What was measured on instances (prefill, KV) lies where
 * the coordinator's own times say that it was: prefill ends with the first token, the exposed part
 * of the KV behind it. */
#include <stdio.h>
#include <string.h>
#include "common/base/build.h"
#include "coordinator/otlp_priv.h"
#include "coordinator/relay_priv.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };

struct span {
    const char *name;
    uint8_t id[SPAN_ID_BYTES];
    const uint8_t *parent; /* NULL: none */
    int kind;
    uint64_t begin_us, end_us; /* of the wall clock */
};

static void put_id(struct buf *out, const char *key, const uint8_t *id, unsigned n) {
    char hex[2 * TRACE_ID_BYTES + 1];
    traceparent_hex(hex, id, n);
    buf_printf(out, "\"%s\":\"%s\",", key, hex);
}

static void open_span(struct buf *out, const struct otlp_place *at, const struct span *s) {
    buf_putc(out, '{');
    put_id(out, "traceId", at->own.trace_id, TRACE_ID_BYTES);
    put_id(out, "spanId", s->id, SPAN_ID_BYTES);
    if (s->parent != NULL) put_id(out, "parentSpanId", s->parent, SPAN_ID_BYTES);
    buf_printf(out,
               "\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%llu000\","
               "\"endTimeUnixNano\":\"%llu000\",\"attributes\":[",
               s->name, s->kind, (unsigned long long)s->begin_us, (unsigned long long)s->end_us);
}

static void comma(struct buf *out) {
    if (out->len > 0 && out->data[out->len - 1] != '[') buf_putc(out, ',');
}

static void put_str(struct buf *out, const char *key, const char *value) {
    if (value[0] == 0) return;
    comma(out);
    buf_printf(out, "{\"key\":\"%s\",\"value\":{\"stringValue\":", key);
    buf_json_text(out, value, strlen(value), true);
    buf_puts(out, "}}");
}

static void put_int(struct buf *out, const char *key, uint64_t value) {
    comma(out);
    buf_printf(out, "{\"key\":\"%s\",\"value\":{\"intValue\":\"%llu\"}}", key,
               (unsigned long long)value);
}

static void put_ms(struct buf *out, const char *key, double ms) {
    comma(out);
    buf_printf(out, "{\"key\":\"%s\",\"value\":{\"doubleValue\":", key);
    buf_json_double(out, ms);
    buf_puts(out, "}}");
}

static void put_request(struct buf *out, const struct otlp_place *at, const struct recent *e,
                        struct span *root) {
    open_span(out, at, root);
    put_str(out, "http.route", e->path);
    put_int(out, "http.response.status_code", (uint64_t)e->status);
    put_str(out, "baton.request_id", e->id);
    put_str(out, "baton.prefill_instance", e->p_name);
    put_str(out, "baton.decode_instance", e->d_name);
    put_str(out, "baton.adapter", e->adapter);
    put_int(out, "baton.attempts", e->epoch + 1u);
    put_int(out, "gen_ai.usage.input_tokens", e->handover.prompt_tokens);
    put_int(out, "gen_ai.usage.output_tokens", e->n_tokens);
    buf_puts(out, "]");
    if (e->ttft_us > 0)
        buf_printf(out, ",\"events\":[{\"timeUnixNano\":\"%llu000\",\"name\":\"first_token\"}]",
                   (unsigned long long)(root->begin_us + e->ttft_us));
    if (e->status >= 400)
        buf_printf(out, ",\"status\":{\"code\":%d,\"message\":\"%s\"}", STATUS_ERROR,
                   cause_name(e->cause));
    buf_putc(out, '}');
}

static uint64_t before(uint64_t end_us, double ms, uint64_t least_us) {
    const double us = ms * 1000;
    return us > 0 && us < (double)(end_us - least_us) ? end_us - (uint64_t)us : least_us;
}

void otlp_spans(struct buf *out, const struct otlp_place *at, const struct recent *e,
                void (*next_id)(void *arg, uint8_t id[SPAN_ID_BYTES]), void *arg) {
    struct span root = {.name = e->path,
                        .parent = at->has_parent ? at->parent : NULL,
                        .kind = KIND_SERVER,
                        .begin_us = e->started_unix_ms * 1000};
    root.end_us = root.begin_us + e->total_ms * 1000;
    memcpy(root.id, at->own.span_id, sizeof(root.id));
    const uint64_t queued_us = root.begin_us + e->queue_us, first_us = root.begin_us + e->ttft_us;
    if (root.end_us < first_us) root.end_us = first_us; /* totals are of milliseconds */
    comma(out);
    put_request(out, at, e, &root);
    struct span s = {.parent = at->own.span_id, .kind = KIND_INTERNAL};
    if (e->queue_us > 0) {
        s.name = "queue", s.begin_us = root.begin_us, s.end_us = queued_us;
        next_id(arg, s.id);
        comma(out);
        open_span(out, at, &s);
        buf_puts(out, "]}");
    }
    if (e->ttft_us > 0) {
        const struct handover *h = &e->handover;
        s.name = "prefill", s.end_us = first_us;
        s.begin_us = before(first_us, h->prefill_ms, queued_us < first_us ? queued_us : first_us);
        next_id(arg, s.id);
        comma(out);
        open_span(out, at, &s);
        put_int(out, "baton.cached_tokens", h->cached_tokens);
        put_ms(out, "baton.prefill_queue_ms", h->p_queue_ms);
        put_ms(out, "baton.prefill_ms", h->prefill_ms);
        buf_puts(out, "]}");
        s.name = "decode", s.begin_us = first_us, s.end_us = root.end_us;
        next_id(arg, s.id);
        comma(out);
        open_span(out, at, &s);
        put_int(out, "gen_ai.usage.output_tokens", e->n_tokens);
        buf_puts(out, "]}");
    }
    if (e->handover.kv_bytes > 0 && e->ttft_us > 0) {
        const double exposed = e->handover.exposed_ms;
        s.name = "kv_transfer";
        s.end_us = first_us + (exposed > 0 ? (uint64_t)(exposed * 1000) : 0);
        if (s.end_us > root.end_us) s.end_us = root.end_us;
        s.begin_us = before(s.end_us, e->handover.transfer_ms, root.begin_us);
        next_id(arg, s.id);
        comma(out);
        open_span(out, at, &s);
        put_int(out, "baton.kv_bytes", e->handover.kv_bytes);
        put_int(out, "baton.kv_blocks", e->handover.kv_blocks);
        put_ms(out, "baton.exposed_ms", exposed);
        buf_puts(out, "]}");
    }
    for (unsigned i = 0; i < e->n_lost; i++) {
        const struct lost_attempt *l = &e->lost[i];
        if (l->silent_unix_us == 0) continue;
        s.name = "recover", s.begin_us = l->silent_unix_us;
        s.end_us = l->silent_unix_us + l->silence_us;
        next_id(arg, s.id);
        comma(out);
        open_span(out, at, &s);
        put_str(out, "baton.cause", cause_name(l->cause));
        put_str(out, "baton.prefill_instance", l->p_name);
        put_str(out, "baton.decode_instance", l->d_name);
        put_int(out, "baton.tokens_kept", l->n_kept);
        buf_puts(out, "]}");
    }
}

/* ---- what stands around them */

static bool put_char(char *dst, size_t size, size_t *n, char c) {
    if (*n + 1 >= size) return false;
    dst[(*n)++] = c;
    dst[*n] = 0;
    return true;
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool otlp_pair_next(struct otlp_pair *out, const char **list, bool *bad) {
    const char *p = *list;
    size_t n_key = 0, n_value = 0;
    *out = (struct otlp_pair){0};
    *bad = false;
    while (*p == ' ' || *p == ',') p++;
    if (*p == 0) return false;
    for (; *p != 0 && *p != '=' && *p != ','; p++)
        if (!put_char(out->key, sizeof(out->key), &n_key, *p)) goto wrong;
    while (n_key > 0 && out->key[n_key - 1] == ' ') out->key[--n_key] = 0;
    if (*p != '=' || n_key == 0) goto wrong;
    for (p++; *p != 0 && *p != ','; p++) {
        char c = *p;
        if (c == '%' && digit(p[1]) >= 0 && digit(p[2]) >= 0) {
            c = (char)(digit(p[1]) << 4 | digit(p[2]));
            p += 2;
        }
        if ((unsigned char)c < 0x20 || c == 0x7F ||
            !put_char(out->value, sizeof(out->value), &n_value, c))
            goto wrong;
    }
    while (n_value > 0 && out->value[n_value - 1] == ' ') out->value[--n_value] = 0;
    *list = p;
    return true;
wrong:
    *bad = true;
    return false;
}

void otlp_head(struct buf *out, const char *service, const char *resource) {
    struct otlp_pair pair;
    bool bad;
    buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_str(out, "service.name", service);
    put_str(out, "service.version", BATON_VERSION);
    while (otlp_pair_next(&pair, &resource, &bad)) {
        buf_puts(out, ",{\"key\":");
        buf_json_text(out, pair.key, strlen(pair.key), true);
        buf_puts(out, ",\"value\":{\"stringValue\":");
        buf_json_text(out, pair.value, strlen(pair.value), true);
        buf_puts(out, "}}");
    }
    buf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"baton\",\"version\":\"" BATON_VERSION
                  "\"},\"spans\":[");
}

void otlp_tail(struct buf *out) {
    buf_puts(out, "]}]}]}");
}
