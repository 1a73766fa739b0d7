/* journal_msg: members in their order, and what each may be. */
#include "coordinator/journal_msg.h"

#include <stdlib.h>
#include <string.h>
#include "proto/wire.h"

enum { IS_STREAM = 1, IS_BROKEN = 2, IS_DONE = 4, HAS_TRANSCRIPT = 8, FLAGS = 15 };
enum { TOKEN_BYTES = 7 };

/* ---- writing */

static void put_span(struct wr *w, const struct journal_span *s) {
    wr_str(w, s->p, s->n);
}

static void pack_entry(struct wr *w, const struct journal_msg *m) {
    const bool known = m->transcript.n_parts > 0;
    wr_u8(w, (uint8_t)((m->stream ? IS_STREAM : 0) | (m->broken ? IS_BROKEN : 0) |
                       (m->done ? IS_DONE : 0) | (known ? HAS_TRANSCRIPT : 0)));
    wr_u32(w, m->epoch_base);
    wr_u32(w, m->age_ms);
    wr_u64(w, m->first_event);
    wr_u64(w, m->n_events);
    wr_cstr(w, m->tenant);
    wr_cstr(w, m->path);
    wr_cstr(w, m->key);
    wr_bytes(w, m->digest, sizeof(m->digest));
    put_span(w, &m->headers);
    put_span(w, &m->body);
    put_span(w, &m->context);
    put_span(w, &m->answer);
    if (known) transcript_pack(w, &m->transcript);
}

static void pack_piece(struct wr *w, const struct journal_msg *m) {
    wr_u64(w, m->n_events);
    put_span(w, &m->answer);
    wr_u32(w, (uint32_t)m->n_tokens);
    for (size_t i = 0; i < m->n_tokens; i++) {
        wr_u16(w, m->tokens[i].choice);
        wr_i32(w, m->tokens[i].id);
        wr_u8(w, m->tokens[i].finish);
    }
}

void journal_msg_pack(struct wr *w, const struct journal_msg *m) {
    const size_t at = w->len;
    wr_u32(w, 0);
    wr_u8(w, (uint8_t)m->kind);
    if (m->kind == JOURNAL_HELLO) {
        wr_u16(w, JOURNAL_VERSION);
        wr_u64(w, m->term);
    } else if (m->kind != JOURNAL_SYNCED && m->kind != JOURNAL_BEAT) {
        wr_u64(w, m->id);
    }
    if (m->kind == JOURNAL_ENTRY) pack_entry(w, m);
    if (m->kind == JOURNAL_START) transcript_pack(w, &m->transcript);
    if (m->kind == JOURNAL_PIECE) pack_piece(w, m);
    wr_patch_u32(w, at, (uint32_t)(w->len - at - 4));
}

/* ---- reading */

static bool get_span(struct rd *r, struct journal_span *s, size_t n_max) {
    return rd_str(r, &s->p, &s->n, n_max);
}

static enum err bad(struct errbuf *eb, const char *what) {
    return err_set(eb, ERR_BAD_FRAME, "journal: %s", what);
}

/* Lines of visible ASCII and blanks, each with its end: they become headers again. */
static bool headers_ok(const struct journal_span *s) {
    for (size_t i = 0; i < s->n; i++) {
        const unsigned char c = (unsigned char)s->p[i];
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7F) return false;
        if (c == '\n' && (i == 0 || s->p[i - 1] == '\n')) return false;
    }
    return s->n == 0 || s->p[s->n - 1] == '\n';
}

static bool key_ok(const char *key) {
    for (; *key != '\0'; key++)
        if ((unsigned char)*key <= ' ' || (unsigned char)*key >= 0x7F) return false;
    return true;
}

static enum err unpack_entry(struct rd *r, struct journal_msg *m, struct errbuf *eb) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    uint8_t flags;
    if (!rd_u8(r, &flags) || !rd_u32(r, &m->epoch_base) || !rd_u32(r, &m->age_ms) ||
        !rd_u64(r, &m->first_event) || !rd_u64(r, &m->n_events) ||
        !rd_cstr(r, m->tenant, sizeof(m->tenant)) || !rd_cstr(r, m->path, sizeof(m->path)) ||
        !rd_cstr(r, m->key, sizeof(m->key)) || !rd_copy(r, m->digest, sizeof(m->digest)) ||
        !get_span(r, &m->headers, JOURNAL_HEADERS_BYTES_MAX) || !get_span(r, &m->body, SIZE_MAX) ||
        !get_span(r, &m->context, CONTEXT_BYTES_MAX) || !get_span(r, &m->answer, SIZE_MAX))
        return bad(eb, "an entry ends early, or a member of it is too long");
    if ((flags & ~FLAGS) != 0) return bad(eb, "flags of an entry that are not known");
    m->stream = (flags & IS_STREAM) != 0;
    m->broken = (flags & IS_BROKEN) != 0;
    m->done = (flags & IS_DONE) != 0;
    if (m->age_ms > JOURNAL_AGE_MS_MAX) return bad(eb, "an age over the largest there is");
    if (m->first_event > m->n_events) return bad(eb, "a first event behind the last");
    if (!tenant_ok(m->tenant)) return bad(eb, "a tenant that is none");
    const struct api_path *path = api_path_find("POST", m->path, model);
    if (path == NULL || !api_is_infer(path)) return bad(eb, "a path of no request");
    if (!headers_ok(&m->headers)) return bad(eb, "headers that are none");
    if (!key_ok(m->key)) return bad(eb, "a key that is none");
    return (flags & HAS_TRANSCRIPT) != 0 ? transcript_unpack(r, &m->transcript, eb) : ERR_OK;
}

static enum err unpack_piece(struct rd *r, struct journal_msg *m, struct errbuf *eb) {
    uint32_t n;
    if (!rd_u64(r, &m->n_events) || !get_span(r, &m->answer, SIZE_MAX) || !rd_u32(r, &n))
        return bad(eb, "a piece ends early");
    if (n > rd_left(r) / TOKEN_BYTES) return bad(eb, "a piece ends before its tokens");
    if (n > 0 && (m->own_tokens = malloc(n * sizeof(*m->own_tokens))) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
    m->tokens = m->own_tokens;
    for (; m->n_tokens < n; m->n_tokens++) {
        struct emitted *t = &m->own_tokens[m->n_tokens];
        *t = (struct emitted){0};
        (void)(rd_u16(r, &t->choice) && rd_i32(r, &t->id) && rd_u8(r, &t->finish));
        if (t->id < 0 || t->choice >= SEQUENCES_MAX || t->finish > FINISH_ERROR)
            return bad(eb, "a token out of range");
    }
    return ERR_OK;
}

static enum err unpack(struct rd *r, struct journal_msg *m, struct errbuf *eb) {
    uint16_t version;
    uint8_t kind;
    if (!rd_u8(r, &kind) || kind < JOURNAL_HELLO || kind >= JOURNAL_KINDS)
        return bad(eb, "a kind of frame that is not known");
    m->kind = (enum journal_kind)kind;
    switch (m->kind) {
    case JOURNAL_HELLO:
        if (!rd_u16(r, &version) || !rd_u64(r, &m->term)) return bad(eb, "a hello ends early");
        if (version != JOURNAL_VERSION)
            return err_set(eb, ERR_BAD_FRAME, "journal: version must be %d, got %u",
                           JOURNAL_VERSION, version);
        return ERR_OK;
    case JOURNAL_SYNCED:
    case JOURNAL_BEAT:
    case JOURNAL_KINDS: return ERR_OK;
    default: break;
    }
    if (!rd_u64(r, &m->id) || m->id == 0) return bad(eb, "no id of a request");
    if (m->kind == JOURNAL_ENTRY) return unpack_entry(r, m, eb);
    if (m->kind == JOURNAL_START) return transcript_unpack(r, &m->transcript, eb);
    if (m->kind == JOURNAL_PIECE) return unpack_piece(r, m, eb);
    return ERR_OK;
}

enum err journal_msg_unpack(struct journal_msg *m, const void *p, size_t n, struct errbuf *eb) {
    struct rd r = rd_of(p, n);
    *m = (struct journal_msg){0};
    enum err e = unpack(&r, m, eb);
    if (e == ERR_OK && !rd_done(&r)) e = bad(eb, "bytes behind a frame");
    if (e != ERR_OK) journal_msg_free(m);
    return e;
}

void journal_msg_free(struct journal_msg *m) {
    transcript_free(&m->transcript);
    free(m->own_tokens);
    m->own_tokens = NULL;
    m->tokens = NULL;
    m->n_tokens = 0;
}

size_t journal_frame_bytes(const void *p, size_t n) {
    struct rd r = rd_of(p, n);
    uint32_t len;
    return rd_u32(&r, &len) ? (size_t)len + 4 : 0;
}
