/* Goal: no bytes make the reader of quantised layers read outside its tensors or list what it was
 * not given. Method: the input is a quant_conf (method, bits, group, flags, block: a byte each but
 * for the group's two) and then a .safetensors file; of what is accepted the first and the last row
 * are read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/safetensors.h"
#include "common/engine/tensor_packed.h"

enum { CONF_BYTES = 7, IN_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct quant_conf conf_of(const uint8_t *p) {
    static const enum quant_method methods[] = {QUANT_AWQ, QUANT_GPTQ, QUANT_COMPRESSED, QUANT_FP8,
                                                QUANT_MXFP4};
    static const int bits[] = {4, 8, 2};
    struct quant_conf q = {.method = methods[p[0] % 5], .bits = bits[p[1] % 3]};
    if (q.method == QUANT_AWQ) q.bits = 4;
    q.group = p[2] | p[3] << 8;
    q.zero_point = (p[4] & 1) != 0;
    q.zero_less = (p[4] & 2) != 0;
    q.block[0] = p[5];
    q.block[1] = p[5] > 0 ? p[6] + 1 : 0;
    return q;
}

static void look_at(const struct packed_set *s, size_t n_files) {
    if (packed_count(s) > n_files) abort();
    for (size_t i = 0; i < packed_count(s); i++) {
        const struct tensor *t = packed_at(s, i);
        if (i > 0 && strcmp(packed_at(s, i - 1)->name, t->name) >= 0) abort();
        if (packed_find(s, t->name) != t) abort();
        if (t->packed == NULL) continue;
        const bool stack = t->n_dims == 3; /* of experts, whose rows are counted through */
        if ((t->n_dims != 2 && !stack) || t->dims[0] < 1 || t->dims[1] < 1 || t->dims[2] < stack)
            abort();
        const uint64_t in = t->dims[stack ? 2 : 1],
                       out = stack ? t->dims[0] * t->dims[1] : t->dims[0];
        if (in > IN_MAX) continue;
        float *row = malloc((size_t)in * sizeof(*row));
        if (row == NULL) abort();
        packed_rows(t->packed, row, 0, 1);
        packed_rows(t->packed, row, out - 1, 1);
        const struct tensor *part;
        for (int k = 0; (part = packed_part(t->packed, k)) != NULL; k++) {
            uint64_t at, end;
            packed_span(t->packed, k, out - 1, 1, &at, &end);
            if (at > end || end > part->bytes) abort();
        }
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct st_header h;
    struct errbuf eb = {0};
    struct packed_set *s = NULL;
    if (size < CONF_BYTES) return 0;
    const struct quant_conf q = conf_of(data);
    data += CONF_BYTES;
    size -= CONF_BYTES;
    if (st_header_parse(&h, data, size, size, &eb) != ERR_OK) return 0;
    struct tensor *all = calloc(h.n_tensors + 1, sizeof(*all));
    if (all == NULL) abort();
    for (size_t i = 0; i < h.n_tensors; i++) {
        const struct st_tensor *t = &h.tensors[i];
        all[i] = (struct tensor){.name = t->name,
                                 .type_name = t->dtype_text,
                                 .n_dims = t->n_dims,
                                 .bytes = t->end - t->begin,
                                 .data = data + t->begin,
                                 .file = "fuzz"};
        for (int d = 0; d < t->n_dims; d++) all[i].dims[d] = t->dims[d];
    }
    if (packed_open(&s, &q, all, h.n_tensors, &eb) == ERR_OK)
        look_at(s, h.n_tensors);
    else if (eb.text[0] == '\0')
        abort();
    packed_close(&s);
    free(all);
    st_header_free(&h);
    return 0;
}
