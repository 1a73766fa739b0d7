/* openapi: the description of every path, served where it describes: /openapi.json (OpenAPI 3.0)
 * and /docs, a page that shows it. Paths under /v1/ have other errors and wider ranges in OpenAI's
 * manner (errorStyle), so there is one of each. All are built into the program. */
#ifndef BATON_NET_OPENAPI_H
#define BATON_NET_OPENAPI_H

#include "common/net/router.h"

/* On PLANE_DATA; the handlers take any arg. */
extern const struct route openapi_mindie_routes[], openapi_openai_routes[];

#endif
