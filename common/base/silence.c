/* silence: a sum of steps. */
#include "common/base/silence.h"

void silence_look(struct silence *s, uint64_t now_ms, uint64_t step_max_ms) {
    const uint64_t step = s->look_ms != 0 && now_ms > s->look_ms ? now_ms - s->look_ms : 0;
    s->look_ms = now_ms;
    s->ms += step < step_max_ms ? step : step_max_ms;
}

void silence_end(struct silence *s) {
    s->ms = 0;
}
