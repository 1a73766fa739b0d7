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
    CUT_MAX = 4096, /* candidates that are looked at one by one */
    PASSES_MAX = 4, /* to find them, where two do not */
    GUESS_STEP = 4, /* a guess looks at every so many-th group */
    GUESS_PASSES = 2,
};

/* Sums of a pass over floats, beside the target, are about right; distances from the centre that
 * such sums gave are off by less than CENTRE_OFF. */
static const double SLACK = 2e-5;
static const float CENTRE_OFF = 1e-4f, EDGE_APART = 0.03f;

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
};

static float distance_of(const struct mass *m, int id) {
    return fabsf((m->logits[id] - m->z.max) * m->z.scale - m->z.centre);
}

/* How far the distance of a pass may be off that of the long way: no order is lost between the
 * largest logits, whose distances are off alike. */
static float blur(const struct mass *m) {
    return m->typical ? 2 * CENTRE_OFF : 0;
}

/* p of all, about their mass, and the centre: H = log mass - moment / mass. */
static void weigh(struct mass *m) {
    double mass, moment;
    m->s->wide->weigh(m->s->p, m->logits, m->n, m->z.max, m->z.scale, &mass, &moment);
    m->target = m->share * mass;
    m->inner = 0;
    m->outer = -EXP_MIN + 1;
    m->inner_mass = 0;
    m->outer_mass = mass;
    if (m->typical) m->z.centre = (float)(moment / mass);
}

/* Narrows [inner, outer] by the masses up to some edges. */
static void narrow(struct mass *m, const float edge[SAMPLE_EDGES]) {
    double mass[SAMPLE_EDGES];
    m->s->wide->spread(mass, m->s->p, m->logits, m->n, 1, &m->z, edge);
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

/* Where between inner and outer the head ends, if what is there lies in all groups as it does in
 * some. */
static float guess(const struct mass *m) {
    float inner = m->inner, outer = m->outer;
    double from = m->inner_mass, to = m->outer_mass;
    for (int pass = 0; pass < GUESS_PASSES; pass++) {
        float edge[SAMPLE_EDGES];
        double mass[SAMPLE_EDGES];
        for (int i = 0; i < SAMPLE_EDGES; i++)
            edge[i] = inner + (outer - inner) * (float)i / (SAMPLE_EDGES - 1);
        m->s->wide->spread(mass, m->s->p, m->logits, m->n, GUESS_STEP, &m->z, edge);
        const double seen = mass[SAMPLE_EDGES - 1] - mass[0];
        if (!(seen > 0)) break;
        const double scale = (to - from) / seen, base = from - scale * mass[0];
        int i = 1;
        while (i < SAMPLE_EDGES - 1 && base + scale * mass[i] < m->target) i++;
        inner = edge[i - 1];
        outer = edge[i];
        from = base + scale * mass[i - 1];
        to = base + scale * mass[i];
    }
    return to > from ? inner + (outer - inner) * (float)((m->target - from) / (to - from)) : inner;
}

/* What lies between two of the first edges has much the same p, so a guess is good there: but not
 * at a distance from a centre, which is on two sides, on one with few logits of much mass. */
static void narrow_at_once(struct mass *m) {
    static const float first[SAMPLE_EDGES] = {0.5f, 1, 2, 4, 8, 16};
    float edge[SAMPLE_EDGES];
    narrow(m, first);
    if (m->typical) {
        narrow_evenly(m);
        narrow_evenly(m);
        return;
    }
    const float middle = guess(m);
    for (int i = 0; i < SAMPLE_EDGES; i++)
        edge[i] = middle + EDGE_APART * (float)(i - SAMPLE_EDGES / 2);
    narrow(m, edge);
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
    narrow_at_once(&m);
    for (int pass = 0; !look(&m); pass++) {
        if (pass == PASSES_MAX) return false;
        narrow_evenly(&m);
    }
    return end_of_head(&m, &cut) && drawn(&m, &cut, u, id);
}
