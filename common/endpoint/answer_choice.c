/* answer_choice: one sequence, from tokens to text: detokeniser, stop strings, what is held back,
 * records of the tokens. Everything here is a function of the request and the tokens fed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/answer.h"

/* ---- text */

/* Stop strings in text[at ..). Of an answer in channels they count in the text of a message that
 * clients see. over: no text follows. */
static void find_stops(struct choice *c, size_t at, bool over, struct stop_match *m) {
    struct harmony_span s;
    const char *text = c->text.data != NULL ? c->text.data : "";
    if (c->stops == NULL) return;
    if (!c->req->answer.channels) {
        stop_set_feed(c->stops, text + at, c->text.len - at, at, m);
        return;
    }
    while (harmony_look_next(&c->look, text, c->text.len, over, &s)) {
        if (s.fresh) stop_set_reset(c->stops);
        stop_set_feed(c->stops, text + s.from, s.to - s.from, s.from, m);
    }
}

/* Bytes at the end that may belong to one. */
static size_t held_for_stops(const struct choice *c) {
    const size_t held = c->stops != NULL ? stop_set_held(c->stops) : 0;
    if (held == 0 || !c->req->answer.channels) return held;
    return c->look.state == LOOK_TEXT && !c->look.fresh ? c->text.len - c->look.from + held : 0;
}

/* Appends model text, without the control characters where clients never see them (inference-api
 * 2.4). Stop strings are looked for in what clients see. */
static void take_text(struct choice *c, const char *s, size_t n, struct stop_match *m) {
    size_t at = c->text.len;
    bool keep = answer_keeps_controls(c->a);
    buf_reserve(&c->text, n);
    if (keep) buf_append(&c->text, s, n);
    for (size_t i = 0, start = 0; i <= n && !keep; i++) {
        unsigned char ch = i < n ? (unsigned char)s[i] : 0;
        if (ch >= 0x20 ? ch != 0x7F : ch == '\n' || ch == '\r' || ch == '\t') continue;
        buf_append(&c->text, s + start, i - start);
        start = i + 1;
    }
    size_t added = c->text.len - at;
    if (added == 0) return;
    c->chars += utf8_chars(c->text.data + at, added);
    find_stops(c, at, false, m);
}

static void take_fresh(struct choice *c, enum err e, struct stop_match *m) {
    if (e != ERR_OK || c->fresh.failed) c->a->no_memory = true;
    take_text(c, c->fresh.data != NULL ? c->fresh.data : "", c->fresh.len, m);
    buf_clear(&c->fresh);
}

/* A token that ended the request shows its text only when asked: EOS with skip_special_tokens
 * false, a stop token with include_stop_str_in_output. Special tokens that clients do not see may
 * still tell where a call or the thinking begins. */
static bool text_shown(const struct choice *c, int32_t id, enum finish f) {
    if (f == FINISH_EOS) return !c->req->answer.skip_special;
    if (f == FINISH_STOP_TOKEN) return c->req->answer.include_stop;
    return c->chat == NULL || !c->req->answer.skip_special || !answer_is_special(c->a, id) ||
           chat_text_reads(c->chat, id);
}

/* A match before min_tokens is no end. */
static void cut_at(struct choice *c, const struct stop_match *m) {
    if (m->idx < 0 || c->n_recs < (size_t)c->req->sampling.new_tokens_min) return;
    size_t len = c->req->answer.include_stop ? m->end : m->start;
    c->text.len = len;
    c->text.data[len] = '\0';
    c->chars = utf8_chars(c->text.data, len);
    c->finish = FINISH_STOP_STRING;
    c->stop_idx = m->idx;
}

static void take_token_text(struct choice *c, int32_t id, enum finish f) {
    struct stop_match m = {.idx = -1};
    if (c->detok == NULL) return;
    if (text_shown(c, id, f)) take_fresh(c, detok_feed(c->detok, id, &c->fresh), &m);
    if (f != FINISH_NONE) take_fresh(c, detok_flush(c->detok, &c->fresh), &m);
    if (f != FINISH_NONE) find_stops(c, c->text.len, true, &m);
    cut_at(c, &m);
    size_t held = c->finish == FINISH_NONE ? held_for_stops(c) : 0;
    c->ready = c->text.len - held;
}

/* What became ready goes where it belongs. */
static void sort_text(struct choice *c) {
    if (c->chat == NULL) return;
    chat_text_feed(c->chat, c->text.data != NULL ? c->text.data : "", c->ready);
    if (c->finish != FINISH_NONE) chat_text_finish(c->chat);
    if (chat_text_failed(c->chat)) c->a->no_memory = true;
}

/* ---- tokens */

/* Room for n more items in a growing array. */
static bool grow(struct choice *c, void **items, size_t *cap, size_t n, size_t more,
                 size_t item_bytes) {
    if (n + more <= *cap) return true;
    size_t want = *cap < 32 ? 32 : *cap * 2;
    if (want < n + more) want = n + more;
    void *p = realloc(*items, want * item_bytes);
    if (p == NULL) {
        c->a->no_memory = true;
        return false;
    }
    *items = p;
    *cap = want;
    return true;
}

static void take_record(struct choice *c, const struct token_event *ev) {
    const struct sampling *s = &c->req->sampling;
    size_t n_top =
        ev->n_top > 0 && ev->n_top <= TOP_LOGPROBS_MAX && s->logprobs ? (size_t)ev->n_top : 0;
    if (n_top > (size_t)s->top_logprobs) n_top = (size_t)s->top_logprobs;
    if (!grow(c, (void **)&c->recs, &c->recs_cap, c->n_recs, 1, sizeof(*c->recs)) ||
        !grow(c, (void **)&c->tops, &c->tops_cap, c->n_tops, n_top, sizeof(*c->tops)))
        return;
    c->recs[c->n_recs++] = (struct token_rec){
        .id = ev->id,
        .logprob = s->logprobs ? ev->logprob : NAN,
        .rank = ev->rank,
        .batch_size = ev->batch_size,
        .queue_us = ev->queue_wait_us,
        .step_us = ev->step_us,
        .n_top = (uint32_t)n_top,
        .top_at = c->n_tops,
        .chars_at = c->chars,
    };
    if (c->detok != NULL && !c->detok_begun) {
        struct detok_cut cut = detok_cut(c->detok);
        c->recs[c->n_recs - 1].cut = cut;
        c->detok_begun = cut.n == 0;
    }
    if (s->logprobs) c->logprob_sum += (double)ev->logprob;
    if (n_top > 0) memcpy(c->tops + c->n_tops, ev->top, n_top * sizeof(*c->tops));
    c->n_tops += n_top;
}

/* The first token's times are P's; at D they came with the request. */
uint64_t rec_step_us(const struct choice *c, size_t i) {
    return i == 0 && c->recs[i].step_us == 0 ? c->req->measured.prefill_us : c->recs[i].step_us;
}

uint64_t rec_queue_us(const struct choice *c, size_t i) {
    return i == 0 && c->recs[i].queue_us == 0 ? c->req->measured.queue_wait_us
                                              : c->recs[i].queue_us;
}

uint32_t rec_batch(const struct choice *c, size_t i) {
    return i == 0 && c->recs[i].batch_size == 0 ? c->req->measured.prefill_batch
                                                : c->recs[i].batch_size;
}

void choice_token(struct choice *c, const struct token_event *ev) {
    enum finish f = ev->finish;
    if (c->req->answer.prompt_only) { /* it was drawn so that the prompt is computed */
        c->finish = FINISH_LENGTH;
        c->alone = (struct token_rec){.queue_us = ev->queue_wait_us, .step_us = ev->step_us};
        return;
    }
    if (f == FINISH_NONE && c->n_recs + 1 >= (size_t)c->req->sampling.new_tokens_max)
        f = FINISH_LENGTH;
    take_record(c, ev);
    take_token_text(c, ev->id, f);
    if (c->finish == FINISH_NONE) c->finish = f;
    if (c->finish != FINISH_NONE) c->ready = c->text.len;
    sort_text(c);
    if (c->a->ops->blocks && c->req->answer.show_logprobs && c->n_recs > 0) {
        const size_t n = choice_n_blocks(c);
        c->recs[c->n_recs - 1].block = n > 0 ? (uint32_t)n : 1;
    }
}

void choice_end(struct choice *c, enum finish f) {
    struct stop_match m = {.idx = -1};
    c->finish = f;
    if (c->detok != NULL) take_fresh(c, detok_flush(c->detok, &c->fresh), &m);
    find_stops(c, c->text.len, true, &m);
    cut_at(c, &m);
    c->ready = c->text.len;
    sort_text(c);
}

/* ---- life */

static enum err open_chat(struct choice *c) {
    const struct endpoint_conf *conf = answer_conf(c->a);
    const struct chat_text_opts opts = {
        .null_content = conf->error_style == ERROR_STYLE_OPENAI,
        .full_text = conf->full_text,
        .in_order = c->a->ops->blocks,
        .whole_calls = c->a->ops->whole_calls,
    };
    if (!chat_text_needed(c->req)) return ERR_OK;
    c->chat =
        chat_text_create(c->req, (size_t)(c - c->part->choices), answer_tokenizer(c->a), &opts);
    return c->chat != NULL ? ERR_OK : ERR_NO_MEMORY;
}

/* An answer is read as what follows its prompt: a text of its own would lose its first blank. The
 * choices of a prompt share the way there. */
static enum err open_detok(struct choice *c) {
    const struct infer_req *req = c->req;
    if (c > c->part->choices) return detok_copy(&c->detok, c->part->choices->detok);
    /* With a chat to sort, text_shown() leaves special tokens out. */
    bool skip = req->answer.skip_special && c->chat == NULL;
    enum err e = detok_create(&c->detok, answer_tokenizer(c->a), skip);
    if (e == ERR_OK) e = detok_prompt(c->detok, req->ids, req->n_prompt, req->answer.skip_special);
    return e;
}

enum err choice_open(struct choice *c) {
    if (c->a->ops->tokens_only) return ERR_OK;
    enum err e = open_chat(c);
    if (e == ERR_OK) e = open_detok(c);
    harmony_look_init(&c->look, chat_text_opened(c->req), c->req->answer.drop_reasoning);
    if (e == ERR_OK && c->req->n_stop > 0 &&
        (c->stops = stop_set_create(c->req->stop, c->req->n_stop)) == NULL)
        e = ERR_NO_MEMORY;
    return e;
}

void choice_close(struct choice *c) {
    detok_destroy(&c->detok);
    stop_set_destroy(&c->stops);
    chat_text_destroy(&c->chat);
    buf_free(&c->text);
    buf_free(&c->fresh);
    free(c->recs);
    free(c->tops);
}
