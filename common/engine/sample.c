/* sample: everything between the logits of one row and the id of its next token.
 *
 * Nothing is sorted: top_k, top_p and typical_p each look for the last candidate they keep by
 * quickselect (expected linear time), then one pass in id order drops what ranks behind it. So
 * candidates stay in id order throughout, and a draw walks them in that order whatever filters were
 * on. */
#include "common/engine/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/kernels_exp.h"
#include "common/engine/sample_priv.h"

enum { GROUP = SAMPLE_GROUP };

/* ---- Philox */

static void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)a;
}

void philox4x32_words(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t k0 = key[0], k1 = key[1];
    memcpy(out, counter, 4 * sizeof(uint32_t));
    for (int i = 0; i < 10; i++) {
        philox_round(out, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

void philox4x32(uint32_t out[4], uint64_t key, uint64_t counter) {
    const uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    philox4x32_words(out, c, k);
}

/* In [0, 1), all 53 bits of a double. */
static double uniform(uint64_t seed, uint64_t position, uint32_t choice) {
    const uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), choice, 0};
    const uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t w[4];
    philox4x32_words(w, c, k);
    uint64_t bits = (uint64_t)w[0] << 32 | w[1];
    return (double)(bits >> 11) * 0x1p-53;
}

void sample_maxima(float *to, const float *logits, int n) {
    sample_wide()->maxima(to, logits, n);
}

bool sample_is_quick(const struct sampling *p) {
    if (p->logprobs || p->top_logprobs > 0 || p->ranks || p->allowed_ids != NULL) return false;
    return !p->do_sample || !(p->temperature > 0) || p->top_k > 0;
}

/* ---- scratch */

enum err sample_scratch_create(struct sample_scratch **out, int vocab_size) {
    *out = NULL;
    if (vocab_size < 1) return ERR_INVALID;
    struct sample_scratch *s = calloc(1, sizeof(*s));
    if (s == NULL) return ERR_NO_MEMORY;
    const size_t groups = (size_t)sample_groups(vocab_size);
    s->vocab_size = vocab_size;
    s->wide = sample_wide();
    s->counts = calloc((size_t)vocab_size, sizeof(*s->counts));
    s->cands = calloc((size_t)vocab_size, sizeof(*s->cands));
    s->work = calloc((size_t)vocab_size, sizeof(*s->work));
    s->group_max = calloc(groups, sizeof(*s->group_max));
    s->p = calloc(groups * GROUP, sizeof(*s->p));
    s->sums = calloc(groups, sizeof(*s->sums));
    s->groups = calloc(groups, sizeof(*s->groups));
    if (s->group_max == NULL || s->counts == NULL || s->cands == NULL || s->work == NULL ||
        s->p == NULL || s->sums == NULL || s->groups == NULL) {
        sample_scratch_destroy(&s);
        return ERR_NO_MEMORY;
    }
    *out = s;
    return ERR_OK;
}

void sample_scratch_destroy(struct sample_scratch **s_ptr) {
    struct sample_scratch *s = *s_ptr;
    if (s == NULL) return;
    free(s->group_max);
    free(s->counts);
    free(s->cands);
    free(s->work);
    free(s->p);
    free(s->sums);
    free(s->groups);
    free(s);
    *s_ptr = NULL;
}

/* ---- changes of the logits; what they change is looked at again */

static void touch(struct sample_scratch *s, int32_t id) {
    s->group_max[id / GROUP] = NAN;
}

/* Each id once: its logit is changed when its count is first met, and the count is then cleared,
 * which leaves the table as it was. */
static void penalise_repetition(struct sample_scratch *s, float *logits, float penalty,
                                const int32_t *ids, int n) {
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocab_size || s->counts[ids[i]] != 0) continue;
        float *x = &logits[ids[i]];
        *x = *x > 0 ? *x / penalty : *x * penalty;
        touch(s, ids[i]);
        s->counts[ids[i]] = 1;
    }
    for (int i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->vocab_size) s->counts[ids[i]] = 0;
}

static void penalise_counts(struct sample_scratch *s, float *logits, float presence,
                            float frequency, const int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->vocab_size) s->counts[ids[i]]++;
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocab_size || s->counts[ids[i]] == 0) continue;
        logits[ids[i]] -= presence + frequency * (float)s->counts[ids[i]];
        touch(s, ids[i]);
        s->counts[ids[i]] = 0;
    }
}

static void ban(struct sample_scratch *s, float *logits, int n, int32_t id) {
    if (id < 0 || id >= n) return;
    logits[id] = -INFINITY;
    touch(s, id);
}

static void mark(struct sample_scratch *s, const int32_t *ids, size_t n, uint32_t v) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->vocab_size) s->counts[ids[i]] = v;
}

/* Where a guide says when the text is complete, what ends it is let through. */
static void keep_allowed(struct sample_scratch *s, float *logits, int n,
                         const struct sample_in *in) {
    const size_t n_ends = in->mask != NULL ? (size_t)in->n_ends : 0;
    mark(s, in->p->allowed_ids, in->p->n_allowed_ids, 1);
    mark(s, in->ends, n_ends, 1);
    for (int i = 0; i < n; i++)
        if (s->counts[i] == 0) logits[i] = -INFINITY;
    for (int i = 0; i < n; i += GROUP) touch(s, i);
    mark(s, in->p->allowed_ids, in->p->n_allowed_ids, 0);
    mark(s, in->ends, n_ends, 0);
}

/* Words one after another, each behind its length; the engine has checked the lengths. */
static void ban_words(struct sample_scratch *s, float *logits, int n, const struct sample_in *in) {
    size_t n_made = (size_t)(in->n_history - in->n_prompt), len;
    for (size_t at = 0; at < in->p->n_bad_words; at += len) {
        const int32_t *word = in->p->bad_words + at + 1;
        size_t before = (size_t)in->p->bad_words[at++] - 1;
        len = before + 1;
        if (before <= n_made &&
            memcmp(in->history + in->n_history - before, word, before * sizeof(*word)) == 0)
            ban(s, logits, n, word[before]);
    }
}

static void keep_masked(struct sample_scratch *s, float *logits, int n, const uint64_t *mask) {
    for (int at = 0; at < n; at += 64) {
        uint64_t bits = mask[at / 64];
        if (bits == UINT64_MAX) continue;
        touch(s, at);
        for (int i = at; i < at + 64 && i < n; i++)
            if (!(bits >> (i - at) & 1)) logits[i] = -INFINITY;
    }
}

static int in_window(const struct sampling *p, int n) {
    return p->penalty_window > 0 && p->penalty_window < n ? p->penalty_window : n;
}

/* The exponential decay of lengths (Hugging Face's ExponentialDecayLengthPenalty): behind
 * decay_start tokens each end gains |logit| * (factor^excess - 1). */
static void favour_ends(struct sample_scratch *s, float *logits, int n,
                        const struct sample_in *in) {
    const int excess = in->n_history - in->n_prompt - in->p->decay_start;
    if (excess <= 0) return;
    /* finite, so that a logit of 0 stays what it is */
    const float gain = fminf(powf(in->p->decay_factor, (float)excess) - 1, FLT_MAX);
    for (int i = 0; i < in->n_ends; i++) {
        const int32_t id = in->ends[i];
        if (id < 0 || id >= n || !isfinite(logits[id])) continue;
        logits[id] += fabsf(logits[id]) * gain;
        touch(s, id);
    }
}

static void shape_logits(struct sample_scratch *s, float *logits, int n,
                         const struct sample_in *in) {
    const struct sampling *p = in->p;
    const int seen = in_window(p, in->n_history), made = in_window(p, in->n_history - in->n_prompt);
    if (p->repetition_penalty != 1.0f)
        penalise_repetition(s, logits, p->repetition_penalty, in->history + in->n_history - seen,
                            seen);
    if ((p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f) && made > 0)
        penalise_counts(s, logits, p->presence_penalty, p->frequency_penalty,
                        in->history + in->n_history - made, made);
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        int32_t id = p->logit_bias[i].id;
        if (id < 0 || id >= n) continue;
        logits[id] += p->logit_bias[i].bias;
        touch(s, id);
    }
    if (in->mask != NULL) keep_masked(s, logits, n, in->mask);
    if (p->allowed_ids != NULL) keep_allowed(s, logits, n, in);
    if (p->n_bad_words > 0) ban_words(s, logits, n, in);
    for (int i = 0; in->no_end && i < in->n_ends; i++) ban(s, logits, n, in->ends[i]);
    if (p->decay_factor > 1.0f && !in->no_end) favour_ends(s, logits, n, in);
}

static float max_f32(float a, float b) {
    return a > b ? a : b;
}

static float clean_f32(float x) {
    x = x > FLT_MAX ? FLT_MAX : x;
    return x == x ? x : -INFINITY;
}

/* Cleans one whole group and returns its largest. Loops of fixed length over independent lanes,
 * which compilers turn into vector instructions. */
static float clean_group(float *x) {
    float lane[16];
    for (int i = 0; i < GROUP; i++) x[i] = clean_f32(x[i]);
    for (int i = 0; i < 16; i++)
        lane[i] = max_f32(max_f32(x[i], x[i + 16]), max_f32(x[i + 32], x[i + 48]));
    for (int i = 0; i < 4; i++)
        lane[i] = max_f32(max_f32(lane[i], lane[i + 4]), max_f32(lane[i + 8], lane[i + 12]));
    return max_f32(max_f32(lane[0], lane[1]), max_f32(lane[2], lane[3]));
}

/* What the groups are before anything is changed. */
static void know_groups(struct sample_scratch *s, const float *logits, int n, const float *maxima) {
    if (maxima != NULL)
        memcpy(s->group_max, maxima, (size_t)sample_groups(n) * sizeof(*maxima));
    else
        s->wide->maxima(s->group_max, logits, n);
}

/* Of groups that must be looked at: removes NaN and plus infinity and fills group_max. Returns the
 * id of the largest, the lowest such id. */
static int32_t clean_argmax(struct sample_scratch *s, float *logits, int n) {
    float best = -INFINITY;
    int first = 0; /* of the group with the best */
    for (int at = 0; at < n; at += GROUP) {
        float max = s->group_max[at / GROUP];
        if (max != max) {
            if (n - at >= GROUP) {
                max = clean_group(logits + at);
            } else {
                max = -INFINITY;
                for (int i = at; i < n; i++) max = max_f32(max, logits[i] = clean_f32(logits[i]));
            }
            s->group_max[at / GROUP] = max;
        }
        if (max > best) {
            best = max;
            first = at;
        }
    }
    while (logits[first] != best) first++;
    return first;
}

/* ---- exponentials */

/* p[i] = exp((x[i] - max) * scale), i < n <= GROUP, with no x above max; p: [GROUP]. Returns their
 * sum, of every fourth in floats. */
typedef float f32x4 __attribute__((vector_size(16), aligned(4), may_alias));
static float exp_group(const struct sample_scratch *s, float *p, const float *x, int n, float max,
                       float scale) {
    f32x4 sum = {0, 0, 0, 0};
    s->wide->exp(p, x, n, max, scale); /* the same bits with every set */
    for (int i = n; i < (n + 3) / 4 * 4; i++) p[i] = 0;
    for (int i = 0; i < n; i += 4) sum += *(const f32x4 *)(const void *)(p + i);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ---- log-probabilities */

/* log of the sum of exp(logits - max): a group's sum in floats (the largest term is 1, far smaller
 * ones do not matter), theirs in a double. */
static double log_sum(const struct sample_scratch *s, const float *logits, int n, float max) {
    float p[GROUP];
    double sum = 0;
    for (int at = 0; at < n; at += GROUP)
        sum += (double)exp_group(s, p, logits + at, n - at < GROUP ? n - at : GROUP, max, 1);
    return log(sum);
}

static float logprob_of(float logit, float max, double log_total) {
    double v = (double)logit - (double)max - log_total;
    return v < -(double)FLT_MAX ? -FLT_MAX : v > 0 ? 0.0f : (float)v;
}

/* The n_max largest, by insertion: a short row that few ids enter. Returns how many. */
static int top_ids(struct sample_scratch *s, struct top_logprob *top, const float *logits, int n,
                   int n_max, float max, double log_total) {
    int n_top = 0;
    float least = -INFINITY; /* what an id must exceed to enter */
    for (int32_t id = 0; id < n; id++) {
        float x = logits[id];
        if (id % GROUP == 0 && !(s->group_max[id / GROUP] > least)) {
            id += GROUP - 1;
            continue;
        }
        if (!(x > least)) continue;
        int at = n_top < n_max ? n_top++ : n_max - 1;
        for (; at > 0 && x > logits[top[at - 1].id]; at--) top[at] = top[at - 1];
        top[at].id = id;
        if (n_top == n_max) least = logits[top[n_max - 1].id];
    }
    for (int i = 0; i < n_top; i++) top[i].logprob = logprob_of(logits[top[i].id], max, log_total);
    return n_top;
}

/* ---- candidates */

struct cand sample_select_cut(struct cand *w, int n, double target, bool by_p) {
    uint64_t lcg = (uint64_t)n;
    int lo = 0, hi = n;
    for (;;) {
        lcg = lcg * 6364136223846793005u + 1442695040888963407u;
        struct cand pivot = w[lo + (int)((lcg >> 33) % (uint64_t)(hi - lo))];
        int mid = lo;
        double weight = 0;
        for (int i = lo; i < hi; i++) {
            if (!sample_ranks_before(&w[i], &pivot)) continue;
            struct cand t = w[i];
            w[i] = w[mid];
            w[mid++] = t;
            weight += by_p ? t.p : 1;
        }
        double with_pivot = weight + (by_p ? pivot.p : 1);
        if (mid > lo && target <= weight) {
            hi = mid;
            continue;
        }
        if (target <= with_pivot || mid + 1 >= hi) return pivot;
        /* What ranks behind: everything from mid on but the pivot itself. */
        for (int i = mid; i < hi; i++)
            if (w[i].id == pivot.id) {
                w[i] = w[mid];
                break;
            }
        lo = mid + 1;
        target -= with_pivot;
    }
}

static double total_p(const struct cand *c, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += c[i].p;
    return sum;
}

/* Keeps candidates up to the cut, in id order. */
static int keep_to(struct sample_scratch *s, int n, struct cand cut) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (!sample_ranks_before(&cut, &s->cands[i])) s->cands[kept++] = s->cands[i];
    return kept;
}

static int keep_top_k(struct sample_scratch *s, int n, int k) {
    memcpy(s->work, s->cands, (size_t)n * sizeof(*s->work));
    return keep_to(s, n, sample_select_cut(s->work, n, k, false));
}

/* ---- the head of a ranking that holds a given mass
 *
 * Candidates fall into buckets by how far they stand from the best rank; the buckets' masses tell
 * in which one the cut is, and only that one is looked through. */
enum { BUCKETS = 1024, BUCKETS_PER_NAT = 8 };

/* Larger for a smaller key, never the other way round. */
static int bucket_of(float key, float best, float scale) {
    float far = (best - key) * scale * BUCKETS_PER_NAT;
    return far < BUCKETS - 1 ? (int)far : BUCKETS - 1;
}

/* The bucket in which the running mass reaches target; *above is the mass before it. Rounding may
 * leave the target just out of reach: then the last one that is not empty. */
static int bucket_of_cut(const double mass[BUCKETS], double target, double *above) {
    int last = 0;
    double sum = 0;
    *above = 0;
    for (int b = 0; b < BUCKETS; b++) {
        if (!(mass[b] > 0)) continue;
        last = b;
        *above = sum;
        sum += mass[b];
        if (sum >= target) break;
    }
    return last;
}

/* The smallest head of the ranking by key with this mass. */
static int keep_mass(struct sample_scratch *s, int n, double target, float best, float scale) {
    double mass[BUCKETS] = {0}, above;
    for (int i = 0; i < n; i++) mass[bucket_of(s->cands[i].key, best, scale)] += s->cands[i].p;
    int cut = bucket_of_cut(mass, target, &above), n_work = 0;
    for (int i = 0; i < n; i++)
        if (bucket_of(s->cands[i].key, best, scale) == cut) s->work[n_work++] = s->cands[i];
    return keep_to(s, n, sample_select_cut(s->work, n_work, target - above, true));
}

/* Locally typical sampling (Meister et al., 2022): the smallest set, nearest to the entropy first,
 * with the given mass. A candidate's logarithm is what its exponential was taken of. */
static int keep_typical(struct sample_scratch *s, int n, double mass, float max, float scale) {
    double total = total_p(s->cands, n), log_total = log(total), entropy = 0;
    for (int i = 0; i < n; i++) {
        double log_q = (double)((s->cands[i].key - max) * scale) - log_total;
        entropy -= s->cands[i].p / total * log_q;
    }
    for (int i = 0; i < n; i++) {
        double log_q = (double)((s->cands[i].key - max) * scale) - log_total;
        s->cands[i].key = (float)-fabs(-log_q - entropy);
    }
    return keep_mass(s, n, mass * total, 0, 1);
}

/* Candidates: logits of at least `least`, but not those so unlikely that exp gives zero. */
static int collect(struct sample_scratch *s, const float *logits, int n, float max, float least,
                   float scale) {
    int kept = 0;
    for (int at = 0; at < n; at += GROUP) {
        float p[GROUP];
        if (s->group_max[at / GROUP] < least) continue;
        int len = n - at < GROUP ? n - at : GROUP;
        exp_group(s, p, logits + at, len, max, scale);
        for (int i = 0; i < len; i++) {
            if (logits[at + i] < least || !(p[i] > 0)) continue;
            s->cands[kept++] =
                (struct cand){.key = logits[at + i], .id = at + i, .p = (double)p[i]};
        }
    }
    return kept;
}

/* A logit below which nothing belongs to the head with this share of the whole mass, *total: what
 * lies behind the bucket of the cut. */
static float least_of_mass(const struct sample_scratch *s, const float *logits, int n, float max,
                           float scale, double share, double *total) {
    double mass[BUCKETS] = {0}, above;
    for (int at = 0; at < n; at += GROUP) {
        float p[GROUP];
        if ((s->group_max[at / GROUP] - max) * scale < EXP_MIN) continue;
        int len = n - at < GROUP ? n - at : GROUP;
        exp_group(s, p, logits + at, len, max, scale);
        for (int i = 0; i < len; i++)
            if (p[i] > 0) mass[bucket_of(logits[at + i], max, scale)] += (double)p[i];
    }
    *total = 0;
    for (int b = 0; b < BUCKETS; b++) *total += mass[b];
    /* one bucket further, for the rounding of its edge */
    int cut = bucket_of_cut(mass, share * *total, &above);
    return max - (float)(cut + 2) / BUCKETS_PER_NAT / scale;
}

/* The draw when nothing is filtered: groups by their sums, then the ids of one. */
static int32_t draw_of_all(struct sample_scratch *s, const float *logits, int n, float max,
                           float scale, double u) {
    float p[GROUP];
    double total = 0;
    int n_groups = (n + GROUP - 1) / GROUP, g = 0;
    for (int i = 0; i < n_groups; i++) {
        int at = i * GROUP;
        s->work[i].p =
            (double)exp_group(s, p, logits + at, n - at < GROUP ? n - at : GROUP, max, scale);
        total += s->work[i].p;
    }
    double left = u * total;
    int last = 0; /* of the groups that hold any mass: where rounding ends */
    for (; g < n_groups; g++) {
        if (!(s->work[g].p > 0)) continue;
        last = g;
        if (left < s->work[g].p) break;
        left -= s->work[g].p;
    }
    int at = last * GROUP, len = n - at < GROUP ? n - at : GROUP, id = 0;
    exp_group(s, p, logits + at, len, max, scale);
    for (int i = 0; i < len; i++) {
        if (!(p[i] > 0)) continue;
        id = at + i;
        if (left < (double)p[i]) break;
        left -= (double)p[i];
    }
    return id;
}

/* A logit that at least k ids reach: the k-th largest of the groups' maxima. */
static float least_of_top(struct sample_scratch *s, int n, int k) {
    int n_groups = (n + GROUP - 1) / GROUP;
    if (k >= n_groups) return -INFINITY;
    for (int i = 0; i < n_groups; i++) s->work[i] = (struct cand){.key = s->group_max[i], .id = i};
    return sample_select_cut(s->work, n_groups, k, false).key;
}

static int32_t draw(struct sample_scratch *s, const float *logits, int vocab_size, float max,
                    const struct sample_in *in) {
    const struct sampling *p = in->p;
    /* the smallest temperatures have no reciprocal; the largest logit keeps exp(0) with any scale
     */
    const float scale = p->temperature > 1e-30f ? 1.0f / p->temperature : 1e30f;
    const double u = uniform(p->seed, (uint64_t)in->n_history, (uint32_t)in->choice);
    if (p->top_k <= 0 && !(p->top_p < 1.0f) && !(p->min_p > 0.0f) && !(p->typical_p < 1.0f))
        return draw_of_all(s, logits, vocab_size, max, scale, u);
    const bool typical = p->typical_p < 1.0f;
    int32_t id;
    if (!s->one_by_one && p->top_k <= 0 && !(p->min_p > 0.0f) && typical != (p->top_p < 1.0f) &&
        sample_mass_draw(s, logits, vocab_size, max, scale,
                         (double)(typical ? p->typical_p : p->top_p), typical, u, &id))
        return id;
    double total = 0;
    float least = -INFINITY;
    if (p->top_k > 0)
        least = least_of_top(s, vocab_size, p->top_k);
    else if (p->top_p < 1.0f)
        least = least_of_mass(s, logits, vocab_size, max, scale, (double)p->top_p, &total);
    int n = collect(s, logits, vocab_size, max, least, scale);
    if (p->top_k > 0 && p->top_k < n) n = keep_top_k(s, n, p->top_k);
    if (p->top_k > 0) total = total_p(s->cands, n);
    if (p->top_p < 1.0f) n = keep_mass(s, n, (double)p->top_p * total, max, scale);
    if (p->min_p > 0.0f) {
        int kept = 0; /* the most likely candidate has p = 1 and stays */
        for (int i = 0; i < n; i++)
            if (s->cands[i].p >= fmin((double)p->min_p, 1.0)) s->cands[kept++] = s->cands[i];
        n = kept;
    }
    if (p->typical_p < 1.0f) n = keep_typical(s, n, (double)p->typical_p, max, scale);

    double left = u * total_p(s->cands, n);
    for (int i = 0; i < n - 1; i++) {
        if (left < s->cands[i].p) return s->cands[i].id;
        left -= s->cands[i].p;
    }
    return s->cands[n - 1].id;
}

static int32_t rank_of(const float *logits, int n, int32_t id) {
    int32_t rank = 1;
    for (int i = 0; i < n; i++) rank += logits[i] > logits[id];
    return rank;
}

bool sample_token(struct sample_scratch *s, float *logits, int vocab_size,
                  const struct sample_in *in, struct token_event *out) {
    const struct sampling *p = in->p;
    know_groups(s, logits, vocab_size, in->maxima);
    shape_logits(s, logits, vocab_size, in);
    out->id = clean_argmax(s, logits, vocab_size);
    out->logprob = 0;
    out->rank = 0;
    out->n_top = 0;
    float max = logits[out->id];
    if (max == -INFINITY) return false;
    if (p->do_sample && p->temperature > 0) out->id = draw(s, logits, vocab_size, max, in);
    if (p->ranks) out->rank = rank_of(logits, vocab_size, out->id);
    if (p->logprobs || p->top_logprobs > 0) {
        double log_total = log_sum(s, logits, vocab_size, max);
        if (p->logprobs) out->logprob = logprob_of(logits[out->id], max, log_total);
        if (p->top_logprobs > 0)
            out->n_top = top_ids(s, out->top, logits, vocab_size, p->top_logprobs, max, log_total);
    }
    return true;
}

int sample_best(struct sample_scratch *s, float *logits, int vocab_size, const struct sample_in *in,
                int n_max, struct top_logprob *out) {
    know_groups(s, logits, vocab_size, in->maxima);
    shape_logits(s, logits, vocab_size, in);
    float max = logits[clean_argmax(s, logits, vocab_size)];
    if (max == -INFINITY) return 0;
    return top_ids(s, out, logits, vocab_size, n_max, max, log_sum(s, logits, vocab_size, max));
}

void sample_prompt(struct sample_scratch *s, float *logits, int vocab_size, int32_t id, int n_top,
                   bool rank, struct token_event *out) {
    know_groups(s, logits, vocab_size, NULL);
    float max = logits[clean_argmax(s, logits, vocab_size)];
    out->id = id;
    out->logprob = -FLT_MAX;
    out->rank = 0;
    out->n_top = 0;
    if (max == -INFINITY) return;
    double log_total = log_sum(s, logits, vocab_size, max);
    if (id >= 0 && id < vocab_size) {
        out->logprob = logprob_of(logits[id], max, log_total);
        if (rank) out->rank = rank_of(logits, vocab_size, id);
    }
    if (n_top > 0) out->n_top = top_ids(s, out->top, logits, vocab_size, n_top, max, log_total);
}
