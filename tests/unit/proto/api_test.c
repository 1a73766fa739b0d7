/* Goal: the shapes of errors by path, style and status (inference-api 3.1, 3.2), the question
 * whether a body asks for a stream, and the version part of Triton paths. Method: tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/api.h"
#include "proto/json.h"

static void error_bodies(void **state) {
    (void)state;
    static const struct {
        enum api_errors shape;
        enum error_style style;
        int status, mapped;
        const char *body;
    } rows[] = {
        {API_ERRORS_PLAIN, ERROR_STYLE_MINDIE, 422, 422,
         "{\"error\":\"a \\\"b\\\" /c\xC3\xA4\",\"error_type\":\"Input Validation Error\"}"},
        {API_ERRORS_PLAIN, ERROR_STYLE_OPENAI, 424, 424,
         "{\"error\":\"a \\\"b\\\" /c\xC3\xA4\",\"error_type\":\"Generation Error\"}"},
        {API_ERRORS_PLAIN, ERROR_STYLE_MINDIE, 413, 413,
         "{\"error\":\"a \\\"b\\\" /c\xC3\xA4\",\"error_type\":\"Input Validation "
         "Error\",\"message\":\"a \\\"b\\\" /c\xC3\xA4\"}"},
        {API_ERRORS_V1, ERROR_STYLE_MINDIE, 429, 429,
         "{\"error\":\"a \\\"b\\\" "
         "/c\xC3\xA4\",\"error_type\":\"overloaded\",\"object\":\"error\",\"message\":\"a "
         "\\\"b\\\" /c\xC3\xA4\","
         "\"type\":\"RateLimitError\",\"param\":null,\"code\":429}"},
        {API_ERRORS_V1, ERROR_STYLE_OPENAI, 422, 400,
         "{\"error\":{\"message\":\"a \\\"b\\\" "
         "/c\xC3\xA4\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_"
         "value\"}}"},
        {API_ERRORS_V1, ERROR_STYLE_OPENAI, 424, 400,
         "{\"error\":{\"message\":\"a \\\"b\\\" "
         "/c\xC3\xA4\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_"
         "request\"}}"},
        {API_ERRORS_V1, ERROR_STYLE_OPENAI, 500, 500,
         "{\"error\":{\"message\":\"a \\\"b\\\" "
         "/c\xC3\xA4\",\"type\":\"server_error\",\"param\":null,\"code\":\"internal_error\"}}"},
        {API_ERRORS_VLLM, ERROR_STYLE_MINDIE, 422, 422,
         "{\"error\":\"a \\\"b\\\" /c\xC3\xA4\",\"error_type\":\"Input Validation Error\"}"},
        {API_ERRORS_VLLM, ERROR_STYLE_OPENAI, 422, 400,
         "{\"error\":{\"message\":\"a \\\"b\\\" "
         "/c\xC3\xA4\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_"
         "value\"}}"},
        {API_ERRORS_PLAIN, ERROR_STYLE_OPENAI, 401, 401,
         "{\"error\":\"a \\\"b\\\" /c\xC3\xA4\",\"error_type\":\"Unauthorized\"}"},
        {API_ERRORS_PLAIN, ERROR_STYLE_MINDIE, 401, 401,
         "{\"error\":{\"message\":\"a \\\"b\\\" "
         "/c\xC3\xA4\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_api_"
         "key\"}}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int status = rows[i].status;
        char *body =
            api_error_body(rows[i].shape, rows[i].style, &status, "a \"b\" /c\xC3\xA4", NULL, NULL);
        assert_string_equal(body, rows[i].body);
        assert_int_equal(status, rows[i].mapped);
        free(body);
    }
    static const struct {
        int status, mapped;
        const char *param, *code, *body;
    } ovms[] = {
        {422, 400, NULL, NULL, "{\"error\":\"x\"}"},
        {424, 400, NULL, NULL, "{\"error\":\"x\"}"},
        {401, 401, NULL, NULL, "{\"error\":\"x\"}"},
        {404, 404, "model", "model_not_found", "{\"error\":\"x\"}"},
        {429, 429, NULL, NULL, "{\"error\":\"x\"}"},
        {422, 400, "messages", "missing_required_parameter", "{\"error\":\"x\"}"},
        {422, 412, "model", "missing_required_parameter",
         "{\"error\":\"model field is missing in JSON body\"}"},
        {422, 412, NULL, "invalid_json", "{\"error\":\"The file is not valid json\"}"},
    };
    for (size_t i = 0; i < sizeof(ovms) / sizeof(ovms[0]); i++) {
        int got = ovms[i].status;
        char *text = api_error_body(API_ERRORS_OVMS, ERROR_STYLE_OPENAI, &got, "x", ovms[i].param,
                                    ovms[i].code);
        assert_string_equal(text, ovms[i].body);
        assert_int_equal(got, ovms[i].mapped);
        free(text);
    }
    int status = 422;
    char *body = api_error_body(API_ERRORS_V1, ERROR_STYLE_OPENAI, &status, "x", "messages[1].role",
                                "invalid_type");
    assert_string_equal(body, "{\"error\":{\"message\":\"x\",\"type\":\"invalid_request_error\","
                              "\"param\":\"messages[1].role\",\"code\":\"invalid_type\"}}");
    assert_int_equal(status, 400);
    free(body);
    status = 422; /* the reference's shape has no place for them */
    body = api_error_body(API_ERRORS_V1, ERROR_STYLE_MINDIE, &status, "x", "top_p", "invalid_type");
    assert_string_equal(body, "{\"error\":\"x\",\"error_type\":\"Input Validation Error\","
                              "\"object\":\"error\",\"message\":\"x\",\"type\":"
                              "\"BadRequestError\",\"param\":null,\"code\":422}");
    assert_int_equal(status, 422);
    free(body);
}

/* What Caikit's own server says, and what is said before it. */
static void caikit_s_two_shapes(void **state) {
    static const struct {
        int status;
        const char *code, *starts;
    } rows[] = {
        {400, NULL, "{\"details\":\"x\",\"code\":400,\"id\":\""},
        {404, "model_not_found", "{\"details\":\"x\",\"code\":404,\"id\":\""},
        {422, NULL, "{\"details\":\"x\",\"additional_info\":[{"},
        {501, NULL, "{\"details\":\"x\",\"code\":501,\"id\":\""},
        {404, "unknown_url", "{\"detail\":\"Not Found\"}"},
        {405, NULL, "{\"detail\":\"Method Not Allowed\"}"},
        {415, NULL, "{\"detail\":\"x\"}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int status = rows[i].status;
        char *body =
            api_error_body(API_ERRORS_CAIKIT, ERROR_STYLE_MINDIE, &status, "x", NULL, rows[i].code);
        assert_int_equal(strncmp(body, rows[i].starts, strlen(rows[i].starts)), 0);
        assert_int_equal(status, rows[i].status);
        free(body);
    }
}

/* Whoever wrote the text may have cut a character. */
static void texts_are_whole_characters(void **state) {
    static const char *const rows[][2] = {
        {"name 'a\xC3' not found", "name 'a' not found"},
        {"\xE2\x82\xAC\xE2\x82", "\xE2\x82\xAC"},
        {"\xF0\x9F\x98\x80\xF0\x9F\x98 \xED\xA0\x80!", "\xF0\x9F\x98\x80 !"},
        {"", ""},
    };
    static const enum api_errors shapes[] = {API_ERRORS_OLLAMA, API_ERRORS_GRPC};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t k = 0; k < 2; k++) {
            int status = 404;
            char want[96];
            snprintf(want, sizeof(want), k == 0 ? "{\"error\":\"%s\"}" : "%s", rows[i][1]);
            char *body =
                api_error_body(shapes[k], ERROR_STYLE_MINDIE, &status, rows[i][0], NULL, NULL);
            assert_string_equal(body, want);
            free(body);
        }
    }
}

static void bodies_say_their_path(void **state) {
    static const struct {
        const char *body, *path; /* NULL: none */
    } rows[] = {
        {"{\"messages\":[]}", "/v1/chat/completions"},
        {" \n{\"model\":\"m\",\"prompt\":\"x\"}", "/v1/completions"},
        {"{\"input\":\"x\",\"prompt\":null}", "/v1/embeddings"},
        {"{\"prompt\":\"x\",\"messages\":[1]}", "/v1/chat/completions"},
        {"{\"text_1\":\"x\",\"text_2\":\"y\"}", "/score"},
        {"{\"data_1\":[\"x\"]}", "/score"},
        {"{\"queries\":1}", "/score"},
        {"{\"query\":\"x\",\"documents\":[]}", "/rerank"},
        {"{\"p\\u0072ompt\":\"x\"}", "/v1/completions"},
        {"{\"a\":{\"messages\":[]},\"b\":\"prompt\"}", NULL},
        {"{\"text_2\":\"y\",\"messages\":null}", NULL},
        {"[\"messages\"]", NULL},
        {"\"messages\"", NULL},
        {"{\"messages\":[", NULL},
        {"  ", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct api_path *row = api_path_by_body(rows[i].body, strlen(rows[i].body));
        if (rows[i].path == NULL) {
            assert_null(row);
        } else {
            assert_non_null(row);
            assert_string_equal(row->path, rows[i].path);
        }
    }
}

static void types_of_bodies(void **state) {
    static const struct {
        const char *path, *type;
        bool taken;
    } rows[] = {
        {"/api/v1/task/embedding", NULL, true},
        {"/api/v1/task/embedding", "application/json", true},
        {"/api/v1/task/embedding", "Application/JSON; charset=utf-8", true},
        {"/api/v1/task/embedding", "application/json ;charset=utf-8", true},
        {"/api/v1/task/embedding", "application/jsonl", false},
        {"/api/v1/task/embedding", "", false},
        {"/api/v1/task/text-generation", "text/plain", false},
        {"/api/v1/task/rerank", "application/x-www-form-urlencoded", false},
        {"/api/v1/task/rerank", "multipart/form-data; boundary=x", false},
        {"/v1/completions", "text/plain", true},
        {"/pooling", "text/plain", false},
        {"/pooling", NULL, true},
        {"/v1/score", "application/x-www-form-urlencoded", false},
        {"/v2/rerank", "application/json; charset=utf-8", true},
        {"/invocations", "text/plain", false},
        {"/v1/chat/completions/render", "application/jsonl", false},
        {"/rerank", "text/plain", true},
        {"/tokenize", "text/plain", true},
        {"/v2/models/m/infer", "application/x-www-form-urlencoded", true},
    };
    char model[MODEL_NAME_BYTES_MAX + 1];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct api_path *row = api_path_find("POST", rows[i].path, model);
        assert_non_null(row);
        assert_int_equal(api_takes_type(row, rows[i].type), rows[i].taken);
    }
}

static void control_paths_keep_the_reference_s_errors(void **state) {
    (void)state;
    static const char *const control[] = {"/v1/instances/register", "/v1/coordinator_info",
                                          "/v1/load_lora_adapter", "/v1/tokenizer"};
    static const char *const openai[] = {"/v1/chat/completions", "/v1/models", "/v1/models/role/",
                                         "/v1/embeddings"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(api_path_style(control[i], ERROR_STYLE_OPENAI), ERROR_STYLE_MINDIE);
        assert_int_equal(api_path_style(openai[i], ERROR_STYLE_OPENAI), ERROR_STYLE_OPENAI);
        assert_int_equal(api_path_style(openai[i], ERROR_STYLE_MINDIE), ERROR_STYLE_MINDIE);
    }
}

static void error_types(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *type;
    } rows[] = {{400, "Bad Request"},           {404, "NotFoundError"},
                {408, "Request Timeout"},       {422, "Input Validation Error"},
                {424, "Generation Error"},      {429, "overloaded"},
                {500, "Incomplete Generation"}, {503, "Service Unavailable"},
                {418, "Bad Request"},           {599, "Incomplete Generation"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(api_error_type(rows[i].status), rows[i].type);
}

static void streams(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
        bool stream;
    } rows[] = {
        {"/", "{\"stream\":true}", true},
        {"/", "{\"stream\":1}", false},
        {"/", "{}", false},
        {"/generate", "{\"inputs\":\"x\",\"stream\":true}", false},
        {"/generate", "{\"prompt\":\"x\",\"stream\":true}", true},
        {"/generate", "{\"prompt\":null,\"inputs\":\"x\",\"stream\":true}", false},
        {"/generate_stream", "{\"stream\":false}", true},
        {"/generate_stream", NULL, true},
        {"/v1/completions", "{\"stream\":true}", true},
        {"/v1/completions", NULL, false},
        {"/v2/models/{m}/generate", "{\"stream\":true}", false},
        {"/v2/models/{m}/generate_stream", "{}", true},
        {"/v2/models/{m}/infer", "{\"stream\":true}", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct api_path *p = api_paths;
        struct json_value *o = NULL;
        while (p->path != NULL && strcmp(p->path, rows[i].path) != 0) p++;
        assert_non_null(p->path);
        if (rows[i].body != NULL)
            assert_int_equal(json_read(&o, rows[i].body, strlen(rows[i].body), NULL, NULL), ERR_OK);
        assert_int_equal(api_wants_stream(p, o), rows[i].stream);
        json_put(o);
    }
}

static void versions(void **state) {
    (void)state;
#define LONG "1234567890123456789012345678901"
    static const char *const rows[][3] = {
        {"/v2/models/m/versions/1/infer", "/v2/models/m/infer", "1"},
        {"/v2/models/m/versions/1", "/v2/models/m", "1"},
        {"/v2/models/m/versions/x y/infer", "/v2/models/m/infer", "x y"},
        {"/v2/models/m/versions/" LONG "2", "/v2/models/m", LONG},
        {"/v2/models/m/versions/", "/v2/models/m/versions/", ""},
        {"/v2/models/m/versions//infer", "/v2/models/m/versions//infer", ""},
        {"/v2/models/m/version/1/infer", "/v2/models/m/version/1/infer", ""},
        {"/v2/models/versions/1", "/v2/models/versions/1", ""},
        {"/v2/models/m", "/v2/models/m", ""},
        {"/v1/models/m/versions/1", "/v1/models/m/versions/1", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[64], version[API_VERSION_BYTES] = "old";
        strcpy(path, rows[i][0]);
        api_path_drop_version(path, version);
        assert_string_equal(path, rows[i][1]);
        assert_string_equal(version, rows[i][2]);
        assert_int_equal(api_version_is_served(version), strlen(version) < 2);
    }
}

/* A path is found if and only if it is a row with a good name in the place of {m}; what is found
 * formats back to the path. */
static void paths(void **state) {
    (void)state;
    static const struct {
        const char *path, *row, *model;
    } rows[] = {
        {"/", "/", ""},
        {"/generate", "/generate", ""},
        {"/generate_stream", "/generate_stream", ""},
        {"/v1/chat/completions", "/v1/chat/completions", ""},
        {"/infer", "/infer", ""},
        {"/infer_token", "/infer_token", ""},
        {"/v2/models/a/infer", "/v2/models/{m}/infer", "a"},
        {"/v2/models/A-z_0.9/generate", "/v2/models/{m}/generate", "A-z_0.9"},
        {"/v2/models/m/generate_stream", "/v2/models/{m}/generate_stream", "m"},
        {"/v2/models//infer", NULL, NULL},
        {"/v2/models/a b/infer", NULL, NULL},
        {"/v2/models/a%/infer", NULL, NULL},
        {"/v2/models/a/b/infer", NULL, NULL},
        {"/v2/models/m/infer/", NULL, NULL},
        {"/v2/models/m", NULL, NULL},
        {"/v2/models/", NULL, NULL},
        {"/generate/", NULL, NULL},
        {"/Generate", NULL, NULL},
        {"", NULL, NULL},
        {"/{m}", NULL, NULL},
        {"/v2/models/{m}/infer", NULL, NULL},
    };
    char model[MODEL_NAME_BYTES_MAX + 1], back[API_PATH_BYTES];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct api_path *a = api_path_find("POST", rows[i].path, model);
        assert_int_equal(a != NULL, rows[i].row != NULL);
        if (a == NULL) continue;
        assert_string_equal(a->path, rows[i].row);
        assert_string_equal(model, rows[i].model);
        api_path_format(back, sizeof(back), a, model);
        assert_string_equal(back, rows[i].path);
    }
    for (size_t n = MODEL_NAME_BYTES_MAX - 1; n <= MODEL_NAME_BYTES_MAX + 1; n++) {
        char path[MODEL_NAME_BYTES_MAX + 64], name[MODEL_NAME_BYTES_MAX + 2];
        memset(name, 'x', n);
        name[n] = 0;
        sprintf(path, "/v2/models/%s/generate_stream", name);
        const struct api_path *a = api_path_find("POST", path, model);
        assert_int_equal(a != NULL, n <= MODEL_NAME_BYTES_MAX);
        if (a == NULL) continue;
        assert_string_equal(model, name);
        api_path_format(back, sizeof(back), a, model);
        assert_string_equal(back, path);
    }
}

static void too_large(void **state) {
    (void)state;
    char text[API_TOO_LARGE_BYTES];
    api_too_large_text(text, (size_t)40 << 20);
    assert_string_equal(text, "Request body too large. Maximum allowed size is 40MB.");
    api_too_large_text(text, SIZE_MAX);
    assert_string_equal(text, "Request body too large. Maximum allowed size is 17592186044415MB.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_bodies),
        cmocka_unit_test(caikit_s_two_shapes),
        cmocka_unit_test(texts_are_whole_characters),
        cmocka_unit_test(bodies_say_their_path),
        cmocka_unit_test(types_of_bodies),
        cmocka_unit_test(error_types),
        cmocka_unit_test(control_paths_keep_the_reference_s_errors),
        cmocka_unit_test(streams),
        cmocka_unit_test(versions),
        cmocka_unit_test(paths),
        cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
