/* model_config: the one model, in its one version. */
#include "common/net/model_config.h"

#include <string.h>
#include "common/base/buf.h"

void model_config_reply(struct http_x *x, const char *name, bool available) {
    struct buf b = BUF_INIT;
    buf_putc(&b, '{');
    buf_json_str(&b, name, strlen(name));
    buf_printf(&b,
               ":{\"model_version_status\":[{\"version\":\"1\",\"state\":\"%s\",\"status\":"
               "{\"error_code\":\"OK\",\"error_message\":\"OK\"}}]}}",
               available ? "AVAILABLE" : "LOADING");
    http_x_reply(x, b.failed ? 503 : 200, "application/json", b.data, b.failed ? 0 : b.len);
    buf_free(&b);
}
