/* history: a ring of steps for all, one for each instance, and smoothed rates. */
#include "coordinator/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RATE_MS = 3000,
    TRANSFERS_OF = 16,
    TABLE_INSTANCES = 2048,
    TABLE_LINKS = 16384,
    BUCKETS = 48
};

/* Buckets grow by a quarter: from 0.1 ms to 3.6 s of a token, from 1 ms to 36 s of a first one. */
static const double growth = 1.25;
static const double gap_unit_us = 100, ttft_unit_us = 1000;

struct step {
    bool known; /* something was noted in it */
    uint32_t answered, failed, cancelled, refused;
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t kv_bytes;
    struct history_gauges gauges;
    uint16_t ttft[BUCKETS], gap[BUCKETS];
};

struct inst_step {
    uint32_t tokens;
    uint16_t batch, kv_permille;
    float wait_ms; /* to a first token, or between tokens: the mean of n in the step */
    uint32_t n;
};

/* So much a second, of which what is older than RATE_MS counts little. */
struct rate {
    double v;
    uint64_t at_ms;
};

struct inst_ring {
    uint32_t id;                    /* 0: a free place */
    uint64_t heard_ms, first, last; /* steps */
    struct rate tokens;
    struct inst_step *steps; /* [HISTORY_STEPS] */
};

struct link_rate {
    uint32_t p_id, d_id; /* 0: a free place */
    uint64_t heard_ms, n;
    struct rate bytes;
    double transfer_ms;
};

/* Tables of open addressing hold half of their places at most. */
struct history {
    uint64_t start_ms, now; /* the step that goes on */
    struct step steps[HISTORY_STEPS];
    struct inst_ring insts[TABLE_INSTANCES];
    struct link_rate links[TABLE_LINKS];
    size_t n_insts, n_links;
};

/* ---- rates */

static double rate_get(const struct rate *r, uint64_t now_ms) {
    return r->v > 0 ? r->v * exp(-(double)(now_ms - r->at_ms) / RATE_MS) : 0;
}

static void rate_add(struct rate *r, uint64_t now_ms, double n) {
    r->v = rate_get(r, now_ms) + n * 1000 / RATE_MS;
    r->at_ms = now_ms;
}

/* ---- steps */

static uint64_t step_of(const struct history *h, uint64_t now_ms) {
    return now_ms > h->start_ms ? (now_ms - h->start_ms) / HISTORY_STEP_MS : 0;
}

/* The step that goes on; those between it and the last one are empty. */
static struct step *step_now(struct history *h, uint64_t now_ms) {
    const uint64_t to = step_of(h, now_ms);
    const uint64_t from = to - h->now > HISTORY_STEPS ? to - HISTORY_STEPS : h->now;
    for (uint64_t i = from; i < to; i++) h->steps[(i + 1) % HISTORY_STEPS] = (struct step){0};
    if (to > h->now) h->now = to;
    struct step *s = &h->steps[h->now % HISTORY_STEPS];
    s->known = true;
    return s;
}

static void count(uint16_t *counts, double us, double unit) {
    int b = us > unit ? (int)(log(us / unit) / log(growth)) + 1 : 0;
    if (b >= BUCKETS) b = BUCKETS - 1;
    if (counts[b] < UINT16_MAX) counts[b]++;
}

/* Microseconds below which the part q of the waits lies; inside a bucket in a straight line. 0:
 * there are none. */
static double quantile(const uint16_t *counts, double q, double unit) {
    uint64_t n = 0, seen = 0;
    double low = 0, high = unit;
    for (int b = 0; b < BUCKETS; b++) n += counts[b];
    if (n == 0) return 0;
    const double want = q * (double)n;
    for (int b = 0; b < BUCKETS; b++) {
        if (counts[b] > 0 && (double)(seen + counts[b]) >= want)
            return low + (high - low) * (want - (double)seen) / counts[b];
        seen += counts[b];
        low = high;
        high *= growth;
    }
    return low;
}

/* ---- instances and links */

static size_t hash(uint64_t key, size_t places) {
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 32) % places;
}

/* Its place, or the free one where it belongs. */
static size_t inst_at(const struct history *h, uint32_t id) {
    size_t i = hash(id, TABLE_INSTANCES);
    while (h->insts[i].id != 0 && h->insts[i].id != id) i = (i + 1) % TABLE_INSTANCES;
    return i;
}

/* The one that is silent longest goes; what lies behind it in the table is placed again. */
static void drop_silent_inst(struct history *h) {
    uint64_t heard_ms = UINT64_MAX;
    size_t oldest = 0;
    for (size_t i = 0; i < TABLE_INSTANCES; i++) {
        if (h->insts[i].id == 0 || h->insts[i].heard_ms >= heard_ms) continue;
        heard_ms = h->insts[i].heard_ms;
        oldest = i;
    }
    free(h->insts[oldest].steps);
    h->insts[oldest] = (struct inst_ring){0};
    h->n_insts--;
    for (size_t i = (oldest + 1) % TABLE_INSTANCES; h->insts[i].id != 0;
         i = (i + 1) % TABLE_INSTANCES) {
        const struct inst_ring r = h->insts[i];
        h->insts[i] = (struct inst_ring){0};
        h->insts[inst_at(h, r.id)] = r;
    }
}

/* NULL: id 0, or no memory. */
static struct inst_ring *inst_of(struct history *h, uint64_t now_ms, uint32_t id) {
    if (id == 0) return NULL;
    struct inst_ring *r = &h->insts[inst_at(h, id)];
    if (r->id == 0) {
        struct inst_step *steps = calloc(HISTORY_STEPS, sizeof(*steps));
        if (steps == NULL) return NULL;
        if (h->n_insts == HISTORY_INSTANCES_MAX) drop_silent_inst(h);
        r = &h->insts[inst_at(h, id)];
        *r = (struct inst_ring){.id = id, .first = h->now, .last = h->now, .steps = steps};
        h->n_insts++;
    }
    r->heard_ms = now_ms;
    return r;
}

/* Its part of the step that goes on, which step_now() has begun. */
static struct inst_step *inst_step_now(const struct history *h, struct inst_ring *r) {
    const uint64_t from = h->now - r->last > HISTORY_STEPS ? h->now - HISTORY_STEPS : r->last;
    for (uint64_t i = from; i < h->now; i++)
        r->steps[(i + 1) % HISTORY_STEPS] = (struct inst_step){0};
    r->last = h->now;
    return &r->steps[h->now % HISTORY_STEPS];
}

static void note_wait(struct inst_step *s, double ms) {
    s->n++;
    s->wait_ms += (float)((ms - s->wait_ms) / s->n);
}

static uint64_t link_key(uint32_t p, uint32_t d) {
    return (uint64_t)p << 32 | d;
}

static size_t link_at(const struct history *h, uint32_t p, uint32_t d) {
    size_t i = hash(link_key(p, d), TABLE_LINKS);
    while (h->links[i].p_id != 0 && (h->links[i].p_id != p || h->links[i].d_id != d))
        i = (i + 1) % TABLE_LINKS;
    return i;
}

static void drop_silent_link(struct history *h) {
    uint64_t heard_ms = UINT64_MAX;
    size_t oldest = 0;
    for (size_t i = 0; i < TABLE_LINKS; i++) {
        if (h->links[i].p_id == 0 || h->links[i].heard_ms >= heard_ms) continue;
        heard_ms = h->links[i].heard_ms;
        oldest = i;
    }
    h->links[oldest] = (struct link_rate){0};
    h->n_links--;
    for (size_t i = (oldest + 1) % TABLE_LINKS; h->links[i].p_id != 0; i = (i + 1) % TABLE_LINKS) {
        const struct link_rate l = h->links[i];
        h->links[i] = (struct link_rate){0};
        h->links[link_at(h, l.p_id, l.d_id)] = l;
    }
}

static void note_link(struct history *h, uint64_t now_ms, const struct history_first *f) {
    if (f->p_id == 0 || f->d_id == 0 || f->kv_bytes == 0) return;
    struct link_rate *l = &h->links[link_at(h, f->p_id, f->d_id)];
    if (l->p_id == 0) {
        if (h->n_links == HISTORY_LINKS_MAX) drop_silent_link(h);
        l = &h->links[link_at(h, f->p_id, f->d_id)];
        *l = (struct link_rate){.p_id = f->p_id, .d_id = f->d_id};
        h->n_links++;
    }
    l->heard_ms = now_ms;
    l->n++;
    const double of = l->n < TRANSFERS_OF ? (double)l->n : TRANSFERS_OF;
    l->transfer_ms += (f->transfer_ms - l->transfer_ms) / of;
    rate_add(&l->bytes, now_ms, (double)f->kv_bytes);
}

/* ---- what happens */

static void add(uint32_t *to, uint64_t n) {
    *to = n > UINT32_MAX - *to ? UINT32_MAX : *to + (uint32_t)n;
}

void history_first_token(struct history *h, uint64_t now_ms, const struct history_first *f) {
    struct step *s = step_now(h, now_ms);
    struct inst_ring *p = inst_of(h, now_ms, f->p_id);
    add(&s->prompt_tokens, f->prompt_tokens);
    add(&s->cached_tokens, f->cached_tokens);
    add(&s->output_tokens, f->output_tokens);
    s->kv_bytes += f->kv_bytes;
    if (f->ttft_us > 0) count(s->ttft, (double)f->ttft_us, ttft_unit_us);
    note_link(h, now_ms, f);
    if (p == NULL) return;
    struct inst_step *at = inst_step_now(h, p);
    add(&at->tokens, f->prompt_tokens);
    if (f->ttft_us > 0) note_wait(at, (double)f->ttft_us / 1000);
    rate_add(&p->tokens, now_ms, (double)f->prompt_tokens);
}

void history_tokens(struct history *h, uint64_t now_ms, uint32_t d_id, uint64_t n,
                    uint64_t gap_us) {
    struct step *s = step_now(h, now_ms);
    struct inst_ring *d = inst_of(h, now_ms, d_id);
    const double each = n > 0 ? (double)gap_us / (double)n : 0;
    if (n == 0) return;
    add(&s->output_tokens, n);
    /* A piece of several tokens is several waits. */
    for (uint64_t i = 0; gap_us > 0 && i < n && i < HISTORY_STEPS; i++)
        count(s->gap, each, gap_unit_us);
    if (d == NULL) return;
    struct inst_step *at = inst_step_now(h, d);
    add(&at->tokens, n);
    if (gap_us > 0) note_wait(at, each / 1000);
    rate_add(&d->tokens, now_ms, (double)n);
}

void history_ended(struct history *h, uint64_t now_ms, enum history_end how) {
    struct step *s = step_now(h, now_ms);
    switch (how) {
    case HISTORY_ANSWERED: s->answered++; break;
    case HISTORY_FAILED: s->failed++; break;
    case HISTORY_CANCELLED: s->cancelled++; break;
    case HISTORY_REFUSED: s->refused++; break;
    }
}

void history_gauges(struct history *h, uint64_t now_ms, const struct history_gauges *g) {
    struct step *s = step_now(h, now_ms);
    const uint32_t queued = s->gauges.queued > g->queued ? s->gauges.queued : g->queued;
    s->gauges = *g;
    s->gauges.queued = queued;
}

void history_instance(struct history *h, uint64_t now_ms, uint32_t id,
                      const struct history_load *l) {
    (void)step_now(h, now_ms);
    struct inst_ring *r = inst_of(h, now_ms, id);
    if (r == NULL) return;
    struct inst_step *at = inst_step_now(h, r);
    at->batch = l->batch < UINT16_MAX ? (uint16_t)l->batch : UINT16_MAX;
    at->kv_permille = l->kv_permille < 1000 ? (uint16_t)l->kv_permille : 1000;
}

/* ---- what is known */

double history_tokens_per_s(const struct history *h, uint64_t now_ms, uint32_t id) {
    return id != 0 ? rate_get(&h->insts[inst_at(h, id)].tokens, now_ms) : 0;
}

bool history_link_get(const struct history *h, uint64_t now_ms, uint32_t p_id, uint32_t d_id,
                      struct history_link *out) {
    const struct link_rate *l = &h->links[link_at(h, p_id, d_id)];
    *out = (struct history_link){0};
    if (p_id == 0 || l->p_id == 0) return false;
    *out = (struct history_link){
        .bytes_per_s = rate_get(&l->bytes, now_ms), .transfer_ms = l->transfer_ms, .n = l->n};
    return true;
}

enum column {
    ANSWERED,
    FAILED,
    CANCELLED,
    REFUSED,
    PROMPT,
    CACHED,
    OUTPUT,
    KV_BYTES,
    RUNNING,
    QUEUED,
    SLOTS_USED,
    SLOTS_TOTAL,
    KV,
    TTFT_50,
    TTFT_90,
    TTFT_99,
    GAP_50,
    GAP_90,
    GAP_99,
    N_COLUMNS
};
static const char *const column_name[N_COLUMNS] = {
    [ANSWERED] = "answered",
    [FAILED] = "failed",
    [CANCELLED] = "cancelled",
    [REFUSED] = "refused",
    [PROMPT] = "promptTokens",
    [CACHED] = "cachedTokens",
    [OUTPUT] = "outputTokens",
    [KV_BYTES] = "kvBytes",
    [RUNNING] = "running",
    [QUEUED] = "queued",
    [SLOTS_USED] = "slotsUsed",
    [SLOTS_TOTAL] = "slotsTotal",
    [KV] = "kvUse",
    [TTFT_50] = "ttftMs50",
    [TTFT_90] = "ttftMs90",
    [TTFT_99] = "ttftMs99",
    [GAP_50] = "gapMs50",
    [GAP_90] = "gapMs90",
    [GAP_99] = "gapMs99",
};

static void put_ms(struct buf *out, const uint16_t *counts, double q, double unit) {
    const double us = quantile(counts, q, unit);
    if (us > 0)
        buf_printf(out, us < 100000 ? "%.1f" : "%.0f", us / 1000);
    else
        buf_puts(out, "null");
}

static void put_cell(struct buf *out, const struct step *s, enum column c) {
    static const double part[] = {0.5, 0.9, 0.99};
    const uint64_t v[] = {
        [ANSWERED] = s->answered,
        [FAILED] = s->failed,
        [CANCELLED] = s->cancelled,
        [REFUSED] = s->refused,
        [PROMPT] = s->prompt_tokens,
        [CACHED] = s->cached_tokens,
        [OUTPUT] = s->output_tokens,
        [KV_BYTES] = s->kv_bytes,
        [RUNNING] = s->gauges.running,
        [QUEUED] = s->gauges.queued,
        [SLOTS_USED] = s->gauges.slots_used,
        [SLOTS_TOTAL] = s->gauges.slots_total,
    };
    if (!s->known)
        buf_puts(out, "null");
    else if (c < KV)
        buf_printf(out, "%llu", (unsigned long long)v[c]);
    else if (c == KV)
        buf_printf(out, "%.3f", s->gauges.kv_permille / 1000.0);
    else if (c < GAP_50)
        put_ms(out, s->ttft, part[c - TTFT_50], ttft_unit_us);
    else
        put_ms(out, s->gap, part[c - GAP_50], gap_unit_us);
}

enum inst_column { I_TOKENS, I_BATCH, I_KV, I_WAIT, N_INST_COLUMNS };
static const char *const inst_column_name[N_INST_COLUMNS] = {"tokens", "batch", "kvUse", "waitMs"};

static void put_inst_cell(struct buf *out, const struct inst_ring *r, uint64_t step,
                          enum inst_column c) {
    const struct inst_step *s = &r->steps[step % HISTORY_STEPS];
    if (step < r->first || step > r->last || r->last - step >= HISTORY_STEPS) {
        buf_puts(out, "null");
        return;
    }
    switch (c) {
    case I_TOKENS: buf_printf(out, "%u", s->tokens); break;
    case I_BATCH: buf_printf(out, "%u", s->batch); break;
    case I_KV: buf_printf(out, "%.3f", s->kv_permille / 1000.0); break;
    case I_WAIT:
    case N_INST_COLUMNS:
        if (s->n > 0)
            buf_printf(out, "%.1f", s->wait_ms);
        else
            buf_puts(out, "null");
    }
}

static void write_instance(const struct history *h, uint32_t id, uint64_t from, uint64_t to,
                           struct buf *out) {
    const struct inst_ring *r = &h->insts[inst_at(h, id)];
    buf_printf(out, "\"%u\":{", id);
    for (int c = 0; id != 0 && r->id != 0 && c < N_INST_COLUMNS; c++) {
        buf_printf(out, "%s\"%s\":[", c > 0 ? "," : "", inst_column_name[c]);
        for (uint64_t i = from; i < to; i++) {
            if (i > from) buf_putc(out, ',');
            put_inst_cell(out, r, i, (enum inst_column)c);
        }
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

void history_write(const struct history *h, uint64_t now_ms, uint64_t since, const uint32_t *ids,
                   size_t n, struct buf *out) {
    static const struct step none;
    const uint64_t to = step_of(h, now_ms); /* which goes on */
    uint64_t from = to > HISTORY_STEPS - 1 ? to - (HISTORY_STEPS - 1) : 0;
    if (since > from) from = since < to ? since : to;
    buf_printf(out, "{\"stepMs\":%d,\"from\":%llu,\"next\":%llu,\"ageMs\":%llu,\"series\":{",
               HISTORY_STEP_MS, (unsigned long long)from, (unsigned long long)to,
               (unsigned long long)(now_ms - h->start_ms - to * HISTORY_STEP_MS));
    for (int c = 0; c < N_COLUMNS; c++) {
        buf_printf(out, "%s\"%s\":[", c > 0 ? "," : "", column_name[c]);
        for (uint64_t i = from; i < to; i++) {
            if (i > from) buf_putc(out, ',');
            put_cell(out,
                     i <= h->now && h->now - i < HISTORY_STEPS ? &h->steps[i % HISTORY_STEPS]
                                                               : &none,
                     (enum column)c);
        }
        buf_putc(out, ']');
    }
    buf_puts(out, "},\"instances\":{");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(out, ',');
        write_instance(h, ids[i], from, to, out);
    }
    buf_puts(out, "}}");
}

/* ---- life */

struct history *history_create(uint64_t now_ms) {
    struct history *h = calloc(1, sizeof(*h));
    if (h != NULL) h->start_ms = now_ms;
    return h;
}

void history_destroy(struct history **hp) {
    struct history *h = *hp;
    if (h == NULL) return;
    for (size_t i = 0; i < TABLE_INSTANCES; i++) free(h->insts[i].steps);
    free(h);
    *hp = NULL;
}
