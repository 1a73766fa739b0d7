/* Goal: a ModelInferRequest costs what is wanted of it (kserve-runtimes 8, 11): elements of inputs
 * that mean nothing, that nobody knows, or that are too many are never read. Method: messages
 * written here, allocations counted. What inputs mean is tests/cluster/test_grpc_infer's. */
#include "proto/grpc.h"
#include "proto/pb.h"
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/endpoint/checks.h"

#define PATH "/inference.GRPCInferenceService/ModelInfer"

enum { MODEL_NAME = 1, INPUT = 5, RAW = 7, NAME = 1, DATATYPE, SHAPE };
enum { MANY = 100000, MOST_ALLOCATIONS = 1000 };

static void put_varint(struct buf *out, uint64_t v) {
    unsigned char bytes[PB_VARINT_BYTES];
    buf_append(out, bytes, pb_put_varint(bytes, v));
}

static void put_field(struct buf *out, unsigned number, const void *p, size_t n) {
    put_varint(out, number << 3 | PB_BYTES);
    put_varint(out, n);
    buf_append(out, p, n);
}

struct input {
    const char *name, *datatype;
    size_t n;     /* elements of the shape */
    size_t bytes; /* raw: zeros, but for what first says */
    const char *first;
    size_t n_first;
};

static void put_inputs(struct buf *body, const struct input *in, size_t n) {
    put_field(body, MODEL_NAME, "qwen", 4);
    for (size_t i = 0; i < n; i++) {
        struct buf input = BUF_INIT, shape = BUF_INIT;
        put_field(&input, NAME, in[i].name, strlen(in[i].name));
        put_field(&input, DATATYPE, in[i].datatype, strlen(in[i].datatype));
        put_varint(&shape, in[i].n);
        put_field(&input, SHAPE, shape.data, shape.len);
        put_field(body, INPUT, input.data, input.len);
        buf_free(&input);
        buf_free(&shape);
    }
    for (size_t i = 0; i < n; i++) {
        char *raw = calloc(1, in[i].bytes + 1);
        assert_non_null(raw);
        if (in[i].n_first > 0) memcpy(raw, in[i].first, in[i].n_first);
        put_field(body, RAW, raw, in[i].bytes);
        free(raw);
    }
}

/* want: part of the error; NULL: it is taken. *taken: allocations meanwhile. */
static struct infer_req *read_inputs(struct fixture *f, const struct input *in, size_t n,
                                     const char *want, long *taken) {
    struct buf body = BUF_INIT;
    struct infer_req *req = NULL;
    struct api_answer err = {0};
    buf_append(&body, (unsigned char[GRPC_HEAD_BYTES]){0}, GRPC_HEAD_BYTES);
    put_inputs(&body, in, n);
    grpc_head_put((unsigned char *)body.data, (uint32_t)(body.len - GRPC_HEAD_BYTES));
    *taken = 0;
#if OWN_MALLOC
    const long before = atomic_load(&allocs_taken);
#endif
    const bool good = fixture_read_bytes(f, PATH, body.data, body.len, false, &req, &err);
#if OWN_MALLOC
    *taken = atomic_load(&allocs_taken) - before;
#endif
    buf_putc(&err.body, '\0');
    if (good != (want == NULL)) fail_msg("%s: %s", in[n - 1].name, err.body.data);
    if (want != NULL && strstr(err.body.data, want) == NULL)
        fail_msg("%s: %s is not %s", in[n - 1].name, err.body.data, want);
    buf_free(&err.body);
    buf_free(&body);
    return req;
}

#define TEXT                                                                                       \
    { "text_input", "BYTES", 1, 5, "\1\0\0\0x", 5 }

static void elements_that_are_not_wanted_are_not_read(void **state) {
    static const struct {
        struct input input;
        const char *want;
    } rows[] = {
        {{"attention_mask", "INT8", MANY, MANY, NULL, 0}, NULL},
        {{"position_ids", "INT64", MANY, 8 * MANY, NULL, 0}, NULL},
        {{"token_type_ids", "BYTES", MANY, 4 * MANY, NULL, 0}, NULL},
        {{"attention_mask", "INT8", MANY, MANY - 1, NULL, 0}, "another number of elements"},
        {{"attention_mask", "BYTES", MANY, 4 * MANY - 1, NULL, 0}, "another number of elements"},
        {{"nobody", "INT8", MANY, MANY, NULL, 0}, "unexpected inference input 'nobody'"},
        {{"temperature", "FP32", MANY, 4 * MANY, NULL, 0},
         "'temperature' must have one element, got 100000"},
        {{"stream", "BOOL", MANY, MANY, NULL, 0}, "'stream' must have one element, got 100000"},
        {{"return_logprobs", "BOOL", MANY, MANY, NULL, 0}, "'return_logprobs' must have one"},
        {{"prompt", "BYTES", MANY, 4 * MANY, NULL, 0}, "there is a prompt already"},
        {{"stop_token_ids", "INT8", MANY, MANY, NULL, 0},
         "input 'stop_token_ids': the lists of a request have 100000 elements so far, they may "
         "have 65536 together"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct input inputs[] = {TEXT, rows[i].input};
        long taken;
        struct infer_req *req = read_inputs(*state, inputs, 2, rows[i].want, &taken);
        infer_req_destroy(&req);
        if (taken > MOST_ALLOCATIONS) fail_msg("%s: %ld", rows[i].input.name, taken);
    }
}

static void lists_are_counted_together(void **state) {
    const struct input inputs[] = {TEXT,
                                   {"stop_token_ids", "INT8", 40000, 40000, NULL, 0},
                                   {"allowed_token_ids", "INT8", 25537, 25537, NULL, 0}};
    long taken;
    read_inputs(*state, inputs, 3, "'allowed_token_ids': the lists of a request have 65537",
                &taken);
}

static void prompts_are_bounded_before_they_are_read(void **state) {
    struct fixture *f = *state;
    const size_t max = (size_t)f->conf.max_seq_len;
    char want[128];
    long taken;
    snprintf(want, sizeof(want), "'input_ids' has 100000 ids, it may have 1 to %zu", max);
    const struct input ids = {"input_ids", "INT32", MANY, 4 * MANY, NULL, 0};
    assert_true(max < MANY);
    read_inputs(f, &ids, 1, want, &taken);
    if (taken > MOST_ALLOCATIONS) fail_msg("%ld", taken);
    const struct input texts = {"text_input", "BYTES", 129, 4 * 129, NULL, 0};
    read_inputs(f, &texts, 1, "'text_input' has 129 elements: at most 128 prompts", &taken);
}

/* Of each integer type, as they are in its bytes. */
static void ids(void **state) {
    static const struct input rows[] = {
        {"input_ids", "INT64", 2, 16, "\5\0\0\0\0\0\0\0\7", 9},
        {"input_ids", "UINT64", 2, 16, "\5\0\0\0\0\0\0\0\7", 9},
        {"input_ids", "INT32", 2, 8, "\5\0\0\0\7", 5},
        {"input_ids", "UINT16", 2, 4, "\5\0\7", 3},
        {"my_ids", "UINT8", 2, 2, "\5\7", 2},
    };
    static const struct input bad[] = {
        {"input_ids", "INT8", 1, 1, "\xff", 1},
        {"input_ids", "UINT32", 1, 4, "\0\0\0\x80", 4},
        {"input_ids", "INT64", 1, 8, "\5\0\0\0\1", 5},
        {"input_ids", "UINT64", 1, 8, "\5\0\0\0\0\0\0\x80", 8},
    };
    static const int32_t want[] = {5, 7};
    long taken;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req = read_inputs(*state, &rows[i], 1, NULL, &taken);
        assert_int_equal(req->n_prompt, 2);
        assert_memory_equal(req->ids, want, sizeof(want));
        infer_req_destroy(&req);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        read_inputs(*state, &bad[i], 1, "Invalid Input Ids", &taken);
}

/* A seed of all 64 bits is the one that came. */
static void seeds(void **state) {
    static const struct {
        const char *bytes;
        uint64_t want;
    } rows[] = {{"\0\0\0\0\0\0\0\x80", (uint64_t)1 << 63},
                {"\xff\xff\xff\xff\xff\xff\xff\xff", UINT64_MAX},
                {"\xff\xff\xff\xff\xff\xff\xff\x7f", INT64_MAX},
                {"\2\0\0\0\0\0\0\0", 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct input in[] = {TEXT, {"seed", "UINT64", 1, 8, rows[i].bytes, 8}};
        long taken;
        struct infer_req *req = read_inputs(*state, in, 2, NULL, &taken);
        assert_true(req->sampling.seed == rows[i].want);
        infer_req_destroy(&req);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_that_are_not_wanted_are_not_read),
        cmocka_unit_test(lists_are_counted_together),
        cmocka_unit_test(prompts_are_bounded_before_they_are_read),
        cmocka_unit_test(ids),
        cmocka_unit_test(seeds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
