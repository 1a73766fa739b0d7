/* A header traceparent: what is taken of version 00 is written back the same, but for flags that
 * are not known here. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct traceparent t, again;
    char *text = malloc(size + 1), back[TRACEPARENT_BYTES];
    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (traceparent_read(&t, text)) {
        traceparent_write(back, &t);
        if (memcmp(back + 3, text + 3, 50) != 0 || !traceparent_read(&again, back)) abort();
        if (again.sampled != t.sampled) abort();
    }
    free(text);
    return 0;
}
