/* engine_draft: speculative decoding by prompt lookup. A choice that decodes may bring guesses of
 * its next tokens to the pass, one row each, and the step then draws at each of these rows as it
 * would have drawn later: from the logits of that position, with the penalties, the guide and the
 * random numbers of that position. As long as the draw is the guess, the next row is the right one
 * too, and its KV stays. The first draw that differs is the token all the same, and the rows after
 * it are forgotten: n_past never passed them, so their KV is written again before anyone reads it
 * and never enters the prefix cache. So the tokens are those of a run without drafts, bit for bit,
 * because a row's numbers do not depend on the other rows of a pass (forward.h). */
#include "common/engine/engine_priv.h"
#include "common/engine/prompt_lookup.h"

int engine_draft(struct choice *c) {
    const struct seq *s = c->seq;
    /* The last token of all needs no KV, so no block is reserved for it. */
    int room = s->ids_max - 1 - c->n_ids;
    if (c->lookup == NULL || room <= 0) return 0;
    int n = prompt_lookup_draft(c->lookup, c->ids, c->n_ids, room);
    if (n > 0 && c->guide.ops != NULL && c->guide.ops->follow != NULL)
        n = c->guide.ops->follow(c->guide.state, c->ids + c->n_ids, n);
    return n;
}

void engine_draft_plan(struct engine *e, struct choice *c, int n_draft) {
    c->n_draft = n_draft;
    c->n_right = 0;
    e->drafts += n_draft > 0;
    e->draft_tokens += (uint64_t)n_draft;
}

bool engine_draft_check(struct engine *e, struct choice *c, int32_t id) {
    if (c->n_draft == 0) return false;
    bool right = c->n_right < c->n_draft && c->ids[c->n_ids] == id;
    c->n_right += right;
    e->draft_accepted += right;
    if (!right) prompt_lookup_learn(c->lookup, c->n_draft, c->n_right);
    return right;
}
