/* fake_engine: see fake_engine.h. Follows the rules of engine.h closely enough that a caller who
 * breaks them notices. */
#include "tests/unit/fakes/fake_engine.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS_MAX = 256 };
enum state { ST_FREE, ST_WAITING, ST_PREFILL, ST_HELD, ST_IMPORTING, ST_RUNNING };

struct fseq {
    enum state state;
    uint64_t id, age;
    enum seq_kind kind;
    int32_t *ids; /* [n_input] */
    size_t n_input, n_prompt, n_max;
    int n_choices; /* that run: 1 at a prefill */
    bool paused, started;
    struct fchoice {
        bool live;
        int32_t *ids; /* [n_max - n_input] what is generated */
        size_t n_ids;
        struct token_event first; /* of a beam that came from P */
        bool untold;
    } choices[CHOICES_MAX];
    int32_t *table;
    int n_blocks, n_input_blocks, n_filled, n_held;
    struct sampling sampling;
};

struct engine {
    struct fake_engine_opts o;
    struct model_info info;
    struct engine_events ev;
    size_t block_bytes;
    uint8_t *pool; /* [FAKE_LAYERS][n_blocks][block_bytes] */
    bool *used;
    struct fseq seqs[SEQS_MAX];
    uint64_t next_age;
    atomic_bool held, hang, hangs, fail_next;
    atomic_int allowed, share;
    atomic_uint n_steps, n_added;
    pthread_mutex_t mutex; /* guards stats, which any thread may ask for */
    struct engine_stats stats;
};

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* One token's bytes in one layer: of itself and all before it. */
static uint64_t slot_value(const int32_t *ids, size_t at, int layer) {
    uint64_t h = 17 + (uint64_t)layer;
    for (size_t i = 0; i <= at; i++) h = mix(h, (uint64_t)(uint32_t)ids[i] + 1);
    return h;
}

/* Choice 0 says what a sequence without others says. */
static int32_t token_of(uint64_t h, int choice, const int32_t *generated, size_t n) {
    if (choice > 0) h = mix(h, 1000 + (uint64_t)choice);
    for (size_t i = 0; i < n; i++) h = mix(h, (uint64_t)(uint32_t)generated[i] + 3);
    return (int32_t)((h >> 20) % FAKE_VOCAB);
}

int32_t fake_token_of(int choice, const int32_t *ids, size_t n_ids, size_t n_prompt,
                      int block_tokens, const int32_t *generated, size_t n_generated) {
    uint64_t h = 5;
    (void)block_tokens, (void)n_prompt;
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        for (size_t i = 0; i < n_ids; i++) h = mix(h, slot_value(ids, i, layer));
    }
    return token_of(h, choice, generated, n_generated);
}

int32_t fake_token(const int32_t *ids, size_t n_ids, size_t n_prompt, int block_tokens,
                   const int32_t *generated, size_t n_generated) {
    return fake_token_of(0, ids, n_ids, n_prompt, block_tokens, generated, n_generated);
}

struct engine *fake_engine_create(const struct fake_engine_opts *o) {
    struct engine *e = calloc(1, sizeof(*e));
    assert(e != NULL);
    e->o = *o;
    e->block_bytes = (size_t)o->block_tokens * sizeof(uint64_t);
    e->pool = calloc((size_t)FAKE_LAYERS * (size_t)o->n_blocks, e->block_bytes);
    e->used = calloc((size_t)o->n_blocks, sizeof(*e->used));
    assert(e->pool != NULL && e->used != NULL);
    e->info = (struct model_info){.family = "fake",
                                  .n_layers = FAKE_LAYERS,
                                  .n_heads = 1,
                                  .n_kv_heads = 1,
                                  .head_dim = 2,
                                  .vocab_size = FAKE_VOCAB,
                                  .context_max = 4096,
                                  .n_eos = 1,
                                  .eos_ids = {FAKE_EOS},
                                  .kv_dtype = DTYPE_F32,
                                  .weight_dtype = DTYPE_F32};
    memset(e->info.hash, 3, sizeof(e->info.hash));
    pthread_mutex_init(&e->mutex, NULL);
    return e;
}

void fake_engine_hold(struct engine *e, bool held) {
    atomic_store(&e->held, held);
}
void fake_engine_allow(struct engine *e, int n_steps) {
    atomic_store(&e->allowed, n_steps);
}
void fake_engine_hang(struct engine *e, bool hang) {
    atomic_store(&e->hang, hang);
}
bool fake_engine_hangs(const struct engine *e) {
    return atomic_load(&e->hangs);
}
void fake_engine_fail_next(struct engine *e) {
    atomic_store(&e->fail_next, true);
}
unsigned fake_engine_n_steps(const struct engine *e) {
    return atomic_load(&e->n_steps);
}
void engine_set_prefill_share(struct engine *e, int percent) {
    atomic_store(&e->share, percent);
}
int fake_engine_share(const struct engine *e) {
    return atomic_load(&e->share);
}
unsigned fake_engine_n_added(const struct engine *e) {
    return atomic_load(&e->n_added);
}

/* ---- engine.h */

const char *dtype_name(enum dtype t) {
    return t == DTYPE_F32 ? "f32" : "bf16";
}
const struct model_info *engine_model(const struct engine *e) {
    return &e->info;
}
int engine_block_tokens(const struct engine *e) {
    return e->o.block_tokens;
}
int engine_seq_tokens_max(const struct engine *e) {
    return e->info.context_max;
}
const atomic_uint_least64_t *engine_expert_rows(const struct engine *e, int layer) {
    (void)e, (void)layer;
    return NULL;
}
uint8_t *engine_kv_block(const struct engine *e, int layer, int32_t block) {
    return e->pool + ((size_t)layer * (size_t)e->o.n_blocks + (size_t)block) * e->block_bytes;
}
size_t engine_kv_block_bytes(const struct engine *e) {
    return e->block_bytes;
}
void engine_set_events(struct engine *e, const struct engine_events *ev) {
    e->ev = *ev;
}
bool engine_calibrate(struct engine *e) {
    (void)e;
    return false;
}

enum err engine_self_test(struct engine *e) {
    return atomic_load(&e->held) ? ERR_TIMEOUT : ERR_OK;
}

static int n_live(const struct fseq *s) {
    int n = 0;
    for (int i = 0; i < s->n_choices; i++) n += s->choices[i].live;
    return n;
}

static void publish(struct engine *e) {
    struct engine_stats st = {.slots_total = e->o.batch_max,
                              .blocks_total = e->o.n_blocks,
                              .prefill_tokens_per_s = e->o.prefill_tokens_per_s};
    int used = 0;
    for (int i = 0; i < e->o.n_blocks; i++) {
        if (!e->used[i]) st.blocks_free++;
    }
    for (int i = 0; i < SEQS_MAX; i++) {
        switch (e->seqs[i].state) {
        case ST_WAITING: st.waiting++; break;
        case ST_PREFILL:
        case ST_RUNNING: st.running += n_live(&e->seqs[i]), used += n_live(&e->seqs[i]); break;
        case ST_IMPORTING: st.importing += n_live(&e->seqs[i]), used += n_live(&e->seqs[i]); break;
        case ST_HELD: st.held++; break;
        case ST_FREE: break;
        }
    }
    st.slots_free = e->o.batch_max - used;
    pthread_mutex_lock(&e->mutex);
    e->stats = st;
    pthread_mutex_unlock(&e->mutex);
}

void engine_stats(const struct engine *ce, struct engine_stats *out) {
    struct engine *e = (struct engine *)ce;
    pthread_mutex_lock(&e->mutex);
    *out = e->stats;
    pthread_mutex_unlock(&e->mutex);
    if (out->slots_total == 0) { /* before the first step */
        out->slots_total = out->slots_free = e->o.batch_max;
        out->blocks_total = out->blocks_free = e->o.n_blocks;
        out->prefill_tokens_per_s = e->o.prefill_tokens_per_s;
    }
}

static struct fseq *find(struct engine *e, uint64_t id) {
    for (int i = 0; i < SEQS_MAX; i++) {
        if (e->seqs[i].state != ST_FREE && e->seqs[i].id == id) return &e->seqs[i];
    }
    return NULL;
}

static int slots_used(const struct engine *e) {
    int n = 0;
    for (int i = 0; i < SEQS_MAX; i++) {
        enum state s = e->seqs[i].state;
        if (s == ST_PREFILL || s == ST_RUNNING || s == ST_IMPORTING) n += n_live(&e->seqs[i]);
    }
    return n;
}

static bool take_blocks(struct engine *e, struct fseq *s) {
    int n = 0;
    for (int b = e->o.n_blocks - 1; b >= 0 && n < s->n_blocks;
         b--) { /* from the end, so that tables of two engines differ by use */
        if (!e->used[b]) s->table[n++] = b;
    }
    if (n < s->n_blocks) return false;
    for (int i = 0; i < n; i++) e->used[s->table[i]] = true;
    return true;
}

/* Whether a block of the pool has the KV of the i-th of the sequence. */
static bool block_has(const struct engine *e, int32_t block, const struct fseq *s, int i) {
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        for (int t = 0; t < e->o.block_tokens; t++) {
            uint64_t v;
            memcpy(&v, engine_kv_block(e, layer, block) + (size_t)t * 8, 8);
            if (v != slot_value(s->ids, (size_t)(i * e->o.block_tokens + t), layer)) return false;
        }
    }
    return true;
}

static bool block_is_there(const struct engine *e, const struct fseq *s, int i) {
    return block_has(e, s->table[i], s, i);
}

/* The leading blocks that lie anywhere in the pool: of these the table is made; nobody is to run
 * while they are lent. */
static bool lend_blocks(const struct engine *e, struct fseq *s) {
    int n = 0;
    for (int32_t b; n < s->n_blocks; n++) {
        for (b = 0; b < e->o.n_blocks && !block_has(e, b, s, n);) b++;
        if (b == e->o.n_blocks) break;
        s->table[n] = b;
    }
    s->n_blocks = s->n_input_blocks = n;
    return n > 0;
}

static void free_memory(struct fseq *s) {
    free(s->ids);
    free(s->table);
    for (int i = 0; i < s->n_choices; i++) free(s->choices[i].ids);
    *s = (struct fseq){0};
}

static void free_seq(struct engine *e, struct fseq *s) {
    if (s->state != ST_WAITING && s->kind != SEQ_LEND) {
        for (int i = 0; i < s->n_blocks; i++) e->used[s->table[i]] = false;
    }
    free_memory(s);
    publish(e);
}

enum err engine_seq_add(struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    int bt = e->o.block_tokens;
    atomic_fetch_add(&e->n_added, 1);
    if (find(e, o->seq_id) != NULL) return err_set(eb, ERR_CONFLICT, "sequence is live");
    const bool carries = o->kind == SEQ_FETCH || o->kind == SEQ_LEND;
    if (carries && !e->o.prefix_cache) return err_set(eb, ERR_NOT_FOUND, "no prefix cache");
    if (carries && o->n_ids <= (size_t)bt) return err_set(eb, ERR_NOT_FOUND, "no full block");
    size_t n_kv = o->n_ids + (o->kind == SEQ_PREFILL ? 0 : (size_t)o->sampling->new_tokens_max);
    if (carries) n_kv = (o->n_ids - 1) / (size_t)bt * (size_t)bt;
    int n_blocks = (int)((n_kv + (size_t)bt - 1) / (size_t)bt);
    if (n_blocks > e->o.n_blocks)
        return err_set(eb, ERR_TOO_LARGE, "needs %d KV blocks, the pool has %d", n_blocks,
                       e->o.n_blocks);
    int n_waiting = 0, at = -1;
    for (int i = SEQS_MAX - 1; i >= 0; i--) {
        if (e->seqs[i].state == ST_WAITING) n_waiting++;
        if (e->seqs[i].state == ST_FREE) at = i;
    }
    int n_choices = o->kind == SEQ_PREFILL || carries || o->sampling->n_choices < 1
                        ? 1
                        : o->sampling->n_choices;
    if (n_choices > 1 && n_choices > e->o.batch_max)
        return err_set(eb, ERR_TOO_LARGE, "%d choices, %d slots", n_choices, e->o.batch_max);
    if (at < 0 || (o->kind == SEQ_IMPORT ? slots_used(e) + n_choices > e->o.batch_max
                                         : n_waiting >= e->o.queue_max)) {
        return err_set(eb, ERR_BUSY,
                       o->kind == SEQ_IMPORT ? "no slot is free" : "the queue is full");
    }
    struct fseq *s = &e->seqs[at];
    *s = (struct fseq){.id = o->seq_id,
                       .kind = o->kind,
                       .n_choices = n_choices,
                       .n_input = o->n_ids,
                       .n_prompt = o->n_prompt,
                       .n_blocks = n_blocks,
                       .sampling = *o->sampling,
                       .age = e->next_age++};
    s->n_input_blocks = carries ? n_blocks : (int)((o->n_ids + (size_t)bt - 1) / (size_t)bt);
    s->n_max = o->n_prompt + (size_t)o->sampling->new_tokens_max;
    s->ids = calloc(o->n_ids, sizeof(*s->ids));
    for (int i = 0; i < n_choices; i++) {
        s->choices[i].live = true;
        s->choices[i].ids = calloc(s->n_max - o->n_ids + 2, sizeof(*s->ids));
        assert(s->choices[i].ids != NULL);
    }
    s->table = calloc((size_t)n_blocks, sizeof(*s->table));
    assert(s->ids != NULL && s->table != NULL);
    memcpy(s->ids, o->ids, o->n_ids * sizeof(*s->ids));
    if (o->kind == SEQ_LEND) {
        if (!lend_blocks(e, s)) {
            free_memory(s);
            return err_set(eb, ERR_NOT_FOUND, "the prefix cache has none of the blocks");
        }
        s->state = ST_HELD;
    } else if (o->kind == SEQ_IMPORT || o->kind == SEQ_FETCH) {
        if (!take_blocks(e, s)) {
            free_memory(s);
            return err_set(eb, ERR_BUSY, "no KV blocks");
        }
        s->state = carries ? ST_HELD : ST_IMPORTING;
        const int n_full = (int)(carries ? (size_t)n_blocks : s->n_input / (size_t)bt);
        while (e->o.prefix_cache && s->n_held < n_full && block_is_there(e, s, s->n_held))
            s->n_held++;
    } else {
        s->state = ST_WAITING;
    }
    publish(e);
    return ERR_OK;
}

enum err engine_seq_blocks(struct engine *e, uint64_t id, const int32_t **table, int *n_blocks,
                           int *n_held) {
    struct fseq *s = find(e, id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state == ST_WAITING) return ERR_CONFLICT;
    *table = s->table;
    *n_blocks = s->n_input_blocks;
    *n_held = s->n_held;
    return ERR_OK;
}

enum err engine_seq_start(struct engine *e, uint64_t id, const struct first_ids *first, size_t n) {
    struct fseq *s = find(e, id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != ST_IMPORTING) return ERR_CONFLICT;
    if (n != (size_t)s->n_choices) return ERR_INVALID;
    for (size_t i = 0; i < n; i++) {
        struct fchoice *c = &s->choices[i];
        c->live = first[i].n > 0;
        for (size_t k = 0; k < first[i].n; k++) c->ids[c->n_ids++] = first[i].ids[k];
    }
    if (n_live(s) == 0) return ERR_INVALID;
    s->started = true;
    s->n_filled = s->n_input_blocks;
    s->state = ST_RUNNING;
    publish(e);
    return ERR_OK;
}

/* The beams here are choices that P and D hand over and tell as engine.h says of beams. */
enum err engine_beam_start(struct engine *e, uint64_t id, const struct token_event *first,
                           size_t n) {
    struct fseq *s = find(e, id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != ST_IMPORTING || !s->sampling.beam) return ERR_CONFLICT;
    if (n != (size_t)s->n_choices) return ERR_INVALID;
    bool goes_on = false;
    for (size_t i = 0; i < n; i++) {
        struct fchoice *c = &s->choices[i];
        c->first = first[i];
        c->first.choice = (int32_t)i;
        c->first.index = 0;
        c->untold = true;
        goes_on |= first[i].finish == FINISH_NONE;
    }
    if (!goes_on) return ERR_INVALID;
    s->n_filled = s->n_input_blocks;
    s->state = ST_RUNNING;
    publish(e);
    return ERR_OK;
}

enum err engine_seq_cancel(struct engine *e, uint64_t id) {
    struct fseq *s = find(e, id);
    if (s == NULL) return ERR_NOT_FOUND;
    free_seq(e, s);
    return ERR_OK;
}

enum err engine_seq_pause(struct engine *e, uint64_t id, bool paused) {
    struct fseq *s = find(e, id);
    if (s == NULL) return ERR_NOT_FOUND;
    s->paused = paused;
    return ERR_OK;
}

enum err engine_choice_stop(struct engine *e, uint64_t id, int choice) {
    struct fseq *s = find(e, id);
    if (s == NULL || choice < 0 || choice >= s->n_choices || !s->choices[choice].live)
        return ERR_NOT_FOUND;
    if (s->kind == SEQ_PREFILL) return ERR_CONFLICT;
    s->choices[choice].live = false;
    if (n_live(s) == 0) free_seq(e, s);
    publish(e);
    return ERR_OK;
}

/* What was filled is found by content. */
enum err engine_seq_keep(struct engine *e, uint64_t id, int n_blocks) {
    struct fseq *s = find(e, id);
    (void)n_blocks;
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->kind != SEQ_FETCH) return ERR_CONFLICT;
    free_seq(e, s);
    return ERR_OK;
}

enum err engine_seq_release(struct engine *e, uint64_t id) {
    struct fseq *s = find(e, id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != ST_HELD) return ERR_CONFLICT;
    free_seq(e, s);
    return ERR_OK;
}

/* ---- a step */

static void fill_block(struct engine *e, struct fseq *s, int i) {
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        for (int t = 0; t < e->o.block_tokens; t++) {
            size_t at = (size_t)(i * e->o.block_tokens + t);
            uint64_t v = at < s->n_input ? slot_value(s->ids, at, layer) : 0;
            memcpy(engine_kv_block(e, layer, s->table[i]) + (size_t)t * 8, &v, 8);
        }
    }
}

static uint64_t kv_at(const struct engine *e, const struct fseq *s, size_t at, int layer) {
    uint64_t v;
    const size_t bt = (size_t)e->o.block_tokens;
    memcpy(&v, engine_kv_block(e, layer, s->table[at / bt]) + at % bt * 8, 8);
    return v;
}

static uint64_t read_prompt(const struct engine *e, const struct fseq *s) {
    uint64_t h = 5;
    for (int layer = 0; layer < FAKE_LAYERS; layer++)
        for (size_t i = 0; i < s->n_prompt; i++) h = mix(h, kv_at(e, s, i, layer));
    /* What was generated before counts as if it had been generated here, if its KV is right. */
    for (size_t i = s->n_prompt; i < s->n_input; i++) {
        for (int layer = 0; layer < FAKE_LAYERS; layer++)
            if (kv_at(e, s, i, layer) != slot_value(s->ids, i, layer)) h = mix(h, 99);
        h = mix(h, (uint64_t)(uint32_t)s->ids[i] + 3);
    }
    return h;
}

static void tell_first(struct engine *e, struct fseq *s, struct fchoice *c) {
    const struct token_event ev = c->first;
    uint64_t id = s->id;
    c->untold = false;
    c->ids[c->n_ids++] = ev.id;
    if (ev.finish != FINISH_NONE) c->live = false;
    if (n_live(s) == 0) free_seq(e, s);
    publish(e);
    if (e->ev.on_token != NULL) e->ev.on_token(e->ev.arg, id, &ev);
}

static void make_token(struct engine *e, struct fseq *s, uint64_t h, int choice, int n) {
    const bool waits = s->kind == SEQ_PREFILL || (s->kind == SEQ_STAGED && !s->started);
    struct fchoice *c = &s->choices[waits ? 0 : choice];
    uint64_t id = s->id;
    if (c->untold) {
        tell_first(e, s, c);
        return;
    }
    struct token_event ev = {
        .id = token_of(h, choice, c->ids, c->n_ids), .choice = choice, .batch_size = 1};
    ev.index = (int32_t)(s->n_input + c->n_ids - s->n_prompt);
    ev.logprob = -0.5f;
    ev.more = s->kind == SEQ_PREFILL && s->sampling.beam && choice + 1 < n;
    if (ev.id == FAKE_EOS && !s->sampling.ignore_eos) {
        ev.finish = FINISH_EOS;
    } else if (s->n_input + c->n_ids + 1 >= s->n_max) {
        ev.finish = FINISH_LENGTH;
    }
    if (!waits) {
        c->ids[c->n_ids++] = ev.id;
        if (ev.finish != FINISH_NONE) c->live = false;
        if (n_live(s) == 0) free_seq(e, s);
    }
    publish(e);
    if (e->ev.on_token != NULL) e->ev.on_token(e->ev.arg, id, &ev);
}

/* One token of every choice. */
static void make_tokens(struct engine *e, struct fseq *s) {
    uint64_t id = s->id, h = read_prompt(e, s);
    if (atomic_exchange(&e->fail_next, false)) {
        if (s->kind == SEQ_PREFILL) {
            s->state = ST_HELD;
        } else {
            free_seq(e, s);
        }
        if (e->ev.on_failed != NULL) e->ev.on_failed(e->ev.arg, id, ERR_INTERNAL);
        return;
    }
    bool prefill = s->kind == SEQ_PREFILL, staged = s->kind == SEQ_STAGED && !s->started;
    int n = prefill && s->sampling.n_choices > 1 ? s->sampling.n_choices : s->n_choices;
    if (prefill && s->sampling.beam && e->o.beams_twice) n *= 2;
    if (prefill) s->state = ST_HELD;
    if (staged) s->state = ST_IMPORTING;
    for (int i = 0; i < n && s->state != ST_FREE && s->id == id; i++)
        if (prefill || s->choices[i].live) make_token(e, s, h, i, n); /* staged: all are */
}

static void prefill_some(struct engine *e, struct fseq *s) {
    int first = s->n_filled, n = s->n_input_blocks - first;
    if (n > e->o.chunk_blocks) n = e->o.chunk_blocks;
    for (int i = 0; i < n; i++) fill_block(e, s, first + i);
    s->n_filled += n;
    for (int layer = 0; layer < FAKE_LAYERS && s->kind == SEQ_PREFILL; layer++) {
        if (e->ev.on_kv != NULL) e->ev.on_kv(e->ev.arg, s->id, layer, first, n);
    }
    if (s->n_filled < s->n_input_blocks) return;
    for (size_t i = 1; i < s->n_prompt && s->sampling.prompt_logprobs; i++) {
        if (e->ev.on_prompt_logprob != NULL)
            e->ev.on_prompt_logprob(e->ev.arg, s->id, (int)i,
                                    &(struct token_event){.id = s->ids[i], .logprob = -(float)i});
    }
    s->state = ST_RUNNING;
    make_tokens(e, s);
}

enum err engine_check_weights(struct engine *e, engine_checked_fn *done, void *arg) {
    (void)e;
    (void)done;
    (void)arg;
    return ERR_OK;
}

uint64_t engine_progress(const struct engine *e) {
    return atomic_load(&e->n_steps);
}

bool engine_step(struct engine *e) {
    bool held = atomic_load(&e->held);
    while (atomic_load(&e->hang)) {
        atomic_store(&e->hangs, true);
        poll(NULL, 0, 1);
    }
    atomic_store(&e->hangs, false);
    if (held && atomic_load(&e->allowed) == 0) return false;
    bool any = false;
    for (;;) { /* the oldest first */
        struct fseq *first = NULL;
        for (int i = 0; i < SEQS_MAX; i++) {
            struct fseq *s = &e->seqs[i];
            if (s->state == ST_WAITING && (first == NULL || s->age < first->age)) first = s;
        }
        if (first == NULL || slots_used(e) >= e->o.batch_max || !take_blocks(e, first)) break;
        first->state = ST_PREFILL;
        any = true;
        if (e->ev.on_admitted != NULL) e->ev.on_admitted(e->ev.arg, first->id, 0);
    }
    for (int i = 0; i < SEQS_MAX; i++) {
        struct fseq *s = &e->seqs[i];
        if (s->state == ST_RUNNING && !s->paused) {
            make_tokens(e, s);
            any = true;
        } else if (s->state == ST_PREFILL) {
            prefill_some(e, s);
            any = true;
        }
    }
    publish(e);
    if (any) atomic_fetch_add(&e->n_steps, 1);
    if (any && held)
        atomic_fetch_sub(&e->allowed, 1); /* a step with nothing to do is not counted */
    return any;
}

void engine_close(struct engine **ep) {
    struct engine *e = *ep;
    if (e == NULL) return;
    *ep = NULL;
    for (int i = 0; i < SEQS_MAX; i++) {
        free_memory(&e->seqs[i]);
    }
    pthread_mutex_destroy(&e->mutex);
    free(e->pool);
    free(e->used);
    free(e);
}
