/* Goal: no adapter_config.json, no adapter_model.safetensors and no GGUF file make the reader of
 * adapters read outside them, overflow, or take an adapter that does not fit the base model.
 * Method: the input is u16 length of the config, the config, the safetensors file, or a GGUF file;
 * what is accepted is looked through as the forward pass would. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/kernels.h"
#include "common/engine/lora.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
    const uint8_t *data;
    size_t size;
};

static bool read_at(void *arg, uint64_t offset, void *dst, size_t n) {
    const struct file *f = arg;
    if (offset > f->size || n > f->size - offset) return false;
    if (n > 0) memcpy(dst, f->data + offset, n);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct model_info base = {.family = "llama",
                                           .n_layers = 2,
                                           .n_heads = 2,
                                           .n_kv_heads = 1,
                                           .head_dim = 2,
                                           .rope_dim = 2,
                                           .hidden = 4,
                                           .intermediate = 6,
                                           .vocab_size = 8,
                                           .kernels = "ref"};
    struct lora *l = NULL;
    if (size < 2) return 0;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    if (n > size - 2) n = size - 2;
    struct file f = {data + 2 + n, size - 2 - n};
    const bool gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    if (gguf) f = (struct file){data, size};
    const struct lora_source source = {"fuzz", read_at, &f, f.size};
    if (lora_read(&l, gguf ? NULL : (const char *)data + 2, n, &source, &base, 8, NULL) != ERR_OK) {
        if (l != NULL) abort();
        return 0;
    }
    int n_pairs = 0;
    for (int layer = 0; layer < base.n_layers; layer++) {
        for (int m = 0; m < LORA_MODULES; m++) {
            const struct lora_pair *p = lora_pair(l, layer, (enum lora_module)m);
            if (p->rank == 0) continue;
            float row[8];
            if (p->rank < 1 || p->rank > 8 || p->rank > l->rank || !isfinite(p->scale)) abort();
            panel_row_columns(row, p->b, 0, p->rank, DTYPE_F32);
            for (int i = 0; i < p->rank; i++)
                if (!isfinite(row[i])) abort();
            n_pairs++;
        }
    }
    if (n_pairs == 0 || l->bytes == 0) abort();
    lora_unref(&l);
    return 0;
}
