/* quant_conf: how a HuggingFace checkpoint says that its linear layers are quantised:
 * quantization_config of config.json, or quantize_config.json or quant_config.json beside it, as
 * the first tools for GPTQ and AWQ wrote them.
 *
 * What the numbers depend on is read and checked; which layers are quantised is decided by the
 * tensors that are there (tensor_packed.h). Source: the configs of AutoAWQ, AutoGPTQ and GPTQModel,
 * compressed-tensors, and transformers' FP8. */
#ifndef BATON_ENGINE_QUANT_CONF_H
#define BATON_ENGINE_QUANT_CONF_H

#include <stdbool.h>

enum quant_method {
    QUANT_NONE,
    QUANT_AWQ,
    QUANT_GPTQ,
    QUANT_COMPRESSED, /* compressed-tensors: packed integers, int8, FP8 */
    QUANT_FP8,
    QUANT_MXFP4, /* of gpt-oss: the experts alone */
};

struct quant_conf {
    enum quant_method method;
    int bits;        /* AWQ, GPTQ: of a value */
    int group;       /* AWQ, GPTQ: inputs that share a scale; 0: all */
    bool zero_point; /* AWQ: zeros are stored; else each is the middle */
    bool zero_less;  /* GPTQ: stored zeros are one less than meant */
    int block[2];    /* FP8: rows and columns that share a scale; 0: the shape of the scales says */
};

const char *quant_method_name(enum quant_method m); /* as config.json has it */

#endif
