/* engine: a loaded model, its KV pool and the batch that runs on it. Continuous batching with
 * chunked prefill under a token budget per step, prefix reuse by block hash, sampling.
 *
 * Thread: one engine thread makes all calls, except those marked "any thread".
 * Errors: ERR_BUSY: no slot or no KV blocks now, nothing changed, ask again after a sequence ended.
 * A sequence reserves at admission every KV block it can ever need (prompt + new_tokens_max, cut at
 * seq_tokens_max, less the last token, whose KV nobody reads; SEQ_PREFILL: its ids only), so a
 * running sequence never runs out.
 *
 * Choices. A sequence stands for sampling.n_choices continuations of one prompt, choices 0 ..
 * n_choices-1. The prompt is computed once; its full blocks are shared, all others each choice has
 * for itself. A choice takes a slot of its own (SEQ_PREFILL: one for all), from admission on. All
 * draw their first token in the same step, choice 0 first, each from its own random numbers: choice
 * i says the same whatever else runs, and choice 0 what a sequence with one choice says.
 *
 * Beam search. With sampling.beam the choices of a sequence are beams: its tokens are not drawn,
 * but the n_choices likeliest sequences looked for, by the sum of the log-probabilities of their
 * tokens (those sample.h takes, after penalties and guide). A step:
 * 1. Every beam is continued with each token. The 2 * n_choices best continuations of all beams are
 *    gone through, best first: one that ends (EOS, stop token, length) comes into the pool, which
 *    keeps the n_choices best; any other is a beam of the next step, until there are n_choices.
 * 2. It is over when no beam is left, or the pool is full and its last is at least as good as the
 *    best beam, since sums only fall. Nothing is divided by the length.
 * Equal sums: the beam that ranked better in the step before goes first, then the larger logit,
 * then the lower id; in the pool what ended first. So the result is a function of the request
 * alone, and one beam finds what greedy decoding finds. A guide may leave fewer than n_choices
 * sequences: then the list begins again with the best. Nothing is told before the end, since a beam
 * may lose to another until then. Then each choice gets its tokens, the best sequence as choice 0.
 * A SEQ_PREFILL whose search is not over with the first tokens tells these instead, for
 * engine_beam_start(): the continuations gone through that began a beam or came into the pool, in
 * that order, `choice` counting them, at most 2 * n_choices; `more` is false in the last. In what
 * is told all together every choice has a finish if and only if the search is over.
 *
 * Embedding. A SEQ_EMBED makes one vector of its ids, and with a head for scores a score, in one
 * step or, in a decoder, in chunks; it shares steps with whatever else runs. An encoder takes no
 * other kind. on_embedded tells it; then slot and blocks are free.
 *
 * End of a choice. SEQ_WHOLE and a started SEQ_IMPORT: when on_token carries a finish, slot and
 * blocks of that choice are free already; with the last one the sequence has ended and its id may
 * be used again, from inside the callback too. on_failed ends the sequence with all its choices.
 * SEQ_PREFILL: its first on_token, or on_failed, frees the slot; the blocks stay until
 * engine_seq_release() or engine_seq_cancel(), whatever the finishes say. Callbacks may call every
 * engine_seq_ function, for any sequence. A cancel from inside on_kv ends the sequence at once, but
 * what it holds is free only when the step's pass is over. */
#ifndef BATON_ENGINE_ENGINE_H
#define BATON_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/mem.h"
#include "common/engine/token_guide.h"
#include "proto/err.h"
#include "proto/infer_msg.h"
#include "proto/perf_msg.h"
#include "proto/prefix_msg.h"

/* INT8 and INT4: of weights in groups of 32 along k; INT8 of KV in rows with a scale (kernels.h).
 * F16 and INT4: no KV. From Q4_K on: weights as a GGUF file has them, which nobody can ask for:
 * files of these types are kept so when no other type is. */
enum dtype {
    DTYPE_NONE,
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_INT8,
    DTYPE_INT4,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,
    DTYPE_MXFP4,
    DTYPE_INT8_NARROW, /* int8 weights that meet activations of 8 bits: of matrices in use alone */
    DTYPE_COUNT
};
const char *dtype_name(enum dtype t);       /* "f32", "f16", "bf16", "int8", "int4", "q4_k", .. */
enum dtype dtype_of_name(const char *name); /* DTYPE_NONE: no such name, or none to ask for */

struct engine;
struct lora;

/* How the rows of a sequence become one: their mean, the first, the last. */
enum pooling { POOL_NONE, POOL_MEAN, POOL_CLS, POOL_LAST };

/* To which sizes a model's vectors may be cut. */
enum { MATRYOSHKA_SIZES_MAX = 32 };
struct matryoshka {
    bool any;                           /* any size */
    int n, sizes[MATRYOSHKA_SIZES_MAX]; /* or these; n 0 and not any: none */
};

struct engine_opts {
    const char *model_dir;
    enum dtype weight_dtype; /* BF16, F32, INT8, INT4; NONE: what the file has decides */
    enum dtype kv_dtype;     /* DTYPE_BF16, DTYPE_F32 or DTYPE_INT8 */
    const char *kernels;     /* "auto" (NULL) or the name of a set: kernels.h */
    int n_threads;           /* compute threads, the engine thread included; 0: one per core */
    const int *cpu_ids;      /* [n_threads] cores to pin to, or NULL */
    int block_tokens;        /* cacheBlockSize, 1..128 */
    uint64_t kv_bytes;  /* size of the KV pool; 0: twice batch_max full sequences, at most a quarter
                         * of the free memory, and at most 64 MiB for a model under 1 GiB, yet room
                         * for one full sequence where half of the free memory allows it */
    int seq_tokens_max; /* maxSeqLen; cut to the model's context */
    int batch_max;      /* slots: sequences that run or import at once, but for those by which a
                           tenant below its share may go over it (engine_fair.c); and those that
                           decode in one step */
    int prefill_batch_max; /* sequences in prefill in one step */
    int step_tokens_max;   /* token rows in one step */
    int chunk_tokens;      /* rows of one prompt in one step */
    /* How long a step may last in which sequences decode and prompts wait: in percent, 101 at
     * least, of a step in which they only decode; or in milliseconds, whatever the percentage. Both
     * 0: prompts have all rows there are. Prompts get some rows in any case (step_cost.h). */
    int decode_gap_percent, decode_gap_ms;
    int queue_max; /* sequences waiting for admission */
    bool prefix_cache;
    const char *weight_cache; /* weightCachePath: "auto", "off" (NULL), or a folder where packed
                                 weights are kept for the next start and other processes */
    bool weight_cache_verify; /* holds them against their checksum before they are used */
    enum mem_pages kv_pages;  /* what the KV pool is made of */
    int lora_rank_max;        /* maxLoraRank: room for adapters up to this rank; 0: none are used */
    void (*progress)(void *arg, const char *what, uint64_t done,
                     uint64_t total); /* while loading; may be NULL */
    void *progress_arg;
    /* Set by another thread: the load ends soon, with ERR_STOPPING. May be NULL. */
    const atomic_bool *cancel;
};

struct model_info {
    char family[32];      /* "llama", "mistral", "qwen2", "qwen3", "bert", ... */
    bool encoder;         /* embeds only, and a whole text in one step */
    bool no_head;         /* draws no tokens */
    bool is_embedder;     /* was made to embed */
    enum pooling pooling; /* what it was trained with */
    struct matryoshka matryoshka;
    enum pooling score_pooling;
    int n_labels;   /* numbers of a score; 0: it has no head for scores */
    bool score_raw; /* its author takes them as they are, not through a sigmoid */
    bool two_types; /* the second text of a pair has a token type of its own */
    int n_layers, n_heads, n_kv_heads, head_dim, hidden, intermediate, vocab_size, context_max;
    int rope_dim;          /* the first values of a head, which turn */
    int values_in_keys;    /* latent attention: the first so many values of a KV row are V; 0: V has
                              rows of its own */
    bool adapter_pairs;    /* adapters have the rows of q and k as RoPE's pairs */
    int rope_short_max;    /* keys of longer sequences turn otherwise; 0: all turn alike */
    bool rope_each_length; /* and by their length, not only by being longer */
    int32_t bos_id;        /* -1: none */
    int32_t eos_ids[EOS_IDS_MAX];
    int n_eos;
    enum dtype weight_dtype, kv_dtype;
    char file_type[16]; /* of the embedding matrix in its file: "BF16", "Q4_K", ... */
    uint64_t n_params, weight_bytes;
    uint64_t n_params_active;    /* that one token is computed with */
    int n_experts, experts_used; /* of a layer; 0: none */
    /* Of the KV link's hello: over the config alone (model_conf_hash()), and over config and
     * tensors as in the files. */
    uint8_t conf_hash[32], hash[32];
    char kernels[16];       /* the chosen kernel set */
    const char *arithmetic; /* kernels_arithmetic(); static */
    int n_threads;          /* that compute */
    char weights_from[16];  /* "memory": packed at this start; "packed to cache"; "cache": a file */
    /* generation_config.json; the _set flags say which members exist */
    struct {
        bool do_sample_set, do_sample, temperature_set, top_k_set, top_p_set, min_p_set,
            repetition_penalty_set;
        float temperature, top_p, min_p, repetition_penalty;
        int32_t top_k;
    } gen;
};

/* Loads the model and touches all memory; takes seconds for a large one. eb: which file, which
 * member, what. */
enum err engine_open(struct engine **out, const struct engine_opts *opts, struct errbuf *eb);
void engine_close(struct engine **e);
const struct model_info *engine_model(const struct engine *e); /* any thread */
uint64_t engine_free_memory(void); /* any thread: bytes this process may still take; 0: unknown */
int engine_block_tokens(const struct engine *e);   /* any thread */
int engine_seq_tokens_max(const struct engine *e); /* any thread; after the cut to the context */
/* Any thread: what came into the prefix cache and went since that message (prefix_log_read()); of
 * an engine without one an empty message. */
enum err engine_prefix_changes(const struct engine *e, uint64_t epoch, uint64_t seq,
                               struct prefix_msg *out);

/* ---- sequences; seq_id is the caller's, unique among live sequences */
enum seq_kind {
    SEQ_WHOLE,   /* prefill and decode here */
    SEQ_PREFILL, /* prefill, one token, then hold the KV blocks until engine_seq_release() */
    SEQ_IMPORT, /* blocks are reserved and filled from outside; engine_seq_start() lets it decode */
    SEQ_STAGED, /* both in one place: room as SEQ_WHOLE has, first tokens as SEQ_PREFILL tells them;
                   then it waits for engine_seq_start() like a SEQ_IMPORT whose blocks are filled */
    SEQ_EMBED,  /* one vector is made of all ids, and nothing generated */
    /* These two carry KV from the prefix cache of one instance to that of another; they compute
       nothing and take no slot. Both have the full blocks before the last of their ids (that one is
       computed whatever is known). SEQ_LEND holds those of them that the cache has;
       engine_seq_cancel() ends it. SEQ_FETCH holds these, and room for the others, which are filled
       from outside; engine_seq_keep() ends it, or engine_seq_cancel(). */
    SEQ_LEND,
    SEQ_FETCH,
};
struct seq_embed {
    enum pooling pooling; /* POOL_NONE: the model's own, with `score` that of its head */
    bool score;           /* what the head makes of the vector; ERR_INVALID: there is none */
    int n_first;          /* ids of the first text of a pair; 0: one text */
};
struct seq_opts {
    uint64_t seq_id;
    enum seq_kind kind;
    const int32_t *ids; /* prompt, then tokens already generated (their indices, penalties and
                           limits count); copied */
    size_t n_ids, n_prompt;
    const struct sampling *sampling; /* copied deep; not looked at with SEQ_EMBED */
    struct seq_embed embed;          /* SEQ_EMBED */
    int priority;                    /* 1 first .. 5 last */
    uint64_t tenant; /* whose it is, for shares of slots and blocks (engine_fair.c); 0: nobody's */
    uint64_t prefix_salt;     /* sequences with different salts share no prefix blocks */
    uint64_t digest_seed;     /* where its digests begin (proto/prefix_msg.h): one for each salt
                               */
    struct lora *lora;        /* adapter of this model, of rank lora_rank_max at most, or NULL; the
                                 sequence takes a reference of its own and shares prefix blocks with those
                                 of the same adapter only */
    struct token_guide guide; /* what may be generated, at the beginning of the output; the sequence
                                 forks it for each choice and moves it over generated ids. ops NULL:
                                 anything. Where it allows no token the choice ends, as by an EOS */
};

/* All but SEQ_IMPORT: puts the sequence in the queue; it is admitted in a later step when
 * slot and blocks are free, tenants in turn. ERR_BUSY: the queue is full. ERR_TOO_LARGE: can never
 * fit (eb says which limit). ERR_CONFLICT: seq_id is live. ERR_INVALID: no ids, an id outside the
 * vocabulary, nothing left to generate, a parameter out of range, a beam search as SEQ_STAGED
 * (nothing of it is told before its end, so it can be whole). SEQ_IMPORT, SEQ_LEND, SEQ_FETCH:
 * admitted at once or ERR_BUSY; no on_admitted. ERR_NOT_FOUND: there is nothing to lend or to
 * fetch: no full block, no prefix cache, none of the blocks. */
enum err engine_seq_add(struct engine *e, const struct seq_opts *o, struct errbuf *eb);

/* The blocks that hold the ids given at the add: *block_table points at *n_blocks = ceil(n_ids /
 * block_tokens) pool block numbers in sequence order; lives until the sequence ends. The first
 * *n_held came from the prefix cache: at a SEQ_IMPORT they need not be sent and must not be
 * written. ERR_CONFLICT: not admitted yet. ERR_NOT_FOUND. */
enum err engine_seq_blocks(struct engine *e, uint64_t seq_id, const int32_t **block_table,
                           int *n_blocks, int *n_held);

/* What a choice of an import has generated already; n 0: it has ended, and does not run. */
struct first_ids {
    const int32_t *ids;
    size_t n;
};
/* SEQ_IMPORT whose every block is filled, SEQ_STAGED after the first tokens of all its choices;
 * first: of each choice what was generated elsewhere, of which
 * no KV is here: the token P sampled, or all those of an earlier attempt. The sequence goes on from
 * the next step on; what is missing of the KV is computed like a prompt, in chunks. Events carry on
 * with the index after first. ERR_NOT_FOUND. ERR_CONFLICT: it does not wait for this.
 * ERR_INVALID: not one list for each choice, an id outside the vocabulary, every choice ended, or
 * nothing left to generate after them; still importing. */
enum err engine_seq_start(struct engine *e, uint64_t seq_id, const struct first_ids *first,
                          size_t n_choices);

/* The same for a beam search: what a SEQ_PREFILL of the request told, in its order. ERR_INVALID
 * also: more of one kind than there are beams. ERR_NO_MEMORY: only a cancel is left. */
enum err engine_beam_start(struct engine *e, uint64_t seq_id, const struct token_event *first,
                           size_t n_first);

/* Takes one choice out (its caller found a stop string in its text); the others go on. With the
 * last one the sequence ends as by engine_seq_cancel(). No event for the choice follows. Before the
 * first tokens its slot and blocks stay reserved until those are drawn. ERR_NOT_FOUND: unknown, or
 * ended already. ERR_CONFLICT: SEQ_PREFILL, a beam search that is not over. */
enum err engine_choice_stop(struct engine *e, uint64_t seq_id, int choice);

/* A paused sequence is admitted and keeps what it has, but takes no part in a step until it is
 * resumed. ERR_NOT_FOUND. */
enum err engine_seq_pause(struct engine *e, uint64_t seq_id, bool paused);

/* Ends a sequence in any state, frees its slot and blocks (full prompt blocks may stay in the
 * prefix cache). No event for it follows. ERR_NOT_FOUND: unknown, or ended already. */
enum err engine_seq_cancel(struct engine *e, uint64_t seq_id);
enum err engine_seq_release(
    struct engine *e,
    uint64_t seq_id); /* SEQ_PREFILL after its token: frees what it held. ERR_CONFLICT before it */

/* SEQ_FETCH of which the first n_blocks are filled: they are found in the prefix cache from now on,
 * as if they had been computed here; the sequence ends. ERR_NOT_FOUND; ERR_CONFLICT: of another
 * kind. */
enum err engine_seq_keep(struct engine *e, uint64_t seq_id, int n_blocks);

/* ---- KV blocks. One layer of one block is contiguous: K [n_kv_heads][block_tokens] rows of
 * kv_row_bytes() (kernels.h), then V the same, unless model_info.values_in_keys. Any thread may
 * compute the address; whoever reads or writes must know that the block belongs to a live sequence
 * of his. */
uint8_t *engine_kv_block(const struct engine *e, int layer, int32_t block);
size_t engine_kv_block_bytes(const struct engine *e); /* of one layer of one block */

/* ---- running. Callbacks come on the engine thread, from inside engine_step(). */
struct engine_events {
    void (*on_token)(void *arg, uint64_t seq_id, const struct token_event *ev);
    /* SEQ_PREFILL: blocks [first, first + n) of the sequence's table are final for this layer (all
     * earlier ones too). Blocks taken from the prefix cache are announced for every layer when the
     * sequence is admitted. */
    void (*on_kv)(void *arg, uint64_t seq_id, int layer, int first, int n);
    /* The sequence left the queue: its block table and how many prompt tokens came from the prefix
     * cache. */
    void (*on_admitted)(void *arg, uint64_t seq_id, int n_cached_tokens);
    /* Prompt position i (1..n_prompt-1), with prompt_logprobs: id, logprob and alternatives
     * (prompt_top_logprobs) of prompt token i given those before; the rest of *ev means nothing. */
    void (*on_prompt_logprob)(void *arg, uint64_t seq_id, int position,
                              const struct token_event *ev);
    /* SEQ_EMBED, at its end: f32 [hidden], and [n_labels] with `score` (else NULL); they live until
     * it returns. */
    void (*on_embedded)(void *arg, uint64_t seq_id, const float *vector, const float *scores);
    void (*on_failed)(void *arg, uint64_t seq_id,
                      enum err e); /* the sequence ended by an internal failure */
    void *arg;
};
void engine_set_events(struct engine *e, const struct engine_events *ev);

/* One step: admits, runs up to step_tokens_max rows (decodes first, then prompt chunks by priority
 * and age; an encoder's longer text alone), samples, reports. Returns false when there was nothing
 * to do. */
bool engine_step(struct engine *e);

/* Of the time of steps in which sequences decode and prompts wait, prompts have at most
 * so many percent, 1..99, within decode_gap_percent and decode_gap_ms; 0: whatever these allow. */
void engine_set_prefill_share(struct engine *e, int percent);

/* A one-token dummy inference in a block of its own, for health checks; not counted. ERR_INTERNAL:
 * no finite logits. ERR_CONFLICT: called from inside a step. */
enum err engine_self_test(struct engine *e);

/* Measures the model where nothing has been measured yet: one probe, of some tenths of a second at
 * most, prompts and steps in turn; not counted but in engine_stats.perf. False: there is none left,
 * or they have taken ENGINE_CALIBRATE_S. For moments without work; never from inside a step. */
enum { ENGINE_CALIBRATE_S = 5 };
bool engine_calibrate(struct engine *e);

/* Holds weights that came from a cache file against their checksum, in the background
 * (weights_check.h). Once, after engine_open(). done runs on a thread of the check, at most once
 * and not after engine_close(): ERR_OK, or ERR_BAD_FILE and a text that names the file. Not called
 * where there is nothing to check. */
typedef void engine_checked_fn(void *arg, enum err e, const char *text);
enum err engine_check_weights(struct engine *e, engine_checked_fn *done, void *arg);

/* Any thread: changes as long as a step under way gets on, be it by a part of one product. */
uint64_t engine_progress(const struct engine *e);

/* Rows that went to each of the n_experts experts of a layer since the start, those of self tests
 * too. NULL: the layer has none. Any thread. */
const atomic_uint_least64_t *engine_expert_rows(const struct engine *e, int layer);

struct engine_stats {
    int slots_total, slots_free;   /* batch_max */
    int blocks_total, blocks_free; /* free counts cached prefix blocks that can be taken back */
    int waiting, held;             /* sequences */
    int running, importing;        /* choices: they take the slots */
    uint64_t steps, prompt_tokens /* rows computed */, generated_tokens, prefix_lookup_blocks,
        prefix_hit_blocks, embedded /* sequences */;
    uint64_t drafts, draft_tokens, draft_accepted; /* times a sequence guessed by prompt lookup, the
                                                      tokens it guessed, those that were right */
    /* Steps in which sequences decoded and prompts were computed; the prompts' rows of all of them,
     * and of the one with most. */
    uint64_t shared_steps, shared_prompt_rows, shared_prompt_rows_max;
    double decode_step_us, prompt_row_us; /* what the latest of each took, as step_cost.h has it; 0:
                                             unknown */
    double prefill_tokens_per_s,
        decode_tokens_per_s; /* over the last seconds of steps that had such rows */
    struct perf_msg perf;    /* of prompts as they end, and of steps that only decode */
};
/* Layers whose KV a block holds: those of an encoder use the same one after another. */
static inline int model_kv_layers(const struct model_info *m) {
    return m->encoder ? 1 : m->n_layers;
}

void engine_stats(const struct engine *e,
                  struct engine_stats *out); /* any thread; as after the last call above */

#endif
