/* proto_gen: makes the tables of common/grpc/grpc_types.h of the files in proto/grpc/, at build
 * time: proto_gen DESCRIPTORS FOLDER OUT. DESCRIPTORS is what `protoc --include_imports
 * --descriptor_set_out` wrote of them, FOLDER has their texts. Numbers are those of
 * descriptor.proto (kserve-runtimes 14.1). Ends with 1 and a line where something is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/grpc/grpc_types.h"
#include "proto/pb.h"

enum { FILE_BYTES_MAX = 4 << 20, NAME_BYTES = 256, LABEL_REPEATED = 3 };

static _Noreturn void give_up(const char *what, const char *which) {
    fprintf(stderr, "proto_gen: %s: %s\n", what, which);
    exit(1);
}

struct bytes {
    unsigned char *p;
    size_t n;
};

static struct bytes read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    struct bytes b = {.p = malloc(FILE_BYTES_MAX)};
    if (f == NULL || b.p == NULL) give_up("cannot read", path);
    b.n = fread(b.p, 1, FILE_BYTES_MAX, f);
    if (b.n == FILE_BYTES_MAX) give_up("too large", path);
    fclose(f);
    return b;
}

/* ---- what a descriptor says */

/* The n-th field of that number; false: there are no more. */
static bool find(struct pb_field *out, const struct pb_field *in, uint32_t number, unsigned n) {
    struct pb_reader r = pb_reader(in->bytes, in->n);
    while (pb_next(&r, out))
        if (out->number == number && n-- == 0) return true;
    if (r.bad) give_up("malformed", "the descriptors");
    return false;
}

static uint64_t number_of(const struct pb_field *in, uint32_t number) {
    struct pb_field f;
    return find(&f, in, number, 0) ? f.u : 0;
}

static const char *text_of(char dst[NAME_BYTES], const struct pb_field *in, uint32_t number,
                           unsigned n) {
    struct pb_field f = {0};
    dst[0] = '\0';
    if (!find(&f, in, number, n)) return NULL;
    if (f.n >= NAME_BYTES) give_up("too long", "a name");
    memcpy(dst, f.bytes, f.n);
    dst[f.n] = '\0';
    return dst;
}

/* scope.name */
static void full_name(char dst[NAME_BYTES], const char *scope, const struct pb_field *of) {
    char name[NAME_BYTES];
    text_of(name, of, 1, 0);
    const int n = snprintf(dst, NAME_BYTES, "%s%s%s", scope, scope[0] != '\0' ? "." : "", name);
    if (n >= NAME_BYTES) give_up("too long", name);
}

/* A name of C. */
static void put_ident(FILE *out, const char *kind, const char *name) {
    fprintf(out, "%s_", kind);
    for (name += name[0] == '.'; *name != '\0'; name++) fputc(*name == '.' ? '_' : *name, out);
}

/* ---- messages and enums; each function goes over them all */

typedef void visit_fn(FILE *out, const char *name, const struct pb_field *of);

static void walk(FILE *out, const char *scope, const struct pb_field *in, uint32_t messages,
                 uint32_t enums, visit_fn *on_message, visit_fn *on_enum) {
    struct pb_field f;
    char name[NAME_BYTES];
    for (unsigned i = 0; find(&f, in, enums, i); i++) {
        full_name(name, scope, &f);
        on_enum(out, name, &f);
    }
    for (unsigned i = 0; find(&f, in, messages, i); i++) {
        full_name(name, scope, &f);
        walk(out, name, &f, 3, 4, on_message, on_enum);
        on_message(out, name, &f);
    }
}

static void declare_message(FILE *out, const char *name, const struct pb_field *of) {
    (void)of;
    fputs("extern const struct grpc_message ", out);
    put_ident(out, "grpc", name);
    fputs(";\n", out);
}

static void put_enum(FILE *out, const char *name, const struct pb_field *of) {
    struct pb_field f;
    char value[NAME_BYTES];
    unsigned n = 0;
    fputs("static const struct grpc_value ", out);
    put_ident(out, "v", name);
    fputs("[] = {", out);
    for (; find(&f, of, 2, n); n++) {
        text_of(value, &f, 1, 0);
        fprintf(out, "{\"%s\", %d}, ", value, (int)(int64_t)number_of(&f, 2));
    }
    fputs("};\nstatic const struct grpc_enum ", out);
    put_ident(out, "e", name);
    fputs(" = {", out);
    put_ident(out, "v", name);
    fprintf(out, ", %u};\n", n);
}

static enum grpc_kind kind_of(const char *name, const struct pb_field *of) {
    struct pb_field options;
    if (strcmp(name, "google.protobuf.Struct") == 0) return GRPC_ANY_OBJECT;
    if (strcmp(name, "google.protobuf.Value") == 0) return GRPC_ANY_VALUE;
    if (strcmp(name, "google.protobuf.ListValue") == 0) return GRPC_ANY_LIST;
    return find(&options, of, 7, 0) && number_of(&options, 7) != 0 ? GRPC_MAP_ENTRY : GRPC_OBJECT;
}

static void put_field(FILE *out, const struct pb_field *f) {
    struct pb_field one_of;
    char name[NAME_BYTES], type[NAME_BYTES];
    const uint64_t kind = number_of(f, 5);
    text_of(name, f, 1, 0);
    text_of(type, f, 6, 0);
    const bool message = kind == GRPC_MESSAGE;
    fprintf(out, "    {\"%s\", %u, %u, %d, %d, ", name, (unsigned)number_of(f, 3), (unsigned)kind,
            number_of(f, 4) == LABEL_REPEATED, find(&one_of, f, 9, 0));
    if (message) fputc('&', out);
    if (message) put_ident(out, "grpc", type);
    fputs(message ? ", NULL" : "NULL, ", out);
    if (kind == GRPC_ENUM) fputc('&', out);
    if (kind == GRPC_ENUM) put_ident(out, "e", type);
    if (!message && kind != GRPC_ENUM) fputs("NULL", out);
    fputs("},\n", out);
}

/* By number, whatever the order in the file. */
static unsigned put_fields(FILE *out, const struct pb_field *of) {
    struct pb_field f, next;
    uint64_t last = 0;
    unsigned n = 0;
    for (;; n++) {
        bool any = false;
        for (unsigned i = 0; find(&f, of, 2, i); i++) {
            const uint64_t number = number_of(&f, 3);
            if (number <= last || (any && number > number_of(&next, 3))) continue;
            next = f;
            any = true;
        }
        if (!any) return n;
        put_field(out, &next);
        last = number_of(&next, 3);
    }
}

static void put_message(FILE *out, const char *name, const struct pb_field *of) {
    struct pb_field f;
    const bool any = find(&f, of, 2, 0);
    unsigned n = 0;
    if (any) {
        fputs("static const struct grpc_field ", out);
        put_ident(out, "f", name);
        fputs("[] = {\n", out);
        n = put_fields(out, of);
        if (n > GRPC_FIELDS_MAX) give_up("over GRPC_FIELDS_MAX fields", name);
        fputs("};\n", out);
    }
    fputs("const struct grpc_message ", out);
    put_ident(out, "grpc", name);
    fprintf(out, " = {\"%s\", %u, ", name, (unsigned)kind_of(name, of));
    if (any)
        put_ident(out, "f", name);
    else
        fputs("NULL", out);
    fprintf(out, ", %u};\n", n);
}

static void put_symbol(FILE *out, const char *name, const struct pb_field *of) {
    struct pb_field f;
    char field[NAME_BYTES];
    fprintf(out, "\"%s\", ", name);
    for (unsigned i = 0; find(&f, of, 2, i); i++)
        fprintf(out, "\"%s.%s\", ", name, text_of(field, &f, 1, 0));
}

/* Its values stand beside it. */
static void put_enum_symbol(FILE *out, const char *name, const struct pb_field *of) {
    const char *dot = strrchr(name, '.');
    const int scope = dot != NULL ? (int)(dot - name) + 1 : 0;
    struct pb_field f;
    char value[NAME_BYTES];
    fprintf(out, "\"%s\", ", name);
    for (unsigned i = 0; find(&f, of, 2, i); i++)
        fprintf(out, "\"%.*s%s\", ", scope, name, text_of(value, &f, 1, 0));
}

static void no_enum(FILE *out, const char *name, const struct pb_field *of) {
    (void)out, (void)name, (void)of;
}

/* ---- services */

typedef void service_fn(FILE *out, const char *service, const struct pb_field *method);

/* method NULL: once for each service. */
static void walk_services(FILE *out, const struct pb_field *file, const char *package,
                          service_fn *fn, bool methods) {
    struct pb_field s, m;
    char name[NAME_BYTES];
    for (unsigned i = 0; find(&s, file, 6, i); i++) {
        full_name(name, package, &s);
        if (!methods) fn(out, name, NULL);
        for (unsigned k = 0; methods && find(&m, &s, 2, k); k++) fn(out, name, &m);
    }
}

static void put_method(FILE *out, const char *service, const struct pb_field *m) {
    char name[NAME_BYTES], type[NAME_BYTES];
    text_of(name, m, 1, 0);
    fprintf(out, "    {\"/%s/%s\", &", service, name);
    text_of(type, m, 2, 0);
    put_ident(out, "grpc", type);
    fputs(", &", out);
    text_of(type, m, 3, 0);
    put_ident(out, "grpc", type);
    fprintf(out, ", %d, %d},\n", number_of(m, 5) != 0, number_of(m, 6) != 0);
}

static void put_service(FILE *out, const char *service, const struct pb_field *m) {
    (void)m;
    fprintf(out, "    \"%s\",\n", service);
}

static void put_method_symbol(FILE *out, const char *service, const struct pb_field *m) {
    char name[NAME_BYTES];
    if (m == NULL)
        fprintf(out, "\"%s\", ", service);
    else
        fprintf(out, "\"%s.%s\", ", service, text_of(name, m, 1, 0));
}

/* ---- files */

static void put_bytes(FILE *out, const char *what, unsigned i, const unsigned char *p, size_t n) {
    fprintf(out, "static const unsigned char %s_%u[] = {", what, i);
    for (size_t k = 0; k < n; k++) fprintf(out, "%u,", p[k]);
    fputs("};\n", out);
}

static void put_file_parts(FILE *out, const struct pb_field *file, unsigned i, const char *folder) {
    char name[NAME_BYTES], package[NAME_BYTES], path[2 * NAME_BYTES];
    text_of(name, file, 1, 0);
    text_of(package, file, 2, 0);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    struct bytes text = read_file(path);
    put_bytes(out, "descriptor", i, file->bytes, file->n);
    put_bytes(out, "text", i, text.p, text.n);
    free(text.p);
    fprintf(out, "static const char *const imports_%u[] = {", i);
    for (unsigned k = 0; text_of(name, file, 3, k) != NULL; k++) fprintf(out, "\"%s\", ", name);
    fprintf(out, "NULL};\nstatic const char *const symbols_%u[] = {", i);
    walk(out, package, file, 4, 5, put_symbol, put_enum_symbol);
    walk_services(out, file, package, put_method_symbol, false);
    walk_services(out, file, package, put_method_symbol, true);
    fputs("NULL};\n", out);
}

static void put_files(FILE *out, const struct pb_field *set, const char *folder) {
    struct pb_field file;
    char name[NAME_BYTES];
    for (unsigned i = 0; find(&file, set, 1, i); i++) put_file_parts(out, &file, i, folder);
    fputs("const struct grpc_file grpc_files[] = {\n", out);
    for (unsigned i = 0; find(&file, set, 1, i); i++)
        fprintf(out,
                "    {\"%s\", descriptor_%u, sizeof(descriptor_%u), (const char *)text_%u, "
                "sizeof(text_%u), imports_%u, symbols_%u},\n",
                text_of(name, &file, 1, 0), i, i, i, i, i, i);
    fputs("    {NULL, NULL, 0, NULL, 0, NULL, NULL},\n};\n", out);
}

/* Everything of every file, by one of the walks above. */
static void each(FILE *out, const struct pb_field *set, visit_fn *on_message, visit_fn *on_enum) {
    struct pb_field file;
    char package[NAME_BYTES];
    for (unsigned i = 0; find(&file, set, 1, i); i++) {
        text_of(package, &file, 2, 0);
        walk(out, package, &file, 4, 5, on_message, on_enum);
    }
}

static void each_service(FILE *out, const struct pb_field *set, service_fn *fn, bool methods) {
    struct pb_field file;
    char package[NAME_BYTES];
    for (unsigned i = 0; find(&file, set, 1, i); i++) {
        text_of(package, &file, 2, 0);
        walk_services(out, &file, package, fn, methods);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) give_up("usage", "proto_gen DESCRIPTORS FOLDER OUT");
    struct bytes in = read_file(argv[1]);
    const struct pb_field set = {.bytes = in.p, .n = in.n};
    FILE *out = fopen(argv[3], "w");
    if (out == NULL) give_up("cannot write", argv[3]);
    fputs("/* Made by tools/proto_gen.c of proto/grpc/. */\n"
          "#include \"common/grpc/grpc_types.h\"\n\n",
          out);
    each(out, &set, declare_message, put_enum);
    each(out, &set, put_message, no_enum);
    fputs("const struct grpc_method grpc_methods[] = {\n", out);
    each_service(out, &set, put_method, true);
    fputs("    {NULL, NULL, NULL, 0, 0},\n};\nconst char *const grpc_services[] = {\n", out);
    each_service(out, &set, put_service, false);
    fputs("    NULL,\n};\n", out);
    put_files(out, &set, argv[2]);
    if (fclose(out) != 0) give_up("cannot write", argv[3]);
    free(in.p);
    return 0;
}
