/* Goal: no bytes make the reader of tokenizer.model crash, leak or take what it cannot use.
 * Property: a file that is taken encodes any text or gives up cleanly; the ids lie in the
 * vocabulary; streamed text equals whole text and is UTF-8. */
#include "tests/fuzz/tokenizer_props.h"
#include "common/text/tokenizer_spm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *t = NULL;
    struct errbuf eb = {.code = ERR_OK};
    if (tokenizer_from_spm(&t, data, size, "fuzz", NULL, NULL, &eb) != ERR_OK) {
        if (t != NULL || eb.text[0] == '\0') abort();
        return 0;
    }
    check_tokenizer(t);
    tokenizer_free(&t);
    return 0;
}
