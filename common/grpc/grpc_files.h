/* grpc_files: the .proto files, as they are in proto/grpc/: GET /proto lists their names, a line
 * each, GET /proto/NAME is one of them. */
#ifndef BATON_GRPC_GRPC_FILES_H
#define BATON_GRPC_GRPC_FILES_H

#include "common/net/router.h"

/* On PLANE_DATA; the handlers take any arg. */
extern const struct route grpc_file_routes[];

#endif
