/* engine_load: the engine on the real forward pass. Apart from engine.c so that the scheduler's
 * tests need no model. */
#include "common/engine/engine_priv.h"

enum err engine_open(struct engine **out, const struct engine_opts *opts, struct errbuf *eb) {
    static const struct forward_ops real = {
        forward_open,  forward_close,       forward_model,  forward_run,      forward_progress,
        forward_check, forward_expert_rows, forward_maxima, forward_row_tile, forward_each,
    };
    return engine_open_with(out, opts, &real, eb);
}
