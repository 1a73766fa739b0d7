/* Goal: no bytes of a call make a reader of messages read or write out of bounds, and what it makes
 * of them is stable. Method: the first byte chooses a method, the second its message and an
 * encoding, the rest is the body; what is read is written and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "common/grpc/grpc_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_BYTES_MAX = 1 << 20 };

static void write_again(const struct grpc_message *m, const struct json_value *v) {
    struct buf first = BUF_INIT, json = BUF_INIT, second = BUF_INIT;
    struct json_value *again = NULL;
    struct errbuf eb;
    grpc_from_json(&first, m, v);
    if (first.failed) goto done;
    /* What was written can be read, and is the same then. */
    if (grpc_to_json(&json, m, first.data, first.len, 64 << 20, &eb) != ERR_OK) abort();
    if (json_read(&again, json.data, json.len, NULL, NULL) != ERR_OK) goto done; /* too deep */
    grpc_from_json(&second, m, again);
    if (second.len != first.len ||
        (first.len > 0 && memcmp(first.data, second.data, first.len) != 0))
        abort();
done:
    json_put(again);
    buf_free(&first);
    buf_free(&json);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const encodings[] = {"", "gzip", "deflate", "identity"};
    size_t n_methods = 0;
    if (size < 2) return 0;
    while (grpc_methods[n_methods].path != NULL) n_methods++;
    const struct grpc_method *method = &grpc_methods[data[0] % n_methods];
    const struct grpc_body b = {.message = data[1] & 1 ? method->out : method->in,
                                .p = (const char *)data + 2,
                                .n = size - 2,
                                .encoding = encodings[data[1] >> 1 & 3],
                                .message_bytes_max = MESSAGE_BYTES_MAX};
    struct buf text = BUF_INIT;
    struct json_value *v = NULL;
    struct errbuf eb;
    int status;
    if (grpc_body_read(&b, NULL, &text, &v, &status, &eb)) write_again(b.message, v);
    json_put(v);
    buf_free(&text);
    return 0;
}
