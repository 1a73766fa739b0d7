/* Goal: no body on llama.cpp's path breaks the endpoint (properties: endpoint_body.h). */
#include "tests/fuzz/endpoint_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/completion"};
    return fuzz_body(paths, sizeof(paths) / sizeof(paths[0]), data, size);
}
