/* safetensors: the header of a .safetensors file as a checked table, and a mapped model: one file,
 * or shards with an index.
 *
 * Format (github.com/huggingface/safetensors, README): u64 little-endian header length, a JSON
 * object of that many bytes
 * {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}, then the data,
 * offsets counted from its start. Checked here: the length against the file, every shape product
 * and byte count with overflow checks, offsets inside the data, size == shape x dtype, no overlap,
 * no name twice. Holes are allowed.
 *
 * Data types: F32, F16 and BF16 can be used; tensors of other known types are listed with
 * DTYPE_NONE, so that a file may carry surplus tensors. Thread: one at a time. Ownership: names
 * belong to the table. */
#ifndef BATON_ENGINE_SAFETENSORS_H
#define BATON_ENGINE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/file_map.h"
#include "common/engine/engine.h"
#include "proto/err.h"

enum {
    ST_HEADER_BYTES_MAX = 100 * 1000 * 1000, /* as the reference reader */
    ST_TENSORS_MAX = 200000,                 /* of one file */
    ST_NAME_BYTES_MAX = 512,
    ST_DIMS_MAX = 8,
    ST_SHARDS_MAX = 1000,
};

struct st_tensor {
    char *name;
    char dtype_text[12]; /* as the file writes it */
    enum dtype dtype;    /* DTYPE_NONE: known to the format, not to us */
    int n_dims;
    uint64_t dims[ST_DIMS_MAX];
    uint64_t begin, end; /* bytes from the start of the file */
    int file;            /* index of the shard */
};

struct st_header {
    struct st_tensor *tensors; /* sorted by name */
    size_t n_tensors;
};

/* The header of a file of file_bytes whose first n bytes are at p; n must hold the whole header.
 * Pure. ERR_BAD_FILE: eb says what, without the file's name. On an error *out is empty. */
enum err st_header_parse(struct st_header *out, const uint8_t *p, size_t n, uint64_t file_bytes,
                         struct errbuf *eb);
void st_header_free(struct st_header *h);

struct st_model;

/* Maps dir/model.safetensors, or the shards that dir/model.safetensors.index.json names (plain file
 * names). ERR_NOT_FOUND: neither is there. */
enum err st_model_open(struct st_model **out, const char *dir, struct errbuf *eb);
void st_model_close(struct st_model **m);

/* The file of a shard, for its name and stamp; NULL past the last. */
const struct file_map *st_model_shard(const struct st_model *m, int idx);

size_t st_model_count(const struct st_model *m);
const struct st_tensor *st_model_at(const struct st_model *m, size_t idx); /* by name */
/* NULL: no such tensor. */
const struct st_tensor *st_model_find(const struct st_model *m, const char *name);
const char *st_model_file(const struct st_model *m,
                          const struct st_tensor *t); /* the shard's file name */

/* The tensor's bytes, read-only. May be unaligned. */
const uint8_t *st_model_data(const struct st_model *m, const struct st_tensor *t);
/* Tells the system that the first n bytes of the tensor are done with, so that they leave the
 * resident set. */
void st_model_drop(const struct st_model *m, const struct st_tensor *t, uint64_t from, uint64_t n);

#endif
