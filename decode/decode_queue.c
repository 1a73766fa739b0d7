/* decode_queue: offers that wait for room. They wait here and not at P, which would have to ask
 * again and again, and get room by luck: first comes who was offered first, within its priority, so
 * that a request that needs much is not passed for ever by those that need little.
 *
 * Who is offered here has its blocks at P (kv_tx_offer()), so whatever was granted comes to its end
 * by itself and gives room back: the queue moves. How long one waits is P's affair; what P takes
 * back leaves the queue at once. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "decode/decode_req.h"

enum {
    LOOK_MS = 5, /* sequences end at steps of the engine, a few ms apart */
    TRY_MS = 25, /* the first is tried so often though it seems not to fit: blocks found by prefix
                    cost nothing, and only the engine knows them */
};

/* As the engine reckons, see engine.h: room for every token the answer may have, the full blocks of
 * the prompt once, the rest for each choice. */
static void reckon(struct dpart *part) {
    const struct infer_req *req = part->req;
    const struct engine *e = worker_engine(part->d->worker);
    int64_t bt = engine_block_tokens(e), limit = engine_seq_tokens_max(e);
    int64_t n_tokens = (int64_t)req->n_prompt + req->sampling.new_tokens_max;
    int64_t shared = (int64_t)req->n_ids / bt;
    if (n_tokens > limit) n_tokens = limit;
    int64_t own = (n_tokens - 1 + bt - 1) / bt - shared;
    part->n_slots = req->sampling.n_choices;
    part->n_blocks = shared + (own > 0 ? own * part->n_slots : 0);
}

static bool before(const struct dpart *a, const struct dpart *b) {
    int pa = a->req->priority, pb = b->req->priority;
    return pa != pb ? pa < pb : a->stamp < b->stamp;
}

static void insert(struct decode *role, struct dpart *part) {
    struct dpart **at = &role->waiting;
    while (*at != NULL && before(*at, part)) at = &(*at)->wait_next;
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

static void on_look(void *arg) {
    decode_look(arg);
}

static void watch_room(struct decode *role) {
    if (role->waiting == NULL) {
        loop_timer_stop(&role->room);
    } else if (role->room == NULL && loop_timer_start(&role->room, instance_loop(role->in), LOOK_MS,
                                                      LOOK_MS, on_look, role) != ERR_OK) {
        log_error("decode", "event=no_timer waiting=%u: the next offer or end looks again",
                  role->n_waiting);
    }
}

void decode_look(struct decode *role) {
    struct engine_stats st;
    uint64_t now = clock_ms();
    engine_stats(worker_engine(instance_worker(role->in)), &st);
    int64_t slots = st.slots_free - role->trying_slots;
    int64_t blocks = st.blocks_free - role->trying_blocks;
    while (role->waiting != NULL) {
        struct dpart *part = role->waiting;
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
    reckon(part);
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
