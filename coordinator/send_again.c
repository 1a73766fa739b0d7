/* send_again: waits that double. */
#include "coordinator/send_again.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_client.h"

void send_again_later(struct send_again *a, const struct http_result *r) {
    if (a->wait_ms == 0) /* once for a receiver that is away */
        log_warn(a->area, "event=not_taken url=%s err=%s status=%d detail=\"%s\"", a->url,
                 err_name(r->err), r->status, r->detail != NULL ? r->detail : "");
    a->wait_ms = a->wait_ms == 0                  ? a->first_ms
                 : a->wait_ms * 2 < a->longest_ms ? a->wait_ms * 2
                                                  : a->longest_ms;
    a->not_before_ms = clock_ms() + a->wait_ms;
}

void send_again_done(struct send_again *a, const struct http_result *r, uint64_t not_before_ms) {
    if (r->status < 200 || r->status >= 300)
        log_warn(a->area, "event=refused url=%s status=%d", a->url, r->status);
    else if (a->wait_ms > 0)
        log_info(a->area, "event=taken_again url=%s", a->url);
    a->wait_ms = 0;
    a->not_before_ms = not_before_ms;
}
