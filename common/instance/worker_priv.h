/* worker_priv: what the two halves of the worker share: worker.c is the loop thread's,
 * worker_engine.c the engine thread's. */
#ifndef BATON_INSTANCE_WORKER_PRIV_H
#define BATON_INSTANCE_WORKER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "common/instance/mailbox.h"
#include "common/instance/worker.h"

enum { TABLE_SIZE = 1024 }; /* buckets of each table of sequences; a power of two */

enum command_kind {
    CMD_ADD,
    CMD_START,
    CMD_BEAM_START,
    CMD_STOP,
    CMD_PAUSE,
    CMD_CANCEL,
    CMD_RELEASE,
    CMD_KEEP,
    CMD_SELF_TEST,
    CMD_HOLD
};

struct command {
    struct command *next;
    enum command_kind kind;
    bool counted; /* against n_commands_max */
    uint64_t seq_id;
    struct seq *seq; /* CMD_ADD, CMD_CANCEL, CMD_RELEASE, CMD_KEEP: the record; NULL when the loop
                        knew none */
    struct seq_opts opts;      /* CMD_ADD: ids and sampling are the command's own, the adapter is a
                                  reference */
    int32_t *ids;              /* CMD_ADD; CMD_START: of all lists */
    struct first_ids *lists;   /* CMD_START: [n_ids] */
    struct token_event *first; /* CMD_BEAM_START: [n_ids] */
    int choice;                /* CMD_STOP */
    size_t n_ids;
    struct sampling sampling;
    int n_blocks;                          /* CMD_KEEP */
    loop_fn *done;                         /* CMD_CANCEL, CMD_RELEASE, CMD_KEEP */
    bool held;                             /* CMD_HOLD, CMD_PAUSE */
    void (*tested)(void *arg, enum err e); /* CMD_SELF_TEST, CMD_HOLD */
    struct worker_mail *answer;            /* the same: room for what tells of it */
    void *done_arg;
};

enum mail_kind {
    MAIL_ADMITTED,
    MAIL_REFUSED,
    MAIL_TOKEN,
    MAIL_PROMPT_LOGPROB,
    MAIL_EMBEDDED,
    MAIL_FAILED,
    MAIL_DONE,
    MAIL_TESTED
};

struct worker_mail {
    struct mail head;
    enum mail_kind kind;
    bool last; /* the sequence has ended with this event */
    uint64_t seq_id;
    enum err e;
    union {
        struct {
            int n_blocks, n_held, n_cached;
        } admitted;
        char text[ERR_TEXT_BYTES_MAX];
        struct token_event token;
        struct {
            int position;
            struct token_event ev;
        } prompt;
        struct {
            int n_vector, n_scores;
        } embedded;
        struct command *cmd; /* MAIL_DONE, MAIL_TESTED */
    } u;
    int32_t table[]; /* MAIL_ADMITTED; MAIL_EMBEDDED: f32, the vector, then the scores */
};

struct seq {
    struct seq *loop_next;   /* chain of the loop's table */
    struct seq *engine_next; /* chain of the engine's table */
    uint64_t seq_id;
    enum seq_kind kind;
    struct worker_events ev;
    void *arg;
    uint64_t stopped[(CHOICES_MAX + 63) / 64]; /* loop thread: choices of which nothing is told */
    int n_live;           /* engine thread: choices that have not ended there */
    const int32_t *table; /* engine thread: block table once admitted */
    int n_blocks;
    struct command end;     /* the cancel or release command */
    struct command *resume; /* loop thread: of a paused one, for which there is memory so */
    /* Engine thread: events for which there is memory beforehand. What cannot be told for want of
     * it ends the sequence, and that, and its end, is always told. */
    struct worker_mail *spare_end, *spare_failure;
};

struct worker {
    struct loop *loop;
    struct engine *engine;
    struct lora_set *loras;
    bool shared_prefixes;
    atomic_int prefill_share;
    uint8_t salt_key[16];
    struct mailbox *mail;
    pthread_t thread;
    bool started;
    uint64_t last_seq_id;
    struct seq *live[TABLE_SIZE]; /* loop thread */
    struct loop_timer *watch;     /* loop thread, with what follows */
    uint64_t seen_progress;
    unsigned n_still; /* looks in a row that saw nothing move */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;   /* on the monotonic clock */
    struct command *first, **last;
    size_t n_counted, n_counted_max;
    bool stop;

    bool held;                          /* engine thread: no steps */
    struct seq *known[TABLE_SIZE];      /* engine thread */
    struct mail *out, **out_last;       /* engine thread: events of the step under way */
    struct metric *_Atomic step_tokens; /* NULL: nobody counts */
    atomic_bool calibrating;            /* there may be something to measure */
    _Atomic uint64_t last_step_us;
};

static inline size_t worker_bucket(uint64_t seq_id) {
    return (size_t)((seq_id * 0x9e3779b97f4a7c15u) >> 54) & (TABLE_SIZE - 1);
}

void worker_command_free(struct command *c);
void worker_seq_free(struct seq *s);
/* The engine thread, and what the engine calls on it. */
void *worker_engine_main(void *arg);
void worker_engine_events(struct worker *w);

#endif
