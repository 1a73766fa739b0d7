/* relay_out: one writer. */
#include "coordinator/relay_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/net/http_server.h"
#include "common/net/http_tensors.h"
#include "coordinator/coord_metrics.h"
#include "coordinator/coordinator.h"
#include "proto/api.h"

void relay_out_open(struct relay_out *o, struct coordinator *co, struct http_x *x,
                    const struct api_path *path, bool stream, const char *id, void (*gone)(void *),
                    void *arg) {
    *o = (struct relay_out){.co = co,
                            .x = x,
                            .path = path,
                            .stream = stream,
                            .last_write_ms = clock_ms(),
                            .attempt = 1};
    http_x_set_header(x, "RequestUUID", id);
    http_x_on_close(x, gone, arg);
}

static const struct api_framing *framing_of(const struct relay_out *o) {
    return &api_framings[o->path->frames];
}

/* The exchange ends: nobody hears of its close. */
static struct http_x *let_go(struct relay_out *o) {
    struct http_x *x = o->x;
    o->x = NULL;
    http_x_on_close(x, NULL, NULL);
    return x;
}

static void say_attempt(const struct relay_out *o) {
    char n[16];
    if (!o->co->conf.attempts_header) return;
    snprintf(n, sizeof(n), "%u", o->attempt);
    http_x_set_header(o->x, "x-baton-attempts", n);
}

static void begin(struct relay_out *o) {
    if (o->head_sent) return;
    o->head_sent = true;
    say_attempt(o);
    http_x_set_header(o->x, "Cache-Control", "no-cache");
    http_x_stream_begin(o->x, 200, coord_media_type(framing_of(o)->type));
}

static void write_some(struct relay_out *o, const char *p, size_t n) {
    if (o->x == NULL) {
        o->begun = o->begun || n > 0;
        return;
    }
    begin(o);
    if (n == 0) return;
    o->begun = true;
    o->last_write_ms = clock_ms();
    coord_metrics_relayed(o->co->metrics, n);
    http_x_stream_write(o->x, p, n);
}

void relay_out_attach(struct relay_out *o, struct http_x *x, const char *id, void (*gone)(void *),
                      void *arg, const char *p, size_t n) {
    if (o->x != NULL && o->x != x) http_x_abort(let_go(o)); /* a connection it has given up */
    o->x = x;
    o->head_sent = false;
    o->last_write_ms = clock_ms();
    http_x_set_header(x, "RequestUUID", id);
    http_x_on_close(x, gone, arg);
    if (o->stream && o->begun) write_some(o, p, n);
}

void relay_out_hand_on(struct relay_out *o, const char *text) {
    if (o->x != NULL && o->head_sent)
        http_x_abort(let_go(o));
    else
        relay_out_fail(o, 503, text);
}

static void end_stream(struct relay_out *o) {
    if (o->x != NULL) http_x_stream_end(let_go(o));
}

static void whole(struct relay_out *o, int status, const char *type, const char *p, size_t n) {
    if (o->x == NULL) return;
    say_attempt(o);
    coord_metrics_relayed(o->co->metrics, n);
    http_x_reply(let_go(o), status, type, p, n);
}

/* The whole answer. */
static void answered(struct relay_out *o, const char *p, size_t n) {
    if (o->x == NULL) return;
    if (o->path->frames != API_FRAMES_TENSORS) {
        whole(o, 200, coord_media_type(framing_of(o)->whole), p, n);
        return;
    }
    say_attempt(o);
    coord_metrics_relayed(o->co->metrics, n);
    http_tensors_reply(let_go(o), coord_media_type(framing_of(o)->whole), p, n);
}

void relay_out_piece(struct relay_out *o, const char *p, size_t n) {
    if (o->stream && n > 0) write_some(o, p, n);
}

void relay_out_last(struct relay_out *o, const char *p, size_t n) {
    if (!o->stream) {
        answered(o, p, n);
        return;
    }
    write_some(o, p, n);
    end_stream(o);
}

/* One event in the family's framing, and its end marker (inference-api 3.4). json[n]: an error
 * body. */
static void end_with_event(struct relay_out *o, const char *json, size_t n) {
    struct buf b = BUF_INIT;
    while (n > 0 && (json[n - 1] == '\n' || json[n - 1] == '\r')) n--;
    const size_t skip = framing_of(o)->opened && n > 0 ? 1 : 0;
    buf_puts(&b, framing_of(o)->before);
    buf_append(&b, json + skip, n - skip);
    buf_append(&b, framing_of(o)->after, framing_of(o)->after_bytes);
    http_x_stream_write(o->x, b.data, b.len);
    buf_free(&b);
    end_stream(o);
}

void relay_out_error(struct relay_out *o, int status, const char *type, const char *body, size_t n,
                     bool framed) {
    if (o->x == NULL) return;
    if (o->head_sent && framing_of(o)->trailers) {
        http_x_stream_fail(let_go(o), status, body, n);
    } else if (o->begun && framed) {
        write_some(o, body, n);
        end_stream(o);
    } else if (o->head_sent) {
        end_with_event(o, body, n);
    } else {
        if (status == 429 || status == 503) http_x_set_header(o->x, "Retry-After", "1");
        whole(o, status, type != NULL ? type : "application/json; charset=utf-8", body, n);
    }
}

void relay_out_fail(struct relay_out *o, int status, const char *text) {
    if (o->x == NULL) return;
    if (o->head_sent) {
        char *body =
            api_error_body(o->path->errors, coord_error_style(o->co), &status, text, NULL, NULL);
        const char *json = body != NULL ? body : "{\"error\":\"out of memory\"}";
        relay_out_error(o, status, NULL, json, strlen(json), false);
        free(body);
        return;
    }
    say_attempt(o);
    if (status == 429 || status == 503) {
        char seconds[16];
        snprintf(seconds, sizeof(seconds), "%u", o->retry_after_s > 0 ? o->retry_after_s : 1);
        http_x_set_header(o->x, "Retry-After", seconds);
    }
    coord_reply_error(o->co, let_go(o), status, text);
}

void relay_out_tick(struct relay_out *o, uint64_t now_ms) {
    uint64_t every_ms = (uint64_t)o->co->conf.sse_keep_alive_s * 1000;
    if (every_ms == 0 || o->x == NULL || !o->stream || !framing_of(o)->comments ||
        now_ms < o->last_write_ms + every_ms)
        return;
    begin(o);
    o->last_write_ms = now_ms;
    http_x_stream_write(o->x, ":\n\n", 3);
}
