/* Goal: no bytes of a file break the reader of kept answers; what it takes lies within them.
 * Method: the input as a file's bytes, its CRC made right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/kept_dir.h"
#include "proto/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *file = malloc(size + 10);
    struct kept_file f;
    struct errbuf eb;
    memcpy(file, data, size);
    for (int with_crc = 0; with_crc <= 1; with_crc++) {
        const size_t n = with_crc ? size + 9 : size;
        if (with_crc) snprintf(file + size, 10, "\n%08x", crc32c(0, file, size));
        if (kept_file_parse(&f, file, n, &eb) != ERR_OK) continue;
        if (f.input + f.n_input != f.text || f.text + f.n_text > file + n) abort();
        if (f.at + f.n > f.n_text || f.events > f.n_text) abort();
    }
    free(file);
    return 0;
}
