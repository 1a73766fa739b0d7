/* decode_queue: offers that wait for room. They wait here and not at P, which would have to ask
 * again and again, and get room by luck: tenants take turns, and of a tenant first comes who was
 * offered first, within its priority, so that a request that needs much is not passed for ever by
 * those that need little.
 *
 * Who is offered here has its blocks at P (kv_tx_offer()), so whatever was granted comes to its end
 * by itself and gives room back: the queue moves. How long one waits is P's affair; what P takes
 * back leaves the queue at once. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "decode/decode_req.h"

enum {
    LOOK_MS = 5,           /* sequences end at steps of the engine, a few ms apart */
    TENANTS_SEEN_MAX = 64, /* that one pass weighs against each other, the longest waiting ones */
    TRY_MS = 25, /* the first is tried so often though it seems not to fit: blocks found by prefix
                    cost nothing, and only the engine knows them */
};

/* As the engine reckons, see engine.h: room for every token the answer may have, the full blocks of
 * the prompt once, the rest for each choice. */
void dpart_reckon(struct dpart *part) {
    const struct infer_req *req = part->req;
    const struct engine *e = worker_engine(instance_worker(part->d->role->in));
    int64_t bt = engine_block_tokens(e), limit = engine_seq_tokens_max(e);
    int64_t n_tokens = (int64_t)req->n_prompt + req->sampling.new_tokens_max;
    int64_t shared = (int64_t)req->n_ids / bt;
    if (n_tokens > limit) n_tokens = limit;
    int64_t own = (n_tokens - 1 + bt - 1) / bt - shared;
    part->n_slots = req->sampling.n_choices;
    part->tenant = worker_tenant(req);
    part->n_blocks = shared + (own > 0 ? own * part->n_slots : 0);
}

static void insert(struct decode *role, struct dpart *part) {
    struct dpart **at = &role->waiting;
    while (*at != NULL && (*at)->stamp < part->stamp) at = &(*at)->wait_next;
    part->wait_next = *at;
    *at = part;
    part->waiting = true;
    role->n_waiting++;
}

static void take(struct decode *role, struct dpart *part) {
    struct dpart **at = &role->waiting;
    while (*at != part) at = &(*at)->wait_next;
    *at = part->wait_next;
    part->waiting = false;
    role->n_waiting--;
}

static void set_trying(struct dpart *part, bool on) {
    struct decode *role = part->d->role;
    int sign = on ? 1 : -1;
    part->trying = on;
    role->n_trying += (unsigned)sign;
    role->trying_slots += sign * part->n_slots;
    role->trying_blocks += sign * part->n_blocks;
}

/* ---- whose turn it is */

static int n_ended(const struct dpart *part) {
    int n = 0;
    for (size_t i = 0; i < sizeof(part->ended) / sizeof(part->ended[0]); i++)
        n += __builtin_popcountll(part->ended[i]);
    return n;
}

/* What a tenant has in the engine. Once in a pass for each that waits, which are few. */
static int64_t slots_of(const struct decode *role, uint64_t tenant) {
    const struct req_set *set = instance_reqs(role->in);
    int64_t n = 0;
    for (const struct inst_req *r = NULL; (r = req_set_next(set, &decode_kind, r)) != NULL;) {
        const struct dreq *d = (const struct dreq *)r;
        for (uint32_t i = 0; i < d->n_parts; i++)
            if (d->parts[i].tenant == tenant && d->parts[i].seq != NULL &&
                req_seq_state(d->parts[i].seq) != RSEQ_OUT)
                n += d->parts[i].n_slots - n_ended(&d->parts[i]);
    }
    return n;
}

/* As the engine has it for its own queue (engine_fair.c): by priority; then whose tenant has least
 * at work; then by age. A tenant's first stands for it. */
static struct dpart *next_of(const struct decode *role) {
    struct dpart *next = NULL;
    int64_t least = 0;
    uint64_t seen[TENANTS_SEEN_MAX];
    size_t n_seen = 0;
    for (struct dpart *part = role->waiting; part != NULL; part = part->wait_next) {
        int priority = part->req->head.priority;
        uint64_t claim = part->tenant ^ (uint64_t)priority; /* a tenant's first of a priority */
        bool stood_for = false;
        for (size_t i = 0; i < n_seen && !stood_for; i++) stood_for = seen[i] == claim;
        if (stood_for || n_seen == TENANTS_SEEN_MAX) continue;
        seen[n_seen++] = claim;
        if (next != NULL && priority > next->req->head.priority) continue;
        int64_t has = slots_of(role, part->tenant);
        if (next != NULL && priority == next->req->head.priority && has >= least) continue;
        next = part;
        least = has;
    }
    return next;
}

static void on_look(void *arg) {
    decode_look(arg);
}

static void watch_room(struct decode *role) {
    if (role->waiting == NULL)
        loop_alarm_stop(&role->room);
    else if (!loop_alarm_is_set(&role->room))
        loop_alarm_set(instance_loop(role->in), &role->room, LOOK_MS, on_look, role);
}

void decode_look(struct decode *role) {
    struct engine_stats st;
    uint64_t now = clock_ms();
    engine_stats(worker_engine(instance_worker(role->in)), &st);
    int64_t slots = st.slots_free - role->trying_slots;
    int64_t blocks = st.blocks_free - role->trying_blocks;
    for (struct dpart *part; (part = next_of(role)) != NULL;) {
        bool fits = part->n_slots <= slots && part->n_blocks <= blocks;
        if (!fits && (role->n_trying > 0 || now - role->tried_ms < TRY_MS)) break;
        slots -= part->n_slots;
        blocks -= part->n_blocks;
        role->tried_ms = now;
        take(role, part);
        set_trying(part, true);
        if (dpart_enter(part) != DPART_QUEUE_FULL) continue;
        (void)dpart_tried(part, true);
        break;
    }
    watch_room(role);
}

static void enter_now(struct dpart *part) {
    set_trying(part, true);
    if (dpart_enter(part) == DPART_QUEUE_FULL) (void)dpart_tried(part, true);
}

void dpart_queue(struct dpart *part) {
    struct decode *role = part->d->role;
    struct engine_stats st;
    engine_stats(worker_engine(instance_worker(role->in)), &st);
    dpart_reckon(part);
    if (part->n_slots > st.slots_total || part->n_blocks > st.blocks_total) {
        enter_now(part); /* it can never fit: the engine says why, and nobody waits behind it */
        return;
    }
    part->stamp = role->next_stamp++;
    insert(role, part);
    decode_look(role);
}

bool dpart_tried(struct dpart *part, bool again) {
    struct decode *role = part->d->role;
    if (part->trying) set_trying(part, false);
    if (!again) return true;
    if (role->n_waiting >= WAITING_MAX) return false;
    insert(role, part);
    watch_room(role);
    return true;
}

void dpart_unqueue(struct dpart *part) {
    if (part->waiting) take(part->d->role, part);
    if (part->trying) set_trying(part, false);
}
