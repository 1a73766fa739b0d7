/* ep_answer_size: refuses what cannot be answered: a body that is not streamed has to be put
 * together before it is sent, and one answer may have so many bytes. Counted is what the request
 * makes certain, each record at the fewest bytes it can have: a request that might end earlier, or
 * with shorter records, is served. */
#include <stdio.h>
#include "common/base/budget.h"
#include "common/endpoint/ep.h"

#define FEWEST(text) (sizeof(text) - 1)

/* Fields of a message: a byte for the number, one for a length. */
enum { TEXT_FIELD = 3, F32_FIELD = 5, INT_FIELD = 2, HEAD = 2 };

/* A TokenInfo, or a GeneratedToken. */
static uint64_t detail_bytes(const struct infer_req *req, uint64_t n_top) {
    return HEAD + TEXT_FIELD + (req->answer.token_logprobs ? F32_FIELD : 0) +
           (req->answer.token_ranks ? INT_FIELD : 0) + n_top * (HEAD + TEXT_FIELD + F32_FIELD);
}

/* Of one token in an answer of the request's family; n_top: alternatives to it. */
static uint64_t token_bytes(const struct infer_req *req, uint64_t n_top) {
    switch (req->answer.api) {
    case API_OPENAI_CHAT:
    case API_RESPONSES:
        return req->answer.show_logprobs
                   ? (n_top + 1) * FEWEST("{\"token\":\"\",\"logprob\":0,\"bytes\":[]},")
                   : 0;
    case API_OPENAI_COMPLETIONS: /* in four lists */
        return req->answer.show_logprobs ? FEWEST("0,0,\"\",{},") + n_top * FEWEST("\"\":0,") : 0;
    case API_TGIS:
    case API_CAIKIT_GRPC: return req->answer.details ? detail_bytes(req, n_top) : 0;
    case API_CAIKIT:
        return req->answer.details ? FEWEST("{\"text\":\"\",\"logprob\":0,\"rank\":0},") : 0;
    case API_INFER:
    case API_INFER_REST:
    case API_INFER_TEXT:
        if ((req->answer.tensors & TENSOR_LOGPROBS) == 0) return 0;
        return 2 + (n_top + 1) * FEWEST("\"0\":{\"logprob\":0,\"decoded_token\":\"\"}");
    case API_TGI:
        return req->answer.details ? FEWEST("{\"id\":0,\"text\":\"\",\"logprob\":0},") : 0;
    default: return 0;
    }
}

/* Of one token of the prompt, in each place that lists the prompt. */
static uint64_t prompt_token_bytes(const struct infer_req *req) {
    uint64_t bytes = req->answer.token_ids ? FEWEST("0,") : 0;
    if (req->answer.show_prompt_logprobs)
        bytes += FEWEST("{\"0\":{\"logprob\":0,\"rank\":1,\"decoded_token\":\"\"}},");
    if (!req->answer.decoder_input_details) return bytes;
    switch (req->answer.api) {
    case API_TGIS:
    case API_CAIKIT_GRPC: return HEAD + TEXT_FIELD;
    default: return FEWEST("{\"id\":0,\"text\":\"\",\"logprob\":0},");
    }
}

/* Places that list the prompt: each choice of completions, elsewhere one beside the choices. */
static uint64_t prompt_lists(const struct infer_req *req) {
    return req->answer.api == API_OPENAI_COMPLETIONS ? (uint64_t)req->answer.n : 1;
}

/* Tokens that a choice has in any case. */
static uint64_t certain_tokens(const struct infer_req *req) {
    const struct sampling *s = &req->sampling;
    bool may_stop = !s->ignore_eos || s->n_stop_token_ids > 0 || req->n_stop > 0 ||
                    req->guide != NULL || s->beam;
    return (uint64_t)(may_stop ? s->new_tokens_min : s->new_tokens_max);
}

static uint64_t part_bytes(const struct infer_req *req) {
    const struct sampling *s = &req->sampling;
    const uint64_t id = req->answer.token_ids ? FEWEST("0,") : 0;
    uint64_t tokens = certain_tokens(req) * (token_bytes(req, (uint64_t)s->top_logprobs) + id);
    if (req->answer.echo) tokens += req->n_prompt * token_bytes(req, (uint64_t)s->top_logprobs);
    return (uint64_t)req->answer.n * tokens +
           prompt_lists(req) * req->n_prompt * prompt_token_bytes(req);
}

bool ep_answer_fits(struct ep_read *r) {
    const struct endpoint_conf *c = &r->ep->conf;
    uint64_t bytes = 0, most = DRESULT_PIECE_BYTES_MAX;
    if (r->stream || !c->split) return true; /* a single instance sends it as it is made */
    for (const struct infer_req *p = r->req; p != NULL; p = p->next_part) bytes += part_bytes(p);
    bool by_setting = c->budget != NULL && budget_limit(c->budget, BUDGET_ANSWER_BYTES) < most;
    if (by_setting) most = budget_limit(c->budget, BUDGET_ANSWER_BYTES);
    if (bytes <= most) return true;
    char got[24], max[24];
    snprintf(got, sizeof(got), "%llu", (unsigned long long)bytes);
    snprintf(max, sizeof(max), "%llu", (unsigned long long)most);
    if (c->budget != NULL) budget_refused(c->budget, BUDGET_ANSWER_BYTES);
    ep_at(r, "max_tokens");
    return ep_fail_with(r, 422,
                        by_setting
                            ? "The answer would have at least {got} bytes, all answers under way "
                              "may have {max} (limits.answersMiB). Ask for fewer tokens, choices "
                              "or log-probabilities, or for a stream."
                            : "The answer would have at least {got} bytes, one that is not "
                              "streamed may have {max}. Ask for fewer tokens, choices or "
                              "log-probabilities, or for a stream.",
                        "{got}", got, "{max}", max, NULL);
}
