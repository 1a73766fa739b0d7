/* A trace for baton-bench: what is taken gives as many requests as it has rows, in the order of
 * their times, with lengths in their bounds; what is refused says why. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "tools/load/load_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct load_shape shape = {
        .time_scale = 0.5, .length_scale = 0.1, .in = {1, 1}, .out = {1, 1}};
    struct load_source *s = NULL;
    struct errbuf eb = {0};
    if (load_source_create_trace(&s, &shape, (const char *)data, size, &eb) != ERR_OK) {
        require(s == NULL && eb.text[0] != 0);
        return 0;
    }
    struct load_ask a;
    double last = 0;
    size_t n = 0;
    for (; load_source_next(s, &a); n++) {
        require(a.at_s >= last && isfinite(a.at_s));
        require(a.in >= 1 && a.in <= LOAD_TOKENS_MAX && a.out >= 1 && a.out <= LOAD_TOKENS_MAX);
        require(a.n_shared <= LOAD_TRACE_BLOCKS_MAX && (a.n_shared == 0 || a.shared != NULL));
        uint64_t sum = 0;
        for (size_t i = 0; i < a.n_shared; i++) sum += a.shared[i];
        require(a.n_shared > 0 || sum == 0);
        last = a.at_s;
    }
    require(n > 0 && n == load_source_rows(s));
    load_source_free(&s);
    return 0;
}
