/* targets: two short lists of different values. */
#include "coordinator/targets.h"

/* The row of the value, a free one, one that nobody asked for as long, or where all are as fresh
 * the loosest, if that is looser than s. */
static void note(struct target_row rows[TARGETS_KEPT], double s, uint64_t now_ms) {
    struct target_row *to = NULL;
    if (!(s > 0)) return;
    for (size_t i = 0; i < TARGETS_KEPT; i++) {
        struct target_row *r = &rows[i];
        if (r->s == s) {
            to = r;
            break;
        }
        if (to == NULL || r->s <= 0 || (to->s > 0 && r->seen_ms < to->seen_ms) ||
            (to->s > 0 && r->seen_ms == to->seen_ms && r->s > to->s))
            to = r;
    }
    if (to->s > 0 && to->s != s && to->seen_ms == now_ms && to->s < s) return;
    *to = (struct target_row){s, now_ms};
}

void targets_note(struct targets_seen *b, const struct targets *t, uint64_t now_ms) {
    note(b->first_token, t->first_token_s, now_ms);
    note(b->token, t->token_s, now_ms);
}

static double least(const struct target_row rows[TARGETS_KEPT], uint64_t since_ms,
                    double otherwise) {
    double s = 0;
    for (size_t i = 0; i < TARGETS_KEPT; i++)
        if (rows[i].s > 0 && rows[i].seen_ms >= since_ms && (s <= 0 || rows[i].s < s))
            s = rows[i].s;
    return s > 0 ? s : otherwise;
}

struct targets targets_strictest(const struct targets_seen *b, uint64_t since_ms,
                                 struct targets otherwise) {
    return (struct targets){least(b->first_token, since_ms, otherwise.first_token_s),
                            least(b->token, since_ms, otherwise.token_s)};
}
