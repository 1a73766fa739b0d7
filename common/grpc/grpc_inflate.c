/* grpc_inflate: a compressed message (RFC 1950, RFC 1952); memory grows with what comes out, never
 * beyond what a message may have. */
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include "common/grpc/grpc_json.h"

enum { STEP_BYTES = 65536, WINDOW_BITS = 15, GZIP_BITS = 16 };

/* Window bits of an encoding; 0: it is not known. */
static int bits_of(const char *encoding) {
    if (strcasecmp(encoding, "gzip") == 0) return WINDOW_BITS + GZIP_BITS;
    return strcasecmp(encoding, "deflate") == 0 ? WINDOW_BITS : 0;
}

static enum err run(z_stream *z, struct buf *out, size_t bytes_max) {
    for (;;) {
        if (!buf_reserve_most(out, STEP_BYTES, bytes_max + STEP_BYTES)) return ERR_NO_MEMORY;
        z->next_out = (Bytef *)(out->data + out->len);
        z->avail_out = STEP_BYTES;
        const int rv = inflate(z, Z_NO_FLUSH);
        out->len += STEP_BYTES - z->avail_out;
        out->data[out->len] = '\0';
        if (out->len > bytes_max) return ERR_TOO_LARGE;
        if (rv == Z_STREAM_END) return z->avail_in == 0 ? ERR_OK : ERR_BAD_FRAME;
        if (rv == Z_MEM_ERROR) return ERR_NO_MEMORY;
        if (rv != Z_OK || (z->avail_in == 0 && z->avail_out > 0)) return ERR_BAD_FRAME;
    }
}

enum err grpc_inflate(struct buf *out, const char *encoding, const char *p, size_t n,
                      size_t bytes_max) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n};
    if (encoding == NULL || encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0)
        return ERR_BAD_FRAME; /* it says of itself that it is compressed */
    const int bits = bits_of(encoding);
    if (bits == 0) return ERR_NOT_FOUND;
    if (inflateInit2(&z, bits) != Z_OK) return ERR_NO_MEMORY;
    enum err e = run(&z, out, bytes_max);
    inflateEnd(&z);
    return e;
}
