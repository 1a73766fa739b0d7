/* openapi: the description of every path, served where it describes: /openapi.json (OpenAPI 3.0)
 * and /docs, a page that shows it. Paths under /v1/ have other errors and wider ranges in OpenAI's
 * manner (errorStyle), so there is one of each. All are built into the program. */
#ifndef BATON_NET_OPENAPI_H
#define BATON_NET_OPENAPI_H

#include "common/net/router.h"
#include "proto/api_error.h"

/* Answers GET /openapi.json. model: the served one, which examples and paths name. */
void openapi_reply(struct http_x *x, enum error_style style, const char *model);

/* /docs on PLANE_DATA; the handler takes any arg. */
extern const struct route openapi_docs_routes[];

#endif
