/* Abilities for simulate: what is taken gives a time for any prompt and any step; what is
 * refused says why. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "tools/sim/sim_abilities.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct perf_msg m;
    struct sim_times times;
    struct errbuf eb = {0};
    if (sim_abilities_parse(&m, &times, (const char *)data, size, &eb) != ERR_OK) {
        require(eb.text[0] != 0);
        return 0;
    }
    for (double n = 1; n <= 1 << 20; n *= 4) {
        const double prompt = perf_prompt_s(&m, n), step = perf_step_s(&m, n, n);
        require(isfinite(prompt) && prompt >= 0 && isfinite(step) && step >= 0);
    }
    struct sim_pass pass;
    sim_pass_of(&pass, &m, (unsigned)times.chunk_tokens);
    for (double n = 1; times.chunk_tokens > 0 && n <= 1 << 20; n *= 4) {
        const struct sim_part part = {n - 1, n * 2};
        const double s = sim_pass_s(&pass, &part, 1);
        require(isfinite(s) && s >= 0);
    }
    return 0;
}
