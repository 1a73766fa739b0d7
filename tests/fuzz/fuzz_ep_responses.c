/* Goal: no body on the path of OpenAI's Responses breaks the endpoint (properties:
 * endpoint_body.h); nor do earlier responses, whatever they hold: they come behind a zero byte. */
#include "tests/fuzz/endpoint_body.h"

static void behind_earlier_ones(const char *body, size_t n_body, const char *context, size_t n) {
    struct fixture *f = fuzz_open(0);
    struct infer_req *req = NULL;
    struct api_answer err;
    char model[257];
    const struct endpoint_in in = {.path = fixture_path("/v1/responses", model),
                                   .req_id = "17",
                                   .body = body,
                                   .body_len = n_body,
                                   .context = context,
                                   .context_len = n,
                                   .random_seed = 7};
    if (endpoint_read(f->ep, &in, &req, &err)) {
        infer_req_destroy(&req);
        return;
    }
    if (err.status < 400 || err.status > 499) abort();
    fuzz_json(err.body.data, err.body.len);
    buf_free(&err.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/v1/responses"};
    const char *text = (const char *)data, *zero = size > 0 ? memchr(text, 0, size) : NULL;
    if (zero != NULL)
        behind_earlier_ones(text, (size_t)(zero - text), zero + 1,
                            size - 1 - (size_t)(zero - text));
    return fuzz_body(paths, sizeof(paths) / sizeof(paths[0]), data, size);
}
