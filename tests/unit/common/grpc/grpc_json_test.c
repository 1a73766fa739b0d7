/* Goal: messages and JSON become each other byte for byte, and what is no message is refused in
 * time and memory. Method: the golden vectors (kserve-runtimes 16) both ways, then truncations,
 * depth, floods, compressed bombs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "common/grpc/grpc_json.h"
#include "proto/grpc.h"

static const struct grpc_message *message_of(const char *name) {
    for (const struct grpc_method *m = grpc_methods; m->path != NULL; m++) {
        if (strcmp(m->in->name, name) == 0) return m->in;
        if (strcmp(m->out->name, name) == 0) return m->out;
    }
    return NULL;
}

static size_t unhex(unsigned char *dst, const char *hex) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned v = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        dst[i] = (unsigned char)v;
    }
    return n;
}

static const struct {
    const char *message, *json, *hex;
} golden[] = {
    {"fmaas.BatchedGenerationRequest",
     "{\"requests\":[{\"text\":\"hi\"}],\"params\":{\"stopping\":{\"max_new_tokens\":5}}}",
     "1a041202686952041a020805"},
    {"fmaas.BatchedGenerationResponse",
     "{\"responses\":[{\"generated_token_count\":1,\"text\":\"x\",\"input_token_count\":2,"
     "\"stop_reason\":\"MAX_TOKENS\"}]}",
     "0a09100122017830023801"},
    {"fmaas.SingleGenerationRequest",
     "{\"request\":{\"text\":\"hi\"},\"params\":{\"method\":\"SAMPLE\",\"sampling\":{"
     "\"temperature\":0.5,\"top_k\":3,\"seed\":7},\"stopping\":{\"max_new_tokens\":5,"
     "\"stop_sequences\":[\"\\n\"],\"include_stop_sequence\":false},\"response\":{"
     "\"generated_tokens\":true,\"token_logprobs\":true}}}",
     "1a0412026869521c080112090d0000003f100328071a07080522010a2800220410012001"},
    {"fmaas.GenerationResponse", "{\"input_token_count\":2,\"seed\":7}", "30025007"},
    {"fmaas.GenerationResponse",
     "{\"generated_token_count\":1,\"text\":\"ab\",\"tokens\":[{\"text\":\"ab\",\"logprob\":-0.5,"
     "\"rank\":1}]}",
     "100122026162420b120261621d000000bf2001"},
    {"fmaas.ModelInfoResponse", "{\"max_sequence_length\":4096,\"max_new_tokens\":1024}",
     "108020188008"},
    {"caikit.runtime.Nlp.EmbeddingTaskRequest", "{\"text\":\"hi\"}", "0a026869"},
    {"caikit.runtime.Nlp.RerankTaskRequest",
     "{\"query\":\"q\",\"documents\":[{\"text\":\"a\",\"n\":1}],\"top_n\":1}",
     "0a0171121d0a0b0a047465787412031a01610a0e0a016e120911000000000000f03f1801"},
    {"caikit_data_model.caikit_nlp.EmbeddingResult",
     "{\"result\":{\"data_npfloat32sequence\":{\"values\":[0.5,0.25]}},\"producer_id\":{"
     "\"name\":\"EmbeddingModule\",\"version\":\"0.0.1\"},\"input_token_count\":5}",
     "0a0c120a0a080000003f0000803e12180a0f456d62656464696e674d6f64756c651205302e302e311805"},
    {"caikit_data_model.caikit_nlp.SentenceSimilarityResult",
     "{\"result\":{\"scores\":[1]},\"input_token_count\":4}", "0a0a0a08000000000000f03f1804"},
    {"caikit_data_model.caikit_nlp.RerankResult",
     "{\"result\":{\"query\":\"q\",\"scores\":[{\"index\":1,\"score\":0.5,\"text\":\"a\"}]}}",
     "0a130a0171120e100119000000000000e03f220161"},
    {"grpc.health.v1.HealthCheckResponse", "{\"status\":\"SERVING\"}", "0801"},
    {"caikit_data_model.common.runtime.ModelInfoResponse",
     "{\"models\":[{\"model_path\":\"/m\",\"name\":\"x\",\"module_id\":\"i\",\"module_metadata\":{"
     "\"k\":\"v\"},\"loaded\":true}]}",
     "0a140a022f6d1201782a016932060a016b1201763801"},
    {"caikit_data_model.common.runtime.RuntimeInfoResponse",
     "{\"python_packages\":{\"caikit\":\"0.27.7\"}}", "12100a066361696b69741206302e32372e37"},
    {"caikit_data_model.nlp.GeneratedTextResult",
     "{\"generated_text\":\"x\",\"generated_tokens\":1,\"finish_reason\":\"MAX_TOKENS\","
     "\"input_token_count\":2}",
     "0a0178100118012802"},
    {"inference.ModelInferRequest",
     "{\"model_name\":\"m\",\"inputs\":[{\"name\":\"text_input\",\"datatype\":\"BYTES\","
     "\"shape\":[1]}],\"raw_input_contents\":[\"AgAAAGhp\"]}",
     "0a016d2a160a0a746578745f696e707574120542595445531a01013a06020000006869"},
    {"inference.ModelInferRequest", "{\"parameters\":{\"max_tokens\":{\"int64_param\":5}}}",
     "22100a0a6d61785f746f6b656e7312021005"},
    {"inference.ModelInferResponse",
     "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"text_output\","
     "\"datatype\":\"BYTES\",\"shape\":[1]}],\"raw_output_contents\":[\"AgAAAG9r\"]}",
     "0a016d1201312a170a0b746578745f6f7574707574120542595445531a01013206020000006f6b"},
    {"inference.ModelStreamInferResponse",
     "{\"infer_response\":{\"model_name\":\"m\",\"parameters\":{\"triton_final_response\":{"
     "\"bool_param\":true}}}}",
     "12200a016d221b0a15747269746f6e5f66696e616c5f726573706f6e736512020801"},
    {"inference.ServerMetadataResponse",
     "{\"name\":\"triton\",\"version\":\"2\",\"extensions\":[\"parameters\"]}",
     "0a06747269746f6e1201321a0a706172616d6574657273"},
    {"grpc.reflection.v1.ServerReflectionRequest", "{\"list_services\":\"*\"}", "3a012a"},
    {"grpc.reflection.v1alpha.ServerReflectionResponse",
     "{\"original_request\":{\"list_services\":\"*\"},\"list_services_response\":{\"service\":[{"
     "\"name\":\"a.B\"}]}}",
     "12033a012a32070a050a03612e42"},
    {"grpc.reflection.v1.ServerReflectionResponse",
     "{\"error_response\":{\"error_code\":5,\"error_message\":\"x\"}}", "3a050805120178"},
};

static void golden_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        unsigned char bytes[512];
        const size_t n = unhex(bytes, golden[i].hex);
        const struct grpc_message *m = message_of(golden[i].message);
        struct buf json = BUF_INIT, out = BUF_INIT;
        struct json_value *v = NULL;
        struct errbuf eb;
        assert_non_null(m);
        assert_int_equal(grpc_to_json(&json, m, bytes, n, 65536, &eb), ERR_OK);
        assert_string_equal(json.data, golden[i].json);
        assert_int_equal(json_read(&v, json.data, json.len, NULL, NULL), ERR_OK);
        grpc_from_json(&out, m, v);
        assert_int_equal(out.len, n);
        assert_memory_equal(out.data, bytes, n);
        json_put(v);
        buf_free(&json);
        buf_free(&out);
    }
}

/* Every truncation is refused, or is a message of fewer fields; none reads behind its end. */
static void truncations(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        unsigned char bytes[512];
        const size_t n = unhex(bytes, golden[i].hex);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *exact = malloc(cut + 1);
            struct buf json = BUF_INIT;
            struct errbuf eb;
            memcpy(exact, bytes, cut);
            enum err e = grpc_to_json(&json, message_of(golden[i].message), exact, cut, 65536, &eb);
            assert_true(e == ERR_OK || e == ERR_BAD_FRAME);
            buf_free(&json);
            free(exact);
        }
    }
}

/* Garbage behind the entries of a Struct, or the values of a list in it, is none of them. */
static void nested_garbage(void **state) {
    static const char *const hex[] = {"0a017112030a7f61",
                                      "0a017112100a0b0a047465787412031a01610a7f61",
                                      "0a0171120c0a0a0a016c120532030a7f61"};
    (void)state;
    for (size_t i = 0; i < sizeof(hex) / sizeof(hex[0]); i++) {
        unsigned char bytes[64];
        struct buf json = BUF_INIT;
        struct errbuf eb;
        const size_t n = unhex(bytes, hex[i]);
        assert_int_equal(grpc_to_json(&json, message_of("caikit.runtime.Nlp.RerankTaskRequest"),
                                      bytes, n, 65536, &eb),
                         ERR_BAD_FRAME);
        buf_free(&json);
    }
}

/* Fields that nobody knows, or of another type, are skipped; of two the last counts; a list may be
 * packed or not. */
static void tolerance(void **state) {
    static const char bytes[] = "\x10\x01\x10\x02\xf8\x07\x05\x22\x01x\x15\0\0\0\0";
    struct buf json = BUF_INIT;
    struct errbuf eb;
    (void)state;
    assert_int_equal(grpc_to_json(&json, message_of("fmaas.GenerationResponse"), bytes,
                                  sizeof(bytes) - 1, 65536, &eb),
                     ERR_OK);
    assert_string_equal(json.data, "{\"generated_token_count\":2,\"text\":\"x\"}");
    buf_free(&json);
}

static void bounds(void **state) {
    enum { N = 200000 };
    struct buf json = BUF_INIT;
    struct errbuf eb;
    char *flood = malloc(2 * N);
    (void)state;
    for (size_t i = 0; i < N; i++) memcpy(flood + 2 * i, "\x1a\x00", 2); /* empty requests */
    assert_int_equal(grpc_to_json(&json, message_of("fmaas.BatchedGenerationRequest"), flood, 2 * N,
                                  100000, &eb),
                     ERR_TOO_LARGE);
    assert_true(json.len < 200000);
    buf_free(&json);
    free(flood);
}

static size_t deflated(unsigned char *dst, size_t cap, int bits, const char *p, size_t n) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)p,
                  .avail_in = (uInt)n,
                  .next_out = dst,
                  .avail_out = (uInt)cap};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void compression(void **state) {
    enum { N = 1 << 20, MAX = 65536 };
    unsigned char packed[4096];
    char *zeros = calloc(1, N);
    struct buf out = BUF_INIT;
    (void)state;
    size_t n = deflated(packed, sizeof(packed), 31, "hello", 5);
    assert_int_equal(grpc_inflate(&out, "gzip", (char *)packed, n, MAX), ERR_OK);
    assert_int_equal(out.len, 5);
    assert_memory_equal(out.data, "hello", 5);
    for (size_t cut = 0; cut < n; cut++) {
        buf_clear(&out);
        assert_int_equal(grpc_inflate(&out, "gzip", (char *)packed, cut, MAX), ERR_BAD_FRAME);
    }
    packed[n] = 0; /* bytes behind the end */
    buf_clear(&out);
    assert_int_equal(grpc_inflate(&out, "gzip", (char *)packed, n + 1, MAX), ERR_BAD_FRAME);
    n = deflated(packed, sizeof(packed), 15, "hello", 5);
    buf_clear(&out);
    assert_int_equal(grpc_inflate(&out, "deflate", (char *)packed, n, MAX), ERR_OK);
    assert_int_equal(grpc_inflate(&out, "br", (char *)packed, n, MAX), ERR_NOT_FOUND);
    assert_int_equal(grpc_inflate(&out, "", (char *)packed, n, MAX), ERR_BAD_FRAME);
    n = deflated(packed, sizeof(packed), 31, zeros, N); /* a bomb */
    buf_free(&out);
    assert_int_equal(grpc_inflate(&out, "gzip", (char *)packed, n, MAX), ERR_TOO_LARGE);
    assert_true(out.cap <= 4 * MAX);
    buf_free(&out);
    free(zeros);
}

/* What a body is refused with. */
static void bodies(void **state) {
    static const struct {
        const char *body;
        size_t n;
        const char *encoding;
        int status;
    } rows[] = {
        {"\0\0\0\0\2\x08\1", 7, NULL, 0},
        {"\0\0\0\0\0", 5, NULL, 0},
        {"", 0, NULL, GRPC_UNREADABLE},
        {"\0\0\0\0\2\x0a\5", 7, NULL, GRPC_UNREADABLE},
        {"\0\0\0\0\3\x0a\1\xff", 8, NULL, GRPC_UNREADABLE}, /* text that is not UTF-8 */
        {"\1\0\0\0\2\x08\1", 7, NULL, GRPC_UNREADABLE},
        {"\1\0\0\0\2\x08\1", 7, "identity", GRPC_UNREADABLE},
        {"\1\0\0\0\2\x08\1", 7, "snappy", 501},
        {"\0\0\0\0\x12"
         "0123456789abcdefgh",
         23, NULL, 413},
    };
    const struct grpc_message *m = message_of("grpc.health.v1.HealthCheckRequest");
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct grpc_body b = {.message = m,
                                    .p = rows[i].body,
                                    .n = rows[i].n,
                                    .encoding = rows[i].encoding,
                                    .message_bytes_max = 16};
        struct buf text = BUF_INIT;
        struct json_value *v = NULL;
        struct errbuf eb = {0};
        int status = 0;
        assert_int_equal(grpc_body_read(&b, NULL, &text, &v, &status, &eb), rows[i].status == 0);
        assert_int_equal(status, rows[i].status);
        json_put(v);
        buf_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors), cmocka_unit_test(truncations),
        cmocka_unit_test(nested_garbage), cmocka_unit_test(tolerance),
        cmocka_unit_test(bounds),         cmocka_unit_test(compression),
        cmocka_unit_test(bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
