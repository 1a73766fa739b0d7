/* Goal: no message of a call that generates breaks the endpoint (properties: endpoint_body.h;
 * errors are text, answers messages). */
#include "tests/fuzz/endpoint_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/inference.GRPCInferenceService/ModelInfer",
                                        "/inference.GRPCInferenceService/ModelStreamInfer",
                                        "/fmaas.GenerationService/Generate",
                                        "/fmaas.GenerationService/GenerateStream"};
    return fuzz_body(paths, sizeof(paths) / sizeof(paths[0]), data, size);
}
