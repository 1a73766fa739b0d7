/* ep_tgi: TGI on /, /generate and /generate_stream (inference-api 6). Its input is the plain prompt
 * of ep_input. */
#include "common/endpoint/ep.h"

bool ep_tgi_combine(struct ep_read *r) {
    if (r->stream && r->p.decoder_input_details)
        return ep_fail(r, 422, "The decoder_input_details must not be true when stream is true.");
    return true;
}
