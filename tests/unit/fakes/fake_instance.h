/* fake_instance: an instance with real worker, KV plane, text pool, result stream and HTTP listener
 * around the engine of fake_engine.h and an endpoint that needs no tokenizer. For tests of the
 * roles.
 *
 * A body is "STREAM MAX STOP LOGPROBS TIMEOUT [*CHOICES] [%]: id id id [| id id ..]": e.g.
 * "1 8 -1 0 0 : 5 6 7". %: a beam search, whose tokens P does not tell. STOP: a token id that ends
 * a choice as a stop string would (found by the endpoint, not the engine); -1: none. Anything else
 * is a 422. The answer, streaming: "<id>" for each token, those divisible by 3 held back until the
 * next one, and at the end "(n:REASON:sum)"; else all at once at the end. With several choices or
 * prompts a token is "PART.CHOICE<id>", the end of a choice "(n:REASON)" and that of the answer
 * "[end:sum]". */
#ifndef BATON_TESTS_FAKE_INSTANCE_H
#define BATON_TESTS_FAKE_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>
#include "common/base/budget.h"
#include "common/base/buf.h"
#include "common/instance/dresult_out.h"
#include "common/instance/instance.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_set.h"
#include "common/net/http_server.h"
#include "tests/unit/fakes/fake_engine.h"

struct instance {
    struct loop *loop;
    struct inst_conf conf;
    struct engine *engine; /* the worker's */
    struct worker *worker;
    struct req_set *reqs;
    struct text_pool *text_pool;
    struct kv_plane *kv_plane;
    struct budget budget;
    struct dresult_out *dresult;
    struct http_server *server;
    const struct role_ops *ops;
    void *role;
    const struct role_ops *more_ops; /* of one with two roles */
    void *more;
    uint32_t id;
    bool stopping;
    uint64_t n_random;
    unsigned n_req_ids; /* of a role that names its requests: "m1", "m2", .. */
};

/* What keeps a silent stream open. */
#define FAKE_COMMENT ": still here\n\n"

/* Opens all parts and starts the role. */
void fake_instance_open(struct instance *in, struct loop *loop, const struct role_ops *ops,
                        uint32_t id, const struct fake_engine_opts *eo);
void fake_instance_add(struct instance *in, const struct role_ops *ops); /* a second role */
void fake_instance_close(
    struct instance *in); /* in the order of a daemon: role, text pool, KV plane, worker */
void fake_instance_want(struct instance *in, const struct instance *peer);

/* The n-th answer_create() from now on has no memory, once; 0: none. */
extern int fake_answer_fails_at;
/* Blanks behind the text of each token. */
extern int fake_pad_bytes;
/* The n-th answer_replay() of a choice that has tokens, from now on, waits for the gate, once; 0:
 * none. It says so in *_waits before. */
extern atomic_int fake_replay_waits_at, fake_replay_waits;
extern pthread_mutex_t fake_replay_gate;

/* What the client should get for a body, all pieces joined, one choice after another; *tokens_out
 * (room for 4096) the tokens of the last one, *n_out their number. */
void fake_expected(const char *body, int block_tokens, struct buf *out, int32_t *tokens_out,
                   size_t *n_out);

#endif
