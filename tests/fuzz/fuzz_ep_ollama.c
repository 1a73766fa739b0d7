/* Goal: no body on the paths of Ollama breaks the endpoint (properties: endpoint_body.h). */
#include "tests/fuzz/endpoint_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/api/chat", "/api/generate"};
    return fuzz_body(paths, sizeof(paths) / sizeof(paths[0]), data, size);
}
