/* budget: counters that are taken by compare and swap. */
#include "common/base/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

enum { SAID_EVERY_MS = 1000 };

static const struct {
    const char *reason, *key, *what;
} texts[BUDGET_COUNT] = {
#define BUDGET_TEXT(id, reason, key, what) [BUDGET_##id] = {reason, key, what},
    BUDGET_ROWS(BUDGET_TEXT)
#undef BUDGET_TEXT
};

void budget_init(struct budget *b) {
    for (int i = 0; i < BUDGET_COUNT; i++) {
        atomic_init(&b->rows[i].limit, UINT64_MAX);
        atomic_init(&b->rows[i].used, 0);
        atomic_init(&b->rows[i].refusals, 0);
        atomic_init(&b->rows[i].said_ms, 0);
    }
}

void budget_limit_set(struct budget *b, enum budget_id id, uint64_t limit) {
    atomic_store(&b->rows[id].limit, limit);
}

bool budget_take(struct budget *b, enum budget_id id, uint64_t n) {
    if (b == NULL) return true;
    struct budget_row *r = &b->rows[id];
    const uint64_t limit = atomic_load(&r->limit);
    uint64_t used = atomic_load(&r->used);
    do {
        if (used > limit || n > limit - used) {
            budget_refused(b, id);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&r->used, &used, used + n));
    return true;
}

bool budget_hold(struct budget *b, enum budget_id id, uint64_t n) {
    if (b == NULL) return true;
    return atomic_fetch_add(&b->rows[id].used, n) + n <= atomic_load(&b->rows[id].limit);
}

void budget_give(struct budget *b, enum budget_id id, uint64_t n) {
    if (b != NULL) atomic_fetch_sub(&b->rows[id].used, n);
}

void budget_refused(struct budget *b, enum budget_id id) {
    if (b == NULL) return;
    struct budget_row *r = &b->rows[id];
    const uint64_t n = atomic_fetch_add(&r->refusals, 1) + 1, now = clock_ms();
    uint64_t said = atomic_load(&r->said_ms);
    if (said != 0 && now - said < SAID_EVERY_MS) return;
    if (!atomic_compare_exchange_strong(&r->said_ms, &said, now))
        return; /* another thread says it */
    const uint64_t limit = atomic_load(&r->limit);
    if (limit != UINT64_MAX)
        log_warn("limit",
                 "event=limit_reached reason=%s used=%llu limit=%llu setting=%s refused=%llu",
                 texts[id].reason, (unsigned long long)atomic_load(&r->used),
                 (unsigned long long)limit, texts[id].key, (unsigned long long)n);
    else
        log_warn("limit", "event=limit_reached reason=%s setting=%s refused=%llu", texts[id].reason,
                 texts[id].key, (unsigned long long)n);
}

uint64_t budget_limit(const struct budget *b, enum budget_id id) {
    return b != NULL ? atomic_load(&b->rows[id].limit) : UINT64_MAX;
}

uint64_t budget_used(const struct budget *b, enum budget_id id) {
    return b != NULL ? atomic_load(&b->rows[id].used) : 0;
}

uint64_t budget_refusals(const struct budget *b, enum budget_id id) {
    return b != NULL ? atomic_load(&b->rows[id].refusals) : 0;
}

const char *budget_reason(enum budget_id id) {
    return texts[id].reason;
}

const char *budget_key(enum budget_id id) {
    return texts[id].key;
}

uint64_t budget_bodies_default(void) {
    const uint64_t most = UINT64_C(256) << 20;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return most;
    const uint64_t part = (uint64_t)pages * (uint64_t)page / 16;
    return part < most ? part : most;
}

/* ---- metrics */
enum { NAME_BYTES = 64, SERIES = 3 };

struct budget_metrics {
    const struct budget *b;
    char names[SERIES][NAME_BYTES];
    struct metric_def defs[SERIES];
    struct metric *refused[BUDGET_COUNT], *used[BUDGET_COUNT], *limit[BUDGET_COUNT];
};

struct budget_metrics *budget_metrics_create(struct metrics *m, const struct budget *b,
                                             const char *who) {
    static const struct {
        const char *name, *help;
        enum metric_kind kind;
    } series[SERIES] = {
        {"limit_refused_total", "What was refused because of a limit.", METRIC_COUNTER},
        {"limit_used", "What is in use of a limited resource.", METRIC_GAUGE},
        {"limit_max", "The most of it that may be in use.", METRIC_GAUGE},
    };
    struct metric_family *f[SERIES];
    struct budget_metrics *bm = calloc(1, sizeof(*bm));
    if (bm == NULL) return NULL;
    bm->b = b;
    for (int i = 0; i < SERIES; i++) {
        snprintf(bm->names[i], NAME_BYTES, "%s_%s", who, series[i].name);
        bm->defs[i] = (struct metric_def){.name = bm->names[i],
                                          .help = series[i].help,
                                          .kind = series[i].kind,
                                          .labels = {"reason"}};
        f[i] = metrics_family(m, &bm->defs[i]);
        if (f[i] == NULL) {
            free(bm);
            return NULL;
        }
    }
    for (int i = 0; i < BUDGET_COUNT; i++) {
        const char *const label[] = {texts[i].reason, NULL};
        bm->refused[i] = metric_of(f[0], label);
        if (budget_limit(b, i) == UINT64_MAX) continue; /* a refusal by a rate or a deadline */
        bm->used[i] = metric_of(f[1], label);
        bm->limit[i] = metric_of(f[2], label);
    }
    return bm;
}

void budget_metrics_read(struct budget_metrics *bm) {
    if (bm == NULL) return;
    for (int i = 0; i < BUDGET_COUNT; i++) {
        metric_add(bm->refused[i],
                   (double)budget_refusals(bm->b, i) - metric_value(bm->refused[i]));
        metric_set(bm->used[i], (double)budget_used(bm->b, i));
        metric_set(bm->limit[i], (double)budget_limit(bm->b, i));
    }
}

void budget_metrics_destroy(struct budget_metrics **bm) {
    free(*bm);
    *bm = NULL;
}
