/* Goal: no bytes make the request parser crash, loop or read past what it was given, and the way
 * they are cut into calls changes nothing. Method: the story of the bytes given whole against that
 * of the bytes in pieces whose sizes come from the input itself. */
#include "tests/unit/common/net/parse_story.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct story whole, cut;
    const char *bytes = (const char *)data;
    story_init(&whole, 600);
    story_init(&cut, 600);
    story_feed(&whole, bytes, size);
    for (size_t at = 0; at < size;) {
        size_t n = data[at] % 7 + 1u;
        if (n > size - at) n = size - at;
        story_feed(&cut, bytes + at, n);
        at += n;
    }
    if (whole.text.len != cut.text.len || whole.over != cut.over) abort();
    if (whole.text.len > 0 && memcmp(whole.text.data, cut.text.data, whole.text.len) != 0) abort();
    story_fini(&whole);
    story_fini(&cut);
    return 0;
}
