/* gguf: the container of GGUF model files, versions 2 and 3, little-endian: metadata and a table of
 * tensors, checked, and the mapping of a model that is one file or several parts.
 *
 * Format: "GGUF", u32 version, u64 tensors, u64 pairs; the pairs (key, u32 type, value); the tensor
 * infos (name, u32 dimensions, u64 sizes fastest first, u32 type, u64 offset); then, aligned, the
 * data (github.com/ggml-org/ggml docs/gguf.md). Every count, length, product and offset is checked
 * against the bytes that are there before anything is allocated by it or read through it; tensors
 * may not overlap; keys and names are unique.
 *
 * Strings are bytes with a length: no terminator, any content. Ownership: what is lent points into
 * the mapping and lives until gguf_close(). Thread: read-only once open. */
#ifndef BATON_BASE_GGUF_H
#define BATON_BASE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/file_map.h"
#include "proto/err.h"

enum {
    GGUF_PAIRS_MAX = 1 << 16,
    GGUF_TENSORS_MAX = 200000, /* of all parts */
    GGUF_NAME_BYTES_MAX = 127,
    GGUF_KEY_BYTES_MAX = 65535,
    GGUF_DIMS_MAX = 4,
    GGUF_PARTS_MAX = 1000,
};

enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};

/* One pair of the metadata. */
struct gguf_pair {
    const char *key;
    size_t key_bytes;
    enum gguf_kind kind; /* of the value, or of an array's elements */
    bool is_array;
    uint64_t n;           /* elements; 1 when it is no array */
    const uint8_t *value; /* the first element, packed as in the file */
};

struct gguf_tensor {
    char name[GGUF_NAME_BYTES_MAX + 1]; /* without zeros inside */
    uint32_t type;                      /* number in the file: gguf_type_name() */
    int n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* fastest first, as in the file; 1 beyond n_dims */
    uint64_t begin, bytes;        /* from the start of the file */
    int part;
};

struct gguf_header {
    struct gguf_pair *pairs; /* sorted by key */
    size_t n_pairs;
    struct gguf_tensor *tensors; /* sorted by name */
    size_t n_tensors;
    uint64_t bytes; /* of the file before its data */
};

/* The header of a file of file_bytes whose first n bytes are at p; n must hold all but the data.
 * Pure. ERR_BAD_FILE: eb says what, without the file's name. On an error *out is empty. */
enum err gguf_header_parse(struct gguf_header *out, const uint8_t *p, size_t n, uint64_t file_bytes,
                           struct errbuf *eb);
void gguf_header_free(struct gguf_header *h);

/* Name, elements and bytes of a block of a tensor type; NULL: none that a file may hold. */
const char *gguf_type_name(uint32_t type, int *elements, int *bytes);

struct gguf;

/* The GGUF file that `path` names: a .gguf file (of split files the first), or a folder that has no
 * config.json and one such file. ERR_NOT_FOUND: path is neither, so another kind of model;
 * ERR_BAD_FILE: it has several. */
enum err gguf_locate(char *file, size_t n, const char *path, struct errbuf *eb);
/* Reads the headers of file and of the parts that belong to it; nothing else stays mapped. */
enum err gguf_open(struct gguf **out, const char *file, struct errbuf *eb);
/* The same from the bytes of one file, which stay the caller's and must outlive it. */
enum err gguf_open_bytes(struct gguf **out, const uint8_t *p, size_t n, const char *name,
                         struct errbuf *eb);
/* The same from the first n bytes of a file of file_bytes, all of its header among them: metadata
 * and the table of tensors, whose data are not to be had. */
enum err gguf_open_head(struct gguf **out, const uint8_t *p, size_t n, uint64_t file_bytes,
                        const char *name, struct errbuf *eb);
void gguf_close(struct gguf **g);
const char *gguf_name(const struct gguf *g); /* the first file's, without folders */

/* ---- metadata. False: there is no such key, or it is of another kind or range. */
const struct gguf_pair *gguf_find(const struct gguf *g, const char *key);
bool gguf_u64(const struct gguf *g, const char *key, uint64_t *out); /* any kind of integer, >= 0 */
bool gguf_f64(const struct gguf *g, const char *key, double *out);   /* any kind of number */
bool gguf_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_str(const struct gguf *g, const char *key, const char **s, size_t *n);
/* The idx-th element of a pair that is an array (or its only value, idx 0). idx < pair->n. */
bool gguf_pair_i64(const struct gguf_pair *p, uint64_t idx, int64_t *out);
bool gguf_pair_f64(const struct gguf_pair *p, uint64_t idx, double *out);
/* Walks an array of strings: at: zeroed at the beginning; false at its end. */
struct gguf_cursor {
    uint64_t idx, offset;
};
bool gguf_next_str(const struct gguf_pair *p, struct gguf_cursor *at, const char **s, size_t *n);

/* ---- tensors */
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t idx); /* by name */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);
/* Maps the data of the tensors, once; before the first gguf_tensor_data(). ERR_BAD_FILE: a file has
 * been replaced or changed since it was opened. */
enum err gguf_map_tensors(struct gguf *g, struct errbuf *eb);
const uint8_t *gguf_tensor_data(const struct gguf *g, const struct gguf_tensor *t);
/* n bytes of the tensor from that one on are done with: they leave the resident set. */
void gguf_tensor_drop(const struct gguf *g, const struct gguf_tensor *t, uint64_t from, uint64_t n);
/* A part is not read for a while; idx: as with gguf_part(). */
void gguf_drop(const struct gguf *g, int idx);
/* The file of a part, for its name and stamp; NULL past the last. */
const struct file_map *gguf_part(const struct gguf *g, int idx);

#endif
