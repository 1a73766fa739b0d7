/* engine_pool: how large the KV pool becomes. A wrong answer here is an instance that swaps or
 * dies, so an explicit size is held against the memory that is there, and a chosen one stays
 * modest. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/engine/engine_priv.h"

static const uint64_t SMALL_MODEL_BYTES = 1ull << 30;
static const uint64_t SMALL_POOL_BYTES = 64ull << 20;

/* The first number after key in a file of "key number" lines, or of one number when key is "". 0:
 * none. */
static uint64_t file_number(const char *path, const char *key) {
    char line[256];
    uint64_t v = 0;
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) {
            v = strtoull(line + strlen(key), NULL, 10);
            break;
        }
    fclose(f);
    return v;
}

uint64_t engine_free_memory(void) {
    uint64_t host = file_number("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t limit = file_number("/sys/fs/cgroup/memory.max", ""); /* "max" reads as 0 */
    uint64_t used = file_number("/sys/fs/cgroup/memory.current", "");
    if (limit == 0) return host;
    uint64_t left = limit > used ? limit - used : 1;
    return host != 0 && host < left ? host : left;
}

enum err engine_pool_blocks(const struct engine_opts *opts, const struct model_info *info,
                            int seq_tokens_max, uint64_t free_bytes, int *n_blocks,
                            struct errbuf *eb) {
    const struct kv_shape shape = {
        .n_layers = model_kv_layers(info),
        .n_kv_heads = info->n_kv_heads,
        .head_dim = info->head_dim,
        .block_tokens = opts->block_tokens,
        .dtype = info->encoder ? info->kv_dtype : opts->kv_dtype,
        .values_in_keys = info->values_in_keys,
    };
    uint64_t block = kv_block_stride(&shape);
    if (block == 0 || shape.n_layers < 1 ||
        __builtin_mul_overflow(block, (uint64_t)shape.n_layers, &block))
        return err_set(eb, ERR_BAD_CONFIG, "a KV block of %d layers, %d heads of %d is no size",
                       info->n_layers, info->n_kv_heads, info->head_dim);

    uint64_t bytes = opts->kv_bytes, blocks_max = INT32_MAX - 1;
    if (bytes == 0) {
        uint64_t seq_blocks = ((uint64_t)seq_tokens_max + (uint64_t)opts->block_tokens - 1) /
                              (uint64_t)opts->block_tokens;
        uint64_t seq_bytes, free_or_min = free_bytes != 0 ? free_bytes : 4 * SMALL_POOL_BYTES;
        if (__builtin_mul_overflow(seq_blocks, block, &seq_bytes)) seq_bytes = UINT64_MAX;
        bytes = free_or_min / 4;
        if (info->weight_bytes < SMALL_MODEL_BYTES && bytes > SMALL_POOL_BYTES)
            bytes = SMALL_POOL_BYTES;
        if (bytes < seq_bytes) bytes = seq_bytes < free_or_min / 2 ? seq_bytes : free_or_min / 2;
        if (bytes < block) bytes = block;
        /* Twice what the slots can fill: held prompts and cached prefixes have no slot. */
        if (2 * seq_blocks * (uint64_t)opts->batch_max < blocks_max)
            blocks_max = 2 * seq_blocks * (uint64_t)opts->batch_max;
    } else if (bytes < block) {
        return err_set(eb, ERR_BAD_CONFIG,
                       "a KV pool of %" PRIu64 " bytes is less than one block of %" PRIu64, bytes,
                       block);
    } else if (free_bytes != 0 && bytes > free_bytes) {
        return err_set(eb, ERR_BAD_CONFIG,
                       "a KV pool of %" PRIu64 " bytes does not fit the %" PRIu64
                       " bytes of free memory",
                       bytes, free_bytes);
    }
    uint64_t n = bytes / block;
    *n_blocks = (int)(n < blocks_max ? n : blocks_max);
    return ERR_OK;
}
