/* tensor_source: the tensors of a model on disk, whatever files hold them: a folder with
 * .safetensors files, or GGUF. Mapped read-only; nothing is copied.
 *
 * Thread: read-only once open. Ownership: names and bytes belong to the source. */
#ifndef BATON_ENGINE_TENSOR_SOURCE_H
#define BATON_ENGINE_TENSOR_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/file_map.h"
#include "common/engine/quant_conf.h"
#include "common/engine/tensor_type.h"
#include "proto/err.h"

enum { TENSOR_DIMS_MAX = 8 };

struct tensor_source;
struct packed_linear;

struct tensor {
    const char *name;               /* in its file */
    const char *type_name;          /* as the file has it */
    const struct tensor_type *type; /* NULL: known to the format, but its values cannot be read */
    int n_dims;
    uint64_t dims[TENSOR_DIMS_MAX]; /* slowest first: a matrix is [rows][columns] */
    uint64_t bytes;
    const uint8_t *data; /* may be unaligned */
    const char *file;
    /* A quantised layer, of several tensors: packed_rows() has its values (tensor_packed.h). */
    const struct packed_linear *packed;
    const void *own; /* the source's */
};

/* path: a model folder or a GGUF file (gguf_locate()). ERR_NOT_FOUND: there are no tensors. */
enum err tensor_source_open(struct tensor_source **out, const char *path, struct errbuf *eb);
void tensor_source_close(struct tensor_source **s);
/* From now on quantised linear layers are seen as matrices, as the config says they are. */
enum err tensor_source_unpack(struct tensor_source *s, const struct quant_conf *q,
                              struct errbuf *eb);

/* What messages call it: "config.json and .safetensors files" or the GGUF file. */
bool tensor_source_is_gguf(const struct tensor_source *s);
size_t tensor_source_count(const struct tensor_source *s);
/* idx < count; by name. */
void tensor_source_at(const struct tensor_source *s, size_t idx, struct tensor *out);
bool tensor_source_find(const struct tensor_source *s, const char *name, struct tensor *out);
/* n bytes of a tensor that is not quantised are done with, from that one on: they leave the
 * resident set. */
void tensor_source_drop(const struct tensor_source *s, const struct tensor *t, uint64_t from,
                        uint64_t n);
/* Rows of a quantised layer likewise: of formats in which they do not lie apart all of it. */
void tensor_source_drop_rows(const struct tensor_source *s, const struct packed_linear *p,
                             uint64_t first, uint64_t n);

/* No file is read for a while. */
void tensor_source_drop_all(const struct tensor_source *s);

/* The files, for their names and stamps; NULL past the last. */
const struct file_map *tensor_source_file(const struct tensor_source *s, int idx);

#endif
