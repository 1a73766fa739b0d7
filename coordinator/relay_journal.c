/* relay_journal: clients that come back (docs/high-availability.md): with the id of the last event
 * that they have, or with the Idempotency-Key of their first try. What they lack is in the journal;
 * who works on the rest is the request as it runs here, or, behind the death of the coordinator
 * that had it, one that begins where the journal ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/fwd_headers.h"
#include "coordinator/ha.h"
#include "coordinator/journal.h"
#include "coordinator/relay_priv.h"
#include "coordinator/to_leader.h"

#define LAST_HEADER "Last-Event-ID"
#define KEY_HEADER  "Idempotency-Key"
#define ID_PREFIX   "resp_" /* events of Responses have ids of their own (client-apis 1.4) */

enum {
    AHEAD_MAX = 4096,
    EPOCHS_EACH = 64, /* ATTEMPTS_MAX: of a coordinator, as far as one that goes on can know */
};

static void refuse(struct coordinator *co, struct http_x *x, int status, const char *text) {
    if (status == 409) http_x_set_header(x, "Retry-After", "1");
    if (status == 422) http_x_set_header(x, "x-should-retry", "false");
    coord_reply_error(co, x, status, text);
}

static void not_kept(struct coordinator *co, struct http_x *x, const char *why) {
    char text[240];
    const char *last = http_x_header(x, LAST_HEADER);
    snprintf(text, sizeof(text),
             LAST_HEADER
             " must be the id of an event of a stream that is kept here: %s, got \"%.80s\"",
             why, last != NULL ? last : "");
    refuse(co, x, 404, text);
}

/* ---- what is written while it runs */

static bool is_sse(const struct api_path *path) {
    const struct api_framing *f = &api_framings[path->frames];
    return f->comments && !f->trailers;
}

static const char *eol_of(const struct api_path *path) {
    return path->frames == API_FRAMES_SSE_EVENTS ? "\r\n" : "\n";
}

/* In the header as it came, or as a string of structured fields: without its quotes. False: it is
 * none, or there is none. */
static bool read_key(struct http_x *x, char key[JOURNAL_KEY_BYTES_MAX + 1]) {
    const char *v = http_x_header(x, KEY_HEADER);
    size_t n = v != NULL ? strlen(v) : 0;
    if (n >= 2 && v[0] == '"' && v[n - 1] == '"') {
        v++;
        n -= 2;
    }
    if (n < 1 || n > JOURNAL_KEY_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i++)
        if (v[i] <= ' ' || v[i] >= 0x7F) return false;
    memcpy(key, v, n);
    key[n] = '\0';
    return true;
}

/* What P gets of the client's headers, one a line. False: too long. */
static bool put_headers(struct buf *out, struct http_x *x, const struct api_path *path) {
    struct fwd_headers h;
    fwd_headers_init(&h);
    fwd_headers_add_framing(&h, x, path);
    fwd_headers_add_trace(&h, x, NULL);
    for (size_t i = 0; i < h.n; i++) buf_printf(out, "%s\n", h.list[i]);
    return !out->failed && out->len <= JOURNAL_HEADERS_BYTES_MAX;
}

void relay_journal_open(struct relay *r, struct http_x *x) {
    struct journal *j = r->set->co->journal;
    struct buf headers = BUF_INIT;
    struct journal_msg m = {.kind = JOURNAL_ENTRY,
                            .id = r->id,
                            .stream = r->out.stream,
                            .body = {r->body, r->n_body},
                            .context = {r->ask.context.data, r->ask.context.len}};
    if (j == NULL || r->path->frames == API_FRAMES_GRPC || r->path->frames == API_FRAMES_TENSORS)
        return;
    const bool keyed = read_key(x, m.key);
    if (r->out.stream ? !is_sse(r->path) : !keyed) return;
    snprintf(m.tenant, sizeof(m.tenant), "%s", r->tenant->name);
    snprintf(m.path, sizeof(m.path), "%s", r->url_path);
    journal_digest(m.digest, r->body, r->n_body);
    if (put_headers(&headers, x, r->path)) {
        m.headers = (struct journal_span){headers.data, headers.len};
        r->entry = journal_open(j, &m);
    }
    buf_free(&headers);
    if (r->entry == NULL) return; /* it is answered as ever, and cannot be come back to */
    r->entry->relay = r;
    r->entry->live = &r->transcript;
    r->body = r->entry->body.data != NULL ? r->entry->body.data : "";
}

/* What the client lacks of it. */
static void write_span(struct relay *r, struct journal_span s, uint64_t first, bool last) {
    if (r->out.stream && r->skip_to > first) s = journal_skip_events(s, r->skip_to - first);
    if (last)
        relay_out_last(&r->out, s.p, s.n);
    else
        relay_out_piece(&r->out, s.p, s.n);
}

static void write_piece(struct relay *r, const struct piece *p, bool last) {
    struct journal_entry *e = r->entry;
    struct journal_span s = {p->body, p->len};
    struct buf tagged = BUF_INIT;
    uint64_t first = r->skip_to;
    if (e != NULL && !e->shut) {
        first = e->n_events;
        if (!journal_piece(r->set->co->journal, e, p->body, p->len, p->tokens, p->n_tokens,
                           eol_of(r->path), &tagged))
            log_warn("relay", "req=%s event=not_kept detail=\"pd.replicate_mib are used up\"",
                     r->id_text);
        if (!tagged.failed) s = (struct journal_span){tagged.data, tagged.len};
    }
    if (r->feeds_kept) kept_more(r->set->co->kept, r->tenant->name, r->id_text, s.p, s.n);
    write_span(r, s, first, last);
    buf_free(&tagged);
}

void relay_write(struct relay *r, const struct piece *p) {
    write_piece(r, p, false);
}

void relay_write_last(struct relay *r, const struct piece *p) {
    write_piece(r, p, true);
}

/* ---- its client goes */

/* A response that is kept goes on being kept without the exchange that it was recorded from. False:
 * it was cancelled. */
static bool keep_on(struct relay *r) {
    if (!r->ask.store || r->feeds_kept) return true;
    r->feeds_kept = true;
    return kept_go_on(r->set->co->kept, r->tenant->name, r->id_text, r->out.stream);
}

void relay_client_left(struct relay *r) {
    const struct journal_entry *e = r->entry;
    const bool may_come =
        e != NULL && !e->shut && (e->n_events > 0 || e->key[0] != '\0') && !r->stop_asked;
    if (!may_come || r->set->co->conf.resume_grace_s == 0 || !keep_on(r)) {
        relay_step(r, EV_CLIENT_GONE, &(struct relay_input){.left = LEFT_BOTH});
        return;
    }
    log_info("relay", "req=%s event=client_away events=%llu", r->id_text,
             (unsigned long long)e->n_events);
    r->out.x = NULL;
    r->gone_ms = clock_ms();
}

bool relay_is_handed_on(const struct relay *r, enum cause cause) {
    if (cause != CAUSE_STOPPING || r->set->co->ha == NULL) return false;
    return (r->entry != NULL && !r->entry->shut) || (r->set->co->handed && !r->out.head_sent);
}

/* Its client has all the events that there are, or more. */
static void last_id(const struct relay *r, char *out, size_t n) {
    const struct journal_entry *e = r->entry;
    const uint64_t n_had = e != NULL && r->skip_to < e->n_events ? e->n_events : r->skip_to;
    const bool named = e != NULL && !e->shut && e->stream && e->n_events > 0 && r->out.head_sent;
    out[0] = '\0';
    if (named) snprintf(out, n, "%s:%llu", e->id_text, (unsigned long long)(n_had - 1));
}

void relay_hand_on(struct relay *r, const char *text) {
    char last[64];
    last_id(r, last, sizeof(last));
    const bool may = r->out.x != NULL && (last[0] != '\0' || !r->out.head_sent);
    if (may && ha_park(r->set->co, r->out.x, last, r->out.head_sent))
        r->out.x = NULL;
    else
        relay_out_hand_on(&r->out, text);
}

/* Those of a standby that passes them on it ends itself, when another one leads. */
static bool can_go(const struct relay *r, const struct to_leader *to) {
    const struct journal_entry *e = r->entry;
    const bool kept = e != NULL && !e->shut;
    if (kept && (r->out.x == NULL || e->n_events > 0)) return true;
    if (r->out.head_sent || r->out.x == NULL) return false;
    return to_leader_may_park(to, r->out.x) || http_x_header(r->out.x, RELAYED_HEADER) != NULL;
}

bool relay_all_can_go(const struct relay_set *s, const struct to_leader *to) {
    const struct relay *r = s->first;
    while (r != NULL && can_go(r, to)) r = r->next;
    return r == NULL;
}

void relay_journal_ended(struct relay *r, int status, enum cause cause) {
    struct journal *j = r->set->co->journal;
    struct journal_entry *e = r->entry;
    if (e == NULL) return;
    r->entry = NULL;
    if (r->feeds_kept)
        kept_end(r->set->co->kept, r->tenant->name, r->id_text,
                 status == 200 && cause == CAUSE_NONE);
    if (status == 200 && cause == CAUSE_NONE) {
        journal_done(j, e, clock_ms());
    } else if (cause == CAUSE_STOPPING && r->set->co->ha != NULL) {
        e->broken = e->broken || r->transcript_broken;
        budget_give(&r->set->co->budget, BUDGET_TRANSCRIPT_BYTES, r->transcript_bytes);
        r->transcript_bytes = 0;
        journal_release(j, e, &r->transcript, clock_ms());
    } else {
        journal_drop(j, e);
    }
}

/* ---- its client comes back */

/* Nobody works on it any more. */
static void answer_again(struct relay_set *s, struct http_x *x, const struct api_path *path,
                         const struct journal_entry *e, struct journal_span rest) {
    const struct api_framing *f = &api_framings[path->frames];
    (void)s;
    http_x_set_header(x, "RequestUUID", e->id_text);
    if (!e->stream) {
        http_x_reply(x, 200, coord_media_type(f->whole), rest.p, rest.n);
        return;
    }
    http_x_set_header(x, "Cache-Control", "no-cache");
    http_x_stream_paced(x); /* no more than is kept */
    http_x_stream_begin(x, 200, coord_media_type(f->type));
    http_x_stream_write(x, rest.p, rest.n);
    http_x_stream_end(x);
}

static void on_gone(void *arg) {
    relay_client_left(arg);
}

static void attach(struct relay *r, struct http_x *x, uint64_t n_had, struct journal_span rest) {
    r->skip_to = n_had;
    log_info("relay", "req=%s event=client_back lacks=%zu", r->id_text, rest.n);
    r->gone_ms = 0;
    if (r->out.x != x) (void)keep_on(r);
    relay_out_attach(&r->out, x, r->id_text, on_gone, r, rest.p, rest.n);
}

/* Whether somebody can go on where the journal ends. */
static bool can_go_on(const struct journal_entry *e) {
    if (e->answer.len == 0 && e->n_events == 0) return true; /* from the beginning, if need be */
    return !e->broken && e->transcript.n_parts > 0 && !transcript_has_ended(&e->transcript);
}

/* A coordinator before had it. */
static void adopt(struct relay_set *s, struct http_x *x, const struct api_path *path,
                  const char *model, struct journal_entry *e, uint64_t n_had,
                  struct journal_span rest) {
    const uint64_t now = clock_ms(), age_ms = now - e->opened_ms;
    struct body_look look;
    if (!relay_admit(s, x, path)) return;
    body_look(&look, path, e->body.data != NULL ? e->body.data : "", e->body.len);
    look.client_id[0] = '\0';
    look.n_chars += e->context.len;
    struct relay *r =
        relay_find(s, e->id) == NULL ? relay_add(s, x, path, model, &look, e->id) : NULL;
    if (r == NULL) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(s->co, x, 503, err_text(ERR_NO_MEMORY));
        s->counts.refused++;
        return;
    }
    r->entry = e;
    r->body = e->body.data != NULL ? e->body.data : "";
    r->n_body = e->body.len;
    if (e->context.len > 0) buf_append(&r->ask.context, e->context.data, e->context.len);
    r->n_lost = 1; /* with that coordinator */
    r->epoch_base = e->epoch_base + EPOCHS_EACH;
    if (r->epoch_base < EPOCHS_EACH * (age_ms / 1000 + 1)) /* others may have gone on with it */
        r->epoch_base = (unsigned)(EPOCHS_EACH * (age_ms / 1000 + 1));
    e->epoch_base = r->epoch_base;
    r->arrival_ms = e->opened_ms;
    r->arrival_us -= age_ms * 1000;
    r->transcript_broken = e->broken;
    if (e->n_events == 0 && transcript_has_ended(&e->transcript))
        transcript_free(&e->transcript); /* its end was lost: all of it is made again */
    journal_take(s->co->journal, e, r, &r->transcript);
    relay_log_adopt(r);
    r->n_tokens = r->transcript.n_ids;
    if (r->transcript.n_ids > 0) r->first_token_us = r->last_piece_us = clock_us();
    r->out.begun = e->n_events > 0;
    log_info("relay", "req=%s event=goes_on events=%llu had=%llu tokens=%u", r->id_text,
             (unsigned long long)e->n_events, (unsigned long long)n_had, r->transcript.n_ids);
    relay_prefix_open(r, &look);
    relay_note_arrival(r);
    if (r->out.begun) {
        r->state = RELAY_RECOVERING;
        s->n_recovering++;
    }
    relay_enqueue(r);
    if (r->out.begun && r->transcript.n_parts == 0) { /* it would begin again */
        relay_fail(r, CAUSE_OVER_LIMIT, "Too many answers are under way (pd.transcripts_mib)");
        return;
    }
    attach(r, x, n_had, rest);
    relay_schedule(s);
}

/* Whether a client may have that many events, which are more than there are: of a coordinator that
 * died before it told them. They come again, in the same order where there is one choice. */
static bool may_be_ahead(const struct journal_entry *e, uint64_t n_had) {
    if (e->done || n_had - e->n_events > AHEAD_MAX) return false;
    if (e->relay != NULL) return n_had <= e->relay->skip_to;
    return e->transcript.n_parts * e->transcript.n_choices == 1;
}

/* Answers x behind the first n_had events, or says why not. */
static void come_back(struct relay_set *s, struct http_x *x, const struct api_path *path,
                      const char *model, struct journal_entry *e, uint64_t n_had) {
    struct journal_span rest = {"", 0};
    const bool ahead = n_had > e->n_events, runs = e->relay != NULL;
    if (ahead && !may_be_ahead(e, n_had))
        not_kept(s->co, x, "this stream has no such event");
    else if (!ahead && !journal_answer_from(e, n_had, &rest))
        not_kept(s->co, x, "what is behind this event is not kept any more");
    else if (e->done)
        answer_again(s, x, path, e, rest);
    else if (runs)
        attach(e->relay, x, n_had, rest);
    else if (!can_go_on(e))
        not_kept(s->co, x, "this stream was lost with its coordinator");
    else
        adopt(s, x, path, model, e, n_had, rest);
}

/* "17:4", "resp_17:4": the client has five events of request 17. */
static bool read_last(const char *text, uint64_t *id, uint64_t *n_had) {
    if (strncmp(text, ID_PREFIX, sizeof(ID_PREFIX) - 1) == 0) text += sizeof(ID_PREFIX) - 1;
    const size_t n_id = strspn(text, "0123456789");
    if (n_id < 1 || n_id > 19 || text[n_id] != ':') return false;
    const char *number = text + n_id + 1;
    const size_t n = strspn(number, "0123456789");
    if (n < 1 || n > 10 || number[n] != '\0') return false;
    *id = strtoull(text, NULL, 10);
    *n_had = strtoull(number, NULL, 10) + 1;
    return true;
}

/* The body of the first try again, or, where the id says it all, none. */
static bool is_same_body(const struct journal_entry *e, struct http_x *x, bool or_none) {
    uint8_t digest[JOURNAL_DIGEST_BYTES];
    size_t n;
    const char *body = http_x_body(x, &n);
    if (n == 0 && or_none) return true;
    journal_digest(digest, body, n);
    return memcmp(digest, e->digest, sizeof(digest)) == 0;
}

static void by_event(struct relay_set *s, struct http_x *x, const struct api_path *path,
                     const char *model, const char *last) {
    char url_path[API_PATH_BYTES];
    uint64_t id, n_had;
    struct journal_entry *e = NULL;
    api_path_format(url_path, sizeof(url_path), path, model);
    if (s->co->journal == NULL) {
        not_kept(s->co, x, "pd.replicate_requests is false");
        return;
    }
    const bool good = read_last(last, &id, &n_had);
    if (good) e = journal_find(s->co->journal, http_x_tenant(x), id);
    if (!good)
        not_kept(s->co, x, "it is REQUEST:NUMBER");
    else if (e == NULL || !e->stream || strcmp(e->path, url_path) != 0)
        not_kept(s->co, x, "there is no such stream");
    else if (!is_same_body(e, x, true))
        refuse(s->co, x, 422,
               "The body must be the one that this stream was asked for with, or empty");
    else
        come_back(s, x, path, model, e, n_had);
}

/* False: it is the first with this key. */
static bool by_key(struct relay_set *s, struct http_x *x, const struct api_path *path,
                   const char *model) {
    char url_path[API_PATH_BYTES], key[JOURNAL_KEY_BYTES_MAX + 1], text[160];
    api_path_format(url_path, sizeof(url_path), path, model);
    if (!read_key(x, key)) {
        snprintf(text, sizeof(text),
                 KEY_HEADER " must have from 1 to %d visible ASCII characters, got \"%.40s\"",
                 JOURNAL_KEY_BYTES_MAX, http_x_header(x, KEY_HEADER));
        refuse(s->co, x, 400, text);
        return true;
    }
    struct journal_entry *e = journal_find_key(s->co->journal, http_x_tenant(x), url_path, key);
    if (e == NULL) return false;
    if (!is_same_body(e, x, false)) {
        refuse(s->co, x, 422, KEY_HEADER " was used for a request with another body");
    } else if (e->relay != NULL &&
               (e->first_event > 0 || (!e->stream && e->relay->out.x != NULL))) {
        refuse(s->co, x, 409, "The first request with this " KEY_HEADER " is still running");
    } else if (e->first_event > 0 || (!e->done && e->relay == NULL && !can_go_on(e))) {
        journal_drop(s->co->journal, e); /* nobody can have it from its beginning any more */
        return false;
    } else {
        if (e->done) http_x_set_header(x, "idempotent-replayed", "true");
        come_back(s, x, path, model, e, 0);
    }
    return true;
}

bool relay_come_back(struct relay_set *s, struct http_x *x, const struct api_path *path,
                     const char *model) {
    const struct coordinator *co = s->co;
    const char *last = http_x_header(x, LAST_HEADER);
    if (path->frames == API_FRAMES_GRPC || co->stopping || co->stands_by) return false;
    if (last != NULL && last[0] != '\0') {
        by_event(s, x, path, model, last);
        return true;
    }
    if (co->journal == NULL || path->frames == API_FRAMES_TENSORS ||
        http_x_header(x, KEY_HEADER) == NULL)
        return false;
    return by_key(s, x, path, model);
}
