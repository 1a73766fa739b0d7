/* crc32c: the Castagnoli CRC (polynomial 0x1EDC6F41, reflected, as in RFC 3720 appendix B.4) of
 * frames. Any thread; pure. */
#ifndef BATON_PROTO_CRC32C_H
#define BATON_PROTO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC of bytes seen so far (0 at the start) continued over p[0..n). By the CPU's instruction where
 * it has one. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);

/* The same by table: for other CPUs, and the oracle of the test. */
uint32_t crc32c_soft(uint32_t crc, const void *p, size_t n);

#endif
