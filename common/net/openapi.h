/* openapi: the description of every path, served where it describes: /openapi.json (OpenAPI 3.0)
 * and /docs, a page that shows it. Both are files of this folder, built into the program. */
#ifndef BATON_NET_OPENAPI_H
#define BATON_NET_OPENAPI_H

#include "common/net/router.h"

/* On PLANE_DATA; the handlers take any arg. */
extern const struct route openapi_routes[];

#endif
