/* wire: bounded cursors over bytes that cross a process boundary. Little-endian, unaligned, no
 * padding.
 *
 * Errors: sticky. A read past the end (or over a limit) returns false, leaves the destination
 * untouched and fails every later read, so a caller may chain reads and check once. A writer that
 * ran out of memory is marked failed, ignores further writes and is checked once at the end.
 * Thread: none of its own. */
#ifndef BATON_PROTO_WIRE_H
#define BATON_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rd {
    const uint8_t *p;
    size_t n, at;
    bool failed;
};

struct rd rd_of(const void *p, size_t n); /* the bytes must outlive the cursor */
size_t rd_left(const struct rd *r);       /* 0 after a failure too: ask r->failed as well */
bool rd_done(const struct rd *r);         /* everything was read and nothing failed */
bool rd_u8(struct rd *r, uint8_t *v);
bool rd_u16(struct rd *r, uint16_t *v);
bool rd_u32(struct rd *r, uint32_t *v);
bool rd_u64(struct rd *r, uint64_t *v);
bool rd_i32(struct rd *r, int32_t *v);
bool rd_i64(struct rd *r, int64_t *v);
bool rd_f32(struct rd *r, float *v);
bool rd_f64(struct rd *r, double *v);
bool rd_skip(struct rd *r, size_t n);
bool rd_bytes(struct rd *r, const uint8_t **p, size_t n); /* points into the bytes */
bool rd_copy(struct rd *r, void *dst, size_t n);

/* u32 length, then that many bytes, at most n_max. *s points into the bytes and is not terminated.
 */
bool rd_str(struct rd *r, const char **s, size_t *n, size_t n_max);
/* The same into dst[dst_bytes], terminated; refuses what does not fit and strings with a zero byte
 * inside. */
bool rd_cstr(struct rd *r, char *dst, size_t dst_bytes);

struct wr {
    uint8_t *data;
    size_t len, cap;
    bool failed;
};

#define WR_INIT ((struct wr){0})

void wr_free(struct wr *w);  /* frees and zeroes */
void wr_clear(struct wr *w); /* len 0, keeps memory */
void wr_u8(struct wr *w, uint8_t v);
void wr_u16(struct wr *w, uint16_t v);
void wr_u32(struct wr *w, uint32_t v);
void wr_u64(struct wr *w, uint64_t v);
void wr_i32(struct wr *w, int32_t v);
void wr_i64(struct wr *w, int64_t v);
void wr_f32(struct wr *w, float v);
void wr_f64(struct wr *w, double v);
void wr_bytes(struct wr *w, const void *p, size_t n);
void wr_str(struct wr *w, const char *s,
            size_t n); /* as rd_str reads it; over 2^32-1 bytes: failed */
void wr_cstr(struct wr *w, const char *s);
void wr_patch_u32(struct wr *w, size_t at,
                  uint32_t v); /* over four bytes already written; else failed */

#endif
