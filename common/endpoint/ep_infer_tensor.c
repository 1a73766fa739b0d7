/* ep_infer_tensor: shapes, then, of those that are wanted, elements. */
#include "common/endpoint/ep_infer_tensor.h"

#include <math.h>
#include <string.h>
#include "common/base/base64.h"
#include "common/text/tok_utf8.h"
#include "proto/limits.h"
#include "proto/pb.h"

enum { LENGTH_BYTES = 4 }; /* ahead of each raw text */

static const struct infer_type types[] = {
    {"BYTES", INFER_TEXTS, 0, false, "bytes_contents"},
    {"BOOL", INFER_BOOLEANS, 1, false, "bool_contents"},
    {"INT8", INFER_INTEGERS, 1, true, "int_contents"},
    {"INT16", INFER_INTEGERS, 2, true, "int_contents"},
    {"INT32", INFER_INTEGERS, 4, true, "int_contents"},
    {"INT64", INFER_INTEGERS, 8, true, "int64_contents"},
    {"UINT8", INFER_INTEGERS, 1, false, "uint_contents"},
    {"UINT16", INFER_INTEGERS, 2, false, "uint_contents"},
    {"UINT32", INFER_INTEGERS, 4, false, "uint_contents"},
    {"UINT64", INFER_INTEGERS, 8, false, "uint64_contents"},
    {"FP32", INFER_REALS, 4, false, "fp32_contents"},
    {"FP64", INFER_REALS, 8, false, "fp64_contents"},
};

const struct infer_type *infer_type_of(const char *datatype) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, datatype) == 0) return &types[i];
    return NULL;
}

static enum err fail(const struct infer_tensor *t, struct errbuf *eb, const char *what) {
    return err_set(eb, ERR_INVALID, "inference input '%.128s': %s", t->name, what);
}

/* ---- shape */

static enum err read_shape(struct infer_tensor *t, const struct json_value *input,
                           struct errbuf *eb) {
    struct json_value *shape = NULL;
    json_get_arr(input, "shape", &shape);
    const size_t rank = json_arr_len(shape);
    t->n = 1;
    if (rank < 1 || rank > INFER_RANK_MAX) return fail(t, eb, "shape must have 1 to 8 dimensions");
    for (size_t i = 0; i < rank; i++) {
        int64_t d = -1;
        json_as_i64(json_arr_at(shape, i), &d);
        if (d < 0 || (uint64_t)d > PROMPT_TOKENS_MAX)
            return fail(t, eb, "each dimension of shape must be 0 to 1048576");
        t->n *= (size_t)d;
        if (t->n > PROMPT_TOKENS_MAX)
            return fail(t, eb, "the tensor may have at most 1048576 elements");
    }
    return ERR_OK;
}

/* ---- what it is */

/* Bytes that base64 stands for; of what is no base64, anything. */
static size_t raw_bytes(const struct json_value *raw) {
    const char *s = json_str(raw);
    const size_t n = json_str_len(raw);
    size_t padding = 0;
    while (padding < 2 && padding < n && s[n - 1 - padding] == '=') padding++;
    return n / 4 * 3 - (n >= 4 ? padding : 0);
}

enum err infer_tensor_head(struct infer_tensor *t, const char *model,
                           const struct json_value *input, const struct json_value *raw,
                           struct errbuf *eb) {
    const char *datatype = "";
    struct json_value *contents = NULL;
    size_t n;
    *t = (struct infer_tensor){.name = "", .raw = raw};
    json_get_str(input, "name", &t->name, &n);
    json_get_str(input, "datatype", &datatype, &n);
    t->type = infer_type_of(datatype);
    if (t->type == NULL)
        return err_set(eb, ERR_INVALID,
                       "inference input '%.128s': datatype '%.32s' is none of "
                       "those that are taken",
                       t->name, datatype);
    enum err e = read_shape(t, input, eb);
    if (e != ERR_OK) return e;
    const bool typed = json_get_obj(input, "contents", &contents) == JSON_OK;
    if (raw != NULL && typed)
        return err_set(eb, ERR_INVALID,
                       "contents field must not be specified when using raw_input_contents for "
                       "'%.128s' for model '%.128s'",
                       t->name, model);
    if (!typed && raw == NULL)
        return err_set(eb, ERR_INVALID,
                       "unable to find data for input tensor '%.128s' for model '%.128s' in "
                       "request.",
                       t->name, model);
    json_get_arr(contents, t->type->contents, &t->list);
    return ERR_OK;
}

enum err infer_tensor_fits(const struct infer_tensor *t, struct errbuf *eb) {
    if (t->raw == NULL)
        return json_arr_len(t->list) == t->n
                   ? ERR_OK
                   : fail(t, eb, "contents have another number of elements than the shape");
    const size_t n = raw_bytes(t->raw);
    const bool texts = t->type->class == INFER_TEXTS;
    if (texts ? n < t->n * LENGTH_BYTES : n != t->n * t->type->bytes)
        return fail(t, eb, "the raw bytes have another number of elements than the shape");
    return ERR_OK;
}

/* ---- elements */

static enum err add_text(struct json_value *values, const struct infer_tensor *t, const char *p,
                         size_t n, struct errbuf *eb) {
    if (!tok_utf8_valid(p, n)) return fail(t, eb, "an element of BYTES is not UTF-8");
    json_arr_add(values, json_new_str_n(p, n));
    return ERR_OK;
}

/* Elements in the order of raw bytes: a length of 4 bytes, and so many of them. */
static enum err raw_texts(struct json_value *values, const struct infer_tensor *t,
                          const struct buf *raw, struct errbuf *eb) {
    const unsigned char *p = (const unsigned char *)raw->data;
    size_t at = 0, n = 0;
    enum err e = ERR_OK;
    for (; e == ERR_OK && at < raw->len && n < t->n; n++) {
        if (raw->len - at < LENGTH_BYTES) return fail(t, eb, "the raw bytes end within a length");
        const size_t len = (size_t)p[at] | (size_t)p[at + 1] << 8 | (size_t)p[at + 2] << 16 |
                           (size_t)p[at + 3] << 24;
        at += LENGTH_BYTES;
        if (len > raw->len - at) return fail(t, eb, "an element is longer than the raw bytes");
        e = add_text(values, t, raw->data + at, len, eb);
        at += len;
    }
    if (e == ERR_OK && (n != t->n || at != raw->len))
        return fail(t, eb, "the raw bytes have another number of elements than the shape");
    return e;
}

/* The bits of the i-th element. */
static uint64_t raw_bits(const struct infer_tensor *t, const struct buf *raw, size_t i) {
    const unsigned char *p = (const unsigned char *)raw->data + i * t->type->bytes;
    uint64_t u = 0;
    for (unsigned k = 0; k < t->type->bytes; k++) u |= (uint64_t)p[k] << 8 * k;
    return u;
}

/* An integer in 64 bits; of UINT64, what is above them is negative. */
static int64_t widened(const struct infer_type *type, uint64_t u) {
    const unsigned unused = 64 - 8 * type->bytes;
    return type->is_signed ? (int64_t)(u << unused) >> unused : (int64_t)u;
}

static struct json_value *raw_number(const struct infer_type *type, uint64_t u) {
    if (type->class == INFER_BOOLEANS) return json_new_bool(u != 0);
    if (type->class == INFER_REALS)
        return json_new_f64(type->bytes == 4 ? (double)pb_f32(u) : pb_f64(u));
    if (!type->is_signed && u > INT64_MAX) return json_new_f64((double)u);
    return json_new_i64(widened(type, u));
}

/* The raw bytes of a tensor that fits. */
static enum err take_raw(const struct infer_tensor *t, struct buf *bytes, struct errbuf *eb) {
    if (!base64_take(bytes, json_str(t->raw), json_str_len(t->raw)) && bytes->failed)
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    if (t->type->class != INFER_TEXTS && bytes->len != t->n * t->type->bytes)
        return fail(t, eb, "the raw bytes have another number of elements than the shape");
    return ERR_OK;
}

static enum err read_raw(struct json_value *values, const struct infer_tensor *t,
                         struct errbuf *eb) {
    struct buf bytes = BUF_INIT;
    enum err e = take_raw(t, &bytes, eb);
    if (e == ERR_OK && t->type->class == INFER_TEXTS)
        e = raw_texts(values, t, &bytes, eb);
    else
        for (size_t i = 0; e == ERR_OK && i < t->n; i++)
            json_arr_add(values, raw_number(t->type, raw_bits(t, &bytes, i)));
    buf_free(&bytes);
    return e;
}

static enum err typed_text(struct json_value *values, const struct infer_tensor *t,
                           const struct json_value *v, struct errbuf *eb) {
    struct buf bytes = BUF_INIT;
    enum err e = ERR_NO_MEMORY;
    base64_take(&bytes, json_str(v), json_str_len(v));
    if (!bytes.failed) e = add_text(values, t, bytes.data != NULL ? bytes.data : "", bytes.len, eb);
    buf_free(&bytes);
    return e;
}

static enum err read_typed(struct json_value *values, const struct infer_tensor *t,
                           struct errbuf *eb) {
    enum err e = ERR_OK;
    for (size_t i = 0; i < t->n && e == ERR_OK; i++) {
        struct json_value *v = json_arr_at(t->list, i);
        if (t->type->class == INFER_TEXTS)
            e = typed_text(values, t, v, eb);
        else
            json_arr_add(values, json_ref(v));
    }
    return e;
}

enum err infer_tensor_values(const struct infer_tensor *t, struct json_value **values,
                             struct errbuf *eb) {
    *values = NULL;
    const enum err e = infer_tensor_fits(t, eb);
    if (e != ERR_OK) return e;
    *values = json_new_arr();
    if (*values == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    return t->raw != NULL ? read_raw(*values, t, eb) : read_typed(*values, t, eb);
}

static enum err push_id(struct id_list *ids, int64_t id) {
    return id_list_push(ids, id < 0 || id > INT32_MAX ? -1 : (int32_t)id);
}

enum err infer_tensor_ids(const struct infer_tensor *t, struct id_list *ids, struct errbuf *eb) {
    struct buf bytes = BUF_INIT;
    enum err e = infer_tensor_fits(t, eb);
    if (e == ERR_OK && t->raw != NULL) e = take_raw(t, &bytes, eb);
    for (size_t i = 0; e == ERR_OK && i < t->n; i++) {
        int64_t id = -1;
        if (t->raw == NULL)
            json_as_i64(json_arr_at(t->list, i), &id);
        else
            id = widened(t->type, raw_bits(t, &bytes, i));
        e = push_id(ids, id);
    }
    buf_free(&bytes);
    return e;
}
