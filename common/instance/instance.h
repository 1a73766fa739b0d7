/* instance: what an instance is before it has a role: configuration, engine, text, listeners,
 * links, the state of its role. Thread: the loop thread. The parts are opened before the first role
 * starts and closed after the last one stopped. */
#ifndef BATON_INSTANCE_INSTANCE_H
#define BATON_INSTANCE_INSTANCE_H

#include "common/endpoint/endpoint.h"
#include "common/instance/inst_conf.h"
#include "common/instance/role.h"
#include "common/instance/text_pool.h"
#include "common/instance/worker.h"
#include "common/net/kept.h"
#include "common/net/loop.h"

struct dresult_out;
struct req_meters;
struct req_set;
struct kv_plane;
struct instance;

/* The whole program: options, configuration, model, listeners, role, loop. Returns the exit status
 * (0 ok, 1 failure, 2 bad configuration or usage). roles: NULL-terminated; first_role: what a dmi
 * instance of this binary reports as its natural role in logs. */
int instance_main(int argc, char **argv, const struct role_ops *const *roles,
                  enum inst_role first_role);

struct loop *instance_loop(struct instance *in);
const struct inst_conf *instance_conf(const struct instance *in);
const struct endpoint *instance_endpoint(const struct instance *in);
const struct tokenizer *instance_tokenizer(const struct instance *in);
struct worker *instance_worker(struct instance *in);
struct text_pool *instance_text_pool(struct instance *in);
struct kv_plane *instance_kv_plane(struct instance *in);   /* NULL in standard mode */
struct dresult_out *instance_dresult(struct instance *in); /* NULL in standard mode */
struct kept_service *instance_kept(struct instance *in);   /* kept.h */
struct req_meters *instance_meters(struct instance *in);   /* what requests are counted with */
struct req_set *instance_reqs(const struct instance *in);  /* all that are under way */
unsigned instance_can(const struct instance *in);          /* CAN_.. of its role */
uint32_t instance_id(const struct instance *in);           /* from the role body; 0 before */
bool instance_stopping(const struct instance *in);         /* /stopService, or a signal */
/* That, or drained by order: what runs here may go on elsewhere at any time. */
bool instance_leaving(const struct instance *in);
uint64_t instance_random(struct instance *in); /* for seeds and epochs */
/* "endpoint_common_<n>", n random below 2^63 and not 0. False: no random numbers. */
bool instance_next_req_id(struct instance *in, char out[64]);

/* A prompt that was computed here is decoded here, too: as role_ops.take. */
enum err instance_go_on(struct instance *in, struct infer_req **req, struct req_seq **seq,
                        struct kv_commit *c, struct errbuf *eb);

/* Answers x with the family's error body. */
void instance_reply_error(struct instance *in, struct http_x *x, const struct api_path *path,
                          int status, const char *text);
/* Answers x with *a and frees its body. */
void instance_reply(struct http_x *x, struct api_answer *a);

#endif
