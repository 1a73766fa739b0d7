/* Goal: no bytes make the header parser read outside its input, overflow, or hand out a tensor
 * outside the file. Method: the input is a whole file; what is accepted is checked against the
 * promises of safetensors.h. */
#include <stdint.h>
#include <stdlib.h>
#include "common/engine/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct st_header h;
    struct errbuf eb;
    if (st_header_parse(&h, data, size, size, &eb) != ERR_OK) return 0;
    for (size_t i = 0; i < h.n_tensors; i++) {
        const struct st_tensor *t = &h.tensors[i];
        uint64_t count = 1;
        if (t->name == NULL || t->begin > t->end || t->end > size || t->n_dims > ST_DIMS_MAX)
            abort();
        for (int d = 0; d < t->n_dims; d++) count *= t->dims[d];
        if (t->dtype != DTYPE_NONE && t->end - t->begin != count * (t->dtype == DTYPE_F32 ? 4 : 2))
            abort();
    }
    st_header_free(&h);
    return 0;
}
