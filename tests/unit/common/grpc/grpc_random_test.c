/* Goal: any message of any service becomes JSON and itself again, byte for byte. Method: 5,000
 * messages a service, made of the tables by a seed that is printed (GRPC_SEED=N for another run):
 * every type, lists, maps, documents, messages in messages, values at their ends; the writer has
 * one form, so what comes back must be what was made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/grpc/grpc_json.h"
#include "proto/pb.h"

enum { MESSAGES = 5000, DEEP = 4, ITEMS = 3 };

static uint64_t state_of;

static uint64_t draw(uint64_t below) {
    state_of = state_of * 6364136223846793005u + 1442695040888963407u;
    return (state_of >> 33) % below;
}

static void put_varint(struct buf *out, uint64_t v) {
    unsigned char bytes[PB_VARINT_BYTES];
    buf_append(out, bytes, pb_put_varint(bytes, v));
}

static void put_tag(struct buf *out, const struct grpc_field *f, enum pb_wire wire) {
    put_varint(out, f->number << 3 | wire);
}

static void make(struct buf *out, const struct grpc_message *m, int deep);

/* The message or text `in` behind its length; in is freed. */
static void put_bytes(struct buf *out, const struct grpc_field *f, struct buf *in) {
    put_tag(out, f, PB_BYTES);
    put_varint(out, in->len);
    buf_append(out, in->data, in->len);
    buf_free(in);
}

static void make_text(struct buf *out, bool utf8) {
    static const char *const pieces[] = {"a", "\"", "\\", "\n", "\x01", "é", "\xF0\x9F\x98\x80",
                                         "/"};
    for (uint64_t n = draw(6); n > 0; n--) {
        if (utf8)
            buf_puts(out, pieces[draw(8)]);
        else
            buf_putc(out, (char)draw(256));
    }
}

/* Never 0: that has two forms. */
static uint64_t make_number(enum grpc_type type) {
    static const uint64_t wide[] = {1,          127,       128,        300,       UINT32_MAX,
                                    1ull << 53, INT64_MAX, 1ull << 63, UINT64_MAX};
    static const int32_t narrow[] = {1, 127, 128, -1, INT32_MAX, INT32_MIN, 70000};
    const double reals[] = {1, -1, 0.1, 1e300, 5e-324, 1.0 / 3, INFINITY, -INFINITY, 123456789};
    switch (type) {
    case GRPC_DOUBLE: return pb_of_f64(reals[draw(9)]);
    case GRPC_FLOAT: return pb_of_f32((float)reals[draw(3)] * (float)(1 + draw(1000)));
    case GRPC_BOOL: return 1;
    case GRPC_ENUM: return 1 + draw(3);
    case GRPC_UINT32:
    case GRPC_FIXED32: return wide[draw(5)];
    case GRPC_INT32:
    case GRPC_SFIXED32: return (uint64_t)(int64_t)narrow[draw(7)];
    default: return wide[draw(9)];
    }
}

static enum pb_wire wire_of(enum grpc_type type) {
    switch (type) {
    case GRPC_DOUBLE:
    case GRPC_FIXED64:
    case GRPC_SFIXED64: return PB_FIXED64;
    case GRPC_FLOAT:
    case GRPC_FIXED32:
    case GRPC_SFIXED32: return PB_FIXED32;
    default: return PB_VARINT;
    }
}

static void put_bits(struct buf *out, enum pb_wire wire, uint64_t u) {
    if (wire == PB_VARINT)
        put_varint(out, u);
    else
        for (unsigned i = 0; i < (wire == PB_FIXED64 ? 8u : 4u); i++)
            buf_putc(out, (char)(u >> 8 * i));
}

static bool is_number(const struct grpc_field *f) {
    return f->type != GRPC_STRING && f->type != GRPC_BYTES && f->type != GRPC_MESSAGE;
}

/* even_empty: an item of a list, or a field that knows whether it is there. */
static void make_value(struct buf *out, const struct grpc_field *f, int deep, bool even_empty) {
    struct buf in = BUF_INIT;
    if (is_number(f)) {
        put_tag(out, f, wire_of(f->type));
        put_bits(out, wire_of(f->type), even_empty && draw(4) == 0 ? 0 : make_number(f->type));
        return;
    }
    if (f->type == GRPC_MESSAGE)
        make(&in, f->message, deep + 1);
    else
        make_text(&in, f->type == GRPC_STRING);
    if (in.len > 0 || even_empty || f->type == GRPC_MESSAGE) put_bytes(out, f, &in);
    buf_free(&in);
}

static void make_map(struct buf *out, const struct grpc_field *f, int deep) {
    const struct grpc_message *m = f->message;
    for (uint64_t i = 0, n = draw(ITEMS); i < n; i++) {
        struct buf entry = BUF_INIT, key = BUF_INIT;
        buf_printf(&key, "k%u", (unsigned)i);
        put_bytes(&entry, &m->fields[0], &key);
        make_value(&entry, &m->fields[1], deep, true);
        put_bytes(out, f, &entry);
    }
}

static void make_list(struct buf *out, const struct grpc_field *f, int deep) {
    struct buf packed = BUF_INIT;
    const uint64_t n = draw(ITEMS);
    if (f->type == GRPC_MESSAGE && f->message->kind == GRPC_MAP_ENTRY) {
        make_map(out, f, deep);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (is_number(f))
            put_bits(&packed, wire_of(f->type), make_number(f->type));
        else
            make_value(out, f, deep, true);
    }
    if (packed.len > 0) put_bytes(out, f, &packed);
    buf_free(&packed);
}

static void make(struct buf *out, const struct grpc_message *m, int deep) {
    if (m->kind == GRPC_ANY_VALUE) { /* one of its kinds; null is 0 */
        const unsigned i = (unsigned)draw(deep > DEEP ? 4 : m->n_fields);
        if (m->fields[i].type == GRPC_ENUM) {
            put_tag(out, &m->fields[i], PB_VARINT);
            put_varint(out, 0);
        } else if (m->fields[i].type == GRPC_DOUBLE) {
            put_tag(out, &m->fields[i], PB_FIXED64);
            put_bits(out, PB_FIXED64, pb_of_f64((double)draw(1000) / 8));
        } else {
            make_value(out, &m->fields[i], deep, true);
        }
        return;
    }
    for (unsigned i = 0; i < m->n_fields; i++) {
        const struct grpc_field *f = &m->fields[i];
        if (draw(3) == 0 || (deep > DEEP && f->type == GRPC_MESSAGE)) continue;
        if (f->repeated)
            make_list(out, f, deep);
        else
            make_value(out, f, deep, f->presence);
    }
}

static void both_ways(const struct grpc_message *m, uint64_t seed) {
    struct buf wire = BUF_INIT, json = BUF_INIT, again = BUF_INIT;
    struct json_value *v = NULL;
    struct errbuf eb;
    make(&wire, m, 0);
    assert_int_equal(grpc_to_json(&json, m, wire.data, wire.len, 1 << 24, &eb), ERR_OK);
    assert_int_equal(json_read(&v, json.data, json.len, NULL, NULL), ERR_OK);
    grpc_from_json(&again, m, v);
    if (again.len != wire.len || (wire.len > 0 && memcmp(again.data, wire.data, wire.len) != 0))
        fail_msg("GRPC_SEED=%llu: %s has another form: %s", (unsigned long long)seed, m->name,
                 json.data);
    json_put(v);
    buf_free(&wire);
    buf_free(&json);
    buf_free(&again);
}

static void random_messages(void **state) {
    const char *said = getenv("GRPC_SEED");
    const uint64_t seed = said != NULL ? strtoull(said, NULL, 10) : 20261123;
    (void)state;
    state_of = seed;
    print_message("GRPC_SEED=%llu\n", (unsigned long long)seed);
    for (const char *const *s = grpc_services; *s != NULL; s++) {
        const struct grpc_message *of[64];
        size_t n = 0;
        for (const struct grpc_method *m = grpc_methods; m->path != NULL; m++) {
            if (strncmp(m->path + 1, *s, strlen(*s)) != 0 || m->path[1 + strlen(*s)] != '/')
                continue;
            assert_true(n + 2 <= 64);
            of[n++] = m->in;
            of[n++] = m->out;
        }
        assert_true(n > 0);
        for (size_t i = 0; i < MESSAGES; i++) both_ways(of[i % n], seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
