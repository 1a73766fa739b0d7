/* answer_replay: which tokens an answer that goes on elsewhere stands behind: those a client has
 * been sent, of an answer in one piece all that were made.
 *
 * Whatever was written before a replay showed all that its tokens had to say, so behind them
 * nothing is due: that is set, not found by writing it again, because tokens of one step share an
 * event and nobody knows any more which they were. */
#include <math.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

/* ---- what is out */

void choice_written(struct choice *c) {
    struct answer *a = c->a;
    if (c->in_written) return;
    c->in_written = true;
    a->written[a->n_written++] = c;
}

/* Tokens of which the client has something. A chunk that begins a choice comes with its first
 * token, even where that has nothing to say yet. */
static size_t n_out(const struct choice *c) {
    if (c->a->ended || c->a->tells_at_once) return c->n_recs;
    bool role_only = c->recs_sent == 0 && c->begun && c->a->ops->begin != NULL && c->n_recs > 0;
    return role_only ? 1 : c->recs_sent;
}

static void tell(struct choice *c, answer_sent_fn *fn, void *arg) {
    size_t to = n_out(c);
    uint32_t number =
        (uint32_t)(c->req->head.part * c->a->n_choices + (size_t)(c - c->part->choices));
    for (; c->recs_told < to; c->recs_told++) {
        bool last = c->recs_told + 1 == c->n_recs;
        if (fn != NULL) fn(arg, number, c->recs[c->recs_told].id, last ? c->finish : FINISH_NONE);
    }
}

void answer_sent(struct answer *a, answer_sent_fn *fn, void *arg) {
    for (size_t i = 0; i < a->n_written; i++) {
        a->written[i]->in_written = false;
        if (!a->ended) tell(a->written[i], fn, arg);
    }
    a->n_written = 0;
    for (size_t p = 0; p < a->n_parts && a->ended; p++)
        for (size_t i = 0; a->parts[p].req != NULL && i < a->n_choices; i++)
            tell(&a->parts[p].choices[i], fn, arg);
}

/* ---- going on behind it */

bool answer_has_transcript(const struct infer_req *req, const struct endpoint *ep) {
    const struct family *fam = ep_family_of(ep, req->answer.api);
    if (fam == NULL || req->sampling.beam || answer_ranked(fam->answer, req)) return false;
    return req->answer.stream || !req->sampling.logprobs; /* those of lost tokens are lost */
}

static enum err check(const struct answer *a, const struct choice *c, uint32_t number,
                      const struct sent_tokens *sent, struct errbuf *eb) {
    size_t n = sent->n_ids, max = (size_t)c->req->sampling.new_tokens_max;
    enum finish finish = sent->finish;
    if (finish < FINISH_NONE || finish > FINISH_LENGTH)
        return err_set(eb, ERR_INVALID, "the finish of choice %u must be %d to %d, got %d", number,
                       (int)FINISH_NONE, (int)FINISH_LENGTH, (int)finish);
    if (n == 0)
        return err_set(eb, ERR_INVALID, "choice %u ended (finish %d) without a token", number,
                       (int)finish);
    if (!answer_has_transcript(a->req, a->ep))
        return err_set(eb, ERR_INVALID,
                       "choice %u has %zu tokens, but the request goes on behind none", number, n);
    if (finish == FINISH_NONE) max--;
    if (n > max - c->n_recs)
        return err_set(eb, ERR_INVALID, "choice %u has %zu tokens, at most %zu are possible",
                       number, n, max - c->n_recs);
    for (size_t i = 0; i < n; i++)
        if (sent->ids[i] < 0 || sent->ids[i] >= a->ep->model->vocab_size)
            return err_set(eb, ERR_INVALID,
                           "token %zu of choice %u must be an id from 0 to %d, got %d", i, number,
                           a->ep->model->vocab_size - 1, (int)sent->ids[i]);
    return ERR_OK;
}

/* Token i as the engine made it, as far as that is known. */
static struct token_event event_of(const struct sent_tokens *sent, size_t i) {
    struct token_event ev = {.id = sent->ids[i], .logprob = NAN};
    if (i == 0 && sent->first != NULL && sent->first->id == ev.id) ev = *sent->first;
    bool by_engine = i + 1 == sent->n_ids && sent->finish != FINISH_STOP_STRING;
    ev.finish = by_engine ? sent->finish : FINISH_NONE;
    return ev;
}

/* Of a list of blocks: what the token had to say goes nowhere, and what follows knows of it. */
static void say_again(struct choice *c) {
    struct buf discard = BUF_INIT;
    answer_emit(c, false, &discard);
    if (discard.failed) c->a->no_memory = true;
    buf_free(&discard);
}

/* The tokens without their events. */
static enum err take_tokens(struct choice *c, uint32_t number, const struct sent_tokens *sent,
                            struct errbuf *eb) {
    for (size_t i = 0; i < sent->n_ids; i++) {
        struct token_event ev = event_of(sent, i);
        choice_token(c, &ev);
        if (c->a->ops->blocks && c->req->answer.stream) say_again(c);
        if (c->a->no_memory || c->text.failed) return ERR_NO_MEMORY;
        if (c->finish == FINISH_NONE) continue;
        if (i + 1 < sent->n_ids || sent->finish == FINISH_NONE)
            return err_set(eb, ERR_INVALID,
                           "choice %u has %zu tokens, but it ended with token %zu (finish %d)",
                           number, sent->n_ids, i, (int)c->finish);
    }
    /* A stop string that only the text of the end completed. */
    if (c->finish == FINISH_NONE && sent->finish != FINISH_NONE) choice_end(c, sent->finish);
    return c->a->no_memory ? ERR_NO_MEMORY : ERR_OK;
}

/* Nothing is due any more. But one token alone may have been sent for the chunk that begins the
 * choice: it came in a step of its own, so writing it again shows what else went out. */
static enum err mark_sent(struct choice *c) {
    struct buf discard = BUF_INIT;
    enum err e = ERR_OK;
    if (c->a->ops->blocks || !c->req->answer.stream) {
        c->recs_told = n_out(c);
        return ERR_OK;
    }
    if (c->a->ops->begin != NULL && c->n_recs == 1) {
        answer_emit(c, false, &discard);
        if (discard.failed) e = ERR_NO_MEMORY;
        buf_free(&discard);
    } else {
        if (c->chat != NULL) chat_text_skip(c->chat);
        c->begun = true;
        choice_mark_sent(c);
    }
    c->recs_told = n_out(c);
    return e;
}

enum err answer_replay(struct answer *a, uint32_t choice, const struct sent_tokens *sent,
                       struct errbuf *eb) {
    size_t part = choice / a->n_choices;
    if (part >= a->n_parts || a->parts[part].req == NULL)
        return err_set(eb, ERR_INVALID, "choice %u must be below %zu", choice,
                       a->n_parts * a->n_choices);
    struct choice *c = &a->parts[part].choices[choice % a->n_choices];
    if (sent->n_ids == 0 && sent->finish == FINISH_NONE) return ERR_OK;
    enum err e = check(a, c, choice, sent, eb);
    if (e == ERR_OK) e = take_tokens(c, choice, sent, eb);
    if (e != ERR_OK) return e;
    a->n_live -= c->finish != FINISH_NONE;
    if (a->n_live == 0)
        return err_set(eb, ERR_INVALID, "every choice has ended, nothing is left to generate");
    return mark_sent(c);
}
