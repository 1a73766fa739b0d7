/* grpc_reflect: the services grpc.reflection.v1.ServerReflection and v1alpha (kserve-runtimes 14):
 * the files of proto/grpc/ as descriptors, so that a client needs none of its own. Thread: the loop
 * thread. */
#ifndef BATON_GRPC_GRPC_REFLECT_H
#define BATON_GRPC_GRPC_REFLECT_H

#include "common/base/buf.h"
#include "common/net/router.h"

/* Appends the answer to p[n], a ServerReflectionRequest, with the head of a frame. False: it is
 * none. */
bool grpc_reflect_answer(struct buf *out, const char *p, size_t n);

/* On PLANE_DATA, a request for each message of a call; the handlers take any arg. */
extern const struct route grpc_reflect_routes[];

#endif
