/* engine_priv: the inside of the engine, shared by engine*.c and their tests only.
 *
 * A sequence is in exactly one place: the waiting queue, slots (running or importing; one for each
 * choice that has not ended), held (only the id table knows it), or doomed (cancelled inside the
 * pass that still writes its blocks; freed when the pass is over). */
#ifndef BATON_ENGINE_ENGINE_PRIV_H
#define BATON_ENGINE_ENGINE_PRIV_H

#include <pthread.h>
#include "common/engine/engine.h"
#include "common/engine/forward.h"
#include "common/engine/kv_cache.h"
#include "common/engine/sample.h"
#include "common/engine/sched.h"
#include "common/engine/step_cost.h"

/* The calls of forward.h, so that the scheduler's tests can run on a pass that costs nothing
 * and gives itself away when it is handed a wrong block. */
struct forward_ops {
    enum err (*open)(struct forward **out, const struct engine_opts *opts, int rows_max,
                     struct errbuf *eb);
    void (*close)(struct forward **f);
    const struct model_info *(*model)(const struct forward *f);
    void (*run)(struct forward *f, struct kv_cache *kv, const int32_t *ids, int n_rows,
                const struct fwd_seq *seqs, int n_seqs, const int *logit_rows, int n_logits,
                float *logits, void (*on_layer)(void *arg, int layer), void *arg);
    uint64_t (*progress)(const struct forward *f); /* any thread; NULL: not told */
    enum err (*check)(struct forward *f, engine_checked_fn *done, void *arg); /* NULL: nothing to */
    const atomic_uint_least64_t *(*expert_rows)(const struct forward *f, int layer); /* or NULL */
    void (*maxima)(struct forward *f, float *to); /* NULL: none are told */
    int (*row_tile)(const struct forward *f);     /* NULL: rows cost what they are */
    void (*each)(struct forward *f, void (*fn)(void *arg, int item, int thread), void *arg,
                 int n); /* NULL: there is one thread */
};
enum err engine_open_with(struct engine **out, const struct engine_opts *opts,
                          const struct forward_ops *ops, struct errbuf *eb);

enum {
    ENGINE_TENANT_BUCKETS = 256,
    ENGINE_WIDE_ROWS = 32,  /* rows a step whose logits serve prompt_logprobs alone */
    ENGINE_DRAFT_ROWS = 16, /* rows of decoding up to which a step takes guesses along */
    ENGINE_SLOTS_MAX = 65536,
    ENGINE_ROWS_MAX = 1048576,
    ENGINE_QUEUE_MAX = 1048576,
    ENGINE_GAP_MS_MAX = 60000,
    ENGINE_GAP_PERCENT_MAX = 100000,
};

enum seq_state {
    SEQ_ST_NONE,
    SEQ_ST_WAITING,
    SEQ_ST_RUNNING,
    SEQ_ST_IMPORTING,
    SEQ_ST_HELD,
    SEQ_ST_DOOMED
};

struct seq;
struct prompt_lookup;
struct beam_search;

/* One continuation of a prompt: all that differs between the choices of a sequence. Until the
 * prompt is computed only choice 0 runs (the leader), then each goes its own way (engine_fork()).
 * SEQ_PREFILL has the leader alone: it draws the first token of every choice and keeps none. */
struct choice {
    struct seq *seq;
    int idx;
    bool live;     /* has a slot's right and its blocks; false: ended */
    bool stopping; /* taken out by the caller while the step or the prompt still needs it */
    bool parked;   /* beams: waits for the others, or has no beam at present */
    int slot_idx, plan_idx; /* -1: none */
    uint64_t age;           /* unique; orders the rows of a step */

    int32_t *ids; /* [seq->ids_max] */
    int n_ids;
    int n_past;                   /* positions whose KV is in the pool */
    struct prompt_lookup *lookup; /* NULL: it guesses nothing */
    int n_draft, n_right; /* guesses in this pass, behind ids[0..n_ids); right ones so far */
    int32_t *blocks; /* [seq->n_blocks] the first seq->n_shared are the prompt's, in every choice */
    int n_published;
    struct kv_chain chain; /* after n_published blocks */

    uint64_t last_step;
    uint64_t token_us, ready_us, wait_us;
    bool wait_open;           /* not scheduled since ready_us */
    struct token_guide guide; /* of its own, after ids; ops NULL: none */
};

/* What the sequences of one tenant hold together; there while it has any. */
struct tenant {
    uint64_t id;
    struct tenant *next; /* in its bucket */
    unsigned n_seqs;     /* with a pointer to it */
    int n_slots;
    int64_t n_blocks;   /* as their admission counted them */
    uint64_t looked_at; /* by engine_next_waiting() */
};

struct seq {
    uint64_t id, age, salt;
    uint64_t digest_seed;
    struct tenant *tenant;
    int64_t held_blocks; /* counted at its tenant */
    enum seq_kind kind;
    enum seq_state state;
    int priority;
    struct seq *hash_next;
    struct seq *prev, *next; /* waiting queue, or next doomed */

    int n_prompt, ids_max;
    int n_input;     /* ids at the add */
    int rope_tokens; /* how long it may become: the same wherever it runs */
    struct sampling sampling;
    struct seq_embed embed;
    float *pooled, *scores; /* SEQ_EMBED: [hidden], [n_labels] behind it or NULL */
    struct lora *lora;      /* NULL: the base model */
    int32_t *ends;          /* [n_ends] what ends it: EOS ids (unless ignored), then stop tokens */
    int n_ends;

    int n_blocks; /* of one choice */
    int n_shared; /* full blocks of the ids given at the add: shared by all choices */
    bool has_blocks;
    int n_cached_blocks; /* found by prefix at admission */
    int n_final_blocks;  /* announced by on_kv for every layer */
    uint64_t refused_at; /* n_frees when it last did not fit */
    uint64_t arrival_us;
    double prompt_s; /* its part of the steps that computed its prompt */

    bool paused;                /* by its owner: takes no part in steps */
    struct beam_search *search; /* NULL: no beam search */
    bool forked;                /* the choices run, each for itself */
    int n_live;                 /* choices neither ended nor stopping */
    int n_choices;
    struct choice choices[];
};

/* Tokens over time, both fading with the same half-life, so the quotient is a mean over the last
 * seconds. */
struct rate {
    double tokens, s;
};

/* What a draw works with. */
struct draw_tools {
    struct sample_scratch *scratch;
    uint64_t *mask; /* a bit for each id: what a guide allows */
};

/* When a step draws for a part of its plan: those that look at few logits first, before any other
 * is drawn; of the others those ahead of the telling that can be. */
enum draw_when { DRAW_QUICK, DRAW_AHEAD, DRAW_LATE };

struct drawn {
    struct token_event ev;
    enum err why; /* not ERR_OK: there is no token */
    enum draw_when when;
    bool there;
};

enum { DRAW_WAYS = 16 };

struct engine {
    const struct forward_ops *ops;
    struct forward *fwd;
    struct kv_cache *kv;
    struct model_info info;
    struct draw_tools tools[DRAW_WAYS]; /* the first is the engine thread's */
    int n_tools;
    struct engine_events ev;
    int block_tokens, seq_tokens_max, batch_max, slots_max, queue_max, n_blocks;
    struct tenant *tenants[ENGINE_TENANT_BUCKETS];
    int n_tenants;
    uint64_t fair_look;
    struct sched_limits limits;
    struct step_cost cost;
    struct step_bounds bounds;
    uint64_t (*step_clock)(void); /* microseconds: what steps are timed by */
    bool prefix_cache;
    struct prefix_log *prefix_log; /* NULL: there is no prefix cache */
    int lora_rank_max;
    int32_t self_block;

    struct seq **table; /* [table_size] by seq_id, chained */
    uint32_t table_size;
    struct seq *queue_head, *queue_tail; /* by priority, then age */
    int n_waiting, n_held;               /* sequences */
    int n_running, n_importing;          /* slots */
    struct choice **slots;               /* [slots_max], the first n_running + n_importing used */
    struct seq *telling; /* whose admission or first tokens are being told; NULL: it ended */
    struct seq *doomed;
    struct seq *dead; /* ended inside a step: memory only, all else is given back */
    uint64_t next_age, n_frees;
    bool in_step, in_pass;

    /* one step; [slots_max] each unless said otherwise */
    struct sched_seq *views;
    struct choice **view_choices;
    int *view_rows, *order; /* order: [2 * slots_max] */
    struct choice **plan;   /* NULL: ended meanwhile */
    struct fwd_seq *parts;
    int *part_logit; /* index of the first of its logits */
    int n_plan, n_plan_logits;
    struct drawn *drawn; /* of the plan */
    int *ahead;          /* [n_ahead] of the plan: to be drawn side by side */
    int n_ahead;
    atomic_int n_ahead_taken;
    uint64_t pass_us;      /* when the pass was over */
    struct step_seen seen; /* the rows of the plan */
    int32_t *row_ids;      /* [rows_max, in an encoder its longest text at least] */
    int *logit_rows;       /* [logits_max] */
    int logits_max;
    float *logits; /* [logits_max][vocab_size] */
    float *row;    /* [vocab_size, hidden at least] a copy for each choice that draws from the same
                      logits */
    float *maxima; /* [logits_max][groups]: sample_maxima() of the logits; NULL: nobody tells */

    uint64_t steps, prompt_tokens, generated_tokens, lookup_blocks, hit_blocks, embedded;
    uint64_t drafts, draft_tokens, draft_accepted;
    uint64_t shared_steps, shared_prompt_rows, shared_prompt_rows_max;
    int decode_rows; /* of the latest step that decoded */
    double context;  /* of the latest with prompts */
    struct rate prefill_rate, decode_rate;
    struct perf_msg perf;
    int n_probes; /* of engine_calibrate() so far */
    double probes_s;
    pthread_mutex_t stats_lock;
    bool stats_lock_made;
    struct engine_stats stats; /* under stats_lock */
};

/* engine.c */
void engine_stats_publish(struct engine *e);

/* engine_pool.c: how many blocks the pool gets. Pure; free_bytes 0: unknown. */
enum err engine_pool_blocks(const struct engine_opts *opts, const struct model_info *info,
                            int seq_tokens_max, uint64_t free_bytes, int *n_blocks,
                            struct errbuf *eb);

/* engine_seq.c */
struct seq *engine_seq_find(const struct engine *e, uint64_t seq_id);
void engine_seq_end(struct engine *e,
                    struct seq *s); /* any state: gives everything back, frees s */
void engine_seq_hold(struct engine *e, struct seq *s); /* running -> held: gives the slot back */
void engine_seq_stage(struct engine *e,
                      struct seq *s); /* running -> importing: nothing is missing */
void engine_bury(struct engine *e);   /* frees what ended inside steps; not in the middle of one */
void engine_reap_doomed(struct engine *e); /* what was ended or stopped inside the pass */
bool engine_admit(struct engine *e);       /* true when something left the queue */
/* Every block is filled: the slots of the import decode from now on. */
void engine_import_over(struct engine *e, struct seq *s);

/* engine_prefix.c */
static inline bool engine_carries(enum seq_kind kind) {
    return kind == SEQ_LEND || kind == SEQ_FETCH;
}
/* What such a sequence is made of: the full blocks of asked, and of its sampling what tells
 * prefixes apart. ERR_NOT_FOUND: none. */
enum err engine_prefix_opts(const struct engine *e, const struct seq_opts *asked,
                            struct seq_opts *o, struct sampling *sampling, struct errbuf *eb);
/* Its blocks. ERR_NOT_FOUND, ERR_BUSY: nothing is taken. */
enum err engine_prefix_take(struct engine *e, struct seq *s, struct errbuf *eb);

/* engine_step.c */
/* Of a choice whose newest id is this one, with n_ids ids then. */
enum finish engine_finish_of(const struct engine *e, const struct seq *s, int32_t id, int n_ids);
/* Ends a sequence that cannot go on, and tells it. A prefill, which is held by now, keeps its
 * blocks: somebody may be sending them. */
void engine_seq_fail(struct engine *e, struct seq *s, enum err why);
/* The logits after the last row of plan[i] that is no guess. */
float *engine_plan_row(const struct engine *e, int i);

/* engine_draw.c */
/* n_threads: of the options. False: no memory. */
bool engine_draw_open(struct engine *e, int n_threads);
void engine_draw_close(struct engine *e);
/* What the guide of a choice allows; end-of-sequence ids only while they end it, or when there is
 * nothing else. False: no token at all. Any thread, which has the guide's state for itself. */
bool engine_guide_mask(const struct engine *e, const struct choice *c, uint64_t *mask);
/* Its guide, or what the client forbids, may leave no token to choose: the text is complete then.
 */
bool engine_may_run_out(const struct choice *c);
enum err engine_guide_failure(const struct choice *c);                /* token_guide_ops.failed */
const float *engine_maxima(const struct engine *e, const float *row); /* of e->logits; or NULL */
/* The next token of a choice, drawn as choice idx from row, which is changed; maxima: of row. */
void engine_draw(struct engine *e, const struct choice *c, int idx, float *row, const float *maxima,
                 struct drawn *to);
enum draw_when engine_draw_when(const struct engine *e, int i);
/* Draws for all of the plan that are DRAW_AHEAD, into e->drawn; maybe for none. */
void engine_draw_ahead(struct engine *e);

/* engine_fair.c */
int engine_slots_max(int batch_max);
bool engine_tenant_join(struct engine *e, struct seq *s, uint64_t id); /* false: no memory */
void engine_tenant_leave(struct engine *e, struct seq *s);
/* Whether there are slots for s, which is no more than its tenant may have. */
bool engine_slots_allow(const struct engine *e, const struct seq *s);
/* Whose turn it is to be admitted; NULL: nobody waits who may have more. */
struct seq *engine_next_waiting(struct engine *e);

/* engine_choice.c */
int engine_slots_used(const struct engine *e);
void engine_slots_take(struct engine *e, struct seq *s, enum seq_state state);
void engine_slot_give(struct engine *e, struct choice *c);
/* All blocks every choice can ever need, those of a known prefix shared, or nothing. */
bool engine_blocks_take(struct engine *e, struct seq *s);
int64_t engine_blocks_needed(const struct seq *s); /* of all choices together */
/* Full blocks before n_past that are not in the prefix cache yet. */
void engine_choice_publish(struct engine *e, struct choice *c);
/* The prompt's KV is complete: every choice that goes on gets its own copy of the block the prompt
 * has only begun, and those stopped before end. May end the sequence: false then. */
bool engine_fork(struct engine *e, struct seq *s);
/* Gives slot and blocks back; with the last choice the sequence ends: false then. */
bool engine_choice_end(struct engine *e, struct choice *c);
void engine_choice_give(struct engine *e, struct choice *c);        /* only gives them back */
void engine_block_copy(struct engine *e, int32_t to, int32_t from); /* all layers */

/* engine_beam.c */
bool engine_beam_open(struct seq *s); /* false: no memory; seq_free() cleans up */
void engine_beam_free(struct beam_search **b);
/* The logits after the newest id of a beam, changed. With the last beam's the search goes a step
 * on, or is told. */
void engine_beam_logits(struct engine *e, struct choice *c, float *row, uint64_t now_us);

/* engine_draft.c: guesses of the next tokens, checked in the same pass. */
/* Writes guesses behind the ids of a choice that decodes; returns how many. */
int engine_draft(struct choice *c);
/* So many of them run in this pass. */
void engine_draft_plan(struct engine *e, struct choice *c, int n_draft);
/* The choice has drawn id, which is not yet among its ids. True: that was the guess, so the next
 * row of the pass is right, and its KV. */
bool engine_draft_check(struct engine *e, struct choice *c, int32_t id);

#endif
