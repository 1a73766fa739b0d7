/* ep_infer_tensor: shapes, then, of those that are wanted, elements. */
#include "common/endpoint/ep_infer_tensor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
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
    {"FP16", INFER_REALS, 2, true, NULL},
    {"BF16", INFER_REALS, 2, false, NULL},
    {"FP32", INFER_REALS, 4, true, "fp32_contents"},
    {"FP64", INFER_REALS, 8, true, "fp64_contents"},
};

const struct infer_type *infer_type_of(const char *datatype, size_t n) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strlen(types[i].name) == n && memcmp(types[i].name, datatype, n) == 0) return &types[i];
    return NULL;
}

__attribute__((format(printf, 3, 4))) static enum err fail(const struct infer_tensor *t,
                                                           struct errbuf *eb, const char *what,
                                                           ...) {
    char text[200];
    va_list ap;
    va_start(ap, what);
    vsnprintf(text, sizeof(text), what, ap);
    va_end(ap);
    return err_set(eb, ERR_INVALID, "inference input '%.128s': %s", t->name, text);
}

static enum err fail_number(const struct infer_tensor *t, size_t got, struct errbuf *eb) {
    return fail(t, eb, "%s have another number of elements than the shape: it says %zu, got %zu",
                t->list != NULL ? t->is_data ? "the data" : "contents" : "the raw bytes", t->n,
                got);
}

static enum err fail_bytes(const struct infer_tensor *t, size_t got, struct errbuf *eb) {
    return fail(t, eb,
                "the raw bytes have another number of elements than the shape: it says %zu of %s, "
                "got %zu bytes",
                t->n, t->type->name, got);
}

/* ---- shape */

static enum err read_shape(struct infer_tensor *t, const struct json_value *input,
                           struct errbuf *eb) {
    struct json_value *shape = NULL;
    json_get_arr(input, "shape", &shape);
    t->rank = json_arr_len(shape);
    t->n = 1;
    if (t->rank < 1 || t->rank > INFER_RANK_MAX)
        return fail(t, eb, "shape must have 1 to %d dimensions, got %zu", INFER_RANK_MAX, t->rank);
    for (size_t i = 0; i < t->rank; i++) {
        struct json_value *v = json_arr_at(shape, i);
        int64_t d = -1;
        char got[32];
        json_as_i64(v, &d);
        json_literal(got, sizeof(got), v);
        if (d < 0 || (uint64_t)d > PROMPT_TOKENS_MAX)
            return fail(t, eb, "each dimension of shape must be 0 to %d, got %s", PROMPT_TOKENS_MAX,
                        got);
        t->dims[i] = (size_t)d;
        t->n *= (size_t)d;
        if (t->n > PROMPT_TOKENS_MAX)
            return fail(t, eb, "the tensor may have at most %d elements, its shape says %zu",
                        PROMPT_TOKENS_MAX, t->n);
    }
    return ERR_OK;
}

/* ---- what it is */

/* Name, type and shape; memory of others is no place for a tensor. */
static enum err read_head(struct infer_tensor *t, const struct json_value *input,
                          struct errbuf *eb) {
    const char *datatype = "";
    struct json_value *params = NULL, *v;
    size_t n = 0;
    *t = (struct infer_tensor){.name = ""};
    json_get_str(input, "name", &t->name, &t->n_name);
    json_get_str(input, "datatype", &datatype, &n);
    t->type = infer_type_of(datatype, n);
    if (t->type == NULL)
        return fail(t, eb, "datatype '%.32s' is none of those that are taken", datatype);
    json_get_obj(input, "parameters", &params);
    if (json_get(params, "shared_memory_region", &v) != JSON_ABSENT)
        return fail(t, eb, "shared memory is not available here, the data must be in the request");
    return read_shape(t, input, eb);
}

static enum err no_data(const struct infer_tensor *t, const char *model, struct errbuf *eb) {
    return err_set(eb, ERR_INVALID,
                   "unable to find data for input tensor '%.128s' for model '%.128s' in request.",
                   t->name, model);
}

enum err infer_tensor_head(struct infer_tensor *t, const char *model,
                           const struct json_value *input, const struct json_value *raw,
                           struct errbuf *eb) {
    struct json_value *contents = NULL;
    const enum err e = read_head(t, input, eb);
    if (e != ERR_OK) return e;
    t->raw = raw;
    const bool typed = json_get_obj(input, "contents", &contents) == JSON_OK;
    if (raw != NULL && typed)
        return err_set(eb, ERR_INVALID,
                       "contents field must not be specified when using raw_input_contents for "
                       "'%.128s' for model '%.128s'",
                       t->name, model);
    if (!typed && raw == NULL) return no_data(t, model, eb);
    if (typed && t->type->contents == NULL)
        return fail(t, eb, "%s is taken as raw bytes alone", t->type->name);
    if (typed && json_get_arr(contents, t->type->contents, &t->list) != JSON_OK && t->n > 0)
        return fail(t, eb, "contents of %s must be in %s", t->type->name, t->type->contents);
    return ERR_OK;
}

/* One text with nothing said of its size: all bytes, with their length ahead or without it. */
static void take_rest(struct infer_tensor *t, struct infer_tail *tail) {
    t->bytes = tail->p;
    t->n_bytes = tail->n;
    tail->p += tail->n;
    tail->n = 0;
    t->may_be_bare = true;
}

enum err infer_tensor_rest(struct infer_tensor *t, const char *model,
                           const struct json_value *input, bool only, struct infer_tail *tail,
                           struct errbuf *eb) {
    struct json_value *params = NULL, *size = NULL, *data = NULL;
    uint64_t n = 0;
    char got[32];
    const enum err e = read_head(t, input, eb);
    if (e != ERR_OK) return e;
    json_get_obj(input, "parameters", &params);
    const bool sized = json_get(params, "binary_data_size", &size) == JSON_OK;
    const enum json_got has_data = json_get(input, "data", &data);
    if (sized && has_data != JSON_ABSENT)
        return fail(t, eb, "it has both data and binary_data_size, it must have one of them");
    if (has_data == JSON_OK) {
        if (json_as_arr(data, &t->list) != JSON_OK) return fail(t, eb, "data must be an array");
        if (t->type->contents == NULL)
            return fail(t, eb, "%s is taken as raw bytes alone", t->type->name);
        t->is_data = true;
        return ERR_OK;
    }
    if (!sized && only && tail->n > 0 && t->n == 1 && t->type->class == INFER_TEXTS) {
        take_rest(t, tail);
        return ERR_OK;
    }
    if (!sized) return no_data(t, model, eb);
    json_literal(got, sizeof(got), size);
    if (json_as_u64(size, &n) != JSON_OK || n > tail->n)
        return fail(t, eb,
                    "binary_data_size must be 0 to %zu, the bytes that are left behind the JSON, "
                    "got %s",
                    tail->n, got);
    t->bytes = tail->p;
    t->n_bytes = (size_t)n;
    tail->p += n;
    tail->n -= (size_t)n;
    return ERR_OK;
}

/* ---- how many there are */

typedef enum err element_fn(void *arg, const struct infer_tensor *t, struct json_value *v,
                            struct errbuf *eb);

static enum err fail_nesting(const struct infer_tensor *t, struct errbuf *eb) {
    return fail(t, eb, "data must be flat or nested as the %zu dimensions of shape", t->rank);
}

/* Of lists in lists, each as long as the shape says; depth: of v. */
static enum err each_nested(const struct infer_tensor *t, struct json_value *v, size_t depth,
                            element_fn *fn, void *arg, struct errbuf *eb) {
    struct json_value *list;
    enum err e = ERR_OK;
    const bool is_list = json_as_arr(v, &list) == JSON_OK;
    if (is_list != (depth < t->rank)) return fail_nesting(t, eb);
    if (!is_list) return fn(arg, t, v, eb);
    if (json_arr_len(list) != t->dims[depth]) return fail_nesting(t, eb);
    for (size_t i = 0; i < t->dims[depth] && e == ERR_OK; i++)
        e = each_nested(t, json_arr_at(list, i), depth + 1, fn, arg, eb);
    return e;
}

/* Each element of the list; only data may be nested. */
static enum err each(const struct infer_tensor *t, element_fn *fn, void *arg, struct errbuf *eb) {
    struct json_value *list;
    enum err e = ERR_OK;
    if (t->is_data && json_as_arr(json_arr_at(t->list, 0), &list) == JSON_OK)
        return each_nested(t, t->list, 0, fn, arg, eb);
    for (size_t i = 0; i < json_arr_len(t->list) && e == ERR_OK; i++) {
        struct json_value *v = json_arr_at(t->list, i);
        e = t->is_data && json_as_arr(v, &list) == JSON_OK ? fail_nesting(t, eb)
                                                           : fn(arg, t, v, eb);
    }
    return e;
}

static enum err count_one(void *arg, const struct infer_tensor *t, struct json_value *v,
                          struct errbuf *eb) {
    (void)t;
    (void)v;
    (void)eb;
    ++*(size_t *)arg;
    return ERR_OK;
}

/* Bytes that base64 stands for; of what is no base64, anything. */
static size_t base64_bytes(const struct json_value *raw) {
    const char *s = json_str(raw);
    const size_t n = json_str_len(raw);
    size_t padding = 0;
    while (padding < 2 && padding < n && s[n - 1 - padding] == '=') padding++;
    return n / 4 * 3 - (n >= 4 ? padding : 0);
}

static bool is_raw(const struct infer_tensor *t) {
    return t->raw != NULL || t->bytes != NULL;
}

enum err infer_tensor_fits(const struct infer_tensor *t, struct errbuf *eb) {
    if (!is_raw(t)) {
        size_t n = json_arr_len(t->list);
        enum err e = ERR_OK;
        if (t->is_data) {
            n = 0;
            e = each(t, count_one, &n, eb);
        }
        return e != ERR_OK || n == t->n ? e : fail_number(t, n, eb);
    }
    const size_t n = t->bytes != NULL ? t->n_bytes : base64_bytes(t->raw);
    if (t->type->class == INFER_TEXTS)
        return n >= t->n * LENGTH_BYTES || t->may_be_bare ? ERR_OK : fail_bytes(t, n, eb);
    return n == t->n * t->type->bytes ? ERR_OK : fail_bytes(t, n, eb);
}

/* ---- raw elements */

struct span {
    const char *p;
    size_t n;
};

/* The raw bytes of a tensor that fits; held: what they lie in where they are decoded. */
static enum err take_raw(const struct infer_tensor *t, struct buf *held, struct span *out,
                         struct errbuf *eb) {
    *out = (struct span){t->bytes, t->n_bytes};
    if (t->bytes != NULL) return ERR_OK;
    if (!base64_take(held, json_str(t->raw), json_str_len(t->raw)) && held->failed)
        return err_set(eb, ERR_NO_MEMORY, "out of memory");
    *out = (struct span){held->data != NULL ? held->data : "", held->len};
    if (t->type->class != INFER_TEXTS && held->len != t->n * t->type->bytes)
        return fail_bytes(t, held->len, eb);
    return ERR_OK;
}

static enum err add_text(struct json_value *values, const struct infer_tensor *t, const char *p,
                         size_t n, struct errbuf *eb) {
    if (!tok_utf8_valid(p, n)) return fail(t, eb, "an element of BYTES is not UTF-8");
    json_arr_add(values, json_new_str_n(p, n));
    return ERR_OK;
}

static size_t length_at(const char *s) {
    const unsigned char *p = (const unsigned char *)s;
    return (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

/* Elements in the order of raw bytes: a length of 4 bytes, and so many of them. */
static enum err raw_texts(struct json_value *values, const struct infer_tensor *t, struct span raw,
                          struct errbuf *eb) {
    size_t at = 0, n = 0;
    enum err e = ERR_OK;
    if (t->may_be_bare && (raw.n < LENGTH_BYTES || length_at(raw.p) != raw.n - LENGTH_BYTES))
        return add_text(values, t, raw.p, raw.n, eb);
    for (; e == ERR_OK && at < raw.n && n < t->n; n++) {
        if (raw.n - at < LENGTH_BYTES)
            return fail(t, eb, "the raw bytes end within the length of element %zu", n);
        const size_t len = length_at(raw.p + at);
        at += LENGTH_BYTES;
        if (len > raw.n - at)
            return fail(t, eb, "element %zu has %zu bytes, of the raw bytes %zu are left", n, len,
                        raw.n - at);
        e = add_text(values, t, raw.p + at, len, eb);
        at += len;
    }
    if (e != ERR_OK || (n == t->n && at == raw.n)) return e;
    return n < t->n ? fail_number(t, n, eb) : fail_bytes(t, raw.n, eb);
}

/* The bits of the i-th element. */
static uint64_t raw_bits(const struct infer_tensor *t, struct span raw, size_t i) {
    const unsigned char *p = (const unsigned char *)raw.p + i * t->type->bytes;
    uint64_t u = 0;
    for (unsigned k = 0; k < t->type->bytes; k++) u |= (uint64_t)p[k] << 8 * k;
    return u;
}

/* An integer in 64 bits; of UINT64, what is above them is negative. */
static int64_t widened(const struct infer_type *type, uint64_t u) {
    const unsigned unused = 64 - 8 * type->bytes;
    return type->is_signed ? (int64_t)(u << unused) >> unused : (int64_t)u;
}

/* IEEE 754: 1 bit sign, 5 exponent, 10 fraction. */
static double half(uint64_t u) {
    const int exponent = (int)(u >> 10 & 31);
    const double fraction = (double)(u & 1023), sign = (u >> 15 & 1) != 0 ? -1 : 1;
    if (exponent == 31) return fraction > 0 ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double real_of(const struct infer_type *type, uint64_t u) {
    switch (type->bytes) {
    case 2: return type->name[0] == 'B' ? (double)pb_f32(u << 16) : half(u);
    case 4: return (double)pb_f32(u);
    default: return pb_f64(u);
    }
}

static struct json_value *raw_number(const struct infer_type *type, uint64_t u) {
    if (type->class == INFER_BOOLEANS) return json_new_bool(u != 0);
    if (type->class == INFER_REALS) return json_new_f64(real_of(type, u));
    return type->is_signed ? json_new_i64(widened(type, u)) : json_new_u64(u);
}

static enum err read_raw(struct json_value *values, const struct infer_tensor *t,
                         struct errbuf *eb) {
    struct buf held = BUF_INIT;
    struct span raw;
    enum err e = take_raw(t, &held, &raw, eb);
    if (e == ERR_OK && t->type->class == INFER_TEXTS)
        e = raw_texts(values, t, raw, eb);
    else
        for (size_t i = 0; e == ERR_OK && i < t->n; i++)
            json_arr_add(values, raw_number(t->type, raw_bits(t, raw, i)));
    buf_free(&held);
    return e;
}

/* ---- listed elements */

static enum err typed_text(struct json_value *values, const struct infer_tensor *t,
                           const struct json_value *v, struct errbuf *eb) {
    struct buf bytes = BUF_INIT;
    enum err e = ERR_NO_MEMORY;
    if (t->is_data) {
        if (!json_is(v, json_type_string)) return fail(t, eb, "elements of BYTES must be strings");
        return add_text(values, t, json_str(v), json_str_len(v), eb);
    }
    base64_take(&bytes, json_str(v), json_str_len(v));
    if (!bytes.failed) e = add_text(values, t, bytes.data != NULL ? bytes.data : "", bytes.len, eb);
    buf_free(&bytes);
    return e;
}

/* Whether JSON's v may be an element; what came as a message was checked with it. */
static enum err check_number(const struct infer_tensor *t, const struct json_value *v,
                             struct errbuf *eb) {
    const struct infer_type *type = t->type;
    char got[40];
    bool on, good = true;
    int64_t i = 0;
    uint64_t u = 0;
    double d;
    switch (type->class) {
    case INFER_TEXTS: break;
    case INFER_BOOLEANS: good = json_as_bool(v, &on) == JSON_OK; break;
    case INFER_REALS: good = json_as_f64(v, &d) == JSON_OK; break;
    case INFER_INTEGERS: {
        const unsigned bits = 8 * type->bytes - (type->is_signed ? 1 : 0);
        const int64_t most = type->is_signed ? INT64_MAX >> (63 - bits) : 0;
        good = type->is_signed ? json_as_i64(v, &i) == JSON_OK && i >= -most - 1 && i <= most
                               : json_as_u64(v, &u) == JSON_OK && u <= UINT64_MAX >> (64 - bits);
    }
    }
    if (good) return ERR_OK;
    json_literal(got, sizeof(got), v);
    return fail(t, eb, "%s is no %s", got, type->name);
}

static enum err add_listed(void *arg, const struct infer_tensor *t, struct json_value *v,
                           struct errbuf *eb) {
    struct json_value *values = arg;
    if (t->type->class == INFER_TEXTS) return typed_text(values, t, v, eb);
    const enum err e = t->is_data ? check_number(t, v, eb) : ERR_OK;
    if (e == ERR_OK) json_arr_add(values, json_ref(v));
    return e;
}

enum err infer_tensor_values(const struct infer_tensor *t, struct json_value **values,
                             struct errbuf *eb) {
    *values = NULL;
    const enum err e = infer_tensor_fits(t, eb);
    if (e != ERR_OK) return e;
    *values = json_new_arr();
    if (*values == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    if (is_raw(t)) return read_raw(*values, t, eb);
    return t->list != NULL ? each(t, add_listed, *values, eb) : ERR_OK;
}

/* ---- ids */

static enum err push_id(struct id_list *ids, int64_t id) {
    return id_list_push(ids, id < 0 || id > INT32_MAX ? -1 : (int32_t)id);
}

static enum err push_listed(void *arg, const struct infer_tensor *t, struct json_value *v,
                            struct errbuf *eb) {
    int64_t id = -1;
    const enum err e = t->is_data ? check_number(t, v, eb) : ERR_OK;
    json_as_i64(v, &id);
    return e == ERR_OK ? push_id(arg, id) : e;
}

static enum err push_raw(const struct infer_tensor *t, struct id_list *ids, struct errbuf *eb) {
    struct buf held = BUF_INIT;
    struct span raw;
    enum err e = take_raw(t, &held, &raw, eb);
    for (size_t i = 0; e == ERR_OK && i < t->n; i++)
        e = push_id(ids, widened(t->type, raw_bits(t, raw, i)));
    buf_free(&held);
    return e;
}

enum err infer_tensor_ids(const struct infer_tensor *t, struct id_list *ids, struct errbuf *eb) {
    const enum err e = infer_tensor_fits(t, eb);
    if (e != ERR_OK) return e;
    if (is_raw(t)) return push_raw(t, ids, eb);
    return t->list != NULL ? each(t, push_listed, ids, eb) : ERR_OK;
}
