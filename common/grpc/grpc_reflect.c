/* grpc_reflect: a question, an answer. The answer is written field by field: it repeats the
 * question as it came, and carries descriptors that are bytes already. */
#include "common/grpc/grpc_reflect.h"

#include <string.h>
#include "common/grpc/grpc_json.h"
#include "common/net/http_server.h"
#include "proto/grpc.h"
#include "proto/pb.h"

enum { QUESTION_BYTES = 65536, FILES_MAX = 64, NAME_SHOWN = 200 };

/* Fields of reflection_v1.proto, which v1alpha repeats. */
enum { EXTENSION_TYPE = 1, Q_HOST = 1, Q_FILE = 3, Q_SYMBOL, Q_EXTENSION, Q_EXTENSIONS, Q_LIST };
enum { A_HOST = 1, A_QUESTION, A_FILES = 4, A_EXTENSIONS, A_LIST, A_ERROR };
enum { LIST_SERVICE = 1, SERVICE_NAME = 1, FILES_FILE = 1, ERROR_CODE = 1, ERROR_TEXT };

static void put_varint(struct buf *out, uint64_t v) {
    unsigned char bytes[PB_VARINT_BYTES];
    buf_append(out, bytes, pb_put_varint(bytes, v));
}

static void put_bytes(struct buf *out, unsigned number, const void *p, size_t n) {
    put_varint(out, number << 3 | PB_BYTES);
    put_varint(out, n);
    buf_append(out, p, n);
}

/* The message `in` as a field; in is freed. */
static void put_message(struct buf *out, unsigned number, struct buf *in) {
    put_bytes(out, number, in->data, in->len);
    out->failed = out->failed || in->failed;
    buf_free(in);
}

static void put_error(struct buf *out, enum grpc_status status, const char *what,
                      const struct pb_field *name) {
    struct buf error = BUF_INIT, text = BUF_INIT;
    put_varint(&error, ERROR_CODE << 3 | PB_VARINT);
    put_varint(&error, (unsigned)status);
    buf_puts(&text, what);
    const char *s = (const char *)name->bytes;
    buf_append(&text, s, buf_utf8_span(s, name->n < NAME_SHOWN ? name->n : NAME_SHOWN));
    put_message(&error, ERROR_TEXT, &text);
    put_message(out, A_ERROR, &error);
}

static void put_services(struct buf *out) {
    struct buf list = BUF_INIT;
    for (const char *const *s = grpc_services; *s != NULL; s++) {
        struct buf service = BUF_INIT;
        put_bytes(&service, SERVICE_NAME, *s, strlen(*s));
        put_message(&list, LIST_SERVICE, &service);
    }
    put_message(out, A_LIST, &list);
}

/* ---- files */

static const struct grpc_file *file_of(const char *name, size_t n) {
    for (const struct grpc_file *f = grpc_files; f->name != NULL; f++)
        if (strlen(f->name) == n && memcmp(f->name, name, n) == 0) return f;
    return NULL;
}

/* "pkg.Service/Method" is "pkg.Service.Method". */
static bool is_symbol(const char *symbol, const char *name, size_t n) {
    if (strlen(symbol) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (symbol[i] != (name[i] == '/' ? '.' : name[i])) return false;
    return true;
}

static const struct grpc_file *file_with(const char *name, size_t n) {
    for (const struct grpc_file *f = grpc_files; f->name != NULL; f++)
        for (const char *const *s = f->symbols; *s != NULL; s++)
            if (is_symbol(*s, name, n)) return f;
    return NULL;
}

/* The file, and what it imports, each once. */
static void put_files(struct buf *out, const struct grpc_file *first) {
    const struct grpc_file *files[FILES_MAX] = {first};
    struct buf list = BUF_INIT;
    size_t n = 1;
    for (size_t i = 0; i < n; i++) {
        put_bytes(&list, FILES_FILE, files[i]->descriptor, files[i]->descriptor_bytes);
        for (const char *const *name = files[i]->imports; *name != NULL; name++) {
            const struct grpc_file *f = file_of(*name, strlen(*name));
            size_t k = 0;
            while (k < n && files[k] != f) k++;
            if (f != NULL && k == n && n < FILES_MAX) files[n++] = f;
        }
    }
    put_message(out, A_FILES, &list);
}

static void put_file(struct buf *out, const struct grpc_file *f, const char *what,
                     const struct pb_field *name) {
    if (f != NULL)
        put_files(out, f);
    else
        put_error(out, GRPC_NOT_FOUND, what, name);
}

/* ---- a question */

static void put_answer(struct buf *out, const struct pb_field *q) {
    const char *name = (const char *)q->bytes;
    switch (q->number) {
    case Q_FILE: put_file(out, file_of(name, q->n), "there is no file ", q); break;
    case Q_SYMBOL: put_file(out, file_with(name, q->n), "there is no symbol ", q); break;
    case Q_LIST: put_services(out); break;
    case Q_EXTENSION:
    case Q_EXTENSIONS:
        put_error(out, GRPC_NOT_FOUND, "there are no extensions", &(struct pb_field){0});
        break;
    default:
        put_error(out, GRPC_INVALID_ARGUMENT, "the message asks for nothing",
                  &(struct pb_field){0});
    }
}

static bool is_text(const struct pb_field *f) {
    return buf_utf8_span((const char *)f->bytes, f->n) == f->n;
}

/* What is answered has the question in it, and a string that is no text would make that no message.
 */
static bool has_texts(const struct pb_field *f) {
    if (f->wire != PB_BYTES) return true;
    if (f->number == Q_EXTENSION) {
        struct pb_field type;
        struct pb_reader r = pb_reader(f->bytes, f->n);
        bool good = true;
        while (pb_next(&r, &type))
            if (type.number == EXTENSION_TYPE && type.wire == PB_BYTES)
                good = good && is_text(&type);
        return good && !r.bad;
    }
    return (f->number != Q_HOST && (f->number < Q_FILE || f->number > Q_LIST)) || is_text(f);
}

bool grpc_reflect_answer(struct buf *out, const char *p, size_t n) {
    unsigned char head[GRPC_HEAD_BYTES] = {0};
    struct pb_field f, host = {0}, question = {0};
    struct pb_reader r = pb_reader(p, n);
    while (pb_next(&r, &f)) {
        if (!has_texts(&f)) return false;
        if (f.wire != PB_BYTES) continue;
        if (f.number == Q_HOST) host = f;
        if (f.number >= Q_FILE && f.number <= Q_LIST) question = f;
    }
    if (r.bad) return false;
    const size_t at = out->len;
    buf_append(out, head, sizeof(head));
    if (host.n > 0) put_bytes(out, A_HOST, host.bytes, host.n);
    put_bytes(out, A_QUESTION, p, n);
    put_answer(out, &question);
    if (out->failed) return true;
    grpc_head_put(head, (uint32_t)(out->len - at - sizeof(head)));
    memcpy(out->data + at, head, sizeof(head));
    return true;
}

static void on_ask(void *arg, struct http_x *x, const struct route_params *p) {
    struct grpc_body b = {.encoding = http_x_header(x, GRPC_ENCODING_HEADER),
                          .message_bytes_max = QUESTION_BYTES};
    struct grpc_frame f;
    struct buf plain = BUF_INIT, out = BUF_INIT;
    struct errbuf eb = {0};
    int status = 0;
    (void)arg, (void)p;
    b.p = http_x_body(x, &b.n);
    if (grpc_body_plain(&b, &f, &plain, &status, &eb) && !grpc_reflect_answer(&out, f.p, f.n)) {
        status = GRPC_UNREADABLE;
        err_set(&eb, ERR_BAD_FRAME, "the message is no ServerReflectionRequest");
    } else if (status == 0 && out.failed) {
        status = 503;
        err_set(&eb, ERR_NO_MEMORY, "out of memory");
    }
    if (status != 0)
        http_x_reply(x, status, NULL, eb.text, strlen(eb.text));
    else
        http_x_reply(x, 200, GRPC_TYPE, out.data, out.len);
    buf_free(&plain);
    buf_free(&out);
}

#define REFLECT(version)                                                                           \
    {                                                                                              \
        PLANE_DATA | PLANE_GRPC | PLANE_MANY, "POST",                                              \
            "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo", on_ask,          \
            QUESTION_BYTES                                                                         \
    }
const struct route grpc_reflect_routes[] = {
    REFLECT("v1"),
    REFLECT("v1alpha"),
    {0, NULL, NULL, NULL, 0},
};
