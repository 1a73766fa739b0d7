/* Goal: no body on Caikit's paths of text breaks the endpoint (properties: endpoint_body.h). */
#include "tests/fuzz/endpoint_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/api/v1/task/text-generation",
                                        "/api/v1/task/server-streaming-text-generation"};
    return fuzz_body(paths, sizeof(paths) / sizeof(paths[0]), data, size);
}
