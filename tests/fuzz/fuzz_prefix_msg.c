/* What an instance says of its prefix cache, and the list of a prompt's answer: what is taken says
 * the same when it is written and read again, and a set that follows it stays in bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "proto/prefix_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void list(const char *text, size_t n) {
    uint64_t digests[PREFIX_PROMPT_DIGESTS_MAX];
    char again[PREFIX_PROMPT_DIGESTS_MAX * PREFIX_DIGEST_CHARS + 1];
    size_t n_digests;
    if (!prefix_digests_read(digests, PREFIX_PROMPT_DIGESTS_MAX, &n_digests, text, n)) return;
    prefix_digests_write(again, digests, n_digests);
    require(strlen(again) == n && memcmp(again, text, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_value *o = NULL;
    struct prefix_msg m, again;
    struct errbuf eb = {0};
    list((const char *)data, size);
    if (json_read(&o, (const char *)data, size, NULL, NULL) != ERR_OK) return 0;
    if (prefix_msg_parse(&m, o, &eb) != ERR_OK) {
        require(eb.text[0] != 0 && m.digests == NULL && m.n == 0);
    } else if (m.epoch != 0) {
        require(m.n <= PREFIX_DIGESTS_MAX);
        struct json_value *one = prefix_msg_format(&m);
        require(one != NULL && prefix_msg_parse(&again, one, &eb) == ERR_OK);
        require(again.epoch == m.epoch && again.seq == m.seq && again.whole == m.whole &&
                again.n == m.n && memcmp(again.digests, m.digests, m.n * sizeof(*m.digests)) == 0);
        prefix_msg_free(&again);
        json_put(one);
    }
    prefix_msg_free(&m);
    json_put(o);
    return 0;
}
