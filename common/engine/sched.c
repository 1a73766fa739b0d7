/* sched: two insertion sorts over at most batch_max views. They are nearly in order from step to
 * step, so the sorts are nearly linear, and a step costs milliseconds anyway. */
#include "common/engine/sched.h"

static bool decode_before(const struct sched_seq *a, const struct sched_seq *b) {
    if (a->last_step != b->last_step) return a->last_step < b->last_step;
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->age < b->age;
}

static bool prompt_before(const struct sched_seq *a, const struct sched_seq *b) {
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->age < b->age;
}

/* Writes the indices of one kind to order[], first to run first; returns how many. */
static int sorted(const struct sched_seq *seqs, int n_seqs, bool decoding, int *order) {
    int n = 0;
    for (int i = 0; i < n_seqs; i++) {
        if (seqs[i].decoding != decoding) continue;
        int at = n++;
        for (; at > 0; at--) {
            const struct sched_seq *before = &seqs[order[at - 1]];
            if (decoding ? !decode_before(&seqs[i], before) : !prompt_before(&seqs[i], before))
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return n;
}

static int min_int(int a, int b) {
    return a < b ? a : b;
}

/* Gives rows that are left to guesses; returns what is left then. */
static int add_drafts(const struct sched_seq *seqs, int n_seqs, const struct sched_limits *lim,
                      int left, int *rows, int *order) {
    int room = lim->draft_rows_max, wanted = 0;
    for (int i = 0; i < n_seqs; i++) {
        if (!seqs[i].decoding) continue;
        wanted += seqs[i].draft;
        room -= rows[i];
    }
    if (wanted == 0 || room <= 0) return left;
    room = min_int(room, left);
    int n = sorted(seqs, n_seqs, true, order), given = 0;
    /* One each in turn: the nearer a guess, the likelier it is right. */
    for (int k = 1, before = -1; given < room && given > before; k++) {
        before = given;
        for (int i = 0; i < n && given < room; i++) {
            if (rows[order[i]] != k || seqs[order[i]].draft < k) continue;
            rows[order[i]]++;
            given++;
        }
    }
    return left - given;
}

int sched_step(const struct sched_seq *seqs, int n_seqs, const struct sched_limits *lim, int *rows,
               int *order) {
    int left = lim->rows_max, prompt_rows = 0;
    for (int i = 0; i < n_seqs; i++) {
        rows[i] = 0;
        if (!seqs[i].decoding) prompt_rows += min_int(seqs[i].pending, lim->rows_max - prompt_rows);
    }

    int share = lim->rows_max / 4 > 0 ? lim->rows_max / 4 : 1;
    int kept_back = lim->rows_max > 1 ? min_int(prompt_rows, share) : 0;
    int n = sorted(seqs, n_seqs, true, order);
    for (int i = 0; i < n && left > kept_back; i++, left--) rows[order[i]] = 1;

    int wide_left = lim->logit_rows_max, n_prefill = 0;
    n = sorted(seqs, n_seqs, false, order);
    for (int i = 0; i < n && left > 0 && n_prefill < lim->prefill_max; i++) {
        const struct sched_seq *q = &seqs[order[i]];
        int want = min_int(min_int(q->pending, lim->chunk_max), left);
        if (q->all_logits) want = min_int(want, wide_left);
        if (want == 0) continue;
        if (q->all_logits) wide_left -= want;
        rows[order[i]] = want;
        left -= want;
        n_prefill++;
    }

    /* Rows kept back that no prompt could take. */
    n = left > 0 ? sorted(seqs, n_seqs, true, order) : 0;
    for (int i = 0; i < n && left > 0; i++) {
        if (rows[order[i]] != 0) continue;
        rows[order[i]] = 1;
        left--;
    }
    left = add_drafts(seqs, n_seqs, lim, left, rows, order);
    return lim->rows_max - left;
}
