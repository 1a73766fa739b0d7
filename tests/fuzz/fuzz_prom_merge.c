/* Fuzz target: texts of instances. The first byte says how many the input is cut into; whatever
 * they hold, what is written of them is the format again, and reading it changes nothing. */
#include <stdint.h>
#include <stdlib.h>
#include "coordinator/prom_merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct prom_merge *pm, *again;
    struct buf out = BUF_INIT;
    if (size == 0) return 0;
    size_t parts = 1 + data[0] % 4, piece = (size - 1) / parts;
    if (prom_merge_create(&pm) != ERR_OK || prom_merge_create(&again) != ERR_OK) abort();
    for (int round = 0; round < 2; round++) {
        prom_merge_begin(pm);
        for (size_t i = 0; i < parts; i++) {
            const struct prom_source src = {.id = (uint32_t)i,
                                            .role = i % 2 ? "decode" : "prefill",
                                            .name = i % 2 ? "a" : "b",
                                            .address = "10.0.0.1:1",
                                            .blocks = 10};
            prom_merge_add(pm, &src, (const char *)data + 1 + i * piece, piece);
        }
    }
    prom_merge_forget(pm, 0);
    prom_merge_write(pm, &out);
    if (out.len > 0 && out.len <= PROM_TEXT_BYTES_MAX &&
        prom_merge_add(
            again,
            &(struct prom_source){.id = 1, .role = "x", .name = "n", .address = "a", .blocks = 1},
            out.data, out.len) != ERR_OK)
        abort();
    buf_free(&out);
    prom_merge_destroy(&pm);
    prom_merge_destroy(&again);
    return 0;
}
