/* Goal: reflection answers what it is asked from the files of the build, and refuses what is no
 * question. Method: questions as bytes; answers are read by the tables, which another program made
 * of the same descriptors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "common/grpc/grpc_json.h"
#include "common/grpc/grpc_reflect.h"

/* The JSON of the answer; NULL: it was no question. The caller frees. */
static char *ask(const char *p, size_t n) {
    struct buf out = BUF_INIT, json = BUF_INIT;
    struct errbuf eb;
    const struct grpc_method *m =
        grpc_method_find("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
    char *said = NULL;
    if (grpc_reflect_answer(&out, p, n)) {
        assert_null(grpc_one_message(out.data, out.len));
        assert_int_equal(grpc_to_json(&json, m->out, out.data + GRPC_HEAD_BYTES,
                                      out.len - GRPC_HEAD_BYTES, 1 << 24, &eb),
                         ERR_OK);
        said = buf_steal(&json);
    }
    buf_free(&out);
    return said;
}

static void questions(void **state) {
    static const struct {
        const char *question;
        size_t n;
        const char *begins, *has;
    } rows[] = {
        {"\x3a\1*", 3,
         "{\"original_request\":{\"list_services\":\"*\"},\"list_services_response\":{",
         "{\"name\":\"fmaas.GenerationService\"}"},
        {"\x0a\1h\x3a\0", 5,
         "{\"valid_host\":\"h\",\"original_request\":", "grpc.health.v1.Health"},
        {"\x1a\x0chealth.proto", 14,
         "{\"original_request\":{\"file_by_filename\":\"health.proto\"},"
         "\"file_descriptor_response\":{\"file_descriptor_proto\":[\"",
         ""},
        {"\x22\x1cgrpc.health.v1.Health.Check\0", 30, "{", "\"error_code\":5"},
        {"\x22\x1bgrpc.health.v1.Health.Check", 29, "{", "file_descriptor_proto"},
        {"\x22\x1bgrpc.health.v1.Health/Watch", 29, "{", "file_descriptor_proto"},
        {"\x22\x01x", 3, "{", "\"error_message\":\"there is no symbol x\""},
        {"\x32\x01x", 3, "{", "\"error_code\":5"},
        {"", 0, "{\"original_request\":{},", "\"error_code\":3"},
        {"\xf8\x07\x05\x3a\0", 5, "{", "list_services_response"}, /* a field nobody knows */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *said = ask(rows[i].question, rows[i].n);
        assert_non_null(said);
        if (strncmp(said, rows[i].begins, strlen(rows[i].begins)) != 0 ||
            strstr(said, rows[i].has) == NULL)
            fail_msg("row %zu: %.300s", i, said);
        free(said);
    }
}

/* The question's name in the text of an error is a text: whole characters of it. */
static void names_in_errors(void **state) {
    static const char no_symbol[] = "there is no symbol ";
    char q[256] = "\x22\xcb\x01"; /* a name of 203 bytes: x, then characters of two */
    struct buf out = BUF_INIT;
    (void)state;
    for (int i = 0; i < 203; i++) q[3 + i] = (char)(i == 0 ? 'x' : i % 2 == 1 ? '\xc3' : '\xa9');
    assert_true(grpc_reflect_answer(&out, q, 206));
    const char *text = memmem(out.data, out.len, no_symbol, strlen(no_symbol));
    assert_non_null(text);
    assert_int_equal(out.data + out.len - text - (ptrdiff_t)strlen(no_symbol), 199);
    buf_free(&out);
}

static void no_questions(void **state) {
    static const char *const rows[] = {
        "\x0a\x05", "\x3a", "\xff",
        /* strings that are no text: the question comes back in the answer */
        "\x0a\1\xff\x3a\1*", "\x1a\2n\xc3", "\x22\2x\xff", "\x2a\3\x0a\1\xff", "\x2a\2\x0a\5",
        "\x32\1\xff", "\x3a\1\xff"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_null(ask(rows[i], strlen(rows[i])));
}

/* Every file can be asked for by its name, by each symbol, and by what others import it as. */
static void every_file_is_found(void **state) {
    (void)state;
    for (const struct grpc_file *f = grpc_files; f->name != NULL; f++) {
        for (const char *const *s = f->symbols; *s != NULL; s++) {
            struct buf q = BUF_INIT;
            buf_putc(&q, 0x22);
            assert_true(strlen(*s) < 128);
            buf_putc(&q, (char)strlen(*s));
            buf_puts(&q, *s);
            char *said = ask(q.data, q.len);
            if (strstr(said, "\"file_descriptor_response\":{") == NULL) fail_msg("%s", *s);
            free(said);
            buf_free(&q);
        }
        for (const char *const *name = f->imports; *name != NULL; name++) {
            const struct grpc_file *of = grpc_files;
            while (of->name != NULL && strcmp(of->name, *name) != 0) of++;
            assert_non_null(of->name);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions),
        cmocka_unit_test(names_in_errors),
        cmocka_unit_test(no_questions),
        cmocka_unit_test(every_file_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
