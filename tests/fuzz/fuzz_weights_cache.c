/* Goal: no bytes make the header parser of packed weights read outside its input, and what it takes
 * is a header that writing gives back bit for bit and that speaks of just the bytes of the file.
 * Method: the input is a file; a second look gives it the right checksum, so that the fields behind
 * the checksum are reached too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "common/engine/weights_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const uint8_t *p, size_t n, uint64_t file_bytes) {
    static uint8_t again[WC_HEADER_BYTES];
    struct wc_header h, twice;
    struct errbuf eb = {0};
    if (wc_header_read(&h, p, n, file_bytes, &eb) != ERR_OK) {
        if (eb.text[0] == 0) abort();
        return;
    }
    if (n < WC_HEADER_BYTES || h.data_bytes == 0 || h.data_bytes + WC_HEADER_BYTES != file_bytes)
        abort();
    wc_header_write(again, &h);
    if (wc_header_read(&twice, again, sizeof(again), file_bytes, &eb) != ERR_OK ||
        memcmp(&h, &twice, sizeof(h)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t sealed[WC_HEADER_BYTES];
    look(data, size, size);
    memset(sealed, 0, sizeof(sealed));
    memcpy(sealed, data, size < WC_HEADER_BYTES - 8 ? size : WC_HEADER_BYTES - 8);
    uint64_t sum = XXH3_64bits(sealed, WC_HEADER_BYTES - 8), bytes = 0;
    for (int i = 0; i < 8; i++) sealed[WC_HEADER_BYTES - 8 + i] = (uint8_t)(sum >> (8 * i));
    for (int i = 0; i < 8; i++) bytes |= (uint64_t)sealed[16 + i] << (8 * i);
    look(sealed, sizeof(sealed), bytes + WC_HEADER_BYTES);
    look(sealed, sizeof(sealed), sizeof(sealed) + 1);
    return 0;
}
