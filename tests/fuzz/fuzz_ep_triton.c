/* Goal: no body on the paths of Triton breaks the endpoint (properties: endpoint_body.h). */
#include "tests/fuzz/endpoint_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/v2/models/qwen/infer", "/v2/models/qwen/generate",
                                        "/v2/models/qwen/generate_stream", "/v2/models/nope/infer"};
    return fuzz_body(paths, sizeof(paths) / sizeof(paths[0]), data, size);
}
