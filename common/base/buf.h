/* buf: growable bytes. Once an append fails for memory the buffer is marked failed, keeps what it
 * has and ignores further appends, so a writer checks once at the end. `data` is always terminated
 * by a zero byte that `len` does not count (after the first append). */
#ifndef BATON_BASE_BUF_H
#define BATON_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len, cap;
    bool failed;
};

#define BUF_INIT ((struct buf){0})

void buf_free(struct buf *b);                   /* frees and zeroes */
void buf_clear(struct buf *b);                  /* len 0, keeps memory, and that it has failed */
void buf_forgive(struct buf *b);                /* len 0, and not failed any more */
bool buf_reserve(struct buf *b, size_t n_more); /* room for n_more and the terminator */
/* The same, for a buffer that will hold no more than `most` bytes: it does not grow past them. */
bool buf_reserve_most(struct buf *b, size_t n_more, size_t most);
void buf_append(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes */
/* For a buffer whose first *at bytes have been taken: drops them when that is cheap, and moves *at;
 * an empty one gives much memory back. */
void buf_drop_taken(struct buf *b, size_t *at);
char *buf_steal(struct buf *b); /* caller frees; b is empty after; NULL when failed */

/* Appends s as a JSON string with quotes: escapes `"`, `\` and control characters; UTF-8 stays. */
void buf_json_str(struct buf *b, const char *s, size_t n);
/* As above for text made by a model (inference-api 2.4): unless `controls` is set, control
 * characters other than \n \r \t, and 0x7F, are left out; bytes that are not UTF-8 become U+FFFD.
 */
void buf_json_text(struct buf *b, const char *s, size_t n, bool controls);
/* As much of s[0..n) as fits into dst with a zero behind it, in whole characters; bytes that are
 * not UTF-8 become U+FFFD as above. Returns the length; dst_bytes is 1 at least. */
size_t buf_copy_text(char *dst, size_t dst_bytes, const char *s, size_t n);
/* Bytes of s[0..n) up to the first that is not UTF-8 (strict), in whole characters. */
size_t buf_utf8_span(const char *s, size_t n);
/* Shortest form that reads back the same, always with a point or exponent; null when not finite. */
void buf_json_double(struct buf *b, double v);

#endif
