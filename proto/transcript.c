/* transcript: growing lists of ids, and their packed form:
 *   u16 version, i64 created_unix_s, u64 seed, u32 n_parts, u32 n_choices, u32 cached_tokens[],
 *   then for each choice u8 finish, u32 n_ids, i32 ids[]. */
#include "proto/transcript.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, IDS_FIRST = 16 };

static size_t count(const struct transcript *t) {
    return (size_t)t->n_parts * t->n_choices;
}

enum err transcript_open(struct transcript *t, uint32_t n_parts, uint32_t n_choices) {
    if (n_parts < 1 || n_parts > PARTS_MAX || n_choices < 1 || n_choices > CHOICES_MAX ||
        n_parts * n_choices > SEQUENCES_MAX)
        return ERR_INVALID;
    t->cached_tokens = calloc(n_parts, sizeof(*t->cached_tokens));
    t->choices = calloc((size_t)n_parts * n_choices, sizeof(*t->choices));
    if (t->cached_tokens == NULL || t->choices == NULL) {
        transcript_free(t);
        return ERR_NO_MEMORY;
    }
    t->n_parts = n_parts;
    t->n_choices = n_choices;
    return ERR_OK;
}

void transcript_free(struct transcript *t) {
    for (size_t i = 0; i < count(t); i++) free(t->choices[i].ids);
    free(t->choices);
    free(t->cached_tokens);
    *t = TRANSCRIPT_INIT;
}

static bool grow(struct transcript_choice *c, uint32_t cap) {
    int32_t *ids = realloc(c->ids, cap * sizeof(*ids));
    if (ids == NULL) return false;
    c->ids = ids;
    c->cap = cap;
    return true;
}

enum err transcript_add(struct transcript *t, const struct emitted *e) {
    struct transcript_choice *c = e->choice < count(t) ? &t->choices[e->choice] : NULL;
    if (c == NULL || c->finish != FINISH_NONE) return ERR_INVALID;
    if (t->n_ids >= TRANSCRIPT_IDS_MAX) return ERR_TOO_LARGE;
    if (c->n_ids == c->cap && !grow(c, c->cap > 0 ? c->cap * 2 : IDS_FIRST)) return ERR_NO_MEMORY;
    c->ids[c->n_ids++] = e->id;
    c->finish = (enum finish)e->finish;
    t->n_ids++;
    return ERR_OK;
}

size_t transcript_memory(const struct transcript *t) {
    size_t n = t->n_parts * sizeof(*t->cached_tokens) + count(t) * sizeof(*t->choices);
    for (size_t i = 0; i < count(t); i++) n += t->choices[i].cap * sizeof(int32_t);
    return n;
}

bool transcript_has_ended(const struct transcript *t) {
    for (size_t i = 0; i < count(t); i++)
        if (t->choices[i].finish == FINISH_NONE) return false;
    return count(t) > 0;
}

static enum err choice_copy(struct transcript_choice *to, const struct transcript_choice *from) {
    if (from->n_ids > 0 && !grow(to, from->n_ids)) return ERR_NO_MEMORY;
    if (from->n_ids > 0) memcpy(to->ids, from->ids, from->n_ids * sizeof(*to->ids));
    to->n_ids = from->n_ids;
    to->finish = from->finish;
    return ERR_OK;
}

enum err transcript_part(struct transcript *out, const struct transcript *t, uint32_t part) {
    *out = TRANSCRIPT_INIT;
    if (part >= t->n_parts) return ERR_INVALID;
    enum err e = transcript_open(out, 1, t->n_choices);
    for (uint32_t i = 0; i < t->n_choices && e == ERR_OK; i++) {
        e = choice_copy(&out->choices[i], &t->choices[(size_t)part * t->n_choices + i]);
        out->n_ids += out->choices[i].n_ids;
    }
    if (e != ERR_OK) {
        transcript_free(out);
        return e;
    }
    out->created_unix_s = t->created_unix_s;
    out->seed = t->seed;
    out->cached_tokens[0] = t->cached_tokens[part];
    return ERR_OK;
}

/* ---- bytes */

void transcript_pack(struct wr *w, const struct transcript *t) {
    wr_u16(w, VERSION);
    wr_i64(w, t->created_unix_s);
    wr_u64(w, t->seed);
    wr_u32(w, t->n_parts);
    wr_u32(w, t->n_choices);
    for (uint32_t i = 0; i < t->n_parts; i++) wr_u32(w, t->cached_tokens[i]);
    for (size_t i = 0; i < count(t); i++) {
        const struct transcript_choice *c = &t->choices[i];
        wr_u8(w, (uint8_t)c->finish);
        wr_u32(w, c->n_ids);
        for (uint32_t k = 0; k < c->n_ids; k++) wr_i32(w, c->ids[k]);
    }
}

static enum err ends_early(struct errbuf *eb, const char *member) {
    return err_set(eb, ERR_BAD_FRAME, "replay record: it ends before %s", member);
}

static enum err head_unpack(struct rd *r, struct transcript *t, struct errbuf *eb) {
    uint16_t version;
    uint32_t n_parts, n_choices;
    int64_t created;
    uint64_t seed;
    if (!rd_u16(r, &version)) return ends_early(eb, "version");
    if (version != VERSION)
        return err_set(eb, ERR_BAD_FRAME, "replay record: version must be %d, got %u", VERSION,
                       version);
    if (!rd_i64(r, &created) || !rd_u64(r, &seed) || !rd_u32(r, &n_parts) || !rd_u32(r, &n_choices))
        return ends_early(eb, "its choices");
    if (created < 0)
        return err_set(eb, ERR_BAD_FRAME,
                       "replay record: created must not be negative, got %" PRId64, created);
    if (n_parts < 1 || n_parts > PARTS_MAX)
        return err_set(eb, ERR_BAD_FRAME, "replay record: prompts must be from 1 to %d, got %u",
                       PARTS_MAX, n_parts);
    if (n_choices < 1 || n_choices > CHOICES_MAX || n_parts * n_choices > SEQUENCES_MAX)
        return err_set(eb, ERR_BAD_FRAME,
                       "replay record: choices must be from 1 to %d, and of all prompts at most "
                       "%d, got %u of each of %u",
                       CHOICES_MAX, SEQUENCES_MAX, n_choices, n_parts);
    enum err e = transcript_open(t, n_parts, n_choices);
    if (e != ERR_OK) return err_set(eb, e, "%s", err_text(e));
    t->created_unix_s = created;
    t->seed = seed;
    for (uint32_t i = 0; i < n_parts; i++) {
        if (!rd_u32(r, &t->cached_tokens[i])) return ends_early(eb, "cached tokens");
        if (t->cached_tokens[i] > PROMPT_TOKENS_MAX)
            return err_set(eb, ERR_BAD_FRAME,
                           "replay record: cached tokens must be at most %d, got %u",
                           PROMPT_TOKENS_MAX, t->cached_tokens[i]);
    }
    return ERR_OK;
}

static enum err choice_unpack(struct rd *r, struct transcript *t, size_t i, struct errbuf *eb) {
    struct transcript_choice *c = &t->choices[i];
    uint8_t finish;
    uint32_t n;
    if (!rd_u8(r, &finish) || !rd_u32(r, &n)) return ends_early(eb, "a choice");
    if (finish > FINISH_ERROR || (finish != FINISH_NONE && n == 0))
        return err_set(eb, ERR_BAD_FRAME,
                       "replay record: finish of choice %zu must be from 0 to %d, and 0 without "
                       "tokens, got %u with %u tokens",
                       i, FINISH_ERROR, finish, n);
    if (n > TRANSCRIPT_IDS_MAX - t->n_ids)
        return err_set(eb, ERR_BAD_FRAME, "replay record: tokens must be at most %d, got %" PRIu64,
                       TRANSCRIPT_IDS_MAX, (uint64_t)t->n_ids + n);
    if (n > rd_left(r) / sizeof(int32_t)) return ends_early(eb, "the tokens of a choice");
    if (n > 0 && !grow(c, n)) return err_set(eb, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
    for (; c->n_ids < n; c->n_ids++) {
        (void)rd_i32(r, &c->ids[c->n_ids]);
        if (c->ids[c->n_ids] < 0)
            return err_set(eb, ERR_BAD_FRAME,
                           "replay record: token %u of choice %zu must not be negative, got %d",
                           c->n_ids, i, (int)c->ids[c->n_ids]);
    }
    c->finish = (enum finish)finish;
    t->n_ids += n;
    return ERR_OK;
}

enum err transcript_unpack(struct rd *r, struct transcript *t, struct errbuf *eb) {
    *t = TRANSCRIPT_INIT;
    enum err e = head_unpack(r, t, eb);
    for (size_t i = 0; i < count(t) && e == ERR_OK; i++) e = choice_unpack(r, t, i, eb);
    if (e != ERR_OK) transcript_free(t);
    return e;
}
