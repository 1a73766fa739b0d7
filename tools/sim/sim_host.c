/* sim_host: what is left of every job is brought up to date whenever one comes or goes. */
#include "tools/sim/sim_host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double NOTHING_S = 1e-12; /* what rounding leaves of a job */

struct sim_thread {
    uint64_t number; /* its job's */
    enum sim_work kind;
    uint32_t id;
    unsigned nth, core; /* of its job's threads */
    double since_s;
};

struct sim_home {
    uint32_t id;
    unsigned nth, core;
};

struct sim_core {
    unsigned n, of_kind[SIM_WORKS]; /* threads */
};

enum err sim_host_init(struct sim_host *h, const struct sim_host_conf *conf, double now_s) {
    *h = (struct sim_host){.conf = *conf, .now_s = now_s, .uneven_s = HUGE_VAL};
    h->cores = calloc(conf->cores, sizeof(*h->cores));
    return h->cores != NULL ? ERR_OK : ERR_NO_MEMORY;
}

void sim_host_free(struct sim_host *h) {
    free(h->jobs);
    free(h->threads);
    free(h->cores);
    free(h->homes);
    h->homes = NULL;
    h->n_homes = h->homes_cap = 0;
    h->jobs = NULL;
    h->threads = NULL;
    h->cores = NULL;
    h->n = h->cap = h->n_threads = h->threads_cap = 0;
}

/* ---- threads and cores */

static void put(struct sim_host *h, struct sim_thread *t, unsigned core) {
    t->core = core;
    h->cores[core].n++;
    h->cores[core].of_kind[t->kind]++;
}

static void lift(struct sim_host *h, const struct sim_thread *t) {
    h->cores[t->core].n--;
    h->cores[t->core].of_kind[t->kind]--;
}

/* Since when the engine that has been there for longest is there; HUGE_VAL: there is none. */
static double held_since(const struct sim_host *h, unsigned core) {
    double since = HUGE_VAL;
    for (size_t i = 0; i < h->n_threads; i++)
        if (h->threads[i].core == core && h->threads[i].kind != SIM_HOP)
            since = fmin(since, h->threads[i].since_s);
    return since;
}

static unsigned engines_at(const struct sim_host *h, unsigned core) {
    return h->cores[core].n - h->cores[core].of_kind[SIM_HOP];
}

/* The one with fewest engines, which get all of it but for moments. A hop that finds none without
 * goes where others have been lately: to the core that sleeps most. */
static unsigned core_for(const struct sim_host *h, enum sim_work kind) {
    unsigned best = 0;
    for (unsigned c = 1; c < h->conf.cores && h->cores[best].n > 0; c++) {
        const unsigned n = engines_at(h, c), least = engines_at(h, best);
        const bool alike = n == least || (kind == SIM_HOP && n > 0 && least > 0);
        if (h->cores[c].n == 0 || (alike ? held_since(h, c) > held_since(h, best) : n < least))
            best = c;
    }
    return best;
}

static void free_ended(struct sim_host *h) {
    size_t n = 0;
    if (h->ended.id == SIM_NOBODY) return;
    for (size_t i = 0; i < h->n_threads; i++) {
        if (h->threads[i].number == h->ended.number)
            lift(h, &h->threads[i]);
        else
            h->threads[n++] = h->threads[i];
    }
    h->n_threads = n;
    h->ended.id = SIM_NOBODY;
}

/* Where it was last: there it wakes. NULL: it is new. */
static struct sim_home *home_of(struct sim_host *h, uint32_t id, unsigned nth) {
    for (size_t i = 0; i < h->n_homes; i++)
        if (h->homes[i].id == id && h->homes[i].nth == nth) return &h->homes[i];
    return NULL;
}

static void go_home(struct sim_host *h, const struct sim_thread *t) {
    struct sim_home *home = home_of(h, t->id, t->nth);
    if (home != NULL) home->core = t->core;
}

/* The engine that came last to a core. */
static struct sim_thread *newest_at(struct sim_host *h, unsigned core) {
    struct sim_thread *last = NULL;
    for (size_t i = 0; i < h->n_threads; i++)
        if (h->threads[i].core == core && h->threads[i].kind != SIM_HOP) last = &h->threads[i];
    return last;
}

/* Who ended and did not come again is gone. A core with two engines less than another gets one of
 * them when that has been so for a while. */
static void settle(struct sim_host *h) {
    free_ended(h);
    for (;;) {
        unsigned most = 0, least = 0;
        for (unsigned c = 1; c < h->conf.cores; c++) {
            if (engines_at(h, c) > engines_at(h, most)) most = c;
            if (engines_at(h, c) < engines_at(h, least)) least = c;
        }
        if (engines_at(h, most) < engines_at(h, least) + 2) {
            h->uneven_s = HUGE_VAL;
            return;
        }
        if (h->uneven_s == HUGE_VAL) h->uneven_s = h->now_s;
        if (h->now_s < h->uneven_s + SIM_BALANCE_S) return;
        struct sim_thread *t = newest_at(h, most);
        lift(h, t);
        put(h, t, least);
        go_home(h, t);
        h->uneven_s = HUGE_VAL;
    }
}

/* ---- time */

/* Of its core, that a thread of this kind has. */
static double share(const struct sim_core *c, enum sim_work kind) {
    const unsigned hops = c->of_kind[SIM_HOP];
    if (kind == SIM_HOP) return 1.0 / hops;
    return hops > 0 ? 0 : 1.0 / c->n;
}

/* How much longer it takes where it shares its core with other engines. */
static double shared(const struct sim_host *h, const struct sim_thread *t) {
    return t->kind != SIM_HOP && engines_at(h, t->core) > 1 ? h->conf.sharing[t->kind] : 1;
}

double sim_host_rate(const struct sim_host *h, const struct sim_job *job) {
    double own = 0, longer = 1, others[SIM_WORKS] = {0};
    unsigned n_own = 0;
    for (size_t i = 0; i < h->n_threads; i++) {
        const struct sim_thread *t = &h->threads[i];
        const double s = share(&h->cores[t->core], t->kind);
        own += t->number == job->number ? s / shared(h, t) : 0;
        n_own += t->number == job->number;
        others[t->kind] += t->number == job->number ? 0 : s;
    }
    /* What shares a core with it is not at work when it is. */
    for (size_t i = 0; i < h->n_threads; i++) {
        const struct sim_core *c = &h->cores[h->threads[i].core];
        if (h->threads[i].number != job->number) continue;
        for (int k = 0; k < SIM_WORKS; k++) {
            const unsigned n = c->of_kind[k] - (k == (int)job->kind);
            if (n > 0) others[k] -= n * share(c, (enum sim_work)k);
        }
    }
    for (int k = 0; k < SIM_WORKS && h->conf.cores > n_own; k++)
        longer += (h->conf.beside[job->kind][k] - 1) * fmax(others[k], 0) / (h->conf.cores - n_own);
    return own / job->threads / longer;
}

static void advance(struct sim_host *h, double now_s) {
    while (now_s > h->now_s) {
        settle(h);
        const double to = fmin(h->uneven_s + SIM_BALANCE_S, now_s), passed = to - h->now_s;
        for (size_t i = 0; i < h->n; i++)
            h->jobs[i].left_s -= passed * sim_host_rate(h, &h->jobs[i]);
        h->now_s = to;
    }
}

/* ---- jobs */

static struct sim_job *like(struct sim_host *h, const struct sim_job *job) {
    for (size_t i = 0; job->id == SIM_NOBODY && i < h->n; i++)
        if (h->jobs[i].id == SIM_NOBODY && h->jobs[i].kind == job->kind) return &h->jobs[i];
    return NULL;
}

/* Grows an array to hold n; false: no memory. */
static bool grow(void **p, size_t *cap, size_t n, size_t bytes) {
    size_t more = *cap > 0 ? *cap : 8;
    while (more < n) more *= 2;
    if (more == *cap) return true;
    void *q = realloc(*p, more * bytes);
    if (q == NULL) return false;
    *p = q;
    *cap = more;
    return true;
}

/* The threads of the one that ended go on with this. */
static bool goes_on(struct sim_host *h, struct sim_job *job) {
    if (h->ended.id == SIM_NOBODY || h->ended.id != job->id || h->ended.kind == SIM_HOP ||
        job->kind == SIM_HOP || h->ended.threads != job->threads)
        return false;
    job->number = h->ended.number;
    for (size_t i = 0; i < h->n_threads; i++) {
        struct sim_thread *t = &h->threads[i];
        if (t->number != job->number) continue;
        lift(h, t);
        t->kind = job->kind;
        put(h, t, t->core);
    }
    h->ended.id = SIM_NOBODY;
    return true;
}

enum err sim_host_add(struct sim_host *h, const struct sim_job *job, double now_s) {
    advance(h, now_s);
    struct sim_job *there = like(h, job);
    if (there != NULL) {
        there->left_s += job->left_s;
        return ERR_OK;
    }
    void *jobs = h->jobs, *threads = h->threads, *homes = h->homes;
    const bool room =
        grow(&jobs, &h->cap, h->n + 1, sizeof(*h->jobs)) &&
        grow(&threads, &h->threads_cap, h->n_threads + job->threads, sizeof(*h->threads)) &&
        grow(&homes, &h->homes_cap, h->n_homes + job->threads, sizeof(*h->homes));
    h->jobs = jobs;
    h->threads = threads;
    h->homes = homes;
    if (!room) return ERR_NO_MEMORY;
    struct sim_job *in = &h->jobs[h->n++];
    *in = *job;
    if (goes_on(h, in)) return ERR_OK;
    in->number = ++h->numbers;
    for (unsigned i = 0; i < job->threads; i++) {
        struct sim_thread *t = &h->threads[h->n_threads];
        const struct sim_home *home = job->kind != SIM_HOP ? home_of(h, job->id, i) : NULL;
        *t = (struct sim_thread){
            .number = in->number, .kind = job->kind, .id = job->id, .nth = i, .since_s = h->now_s};
        put(h, t, home != NULL ? home->core : core_for(h, job->kind));
        h->n_threads++;
        if (home == NULL && job->kind != SIM_HOP)
            h->homes[h->n_homes++] = (struct sim_home){job->id, i, t->core};
    }
    return ERR_OK;
}

bool sim_host_next(struct sim_host *h, double *when_s) {
    settle(h);
    *when_s = h->uneven_s + SIM_BALANCE_S;
    for (size_t i = 0; i < h->n; i++) {
        const double left = h->jobs[i].left_s > 0 ? h->jobs[i].left_s : 0,
                     rate = sim_host_rate(h, &h->jobs[i]);
        *when_s = fmin(*when_s, left > 0 ? h->now_s + left / rate : h->now_s);
    }
    return h->n > 0;
}

bool sim_host_take(struct sim_host *h, double now_s, uint32_t *id) {
    advance(h, now_s);
    for (size_t i = 0; i < h->n;) {
        const struct sim_job *job = &h->jobs[i];
        /* and what is less than the clock can tell */
        if (job->left_s > NOTHING_S && now_s + job->left_s > now_s) {
            i++;
            continue;
        }
        free_ended(h);
        *id = job->id;
        h->ended = *job;
        if (*id == SIM_NOBODY) h->ended.id = UINT32_MAX; /* nobody goes on with it */
        memmove(&h->jobs[i], &h->jobs[i + 1], (--h->n - i) * sizeof(*h->jobs));
        if (*id != SIM_NOBODY) return true;
    }
    return false;
}
