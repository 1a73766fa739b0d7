/* inst_internal: the inside of struct instance, for the files of this folder that make it up. */
#ifndef BATON_INSTANCE_INST_INTERNAL_H
#define BATON_INSTANCE_INST_INTERNAL_H

#include <pthread.h>
#include "common/grpc/grpc_health.h"
#include "common/base/budget.h"
#include "common/engine/lora_set.h"
#include "common/instance/dresult_out.h"
#include "common/instance/inst_fault.h"
#include "common/instance/inst_gauge.h"
#include "common/instance/instance.h"
#include "common/instance/kv_lends.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_set.h"
#include "common/instance/role_ctl.h"
#include "common/instance/inst_tls.h"
#include "common/net/api_keys.h"
#include "common/net/dispatch.h"
#include "common/net/http_client.h"
#include "common/net/kept.h"

enum { LISTENERS_MAX = 3 };

struct inst_loader {
    pthread_t thread;
    struct loop_task done, bad; /* loaded, or not; kept weights are not what was packed */
    bool running;
    atomic_bool cancel; /* the instance is to end: loading stops */
    struct engine *engine;
    struct tokenizer *tokenizer;
    struct endpoint *endpoint;
    char model_dir[2 * CONF_PATH_BYTES];
    struct errbuf eb;
    enum err result;
    /* of what is being read, for whoever asks meanwhile; written by the loader's thread */
    struct load_progress {
        _Atomic(const char *) what;             /* NULL: nothing yet */
        _Atomic uint64_t done, total, began_ms; /* bytes */
    } progress;
    uint64_t told_ms; /* the last line */
    int last_tenth;
    int cores[CONF_CPUS_MAX]; /* [n_cores] what the compute threads are pinned to; 0: nothing */
    int n_cores;
};

struct access_log;

struct instance {
    struct inst_conf conf;
    const struct role_ops *const *roles;
    enum inst_role first_role;
    struct inst_tls tls;
    struct budget budget;
    struct http_gate *gate;        /* of all listeners */
    unsigned conns_max;            /* of the business plane */
    struct api_keys *keys;         /* of the user plane; NULL: none are asked for */
    struct cred_watch *creds;      /* keeps tls and keys fresh */
    struct access_log *access_log; /* of the business plane; NULL: none is written */
    struct loop *loop;
    struct dispatch_listener listeners[LISTENERS_MAX];
    int n_listeners;
    struct inst_loader loader;
    bool loaded; /* engine, text and role parts exist */
    struct tokenizer *tokenizer;
    struct endpoint *endpoint;
    struct worker *worker;
    struct text_pool *text_pool;
    struct kv_plane *kv_plane;
    struct kv_lends *lends;
    struct dresult_out *dresult;
    struct lora_set *loras;
    struct text_pool *lora_pool; /* reads adapters */
    struct loop_timer *lora_timer;
    struct lora_unload *lora_unloads; /* unloads that wait: inst_lora.c */
    struct inst_metrics *metrics;
    struct req_set *reqs;
    struct kept_service *kept; /* answers that clients may come back to, of an instance alone */
    unsigned n_vector_jobs;    /* bodies that ask for vectors or scores, until they are answered */
    struct role_ctl *role_ctl;
    struct inst_fault fault;
    struct inst_gauge gauge;
    struct grpc_health *grpc_health;
    struct timed *timed; /* clients of /health/timed that wait: inst_health.c */
    bool timed_testing;
    uint64_t timed_healthy_ms; /* when its last test ended well; 0: it did not */
    bool closing;              /* the loop has ended: what is still posted must not open anything */
    bool stopping;             /* /stopService, or a signal: nothing new is taken in */
    bool stop_signalled;       /* a second signal ends it at once */
    struct http_x *stop_x;
    uint64_t stop_deadline_ms; /* 0: none */
    uint64_t stop_heard_ms;    /* somebody took the results then */
    struct service *service;   /* NULL: no service manager listens */
    struct loop_timer *stop_timer;
    struct http_client *client; /* for registering */
    struct loop_timer *register_timer;
    struct http_call *register_call;
    unsigned register_at;   /* which of several coordinators is asked */
    bool register_failed;   /* the last one did not take it */
    uint64_t registered_ms; /* when it last did; 0: never */
    int exit_status;
};

/* Descriptors for connections of the business plane and for everything else: instance.c. */
uint64_t inst_descriptors_wanted(const struct inst_conf *c);
void inst_stop_service(struct instance *in, struct http_x *x, bool force); /* inst_stop.c */
void inst_stop_by_signal(struct instance *in);
void inst_stop_fini(struct instance *in);
/* The loop has ended: the process does so within a minute, whatever hangs (SIGALRM). */
void inst_stop_bound(void);
void inst_health_fini(struct instance *in); /* after worker_close() */
bool inst_is_well(const void *in);          /* of an instance: it is loaded, and stays */
bool inst_has_model(const void *in, const char *name);
enum err inst_register_start(struct instance *in); /* inst_register.c */
void inst_register_stop(struct instance *in);
/* Chooses those cores, and keeps this thread and those it starts off them. */
void inst_place(struct instance *in);
enum err inst_load_start(
    struct instance *in); /* inst_load.c: loads on a thread, then calls inst_on_loaded */
/* Joins the thread. When it was cancelled and does not end in time (the kernel clears gigabytes, a
 * disk does not answer) the process ends here: there is nothing yet that would want an end. */
void inst_load_wait(struct instance *in);
/* Any thread. False: nothing is being read yet. */
struct load_state {
    const char *what;
    int percent;
    double mb_s, seconds_left; /* from the beginning of what is read */
};
bool inst_load_state(struct inst_loader *l, struct load_state *out);
void inst_on_loaded(struct instance *in); /* instance.c */
/* Before the engine is the worker's: its weights are looked through in the background, and wrong
 * ones end the instance. */
void inst_load_check(struct instance *in);

#endif
