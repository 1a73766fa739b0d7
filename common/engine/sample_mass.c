/* sample_mass: a draw from the smallest head of a ranking that holds a share of the mass, without
 * a list of what it holds.
 *
 * The long way (sample.c) adds probabilities one by one in the order of ids, and these sums say
 * where the head ends and which token is drawn. Here sums are made in vectors, in another order:
 * they differ from those by a bound that is known, and what is asked of them is which of two
 * neighbours a target lies between. So where a target is further than the bound from both, the
 * token is that of the long way; else the long way is gone. Tests compare the two.
 *
 * Distances rank alike: with top_p that of a logit from the largest, with typical_p that of its
 * surprise from the entropy, -log q - H = (log mass - z) - H, from the centre log mass - H. */
#include <math.h>
#include <string.h>
#include "common/engine/kernels_exp.h"
#include "common/engine/sample_priv.h"

enum {
    CUT_MAX = 4096,  /* candidates that are looked at one by one */
    CUT_GOOD = 1024, /* and so many are no burden */
    PASSES_MAX = 4,  /* to find them, where a guess does not */
    SOME = 8,        /* a guess looks at one of so many groups */
    GUESS_ROUNDS = 3,
};

/* Sums of a pass over floats, beside the target, are about right; distances from the centre that
 * such sums gave are off by less than CENTRE_OFF. Groups with a logit of this share of all mass
 * are no matter of chance. */
static const double SLACK = 2e-5, MUCH = 1.0 / 2048;
static const float CENTRE_OFF = 1e-4f, FURTHEST = -EXP_MIN + 1;

struct mass {
    struct sample_scratch *s;
    const float *logits;
    int n, n_cut;
    struct sample_z z;
    bool typical;
    double share, target;
    double nearer;                 /* mass of what is nearer than inner, less the blur */
    double within;                 /* the bound of all sums */
    float inner, outer;            /* the head ends at a distance from inner to outer */
    double inner_mass, outer_mass; /* about what lies up to them */
    double mass;                   /* about all */
    float middle, half;            /* a guess of where it ends, and how far that may be off */
};

static float distance_of(const struct mass *m, int id) {
    return fabsf((m->logits[id] - m->z.max) * m->z.scale - m->z.centre);
}

/* How far the distance of a pass may be off that of the long way: no order is lost between the
 * largest logits, whose distances are off alike. */
static float blur(const struct mass *m) {
    return m->typical ? 2 * CENTRE_OFF : 0;
}

/* Nothing is known of where the head ends. */
static void begin(struct mass *m) {
    m->inner = 0;
    m->outer = FURTHEST;
    m->inner_mass = 0;
    m->outer_mass = m->mass;
}

/* p of all, about their mass, and the centre: H = log mass - moment / mass. */
static void weigh(struct mass *m) {
    double moment;
    m->s->wide->weigh(m->s->p, m->logits, m->n, m->z.max, m->z.scale, &m->mass, &moment);
    m->target = m->share * m->mass;
    if (m->typical) m->z.centre = (float)(moment / m->mass);
}

/* About so many candidates lie at most between two distances with so much mass between them. */
static double candidates(const struct mass *m, float outer, double mass) {
    return mass / exp((double)(m->z.centre - outer));
}

/* ---- a guess */

/* Groups that are looked at: first all with a logit of much mass, then one in `each` of the
 * others. */
struct some {
    int n_much, n_few;
    double each;
};

static struct some choose(const struct mass *m) {
    const float least = (float)((double)m->z.max + log(MUCH * m->mass) / (double)m->z.scale);
    struct some some = {0};
    int32_t *groups = m->s->groups;
    int n_others = 0, n = sample_groups(m->n);
    for (int g = 0; g < n; g++) {
        if (m->s->group_max[g] >= least)
            groups[some.n_much++] = g;
        else if (n_others++ % SOME == 0)
            groups[n - ++some.n_few] = g; /* from the end on */
    }
    some.each = some.n_few > 0 ? (double)n_others / some.n_few : 0;
    return some;
}

/* About what lies further than each edge but the last, which is FURTHEST. */
static void weigh_far(const struct mass *m, const struct some *some, const float edge[SAMPLE_EDGES],
                      double far[SAMPLE_EDGES]) {
    const struct sample_scratch *s = m->s;
    const int32_t *few = s->groups + sample_groups(m->n) - some->n_few;
    double of_few[SAMPLE_EDGES];
    s->wide->spread(far, s->p, m->logits, m->n, s->groups, some->n_much, &m->z, edge);
    s->wide->spread(of_few, s->p, m->logits, m->n, few, some->n_few, &m->z, edge);
    for (int i = 0; i < SAMPLE_EDGES; i++) {
        far[i] =
            far[SAMPLE_EDGES - 1] - far[i] + some->each * (of_few[SAMPLE_EDGES - 1] - of_few[i]);
    }
}

/* Where the head ends, as what is looked at tells it: from inner to outer, beyond which lie about
 * `from` and `to`. */
struct bracket {
    float inner, outer;
    double from, to;
};

static struct bracket bracket(const struct mass *m, const struct some *some) {
    const double beyond = m->mass - m->target;
    struct bracket b = {.inner = 0, .outer = FURTHEST, .from = m->mass, .to = 0};
    float edge[SAMPLE_EDGES] = {1, 2, 4, 8, 16, FURTHEST};
    for (int round = 0; round < GUESS_ROUNDS; round++) {
        const float step = (b.outer - b.inner) / (SAMPLE_EDGES - 1);
        double far[SAMPLE_EDGES];
        for (int i = 0; round > 0 && i < SAMPLE_EDGES - 1; i++)
            edge[i] = b.inner + step * (float)(i + 1);
        weigh_far(m, some, edge, far);
        for (int i = 0; i < SAMPLE_EDGES - 1 && edge[i] < b.outer; i++) {
            if (far[i] <= beyond) {
                b.outer = edge[i];
                b.to = far[i];
                break;
            }
            b.inner = edge[i];
            b.from = far[i];
        }
    }
    return b;
}

/* The middle and how far it may be off. What lies beyond the head is many small p, which some of
 * them tell well; the few large ones lie within, or are all looked at. Sets inner and outer, which
 * are a guess too, so that a look at them is no burden; false: that cannot be hoped for. */
static bool guess(struct mass *m) {
    const struct some some = choose(m);
    const struct bracket b = bracket(m, &some);
    const double beyond = m->mass - m->target, wide = (double)(b.outer - b.inner),
                 dense = (b.from - b.to) / wide;
    m->middle = b.inner;
    m->half = FURTHEST / 2;
    if (!(dense > 0)) return false;
    /* three standard deviations, were all that is beyond as large as the largest */
    const double largest = m->typical ? fmin(MUCH * m->mass, 1) : exp(-(double)b.inner);
    const double off = 3 * sqrt(some.each * largest * beyond) / dense;
    m->middle = b.inner + (float)((b.from - beyond) / dense);
    m->half = (float)fmin(fmax(off, wide / 32), (double)m->half);
    m->inner = b.inner - (float)off;
    m->outer = b.outer + (float)off;
    if (candidates(m, m->outer, dense * (wide + 2 * off)) <= CUT_GOOD) return true;
    m->inner = m->middle - m->half;
    m->outer = m->middle + m->half;
    return candidates(m, m->outer, dense * 2 * (double)m->half) <= CUT_MAX / 2;
}

/* ---- what is certain */

/* Narrows [inner, outer] by the masses up to some edges. */
static void narrow(struct mass *m, const float edge[SAMPLE_EDGES]) {
    double mass[SAMPLE_EDGES];
    m->s->wide->spread(mass, m->s->p, m->logits, m->n, NULL, sample_groups(m->n), &m->z, edge);
    for (int i = 0; i < SAMPLE_EDGES; i++) {
        if (mass[i] >= m->target * (1 - SLACK) || edge[i] < m->inner) continue;
        m->inner = edge[i];
        m->inner_mass = mass[i];
    }
    for (int i = SAMPLE_EDGES; i-- > 0;) {
        if (mass[i] <= m->target * (1 + SLACK) || edge[i] > m->outer) continue;
        m->outer = edge[i];
        m->outer_mass = mass[i];
    }
}

static void narrow_evenly(struct mass *m) {
    float edge[SAMPLE_EDGES];
    for (int i = 0; i < SAMPLE_EDGES; i++)
        edge[i] = m->inner + (m->outer - m->inner) * (float)(i + 1) / (SAMPLE_EDGES + 1);
    narrow(m, edge);
}

static void narrow_about(struct mass *m) {
    static const float parts[SAMPLE_EDGES] = {-1, -0.3f, -0.1f, 0.1f, 0.3f, 1};
    float edge[SAMPLE_EDGES];
    for (int i = 0; i < SAMPLE_EDGES; i++) edge[i] = m->middle + parts[i] * m->half;
    narrow(m, edge);
}

/* Where the head ends if what lies between inner and outer lies there evenly, and a bit on both
 * sides. */
static void aim(struct mass *m) {
    const float wide = m->outer - m->inner;
    const double part = (m->target - m->inner_mass) / (m->outer_mass - m->inner_mass);
    m->middle = m->inner + wide * (float)fmin(fmax(part, 0), 1);
    m->inner = fmaxf(m->inner, m->middle - wide / 16);
    m->outer = fminf(m->outer, m->middle + wide / 16);
}

/* The candidates from inner to outer, the sums of what is nearer, and what the long way would have
 * of all: bounds, and a centre that keys of typical_p are told apart by. */
static bool look(struct mass *m) {
    struct sample_scratch *s = m->s;
    const float wide = blur(m);
    double mass, moment = 0, centre = 0;
    int32_t ids[CUT_MAX];
    m->n_cut = s->wide->head(s->sums, ids, CUT_MAX, s->p, m->logits, m->n, &m->z, m->inner - wide,
                             m->outer + wide, &mass, m->typical ? &moment : NULL);
    if (m->n_cut < 0) return false;
    double part[4] = {0}; /* one sum would wait for each addition */
    const int groups = sample_groups(m->n);
    for (int g = 0; g < groups; g++) part[g % 4] += s->sums[g];
    m->nearer = (part[0] + part[1]) + (part[2] + part[3]);
    m->target = m->share * mass;
    m->within = mass * m->n * 0x1p-50;
    if (m->typical) centre = moment / mass;
    if (!(fabs(centre - (double)m->z.centre) < (double)CENTRE_OFF)) m->n_cut = 0;
    for (int i = 0; i < m->n_cut; i++) {
        const int32_t id = ids[i];
        float key = m->logits[id];
        if (m->typical) key = (float)-fabs(centre - (double)((key - m->z.max) * m->z.scale));
        s->cands[i] = (struct cand){.key = key, .id = id, .p = (double)s->p[id]};
    }
    return true;
}

/* Where the head ends, if that is certain. */
static bool end_of_head(const struct mass *m, struct cand *cut) {
    const struct sample_scratch *s = m->s;
    double before = m->nearer;
    if (m->n_cut == 0 || !(before < m->target - m->within)) return false;
    memcpy(s->work, s->cands, (size_t)m->n_cut * sizeof(*s->work));
    *cut = sample_select_cut(s->work, m->n_cut, m->target - before, true);
    for (int i = 0; i < m->n_cut; i++) {
        const struct cand *c = &s->cands[i];
        if (sample_ranks_before(c, cut)) before += c->p;
        /* Keys whose order rounding may have turned. */
        if (m->typical && c->id != cut->id &&
            fabsf(c->key - cut->key) <= 2.5e-7f * fabsf(cut->key) + 1e-8f)
            return false;
    }
    if (m->typical) { /* nor may it be among those beyond inner and outer */
        const float half = blur(m) / 4;
        if (-cut->key < m->inner - half || -cut->key > m->outer + half) return false;
    }
    return before < m->target - m->within && before + cut->p > m->target + m->within;
}

/* The id that a draw of the head ends at, if that is certain. */
static bool drawn(const struct mass *m, const struct cand *cut, double u, int32_t *id) {
    const struct sample_scratch *s = m->s;
    const float below = m->inner - blur(m);
    double all = m->nearer, sum = 0;
    int kept = 0, g = 0;
    for (int i = 0; i < m->n_cut; i++) {
        if (sample_ranks_before(cut, &s->cands[i])) continue;
        s->cands[kept++] = s->cands[i];
        s->sums[s->cands[i].id / SAMPLE_GROUP] += s->cands[i].p;
        all += s->cands[i].p;
    }
    const double target = u * all;
    while (g < sample_groups(m->n) && sum + s->sums[g] <= target) sum += s->sums[g++];
    int at = 0;
    while (at < kept && s->cands[at].id < g * SAMPLE_GROUP) at++;
    for (int i = g * SAMPLE_GROUP; i < m->n && i < (g + 1) * SAMPLE_GROUP; i++) {
        const bool edge = at < kept && s->cands[at].id == i;
        at += edge;
        if (!edge && !(distance_of(m, i) < below && s->p[i] > 0)) continue;
        const double next = sum + (double)s->p[i];
        if (target < next) {
            *id = i;
            return target > sum + m->within && target < next - m->within;
        }
        sum = next;
    }
    return false;
}

bool sample_mass_draw(struct sample_scratch *s, const float *logits, int n, float max, float scale,
                      double share, bool typical, double u, int32_t *id) {
    struct mass m = {.s = s, .logits = logits, .n = n, .share = share, .typical = typical};
    struct cand cut;
    m.z = (struct sample_z){.max = max, .scale = scale};
    weigh(&m);
    if (guess(&m) && look(&m) && end_of_head(&m, &cut)) return drawn(&m, &cut, u, id);
    begin(&m);
    m.target = share * m.mass;
    narrow_about(&m);
    if (candidates(&m, m.outer, m.outer_mass - m.inner_mass) > CUT_GOOD) {
        struct mass aimed = m;
        aim(&aimed);
        if (look(&aimed) && end_of_head(&aimed, &cut)) return drawn(&aimed, &cut, u, id);
    }
    for (int pass = 0; !look(&m); pass++) {
        if (pass == PASSES_MAX) return false;
        narrow_evenly(&m);
    }
    return end_of_head(&m, &cut) && drawn(&m, &cut, u, id);
}
