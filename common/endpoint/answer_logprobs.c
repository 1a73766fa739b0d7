/* answer_logprobs: the log-probability objects of chat (inference-api 8.5) and completions (9.2).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/answer.h"

/* A token's text as a JSON string, or its id where the request wants that. */
static void put_token_name(struct buf *out, const struct answer *a, int32_t id,
                           struct detok_cut cut) {
    if (a->req->answer.tokens_as_ids)
        buf_printf(out, "\"token_id:%d\"", (int)id);
    else
        put_token_text(out, a, id, cut);
}

/* ---- chat */

static void put_bytes(struct buf *out, const struct answer *a, int32_t id, struct detok_cut cut) {
    const char *p = "";
    size_t n = token_text(a, id, cut, &p);
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(out, ',');
        put_u64(out, (unsigned char)p[i]);
    }
    buf_putc(out, ']');
}

/* {"token":..,"logprob":..,"bytes":[..] without the closing brace. */
static void put_chat_token(struct buf *out, const struct answer *a, int32_t id, float logprob,
                           struct detok_cut cut) {
    buf_puts(out, "{\"token\":");
    put_token_name(out, a, id, cut);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, logprob);
    buf_puts(out, ",\"bytes\":");
    put_bytes(out, a, id, cut);
}

void put_chat_token_logprob(struct buf *out, const struct choice *c, size_t i) {
    const struct token_rec *rec = &c->recs[i];
    put_chat_token(out, c->a, rec->id, rec->logprob, rec->cut);
    buf_puts(out, ",\"top_logprobs\":[");
    for (size_t t = 0; t < rec->n_top; t++) {
        const struct top_logprob *top = &c->tops[rec->top_at + t];
        if (t > 0) buf_putc(out, ',');
        put_chat_token(out, c->a, top->id, top->logprob, rec->cut);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

void put_logprob_items(struct buf *out, const struct choice *c, size_t from, size_t to) {
    buf_putc(out, '[');
    for (size_t i = from; i < to; i++) {
        if (i > from) buf_putc(out, ',');
        put_chat_token_logprob(out, c, i);
    }
    buf_putc(out, ']');
}

void put_chat_logprobs(struct buf *out, const struct choice *c, size_t from, size_t to) {
    if (!c->req->answer.show_logprobs) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{\"content\":");
    put_logprob_items(out, c, from, to);
    buf_putc(out, '}');
}

/* ---- completions: four arrays side by side */

/* Where a prompt token stands. */
struct place {
    size_t chars; /* before it */
    struct detok_cut cut;
};

/* The places of the prompt's tokens; the detokeniser says what text a token really made. NULL: no
 * memory. */
static struct place *prompt_places(struct choice *c) {
    const struct infer_req *req = c->req;
    struct buf *piece = &c->a->scratch;
    struct detok *d = NULL;
    struct place *at = calloc(req->n_prompt > 0 ? req->n_prompt : 1, sizeof(*at));
    size_t chars = 0;
    if (at == NULL || detok_create(&d, answer_tokenizer(c->a), true) != ERR_OK) {
        free(at);
        return NULL;
    }
    for (size_t i = 0; i < req->n_prompt; i++) {
        at[i] = (struct place){.chars = chars, .cut = detok_cut(d)};
        buf_clear(piece);
        detok_feed(d, req->ids[i], piece);
        if (piece->len > 0) chars += utf8_chars(piece->data, piece->len);
    }
    detok_destroy(&d);
    return at;
}

static float prompt_logprob(const struct choice *c, size_t i) {
    return c->part->prompt != NULL && i > 0 ? c->part->prompt[i].logprob : NAN;
}

/* The members of one object so far: where their names lie in the output. */
struct members {
    size_t n;
    size_t at[TOP_LOGPROBS_MAX + 1], len[TOP_LOGPROBS_MAX + 1];
};

/* "token":logprob. Two tokens can read the same (halves of characters do), the members of an object
 * cannot: the first stays. */
static void put_member(struct buf *out, const struct answer *a, struct members *m, int32_t id,
                       float logprob, struct detok_cut cut) {
    size_t was = out->len;
    if (m->n > 0) buf_putc(out, ',');
    size_t at = out->len;
    put_token_name(out, a, id, cut);
    if (out->failed) return;
    size_t len = out->len - at;
    for (size_t i = 0; i < m->n; i++) {
        if (m->len[i] != len || memcmp(out->data + m->at[i], out->data + at, len) != 0) continue;
        out->len = was;
        out->data[was] = '\0';
        return;
    }
    m->at[m->n] = at;
    m->len[m->n++] = len;
    buf_putc(out, ':');
    put_logprob(out, logprob);
}

/* The alternatives, and the chosen token when it is none of them. */
static void put_tops(struct buf *out, const struct answer *a, const struct top_logprob *top,
                     size_t n_top, int32_t id, float logprob, struct detok_cut cut) {
    struct members m = {.n = 0};
    buf_putc(out, '{');
    for (size_t i = 0; i < n_top; i++) put_member(out, a, &m, top[i].id, top[i].logprob, cut);
    put_member(out, a, &m, id, logprob, cut);
    buf_putc(out, '}');
}

static void put_prompt_tops(struct buf *out, const struct choice *c, size_t i,
                            struct detok_cut cut) {
    const struct prompt_rec *rec = c->part->prompt != NULL ? &c->part->prompt[i] : NULL;
    if (i == 0)
        buf_puts(out, "null");
    else
        put_tops(out, c->a, rec != NULL ? rec->top : NULL, rec != NULL ? rec->n_top : 0,
                 c->req->ids[i], prompt_logprob(c, i), cut);
}

/* Prints the separator between items. */
static void next(struct buf *out, bool *first) {
    if (!*first) buf_putc(out, ',');
    *first = false;
}

void put_completion_logprobs(struct buf *out, struct choice *c, size_t from, size_t to,
                             bool with_prompt) {
    const struct infer_req *req = c->req;
    const struct answer *a = c->a;
    size_t n_prompt = with_prompt ? req->n_prompt : 0;
    size_t echoed = req->answer.echo ? utf8_chars(req->answer.text, req->answer.text_len) : 0;
    bool first;
    if (!req->answer.show_logprobs) {
        buf_puts(out, "null");
        return;
    }
    struct place *places = n_prompt > 0 ? prompt_places(c) : NULL;
    if (n_prompt > 0 && places == NULL) {
        c->a->no_memory = true;
        n_prompt = 0;
    }

    buf_puts(out, "{\"text_offset\":[");
    first = true;
    for (size_t i = 0; i < n_prompt; i++) next(out, &first), put_u64(out, places[i].chars);
    for (size_t i = from; i < to; i++)
        next(out, &first), put_u64(out, echoed + c->recs[i].chars_at);

    buf_puts(out, "],\"token_logprobs\":[");
    first = true;
    for (size_t i = 0; i < n_prompt; i++) next(out, &first), put_logprob(out, prompt_logprob(c, i));
    for (size_t i = from; i < to; i++) next(out, &first), put_logprob(out, c->recs[i].logprob);

    buf_puts(out, "],\"tokens\":[");
    first = true;
    for (size_t i = 0; i < n_prompt; i++)
        next(out, &first), put_token_name(out, a, req->ids[i], places[i].cut);
    for (size_t i = from; i < to; i++)
        next(out, &first), put_token_name(out, a, c->recs[i].id, c->recs[i].cut);

    buf_puts(out, "],\"top_logprobs\":[");
    first = true;
    for (size_t i = 0; i < n_prompt; i++)
        next(out, &first), put_prompt_tops(out, c, i, places[i].cut);
    for (size_t i = from; i < to; i++) {
        const struct token_rec *rec = &c->recs[i];
        next(out, &first);
        const struct top_logprob *tops = rec->n_top > 0 ? c->tops + rec->top_at : NULL;
        put_tops(out, a, tops, rec->n_top, rec->id, rec->logprob, rec->cut);
    }
    buf_puts(out, "]}");
    free(places);
}

/* ---- prompt_logprobs, as vLLM writes them: for each prompt token what could have stood there */

static void put_prompt_token(struct buf *out, const struct answer *a, int32_t id, float logprob,
                             size_t rank) {
    buf_putc(out, '"');
    put_i64(out, id);
    buf_puts(out, "\":{\"logprob\":");
    put_logprob(out, logprob);
    buf_puts(out, ",\"rank\":");
    if (rank > 0)
        put_u64(out, rank);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"decoded_token\":");
    put_token_text(out, a, id, (struct detok_cut){0});
    buf_putc(out, '}');
}

/* The token that stands there first, then the other alternatives. */
static void put_prompt_position(struct buf *out, const struct choice *c, size_t i) {
    const struct prompt_rec *rec = &c->part->prompt[i];
    int32_t id = c->req->ids[i];
    size_t rank = 0;
    for (size_t t = 0; t < rec->n_top && rank == 0; t++)
        if (rec->top[t].id == id) rank = t + 1;
    buf_putc(out, '{');
    const size_t told = rec->rank > 0 ? (size_t)rec->rank : 0; /* of one that is no alternative */
    put_prompt_token(out, c->a, id, rec->logprob, rank > 0 ? rank : told);
    for (size_t t = 0; t < rec->n_top; t++) {
        if (t + 1 == rank) continue;
        buf_putc(out, ',');
        put_prompt_token(out, c->a, rec->top[t].id, rec->top[t].logprob, t + 1);
    }
    buf_putc(out, '}');
}

void put_prompt_logprobs(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"prompt_logprobs\":[");
    for (size_t i = 0; i < c->req->n_prompt; i++) {
        if (i > 0) buf_putc(out, ',');
        if (i == 0 || c->part->prompt == NULL || isnan(c->part->prompt[i].logprob))
            buf_puts(out, "null");
        else
            put_prompt_position(out, c, i);
    }
    buf_putc(out, ']');
}

/* ---- return_token_ids */

void put_prompt_ids(struct buf *out, const struct choice *c) {
    if (!c->req->answer.token_ids) return;
    buf_puts(out, ",\"prompt_token_ids\":[");
    for (size_t i = 0; i < c->req->n_prompt; i++) {
        if (i > 0) buf_putc(out, ',');
        put_i64(out, c->req->ids[i]);
    }
    buf_putc(out, ']');
}

void put_choice_ids(struct buf *out, const struct choice *c, size_t from, size_t to) {
    if (!c->req->answer.token_ids) return;
    buf_puts(out, ",\"token_ids\":");
    put_id_list(out, c, from, to);
}
