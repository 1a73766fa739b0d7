/* lora_file: the tensors of an adapter's file, either a PEFT folder's adapter_model.safetensors or
 * a GGUF file as llama.cpp writes adapters, and which half of which layer's product each one is.
 *
 * GGUF: general.type "adapter", adapter.type "lora", general.architecture that of the base model,
 * adapter.lora.alpha; tensors blk.N.MODULE.weight.lora_a [rank][k] and .lora_b [n][rank], of any
 * type that a tensor may have. The scale is alpha / rank, or 1 where alpha is 0 or absent. Rows of
 * lora_b of q and k lie as those of the architecture's models do. Source: llama.cpp,
 * convert_lora_to_gguf.py and llama-adapter.cpp.
 *
 * Only headers are kept: values are read where they lie. Thread: any. */
#ifndef BATON_ENGINE_LORA_FILE_H
#define BATON_ENGINE_LORA_FILE_H

#include "common/base/gguf.h"
#include "common/engine/lora.h"
#include "common/engine/safetensors.h"
#include "common/engine/tensor_type.h"

struct lora_tensor {
    const char *name, *type_name;
    const struct tensor_type *type; /* NULL: its values cannot be read */
    int n_dims;
    uint64_t dims[ST_DIMS_MAX]; /* slowest first */
    uint64_t begin;             /* in the file */
    int layer;
    enum lora_module module;
    int half; /* 0: A; 1: B */
};

struct lora_file {
    const char *name;            /* what messages call it */
    struct lora_tensor *tensors; /* [n]: halves of layers of the base model, no two the same */
    size_t n;
    bool is_gguf;
    bool pairs;   /* rows of q and k lie as RoPE's pairs */
    double alpha; /* of GGUF */
    struct st_header st;
    struct gguf *gguf;
    uint8_t *head; /* what gguf's strings lie in */
};

/* ERR_BAD_FILE: eb begins with the file's name. On an error there is nothing to close. */
enum err lora_file_open(struct lora_file *f, const struct lora_source *source, bool is_gguf,
                        const struct model_info *base, struct errbuf *eb);
void lora_file_close(struct lora_file *f);
/* The name that a half has in such a file. */
void lora_file_name_of(const struct lora_file *f, int layer, enum lora_module m, int half,
                       char *name, size_t n);

#endif
