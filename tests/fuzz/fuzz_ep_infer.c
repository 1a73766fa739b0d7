/* Goal: no body with bytes behind its JSON breaks the endpoint (properties: endpoint_body.h). The
 * first two bytes say how many of the body are JSON. */
#include "tests/fuzz/endpoint_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"/v2/models/qwen/infer"};
    if (size < 3) return 0;
    fuzz_open(data[2] & 7); /* which clears it */
    snprintf(fuzz_fixture.json_bytes, sizeof(fuzz_fixture.json_bytes), "%u",
             (unsigned)(data[0] | data[1] << 8));
    return fuzz_body(paths, 1, data + 2, size - 2);
}
