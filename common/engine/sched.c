/* sched: two insertion sorts over at most batch_max views; a step costs milliseconds anyway. */
#include "common/engine/sched.h"
#include "common/base/splitmix.h"

/* A number that differs from sequence to sequence and from step to step. */
static uint64_t lot(const struct sched_seq *s) {
    return splitmix_mix(s->age + s->last_step * SPLITMIX_GAMMA);
}

/* By age the youngest of those that ran together would be the one left out, every time. */
static bool decode_before(const struct sched_seq *a, const struct sched_seq *b) {
    if (a->last_step != b->last_step) return a->last_step < b->last_step;
    if (a->priority != b->priority) return a->priority < b->priority;
    return lot(a) < lot(b);
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

/* Prompts of one priority are among themselves; sequences that decode are all alike, or a tenant
 * could take more turns by asking with other priorities. */
static bool together(const struct sched_seq *a, const struct sched_seq *b) {
    return a->priority == b->priority || (a->decoding && b->decoding);
}

/* Puts sorted sequences into the order of turns: of those that stand together, the k-th of a tenant
 * goes before the (k+1)-th of any. turn: [n], scratch. */
static void by_turns(const struct sched_seq *seqs, int *order, int n, int *turn) {
    for (int i = 0; i < n; i++) {
        const struct sched_seq *q = &seqs[order[i]];
        turn[i] = 0;
        for (int k = i - 1; k >= 0 && turn[i] == 0; k--)
            if (seqs[order[k]].tenant == q->tenant && together(&seqs[order[k]], q))
                turn[i] = turn[k] + 1;
    }
    for (int i = 1; i < n; i++) { /* stable */
        int seq = order[i], t = turn[i], at = i;
        for (; at > 0 && together(&seqs[order[at - 1]], &seqs[seq]) && turn[at - 1] > t; at--) {
            order[at] = order[at - 1];
            turn[at] = turn[at - 1];
        }
        order[at] = seq;
        turn[at] = t;
    }
}

/* Writes the indices of those that decode to order[], first to run first when room is for fewer;
 * returns how many. */
static int decoding_order(const struct sched_seq *seqs, int n_seqs, int room, int *order) {
    int n = 0;
    for (int i = 0; i < n_seqs; i++)
        if (seqs[i].decoding) order[n++] = i;
    if (n <= room) return n;
    sorted(seqs, n_seqs, true, order);
    by_turns(seqs, order, n, order + n_seqs);
    return n;
}

/* How many tenants have their oldest prompts of the best priority first in order. */
static int n_heads(const struct sched_seq *seqs, const int *order, const int *turn, int n) {
    int heads = 0;
    while (heads < n && turn[heads] == 0 && seqs[order[heads]].priority == seqs[order[0]].priority)
        heads++;
    return heads;
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

/* Gives the prompts their rows of those left, at most bound to those that need not be whole;
 * returns what is left then. */
static int add_prompts(const struct sched_seq *seqs, int n_seqs, const struct sched_limits *lim,
                       int left, int bound, int *rows, int *order) {
    int n = sorted(seqs, n_seqs, false, order), *turn = order + n_seqs;
    by_turns(seqs, order, n, turn);
    int heads = n_heads(seqs, order, turn, n), n_prefill = 0, wide_left = lim->logit_rows_max;
    bound = min_int(bound, left);
    int part = heads > 0 && bound / heads > 0 ? bound / heads : 1;
    for (int pass = 0; pass < 2; pass++) { /* the heads' equal parts, then everybody in order */
        int last = pass == 0 ? (heads > 1 ? heads : 0) : n;
        for (int i = 0; i < last && left > 0; i++) {
            const struct sched_seq *q = &seqs[order[i]];
            int *has = &rows[order[i]], want = min_int(q->pending, lim->chunk_max);
            if (*has == 0 && n_prefill == lim->prefill_max) continue;
            if (q->whole) {
                if (pass == 0 || (q->pending > left && left < lim->rows_max)) continue;
                n_prefill++;
                *has = q->pending;
                left -= q->pending;
                continue;
            }
            if (pass == 0) want = min_int(want, part);
            want = min_int(want - *has, min_int(left, bound));
            if (q->all_logits) want = min_int(want, wide_left);
            if (want <= 0) continue;
            if (q->all_logits) wide_left -= want;
            n_prefill += *has == 0;
            *has += want;
            left -= want;
            bound -= want;
        }
    }
    return left;
}

int sched_step(const struct sched_seq *seqs, int n_seqs, const struct sched_limits *lim, int *rows,
               int *order) {
    int left = lim->rows_max, prompt_rows = 0, bound = lim->rows_max;
    for (int i = 0; i < n_seqs; i++) {
        rows[i] = 0;
        if (seqs[i].decoding)
            bound = lim->beside_decode_max;
        else
            prompt_rows += min_int(seqs[i].pending, lim->rows_max - prompt_rows);
    }

    int share = lim->rows_max / 4 > 0 ? lim->rows_max / 4 : 1;
    int kept_back = lim->rows_max > 1 ? min_int(prompt_rows, min_int(share, bound)) : 0;
    int decode_left = lim->decode_max;
    int n = decoding_order(seqs, n_seqs, min_int(left - kept_back, decode_left), order);
    for (int i = 0; i < n && left > kept_back && decode_left > 0; i++, left--, decode_left--)
        rows[order[i]] = 1;

    left = add_prompts(seqs, n_seqs, lim, left, bound, rows, order);

    /* Rows kept back that no prompt could take. */
    n = left > 0 && decode_left > 0 ? decoding_order(seqs, n_seqs, left, order) : 0;
    for (int i = 0; i < n && left > 0 && decode_left > 0; i++) {
        if (rows[order[i]] != 0) continue;
        rows[order[i]] = 1;
        left--;
        decode_left--;
    }
    left = add_drafts(seqs, n_seqs, lim, left, rows, order);
    return lim->rows_max - left;
}
