/* A client's body as the coordinator looks at it, on every path (first byte): nothing is refused
 * here, but what comes out is within its bounds, and of JSON it is what the body's tree says. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/coordinator/body_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct body_look l;
    size_t n_paths = 0;
    if (size < 1) return 0;
    while (api_paths[n_paths].path != NULL) n_paths++;
    const struct api_path *path = &api_paths[data[0] % n_paths];
    body_look(&l, path, (const char *)data + 1, size - 1);
    require(l.is_object || !l.has_input);
    require(l.n_chars <= 4 * size); /* a token id takes a byte at least, and counts for four */
    require(path->stream != API_STREAM_NEVER || !l.stream);
    require(path->stream != API_STREAM_ALWAYS || l.stream);
    require(l.input_bytes == 0 || l.input_bytes < size);
    require(l.priority <= PRIORITY_LAST);
    struct body_look tree;
    if (body_tree(&tree, path, (const char *)data + 1, size - 1)) {
        tree.input = l.input;
        tree.input_bytes = l.input_bytes;
        tree.before_input = l.before_input;
        require(memcmp(&l, &tree, sizeof(l)) == 0);
    }
    size_t n = strlen(l.client_id);
    require(n == 0 || body_id_ok(l.client_id, n));
    return 0;
}
