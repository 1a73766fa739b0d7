/* model_config: what OpenVINO Model Server says of its models at /v1/config (kserve-runtimes 9). */
#ifndef BATON_NET_MODEL_CONFIG_H
#define BATON_NET_MODEL_CONFIG_H

#include <stdbool.h>
#include "common/net/http_server.h"

/* Answers GET /v1/config and POST /v1/config/reload, of which nothing is ever reloaded. available:
 * the model serves, else it is loading. */
void model_config_reply(struct http_x *x, const char *name, bool available);

#endif
