/* grpc_json: one walk over the fields of a message each way. */
#include "common/grpc/grpc_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/base/base64.h"
#include "proto/grpc.h"
#include "proto/pb.h"

enum { DEPTH_MAX = 100, TEXT_PER_BYTE = 4, TEXT_FREE_BYTES = 1 << 20 };

/* A compressed message may be so many times as long, and a bit: what a body takes while it is read
 * has to do with the bytes that came. */
enum { INFLATED_PER_BYTE = 16, INFLATED_FREE_BYTES = 1 << 20 };

const struct grpc_method *grpc_method_find(const char *path) {
    for (const struct grpc_method *m = grpc_methods; m->path != NULL; m++)
        if (strcmp(m->path, path) == 0) return m;
    return NULL;
}

/* ---- to JSON */

struct writing {
    struct buf *out;
    size_t text_bytes_max;
    int depth;
    struct errbuf *eb;
};

static enum err put_object(struct writing *w, const struct grpc_message *m, struct pb_reader r);
static enum err put_any(struct writing *w, const struct grpc_message *m, struct pb_reader r);

static enum err malformed(struct writing *w, const struct grpc_message *m) {
    return err_set(w->eb, ERR_BAD_FRAME, "the message is no %s", m->name);
}

static enum pb_wire wire_of(enum grpc_type type) {
    switch (type) {
    case GRPC_DOUBLE:
    case GRPC_FIXED64:
    case GRPC_SFIXED64: return PB_FIXED64;
    case GRPC_FLOAT:
    case GRPC_FIXED32:
    case GRPC_SFIXED32: return PB_FIXED32;
    case GRPC_STRING:
    case GRPC_MESSAGE:
    case GRPC_BYTES: return PB_BYTES;
    default: return PB_VARINT;
    }
}

/* JSON has no word for what is not finite; protobuf's own has these. */
static void put_real(struct buf *out, double v, int digits) {
    if (isnan(v))
        buf_puts(out, "\"NaN\"");
    else if (isinf(v))
        buf_puts(out, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        buf_printf(out, "%.*g", digits, v);
}

static void put_enum(struct buf *out, const struct grpc_enum *e, int32_t v) {
    for (unsigned i = 0; i < e->n; i++) {
        if (e->values[i].number != v) continue;
        buf_printf(out, "\"%s\"", e->values[i].name);
        return;
    }
    buf_printf(out, "%d", (int)v);
}

static void put_i64(struct buf *out, int64_t v) {
    buf_printf(out, "%lld", (long long)v);
}

static void put_number(struct buf *out, const struct grpc_field *f, uint64_t u) {
    switch (f->type) {
    case GRPC_DOUBLE: put_real(out, pb_f64(u), 17); break;
    case GRPC_FLOAT: put_real(out, (double)pb_f32(u), 9); break;
    case GRPC_INT64:
    case GRPC_SFIXED64: put_i64(out, (int64_t)u); break;
    case GRPC_UINT64:
    case GRPC_FIXED64: buf_printf(out, "%llu", (unsigned long long)u); break;
    case GRPC_INT32:
    case GRPC_SFIXED32: put_i64(out, (int32_t)(uint32_t)u); break;
    case GRPC_UINT32:
    case GRPC_FIXED32: buf_printf(out, "%u", (unsigned)(uint32_t)u); break;
    case GRPC_SINT32: put_i64(out, pb_zigzag((uint32_t)u)); break;
    case GRPC_SINT64: put_i64(out, pb_zigzag(u)); break;
    case GRPC_BOOL: buf_puts(out, u != 0 ? "true" : "false"); break;
    case GRPC_ENUM: put_enum(out, f->values, (int32_t)(uint32_t)u); break;
    case GRPC_STRING:
    case GRPC_BYTES:
    case GRPC_MESSAGE: break;
    }
}

static enum err check_room(const struct writing *w) {
    if (w->out->failed) return err_set(w->eb, ERR_NO_MEMORY, "out of memory");
    if (w->out->len <= w->text_bytes_max) return ERR_OK;
    return err_set(w->eb, ERR_TOO_LARGE, "the message would be over %zu bytes of JSON",
                   w->text_bytes_max);
}

static enum err put_nested(struct writing *w, const struct grpc_message *m, struct pb_reader r) {
    if (++w->depth > DEPTH_MAX)
        return err_set(w->eb, ERR_TOO_LARGE, "messages may be %d deep, not more", DEPTH_MAX);
    enum err e = m->kind == GRPC_OBJECT ? put_object(w, m, r) : put_any(w, m, r);
    w->depth--;
    return e == ERR_OK ? check_room(w) : e;
}

static enum err put_one(struct writing *w, const struct grpc_field *f, const struct pb_field *v) {
    if (f->type == GRPC_MESSAGE) return put_nested(w, f->message, pb_reader(v->bytes, v->n));
    if (f->type == GRPC_STRING) {
        buf_json_str(w->out, (const char *)v->bytes, v->n);
    } else if (f->type == GRPC_BYTES) {
        buf_putc(w->out, '"');
        base64_put(w->out, v->bytes, v->n);
        buf_putc(w->out, '"');
    } else {
        put_number(w->out, f, v->u);
    }
    return check_room(w);
}

/* A value of the list f; what is packed is several. */
static enum err put_item(struct writing *w, const struct grpc_message *m,
                         const struct grpc_field *f, const struct pb_field *v, bool *any) {
    const enum pb_wire wire = wire_of(f->type);
    if (v->wire == wire) {
        if (*any) buf_putc(w->out, ',');
        *any = true;
        return put_one(w, f, v);
    }
    struct pb_reader packed = pb_reader(v->bytes, v->n);
    uint64_t u;
    while (pb_packed(&packed, wire, &u)) {
        if (*any) buf_putc(w->out, ',');
        *any = true;
        put_number(w->out, f, u);
        if (w->out->len > w->text_bytes_max) break;
    }
    return packed.bad ? malformed(w, m) : check_room(w);
}

static bool takes(const struct grpc_field *f, enum pb_wire wire) {
    const enum pb_wire own = wire_of(f->type);
    return wire == own || (f->repeated && wire == PB_BYTES && own != PB_BYTES);
}

static const struct grpc_field *field_of(const struct grpc_message *m, uint32_t number,
                                         enum pb_wire wire, unsigned *idx) {
    for (*idx = 0; *idx < m->n_fields && m->fields[*idx].number <= number; ++*idx)
        if (m->fields[*idx].number == number)
            return takes(&m->fields[*idx], wire) ? &m->fields[*idx] : NULL;
    return NULL;
}

/* {key: value} of every entry; both are there, or are what is absent. */
static enum err put_entry(struct writing *w, const struct grpc_message *m, struct pb_reader r) {
    const struct grpc_field *key = &m->fields[0], *value = &m->fields[1];
    struct pb_field f, k = {.bytes = (const unsigned char *)""},
                       v = {.bytes = (const unsigned char *)""};
    while (pb_next(&r, &f)) {
        if (f.number == key->number && takes(key, f.wire)) k = f;
        if (f.number == value->number && takes(value, f.wire)) v = f;
    }
    if (r.bad) return malformed(w, m);
    if (key->type != GRPC_STRING) buf_putc(w->out, '"');
    enum err e = put_one(w, key, &k);
    if (key->type != GRPC_STRING) buf_putc(w->out, '"');
    buf_putc(w->out, ':');
    return e == ERR_OK ? put_one(w, value, &v) : e;
}

static enum err put_list(struct writing *w, const struct grpc_message *m,
                         const struct grpc_field *f, struct pb_reader r) {
    const bool map = f->type == GRPC_MESSAGE && f->message->kind == GRPC_MAP_ENTRY;
    struct pb_field v;
    enum err e = ERR_OK;
    bool any = false;
    buf_putc(w->out, map ? '{' : '[');
    while (e == ERR_OK && pb_next(&r, &v)) {
        if (v.number != f->number || !takes(f, v.wire)) continue;
        if (map) {
            if (any) buf_putc(w->out, ',');
            any = true;
            e = put_entry(w, f->message, pb_reader(v.bytes, v.n));
        } else {
            e = put_item(w, m, f, &v, &any);
        }
    }
    buf_putc(w->out, map ? '}' : ']');
    return e == ERR_OK && r.bad ? malformed(w, m) : e;
}

static enum err put_object(struct writing *w, const struct grpc_message *m, struct pb_reader r) {
    struct pb_field last[GRPC_FIELDS_MAX], f;
    bool seen[GRPC_FIELDS_MAX] = {false}, any = false;
    const struct pb_reader all = r;
    enum err e = ERR_OK;
    unsigned i;
    while (pb_next(&r, &f)) {
        if (field_of(m, f.number, f.wire, &i) == NULL) continue;
        seen[i] = true;
        last[i] = f;
    }
    if (r.bad) return malformed(w, m);
    buf_putc(w->out, '{');
    for (i = 0; i < m->n_fields && e == ERR_OK; i++) {
        if (!seen[i]) continue;
        buf_printf(w->out, "%s\"%s\":", any ? "," : "", m->fields[i].name);
        any = true;
        e = m->fields[i].repeated ? put_list(w, m, &m->fields[i], all)
                                  : put_one(w, &m->fields[i], &last[i]);
    }
    buf_putc(w->out, '}');
    return e;
}

/* google.protobuf.Struct and its kin: their one list, or the last of their values. */
static enum err put_any(struct writing *w, const struct grpc_message *m, struct pb_reader r) {
    if (m->kind != GRPC_ANY_VALUE) return put_list(w, m, &m->fields[0], r);
    struct pb_field v, last;
    const struct grpc_field *f = NULL, *found;
    unsigned i;
    while (pb_next(&r, &v)) {
        if ((found = field_of(m, v.number, v.wire, &i)) == NULL) continue;
        f = found;
        last = v;
    }
    if (r.bad) return malformed(w, m);
    if (f == NULL || f->type == GRPC_ENUM) {
        buf_puts(w->out, "null");
        return ERR_OK;
    }
    return put_one(w, f, &last);
}

enum err grpc_to_json(struct buf *out, const struct grpc_message *m, const void *p, size_t n,
                      size_t text_bytes_max, struct errbuf *eb) {
    struct writing w = {.out = out, .text_bytes_max = text_bytes_max, .eb = eb};
    return put_nested(&w, m, pb_reader(p, n));
}

/* ---- from JSON */

static void put_varint(struct buf *out, uint64_t v) {
    unsigned char bytes[PB_VARINT_BYTES];
    buf_append(out, bytes, pb_put_varint(bytes, v));
}

static void put_tag(struct buf *out, uint32_t number, enum pb_wire wire) {
    put_varint(out, (uint64_t)number << 3 | (unsigned)wire);
}

/* What stands behind `at` gets its length before it. */
static void close_bytes(struct buf *out, size_t at) {
    unsigned char head[PB_VARINT_BYTES];
    const size_t n = out->len - at, n_head = pb_put_varint(head, n);
    if (!buf_reserve(out, n_head)) return;
    memmove(out->data + at + n_head, out->data + at, n);
    memcpy(out->data + at, head, n_head);
    out->len += n_head;
    out->data[out->len] = '\0';
}

static bool enum_number(const struct grpc_enum *e, const struct json_value *v, uint64_t *u) {
    int64_t i;
    if (json_as_i64(v, &i) == JSON_OK) {
        *u = (uint64_t)i;
        return true;
    }
    for (unsigned k = 0; k < e->n && json_is(v, json_type_string); k++) {
        if (strcmp(e->values[k].name, json_str(v)) != 0) continue;
        *u = (uint64_t)(int64_t)e->values[k].number;
        return true;
    }
    return false;
}

static bool real_of(const struct json_value *v, double *d) {
    if (json_as_f64(v, d) == JSON_OK) return true;
    if (!json_is(v, json_type_string)) return false;
    const char *s = json_str(v);
    *d = strcmp(s, "NaN") == 0 ? (double)NAN : s[0] == '-' ? -(double)INFINITY : (double)INFINITY;
    return strcmp(s, "NaN") == 0 || strcmp(s, "Infinity") == 0 || strcmp(s, "-Infinity") == 0;
}

/* The bits of a number; false: v is none of that type. */
static bool bits_of(const struct grpc_field *f, const struct json_value *v, uint64_t *u) {
    double d;
    int64_t i;
    bool on;
    switch (f->type) {
    case GRPC_DOUBLE:
    case GRPC_FLOAT:
        if (!real_of(v, &d)) return false;
        *u = f->type == GRPC_FLOAT ? pb_of_f32((float)d) : pb_of_f64(d);
        return true;
    case GRPC_BOOL:
        if (json_as_bool(v, &on) != JSON_OK) return false;
        *u = on;
        return true;
    case GRPC_ENUM: return enum_number(f->values, v, u);
    case GRPC_UINT64:
    case GRPC_FIXED64:
    case GRPC_UINT32:
    case GRPC_FIXED32: return json_as_u64(v, u) == JSON_OK;
    default:
        if (json_as_i64(v, &i) != JSON_OK) return false;
        *u = f->type == GRPC_SINT32 || f->type == GRPC_SINT64 ? pb_zagzig(i) : (uint64_t)i;
        return true;
    }
}

static void put_bits(struct buf *out, enum pb_wire wire, uint64_t u) {
    if (wire == PB_VARINT) {
        put_varint(out, u);
        return;
    }
    for (unsigned i = 0; i < (wire == PB_FIXED64 ? 8u : 4u); i++) buf_putc(out, (char)(u >> 8 * i));
}

static void put_value(struct buf *out, const struct grpc_field *f, const struct json_value *v,
                      bool even_zero);

/* An entry of a map, with both of its fields. */
static void put_map(struct buf *out, const struct grpc_field *f, const struct json_value *v) {
    const struct grpc_message *m = f->message;
    json_obj_foreach(v, key, val) {
        put_tag(out, f->number, PB_BYTES);
        const size_t at = out->len;
        put_tag(out, m->fields[0].number, PB_BYTES);
        put_varint(out, strlen(key));
        buf_puts(out, key);
        put_value(out, &m->fields[1], val, true);
        close_bytes(out, at);
    }
}

static void put_packed(struct buf *out, const struct grpc_field *f, const struct json_value *v) {
    const enum pb_wire wire = wire_of(f->type);
    uint64_t u;
    if (json_arr_len(v) == 0) return;
    put_tag(out, f->number, PB_BYTES);
    const size_t at = out->len;
    for (size_t i = 0; i < json_arr_len(v); i++)
        if (bits_of(f, json_arr_at(v, i), &u)) put_bits(out, wire, u);
    close_bytes(out, at);
}

static void put_repeated(struct buf *out, const struct grpc_field *f, const struct json_value *v) {
    if (f->type == GRPC_MESSAGE && f->message->kind == GRPC_MAP_ENTRY) {
        if (json_is(v, json_type_object)) put_map(out, f, v);
    } else if (!json_is(v, json_type_array)) {
        return;
    } else if (wire_of(f->type) != PB_BYTES) {
        put_packed(out, f, v);
    } else {
        for (size_t i = 0; i < json_arr_len(v); i++) put_value(out, f, json_arr_at(v, i), true);
    }
}

static void put_bytes(struct buf *out, const struct grpc_field *f, const struct json_value *v,
                      bool even_zero) {
    if (!json_is(v, json_type_string)) return;
    const size_t n = json_str_len(v);
    if (n == 0 && !even_zero) return;
    put_tag(out, f->number, PB_BYTES);
    const size_t at = out->len;
    if (f->type == GRPC_STRING)
        buf_append(out, json_str(v), n);
    else
        (void)base64_take(out, json_str(v), n);
    close_bytes(out, at);
}

static void put_value(struct buf *out, const struct grpc_field *f, const struct json_value *v,
                      bool even_zero) {
    const bool any = f->type == GRPC_MESSAGE && f->message->kind == GRPC_ANY_VALUE;
    uint64_t u = 0;
    if (f->type == GRPC_MESSAGE) {
        if (v == NULL && !any && !even_zero) return;
        put_tag(out, f->number, PB_BYTES);
        const size_t at = out->len;
        grpc_from_json(out, f->message, v);
        close_bytes(out, at);
    } else if (f->type == GRPC_STRING || f->type == GRPC_BYTES) {
        put_bytes(out, f, v, even_zero);
    } else if (bits_of(f, v, &u) && (u != 0 || even_zero)) {
        put_tag(out, f->number, wire_of(f->type));
        put_bits(out, wire_of(f->type), u);
    }
}

/* A value as the field that has its type: null, number, string, boolean, object, list. */
static void from_any(struct buf *out, const struct grpc_message *m, const struct json_value *v) {
    static const unsigned fields[] = {
        [json_type_null] = 0,   [json_type_boolean] = 3, [json_type_double] = 1,
        [json_type_int] = 1,    [json_type_object] = 4,  [json_type_array] = 5,
        [json_type_string] = 2,
    };
    const struct grpc_field *f = &m->fields[fields[json_type_of(v)]];
    if (f->type == GRPC_ENUM) {
        put_tag(out, f->number, PB_VARINT);
        put_varint(out, 0);
    } else {
        put_value(out, f, v, true);
    }
}

void grpc_from_json(struct buf *out, const struct grpc_message *m, const struct json_value *v) {
    struct json_value *member;
    if (m->kind == GRPC_ANY_VALUE) {
        from_any(out, m, v);
    } else if (m->kind != GRPC_OBJECT) {
        put_repeated(out, &m->fields[0], v);
    } else {
        for (unsigned i = 0; i < m->n_fields; i++) {
            const struct grpc_field *f = &m->fields[i];
            if (json_get(v, f->name, &member) != JSON_OK) continue;
            if (f->repeated)
                put_repeated(out, f, member);
            else
                put_value(out, f, member, f->presence);
        }
    }
}

void grpc_put_message(struct buf *out, const struct grpc_message *m, const struct json_value *v) {
    unsigned char head[GRPC_HEAD_BYTES] = {0};
    const size_t at = out->len;
    buf_append(out, head, sizeof(head));
    grpc_from_json(out, m, v);
    if (out->failed) return;
    grpc_head_put(head, (uint32_t)(out->len - at - sizeof(head)));
    memcpy(out->data + at, head, sizeof(head));
}

void grpc_put_text(struct buf *out, const struct grpc_message *m, const char *json, size_t n) {
    struct json_value *v = NULL;
    if (json_read(&v, json, n, NULL, NULL) != ERR_OK)
        out->failed = true;
    else
        grpc_put_message(out, m, v);
    json_put(v);
}

void grpc_put_made(struct buf *out, const struct grpc_message *m, struct buf *json) {
    if (json->failed)
        out->failed = true;
    else
        grpc_put_text(out, m, json->data, json->len);
    buf_free(json);
}

/* ---- a body */

static bool refuse(int *status, int as, const struct errbuf *eb) {
    *status = eb->code == ERR_NO_MEMORY ? 503 : as;
    return false;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

bool grpc_body_plain(const struct grpc_body *b, struct grpc_frame *f, struct buf *plain,
                     int *status, struct errbuf *eb) {
    const char *wrong = grpc_one_message(b->p, b->n);
    if (wrong != NULL) {
        err_set(eb, ERR_BAD_FRAME, "%s", wrong);
        return refuse(status, GRPC_UNREADABLE, eb);
    }
    (void)grpc_frame_take(f, b->p, b->n);
    enum err e = ERR_OK;
    size_t most = b->message_bytes_max;
    if (f->compressed) {
        most = least(most, INFLATED_PER_BYTE * f->n + INFLATED_FREE_BYTES);
        e = grpc_inflate(plain, b->encoding, f->p, f->n, most);
        f->p = plain->data != NULL ? plain->data : "";
        f->n = plain->len;
    } else if (f->n > most) {
        e = ERR_TOO_LARGE;
    }
    switch (e) {
    case ERR_OK: return true;
    case ERR_NOT_FOUND:
        err_set(eb, e, "grpc-encoding must be identity, gzip or deflate, got %.64s", b->encoding);
        return refuse(status, 501, eb);
    case ERR_TOO_LARGE:
        err_set(eb, e, "the message is over the limit of %zu bytes%s", most,
                f->compressed ? ", as much as may come of its compressed bytes" : "");
        return refuse(status, 413, eb);
    case ERR_NO_MEMORY: err_set(eb, e, "out of memory"); return refuse(status, 503, eb);
    default:
        err_set(eb, e, "the message is compressed, but not as grpc-encoding \"%.64s\" says",
                b->encoding != NULL ? b->encoding : "");
        return refuse(status, GRPC_UNREADABLE, eb);
    }
}

bool grpc_body_read(const struct grpc_body *b, const struct json_limits *lim, struct buf *text,
                    struct json_value **out, int *status, struct errbuf *eb) {
    struct grpc_frame f;
    struct buf plain = BUF_INIT;
    *out = NULL;
    bool good = grpc_body_plain(b, &f, &plain, status, eb);
    if (good) {
        const size_t most = least(TEXT_PER_BYTE * f.n, b->message_bytes_max) + TEXT_FREE_BYTES;
        const enum err e = grpc_to_json(text, b->message, f.p, f.n, most, eb);
        good = e == ERR_OK || refuse(status, e == ERR_TOO_LARGE ? 413 : GRPC_UNREADABLE, eb);
    }
    buf_free(&plain);
    if (!good) return false;
    /* What is no JSON now is text that is not UTF-8, or a document that is too deep. */
    return json_read_in_place(out, text->data, text->len, lim, eb) == ERR_OK ||
           refuse(status, GRPC_UNREADABLE, eb);
}
